// test/test_blocks.c: tensors in compressed blocks (model/blocks.h): what is written reads back bit for bit, whole and
// by ranges, and together it is the plain file; and whatever byte is wrong, or forged with fitting checksums, the file
// is refused, with its name and the tensor's.
#include "base/io.h"
#include "base/le.h"
#include "base/philox.h"
#include "model/blocks.h"
#include "model/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <cmocka.h>

enum { BLOCK = BLOCK_BYTES / 4, TENSORS = 7, HEAD = 36 };
static const int64_t sizes[TENSORS] = {0, 1, 3, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 777};
enum { NOISE, ZEROS, WEIGHTS, KINDS };

typedef struct place {
    char dir[256], file[300], plain[300];
    st_tensor table[TENSORS];
    float *data[TENSORS];
} place;

static int enter(void **state) {
    place *p = calloc(1, sizeof *p);
    const char *base = getenv("TMPDIR");
    snprintf(p->dir, sizeof p->dir, "%s/blocks-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(p->dir)) return -1;
    snprintf(p->file, sizeof p->file, "%s/t.safetensors.blocks", p->dir);
    snprintf(p->plain, sizeof p->plain, "%s/t.safetensors", p->dir);
    *state = p;
    return 0;
}

static int leave(void **state) {
    place *p = *state;
    int rc = io_remove_tree(p->dir) == ERR_OK ? 0 : -1;
    for (int i = 0; i < TENSORS; i++) free(p->data[i]);
    free(p);
    return rc;
}

#define OK(call) \
    do { \
        err_t ok_ = (call); \
        if (ok_ != ERR_OK) fail_msg("%s: %d: %s", #call, ok_, err_last()->text); \
    } while (0)

// Values of one kind; each tensor's are others. NOISE has every bit pattern.
static void fill(place *p, int kind) {
    for (int i = 0; i < TENSORS; i++) {
        p->table[i] = (st_tensor){.type = ST_F32, .dims = 1, .size = {sizes[i]}};
        snprintf(p->table[i].name, ST_NAME, "t%d", i);
        free(p->data[i]);
        p->data[i] = calloc((size_t)sizes[i] + 4, sizeof(float));
        for (int64_t k = 0; k < sizes[i] && kind != ZEROS; k += 4) {
            uint32_t word[4];
            philox4x32(word, 20261126, (uint32_t)k, (uint32_t)i, (uint32_t)kind, 0);
            float x[4];
            for (int j = 0; j < 4; j++)  // about normal, of some size
                x[j] = ldexpf((float)(word[j] >> 16) + (float)(word[j] & 65535) - 65535.5f, -20 - (int)(word[j] % 5));
            memcpy(p->data[i] + k, kind == NOISE ? (void *)word : (void *)x, sizeof x);
        }
    }
}

static void write_both(place *p, int level) {
    static const char *const metadata[] = {"format", "pt", NULL};
    for (int form = 0; form < 2; form++) {
        st_writer w;
        st_tensor table[TENSORS];
        memcpy(table, p->table, sizeof table);
        if (form) OK(st_create_blocks(&w, p->file, table, TENSORS, metadata, level, NULL));
        else OK(st_create(&w, p->plain, table, TENSORS, metadata, NULL));
        for (int i = 0; i < TENSORS; i++)
            for (int64_t k = 0, n; k < sizes[i]; k += n) {
                n = sizes[i] - k < 100000 ? sizes[i] - k : 100000;  // pieces that are no blocks
                OK(st_put(&w, p->data[i] + k, (size_t)n * 4));
            }
        int64_t bytes, end;
        OK(st_finish(&w, &bytes));
        int fd = open(form ? p->file : p->plain, O_RDONLY);
        end = lseek(fd, 0, SEEK_END);
        close(fd);
        assert_int_equal(bytes, end);
    }
}

// Whole, from and to where blocks begin and end (0: the tensor's end) and one beside, and in ranges of chance.
static void reads_back(const place *p, st_file *f, int rounds) {
    enum { ENDS = 6 };
    static const int64_t ends[ENDS] = {0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK};
    float *x = malloc((size_t)sizes[TENSORS - 1] * 4);
    for (int i = 0; i < TENSORS; i++) {
        const st_tensor *t = st_find(f, p->table[i].name);
        assert_non_null(t);
        OK(st_read(f, t, x));
        assert_memory_equal(x, p->data[i], (size_t)sizes[i] * 4);
        for (int k = 0; k < ENDS * ENDS; k++) {
            int64_t first = ends[k / ENDS], n = ends[k % ENDS] ? ends[k % ENDS] - first : sizes[i] - first;
            if (n <= 0 || first + n > sizes[i]) continue;
            memset(x, 0x5a, (size_t)n * 4);
            OK(st_read_f32_part(f, t, first, n, x));
            assert_memory_equal(x, p->data[i] + first, (size_t)n * 4);
        }
        for (int k = 0; k < rounds && sizes[i]; k++) {
            uint32_t word[4];
            philox4x32(word, 7, (uint32_t)k, (uint32_t)i, 0, 0);
            int64_t first = word[0] % sizes[i], n = word[1] % (sizes[i] - first) + 1;
            if (k % 3 == 0 && n > 5000) n = 5000;
            memset(x, 0x5a, (size_t)n * 4);
            OK(st_read_f32_part(f, t, first, n, x));
            assert_memory_equal(x, p->data[i] + first, (size_t)n * 4);
        }
    }
    free(x);
}

static void test_round_trip(void **state) {
    place *p = *state;
    static const int levels[] = {1, 3, 9};
    for (int kind = 0; kind < KINDS; kind++)
        for (int k = 0; k < (kind == WEIGHTS ? 3 : 1); k++) {
            st_file f, plain;
            fill(p, kind);
            write_both(p, levels[k]);
            OK(st_open(&f, p->file));
            OK(st_open(&plain, p->plain));
            assert_non_null(f.blocks);
            assert_null(plain.blocks);
            assert_int_equal(f.plain_bytes, plain.file_bytes);
            double ratio = (double)plain.file_bytes / (double)f.file_bytes;
            if (kind == NOISE) assert_true(ratio > 0.999);
            if (kind == ZEROS) assert_true(ratio > 1000);
            if (kind == WEIGHTS) assert_true(ratio > 1.1);
            reads_back(p, &f, 20);
            reads_back(p, &plain, 20);
            st_close(&f), st_close(&plain);
        }
}

// Its header and then what its blocks hold.
static void test_is_the_plain_file(void **state) {
    place *p = *state;
    st_file f;
    char *all, *plain;
    size_t n, m;
    fill(p, WEIGHTS);
    write_both(p, 1);
    OK(st_open(&f, p->file));
    OK(io_read_file(p->file, 64 << 20, &all, &n));
    OK(io_read_file(p->plain, 64 << 20, &plain, &m));
    assert_memory_equal(all + f.blocks->begin, plain, (size_t)f.blocks->header);
    int64_t at = f.blocks->header;
    for (int i = 0; i < TENSORS; i++) {
        assert_memory_equal(p->data[i], plain + at, (size_t)sizes[i] * 4);
        at += sizes[i] * 4;
    }
    assert_int_equal(at, m);
    free(all), free(plain);
    st_close(&f);
}

// What one file's block left there is not taken for another's.
static void test_one_room(void **state) {
    place *p = *state;
    st_file a, b;
    block_room *room;
    float x[8], y[8];
    fill(p, WEIGHTS);
    write_both(p, 1);
    OK(st_open(&a, p->file));
    char *bytes, other[320];
    size_t n;
    OK(io_read_file(p->file, 64 << 20, &bytes, &n));
    snprintf(other, sizeof other, "%s.other", p->file);
    fill(p, NOISE);
    float *noise = malloc(32);
    memcpy(noise, p->data[4] + 100, 32);
    write_both(p, 1);  // truncates what `a` has open: put it back under another name
    OK(io_write_file(other, bytes, n, NULL));
    st_close(&a);
    fill(p, WEIGHTS);
    OK(st_open(&a, other));
    OK(st_open(&b, p->file));
    OK(block_room_open(&room));
    a.blocks->room = b.blocks->room = room;
    a.blocks->lent = b.blocks->lent = true;
    for (int k = 0; k < 3; k++) {
        OK(st_read_f32_part(&a, st_find(&a, "t4"), 100, 8, x));
        OK(st_read_f32_part(&b, st_find(&b, "t4"), 100, 8, y));
        assert_memory_equal(x, p->data[4] + 100, sizeof x);
        assert_memory_equal(y, noise, sizeof y);
    }
    // nor for another's that is opened where the first one was
    const int64_t first = st_find(&a, "t4")->block, size = st_find(&a, "t4")->bytes;
    const char *const paths[] = {other, p->file};
    st_close(&a), st_close(&b);
    for (int k = 0; k < 2; k++) {
        static blocks place;
        int fd = open(paths[k], O_RDONLY);
        OK(blocks_open(&place, fd, paths[k], lseek(fd, 0, SEEK_END)));
        place.room = room, place.lent = true;
        OK(blocks_read(&place, fd, paths[k], first, size, 400, x, sizeof x));
        assert_memory_equal(x, k ? noise : p->data[4] + 100, sizeof x);
        blocks_close(&place);
        close(fd);
    }
    block_room_close(room);
    free(bytes), free(noise);
}

// The values of a block of which the writer packs these bytes (model/blocks.h).
static void of_planes(uint8_t *x, const uint8_t *planes, size_t values) {
    for (size_t i = 0; i < values; i++) {
        uint32_t v = 0;
        for (size_t k = 0; k < 4; k++) v |= (uint32_t)planes[k * values + i] << (8 * k);
        le32_put(x + 4 * i, v >> 1 | v << 31);
    }
}

// A block that has as many bytes packed as not is stored as it is: nothing else in the file says which of the two it
// is.
static void test_as_long_as_packed(void **state) {
    const place *p = *state;
    enum { VALUES = 5, BYTES = 4 * VALUES };
    int same = 0;
    for (int zeros = 0; zeros <= BYTES; zeros++) {
        uint8_t planes[BYTES] = {0}, x[BYTES], y[BYTES], packed[256];
        uint32_t word[8];
        st_writer w;
        st_file f;
        st_tensor t = {.name = "w", .type = ST_F32, .dims = 1, .size = {VALUES}};
        philox4x32(word, 20261126, 0, 0, 0, 0), philox4x32(word + 4, 20261126, 1, 0, 0, 0);
        memcpy(planes + zeros, word, (size_t)(BYTES - zeros));
        same += ZSTD_compress(packed, sizeof packed, planes, BYTES, 1) == BYTES;
        of_planes(x, planes, VALUES);
        OK(st_create_blocks(&w, p->file, &t, 1, NULL, 1, NULL));
        OK(st_put(&w, x, sizeof x));
        OK(st_finish(&w, NULL));
        OK(st_open(&f, p->file));
        OK(st_read(&f, &f.tensors[0], y));
        if (memcmp(x, y, sizeof x) != 0) fail_msg("%d zeros: other values", zeros);
        st_close(&f);
    }
    assert_true(same > 0);
}

// --- damage ----------------------------------------------------------------------------------------------------------

// A file of two small tensors. The caller frees it.
static uint8_t *small_file(const place *p, size_t *n) {
    st_writer w;
    st_tensor table[2] = {{.name = "w", .type = ST_F32, .dims = 2, .size = {10, 10}},
                          {.name = "bias", .type = ST_F32, .dims = 1, .size = {3}}};
    char *bytes;
    float x[100] = {0};
    for (int i = 0; i < 50; i++) x[i] = 1.0f / (float)(i + 1);
    OK(st_create_blocks(&w, p->file, table, 2, NULL, 1, NULL));
    OK(st_put(&w, x, sizeof x));
    OK(st_put(&w, x, 12));
    OK(st_finish(&w, NULL));
    OK(io_read_file(p->file, 1 << 20, &bytes, n));
    return (uint8_t *)bytes;
}

static void put_file(const place *p, const void *bytes, size_t n) {
    int fd = open(p->file, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), (ssize_t)n);
    close(fd);
}

// The answer to the file as it is: ERR_OK only if all of it reads.
static err_t ask(const place *p) {
    st_file f;
    float x[100];
    TRY(st_open(&f, p->file));
    err_t rc = ERR_OK;
    for (int i = 0; i < f.count && rc == ERR_OK; i++)
        rc = f.tensors[i].bytes > (int64_t)sizeof x ? err_set(ERR_DATA, "%s: large", p->file)
                                                    : st_read(&f, &f.tensors[i], x);
    st_close(&f);
    return rc;
}

static void refused(const place *p, const char *what, const char *says) {
    err_t rc = ask(p);
    if (rc != ERR_DATA || !strstr(err_last()->text, p->file) || !strstr(err_last()->text, says))
        fail_msg("%s: %d \"%s\" says nothing of %s", what, rc, rc ? err_last()->text : "", says);
}

static void test_every_byte(void **state) {
    const place *p = *state;
    size_t n;
    uint8_t *bytes = small_file(p, &n);
    char what[64];
    for (size_t at = 0; at < n; at++)
        for (int bit = 0; bit < 8; bit++) {
            bytes[at] ^= (uint8_t)(1 << bit);
            put_file(p, bytes, n);
            snprintf(what, sizeof what, "bit %d of byte %zu", bit, at);
            refused(p, what, "");
            bytes[at] ^= (uint8_t)(1 << bit);
        }
    for (size_t length = 0; length < n; length++) {
        put_file(p, bytes, length);
        snprintf(what, sizeof what, "%zu bytes", length);
        refused(p, what, "");
    }
    uint8_t *longer = calloc(1, n + 1);
    memcpy(longer, bytes, n);
    put_file(p, longer, n + 1);
    refused(p, "a byte more", "its index damaged");
    put_file(p, bytes, n);
    OK(ask(p));
    free(bytes), free(longer);
}

// --- forged ----------------------------------------------------------------------------------------------------------

// Makes the checksum of the head fit.
static void fit_head(uint8_t *bytes) {
    size_t head = HEAD + 8 * (size_t)le64_get(bytes + 24) + (size_t)le64_get(bytes + 8);
    le32_put(bytes + 32, (uint32_t)crc32_z(crc32_z(0, bytes, 32), bytes + HEAD, head - HEAD));
}

// A small file whose first block is these bytes instead.
static void put_block(const place *p, const uint8_t *block, size_t size) {
    size_t n;
    uint8_t *bytes = small_file(p, &n), *all = calloc(1, n + size);
    size_t head = HEAD + 16 + (size_t)le64_get(bytes + 8), first = le32_get(bytes + HEAD);
    memcpy(all, bytes, head);
    memcpy(all + head, block, size);
    memcpy(all + head + size, bytes + head + first, n - head - first);
    le32_put(all + HEAD, (uint32_t)size), le32_put(all + HEAD + 4, (uint32_t)crc32_z(0, block, size));
    fit_head(all);
    put_file(p, all, n - first + size);
    free(bytes), free(all);
}

static void test_bombs(void **state) {
    const place *p = *state;
    static uint8_t zeros[2 << 20], packed[1 << 16];
    static const size_t holds[] = {2 << 20, 404, 401, 399, 396, 0};
    for (size_t i = 0; i < sizeof holds / sizeof *holds; i++) {
        put_block(p, packed, ZSTD_compress(packed, sizeof packed, zeros, holds[i], 1));
        refused(p, "a block of another size", "tensor w: ");
        assert_non_null(strstr(err_last()->text, "can't be unpacked into the 400 bytes"));
    }
    put_block(p, packed, ZSTD_compress(packed, sizeof packed, zeros, 400, 1));
    OK(ask(p));  // so it was the size
    memset(packed, 0x5a, 399);
    put_block(p, packed, 399);
    refused(p, "no zstd at all", "can't be unpacked");
    put_block(p, packed, 401);
    refused(p, "more bytes than it holds", "has 401 bytes in the index and holds 400");
    put_block(p, packed, 400);
    OK(ask(p));  // as it is
}

static void test_forged_heads(void **state) {
    const place *p = *state;
    size_t n;
    uint8_t *bytes = small_file(p, &n), *all = malloc(n);
    char *header = (char *)all + HEAD + 16 + 8;
    memcpy(all, bytes, n);
    le64_put(all + 24, (uint64_t)1 << 60);
    put_file(p, all, n);
    refused(p, "many blocks", "can't be in a file of");
    memcpy(all, bytes, n);
    le64_put(all + 8, (uint64_t)1 << 62);
    put_file(p, all, n);
    refused(p, "a large header", "can't be in a file of");
    memcpy(all, bytes, n);
    le64_put(all + 16, le64_get(bytes + 16) + 4), fit_head(all);
    put_file(p, all, n);
    refused(p, "a longer plain file", "");
    memcpy(all, bytes, n);
    le64_put(all + 24, 1), le64_put(all + 8, le64_get(bytes + 8) + 8), fit_head(all);
    put_file(p, all, n);
    refused(p, "an entry that belongs to the header", "");
    memcpy(all, bytes, n);
    le32_put(all + HEAD, 0), le32_put(all + HEAD + 8, le32_get(bytes + HEAD) + le32_get(bytes + HEAD + 8));
    fit_head(all);
    put_file(p, all, n);
    refused(p, "an empty block", "block 0 of 2 has 0 bytes");
    memcpy(all, bytes, n);
    char *type = strstr(header, "\"F32\"");
    assert_non_null(type);
    memcpy(type, "\"I32\"", 5), fit_head(all);
    put_file(p, all, n);
    refused(p, "of another type", "holds I32");
    memcpy(all, bytes, n);
    char *shape = strstr(header, "[10,10]");
    assert_non_null(shape);
    memcpy(shape, "[10,90]", 7), fit_head(all);
    put_file(p, all, n);
    refused(p, "of another shape", "tensor w");
    free(bytes), free(all);
}

static void test_declares_f32_only(void **state) {
    const place *p = *state;
    st_writer w;
    st_tensor t = {.name = "h", .type = ST_F16, .dims = 1, .size = {2}};
    assert_int_equal(st_create_blocks(&w, p->file, &t, 1, NULL, 1, NULL), ERR_INTERNAL);
    assert_non_null(strstr(err_last()->text, "tensor h"));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, enter, leave)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_round_trip), TEST(test_is_the_plain_file), TEST(test_one_room),          TEST(test_every_byte),
        TEST(test_bombs),      TEST(test_forged_heads),      TEST(test_declares_f32_only), TEST(test_as_long_as_packed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
