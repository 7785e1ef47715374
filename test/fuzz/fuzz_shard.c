// test/fuzz/fuzz_shard.c: any bytes at all as a token file. The bytes become an unnamed file in memory, which is opened
// in every format, read here and there, and verified; as texts with labels of either kind, too; and again with their
// checksums put right. Whatever they are, the answer is tokens, lengths, classes and numbers in range, or an error.
#include "data/source.h"
#include "data/text/dataset.h"
#include "data/text/labels.h"
#include "data/text/shard.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
bool lockstep_fuzz_try(const uint8_t *data, size_t size);
int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx);

enum { VOCAB = 50000, WINDOW = 65, CONTEXT = 6, CLASSES = 3 };

static void expect(bool truth) {
    if (!truth) abort();
}

static void count_report(void *ctx, const char *text) {
    expect(text[0] != 0);
    ++*(int *)ctx;
}

static void read_range(dataset *d, int64_t first, int64_t n) {
    int32_t tokens[WINDOW];
    err_t rc = dataset_read(d, first, n, tokens);
    expect(rc == ERR_OK || rc == ERR_DATA);
    for (int64_t i = 0; rc == ERR_OK && i < n; i++) expect(tokens[i] >= 0 && tokens[i] < VOCAB);
}

static bool try_format(const char *path, source_format format) {
    dataset *d;
    err_t rc = dataset_open(&d, &(dataset_options){.files = path, .format = format, .vocab = VOCAB});
    if (rc != ERR_OK) {
        expect(rc == ERR_DATA && strstr(err_last()->text, path));
        return false;
    }
    int64_t n = dataset_about(d).tokens, window = n < WINDOW ? n : WINDOW;
    int reports = 0;
    expect(n > 0);
    for (int64_t i = 0; i < 8; i++) read_range(d, (n - window) * i / 7, window);
    rc = dataset_verify(d, count_report, &reports);
    expect(rc == (reports ? ERR_DATA : ERR_OK));
    read_range(d, n - window, window);
    dataset_close(d);
    return reports == 0;
}

// Where they are texts with labels: up to eight of them.
static void try_labels(const char *path, bool numbers) {
    tensor_spec wanted[] = {
        {.name = "tokens", .type = INT32, .dims = 1, .size = {CONTEXT, 1, 1}, .limit = VOCAB},
        {.name = "length", .type = INT32, .size = {1, 1, 1}},
        {.name = "types", .type = INT32, .dims = 1, .size = {CONTEXT, 1, 1}, .limit = 2},
        {.name = "label", .type = numbers ? FP32 : INT32, .size = {1, 1, 1}, .limit = numbers ? 0 : CLASSES}};
    int32_t tokens[CONTEXT], types[CONTEXT], length, class = 0;
    float number = 0;
    source *s;
    err_t rc = source_open(&s, &(source_options){.files = path, .wanted = wanted, .inputs = 4});
    expect(rc == ERR_OK || rc == ERR_DATA || rc == ERR_CONFIG);
    if (rc != ERR_OK) return;
    for (int64_t k = 0; k < 8 && k < source_about(s).samples; k++) {
        rc = source_look(s, k, (void *[]){tokens, &length, types, numbers ? (void *)&number : &class});
        expect(rc == ERR_OK || rc == ERR_DATA);
        if (rc != ERR_OK) continue;
        expect(length >= 1 && length <= CONTEXT && class >= 0 && class < CLASSES && isfinite(number));
        for (int t = 0; t < CONTEXT; t++) expect(tokens[t] >= 0 && tokens[t] < VOCAB && types[t] >> 1 == 0);
    }
    source_close(s);
}

// Makes every checksum of the lockstep format right, so that the code after their checks is reached too.
static void repair(uint8_t *file, size_t size) {
    uint64_t blocks = le64_get(file + 32), most = (size - SHARD_HEADER) / SHARD_ENTRY;
    size_t table = (size_t)(blocks < most ? blocks : most) * SHARD_ENTRY;
    for (uint8_t *e = file + SHARD_HEADER; e < file + SHARD_HEADER + table; e += SHARD_ENTRY) {
        uint64_t offset = le64_get(e), stored = le32_get(e + 8);
        if (offset <= size && stored <= size - offset)
            le32_put(e + 12, (uint32_t)crc32(0, file + offset, (uInt)stored));
    }
    memcpy(file, shard_magic, SHARD_MAGIC_BYTES);
    le32_put(file + 48, (uint32_t)crc32(0, file + SHARD_HEADER, (uInt)table));
    le32_put(file + 60, (uint32_t)crc32(0, file, 60));
}

// Is it a file whose format shows, and every block of it as it was written?
static bool try_file(const uint8_t *bytes, size_t size) {
    char path[64];
    bool whole = false;
    int fd = memfd_create("shard", MFD_CLOEXEC);
    if (fd < 0) return false;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (write(fd, bytes, size) == (ssize_t)size)
        for (int format = FORMAT_AUTO; format <= FORMAT_RAW32; format++) {
            bool fits = try_format(path, (source_format)format);
            if (format == FORMAT_AUTO) whole = fits;
        }
    try_labels(path, false), try_labels(path, true);
    close(fd);
    return whole;
}

bool lockstep_fuzz_try(const uint8_t *data, size_t size) {
    bool whole = try_file(data, size);
    uint8_t *copy = size < SHARD_HEADER ? NULL : malloc(size);
    if (!copy) return whole;
    memcpy(copy, data, size);
    repair(copy, size);
    try_file(copy, size);
    free(copy);
    return whole;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lockstep_fuzz_try(data, size);
    return 0;
}

// --- seeds: small valid files of each kind ---------------------------------------------------------------------------

typedef enum { PLAIN, PACKED, LABELS, NUMBERS } seed_kind;

static int own_seed(void (*seed)(void *, const uint8_t *, size_t), void *ctx, int64_t tokens, seed_kind kind) {
    int width = kind == NUMBERS ? 4 : 2;
    char path[64];
    shard_writer *w = NULL;
    int rc = -1, fd = memfd_create("seed", MFD_CLOEXEC);
    uint8_t *bytes = malloc((size_t)(tokens * width));
    if (fd < 0 || !bytes) goto out;
    for (int64_t i = 0; i < tokens * width; i++) bytes[i] = (uint8_t)(i % width > 1 ? 0 : i % 2 ? 3 : i * i / 7);
    for (int64_t i = CONTEXT; kind >= LABELS && i < tokens; i += CONTEXT + LABEL_ROW)  // lengths and labels
        memset(bytes + i * width, 0, (size_t)(LABEL_ROW * width)), bytes[i * width] = 5, bytes[(i + 1) * width] = 2;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (shard_write_open(&w, path, width, tokens, kind == PACKED) != ERR_OK) goto out;
    if (kind >= LABELS) shard_write_rows(w, CONTEXT + LABEL_ROW, true);
    if (kind == NUMBERS) shard_write_numbers(w);
    if (shard_write(w, bytes, tokens) != ERR_OK || shard_write_finish(w) != ERR_OK) goto out;
    off_t size = lseek(fd, 0, SEEK_END);
    uint8_t *file = malloc((size_t)size);
    if (file && pread(fd, file, (size_t)size, 0) == size) {
        seed(ctx, file, (size_t)size);
        rc = 0;
    }
    free(file);
out:
    shard_write_close(w);
    free(bytes);
    if (fd >= 0) close(fd);
    return rc;
}

int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx) {
    uint8_t llmc[1024 + 2 * 100] = {0};
    le32_put(llmc, 20240520);
    le32_put(llmc + 4, 1);
    le32_put(llmc + 8, 100);
    for (int i = 0; i < 200; i++) llmc[1024 + i] = (uint8_t)(i % 2 ? 100 : i);
    seed(ctx, llmc, sizeof llmc);
    return own_seed(seed, ctx, 200, PLAIN) | own_seed(seed, ctx, 300, PACKED) | own_seed(seed, ctx, 40000, PACKED) |
           own_seed(seed, ctx, 10 * (CONTEXT + LABEL_ROW), LABELS) |
           own_seed(seed, ctx, 10 * (CONTEXT + LABEL_ROW), NUMBERS);
}
