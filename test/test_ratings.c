// test/test_ratings.c: lines of ratings in MovieLens' three forms become the same records, records shards, and shards
// samples. A line that is wrong is named with file, line and column; a shard with any byte changed is refused; shards
// of clicks that were packed before there were ratings are read as ever; what is made up has the loss that is said of
// it.
#include "base/io.h"
#include "base/le.h"
#include "data/click/lines.h"
#include "data/click/pack.h"
#include "data/click/rated.h"
#include "data/click/shard.h"
#include "data/click/tools.h"
#include "data/source.h"
#include "test/support/config_file.h"
#include "test/support/expect.h"
#include "test/support/place.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

// --- lines -----------------------------------------------------------------------------------------------------------

static err_t rating(click *c, const char *line) {
    return movielens_line(c, (const uint8_t *)line, (int64_t)strlen(line), 0);
}

static void lines_of_three_forms(void **state) {
    (void)state;
    static const struct {
        const char *line;
        float label;
        uint64_t user, item;
    } good[] = {
        {"196\t242\t3\t881250949", 3, 196, 242},
        {"1::1193::5::978300760", 5, 1, 1193},
        {"1,31,2.5,1260759144", 2.5f, 1, 31},
        {"610,170875,0.5,1493846415", 0.5f, 610, 170875},
        {"7,999999999999999,4.0,0", 4, 7, 999999999999999},
        {"1::122::3.5::838985046", 3.5f, 1, 122},
        {"1\t2\t5.0\t3", 5, 1, 2},
        {"1\t2\t1\t3", 1, 1, 2},
    };
    click c;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_ok(rating(&c, good[i].line));
        assert_true(c.label == good[i].label && c.id[0] == good[i].user && c.id[1] == good[i].item);
    }
    // with a threshold it is a click or none: half a star below is none
    static const char *const lines[] = {"1,31,3.5,9", "1,31,4.0,9", "1,31,4.5,9"};
    for (int i = 0; i < 3; i++) {
        assert_ok(movielens_line(&c, (const uint8_t *)lines[i], (int64_t)strlen(lines[i]), 4));
        assert_true(c.label == (i > 0));
    }
}

static void wrong_lines_are_named(void **state) {
    (void)state;
    static const struct {
        const char *line, *says;
    } bad[] = {
        {"0,1,4,9", "column 1: `0`, expected a user, a number from 1 on"},
        {"-1,1,4,9", "column 1: `-1`, expected a user, a number from 1 on"},
        {"1::x::4::9", "column 2: `x`, expected an item, a number from 1 on"},
        {"1::1234567890123456::4::9", "column 2: `1234567890123456`, expected an item"},
        {"1,0,4,9", "column 2: `0`, expected an item, a number from 1 on"},
        {"1,1,5.5,9", "column 3: `5.5`, expected a rating, 0.5 to 5 in halves"},
        {"1,1,0.0,9", "column 3: `0.0`, expected a rating"},
        {"1,1,0,9", "column 3: `0`, expected a rating"},
        {"1,1,3.2,9", "column 3: `3.2`, expected a rating"},
        {"1,1,3.,9", "column 3: `3.`, expected a rating"},
        {"1,1,3.50,9", "column 3: `3.50`, expected a rating"},
        {"1,1,3;5,9", "column 3: `3;5`, expected a rating"},
        {"1,1,.5,9", "column 3: `.5`, expected a rating"},
        {"1,1,,9", "column 3: ``, expected a rating"},
        {"1,1,6.0,9", "column 3: `6.0`, expected a rating"},
        {"1,1,4,", "column 4: ``, expected seconds since 1970"},
        {"1,1,4,1.5e9", "column 4: `1.5e9`, expected seconds since 1970"},
        {"1,1,4,1234567890123456789012345678", "column 4: `123456789012345678901234`, expected seconds"},
        {"1,1,4", "3 columns with commas between, expected 4"},
        {"1::1::4::9::", "5 columns with `::` between, expected 4"},
        {"1::1,4,9", "2 columns with `::` between, expected 4"},
        {"1\t1,4\t9", "3 columns with tabs between, expected 4"},
        {"", "1 columns with tabs between, expected 4"},
        {"userId,movieId,rating,timestamp", "column 1: `userId`, expected a user"},
    };
    click c;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_error(rating(&c, bad[i].line), ERR_DATA, bad[i].says);
    static const char header[] = "userId,movieId,rating,timestamp";
    assert_true(movielens_header((const uint8_t *)header, (int64_t)strlen(header)));
    assert_false(movielens_header((const uint8_t *)header, (int64_t)strlen(header) - 1));
    assert_false(movielens_header((const uint8_t *)"userid,movieid,rating,timestamp", (int64_t)strlen(header)));
}

// --- packing ---------------------------------------------------------------------------------------------------------

typedef struct packing {
    click_pack_options o;
    click_pack_report r;
    char input[IO_PATH], val[IO_PATH], output[IO_PATH];
} packing;

static void prepare(packing *k, place *p, const char *input, const char *output) {
    *k = (packing){.o = {.kind = CLICKS_RATINGS, .shard_records = 100000, .threshold = 4}};
    snprintf(k->input, sizeof k->input, "%s", at(p, input));
    snprintf(k->output, sizeof k->output, "%s", at(p, output));
    k->o.input = k->input, k->o.output = k->output;
}

static void same_files(place *p, const char *a, const char *b) {
    char *x, *y;
    size_t n, m;
    assert_ok(io_read_file(at(p, a), 1 << 20, &x, &n));
    assert_ok(io_read_file(at(p, b), 1 << 20, &y, &m));
    assert_true(n == m && memcmp(x, y, n) == 0);
    free(x), free(y);
}

static void forms_make_the_same_shard(void **state) {
    static const char *const name[] = {"tabs", "colons", "commas"};
    place *p = *state;
    packing k;
    write_text(at(p, "tabs"), "196\t242\t3\t881250949\r\n186\t302\t4.5\t891717742\n22\t377\t1\t878887116\n");
    write_text(at(p, "colons"), "196::242::3::881250949\n186::302::4.5::891717742\n22::377::1::878887116\n");
    write_text(at(p, "commas"), "userId,movieId,rating,timestamp\r\n196,242,3.0,881250949\r\n186,302,4.5,891717742\r\n"
                                "22,377,1.0,878887116");
    for (int i = 0; i < 3; i++) {
        prepare(&k, p, name[i], name[i]);
        assert_ok(click_pack_run(&k.o, &k.r));
        assert_true(k.r.rated && k.r.records[0] == 3 && k.r.records[1] == 0 && k.r.labels[0] == 8.5);
        assert_true(k.r.dense == 0 && k.r.tables == 2 && k.r.best[0] == 0 && k.r.shards_out == 1);
    }
    same_files(p, "tabs-train-00000.bin", "colons-train-00000.bin");
    same_files(p, "tabs-train-00000.bin", "commas-train-00000.bin");
    // of several files each may have a header
    write_text(at(p, "a.csv"), "userId,movieId,rating,timestamp\n196,242,3.0,881250949\n186,302,4.5,891717742\n");
    write_text(at(p, "b.csv"), "userId,movieId,rating,timestamp\n22,377,1.0,878887116\n");
    prepare(&k, p, "*.csv", "both");
    assert_ok(click_pack_run(&k.o, &k.r));
    same_files(p, "tabs-train-00000.bin", "both-train-00000.bin");
    // as clicks, too
    prepare(&k, p, "commas", "c");
    k.o.kind = CLICKS_MOVIELENS;
    assert_ok(click_pack_run(&k.o, &k.r));
    assert_true(!k.r.rated && k.r.labels[0] == 1 && k.r.dense == 1);
}

static void wrong_files_are_named(void **state) {
    place *p = *state;
    packing k;
    write_text(at(p, "r.csv"), "userId,movieId,rating,timestamp\n1,2,3.0,4\n1,2,3.1,4\n");
    prepare(&k, p, "r.csv", "r");
    assert_error(click_pack_run(&k.o, &k.r), ERR_DATA, "r.csv: line 3: column 3: `3.1`, expected a rating, 0.5 to 5");
    assert_int_equal(access(at(p, "r-train-00000.bin.tmp"), F_OK), -1);
    write_text(at(p, "r.csv"), "1,2,3.0,4\nuserId,movieId,rating,timestamp\n");
    assert_error(click_pack_run(&k.o, &k.r), ERR_DATA, "r.csv: line 2: column 1: `userId`, expected a user");
    write_text(at(p, "r.csv"), "userId,movieId,rating,timestamp\n");
    assert_error(click_pack_run(&k.o, &k.r), ERR_DATA, "no record is left for training");
}

// A file of its own for validation: u1.base and u1.test, for one.
static void validation_has_its_own_file(void **state) {
    place *p = *state;
    packing k;
    write_text(at(p, "base"), "1\t2\t3\t4\n5\t6\t1\t8\n9\t10\t2\t12\n");
    write_text(at(p, "test"), "5\t2\t5\t4\n9\t6\t4\t8\n");
    prepare(&k, p, "base", "u");
    snprintf(k.val, sizeof k.val, "%s", at(p, "test"));
    k.o.val_input = k.val, k.o.val_fraction = 0.5;
    assert_ok(click_pack_run(&k.o, &k.r));
    assert_true(k.r.records[0] == 3 && k.r.labels[0] == 6 && k.r.records[1] == 2 && k.r.labels[1] == 9);
    // one that is wrong leaves nothing of either, and the old ones stay
    write_text(at(p, "test"), "5\t2\t5\t4\n9\t6\tfour\t8\n");
    assert_error(click_pack_run(&k.o, &k.r), ERR_DATA, "/test: line 2: column 3: `four`");
    assert_int_equal(access(at(p, "u-train-00000.bin.tmp"), F_OK), -1);
    assert_int_equal(access(at(p, "u-val-00000.bin.tmp"), F_OK), -1);
    assert_int_equal(access(at(p, "u-train-00000.bin"), F_OK) + access(at(p, "u-val-00000.bin"), F_OK), 0);
    snprintf(k.val, sizeof k.val, "%s", at(p, "none"));
    assert_error(click_pack_run(&k.o, &k.r), ERR_CONFIG, "/none", "val_input");
    k.o.input = "planted:1:20:3:3";
    assert_error(click_pack_run(&k.o, &k.r), ERR_CONFIG, "[pack] val_input = ", "val_fraction is for validation");
}

// --- shards ----------------------------------------------------------------------------------------------------------

static click_pack_report pack_planted(place *p, const char *output) {
    packing k;
    prepare(&k, p, "", output);
    k.o.input = "planted:3:130:9:14", k.o.shard_records = 50, k.o.val_fraction = 0.2;
    assert_ok(click_pack_run(&k.o, &k.r));
    assert_true(k.r.records[0] + k.r.records[1] == 130 && k.r.records[1] > 10 && k.r.records[1] < 45);
    return k.r;
}

enum { ROWS = 7 };

static err_t open_ratings(source **s, const char *files, bool whole) {
    tensor_spec wanted[] = {{.name = "one", .type = FP32, .dims = 1, .size = {1, 1, 1}},
                            {.name = "ids", .type = INT32, .dims = 1, .size = {2, 1, 1}, .limit = 2 * ROWS},
                            {.name = "label", .type = FP32, .size = {1, 1, 1}}};
    if (whole) wanted[1].size[0] = 4, wanted[1].limit = 0;
    return source_open(s, &(source_options){.files = files, .wanted = wanted, .inputs = 3});
}

// Of training and validation shards, in order: what the generator makes, split.
static void samples_are_the_records(void **state) {
    place *p = *state;
    source *s[2], *all;
    rated *made;
    int64_t next[2] = {0};
    double loss[2] = {0}, entropy[2] = {0};
    const click_pack_report r = pack_planted(p, "r");
    assert_ok(open_ratings(&s[0], at(p, "r-train-*.bin"), false));
    assert_ok(open_ratings(&s[1], at(p, "r-val-*.bin"), false));
    assert_ok(open_ratings(&all, at(p, "r-val-*.bin"), true));
    assert_ok(rated_open(&made, &(rated_shape){3, 130, 9, 14}));
    for (int64_t n = 0; n < 130; n++) {
        click c;
        double mean, variance;
        float one, label;
        int32_t ids[2];
        rated_record(made, n, &c, &mean, &variance);
        int found = -1;
        for (int k = 0; k < 2 && found < 0; k++) {
            if (next[k] == source_about(s[k]).samples) continue;
            assert_ok(source_look(s[k], next[k], (void *[]){&one, ids, &label}));
            assert_true(one == 1);
            if (label == c.label && ids[0] == click_row(c.id[0], 0, ROWS) &&
                ids[1] == ROWS + click_row(c.id[1], 1, ROWS))
                found = k;
        }
        assert_true(found >= 0);
        if (found == 1) {
            uint64_t whole[2];
            assert_ok(source_look(all, next[1], (void *[]){&one, whole, &label}));
            assert_true(whole[0] == c.id[0] && whole[1] == c.id[1] && label == c.label);
        }
        next[found]++, loss[found] += ((double)c.label - mean) * ((double)c.label - mean), entropy[found] += variance;
    }
    for (int k = 0; k < 2; k++) {
        assert_int_equal(next[k], source_about(s[k]).samples);
        assert_true(fabs(source_about(s[k]).best - loss[k] / (double)next[k]) < 1e-12);
        assert_true(fabs(r.entropy[k] - entropy[k] / (double)next[k]) < 1e-12);
        assert_ok(source_verify(s[k], NULL, NULL));
        source_close(s[k]);
    }
    source_close(all);
    rated_close(made);
}

// Records of several shards in no order, as a shuffled run reads them: blocks of one shard have the numbers of others'.
static void any_order_has_the_records(void **state) {
    enum { SHARD = 50, RECORDS = 130 };
    place *p = *state;
    packing k;
    source *s;
    rated *made;
    prepare(&k, p, "", "r");
    k.o.input = "planted:3:130:9:14", k.o.shard_records = SHARD;
    assert_ok(click_pack_run(&k.o, &k.r));
    assert_int_equal(k.r.shards_out, 3);
    assert_ok(open_ratings(&s, at(p, "r-train-*.bin"), true));
    assert_ok(rated_open(&made, &(rated_shape){3, RECORDS, 9, 14}));
    for (int i = 0; i < SHARD; i++)
        for (int n = i; n < RECORDS; n += SHARD) {
            click c;
            double mean, variance;
            float one, label;
            uint64_t id[2];
            rated_record(made, n, &c, &mean, &variance);
            assert_ok(source_look(s, n, (void *[]){&one, id, &label}));
            assert_true(label == c.label && id[0] == c.id[0] && id[1] == c.id[1]);
        }
    source_close(s);
    rated_close(made);
}

// As of clicks: records of a seed are those of the build that first had this test.
static void what_is_made_up_never_changes(void **state) {
    (void)state;
    rated *made;
    click c;
    double mean, variance;
    assert_ok(rated_open(&made, &(rated_shape){3, 130, 9, 14}));
    rated_record(made, 126, &c, &mean, &variance);
    assert_true(fabs(mean - 2.3165615144517071) < 1e-12 && fabs(variance - 0.54162567547173357) < 1e-12);
    assert_true(c.label == 2 && c.id[0] == 7 && c.id[1] == 10);
    rated_record(made, 6, &c, &mean, &variance);  // of the same two: another draw
    assert_true(fabs(mean - 2.3165615144517071) < 1e-12 && c.label == 2.5f && c.id[0] == 7 && c.id[1] == 10);
    rated_close(made);
    assert_ok(rated_open(&made, &(rated_shape){17, 3000, 60, 60}));
    rated_record(made, 1683, &c, &mean, &variance);
    assert_true(fabs(mean - (1 + 9 * 0.05) / 2) < 1e-12);  // no chance of a hit is less than 0.05
    rated_close(made);
}

// The best possible loss is said of shards that were packed together, and of no others.
static void best_is_of_one_pack(void **state) {
    place *p = *state;
    packing k;
    source *s;
    for (int seed = 1; seed <= 2; seed++) {
        char input[64];
        snprintf(input, sizeof input, "planted:%d:130:9:14", seed);
        prepare(&k, p, "", seed == 1 ? "a" : "b");
        k.o.input = input, k.o.shard_records = 50;
        assert_ok(click_pack_run(&k.o, &k.r));
        assert_ok(open_ratings(&s, at(p, seed == 1 ? "a-train-*.bin" : "b-train-*.bin"), false));
        assert_true(source_about(s).files == 3 && source_about(s).best == k.r.best[0] && k.r.best[0] > 0);
        source_close(s);
    }
    assert_ok(open_ratings(&s, at(p, "?-train-*.bin"), false));
    assert_true(source_about(s).files == 6 && source_about(s).best == 0);
    source_close(s);
    // also where it is the first or the last file that differs
    for (int last = 0; last < 2; last++) {
        prepare(&k, p, "", last ? "z" : "0");
        k.o.input = "planted:3:130:9:14";
        assert_ok(click_pack_run(&k.o, &k.r));
        assert_ok(open_ratings(&s, at(p, last ? "[az]-train-*.bin" : "[0a]-train-*.bin"), false));
        assert_true(source_about(s).files == 4 && source_about(s).best == 0);
        source_close(s);
    }
}

// A model that reads something else is refused in the words of its keys.
static void models_must_fit(void **state) {
    place *p = *state;
    source *s;
    packing k;
    pack_planted(p, "r");
    tensor_spec wanted[] = {{.name = "dense", .type = FP32, .dims = 1, .size = {1, 1, 1}},
                            {.name = "ids", .type = INT32, .dims = 1, .size = {2, 1, 1}, .limit = 2 * ROWS},
                            {.name = "label", .type = FP32, .size = {1, 1, 1}}};
    source_options o = {.files = at(p, "r-val-*.bin"), .wanted = wanted, .inputs = 3};
    assert_error(source_open(&s, &o), ERR_CONFIG, "the model reads 1 numbers and 2 ids a record", "has 0 and 2",
                 "set [model] dense = 0 and tables = 2");
    wanted[2].type = INT32, wanted[2].limit = 2;
    assert_error(source_open(&s, &o), ERR_CONFIG, "has ratings: set [model] task = regress");
    write_text(at(p, "u.data"), "196\t242\t3\t881250949\n");
    prepare(&k, p, "u.data", "c");
    k.o.kind = CLICKS_MOVIELENS;
    assert_ok(click_pack_run(&k.o, &k.r));
    wanted[2].type = FP32, wanted[2].limit = 0;
    o.files = at(p, "c-train-*.bin");
    assert_error(source_open(&s, &o), ERR_CONFIG, "has clicks: set [model] task = classify", "[pack] clicks = ratings");
    assert_error(open_ratings(&s, at(p, "?-train-00000.bin"), false), ERR_DATA, "has ratings, and",
                 "clicks: expected the same of all");
}

static void count_report(void *ctx, const char *text) { *(int *)ctx += text[0] != 0; }

// Every byte of a shard has a checksum.
static void changed_bytes_are_found(void **state) {
    place *p = *state;
    char *bytes;
    size_t n;
    const int64_t blocks = click_blocks(pack_planted(p, "r").records[1]);
    assert_ok(io_read_file(at(p, "r-val-00000.bin"), 1 << 20, &bytes, &n));
    for (size_t k = 0; k < n; k++) {
        source *s;
        int reports = 0;
        bytes[k] ^= 0x10;
        write_bytes(at(p, "x.bin"), bytes, n);
        bytes[k] ^= 0x10;
        err_t rc = source_open(&s, &(source_options){.files = at(p, "x.bin"), .format = FORMAT_CLICKS});
        if (k < CLICKS_HEADER || k >= n - 4 * (size_t)blocks) assert_int_equal(rc, ERR_DATA);
        if (rc != ERR_OK) continue;
        assert_int_equal(source_verify(s, count_report, &reports), ERR_DATA);
        assert_int_equal(reports, 1);
        source_close(s);
    }
    free(bytes);
}

// A shard whose header was changed on purpose, with its checksums put right.
static err_t open_changed(place *p, const char *of, size_t offset, uint32_t value) {
    char *bytes;
    size_t n;
    source *s = NULL;
    int reports = 0;
    assert_ok(io_read_file(at(p, of), 1 << 20, &bytes, &n));
    le32_put((uint8_t *)bytes + offset, value);
    uint32_t dense = le32_get((uint8_t *)bytes + 12), tables = le32_get((uint8_t *)bytes + 16);
    int64_t records = (int64_t)le64_get((uint8_t *)bytes + 24);
    size_t table = 4 * (size_t)click_blocks(records),
           each = (size_t)click_bytes((click_form){(int)dense, (int)tables, true});
    for (size_t k = 0; k < table / 4 && offset >= CLICKS_HEADER; k++) {
        size_t first = CLICKS_HEADER + k * CLICK_BLOCK * each, end = first + CLICK_BLOCK * each;
        if (end > n - table) end = n - table;
        le32_put((uint8_t *)bytes + n - table + 4 * k,
                 (uint32_t)crc32(0, (uint8_t *)bytes + first, (uInt)(end - first)));
    }
    le32_put((uint8_t *)bytes + 120, (uint32_t)crc32(0, (uint8_t *)bytes + n - table, (uInt)table));
    le32_put((uint8_t *)bytes + 124, (uint32_t)crc32(0, (uint8_t *)bytes, 124));
    write_bytes(at(p, "x.bin"), bytes, n);
    free(bytes);
    err_t rc = source_open(&s, &(source_options){.files = at(p, "x.bin"), .format = FORMAT_CLICKS});
    if (rc == ERR_OK) rc = source_verify(s, count_report, &reports);
    err_record why = rc == ERR_OK ? (err_record){0} : *err_last();
    if (s) source_close(s);
    return rc == ERR_OK ? ERR_OK : err_restore(&why);
}

static void versions(void **state) {
    place *p = *state;
    pack_planted(p, "r");
    const char *file = "r-val-00000.bin";
    assert_ok(open_changed(p, file, 8, RATINGS_VERSION));
    assert_error(open_changed(p, file, 8, 3), ERR_DATA, "offset 8: version 3, expected 2: a later lockstep wrote it");
    assert_error(open_changed(p, file, 8, 0), ERR_DATA, "offset 8: version 0");
    // clicks have numbers
    assert_error(open_changed(p, file, 8, CLICKS_VERSION), ERR_DATA,
                 "offset 12: numbers of a record 0, expected 1 to 64");
    assert_error(open_changed(p, file, 12, 65), ERR_DATA, "offset 12: numbers of a record 65, expected 0 to 64");
    assert_error(open_changed(p, file, 16, 0), ERR_DATA, "offset 16: ids of a record 0, expected 1 to 64");
    assert_error(open_changed(p, file, 16, 65), ERR_DATA, "offset 16: ids of a record 65, expected 1 to 64");
    // as many records as the file has
    char *bytes;
    size_t n;
    assert_ok(io_read_file(at(p, file), 1 << 20, &bytes, &n));
    const uint32_t records = le32_get((uint8_t *)bytes + 24),
                   wrong[] = {0, records - 1, records + 1, records + CLICK_BLOCK};
    free(bytes);
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++)
        assert_error(open_changed(p, file, 24, wrong[k]), ERR_DATA, "offset 24: records ", "as many as the file has");
    // the best loss is a number that is not below 0: neither -1 nor infinite
    assert_ok(open_changed(p, file, 40, 0));
    assert_error(open_changed(p, "x.bin", 44, 0xbff00000), ERR_DATA, "offset 40: best loss of bits", "expected 0 or a");
    assert_ok(open_changed(p, file, 40, 0));
    assert_error(open_changed(p, "x.bin", 44, 0x7ff00000), ERR_DATA, "offset 40: best loss of bits", "expected 0 or a");
    assert_error(open_changed(p, file, CLICKS_HEADER, 0x7f800000), ERR_DATA, "1 fault");
    assert_error(open_changed(p, file, CLICKS_HEADER + 20 * 17, 0xffc00000), ERR_DATA, "1 fault");
}

// test/golden/clicks-1.bin was packed before there were ratings: three lines of u.data.
static void old_shards_are_read(void **state) {
    place *p = *state;
    packing k;
    static const struct {
        int32_t label;
        uint64_t id[2];
        double seconds;
    } wanted[] = {{0, {196, 242}, 881250949}, {1, {186, 302}, 891717742}, {0, {22, 377}, 878887116}};
    source *s;
    tensor_spec reads[] = {{.name = "dense", .type = FP32, .dims = 1, .size = {1, 1, 1}},
                           {.name = "ids", .type = INT32, .dims = 1, .size = {4, 1, 1}},
                           {.name = "label", .type = INT32, .size = {1, 1, 1}, .limit = 2}};
    assert_ok(source_open(&s, &(source_options){.files = "test/golden/clicks-1.bin", .wanted = reads, .inputs = 3}));
    assert_int_equal(source_about(s).samples, 3);
    assert_string_equal(source_about(s).hash, "0268ddbff846e3eb");
    for (int64_t n = 0; n < 3; n++) {
        float years;
        int32_t label;
        uint64_t id[2];
        assert_ok(source_look(s, n, (void *[]){&years, id, &label}));
        assert_true(label == wanted[n].label && id[0] == wanted[n].id[0] && id[1] == wanted[n].id[1]);
        assert_true(fabs((double)years - (wanted[n].seconds - 883612800) / 31557600) < 1e-6);
    }
    source_close(s);
    write_text(at(p, "u.data"), "196\t242\t3\t881250949\n186\t302\t5\t891717742\n22\t377\t1\t878887116\n");
    prepare(&k, p, "u.data", "c");
    k.o.kind = CLICKS_MOVIELENS;
    assert_ok(click_pack_run(&k.o, &k.r));
    char *now, *then;
    size_t n, m;
    assert_ok(io_read_file(at(p, "c-train-00000.bin"), 1 << 16, &now, &n));
    assert_ok(io_read_file("test/golden/clicks-1.bin", 1 << 16, &then, &m));
    assert_true(n == m && memcmp(now, then, n) == 0);
    free(now), free(then);
}

static void tools_say(void **state) {
    place *p = *state;
    packing k;
    char *said;
    size_t length;
    write_text(at(p, "u.data"), "196\t242\t3.5\t881250949\n186\t302\t5\t891717742\n22\t377\t0.5\t878887116\n");
    prepare(&k, p, "u.data", "r");
    assert_ok(click_pack_run(&k.o, &k.r));
    FILE *out = open_memstream(&said, &length);
    assert_ok(click_tools_info(at(p, "r-train-00000.bin"), out));
    assert_ok(click_tools_verify(at(p, "r-train-00000.bin"), out));
    assert_ok(click_tools_info("test/golden/clicks-1.bin", out));
    fclose(out);
    assert_non_null(strstr(said, ": ratings, 3 records of 0 numbers and 2 ids, 192 bytes, a checksum for 16 records\n"
                                 "    from 0.5 to 5, 3.0000 in the mean\n"));
    assert_non_null(strstr(said, ": right, 3 records\n"));
    assert_non_null(strstr(said, ": clicks, 3 records of 1 number and 2 ids, "));
    assert_non_null(strstr(said, "\n    33.33 % have label 1\n"));  // and no loss that is possible
    free(said);
}

// --- made up ---------------------------------------------------------------------------------------------------------

// The mean and the variance that the model says of each rating are those of the ratings, ids are as often as they
// should be, and knowing who rates what is worth something.
static void planted_is_what_it_says(void **state) {
    (void)state;
    enum { N = 60000, USERS = 30, ITEMS = 40 };
    rated *made;
    int count[2][ITEMS + 1] = {{0}}, halves[11] = {0};
    double off = 0, squares = 0, variances = 0, spread = 0, means = 0, meets = 0, most = 0;
    assert_ok(rated_open(&made, &(rated_shape){11, N, USERS, ITEMS}));
    for (int64_t n = 0; n < N; n++) {
        click c;
        double mean, variance;
        rated_record(made, n, &c, &mean, &variance);
        double x = (double)c.label - mean, half = 2 * (double)c.label;
        most = fmax(most, mean);
        assert_true(half >= 1 && half <= 10 && half == floor(half));
        assert_true(c.id[0] >= 1 && c.id[0] <= USERS && c.id[1] >= 1 && c.id[1] <= ITEMS);
        count[0][c.id[0]]++, count[1][c.id[1]]++, halves[(int)half]++;
        off += x, squares += x * x, variances += variance, means += mean, spread += mean * mean;
        meets += x * (mean - 3.2);
    }
    assert_true(fabs(most - (1 + 9 * 0.95) / 2) < 1e-12);  // no chance of a hit is more than 0.95
    double sd = sqrt(variances / N), all = spread / N - means / N * (means / N);
    assert_true(fabs(off / N) < 4 * sd / sqrt(N));
    assert_true(fabs(squares - variances) / N < 0.02);
    assert_true(fabs(meets / N) < 4 * sd / sqrt(N));  // what it has not said goes with nothing that it says
    assert_true(all > 0.2 * variances / N);
    for (int k = 1; k <= 10; k++) assert_true(halves[k] > 0);
    for (int side = 0; side < 2; side++) {
        double zipf = 0;
        int ids = side ? ITEMS : USERS;
        for (int k = 1; k <= ids; k++) zipf += pow(k, -0.5);
        for (int k = 1; k <= ids; k++) {
            double expected = N * pow(k, -0.5) / zipf;
            assert_true(fabs(count[side][k] - expected) < 5 * sqrt(expected));
        }
    }
    rated_close(made);
}

static void planted_inputs(void **state) {
    place *p = *state;
    packing k;
    prepare(&k, p, "", "r");
    static const char *const bad[] = {"planted:1:2:3",         "planted:1:2:3:4:5", "planted:a:2:3:4",
                                      "planted:1:0:3:4",       "planted:1:2:0:4",   "planted:1:2:3:9999999",
                                      "planted:1:2:9999999:3", "planted:1:2:3:0",   "planted:"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        k.o.input = bad[i];
        assert_error(click_pack_run(&k.o, &k.r), ERR_CONFIG, "[pack] input = ");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_of_three_forms),
        cmocka_unit_test(wrong_lines_are_named),
        cmocka_unit_test_setup_teardown(forms_make_the_same_shard, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(wrong_files_are_named, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(validation_has_its_own_file, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(samples_are_the_records, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(any_order_has_the_records, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(best_is_of_one_pack, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(models_must_fit, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(changed_bytes_are_found, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(versions, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(old_shards_are_read, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(tools_say, place_enter, place_leave),
        cmocka_unit_test(planted_is_what_it_says),
        cmocka_unit_test(what_is_made_up_never_changes),
        cmocka_unit_test_setup_teardown(planted_inputs, place_enter, place_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
