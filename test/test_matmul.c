// test/test_matmul.c: the matrix product is the one that its specification writes down, to the last bit, in both
// arithmetics of [precision] products, on every vector width that this machine has and for any number of threads; and
// that one is close to the true product.
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/typed.h"
#include "gpu/cpu/kernel/vmath.h"
#include "test/support/matmul.h"
#include "test/support/pairs.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { KC = 384 };  // the specification's, written here again on purpose: it may never change

// --- buffers with sentinels ------------------------------------------------------------------------------------------

enum { GUARD = 256 };

static tensor guarded(dtype t, int64_t rows, int64_t cols) {
    size_t bytes = (size_t)(rows * cols) * dtype_bytes(t);
    char *p = malloc(bytes + 2 * GUARD);
    assert_non_null(p);
    memset(p, 0xa5, bytes + 2 * GUARD);
    return (tensor){p + GUARD, t, 2, {rows, cols, 1, 1}};
}

static void check_guards(const tensor *t) {
    const unsigned char *p = (const unsigned char *)t->data - GUARD,
                        *q = (const unsigned char *)t->data + tensor_bytes(t);
    for (int i = 0; i < GUARD; i++) {
        assert_int_equal(p[i], 0xa5);
        assert_int_equal(q[i], 0xa5);
    }
}

static void release(tensor *t) {
    if (t->data) free((char *)t->data - GUARD);
    t->data = NULL;
}

static uint32_t seed = 1;
static float random_float(void) {  // -1 .. 1, over several binades
    seed = seed * 1664525u + 1013904223u;
    uint32_t a = seed >> 8;
    seed = seed * 1664525u + 1013904223u;
    return ((float)(int32_t)(a & 0xffffff) - 8388608.0f) * 0x1p-23f * ((seed >> 24 & 7) ? 1.0f : 0.01f);
}

static uint32_t next(void) {
    seed = seed * 1664525u + 1013904223u;
    uint32_t high = seed >> 16;
    seed = seed * 1664525u + 1013904223u;
    return high << 16 | seed >> 16;
}

static float number(fill kind) {
    uint32_t x = next(), y = next();
    return number_of(kind, x, y, random_float());
}

static tensor filled_with(fill kind, dtype t, int64_t rows, int64_t cols) {
    tensor x = guarded(t, rows, cols);
    for (int64_t i = 0; i < rows * cols; i++) typed_set(x.data, t, i, number(kind));
    return x;
}
static tensor filled(dtype t, int64_t rows, int64_t cols) { return filled_with(FILL_USUAL, t, rows, cols); }

static tensor copy_of(const tensor *x) {
    tensor y = guarded(x->type, x->size[0], x->size[1]);
    memcpy(y.data, x->data, tensor_bytes(x));
    return y;
}

// --- the specification -----------------------------------------------------------------------------------------------

static float element(const tensor *x, bool pairs, bool transposed, int64_t row, int64_t col) {
    float y = transposed ? typed_get(x->data, x->type, col * x->size[1] + row)
                         : typed_get(x->data, x->type, row * x->size[1] + col);
    return pairs ? operand(y) : y;
}

// op(x) as floats, (rows, cols)
static float *plain(const tensor *x, bool pairs, bool transposed, int64_t rows, int64_t cols) {
    float *p = malloc((size_t)(rows * cols) * sizeof *p);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) p[i * cols + j] = element(x, pairs, transposed, i, j);
    return p;
}

static float spec_sum(bool pairs, const float *a, const float *b, int64_t i, int64_t j, int64_t n, int64_t k) {
    float sum = 0;
    for (int64_t q = 0; q < k; q += KC) {
        int64_t end = q + KC < k ? q + KC : k;
        float p = 0;
        for (int64_t x = q; !pairs && x < end; x++) p = fmaf(a[i * k + x], b[x * n + j], p);
        for (int64_t x = q; pairs && x < end; x += 2) {
            p = x + 1 < end ? step(a[i * k + x + 1], b[(x + 1) * n + j], p) : step(0, 0, p);
            p = step(a[i * k + x], b[x * n + j], p);
        }
        sum = q == 0 ? p : sum + p;
    }
    return sum;
}

static float lane(vf v) {
    float f[VL];
    vf_store(f, v);
    return f[0];
}
static float rounded(dtype t, float x) { return lane(typed_round(t, vf_set1(x))); }

typedef struct test_case {
    int64_t m, n, k;
    dtype type;
    bool ta, tb;
    unsigned epilogue;
    bool wide;  // d is FP32 though the operands are not
} test_case;

typedef struct problem {
    test_case c;
    bool pairs;
    tensor a, b, bias, pre, d;  // d and pre before
    tensor want_d, want_pre;    // d and pre after
} problem;

// What the operation must leave, element after element, every epilogue as the separate operations would do it.
static void specify(problem *p) {
    const test_case *c = &p->c;
    float *a = plain(&p->a, p->pairs, c->ta, c->m, c->k), *b = plain(&p->b, p->pairs, c->tb, c->k, c->n);
    for (int64_t i = 0; i < c->m; i++) {
        for (int64_t j = 0; j < c->n; j++) {
            int64_t at = i * c->n + j;
            float x = spec_sum(p->pairs, a, b, i, j, c->n, c->k);
            if (c->epilogue & MATMUL_BIAS) x = x + typed_get(p->bias.data, c->type, j);
            if (c->epilogue & MATMUL_GELU) {
                x = rounded(c->type, x);
                typed_set(p->want_pre.data, c->type, at, x);
                x = lane(vf_gelu(vf_set1(x)));
            }
            if (c->epilogue & MATMUL_DGELU)
                x = rounded(c->type, x) * lane(vf_gelu_grad(vf_set1(typed_get(p->pre.data, c->type, at))));
            if (c->epilogue & MATMUL_ACCUMULATE) x = typed_get(p->d.data, FP32, at) + x;
            typed_set(p->want_d.data, p->d.type, at, x);
        }
    }
    free(a), free(b);
}

static problem make(bool pairs, fill kind, test_case c) {
    problem p = {.c = c, .pairs = pairs};
    p.a = filled_with(kind, c.type, c.ta ? c.k : c.m, c.ta ? c.m : c.k);
    p.b = filled_with(kind, c.type, c.tb ? c.n : c.k, c.tb ? c.k : c.n);
    p.bias = filled(c.type, 1, c.n);
    p.pre = filled(c.type, c.m, c.n);
    p.d = filled(c.wide || (c.epilogue & MATMUL_ACCUMULATE) ? FP32 : c.type, c.m, c.n);
    p.want_d = copy_of(&p.d);
    p.want_pre = copy_of(&p.pre);
    specify(&p);
    return p;
}

static void drop(problem *p) {
    tensor *all[] = {&p->a, &p->b, &p->bias, &p->pre, &p->d, &p->want_d, &p->want_pre};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) release(all[i]);
}

static void check_same(const problem *p, const tensor *got, const tensor *want, const char *what, int width,
                       int threads) {
    if (!memcmp(got->data, want->data, tensor_bytes(want))) return;
    size_t e = dtype_bytes(want->type);
    for (int64_t i = 0; i < tensor_count(want); i++) {
        float x = typed_get(got->data, got->type, i), y = typed_get(want->data, want->type, i);
        if (!memcmp((char *)got->data + (size_t)i * e, (char *)want->data + (size_t)i * e, e) || (x != x && y != y))
            continue;
        const test_case *c = &p->c;
        fail_msg("%s[%" PRId64 ",%" PRId64 "] of %" PRId64 "x%" PRId64 "x%" PRId64
                 " type %d ta %d tb %d epilogue %u, width %d, %d threads: got %.9g, specified %.9g",
                 what, i / c->n, i % c->n, c->m, c->n, c->k, c->type, c->ta, c->tb, c->epilogue, width, threads,
                 typed_get(got->data, got->type, i), typed_get(want->data, want->type, i));
    }
}

static void run_once(const problem *p, matmul_fn f, int width, stream *s) {
    tensor d = copy_of(&p->d), pre = copy_of(&p->pre), bias = view1(&p->bias, p->c.n);
    assert_int_equal(f(&(matmul_args){.d = &d,
                                      .pre = &pre,
                                      .a = &p->a,
                                      .ta = p->c.ta,
                                      .b = &p->b,
                                      .tb = p->c.tb,
                                      .bias = &bias,
                                      .epilogue = p->c.epilogue},
                       s),
                     ERR_OK);
    check_same(p, &d, &p->want_d, "d", width, pool_threads(s->workers));
    check_same(p, &pre, &p->want_pre, "pre", width, pool_threads(s->workers));
    check_guards(&d), check_guards(&pre), check_guards(&p->a), check_guards(&p->b);
    release(&d), release(&pre);
}

// Every width; the portable one, which is slow, with two numbers of threads only.
static void check_filled(fixture *f, fill kind, test_case c) {
    matmul_fn fn[MAX_WIDTHS];
    int n = widths(f, fn);
    problem p = make(f->pairs, kind, c);
    for (int w = 0; w < n; w++)
        for (int t = 1; t <= MAX_THREADS; t++)
            if (w > 0 || t == 1 || t == 3) run_once(&p, fn[w], w, &f->s[t]);
    drop(&p);
}

// Pairs are of BF16 numbers, stored or rounded: there are none of FP16.
static int types_of(void **state) { return ((fixture *)*state)->pairs ? 2 : 3; }

static void check_case(fixture *f, test_case c) { check_filled(f, FILL_USUAL, c); }

// --- tests -----------------------------------------------------------------------------------------------------------

// Odd sizes around every boundary, all types, all transposes: exactly the specified bits, nothing beside the output
// touched.
static void specified_bits(void **state) {
    const int64_t sizes[][3] = {
        {1, 1, 1},        {1, 1, 7},           {2, 3, 5},         {7, 1, 3},     {1, 49, 17},      {17, 33, 70},
        {13, 97, 31},     {8, 48, 16},         {9, 47, 15},       {6, 16, 8},    {5, 19, KC - 1},  {5, 19, KC},
        {11, 50, KC + 1}, {7, 23, 2 * KC + 3}, {65, 131, 67},     {101, 7, 129}, {1, 200, 2 * KC}, {23, 1, KC + 100},
        {31, 193, 40},    {257, 95, 9},        {13, 400, KC + 5},
    };
    const dtype types[] = {FP32, BF16, FP16};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int t = 0; t < types_of(state); t++)
            for (int trans = 0; trans < 4; trans++)
                check_case(*state, (test_case){sizes[i][0], sizes[i][1], sizes[i][2], types[t], trans & 1, trans >> 1,
                                               0, false});
}

static void epilogues_are_the_separate_operations(void **state) {
    const unsigned all[] = {MATMUL_BIAS, MATMUL_GELU, MATMUL_BIAS | MATMUL_GELU, MATMUL_DGELU, MATMUL_ACCUMULATE};
    const int64_t sizes[][3] = {{1, 1, 1},         {17, 33, 70},  {9, 48, KC}, {13, 61, 2 * KC + 3},
                                {40, 100, KC + 1}, {200, 416, 20}};
    const dtype types[] = {FP32, BF16, FP16};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int t = 0; t < types_of(state); t++)
            for (size_t e = 0; e < sizeof all / sizeof *all; e++)
                check_case(*state, (test_case){sizes[i][0], sizes[i][1], sizes[i][2], types[t], e % 2, e / 2 % 2,
                                               all[e], false});
    for (int t = 1; t < types_of(state); t++)
        for (unsigned e = 0; e < 2; e++)
            for (int64_t k = KC - 1; k <= 2 * KC + 2; k += KC + 3)
                check_case(*state, (test_case){19, 53, k, types[t], false, true, e ? MATMUL_BIAS : 0, true});
}

// Numbers for which it matters what is flushed, and when; zeros of both signs, cancellation, infinity and NaN.
static void edges_of(fixture *f, const int64_t sizes[][3], size_t count) {
    for (size_t i = 0; i < count; i++)
        for (int t = 0; t < 2; t++)
            for (int kind = 0; kind < FILLS; kind++)
                for (int trans = 0; trans < 4; trans++)
                    check_filled(f, (fill)kind,
                                 (test_case){sizes[i][0], sizes[i][1], sizes[i][2], t ? BF16 : FP32, trans & 1,
                                             trans >> 1, kind % 2 ? MATMUL_ACCUMULATE : 0, true});
}

static void edges(void **state) {
    const int64_t sizes[][3] = {{1, 1, 1}, {3, 17, 2}, {9, 48, 33}, {13, 61, KC + 3}};
    edges_of(*state, sizes, sizeof sizes / sizeof *sizes);
}
static void edges_of_more(void **state) {
    const int64_t sizes[][3] = {{33, 97, 2 * KC + 1}, {40, 192, 90}, {200, 96, 64}};
    edges_of(*state, sizes, sizeof sizes / sizeof *sizes);
}

// A product leaves the processor's mode as it was, on every thread: one of denormals in FP32 is what it was before.
static void mode_is_left_alone(void **state) {
    fixture *f = *state, usual = *f;
    matmul_fn fn[MAX_WIDTHS], other[MAX_WIDTHS];
    int n = widths(f, fn);
    usual.pairs = false;
    const int plain_widths = widths(&usual, other);
    problem p = make(f->pairs, FILL_TINY, (test_case){200, 416, 90, FP32, false, false, 0, false});
    tensor a = filled_with(FILL_TINY, FP32, 64, 3), b = filled_with(FILL_TINY, FP32, 3, 768),
           d = guarded(FP32, 64, 768), want = guarded(FP32, 64, 768);
    assert_int_equal(other[0](&(matmul_args){.d = &want, .a = &a, .b = &b}, &f->s[1]), ERR_OK);
    for (int w = 0; w < n; w++)
        for (int t = 1; t <= MAX_THREADS; t++) {
            run_once(&p, fn[w], w, &f->s[t]);
            assert_int_equal(
                other[w < plain_widths ? w : plain_widths - 1](&(matmul_args){.d = &d, .a = &a, .b = &b}, &f->s[t]),
                ERR_OK);
            assert_memory_equal(d.data, want.data, tensor_bytes(&d));
        }
    float least = 0;
    for (int64_t i = 0; i < tensor_count(&want); i++)
        least = fabsf(((float *)want.data)[i]) < 0x1p-126f ? ((float *)want.data)[i] : least;
    assert_true(least != 0);  // there were some
    drop(&p), release(&a), release(&b), release(&d), release(&want);
}

// Sizes that take the other ways through the plan: operands too large to be packed whole, k in several steps, long and
// flat tiles. Too many elements to specify: some are, and all must agree between widths, threads, and with the same
// product elsewhere.
static void check_large(fixture *f, test_case c) {
    matmul_fn fn[MAX_WIDTHS];
    int n = widths(f, fn);
    tensor a = filled(c.type, c.ta ? c.k : c.m, c.ta ? c.m : c.k),
           b = filled(c.type, c.tb ? c.n : c.k, c.tb ? c.k : c.n);
    tensor before = filled(c.epilogue & MATMUL_ACCUMULATE ? FP32 : c.type, c.m, c.n), first = {0};
    for (int w = n - 1; w >= 0; w--) {
        for (int t = 1; t <= MAX_THREADS; t += w == 0 ? MAX_THREADS : 1) {
            if (w == 0 && n > 1 && c.m * c.n * c.k > 15000000) continue;  // the portable width: see the small sizes
            tensor d = copy_of(&before);
            assert_int_equal(
                fn[w](&(matmul_args){.d = &d, .a = &a, .ta = c.ta, .b = &b, .tb = c.tb, .epilogue = c.epilogue},
                      &f->s[t]),
                ERR_OK);
            check_guards(&d);
            if (!first.data) first = d;
            else {
                assert_memory_equal(d.data, first.data, tensor_bytes(&d));
                release(&d);
            }
        }
    }
    float *x = malloc((size_t)c.k * sizeof *x), *y = malloc((size_t)c.k * sizeof *y);
    for (int probe = 0; probe < 200; probe++) {
        int64_t i = probe < 2 ? probe * (c.m - 1) : (int64_t)((double)(random_float() + 1) / 2 * (double)(c.m - 1));
        int64_t j = probe < 4 ? probe % 2 * (c.n - 1) : (int64_t)((double)(random_float() + 1) / 2 * (double)(c.n - 1));
        for (int64_t k = 0; k < c.k; k++)
            x[k] = element(&a, f->pairs, c.ta, i, k), y[k] = element(&b, f->pairs, c.tb, k, j);
        float want = spec_sum(f->pairs, x, y, 0, 0, 1, c.k);
        if (c.epilogue & MATMUL_ACCUMULATE) want = typed_get(before.data, FP32, i * c.n + j) + want;
        assert_true(typed_get(first.data, first.type, i * c.n + j) == rounded(first.type, want));
    }
    free(x), free(y);
    release(&a), release(&b), release(&before), release(&first);
}

static void large_shapes(void **state) {
    const dtype types[] = {FP32, BF16};
    for (int t = 0; t < 2; t++) {
        // v packed on the way
        check_large(*state, (test_case){3, 11000, 400, types[t], false, true, 0, false});
        // s packed on the way
        check_large(*state, (test_case){11000, 3, 400, types[t], true, false, MATMUL_ACCUMULATE, false});
        check_large(*state, (test_case){40, 70, 70000, types[t], false, false, 0, false});  // k in steps
        check_large(*state, (test_case){40, 70, 70000, types[t], true, true, MATMUL_ACCUMULATE, false});
        check_large(*state, (test_case){11, 12000, 1200, types[t], false, false, MATMUL_ACCUMULATE, false});
        check_large(*state, (test_case){11, 1600, 800, types[t], false, true, 0, false});  // v packed for few rows
        check_large(*state, (test_case){300, 700, 900, types[t], false, true, 0, false});  // several tiles
        // v packed where it is multiplied
        check_large(*state, (test_case){300, 720, 900, types[t], false, false, 0, false});
        check_large(*state, (test_case){300, 208, 4000, types[t], false, false, 0, false});  // ... and k in steps
        check_large(*state, (test_case){600, 208, 20200, types[t], true, false, MATMUL_ACCUMULATE, false});
        // threads that share nothing
        check_large(*state, (test_case){250, 784, 1000, types[t], false, false, 0, false});
        // ... with several tiles each
        check_large(*state, (test_case){1000, 784, 500, types[t], false, false, 0, false});
        // ... and v along k
        check_large(*state, (test_case){250, 700, 1000, types[t], false, true, 0, false});
        // ... and a sum to add to
        check_large(*state, (test_case){250, 1040, 380, types[t], true, false, MATMUL_ACCUMULATE, false});
    }
}

// An element depends on its row of op(a) and its column of op(b) only: the 1 x 1 product of the two has the same bits.
static void position_is_nothing(void **state) {
    fixture *f = *state;
    matmul_fn fn[MAX_WIDTHS];
    int n = widths(f, fn);
    enum { M = 83, N = 149, K = KC + 77 };
    tensor a = filled(FP32, M, K), b = filled(FP32, N, K), d = guarded(FP32, M, N);
    for (int w = 0; w < n; w++) {
        assert_int_equal(fn[w](&(matmul_args){.d = &d, .a = &a, .b = &b, .tb = true}, &f->s[2]), ERR_OK);
        for (int64_t i = 0; i < M; i += 3) {
            for (int64_t j = 0; j < N; j += 5) {
                float one = 0;
                tensor row = {(float *)a.data + i * K, FP32, 2, {1, K}},
                       col = {(float *)b.data + j * K, FP32, 2, {1, K}};
                tensor out = {&one, FP32, 2, {1, 1}};
                assert_int_equal(fn[w](&(matmul_args){.d = &out, .a = &row, .b = &col, .tb = true}, &f->s[1]), ERR_OK);
                assert_memory_equal(&one, (float *)d.data + i * N + j, sizeof one);
            }
        }
    }
    release(&a), release(&b), release(&d);
}

// |error| <= (block length + blocks) * u * sum |x y|, u = 2^-24: the bound of a blocked sum (Higham 2002, section 4.2).
static void close_to_the_true_product(void **state) {
    fixture *f = *state;
    matmul_fn fn[MAX_WIDTHS];
    int n = widths(f, fn);
    const int64_t ks[] = {1, 10, KC, 1000, 5000};
    for (size_t q = 0; q < sizeof ks / sizeof *ks; q++) {
        int64_t k = ks[q], m = 21, cols = 35;
        tensor a = filled(FP32, m, k), b = filled(FP32, k, cols), d = guarded(FP32, m, cols);
        assert_int_equal(fn[n - 1](&(matmul_args){.d = &d, .a = &a, .b = &b}, &f->s[2]), ERR_OK);
        double factor = (double)((k < KC ? k : KC) + (k + KC - 1) / KC) * 0x1p-24;
        for (int64_t i = 0; i < m; i++) {
            for (int64_t j = 0; j < cols; j++) {
                double sum = 0, magnitude = 0;
                for (int64_t x = 0; x < k; x++) {
                    double t = (double)element(&a, f->pairs, false, i, x) * element(&b, f->pairs, false, x, j);
                    sum += t, magnitude += fabs(t);
                }
                assert_true(fabs(((float *)d.data)[i * cols + j] - sum) <= 1.01 * factor * magnitude);
            }
        }
        release(&a), release(&b), release(&d);
    }
}

// Twice the same sum is added twice: (d + s) + s; and an earlier value that swallows single products shows that it is
// added once.
static void accumulate_adds_once(void **state) {
    fixture *f = *state;
    matmul_fn fn[MAX_WIDTHS];
    int n = widths(f, fn);
    for (int w = 0; w < n; w++) {
        for (int64_t k = 256; k <= 1024; k += 768) {
            tensor a = guarded(FP32, 5, k), b = guarded(FP32, k, 50), d = guarded(FP32, 5, 50);
            for (int64_t i = 0; i < 5 * k; i++) ((float *)a.data)[i] = 1;
            for (int64_t i = 0; i < k * 50; i++) ((float *)b.data)[i] = 0.25f;
            // + 0.25 or + 0.5 is nothing, + k/4 is exact
            for (int64_t i = 0; i < 250; i++) ((float *)d.data)[i] = 0x1p24f;
            for (int again = 1; again <= 2; again++) {
                assert_int_equal(
                    fn[w](&(matmul_args){.d = &d, .a = &a, .b = &b, .epilogue = MATMUL_ACCUMULATE}, &f->s[2]), ERR_OK);
                for (int64_t i = 0; i < 250; i++) assert_true(((float *)d.data)[i] == 0x1p24f + (float)(again * k / 4));
            }
            release(&a), release(&b), release(&d);
        }
    }
}

// An argument is the name of the only test to run.
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(specified_bits),
        cmocka_unit_test(epilogues_are_the_separate_operations),
        cmocka_unit_test(edges),
        cmocka_unit_test(edges_of_more),
        cmocka_unit_test(mode_is_left_alone),
        cmocka_unit_test(large_shapes),
        cmocka_unit_test(position_is_nothing),
        cmocka_unit_test(close_to_the_true_product),
        cmocka_unit_test(accumulate_adds_once),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("fp32", tests, open_pools, close_pools) +
           cmocka_run_group_tests_name("bf16-pairs", tests, open_pairs, close_pools);
}
