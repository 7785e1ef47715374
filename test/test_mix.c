// test/test_mix.c: sources mixed by weight. Shares are counted, at every position; each part has its own epochs; and
// what a loader delivers at a position does not depend on lanes, ranks and where it began.
#include "data/loader.h"
#include "data/sampler.h"
#include "data/weights.h"
#include "test/support/expect.h"
#include "test/support/idx.h"
#include "test/support/megatron.h"
#include "test/support/place.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static atomic_int heap_calls;
#else
static atomic_int heap_calls;
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void *malloc(size_t n) { return atomic_fetch_add(&heap_calls, 1), __libc_malloc(n); }
void *calloc(size_t n, size_t m) { return atomic_fetch_add(&heap_calls, 1), __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { return atomic_fetch_add(&heap_calls, 1), __libc_realloc(p, n); }
#endif

enum { T = 4, PARTS = 3 };

static const tensor_spec window[] = {{.name = "tokens", .type = INT32, .dims = 1, .size = {T, 1, 1}},
                                     {.name = "targets", .type = INT32, .dims = 1, .size = {T, 1, 1}}};

// File NAME.bin of so many windows: 16-bit tokens that count from `from` on.
static void put_windows(place *p, const char *name, int windows, int from) {
    int n = windows * T + 1;
    uint8_t *bytes = malloc(2 * (size_t)n);
    for (int i = 0; i < n; i++) bytes[2 * i] = (uint8_t)(from + i), bytes[2 * i + 1] = (uint8_t)((from + i) >> 8);
    write_bytes(at(p, name), bytes, 2 * (size_t)n);
    free(bytes);
}

// The usual three parts: 5, 12 and 7 windows, whose samples are numbered 0..4, 5..16 and 17..23.
static const int W[PARTS] = {5, 12, 7};
static void put_parts(place *p) {
    put_windows(p, "a.bin", 5, 0);
    put_windows(p, "b1.bin", 6, 1000);  // 25 tokens; with the 24 of b2 a stream of 12 windows
    put_windows(p, "b2.bin", 5, 2000);
    put_windows(p, "c.bin", 7, 3000);
    uint8_t more[6] = {0};
    FILE *f = fopen(at(p, "b2.bin"), "ab");
    assert_true(f && fwrite(more, 1, 6, f) == 6 && fclose(f) == 0);
}

// "%s" in names is the directory of the test.
static const char *in(place *p, const char *names, char dst[4096]) {
    char *to = dst;
    for (; *names; names++)
        if (*names == '%') to += sprintf(to, "%s/", p->dir);
        else *to++ = *names;
    *to = 0;
    return dst;
}

static err_t open_mix(place *p, source **s, const char *names) {
    char files[4096];
    return source_open(
        s, &(source_options){
               .files = in(p, names, files), .format = FORMAT_RAW16, .wanted = window, .inputs = 2, .retry = 3});
}

static int part_of(int64_t sample) { return sample < W[0] ? 0 : sample < W[0] + W[1] ? 1 : 2; }

// --- weights ---------------------------------------------------------------------------------------------------------

static void test_weights(void **state) {
    (void)state;
    static const struct {
        const char *files;
        int parts;
        int64_t count[4];
    } cases[] = {
        {"", 0, {0}},
        {" a.bin\tb*.bin ", 0, {0}},
        {"a@b.bin a@1.bin user@host/x.bin a@ @ @7 a@0x1 a@nan a@1.2.3 a@- a@. a@1e", 0, {0}},
        {"a.bin@1", 1, {1}},
        {"a.bin@0.7", 1, {1}},
        {"a*.bin@0.7 b*.bin@0.3", 2, {7, 3}},
        {" a@0.70\tb@.3 ", 2, {7, 3}},
        {"a@70 b@30.", 2, {7, 3}},
        {"a@2@0.5 b@c@1", 2, {1, 2}},
        {"a@0.5000000000000 b@00000000000.50", 2, {1, 1}},
        {"a@0.3333 b@0.6667", 2, {3333, 6667}},
        {"a@999999999 b@999999999 c@0.000000001000 d@0.000000001", 0, {-1}},
        {"a@999999999.000 b@0999999999 c@1999999998", 0, {-1}},
        {"a@500000000.5 b@500000000.50", 2, {1, 1}},
        {"a@0.000000001 b@0.000000002 c@0.000000003 d@0.000000004", 4, {1, 2, 3, 4}},
        {"a@1 b@9999", 2, {1, 9999}},
        {"a@1 b@10000", 0, {-1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weights w = {0};
        err_t rc = weights_parse(&w, cases[i].files);
        if (cases[i].count[0] < 0) {
            assert_int_equal(rc, ERR_CONFIG);
        } else {
            assert_ok(rc);
            assert_int_equal(w.parts, cases[i].parts);
            for (int k = 0; k < w.parts; k++) assert_int_equal(w.part[k].count, cases[i].count[k]);
        }
        weights_free(&w);
    }
    weights w = {0};
    assert_ok(weights_parse(&w, "x/a*.bin@0.7 c@2@1"));
    assert_string_equal(w.part[0].files, "x/a*.bin");
    assert_string_equal(w.part[0].text, "x/a*.bin@0.7");
    assert_string_equal(w.part[1].files, "c@2");
    assert_int_equal(w.places, 17);
    weights_free(&w);
}

static void test_wrong_weights(void **state) {
    (void)state;
    static const char *const cases[][3] = {
        {"a.bin@0.7 b.bin", "b.bin has no weight", "a.bin@0.7 has one"},
        {"a b@1 c@2", "a has no weight", "c@2 has one"},
        {"a@0", "a@0: the weight 0 is not a positive decimal", "write a@0@1"},
        {"a@-1 b@2", "the weight -1 is not", "a@-1"},
        {"a@1 b@+2", "the weight +2 is not", ""},
        {"a@1e3", "the weight 1e3 is not", ""},
        {"a@0.000", "the weight 0.000 is not", ""},
        {"a@1 b@0.0000000001", "b@0.0000000001: the weight 0.0000000001 has more than 9 digits", ""},
        {"a@1000000000", "more than 9 digits before", ""},
        {"a@0.33333 b@0.66667", "a@0.33333: the weights of [data] train are too fine", "more than 10000"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weights w = {0};
        assert_error(weights_parse(&w, cases[i][0]), ERR_CONFIG, cases[i][1], cases[i][2]);
        weights_free(&w);
    }
}

// --- order -----------------------------------------------------------------------------------------------------------

static const struct {
    const char *names;
    int count[PARTS];
} mixes[] = {
    {"%a.bin@1 %b*.bin@1 %c.bin@1", {1, 1, 1}},     {"%a.bin@0.5 %b*.bin@0.3 %c.bin@0.2", {5, 3, 2}},
    {"%a.bin@1 %b*.bin@98 %c.bin@1", {1, 98, 1}},   {"%a.bin@0.123 %b*.bin@0.456 %c.bin@0.421", {123, 456, 421}},
    {"%a.bin@49 %b*.bin@1 %c.bin@50", {49, 1, 50}}, {"%a.bin@2 %b*.bin@2 %c.bin@6", {1, 1, 3}},
};
enum { MIXES = sizeof mixes / sizeof *mixes };

static int places_of(int i) { return mixes[i].count[0] + mixes[i].count[1] + mixes[i].count[2]; }

// In order, after every sample each part has had its share to within one, and its own samples come in their order.
static void test_even(void **state) {
    place *p = *state;
    put_parts(p);
    for (int i = 0; i < MIXES; i++) {
        source *s;
        int64_t had[PARTS] = {0}, M = places_of(i), first[PARTS] = {0, W[0], W[0] + W[1]};
        assert_ok(open_mix(p, &s, mixes[i].names));
        for (int64_t n = 0; n < 4 * M; n++) {
            int64_t sample = source_at(s, 9, n, false);
            int k = part_of(sample);
            assert_int_equal(sample, first[k] + had[k]++ % W[k]);
            for (int j = 0; j < PARTS; j++) {
                int64_t off = had[j] * M - mixes[i].count[j] * (n + 1);
                if (off >= M || off <= -M)
                    fail_msg("%s: part %d has %" PRId64 " of the first %" PRId64, mixes[i].names, j, had[j], n + 1);
            }
        }
        for (int j = 0; j < PARTS; j++) assert_int_equal(had[j], 4 * mixes[i].count[j]);
        source_close(s);
    }
}

// Shuffled, every block has exactly the counts. At its end no sample of a part has come more than once more often than
// another one: epochs.
static void test_shuffled(void **state) {
    place *p = *state;
    put_parts(p);
    for (int i = 0; i < MIXES; i++) {
        source *s;
        int64_t M = places_of(i), came[24] = {0};
        assert_ok(open_mix(p, &s, mixes[i].names));
        for (int64_t block = 0; block < 60; block++) {
            int had[PARTS] = {0};
            for (int64_t n = block * M; n < (block + 1) * M; n++) {
                int64_t sample = source_at(s, 9, n, true);
                assert_true(sample >= 0 && sample < 24);
                came[sample]++;
                had[part_of(sample)]++;
            }
            for (int k = 0; k < PARTS; k++) assert_int_equal(had[k], mixes[i].count[k]);
            for (int k = 0, at = 0; k < PARTS; at += W[k++])
                for (int j = 0; j < W[k]; j++) {
                    int64_t draws = (block + 1) * mixes[i].count[k];
                    assert_in_range(came[at + j], draws / W[k], (draws + W[k] - 1) / W[k]);
                }
        }
        source_close(s);
    }
}

// Seeds, blocks, and parts of the same size have orders of their own; positions far out work; and the order is the one
// that another program computed from the definition in data/mix.c: runs that began with an older build go on.
static void test_keys(void **state) {
    static const int was[] = {13, 2, 8,  19, 0,  17, 1,  11, 3,  4, 10, 0, 2, 1, 4,
                              18, 3, 16, 23, 14, 15, 12, 9,  21, 1, 22, 4, 0, 3, 2};
    place *p = *state;
    source *s;
    put_windows(p, "a.bin", 1000, 0);
    assert_ok(open_mix(p, &s, "%a.bin@1 %a.bin@1"));
    int64_t draw[2][2][500];  // [seed][part]
    int switched = 0;
    for (int seed = 0; seed < 2; seed++)
        for (int64_t n = 0; n < 1000; n++) {
            int64_t sample = source_at(s, (uint64_t)seed, n, true);
            draw[seed][sample >= 1000][n / 2] = sample % 1000;
            switched += n % 2 == 0 && sample >= 1000;
        }
    int same[3] = {0};
    for (int i = 0; i < 500; i++) {
        same[0] += draw[0][0][i] == draw[0][1][i];
        same[1] += draw[0][0][i] == draw[1][0][i];
        same[2] += draw[0][0][i] == sampler_at(0, i, 1000, true);
    }
    for (int i = 0; i < 3; i++) assert_true(same[i] < 10);  // half of one is expected
    assert_in_range(switched, 400, 600);
    assert_true(source_at(s, 1, INT64_MAX, true) < 2000 && source_at(s, 1, INT64_MAX, false) >= 0);
    source_close(s);
    put_parts(p);
    assert_ok(open_mix(p, &s, mixes[1].names));
    for (size_t n = 0; n < sizeof was / sizeof *was; n++)
        assert_int_equal(source_at(s, 1337, (int64_t)n, true), was[n]);
    source_close(s);
}

// --- what a loader delivers ------------------------------------------------------------------------------------------

static int32_t first_token(int64_t sample) {
    static const int32_t from[PARTS] = {0, 1000, 3000};
    int k = part_of(sample);
    int64_t inside = sample - (k == 0 ? 0 : k == 1 ? W[0] : W[0] + W[1]), token = inside * T;
    return k == 1 && token >= 25 ? (int32_t)(2000 + token - 25) : (int32_t)(from[k] + token);
}

// Every sample of every lane that this loader delivers is the one of its position.
static void check_loader(source *s, int64_t lanes, int64_t first, int64_t count, int64_t stride, int64_t first_step,
                         bool shuffle) {
    loader_options o = {.seed = 5,
                        .shuffle = shuffle,
                        .in = window,
                        .inputs = 2,
                        .global = 24,
                        .micro = 2,
                        .lanes = lanes,
                        .first_lane = first,
                        .lane_count = count,
                        .lane_stride = stride,
                        .first_step = first_step,
                        .last_step = 20,
                        .depth = 4};
    loader *l;
    batch b;
    o.memory = aligned_alloc(4096, (size_t)loader_bytes(&o));
    assert_ok(loader_open(&l, s, &o));
    for (int64_t i = 0; i < (20 - first_step + 1) * count * (24 / lanes / 2); i++) {
        assert_ok(loader_next(l, &b));
        for (int64_t j = 0; j < 2; j++) {
            int64_t sample = source_at(s, 5, (b.step - 1) * 24 + b.first + j, shuffle);
            const int32_t *tokens = (const int32_t *)b.in[0] + j * T, *targets = (const int32_t *)b.in[1] + j * T;
            assert_int_equal(tokens[0], first_token(sample));
            assert_int_equal(tokens[1], targets[0]);
        }
    }
    assert_int_equal(loader_next(l, &b), ERR_DATA);
    loader_close(l);
    free(o.memory);
}

static void test_loader(void **state) {
    place *p = *state;
    source *s;
    put_parts(p);
    assert_ok(open_mix(p, &s, mixes[1].names));
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        check_loader(s, 4, 0, 4, 1, 1, shuffle);
        check_loader(s, 12, 0, 12, 1, 1, shuffle);
        for (int r = 0; r < 3; r++) {
            check_loader(s, 12, 4 * r, 4, 1, 1, shuffle);  // three ranks with neighbouring lanes
            check_loader(s, 12, r, 4, 3, 8, shuffle);      // three that take turns, from step 8 on
        }
    }
    source_close(s);
}

static void test_no_heap(void **state) {
    place *p = *state;
    source *s;
    int32_t tokens[T], targets[T];
    put_parts(p);
    assert_ok(open_mix(p, &s, mixes[3].names));
    for (int64_t n = 0; n < 100; n++) assert_ok(source_look(s, source_at(s, 5, n, true), (void *[]){tokens, targets}));
    int before = heap_calls;
    for (int64_t n = 100; n < 3000; n++) assert_ok(source_look(s, source_at(s, 5, n, true), (void *[]){tokens, NULL}));
    assert_int_equal(heap_calls, before);
    source_close(s);
}

// --- what a mix says of itself ---------------------------------------------------------------------------------------

static void test_about(void **state) {
    place *p = *state;
    source *s;
    int parts;
    put_parts(p);
    assert_ok(open_mix(p, &s, "%a.bin@0.5 %b*.bin@0.3 %c.bin@0.2"));
    source_info about = source_about(s);
    assert_int_equal(about.samples, 24);
    assert_int_equal(about.units, 21 + 25 + 24 + 29);
    assert_int_equal(about.units_per_sample, T);
    assert_string_equal(about.unit, "tokens");
    assert_int_equal(about.files, 4);
    const source_part *part = source_parts(s, &parts);
    assert_int_equal(parts, 3);
    assert_non_null(strstr(part[1].text, "/b*.bin@0.3"));
    assert_true(part[1].share == 0.3);
    assert_int_equal(part[1].about.samples, 12);
    assert_int_equal(part[1].about.files, 2);
    assert_int_equal(source_look(s, 24, (void *[]){NULL, NULL}), ERR_INTERNAL);
    assert_int_equal(source_look(s, -1, (void *[]){NULL, NULL}), ERR_INTERNAL);
    source_close(s);
}

static void hash_of(place *p, const char *names, char hash[17]) {
    source *s;
    assert_ok(open_mix(p, &s, names));
    strcpy(hash, source_about(s).hash);
    source_close(s);
}

// The same mix in other words has the same hash; other weights, another order or other tokens have another one.
static void test_hash(void **state) {
    place *p = *state;
    char first[17], other[17];
    static const char *const others[] = {"%a.bin@6 %c.bin@3", "%c.bin@3 %a.bin@7",          "%c.bin@7 %a.bin@3",
                                         "%a.bin@7 %a.bin@3", "%a.bin@7 %c.bin@3 %c.bin@1", "%a.bin %c.bin"};
    put_parts(p);
    hash_of(p, "%a.bin@0.7 %c.bin@0.3", first);
    assert_int_equal(strlen(first), 16);
    hash_of(p, "%a.bi[n]@70 %c.bin@30.0", other);
    assert_string_equal(first, other);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        hash_of(p, others[i], other);
        assert_string_not_equal(first, other);
    }
    put_windows(p, "c.bin", 7, 3001);
    hash_of(p, "%a.bin@0.7 %c.bin@0.3", other);
    assert_string_not_equal(first, other);
}

// One part with a weight is that part: order, hash and all. And so is a file with an @ in its name.
static void test_one_part(void **state) {
    place *p = *state;
    static const char *const same[] = {"%a.bin@0.3", "%x@y", "%z@2@1"};
    char hash[17];
    put_windows(p, "a.bin", 50, 7);
    put_windows(p, "x@y", 50, 7);
    put_windows(p, "z@2", 50, 7);
    hash_of(p, "%a.bin", hash);
    for (int i = 0; i < 3; i++) {
        source *s;
        int parts;
        assert_ok(open_mix(p, &s, same[i]));
        assert_string_equal(source_about(s).hash, hash);
        source_parts(s, &parts);
        assert_int_equal(parts, 0);
        for (int64_t n = 0; n < 150; n++) {
            assert_int_equal(source_at(s, 3, n, true), sampler_at(3, n, 50, true));
            assert_int_equal(source_at(s, 3, n, false), n % 50);
        }
        source_close(s);
    }
}

// --- what goes wrong -------------------------------------------------------------------------------------------------

static void test_refused(void **state) {
    place *p = *state;
    source *s = NULL;
    char files[4096];
    put_parts(p);
    put_windows(p, "small.bin", 0, 0);
    assert_error(open_mix(p, &s, "%a.bin@1 %none*.bin@2"), ERR_CONFIG, "none*.bin@2: no file matches");
    assert_error(open_mix(p, &s, "%a.bin@1 %small.bin@2"), ERR_DATA, "small.bin@2: 1 tokens, expected more");
    assert_error(open_mix(p, &s, "%a.bin@1 %b*.bin"), ERR_CONFIG, "b*.bin has no weight");
    assert_error(open_mix(p, &s, "%z@2"), ERR_CONFIG, "z\"");
    assert_null(s);
    source_options o = {.files = in(p, "%a.bin@1 %c.bin@1", files), .wanted = window, .inputs = 2, .held_out = 2};
    assert_error(source_open(&s, &o), ERR_CONFIG, "holdout and weights");
    o.files = in(p, "%c.bin@1", files);
    assert_ok(source_open(&s, &o));
    assert_int_equal(source_about(s).samples, 5);
    source_close(s);
    tensor_spec other[] = {{.name = "pixels", .type = FP32, .dims = 1, .size = {T, 1, 1}}};
    o = (source_options){
        .files = in(p, "%a.bin@1 %c.bin@1", files), .format = FORMAT_RAW16, .wanted = other, .inputs = 1};
    assert_error(source_open(&s, &o), ERR_CONFIG, "a.bin@1", "the model reads `pixels`");
    assert_null(s);
}

static void count_report(void *ctx, const char *text) {
    assert_non_null(strstr(text, ".bin: "));
    ++*(int *)ctx;
}

// Each part is verified, whatever is wrong with those before. Retries of all parts are counted.
static void test_faults(void **state) {
    place *p = *state;
    source *s;
    fault_list faults;
    char files[4096];
    int32_t tokens[T], targets[T];
    int reports = 0;
    put_parts(p);
    assert_ok(fault_parse(&faults, ""));
    assert_ok(source_open(
        &s, &(source_options){
                .files = in(p, mixes[0].names, files), .wanted = window, .inputs = 2, .retry = 1, .faults = &faults}));
    assert_ok(source_verify(s, count_report, &reports));
    assert_int_equal(source_about(s).retries, 0);
    for (int64_t sample = 0; sample < 24; sample += 12) {
        assert_ok(fault_parse(&faults, "read@1"));
        assert_ok(source_look(s, sample, (void *[]){tokens, targets}));
        assert_int_equal(tokens[0], first_token(sample));
    }
    assert_int_equal(source_about(s).retries, 2);
    assert_ok(fault_parse(&faults, "read@1x9"));
    source_cancel(s, true);
    assert_error(source_look(s, 20, (void *[]){tokens, targets}), ERR_INTERRUPTED, "c.bin");
    source_cancel(s, false);
    assert_ok(fault_parse(&faults, ""));
    static const char *const damaged[] = {"a.bin", "c.bin"};
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(at(p, damaged[i]), "r+b");
        assert_true(f && fputc(99, f) == 99 && fclose(f) == 0);
    }
    assert_error(source_verify(s, count_report, &reports), ERR_DATA, "faults in 2 of 3 parts");
    assert_int_equal(reports, 2);
    source_close(s);
}

// Many parts of many files need no more descriptors than one source.
static void test_descriptors(void **state) {
    enum { FILES = 60, ROOM = 160 };
    place *p = *state;
    source *s;
    char name[32], names[1024] = "";
    int32_t tokens[T], targets[T];
    struct rlimit before, low;
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < FILES; i++) {
            snprintf(name, sizeof name, "%c-%02d.bin", 'a' + k, i);
            put_windows(p, name, 1, 0);
        }
        snprintf(names + strlen(names), 64, " %%%c-*.bin@%d", 'a' + k, k + 1);
    }
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = (struct rlimit){ROOM, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    assert_ok(open_mix(p, &s, names));
    for (int64_t n = 0; n < 1000; n++) assert_ok(source_look(s, source_at(s, 1, n, true), (void *[]){tokens, targets}));
    source_close(s);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

// Images too: a glob that finds a file of images and one of labels.
static void test_images(void **state) {
    place *p = *state;
    source *s;
    char files[4096];
    tensor_spec wanted[] = {{.name = "label", .type = INT32, .size = {1, 1, 1}, .limit = 10},
                            {.name = "pixels", .type = FP32, .dims = 1, .size = {4, 1, 1}}};
    for (int k = 0; k < 2; k++) {
        uint8_t pixels[4 * 4], labels[4];
        memset(pixels, 100 * k, sizeof pixels);
        memset(labels, 3 + k, sizeof labels);
        write_idx(at(p, k ? "b-images" : "a-images"), 3, (uint32_t[]){4, 2, 2}, pixels, k);
        write_idx(at(p, k ? "b-labels" : "a-labels"), 1, (uint32_t[]){4}, labels, false);
    }
    assert_ok(
        source_open(&s, &(source_options){.files = in(p, "%a-*@1 %b-*@3", files), .wanted = wanted, .inputs = 2}));
    int had[2] = {0};
    for (int64_t n = 0; n < 40; n++) {
        int32_t label;
        float pixel[4];
        assert_ok(source_look(s, source_at(s, 1, n, true), (void *[]){&label, pixel}));
        assert_true(label == 3 || label == 4);
        assert_true(pixel[3] == (label == 3 ? 0.0f : 100 / 255.0f));
        had[label - 3]++;
    }
    assert_true(had[0] == 10 && had[1] == 30);
    assert_string_equal(source_about(s).unit, "images");
    assert_true(s->picture[0] == 2 && s->picture[1] == 2 && s->picture[2] == 1 && !source_class(s, 3));
    for (int64_t n = 0; n < 8; n++) {
        uint8_t seen[4] = {1, 1, 1, 1};
        assert_ok(source_picture(s, n, seen));
        assert_true(seen[0] == (n < 4 ? 0 : 100) && seen[3] == seen[0]);
    }
    source_close(s);
    write_idx(at(p, "b-images"), 3, (uint32_t[]){4, 1, 4}, (uint8_t[16]){0}, false);  // others, of as many pixels
    assert_ok(source_open(&s, &(source_options){.files = files, .wanted = wanted, .inputs = 2}));
    assert_int_equal(s->picture[0], 0);
    source_close(s);
}

// Parts of two formats, each found by its own first bytes or index; and one format for all.
static void test_formats(void **state) {
    place *p = *state;
    source *s;
    char files[4096];
    int32_t tokens[T], targets[T];
    uint8_t file[256];
    put_windows(p, "a.bin", 5, 0);
    for (int i = 0; i < 41; i++) put_number(file + 4 * i, (uint64_t)(70000 + i), 4);
    write_bytes(at(p, "m.bin"), file, 4 * 41);
    write_bytes(at(p, "m.idx"), file, megatron_index(file, 4, 4, 2, (int32_t[]){10, 31}, NULL));
    source_options o = {.files = in(p, "%a.bin@1 %m.bin@1", files), .wanted = window, .inputs = 2};
    assert_ok(source_open(&s, &o));
    assert_int_equal(source_about(s).samples, 15);
    for (int64_t k = 0; k < 15; k++) {
        assert_ok(source_look(s, k, (void *[]){tokens, targets}));
        assert_int_equal(tokens[0], k < 5 ? k * T : 70000 + (k - 5) * T);
        assert_int_equal(targets[T - 1], tokens[0] + T);
    }
    source_close(s);
    o.format = FORMAT_MEGATRON;
    assert_error(source_open(&s, &o), ERR_IO, "a.bin@1: ", "a.idx: No such file");
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, place_enter, place_leave)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_wrong_weights),
        TEST(test_even),
        TEST(test_shuffled),
        TEST(test_keys),
        TEST(test_loader),
        TEST(test_no_heap),
        TEST(test_about),
        TEST(test_hash),
        TEST(test_one_part),
        TEST(test_refused),
        TEST(test_faults),
        TEST(test_descriptors),
        TEST(test_images),
        TEST(test_formats),
    };
    return cmocka_run_group_tests_name("mix", tests, NULL, NULL);
}
