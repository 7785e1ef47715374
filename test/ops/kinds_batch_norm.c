// test/ops/kinds_batch_norm.c: batch normalisation, each operation as in kinds_dense.c.
#include "test/ops/op_test.h"
#include "test/ops/reference_image.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static double *doubles(int64_t n) { return calloc((size_t)n, sizeof(double)); }
static void traffic_cost(const op_run *r, double *bytes, double *flops) { *bytes = arg_traffic(r), *flops = 0; }

static arg *rows(op_run *r, const char *name, role role) {
    arg *a = arg_add(r, name, role, r->row->type, 2, r->row->size[0], r->row->size[1], 0);
    a->batch = true;
    return a;
}
static arg *channels(op_run *r, const char *name, role role, double scale, double offset) {
    arg *a = arg_add(r, name, role, FP32, 1, r->row->size[1], 0, 0);
    if (role == IN) arg_fill(r, a, scale, offset);
    return a;
}

// --- batch_norm_sums: M C; OPT_NO_W: no center -----------------------------------------------------------------------

enum { SUMS, SUMS_X, SUMS_CENTER };

static void sums_setup(op_run *r) {
    arg_add(r, "sums", OUT, FP64, 2, 2, r->row->size[1], 0);
    arg *x = rows(r, "x", IN);
    x->batch = false;
    arg_fill(r, x, 1, 0.5);
    channels(r, "center", IN, 0.3, 0.4)->absent = r->row->options & OPT_NO_W;
}
static err_t sums_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    (void)r;
    return o->batch_norm_sums(&(batch_norm_sums_args){.sums = t[SUMS], .x = t[SUMS_X], .center = t[SUMS_CENTER]}, s);
}

// The sums of u and u*v as they are specified: each block from zero, blocks in order.
static void blocks(double *sums, const double *u, const double *v, int64_t M, int64_t C) {
    for (int64_t c = 0; c < C; c++)
        for (int64_t m = 0; m < M; m += BATCH_NORM_ROWS) {
            double s = 0, p = 0;
            for (int64_t k = m; k < M && k < m + BATCH_NORM_ROWS; k++)
                s += u[k * C + c], p += u[k * C + c] * v[k * C + c];
            sums[c] = m ? sums[c] + s : s, sums[C + c] = m ? sums[C + c] + p : p;
        }
}

static void differences(double *d, const double *x, const double *center, int64_t M, int64_t C) {
    for (int64_t i = 0; i < M * C; i++) d[i] = (double)((float)x[i] - (float)(center ? center[i % C] : 0));
}

static void sums_reference(op_run *r) {
    const int64_t M = r->row->size[0], C = r->row->size[1];
    double *d = doubles(M * C);
    differences(d, r->arg[SUMS_X].value, r->arg[SUMS_CENTER].absent ? NULL : r->arg[SUMS_CENTER].value, M, C);
    blocks(r->arg[SUMS].want, d, d, M, C);
    free(d);
}

static bool same_sums(op_run *r, const outcome *got, int of) {
    for (int64_t i = 0; i < tensor_count(&r->arg[of].t); i++) {
        double x = storage_get(got->data[of], FP64, i), want = r->arg[of].want[i];
        if (x != want) return failed(r, "sums[%" PRId64 "] is %.17g, specified %.17g", i, x, want);
    }
    return true;
}
static bool sums_exact(op_run *r, const outcome *got) { return same_sums(r, got, SUMS); }

const op_kind kind_batch_norm_sums = {"batch_norm_sums", sums_setup,  sums_call, sums_reference, NULL,
                                      sums_exact,        traffic_cost};

// --- batch_norm_moments: rows C; OPT_NO_W: no variance; rows 0: of running statistics --------------------------------

enum { MOM_MEAN, MOM_RSTD, MOM_VARIANCE, MOM_SUMS, MOM_CENTER, MOM_RUNNING };
#define EPS 1e-5

static void moments_setup(op_run *r) {
    const int64_t n = r->row->size[0], C = r->row->size[1];
    channels(r, "mean", OUT, 0, 0), channels(r, "rstd", OUT, 0, 0);
    channels(r, "variance", OUT, 0, 0)->absent = r->row->options & OPT_NO_W;
    arg *sums = arg_add(r, "sums", IN, FP64, 2, 2, C, 0);
    arg_fill(r, sums, 1, 0);
    for (int64_t i = 0; i < C; i++) {  // a mean of d, and of d*d, which is no smaller than its square
        double m = 0.3 * storage_get(sums->t.data, FP64, i), v = fabs(storage_get(sums->t.data, FP64, C + i));
        double x[2] = {m * (double)n, (m * m + (n == 1 || i % 5 == 4 ? 0 : v)) * (double)n};
        for (int k = 0; k < 2; k++) {
            storage_set(sums->t.data, FP64, k * C + i, x[k]);
            if (sums->value) sums->value[k * C + i] = x[k];
        }
    }
    channels(r, "center", IN, 0.3, 0.4);
    arg *running = channels(r, "running", IN, 0.2, 1);
    for (int64_t i = 0; i < C; i++) {  // a variance is no less than zero
        double v = i % 5 == 4 ? 0 : fabs(storage_get(running->t.data, FP32, i));
        storage_set(running->t.data, FP32, i, v);
        if (running->value) running->value[i] = v;
    }
    sums->absent = !n, running->absent = n;
}
static err_t moments_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->batch_norm_moments(&(batch_norm_moments_args){.mean = t[MOM_MEAN],
                                                            .rstd = t[MOM_RSTD],
                                                            .variance = t[MOM_VARIANCE],
                                                            .sums = t[MOM_SUMS],
                                                            .center = t[MOM_CENTER],
                                                            .running = t[MOM_RUNNING],
                                                            .rows = r->row->size[0],
                                                            .eps = EPS},
                                 s);
}
static void moments_reference(op_run *r) {
    const int64_t C = r->row->size[1];
    const double n = (double)r->row->size[0], *sums = r->arg[MOM_SUMS].value;
    for (int64_t c = 0; c < C; c++) {
        double m = n ? sums[c] / n : 0, v = n ? fmax(sums[C + c] / n - m * m, 0) : r->arg[MOM_RUNNING].value[c];
        r->arg[MOM_MEAN].want[c] = r->arg[MOM_CENTER].value[c] + m;
        r->arg[MOM_RSTD].want[c] = 1 / sqrt(v + EPS);
        r->arg[MOM_VARIANCE].want[c] = n > 1 ? v * n / (n - 1) : v;
    }
}
const op_kind kind_batch_norm_moments = {
    "batch_norm_moments", moments_setup, moments_call, moments_reference, NULL, NULL, traffic_cost};

// --- batch_norm_apply: M C -------------------------------------------------------------------------------------------

enum { APPLY_Y, APPLY_X, APPLY_MEAN, APPLY_RSTD, APPLY_GAIN, APPLY_BIAS, APPLY_RES };

static void apply_setup(op_run *r) {
    rows(r, "y", OUT);
    arg_fill(r, rows(r, "x", IN), 1, 0.5);
    channels(r, "mean", IN, 0.3, 0.5), channels(r, "rstd", IN, 0.2, 1);
    channels(r, "gain", IN, 0.5, 1), channels(r, "bias", IN, 0.5, 0);
    arg *residual = rows(r, "residual", IN);
    residual->absent = !(r->row->options & OPT_RESIDUAL);
    arg_fill(r, residual, 1, 0);
    if (r->row->options & OPT_ALIAS) r->arg[APPLY_Y].alias = 1 + APPLY_X;
    if (r->row->options & OPT_ALIAS2) r->arg[APPLY_Y].alias = 1 + APPLY_RES;
}
static err_t apply_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->batch_norm_apply(&(batch_norm_apply_args){.y = t[APPLY_Y],
                                                        .x = t[APPLY_X],
                                                        .mean = t[APPLY_MEAN],
                                                        .rstd = t[APPLY_RSTD],
                                                        .gain = t[APPLY_GAIN],
                                                        .bias = t[APPLY_BIAS],
                                                        .residual = t[APPLY_RES],
                                                        .relu = r->row->options & OPT_RELU},
                               s);
}
static void apply_reference(op_run *r) {
    const arg *a = r->arg;
    ref_batch_norm_apply(a[APPLY_Y].want, a[APPLY_X].value, a[APPLY_MEAN].value, a[APPLY_RSTD].value,
                         a[APPLY_GAIN].value, a[APPLY_BIAS].value, a[APPLY_RES].absent ? NULL : a[APPLY_RES].value,
                         r->row->options & OPT_RELU, r->row->size[0], r->row->size[1]);
}

// The whole of it: moments of x itself, and what its gradient is of all that the operations compute.
typedef struct norm_ctx {
    op_run *r;
    double *mean, *rstd, *y;
} norm_ctx;

static void norm_forward(norm_ctx *n) {
    const int64_t M = n->r->row->size[0], C = n->r->row->size[1];
    const arg *a = n->r->arg;
    const double *x = a[APPLY_X].value;
    for (int64_t c = 0; c < C; c++) {
        double sum = 0, squares = 0;
        for (int64_t m = 0; m < M; m++) sum += x[m * C + c];
        n->mean[c] = sum / (double)M;
        for (int64_t m = 0; m < M; m++) squares += (x[m * C + c] - n->mean[c]) * (x[m * C + c] - n->mean[c]);
        n->rstd[c] = 1 / sqrt(squares / (double)M + EPS);
    }
    ref_batch_norm_apply(n->y, x, n->mean, n->rstd, a[APPLY_GAIN].value, a[APPLY_BIAS].value,
                         a[APPLY_RES].absent ? NULL : a[APPLY_RES].value, n->r->row->options & OPT_RELU, M, C);
}

static double norm_loss(void *ctx) {
    norm_ctx *n = ctx;
    double sum = 0;
    norm_forward(n);
    for (int64_t i = 0; i < n->r->row->size[0] * n->r->row->size[1]; i++) sum += loss_weight(i) * n->y[i];
    return sum;
}

static bool apply_gradient(op_run *r) {
    const int64_t M = r->row->size[0], C = r->row->size[1];
    arg *a = r->arg;
    norm_ctx n = {r, doubles(C), doubles(C), doubles(M * C)};
    double *dy = doubles(M * C), *dx = doubles(M * C), *g = doubles(M * C), *sums = doubles(2 * C), *dgain = doubles(C);
    norm_forward(&n);
    for (int64_t i = 0; i < M * C; i++) dy[i] = loss_weight(i);
    const double *y = r->row->options & OPT_RELU ? n.y : NULL, *x = a[APPLY_X].value;
    ref_batch_norm_back_sums(sums, dy, x, y, n.mean, M, C);
    ref_batch_norm_back(dx, g, dy, x, y, n.mean, n.rstd, a[APPLY_GAIN].value, sums, (double)M, M, C);
    for (int64_t c = 0; c < C; c++) dgain[c] = n.rstd[c] * sums[C + c];
    bool ok = gradient_near(r, "dx", norm_loss, &n, a[APPLY_X].value, dx, M * C) &&
              gradient_near(r, "dgain", norm_loss, &n, a[APPLY_GAIN].value, dgain, C) &&
              gradient_near(r, "dbias", norm_loss, &n, a[APPLY_BIAS].value, sums, C) &&
              (a[APPLY_RES].absent || gradient_near(r, "dresidual", norm_loss, &n, a[APPLY_RES].value, g, M * C));
    free(n.mean), free(n.rstd), free(n.y), free(dy), free(dx), free(g), free(sums), free(dgain);
    return ok;
}
const op_kind kind_batch_norm_apply = {"batch_norm_apply", apply_setup, apply_call,  apply_reference,
                                       apply_gradient,     NULL,        traffic_cost};

// --- batch_norm_back_sums: M C ---------------------------------------------------------------------------------------

enum { BS_SUMS, BS_DGAIN, BS_DBIAS, BS_DY, BS_X, BS_Y, BS_MEAN, BS_RSTD };

static void back_sums_setup(op_run *r) {
    const role role = r->row->options & OPT_FRESH ? OUT : ADDS;
    arg_add(r, "sums", OUT, FP64, 2, 2, r->row->size[1], 0);
    channels(r, "dgain", role, 0, 0), channels(r, "dbias", role, 0, 0);
    arg_fill(r, rows(r, "dy", IN), 1, 0), arg_fill(r, rows(r, "x", IN), 1, 0.5);
    arg *y = rows(r, "y", IN);
    y->absent = !(r->row->options & OPT_RELU);
    arg_fill(r, y, 1, 0);
    channels(r, "mean", IN, 0.3, 0.5), channels(r, "rstd", IN, 0.2, 1);
    for (int i = 0; i < r->count; i++) r->arg[i].batch = false;
}
static err_t back_sums_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->batch_norm_back_sums(&(batch_norm_back_sums_args){.sums = t[BS_SUMS],
                                                                .dgain = t[BS_DGAIN],
                                                                .dbias = t[BS_DBIAS],
                                                                .dy = t[BS_DY],
                                                                .x = t[BS_X],
                                                                .y = t[BS_Y],
                                                                .mean = t[BS_MEAN],
                                                                .rstd = t[BS_RSTD],
                                                                .fresh = r->row->options & OPT_FRESH},
                                   s);
}
static void back_sums_reference(op_run *r) {
    const int64_t M = r->row->size[0], C = r->row->size[1];
    double *d = doubles(M * C), *g = doubles(M * C);
    differences(d, r->arg[BS_X].value, r->arg[BS_MEAN].value, M, C);
    for (int64_t i = 0; i < M * C; i++)
        g[i] = r->arg[BS_Y].absent || r->arg[BS_Y].value[i] > 0 ? r->arg[BS_DY].value[i] : 0;
    blocks(r->arg[BS_SUMS].want, g, d, M, C);
    for (int64_t c = 0; c < C; c++) {
        r->arg[BS_DBIAS].want[c] = r->arg[BS_SUMS].want[c];
        r->arg[BS_DGAIN].want[c] = r->arg[BS_RSTD].value[c] * r->arg[BS_SUMS].want[C + c];
    }
    free(d), free(g);
}
static bool back_sums_exact(op_run *r, const outcome *got) { return same_sums(r, got, BS_SUMS); }
const op_kind kind_batch_norm_back_sums = {
    "batch_norm_back_sums", back_sums_setup, back_sums_call, back_sums_reference, NULL, back_sums_exact, traffic_cost};

// --- batch_norm_back: M C rows of the span ---------------------------------------------------------------------------

enum { BACK_DX, BACK_DRES, BACK_DY, BACK_X, BACK_Y, BACK_MEAN, BACK_RSTD, BACK_GAIN, BACK_SUMS };

static void back_setup(op_run *r) {
    rows(r, "dx", OUT), rows(r, "dresidual", OUT)->absent = !(r->row->options & OPT_RESIDUAL);
    arg_fill(r, rows(r, "dy", IN), 1, 0), arg_fill(r, rows(r, "x", IN), 1, 0.5);
    arg *y = rows(r, "y", IN);
    y->absent = !(r->row->options & OPT_RELU);
    arg_fill(r, y, 1, 0);
    channels(r, "mean", IN, 0.3, 0.5), channels(r, "rstd", IN, 0.2, 1), channels(r, "gain", IN, 0.5, 1);
    arg_fill(r, arg_add(r, "sums", IN, FP64, 2, 2, r->row->size[1], 0), 0.3 * (double)r->row->size[2], 0);
    if (r->row->options & OPT_ALIAS) r->arg[BACK_DX].alias = 1 + BACK_DY;
    if (r->row->options & OPT_ALIAS2) r->arg[BACK_DRES].alias = 1 + BACK_DY;
}
static err_t back_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->batch_norm_back(&(batch_norm_back_args){.dx = t[BACK_DX],
                                                      .dresidual = t[BACK_DRES],
                                                      .dy = t[BACK_DY],
                                                      .x = t[BACK_X],
                                                      .y = t[BACK_Y],
                                                      .mean = t[BACK_MEAN],
                                                      .rstd = t[BACK_RSTD],
                                                      .gain = t[BACK_GAIN],
                                                      .sums = t[BACK_SUMS],
                                                      .rows = r->row->size[2]},
                              s);
}
static void back_reference(op_run *r) {
    const arg *a = r->arg;
    ref_batch_norm_back(a[BACK_DX].want, a[BACK_DRES].want, a[BACK_DY].value, a[BACK_X].value,
                        a[BACK_Y].absent ? NULL : a[BACK_Y].value, a[BACK_MEAN].value, a[BACK_RSTD].value,
                        a[BACK_GAIN].value, a[BACK_SUMS].value, (double)r->row->size[2], r->row->size[0],
                        r->row->size[1]);
}
const op_kind kind_batch_norm_back = {"batch_norm_back", back_setup, back_call, back_reference, NULL, NULL,
                                      traffic_cost};
