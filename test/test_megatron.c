// test/test_megatron.c: tokens with an index as Megatron-LM writes it. The files are made here, byte by byte: every
// type, sequences in any order, and indexes that are cut, damaged, or those of other files.
#include "data/text/dataset.h"
#include "data/text/shard.h"
#include "test/support/expect.h"
#include "test/support/idx.h"
#include "test/support/megatron.h"
#include "test/support/place.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

static err_t open_at(dataset **d, place *p, const char *files, source_format format, int64_t vocab) {
    return dataset_open(d, &(dataset_options){.files = at(p, files), .format = format, .vocab = vocab});
}

// NAME.bin with tokens first, first + step, ... of so many bytes each.
static void put_tokens(place *p, const char *name, int bytes, int64_t n, int64_t first, int64_t step) {
    uint8_t *file = malloc((size_t)(n * bytes) + 1);
    for (int64_t i = 0; i < n; i++) put_number(file + i * bytes, (uint64_t)(first + i * step), bytes);
    write_bytes(at(p, name), file, (size_t)(n * bytes));
    free(file);
}

static void put_index(place *p, const char *name, int type, int bytes, int64_t n, const int32_t *length,
                      const int64_t *pointer) {
    uint8_t *file = malloc((size_t)(MEGATRON_HEADER + 20 * n + 8));
    write_bytes(at(p, name), file, megatron_index(file, type, bytes, n, length, pointer));
    free(file);
}

static void count_report(void *ctx, const char *text) {
    assert_non_null(strstr(text, ".bin"));
    ++*(int *)ctx;
}

// --- what is read ----------------------------------------------------------------------------------------------------

static const struct {
    int type, bytes;
    int64_t largest;
} readable[] = {{1, 1, 255}, {2, 1, 127}, {3, 2, 32767}, {8, 2, 65535}, {4, 4, INT32_MAX - 1}, {5, 8, INT32_MAX - 1}};
enum { READABLE = sizeof readable / sizeof *readable, N = 120 };

static void test_types(void **state) {
    place *p = *state;
    const int32_t lengths[] = {50, 1, 0, 69};
    for (int i = 0; i < READABLE; i++)
        for (int automatic = 0; automatic < 2; automatic++) {
            dataset *d;
            int32_t t[N];
            int reports = 0;
            put_tokens(p, "a.bin", readable[i].bytes, N, readable[i].largest - N + 1, 1);
            put_index(p, "a.idx", readable[i].type, readable[i].bytes, 4, lengths, NULL);
            assert_ok(open_at(&d, p, "a.bin", automatic ? FORMAT_AUTO : FORMAT_MEGATRON, 0));
            assert_int_equal(dataset_about(d).tokens, N);
            assert_int_equal(dataset_about(d).token_bytes, readable[i].bytes < 4 ? readable[i].bytes : 4);
            assert_ok(dataset_read(d, 0, N, t));
            for (int k = 0; k < N; k++) assert_int_equal(t[k], readable[i].largest - N + 1 + k);
            assert_ok(dataset_verify(d, count_report, &reports));
            dataset_close(d);
        }
}

// Negative numbers and what exceeds 31 bits: the message has the number, its place, and what would be right.
static void test_no_tokens(void **state) {
    static const struct {
        int type, bytes;
        int64_t number;
        const char *text;
    } cases[] = {{2, 1, -1, "is -1, expected at least 0 and less than 100"},
                 {2, 1, -128, "is -128,"},
                 {3, 2, -2, "is -2,"},
                 {3, 2, -32768, "is -32768,"},
                 {4, 4, -70000, "is -70000,"},
                 {4, 4, INT32_MIN, "is -2147483648,"},
                 {5, 8, -1, "is -1,"},
                 {5, 8, INT64_MIN, "is -9223372036854775808,"},
                 {5, 8, INT64_C(1) << 40, "is 1099511627776, expected less than 100"},
                 {5, 8, UINT32_MAX, "is 4294967295,"},
                 {5, 8, INT64_MAX, "is 9223372036854775807,"},
                 {1, 1, 100, "is 100, expected less than 100"},
                 {8, 2, 65535, "is 65535, expected less than 100"}};
    place *p = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dataset *d;
        int32_t t[8];
        int reports = 0;
        char where[64];
        uint8_t file[64] = {0};
        put_number(file + 5 * cases[i].bytes, (uint64_t)cases[i].number, cases[i].bytes);
        write_bytes(at(p, "a.bin"), file, 8 * (size_t)cases[i].bytes);
        put_index(p, "a.idx", cases[i].type, cases[i].bytes, 2, (int32_t[]){3, 5}, NULL);
        assert_ok(open_at(&d, p, "a.bin", FORMAT_AUTO, 100));
        snprintf(where, sizeof where, "a.bin: token 5 (at offset %d) ", 5 * cases[i].bytes);
        assert_ok(dataset_read(d, 0, 5, t));
        assert_error(dataset_read(d, 4, 4, t), ERR_DATA, where, cases[i].text);
        assert_error(dataset_verify(d, count_report, &reports), ERR_DATA, "1 fault");
        dataset_close(d);
    }
}

// Every window of these tokens, against those of the whole stream.
static void check_windows(dataset *d, const int32_t *expected, int64_t n) {
    int32_t *t = malloc((size_t)n * sizeof *t);
    assert_int_equal(dataset_about(d).tokens, n);
    for (int64_t first = 0; first < n; first++)
        for (int64_t k = 1; k <= n - first; k += 1 + k / 3) {
            assert_ok(dataset_read(d, first, k, t));
            assert_memory_equal(t, expected + first, (size_t)k * sizeof *t);
        }
    free(t);
}

// The stream is in the order of the index, wherever sequences are: out of order, apart, twice, and one in another.
static void test_pointers(void **state) {
    place *p = *state;
    static const int32_t lengths[] = {10, 5, 0, 7, 1, 5, 20, 0, 3};
    static const int64_t starts[] = {100, 110, 3, 0, 40, 0, 60, 120, 63};  // the second follows the first
    for (int bytes = 2; bytes <= 4; bytes += 2) {
        int64_t pointers[9], n = 0;
        int32_t stream[64];
        int reports = 0;
        dataset *d;
        for (int i = 0; i < 9; i++) {
            pointers[i] = starts[i] * bytes;
            for (int k = 0; k < lengths[i]; k++) stream[n++] = (int32_t)(starts[i] + k);
        }
        put_tokens(p, "a.bin", bytes, N, 0, 1);
        put_index(p, "a.idx", bytes == 2 ? 8 : 4, bytes, 9, lengths, pointers);
        assert_ok(open_at(&d, p, "a.bin", FORMAT_MEGATRON, 200));
        check_windows(d, stream, n);
        assert_ok(dataset_verify(d, count_report, &reports));
        dataset_close(d);
        assert_ok(open_at(&d, p, "a.bin", FORMAT_MEGATRON, 65));  // so that the message is seen to name the right place
        char where[64];
        snprintf(where, sizeof where, "token 0 (at offset %d) is 100", 100 * bytes);
        assert_error(dataset_read(d, 0, 3, stream), ERR_DATA, where);
        snprintf(where, sizeof where, "token 33 (at offset %d) is 65", 65 * bytes);
        assert_error(dataset_read(d, 28, 20, stream), ERR_DATA, where);
        dataset_close(d);
    }
}

// More sequences than are read at a time, of one and of three tokens, in order and backwards.
static void test_many_sequences(void **state) {
    enum { MANY = 40000, ALL = 2 * MANY };
    place *p = *state;
    int32_t *lengths = malloc(MANY * sizeof *lengths), *stream = malloc(ALL * sizeof *stream), t[3];
    int64_t *pointers = malloc(MANY * sizeof *pointers);
    put_tokens(p, "a.bin", 4, ALL, 0, 1);
    for (int back = 0; back < 2; back++) {
        dataset *d;
        int reports = 0;
        for (int i = 0, n = 0; i < MANY; i++) {
            lengths[i] = i < MANY / 2 ? 1 : 3;
            int from = back ? ALL - n - lengths[i] : n;
            pointers[i] = 4 * from;
            for (int k = 0; k < lengths[i]; k++) stream[n++] = from + k;
        }
        put_index(p, "a.idx", 4, 4, MANY, lengths, pointers);
        assert_ok(open_at(&d, p, "a.bin", FORMAT_AUTO, ALL));
        assert_int_equal(dataset_about(d).tokens, ALL);
        for (int64_t i = 0; i < ALL - 2; i += 7) {
            assert_ok(dataset_read(d, i, 3, t));
            assert_memory_equal(t, stream + i, sizeof t);
        }
        assert_ok(dataset_verify(d, count_report, &reports));
        dataset_close(d);
    }
    free(lengths), free(stream), free(pointers);
}

// Sequences in order are the same data as tokens without an index; in another order they are other data.
static void test_hash(void **state) {
    place *p = *state;
    dataset *d;
    char hash[4][17];
    const int64_t swapped[] = {100, 0};
    put_tokens(p, "a.bin", 2, N, 0, 1);
    for (int i = 0; i < 4; i++) {
        put_index(p, "a.idx", 8, 2, 2, i < 2 ? (int32_t[]){20, 100} : (int32_t[]){50, 50}, i == 2 ? swapped : NULL);
        assert_ok(open_at(&d, p, "a.bin", i ? FORMAT_MEGATRON : FORMAT_RAW16, 0));
        strcpy(hash[i], dataset_about(d).hash);
        dataset_close(d);
    }
    assert_string_equal(hash[0], hash[1]);
    assert_string_not_equal(hash[1], hash[2]);
    assert_string_not_equal(hash[2], hash[3]);
}

static void test_changed(void **state) {
    place *p = *state;
    dataset *d;
    int reports = 0;
    put_tokens(p, "a.bin", 2, N, 0, 1);
    put_index(p, "a.idx", 8, 2, 2, (int32_t[]){20, 20}, (int64_t[]){100, 0});
    assert_ok(open_at(&d, p, "a.bin", FORMAT_MEGATRON, 0));
    FILE *f = fopen(at(p, "a.bin"), "r+b");
    assert_true(f && fseek(f, 110, SEEK_SET) == 0 && fputc(7, f) == 7 && fclose(f) == 0);
    assert_error(dataset_verify(d, count_report, &reports), ERR_DATA, "1 fault in 1 of 1 shard");
    dataset_close(d);
}

// --- what `auto` takes for it ----------------------------------------------------------------------------------------

static void expect_auto(place *p, const char *name, int64_t tokens) {
    dataset *d;
    assert_ok(open_at(&d, p, name, FORMAT_AUTO, 0));
    assert_int_equal(dataset_about(d).tokens, tokens);
    dataset_close(d);
}

// Only NAME.bin with an index of that magic beside it: here the index has half of the tokens, so that one sees whether
// it was used.
static void test_auto(void **state) {
    place *p = *state;
    dataset *d;
    const int32_t half[] = {N / 2};
    fault_list faults;
    put_tokens(p, "a.bin", 2, N, 0, 1);
    expect_auto(p, "a.bin", N);
    put_index(p, "a.idx", 8, 2, 1, half, NULL);
    expect_auto(p, "a.bin", N / 2);
    put_tokens(p, "a.tok", 2, N, 0, 1);
    expect_auto(p, "a.tok", N);
    assert_ok(open_at(&d, p, "a.bin", FORMAT_RAW16, 0));
    assert_int_equal(dataset_about(d).tokens, N);
    dataset_close(d);
    put_tokens(p, "b.bin", 2, N, 1000, 1);
    write_bytes(at(p, "b.idx"), (const uint8_t *)"MMIDIDX\1 and more", 17);
    expect_auto(p, "b.bin", N);
    expect_auto(p, "?.bin", N + N / 2);
    write_bytes(at(p, "b.idx"), (const uint8_t *)"MMIDIDX", 8);
    expect_auto(p, "b.bin", N);
    assert_int_equal(unlink(at(p, "b.idx")) | mkdir(at(p, "b.idx"), 0755), 0);
    expect_auto(p, "b.bin", N);
    // What has a magic of its own is what it was.
    uint8_t llmc[1024 + 20] = {0};
    put_number(put_number(put_number(llmc, 20240520, 4), 1, 4), 10, 4);
    write_bytes(at(p, "a.bin"), llmc, sizeof llmc);
    expect_auto(p, "a.bin", 10);
    shard_writer *w;
    assert_ok(shard_write_open(&w, at(p, "a.bin"), 1, 30, false));
    assert_ok(shard_write(w, llmc, 30));
    assert_ok(shard_write_finish(w));
    shard_write_close(w);
    expect_auto(p, "a.bin", 30);
    // With an index that can't be read nobody knows.
    put_tokens(p, "a.bin", 2, N, 0, 1);
    assert_ok(fault_parse(&faults, "read@2"));
    assert_error(dataset_open(&d, &(dataset_options){.files = at(p, "a.bin"), .faults = &faults}), ERR_IO,
                 "a.bin: is the file beside it an index", "a.idx: read of 9 bytes");
    assert_error(open_at(&d, p, "a.idx", FORMAT_AUTO, 0), ERR_DATA,
                 "a.idx: offset 0: looks like the index of Megatron-LM's data");
    // Text beside an index is tokens: its index says so.
    write_bytes(at(p, "t.bin"),
                (const uint8_t *)"To be, or not to be, that is the question: whether 'tis nobler in the mind\n", 75);
    assert_error(open_at(&d, p, "t.bin", FORMAT_AUTO, 0), ERR_DATA, "looks like text");
    put_index(p, "t.idx", 1, 1, 1, (int32_t[]){75}, NULL);
    expect_auto(p, "t.bin", 75);
}

// --- what is refused -------------------------------------------------------------------------------------------------

static void test_wrong_files(void **state) {
    place *p = *state;
    dataset *d;
    static const struct {
        int at, bytes;
        uint64_t value;
        const char *word;
    } lies[] = {
        {0, 1, 'N', "a.idx: offset 0: not the magic"},
        {8, 1, 1, "a.idx: offset 0: not the magic"},
        {9, 8, 2, "a.idx: offset 9: version 2, expected 1"},
        {9, 8, UINT64_C(1) << 32 | 1, "offset 9: version 4294967297"},
        {17, 1, 0, "offset 17: type 0, expected 1 to 8"},
        {17, 1, 9, "offset 17: type 9"},
        {17, 1, 255, "offset 17: type 255"},
        {17, 1, 6, "offset 17: type 6 is float64"},
        {17, 1, 7, "offset 17: type 7 is float32"},
        {17, 1, 4,
         "sequence 1 (offsets 38 and 50) has 100 tokens of 4 bytes from byte 40 on, expected inside the 240 bytes of"},
        {18, 8, 0, "offset 18: no sequence"},
        {18, 8, 3, "too few for the 3 documents"},
        {18, 8, 1, "sequences and 3 documents: the file is too long"},
        {18, 8, 7, "too few for the 7 sequences that offset 18"},
        {18, 8, UINT64_MAX, "too few for the 18446744073709551615 sequences"},
        // times 12: less than the file has
        {18, 8, UINT64_MAX / 12 + 3, "too few for the 1537228672809129304 sequences"},
        {26, 8, 2, "expected 74 for 2 sequences and 2 documents: the file is too long"},
        {26, 8, 4, "too few for the 4 documents that offset 26"},
        {26, 8, (UINT64_C(1) << 61) + 3, "too few for the 2305843009213693955 documents"},
        {26, 8, UINT64_MAX, "too few for the"},
        {34, 4, UINT32_MAX, "sequence 0 (offsets 34 and 42) has -1 tokens of 2 bytes from byte 0"},
        {34, 4, INT32_MAX, "has 2147483647 tokens"},
        {38, 4, 101,
         "sequence 1 (offsets 38 and 50) has 101 tokens of 2 bytes from byte 40 on, expected inside the 240 bytes of"},
        {50, 8, 41, "sequence 1 (offsets 38 and 50) has 100 tokens of 2 bytes from byte 41"},
        {50, 8, 241, "from byte 241"},
        {50, 8, UINT64_MAX, "from byte -1"},
        {50, 8, INT64_MAX, "from byte 9223372036854775807"},
        {42, 8, (uint64_t)INT64_MIN, "from byte -9223372036854775808"},
    };
    uint8_t index[128], copy[128];
    size_t n = megatron_index(index, 8, 2, 2, (int32_t[]){20, 100}, NULL);
    put_tokens(p, "a.bin", 2, N, 0, 1);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        memcpy(copy, index, n);
        put_number(copy + lies[i].at, lies[i].value, lies[i].bytes);
        write_bytes(at(p, "a.idx"), copy, n);
        assert_error(open_at(&d, p, "a.bin", FORMAT_MEGATRON, 0), ERR_DATA, "a.idx", lies[i].word);
    }
    uint8_t modes[130];
    memcpy(modes, index, n);
    memset(modes + n, 0, 2);
    write_bytes(at(p, "a.idx"), modes, n + 2);
    assert_error(open_at(&d, p, "a.bin", FORMAT_AUTO, 0), ERR_DATA,
                 "a.idx: offset 82: the index gives each sequence a mode");
    put_index(p, "a.idx", 8, 2, 2, (int32_t[]){0, N}, (int64_t[]){2 * N + 1, 0});
    assert_error(open_at(&d, p, "a.bin", FORMAT_AUTO, 0), ERR_DATA, "sequence 0 ",
                 "has 0 tokens of 2 bytes from byte 241");
    put_index(p, "a.idx", 8, 2, 3, (int32_t[]){0, 0, 0}, NULL);
    assert_error(open_at(&d, p, "a.bin", FORMAT_AUTO, 0), ERR_DATA, "a.idx: all 3 sequences are empty");
    assert_int_equal(unlink(at(p, "a.idx")), 0);
    assert_error(open_at(&d, p, "a.bin", FORMAT_MEGATRON, 0), ERR_IO, "a.bin: its index: ", "a.idx: No such file");
    put_tokens(p, "a.tok", 2, N, 0, 1);
    assert_error(open_at(&d, p, "a.tok", FORMAT_MEGATRON, 0), ERR_DATA, "a.tok: data of Megatron-LM is NAME.bin",
                 "name the file that ends in .bin");
}

// An index that is cut anywhere is refused. One with a flipped bit is refused, or has sequences that are inside the
// file.
static void test_every_flip_and_cut(void **state) {
    place *p = *state;
    uint8_t index[128];
    size_t n = megatron_index(index, 8, 2, 2, (int32_t[]){20, 100}, NULL);
    dataset *d;
    put_tokens(p, "a.bin", 2, N, 0, 1);
    for (size_t cut = 0; cut < n; cut++) {
        write_bytes(at(p, "a.idx"), index, cut);
        assert_error(open_at(&d, p, "a.bin", FORMAT_MEGATRON, 0), ERR_DATA, "a.idx");
    }
    int accepted = 0;
    for (size_t bit = 0; bit < 8 * n; bit++) {
        int32_t t[2 * N];
        index[bit / 8] ^= (uint8_t)(1 << bit % 8);
        write_bytes(at(p, "a.idx"), index, n);
        err_t rc = open_at(&d, p, "a.bin", FORMAT_MEGATRON, 0);
        if (rc != ERR_OK) assert_error(rc, ERR_DATA, "a.idx");
        index[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (rc != ERR_OK) continue;
        assert_in_range(dataset_about(d).tokens, 1, 2 * N);
        assert_ok(dataset_read(d, 0, dataset_about(d).tokens, t));
        accepted += bit / 8 < MEGATRON_HEADER + 24;
        dataset_close(d);
    }
    assert_in_range(accepted, 5, 40);  // shorter sequences, and pointers into others
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, place_enter, place_leave)
    const struct CMUnitTest tests[] = {
        TEST(test_types),          TEST(test_no_tokens),   TEST(test_pointers),
        TEST(test_many_sequences), TEST(test_hash),        TEST(test_changed),
        TEST(test_auto),           TEST(test_wrong_files), TEST(test_every_flip_and_cut),
    };
    return cmocka_run_group_tests_name("megatron", tests, NULL, NULL);
}
