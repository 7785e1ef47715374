// test/ops/kinds_image.c: the operations of images, each as in kinds_dense.c.
#include "test/ops/op_test.h"
#include "test/ops/reference_image.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double *doubles(int64_t n) { return calloc((size_t)n, sizeof(double)); }

// --- convolution: N H W C K R S stride pad groups (0: 1) -------------------------------------------------------------

enum { CONV_OUT, CONV_A, CONV_B, CONV_RES };

static ref_conv conv_of(const op_run *r) {
    const int64_t *z = r->row->size;
    ref_conv c = {z[0], z[1], z[2], z[3], z[4], z[5], z[6], z[7], z[8], z[9] ? z[9] : 1, 0, 0};
    c.P = conv_out(c.H, c.R, c.stride, c.pad), c.Q = conv_out(c.W, c.S, c.stride, c.pad);
    return c;
}

static void conv_cost(const op_run *r, double *bytes, double *flops) {
    const ref_conv c = conv_of(r);
    *bytes = arg_traffic(r);
    *flops = 2.0 * (double)(c.N * c.P * c.Q * c.K) * (double)(c.R * c.S * (c.C / c.groups));
}

static arg *images(op_run *r, const char *name, role role, dtype t, const ref_conv *c) {
    arg *a = arg_add_shape(r, name, role, t, 4, (int64_t[]){c->N, c->H, c->W, c->C});
    a->batch = true;
    return a;
}
static arg *results(op_run *r, const char *name, role role, dtype t, const ref_conv *c) {
    arg *a = arg_add_shape(r, name, role, t, 4, (int64_t[]){c->N, c->P, c->Q, c->K});
    a->batch = true;
    return a;
}
static arg *filters(op_run *r, const char *name, role role, dtype t, const ref_conv *c) {
    return arg_add_shape(r, name, role, t, 4, (int64_t[]){c->K, c->R, c->S, c->C / c->groups});
}

static void residual_of(op_run *r, arg *a) {
    a->absent = !(r->row->options & OPT_RESIDUAL);
    arg_fill(r, a, 1, 0);
    if (r->row->options & OPT_ALIAS) r->arg[CONV_OUT].alias = 1 + CONV_RES;
}

static void add_residual(op_run *r) {
    if (r->arg[CONV_RES].absent) return;
    for (int64_t i = 0; i < tensor_count(&r->arg[CONV_OUT].t); i++)
        r->arg[CONV_OUT].want[i] += r->arg[CONV_RES].value[i];
}

static void forward_setup(op_run *r) {
    const ref_conv c = conv_of(r);
    dtype T = r->row->type;
    results(r, "y", OUT, T, &c);
    arg_fill(r, images(r, "x", IN, T, &c), 1, 0);
    arg_fill(r, filters(r, "w", IN, T, &c), 1, 0);
    residual_of(r, results(r, "residual", IN, T, &c));
}

static err_t forward_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    const ref_conv c = conv_of(r);
    return o->conv_forward(&(conv_forward_args){.y = t[CONV_OUT],
                                                .x = t[CONV_A],
                                                .w = t[CONV_B],
                                                .residual = t[CONV_RES],
                                                .stride = (int)c.stride,
                                                .pad = (int)c.pad,
                                                .groups = (int)c.groups},
                           s);
}

static void forward_reference(op_run *r) {
    const ref_conv c = conv_of(r);
    ref_conv_forward(r->arg[CONV_OUT].want, r->arg[CONV_A].value, r->arg[CONV_B].value, &c);
    add_residual(r);
}

static void inputs_setup(op_run *r) {
    const ref_conv c = conv_of(r);
    dtype T = r->row->type;
    images(r, "dx", OUT, T, &c);
    arg_fill(r, results(r, "dy", IN, T, &c), 1, 0);
    arg_fill(r, filters(r, "w", IN, T, &c), 1, 0);
    residual_of(r, images(r, "residual", IN, T, &c));
}

static err_t inputs_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    const ref_conv c = conv_of(r);
    return o->conv_inputs(&(conv_inputs_args){.dx = t[CONV_OUT],
                                              .dy = t[CONV_A],
                                              .w = t[CONV_B],
                                              .residual = t[CONV_RES],
                                              .stride = (int)c.stride,
                                              .pad = (int)c.pad,
                                              .groups = (int)c.groups},
                          s);
}

static void inputs_reference(op_run *r) {
    const ref_conv c = conv_of(r);
    ref_conv_inputs(r->arg[CONV_OUT].want, r->arg[CONV_A].value, r->arg[CONV_B].value, &c);
    add_residual(r);
}

static void weights_setup(op_run *r) {
    const ref_conv c = conv_of(r);
    dtype T = r->row->type;
    filters(r, "dw", r->row->options & OPT_FRESH ? OUT : ADDS, FP32, &c);
    arg_fill(r, results(r, "dy", IN, T, &c), 1, 0);
    arg_fill(r, images(r, "x", IN, T, &c), 1, 0);
}

static err_t weights_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    const ref_conv c = conv_of(r);
    return o->conv_weights(&(conv_weights_args){.dw = t[CONV_OUT],
                                                .dy = t[CONV_A],
                                                .x = t[CONV_B],
                                                .stride = (int)c.stride,
                                                .pad = (int)c.pad,
                                                .groups = (int)c.groups,
                                                .fresh = r->row->options & OPT_FRESH},
                           s);
}

static void weights_reference(op_run *r) {
    const ref_conv c = conv_of(r);
    ref_conv_weights(r->arg[CONV_OUT].want, r->arg[CONV_A].value, r->arg[CONV_B].value, &c);
}

// The loss is a weighted sum of results: of x and w, by which both gradients are judged.
typedef struct conv_ctx {
    ref_conv c;
    double *x, *w;
} conv_ctx;

static double conv_loss(void *ctx) {
    const conv_ctx *k = ctx;
    int64_t n = k->c.N * k->c.P * k->c.Q * k->c.K;
    double *y = doubles(n), sum = 0;
    ref_conv_forward(y, k->x, k->w, &k->c);
    for (int64_t i = 0; i < n; i++) sum += loss_weight(i) * y[i];
    free(y);
    return sum;
}

static bool conv_gradient(op_run *r) {
    conv_ctx k = {conv_of(r), r->arg[CONV_A].value, r->arg[CONV_B].value};
    int64_t n = k.c.N * k.c.P * k.c.Q * k.c.K, of_x = tensor_count(&r->arg[CONV_A].t),
            of_w = tensor_count(&r->arg[CONV_B].t);
    double *dy = doubles(n), *dx = doubles(of_x), *dw = doubles(of_w);
    for (int64_t i = 0; i < n; i++) dy[i] = loss_weight(i);
    ref_conv_inputs(dx, dy, k.w, &k.c);
    ref_conv_weights(dw, dy, k.x, &k.c);
    bool ok =
        gradient_near(r, "dx", conv_loss, &k, k.x, dx, of_x) && gradient_near(r, "dw", conv_loss, &k, k.w, dw, of_w);
    free(dy), free(dx), free(dw);
    return ok;
}

const op_kind kind_conv_forward = {"conv_forward", forward_setup, forward_call, forward_reference,
                                   conv_gradient,  NULL,          conv_cost};
const op_kind kind_conv_inputs = {"conv_inputs", inputs_setup, inputs_call, inputs_reference, NULL, NULL, conv_cost};
const op_kind kind_conv_weights = {"conv_weights", weights_setup, weights_call, weights_reference,
                                   NULL,           NULL,          conv_cost};

static void traffic_cost(const op_run *r, double *bytes, double *flops) { *bytes = arg_traffic(r), *flops = 0; }

// --- max_pool: N H W C taps stride pad -------------------------------------------------------------------------------

enum { POOL_OUT, POOL_INDEX, POOL_IN };

static ref_conv pool_of(const op_run *r) {
    const int64_t *z = r->row->size;
    ref_conv c = {z[0], z[1], z[2], z[3], z[3], z[4], z[4], z[5], z[6], 1, 0, 0};
    c.P = conv_out(c.H, c.R, c.stride, c.pad), c.Q = conv_out(c.W, c.S, c.stride, c.pad);
    return c;
}

// Few values in OPT_EXTREME rows, so that many are equal; and some NaNs.
static void pool_fill(op_run *r, arg *x) {
    arg_fill(r, x, 1, 0);
    for (int64_t i = 0; r->row->options & OPT_EXTREME && i < tensor_count(&x->t); i++) {
        double v = i % 37 == 5 ? NAN : round(storage_get(x->t.data, x->t.type, i));
        storage_set(x->t.data, x->t.type, i, v);
        if (x->value) x->value[i] = v;
    }
}

static void max_setup(op_run *r) {
    const ref_conv c = pool_of(r);
    results(r, "y", OUT, r->row->type, &c);
    results(r, "index", OUT, UINT8, &c);
    for (int i = 0; i < 2; i++) free(r->arg[i].want), r->arg[i].want = NULL;  // judged by max_exact
    pool_fill(r, images(r, "x", IN, r->row->type, &c));
}

static err_t max_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    const ref_conv c = pool_of(r);
    return o->max_pool_forward(&(max_pool_forward_args){.y = t[POOL_OUT],
                                                        .index = t[POOL_INDEX],
                                                        .x = t[POOL_IN],
                                                        .taps = (int)c.R,
                                                        .stride = (int)c.stride,
                                                        .pad = (int)c.pad},
                               s);
}

static void no_reference(op_run *r) { (void)r; }

static bool max_exact(op_run *r, const outcome *got) {
    const ref_conv c = pool_of(r);
    const double *x = r->arg[POOL_IN].value;
    for (int64_t i = 0; i < c.N * c.P * c.Q * c.K; i++) {
        int64_t at, tap = ref_max_pool(x, i, &c, &at);
        double y = storage_get(got->data[POOL_OUT], r->row->type, i),
               index = storage_get(got->data[POOL_INDEX], UINT8, i);
        if (index != (double)tap || (y != x[at] && !(isnan(y) && isnan(x[at]))))
            return failed(r, "y[%" PRId64 "] is %g of tap %g, expected %g of tap %" PRId64, i, y, index, x[at], tap);
    }
    return true;
}

static double max_loss(void *ctx) {
    const op_run *r = ctx;
    const ref_conv c = pool_of(r);
    double sum = 0;
    for (int64_t i = 0, at; i < c.N * c.P * c.Q * c.K; i++) {
        ref_max_pool(r->arg[POOL_IN].value, i, &c, &at);
        sum += loss_weight(i) * r->arg[POOL_IN].value[at];
    }
    return sum;
}

static bool max_gradient(op_run *r) {
    const ref_conv c = pool_of(r);
    const int64_t n = tensor_count(&r->arg[POOL_IN].t);
    if (r->row->options & OPT_EXTREME) return true;
    double *dx = doubles(n);
    for (int64_t i = 0, at; i < c.N * c.P * c.Q * c.K; i++) {
        ref_max_pool(r->arg[POOL_IN].value, i, &c, &at);
        dx[at] += loss_weight(i);
    }
    bool ok = gradient_near(r, "dx", max_loss, r, r->arg[POOL_IN].value, dx, n);
    free(dx);
    return ok;
}

const op_kind kind_max_pool_forward = {"max_pool_forward", max_setup, max_call,    no_reference,
                                       max_gradient,       max_exact, traffic_cost};

// Each result's tap, as forward would have it of some numbers.
static void max_back_setup(op_run *r) {
    const ref_conv c = pool_of(r);
    images(r, "dx", OUT, r->row->type, &c);
    arg *index = results(r, "index", IN, UINT8, &c);
    arg_fill(r, results(r, "dy", IN, r->row->type, &c), 1, 0);
    double *x = doubles(c.N * c.H * c.W * c.C);
    for (int64_t i = 0; i < c.N * c.H * c.W * c.C; i++) x[i] = loss_weight(i * 31 + i / 7);
    for (int64_t i = 0, at; i < tensor_count(&index->t); i++) {
        storage_set(index->t.data, UINT8, i, (double)ref_max_pool(x, i, &c, &at));
        if (index->value) index->value[i] = storage_get(index->t.data, UINT8, i);
    }
    free(x);
}

static err_t max_back_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    const ref_conv c = pool_of(r);
    return o->max_pool_backward(&(max_pool_backward_args){.dx = t[POOL_OUT],
                                                          .dy = t[POOL_IN],
                                                          .index = t[POOL_INDEX],
                                                          .taps = (int)c.R,
                                                          .stride = (int)c.stride,
                                                          .pad = (int)c.pad},
                                s);
}

static void max_back_reference(op_run *r) {
    const ref_conv c = pool_of(r);
    for (int64_t i = 0; i < c.N * c.P * c.Q * c.K; i++) {
        int64_t tap = (int64_t)r->arg[POOL_INDEX].value[i], n = i / (c.P * c.Q * c.K),
                h = i / (c.Q * c.K) % c.P * c.stride - c.pad + tap / c.S,
                w = i / c.K % c.Q * c.stride - c.pad + tap % c.S;
        r->arg[POOL_OUT].want[((n * c.H + h) * c.W + w) * c.C + i % c.K] += r->arg[POOL_IN].value[i];
    }
}

const op_kind kind_max_pool_backward = {
    "max_pool_backward", max_back_setup, max_back_call, max_back_reference, NULL, NULL, traffic_cost};

// --- mean_pool: N H W C ----------------------------------------------------------------------------------------------

static void mean_setup(op_run *r) {
    const int64_t *z = r->row->size;
    arg *y = arg_add(r, "y", OUT, r->row->type, 2, z[0], z[3], 0), *x = arg_add_shape(r, "x", IN, r->row->type, 4, z);
    y->batch = x->batch = true;
    arg_fill(r, x, 1, 1);
}
static err_t mean_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    (void)r;
    return o->mean_pool_forward(&(mean_pool_forward_args){.y = t[0], .x = t[1]}, s);
}
static void mean_reference(op_run *r) {
    const int64_t *z = r->row->size, HW = z[1] * z[2], C = z[3];
    for (int64_t i = 0; i < z[0] * HW * C; i++)
        r->arg[0].want[i / (HW * C) * C + i % C] += r->arg[1].value[i] / (double)HW;
}

// Linear, so that differences are exact up to rounding: backward is forward's transpose.
static bool mean_gradient(op_run *r) {
    const int64_t *z = r->row->size, HW = z[1] * z[2], C = z[3];
    double left = 0, right = 0, *x = r->arg[1].value;
    for (int64_t i = 0; i < z[0] * C; i++) left += loss_weight(i) * r->arg[0].want[i];
    for (int64_t i = 0; i < z[0] * HW * C; i++) right += x[i] * loss_weight(i / (HW * C) * C + i % C) / (double)HW;
    if (fabs(left - right) > 1e-9 * (1 + fabs(left)))
        return failed(r, "w . y is %.9g, and its gradient . x is %.9g", left, right);
    return true;
}
const op_kind kind_mean_pool_forward = {"mean_pool_forward", mean_setup, mean_call,   mean_reference,
                                        mean_gradient,       NULL,       traffic_cost};

static void mean_back_setup(op_run *r) {
    const int64_t *z = r->row->size;
    arg *dx = arg_add_shape(r, "dx", OUT, r->row->type, 4, z),
        *dy = arg_add(r, "dy", IN, r->row->type, 2, z[0], z[3], 0);
    dx->batch = dy->batch = true;
    arg_fill(r, dy, 1, 0);
}
static err_t mean_back_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    (void)r;
    return o->mean_pool_backward(&(mean_pool_backward_args){.dx = t[0], .dy = t[1]}, s);
}
static void mean_back_reference(op_run *r) {
    const int64_t *z = r->row->size, HW = z[1] * z[2], C = z[3];
    for (int64_t i = 0; i < z[0] * HW * C; i++)
        r->arg[0].want[i] = r->arg[1].value[i / (HW * C) * C + i % C] / (double)HW;
}
const op_kind kind_mean_pool_backward = {
    "mean_pool_backward", mean_back_setup, mean_back_call, mean_back_reference, NULL, NULL, traffic_cost};

// --- pixels: M C Cy --------------------------------------------------------------------------------------------------

enum { PIX_Y, PIX_X, PIX_MEAN, PIX_INV };

static void pixels_setup(op_run *r) {
    const int64_t *z = r->row->size, width = z[2] ? z[2] : z[1];
    arg *y = arg_add(r, "y", OUT, r->row->type, 2, z[0], width, 0), *x = arg_add(r, "x", IN, UINT8, 2, z[0], z[1], 0);
    y->batch = x->batch = true;
    arg_fill_index(r, x, 256, 0);
    arg_fill(r, arg_add(r, "mean", IN, FP32, 1, z[1], 0, 0), 10, 120);
    arg_fill(r, arg_add(r, "inv", IN, FP32, 1, z[1], 0, 0), 0.002, 0.017);
}
static err_t pixels_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    (void)r;
    return o->pixels(&(pixels_args){.y = t[PIX_Y], .x = t[PIX_X], .mean = t[PIX_MEAN], .inv = t[PIX_INV]}, s);
}
static void pixels_reference(op_run *r) {
    const int64_t *z = r->row->size, width = z[2] ? z[2] : z[1];
    for (int64_t i = 0; i < z[0] * width; i++) {
        int64_t c = i % width;
        if (c >= z[1]) continue;
        r->arg[PIX_Y].want[i] =
            (r->arg[PIX_X].value[i / width * z[1] + c] - r->arg[PIX_MEAN].value[c]) * r->arg[PIX_INV].value[c];
    }
}
static bool pixels_exact(op_run *r, const outcome *got) {
    const int64_t *z = r->row->size, width = z[2] ? z[2] : z[1];
    for (int64_t i = 0; i < z[0] * width; i++) {
        double y = storage_get(got->data[PIX_Y], r->row->type, i);
        if (i % width >= z[1] && (y != 0 || signbit(y))) return failed(r, "y[%" PRId64 "] is %g, expected +0", i, y);
    }
    return true;
}
const op_kind kind_pixels = {"pixels", pixels_setup, pixels_call, pixels_reference, NULL, pixels_exact, traffic_cost};
