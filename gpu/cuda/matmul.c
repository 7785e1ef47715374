// gpu/cuda/matmul.c: matrix products: each as its plan says (gpu/cuda/plans.h).
//
//   sums      FP32 for every type; true FP32 for FP32 operands, not TF32. k is divided only by the plan: where a is
//             transposed (a weight's gradient has few tiles and a long k), and where k is very long (a vocabulary's).
//             The partial sums are then in the workspace, as FP32, and one more kernel adds them in a fixed order. Two
//             schemes are excluded: one adds the partial sums to d itself, one by one; the other keeps them as 16 bits.
//             Neither way of summing uses atomics. FP32 operands are multiplied K_STEP of k at a time: a longer chain
//             of FP32 additions loses digits
//   (+=)      Unsplit with beta = 1: the epilogue adds d once to the whole sum over k. A sum in parts is made in the
//             stream's workspace, where it fits, and added by one more pass. Where it does not fit it is never in
//             parts, so that (=) and (+=) to zeros have the same bits
//   epilogue  The bias and the residual are added by cuBLASLt to the FP32 sum. Its GELU and DGELU epilogues are not
//             used: they take gelu of the unrounded sum, with a tanh of their own, so recomputation, which takes GELU
//             of the kept pre, would give other bits. The elementwise kernels do it. They move 2 * M * N * sizeof(E)
//             bytes more than the fused ones would (3 for DGELU), of which L2 holds what fits; with DGELU the same pass
//             forms the bias gradient
//   slices    One product for each, of its own plan. Slices of k leave FP32 sums in `partials`, 4 * S * M * N bytes,
//             which one more kernel reads and adds along their tree, with bias and residual
//   alias     none: d, pre, a, b, bias and residual are apart
//   reference gpu/cpu/kernel/matmul.c
#include "gpu/cuda/plans.h"
#include "gpu/matmul_check.h"

#include <inttypes.h>

// The largest power of two up to 16 that divides x.
static uint32_t alignment(uint64_t x) { return (uint32_t)((x | 16) & (~(x | 16) + 1)); }

// What every row of t is aligned to.
static uint32_t row_alignment(const tensor *t) {
    return alignment((uintptr_t)t->data | (uint64_t)t->size[1] * dtype_bytes(t->type));
}

// op(a) op(b) and its sums, before the elementwise part of the epilogue.
typedef struct product {
    int64_t m, k, rows;
    const tensor *a, *b, *d;  // d: for its type and shape
    bool ta, tb;
    bool split;
    const void *bias;      // of d's type, or NULL
    const void *residual;  // of d's type and shape, or NULL
} product;

// The plan for `depth` of k from k0 on.
static err_t plan_step(matmul_plans *p, const product *g, int64_t k0, int64_t depth, plan **out) {
    const void *bias = k0 ? NULL : g->bias;
    plan_key key = {
        .m = g->rows,
        .n = g->d->size[1],
        .k = depth,
        .lda = g->a->size[1],
        .ldb = g->b->size[1],
        .type = g->a->type,
        .d_type = g->d->type,
        .ta = g->ta,
        .tb = g->tb,
        .bias = bias != NULL,
        .split = g->split,
        .align = {row_alignment(g->a), row_alignment(g->b), row_alignment(g->d)},
    };
    // cuBLASLt reads both as it writes d.
    uint32_t beside = alignment((uintptr_t)bias | (uintptr_t)g->residual);
    if (beside < key.align[2]) key.align[2] = beside;
    return plan_get(p, &key, bias, out);
}

static const char *from_k(const tensor *t, bool k_first, int64_t k) {
    return (const char *)t->data + (size_t)(k * (k_first ? t->size[1] : 1)) * dtype_bytes(t->type);
}

err_t plan_run(matmul_plans *p, plan *e, const plan_operands *x, stream *s) {
    const float one = 1;
    if (!s->workspace) return err_set(ERR_INTERNAL, "matmul: a queue stream has no workspace for it");
    if (!e->candidates) return matmul_own(&e->key, x, s);
    if (e->key.bias) DESC(BIAS_POINTER, x->bias);
    BLAS(cublasLtMatmul, p->handle, e->desc, &one, x->b, e->a, x->a, e->b, &x->beta, x->c, e->d, x->out, e->d, &e->algo,
         s->workspace, CUDA_WORKSPACE, s->native);
    return cuda_launched(s, "cublasLtMatmul", __FILE__, __LINE__);
}

// out = c + the product, `step` of k at a time; c NULL: out = the product.
static err_t multiply(matmul_plans *p, const product *g, int64_t step, void *out, const void *c, stream *s) {
    for (int64_t k0 = 0; k0 < g->k; k0 += step, c = out) {
        plan *e;
        TRY(plan_step(p, g, k0, g->k - k0 < step ? g->k - k0 : step, &e));
        TRY(plan_fit(p, &e, g->m, g->bias));
        plan_operands x = {.m = g->m,
                           .out = out,
                           .c = c ? c : out,
                           .a = from_k(g->a, g->ta, k0),
                           .b = from_k(g->b, !g->tb, k0),
                           .bias = g->bias,
                           .beta = c ? 1 : 0};
        TRY(plan_run(p, e, &x, s));
    }
    return ERR_OK;
}

static int64_t step_of(const product *g) { return g->a->type == FP32 ? K_STEP : g->k; }

static void *room_of(const stream *s) { return (char *)s->workspace + CUDA_WORKSPACE; }

// d (+=): the whole sum over k is formed before d is added.
static err_t accumulate(matmul_plans *p, const product *g, tensor *d, stream *s) {
    tensor sum = *d;
    plan *first;
    bool fits = tensor_bytes(d) <= CUDA_ROOM;
    int64_t step = fits && g->k > step_of(g) ? step_of(g) : g->k;
    TRY(plan_step(p, g, 0, step, &first));
    if (step == g->k && !first->parts) return multiply(p, g, step, d->data, d->data, s);
    sum.data = room_of(s);
    TRY(multiply(p, g, step, sum.data, NULL, s));
    return cuda_add(&(add_args){.y = d, .a = d, .b = &sum}, s);
}

// May k be divided? Follows from shapes and types alone.
static bool may_split(const matmul_args *args, int64_t k) {
    if (args->ta) return args->d->type != FP32 || tensor_bytes(args->d) <= CUDA_ROOM;
    return k >= K_LONG && args->a->type != FP32 && args->d->type != FP32;
}

// cuBLASLt requires a bias of d's type.
static err_t bias_for(const matmul_args *args, const void **bias, stream *s) {
    tensor wide = *args->bias;
    *bias = args->bias->data;
    if (args->d->type == args->bias->type) return ERR_OK;
    wide.type = FP32;
    wide.data = room_of(s);
    *bias = wide.data;
    if (tensor_bytes(&wide) > CUDA_ROOM)
        return err_set(ERR_INTERNAL, "matmul: a bias of %" PRId64 " does not fit into its room", args->d->size[1]);
    return cuda_cast(&(cast_args){.y = &wide, .x = args->bias}, s);
}

// No matrix is cut.
static err_t matmul_whole(const matmul_args *args, stream *s) {
    matmul_plans *p = ((cuda_device *)s->dev)->plans;
    tensor out = *args->d;
    int64_t m = args->d->size[0], k = args->a->size[!args->ta];
    product g = {.m = m,
                 .k = k,
                 .rows = args->rows ? args->rows : m,
                 .a = args->a,
                 .b = args->b,
                 .d = &out,
                 .ta = args->ta,
                 .tb = args->tb,
                 .split = may_split(args, k),
                 .residual = args->residual ? args->residual->data : NULL};
    if (args->epilogue & MATMUL_ACCUMULATE) return accumulate(p, &g, args->d, s);
    if (args->epilogue & MATMUL_BIAS) TRY(bias_for(args, &g.bias, s));
    if (args->epilogue & MATMUL_GELU) out.data = args->pre->data;
    TRY(multiply(p, &g, step_of(&g), out.data, g.residual, s));
    if (args->epilogue & MATMUL_GELU)
        return cuda_gelu_forward(&(gelu_forward_args){.y = args->d, .x = args->pre, .erf = args->erf}, s);
    if (args->epilogue & MATMUL_DGELU)
        return cuda_gelu_backward(&(gelu_backward_args){.dx = args->d,
                                                        .dbias = args->dbias,
                                                        .dy = args->d,
                                                        .x = args->pre,
                                                        .fresh = args->fresh,
                                                        .erf = args->erf},
                                  s);
    return ERR_OK;
}

// --- matrices that are cut -------------------------------------------------------------------------------------------

// Slice k of S of a matrix: its own matrix where columns are cut, else rows.
static tensor slice_of(const tensor *t, int64_t k, int64_t S) {
    if (t->dims == 2) return tensor_rows(t, k * (t->size[0] / S), t->size[0] / S);
    tensor rows = tensor_rows(t, k, 1);
    return view2(&rows, t->size[1], t->size[2]);
}

// The same of a vector.
static tensor part_of(const tensor *t, int64_t k, int64_t S) {
    tensor all = view1(t, tensor_count(t));
    return tensor_rows(&all, k * (all.size[0] / S), all.size[0] / S);
}

static err_t sum_of_slices(const matmul_args *args, int64_t S, stream *s) {
    bool gelu = args->epilogue & MATMUL_GELU;
    if (!args->partials) return err_set(ERR_INTERNAL, "matmul: a sum in %" PRId64 " slices has no room for them", S);
    assert(tensor_count(args->partials) == S * tensor_count(args->d) && !(args->epilogue & MATMUL_DGELU));
    for (int64_t k = 0; k < S; k++) {
        tensor a = slice_of(args->a, k, S), b = slice_of(args->b, k, S), d = tensor_rows(args->partials, k, 1);
        d = view2(&d, args->d->size[0], args->d->size[1]);
        TRY(matmul_whole(&(matmul_args){.d = &d, .a = &a, .b = &b, .tb = args->tb, .rows = args->rows}, s));
    }
    TRY(cuda_sum_slices(&(sum_slices_args){.y = gelu ? args->pre : args->d,
                                           .parts = args->partials,
                                           .bias = args->epilogue & MATMUL_BIAS ? args->bias : NULL,
                                           .residual = args->residual,
                                           .add = args->epilogue & MATMUL_ACCUMULATE},
                        s));
    return gelu ? cuda_gelu_forward(&(gelu_forward_args){.y = args->d, .x = args->pre, .erf = args->erf}, s) : ERR_OK;
}

// Rows or columns of d, slice by slice. Of a and b it is the one that d's cut dimension comes from.
static err_t slices_of(const matmul_args *args, bool rows, int64_t S, stream *s) {
    for (int64_t k = 0; k < S; k++) {
        matmul_args x = *args;
        tensor d = slice_of(args->d, k, S), pre, bias, dbias, a, b;
        x.d = &d;
        if (rows) a = slice_of(args->a, k, S), x.a = &a;
        else b = slice_of(args->b, k, S), x.b = &b;
        if (args->pre) pre = slice_of(args->pre, k, S), x.pre = &pre;
        if (args->bias && !rows) bias = part_of(args->bias, k, S), x.bias = &bias;
        if (args->dbias) dbias = part_of(args->dbias, k, S), x.dbias = &dbias;
        TRY(matmul_whole(&x, s));
    }
    return ERR_OK;
}

err_t cuda_matmul(const matmul_args *args, stream *s) {
    matmul_check(args);
    if (args->a->dims == 2 && args->b->dims == 2 && args->d->dims == 2) return matmul_whole(args, s);
    int64_t k = matmul_slices(args), rows = args->ta ? matrix_slices(args->a) : 1;
    if (k > 1) return sum_of_slices(args, k, s);
    if (rows > 1) return slices_of(args, true, rows, s);
    if (matrix_slices(args->d) > 1) return slices_of(args, false, matrix_slices(args->d), s);
    matmul_args x = *args;
    tensor a = slice_of(args->a, 0, 1), b = slice_of(args->b, 0, 1), d = slice_of(args->d, 0, 1), pre;
    x.a = &a, x.b = &b, x.d = &d;
    if (args->pre) pre = slice_of(args->pre, 0, 1), x.pre = &pre;
    return matmul_whole(&x, s);
}
