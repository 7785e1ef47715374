// test/test_data.c: shards and datasets. What is written is what is read, whatever the format and wherever files end;
// and what is damaged is found, named and located.
#include "base/io.h"
#include "data/text/pack.h"
#include "data/text/dataset.h"
#include "data/text/shard.h"
#include "test/support/expect.h"
#include "test/support/place.h"

#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

// --- heap calls, counted where no sanitizer has taken the allocator's place ------------------------------------------

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static int heap_calls;
#else
static int heap_calls;
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void *malloc(size_t n) { return heap_calls++, __libc_malloc(n); }
void *calloc(size_t n, size_t m) { return heap_calls++, __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { return heap_calls++, __libc_realloc(p, n); }
#endif

static void put_file(place *p, const char *name, const void *bytes, size_t n) {
    unlink(at(p, name));  // a new file, as ext4 flushes one that is cut and written again, thousands of times here
    int fd = open(p->path, O_WRONLY | O_CREAT | O_EXCL, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), (ssize_t)n);
    close(fd);
}

static void put_text(place *p, const char *name, const char *text) { put_file(p, name, text, strlen(text)); }

// Token i of the text that these tests pack: compresses well, never repeats within a block, no NUL.
static uint8_t text_at(int64_t i) { return (uint8_t)(1 + (i * 7 + i / 61 % 5 + i / 4099) % 250); }

static uint8_t *make_text(int64_t n) {
    uint8_t *text = malloc((size_t)n);
    for (int64_t i = 0; i < n; i++) text[i] = text_at(i);
    return text;
}

static err_t open_at(dataset **d, place *p, const char *files, source_format format, int64_t vocab) {
    return dataset_open(d, &(dataset_options){.files = at(p, files), .format = format, .vocab = vocab});
}

#define PACK(in, out, tokens, val, zip) \
    (&(pack_options){ \
        .input = (in), .output = (out), .shard_tokens = (tokens), .val_fraction = (val), .compress = (zip)})

static pack_report pack(place *p, const char *input, const char *output, int64_t shard_tokens, double val,
                        bool compress) {
    char in[IO_PATH], out[IO_PATH];
    pack_report r;
    snprintf(in, sizeof in, "%s", at(p, input));
    snprintf(out, sizeof out, "%s", at(p, output));
    assert_ok(pack_run(PACK(in, out, shard_tokens, val, compress), &r));
    return r;
}

static void count_report(void *ctx, const char *text) {
    assert_non_null(strstr(text, ".bin"));
    ++*(int *)ctx;
}

// --- round trips -----------------------------------------------------------------------------------------------------

// Every window of several lengths, at starts that meet the ends of blocks and of files.
static void check_stream(dataset *d, int64_t tokens, int64_t (*expected)(int64_t)) {
    static const int64_t lengths[] = {1, 2, 65, 1000, 70000};
    int32_t *window = malloc(70000 * sizeof *window);
    assert_int_equal(dataset_about(d).tokens, tokens);
    for (int k = 0; k < 5; k++) {
        int64_t n = lengths[k], stride = n == 1 ? 997 : n * 13 / 17 + 1;
        for (int64_t first = 0; first + n <= tokens; first += stride) {
            assert_ok(dataset_read(d, first, n, window));
            for (int64_t i = 0; i < n; i++)
                if (window[i] != expected(first + i))
                    fail_msg("token %" PRId64 " is %d, expected %" PRId64, first + i, window[i], expected(first + i));
        }
    }
    assert_ok(dataset_read(d, 0, 0, window));
    assert_ok(dataset_read(d, tokens, 0, window));
    assert_int_equal(dataset_read(d, tokens, 1, window), ERR_INTERNAL);
    assert_int_equal(dataset_read(d, -1, 1, window), ERR_INTERNAL);
    assert_int_equal(dataset_read(d, 1, INT64_MAX, window), ERR_INTERNAL);
    free(window);
}

static int64_t expected_text(int64_t i) { return text_at(i); }

static void test_round_trip(void **state) {
    enum { N = 1000000, SHARD = 123457 };
    place *p = *state;
    uint8_t *text = make_text(N);
    char hash[2][17];
    put_file(p, "text", text, N);
    for (int compress = 0; compress < 2; compress++) {
        pack_report r = pack(p, "text", compress ? "packed/b" : "plain/a", SHARD, 0, compress);
        dataset *d;
        assert_int_equal(r.train_tokens, N);
        assert_int_equal(r.shards_out, (N - 1) / SHARD + 1);
        assert_ok(open_at(&d, p, compress ? "packed/*.bin" : "plain/a-train-*.bin", FORMAT_AUTO, 256));
        assert_int_equal(dataset_about(d).files, r.shards_out);
        assert_int_equal(dataset_about(d).token_bytes, 1);
        strcpy(hash[compress], dataset_about(d).hash);
        check_stream(d, N, expected_text);
        int reports = 0;
        assert_ok(dataset_verify(d, count_report, &reports));
        assert_int_equal(reports, 0);
        dataset_close(d);
    }
    assert_string_equal(hash[0], hash[1]);
    struct stat plain, packed;
    assert_int_equal(stat(at(p, "plain/a-train-00000.bin"), &plain), 0);
    assert_int_equal(stat(at(p, "packed/b-train-00000.bin"), &packed), 0);
    assert_true(packed.st_size < plain.st_size / 2);
    free(text);
}

// Blocks that do not shrink are stored as they are, among blocks that do.
static void test_incompressible(void **state) {
    enum { N = 5 * SHARD_BLOCK + 77 };
    place *p = *state;
    uint8_t *bytes = make_text(N);
    int32_t *tokens = malloc(N * sizeof *tokens);
    uint64_t x = 1;
    for (int64_t i = SHARD_BLOCK; i < 3 * SHARD_BLOCK; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (uint8_t)(x >> 56);
    }
    for (int width = 1; width <= 4; width *= 2) {
        shard_writer *w;
        dataset *d;
        assert_ok(shard_write_open(&w, at(p, "a.bin"), width, N / width, true));
        for (int64_t i = 0; i < N / width; i += 1000)  // in pieces that do not divide a block
            assert_ok(shard_write(w, bytes + i * width, N / width - i < 1000 ? N / width - i : 1000));
        assert_ok(shard_write_finish(w));
        shard_write_close(w);
        // 32-bit tokens of these bytes are beyond any vocabulary
        assert_ok(open_at(&d, p, "a.bin", FORMAT_LOCKSTEP, 0));
        assert_int_equal(dataset_about(d).token_bytes, width);
        if (width < 4) {
            assert_ok(dataset_read(d, 0, N / width, tokens));
            for (int64_t i = 0; i < N / width; i++)
                assert_int_equal(tokens[i], width == 1 ? bytes[i] : (int)le16_get(bytes + 2 * i));
        } else {
            assert_error(dataset_read(d, 0, N / width, tokens), ERR_DATA, "a.bin: token ",
                         "expected less than 2147483647");
        }
        dataset_close(d);
    }
    free(bytes);
    free(tokens);
}

// The hash is that of the tokens: the same for other names, and compressed or not; another one when any token differs.
static void test_hash(void **state) {
    place *p = *state;
    uint8_t bytes[600];
    char first[17] = "";
    for (int i = 0; i < 600; i++) bytes[i] = i % 2 ? 1 : (uint8_t)(i / 7);
    static const char *const names[] = {"x.bin", "y.bin", "z.bin"};
    for (int k = 0; k < 3; k++) {
        shard_writer *w;
        dataset *d;
        if (k == 2) bytes[300] ^= 1;
        assert_ok(shard_write_open(&w, at(p, names[k]), 2, 300, k == 1));
        assert_ok(shard_write(w, bytes, 300));
        assert_ok(shard_write_finish(w));
        shard_write_close(w);
        assert_ok(open_at(&d, p, names[k], FORMAT_AUTO, 0));
        if (k == 0) strcpy(first, dataset_about(d).hash);
        assert_int_equal(strlen(first), 16);
        assert_int_equal(strcmp(first, dataset_about(d).hash) == 0, k < 2);
        dataset_close(d);
    }
    char last[17] = "";
    for (int i = 0; i <= 600; i += 50) {  // raw: each changed token, another hash
        dataset *d;
        if (i < 600) bytes[i] ^= 0x40;
        put_file(p, "raw.bin", bytes, sizeof bytes);
        assert_ok(open_at(&d, p, "raw.bin", FORMAT_RAW16, 0));
        assert_int_equal(strcmp(last, dataset_about(d).hash) == 0, i == 600);
        strcpy(last, dataset_about(d).hash);
        dataset_close(d);
    }
}

static int64_t expected_count(int64_t i) { return i % 50000; }

static void put_le(uint8_t *bytes, int width, int64_t n, int64_t first) {
    for (int64_t i = 0; i < n; i++)
        for (int b = 0; b < width; b++) bytes[i * width + b] = (uint8_t)((first + i) % 50000 >> 8 * b);
}

// llm.c with 16 and 32 bits, raw16, and ours, one after the other by name, as one stream.
static void test_foreign_formats(void **state) {
    enum { N = 150001 };
    place *p = *state;
    uint8_t *file = calloc(1, 1024 + 4 * N);
    for (int k = 0; k < 2; k++) {
        int width = k ? 4 : 2;
        le32_put(file, k ? 20240801 : 20240520);
        le32_put(file + 4, k ? 7 : 1);
        le32_put(file + 8, N);
        put_le(file + 1024, width, N, k * N);
        put_file(p, k ? "b.bin" : "a.bin", file, 1024 + (size_t)width * N);
    }
    put_le(file, 2, N, 2 * N);
    put_file(p, "c.bin", file, 2 * N);
    put_le(file, 4, N, 0);
    put_file(p, "raw32", file, 4 * N);
    free(file);
    dataset *d;
    assert_ok(open_at(&d, p, "*.bin", FORMAT_AUTO, 50000));
    assert_int_equal(dataset_about(d).token_bytes, 4);
    check_stream(d, 3 * N, expected_count);
    int reports = 0;
    assert_ok(dataset_verify(d, count_report, &reports));
    dataset_close(d);
    assert_ok(open_at(&d, p, "raw32", FORMAT_RAW32, 50000));
    check_stream(d, N, expected_count);
    dataset_close(d);
    assert_error(open_at(&d, p, "b.bin raw32", FORMAT_LLMC, 0), ERR_CONFIG, "raw32", "no file matches");
    assert_error(open_at(&d, p, "raw32", FORMAT_LLMC, 0), ERR_DATA, "raw32: offset 0: magic 0, expected 20240520");
    assert_error(open_at(&d, p, "raw32", FORMAT_LOCKSTEP, 0), ERR_DATA, "raw32: offset 0: not the magic");
}

// More files than descriptors, the same file by two patterns, byte order of names.
// Where it was looked for is said; to pack is advised only for names that pack would make.
static void test_no_files(void **state) {
    place *p = *state;
    char packed[IO_PATH + 8], where[IO_PATH + 32];
    dataset *d;
    dataset_options o = {.files = at(p, "none-train-*.bin"), .packed = packed};
    snprintf(where, sizeof where, "in %s. Mend the name", p->dir);
    snprintf(packed, sizeof packed, "%s/non", p->dir);
    assert_error(dataset_open(&d, &o), ERR_CONFIG, "none-train-*.bin", where);
    strcat(packed, "e");
    assert_error(dataset_open(&d, &o), ERR_CONFIG, "none-train-*.bin", "lockstep pack");
    o.packed = NULL;
    assert_error(dataset_open(&d, &o), ERR_CONFIG, "none-train-*.bin", where);
}

static void test_many_files(void **state) {
    enum { FILES = SHARD_OPEN_MAX + 40 };
    place *p = *state;
    char name[32], files[2 * IO_PATH + 32];
    dataset *d;
    for (int i = 0; i < FILES; i++) {
        uint8_t bytes[6];
        put_le(bytes, 2, 3, 3 * i);
        snprintf(name, sizeof name, "%05d.bin", i);
        put_file(p, name, bytes, sizeof bytes);
    }
    snprintf(files, sizeof files, " %s/000*.bin\t%s/*.bin ", p->dir, p->dir);
    assert_ok(dataset_open(&d, &(dataset_options){.files = files}));
    assert_int_equal(dataset_about(d).files, FILES);
    for (int pass = 0; pass < 3; pass++)
        for (int64_t first = 0; first < 3 * FILES - 5; first += 2) {
            int32_t t[5];
            assert_ok(dataset_read(d, first, 5, t));
            for (int i = 0; i < 5; i++) assert_int_equal(t[i], first + i);
        }
    // A file that was replaced is not read on as if it were the old one.
    char path[IO_PATH];
    int32_t t[3];
    put_file(p, "new", "abcdef", 6);
    memcpy(path, p->path, sizeof path);
    assert_int_equal(rename(path, at(p, "00000.bin")), 0);
    for (int i = 1; i < FILES; i++) assert_ok(dataset_read(d, 3 * i, 3, t));
    assert_error(dataset_read(d, 0, 3, t), ERR_DATA, "00000.bin", "replaced while in use");
    dataset_close(d);
    assert_error(dataset_open(&d, &(dataset_options){.files = " "}), ERR_CONFIG, "expected the names");
    assert_error(open_at(&d, p, ".", FORMAT_AUTO, 0), ERR_DATA, "not a regular file");
}

static void test_no_heap(void **state) {
    enum { N = 400000, T = 257 };
    place *p = *state;
    uint8_t *text = make_text(N);
    int32_t window[T];
    put_file(p, "text", text, N);
    pack(p, "text", "d/packed", N / 3, 0, true);
    pack(p, "text", "d/plain", N / 3, 0, false);
    put_le(text, 2, 1000, 0);
    put_file(p, "d/raw.bin", text, 2000);
    free(text);
    dataset *d;
    assert_ok(open_at(&d, p, "d/*.bin", FORMAT_AUTO, 0));
    int before = heap_calls;
    for (int64_t i = 0; i < 3000; i++) assert_ok(dataset_read(d, i * 7919 % (2 * N + 1000 - T), T, window));
    assert_int_equal(heap_calls, before);
    dataset_close(d);
}

// --- damage ----------------------------------------------------------------------------------------------------------

// Opens, reads all, verifies; the first failure, which must be ERR_DATA and name the file.
static void expect_damage(place *p, const char *name, source_format format, const char *what, int64_t where) {
    dataset *d;
    int32_t tokens[4096];
    err_t rc = open_at(&d, p, name, format, 0);
    if (rc == ERR_OK) {
        int64_t n = dataset_about(d).tokens;
        int reports = 0;
        assert_true(n <= 4096);
        if (dataset_verify(d, count_report, &reports) != ERR_DATA || reports != 1)
            fail_msg("%s %" PRId64 ": verify reports %d", what, where, reports);
        rc = dataset_read(d, 0, n, tokens);
        dataset_close(d);
    }
    if (rc != ERR_DATA) fail_msg("%s %" PRId64 ": code %d", what, where, (int)rc);
    if (!strstr(err_last()->text, name) || !(strstr(err_last()->text, "offset") || strstr(err_last()->text, "bytes")))
        fail_msg("%s %" PRId64 ": no file and offset in: %s", what, where, err_last()->text);
}

static void test_every_flip_and_cut(void **state) {
    enum { N = 900 };
    place *p = *state;
    uint8_t *text = make_text(N);
    for (int compress = 0; compress < 2; compress++) {
        shard_writer *w;
        char *file;
        size_t size;
        assert_ok(shard_write_open(&w, at(p, "good.bin"), 1, N, compress));
        assert_ok(shard_write(w, text, N));
        assert_ok(shard_write_finish(w));
        shard_write_close(w);
        assert_ok(io_read_file(at(p, "good.bin"), 1 << 20, &file, &size));
        assert_true(compress ? size < N : size == SHARD_HEADER + SHARD_ENTRY + N);
        static const uint8_t flips[] = {0x01, 0x80, 0xff};
        for (size_t i = 0; i < size; i++)
            for (int k = 0; k < 3; k++) {
                file[i] = (char)(file[i] ^ flips[k]);
                put_file(p, "flip.bin", file, size);
                expect_damage(p, "flip.bin", FORMAT_AUTO, "flip at", (int64_t)i);
                file[i] = (char)(file[i] ^ flips[k]);
            }
        for (size_t i = 0; i < size; i++) {
            put_file(p, "cut.bin", file, i);
            expect_damage(p, "cut.bin", FORMAT_AUTO, "cut at", (int64_t)i);
        }
        file = realloc(file, size + 5);
        memset(file + size, 0, 5);
        put_file(p, "long.bin", file, size + 5);
        expect_damage(p, "long.bin", FORMAT_AUTO, "longer by", 5);
        free(file);
    }
    free(text);
}

// A header whose checksums are right and whose numbers lie.
static void test_lying_headers(void **state) {
    place *p = *state;
    static const struct {
        int at, bytes;
        uint64_t value;
        const char *word;
    } lies[] = {
        {8, 4, 2, "offset 8: shard version is 2"},
        {12, 4, 3, "offset 12: bytes per token is 3"},
        {12, 4, 0, "offset 12"},
        {16, 4, 4, "offset 16: flags is 4"},
        {20, 4, 0, "offset 20"},
        {20, 4, 0xffffffff, "offset 20"},
        {24, 8, 0, "offset 24"},
        {24, 8, UINT64_MAX, "offset 24"},
        {24, 8, UINT64_C(1) << 57, "offset 32"},
        {32, 8, UINT64_MAX / 20, "offset 32"},
        {40, 8, 1, "too long"},
        {40, 8, UINT64_MAX, "truncated"},
        {52, 8, 1, "offset 52"},
        {48, 4, 7, "block table at offset 64: checksum"},
    };
    shard_writer *w;
    char *file;
    size_t size;
    dataset *d;
    assert_ok(shard_write_open(&w, at(p, "good.bin"), 1, 64, false));
    uint8_t *text = make_text(64);
    assert_ok(shard_write(w, text, 64));
    assert_ok(shard_write_finish(w));
    shard_write_close(w);
    free(text);
    assert_ok(io_read_file(at(p, "good.bin"), 1 << 20, &file, &size));
    uint8_t *copy = malloc(size);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        memcpy(copy, file, size);
        for (int b = 0; b < lies[i].bytes; b++) copy[lies[i].at + b] = (uint8_t)(lies[i].value >> 8 * b);
        le32_put(copy + 60, (uint32_t)crc32(0, copy, 60));
        put_file(p, "lie.bin", copy, size);
        assert_error(open_at(&d, p, "lie.bin", FORMAT_AUTO, 0), ERR_DATA, "lie.bin", lies[i].word);
    }
    for (int at_byte = 0; at_byte < SHARD_ENTRY; at_byte++) {  // and a table whose checksum is right
        memcpy(copy, file, size);
        copy[SHARD_HEADER + at_byte] ^= 0x10;
        le32_put(copy + 48, (uint32_t)crc32(0, copy + SHARD_HEADER, SHARD_ENTRY));
        le32_put(copy + 60, (uint32_t)crc32(0, copy, 60));
        put_file(p, "lie.bin", copy, size);
        assert_error(open_at(&d, p, "lie.bin", FORMAT_AUTO, 0), ERR_DATA,
                     "lie.bin: offset 64: the table entry of block 0");
    }
    free(copy);
    free(file);
}

// A compressed block whose stored bytes have the right checksum, and are another stream, or none, or too long or short
// a one.
static void test_lying_blocks(void **state) {
    enum { N = 1000, AT = SHARD_HEADER + SHARD_ENTRY };
    place *p = *state;
    static const char *const words[] = {"checksum of the tokens", "zlib stream gives",
                                        "zlib stream gives 999 bytes of 1000", "zlib stream gives 1000 bytes of 1000"};
    uint8_t *text = make_text(N + 1), file[AT + 2 * N] = {0};
    int32_t tokens[N];
    dataset *d;
    for (int k = 0; k < 4; k++) {
        uLongf stored = sizeof file - AT;
        if (k == 0) text[500] ^= 1;
        assert_int_equal(compress(file + AT, &stored, text, (uLong)(k == 2 ? N - 1 : k == 3 ? N + 1 : N)), Z_OK);
        if (k == 0) text[500] ^= 1;
        if (k == 1) file[AT + 20] ^= 0xff;
        assert_true(stored < N);
        memcpy(file, shard_magic, SHARD_MAGIC_BYTES);
        uint8_t *entry = file + SHARD_HEADER;
        static const int at_byte[] = {8, 12, 16, 20, 24, 32};
        const uint32_t value[] = {1, 1, SHARD_ZLIB, N, N, 1};
        for (int i = 0; i < 6; i++) le32_put(file + at_byte[i], value[i]);
        le64_put(file + 40, AT + stored);
        le64_put(entry, AT);
        le32_put(entry + 8, (uint32_t)stored);
        le32_put(entry + 12, (uint32_t)crc32(0, file + AT, (uInt)stored));
        le32_put(entry + 16, (uint32_t)crc32(0, text, N));
        le32_put(file + 48, (uint32_t)crc32(0, entry, SHARD_ENTRY));
        le32_put(file + 60, (uint32_t)crc32(0, file, 60));
        put_file(p, "lie.bin", file, AT + stored);
        assert_ok(open_at(&d, p, "lie.bin", FORMAT_AUTO, 0));
        for (int twice = 0; twice < 2; twice++)  // nothing wrong stays in the cache
            assert_error(dataset_read(d, 0, N, tokens), ERR_DATA, "lie.bin: block 0 at offset 84", words[k]);
        dataset_close(d);
    }
    free(text);
}

// A block that fails to inflate takes a slot of the cache; the block that was there must not be read from it.
static void test_cache_after_damage(void **state) {
    enum { BLOCKS = SHARD_CACHE_SLOTS + 1, N = BLOCKS * SHARD_BLOCK, HEAD = SHARD_HEADER + BLOCKS * SHARD_ENTRY };
    place *p = *state;
    shard_writer *w;
    dataset *d;
    uint8_t *text = make_text(N), head[HEAD];
    int32_t t[10];
    assert_ok(shard_write_open(&w, at(p, "a.bin"), 1, N, true));
    assert_ok(shard_write(w, text, N));
    assert_ok(shard_write_finish(w));
    shard_write_close(w);
    free(text);
    int fd = open(p->path, O_RDWR);
    assert_int_equal(pread(fd, head, HEAD, 0), HEAD);
    head[HEAD - 1] ^= 1;  // the second CRC of the last block
    le32_put(head + 48, (uint32_t)crc32(0, head + SHARD_HEADER, HEAD - SHARD_HEADER));
    le32_put(head + 60, (uint32_t)crc32(0, head, 60));
    assert_int_equal(pwrite(fd, head, HEAD, 0), HEAD);
    close(fd);
    assert_ok(open_at(&d, p, "a.bin", FORMAT_AUTO, 0));
    for (int64_t k = 0; k < BLOCKS + 2; k++) {
        int64_t b = k % BLOCKS;
        err_t rc = dataset_read(d, b * SHARD_BLOCK, 10, t);
        if (b == BLOCKS - 1) assert_error(rc, ERR_DATA, "a.bin: block 16 at offset ", "checksum of the tokens");
        else
            for (int64_t i = 0; i < 10; i++) assert_int_equal(t[i], text_at(b * SHARD_BLOCK + i));
    }
    dataset_close(d);
}

// What was read, found good and kept is read again when all is verified: the last byte has changed on the disk since.
static void test_verify_reads_again(void **state) {
    enum { N = SHARD_BLOCK };
    place *p = *state;
    uint8_t *text = make_text(N), last;
    for (int compress = 0; compress < 2; compress++) {
        shard_writer *w;
        dataset *d;
        int32_t t;
        int reports = 0;
        assert_ok(shard_write_open(&w, at(p, "again.bin"), 1, N, compress));
        assert_ok(shard_write(w, text, N));
        assert_ok(shard_write_finish(w));
        shard_write_close(w);
        assert_ok(open_at(&d, p, "again.bin", FORMAT_AUTO, 0));
        assert_ok(dataset_read(d, 0, 1, &t));
        int fd = open(at(p, "again.bin"), O_RDWR);
        off_t end = lseek(fd, -1, SEEK_END);
        assert_int_equal(pread(fd, &last, 1, end), 1);
        last ^= 1;
        assert_int_equal(pwrite(fd, &last, 1, end), 1);
        close(fd);
        assert_error(dataset_verify(d, count_report, &reports), ERR_DATA, "1 fault in 1 of 1 shard:");
        assert_int_equal(reports, 1);
        dataset_close(d);
    }
    free(text);
}

static void test_damage_report(void **state) {
    enum { N = 3 * SHARD_BLOCK + 10 };
    place *p = *state;
    uint8_t *text = make_text(N), bad = 0;
    int32_t tokens[20];
    dataset *d;
    put_file(p, "text", text, N);
    free(text);
    pack(p, "text", "s", N, 0, false);
    int fd = open(at(p, "s-train-00000.bin"), O_RDWR);
    for (int b = 1; b < 4; b += 2) assert_int_equal(pwrite(fd, &bad, 1, 64 + 4 * 20 + (off_t)b * SHARD_BLOCK + 5), 1);
    close(fd);
    assert_ok(open_at(&d, p, "s-train-00000.bin", FORMAT_AUTO, 0));
    assert_ok(dataset_read(d, SHARD_BLOCK - 20, 20, tokens));
    assert_error(dataset_read(d, SHARD_BLOCK - 10, 20, tokens), ERR_DATA,
                 "s-train-00000.bin: block 1 at offset 32912: "
                 "checksum 0x",
                 ", expected 0x", "The shard is damaged; `lockstep check CONFIG.ini` lists all such blocks.");
    assert_ok(dataset_read(d, 2 * SHARD_BLOCK, 20, tokens));
    int reports = 0;
    assert_error(dataset_verify(d, count_report, &reports), ERR_DATA, "2 faults in 1 of 1 shard:");
    assert_int_equal(reports, 2);
    // A block that was found right is read by the byte from then on: what breaks next to them is for the next verify to
    // find.
    fd = open(p->path, O_RDWR);
    assert_int_equal(pwrite(fd, &bad, 1, 64 + 4 * 20 + 2 * SHARD_BLOCK + 5000), 1);
    close(fd);
    assert_ok(dataset_read(d, 2 * SHARD_BLOCK, 20, tokens));
    reports = 0;
    assert_error(dataset_verify(d, count_report, &reports), ERR_DATA, "3 faults in 1 of 1 shard:");
    assert_error(dataset_read(d, 2 * SHARD_BLOCK, 20, tokens), ERR_DATA, "block 2 at offset");
    assert_int_equal(truncate(at(p, "s-train-00000.bin"), 2 * SHARD_BLOCK), 0);  // while it is open
    assert_error(dataset_read(d, 2 * SHARD_BLOCK, 20, tokens), ERR_DATA, "s-train-00000.bin", "truncated");
    dataset_close(d);
}

static void test_foreign_files(void **state) {
    place *p = *state;
    dataset *d;
    uint8_t png[200] = "\x89PNG\r\n\x1a\n", gzip[200] = {0x1f, 0x8b, 8}, llmc[1024 + 20] = {0};
    put_file(p, "a.bin", png, sizeof png);
    assert_error(open_at(&d, p, "a.bin", FORMAT_AUTO, 0), ERR_DATA, "a.bin: offset 0: looks like a PNG image");
    put_file(p, "a.bin", gzip, sizeof gzip);
    assert_error(open_at(&d, p, "a.bin", FORMAT_AUTO, 0), ERR_DATA, "a.bin: offset 0: looks like gzip data");
    put_text(p, "a.bin", "To be, or not to be, that is the question: whether 'tis nobler in the mind\n");
    assert_error(open_at(&d, p, "a.bin", FORMAT_AUTO, 0), ERR_DATA, "looks like text", "lockstep pack");
    put_file(p, "a.bin", "", 0);
    for (int f = FORMAT_AUTO; f <= FORMAT_RAW32; f++)
        assert_error(open_at(&d, p, "a.bin", (source_format)f, 0), ERR_DATA,
                     "a.bin: ends at offset 0: the file is empty");
    put_file(p, "a.bin", png, 199);
    assert_error(open_at(&d, p, "a.bin", FORMAT_RAW16, 0), ERR_DATA, "a.bin: has 199 bytes", "offset 198 is cut short");
    assert_error(open_at(&d, p, "a.bin", FORMAT_RAW32, 0), ERR_DATA, "a.bin: has 199 bytes", "offset 196 is cut short");
    static const struct {
        uint32_t magic, version, count;
        size_t size;
        const char *word;
    } cases[] = {
        {20240520, 1, 10, 1044, NULL},         {20240801, 7, 5, 1044, NULL},
        {20240520, 1, 11, 1044, "truncated"},  {20240520, 1, 9, 1044, "too long"},
        {20240520, 2, 10, 1044, "offset 4"},   {20240801, 1, 5, 1044, "offset 4"},
        {20240520, 1, 0, 1024, "offset 8"},    {20240520, 1, 0xffffffff, 1044, "offset 8: 4294967295 tokens"},
        {20240520, 1, 10, 1023, "truncated"},  {20240520, 1, 10, 4, "truncated"},
        {20240522, 1, 10, 1044, "evaluation"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        le32_put(llmc, cases[i].magic);
        le32_put(llmc + 4, cases[i].version);
        le32_put(llmc + 8, cases[i].count);
        put_file(p, "a.bin", llmc, cases[i].size);
        err_t rc = open_at(&d, p, "a.bin", FORMAT_AUTO, 0);
        if (cases[i].word) assert_error(rc, ERR_DATA, "a.bin", cases[i].word);
        else assert_ok(rc);
        if (rc == ERR_OK) dataset_close(d);
    }
}

static void test_vocab(void **state) {
    enum { N = 3000 };
    place *p = *state;
    uint8_t bytes[2 * N];
    int32_t tokens[N];
    dataset *d;
    put_le(bytes, 2, N, 0);
    put_file(p, "raw.bin", bytes, sizeof bytes);
    assert_ok(open_at(&d, p, "raw.bin", FORMAT_AUTO, 2500));
    assert_ok(dataset_read(d, 0, 2500, tokens));
    assert_error(dataset_read(d, 2400, 200, tokens), ERR_DATA,
                 "raw.bin: token 2500 (at offset 5000) is "
                 "2500, expected less than 2500");
    int reports = 0;
    assert_error(dataset_verify(d, count_report, &reports), ERR_DATA, "1 fault in");
    dataset_close(d);
    for (int compress = 0; compress < 2; compress++) {
        shard_writer *w;
        assert_ok(shard_write_open(&w, at(p, "own.bin"), 2, N, compress));
        assert_ok(shard_write(w, bytes, N));
        assert_ok(shard_write_finish(w));
        shard_write_close(w);
        assert_ok(open_at(&d, p, "own.bin", FORMAT_AUTO, 2500));
        assert_error(dataset_read(d, 2400, 200, tokens), ERR_DATA, "own.bin: token 2500",
                     compress ? "offset 84" : "offset 5084", "is 2500");
        dataset_close(d);
    }
}

// 64-bit offsets, in a file that is nearly all hole.
static void test_beyond_2gb(void **state) {
    place *p = *state;
    dataset *d;
    int64_t tokens = INT64_C(1) << 32;
    int32_t t[4];
    uint8_t end[4] = {0x39, 0x30, 0x07, 0x00};
    char hash[2][17];
    for (int k = 0; k < 2; k++) {
        int fd = open(at(p, "big.bin"), O_RDWR | O_CREAT, 0644);
        assert_int_equal(ftruncate(fd, 2 * tokens), 0);
        assert_int_equal(pwrite(fd, end, 4, 2 * tokens - 4), 4);
        if (k) assert_int_equal(pwrite(fd, end, 2, INT64_C(1) << 31), 2);
        close(fd);
        assert_ok(open_at(&d, p, "big.bin", FORMAT_RAW16, 50000));
        strcpy(hash[k], dataset_about(d).hash);
        assert_int_equal(dataset_about(d).tokens, tokens);
        assert_ok(dataset_read(d, tokens - 4, 4, t));
        assert_int_equal(t[1], 0);
        assert_int_equal(t[2], 12345);
        assert_int_equal(t[3], 7);
        assert_ok(dataset_read(d, INT64_C(1) << 30, 1, t));
        assert_int_equal(t[0], k ? 12345 : 0);
        dataset_close(d);
    }
    assert_string_not_equal(hash[0], hash[1]);
}

// The CRC of a file with holes is that of its bytes.
static void test_hole_hash(void **state) {
    enum { N = 3 << 20 };
    place *p = *state;
    dataset *d;
    char hash[2][17];
    uint8_t *bytes = calloc(1, N);
    bytes[1 << 20] = 1;
    bytes[2 << 20] = 2;
    put_file(p, "dense", bytes, N);
    int fd = open(at(p, "sparse"), O_RDWR | O_CREAT, 0644);
    assert_int_equal(ftruncate(fd, N), 0);
    assert_int_equal(pwrite(fd, bytes + (1 << 20), 1, 1 << 20), 1);
    assert_int_equal(pwrite(fd, bytes + (2 << 20), 1, 2 << 20), 1);
    close(fd);
    free(bytes);
    for (int k = 0; k < 2; k++) {
        assert_ok(open_at(&d, p, k ? "sparse" : "dense", FORMAT_RAW16, 0));
        strcpy(hash[k], dataset_about(d).hash);
        int reports = 0;
        assert_ok(dataset_verify(d, count_report, &reports));
        dataset_close(d);
    }
    assert_string_equal(hash[0], hash[1]);
}

static int64_t retries_of(const dataset *d) {
    int64_t retries, read;
    dataset_counts(d, &retries, &read);
    return retries;
}

// What is read counts once, however often it was tried; each way of storing tokens counts its own bytes.
static void test_read_bytes(void **state) {
    enum { N = 5000 };
    place *p = *state;
    uint8_t bytes[2 * N];
    int32_t t[100];
    int64_t retries, opened, read;
    fault_list faults;
    dataset *d;
    put_le(bytes, 2, N, 0);
    put_file(p, "raw.bin", bytes, sizeof bytes);
    assert_ok(fault_parse(&faults, ""));
    assert_ok(dataset_open(&d, &(dataset_options){.files = at(p, "raw.bin"), .retry = 2, .faults = &faults}));
    dataset_counts(d, &retries, &opened);
    assert_ok(fault_parse(&faults, "read@2x2"));
    for (int k = 1; k <= 5; k++) {
        assert_ok(dataset_read(d, 100 * k, 100, t));
        dataset_counts(d, &retries, &read);
        assert_int_equal(read - opened, 200 * k);
    }
    assert_int_equal(retries, 1);
    dataset_close(d);
}

static void test_read_faults(void **state) {
    enum { N = 5000 };
    place *p = *state;
    uint8_t bytes[2 * N];
    int32_t t[10];
    fault_list faults;
    dataset *d;
    put_le(bytes, 2, N, 0);
    put_file(p, "raw.bin", bytes, sizeof bytes);
    assert_ok(fault_parse(&faults, "read@1x2"));  // while it is opened
    assert_ok(dataset_open(&d, &(dataset_options){.files = at(p, "raw.bin"), .retry = 2, .faults = &faults}));
    assert_int_equal(retries_of(d), 1);
    assert_ok(fault_parse(&faults, "read@2x3"));
    assert_ok(dataset_read(d, 100, 10, t));
    assert_int_equal(t[9], 109);
    assert_error(dataset_read(d, 200, 10, t), ERR_IO, "raw.bin: read of 20 bytes at offset 400: Input/output error",
                 "after 3 tries");
    assert_int_equal(retries_of(d), 1);
    assert_ok(dataset_read(d, 200, 10, t));
    assert_ok(fault_parse(&faults, "read@1"));
    assert_ok(dataset_read(d, 300, 10, t));
    assert_int_equal(t[0], 300);
    assert_int_equal(retries_of(d), 2);
    dataset_close(d);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, place_enter, place_leave)
    const struct CMUnitTest tests[] = {
        TEST(test_round_trip),
        TEST(test_incompressible),
        TEST(test_hash),
        TEST(test_foreign_formats),
        TEST(test_many_files),
        TEST(test_no_files),
        TEST(test_no_heap),
        TEST(test_lying_headers),
        TEST(test_lying_blocks),
        TEST(test_damage_report),
        TEST(test_every_flip_and_cut),
        TEST(test_foreign_files),
        TEST(test_vocab),
        TEST(test_beyond_2gb),
        TEST(test_hole_hash),
        TEST(test_read_bytes),
        TEST(test_read_faults),
        TEST(test_cache_after_damage),
        TEST(test_verify_reads_again),
    };
    return cmocka_run_group_tests_name("data", tests, NULL, NULL);
}
