// test/fuzz/fuzz_clicks.c: any bytes at all as a shard of clicks or ratings, and as lines of Criteo and of MovieLens.
// The answer is records in range or an error that names the file. A shard is tried again with its checksums put right,
// so that what they protect is reached too.
#include "base/le.h"
#include "data/click/lines.h"
#include "data/click/shard.h"
#include "data/source.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
bool lockstep_fuzz_try(const uint8_t *data, size_t size);
int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx);

static void expect(bool truth) {
    if (!truth) abort();
}

static void count_report(void *ctx, const char *text) {
    expect(text[0] != 0);
    ++*(int *)ctx;
}

// Reads what a model of ROWS rows would. Is every record as it was written?
static bool read_samples(const char *path, click_form f) {
    enum { ROWS = 11 };
    float numbers[CLICK_DENSE], rating;
    int32_t ids[CLICK_TABLES], label;
    source *s;
    int dense = f.dense ? f.dense : 1, tables = f.tables;
    tensor_spec wanted[] = {{.name = "dense", .type = FP32, .dims = 1, .size = {dense, 1, 1}},
                            {.name = "ids", .type = INT32, .dims = 1, .size = {tables, 1, 1}, .limit = tables * ROWS},
                            {.name = "label", .type = INT32, .size = {1, 1, 1}, .limit = 2}};
    if (!f.dense) strcpy(wanted[0].name, "one");
    if (f.rated) wanted[2].type = FP32, wanted[2].limit = 0;
    expect(clicks_open(&s, &(source_options){.files = path, .wanted = wanted, .inputs = 3}) == ERR_OK);
    s->inputs = 3, s->place[0] = 1, s->place[1] = 2, s->place[2] = 0;
    for (int64_t k = 0; k < source_about(s).samples; k++) {
        err_t rc = source_look(s, k, (void *[]){numbers, ids, f.rated ? (void *)&rating : &label});
        expect(rc == ERR_OK || (rc == ERR_DATA && strstr(err_last()->text, path)));
        if (rc != ERR_OK) continue;
        expect(f.rated ? isfinite(rating) : label == 0 || label == 1);
        expect(f.dense || numbers[0] == 1);
        for (int i = 0; i < dense; i++) expect(isfinite(numbers[i]));
        for (int i = 0; i < tables; i++) expect(ids[i] >= i * ROWS && ids[i] < (i + 1) * ROWS);
    }
    int reports = 0;
    err_t rc = source_verify(s, count_report, &reports);
    expect(rc == (reports ? ERR_DATA : ERR_OK));
    source_close(s);
    return reports == 0;
}

static bool try_shard(const uint8_t *data, size_t size) {
    char path[32];
    reader r = {0};
    click_shard s = {.file.fd = -1};
    int fd = memfd_create("clicks", MFD_CLOEXEC);
    expect(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    reader_open(&r, 0, NULL);
    err_t rc = click_shard_open(&s, &r, path);
    expect(rc == ERR_OK || (rc == ERR_DATA && strstr(err_last()->text, path)));
    bool whole = rc == ERR_OK && read_samples(path, s.form);
    click_shard_close(&s, &r);
    reader_close(&r);
    close(fd);
    return whole;
}

// Each line is copied, so that ASan sees a byte that is read after its end.
static bool try_lines(const uint8_t *data, size_t size) {
    uint8_t *line = malloc(size + 1);
    click c = {0};
    if (size) memcpy(line, data, size);
    line = realloc(line, size ? size : 1);
    err_t a = criteo_line(&c, line, (int64_t)size);
    expect(a == ERR_OK || a == ERR_DATA);
    for (int i = 0; a == ERR_OK && i < CRITEO_DENSE; i++) expect(isfinite(c.dense[i]) && c.dense[i] >= 0);
    for (int i = 0; a == ERR_OK && i < CRITEO_TABLES; i++) expect(c.id[i] <= UINT64_C(1) << 32);
    err_t b = movielens_line(&c, line, (int64_t)size, 4);
    expect(b == ERR_OK || b == ERR_DATA);
    expect((a != ERR_OK && b != ERR_OK) || c.label == 0 || c.label == 1);
    err_t rated = movielens_line(&c, line, (int64_t)size, 0);
    expect(rated == b);
    if (rated == ERR_OK) {
        expect(c.label >= 0.5f && c.label <= 5 && 2 * c.label == (float)(int)(2 * c.label));
        expect(c.id[0] > 0 && c.id[1] > 0);
    }
    bool header = movielens_header(line, (int64_t)size);
    expect(!header || (a != ERR_OK && b != ERR_OK));
    free(line);
    return a == ERR_OK || b == ERR_OK || header;
}

// Puts right what covers each block, the table and the header.
static void mend(uint8_t *d, size_t n) {
    uint32_t dense = le32_get(d + 12), tables = le32_get(d + 16);
    uint64_t records = le64_get(d + 24);
    click_form f = {(int)dense, (int)tables, le32_get(d + 8) == RATINGS_VERSION};
    if (dense <= CLICK_DENSE && tables <= CLICK_TABLES && records <= n) {
        size_t each = (size_t)click_bytes(f), blocks = (size_t)click_blocks((int64_t)records);
        size_t table = CLICKS_HEADER + records * each;
        for (size_t k = 0; table + 4 * blocks <= n && k < blocks; k++) {
            size_t first = k * CLICK_BLOCK, count = records - first < CLICK_BLOCK ? records - first : CLICK_BLOCK;
            le32_put(d + table + 4 * k, (uint32_t)crc32_z(0, d + CLICKS_HEADER + first * each, count * each));
        }
        if (table + 4 * blocks <= n) le32_put(d + 120, (uint32_t)crc32_z(0, d + table, 4 * blocks));
    }
    le32_put(d + 124, (uint32_t)crc32(0, d, 124));
}

bool lockstep_fuzz_try(const uint8_t *data, size_t size) {
    bool line = try_lines(data, size);
    if (size < 1) return line;
    bool whole = try_shard(data, size);
    if (whole || line || size < CLICKS_HEADER) return whole || line;
    uint8_t *mended = malloc(size);
    memcpy(mended, data, size);
    mend(mended, size);
    try_shard(mended, size);
    free(mended);
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lockstep_fuzz_try(data, size);
    return 0;
}

// --- seeds -----------------------------------------------------------------------------------------------------------

static size_t make_shard(uint8_t *dst, size_t room, int records, click_form f) {
    char path[32];
    click_writer *w;
    int fd = memfd_create("shard", MFD_CLOEXEC);
    expect(fd >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    expect(click_write_open(&w, path, f) == ERR_OK);
    for (int k = 0; k < records; k++) {
        click c = {.label = f.rated ? (float)(k % 10 + 1) / 2 : (float)(k % 3 == 0)};
        for (int i = 0; i < f.dense; i++) c.dense[i] = (float)(k + i) / 7;
        for (int i = 0; i < f.tables; i++) c.id[i] = (uint64_t)k * 0x9e3779b97f4a7c15u >> i;
        expect(click_write(w, &c) == ERR_OK);
    }
    expect(click_write_seal(w) == ERR_OK && click_write_finish(w, 0.5) == ERR_OK);
    click_write_close(w);
    ssize_t n = pread(fd, dst, room, 0);
    expect(n > 0 && (size_t)n < room);
    close(fd);
    return (size_t)n;
}

int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx) {
    static const char *const line[] = {
        "1\t1\t-2\t\t0\t1382\t\t\t\t\t\t\t\t\t05db9164\tffffffff\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t0",
        "196\t242\t3\t881250949", "1::1193::5::978300760", "1,31,2.5,1260759144", "userId,movieId,rating,timestamp"};
    static uint8_t bytes[1 << 14];
    seed(ctx, bytes, make_shard(bytes, sizeof bytes, 1, (click_form){1, 1, false}));
    seed(ctx, bytes, make_shard(bytes, sizeof bytes, 20, (click_form){2, 3, false}));
    seed(ctx, bytes, make_shard(bytes, sizeof bytes, 33, (click_form){13, 26, false}));
    seed(ctx, bytes, make_shard(bytes, sizeof bytes, 20, (click_form){0, 2, true}));
    seed(ctx, bytes, make_shard(bytes, sizeof bytes, 3, (click_form){2, 1, true}));
    for (size_t k = 0; k < sizeof line / sizeof *line; k++) seed(ctx, (const uint8_t *)line[k], strlen(line[k]));
    return 0;
}
