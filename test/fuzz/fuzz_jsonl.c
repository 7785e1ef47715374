// test/fuzz/fuzz_jsonl.c: any bytes at all as a JSONL file, plain or compressed. What is accepted is as many documents as there are lines with an object;
// what is not is ERR_DATA, and names the file.
#include "base/io.h"
#include "data/text/document.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
bool lockstep_fuzz_try(const uint8_t *data, size_t size);
int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx);

static void expect(bool truth) {
    if (!truth) abort();
}

static char dir[64], path[96];  // where the file is
static void leave(void) { io_remove_tree(dir); }

static void put(const uint8_t *data, size_t size) {
    const char *base = getenv("TMPDIR");
    if (!dir[0]) {
        snprintf(dir, sizeof dir, "%.40s/fuzz-j-XXXXXX", base ? base : "/tmp");
        expect(mkdtemp(dir) != NULL && atexit(leave) == 0);
        snprintf(path, sizeof path, "%s/a.jsonl", dir);
    }
    FILE *f = fopen(path, "wb");
    expect(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

bool lockstep_fuzz_try(const uint8_t *data, size_t size) {
    document_reader *d;
    bytes text = {0};
    bool ends, more = true;
    int64_t documents = 0, lines = 1;
    for (size_t i = 0; i < size; i++) lines += data[i] == '\n';
    bool gzip = size > 1 && data[0] == 0x1f && data[1] == 0x8b;
    put(data, size);
    err_t rc = document_open(&d, path, "text");
    expect(rc == ERR_OK || (rc == ERR_DATA && !d));
    if (rc != ERR_OK) return false;
    expect(document_is_jsonl(d));
    while (rc == ERR_OK && more) {
        int64_t before = text.n;
        rc = document_read(d, &text, 100, &ends, &more);
        expect(text.n >= before && text.n <= text.room && (rc != ERR_OK || !more || ends) && (more || text.n == before));
        documents += rc == ERR_OK && more;
    }
    expect(rc == ERR_OK || (rc == ERR_DATA && strstr(err_last()->text, path)));
    expect(gzip || documents <= lines);
    document_close(d);
    free(text.at);
    return rc == ERR_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lockstep_fuzz_try(data, size);
    return 0;
}

static void seed_text(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx, const char *text) {
    seed(ctx, (const uint8_t *)text, strlen(text));
}

int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx) {
    static const char lines[] = "{\"text\": \"one\"}\n\r\n{\"id\": [1, {\"text\": 2}], \"text\": \"two\\nlines \\u00e9\\u0000\"}\n{\"text\":\"\"}";
    uint8_t packed[512];
    z_stream z = {0};
    expect(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    z.next_in = (uint8_t *)(uintptr_t)lines, z.avail_in = sizeof lines - 1, z.next_out = packed, z.avail_out = sizeof packed;
    expect(deflate(&z, Z_FINISH) == Z_STREAM_END);
    seed_text(seed, ctx, lines);
    seed_text(seed, ctx, "");
    seed(ctx, packed, sizeof packed - z.avail_out);
    deflateEnd(&z);
    return 0;
}
