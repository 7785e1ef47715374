// test/fuzz/fuzz_megatron.c: any bytes at all as an index and tokens of Megatron-LM: two bytes that give the size of
// the index, the index, the tokens. What is accepted is as many tokens as its lengths say, in range; what is not is
// ERR_DATA, and names the file.
#include "base/io.h"
#include "data/text/dataset.h"
#include "data/text/shard.h"
#include "test/support/megatron.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
bool lockstep_fuzz_try(const uint8_t *data, size_t size);
int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx);

enum { VOCAB = 50000, WINDOW = 65 };

static void expect(bool truth) {
    if (!truth) abort();
}

static char dir[64], tokens_path[96], index_path[96];
static void leave(void) { io_remove_tree(dir); }

static void put(const char *path, const uint8_t *data, size_t size) {
    unlink(path);
    FILE *f = fopen(path, "wb");
    expect(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

static void make_place(void) {
    const char *base = getenv("TMPDIR");
    if (dir[0]) return;
    snprintf(dir, sizeof dir, "%.40s/fuzz-m-XXXXXX", base ? base : "/tmp");
    expect(mkdtemp(dir) != NULL && atexit(leave) == 0);
    snprintf(tokens_path, sizeof tokens_path, "%s/a.bin", dir);
    snprintf(index_path, sizeof index_path, "%s/a.idx", dir);
}

static void count_report(void *ctx, const char *text) {
    expect(text[0] != 0);
    ++*(int *)ctx;
}

// Accepted, and every token in range?
static bool try_format(source_format format, int64_t *tokens) {
    dataset *d;
    int32_t window[WINDOW];
    int reports = 0;
    err_t rc = dataset_open(&d, &(dataset_options){.files = tokens_path, .format = format, .vocab = VOCAB});
    expect(rc == ERR_OK || (rc == ERR_DATA && strstr(err_last()->text, dir)));
    if (rc != ERR_OK) return false;
    int64_t n = *tokens = dataset_about(d).tokens, some = n < WINDOW ? n : WINDOW;
    expect(n > 0);
    for (int64_t i = 0; i < 8; i++) {
        rc = dataset_read(d, (n - some) * i / 7, some, window);
        expect(rc == ERR_OK || (rc == ERR_DATA && strstr(err_last()->text, tokens_path)));
        for (int64_t k = 0; rc == ERR_OK && k < some; k++) expect(window[k] >= 0 && window[k] < VOCAB);
    }
    rc = dataset_verify(d, count_report, &reports);
    expect(rc == (reports ? ERR_DATA : ERR_OK));
    dataset_close(d);
    return reports == 0;
}

bool lockstep_fuzz_try(const uint8_t *data, size_t size) {
    size_t n = size < 2 ? 0 : le16_get(data);
    int64_t tokens = 0, other = 0, sum = 0;
    if (size < 2 || n > size - 2) return false;
    const uint8_t *index = data + 2;
    make_place();
    put(index_path, index, n);
    put(tokens_path, index + n, size - 2 - n);
    bool whole = try_format(FORMAT_MEGATRON, &tokens);
    for (uint64_t i = 0; tokens && i < le64_get(index + 18); i++)
        sum += (int32_t)le32_get(index + MEGATRON_HEADER + 4 * i);
    expect(sum == tokens);
    bool same = try_format(FORMAT_AUTO, &other);
    expect(!whole || !same || other == tokens);
    return whole && same;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lockstep_fuzz_try(data, size);
    return 0;
}

int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx) {
    static const struct { int type, bytes; } types[] = {{1, 1}, {2, 1}, {3, 2}, {4, 4}, {5, 8}, {8, 2}};
    static const int32_t lengths[] = {60, 0, 1, 99, 40};
    for (int i = 0; i < 12; i++) {
        uint8_t file[4096];
        int bytes = types[i / 2].bytes;
        const int64_t pointers[] = {100 * bytes, 0, 160 * bytes, 30 * bytes, 0};
        size_t n = megatron_index(file + 2, types[i / 2].type, bytes, 5, lengths, i % 2 ? pointers : NULL);
        put_number(file, n, 2);
        for (int k = 0; k < 200; k++)
            put_number(file + 2 + n + k * bytes, (uint64_t)(k % 100 * (bytes > 1 ? 300 : 1)), bytes);
        seed(ctx, file, 2 + n + 200 * (size_t)bytes);
    }
    return 0;
}
