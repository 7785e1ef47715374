// test/test_inflate.c: files of text, plain, gzip and zstd: each gives its text, in pieces of any size, and says how
// far it has come. What is cut off anywhere, damaged or followed by something else is refused and never a shorter or
// another text.
#include "base/io.h"
#include "data/text/inflate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <cmocka.h>

#define OK(call) \
    do { \
        err_t ok_ = (call); \
        if (ok_ != ERR_OK) fail_msg("%s: %d: %s", #call, ok_, err_last()->text); \
    } while (0)

enum { TEXT = 5000, ROOM = 1 << 16, MAGIC = 4 };

typedef struct place {
    char dir[256], file[300];
    uint8_t text[TEXT];
} place;

typedef struct packed {
    uint8_t at[ROOM];
    size_t n;
} packed;

static int enter(void **state) {
    place *p = calloc(1, sizeof *p);
    const char *base = getenv("TMPDIR");
    snprintf(p->dir, sizeof p->dir, "%s/inflate-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(p->dir)) return -1;
    snprintf(p->file, sizeof p->file, "%s/a.txt", p->dir);
    for (uint32_t i = 0, r = 1; i < TEXT; i++) {
        r = r * 1664525 + 1013904223;
        p->text[i] = (uint8_t)(r >> 24 < 50 ? ' ' : 'a' + (r >> 16) % 8);
    }
    *state = p;
    return 0;
}

static int leave(void **state) {
    place *p = *state;
    int rc = io_remove_tree(p->dir) == ERR_OK ? 0 : -1;
    free(p);
    return rc;
}

// --- files to read ---------------------------------------------------------------------------------------------------

static void add(packed *to, const void *bytes, size_t n) {
    assert_true(to->n + n <= ROOM);
    memcpy(to->at + to->n, bytes, n);
    to->n += n;
}

static void add_gzip(packed *to, const void *text, size_t n) {
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (uint8_t *)(uintptr_t)text, z.avail_in = (uInt)n;
    z.next_out = to->at + to->n, z.avail_out = (uInt)(ROOM - to->n);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    to->n = ROOM - z.avail_out;
    deflateEnd(&z);
}

static void add_zstd(packed *to, const void *text, size_t n, int level, bool size, bool checksum) {
    ZSTD_CCtx *c = ZSTD_createCCtx();
    assert_false(ZSTD_isError(ZSTD_CCtx_setParameter(c, ZSTD_c_compressionLevel, level)));
    assert_false(ZSTD_isError(ZSTD_CCtx_setParameter(c, ZSTD_c_contentSizeFlag, size)));
    assert_false(ZSTD_isError(ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, checksum)));
    size_t got = ZSTD_compress2(c, to->at + to->n, ROOM - to->n, text, n);
    assert_false(ZSTD_isError(got));
    to->n += got;
    ZSTD_freeCCtx(c);
}

// RFC 8878, 3.1.2: a magic, a length, and bytes that are of no concern here.
static void add_skippable(packed *to, int kind, uint8_t n) {
    uint8_t bytes[8 + 255] = {(uint8_t)(0x50 + kind), 0x2A, 0x4D, 0x18, n};
    memset(bytes + 8, 0xFD, n);
    add(to, bytes, 8u + n);
}

// RFC 8878, 3.1.1: a frame of one block that is stored as it is. log, eighths: the window is 2^log * (1 + eighths / 8)
// bytes. With a dictionary, its number is 7.
static void add_stored(packed *to, int log, int eighths, bool dictionary, const char *text) {
    uint32_t block = 1 | (uint32_t)strlen(text) << 3;
    add(to, "\x28\xB5\x2F\xFD", 4);
    add(to, &(uint8_t){dictionary}, 1);
    add(to, &(uint8_t){(uint8_t)((log - 10) << 3 | eighths)}, 1);
    if (dictionary) add(to, &(uint8_t){7}, 1);
    add(to, (uint8_t[]){(uint8_t)block, (uint8_t)(block >> 8), (uint8_t)(block >> 16)}, 3);
    add(to, text, strlen(text));
}

// A new file each time: some file systems write one that was truncated to the disk when it is closed.
static void put(const place *p, const void *bytes, size_t n) {
    unlink(p->file);
    FILE *f = fopen(p->file, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

// Reads it all, `step` bytes at a time; it must not be longer than `room`.
static err_t read_all(const place *p, uint8_t *text, size_t room, int64_t step, size_t *n) {
    inflater *x;
    int64_t got = 0, before = 0;
    *n = 0;
    TRY(inflater_open(&x, p->file));
    err_t rc = ERR_OK;
    do {
        assert_true(*n + (size_t)step <= room);
        rc = inflater_read(x, text + *n, step, &got);
        assert_true(got >= 0 && got <= step && inflater_at(x) >= before);
        *n += (size_t)got, before = inflater_at(x);
    } while (rc == ERR_OK && got == step);
    inflater_close(x);
    return rc;
}

static void gives(const place *p, const packed *file, const void *text, size_t n) {
    static const int64_t steps[] = {1, 7, 4096, 100000};
    uint8_t *out = malloc(n + 100001);
    put(p, file->at, file->n);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        size_t got;
        OK(read_all(p, out, n + 100001, steps[i], &got));
        assert_int_equal(got, n);
        assert_memory_equal(out, text, n);
    }
    free(out);
}

static void refused(const place *p, const void *bytes, size_t n, const char *says) {
    static uint8_t text[1 << 20];
    size_t got;
    put(p, bytes, n);
    err_t rc = read_all(p, text, sizeof text, 4096, &got);
    if (rc != ERR_DATA || !strstr(err_last()->text, says) || !strstr(err_last()->text, p->file))
        fail_msg("%zu bytes: %d, \"%s\", expected %d, \"%s\"", n, rc, rc ? err_last()->text : "accepted", ERR_DATA,
                 says);
}

// --- what is read ----------------------------------------------------------------------------------------------------

static void each_kind_gives_its_text(void **state) {
    place *p = *state;
    packed f = {0};
    add(&f, p->text, TEXT);
    gives(p, &f, p->text, TEXT);
    f.n = 0, gives(p, &f, "", 0);
    add_gzip(&f, p->text, TEXT), gives(p, &f, p->text, TEXT);
    f.n = 0, add_gzip(&f, "", 0), gives(p, &f, "", 0);
    for (int how = 0; how < 4; how++) {
        f.n = 0, add_zstd(&f, p->text, TEXT, how * 5 + 1, how & 1, how & 2), gives(p, &f, p->text, TEXT);
        f.n = 0, add_zstd(&f, "", 0, 3, how & 1, how & 2), gives(p, &f, "", 0);
    }
}

static void parts_follow_each_other(void **state) {
    place *p = *state;
    packed f = {0};
    for (size_t at = 0; at < TEXT; at += 1000) add_gzip(&f, p->text + at, 1000);
    gives(p, &f, p->text, TEXT);
    f.n = 0;
    for (int kind = 0; kind < 16; kind++) add_skippable(&f, kind, (uint8_t)(kind * 17));
    add_zstd(&f, p->text, 2000, 1, false, true), add_skippable(&f, 3, 9),
        add_zstd(&f, p->text + 2000, 0, 1, true, true);
    add_zstd(&f, p->text + 2000, TEXT - 2000, 19, true, false), add_skippable(&f, 15, 0);
    gives(p, &f, p->text, TEXT);
    f.n = 0, add_skippable(&f, 0, 40), gives(p, &f, "", 0);
}

static void first_bytes_say_it(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        packing how;
    } heads[] = {
        {"\x1f\x8b", 2, PACKING_GZIP},
        {"\x1f\x8b\x08\x00", 4, PACKING_GZIP},
        {"\x28\xB5\x2F\xFD", 4, PACKING_ZSTD},
        {"\x50\x2A\x4D\x18", 4, PACKING_ZSTD},
        {"\x5F\x2A\x4D\x18", 4, PACKING_ZSTD},
        {"\xFD\x37zXZ\0", 6, PACKING_XZ},
        {"BZh91AY&SY", 10, PACKING_BZIP2},
        {"BZh1\x17\x72\x45\x38\x50\x90", 10, PACKING_BZIP2},
        {"", 0, PACKING_NONE},
        {"\x1f", 1, PACKING_NONE},
        {"\x28\xB5\x2F", 3, PACKING_NONE},
        {"\x4F\x2A\x4D\x18", 4, PACKING_NONE},
        {"\x60\x2A\x4D\x18", 4, PACKING_NONE},
        {"\xFD\x37zXZ", 5, PACKING_NONE},
        {"BZh9 is a word", 14, PACKING_NONE},
        {"BZh01AY&SY", 10, PACKING_NONE},
        {"P*M", 3, PACKING_NONE},
    };
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        char exact[16];
        memset(exact, 'x', sizeof exact), memcpy(exact, heads[i].bytes, heads[i].n);
        assert_int_equal(packing_of(exact, heads[i].n), heads[i].how);
    }
}

// Where it is in the file grows with what was read, and is all of the file at the end.
static void tells_how_far_it_is(void **state) {
    place *p = *state;
    enum { N = 4 << 20 };
    uint8_t *text = malloc(N), *out = malloc(N + 1), *file = malloc(2 * N);
    for (uint32_t i = 0, r = 1; i < N; i++) r = r * 1664525 + 1013904223, text[i] = (uint8_t)('!' + (r >> 24) % 64);
    for (int how = 0; how < 3; how++) {
        uLongf n = 2 * N;
        inflater *x;
        int64_t got;
        gzFile z = how == 1 ? gzopen(p->file, "wb1") : NULL;
        if (how == 0) put(p, text, N);
        else if (how == 1) assert_true(gzwrite(z, text, N) == N && gzclose(z) == Z_OK);
        else n = ZSTD_compress(file, n, text, N, 1), put(p, file, n);
        FILE *f = fopen(p->file, "rb");
        fseek(f, 0, SEEK_END);
        int64_t size = ftell(f);
        fclose(f);
        OK(inflater_open(&x, p->file));
        assert_int_equal(inflater_at(x), 0);
        OK(inflater_read(x, out, N / 2, &got));
        assert_int_equal(got, N / 2);
        assert_true(inflater_at(x) > size / 2 - (1 << 19) && inflater_at(x) < size / 2 + (1 << 19));
        OK(inflater_read(x, out + N / 2, N / 2 + 1, &got));
        assert_int_equal(got, N / 2);
        assert_int_equal(inflater_at(x), size);
        OK(inflater_read(x, out, 1, &got));  // and stays there
        assert_int_equal(got, 0);
        inflater_close(x);
    }
    free(text), free(out), free(file);
}

// 512 MB of text in a file of some KB take no more memory than their window.
static void memory_ignores_the_size(void **state) {
    place *p = *state;
    enum { PIECE = 1 << 20, PIECES = 512 };
    uint8_t *piece = malloc(PIECE);
    packed f = {0};
    memset(piece, 'a', PIECE);
    ZSTD_CCtx *c = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
    for (int i = 0; i < PIECES; i++) {
        ZSTD_inBuffer in = {piece, PIECE, 0};
        ZSTD_outBuffer out = {f.at, ROOM, f.n};
        ZSTD_EndDirective end = i == PIECES - 1 ? ZSTD_e_end : ZSTD_e_continue;
        size_t rc;
        do rc = ZSTD_compressStream2(c, &out, &in, end);
        while (!ZSTD_isError(rc) && (in.pos < in.size || (end == ZSTD_e_end && rc)));
        assert_false(ZSTD_isError(rc));
        f.n = out.pos;
    }
    ZSTD_freeCCtx(c);
    put(p, f.at, f.n);
    struct rusage before, after;
    inflater *x;
    int64_t got, all = 0;
    getrusage(RUSAGE_SELF, &before);
    OK(inflater_open(&x, p->file));
    do {
        OK(inflater_read(x, piece, PIECE, &got));
        assert_true(got == 0 || (piece[0] == 'a' && piece[got - 1] == 'a'));
        all += got;
    } while (got);
    inflater_close(x);
    getrusage(RUSAGE_SELF, &after);
    assert_int_equal(all, (int64_t)PIECE * PIECES);
    assert_true(after.ru_maxrss - before.ru_maxrss < 32 << 10);  // KB
    free(piece);
}

// --- what is refused -------------------------------------------------------------------------------------------------

// A cut is seen wherever it is, but for one between two parts.
static void every_cut_is_seen(void **state) {
    place *p = *state;
    for (int how = 0; how < 4; how++) {
        packed f = {0};
        add_skippable(&f, 1, 3);
        if (how == 0) f.n = 0, add_gzip(&f, p->text, 700);
        else add_zstd(&f, p->text, 700, 3, how == 1, how != 2);
        size_t first = f.n;
        if (how == 0) add_gzip(&f, p->text, 300);
        else if (how == 3) add_skippable(&f, 9, 80);
        else add_zstd(&f, p->text, 300, 3, how == 1, how != 2);
        for (size_t n = MAGIC; n < f.n; n++) {
            if (n == first || (how && n == 11)) continue;  // 11: where the skippable frame ends
            refused(p, f.at, n, "damaged or cut off near byte");
            assert_non_null(
                strstr(err_last()->text, how ? "ends inside of a zstd frame" : "ends inside of a gzip member"));
        }
    }
}

// With a checksum, a file with a flipped bit is refused, or it has the same text: some bits say nothing of it.
static void every_flip_is_seen(void **state) {
    place *p = *state;
    static uint8_t text[1 << 20];
    for (int how = 0; how < 3; how++) {
        packed f = {0};
        int same = 0;
        if (how == 0) add_gzip(&f, p->text, 700);
        else add_zstd(&f, p->text, 700, 3, how == 1, true);
        for (size_t bit = MAGIC * 8; bit < f.n * 8; bit++) {
            size_t n;
            f.at[bit / 8] ^= (uint8_t)(1 << bit % 8);
            put(p, f.at, f.n);
            f.at[bit / 8] ^= (uint8_t)(1 << bit % 8);
            err_t rc = read_all(p, text, sizeof text, 4096, &n);
            if (rc == ERR_OK) assert_int_equal(n, 700), assert_memory_equal(text, p->text, 700);
            else assert_int_equal(rc, ERR_DATA), assert_non_null(strstr(err_last()->text, p->file));
            same += rc == ERR_OK;
        }
        assert_true(same < 64);
    }
}

static void what_follows_is_no_text(void **state) {
    place *p = *state;
    packed f = {0};
    char says[64];
    for (int how = 0; how < 2; how++) {
        f.n = 0;
        if (how) add_zstd(&f, p->text, 700, 3, true, true);
        else add_gzip(&f, p->text, 700);
        snprintf(says, sizeof says, "near byte %zu ", f.n);
        size_t whole = f.n;
        add(&f, "some words", 10);
        refused(p, f.at, f.n,
                how ? "what follows a zstd frame is not another one" : "what follows a gzip member is not another one");
        if (how) assert_non_null(strstr(err_last()->text, says));
        memset(f.at + whole, 0, 10);
        refused(p, f.at, f.n, how ? "what follows a zstd frame" : "what follows a gzip member");
    }
}

static void windows_are_limited(void **state) {
    place *p = *state;
    for (int log = 10; log <= 27; log++) {
        packed f = {0};
        add_stored(&f, log, log < 27 ? 7 : 0, false, "text");
        gives(p, &f, "text", 4);
    }
    static const struct { int log, eighths; } large[] = {{27, 1}, {28, 0}, {31, 0}, {31, 7}, {41, 7}};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        packed f = {0};
        add_stored(&f, 20, 0, false, "text");
        add_stored(&f, large[i].log, large[i].eighths, false, "text");
        refused(p, f.at, f.n, "needs more than 128 MB of memory");
        assert_non_null(strstr(err_last()->text, "zstd -d --long=31"));
    }
}

static void other_packings_are_named(void **state) {
    place *p = *state;
    packed f = {0};
    refused(p, "\xFD\x37zXZ\0rest", 10,
            "compressed with xz; read are plain files, gzip and zstd: unpack it first with xz -d");
    refused(p, "BZh91AY&SYrest", 14,
            "compressed with bzip2; read are plain files, gzip and zstd: unpack it first with bzip2 -d");
    add_stored(&f, 20, 0, true, "text");
    refused(p, f.at, f.n, "compressed with a dictionary: unpack it first with zstd -d -D DICTIONARY");
}

static void a_missing_file_is_named(void **state) {
    place *p = *state;
    inflater *x;
    assert_int_equal(inflater_open(&x, p->file), ERR_IO);
    assert_null(x);
    assert_non_null(strstr(err_last()->text, p->file));
    assert_int_equal(inflater_open(&x, p->dir), ERR_DATA);
    assert_non_null(strstr(err_last()->text, ": a directory, expected a regular file"));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, enter, leave)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(each_kind_gives_its_text), TEST(parts_follow_each_other), TEST(first_bytes_say_it),
        TEST(tells_how_far_it_is),      TEST(memory_ignores_the_size), TEST(every_cut_is_seen),
        TEST(every_flip_is_seen),       TEST(what_follows_is_no_text), TEST(windows_are_limited),
        TEST(other_packings_are_named), TEST(a_missing_file_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
