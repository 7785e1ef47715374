// test/test_images.c: shards of images, and the source that they are. What is written is what is read; any byte that is
// wrong is found and named; samples are the same bytes however many threads read them.
#include "data/image/shard.h"
#include "data/image/tools.h"
#include "data/image/view.h"
#include "data/loader.h"
#include "data/sampler.h"
#include "test/support/expect.h"
#include "test/support/idx.h"
#include "test/support/place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmocka.h>

enum { CLASSES = 3, SIDE = 12 };

static const char names[] = "cat\0dog\0owl";

// --- shards that these tests make ------------------------------------------------------------------------------------

// Value i of image n of all.
static uint8_t value_of(int64_t n, int64_t i) { return (uint8_t)(n * 37 + i * 11 + i / 5); }
static int32_t label_of(int64_t n) { return (int32_t)(n * 5 % CLASSES); }

// Images first .. first+n. side 0: each has a size of its own. Labels are those of other images, `turn` further on.
static void put_turned(place *p, const char *name, int first, int n, int side, int channels, int turn) {
    image_writer *w;
    picture image = {0};
    image_sums sums = {.pixels = 100, .sum = {1000, 2000, 3000}, .square = {20000, 50000, 100000}};
    image_about about = {
        .channels = channels, .size = side, .classes = CLASSES, .names = names, .name_bytes = sizeof names};
    assert_ok(image_write_open(&w, at(p, name), &about));
    for (int k = first; k < first + n; k++) {
        assert_ok(picture_make(&image, side ? side : 9 + k % 7, side ? side : 8 + k % 5, channels));
        for (int64_t i = 0; i < picture_bytes(&image); i++) image.at[i] = value_of(k, i);
        assert_ok(image_write(w, &image, label_of(k + turn)));
    }
    assert_ok(image_write_seal(w));
    assert_ok(image_write_finish(w, &sums));
    image_write_close(w);
    picture_free(&image);
}

static void put_shard(place *p, const char *name, int first, int n, int side, int channels) {
    put_turned(p, name, first, n, side, channels, 0);
}

static source_options options(place *p, const char *files, const tensor_spec *wanted) {
    return (source_options){.files = at(p, files), .wanted = wanted, .inputs = 2};
}

static const tensor_spec as_bytes[] = {
    {.name = "pixels", .type = UINT8, .dims = 3, .size = {SIDE, SIDE, 3}},
    {.name = "label", .type = INT32, .size = {1, 1, 1}, .limit = CLASSES},
};
// as a perceptron reads them
static const tensor_spec as_row[] = {
    {.name = "label", .type = INT32, .size = {1, 1, 1}, .limit = CLASSES},
    {.name = "pixels", .type = FP32, .dims = 1, .size = {SIDE * SIDE * 3, 1, 1}},
};

// --- what is read ----------------------------------------------------------------------------------------------------

static void test_values(void **state) {
    enum { N = 17 };
    place *p = *state;
    source *s;
    uint8_t bytes[SIDE * SIDE * 3], seen[SIDE * SIDE * 3];
    float row[SIDE * SIDE * 3];
    int32_t label;
    put_shard(p, "a-00000.bin", 0, 10, SIDE, 3);
    put_shard(p, "a-00001.bin", 10, N - 10, SIDE, 3);
    for (int kind = 0; kind < 2; kind++) {
        source_options o = options(p, "a-*.bin", kind ? as_row : as_bytes);
        assert_ok(source_open(&s, &o));
        assert_true(source_about(s).samples == N && source_about(s).files == 2 &&
                    strcmp(source_about(s).unit, "images") == 0);
        for (int64_t j = 0; j < N; j++) {
            int64_t k = j * 5 % N;
            assert_ok(source_look(s, k, kind ? (void *[]){&label, row} : (void *[]){bytes, &label}));
            assert_int_equal(label, label_of(k));
            assert_ok(source_picture(s, k, seen));
            for (int i = 0; i < SIDE * SIDE * 3; i++) {
                assert_int_equal(seen[i], value_of(k, i));
                if (kind) assert_true(row[i] == (float)value_of(k, i) / 255.0f);
                else assert_int_equal(bytes[i], value_of(k, i));
            }
        }
        assert_ok(source_look(s, 3, kind ? (void *[]){&label, NULL} : (void *[]){NULL, &label}));
        assert_int_equal(label, label_of(3));
        assert_true(s->picture[0] == SIDE && s->picture[1] == SIDE && s->picture[2] == 3);
        assert_error(source_picture(s, N, seen), ERR_INTERNAL, "asked of a source");
        assert_string_equal(source_class(s, 0), "cat");
        assert_string_equal(source_class(s, 2), "owl");
        assert_true(!source_class(s, -1) && !source_class(s, CLASSES));
        source_close(s);
    }
}

// The hash is of what is in the images, not of how they are split; and of every part of it.
static void test_hash(void **state) {
    place *p = *state;
    const char *const sets[] = {"one*", "two-*", "size*", "grey*", "more*", "label*"};
    enum { SETS = sizeof sets / sizeof *sets };
    char hash[SETS][17];
    put_shard(p, "one", 0, 9, SIDE, 3);
    put_shard(p, "two-0", 0, 4, SIDE, 3);
    put_shard(p, "two-1", 4, 5, SIDE, 3);
    put_shard(p, "size", 0, 9, SIDE - 1, 3);
    put_shard(p, "grey", 0, 9, SIDE, 1);
    put_shard(p, "more", 0, 10, SIDE, 3);
    put_turned(p, "label", 0, 9, SIDE, 3, 1);
    for (int k = 0; k < SETS; k++) {
        source *s;
        assert_ok(source_open(&s, &(source_options){.files = at(p, sets[k])}));
        memcpy(hash[k], source_about(s).hash, 17);
        source_close(s);
    }
    assert_string_equal(hash[0], hash[1]);
    for (int k = 2; k < SETS; k++)
        for (int j = 0; j < k; j++) assert_true((k == 1 && j == 0) || strcmp(hash[k], hash[j]) != 0);
}

static void test_sums(void **state) {
    picture p = {0};
    image_sums s = {0};
    float mean[3], inv[3];
    (void)state;
    assert_ok(picture_make(&p, 2, 2, 3));
    for (int i = 0; i < 12; i++) p.at[i] = (uint8_t)(i % 3 == 0 ? 7 : i % 3 == 1 ? i : 255);
    image_sums_add(&s, &p), image_sums_add(&s, &p);
    image_sums_scale(&s, 3, mean, inv);
    assert_true(s.pixels == 8 && s.sum[0] == 56 && s.sum[1] == 2 * (1 + 4 + 7 + 10) && s.square[2] == 8 * 255 * 255);
    assert_true(mean[0] == 7 && inv[0] == 1 && mean[1] == 5.5f && mean[2] == 255 && inv[2] == 1);
    assert_true(inv[1] > 0.2981f && inv[1] < 0.2982f);  // 1 / sqrt(11.25)
    picture_free(&p);
}

// --- damage ----------------------------------------------------------------------------------------------------------

static void count_report(void *ctx, const char *text) {
    assert_non_null(strstr(text, "checksum"));
    ++*(int *)ctx;
}

// 0: it can't be opened; 1: verifying finds it; 2: nobody does.
static int found_at(place *p, const char *name) {
    source *s;
    int reports = 0;
    err_t rc = source_open(&s, &(source_options){.files = at(p, name), .format = FORMAT_IMAGES});
    if (rc != ERR_OK) {
        if (rc != ERR_DATA || !strstr(err_last()->text, name)) fail_msg("%d: %s", rc, err_last()->text);
        return 0;
    }
    rc = source_verify(s, count_report, &reports);
    if (rc != ERR_OK) assert_true(rc == ERR_DATA && reports == 1);
    source_close(s);
    return rc == ERR_OK ? 2 : 1;
}

static void test_every_byte(void **state) {
    place *p = *state;
    char *whole;
    size_t n;
    put_shard(p, "s", 0, 3, 9, 3);
    assert_ok(io_read_file(at(p, "s"), 1 << 20, &whole, &n));
    int opened = 0;
    for (size_t k = 0; k < n; k++) {
        whole[k] ^= (char)(1 << k % 8);
        write_bytes(at(p, "d"), (uint8_t *)whole, n);
        int found = found_at(p, "d");
        if (found == 2) fail_msg("byte %zu of %zu is wrong, and nobody noticed", k, n);
        opened += found;
        whole[k] ^= (char)(1 << k % 8);
    }
    assert_true(opened > 700 && opened == (int)n - IMAGES_HEADER - 3 * IMAGES_ENTRY - (int)sizeof names);
    for (size_t k = 1; k < n; k += 7) {
        write_bytes(at(p, "d"), (uint8_t *)whole, k);
        assert_int_equal(found_at(p, "d"), 0);
    }
    whole[n] = 0;
    write_bytes(at(p, "d"), (uint8_t *)whole, n + 1);
    assert_int_equal(found_at(p, "d"), 0);
    free(whole);
}

// All damaged images are named and counted, by those who verify a source and by those who verify a file.
static void test_several_damaged(void **state) {
    enum { N = 6, BYTES = 9 * 9 * 3 };
    place *p = *state;
    char *whole, *text = NULL;
    size_t n;
    int reports = 0;
    source *s;
    put_shard(p, "s", 0, N, 9, 3);
    assert_ok(io_read_file(at(p, "s"), 1 << 20, &whole, &n));
    for (int k = 1; k < N; k += 2) whole[IMAGES_HEADER + k * BYTES] ^= 1;
    write_bytes(at(p, "s"), (uint8_t *)whole, n);
    free(whole);
    assert_ok(source_open(&s, &(source_options){.files = at(p, "s"), .format = FORMAT_IMAGES}));
    assert_error(source_verify(s, count_report, &reports), ERR_DATA, "3 damaged images in 1 files");
    assert_int_equal(reports, 3);
    source_close(s);
    FILE *out = open_memstream(&text, &n);
    assert_error(image_tools_verify(at(p, "s"), out), ERR_DATA, "3 of 6 images are damaged");
    fclose(out);
    assert_true(strstr(text, "image 1 at") && strstr(text, "image 3 at") && strstr(text, "image 5 at"));
    free(text);
}

// A header and a table whose checksums are right, and which lie.
static void test_lies(void **state) {
    static const struct {
        int at, bytes;
        uint64_t value;
        const char *what;
    } lies[] = {
        {8, 4, 2, "offset 8: version 2"},
        {12, 4, 2, "offset 12: channels 2, expected 1 or 3"},
        {16, 8, 0, "offset 16: images 0"},
        {16, 8, UINT64_MAX / 24, "offset 16: images"},
        {24, 8, 64, "offset 24: table offset 64"},
        {24, 8, UINT64_MAX, "offset 24: table offset"},
        {32, 8, 7, "too long"},
        {32, 8, 1 << 20, "truncated"},
        {40, 4, 65501, "offset 40: size"},
        {44, 4, 0, "offset 44: classes 0"},
        {44, 4, 9999, "offset 44: classes 9999"},
        {44, 4, 2, "label 2, expected one of the classes"},
        {44, 4, 4, "names of classes 3"},
        {104, 4, 1, "table offset"},
        {-24 * 3 - 12, 8, 129, "image at offset 129"},
        {-24 * 3 - 12 + 8, 4, 0, "height 0"},
        {-24 * 3 - 12 + 8, 4, 65501, "height 65501"},
        {-24 * 3 - 12 + 12, 4, 0x80000000u, "width"},
        {-24 * 2 - 12 + 12, 4, 65500, "the images end at offset"},
        {-24 * 3 - 12 + 16, 4, 3, "label 3, expected one of the classes"},
        {-12 + 3, 1, 'x', "names of classes 2"},
        {-1, 1, 'x', "names of classes 2"},
    };
    place *p = *state;
    char *whole;
    size_t n;
    put_shard(p, "s", 0, 3, SIDE, 3);
    assert_ok(io_read_file(at(p, "s"), 1 << 20, &whole, &n));
    for (size_t k = 0; k < sizeof lies / sizeof *lies; k++) {
        uint8_t *b = malloc(n);
        memcpy(b, whole, n);
        for (int i = 0; i < lies[k].bytes; i++)
            b[(lies[k].at < 0 ? (int)n + lies[k].at : lies[k].at) + i] = (uint8_t)(lies[k].value >> 8 * i);
        size_t table = n - 3 * IMAGES_ENTRY - sizeof names;
        uint32_t crc = (uint32_t)crc32(0, b + table, (uInt)(n - table));
        for (int i = 0; i < 4; i++) b[108 + i] = (uint8_t)(crc >> 8 * i);
        crc = (uint32_t)crc32(0, b, 124);
        for (int i = 0; i < 4; i++) b[124 + i] = (uint8_t)(crc >> 8 * i);
        write_bytes(at(p, "lie"), b, n);
        source *s;
        assert_error(source_open(&s, &(source_options){.files = at(p, "lie")}), ERR_DATA, "/lie: ", lies[k].what);
        free(b);
    }
    free(whole);
}

// A pack that was interrupted leaves zeros for a header.
static void test_unfinished(void **state) {
    place *p = *state;
    image_writer *w;
    source *s;
    image_about about = {.channels = 1, .classes = CLASSES, .names = names, .name_bytes = sizeof names};
    picture image = {0};
    assert_ok(picture_make(&image, 20, 20, 1));
    memset(image.at, 9, 400);
    assert_ok(image_write_open(&w, at(p, "u"), &about));
    assert_ok(image_write(w, &image, 1));
    assert_ok(image_write_seal(w));
    image_write_close(w);
    assert_error(source_open(&s, &(source_options){.files = at(p, "u"), .format = FORMAT_IMAGES}), ERR_DATA,
                 "a pack that was interrupted");
    picture_free(&image);
}

// --- what does not fit together --------------------------------------------------------------------------------------

static void test_mismatch(void **state) {
    place *p = *state;
    source *s;
    put_shard(p, "a", 0, 4, SIDE, 3);
    put_shard(p, "b-grey", 0, 4, SIDE, 1);
    put_shard(p, "mixed", 0, 4, 0, 3);
    write_idx(at(p, "idx-i"), 3, (uint32_t[]){2, 2, 2}, (uint8_t[8]){0}, false);
    write_idx(at(p, "idx-l"), 1, (uint32_t[]){2}, (uint8_t[8]){0}, false);
    source_options o = options(p, "[ab]*", as_bytes);
    assert_error(source_open(&s, &o), ERR_DATA, "b-grey has images of 1 channel, and", "/a of 3");
    o = options(p, "b-grey", as_bytes);
    assert_error(source_open(&s, &o), ERR_CONFIG, "uint8 (12,12,3)", "uint8 (12,12,1)");
    o = options(p, "mixed", as_row);
    assert_error(source_open(&s, &o), ERR_CONFIG, "image 1 has 9 x 10 pixels, and the first one 8 x 9",
                 "[data] crop = N");
    o.view = (source_view){.crop = SIDE, .shift = 2};
    assert_error(source_open(&s, &o), ERR_CONFIG, "image 0 has 8 x 9 pixels", "[data] shift", "larger [pack] size");
    o.view.shift = 0;
    assert_ok(source_open(&s, &o));
    source_close(s);
    const tensor_spec two[] = {{.name = "label", .type = INT32, .size = {1, 1, 1}, .limit = 2}};
    assert_error(source_open(&s, &(source_options){.files = at(p, "a"), .wanted = two, .inputs = 1}), ERR_DATA,
                 "label 2, expected less than 2", "[model] classes = 3 fits");
    o = (source_options){.files = at(p, "idx-*"), .view = {.flip = FLIP_RANDOM}};
    assert_error(source_open(&s, &o), ERR_CONFIG, "[data] crop, area, shift and flip are for shards of images",
                 "[pack] images = idx");
}

// --- views and threads -----------------------------------------------------------------------------------------------

// Steps of a run as its loader delivers them: n bytes into dst.
static void load(source *s, int readers, uint8_t *dst) {
    enum { G = 10, STEPS = 7 };
    loader *l;
    batch b;
    loader_options o = {.seed = 3, .shuffle = true, .in = as_bytes, .inputs = 2, .global = G, .micro = 5, .lanes = 2};
    o.lane_count = 2, o.lane_stride = 1, o.first_step = 1, o.last_step = STEPS, o.depth = 3, o.readers = readers;
    o.memory = aligned_alloc(4096, (size_t)loader_bytes(&o));
    assert_ok(loader_open(&l, s, &o));
    for (int k = 0; k < 2 * STEPS; k++, dst += 5 * (SIDE * SIDE * 3 + 4)) {
        assert_ok(loader_next(l, &b));
        memcpy(dst, b.in[0], 5 * SIDE * SIDE * 3);
        memcpy(dst + 5 * SIDE * SIDE * 3, b.in[1], 5 * 4);
    }
    loader_close(l);
    free(o.memory);
}

// However many threads read, the bytes are the same; and they are those of the views.
static void test_readers(void **state) {
    enum { BYTES = 70 * (SIDE * SIDE * 3 + 4) };
    place *p = *state;
    static uint8_t one[BYTES], other[BYTES];
    put_shard(p, "m-0", 0, 20, 0, 3);
    put_shard(p, "m-1", 20, 13, 0, 3);
    const source_view views[] = {{.crop = SIDE, .area = 0.3, .flip = FLIP_RANDOM},
                                 {.crop = SIDE, .flip = FLIP_ALTERNATING}};
    for (int v = 0; v < 2; v++)
        for (int readers = 1; readers <= 5; readers += 2) {
            source *s;
            source_options o = options(p, "m-*", as_bytes);
            o.view = views[v], o.readers = readers;
            assert_ok(source_open(&s, &o));
            load(s, readers, readers == 1 ? one : other);
            if (readers > 1) assert_memory_equal(one, other, BYTES);
            source_close(s);
        }
    // the first sample of the last run, made by hand
    source_draw d = {.seed = 3, .train = true, .sample = sampler_at(3, 0, 33, true)};
    picture image = {0};
    uint8_t want[SIDE * SIDE * 3];
    resizer r = {0};
    int k = (int)d.sample;
    assert_ok(picture_make(&image, 9 + k % 7, 8 + k % 5, 3));
    for (int64_t i = 0; i < picture_bytes(&image); i++) image.at[i] = value_of(k, i);
    view box = view_train(&views[1], &image, SIDE, SIDE, &d);
    assert_ok(view_cut(&r, want, SIDE, SIDE, &image, &box));
    assert_memory_equal(want, one, sizeof want);
    picture_free(&image);
    resizer_free(&r);
}

// Of several reads that fail, the first in order is reported, whichever thread came to it.
static void test_failing_readers(void **state) {
    place *p = *state;
    char *whole, wanted[64];
    size_t n;
    put_shard(p, "m", 0, 33, SIDE, 3);
    assert_ok(io_read_file(at(p, "m"), 1 << 20, &whole, &n));
    for (size_t k = IMAGES_HEADER; k < n - 33 * IMAGES_ENTRY - sizeof names; k += SIDE * SIDE * 3) whole[k] ^= 1;
    write_bytes(at(p, "m"), (uint8_t *)whole, n);
    free(whole);
    snprintf(wanted, sizeof wanted, "image %d at offset", (int)sampler_at(3, 0, 33, true));
    for (int readers = 1; readers <= 6; readers++) {
        source *s;
        loader *l;
        batch b;
        source_options from = options(p, "m", as_bytes);
        from.readers = readers;
        loader_options o = {.seed = 3, .shuffle = true, .in = as_bytes, .inputs = 2, .global = 16, .micro = 16};
        o.lanes = o.lane_count = o.lane_stride = 1, o.first_step = 1, o.last_step = 2, o.depth = 2, o.readers = readers;
        o.memory = aligned_alloc(4096, (size_t)loader_bytes(&o));
        assert_ok(source_open(&s, &from));
        assert_ok(loader_open(&l, s, &o));
        assert_error(loader_next(l, &b), ERR_DATA, wanted, "checksum");
        loader_close(l);
        source_close(s);
        free(o.memory);
    }
}

// Alternating flips of parts of a mix: each part has epochs of its own.
static void test_mix_epochs(void **state) {
    place *p = *state;
    source *s;
    char files[2 * IO_PATH + 16], b[IO_PATH];
    put_shard(p, "a", 0, 5, SIDE, 3);
    put_shard(p, "b", 5, 8, SIDE, 3);
    snprintf(b, sizeof b, "%s", at(p, "b"));
    snprintf(files, sizeof files, "%s@1 %s@3", at(p, "a"), b);
    assert_ok(source_open(&s, &(source_options){.files = files, .wanted = as_bytes, .inputs = 2, .readers = 3}));
    assert_int_equal(s->readers, 3);
    int seen[13][48] = {0}, times[13] = {0};
    for (int64_t n = 0; n < 400; n++) {
        source_draw d = source_draw_at(s, 1, n, true);
        assert_int_equal(d.sample, source_at(s, 1, n, true));
        assert_true(d.epoch < 48 && seen[d.sample][d.epoch]++ == 0);  // each sample comes once an epoch
        times[d.sample]++;
    }
    for (int k = 0; k < 13; k++)
        for (int e = 0; e < times[k] - 1; e++) assert_int_equal(seen[k][e], 1);
    assert_true(times[0] == 20 && times[12] >= 37);
    source_close(s);
}

// A read that fails is tried again, and one that is cancelled ends.
static void test_retries(void **state) {
    place *p = *state;
    source *s;
    fault_list faults;
    uint8_t bytes[SIDE * SIDE * 3];
    int32_t label;
    put_shard(p, "a", 0, 4, SIDE, 3);
    source_options o = options(p, "a", as_bytes);
    o.retry = 2, o.faults = &faults;
    assert_ok(fault_parse(&faults, "read@5x2"));
    assert_ok(source_open(&s, &o));
    for (int k = 0; k < 4; k++) assert_ok(source_look(s, k, (void *[]){bytes, &label}));
    assert_true(source_about(s).retries == 1 && source_about(s).read > 4 * SIDE * SIDE * 3);
    assert_ok(fault_parse(&faults, "read@1x9"));
    assert_error(source_look(s, 1, (void *[]){bytes, &label}), ERR_IO, "given up after 3 tries");
    source_cancel(s, true);
    assert_error(source_look(s, 1, (void *[]){bytes, &label}), ERR_INTERRUPTED, "not tried again");
    source_cancel(s, false);
    source_close(s);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, place_enter, place_leave)
    const struct CMUnitTest tests[] = {
        TEST(test_values),     TEST(test_hash),       cmocka_unit_test(test_sums), TEST(test_every_byte),
        TEST(test_lies),       TEST(test_unfinished), TEST(test_mismatch),         TEST(test_readers),
        TEST(test_mix_epochs), TEST(test_retries),    TEST(test_failing_readers),  TEST(test_several_damaged),
    };
    return cmocka_run_group_tests_name("images", tests, NULL, NULL);
}
