// test/test_speed.c: model flops utilization. A model's own count of a step's flops is held against those that the
// operations of a real step declare (gpu/cost.c); the peak is measured, and measuring it changes nothing else. And what
// is said of faster products.
#include "test/support/run.h"

#include "base/clock.h"
#include "gpu/ops.h"
#include "gpu/peak.h"
#include "gpu/profile.h"
#include "trainer/session/restore.h"
#include "trainer/speed.h"

#include <fcntl.h>
#include <math.h>

static const char common[] =
    "[data]\nformat = raw16\n[batch]\nglobal = 8\nmicro = 2\n[sample]\ntokens = 0\n[device]\nthreads = 1\n";
static const char *const models[] = {
    "[model]\nlayers = 2\nheads = 2\nembed = 64\ncontext = 64\nvocab = 256\n",
    "[model]\nlayers = 2\nheads = 2\nembed = 64\ncontext = 64\nvocab = 256\n[parallel]\nrecompute = selective\n",
    "[model]\ntype = llama\nlayers = 2\nheads = 4\nkv_heads = 2\nembed = 64\nhidden = 128\ncontext = 64\nvocab = 256\n",
    "[model]\ntype = llama\nlayers = 2\nheads = 4\nembed = 64\nhidden = 64\ncontext = 192\nwindow = 128\nvocab = 256\ntied = yes\n",
    "[model]\ntype = resnet20\nunits = 1 1\nwidth = 6\nimage = 16\nclasses = 12\n[data]\nformat = auto\n"
    "train = test/golden/resnet-basic-images.idx test/golden/resnet-basic-labels.idx\nval =\n",
};

// Of a step: attention's backward computes the scores again, one of its five products, which is not the model's.
static double declared_flops(device *d) {
    static profile_line line[PROFILE_LINES];
    double sum = 0;
    int lines = profile_read(device_profile(d), line);
    for (int i = 0; i < lines; i++) sum += line[i].flops * (strcmp(line[i].op, "attention_backward") == 0 ? 0.8 : 1);
    return sum;
}

static void flops_are_those_of_the_operations(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        char *dir = make_dir();
        config c;
        session x;
        speed v;
        step_result r;
        write_tokens(dir, "text.bin", 20000);
        write_tokens(dir, "val.bin", 1500);
        load_config(&c, dir, common, models[k]);
        OK(session_open(&x, &c, SESSION_PROFILE, NULL));
        OK(session_init(&x));
        OK(session_feed(&x, 2));
        OK(session_step(&x, &r));
        profile_clear(device_profile(x.dev));
        OK(session_step(&x, &r));
        OK(speed_open(&v, &x, 0));
        double found = declared_flops(x.dev);
        if (fabs(v.flops / found - 1) > 0.02)
            fail_msg("model %zu: %.0f flops a step, and its operations declare %.0f", k, v.flops, found);
        speed_close(&v);
        session_close(&x);
        drop_dir(dir);
    }
}

// Which products a device was last opened with (the Makefile wraps the call).
static products opened_with;
err_t __real_device_open(device **out, const device_options *o);
err_t __wrap_device_open(device **out, const device_options *o) {
    opened_with = o->products;
    return __real_device_open(out, o);
}

// Operations whose encode takes long, while a test asks for it (the Makefile wraps the call).
static const ops *real;
static bool slow_encode;
static err_t encode_late(const encode_args *args, stream *s) {
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    return real->encode(args, s);
}
const ops *__real_device_ops(const device *dev);
const ops *__wrap_device_ops(const device *dev) {
    static ops own;
    real = __real_device_ops(dev);
    own = *real;
    if (slow_encode) own.encode = encode_late;
    return slow_encode ? &own : real;
}

// Values a second, each way of its own: 8192 in 20 ms one way, and faster back.
static void codes_have_a_speed_each_way(void **state) {
    (void)state;
    device *dev;
    stream *s;
    OK(device_open(&dev, &(device_options){.kind = DEVICE_CPU, .threads = 1}));
    OK(stream_open(dev, &s));
    slow_encode = true;
    for (codec c = CODEC_FP16; c <= CODEC_INT4; c++) {
        peak_codec rate = peak_codes(dev, s, c, 1024);
        assert_true(rate.encoded > 0 && rate.encoded < 8192 / 0.02 && rate.decoded > 8192 / 0.02);
    }
    slow_encode = false;
    stream_close(s);
    device_close(dev);
}

// The peak of a utilization is that of the products that the run has.
static void the_peak_is_that_of_the_products(void **state) {
    static const char *const more[] = {"[precision]\nproducts = fp32\n", "[precision]\nproducts = bf16-pairs\n"};
    (void)state;
    for (int k = 0; k < 2; k++) {
        char *dir = make_dir();
        config c;
        session x;
        speed v;
        write_tokens(dir, "text.bin", 20000);
        write_tokens(dir, "val.bin", 1500);
        load_config(&c, dir, common, more[k]);
        OK(session_open(&x, &c, SESSION_TRAIN, NULL));
        opened_with = k ? PRODUCTS_FP32 : PRODUCTS_BF16_PAIRS;
        OK(speed_open(&v, &x, 0));
        assert_int_equal(opened_with, k ? PRODUCTS_BF16_PAIRS : PRODUCTS_FP32);
        speed_close(&v);
        session_close(&x);
        drop_dir(dir);
    }
}

static int open_files(void) {
    int n = 0;
    for (int fd = 0; fd < 256; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

// In each type: a peak, within the time, and a share of it that a step can have.
static void the_peak_is_measured(void **state) {
    (void)state;
    static const char *const types[] = {"fp32", "bf16", "fp16", "fp32\nproducts = bf16-pairs",
                                        "bf16\nproducts = bf16-pairs"};
    for (int t = 0; t < 5; t++) {
        char *dir = make_dir(), more[256];
        config c;
        session x;
        speed v;
        int64_t used, total;
        write_tokens(dir, "text.bin", 20000);
        write_tokens(dir, "val.bin", 1500);
        snprintf(more, sizeof more, "%s[precision]\ncompute = %s\n", models[0], types[t]);
        load_config(&c, dir, common, more);
        OK(session_open(&x, &c, SESSION_TRAIN, NULL));
        int files = open_files();
        double start = clock_now();
        OK(speed_open(&v, &x, 0));
        double took = clock_now() - start;
        if (!(v.peak > 1e8 && v.peak < 1e14)) fail_msg("%s: a peak of %g FLOP/s", types[t], v.peak);
        if (took > 2) fail_msg("%s: it took %.3f s", types[t], took);  // 0.03 and a product, on a machine of its own
        assert_true(fabs(speed_mfu(&v, 1e3 * v.flops / v.peak) - 1) < 1e-9);
        assert_true(isnan(speed_mfu(&v, 0)) && isnan(speed_mfu(&(speed){.flops = 1}, 1)));
        assert_true(speed_resident(&v) > 1000000);
        assert_int_equal(speed_device_bytes(&x), 0);
        assert_int_equal(device_memory(x.dev, &used, &total), ERR_UNAVAILABLE);
        speed_close(&v);
        assert_int_equal(open_files(), files);
        assert_int_equal(speed_resident(&v), 0);
        speed_close(&v);
        session_close(&x);
        drop_dir(dir);
    }
}

// --- products of BF16 pairs ------------------------------------------------------------------------------------------

// Whether pairs multiply faster than FMAs on this processor, while a test says so: what is done then has to be tested
// on processors where they don't, too (the Makefile wraps both calls). pays_here is of an instruction that is there.
typedef enum pays { MEASURED, SLOWER, FASTER } pays;
static pays pays_here, pays_anywhere;
bool __real_chains_pairs_pay(void);
bool __wrap_chains_pairs_pay(void) { return pays_here == MEASURED ? __real_chains_pairs_pay() : pays_here == FASTER; }
bool __real_cpu_native_pairs_pay(void);
bool __wrap_cpu_native_pairs_pay(void) {
    return pays_anywhere == MEASURED ? __real_cpu_native_pairs_pay() : pays_anywhere == FASTER;
}

enum { N = 32 };

// d = a b, of numbers with more bits than BF16 has.
static void multiply(device *d, float out[N * N]) {
    stream *s;
    float a[N * N], b[N * N];
    tensor ta = {a, FP32, 2, {N, N, 1, 1}}, tb = {b, FP32, 2, {N, N, 1, 1}}, td = {out, FP32, 2, {N, N, 1, 1}};
    for (int i = 0; i < N * N; i++) a[i] = 1 + (float)(i * 7 % 1000) / 999, b[i] = 1 - (float)(i * 13 % 1000) / 3001;
    OK(stream_open(d, &s));
    OK(device_ops(d)->matmul(&(matmul_args){.d = &td, .a = &ta, .b = &tb}, s));
    OK(stream_wait(s));
    stream_close(s);
}

static bool is_width(const device *d, const char *width) {
    char name[64];
    snprintf(name, sizeof name, "cpu %s x1 thread", width);
    return strcmp(device_about(d)->name, name) == 0;
}

// As it is opened, and as it is set: the same products, by each width.
static void products_are_set(void **state) {
    static const struct {
        vector_width width;
        const char *name;
    } widths[] = {{WIDTH_PORTABLE, "portable"},
                  {WIDTH_NEON, "neon"},
                  {WIDTH_AVX2, "avx2"},
                  {WIDTH_AVX512, "avx512"},
                  {WIDTH_AVX512BF16, "avx512bf16"}};
    float plain[N * N], pairs[N * N], again[N * N];
    device *d;
    (void)state;
    for (size_t k = 0; k < sizeof widths / sizeof *widths; k++) {
        device_options o = {.kind = DEVICE_CPU, .threads = 1, .width = widths[k].width};
        if (device_open(&d, &o) == ERR_UNAVAILABLE) continue;
        multiply(d, k ? again : plain);
        assert_memory_equal(k ? again : plain, plain, sizeof plain);
        OK(device_set_products(d, PRODUCTS_BF16_PAIRS));
        assert_true(is_width(d, widths[k].name));
        multiply(d, k ? again : pairs);
        assert_memory_equal(k ? again : pairs, pairs, sizeof pairs);
        assert_memory_not_equal(pairs, plain, sizeof plain);
        OK(device_set_products(d, PRODUCTS_FP32));
        multiply(d, again);
        assert_memory_equal(again, plain, sizeof plain);
        device_close(d);
        o.products = PRODUCTS_BF16_PAIRS;
        OK(device_open(&d, &o));
        multiply(d, again);
        assert_memory_equal(again, pairs, sizeof pairs);
        device_close(d);
    }
}

// The widest is that of the products: only pairs have AVX512_BF16, and where FMAs multiply them faster nothing has. Who
// asks for it by name gets it, for either products.
static void check_widths(bool pay) {
    device *d;
    OK(device_open(&d, &(device_options){.kind = DEVICE_CPU, .threads = 1}));
    assert_true(is_width(d, "avx512"));
    OK(device_set_products(d, PRODUCTS_BF16_PAIRS));
    assert_true(is_width(d, pay ? "avx512bf16" : "avx512"));
    OK(device_set_products(d, PRODUCTS_FP32));
    assert_true(is_width(d, "avx512"));
    device_close(d);
    for (products p = PRODUCTS_FP32; p <= PRODUCTS_BF16_PAIRS; p++) {
        OK(device_open(&d,
                       &(device_options){.kind = DEVICE_CPU, .threads = 1, .products = p, .width = WIDTH_AVX512BF16}));
        assert_true(is_width(d, "avx512bf16"));
        device_close(d);
    }
}

static void the_width_follows_the_products(void **state) {
    (void)state;
    if (!cpu_has_native_pairs()) skip();
    for (pays_here = SLOWER; pays_here <= FASTER; pays_here++) check_widths(pays_here == FASTER);
    pays_here = MEASURED;
    const bool pay = cpu_native_pairs_pay();
    check_widths(pay);
    assert_int_equal(peak_pairs(1) > 0, pay);
}

// In which runs the line about faster products is printed, and its words: where they are faster.
static void pairs_are_advised(void **state) {
    static const struct {
        const char *settings;
        bool advised;
    } cases[] = {{"", true},
                 {"compute = bf16\n", true},
                 {"compute = fp16\n", false},
                 {"products = bf16-pairs\n", false},
                 {"[device]\nsimd = avx512bf16\n", true},
                 {"[device]\nsimd = avx2\n", false},
                 {"[device]\nsimd = portable\n", false}};
    device *d;
    char text[SPEED_FASTER], more[128], *dir = make_dir();
    config c;
    (void)state;
    OK(device_open(&d, &(device_options){.kind = DEVICE_CPU, .threads = 1}));
    const session x = {.cfg = &c, .dev = d};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        snprintf(more, sizeof more, "[precision]\n%s", cases[k].settings);
        load_config(&c, dir, "", more);
        for (pays_anywhere = SLOWER; pays_anywhere <= FASTER; pays_anywhere++) {
            bool want = cases[k].advised && pays_anywhere == FASTER;
            if (speed_faster(&x, text) != want) fail_msg("%s: %s", cases[k].settings, want ? "expected advice" : text);
            assert_int_equal(strstr(text, "[precision] products = bf16-pairs ") == text, want);
            assert_int_equal(strstr(text, "rounds operands to BF16") != NULL, want && c.precision.compute == FP32);
        }
    }
    pays_anywhere = MEASURED;
    device_close(d);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flops_are_those_of_the_operations), cmocka_unit_test(the_peak_is_measured),
        cmocka_unit_test(codes_have_a_speed_each_way),       cmocka_unit_test(products_are_set),
        cmocka_unit_test(the_width_follows_the_products),    cmocka_unit_test(pairs_are_advised),
        cmocka_unit_test(the_peak_is_that_of_the_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
