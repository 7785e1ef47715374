// test/test_attention.c: attention is softmax(q k^T / sqrt(D)) v and its gradient, for any shape, storage and dropout;
// the same bits on every vector width that this machine has and for any number of threads, in one pass or two; and it
// writes nothing that is not its own.
//
// The reference is the definition in double, with a whole row of probabilities and one Philox call for each of them.
// Its gradient is itself held against finite differences, and so is the kernel's.
#include "base/philox.h"
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/typed.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct width {
    const char *name;
    const ops *table;
} width;

// Portable first, the widest last.
static int widths(width *w) {
    int n = 0;
    w[n++] = (width){"portable", &cpu_ops_portable};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
        w[n++] = (width){"avx2", &cpu_ops_avx2};
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        w[n++] = (width){"avx512", &cpu_ops_avx512};
#elif defined(__aarch64__)
    w[n++] = (width){"neon", &cpu_ops_neon};
#endif
    return n;
}

// --- one problem -----------------------------------------------------------------------------------------------------

enum { GUARD = 256 };

typedef struct shape {
    int B, H, T, D;
    dtype type;
    float p;
} shape;

typedef struct problem {
    shape s;
    dropout_key key;
    const dropout_key *drop;
    tensor qkv, dy;              // in: allocated to the byte, so that ASan sees any read past the end
    tensor y, lse, dqkv, delta;  // out: between guards
} problem;

static uint32_t noise_at;
static float noise(void) {  // uniform in [-1,1)
    uint32_t r[4];
    philox4x32(r, 11, noise_at++, 0, 0, 0);
    return 2 * philox_uniform(r[0]) - 1;
}

static tensor make_in(dtype t, int64_t a, int64_t b, int64_t c) {
    tensor x = {NULL, t, 3, {a, b, c, 1}};
    assert_non_null(x.data = malloc(tensor_bytes(&x)));
    return x;
}
static tensor make_out(dtype t, int64_t a, int64_t b, int64_t c) {
    tensor x = {NULL, t, 3, {a, b, c, 1}};
    char *p = malloc(tensor_bytes(&x) + 2 * GUARD);
    assert_non_null(p);
    x.data = p + GUARD;
    return x;
}
static void poison(tensor *t) { memset((char *)t->data - GUARD, 0xa5, tensor_bytes(t) + 2 * GUARD); }
static void check_guards(const tensor *t) {
    const unsigned char *p = (const unsigned char *)t->data - GUARD,
                        *q = (const unsigned char *)t->data + tensor_bytes(t);
    for (int i = 0; i < GUARD; i++)
        if (p[i] != 0xa5 || q[i] != 0xa5)
            fail_msg("written outside, %d bytes from the tensor", p[i] != 0xa5 ? i - GUARD : i);
}

static void make(problem *x, shape s) {
    int C = s.H * s.D;
    *x = (problem){.s = s,
                   .key = {0x123456789abcdefull, .step = 7, .first_sample = 40, .site = SITE_DROPOUT + 9, .p = s.p}};
    x->drop = s.p > 0 ? &x->key : NULL;
    x->qkv = make_in(s.type, s.B, s.T, 3 * C), x->dy = make_in(s.type, s.B, s.T, C);
    x->y = make_out(s.type, s.B, s.T, C), x->lse = make_out(FP32, s.B, s.H, s.T);
    x->dqkv = make_out(s.type, s.B, s.T, 3 * C), x->delta = make_out(FP32, s.B, s.H, s.T);
    for (int64_t i = 0; i < tensor_count(&x->qkv); i++) typed_set(x->qkv.data, s.type, i, 2 * noise());
    for (int64_t i = 0; i < tensor_count(&x->dy); i++) typed_set(x->dy.data, s.type, i, noise());
}

static void drop_problem(problem *x) {
    free(x->qkv.data), free(x->dy.data);
    tensor *out[] = {&x->y, &x->lse, &x->dqkv, &x->delta};
    for (int i = 0; i < 4; i++) free((char *)out[i]->data - GUARD);
}

static void run(problem *x, const width *w, pool *threads) {
    stream s = {.workers = threads};
    poison(&x->y), poison(&x->lse), poison(&x->dqkv), poison(&x->delta);
    assert_int_equal(
        w->table->attention_forward(
            &(attention_forward_args){.y = &x->y, .lse = &x->lse, .qkv = &x->qkv, .heads = x->s.H, .drop = x->drop},
            &s),
        ERR_OK);
    check_guards(&x->y), check_guards(&x->lse);
    assert_int_equal(w->table->attention_backward(&(attention_backward_args){.dqkv = &x->dqkv,
                                                                             .delta = &x->delta,
                                                                             .dy = &x->dy,
                                                                             .y = &x->y,
                                                                             .lse = &x->lse,
                                                                             .qkv = &x->qkv,
                                                                             .heads = x->s.H,
                                                                             .drop = x->drop},
                                                  &s),
                     ERR_OK);
    check_guards(&x->y), check_guards(&x->lse), check_guards(&x->dqkv), check_guards(&x->delta);
}

static void run_best(problem *x) {
    width w[3];
    int n = widths(w);
    pool *p;
    assert_int_equal(pool_open(&p, 1), ERR_OK);
    run(x, &w[n - 1], p);
    pool_close(p);
}

// --- the definition, in double ---------------------------------------------------------------------------------------

static double *doubles(int64_t n) {
    double *p = calloc((size_t)n, sizeof *p);
    assert_non_null(p);
    return p;
}
static double *to_doubles(const tensor *t) {
    double *p = doubles(tensor_count(t));
    for (int64_t i = 0; i < tensor_count(t); i++) p[i] = (double)typed_get(t->data, t->type, i);
    return p;
}

// 0 or 1/(1-p) for the probability of (b,h,i,j).
static double kept(const problem *x, int b, int h, int i, int j) {
    if (x->s.p == 0) return 1;
    int64_t e = ((int64_t)h * x->s.T + i) * x->s.T + j;
    uint32_t r[4];
    philox4x32(r, x->key.seed, (uint32_t)(e / 4), x->key.site, x->key.first_sample + (uint32_t)b, x->key.step);
    return r[e % 4] < (double)x->s.p * 0x1p32 ? 0 : 1 / (1 - (double)x->s.p);
}

static const double *part(const problem *x, const double *qkv, int b, int t, int h, int which) {
    int C = x->s.H * x->s.D;
    return qkv + (((int64_t)b * x->s.T + t) * 3 + which) * C + h * x->s.D;
}
static double dot(const double *a, const double *b, int n) {
    double s = 0;
    for (int i = 0; i < n; i++) s += a[i] * b[i];
    return s;
}

// Probabilities of row i before dropout; returns its log-sum-exp.
static double probabilities(const problem *x, const double *qkv, int b, int h, int i, double *p) {
    double max = -INFINITY, sum = 0;
    for (int j = 0; j <= i; j++) {
        p[j] = dot(part(x, qkv, b, i, h, 0), part(x, qkv, b, j, h, 1), x->s.D) / sqrt(x->s.D);
        max = fmax(max, p[j]);
    }
    for (int j = 0; j <= i; j++) sum += p[j] = exp(p[j] - max);
    for (int j = 0; j <= i; j++) p[j] /= sum;
    return max + log(sum);
}

static void reference_forward(const problem *x, const double *qkv, double *y, double *lse) {
    int B = x->s.B, H = x->s.H, T = x->s.T, D = x->s.D;
    double *p = doubles(T);
    memset(y, 0, (size_t)B * T * H * D * sizeof *y);
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int i = 0; i < T; i++) {
                lse[(b * H + h) * T + i] = probabilities(x, qkv, b, h, i, p);
                double *out = y + ((int64_t)b * T + i) * H * D + h * D;
                for (int j = 0; j <= i; j++) {
                    double w = p[j] * kept(x, b, h, i, j);
                    for (int d = 0; d < D; d++) out[d] += w * part(x, qkv, b, j, h, 2)[d];
                }
            }
    free(p);
}

// y is given, so that the rounding of a 16-bit y enters where the kernel has it: in delta.
static void reference_backward(const problem *x, const double *qkv, const double *y, const double *dy, double *dqkv) {
    int B = x->s.B, H = x->s.H, T = x->s.T, D = x->s.D;
    double *p = doubles(T);
    memset(dqkv, 0, (size_t)B * T * 3 * H * D * sizeof *dqkv);
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int i = 0; i < T; i++) {
                probabilities(x, qkv, b, h, i, p);
                int64_t row = ((int64_t)b * T + i) * H * D + h * D;
                double delta = dot(dy + row, y + row, D), *dq = (double *)part(x, dqkv, b, i, h, 0);
                for (int j = 0; j <= i; j++) {
                    double m = kept(x, b, h, i, j), dp = m * dot(dy + row, part(x, qkv, b, j, h, 2), D);
                    double ds = p[j] * (dp - delta) / sqrt(D);
                    double *dk = (double *)part(x, dqkv, b, j, h, 1), *dv = (double *)part(x, dqkv, b, j, h, 2);
                    for (int d = 0; d < D; d++) {
                        dv[d] += p[j] * m * dy[row + d];
                        dq[d] += ds * part(x, qkv, b, j, h, 1)[d];
                        dk[d] += ds * part(x, qkv, b, i, h, 0)[d];
                    }
                }
            }
    free(p);
}

// --- comparing -------------------------------------------------------------------------------------------------------

// Largest and mean square error against the largest and mean square of what is right; `floor` is added to the latter
// where that may be 0.
static void check_close(const problem *x, const char *what, const tensor *got, const double *want, double tolerance,
                        double floor) {
    double worst = 0, largest = floor, errors = 0, squares = floor * floor;
    for (int64_t i = 0; i < tensor_count(got); i++) {
        double g = (double)typed_get(got->data, got->type, i), e = fabs(g - want[i]);
        if (!(e <= 1e30)) e = 1e30;
        worst = fmax(worst, e), largest = fmax(largest, fabs(want[i]));
        errors += e * e, squares += want[i] * want[i];
    }
    if (!(worst <= 2 * tolerance * largest) || !(errors <= tolerance * tolerance * squares))
        fail_msg("%s of B %d H %d T %d D %d type %d dropout %g: error %g of %g, L2 %g; allowed %g", what, x->s.B,
                 x->s.H, x->s.T, x->s.D, x->s.type, (double)x->s.p, worst, largest, sqrt(errors / squares), tolerance);
}

static double tolerance_of(dtype t) { return t == FP32 ? 1e-6 : t == FP16 ? 0x1p-11 : 0x1p-8; }

static void check_against_reference(shape s) {
    problem x;
    make(&x, s);
    run_best(&x);
    double *qkv = to_doubles(&x.qkv), *dy = to_doubles(&x.dy);
    double *y = doubles(tensor_count(&x.y)), *lse = doubles(tensor_count(&x.lse));
    double *dqkv = doubles(tensor_count(&x.dqkv)), *delta = doubles(tensor_count(&x.delta));
    reference_forward(&x, qkv, y, lse);
    check_close(&x, "y", &x.y, y, tolerance_of(s.type), 0);
    check_close(&x, "lse", &x.lse, lse, 1e-6, 1);
    double *stored = to_doubles(&x.y);
    reference_backward(&x, qkv, s.type == FP32 ? y : stored, dy, dqkv);
    check_close(&x, "dqkv", &x.dqkv, dqkv, tolerance_of(s.type), 0);
    for (int b = 0; b < s.B; b++)
        for (int h = 0; h < s.H; h++)
            for (int i = 0; i < s.T; i++) {
                int64_t row = ((int64_t)b * s.T + i) * s.H * s.D + h * s.D;
                delta[(b * s.H + h) * s.T + i] = dot(dy + row, stored + row, s.D);
            }
    check_close(&x, "delta", &x.delta, delta, 1e-6, 1);
    free(qkv), free(dy), free(y), free(lse), free(dqkv), free(delta), free(stored);
    drop_problem(&x);
}

static const int times[] = {1, 2, 15, 16, 17, 64, 65, 130}, heads_of[] = {1, 8, 12, 16, 20, 64, 80};
static const struct { int B, H; } pairs[] = {{1, 1}, {2, 3}, {1, 2}, {3, 1}};
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static void every_shape(void **state) {
    (void)state;
    int n = 0;
    for (int t = 0; t < COUNT(times); t++)
        for (int d = 0; d < COUNT(heads_of); d++, n++)
            for (int drop = 0; drop < 2; drop++)
                check_against_reference(
                    (shape){pairs[n % 4].B, pairs[n % 4].H, times[t], heads_of[d], FP32, drop ? 0.2f : 0});
    check_against_reference((shape){1, 2, 257, 16, FP32, 0});  // more queries than one item of forward takes
    check_against_reference((shape){2, 1, 345, 24, FP32, 0.1f});
}

static void sixteen_bits(void **state) {
    (void)state;
    for (int t = 0; t < COUNT(times); t++)
        for (int d = 0; d < COUNT(heads_of); d++)
            for (int type = BF16; type <= FP16; type++)
                check_against_reference((shape){1, 2, times[t], heads_of[d], (dtype)type, t % 2 ? 0.1f : 0});
}

static void heavy_dropout(void **state) {
    (void)state;
    check_against_reference((shape){2, 3, 67, 8, FP32, 0.9f});
    check_against_reference((shape){2, 3, 128, 16, FP32, 0.5f});
}

// --- finite differences ----------------------------------------------------------------------------------------------

static double reference_loss(const problem *x, const double *qkv, const double *dy, double *y, double *lse) {
    reference_forward(x, qkv, y, lse);
    return dot(dy, y, (int)tensor_count(&x->y));
}

static void check_differences(shape s) {
    problem x;
    make(&x, s);
    run_best(&x);
    int64_t n = tensor_count(&x.qkv);
    double *qkv = to_doubles(&x.qkv), *dy = to_doubles(&x.dy);
    double *y = doubles(tensor_count(&x.y)), *lse = doubles(tensor_count(&x.lse));
    double *analytic = doubles(n), *numeric = doubles(n);
    reference_forward(&x, qkv, y, lse);
    reference_backward(&x, qkv, y, dy, analytic);
    for (int64_t i = 0; i < n; i++) {
        const double h = 1e-5, at = qkv[i];
        qkv[i] = at + h;
        double up = reference_loss(&x, qkv, dy, y, lse);
        qkv[i] = at - h;
        double down = reference_loss(&x, qkv, dy, y, lse);
        qkv[i] = at;
        numeric[i] = (up - down) / (2 * h);
        if (!(fabs(numeric[i] - analytic[i]) <= 1e-8))
            fail_msg("reference gradient %g, difference %g", analytic[i], numeric[i]);
    }
    check_close(&x, "dqkv", &x.dqkv, numeric, 1e-6, 0);
    free(qkv), free(dy), free(y), free(lse), free(analytic), free(numeric);
    drop_problem(&x);
}

static void finite_differences(void **state) {
    (void)state;
    check_differences((shape){1, 1, 1, 1, FP32, 0});
    check_differences((shape){2, 2, 5, 3, FP32, 0});
    check_differences((shape){1, 2, 17, 8, FP32, 0.3f});
    check_differences((shape){1, 1, 18, 20, FP32, 0});
    check_differences((shape){1, 1, 66, 4, FP32, 0.1f});
}

// --- the same bits ---------------------------------------------------------------------------------------------------

static void check_same(const problem *x, const char *what, const tensor *a, const void *b, const char *width,
                       int threads) {
    if (memcmp(a->data, b, tensor_bytes(a)))
        fail_msg("%s of B %d H %d T %d D %d type %d dropout %g: other bits on %s, %d threads", what, x->s.B, x->s.H,
                 x->s.T, x->s.D, x->s.type, (double)x->s.p, width, threads);
}

static void check_bits(shape s) {
    problem x;
    make(&x, s);
    width w[3];
    int n = widths(w);
    tensor *out[] = {&x.y, &x.lse, &x.dqkv, &x.delta};
    const char *name[] = {"y", "lse", "dqkv", "delta"};
    void *first[4] = {NULL};
    for (int threads = 1; threads <= 4; threads++) {
        pool *p;
        assert_int_equal(pool_open(&p, threads), ERR_OK);
        for (int i = 0; i < n; i++) {
            run(&x, &w[i], p);
            for (int k = 0; k < 4; k++) {
                if (first[k]) check_same(&x, name[k], out[k], first[k], w[i].name, threads);
                else if ((first[k] = malloc(tensor_bytes(out[k]))))
                    memcpy(first[k], out[k]->data, tensor_bytes(out[k]));
                assert_non_null(first[k]);
            }
        }
        pool_close(p);
    }
    for (int k = 0; k < 4; k++) free(first[k]);
    drop_problem(&x);
}

static void same_bits(void **state) {
    (void)state;
    int n = 0;
    for (int t = 0; t < COUNT(times); t++)
        for (int d = 0; d < COUNT(heads_of); d++, n++)
            check_bits(
                (shape){pairs[n % 4].B, pairs[n % 4].H, times[t], heads_of[d], (dtype)(n % 3), n % 5 < 2 ? 0.1f : 0});
    check_bits((shape){1, 1, 300, 64, FP32, 0});  // one pair: two passes from two threads on
    check_bits((shape){1, 3, 200, 20, BF16, 0.2f});
}

// Scratch that is full of what another shape left behind, here NaN, changes nothing; and neither does a key with p = 0.
static void check_used_scratch(const width *w, shape s) {
    pool *fresh, *used;
    assert_int_equal(pool_open(&fresh, 2), ERR_OK);
    assert_int_equal(pool_open(&used, 2), ERR_OK);
    problem x, other;
    make(&x, s);
    make(&other, (shape){3, 2, 150, 40, FP32, 0});
    for (int64_t i = 0; i < tensor_count(&other.qkv); i++) typed_set(other.qkv.data, FP32, i, NAN);
    run(&x, w, fresh);
    void *y = malloc(tensor_bytes(&x.y)), *dqkv = malloc(tensor_bytes(&x.dqkv));
    assert_true(y && dqkv);
    memcpy(y, x.y.data, tensor_bytes(&x.y)), memcpy(dqkv, x.dqkv.data, tensor_bytes(&x.dqkv));
    run(&other, w, used);
    x.drop = &x.key;  // with p = 0
    run(&x, w, used);
    check_same(&x, "y", &x.y, y, w->name, 2);
    check_same(&x, "dqkv", &x.dqkv, dqkv, w->name, 2);
    free(y), free(dqkv);
    drop_problem(&x), drop_problem(&other);
    pool_close(fresh), pool_close(used);
}

static void scratch_and_zero_dropout(void **state) {
    (void)state;
    width w[3];
    int n = widths(w);
    for (int i = 0; i < n; i++)
        for (int t = 1; t < 100; t += 9) check_used_scratch(&w[i], (shape){2, 1, t, 12, FP32, 0});
}

// --- large logits ----------------------------------------------------------------------------------------------------

// Whole numbers up to 50 at D = 16: logits up to 10,000 that FP32 holds exactly. What remains is the rounding of lse,
// half a unit of 2^-10 at that size, in the probabilities of backward.
static void large_logits(void **state) {
    (void)state;
    problem x;
    make(&x, (shape){1, 2, 130, 16, FP32, 0});
    int C = 32;
    for (int t = 0; t < 130; t++)
        for (int c = 0; c < 2 * C; c++) {
            float v = t % 9 == 0 ? 50 : rintf(50 * noise());
            // the key before again: the row is divided
            if (c >= C && t % 4 == 1) v = ((float *)x.qkv.data)[(t - 1) * 3 * C + c];
            ((float *)x.qkv.data)[t * 3 * C + c] = v;
        }
    run_best(&x);
    double *qkv = to_doubles(&x.qkv), *dy = to_doubles(&x.dy);
    double *y = doubles(tensor_count(&x.y)), *lse = doubles(tensor_count(&x.lse));
    double *dqkv = doubles(tensor_count(&x.dqkv)), largest = 0;
    reference_forward(&x, qkv, y, lse);
    reference_backward(&x, qkv, y, dy, dqkv);
    for (int64_t i = 0; i < tensor_count(&x.lse); i++) largest = fmax(largest, lse[i]);
    assert_true(largest >= 10000);
    check_close(&x, "y", &x.y, y, 1e-6, 0);
    check_close(&x, "lse", &x.lse, lse, 1e-7, 0);
    check_close(&x, "dqkv", &x.dqkv, dqkv, 1e-3, 0);
    free(qkv), free(dy), free(y), free(lse), free(dqkv);
    drop_problem(&x);
}

// q and k themselves at 10,000, logits at 10^8 and beyond: nothing overflows, every y is a mean of values.
static void huge_values(void **state) {
    (void)state;
    problem x;
    make(&x, (shape){1, 2, 100, 64, FP32, 0});
    float *qkv = x.qkv.data;
    for (int64_t i = 0; i < tensor_count(&x.qkv); i++)
        if (i % 384 < 256) qkv[i] *= 5000;
    run_best(&x);
    for (int64_t i = 0; i < tensor_count(&x.y); i++) assert_true(fabsf(((float *)x.y.data)[i]) <= 2.001f);
    for (int64_t i = 0; i < tensor_count(&x.lse); i++) assert_true(isfinite(((float *)x.lse.data)[i]));
    for (int64_t i = 0; i < tensor_count(&x.dqkv); i++) assert_true(isfinite(((float *)x.dqkv.data)[i]));
    drop_problem(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape),   cmocka_unit_test(sixteen_bits),
        cmocka_unit_test(heavy_dropout), cmocka_unit_test(finite_differences),
        cmocka_unit_test(same_bits),     cmocka_unit_test(scratch_and_zero_dropout),
        cmocka_unit_test(large_logits),  cmocka_unit_test(huge_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
