// test/test_matmul_slices.c: matrices whose columns are cut into slices. Where k is not cut, the product has the bits
// of the same product uncut. Where it is, each slice has the bits of its own product, and siblings are added along the
// tree, on every vector width and for any number of threads.
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/typed.h"
#include "test/support/matmul.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { GUARD = 64 };

// --- matrices --------------------------------------------------------------------------------------------------------

static uint32_t seed = 1;
static float random_float(void) {
    seed = seed * 1664525u + 1013904223u;
    return ((float)(int32_t)(seed >> 8 & 0xffffff) - 8388608.0f) * 0x1p-23f;
}

// Followed by bytes that nobody may write.
static tensor matrix(dtype t, int64_t rows, int64_t cols) {
    tensor x = {NULL, t, 2, {rows, cols, 1, 1}};
    x.data = malloc(tensor_bytes(&x) + GUARD);
    assert_non_null(x.data);
    memset(x.data, 0xa5, tensor_bytes(&x) + GUARD);
    return x;
}

static tensor filled(dtype t, int64_t rows, int64_t cols) {
    tensor x = matrix(t, rows, cols);
    for (int64_t i = 0; i < rows * cols; i++) typed_set(x.data, t, i, random_float());
    return x;
}

static void check_guard(const tensor *t) {
    for (int i = 0; i < GUARD; i++) assert_int_equal(((unsigned char *)t->data)[tensor_bytes(t) + (size_t)i], 0xa5);
}

// The matrix in S slices of its columns, or, back again, whole.
static tensor cut(const tensor *x, int64_t S) {
    int64_t rows = x->size[0], w = x->size[1] / S;
    size_t e = dtype_bytes(x->type);
    tensor y = matrix(x->type, rows, x->size[1]);
    for (int64_t s = 0; s < S; s++)
        for (int64_t r = 0; r < rows; r++)
            memcpy((char *)y.data + (size_t)((s * rows + r) * w) * e, (char *)x->data + (size_t)(r * S * w + s * w) * e,
                   (size_t)w * e);
    y.dims = 3, y.size[0] = S, y.size[1] = rows, y.size[2] = w;
    return y;
}

static tensor whole(const tensor *x) {
    int64_t S = x->size[0], rows = x->size[1], w = x->size[2];
    size_t e = dtype_bytes(x->type);
    tensor y = matrix(x->type, rows, S * w);
    for (int64_t s = 0; s < S; s++)
        for (int64_t r = 0; r < rows; r++)
            memcpy((char *)y.data + (size_t)(r * S * w + s * w) * e, (char *)x->data + (size_t)((s * rows + r) * w) * e,
                   (size_t)w * e);
    return y;
}

static tensor slice(const tensor *x, int64_t s) {
    tensor y = {(char *)x->data + (size_t)(s * x->size[1] * x->size[2]) * dtype_bytes(x->type),
                x->type,
                2,
                {x->size[1], x->size[2], 1, 1}};
    return y;
}

static tensor copy_of(const tensor *x) {
    tensor y = *x;
    y.data = malloc(tensor_bytes(x) + GUARD);
    memcpy(y.data, x->data, tensor_bytes(x) + GUARD);
    return y;
}

static void expect_same(const tensor *found, const tensor *want, const char *what, int64_t S, int width, int threads) {
    check_guard(found);
    for (int64_t i = 0; i < tensor_count(want); i++) {
        size_t e = dtype_bytes(want->type), at = (size_t)i * e;
        if (memcmp((char *)found->data + at, (char *)want->data + at, e) != 0)
            fail_msg("%s in %d slices, (%d,%d) of type %d, width %d, %d threads: element %d is %.9g, expected %.9g",
                     what, (int)S, (int)want->size[0], (int)want->size[1], want->type, width, threads, (int)i,
                     typed_get(found->data, found->type, i), typed_get(want->data, want->type, i));
    }
}

// What cut matrices are compared with. The portable body of pairs is slow, and test_matmul compares it with the others.
static matmul_fn specified(const fixture *f) {
    matmul_fn fn[MAX_WIDTHS];
    int n = widths(f, fn);
    return fn[f->pairs ? n - 1 : 0];
}

// For the portable body, which took three quarters of the time: of large matrices it is asked about some of each kind.
static bool too_slow(const fixture *f, int64_t m, int64_t n, int64_t k) {
    return m * n * k > (f->pairs ? 3000000 : 200000000);
}

// Calls visit for each width and number of threads.
#define EACH_WAY(f, z, fn, w, t) \
    for (int n_ = widths(f, fn), w = n_ > 1 && too_slow(f, (z).m, (z).n, (z).k); w < n_; w++) \
        for (int t = 1; t <= MAX_THREADS; t++) \
            if (w == n_ - 1 ? t != 2 : t == 2)

// --- columns that are not summed -------------------------------------------------------------------------------------

typedef struct shape {
    int64_t m, n, k, S;
} shape;

// A layer whose outputs are cut: y, and the GELU after it.
static void outputs(fixture *f, shape z, dtype t, bool gelu) {
    matmul_fn fn[MAX_WIDTHS];
    tensor a = filled(t, z.m, z.k), b = filled(t, z.n, z.k), bias = filled(t, 1, z.n), d = matrix(t, z.m, z.n),
           pre = matrix(t, z.m, z.n);
    unsigned epilogue = MATMUL_BIAS | (gelu ? MATMUL_GELU : 0);
    tensor vector = view1(&bias, z.n), empty = matrix(t, z.m, z.n), to = cut(&empty, z.S), to_pre = cut(&empty, z.S);
    assert_int_equal(
        specified(f)(
            &(matmul_args){.d = &d, .pre = &pre, .a = &a, .b = &b, .tb = true, .bias = &vector, .epilogue = epilogue},
            &f->s[1]),
        ERR_OK);
    EACH_WAY(f, z, fn, w, threads) {
        memset(to.data, 0xff, tensor_bytes(&to));
        assert_int_equal(
            fn[w](
                &(matmul_args){
                    .d = &to, .pre = &to_pre, .a = &a, .b = &b, .tb = true, .bias = &vector, .epilogue = epilogue},
                &f->s[threads]),
            ERR_OK);
        tensor back = whole(&to), back_pre = whole(&to_pre);
        expect_same(&back, &d, "y", z.S, w, threads);
        if (gelu) expect_same(&back_pre, &pre, "pre", z.S, w, threads);
        check_guard(&to), check_guard(&to_pre);
        free(back.data), free(back_pre.data);
    }
    free(a.data), free(b.data), free(bias.data), free(d.data), free(pre.data), free(empty.data), free(to.data),
        free(to_pre.data);
}

// The gradient of a layer's inputs that are cut: dx, through GELU, and the column sums.
static void inputs(fixture *f, shape z, dtype t, bool gelu) {
    matmul_fn fn[MAX_WIDTHS];
    tensor a = filled(t, z.m, z.k), b = filled(t, z.k, z.n), d = matrix(t, z.m, z.n), pre = filled(t, z.m, z.n),
           sums = matrix(FP32, 1, z.n);
    tensor cut_b = cut(&b, z.S), cut_pre = cut(&pre, z.S), to = cut(&d, z.S), dbias = view1(&sums, z.n),
           more = copy_of(&dbias);
    unsigned epilogue = gelu ? MATMUL_DGELU : 0;
    matmul_args args = {
        .d = &d, .pre = &pre, .a = &a, .b = &b, .dbias = gelu ? &dbias : NULL, .fresh = true, .epilogue = epilogue};
    assert_int_equal(specified(f)(&args, &f->s[1]), ERR_OK);
    args.b = &cut_b, args.pre = &cut_pre, args.d = &to, args.dbias = gelu ? &more : NULL;
    EACH_WAY(f, z, fn, w, threads) {
        memset(to.data, 0xff, tensor_bytes(&to));
        assert_int_equal(fn[w](&args, &f->s[threads]), ERR_OK);
        tensor back = whole(&to);
        expect_same(&back, &d, "dx", z.S, w, threads);
        if (gelu) expect_same(&more, &dbias, "the sums of dx", z.S, w, threads);
        free(back.data);
    }
    free(a.data), free(b.data), free(d.data), free(pre.data), free(sums.data), free(cut_b.data), free(cut_pre.data),
        free(to.data), free(more.data);
}

// Gradients of weights: of cut outputs, whose rows are slices, and of cut inputs.
static void weights(fixture *f, shape z, dtype t, bool rows, bool adds) {
    matmul_fn fn[MAX_WIDTHS];
    tensor dy = filled(t, z.k, z.m), x = filled(t, z.k, z.n), before = filled(FP32, z.m, z.n), d = copy_of(&before);
    tensor cut_dy = cut(&dy, z.S), cut_x = cut(&x, z.S), cut_before = cut(&before, z.S);
    unsigned epilogue = adds ? MATMUL_ACCUMULATE : 0;
    assert_int_equal(
        specified(f)(&(matmul_args){.d = &d, .a = &dy, .ta = true, .b = &x, .epilogue = epilogue}, &f->s[1]), ERR_OK);
    EACH_WAY(f, z, fn, w, threads) {
        tensor to = copy_of(rows ? &before : &cut_before);
        assert_int_equal(
            fn[w](
                &(matmul_args){
                    .d = &to, .a = rows ? &cut_dy : &dy, .ta = true, .b = rows ? &x : &cut_x, .epilogue = epilogue},
                &f->s[threads]),
            ERR_OK);
        tensor back = rows ? copy_of(&to) : whole(&to);
        expect_same(&back, &d, rows ? "dw of cut outputs" : "dw of cut inputs", z.S, w, threads);
        check_guard(&to);
        free(back.data), free(to.data);
    }
    free(dy.data), free(x.data), free(before.data), free(d.data), free(cut_dy.data), free(cut_x.data),
        free(cut_before.data);
}

// --- sums that are cut -----------------------------------------------------------------------------------------------

// Siblings are added, nothing else.
static float tree(const float *x, int64_t count, int64_t stride) {
    return count == 1 ? x[0] : tree(x, count / 2, stride) + tree(x + count / 2 * stride, count / 2, stride);
}

static float rounded(dtype t, float x) {
    float lane[VL];
    vf_store(lane, typed_round(t, vf_set1(x)));
    return lane[0];
}

// Each slice's own product, then the tree, then the epilogue.
static tensor specify(fixture *f, shape z, const matmul_args *args, const tensor *before) {
    int64_t each = z.k / z.S;
    matmul_fn fn[MAX_WIDTHS];
    tensor parts = matrix(FP32, z.S * z.m, z.n), want = copy_of(before);
    for (int64_t s = 0; s < z.S; s++) {
        tensor a = slice(args->a, s), part = tensor_rows(&parts, s * z.m, z.m),
               b = args->tb ? slice(args->b, s) : tensor_rows(args->b, s * each, each);
        assert_int_equal(fn[widths(f, fn) - 1](&(matmul_args){.d = &part, .a = &a, .b = &b, .tb = args->tb}, &f->s[1]),
                         ERR_OK);
    }
    for (int64_t i = 0; i < z.m * z.n; i++) {
        float x = tree((float *)parts.data + i, z.S, z.m * z.n);
        if (args->epilogue & MATMUL_BIAS) x += typed_get(args->bias->data, args->bias->type, i % z.n);
        if (args->residual) x += typed_get(args->residual->data, args->residual->type, i);
        if (args->epilogue & MATMUL_ACCUMULATE) x = ((float *)before->data)[i] + x;
        typed_set(want.data, want.type, i, rounded(want.type, x));
    }
    free(parts.data);
    return want;
}

static void sums(fixture *f, shape z, dtype t, bool tb, unsigned epilogue, bool residual, bool wide) {
    matmul_fn fn[MAX_WIDTHS];
    tensor a = filled(t, z.m, z.k), b = tb ? filled(t, z.n, z.k) : filled(t, z.k, z.n), bias = filled(t, 1, z.n),
           res = filled(t, z.m, z.n);
    tensor before = filled(wide || (epilogue & MATMUL_ACCUMULATE) ? FP32 : t, z.m, z.n), cut_a = cut(&a, z.S),
           cut_b = tb ? cut(&b, z.S) : copy_of(&b);
    tensor vector = view1(&bias, z.n);
    matmul_args args = {
        .a = &cut_a, .b = &cut_b, .tb = tb, .bias = &vector, .residual = residual ? &res : NULL, .epilogue = epilogue};
    tensor want = specify(f, z, &args, &before);
    EACH_WAY(f, z, fn, w, threads) {
        tensor to = copy_of(&before);
        args.d = &to;
        assert_int_equal(fn[w](&args, &f->s[threads]), ERR_OK);
        expect_same(&to, &want, "a cut sum", z.S, w, threads);
        free(to.data);
    }
    free(a.data), free(b.data), free(bias.data), free(res.data), free(before.data), free(cut_a.data), free(cut_b.data),
        free(want.data);
}

// --- tests -----------------------------------------------------------------------------------------------------------

static const dtype types[] = {FP32, BF16, FP16};
static int types_of(void **state) { return ((fixture *)*state)->pairs ? 2 : 3; }

static void columns_that_are_not_summed_keep_their_bits(void **state) {
    static const shape shapes[] = {{5, 8, 7, 4},      {13, 96, 31, 2},  {70, 128, 40, 4},
                                   {9, 36, 400, 4},   {31, 192, 20, 4}, {250, 384, 64, 8},
                                   {17, 64, 770, 64}, {64, 60, 90, 2},  {200, 576, 390, 4}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int t = 0; t < types_of(state); t++)
            for (int k = 0; k < 2; k++) outputs(*state, shapes[i], types[t], k), inputs(*state, shapes[i], types[t], k);
}

static void gradients_of_weights_keep_their_bits(void **state) {
    static const shape shapes[] = {{8, 12, 7, 4},   {96, 40, 31, 2},   {64, 128, 400, 4},
                                   {36, 36, 20, 4}, {192, 48, 800, 8}, {128, 384, 33, 16}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int t = 0; t < types_of(state); t++)
            for (int k = 0; k < 4; k++) weights(*state, shapes[i], types[t], k & 1, k >> 1);
}

static void sums_are_added_along_the_tree(void **state) {
    // Many slices in a block, one, several blocks in a slice, and more levels than fit into a block.
    static const shape shapes[] = {{5, 7, 8, 4},       {13, 37, 64, 2},  {70, 130, 128, 4},  {9, 48, 768, 4},
                                   {31, 50, 3072, 4},  {8, 16, 1600, 4}, {250, 64, 512, 16}, {3, 5, 1024, 256},
                                   {40, 96, 4096, 32}, {17, 33, 800, 2}, {1, 100, 1552, 4},  {64, 48, 385 * 8, 8},
                                   {33, 100, 28, 4},   {70, 49, 252, 4}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int t = 0; t < types_of(state); t++)
            for (int tb = 0; tb < 2; tb++) {
                sums(*state, shapes[i], types[t], tb, 0, false, false);
                sums(*state, shapes[i], types[t], tb, MATMUL_BIAS, true, false);
                sums(*state, shapes[i], types[t], tb, MATMUL_ACCUMULATE, false, false);
                if (t) sums(*state, shapes[i], types[t], tb, 0, false, true);
            }
}

// k in several steps, operands that are packed on the way, long and flat tiles.
static void large_sums_too(void **state) {
    static const shape shapes[] = {{3, 5000, 400, 4},   {5000, 3, 800, 2},  {40, 70, 70400, 4},  {40, 70, 65536, 512},
                                   {300, 208, 4000, 4}, {600, 48, 9600, 8}, {1400, 64, 2304, 4}, {520, 300, 2048, 128}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int tb = 0; tb < 2; tb++) {
            sums(*state, shapes[i], FP32, tb, tb ? MATMUL_BIAS : 0, tb, false);
            sums(*state, shapes[i], BF16, tb, tb ? 0 : MATMUL_ACCUMULATE, false, false);
        }
}

// Few rows and many columns, for which each thread packs alone: it copies b, or, transposed or with columns that make
// no whole vectors, packs it. Slices of which several are a block, or which are several blocks; rows that make no whole
// panel, tiles of several widths.
static void sums_of_threads_that_pack_alone(void **state) {
    static const shape shapes[] = {{222, 1616, 384, 2},   {222, 1616, 372, 4}, {256, 1600, 1200, 4},
                                   {200, 1344, 1536, 64}, {199, 1501, 600, 4}, {420, 1600, 3080, 8}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        sums(*state, shapes[i], FP32, false, 0, false, false);
        sums(*state, shapes[i], FP32, i % 2, MATMUL_ACCUMULATE, false, false);
        sums(*state, shapes[i], i % 2 ? BF16 : FP32, true, MATMUL_BIAS, true, false);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_that_are_not_summed_keep_their_bits),
        cmocka_unit_test(gradients_of_weights_keep_their_bits),
        cmocka_unit_test(sums_are_added_along_the_tree),
        cmocka_unit_test(large_sums_too),
        cmocka_unit_test(sums_of_threads_that_pack_alone),
    };
    return cmocka_run_group_tests_name("fp32", tests, open_pools, close_pools) +
           cmocka_run_group_tests_name("bf16-pairs", tests, open_pairs, close_pools);
}
