// test/test_safetensors.c: what is written reads back bit for bit, in this reader and by the letter of the format; and
// a header that does not fit itself or its file is refused with the tensor or the offset named, whatever byte is wrong.
#include "base/io.h"
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

#include <cmocka.h>

typedef struct place {
    char dir[256], file[300];
} place;

static int enter(void **state) {
    place *p = calloc(1, sizeof *p);
    const char *base = getenv("TMPDIR");
    snprintf(p->dir, sizeof p->dir, "%s/st-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(p->dir)) return -1;
    snprintf(p->file, sizeof p->file, "%s/t.safetensors", p->dir);
    *state = p;
    return 0;
}

static int leave(void **state) {
    place *p = *state;
    int rc = io_remove_tree(p->dir) == ERR_OK ? 0 : -1;
    free(p);
    return rc;
}

static void write_raw(const char *path, const void *bytes, size_t n) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), (ssize_t)n);
    close(fd);
}

// A file of this header text and `data` bytes of 0x55.
static void write_file(const place *p, const char *header, size_t data) {
    size_t n = strlen(header);
    char *bytes = malloc(8 + n + data);
    memcpy(bytes, &(uint64_t){n}, 8);
    memcpy(bytes + 8, header, n);
    memset(bytes + 8 + n, 0x55, data);
    write_raw(p->file, bytes, 8 + n + data);
    free(bytes);
}

static void refused(const place *p, const char *header, size_t data, const char *says) {
    st_file f;
    write_file(p, header, data);
    err_t rc = st_open(&f, p->file);
    if (rc != ERR_DATA || !strstr(err_last()->text, says))
        print_error("%s -> %d: %s\n", header, rc, rc ? err_last()->text : "accepted");
    assert_int_equal(rc, ERR_DATA);
    assert_non_null(strstr(err_last()->text, p->file));
    assert_non_null(strstr(err_last()->text, says));
    assert_int_equal(f.fd, -1);
}

#define ENTRY(dtype, shape, from, to) \
    "{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" from "," to "]}"

static void test_accepts(void **state) {
    place *p = *state;
    st_file f;
    // data order differs from header order; a scalar; an empty tensor; metadata; spaces at the end
    write_file(p,
               "{\"b\":" ENTRY("F32", "2,1", "4", "12") ",\"__metadata__\":{\"k\":\"v\"}"
                                                        ",\"a\":" ENTRY("F16", "", "0", "2") ",\"e\":" ENTRY(
                                                            "I64", "0,7", "4", "4") ",\"a2\":" ENTRY("BF16", "1", "2",
                                                                                                     "4") "}   ",
               12);
    assert_int_equal(st_open(&f, p->file), ERR_OK);
    assert_int_equal(f.count, 4);
    assert_string_equal(f.tensors[0].name, "a");
    assert_string_equal(f.tensors[3].name, "b");
    assert_int_equal(f.tensors[0].dims, 0);
    assert_int_equal(f.tensors[0].bytes, 2);
    assert_int_equal(st_find(&f, "e")->bytes, 0);
    assert_int_equal(st_find(&f, "b")->size[0], 2);
    assert_int_equal(st_find(&f, "b")->offset + 8, f.file_bytes);
    assert_null(st_find(&f, "c"));
    st_close(&f);
    write_file(p, "{}", 0);
    assert_int_equal(st_open(&f, p->file), ERR_OK);
    assert_int_equal(f.count, 0);
    st_close(&f);
}

// Every type of the format has its size, so that a tensor that nobody reads does no harm; only numbers are read as
// FP32.
static void test_knows_all_types(void **state) {
    place *p = *state;
    static const struct {
        const char *name;
        int bits;
        bool floating;
    } types[] = {{"F32", 32, true},         {"F16", 16, true},        {"BF16", 16, true},    {"F64", 64, true},
                 {"I64", 64, false},        {"BOOL", 8, false},       {"U8", 8, false},      {"I8", 8, false},
                 {"I16", 16, false},        {"U16", 16, false},       {"I32", 32, false},    {"U32", 32, false},
                 {"U64", 64, false},        {"C64", 64, false},       {"F8_E4M3", 8, false}, {"F8_E5M2", 8, false},
                 {"F8_E8M0", 8, false},     {"F4", 4, false},         {"F6_E2M3", 6, false}, {"F6_E3M2", 6, false},
                 {"F8_E4M3FNUZ", 8, false}, {"F8_E5M2FNUZ", 8, false}};
    assert_int_equal(sizeof types / sizeof *types, ST_TYPES);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char header[160];
        float x[4];
        st_file f;
        int bytes = 4 * types[i].bits / 8;
        snprintf(header, sizeof header, "{\"a\":{\"dtype\":\"%s\",\"shape\":[2,2],\"data_offsets\":[0,%d]}}",
                 types[i].name, bytes);
        write_file(p, header, (size_t)bytes);
        assert_int_equal(st_open(&f, p->file), ERR_OK);
        assert_string_equal(st_type_name(f.tensors[0].type), types[i].name);
        assert_int_equal(f.tensors[0].bytes, bytes);
        assert_int_equal(st_read_f32(&f, &f.tensors[0], x), types[i].floating ? ERR_OK : ERR_DATA);
        st_close(&f);
    }
    refused(p, "{\"a\":" ENTRY("F4", "3", "0", "1") "}", 1, "tensor a: its elements do not fill whole bytes");
    refused(p, "{\"a\":" ENTRY("F6_E2M3", "2", "0", "2") "}", 2, "tensor a: its elements do not fill whole bytes");
}

static void test_refuses_entries(void **state) {
    place *p = *state;
    refused(p, "{\"a\":" ENTRY("U7", "4", "0", "4") "}", 4, "tensor a: dtype U7");
    refused(p, "{\"a\":" ENTRY("F32", "-1", "0", "4") "}", 4, "tensor a");
    refused(p, "{\"a\":" ENTRY("F32", "1.0", "0", "4") "}", 4, "tensor a");
    refused(p, "{\"a\":" ENTRY("F32", "\"1\"", "0", "4") "}", 4, "tensor a");
    refused(p, "{\"a\":" ENTRY("F32", "99999999999999999999", "0", "4") "}", 4, "JSON");
    refused(p, "{\"a\":" ENTRY("F32", "4294967296,4294967296", "0", "0") "}", 0, "tensor a: its shape is larger");
    refused(p, "{\"a\":" ENTRY("F32", "4611686018427387904", "0", "0") "}", 0, "tensor a: its shape is larger");
    refused(p, "{\"a\":" ENTRY("F32", "1,1,1,1,1,1,1,1,1", "0", "4") "}", 4, "tensor a has 9 dimensions");
    refused(p, "{\"a\":" ENTRY("F32", "2", "0", "4") "}", 4, "need 8");
    refused(p, "{\"a\":" ENTRY("F32", "1", "0", "8") "}", 8, "need 4");
    refused(p, "{\"a\":" ENTRY("F32", "1", "-4", "0") "}", 4, "tensor a");
    refused(p, "{\"a\":" ENTRY("F32", "1", "4", "0") "}", 4, "tensor a");
    refused(p, "{\"a\":" ENTRY("F32", "1", "0", "4.0") "}", 4, "tensor a");
    refused(p, "{\"a\":" ENTRY("F32", "1", "0", "9223372036854775807") "}", 4, "tensor a");
    refused(p, "{\"a\":" ENTRY("F32", "1", "0", "4,4") "}", 4, "tensor a");
    refused(p, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "tensor a");
    refused(p, "{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "tensor a");
    refused(p, "{\"a\":{\"dtype\":\"F32\",\"shape\":{},\"data_offsets\":[0,4]}}", 4, "tensor a");
    refused(p, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"scale\":2}}", 4, "tensor a");
    refused(p, "{\"a\":3}", 4, "tensor a");
    refused(p, "{\"\":" ENTRY("F32", "1", "0", "4") "}", 4, "name");
    char header[400], name[ST_NAME + 1];
    memset(name, 'n', ST_NAME);
    name[ST_NAME] = 0;
    snprintf(header, sizeof header, "{\"%s\":" ENTRY("F32", "1", "0", "4") "}", name);
    refused(p, header, 4, "has 128 bytes");
}

static void test_refuses_layouts(void **state) {
    place *p = *state;
    refused(p, "{\"a\":" ENTRY("F32", "1", "0", "4") ",\"a\":" ENTRY("F32", "1", "4", "8") "}", 8, "duplicate");
    refused(p, "{\"a\":" ENTRY("F32", "1", "0", "4") ",\"b\":" ENTRY("F32", "1", "8", "12") "}", 12, "gap");
    refused(p, "{\"a\":" ENTRY("F32", "2", "0", "8") ",\"b\":" ENTRY("F32", "2", "4", "12") "}", 12, "overlap");
    refused(p, "{\"a\":" ENTRY("F32", "1", "4", "8") "}", 8, "tensor a starts");
    refused(p, "{\"a\":" ENTRY("F32", "1", "0", "4") "}", 5, "belong to no tensor");
    refused(p, "{\"a\":" ENTRY("F32", "1", "0", "4") "}", 3, "tensor a");
    refused(p, "{}", 1, "belong to no tensor");
    refused(p, "{\"__metadata__\":{\"k\":1}}", 0, "metadata");
    refused(p, "{\"__metadata__\":[]}", 0, "metadata");
    refused(p, "[1]", 0, "offset 8");
    refused(p, "{} x", 0, "JSON");
    refused(p, "{\"a\\u0000b\":1}", 0, "JSON");
}

// What the format's own reader is tested with, and what has been sent to it in bad faith
// (github.com/huggingface/safetensors: src/tensor.rs, attacks, bindings/python/tests). says: NULL where that reader
// accepts it, and so must ours; else a part of our message.
#define W(name) "\"" name "\":"
static const struct {
    const char *header;
    size_t data;
    const char *says;
} known[] = {
    // accepted
    {"{" W("w") ENTRY("I32", "3,2", "0", "24") "}", 24, NULL},
    {"{" W("w") ENTRY("I32", "", "0", "4") "}", 4, NULL},
    {"{" W("w") ENTRY("I32", "3,0", "0", "0") "}", 0, NULL},
    // theirs accepts it: 0 comes first
    {"{" W("w") ENTRY("I32", "0,4611686018427387904", "0", "0") "}", 0, "larger than any file"},
    {"{" W("w") ENTRY("F32", "1,1,1,1,1,1,1,1", "0", "4") "}", 4, NULL},
    {"{}\r \t\n", 0, NULL},
    {"\t\n{}\r ", 0, NULL},
    {" \t\r\n{" W("w") ENTRY("I32", "1", "0", "4") "}", 4, NULL},
    {"{\"__metadata__\":{}}", 0, NULL},
    // brackets in strings nest nothing
    {"{\"__metadata__\":{\"a\":\"[[[[{{{{,,,,\\\\\\\"[[[[\"}," W("w") ENTRY("U8", "1", "0", "1") "}", 1, NULL},
    {"{" W("w\xC3\xA9") ENTRY("U8", "1", "0", "1") "," W("\\u00e8") ENTRY("U8", "1", "1", "2") "}", 2, NULL},
    // no header
    {"{", 0, "has 9 bytes: empty or truncated"},
    {"{", 9, "header length 1, expected 2"},
    {"\xff", 0, "has 9 bytes: empty or truncated"},
    {"  ", 0, "expected the header's '{', found byte 0x20"},
    {"\n\n[]", 0, "offset 10: expected the header's '{'"},
    {"null", 0, "expected the header's '{'"},
    {"\xEF\xBB\xBF{}", 0, "expected the header's '{', found byte 0xef"},
    {"{" W("\xff") ENTRY("U8", "1", "0", "1") "}", 1, "unable to decode"},
    {"{" W("\xC0\x80") ENTRY("U8", "1", "0", "1") "}", 1, "unable to decode"},
    {"{" W("\xED\xA0\x80") ENTRY("U8", "1", "0", "1") "}", 1, "unable to decode"},
    {"{\"\xE2\x82", 0, "not valid JSON"},
    {"{" W("\\ud800") ENTRY("U8", "1", "0", "1") "}", 1, "not valid JSON"},
    {"{" W("a\nb") ENTRY("U8", "1", "0", "1") "}", 1, "not valid JSON"},
    {"{" W("w") ENTRY("U8", "1", "0", "1"), 1, "not valid JSON"},
    {"{" W("w") ENTRY("U8", "1", "0", "1") ",}", 1, "not valid JSON"},
    {"{'w':" ENTRY("U8", "1", "0", "1") "}", 1, "not valid JSON"},
    {"{}{}", 0, "not valid JSON"},
    {"{}}", 0, "not valid JSON"},
    {"{" W("w") ENTRY("U8", "NaN", "0", "1") "}", 1, "not valid JSON"},
    {"{" W("w") ENTRY("U8", "01", "0", "1") "}", 1, "not valid JSON"},
    // twice
    {"{" W("w") ENTRY("U8", "1", "0", "1") "," W("w") ENTRY("U8", "1", "0", "1") "}", 1, "duplicate"},
    {"{" W("w") ENTRY("U8", "1", "0", "1") "," W("\\u0077") ENTRY("U8", "1", "1", "2") "}", 2, "duplicate"},
    {"{" W("w") "{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "duplicate"},
    {"{" W("w") "{\"dtype\":\"U8\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "duplicate"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "duplicate"},
    {"{\"__metadata__\":{\"k\":\"\",\"k\":\"\"}}", 0, "duplicate"},
    // metadata
    {"{\"__metadata__\":null}", 0, "__metadata__ is not an object"},  // theirs takes it for none
    {"{\"__metadata__\":\"text\"}", 0, "__metadata__ is not an object"},
    {"{\"__metadata__\":{\"k\":null}}", 0, "__metadata__: \"k\" is not a string"},
    {"{\"__metadata__\":{\"k\":{\"deep\":\"v\"}}}", 0, "__metadata__: \"k\" is not a string"},
    {"{\"__metadata__\":" ENTRY("U8", "1", "0", "1") "}", 1, "is not a string"},
    {"{\"__metadata__\":{\"k\":\"a\\u0000b\"}}", 0, "not valid JSON"},  // theirs accepts it
    // members
    {"{" W("w") "{}}", 0, "tensor w: expected the members"},
    {"{" W("w") "null}", 0, "tensor w: expected the members"},
    {"{" W("w") "[0,1,2]}", 0, "tensor w: expected the members"},
    {"{" W("w") "{\"Dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "tensor w: no \"dtype\""},
    {"{" W("w") "{\"dtype\":[\"U8\"],\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "tensor w: no \"dtype\""},
    {"{" W("w") ENTRY("u8", "1", "0", "1") "}", 1, "tensor w: dtype u8 is not known"},
    {"{" W("w") ENTRY("", "1", "0", "1") "}", 1, "tensor w: dtype  is not known"},
    {"{" W("w") ENTRY("F4", "1", "0", "1") "}", 1, "tensor w: its elements do not fill whole bytes"},
    {"{" W("w") "{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}", 1, "tensor w: no \"shape\""},
    {"{" W("w") "{\"dtype\":\"U8\",\"shape\":[[1]],\"data_offsets\":[0,1]}}", 1, "nests deeper"},
    {"{" W("w") ENTRY("U8", "null", "0", "1") "}", 1, "tensor w: a dimension"},
    {"{" W("w") ENTRY("U8", "true", "0", "1") "}", 1, "tensor w: a dimension"},
    {"{" W("w") ENTRY("U8", "1e0", "0", "1") "}", 1, "tensor w: a dimension"},
    {"{" W("w") ENTRY("I32", "3,18446744073709551613", "0", "16") "}", 16, "not valid JSON: too big integer"},
    {"{" W("w") ENTRY("I32", "3,9223372036854775806", "0", "16") "}", 16, "tensor w: its shape is larger"},
    {"{" W("w") ENTRY("F64", "2305843009213693952", "0", "0") "}", 0, "tensor w: its shape is larger"},
    {"{" W("w") ENTRY("U8", "1", "", "1") "}", 1, "not valid JSON"},
    {"{" W("w") "{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[]}}", 1, "tensor w: \"data_offsets\" is not a pair"},
    {"{" W("w") "{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":{\"0\":0,\"1\":1}}}", 1,
     "tensor w: \"data_offsets\" is not a pair"},
    {"{" W("w") ENTRY("U8", "1", "0", "18446744073709551615") "}", 1, "not valid JSON: too big integer"},
    // offsets
    {"{" W("w") ENTRY("I32", "3,2", "0", "4") "}", 0, "tensor w: data_offsets [0,4] do not lie"},
    {"{" W("w") ENTRY("I32", "3,2", "0", "4") "}", 4, "span 4 bytes, its shape and dtype need 24"},
    {"{" W("w") ENTRY("F32", "512,512", "0", "1048576") "}", 1, "tensor w: data_offsets [0,1048576] do not lie"},
    {"{" W("w") ENTRY("I32", "3,2", "0", "24") "}", 22, "truncated"},
    {"{" W("w") ENTRY("I32", "3,2", "0", "24") "}", 24 + 40, "bytes that belong to no tensor"},
    {"{" W("a") ENTRY("U8", "8", "0", "8") "," W("b") ENTRY("U8", "8", "0", "8") "}", 8, "they overlap"},
    {"{" W("a") ENTRY("U8", "8", "0", "8") "," W("b") ENTRY("U8", "2", "3", "5") "}", 8, "they overlap"},
    {"{" W("a") ENTRY("U8", "8", "0", "8") "," W("e") ENTRY("U8", "0", "4", "4") "}", 8, "they overlap"},
    {"{" W("a") ENTRY("U8", "8", "0", "8") "," W("e") ENTRY("U8", "0", "9", "9") "}", 8,
     "tensor e: data_offsets [9,9] do not lie"},
    {"{" W("a") ENTRY("U8", "0", "8", "8") "," W("b") ENTRY("U8", "8", "0", "8") "," W("c")
         ENTRY("U8", "0", "0", "0") "}",
     8, NULL},
    {"{" W("a") ENTRY("U8", "2", "0", "2") "," W("b") ENTRY("U8", "2", "3", "5") "}", 5, "there is a gap"},
    {"{" W("a") ENTRY("U8", "1", "9223372036854775807", "-9223372036854775808") "}", 1, "tensor a: data_offsets"},
    {"{" W("a") ENTRY("U8", "1", "-1", "0") "}", 1, "tensor a: data_offsets [-1,0] do not lie"},
};

static void test_known_cases(void **state) {
    place *p = *state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        st_file f;
        if (known[i].says) {
            refused(p, known[i].header, known[i].data, known[i].says);
            continue;
        }
        write_file(p, known[i].header, known[i].data);
        if (st_open(&f, p->file) != ERR_OK) fail_msg("%s: %s", known[i].header, err_last()->text);
        for (int t = 0; t < f.count; t++) {
            char bytes[64];
            assert_int_equal(st_read(&f, &f.tensors[t], bytes), ERR_OK);
            for (int64_t k = 0; k < f.tensors[t].bytes; k++) assert_int_equal(bytes[k], 0x55);
        }
        st_close(&f);
    }
}

// Headers of 2 MB: what they would cost if all of it were kept, they do not.
static void test_large_headers(void **state) {
    place *p = *state;
    enum { N = 2 << 20 };
    char *header = malloc(N + 200);
    static const struct {
        const char *before, *each, *after, *says;
    } kinds[] = {
        {"{\"a\":", "[", "", "nests deeper"},
        {"{\"a\":", "{\"a\":", "", "nests deeper"},
        {"{\"a\":{\"shape\":[", "[],", "[]]}}", "nests deeper"},
        {"{\"a\":{\"shape\":[", "1,", "1]}}", "a list of more than 64 items"},
        {"{\"a\":[", "1,", "1]}", "a list of more than 64 items"},
        {"{\"a\":[", "{},", "1]}", "a list of more than 64 items"},
        {"{\"a\":[{", "\"\":1,", "\"\":1}]}", "a list of more than 64 items"},
        {"", "[", "", "expected the header's '{'"},
        {"{}", " ", "x", "not valid JSON"},
        {"{}", "}", "", "not valid JSON"},
        {"{\"", "a", "\":1}", "its name has"},
        {"{\"__metadata__\":{\"", "\\\\", "\":1}}", "is not a string"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t n = strlen(kinds[i].before), each = strlen(kinds[i].each);
        memcpy(header, kinds[i].before, n);
        for (; n + each < N; n += each) memcpy(header + n, kinds[i].each, each);
        strcpy(header + n, kinds[i].after);
        st_file f;
        write_file(p, header, 4);
        assert_int_equal(st_open(&f, p->file), ERR_DATA);
        if (!strstr(err_last()->text, kinds[i].says))
            fail_msg("kind %zu: \"%s\", expected \"%s\"", i, err_last()->text, kinds[i].says);
    }
    free(header);
}

// Ten thousand tensors that share their bytes: refused, and at once.
static void test_many_overlap(void **state) {
    place *p = *state;
    enum { MANY = 10000, EACH = 80 };
    char *header = malloc(MANY * EACH), *at = header;
    *at++ = '{';
    for (int i = 0; i < MANY; i++)
        at += sprintf(at, "%s\"w%d\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}", i ? "," : "", i);
    strcpy(at, "}");
    refused(p, header, 4, "they overlap");
    free(header);
}

static void test_refuses_lengths(void **state) {
    place *p = *state;
    st_file f;
    static const uint64_t lengths[] = {0,
                                       1,
                                       3,
                                       100,
                                       100000001,
                                       1u << 30,
                                       0xffffff0000000040,
                                       UINT64_MAX,
                                       (uint64_t)INT64_MAX,
                                       (uint64_t)INT64_MAX + 1};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        char bytes[10] = "????????{}";
        memcpy(bytes, &lengths[i], 8);
        write_raw(p->file, bytes, sizeof bytes);
        assert_int_equal(st_open(&f, p->file), ERR_DATA);
        assert_non_null(strstr(err_last()->text, p->file));
    }
    for (size_t n = 0; n < 10; n++) {
        write_raw(p->file, "\2\0\0\0\0\0\0\0{}", n);
        assert_int_equal(st_open(&f, p->file), ERR_DATA);
    }
    // As long as a header may be, and one byte longer, in a file that has as many bytes.
    for (uint64_t n = 100000000; n < 100000002; n++) {
        write_raw(p->file, &n, sizeof n);
        assert_int_equal(truncate(p->file, (off_t)n + 8), 0);
        assert_int_equal(st_open(&f, p->file), ERR_DATA);
        assert_non_null(strstr(err_last()->text, n == 100000000 ? "expected the header's '{', found byte 0x00"
                                                                : "expected 2 to 100000000"));
    }
    unlink(p->file);
    assert_int_equal(st_open(&f, p->file), ERR_IO);
    assert_int_equal(st_open(&f, p->dir), ERR_DATA);
}

// --- writing ---------------------------------------------------------------------------------------------------------

// NaNs with payload, -0, inf, subnormal
static const uint32_t odd_bits[6] = {0x7fc00001, 0xffffffff, 0x80000000, 0x7f800000, 1, 0x3f800000};

static void test_round_trip(void **state) {
    place *p = *state;
    st_tensor t[3] = {{.name = "w", .type = ST_F32, .dims = 2, .size = {2, 3}},
                      {.name = "h.0/\"quoted\"", .type = ST_I64, .dims = 1, .size = {1}},
                      {.name = "scalar", .type = ST_F64}};
    const char *const metadata[] = {"format", "pt", NULL};
    int64_t whole = -77, bytes;
    double pi = 3.14159;
    st_writer w;
    assert_int_equal(st_create(&w, p->file, t, 3, metadata, NULL), ERR_OK);
    assert_int_equal(st_put(&w, odd_bits, 10), ERR_OK);  // pieces need not be tensors
    assert_int_equal(st_put(&w, (const char *)odd_bits + 10, 14), ERR_OK);
    assert_int_equal(st_put(&w, &whole, 8), ERR_OK);
    assert_int_equal(st_put(&w, &pi, 8), ERR_OK);
    assert_int_equal(st_finish(&w, &bytes), ERR_OK);
    st_file f;
    assert_int_equal(st_open(&f, p->file), ERR_OK);
    assert_int_equal(f.file_bytes, bytes);
    assert_int_equal(f.tensors[0].offset % 8, 0);
    assert_int_equal(f.count, 3);
    for (int i = 0; i < 3; i++) assert_memory_equal(&f.tensors[i], &t[i], sizeof t[i]);
    uint32_t back[6];
    int64_t n;
    float x;
    assert_int_equal(st_read(&f, &t[0], back), ERR_OK);
    assert_memory_equal(back, odd_bits, sizeof back);
    memset(back, 0, sizeof back);
    assert_int_equal(st_read_f32(&f, &t[0], (float *)back), ERR_OK);
    assert_memory_equal(back, odd_bits, sizeof back);
    assert_int_equal(st_read(&f, &t[1], &n), ERR_OK);
    assert_int_equal(n, -77);
    assert_int_equal(st_read_f32(&f, &t[1], &x), ERR_DATA);
    assert_int_equal(st_read_f32(&f, &t[2], &x), ERR_OK);
    assert_true(x == (float)pi);
    st_close(&f);
}

// The header as another reader finds it: the length in front, then JSON, then spaces up to a multiple of 8.
static void test_header_bytes(void **state) {
    place *p = *state;
    st_tensor t = {.name = "abc", .type = ST_BF16, .dims = 1, .size = {1}};
    st_writer w;
    assert_int_equal(st_create(&w, p->file, &t, 1, NULL, NULL), ERR_OK);
    assert_int_equal(st_put(&w, "xy", 2), ERR_OK);
    assert_int_equal(st_finish(&w, NULL), ERR_OK);
    static const char json[] = "{\"abc\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[0,2]}}";
    const size_t used = sizeof json - 1, padded = (used + 7) / 8 * 8;
    char *text, *at;
    size_t n;
    uint64_t length;
    assert_int_equal(io_read_file(p->file, 1000, &text, &n), ERR_OK);
    memcpy(&length, text, 8);
    at = text + 8;
    assert_true(padded > used);
    assert_int_equal(length, padded);
    assert_int_equal(n, 8 + padded + 2);
    assert_memory_equal(at, json, used);
    for (size_t i = used; i < padded; i++) assert_int_equal(at[i], ' ');
    assert_memory_equal(at + padded, "xy", 2);
    free(text);
}

static void test_writer_mistakes(void **state) {
    place *p = *state;
    st_writer w;
    st_tensor two[2] = {{.name = "a", .dims = 1, .size = {1}}, {.name = "a", .dims = 1, .size = {1}}};
    assert_int_equal(st_create(&w, p->file, two, 2, NULL, NULL), ERR_INTERNAL);
    assert_int_equal(st_create(&w, p->file, &(st_tensor){.name = "__metadata__"}, 1, NULL, NULL), ERR_INTERNAL);
    assert_int_equal(st_create(&w, p->file, &(st_tensor){.name = ""}, 1, NULL, NULL), ERR_INTERNAL);
    assert_int_equal(st_create(&w, p->file, &(st_tensor){.name = "\xff"}, 1, NULL, NULL), ERR_INTERNAL);
    assert_int_equal(
        st_create(&w, p->file, &(st_tensor){.name = "a", .dims = 2, .size = {INT64_MAX, 2}}, 1, NULL, NULL),
        ERR_INTERNAL);
    assert_int_equal(st_create(&w, p->file, two, 1, NULL, NULL), ERR_OK);
    assert_int_equal(st_put(&w, "12345", 5), ERR_INTERNAL);  // more than declared
    assert_int_equal(st_put(&w, "123", 3), ERR_OK);
    assert_int_equal(st_finish(&w, NULL), ERR_INTERNAL);  // less than declared
    assert_int_equal(
        st_create(&w, p->file, &(st_tensor){.name = "a", .type = ST_F4, .dims = 1, .size = {3}}, 1, NULL, NULL),
        ERR_INTERNAL);
    enum { LONG = 100000000 };  // a header that no reader would accept
    char *text = malloc(LONG + 1);
    memset(text, 'a', LONG), text[LONG] = 0;
    assert_int_equal(st_create(&w, p->file, two, 1, (const char *[]){"k", text, NULL}, NULL), ERR_INTERNAL);
    assert_non_null(strstr(err_last()->text, "readers accept at most 100000000"));
    free(text);
    fault_list faults;
    assert_int_equal(fault_parse(&faults, "sync@1"), ERR_OK);
    assert_int_equal(st_create(&w, p->file, two, 1, NULL, &faults), ERR_OK);
    assert_int_equal(st_put(&w, "1234", 4), ERR_OK);
    assert_int_equal(st_finish(&w, NULL), ERR_IO);
    assert_int_equal(w.fd, -1);
    assert_int_equal(fault_parse(&faults, "write@2"), ERR_OK);
    assert_int_equal(st_create(&w, p->file, two, 1, NULL, &faults), ERR_OK);
    assert_int_equal(st_put(&w, "1234", 4), ERR_IO);
    st_abort(&w);
}

// All 65,536 values of both 16-bit types, against their definitions: (-1)^s * 1.m * 2^e and the upper half of an FP32.
static void test_half_types(void **state) {
    place *p = *state;
    enum { N = 65536 };
    st_tensor t[2] = {{.name = "h", .type = ST_F16, .dims = 1, .size = {N}},
                      {.name = "b", .type = ST_BF16, .dims = 1, .size = {N}}};
    uint16_t *bits = malloc(N * sizeof *bits);
    float *h = malloc(N * sizeof *h), *b = malloc(N * sizeof *b);
    for (int i = 0; i < N; i++) bits[i] = (uint16_t)i;
    st_writer w;
    st_file f;
    assert_int_equal(st_create(&w, p->file, t, 2, NULL, NULL), ERR_OK);
    assert_int_equal(st_put(&w, bits, N * 2), ERR_OK);
    assert_int_equal(st_put(&w, bits, N * 2), ERR_OK);
    assert_int_equal(st_finish(&w, NULL), ERR_OK);
    assert_int_equal(st_open(&f, p->file), ERR_OK);
    assert_int_equal(st_read_f32(&f, st_find(&f, "h"), h), ERR_OK);
    assert_int_equal(st_read_f32(&f, st_find(&f, "b"), b), ERR_OK);
    for (int i = 0; i < N; i++) {
        int e = i >> 10 & 31, m = i & 1023;
        double size = e == 31 ? INFINITY : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
        uint32_t as_b;
        memcpy(&as_b, &b[i], 4);
        assert_int_equal(as_b, (uint32_t)i << 16);
        assert_int_equal(!!signbit(h[i]), i >> 15);
        if (e == 31 && m) assert_true(isnan(h[i]));
        else assert_true(fabs((double)h[i]) == size);
    }
    st_close(&f);
    free(bits), free(h), free(b);
}

// Any elements of a tensor, of each type that is a number, from wherever they begin: also over more than is read at a
// time.
static void test_any_elements(void **state) {
    place *p = *state;
    enum { N = 7001 };
    static const st_type types[] = {ST_F32, ST_F16, ST_BF16, ST_F64};
    static const int64_t ranges[][2] = {{0, N},       {1, 1},     {1, N - 1}, {2047, 2}, {2048, 2048},
                                        {4095, 2900}, {N - 1, 1}, {N, 0},     {17, 5000}};
    for (int k = 0; k < 4; k++) {
        st_tensor t = {.name = "t", .type = types[k], .dims = 1, .size = {N}};
        double *data = calloc(N, sizeof *data);
        float *whole = malloc(N * sizeof *whole), *some = malloc(N * sizeof *some);
        int64_t each = types[k] == ST_F64 ? 8 : types[k] == ST_F32 ? 4 : 2;
        for (int i = 0; i < N; i++) {
            float f = (float)(i % 1000) + 1;
            double d = f;
            uint16_t half = (uint16_t)(i % 1000 + 1);
            memcpy((char *)data + i * each,
                   types[k] == ST_F64   ? (void *)&d
                   : types[k] == ST_F32 ? (void *)&f
                                        : (void *)&half,
                   (size_t)each);
        }
        st_writer w;
        st_file f;
        assert_int_equal(st_create(&w, p->file, &t, 1, NULL, NULL), ERR_OK);
        assert_int_equal(st_put(&w, data, (size_t)(N * each)), ERR_OK);
        assert_int_equal(st_finish(&w, NULL), ERR_OK);
        assert_int_equal(st_open(&f, p->file), ERR_OK);
        const st_tensor *at = st_find(&f, "t");
        assert_int_equal(st_read_f32(&f, at, whole), ERR_OK);
        for (int i = 1; i < N && i % 1000; i++) assert_true(whole[i] > whole[i - 1]);
        for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++) {
            assert_int_equal(st_read_f32_part(&f, at, ranges[r][0], ranges[r][1], some), ERR_OK);
            assert_memory_equal(some, whole + ranges[r][0], (size_t)ranges[r][1] * sizeof *some);
        }
        assert_int_equal(st_read_f32_part(&f, at, 1, N, some), ERR_INTERNAL);
        assert_int_equal(st_read_f32_part(&f, at, -1, 2, some), ERR_INTERNAL);
        st_close(&f);
        free(data), free(whole), free(some);
    }
}

// No flipped bit of a header may crash, and what is still accepted must still tile the file.
static void test_flips(void **state) {
    place *p = *state;
    static const char header[] = "{\"b\":" ENTRY("F32", "2,1", "4", "12") ",\"a\":" ENTRY("F32", "1", "0", "4") "}";
    size_t n = 8 + strlen(header) + 12;
    char bytes[256] = {0};
    int accepted = 0, refusals = 0;
    memcpy(bytes, &(uint64_t){strlen(header)}, 8);
    strcpy(bytes + 8, header);
    for (size_t bit = 0; bit < (8 + strlen(header)) * 8; bit++) {
        st_file f;
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        write_raw(p->file, bytes, n);
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        err_t rc = st_open(&f, p->file);
        assert_true(rc == ERR_OK || rc == ERR_DATA);
        if (rc != ERR_OK) {
            assert_non_null(strstr(err_last()->text, p->file));
            refusals++;
            continue;
        }
        int64_t sum = 0;
        for (int i = 0; i < f.count; i++) sum += f.tensors[i].bytes;
        assert_int_equal(f.count, 2);
        assert_int_equal(sum, 12);
        accepted++;
        st_close(&f);
    }
    assert_true(accepted > 0 && accepted < 40);  // other names, and spaces for tabs; nothing else
    assert_true(refusals > 500);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, enter, leave)
    const struct CMUnitTest tests[] = {
        TEST(test_accepts),         TEST(test_refuses_entries), TEST(test_refuses_layouts), TEST(test_refuses_lengths),
        TEST(test_known_cases),     TEST(test_large_headers),   TEST(test_many_overlap),    TEST(test_round_trip),
        TEST(test_header_bytes),    TEST(test_writer_mistakes), TEST(test_half_types),      TEST(test_any_elements),
        TEST(test_knows_all_types), TEST(test_flips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
