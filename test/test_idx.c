// test/test_idx.c: IDX files as a source of images and labels. What is written is what is read, plain or compressed and
// however the files are split; and what is damaged or does not fit together is found, named and located.
#include "base/io.h"
#include "data/source.h"
#include "test/support/expect.h"
#include "test/support/idx.h"
#include "test/support/place.h"
#include "test/support/reports.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

// --- files that these tests make -------------------------------------------------------------------------------------

enum { H = 3, W = 5, IMAGE = H * W, CLASSES = 10, MOST = 200 };

// Byte i of image n of all, and its label.
static uint8_t byte_of(int64_t n, int64_t i) { return (uint8_t)(n * 37 + i * 11 + n / 7); }
static uint8_t label_of(int64_t n) { return (uint8_t)(n * 7 % CLASSES); }

// Images first .. first+n, as (n,H,W), and their labels.
static void put_images(place *p, const char *name, int first, int n, bool gzip) {
    uint8_t bytes[MOST * IMAGE];
    for (int i = 0; i < n * IMAGE; i++) bytes[i] = byte_of(first + i / IMAGE, i % IMAGE);
    write_idx(at(p, name), 3, (uint32_t[]){(uint32_t)n, H, W}, bytes, gzip);
}

static void put_labels(place *p, const char *name, int first, int n, bool gzip) {
    uint8_t bytes[MOST];
    for (int i = 0; i < n; i++) bytes[i] = label_of(first + i);
    write_idx(at(p, name), 1, (uint32_t[]){(uint32_t)n}, bytes, gzip);
}

static void put_both(place *p, const char *name, int first, int n, bool gzip) {
    char file[64];
    snprintf(file, sizeof file, "%s-images", name);
    put_images(p, file, first, n, gzip);
    snprintf(file, sizeof file, "%s-labels", name);
    put_labels(p, file, first, n, gzip);
}

// What a model of digits reads: an image as a row.
static const tensor_spec digits[] = {
    {.name = "label", .type = INT32, .size = {1, 1, 1}, .limit = CLASSES},
    {.name = "pixels", .type = FP32, .dims = 1, .size = {IMAGE, 1, 1}},
};

static source_options options(place *p, const char *files) {
    return (source_options){.files = at(p, files), .wanted = digits, .inputs = 2};
}

static err_t open_at(source **s, place *p, const char *files) {
    source_options o = options(p, files);
    return source_open(s, &o);
}

// Sample k of s is image first + k, and so is its picture.
static void check_samples(source *s, int64_t first, int64_t samples) {
    float pixels[IMAGE];
    uint8_t seen[IMAGE];
    int32_t label;
    assert_true(s->picture[0] == H && s->picture[1] == W && s->picture[2] == 1);
    assert_int_equal(source_about(s).samples, samples);
    for (int64_t j = 0; j < samples; j++) {
        int64_t k = j * 71 % samples;  // back and forth; 71 divides no number of samples here
        assert_ok(source_look(s, k, (void *[]){&label, pixels}));
        assert_int_equal(label, label_of(first + k));
        assert_ok(source_picture(s, k, seen));
        for (int i = 0; i < IMAGE; i++) {
            assert_int_equal(seen[i], byte_of(first + k, i));
            float want = (float)byte_of(first + k, i) / 255;
            if (memcmp(&pixels[i], &want, 4) != 0)
                fail_msg("image %d, value %d is %a, expected %a", (int)(first + k), i, (double)pixels[i], (double)want);
        }
    }
    assert_error(source_look(s, samples, (void *[]){&label, pixels}), ERR_INTERNAL, "asked of a source");
    assert_error(source_picture(s, samples, seen), ERR_INTERNAL, "asked of a source");
    assert_null(source_class(s, 0));  // IDX files have no names for their classes
}

static void no_report(void *ctx, const char *text) {
    (void)ctx;
    fail_msg("%s", text);
}

// --- what is in order ------------------------------------------------------------------------------------------------

// One file or several, whatever is compressed: the same samples and the same hash. Files are read in the order of their
// names.
static void test_values(void **state) {
    place *p = *state;
    char hash[17] = "";
    for (int gzip = 0; gzip < 2; gzip++)
        for (int split = 0; split < 3; split++) {
            source *s;
            put_both(p, "b", 0, split ? 60 : 150, gzip);
            if (split) put_both(p, "c", 60, split == 1 ? 90 : 1, gzip && split == 1);
            if (split == 2) put_both(p, "d", 61, 89, !gzip);
            assert_ok(open_at(&s, p, "*-*s"));
            source_info about = source_about(s);
            assert_string_equal(about.unit, "images");
            assert_int_equal(about.files, 2 + 2 * split);
            assert_int_equal(about.units, 150);
            assert_int_equal(about.units_per_sample, 1);
            assert_int_equal(strlen(about.hash), 16);
            if (!hash[0]) memcpy(hash, about.hash, sizeof hash);
            assert_string_equal(about.hash, hash);
            check_samples(s, 0, 150);
            assert_ok(source_verify(s, no_report, NULL));
            source_close(s);
            assert_ok(io_remove_tree(p->dir));
            assert_ok(io_mkdirs(p->dir));
        }
}

// Colours lie one after the other in the file, and side by side in a picture, whether the model reads bytes or a row of
// numbers. Rows, and what has five channels, are no pictures.
static void test_colours(void **state) {
    enum { SAMPLES = 5, VALUES = 3 * IMAGE };
    place *p = *state;
    source *s;
    uint8_t bytes[SAMPLES * VALUES], seen[VALUES];
    const tensor_spec wanted[] = {digits[0], {.name = "pixels", .type = FP32, .dims = 1, .size = {VALUES, 1, 1}}};
    char files[4096];
    snprintf(files, sizeof files, "%s", at(p, "*"));
    const source_options o = {.files = files, .wanted = wanted, .inputs = 2};
    for (int i = 0; i < SAMPLES * VALUES; i++) bytes[i] = byte_of(i / VALUES, i % VALUES);
    put_labels(p, "labels", 0, SAMPLES, false);
    for (int gzip = 0; gzip < 2; gzip++) {
        write_idx(at(p, "images"), 4, (uint32_t[]){SAMPLES, 3, H, W}, bytes, gzip);
        assert_ok(source_open(&s, &o));
        assert_true(s->picture[0] == H && s->picture[1] == W && s->picture[2] == 3);
        for (int n = 0; n < SAMPLES; n++) {
            assert_ok(source_picture(s, n, seen));
            for (int i = 0; i < VALUES; i++) assert_int_equal(seen[i], byte_of(n, i % 3 * IMAGE + i / 3));
        }
        source_close(s);
    }
    for (int five = 0; five < 2; five++) {
        if (five) write_idx(at(p, "images"), 4, (uint32_t[]){SAMPLES, W, H, 3}, bytes, false);
        else write_idx(at(p, "images"), 2, (uint32_t[]){SAMPLES, VALUES}, bytes, false);
        assert_ok(source_open(&s, &o));
        assert_int_equal(s->picture[0], 0);
        assert_error(source_picture(s, 0, seen), ERR_CONFIG, "no pictures");
        source_close(s);
    }
}

// Neither the order in which files are named counts, nor how often.
static void test_patterns(void **state) {
    place *p = *state;
    char files[4 * IO_PATH];
    source *s;
    put_both(p, "a", 0, 10, false);
    put_both(p, "b", 10, 20, true);
    snprintf(files, sizeof files, " %s/b-*  %s/*-labels\t%s/a-images ", p->dir, p->dir, p->dir);
    assert_ok(source_open(&s, &(source_options){.files = files, .wanted = digits, .inputs = 2}));
    assert_int_equal(source_about(s).files, 4);
    check_samples(s, 0, 30);
    source_close(s);
}

// The hash sees every value, every label and the shape.
static void test_hash(void **state) {
    place *p = *state;
    uint8_t bytes[24] = {0}, labels[4] = {0};
    char hash[5][17];
    for (int k = 0; k < 5; k++) {
        source *s;
        const tensor_spec any = {.name = "label", .type = INT32, .size = {1, 1, 1}};
        bytes[23] = k == 1, labels[3] = k == 2;
        write_idx(at(p, "i"), k == 4 ? 4 : 3, k == 3 ? (uint32_t[]){4, 3, 2} : (uint32_t[]){4, 2, 3, 1}, bytes, false);
        write_idx(at(p, "l"), 1, (uint32_t[]){4}, labels, false);
        assert_ok(source_open(&s, &(source_options){.files = at(p, "[il]"), .wanted = &any, .inputs = 1}));
        assert_int_equal(s->tensor[0].dims, k == 4 ? 3 : 2);
        memcpy(hash[k], source_about(s).hash, 17);
        source_close(s);
        for (int j = 0; j < k; j++) assert_string_not_equal(hash[j], hash[k]);
    }
}

// Byte b is b / 255, rounded once.
static void test_every_byte(void **state) {
    place *p = *state;
    uint8_t bytes[256];
    float pixels[256];
    source *s;
    const tensor_spec wanted = {.name = "pixels", .type = FP32, .dims = 3, .size = {4, 8, 8}};
    for (int i = 0; i < 256; i++) bytes[i] = (uint8_t)i;
    write_idx(at(p, "i"), 4, (uint32_t[]){1, 4, 8, 8}, bytes, false);
    write_idx(at(p, "l"), 1, (uint32_t[]){1}, bytes, true);
    assert_ok(source_open(&s, &(source_options){.files = at(p, "?"), .wanted = &wanted, .inputs = 1}));
    assert_ok(source_look(s, 0, (void *[]){pixels}));
    for (int i = 0; i < 256; i++) assert_true(pixels[i] == (float)((double)i / 255));
    assert_true(pixels[255] == 1);
    source_close(s);
}

static void test_held_out(void **state) {
    place *p = *state;
    source *s;
    source_options o;
    put_both(p, "a", 0, 60, false);
    put_both(p, "b", 60, 40, true);
    o = options(p, "*");
    o.held_out = 55;
    assert_ok(source_open(&s, &o));
    check_samples(s, 0, 45);
    assert_int_equal(source_about(s).units, 45);
    assert_ok(source_verify(s, no_report, NULL));
    source_close(s);
    o.only_held_out = true;
    assert_ok(source_open(&s, &o));
    check_samples(s, 45, 55);
    assert_ok(source_verify(s, no_report, NULL));
    source_close(s);
    o.held_out = 100;
    assert_error(source_open(&s, &o), ERR_CONFIG, "holdout = 100 of 100 samples");
}

// The model reads something else: the message says what it reads, and what there is.
static void test_mismatch(void **state) {
    place *p = *state;
    source *s;
    tensor_spec wanted = {.name = "tokens", .type = INT32, .dims = 1, .size = {8, 1, 1}};
    put_both(p, "a", 0, 9, false);
    source_options o = {.files = at(p, "a-*"), .wanted = &wanted, .inputs = 1};
    assert_error(source_open(&s, &o), ERR_CONFIG, "`tokens`", "pixels and label");
    assert_null(s);
    wanted = (tensor_spec){.name = "pixels", .type = FP32, .dims = 2, .size = {28, 28, 1}};
    assert_error(source_open(&s, &o), ERR_CONFIG, "`pixels` as fp32 (28,28)", "fp32 (3,5)");
    wanted = (tensor_spec){.name = "label", .type = FP32, .size = {1, 1, 1}};
    assert_error(source_open(&s, &o), ERR_CONFIG, "`label` as fp32 one value", "int32 one value");
    o.files = NULL;
    assert_error(source_open(&s, &o), ERR_CONFIG, "expected the names of files");
    o.format = FORMAT_IDX;
    assert_error(source_open(&s, &o), ERR_CONFIG, "expected the names of files");
    o.files = at(p, "nothing*");
    assert_error(source_open(&s, &o), ERR_CONFIG, "nothing*", "files of images and of labels");
}

// --- files that do not fit together ----------------------------------------------------------------------------------

static void test_pairing(void **state) {
    place *p = *state;
    source *s;
    uint8_t bytes[100] = {0};
    put_images(p, "a-images", 0, 20, false);
    assert_error(open_at(&s, p, "a-*"), ERR_DATA, "1 files of images and 0 of labels", "a-images");
    put_labels(p, "a-labels", 0, 19, true);
    assert_error(open_at(&s, p, "a-*"), ERR_DATA, "a-images has 20 images", "a-labels has 19 labels");
    put_labels(p, "a-labels", 0, 21, true);
    assert_error(open_at(&s, p, "a-*"), ERR_DATA, "a-images has 20 images", "a-labels has 21 labels");
    put_labels(p, "a-labels", 0, 20, false);
    put_labels(p, "b-labels", 0, 20, false);
    assert_error(open_at(&s, p, "*"), ERR_DATA, "1 files of images and 2 of labels");
    put_images(p, "b-images", 0, 21, false);
    assert_error(open_at(&s, p, "*"), ERR_DATA, "b-images has 21 images", "b-labels has 20 labels");
    write_idx(at(p, "b-images"), 3, (uint32_t[]){20, 5, 1}, bytes, false);
    assert_error(open_at(&s, p, "*"), ERR_DATA, "b-images has the sizes (20,5,1)", "a-images has (20,3,5)", "one size");
    write_idx(at(p, "b-images"), 2, (uint32_t[]){20, 3}, bytes, false);
    assert_error(open_at(&s, p, "*"), ERR_DATA, "b-images has the sizes (20,3)");
}

static void test_labels_in_range(void **state) {
    place *p = *state;
    source *s;
    uint8_t labels[20] = {[17] = CLASSES};
    put_images(p, "i", 0, 20, false);
    for (int gzip = 0; gzip < 2; gzip++) {
        write_idx(at(p, "l"), 1, (uint32_t[]){20}, labels, gzip);
        assert_error(open_at(&s, p, "[il]"), ERR_DATA, "/l: offset 25", "label 10, expected less than 10");
    }
    labels[17] = CLASSES - 1;
    write_idx(at(p, "l"), 1, (uint32_t[]){20}, labels, true);
    assert_ok(open_at(&s, p, "[il]"));
    source_close(s);
}

// --- damage ----------------------------------------------------------------------------------------------------------

// These bytes are the file of images; with `gzip`, what it inflates to.
static err_t open_bytes(source **s, place *p, const uint8_t *bytes, size_t n, bool gzip) {
    uint8_t packed[8192];
    source_options o;
    if (gzip) write_bytes(at(p, "i"), packed, gzip_bytes(packed, sizeof packed, bytes, n));
    else write_bytes(at(p, "i"), bytes, n);
    put_labels(p, "l", 0, 20, false);
    o = options(p, "[il]");
    o.format = FORMAT_IDX;
    return source_open(s, &o);
}

static void test_lying_headers(void **state) {
    static const struct {
        uint8_t at, value;
        const char *text;
    } lies[] = {
        {0, 1, "offset 0"},
        {1, 7, "two zero bytes"},
        {2, 0x0d, "offset 2"},
        {2, 0x0d, "type 0x0d, floats, expected 0x08, unsigned bytes"},
        {2, 0x09, "signed bytes"},
        {2, 0x0b, "16-bit"},
        {2, 0x0c, "32-bit"},
        {2, 0x0e, "doubles"},
        {2, 0, "type 0x00, no type"},
        {3, 0, "offset 3"},
        {3, 5, "5 dimensions, expected 1 (labels), or 2 to 4 (images)"},
        {7, 0, "offset 4"},
        {7, 0, "size 0"},
        {15, 0, "dimension 2 has size 0"},
        {8, 255, "offset 8"},
        {8, 255, "more than 2^31 values"},
        {12, 255, "offset 12"},
    };
    place *p = *state;
    uint8_t good[512], bad[512], values[20 * IMAGE] = {0};
    size_t n = idx_bytes(good, 3, (uint32_t[]){20, H, W}, values);
    source *s;
    for (int gzip = 0; gzip < 2; gzip++) {
        assert_ok(open_bytes(&s, p, good, n, gzip));
        source_close(s);
        for (size_t k = 0; k < sizeof lies / sizeof *lies; k++) {
            memcpy(bad, good, n);
            bad[lies[k].at] = lies[k].value;
            assert_error(open_bytes(&s, p, bad, n, gzip), ERR_DATA, "/i: ", lies[k].text);
            assert_null(s);
        }
        for (size_t cut = gzip ? 0 : 1; cut < n; cut++) {
            assert_error(open_bytes(&s, p, good, cut, gzip), ERR_DATA, "/i: ", "truncated");
            if (cut != 9) continue;
            assert_error(open_bytes(&s, p, good, cut, gzip), ERR_DATA,
                         "ends at offset 9, expected the 16 bytes of a header");
        }
        assert_error(open_bytes(&s, p, good, n + 1, gzip), ERR_DATA, "/i: ", "too long");
    }
    assert_error(open_bytes(&s, p, good, n + 1, false), ERR_DATA,
                 "has 317 bytes, expected 316 for the header's (20,3,5)");
    assert_error(open_bytes(&s, p, good, n - 1, false), ERR_DATA,
                 "has 315 bytes, expected 316 for the header's (20,3,5)");
    assert_error(open_bytes(&s, p, good, n - 1, true), ERR_DATA, "inflates up to offset 315, expected 316 bytes");
    memcpy(bad, good, n);
    bad[4] = 255;  // 4 thousand million images: nothing is allocated for them
    assert_error(open_bytes(&s, p, bad, n, true), ERR_DATA, "a gzip file of", "can't hold as many");
    assert_error(open_bytes(&s, p, bad, n, false), ERR_DATA, "truncated");
    assert_error(open_bytes(&s, p, good, 0, false), ERR_DATA, "the file is empty, expected an IDX file");
}

// A flipped bit of a gzip file is found, or says nothing of the content (its time, padding); a cut is found.
static void test_damaged_gzip(void **state) {
    place *p = *state;
    uint8_t plain[512], packed[1024], bad[1024], values[20 * IMAGE];
    for (size_t i = 0; i < sizeof values; i++) values[i] = (uint8_t)(i * i / 3);
    size_t n = gzip_bytes(packed, sizeof packed, plain, idx_bytes(plain, 3, (uint32_t[]){20, H, W}, values));
    source *s;
    char hash[17];
    int found = 0;
    assert_ok(open_bytes(&s, p, packed, n, false));
    memcpy(hash, source_about(s).hash, sizeof hash);
    source_close(s);
    for (size_t i = 0; i < 8 * n; i++) {
        memcpy(bad, packed, n);
        bad[i / 8] ^= (uint8_t)(1 << i % 8);
        err_t rc = open_bytes(&s, p, bad, n, false);
        if (rc == ERR_OK) {
            assert_string_equal(source_about(s).hash, hash);
            source_close(s);
        } else {
            assert_error(rc, ERR_DATA, "/i: ");
            found++;
        }
    }
    assert_true(found > 8 * (int)n - 8 * 7 - 16);  // time, system, two more bits of the header, the last byte
    for (size_t cut = 1; cut < n; cut++) assert_error(open_bytes(&s, p, packed, cut, false), ERR_DATA, "/i: ");
    memcpy(bad, packed, n);
    bad[n - 8] ^= 1;
    assert_error(open_bytes(&s, p, bad, n, false), ERR_DATA, "/i: offset", "incorrect data check", "damaged");
    assert_error(open_bytes(&s, p, packed, n - 3, false), ERR_DATA, "inside of a gzip member", "truncated");
    memcpy(bad, packed, n);
    memcpy(bad + n, "more", 4);
    assert_error(open_bytes(&s, p, bad, n + 4, false), ERR_DATA, "/i: offset", "damaged");
    // Two members are one file.
    n = gzip_bytes(bad, sizeof bad, plain, 100);
    n += gzip_bytes(bad + n, sizeof bad - n, plain + 100, 16 + sizeof values - 100);
    assert_ok(open_bytes(&s, p, bad, n, false));
    source_close(s);
}

// More than is kept in memory: refused before any of it is allocated. The file is long enough to hold as much.
static void test_too_large_for_memory(void **state) {
    place *p = *state;
    uint8_t header[16] = {0, 0, 8, 3, 0, 0, 0x90, 0, 0, 0, 1, 0, 0, 0, 4, 0}, packed[64];
    size_t n = gzip_bytes(packed, sizeof packed, header, sizeof header);
    source *s;
    write_bytes(at(p, "i"), packed, n);
    assert_int_equal(truncate(p->path, 10 << 20), 0);
    put_labels(p, "l", 0, 20, false);
    assert_error(open_at(&s, p, "[il]"), ERR_DATA, "/i: has 9663676416 bytes of values", "8 GiB", "gunzip it");
}

static void test_not_files(void **state) {
    place *p = *state;
    source *s;
    put_labels(p, "l", 0, 20, false);
    assert_int_equal(mkfifo(at(p, "i"), 0600), 0);
    assert_error(open_at(&s, p, "i"), ERR_DATA, "not a regular file");
    source_options o = options(p, "[il]");
    o.format = FORMAT_IDX;
    assert_error(source_open(&s, &o), ERR_DATA, "/i: not a regular file, expected an IDX file");
}

// --- while it is in use ----------------------------------------------------------------------------------------------

static void test_retries(void **state) {
    place *p = *state;
    source *s;
    fault_list faults;
    float pixels[IMAGE];
    int32_t label;
    put_both(p, "a", 0, 20, false);
    put_both(p, "b", 20, 20, true);
    source_options o = options(p, "*");
    o.retry = 2, o.faults = &faults;
    assert_ok(fault_parse(&faults, "read@1x2"));  // while they are opened
    assert_ok(source_open(&s, &o));
    assert_int_equal(source_about(s).retries, 1);
    assert_ok(fault_parse(&faults, "read@2x3"));
    assert_ok(source_look(s, 3, (void *[]){&label, pixels}));
    assert_error(source_look(s, 4, (void *[]){&label, pixels}), ERR_IO,
                 "a-images: read of 15 bytes at offset 76: Input/output error", "after 3 tries");
    assert_int_equal(source_about(s).retries, 1);
    check_samples(s, 0, 40);
    assert_ok(fault_parse(&faults, "read@1x1000"));
    assert_ok(source_look(s, 30, (void *[]){&label, pixels}));  // compressed: in memory
    assert_ok(fault_parse(&faults, "read@1"));
    check_samples(s, 0, 40);
    assert_int_equal(source_about(s).retries, 2);
    source_close(s);
    assert_ok(fault_parse(&faults, "read@5x3"));
    assert_error(source_open(&s, &o), ERR_IO, "given up after 3 tries");
}

static void *cancel_soon(void *s) {
    nanosleep(&(struct timespec){0, 300000000}, NULL);
    source_cancel(s, true);
    return NULL;
}

static void test_cancel(void **state) {
    place *p = *state;
    source *s;
    fault_list faults = {0};
    float pixels[IMAGE];
    int32_t label;
    pthread_t thread;
    put_both(p, "a", 0, 20, false);
    source_options o = options(p, "*");
    o.retry = 1000, o.faults = &faults;
    assert_ok(source_open(&s, &o));
    assert_ok(fault_parse(&faults, "read@1x100000"));
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, s), 0);
    assert_error(source_look(s, 0, (void *[]){&label, pixels}), ERR_INTERRUPTED, "a-images", "not tried again");
    pthread_join(thread, NULL);
    assert_error(source_look(s, 1, (void *[]){&label, pixels}), ERR_INTERRUPTED, "not tried again");
    source_cancel(s, false);
    assert_ok(fault_parse(&faults, "read@1"));
    check_samples(s, 0, 20);
    source_close(s);
}

// Another file in the place of one that is in use: what is open is read on; once it has to be opened again it is
// refused.
static void test_replaced(void **state) {
    place *p = *state;
    source *s;
    fault_list faults = {0};
    float pixels[IMAGE];
    int32_t label;
    put_both(p, "a", 0, 20, false);
    put_both(p, "b", 20, 20, true);
    source_options o = options(p, "*");
    o.retry = 5, o.faults = &faults;
    assert_ok(source_open(&s, &o));
    put_images(p, "a-images", 1, 20, false);
    put_images(p, "b-images", 1, 20, true);
    check_samples(s, 0, 40);
    assert_ok(fault_parse(&faults, "read@1"));
    assert_error(source_look(s, 0, (void *[]){&label, pixels}), ERR_DATA, "a-images: another file than before",
                 "replaced while in use");
    reports r = {0};
    assert_error(source_verify(s, keep_report, &r), ERR_DATA, "2 faults in 4 files");
    assert_int_equal(r.count, 2);
    assert_non_null(strstr(r.last, "b-images: another file than before"));
    source_close(s);
}

// Bytes that change in place, with the times put back as a bad disk would: verify names each file, once.
static void test_verify(void **state) {
    place *p = *state;
    static const char *const names[] = {"a-images", "a-labels", "b-images", "b-labels"};
    for (int k = 0; k < 4; k++) {
        source *s;
        struct stat st;
        uint8_t byte = 0;
        reports r = {0};
        put_both(p, "a", 0, 20, false);
        put_both(p, "b", 20, 20, true);
        assert_ok(open_at(&s, p, "?-*"));
        int fd = open(at(p, names[k]), O_RDWR);
        assert_true(fd >= 0 && fstat(fd, &st) == 0 && pread(fd, &byte, 1, st.st_size - 5) == 1);
        byte ^= 4;
        assert_int_equal(pwrite(fd, &byte, 1, st.st_size - 5), 1);
        assert_int_equal(futimens(fd, (struct timespec[]){st.st_atim, st.st_mtim}), 0);
        close(fd);
        assert_error(source_verify(s, keep_report, &r), ERR_DATA, "1 fault in 4 files");
        assert_int_equal(r.count, 1);
        if (!strstr(r.last, names[k])) fail_msg("no %s in: %s", names[k], r.last);
        source_close(s);
    }
}

// More files than descriptors are held.
static void test_many_files(void **state) {
    enum { FILES = 140 };
    place *p = *state;
    source *s;
    char name[16];
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "%04d", i);
        put_both(p, name, i, 1, false);
    }
    assert_ok(open_at(&s, p, "*"));
    check_samples(s, 0, FILES);
    assert_ok(source_verify(s, no_report, NULL));
    check_samples(s, 0, FILES);
    source_close(s);
}

// --- real data -------------------------------------------------------------------------------------------------------

// MNIST's test set: its first labels are known to everyone, and so is the mean of its pixels, 0.1325 (of the training
// set 0.1307).
static void test_mnist(void **state) {
    static const int32_t known[] = {7, 2, 1, 0, 4, 1, 4, 9, 5, 9};
    static const tensor_spec wanted[] = {{.name = "pixels", .type = FP32, .dims = 2, .size = {28, 28, 1}},
                                         {.name = "label", .type = INT32, .size = {1, 1, 1}, .limit = 10}};
    (void)state;
    const char *data = getenv("LOCKSTEP_TEST_DATA");
    char files[IO_PATH];
    static float pixels[784];
    int32_t label;
    source *s;
    double sum = 0;
    snprintf(files, sizeof files, "%s/mnist/t10k-images-idx3-ubyte.gz", data ? data : "");
    if (!data || access(files, R_OK) != 0) skip();
    snprintf(files, sizeof files, "%s/mnist/t10k-*.gz", data);
    assert_ok(source_open(&s, &(source_options){.files = files, .wanted = wanted, .inputs = 2}));
    assert_int_equal(source_about(s).samples, 10000);
    for (int64_t k = 0; k < 10000; k++) {
        assert_ok(source_look(s, k, (void *[]){pixels, &label}));
        if (k < 10) assert_int_equal(label, known[k]);
        for (int i = 0; i < 784; i++) sum += (double)pixels[i];
    }
    assert_true(sum / 7840000 > 0.13245 && sum / 7840000 < 0.13255);
    assert_ok(source_verify(s, no_report, NULL));
    source_close(s);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, place_enter, place_leave)
    const struct CMUnitTest tests[] = {
        TEST(test_values),
        TEST(test_patterns),
        TEST(test_colours),
        TEST(test_hash),
        TEST(test_every_byte),
        TEST(test_held_out),
        TEST(test_mismatch),
        TEST(test_pairing),
        TEST(test_labels_in_range),
        TEST(test_lying_headers),
        TEST(test_damaged_gzip),
        TEST(test_too_large_for_memory),
        TEST(test_not_files),
        TEST(test_retries),
        TEST(test_cancel),
        TEST(test_replaced),
        TEST(test_verify),
        TEST(test_many_files),
        cmocka_unit_test(test_mnist),
    };
    return cmocka_run_group_tests_name("idx", tests, NULL, NULL);
}
