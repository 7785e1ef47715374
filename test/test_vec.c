// test/test_vec.c: the vector layer under the CPU kernels. Every function gives the same bits at every width this
// machine has, the portable bodies are right by an independent reference, and the transcendental functions keep their
// error bounds.
#include "base/philox.h"
#include "gpu/cpu/kernel/typed.h"
#include "gpu/cpu/kernel/vmath.h"
#include "test/vec_probe.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCKS = 512, ROUNDS = 64, WIDTHS = 3 };

static uint32_t in[BLOCKS * PROBE_IN], out[WIDTHS][BLOCKS * PROBE_OUT];

// Widths that can run here, portable first.
static int widths(const probe_row *table[WIDTHS]) {
    int n = 0;
    table[n++] = probes_portable;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
        table[n++] = probes_avx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        table[n++] = probes_avx512;
#elif defined(__aarch64__)
    table[n++] = probes_neon;
#endif
    return n;
}

static const probe_row *row_named(const probe_row *table, const char *name) {
    for (; table->name; table++)
        if (strcmp(table->name, name) == 0) return table;
    fail_msg("no probe named %s", name);
    return NULL;
}

// --- inputs ----------------------------------------------------------------------------------------------------------

static uint32_t random_word(uint32_t *counter) {
    uint32_t w[4];
    philox4x32(w, 42, (*counter)++, 0, 0, 0);
    return w[0];
}

static uint32_t float_bits(float x) {
    uint32_t b;
    memcpy(&b, &x, 4);
    return b;
}
static float bits_float(uint32_t b) {
    float x;
    memcpy(&x, &b, 4);
    return x;
}

// Any bits, ordinary numbers, denormals, the edges of everything.
static uint32_t random_float(uint32_t *counter) {
    static const uint32_t edges[] = {0,          0x80000000, 1,          0x80000001, 0x007fffff, 0x00800000, 0x00800001,
                                     0x33800000, 0x3f7fffff, 0x3f800000, 0x3f800001, 0x4b000000, 0x4effffff, 0x4f000000,
                                     0xcf000000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001,
                                     0x477fefff, 0x477ff000, 0x38800000, 0x387fffff, 0x33000000};
    uint32_t w = random_word(counter), kind = w % 8;
    w = random_word(counter);
    if (kind == 0) return edges[w % (sizeof edges / sizeof *edges)];
    if (kind == 1) return w & 0x807fffff;                             // denormal
    if (kind <= 3) return w;                                          // anything
    if (kind == 4) return (w & 0x80ffffff) | 0x3f000000;              // 0.5 .. 2
    if (kind == 5) return (w & 0x807fffff) | (0x70u + w % 31) << 23;  // 2^-15 .. 2^15
    return float_bits((float)(int32_t)(w % 2001 - 1000) / 8);         // small numbers with ties
}

// A third of the sums c + a*b cancel: c is the rounded product, negated, a few units off, or moved far below it.
static void fill(uint32_t *counter, int64_t blocks) {
    for (int64_t i = 0; i < blocks; i++) {
        uint32_t *p = in + i * PROBE_IN;
        for (int l = 0; l < PROBE_IN; l++) p[l] = random_float(counter);
        for (int l = 0; l < PROBE_LANES; l++) {
            uint32_t w = random_word(counter), *c = p + 2 * PROBE_LANES + l;
            if (w % 3 != 0) continue;
            float product = bits_float(p[l]) * bits_float(p[PROBE_LANES + l]);
            *c = (float_bits(product) ^ 0x80000000u) + (w >> 8) % 5 - 2;
            if (w & 16) *c = float_bits(bits_float(*c) * ldexpf(1, -(int)(20 + (w >> 16) % 12)));
        }
    }
}

// --- every function, every width -------------------------------------------------------------------------------------

static bool both_nan(uint32_t a, uint32_t b) { return isnan(bits_float(a)) && isnan(bits_float(b)); }

static void compare(const probe_row *row, int width) {
    for (int64_t i = 0; i < (int64_t)BLOCKS * PROBE_OUT; i++) {
        uint32_t want = out[0][i], got = out[width][i];
        if (want == got || (row->kind != PROBE_EXACT && both_nan(want, got))) continue;
        const uint32_t *p = in + i / PROBE_OUT * PROBE_IN;
        int l = (int)(i % PROBE_LANES);
        fail_msg("%s, width %d, word %d: %08x, portable %08x, of %08x %08x %08x", row->name, width,
                 (int)(i % PROBE_OUT), got, want, p[l], p[PROBE_LANES + l], p[2 * PROBE_LANES + l]);
    }
}

static void test_widths_agree(void **state) {
    (void)state;
    const probe_row *table[WIDTHS];
    int n = widths(table);
    uint32_t counter = 0;
    for (int round = 0; round < ROUNDS; round++)
        for (int r = 0; table[0][r].name; r++) {
            if (r % 8 == 0) fill(&counter, BLOCKS);
            for (int i = 0; i < BLOCKS && table[0][r].kind == PROBE_COUNT; i++)
                in[i * PROBE_IN + 2 * PROBE_LANES] = (uint32_t)i % 17;
            for (int w = 0; w < n; w++) {
                assert_string_equal(table[w][r].name, table[0][r].name);
                memset(out[w], 0xA5, sizeof out[w]);
                table[w][r].run(out[w], in, BLOCKS);
                if (w > 0) compare(&table[w][r], w);
            }
        }
}

// --- the portable body against references ----------------------------------------------------------------------------

static void run(const char *name) { row_named(probes_portable, name)->run(out[0], in, BLOCKS); }

static void same_float(const char *what, uint32_t got, float want, const uint32_t *p, int l) {
    if (got == float_bits(want) || both_nan(got, float_bits(want))) return;
    fail_msg("%s of %08x %08x %08x: %08x, expected %08x", what, p[l], p[PROBE_LANES + l], p[2 * PROBE_LANES + l], got,
             float_bits(want));
}

static void test_arithmetic(void **state) {
    (void)state;
    uint32_t counter = 1u << 31;
    for (int round = 0; round < 8 * ROUNDS; round++) {
        fill(&counter, BLOCKS);
        for (int f = 0; f < 4; f++) {
            static const char *const name[] = {"fma", "fnma", "max", "min"};
            run(name[f]);
            for (int i = 0; i < BLOCKS * PROBE_LANES; i++) {
                const uint32_t *p = in + i / PROBE_LANES * PROBE_IN;
                int l = i % PROBE_LANES;
                float a = bits_float(p[l]), b = bits_float(p[PROBE_LANES + l]), c = bits_float(p[2 * PROBE_LANES + l]);
                float want = f == 0   ? fmaf(a, b, c)
                             : f == 1 ? fmaf(-a, b, c)
                             : f == 2 ? (a > b ? a : b)
                                      : (a < b ? a : b);
                same_float(name[f], out[0][i / PROBE_LANES * PROBE_OUT + l], want, p, l);
            }
        }
        run("round_int");
        for (int i = 0; i < BLOCKS * PROBE_LANES; i++) {
            const uint32_t *p = in + i / PROBE_LANES * PROBE_IN;
            float a = bits_float(p[i % PROBE_LANES]);
            int32_t want = a >= -0x1p31f && a < 0x1p31f ? (int32_t)lrintf(a) : INT32_MIN;
            assert_int_equal((int32_t)out[0][i / PROBE_LANES * PROBE_OUT + i % PROBE_LANES], want);
        }
    }
}

static void test_sum_is_the_tree(void **state) {
    (void)state;
    uint32_t counter = 5;
    for (int l = 0; l < BLOCKS * PROBE_IN; l++) in[l] = float_bits((float)(int32_t)random_word(&counter));
    run("sum");
    for (int i = 0; i < BLOCKS; i++) {
        float v[PROBE_LANES];
        memcpy(v, in + i * PROBE_IN, sizeof v);
        for (int half = 8; half; half /= 2)
            for (int l = 0; l < half; l++) v[l] = v[l] + v[l + half];
        assert_int_equal(out[0][i * PROBE_OUT], float_bits(v[0]));
    }
}

static void test_tails_touch_nothing_else(void **state) {
    (void)state;
    char *page = malloc(64);  // exact size: the sanitizer sees a byte too far
    for (int t = 0; t < 3; t++)
        for (int n = 0; n <= VL; n++) {
            size_t bytes = (size_t)n * dtype_bytes((dtype)t);
            char *exact = malloc(bytes ? bytes : 1);
            memset(exact, 0x3c, bytes ? bytes : 1);
            float lane[VL];
            vf_store(lane, typed_load_n(exact, (dtype)t, 0, n));
            for (int l = 0; l < VL; l++) assert_true(l < n ? lane[l] != 0 : float_bits(lane[l]) == 0);
            typed_store_n(exact, (dtype)t, 0, vf_set1(1), n);
            memset(page, 0x5a, 64);
            typed_store_n(page, (dtype)t, 0, vf_set1(1), n);
            assert_memory_equal(page, exact, bytes);
            for (size_t b = bytes; b < 64; b++) assert_int_equal(page[b], 0x5a);
            free(exact);
        }
    free(page);
}

// --- 16-bit types ----------------------------------------------------------------------------------------------------

static double half_value(uint32_t h) {
    int e = h >> 10 & 31, m = h & 1023;
    // no infinities here: 0x7c00 reads as 65536, where rounding starts
    double x = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h & 0x8000 ? -x : x;
}

static uint16_t store_one(bool bf16, float x) {
    float lane[VL] = {x};
    uint16_t h[VL];
    if (bf16) vf_store_bf16(h, vf_load(lane));
    else vf_store_fp16(h, vf_load(lane));
    return h[0];
}

static void test_every_half(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        uint16_t one[VL] = {(uint16_t)h};
        float f[VL];
        vf_store(f, vf_load_fp16(one));
        if ((h & 0x7fff) > 0x7c00) {
            assert_true(isnan(f[0]));
            assert_true((store_one(false, f[0]) & 0x7fff) > 0x7c00);
            continue;
        }
        if ((h & 0x7fff) == 0x7c00) assert_true(isinf(f[0]) && !signbit(f[0]) == !(h >> 15));
        else assert_true(f[0] == half_value(h) && !signbit(f[0]) == !(h >> 15));
        assert_int_equal(store_one(false, f[0]), h);
        if ((h & 0x7fff) == 0x7c00) continue;
        // ties to even, the next float either side to its own side
        float middle = (float)((half_value(h) + half_value(h + 1)) / 2);
        assert_int_equal(store_one(false, middle), h & 1 ? h + 1 : h);
        assert_int_equal(store_one(false, bits_float(float_bits(middle) - 1)), h);
        assert_int_equal(store_one(false, bits_float(float_bits(middle) + 1)), h + 1);
    }
    assert_int_equal(store_one(false, 3.4e38f), 0x7c00);
    assert_int_equal(store_one(false, -INFINITY), 0xfc00);
    assert_int_equal(store_one(false, 1e-30f), 0);
}

static void test_every_bf16(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        uint16_t one[VL] = {(uint16_t)h};
        float f[VL];
        vf_store(f, vf_load_bf16(one));
        assert_int_equal(float_bits(f[0]), h << 16);
        if ((h & 0x7fff) > 0x7f80) {
            assert_true((store_one(true, f[0]) & 0x7fff) > 0x7f80);
            // payload in the lost bits
            assert_true((store_one(true, bits_float((h << 16 & 0xff800000) | 1)) & 0x7fff) > 0x7f80);
            continue;
        }
        assert_int_equal(store_one(true, f[0]), h);
        if ((h & 0x7fff) == 0x7f80) continue;
        assert_int_equal(store_one(true, bits_float(h << 16 | 0x8000)), h & 1 ? h + 1 : h);
        assert_int_equal(store_one(true, bits_float(h << 16 | 0x7fff)), h);
        assert_int_equal(store_one(true, bits_float(h << 16 | 0x8001)), h + 1);
    }
}

// --- exp, log, tanh, gelu, silu --------------------------------------------------------------------------------------

static long double exact_gelu_arg(long double x) { return 0.79788456080286535587989L * (x + 0.044715L * x * x * x); }
static long double exact_gelu(long double x) { return x / (1 + expl(-2 * exact_gelu_arg(x))); }
static long double exact_gelu_erf(long double x) { return x * erfcl(-x / sqrtl(2)) / 2; }
static long double exact_gelu_erf_grad(long double x) {
    return erfcl(-x / sqrtl(2)) / 2 + x * expl(-x * x / 2) / sqrtl(8 * atanl(1));
}
static long double exact_gelu_grad(long double x) {
    long double s = 1 / (1 + expl(-2 * exact_gelu_arg(x))), rest = 1 / (1 + expl(2 * exact_gelu_arg(x)));
    return s + 2 * x * s * rest * 0.79788456080286535587989L * (1 + 3 * 0.044715L * x * x);
}

static long double exact_silu(long double x) { return x / (1 + expl(-x)); }
static long double exact_silu_grad(long double x) {
    long double s = 1 / (1 + expl(-x));
    return s + x * s * (1 / (1 + expl(x)));
}

// The distance in units of want's last place, or of `least` where want is smaller.
static double ulps(float got, long double want, double least) {
    int e;
    frexpl(fabsl(want) > least ? want : least, &e);
    double unit = ldexp(1, e - 24 < -149 ? -149 : e - 24);
    return (double)(fabsl(got - want) / unit);
}

typedef struct math_case {
    const char *name;
    long double (*exact)(long double);
    float from, to;  // of |x|
    int sign;        // of x: 1, -1, or 0 for both
    double bound;    // in ulp
    double least;    // below this magnitude of the result the error is measured in its ulp
} math_case;

static void check_math(const math_case *c) {
    double worst = 0;
    float at = 0;
    const char *wanted = getenv("LOCKSTEP_TEST_STRIDE");  // 1: every float, which takes an hour
    uint32_t x = float_bits(c->from), last = float_bits(c->to),
             stride = wanted && atoi(wanted) > 0 ? (uint32_t)atoi(wanted) : 1009;
    while (x <= last) {
        for (int i = 0; i < BLOCKS * PROBE_LANES; i++, x = x <= last ? x + stride : x)
            in[i / PROBE_LANES * PROBE_IN + i % PROBE_LANES] =
                (x <= last ? x : last) | (c->sign < 0 || (c->sign == 0 && i % 2) ? 0x80000000u : 0);
        run(c->name);
        for (int i = 0; i < BLOCKS * PROBE_LANES; i++) {
            float a = bits_float(in[i / PROBE_LANES * PROBE_IN + i % PROBE_LANES]);
            double u = ulps(bits_float(out[0][i / PROBE_LANES * PROBE_OUT + i % PROBE_LANES]), c->exact(a), c->least);
            if (u > worst || isnan(u)) worst = u, at = a;
            if (isnan(u)) break;
        }
    }
    print_message("%-9s [%g, %g]: %.3f ulp at %a\n", c->name, c->from, c->to, worst, at);
    if (!(worst <= c->bound)) fail_msg("%s(%a): %.3f ulp, allowed %.3f", c->name, at, worst, c->bound);
}

static void test_math_errors(void **state) {
    (void)state;
    const math_case cases[] = {
        {"exp", expl, 0, 88.72283f, 1, 1.1, 0},
        {"exp", expl, 1e-30f, 103.9f, -1, 1.1, 0},
        {"log", logl, 1e-45f, 3.4028234e38f, 1, 1.0, 0},
        {"tanh", tanhl, 0, 100, 0, 2.5, 0},
        {"gelu", exact_gelu, 0, 1e10f, 1, 2.0, 0},
        {"gelu", exact_gelu, 1e-30f, 10, 0, 5.0, 0.0625},
        {"gelu_grad", exact_gelu_grad, 0, 40, 1, 3.0, 0},
        {"gelu_grad", exact_gelu_grad, 1e-30f, 40, 0, 3.0, 1},
        {"gelu_erf", exact_gelu_erf, 0, 1e10f, 1, 3.0, 0},
        {"gelu_erf", exact_gelu_erf, 1e-30f, 12, 0, 6.0, 0.0625},
        {"gelu_erf_grad", exact_gelu_erf_grad, 0, 40, 1, 3.0, 0},
        {"gelu_erf_grad", exact_gelu_erf_grad, 1e-30f, 40, 0, 3.0, 1},
        {"silu", exact_silu, 0, 1e10f, 1, 2.5, 0},
        {"silu", exact_silu, 1e-30f, 80, -1, 2.5, 0},
        {"silu_grad", exact_silu_grad, 0, 80, 1, 3.0, 0},
        {"silu_grad", exact_silu_grad, 1e-30f, 80, -1, 3.0, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_math(&cases[i]);
}

static float one(vf v) {
    float lane[VL];
    vf_store(lane, v);
    return lane[0];
}

static void test_math_edges(void **state) {
    (void)state;
    assert_true(one(vf_exp(vf_set1(88.8f))) == INFINITY && one(vf_exp(vf_set1(INFINITY))) == INFINITY);
    assert_true(one(vf_exp(vf_set1(-104.0f))) == 0 && one(vf_exp(vf_set1(-INFINITY))) == 0 &&
                one(vf_exp(vf_set1(-3e38f))) == 0);
    assert_true(one(vf_exp(vf_set1(0))) == 1 && one(vf_exp(vf_set1(-0.0f))) == 1);
    assert_true(one(vf_exp(vf_set1(-103.97f))) == 0x1p-149f);
    assert_true(one(vf_log(vf_set1(0))) == -INFINITY && one(vf_log(vf_set1(-0.0f))) == -INFINITY);
    assert_true(one(vf_log(vf_set1(INFINITY))) == INFINITY && one(vf_log(vf_set1(1))) == 0);
    assert_true(isnan(one(vf_log(vf_set1(-1)))) && isnan(one(vf_log(vf_set1(-INFINITY)))));
    assert_true(one(vf_tanh(vf_set1(20))) == 1 && one(vf_tanh(vf_set1(-INFINITY))) == -1);
    assert_true(one(vf_tanh(vf_set1(0))) == 0 && signbit(one(vf_tanh(vf_set1(-0.0f)))));
    assert_true(one(vf_gelu(vf_set1(INFINITY))) == INFINITY && one(vf_gelu(vf_set1(-1e30f))) == 0 &&
                one(vf_gelu(vf_set1(1e30f))) == 1e30f);
    assert_true(one(vf_gelu_grad(vf_set1(INFINITY))) == 1 && fabsf(one(vf_gelu_grad(vf_set1(-INFINITY)))) < 1e-30f);
    assert_true(one(vf_silu(vf_set1(INFINITY))) == INFINITY && one(vf_silu(vf_set1(-1e30f))) == 0 &&
                one(vf_silu(vf_set1(0))) == 0);
    assert_true(one(vf_silu_grad(vf_set1(INFINITY))) == 1 && fabsf(one(vf_silu_grad(vf_set1(-INFINITY)))) < 1e-30f);
    vf nan = vf_set1(NAN);
    assert_true(isnan(one(vf_exp(nan))) && isnan(one(vf_log(nan))) && isnan(one(vf_tanh(nan))));
    assert_true(isnan(one(vf_gelu(nan))) && isnan(one(vf_gelu_grad(nan))));
    assert_true(isnan(one(vf_gelu_erf(nan))) && isnan(one(vf_gelu_erf_grad(nan))));
    assert_true(one(vf_gelu_erf(vf_set1(-1e30f))) == 0 && one(vf_gelu_erf(vf_set1(1e30f))) == 1e30f);
    assert_true(one(vf_gelu_erf_grad(vf_set1(INFINITY))) == 1 &&
                fabsf(one(vf_gelu_erf_grad(vf_set1(-INFINITY)))) < 1e-30f);
    assert_true(isnan(one(vf_silu(nan))) && isnan(one(vf_silu_grad(nan))));
}

// --- steps of BF16 products ------------------------------------------------------------------------------------------

// x in units of 2^-170, for 2^-150 <= |x| < 2^-60.
static __int128 units(float x) {
    int e;
    double m = frexp((double)x, &e);
    return (__int128)(int64_t)(m * 0x1p26) << (e - 26 + 170 > 0 ? e - 26 + 170 : 0);
}

// units * 2^-170, rounded to 24 bits, to nearest even, as if exponents had no lower end; a zero of its sign where that
// is below 2^-126.
static float flushed(__int128 x) {
    bool negative = x < 0;
    unsigned __int128 m = negative ? -(unsigned __int128)x : (unsigned __int128)x;
    int drop = 0;
    while (m >> drop >= (1u << 24)) drop++;
    uint64_t top = (uint64_t)(m >> drop);
    unsigned __int128 rest = m - ((unsigned __int128)top << drop), half = drop ? (unsigned __int128)1 << (drop - 1) : 0;
    if (drop && (rest > half || (rest == half && (top & 1)))) top++;
    double size = ldexp((double)top, drop - 170);
    return copysignf(size < 0x1p-126 ? 0 : (float)size, negative ? -1.0f : 1.0f);
}

// step(a, b, c) is the exact a*b + c, rounded and flushed, where it matters: around 2^-126. Half of the sums land
// within a few units of it.
static void test_a_step_is_exact(void **state) {
    (void)state;
    uint32_t counter = 1u << 29;
    const probe_row *row = row_named(probes_portable, "product_exact");
    int kept = 0, gone = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (int64_t i = 0; i < BLOCKS * PROBE_LANES; i++) {
            uint32_t w = random_word(&counter), v = random_word(&counter),
                     *p = in + i / PROBE_LANES * PROBE_IN + i % PROBE_LANES;
            p[0] = (w & 0x807f0000u) | (50 + w % 16) << 23;  // a*b from 2^-152 to 2^-120
            p[PROBE_LANES] = (v & 0x807f0000u) | (52 + v % 16) << 23;
            p[2 * PROBE_LANES] = (random_word(&counter) & 0x80ffffffu) | 0x800000u;  // 2^-126 to 2^-124
            if (v & 0x100) p[2 * PROBE_LANES] = (p[2 * PROBE_LANES] & 0x80000000u) | (0x800000u + (w >> 8) % 3);
            if (v & 0x200) p[0] &= 0xff800000u | (v << 10 & 0x7f0000);  // fewer bits: sums that are halfway
        }
        row->run(out[0], in, BLOCKS);
        for (int64_t i = 0; i < BLOCKS * PROBE_LANES; i++) {
            const uint32_t *p = in + i / PROBE_LANES * PROBE_IN;
            int l = (int)(i % PROBE_LANES);
            float a = bits_float(p[l]), b = bits_float(p[PROBE_LANES + l]), c = bits_float(p[2 * PROBE_LANES + l]);
            int ea, eb;
            int64_t ma = (int64_t)(frexp((double)a, &ea) * 256), mb = (int64_t)(frexp((double)b, &eb) * 256);
            __int128 exact = ((__int128)(ma * mb) << (ea + eb - 16 + 170)) + units(c);
            if (exact == 0) continue;  // +0
            float want = flushed(exact);
            same_float("step", out[0][i / PROBE_LANES * PROBE_OUT + l], want, p, l);
            kept += want != 0, gone += want == 0;
        }
    }
    assert_true(kept > 10000 && gone > 10000);
}

// --- random numbers --------------------------------------------------------------------------------------------------

static void test_philox(void **state) {
    (void)state;
    uint32_t counter = 77;
    for (int i = 0; i < 2000; i++) {
        uint32_t c[4], want[4], got[4 * VL];
        for (int k = 0; k < 4; k++) c[k] = random_word(&counter);
        if (i == 0) c[0] = 0xfffffff8u;  // the counter may wrap
        uint64_t seed = (uint64_t)random_word(&counter) << 32 | random_word(&counter);
        vi w[4];
        vi_philox64(w, seed, c[0], c[1], c[2], c[3]);
        for (int k = 0; k < 4; k++) vi_store((int32_t *)got + k * VL, w[k]);
        for (uint32_t e = 0; e < 4 * VL; e++) {
            philox4x32(want, seed, c[0] + e / 4, c[1], c[2], c[3]);
            assert_int_equal(got[e], want[e % 4]);
        }
    }
}

static void test_dropout_factors(void **state) {
    (void)state;
    const float ps[] = {0, 0.1f, 0.5f, 0.9999999f, 1e-9f, 1e-12f};
    int64_t gone = 0;
    for (size_t k = 0; k < sizeof ps / sizeof *ps; k++)
        for (int64_t e = 0; e < 70; e += 3)
            for (int64_t n = 0; n < 200; n += 13) {
                dropout_key key = {
                    .seed = 0x123456789abcdefull, .step = 7, .first_sample = 3, .site = SITE_DROPOUT + 9, .p = ps[k]};
                float *f = malloc((size_t)n * sizeof *f + 1);
                dropout_factors(f, e, n, &key, 2);
                for (int64_t i = 0; i < n; i++) {
                    uint32_t w[4];
                    philox4x32(w, key.seed, (uint32_t)((e + i) / 4), key.site, 5, key.step);
                    bool goes = w[(e + i) % 4] < (double)ps[k] * 0x1p32;
                    assert_true(f[i] == (goes ? 0 : 1.0f / (1.0f - ps[k])));
                    gone += goes && ps[k] == 0.5f;
                }
                free(f);
            }
    assert_true(gone > 10000);
    assert_int_equal(dropout_limit(0), 0);
    assert_int_equal(dropout_limit(0.5f), 0x80000000u);
    assert_int_equal(dropout_limit(1e-12f), 1);  // word 0 only
}

// An argument is the name of the only test to run.
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widths_agree),    cmocka_unit_test(test_arithmetic),
        cmocka_unit_test(test_sum_is_the_tree), cmocka_unit_test(test_tails_touch_nothing_else),
        cmocka_unit_test(test_every_half),      cmocka_unit_test(test_every_bf16),
        cmocka_unit_test(test_math_errors),     cmocka_unit_test(test_math_edges),
        cmocka_unit_test(test_philox),          cmocka_unit_test(test_dropout_factors),
        cmocka_unit_test(test_a_step_is_exact),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("vec", tests, NULL, NULL);
}
