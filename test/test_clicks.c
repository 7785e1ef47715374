// test/test_clicks.c: lines of clicks become records, records shards, and shards samples. Lines that are wrong are
// named with their column; a shard with any byte changed is refused; what is made up has the losses that are said of
// it.
#include "base/fault.h"
#include "base/io.h"
#include "base/le.h"
#include "data/click/lines.h"
#include "data/click/pack.h"
#include "data/click/planted.h"
#include "data/click/shard.h"
#include "data/click/tools.h"
#include "data/source.h"
#include "test/support/config_file.h"
#include "test/support/expect.h"
#include "test/support/place.h"
#include "trainer/session/auc.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

// --- lines -----------------------------------------------------------------------------------------------------------

static err_t criteo(click *c, const char *line) { return criteo_line(c, (const uint8_t *)line, (int64_t)strlen(line)); }
static err_t movie(click *c, const char *line) {
    return movielens_line(c, (const uint8_t *)line, (int64_t)strlen(line), 4);
}

// No numbers; and 25 ids, of which two are there.
#define EMPTY13 "\t\t\t\t\t\t\t\t\t\t\t\t\t"
#define EMPTY12 "\t\t\t\t\t\t\t\t\t\t\t\t"
#define IDS25 "\t\t05DB9164\tffffffff\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t"

static void lines_of_criteo(void **state) {
    (void)state;
    click c;
    assert_ok(criteo(&c, "1\t1\t-2\t\t0\t1382\t\t\t\t\t\t\t\t" IDS25 "\t0"));
    assert_int_equal(c.label, 1);
    assert_true(c.dense[0] == (float)log(2) && c.dense[1] == 0 && c.dense[2] == 0 && c.dense[3] == 0);
    assert_true(fabsf(c.dense[4] - (float)log(1383)) < 1e-6f && c.dense[12] == 0);
    assert_true(c.id[0] == 0 && c.id[1] == 0x05db9164u + 1 && c.id[2] == 0x100000000u && c.id[3] == 0);
    assert_true(c.id[25] == 1);
    static const struct {
        const char *line, *says;
    } bad[] = {
        {"2" EMPTY13 IDS25 "\t", "column 1: `2`, expected a label, 0 or 1"},
        {EMPTY13 IDS25 "\t", "column 1: ``, expected a label, 0 or 1"},
        {"0\t1.5" EMPTY12 IDS25 "\t", "column 2: `1.5`, expected nothing, or a whole number"},
        {"0" EMPTY12 "-\t" IDS25 "\t", "column 13: `-`, expected nothing, or a whole number"},
        {"0" EMPTY13 "1234567890123456" IDS25 "\t", "column 14: `1234567890123456`, expected nothing"},
        {"0" EMPTY13 IDS25 "\t5g", "column 40: `5g`, expected nothing, or at most 8 hexadecimal digits"},
        {"0" EMPTY13 IDS25 "\t123456789", "column 40: `123456789`, expected nothing"},
        {"0" EMPTY13 IDS25, "39 columns with tabs between, expected 40"},
        {"0" EMPTY13 IDS25 "\t\t", "41 columns with tabs between, expected 40"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_error(criteo(&c, bad[i].line), ERR_DATA, bad[i].says);
}

static void lines_of_movielens(void **state) {
    (void)state;
    click c;
    assert_ok(movie(&c, "196\t242\t3\t881250949"));
    assert_true(c.label == 0 && c.id[0] == 196 && c.id[1] == 242);
    assert_true(fabsf(c.dense[0] - (881250949.0f - 883612800.0f) / 31557600.0f) < 1e-6f);
    assert_ok(movie(&c, "1\t1\t4\t883612800"));
    assert_true(c.label == 1 && c.dense[0] == 0);
    assert_error(movie(&c, "0\t1\t4\t883612800"), ERR_DATA, "column 1: `0`, expected a user, a number from 1 on");
    assert_error(movie(&c, "1\tx\t4\t883612800"), ERR_DATA, "column 2: `x`, expected an item, a number from 1 on");
    assert_error(movie(&c, "1\t1\t6\t883612800"), ERR_DATA, "column 3: `6`, expected a rating, 0.5 to 5 in halves");
    assert_error(movie(&c, "1\t1\t4\t-3"), ERR_DATA, "column 4: `-3`, expected seconds since 1970");
    assert_error(movie(&c, "1 1 4 883612800"), ERR_DATA, "1 columns with tabs between, expected 4");
}

// --- shards ----------------------------------------------------------------------------------------------------------

static click_pack_options options_of(place *p) {
    static char output[IO_PATH];
    snprintf(output, sizeof output, "%s", at(p, "c"));
    return (click_pack_options){.kind = CLICKS_PLANTED,
                                .input = "planted:3:120:9",
                                .output = output,
                                .shard_records = 50,
                                .val_fraction = 0.2,
                                .threshold = 4};
}

// What the records of the planted model are, in order; *split: where each went.
static void samples_are_the_records(void **state) {
    place *p = *state;
    click_pack_report r;
    source *s[2];
    tensor_spec wanted[] = {{.name = "dense", .type = FP32, .dims = 1, .size = {13, 1, 1}},
                            {.name = "ids", .type = INT32, .dims = 1, .size = {26, 1, 1}, .limit = 26 * 7},
                            {.name = "label", .type = INT32, .size = {1, 1, 1}, .limit = 2}};
    click_pack_options o = options_of(p);
    assert_ok(click_pack_run(&o, &r));
    assert_true(r.records[0] + r.records[1] == 120 && r.records[1] > 10 && r.records[1] < 40 && r.shards_out == 3);
    for (int k = 0; k < 2; k++) {
        char files[IO_PATH + 32];
        snprintf(files, sizeof files, "%s-%s-*.bin", o.output, k ? "val" : "train");
        assert_ok(source_open(&s[k], &(source_options){.files = files, .wanted = wanted, .inputs = 3}));
        assert_int_equal(source_about(s[k]).samples, r.records[k]);
        assert_true(source_about(s[k]).best == r.best[k] && r.best[k] > 0);
        assert_ok(source_verify(s[k], NULL, NULL));
    }
    planted *made;
    int64_t next[2] = {0};
    double entropy[2] = {0};
    assert_ok(planted_open(&made, 3, 9));
    for (int64_t n = 0; n < 120; n++) {
        click c;
        double chance;
        float dense[13];
        int32_t ids[26], label;
        planted_record(made, n, &c, &chance);
        int found = -1;
        for (int k = 0; k < 2 && found < 0; k++) {
            if (next[k] == r.records[k]) continue;
            assert_ok(source_look(s[k], next[k], (void *[]){dense, ids, &label}));
            if (memcmp(dense, c.dense, sizeof dense) == 0) found = k;
        }
        assert_true(found >= 0 && label == c.label);
        next[found]++, entropy[found] -= chance * log(chance) + (1 - chance) * log(1 - chance);
        for (int t = 0; t < 26; t++) assert_int_equal(ids[t], t * 7 + click_row(c.id[t], t, 7));
    }
    for (int k = 0; k < 2; k++) assert_true(fabs(r.entropy[k] - entropy[k] / (double)next[k]) < 1e-9);
    planted_close(made);
    source_close(s[0]), source_close(s[1]);
}

// A read that fails is tried again, and one that is cancelled ends.
static void reads_are_tried_again(void **state) {
    place *p = *state;
    click_pack_report r;
    fault_list faults;
    source *s;
    int32_t label;
    char files[IO_PATH + 32];
    click_pack_options o = options_of(p);
    o.val_fraction = 0;
    assert_ok(click_pack_run(&o, &r));
    snprintf(files, sizeof files, "%s-train-*.bin", o.output);
    assert_ok(fault_parse(&faults, "read@1000000"));
    assert_ok(source_open(&s, &(source_options){.files = files, .retry = 2, .faults = &faults}));
    const int64_t read = source_about(s).read;
    assert_ok(fault_parse(&faults, "read@1x2"));
    assert_ok(source_look(s, 0, (void *[]){&label, NULL, NULL}));
    assert_int_equal(source_about(s).retries, 1);
    assert_true(source_about(s).read > read);
    assert_ok(fault_parse(&faults, "read@1x9"));
    assert_error(source_look(s, 119, (void *[]){&label, NULL, NULL}), ERR_IO, "given up after 3 tries");
    source_cancel(s, true);
    assert_error(source_look(s, 119, (void *[]){&label, NULL, NULL}), ERR_INTERRUPTED, "not tried again");
    source_cancel(s, false);
    source_close(s);
}

// Losses of runs on made-up records are compared over years, so a seed's records never change. These are of the build
// that first had this test.
static void what_is_made_up_never_changes(void **state) {
    (void)state;
    planted *made;
    click c;
    double chance;
    assert_ok(planted_open(&made, 3, 9));
    planted_record(made, 119, &c, &chance);
    assert_true(fabs(chance - 0.63432545006780505) < 1e-12 && c.label == 0);
    assert_true(c.dense[0] == (float)log(16) && c.dense[12] == (float)log(2));
    assert_true(c.id[0] == 2 && c.id[12] == 1 && c.id[25] == 2);
    planted_close(made);
}

static uint32_t chance_of(uint32_t *state) { return *state = *state * 1664525 + 1013904223; }

// Reads `reads` samples of the planted model by chance, which are its records, and says how many bytes were read.
static int64_t bytes_of_reads(const char *files, int reads) {
    const tensor_spec wanted = {.name = "dense", .type = FP32, .dims = 1, .size = {13, 1, 1}};
    source *s;
    planted *made;
    float dense[13];
    uint32_t state = 7;
    assert_ok(planted_open(&made, 3, 9));
    assert_ok(source_open(&s, &(source_options){.files = files, .wanted = &wanted, .inputs = 1}));
    int64_t before = source_about(s).read, n = source_about(s).samples;
    for (int i = 0; i < reads; i++) {
        int64_t sample = chance_of(&state) % n;
        click c;
        double chance;
        assert_ok(source_look(s, sample, (void *[]){dense}));
        if (i % 16) continue;  // of a few of them
        planted_record(made, sample, &c, &chance);
        assert_memory_equal(dense, c.dense, sizeof dense);
    }
    int64_t bytes = source_about(s).read - before;
    source_close(s), planted_close(made);
    return bytes;
}

// Where blocks take turns in one place, one that is damaged is not taken for the one before.
static void a_damaged_block_takes_no_place(place *p, int64_t each) {
    const tensor_spec wanted = {.name = "dense", .type = FP32, .dims = 1, .size = {13, 1, 1}};
    float first[13], dense[13];
    source *s;
    FILE *f = fopen(at(p, "c-train-00000.bin"), "r+b");
    assert_true(f && fseek(f, CLICKS_HEADER + CLICK_BLOCK * each + 1, SEEK_SET) == 0 && fputs("damage", f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_ok(source_open(&s, &(source_options){.files = at(p, "c-train-*.bin"), .wanted = &wanted, .inputs = 1}));
    assert_ok(source_look(s, 3, (void *[]){first}));
    assert_error(source_look(s, CLICK_BLOCK + 3, (void *[]){dense}), ERR_DATA, "records 16 to 31 at offset");
    assert_ok(source_look(s, 3, (void *[]){dense}));
    assert_memory_equal(first, dense, sizeof first);
    source_close(s);
}

// Blocks of a small source are read once; those of one that is larger than what is kept, again and again. One file has
// a last block that is not whole, so the next one's first block has another number than its record says.
static void blocks_are_kept(void **state) {
    place *p = *state;
    click_pack_report r;
    click_pack_options o = options_of(p);
    o.input = "planted:3:5000:9", o.shard_records = 1001, o.val_fraction = 0;
    assert_ok(click_pack_run(&o, &r));
    int64_t each = click_bytes((click_form){13, 26, false});
    assert_int_equal(bytes_of_reads(at(p, "c-train-*.bin"), 60000), 5000 * each);
    o.input = "planted:3:140000:9", o.shard_records = 100000;
    assert_ok(click_pack_run(&o, &r));
    assert_true(140000 * each > 32 << 20);
    assert_true(bytes_of_reads(at(p, "c-train-*.bin"), 2000) > 1900 * 16 * each);
    a_damaged_block_takes_no_place(p, each);
}

// An id below the rows is its own row; all others are spread, of each table in another way.
static void rows_of_ids(void **state) {
    (void)state;
    int count[10] = {0}, same = 0;
    for (uint64_t id = 0; id < 10; id++) assert_int_equal(click_row(id, 3, 10), id);
    for (uint64_t id = 10; id < 1010; id++) {
        count[click_row(id, 3, 10)]++;
        same += click_row(id, 3, 10) == click_row(id, 4, 10);
    }
    for (int k = 0; k < 10; k++) assert_true(count[k] > 60 && count[k] < 140);
    assert_true(same > 60 && same < 140);
    assert_int_equal(click_row(0xffffffffffffffffu, 0, 1), 0);
}

// A table may have one row, for all ids.
static void a_table_may_have_one_row(void **state) {
    place *p = *state;
    click_pack_report r;
    const tensor_spec wanted = {.name = "ids", .type = INT32, .dims = 1, .size = {26, 1, 1}, .limit = 26};
    source *s;
    click_pack_options o = options_of(p);
    assert_ok(click_pack_run(&o, &r));
    assert_ok(source_open(&s, &(source_options){.files = at(p, "c-train-*.bin"), .wanted = &wanted, .inputs = 1}));
    for (int64_t k = 0; k < r.records[0]; k++) {
        int32_t ids[26];
        assert_ok(source_look(s, k, (void *[]){ids}));
        for (int t = 0; t < 26; t++) assert_int_equal(ids[t], t);
    }
    source_close(s);
}

static void count_report(void *ctx, const char *text) { *(int *)ctx += text[0] != 0; }

// Of a disk that can't be read no shard is right.
static void unread_shards_are_not_right(void **state) {
    place *p = *state;
    click_pack_report r;
    source *s;
    fault_list faults;
    int reports = 0;
    click_pack_options o = options_of(p);
    assert_ok(click_pack_run(&o, &r));
    assert_ok(fault_parse(&faults, ""));
    assert_ok(source_open(
        &s, &(source_options){.files = at(p, "c-train-*.bin"), .format = FORMAT_CLICKS, .faults = &faults}));
    assert_ok(fault_parse(&faults, "read@3"));
    assert_error(source_verify(s, count_report, &reports), ERR_IO, "c-train-0000");
    assert_int_equal(reports, 0);
    assert_ok(source_verify(s, count_report, &reports));
    source_close(s);
}

// Every byte of a shard has a checksum: when one is changed, the file is refused or the record named.
static void changed_bytes_are_found(void **state) {
    place *p = *state;
    click_pack_report r;
    char *bytes;
    size_t n;
    click_pack_options o = options_of(p);
    assert_ok(click_pack_run(&o, &r));
    assert_ok(io_read_file(at(p, "c-val-00000.bin"), 1 << 20, &bytes, &n));
    for (size_t k = 0; k < n; k += k < CLICKS_HEADER || k > n - 8 ? 1 : 61) {
        source *s;
        int reports = 0;
        bytes[k] ^= 0x10;
        write_bytes(at(p, "x.bin"), bytes, n);
        bytes[k] ^= 0x10;
        err_t rc = source_open(&s, &(source_options){.files = at(p, "x.bin"), .format = FORMAT_CLICKS});
        if (k < CLICKS_HEADER || k >= n - 4 * (size_t)click_blocks(r.records[1])) assert_int_equal(rc, ERR_DATA);
        if (rc != ERR_OK) continue;
        assert_int_equal(source_verify(s, count_report, &reports), ERR_DATA);
        assert_int_equal(reports, 1);
        source_close(s);
    }
    write_bytes(at(p, "x.bin"), bytes, n - 1);
    source *s;
    assert_error(source_open(&s, &(source_options){.files = at(p, "x.bin")}), ERR_DATA, "truncated");
    free(bytes);
}

// A shard of such records.
static void write_shard(const char *path, click_form form, const click *c, int records) {
    click_writer *w;
    assert_ok(click_write_open(&w, path, form));
    for (int i = 0; i < records; i++) assert_ok(click_write(w, &c[i]));
    assert_ok(click_write_seal(w));
    assert_ok(click_write_finish(w, 0));
    click_write_close(w);
}

static void keep_report(void *ctx, const char *text) {
    char *all = ctx;
    snprintf(all + strlen(all), 4096 - strlen(all), "%s\n", text);
}

// What was written so has right checksums, and numbers that no record has. All of several files are looked at.
static void wrong_records_are_named(void **state) {
    enum { RECORDS = 40 };
    place *p = *state;
    click c[RECORDS] = {{0}};
    source *s;
    float dense[3];
    char all[4096] = "";
    const tensor_spec wanted = {.name = "dense", .type = FP32, .dims = 1, .size = {3, 1, 1}};
    c[20].label = 2, c[37].dense[1] = NAN;
    write_shard(at(p, "a.bin"), (click_form){3, 2, false}, c, RECORDS);
    c[20].label = 1, c[37].dense[1] = 0, c[5].dense[2] = INFINITY;
    write_shard(at(p, "b.bin"), (click_form){3, 2, false}, c, RECORDS);
    assert_ok(source_open(&s, &(source_options){.files = at(p, "*.bin"), .wanted = &wanted, .inputs = 1}));
    assert_error(source_verify(s, keep_report, all), ERR_DATA, "3 faults in 2 files: copy or pack these files again");
    assert_non_null(strstr(all, "a.bin: record 20: label 2, expected 0 or 1\n"));
    assert_non_null(strstr(all, "a.bin: record 37: number 1 is not finite\n"));
    assert_non_null(strstr(all, "b.bin: record 5: number 2 is not finite\n"));
    assert_error(source_look(s, 20, (void *[]){dense}), ERR_DATA, "a.bin: record 20: label 2");
    assert_error(source_look(s, RECORDS + 5, (void *[]){dense}), ERR_DATA, "b.bin: record 5: number 2");
    assert_ok(source_look(s, RECORDS + 20, (void *[]){dense}));
    source_close(s);
    assert_ok(source_open(&s, &(source_options){.files = at(p, "b.bin"), .wanted = &wanted, .inputs = 1}));
    assert_error(source_verify(s, keep_report, all), ERR_DATA, "1 fault in 1 files");
    source_close(s);
}

// Files with other numbers or other ids are no data of one run, and one without records is none.
static void files_have_one_form(void **state) {
    place *p = *state;
    const click c = {0};
    source *s;
    char says[64];
    write_shard(at(p, "a.bin"), (click_form){3, 2, false}, &c, 1);
    static const click_form other[] = {{4, 2, false}, {3, 1, false}, {5, 6, false}};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        write_shard(at(p, "b.bin"), other[i], &c, 1);
        snprintf(says, sizeof says, "b.bin has %d numbers and %d ids a record, and ", other[i].dense, other[i].tables);
        assert_error(source_open(&s, &(source_options){.files = at(p, "?.bin"), .format = FORMAT_CLICKS}), ERR_DATA,
                     says, "a.bin has 3 and 2: expected the same of all");
    }
    write_shard(at(p, "b.bin"), (click_form){3, 2, false}, &c, 0);
    assert_error(source_open(&s, &(source_options){.files = at(p, "?.bin"), .format = FORMAT_CLICKS}), ERR_DATA,
                 "b.bin", "offset 24: records 0");
}

// What `lockstep data` says of a shard that is whole, and of one with two damaged blocks.
static void tools_say(void **state) {
    place *p = *state;
    click_pack_report r;
    char *bytes, *said;
    size_t n, length;
    click_pack_options o = options_of(p);
    assert_ok(click_pack_run(&o, &r));
    assert_true(click_tools_know(at(p, "c-val-00000.bin")));
    assert_false(click_tools_know(at(p, "none.bin")));
    uint8_t head[CLICKS_MAGIC_BYTES];  // with two bytes of eight damaged it is one still, and refused as damaged
    memcpy(head, clicks_magic, sizeof head);
    head[0] ^= 1, head[5] ^= 1;
    assert_true(clicks_begin(head, sizeof head));
    head[3] ^= 1;
    assert_false(clicks_begin(head, sizeof head));
    FILE *out = open_memstream(&said, &length);
    assert_ok(click_tools_info(at(p, "c-val-00000.bin"), out));
    assert_ok(click_tools_verify(at(p, "c-val-00000.bin"), out));
    fflush(out);
    char line[160];
    snprintf(line, sizeof line, ": clicks, %" PRId64 " records of 13 numbers and 26 ids, ", r.records[1]);
    assert_non_null(strstr(said, line));
    snprintf(line, sizeof line, "    %.2f %% have label 1, best possible loss ",
             100 * r.labels[1] / (double)r.records[1]);
    assert_non_null(strstr(said, line));
    snprintf(line, sizeof line, ": right, %" PRId64 " records\n", r.records[1]);
    assert_non_null(strstr(said, line));
    assert_ok(io_read_file(at(p, "c-train-00000.bin"), 1 << 20, &bytes, &n));
    int64_t block = CLICK_BLOCK * click_bytes((click_form){13, 26, false});
    bytes[CLICKS_HEADER + 3 * block] ^= 1;  // the last one has two records
    write_bytes(at(p, "x.bin"), bytes, n);
    assert_error(click_tools_verify(at(p, "x.bin"), out), ERR_DATA, "x.bin: 1 fault: copy or pack this file again");
    bytes[CLICKS_HEADER + block] ^= 1, bytes[CLICKS_HEADER + 3 * block - 1] ^= 1;
    write_bytes(at(p, "x.bin"), bytes, n);
    assert_error(click_tools_verify(at(p, "x.bin"), out), ERR_DATA, "3 faults: copy or pack this file again");
    fclose(out);
    assert_non_null(strstr(said, "records 48 to 49 at offset"));
    assert_non_null(strstr(said, "records 16 to 31 at offset"));
    assert_non_null(strstr(said, "records 32 to 47 at offset"));
    free(said), free(bytes);
}

// Files of others, a pack that fails, and one that takes its place.
static void packs_lines(void **state) {
    place *p = *state;
    click_pack_report r;
    write_text(at(p, "u.data"), "196\t242\t3\t881250949\r\n186\t302\t5\t891717742\n22\t377\t1\t878887116\n");
    click_pack_options o = options_of(p);
    char input[IO_PATH];
    snprintf(input, sizeof input, "%s", at(p, "u.data"));
    o.kind = CLICKS_MOVIELENS, o.input = input, o.val_fraction = 0;
    assert_ok(click_pack_run(&o, &r));
    assert_true(r.records[0] == 3 && r.labels[0] == 1 && r.records[1] == 0 && r.best[0] == 0 && r.tables == 2);
    o.threshold = 3;
    assert_ok(click_pack_run(&o, &r));
    assert_true(r.labels[0] == 2);
    write_text(at(p, "u.data"), "196\t242\t3\t881250949\n186\t302\tfive\t891717742\n");
    assert_error(click_pack_run(&o, &r), ERR_DATA,
                 "u.data: line 2: column 3: `five`, expected a rating, 0.5 to 5 in halves");
    assert_int_equal(access(at(p, "c-train-00000.bin"), F_OK), 0);  // the old one is still there
    assert_int_equal(access(at(p, "c-train-00000.bin.tmp"), F_OK), -1);
    click_pack_options none = o;
    none.input = "";
    assert_error(click_pack_run(&none, &r), ERR_CONFIG, "[pack] input and output: expected both");
    none = o, none.output = "";
    assert_error(click_pack_run(&none, &r), ERR_CONFIG, "[pack] input and output: expected both");
    none = o, none.shard_records = 0;
    assert_error(click_pack_run(&none, &r), ERR_CONFIG, "[pack] shard_records = 0, expected at least 1");
    none = o, none.val_fraction = 1;
    assert_error(click_pack_run(&none, &r), ERR_CONFIG, "[pack] val_fraction = 1, expected 0 to less than 1");
    o.kind = CLICKS_PLANTED;
    static const char *const bad[] = {"planted:1:2",   "planted:1:2:3:4",     "planted:a:2:3", "planted:1:0:3",
                                      "planted:1:2:0", "planted:1:2:9999999", "u.data"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        o.input = bad[i];
        assert_error(click_pack_run(&o, &r), ERR_CONFIG, "[pack] input = ");
    }
}

// What the pack says of the planted model: its loss is near its entropy, and below that of the click rate alone. Ids
// are as Zipf has them.
static void planted_is_what_it_says(void **state) {
    (void)state;
    planted *made;
    enum { N = 20000, IDS = 50 };
    int count[IDS + 1] = {0}, clicks = 0;
    double loss = 0, entropy = 0, chances = 0;
    assert_ok(planted_open(&made, 11, IDS));
    for (int64_t n = 0; n < N; n++) {
        click c;
        double chance;
        planted_record(made, n, &c, &chance);
        for (int t = 0; t < 26; t++) count[c.id[t]]++;
        loss -= log(c.label ? chance : 1 - chance), chances += chance, clicks += c.label;
        entropy -= chance * log(chance) + (1 - chance) * log(1 - chance);
    }
    double rate = chances / N, zipf = 0;
    for (int k = 1; k <= IDS; k++) zipf += pow(k, -1.05);
    assert_true(fabs(loss - entropy) / N < 0.015 && fabs(clicks - chances) < 4 * sqrt(N * rate * (1 - rate)));
    assert_true(entropy / N < 0.95 * -(rate * log(rate) + (1 - rate) * log(1 - rate)));
    for (int k = 1; k <= IDS; k++) {
        double expected = 26.0 * N * pow(k, -1.05) / zipf;
        assert_true(fabs(count[k] - expected) < 5 * sqrt(expected));
    }
    planted_close(made);
}

// --- AUC -------------------------------------------------------------------------------------------------------------

static void area(void **state) {
    (void)state;
    static const struct {
        int class;
        double chance;  // also in each of the two highest buckets
    } x[] = {{0, 0.1}, {1, 0.4}, {0, 0.4}, {1, 1}, {0, 0}, {1, 0.05}, {1, 1 - 0x1p-17}, {0, 1 - 0x3p-17}, {0, 0.99}};
    enum { N = sizeof x / sizeof *x };
    int64_t *count = calloc(2 * AUC_BUCKETS, sizeof *count);
    double pairs = 0, all = 0;
    assert_true(isnan(auc_area(count)));
    for (int i = 0; i < N; i++) {
        auc_add(count, x[i].class, x[i].chance);
        for (int k = 0; k < N; k++) {
            if (x[i].class != 1 || x[k].class != 0) continue;
            all++, pairs += x[i].chance > x[k].chance ? 1 : x[i].chance == x[k].chance ? 0.5 : 0;
        }
        if (i == 0) assert_true(isnan(auc_area(count)));
    }
    assert_true(auc_area(count) == pairs / all);
    free(count);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_of_criteo),
        cmocka_unit_test(lines_of_movielens),
        cmocka_unit_test_setup_teardown(samples_are_the_records, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(reads_are_tried_again, place_enter, place_leave),
        cmocka_unit_test(what_is_made_up_never_changes),
        cmocka_unit_test_setup_teardown(blocks_are_kept, place_enter, place_leave),
        cmocka_unit_test(rows_of_ids),
        cmocka_unit_test_setup_teardown(a_table_may_have_one_row, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(unread_shards_are_not_right, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(changed_bytes_are_found, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(wrong_records_are_named, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(files_have_one_form, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(tools_say, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(packs_lines, place_enter, place_leave),
        cmocka_unit_test(planted_is_what_it_says),
        cmocka_unit_test(area),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
