// test/ops/kinds_llama.c: the operations of models after Llama: RMS norm, of rows and of heads, rotary embedding,
// SwiGLU and GeGLU.
// Each is: its arguments and inputs, its call, its reference, its gradient check, its cost.
#include "test/ops/op_test.h"
#include "test/ops/reference.h"

#include <math.h>
#include <stdlib.h>

#define EPS 1e-5f

// What is added to the weights of a norm.
static float shift_of(const op_run *r) { return r->row->options & OPT_SHIFT ? 1 : 0; }

static double *doubles(int64_t n) { return calloc((size_t)n, sizeof(double)); }

// A gradient that is added to, or, in a row of OPT_FRESH, overwritten.
static arg *gradient_add(op_run *r, const char *name, int64_t n) {
    return arg_add(r, name, r->row->options & OPT_FRESH ? OUT : ADDS, FP32, 1, n, 0, 0);
}

static void stream_cost(const op_run *r, double *bytes, double *flops) { *bytes = arg_traffic(r), *flops = 0; }

// --- rms_norm: N C ---------------------------------------------------------------------------------------------------

enum { RF_Y, RF_RSTD, RF_X, RF_W };

static void rms_setup(op_run *r) {
    int64_t N = r->row->size[0], C = r->row->size[1];
    dtype T = r->row->type;
    arg *y = arg_add(r, "y", OUT, T, 2, N, C, 0), *rstd = arg_add(r, "rstd", OUT, FP32, 1, N, 0, 0);
    arg *x = arg_add(r, "x", IN, T, 2, N, C, 0), *w = arg_add(r, "w", IN, T, 1, C, 0, 0);
    if (r->row->options & OPT_ALIAS) y->alias = 1 + RF_X;
    y->batch = rstd->batch = x->batch = true;
    // small: eps decides
    arg_fill(r, x, r->row->options & OPT_EXTREME ? 1e-4 : 1, r->row->options & OPT_EXTREME ? 0 : 0.25);
    arg_fill(r, w, 0.5, 1 - shift_of(r));
}

static err_t rms_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    (void)r;
    return o->rms_norm_forward(
        &(rms_norm_forward_args){
            .y = t[RF_Y], .rstd = t[RF_RSTD], .x = t[RF_X], .w = t[RF_W], .eps = EPS, .shift = shift_of(r)},
        s);
}

static void rms_reference(op_run *r) {
    arg *a = r->arg;
    ref_rms_norm_forward(a[RF_Y].want, a[RF_RSTD].want, a[RF_X].value, a[RF_W].value, shift_of(r), (double)EPS,
                         r->row->size[0], r->row->size[1]);
}

const op_kind kind_rms_norm_forward = {"rms_norm_forward", rms_setup, rms_call, rms_reference, NULL, NULL, stream_cost};

enum { RB_DX, RB_DW, RB_DY, RB_RES, RB_X, RB_W, RB_RSTD };

static void rms_back_setup(op_run *r) {
    int64_t N = r->row->size[0], C = r->row->size[1];
    dtype T = r->row->type;
    arg *dx = arg_add(r, "dx", OUT, T, 2, N, C, 0);
    gradient_add(r, "dw", C);
    arg *dy = arg_add(r, "dy", IN, T, 2, N, C, 0), *res = arg_add(r, "dresidual", IN, T, 2, N, C, 0);
    arg *x = arg_add(r, "x", IN, T, 2, N, C, 0), *w = arg_add(r, "w", IN, T, 1, C, 0, 0),
        *rstd = arg_add(r, "rstd", IN, FP32, 1, N, 0, 0);
    res->absent = !(r->row->options & OPT_RESIDUAL);
    if (r->row->options & OPT_ALIAS) dx->alias = 1 + RB_RES;
    dx->batch = dy->batch = res->batch = x->batch = rstd->batch = true;
    arg_fill(r, dy, 1, 0.1);
    arg_fill(r, res, 1, 0);
    arg_fill(r, x, 1, 0.25);
    arg_fill(r, w, 0.5, 1 - shift_of(r));
    arg_fill(r, rstd, 0.01, 1);
    if (r->bench) return;
    double *y = doubles(N * C), *s = doubles(N);
    ref_rms_norm_forward(y, s, x->value, w->value, shift_of(r), (double)EPS, N, C);
    arg_fill_with(r, rstd, s);
    free(y), free(s);
}

static err_t rms_back_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->rms_norm_backward(&(rms_norm_backward_args){.dx = t[RB_DX],
                                                          .dw = t[RB_DW],
                                                          .dy = t[RB_DY],
                                                          .dresidual = t[RB_RES],
                                                          .x = t[RB_X],
                                                          .w = t[RB_W],
                                                          .rstd = t[RB_RSTD],
                                                          .shift = shift_of(r),
                                                          .fresh = r->row->options & OPT_FRESH},
                                s);
}

static void rms_back_reference(op_run *r) {
    arg *a = r->arg;
    ref_rms_norm_backward(a[RB_DX].want, a[RB_DW].want, a[RB_DY].value, a[RB_RES].absent ? NULL : a[RB_RES].value,
                          a[RB_X].value, a[RB_W].value, shift_of(r), a[RB_RSTD].value, r->row->size[0],
                          r->row->size[1]);
}

typedef struct rms_ctx {
    op_run *r;
    double *y, *rstd;
} rms_ctx;
static double rms_loss(void *ctx) {
    rms_ctx *c = ctx;
    arg *a = c->r->arg;
    int64_t N = c->r->row->size[0], C = c->r->row->size[1];
    double sum = 0;
    ref_rms_norm_forward(c->y, c->rstd, a[RB_X].value, a[RB_W].value, shift_of(c->r), (double)EPS, N, C);
    for (int64_t i = 0; i < N * C; i++)
        sum += a[RB_DY].value[i] * c->y[i] + (a[RB_RES].absent ? 0 : a[RB_RES].value[i] * a[RB_X].value[i]);
    return sum;
}

static bool rms_back_gradient(op_run *r) {  // with the exact rstd, not the rounded one that the operation is given
    int64_t N = r->row->size[0], C = r->row->size[1];
    arg *a = r->arg;
    rms_ctx c = {r, doubles(N * C), doubles(N)};
    double *dx = doubles(N * C), *dw = doubles(C), *rstd = doubles(N);
    ref_rms_norm_forward(c.y, rstd, a[RB_X].value, a[RB_W].value, shift_of(r), (double)EPS, N, C);
    ref_rms_norm_backward(dx, dw, a[RB_DY].value, a[RB_RES].absent ? NULL : a[RB_RES].value, a[RB_X].value,
                          a[RB_W].value, shift_of(r), rstd, N, C);
    bool ok = gradient_near(r, "dx", rms_loss, &c, a[RB_X].value, dx, N * C) &&
              gradient_near(r, "dw", rms_loss, &c, a[RB_W].value, dw, C);
    free(c.y), free(c.rstd), free(dx), free(dw), free(rstd);
    return ok;
}

const op_kind kind_rms_norm_backward = {"rms_norm_backward", rms_back_setup, rms_back_call, rms_back_reference,
                                        rms_back_gradient,   NULL,           stream_cost};

// --- head_norm: N n D, first, count ----------------------------------------------------------------------------------

enum { HF_X, HF_KEPT, HF_RSTD, HF_W };
enum { HB_DX, HB_DW, HB_KEPT, HB_RSTD, HB_W };

// Calls f for each head that is normed: where it lies in x, and its number among them.
typedef struct head_walk {
    int64_t N, n, D, first, count;
} head_walk;
static head_walk heads_of(const op_run *r) {
    return (head_walk){r->row->size[0], r->row->size[1], r->row->size[2], r->row->size[3], r->row->size[4]};
}
static int64_t head_at(const head_walk *h, int64_t i) { return (i / h->count * h->n + h->first + i % h->count) * h->D; }

// Of the heads that are normed: read, kept and written, or twice read and written; dw as a gradient is.
static void head_cost(const op_run *r, double *bytes, double *flops) {
    const arg *a = r->arg;
    bool back = r->row->op == OP_head_norm_backward;
    int kept = back ? HB_KEPT : HF_KEPT, rstd = back ? HB_RSTD : HF_RSTD, w = back ? HB_W : HF_W;
    *bytes = 3.0 * (double)tensor_bytes(&a[kept].t) + (double)tensor_bytes(&a[rstd].t) + (double)tensor_bytes(&a[w].t);
    if (back) *bytes += (r->row->options & OPT_FRESH ? 1.0 : 2.0) * (double)tensor_bytes(&a[HB_DW].t);
    *flops = 0;
}

static void head_setup(op_run *r) {
    head_walk h = heads_of(r);
    dtype T = r->row->type;
    arg *x = arg_add(r, "x", UPDATES, T, 2, h.N, h.n * h.D, 0),
        *kept = arg_add(r, "kept", OUT, T, 2, h.N, h.count * h.D, 0);
    arg *rstd = arg_add(r, "rstd", OUT, FP32, 2, h.N, h.count, 0), *w = arg_add(r, "w", IN, T, 1, h.D, 0, 0);
    x->batch = kept->batch = rstd->batch = true;
    arg_fill(r, x, 1, 0.25);
    arg_fill(r, w, 0.5, 1 - shift_of(r));
}

static err_t head_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->head_norm_forward(&(head_norm_forward_args){.x = t[HF_X],
                                                          .kept = t[HF_KEPT],
                                                          .rstd = t[HF_RSTD],
                                                          .w = t[HF_W],
                                                          .first = (int)r->row->size[3],
                                                          .eps = EPS,
                                                          .shift = shift_of(r)},
                                s);
}

static void head_reference(op_run *r) {
    head_walk h = heads_of(r);
    arg *a = r->arg;
    for (int64_t i = 0; i < h.N * h.n * h.D; i++) a[HF_X].want[i] = a[HF_X].value[i];
    for (int64_t i = 0; i < h.N * h.count; i++) {
        int64_t at = head_at(&h, i);
        for (int64_t k = 0; k < h.D; k++) a[HF_KEPT].want[i * h.D + k] = a[HF_X].value[at + k];
        ref_rms_norm_forward(a[HF_X].want + at, a[HF_RSTD].want + i, a[HF_X].value + at, a[HF_W].value, shift_of(r),
                             (double)EPS, 1, h.D);
    }
}

// Heads that are not named keep every bit, and what is kept is what was there.
static bool head_exact(op_run *r, const outcome *got) {
    head_walk h = heads_of(r);
    for (int64_t i = 0; i < h.N * h.n * h.D; i++) {
        int64_t head = i / h.D % h.n;
        double was = r->arg[HF_X].value[i];
        bool normed = head >= h.first && head < h.first + h.count;
        int64_t at = ((i / h.D / h.n) * h.count + head - h.first) * h.D + i % h.D;
        double is =
            normed ? storage_get(got->data[HF_KEPT], r->row->type, at) : storage_get(got->data[HF_X], r->row->type, i);
        if (is != was) return failed(r, "element %lld was %.9g and is %.9g", (long long)i, was, is);
    }
    return true;
}

const op_kind kind_head_norm_forward = {"head_norm_forward", head_setup, head_call, head_reference, NULL,
                                        head_exact,          head_cost};

static void head_back_setup(op_run *r) {
    head_walk h = heads_of(r);
    dtype T = r->row->type;
    arg *dx = arg_add(r, "dx", UPDATES, T, 2, h.N, h.n * h.D, 0);
    gradient_add(r, "dw", h.D);
    arg *kept = arg_add(r, "kept", IN, T, 2, h.N, h.count * h.D, 0),
        *rstd = arg_add(r, "rstd", IN, FP32, 2, h.N, h.count, 0);
    arg *w = arg_add(r, "w", IN, T, 1, h.D, 0, 0);
    dx->batch = kept->batch = rstd->batch = true;
    arg_fill(r, dx, 1, 0.1);
    arg_fill(r, kept, 1, 0.25);
    arg_fill(r, rstd, 0.01, 1);
    arg_fill(r, w, 0.5, 1 - shift_of(r));
    if (r->bench) return;
    double *y = doubles(h.D), *s = doubles(h.N * h.count);
    for (int64_t i = 0; i < h.N * h.count; i++)
        ref_rms_norm_forward(y, s + i, kept->value + i * h.D, w->value, shift_of(r), (double)EPS, 1, h.D);
    arg_fill_with(r, rstd, s);
    free(y), free(s);
}

static err_t head_back_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->head_norm_backward(&(head_norm_backward_args){.dx = t[HB_DX],
                                                            .dw = t[HB_DW],
                                                            .kept = t[HB_KEPT],
                                                            .rstd = t[HB_RSTD],
                                                            .w = t[HB_W],
                                                            .first = (int)r->row->size[3],
                                                            .shift = shift_of(r),
                                                            .fresh = r->row->options & OPT_FRESH},
                                 s);
}

static void head_back(const op_run *r, double *dx, double *dw, const double *rstd) {
    head_walk h = heads_of(r);
    const arg *a = r->arg;
    double *part = doubles(h.D);
    for (int64_t i = 0; i < h.N * h.n * h.D; i++) dx[i] = a[HB_DX].value[i];
    for (int64_t k = 0; k < h.D; k++) dw[k] = 0;
    for (int64_t i = 0; i < h.N * h.count; i++) {
        int64_t at = head_at(&h, i);
        ref_rms_norm_backward(dx + at, part, a[HB_DX].value + at, NULL, a[HB_KEPT].value + i * h.D, a[HB_W].value,
                              shift_of(r), rstd + i, 1, h.D);
        for (int64_t k = 0; k < h.D; k++) dw[k] += part[k];
    }
    free(part);
}

static void head_back_reference(op_run *r) {
    head_back(r, r->arg[HB_DX].want, r->arg[HB_DW].want, r->arg[HB_RSTD].value);
}

static double head_loss(void *ctx) {
    rms_ctx *c = ctx;
    head_walk h = heads_of(c->r);
    arg *a = c->r->arg;
    double sum = 0;
    for (int64_t i = 0; i < h.N * h.count; i++) {
        ref_rms_norm_forward(c->y, c->rstd, a[HB_KEPT].value + i * h.D, a[HB_W].value, shift_of(c->r), (double)EPS, 1,
                             h.D);
        for (int64_t k = 0; k < h.D; k++) sum += a[HB_DX].value[head_at(&h, i) + k] * c->y[k];
    }
    return sum;
}

static bool head_back_gradient(op_run *r) {
    head_walk h = heads_of(r);
    arg *a = r->arg;
    int64_t heads = h.N * h.count;
    rms_ctx c = {r, doubles(h.D), doubles(1)};
    double *dx = doubles(h.N * h.n * h.D), *dkept = doubles(heads * h.D), *dw = doubles(h.D), *rstd = doubles(heads);
    for (int64_t i = 0; i < heads; i++)
        ref_rms_norm_forward(c.y, rstd + i, a[HB_KEPT].value + i * h.D, a[HB_W].value, shift_of(r), (double)EPS, 1,
                             h.D);
    head_back(r, dx, dw, rstd);
    for (int64_t i = 0; i < heads * h.D; i++) dkept[i] = dx[head_at(&h, i / h.D) + i % h.D];
    bool ok = gradient_near(r, "dx", head_loss, &c, a[HB_KEPT].value, dkept, heads * h.D) &&
              gradient_near(r, "dw", head_loss, &c, a[HB_W].value, dw, h.D);
    free(c.y), free(c.rstd), free(dx), free(dkept), free(dw), free(rstd);
    return ok;
}

const op_kind kind_head_norm_backward = {
    "head_norm_backward", head_back_setup, head_back_call, head_back_reference, head_back_gradient, NULL, head_cost};

// --- rotary: B T n D/2, heads, samples of places that repeat: B or a part of it, 0: positions ------------------------
// OPT_TB: by the negative angles.

static void rotary_setup(op_run *r) {
    int64_t B = r->row->size[0], T = r->row->size[1], n = r->row->size[2], D = 2 * r->row->size[3];
    arg *x = arg_add(r, "x", UPDATES, r->row->type, 3, B, T, n * D),
        *table = arg_add(r, "table", IN, FP32, 2, T + 1, D, 0);
    x->batch = true;
    arg_fill(r, x, 1, 0);
    double *angles = doubles((T + 1) * D);
    for (int64_t t = 0; t <= T; t++)
        for (int64_t i = 0; i < D / 2; i++) {
            double angle = (double)t * pow(10000, -2.0 * (double)i / (double)D);
            angles[t * D + i] = cos(angle), angles[t * D + D / 2 + i] = sin(angle);
        }
    arg_fill_with(r, table, angles);
    free(angles);
    int64_t placed = r->row->size[5];
    arg *places = arg_add(r, "places", IN, INT32, 2, placed ? placed : 1, T, 0);
    places->absent = !placed, places->batch = placed == B;
    if (placed != B && placed) x->batch = false;  // parts of the batch would have others
    arg_fill_index(r, places, T + 1, 0);
}

static err_t rotary_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->rotary(
        &(rotary_args){
            .x = t[0], .table = t[1], .places = t[2], .heads = (int)r->row->size[4], .back = r->row->options & OPT_TB},
        s);
}

static void rotary_reference(op_run *r) {
    int64_t T = r->row->size[1], n = r->row->size[2], D = 2 * r->row->size[3], count = tensor_count(&r->arg[0].t);
    int64_t placed = r->row->size[5];
    const double *x = r->arg[0].value, *table = r->arg[1].value, sign = r->row->options & OPT_TB ? -1 : 1;
    for (int64_t i = 0; i < count; i++) {
        int64_t k = i % D, head = i / D % n, row = i / (n * D), t = row % T, half = D / 2;
        if (placed) t = (int64_t)r->arg[2].value[row % (placed * T)];
        double c = table[t * D + k % half], s = sign * table[t * D + half + k % half];
        double turned = k < half ? x[i] * c - x[i + half] * s : x[i] * c + x[i - half] * s;
        r->arg[0].want[i] = head < r->row->size[4] ? turned : x[i];
    }
}

// Lengths of the pairs stay: what turns by the same angles backwards is then the gradient.
static bool rotary_gradient(op_run *r) {
    int64_t D = 2 * r->row->size[3], half = D / 2, count = tensor_count(&r->arg[0].t);
    const double *x = r->arg[0].value, *y = r->arg[0].want;
    for (int64_t i = 0; i < count; i++) {
        if (i % D >= half) continue;
        double before = x[i] * x[i] + x[i + half] * x[i + half], after = y[i] * y[i] + y[i + half] * y[i + half];
        if (fabs(before - after) > 1e-6 * (before + 1e-3))
            return failed(r, "the reference stretches pair %lld: %.9g, %.9g", (long long)i, before, after);
    }
    return true;
}

static void rotary_cost_of(const op_run *r, double *bytes,
                           double *flops) {  // the heads that are turned, and the rows of the table that are used
    const int64_t *n = r->row->size;
    *bytes = 2.0 * (double)(n[0] * n[1] * n[4] * 2 * n[3]) * (double)dtype_bytes(r->row->type) +
             4.0 * (double)(n[1] * 2 * n[3]) + (n[5] ? (double)tensor_bytes(&r->arg[2].t) : 0),
    *flops = 0;
}

const op_kind kind_rotary = {"rotary",        rotary_setup, rotary_call,   rotary_reference,
                             rotary_gradient, NULL,         rotary_cost_of};

// --- swiglu, geglu: N F ----------------------------------------------------------------------------------------------

static bool by_gelu(const op_run *r) { return r->row->op == OP_geglu_forward || r->row->op == OP_geglu_backward; }
static double gate_of(const op_run *r, double g) { return by_gelu(r) ? ref_gelu(g) : g / (1 + exp(-g)); }
static double gate_slope(const op_run *r, double g) {
    double s = 1 / (1 + exp(-g));
    return by_gelu(r) ? ref_gelu_grad(g) : s + g * s * (1 / (1 + exp(g)));
}

static void gated_setup(op_run *r) {
    int64_t N = r->row->size[0], F = r->row->size[1];
    arg *y = arg_add(r, "y", OUT, r->row->type, 2, N, F, 0), *x = arg_add(r, "x", IN, r->row->type, 2, N, 2 * F, 0);
    y->batch = x->batch = true;
    arg_fill(r, x, r->row->options & OPT_EXTREME ? 100 : 2, 0);
}
static err_t gated_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    const gated_forward_args args = {.y = t[0], .x = t[1]};
    return by_gelu(r) ? o->geglu_forward(&args, s) : o->swiglu_forward(&args, s);
}
static void gated_reference(op_run *r) {
    int64_t F = r->row->size[1];
    const double *x = r->arg[1].value;
    for (int64_t i = 0; i < r->row->size[0] * F; i++) {
        int64_t at = i / F * 2 * F + i % F;
        r->arg[0].want[i] = gate_of(r, x[at]) * x[at + F];
    }
}

const op_kind kind_swiglu_forward = {"swiglu_forward", gated_setup, gated_call, gated_reference, NULL, NULL,
                                     stream_cost};
const op_kind kind_geglu_forward = {"geglu_forward", gated_setup, gated_call, gated_reference, NULL, NULL, stream_cost};

static void gated_back_setup(op_run *r) {
    int64_t N = r->row->size[0], F = r->row->size[1];
    arg *dx = arg_add(r, "dx", OUT, r->row->type, 2, N, 2 * F, 0), *dy = arg_add(r, "dy", IN, r->row->type, 2, N, F, 0);
    arg *x = arg_add(r, "x", IN, r->row->type, 2, N, 2 * F, 0);
    if (r->row->options & OPT_ALIAS) dx->alias = 1 + 2;
    dx->batch = dy->batch = x->batch = true;
    arg_fill(r, dy, 1, 0);
    arg_fill(r, x, r->row->options & OPT_EXTREME ? 100 : 2, 0);
}
static err_t gated_back_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    const gated_backward_args args = {.dx = t[0], .dy = t[1], .x = t[2]};
    return by_gelu(r) ? o->geglu_backward(&args, s) : o->swiglu_backward(&args, s);
}
static void gated_back_reference(op_run *r) {
    int64_t F = r->row->size[1];
    const double *dy = r->arg[1].value, *x = r->arg[2].value;
    for (int64_t i = 0; i < r->row->size[0] * F; i++) {
        int64_t at = i / F * 2 * F + i % F;
        r->arg[0].want[at] = dy[i] * x[at + F] * gate_slope(r, x[at]);
        r->arg[0].want[at + F] = dy[i] * gate_of(r, x[at]);
    }
}
static double gated_loss(void *ctx) {
    op_run *r = ctx;
    int64_t F = r->row->size[1];
    const double *dy = r->arg[1].value, *x = r->arg[2].value;
    double sum = 0;
    for (int64_t i = 0; i < r->row->size[0] * F; i++) {
        int64_t at = i / F * 2 * F + i % F;
        sum += dy[i] * gate_of(r, x[at]) * x[at + F];
    }
    return sum;
}
static bool gated_back_gradient(op_run *r) {
    return gradient_near(r, "dx", gated_loss, r, r->arg[2].value, r->arg[0].want, tensor_count(&r->arg[2].t));
}

const op_kind kind_swiglu_backward = {
    "swiglu_backward", gated_back_setup, gated_back_call, gated_back_reference, gated_back_gradient, NULL, stream_cost};
const op_kind kind_geglu_backward = {
    "geglu_backward", gated_back_setup, gated_back_call, gated_back_reference, gated_back_gradient, NULL, stream_cost};

// --- scale_columns: N width, y_first x_first, more columns of y and of x ---------------------------------------------
// OPT_FRESH: y is (=).

static void columns_setup(op_run *r) {
    const int64_t *n = r->row->size;
    arg *y = arg_add(r, "y", UPDATES, r->row->type, 2, n[0], n[2] + n[1] + n[4], 0),
        *x = arg_add(r, "x", IN, r->row->type, 2, n[0], n[3] + n[1] + n[4], 0);
    y->batch = x->batch = true;
    arg_fill(r, y, 1, 0);
    arg_fill(r, x, 2, 0);
}

static const float columns_factor = 0.37f;

static err_t columns_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    const int64_t *n = r->row->size;
    return o->scale_columns(&(scale_columns_args){.y = t[0],
                                                  .x = t[1],
                                                  .width = n[1],
                                                  .y_first = n[2],
                                                  .x_first = n[3],
                                                  .factor = columns_factor,
                                                  .add = !(r->row->options & OPT_FRESH)},
                            s);
}

static void columns_reference(op_run *r) {
    const int64_t *n = r->row->size, Y = n[2] + n[1] + n[4], X = n[3] + n[1] + n[4];
    const double *y = r->arg[0].value, *x = r->arg[1].value;
    for (int64_t i = 0; i < n[0] * Y; i++) {
        int64_t row = i / Y, column = i % Y - n[2];
        bool in = column >= 0 && column < n[1];
        double more = in ? columns_factor * x[row * X + n[3] + column] : 0;
        r->arg[0].want[i] = in && r->row->options & OPT_FRESH ? more : y[i] + more;
    }
}

static void columns_cost_of(const op_run *r, double *bytes, double *flops) {
    const int64_t *n = r->row->size;
    *bytes = (r->row->options & OPT_FRESH ? 2.0 : 3.0) * (double)(n[0] * n[1]) * (double)dtype_bytes(r->row->type);
    *flops = 0;
}

const op_kind kind_scale_columns = {"scale_columns", columns_setup, columns_call, columns_reference, NULL, NULL,
                                    columns_cost_of};
