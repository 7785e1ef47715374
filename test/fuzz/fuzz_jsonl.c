// test/fuzz/fuzz_jsonl.c: any bytes at all as a JSONL file, plain or compressed. What is accepted is as many documents
// as there are lines with an object; what is not is ERR_DATA, and names the file.
#include "base/io.h"
#include "data/text/document.h"
#include "data/text/inflate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

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
    unlink(path);  // to write over a file would take longer: some file systems then wait for the disk
    FILE *f = fopen(path, "wb");
    expect(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

bool lockstep_fuzz_try(const uint8_t *data, size_t size) {
    document_reader *d;
    bytes text = {0};
    bool ends, more = true;
    int64_t documents = 0, lines = 1;
    for (size_t i = 0; i < size; i++) lines += data[i] == '\n';
    bool packed = packing_of(data, size) != PACKING_NONE;
    put(data, size);
    err_t rc = document_open(&d, path, "text");
    expect(rc == ERR_OK || (rc == ERR_DATA && !d));
    if (rc != ERR_OK) return false;
    expect(document_is_jsonl(d));
    while (rc == ERR_OK && more) {
        int64_t before = text.n;
        rc = document_read(d, &text, 100, &ends, &more);
        expect(text.n >= before && text.n <= text.room && (rc != ERR_OK || !more || ends) &&
               (more || text.n == before));
        documents += rc == ERR_OK && more;
    }
    expect(rc == ERR_OK || (rc == ERR_DATA && strstr(err_last()->text, path)));
    expect(packed || documents <= lines);
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

// A frame after the first `at` bytes. Returns where it ends.
static size_t add_zstd(uint8_t packed[512], size_t at, const char *text, size_t n, int level, bool checksum) {
    ZSTD_CCtx *c = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(c, ZSTD_c_compressionLevel, level);
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, checksum);
    size_t got = ZSTD_compress2(c, packed + at, 512 - at, text, n);
    expect(!ZSTD_isError(got));
    ZSTD_freeCCtx(c);
    return at + got;
}

int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx) {
    static const char lines[] =
        "{\"text\": \"one\"}\n\r\n{\"id\": [1, {\"text\": 2}], \"text\": \"two\\nlines \\u00e9\\u0000\"}\n{\"text\":\"\"}";
    uint8_t packed[512];
    z_stream z = {0};
    expect(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    z.next_in = (uint8_t *)(uintptr_t)lines, z.avail_in = sizeof lines - 1, z.next_out = packed,
    z.avail_out = sizeof packed;
    expect(deflate(&z, Z_FINISH) == Z_STREAM_END);
    seed_text(seed, ctx, lines);
    seed_text(seed, ctx, "");
    seed(ctx, packed, sizeof packed - z.avail_out);
    deflateEnd(&z);
    // A checksum refuses nearly all mutations, so there is one seed with and others without; one in frames of one line,
    // of the level that is hardest to read, after a frame to skip.
    seed(ctx, packed, add_zstd(packed, 0, lines, sizeof lines - 1, 3, true));
    seed(ctx, packed, add_zstd(packed, 0, lines, sizeof lines - 1, 19, false));
    size_t n = 11;
    memcpy(packed, "\x57\x2A\x4D\x18\3\0\0\0abc", n);
    for (const char *at = lines, *end; *at; at = end) {
        end = strchr(at, '\n') ? strchr(at, '\n') + 1 : at + strlen(at);
        n = add_zstd(packed, n, at, (size_t)(end - at), 19, false);
    }
    seed(ctx, packed, n);
    return 0;
}
