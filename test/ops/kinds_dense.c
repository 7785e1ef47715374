// test/ops/kinds_dense.c: the operations that work on rows: matmul, bias, layer norm, GELU, ReLU, dropout, add, cast.
// Each is: its arguments and inputs, its call, its reference, its gradient check, its cost.
#include "test/ops/op_test.h"
#include "test/ops/reference.h"

#include "base/philox.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static double *doubles(int64_t n) { return calloc((size_t)n, sizeof(double)); }

// The form that the row asks for.
static double gelu_of(const op_run *r, double x) { return r->row->options & OPT_ERF ? ref_gelu_erf(x) : ref_gelu(x); }
static double gelu_slope(const op_run *r, double x) {
    return r->row->options & OPT_ERF ? ref_gelu_erf_grad(x) : ref_gelu_grad(x);
}

// --- matmul: M N K, and slices, of what options say ------------------------------------------------------------------

// A gradient that is added to, or, in a row of OPT_FRESH, overwritten.
static arg *gradient_add(op_run *r, const char *name, int64_t n) {
    return arg_add(r, name, r->row->options & OPT_FRESH ? OUT : ADDS, FP32, 1, n, 0, 0);
}

// The column sums of another output, as it is stored: judged by sums_near alone.
static void sums_add(op_run *r, const char *name, int64_t n, bool wanted) {
    arg *a = gradient_add(r, name, n);
    a->absent = !wanted;
    free(a->want);
    a->want = NULL;
}

static bool sums_near(op_run *r, const outcome *got, int sums, int of) {
    int64_t n = tensor_count(&r->arg[sums].t), rows = tensor_count(&r->arg[of].t) / n;
    if (r->arg[sums].absent) return true;
    double *want = doubles(n);
    for (int64_t i = 0; i < rows * n; i++) want[i % n] += storage_get(got->data[of], r->arg[of].t.type, i);
    bool ok = values_near(r->arg[sums].name, FP32, got->data[sums], want, n, r->row->nmse, 0, r->why);
    free(want);
    return ok;
}

enum { MM_D, MM_PRE, MM_A, MM_B, MM_BIAS, MM_RES, MM_DBIAS, MM_PARTS };

// Which matrices are cut: those whose columns are.
static void matmul_cut(op_run *r) {
    unsigned o = r->row->options;
    int64_t S = r->row->size[3];
    if (!(o & (OPT_CUT_M | OPT_CUT_N | OPT_CUT_K))) return;
    for (int i = 0; i < r->count; i++) r->arg[i].batch = false;
    if (o & OPT_CUT_M) r->arg[MM_A].slices = S;
    if (o & OPT_CUT_N) r->arg[MM_D].slices = r->arg[MM_PRE].slices = S;
    if (o & OPT_CUT_N && !(o & OPT_TB)) r->arg[MM_B].slices = S;
    if (o & OPT_CUT_K) r->arg[MM_A].slices = S;
    if (o & OPT_CUT_K && o & OPT_TB) r->arg[MM_B].slices = S;
}

static void matmul_setup(op_run *r) {
    int64_t M = r->row->size[0], N = r->row->size[1], K = r->row->size[2];
    unsigned o = r->row->options;
    dtype T = r->row->type;
    bool ta = o & OPT_TA, tb = o & OPT_TB, adds = o & MATMUL_ACCUMULATE;
    arg *d = arg_add(r, "d", adds ? ADDS : OUT, adds || (o & OPT_OUT32) ? FP32 : T, 2, M, N, 0);
    arg *pre = arg_add(r, "pre", o & MATMUL_GELU ? OUT : IN, T, 2, M, N, 0);
    pre->absent = !(o & (MATMUL_GELU | MATMUL_DGELU));
    arg *a = arg_add(r, "a", IN, T, 2, ta ? K : M, ta ? M : K, 0);
    arg *b = arg_add(r, "b", IN, T, 2, tb ? N : K, tb ? K : N, 0);
    arg *bias = arg_add(r, "bias", IN, T, 1, N, 0, 0);
    bias->absent = !(o & MATMUL_BIAS);
    arg *res = arg_add(r, "residual", IN, T, 2, M, N, 0);
    res->absent = !(o & OPT_RESIDUAL);
    sums_add(r, "dbias", N, o & OPT_COLUMNS);
    arg_add(r, "partials", SCRATCH, FP32, 3, o & OPT_CUT_K ? r->row->size[3] : 1, M, N)->absent = !(o & OPT_CUT_K);
    d->batch = pre->batch = a->batch = res->batch = !ta;
    arg_fill(r, res, 1, 0);
    arg_fill(r, a, 1, 0);
    arg_fill(r, b, (o & (MATMUL_GELU | MATMUL_DGELU)) && K > 1 ? 0.1 : 1, 0);
    arg_fill(r, bias, 1, 0);
    if (pre->role == IN) arg_fill(r, pre, 1, 0);
    matmul_cut(r);
}

static err_t matmul_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    unsigned opt = r->row->options;
    return o->matmul(&(matmul_args){.d = t[MM_D],
                                    .pre = t[MM_PRE],
                                    .a = t[MM_A],
                                    .ta = opt & OPT_TA,
                                    .b = t[MM_B],
                                    .tb = opt & OPT_TB,
                                    .bias = t[MM_BIAS],
                                    .residual = t[MM_RES],
                                    .dbias = t[MM_DBIAS],
                                    .partials = t[MM_PARTS],
                                    .fresh = opt & OPT_FRESH,
                                    .rows = opt & OPT_TA ? 0 : r->row->size[0],
                                    .epilogue = opt & 15,
                                    .erf = opt & OPT_ERF},
                     s);
}

static void matmul_sum(op_run *r, double *d) {
    const int64_t *z = r->row->size;
    ref_matmul(d, r->arg[MM_A].value, r->row->options & OPT_TA, r->arg[MM_B].value, r->row->options & OPT_TB, z[0],
               z[1], z[2]);
}

static void matmul_reference(op_run *r) {
    int64_t N = r->row->size[1], n = r->row->size[0] * N;
    unsigned o = r->row->options;
    double *d = r->arg[MM_D].want;
    matmul_sum(r, d);
    if (o & MATMUL_BIAS)
        for (int64_t i = 0; i < n; i++) d[i] += r->arg[MM_BIAS].value[i % N];
    if (o & OPT_RESIDUAL)
        for (int64_t i = 0; i < n; i++) d[i] += r->arg[MM_RES].value[i];
    if (o & MATMUL_GELU) {  // d itself is judged by matmul_exact
        for (int64_t i = 0; i < n; i++) r->arg[MM_PRE].want[i] = d[i];
        free(r->arg[MM_D].want);
        r->arg[MM_D].want = NULL;
    }
    if (o & MATMUL_DGELU)
        for (int64_t i = 0; i < n; i++)
            d[i] = storage_round(r->row->type, d[i]) * gelu_slope(r, r->arg[MM_PRE].value[i]);
}

// d is the GELU of the pre that was kept, as the unfused pair would have it, not of the sum.
static bool matmul_exact(op_run *r, const outcome *got) {
    if (!(r->row->options & MATMUL_GELU)) return sums_near(r, got, MM_DBIAS, MM_D);
    const arg *d = &r->arg[MM_D], *pre = &r->arg[MM_PRE];
    int64_t n = tensor_count(&d->t);
    double *want = doubles(n);
    for (int64_t i = 0; i < n; i++) want[i] = gelu_of(r, storage_get(got->data[MM_PRE], pre->t.type, i));
    bool ok = values_near("d = gelu(pre)", d->t.type, got->data[MM_D], want, n, r->row->nmse, 0, r->why);
    free(want);
    return ok;
}

static double matmul_loss(void *ctx) {
    op_run *r = ctx;
    int64_t n = r->row->size[0] * r->row->size[1];
    double *d = doubles(n), sum = 0;
    matmul_sum(r, d);
    for (int64_t i = 0; i < n; i++)
        sum += loss_weight(i) * d[i] * (r->row->options & MATMUL_DGELU ? gelu_of(r, r->arg[MM_PRE].value[i]) : 1);
    free(d);
    return sum;
}

// The gradients of a product are products: this is how the trainer uses the transposes.
static bool matmul_gradient(op_run *r) {
    int64_t M = r->row->size[0], N = r->row->size[1], K = r->row->size[2], n = M * N;
    unsigned o = r->row->options;
    bool ta = o & OPT_TA, tb = o & OPT_TB, ok;
    const arg *a = &r->arg[MM_A], *b = &r->arg[MM_B], *pre = &r->arg[MM_PRE];
    if (o & (MATMUL_BIAS | MATMUL_GELU | MATMUL_ACCUMULATE | OPT_RESIDUAL)) return true;
    double *dy = doubles(n), *da = doubles(M * K), *db = doubles(K * N);
    if (o & MATMUL_DGELU) {
        matmul_sum(r, dy);
        for (int64_t i = 0; i < n; i++) dy[i] *= loss_weight(i) * gelu_slope(r, pre->value[i]);
        ok = gradient_near(r, "dpre", matmul_loss, r, pre->value, dy, n);
    } else {
        for (int64_t i = 0; i < n; i++) dy[i] = loss_weight(i);
        if (ta) ref_matmul(da, b->value, tb, dy, true, K, M, N);
        else ref_matmul(da, dy, false, b->value, !tb, M, K, N);
        if (tb) ref_matmul(db, dy, true, a->value, ta, N, K, M);
        else ref_matmul(db, a->value, !ta, dy, false, K, N, M);
        ok = gradient_near(r, "da", matmul_loss, r, a->value, da, M * K) &&
             gradient_near(r, "db", matmul_loss, r, b->value, db, K * N);
    }
    free(dy), free(da), free(db);
    return ok;
}

static void matmul_cost(const op_run *r, double *bytes, double *flops) {
    *bytes = arg_traffic(r);
    *flops = 2.0 * (double)r->row->size[0] * (double)r->row->size[1] * (double)r->row->size[2];
}

const op_kind kind_matmul = {"matmul",        matmul_setup, matmul_call, matmul_reference,
                             matmul_gradient, matmul_exact, matmul_cost};

// --- sum_slices: N C S -----------------------------------------------------------------------------------------------

enum { SS_Y, SS_PARTS, SS_BIAS, SS_RES };

static void slices_setup(op_run *r) {
    int64_t N = r->row->size[0], C = r->row->size[1], S = r->row->size[2];
    unsigned o = r->row->options;
    arg_add(r, "y", o & MATMUL_ACCUMULATE ? ADDS : OUT, r->row->type, 2, N, C, 0);
    arg_fill(r, arg_add(r, "parts", IN, r->row->type == FP64 ? FP64 : FP32, 3, S, N, C), 1, 0);
    arg *bias = arg_add(r, "bias", IN, r->row->type, 1, C, 0, 0),
        *res = arg_add(r, "residual", IN, r->row->type, 2, N, C, 0);
    bias->absent = !(o & MATMUL_BIAS), res->absent = !(o & OPT_RESIDUAL);
    arg_fill(r, bias, 1, 0), arg_fill(r, res, 1, 0);
    if (o & OPT_ALIAS) r->arg[SS_Y].alias = 1 + SS_RES;
}

static err_t slices_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->sum_slices(&(sum_slices_args){.y = t[SS_Y],
                                            .parts = t[SS_PARTS],
                                            .bias = t[SS_BIAS],
                                            .residual = t[SS_RES],
                                            .add = r->row->options & MATMUL_ACCUMULATE},
                         s);
}

static void slices_reference(op_run *r) {
    int64_t C = r->row->size[1], n = r->row->size[0] * C;
    for (int64_t i = 0; i < n; i++) {
        double x = r->arg[SS_BIAS].absent ? 0 : r->arg[SS_BIAS].value[i % C];
        if (!r->arg[SS_RES].absent) x += r->arg[SS_RES].value[i];
        for (int64_t s = 0; s < r->row->size[2]; s++) x += r->arg[SS_PARTS].value[s * n + i];
        r->arg[SS_Y].want[i] = x;
    }
}

// In FP32, or in FP64: siblings are added, nothing else.
static double slices_tree(const void *x, dtype t, int64_t first, int64_t count, int64_t n) {
    if (count == 1) return storage_get(x, t, first);
    double sum = slices_tree(x, t, first, count / 2, n) + slices_tree(x, t, first + count / 2 * n, count / 2, n);
    return t == FP32 ? (float)sum : sum;
}

static bool slices_exact(op_run *r, const outcome *got) {
    int64_t n = r->row->size[0] * r->row->size[1];
    dtype t = r->row->type;
    if ((t != FP32 && t != FP64) || r->row->options) return true;
    for (int64_t i = 0; i < n; i++) {
        double want = slices_tree(r->arg[SS_PARTS].t.data, t, i, r->row->size[2], n),
               found = storage_get(got->data[SS_Y], t, i);
        if (found != want) return failed(r, "element %" PRId64 " is %.17g, and along the tree %.17g", i, found, want);
    }
    return true;
}

static void slices_cost(const op_run *r, double *bytes, double *flops) { *bytes = arg_traffic(r), *flops = 0; }

const op_kind kind_sum_slices = {"sum_slices", slices_setup, slices_call, slices_reference,
                                 NULL,         slices_exact, slices_cost};

// --- bias_backward: N C, slices --------------------------------------------------------------------------------------

static void bias_setup(op_run *r) {
    gradient_add(r, "dbias", r->row->size[1]);
    arg *dy = arg_add(r, "dy", IN, r->row->type, 2, r->row->size[0], r->row->size[1], 0);
    arg_fill(r, dy, 1, 0);
    if (r->row->options & OPT_CUT_N) dy->slices = r->row->size[3];
}
static err_t bias_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->bias_backward(&(bias_backward_args){.dbias = t[0], .dy = t[1], .fresh = r->row->options & OPT_FRESH}, s);
}
static void bias_reference(op_run *r) {
    ref_column_sums(r->arg[0].want, r->arg[1].value, r->row->size[0], r->row->size[1]);
}

typedef struct bias_ctx {
    const double *dy, *bias;
    int64_t N, C;
} bias_ctx;
static double bias_loss(void *ctx) {  // of y = bias, row after row
    const bias_ctx *c = ctx;
    double sum = 0;
    for (int64_t i = 0; i < c->N * c->C; i++) sum += c->dy[i] * c->bias[i % c->C];
    return sum;
}
static bool bias_gradient(op_run *r) {
    double *bias = doubles(r->row->size[1]);
    bias_ctx c = {r->arg[1].value, bias, r->row->size[0], r->row->size[1]};
    bool ok = gradient_near(r, "dbias", bias_loss, &c, bias, r->arg[0].want, r->row->size[1]);
    free(bias);
    return ok;
}
static void stream_cost(const op_run *r, double *bytes, double *flops) { *bytes = arg_traffic(r), *flops = 0; }

const op_kind kind_bias_backward = {"bias_backward", bias_setup, bias_call,  bias_reference,
                                    bias_gradient,   NULL,       stream_cost};

// --- layer_norm: N C -------------------------------------------------------------------------------------------------

enum { LN_Y, LN_MEAN, LN_RSTD, LN_SUM, LN_X, LN_RES, LN_W, LN_B };
#define LN_EPS 1e-5f

static void ln_fill(op_run *r, arg *x) {
    bool extreme = r->row->options & OPT_EXTREME;
    arg_fill(r, x, 1, extreme ? 1000 : 0.25);  // far from zero, mean(x^2) - mean(x)^2 would leave nothing
}

static void norm_setup(op_run *r) {
    int64_t N = r->row->size[0], C = r->row->size[1];
    dtype T = r->row->type;
    bool residual = r->row->options & OPT_RESIDUAL;
    arg *y = arg_add(r, "y", OUT, T, 2, N, C, 0), *mean = arg_add(r, "mean", OUT, FP32, 1, N, 0, 0);
    arg *rstd = arg_add(r, "rstd", OUT, FP32, 1, N, 0, 0), *sum = arg_add(r, "sum", OUT, T, 2, N, C, 0);
    arg *x = arg_add(r, "x", IN, T, 2, N, C, 0), *res = arg_add(r, "residual", IN, T, 2, N, C, 0);
    arg *w = arg_add(r, "w", IN, T, 1, C, 0, 0), *b = arg_add(r, "b", IN, T, 1, C, 0, 0);
    sum->absent = res->absent = !residual;
    y->batch = mean->batch = rstd->batch = sum->batch = x->batch = res->batch = true;
    ln_fill(r, x);
    arg_fill(r, res, 1, 0);
    arg_fill(r, w, 0.5, 1);
    arg_fill(r, b, 0.5, 0);
}

static err_t norm_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    (void)r;
    return o->layer_norm_forward(&(layer_norm_forward_args){.y = t[LN_Y],
                                                            .mean = t[LN_MEAN],
                                                            .rstd = t[LN_RSTD],
                                                            .sum = t[LN_SUM],
                                                            .x = t[LN_X],
                                                            .residual = t[LN_RES],
                                                            .w = t[LN_W],
                                                            .b = t[LN_B],
                                                            .eps = LN_EPS},
                                 s);
}

static void norm_reference(op_run *r) {
    int64_t N = r->row->size[0], C = r->row->size[1];
    arg *a = r->arg;
    const double *x = a[LN_X].value;
    if (!a[LN_RES].absent) {  // an FP32 addition, then rounded to T
        for (int64_t i = 0; i < N * C; i++)
            a[LN_SUM].want[i] = storage_round(r->row->type, (double)(float)(x[i] + a[LN_RES].value[i]));
        x = a[LN_SUM].want;
    }
    ref_layer_norm_forward(a[LN_Y].want, a[LN_MEAN].want, a[LN_RSTD].want, x, a[LN_W].value, a[LN_B].value,
                           (double)LN_EPS, N, C);
}

static bool norm_exact(op_run *r, const outcome *got) {
    if (r->arg[LN_SUM].absent) return true;
    for (int64_t i = 0, n = tensor_count(&r->arg[LN_SUM].t); i < n; i++) {
        double g = storage_get(got->data[LN_SUM], r->row->type, i), want = r->arg[LN_SUM].want[i];
        if (g != want) return failed(r, "sum[%" PRId64 "] is %.9g, expected %.9g to the bit", i, g, want);
    }
    return true;
}

const op_kind kind_layer_norm_forward = {"layer_norm_forward", norm_setup, norm_call, norm_reference, NULL,
                                         norm_exact,           stream_cost};

enum { LB_DX, LB_DW, LB_DB, LB_DY, LB_RES, LB_X, LB_W, LB_MEAN, LB_RSTD, LB_DX_SUMS, LB_RES_SUMS };

static void norm_back_setup(op_run *r) {
    int64_t N = r->row->size[0], C = r->row->size[1];
    dtype T = r->row->type;
    arg *dx = arg_add(r, "dx", OUT, T, 2, N, C, 0);
    gradient_add(r, "dw", C);
    gradient_add(r, "db", C);
    arg *dy = arg_add(r, "dy", IN, T, 2, N, C, 0), *res = arg_add(r, "dresidual", IN, T, 2, N, C, 0);
    arg *x = arg_add(r, "x", IN, T, 2, N, C, 0), *w = arg_add(r, "w", IN, T, 1, C, 0, 0);
    arg *mean = arg_add(r, "mean", IN, FP32, 1, N, 0, 0), *rstd = arg_add(r, "rstd", IN, FP32, 1, N, 0, 0);
    sums_add(r, "dx_sums", C, r->row->options & OPT_COLUMNS);
    gradient_add(r, "dresidual_sums", C)->absent =
        !(r->row->options & OPT_COLUMNS) || !(r->row->options & OPT_RESIDUAL);
    res->absent = !(r->row->options & OPT_RESIDUAL);
    if (r->row->options & OPT_ALIAS) dx->alias = 1 + LB_RES;
    dx->batch = dy->batch = res->batch = x->batch = mean->batch = rstd->batch = true;
    arg_fill(r, dy, 1, 0.1);
    arg_fill(r, res, 1, 0);
    ln_fill(r, x);
    arg_fill(r, w, 0.5, 1);
    arg_fill(r, mean, 0.01, 0.25);
    arg_fill(r, rstd, 0.01, 1);
    if (r->bench) return;
    double *y = doubles(N * C), *m = doubles(N), *s = doubles(N), *b = doubles(C);
    ref_layer_norm_forward(y, m, s, x->value, w->value, b, (double)LN_EPS, N, C);
    arg_fill_with(r, mean, m);
    arg_fill_with(r, rstd, s);
    free(y), free(m), free(s), free(b);
}

static err_t norm_back_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->layer_norm_backward(&(layer_norm_backward_args){.dx = t[LB_DX],
                                                              .dw = t[LB_DW],
                                                              .db = t[LB_DB],
                                                              .dy = t[LB_DY],
                                                              .dresidual = t[LB_RES],
                                                              .x = t[LB_X],
                                                              .w = t[LB_W],
                                                              .mean = t[LB_MEAN],
                                                              .rstd = t[LB_RSTD],
                                                              .dx_sums = t[LB_DX_SUMS],
                                                              .dresidual_sums = t[LB_RES_SUMS],
                                                              .fresh = r->row->options & OPT_FRESH},
                                  s);
}

static void norm_back_reference(op_run *r) {
    arg *a = r->arg;
    ref_layer_norm_backward(a[LB_DX].want, a[LB_DW].want, a[LB_DB].want, a[LB_DY].value,
                            a[LB_RES].absent ? NULL : a[LB_RES].value, a[LB_X].value, a[LB_W].value, a[LB_MEAN].value,
                            a[LB_RSTD].value, r->row->size[0], r->row->size[1]);
    if (!a[LB_RES_SUMS].absent) ref_column_sums(a[LB_RES_SUMS].want, a[LB_RES].value, r->row->size[0], r->row->size[1]);
}

static bool norm_back_exact(op_run *r, const outcome *got) { return sums_near(r, got, LB_DX_SUMS, LB_DX); }

typedef struct norm_ctx {
    op_run *r;
    double *b, *y, *mean, *rstd;
} norm_ctx;
static double norm_loss(void *ctx) {
    norm_ctx *c = ctx;
    arg *a = c->r->arg;
    int64_t N = c->r->row->size[0], C = c->r->row->size[1];
    double sum = 0;
    ref_layer_norm_forward(c->y, c->mean, c->rstd, a[LB_X].value, a[LB_W].value, c->b, (double)LN_EPS, N, C);
    for (int64_t i = 0; i < N * C; i++)
        sum += a[LB_DY].value[i] * c->y[i] + (a[LB_RES].absent ? 0 : a[LB_RES].value[i] * a[LB_X].value[i]);
    return sum;
}

static bool
norm_back_gradient(op_run *r) {  // with the exact mean and rstd, not the rounded ones that the operation is given
    int64_t N = r->row->size[0], C = r->row->size[1];
    arg *a = r->arg;
    norm_ctx c = {r, doubles(C), doubles(N * C), doubles(N), doubles(N)};
    double *dx = doubles(N * C), *dw = doubles(C), *db = doubles(C), *mean = doubles(N), *rstd = doubles(N);
    ref_layer_norm_forward(c.y, mean, rstd, a[LB_X].value, a[LB_W].value, c.b, (double)LN_EPS, N, C);
    ref_layer_norm_backward(dx, dw, db, a[LB_DY].value, a[LB_RES].absent ? NULL : a[LB_RES].value, a[LB_X].value,
                            a[LB_W].value, mean, rstd, N, C);
    bool ok = gradient_near(r, "dx", norm_loss, &c, a[LB_X].value, dx, N * C) &&
              gradient_near(r, "dw", norm_loss, &c, a[LB_W].value, dw, C) &&
              gradient_near(r, "db", norm_loss, &c, c.b, db, C);
    free(c.b), free(c.y), free(c.mean), free(c.rstd), free(dx), free(dw), free(db), free(mean), free(rstd);
    return ok;
}

const op_kind kind_layer_norm_backward = {"layer_norm_backward", norm_back_setup, norm_back_call, norm_back_reference,
                                          norm_back_gradient,    norm_back_exact, stream_cost};

// --- gelu: N C -------------------------------------------------------------------------------------------------------

static void gelu_setup(op_run *r) {
    arg *y = arg_add(r, "y", OUT, r->row->type, 2, r->row->size[0], r->row->size[1], 0);
    arg *x = arg_add(r, "x", IN, r->row->type, 2, r->row->size[0], r->row->size[1], 0);
    y->batch = x->batch = true;
    arg_fill(r, x, r->row->options & OPT_EXTREME ? 1000 : 2, 0);
}
static err_t gelu_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->gelu_forward(&(gelu_forward_args){.y = t[0], .x = t[1], .erf = r->row->options & OPT_ERF}, s);
}
static void gelu_reference(op_run *r) {
    for (int64_t i = 0, n = tensor_count(&r->arg[0].t); i < n; i++) r->arg[0].want[i] = gelu_of(r, r->arg[1].value[i]);
}
const op_kind kind_gelu_forward = {"gelu_forward", gelu_setup, gelu_call, gelu_reference, NULL, NULL, stream_cost};

static void gelu_back_setup(op_run *r) {
    arg *dx = arg_add(r, "dx", OUT, r->row->type, 2, r->row->size[0], r->row->size[1], 0);
    arg *dy = arg_add(r, "dy", IN, r->row->type, 2, r->row->size[0], r->row->size[1], 0);
    arg *x = arg_add(r, "x", IN, r->row->type, 2, r->row->size[0], r->row->size[1], 0);
    sums_add(r, "dbias", r->row->size[1], r->row->options & OPT_COLUMNS);
    dx->batch = dy->batch = x->batch = true;
    if (r->row->options & OPT_ALIAS) dx->alias = 2;
    arg_fill(r, dy, 1, 0);
    arg_fill(r, x, r->row->options & OPT_EXTREME ? 1000 : 2, 0);
}
static err_t gelu_back_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->gelu_backward(&(gelu_backward_args){.dx = t[0],
                                                  .dbias = t[3],
                                                  .dy = t[1],
                                                  .x = t[2],
                                                  .fresh = r->row->options & OPT_FRESH,
                                                  .erf = r->row->options & OPT_ERF},
                            s);
}
static bool gelu_back_exact(op_run *r, const outcome *got) { return sums_near(r, got, 3, 0); }
static void gelu_back_reference(op_run *r) {
    for (int64_t i = 0, n = tensor_count(&r->arg[0].t); i < n; i++)
        r->arg[0].want[i] = r->arg[1].value[i] * gelu_slope(r, r->arg[2].value[i]);
}
static double gelu_loss(void *ctx) {
    op_run *r = ctx;
    double sum = 0;
    for (int64_t i = 0, n = tensor_count(&r->arg[0].t); i < n; i++)
        sum += r->arg[1].value[i] * gelu_of(r, r->arg[2].value[i]);
    return sum;
}
static bool gelu_back_gradient(op_run *r) {
    return gradient_near(r, "dx", gelu_loss, r, r->arg[2].value, r->arg[0].want, tensor_count(&r->arg[0].t));
}
const op_kind kind_gelu_backward = {"gelu_backward",    gelu_back_setup, gelu_back_call, gelu_back_reference,
                                    gelu_back_gradient, gelu_back_exact, stream_cost};

// --- tanh: N C -------------------------------------------------------------------------------------------------------

static void tanh_setup(op_run *r) {
    gelu_setup(r);
    if (r->row->options & OPT_ALIAS) r->arg[0].alias = 2;
}
static err_t tanh_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    (void)r;
    return o->tanh_forward(&(tanh_forward_args){.y = t[0], .x = t[1]}, s);
}
static void tanh_reference(op_run *r) {
    for (int64_t i = 0, n = tensor_count(&r->arg[0].t); i < n; i++) r->arg[0].want[i] = tanh(r->arg[1].value[i]);
}
const op_kind kind_tanh_forward = {"tanh_forward", tanh_setup, tanh_call, tanh_reference, NULL, NULL, stream_cost};

// The result y, which backward reads, is within (-1,1).
static void tanh_back_setup(op_run *r) {
    arg *dx = arg_add(r, "dx", OUT, r->row->type, 2, r->row->size[0], r->row->size[1], 0);
    arg *dy = arg_add(r, "dy", IN, r->row->type, 2, r->row->size[0], r->row->size[1], 0);
    arg *y = arg_add(r, "y", IN, r->row->type, 2, r->row->size[0], r->row->size[1], 0);
    dx->batch = dy->batch = y->batch = true;
    if (r->row->options & OPT_ALIAS) dx->alias = 2;
    arg_fill(r, dy, 1, 0);
    arg_fill(r, y, 0.5, 0);
}
static err_t tanh_back_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    (void)r;
    return o->tanh_backward(&(tanh_backward_args){.dx = t[0], .dy = t[1], .y = t[2]}, s);
}
static void tanh_back_reference(op_run *r) {
    for (int64_t i = 0, n = tensor_count(&r->arg[0].t); i < n; i++)
        r->arg[0].want[i] = r->arg[1].value[i] * (1 - r->arg[2].value[i] * r->arg[2].value[i]);
}
const op_kind kind_tanh_backward = {"tanh_backward", tanh_back_setup, tanh_back_call, tanh_back_reference, NULL, NULL,
                                    stream_cost};

// --- relu: N C -------------------------------------------------------------------------------------------------------

// With zeros of both signs between the values, which is where an implementation may differ.
static void relu_fill(op_run *r, arg *x) {
    arg_fill(r, x, 2, 0);
    for (int64_t i = 3, n = tensor_count(&x->t); i < n; i += 7) {
        storage_set(x->t.data, x->t.type, i, i % 2 ? -0.0 : 0.0);
        if (x->value) x->value[i] = 0;
    }
}
static void relu_setup(op_run *r) {
    arg *y = arg_add(r, "y", OUT, r->row->type, 2, r->row->size[0], r->row->size[1], 0);
    arg *x = arg_add(r, "x", IN, r->row->type, 2, r->row->size[0], r->row->size[1], 0);
    y->batch = x->batch = true;
    if (r->row->options & OPT_ALIAS) y->alias = 2;
    relu_fill(r, x);
}
static err_t relu_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    (void)r;
    return o->relu_forward(&(relu_forward_args){.y = t[0], .x = t[1]}, s);
}
static void relu_reference(op_run *r) {
    for (int64_t i = 0, n = tensor_count(&r->arg[0].t); i < n; i++) r->arg[0].want[i] = fmax(r->arg[1].value[i], 0);
}
static bool relu_exact(op_run *r,
                       const outcome *got) {  // nothing is rounded, and no zero is -0 that backward did not pass on
    for (int64_t i = 0, n = tensor_count(&r->arg[0].t); i < n; i++) {
        double y = storage_get(got->data[0], r->row->type, i), want = r->arg[0].want[i];
        if (y != want || (want == 0 && signbit(y)))
            return failed(r, "%s[%" PRId64 "] is %.9g, expected %.9g to the bit", r->arg[0].name, i, y, want);
    }
    return true;
}
const op_kind kind_relu_forward = {"relu_forward", relu_setup, relu_call,  relu_reference,
                                   NULL,           relu_exact, stream_cost};

static void relu_back_setup(op_run *r) {
    arg *dx = arg_add(r, "dx", OUT, r->row->type, 2, r->row->size[0], r->row->size[1], 0);
    arg *dy = arg_add(r, "dy", IN, r->row->type, 2, r->row->size[0], r->row->size[1], 0);
    arg *y = arg_add(r, "y", IN, r->row->type, 2, r->row->size[0], r->row->size[1], 0);
    dx->batch = dy->batch = y->batch = true;
    if (r->row->options & OPT_ALIAS) dx->alias = 2;
    arg_fill(r, dy, 1, 0);
    // below zero too, where an output never is: then y may be an input, whose gradient has no other formula
    relu_fill(r, y);
}
static err_t relu_back_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    (void)r;
    return o->relu_backward(&(relu_backward_args){.dx = t[0], .dy = t[1], .y = t[2]}, s);
}
static void relu_back_reference(op_run *r) {
    for (int64_t i = 0, n = tensor_count(&r->arg[0].t); i < n; i++)
        r->arg[0].want[i] = r->arg[2].value[i] > 0 ? r->arg[1].value[i] : 0;
}
static double relu_loss(void *ctx) {
    op_run *r = ctx;
    double sum = 0;
    for (int64_t i = 0, n = tensor_count(&r->arg[0].t); i < n; i++)
        sum += r->arg[1].value[i] * fmax(r->arg[2].value[i], 0);
    return sum;
}
static bool relu_back_gradient(op_run *r) {
    int64_t n = tensor_count(&r->arg[0].t);
    for (int64_t i = 0; i < n; i++)
        // at 0 there is a corner: the gradient is the one from below
        if (r->arg[2].value[i] == 0) r->arg[2].value[i] = -1;
    return gradient_near(r, "dx", relu_loss, r, r->arg[2].value, r->arg[0].want, n);
}
const op_kind kind_relu_backward = {"relu_backward",    relu_back_setup, relu_back_call, relu_back_reference,
                                    relu_back_gradient, relu_exact,      stream_cost};

// --- dropout: B E (first element, sample), add: N, random_fill: N, cast: N -------------------------------------------

static void dropout_setup(op_run *r) {
    arg *y = arg_add(r, "y", OUT, r->row->type, 2, r->row->size[0], r->row->size[1], 0);
    arg *x = arg_add(r, "x", IN, r->row->type, 2, r->row->size[0], r->row->size[1], 0);
    y->batch = x->batch = true;
    if (r->row->options & OPT_ALIAS) y->alias = 2;
    r->drop = (dropout_key){.seed = 0x123456789abcdefull,
                            .step = 7,
                            .first_sample = 0xfffffffe,
                            .site = 0x50000003,
                            .p = r->row->options & OPT_EXTREME ? 0 : 0.3f};
    arg_fill(r, x, 1, 0);
    arg_add_key(r, r->row->size[0]);
}
static err_t dropout_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    dropout_key key = call_key(r, t);
    return o->dropout(
        &(dropout_args){
            .y = t[0], .x = t[1], .drop = &key, .first = r->row->size[2], .sample = (uint32_t)r->row->size[3]},
        s);
}
static double dropout_keeps(const op_run *r, int64_t i) {
    int64_t E = r->row->size[1];
    return ref_keep(&r->drop, (uint32_t)(r->row->size[3] + i / E), r->row->size[2] + i % E);
}
static void dropout_reference(op_run *r) {
    for (int64_t i = 0, n = tensor_count(&r->arg[0].t); i < n; i++)
        r->arg[0].want[i] = r->arg[1].value[i] * dropout_keeps(r, i);
}
static bool dropout_exact(op_run *r, const outcome *got) {  // what goes is zero, not almost
    for (int64_t i = 0, n = tensor_count(&r->arg[0].t); i < n; i++) {
        double keep = dropout_keeps(r, i), y = storage_get(got->data[0], r->row->type, i);
        if ((keep == 0) != (y == 0) && r->arg[1].value[i] != 0)
            return failed(r, "y[%" PRId64 "] is %.9g, but the mask multiplies it by %.9g", i, y, keep);
    }
    return true;
}
const op_kind kind_dropout = {"dropout", dropout_setup, dropout_call, dropout_reference,
                              NULL,      dropout_exact, stream_cost};

static void add_setup(op_run *r) {
    arg *y = arg_add(r, "y", OUT, r->row->type, 1, r->row->size[0], 0, 0);
    arg *a = arg_add(r, "a", IN, r->row->type, 1, r->row->size[0], 0, 0);
    arg *b = arg_add(r, "b", IN, r->row->type, 1, r->row->size[0], 0, 0);
    y->batch = a->batch = b->batch = true;
    y->alias = r->row->options & OPT_ALIAS ? 2 : r->row->options & OPT_ALIAS2 ? 3 : 0;
    arg_fill(r, a, 1, 0);
    arg_fill(r, b, 2, 0);
}
static err_t add_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    (void)r;
    return o->add(&(add_args){.y = t[0], .a = t[1], .b = t[2]}, s);
}
static void add_reference(op_run *r) {
    for (int64_t i = 0; i < r->row->size[0]; i++)
        r->arg[0].want[i] = storage_round(r->row->type, (double)(float)(r->arg[1].value[i] + r->arg[2].value[i]));
}
static bool exact_output(op_run *r, const outcome *got) {
    for (int64_t i = 0; i < r->row->size[0]; i++) {
        double y = storage_get(got->data[0], r->arg[0].t.type, i);
        if (y == r->arg[0].want[i]) continue;
        return failed(r, "y[%" PRId64 "] is %.9g, expected %.9g to the bit", i, y, r->arg[0].want[i]);
    }
    return true;
}
const op_kind kind_add = {"add", add_setup, add_call, add_reference, NULL, exact_output, stream_cost};

static void random_setup(op_run *r) { arg_add(r, "y", OUT, r->row->type, 1, r->row->size[0], 0, 0); }
static err_t random_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    (void)r;
    return o->random_fill(&(random_fill_args){.y = t[0], .seed = 0x123456789abcdefull}, s);
}
static void random_reference(op_run *r) {
    uint32_t word[4];
    for (int64_t i = 0; i < r->row->size[0]; i++) {
        if (i % 4 == 0) philox4x32(word, 0x123456789abcdefull, (uint32_t)(i / 4), 0, (uint32_t)(i >> 34), 0);
        r->arg[0].want[i] = storage_round(r->row->type, (double)(word[i % 4] >> 8) * 0x1p-23 - 1);
    }
}
const op_kind kind_random_fill = {"random_fill", random_setup, random_call, random_reference,
                                  NULL,          exact_output, stream_cost};

static void cast_setup(op_run *r) {
    arg *y = arg_add(r, "y", OUT, (dtype)(r->row->options >> OPT_TO_SHIFT), 1, r->row->size[0], 0, 0);
    arg *x = arg_add(r, "x", IN, r->row->type, 1, r->row->size[0], 0, 0);
    y->batch = x->batch = true;
    arg_fill(r, x, 1, 0);
}
static err_t cast_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    (void)r;
    return o->cast(&(cast_args){.y = t[0], .x = t[1]}, s);
}
static void cast_reference(op_run *r) {
    for (int64_t i = 0; i < r->row->size[0]; i++)
        r->arg[0].want[i] = storage_round(r->arg[0].t.type, r->arg[1].value[i]);
}
const op_kind kind_cast = {"cast", cast_setup, cast_call, cast_reference, NULL, exact_output, stream_cost};
