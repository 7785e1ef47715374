// test/ops/kinds_attention.c: attention, forward, backward and of positions after others.
#include "test/ops/op_test.h"
#include "test/ops/reference.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double *doubles(int64_t n) { return calloc((size_t)n, sizeof(double)); }

// --- attention: B T C H, and heads of k and v, window, 1: with lengths, 2: of documents -----------------------------

enum { AT_Y, AT_LSE, AT_QKV, AT_LENGTHS, AT_PLACES };

static ref_attention shape_of(const op_run *r) {
    const int64_t *z = r->row->size;
    return (ref_attention){z[0], z[1], z[2], z[3], z[4], z[5], r->has_drop ? &r->drop : NULL, r->row->options & OPT_ERF,
                           NULL, NULL};
}

// From 0, which counts as 1, to more than T.
static void add_lengths(op_run *r) {
    arg *lengths = arg_add(r, "lengths", IN, INT32, 1, r->row->size[0], 0, 0);
    lengths->absent = r->row->size[6] != 1;
    lengths->batch = true;
    arg_fill_index(r, lengths, r->row->size[1] + 2, 0);
}

// Documents of one position, of tiles and of parts of them, in another order in each sample.
static void add_documents(op_run *r) {
    static const int64_t length[] = {1, 5, 64, 23, 70, 2, 130, 64};
    int64_t B = r->row->size[0], T = r->row->size[1];
    arg *places = arg_add(r, "places", IN, INT32, 2, B, T, 0);
    double *at = doubles(B * T);
    places->absent = r->row->size[6] != 2;
    places->batch = true;
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0, k = b * 3, left = length[k % 8]; t < T; t++) {
            if (!left) left = length[++k % 8];
            at[b * T + t] = (double)(length[k % 8] - left--);
        }
    arg_fill_with(r, places, at);
    free(at);
}
static ref_attention shape_with(const op_run *r, int lengths, int places) {
    ref_attention s = shape_of(r);
    if (r->row->size[6] == 1) s.lengths = r->arg[lengths].value;
    if (r->row->size[6] == 2) s.places = r->arg[places].value;
    return s;
}

static void attention_key(op_run *r) {
    r->has_drop = r->row->options & OPT_DROP;
    r->drop =
        (dropout_key){.seed = 0xfedcba9876543210ull, .step = 3, .first_sample = 41, .site = 0x50000009, .p = 0.25f};
    arg_add_key(r, r->row->size[0]);
}

static void attention_setup(op_run *r) {
    int64_t B = r->row->size[0], T = r->row->size[1], C = r->row->size[2], H = r->row->size[3];
    arg *y = arg_add(r, "y", OUT, r->row->type, 3, B, T, C), *lse = arg_add(r, "lse", OUT, FP32, 3, B, H, T);
    ref_attention shape = shape_of(r);
    arg *qkv = arg_add(r, "qkv", IN, r->row->type, 3, B, T, ref_attention_row(&shape));
    y->batch = lse->batch = qkv->batch = true;
    y->rounded = 1;  // probabilities, before they meet v
    add_lengths(r), add_documents(r);
    attention_key(r);
    arg_fill(r, qkv, r->row->options & OPT_EXTREME ? 12 : 1, 0);  // exp without a maximum would overflow
}

static err_t attention_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    dropout_key key = call_key(r, t);
    return o->attention_forward(&(attention_forward_args){.y = t[AT_Y],
                                                          .lse = t[AT_LSE],
                                                          .qkv = t[AT_QKV],
                                                          .heads = (int)r->row->size[3],
                                                          .kv_heads = (int)r->row->size[4],
                                                          .window = (int)r->row->size[5],
                                                          .all = r->row->options & OPT_ERF,
                                                          .lengths = t[AT_LENGTHS],
                                                          .places = t[AT_PLACES],
                                                          .drop = r->has_drop ? &key : NULL},
                                s);
}

static void attention_reference(op_run *r) {
    ref_attention s = shape_with(r, AT_LENGTHS, AT_PLACES);
    ref_attention_forward(r->arg[AT_Y].want, r->arg[AT_LSE].want, r->arg[AT_QKV].value, &s);
}

static double pairs(const op_run *r) {  // multiply-adds of one T x T product under the diagonal
    double T = (double)r->row->size[1],
           W = r->row->size[5] && (double)r->row->size[5] < T ? (double)r->row->size[5] : T;
    if (r->row->options & OPT_ERF) return (double)r->row->size[0] * T * T * (double)r->row->size[2];
    return (double)r->row->size[0] * (W * (W + 1) / 2 + (T - W) * W) * (double)r->row->size[2];
}
static void attention_cost(const op_run *r, double *bytes, double *flops) {
    *bytes = arg_traffic(r), *flops = 4 * pairs(r);
}

const op_kind kind_attention_forward = {
    "attention_forward", attention_setup, attention_call, attention_reference, NULL, NULL, attention_cost};

// --- attention_past: positions, those before them, C H, and heads of k and v, window ---------------------------------

enum { AP_Y, AP_PAST, AP_QKV };
enum { AP_SPARE = 2 };  // rows of past after the last position: never touched

// Heads of k and v, and elements of a position in past.
static int64_t past_heads(const op_run *r) { return r->row->size[4] ? r->row->size[4] : r->row->size[3]; }
static int64_t past_row(const op_run *r) { return 2 * past_heads(r) * (r->row->size[2] / r->row->size[3]); }

static void past_setup(op_run *r) {
    int64_t n = r->row->size[0], first = r->row->size[1], C = r->row->size[2];
    arg *y = arg_add(r, "y", OUT, r->row->type, 2, n, C, 0);
    arg *past = arg_add(r, "past", UPDATES, r->row->type, 2, first + n + AP_SPARE, past_row(r), 0);
    arg *qkv = arg_add(r, "qkv", IN, r->row->type, 2, n, C + past_row(r), 0);
    y->rounded = 1;
    arg_fill(r, past, r->row->options & OPT_EXTREME ? 12 : 1, 0);
    arg_fill(r, qkv, r->row->options & OPT_EXTREME ? 12 : 1, 0);
}

static err_t past_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    const int64_t *z = r->row->size;
    return o->attention_past(&(attention_past_args){.y = t[AP_Y],
                                                    .past = t[AP_PAST],
                                                    .qkv = t[AP_QKV],
                                                    .heads = (int)z[3],
                                                    .kv_heads = (int)z[4],
                                                    .window = (int)z[5],
                                                    .first = z[1]},
                             s);
}

// The whole text's attention, of which the last n rows count: queries before them are of no interest.
static void past_reference(op_run *r) {
    const int64_t *z = r->row->size;
    int64_t n = z[0], first = z[1], C = z[2], P = past_row(r), R = C + P;
    ref_attention s = {1, first + n, C, z[3], z[4], z[5], NULL, false, NULL, NULL};
    double *qkv = doubles((first + n) * R), *y = doubles((first + n) * C), *lse = doubles(z[3] * (first + n));
    arg *past = &r->arg[AP_PAST];
    memcpy(past->want, past->value, (size_t)tensor_count(&past->t) * sizeof(double));
    for (int64_t t = 0; t < first + n; t++) {
        const double *row = t < first ? past->value + t * P : r->arg[AP_QKV].value + (t - first) * R + C;
        memcpy(qkv + t * R + C, row, (size_t)P * sizeof(double));
        if (t < first) continue;
        memcpy(qkv + t * R, r->arg[AP_QKV].value + (t - first) * R, (size_t)C * sizeof(double));
        memcpy(past->want + t * P, row, (size_t)P * sizeof(double));
    }
    ref_attention_forward(y, lse, qkv, &s);
    memcpy(r->arg[AP_Y].want, y + first * C, (size_t)(n * C) * sizeof(double));
    free(qkv), free(y), free(lse);
}

// What is kept is a copy, and nothing else of past changes.
static bool past_exact(op_run *r, const outcome *got) {
    const arg *past = &r->arg[AP_PAST];
    for (int64_t i = 0; i < tensor_count(&past->t); i++) {
        double x = storage_get(got->data[AP_PAST], past->t.type, i);
        if (x != past->want[i]) return failed(r, "element %" PRId64 " of past is %g, expected %g", i, x, past->want[i]);
    }
    return true;
}

static void past_cost(const op_run *r, double *bytes, double *flops) {
    double n = (double)r->row->size[0], first = (double)r->row->size[1], W = (double)r->row->size[5],
           seen = first + (n + 1) / 2;
    if (W > 0 && W < seen) seen = W;
    double reach = W > 0 && W + n < first + n ? W + n : first + n;
    *bytes = (double)tensor_bytes(&r->arg[AP_Y].t) + (double)tensor_bytes(&r->arg[AP_QKV].t) +
             reach * (double)past_row(r) * (double)dtype_bytes(r->row->type);
    *flops = 4 * n * seen * (double)r->row->size[2];
}

const op_kind kind_attention_past = {"attention_past", past_setup, past_call, past_reference, NULL,
                                     past_exact,       past_cost};

enum { AB_DQKV, AB_DELTA, AB_DY, AB_Y, AB_LSE, AB_QKV, AB_LENGTHS, AB_PLACES };

static void attention_back_setup(op_run *r) {
    int64_t B = r->row->size[0], T = r->row->size[1], C = r->row->size[2], H = r->row->size[3];
    dtype type = r->row->type;
    ref_attention shape = shape_of(r);
    int64_t row = ref_attention_row(&shape);
    arg *dqkv = arg_add(r, "dqkv", OUT, type, 3, B, T, row), *delta = arg_add(r, "delta", OUT, FP32, 3, B, H, T);
    arg *dy = arg_add(r, "dy", IN, type, 3, B, T, C), *y = arg_add(r, "y", IN, type, 3, B, T, C);
    arg *lse = arg_add(r, "lse", IN, FP32, 3, B, H, T), *qkv = arg_add(r, "qkv", IN, type, 3, B, T, row);
    dqkv->batch = delta->batch = dy->batch = y->batch = lse->batch = qkv->batch = true;
    dqkv->rounded = 1;  // probabilities, and gradients of scores
    add_lengths(r), add_documents(r);
    attention_key(r);
    arg_fill(r, dy, 1, 0);
    arg_fill(r, qkv, 1, 0);
    arg_fill(r, y, 0.1, 0);
    arg_fill(r, lse, 0.1, log((double)T) + 0.5);
    if (r->bench) return;
    ref_attention s = shape_with(r, AB_LENGTHS, AB_PLACES);
    double *y64 = doubles(B * T * C), *l64 = doubles(B * H * T);
    ref_attention_forward(y64, l64, qkv->value, &s);
    arg_fill_with(r, y, y64);
    arg_fill_with(r, lse, l64);
    free(y64), free(l64);
}

static err_t attention_back_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    dropout_key key = call_key(r, t);
    return o->attention_backward(&(attention_backward_args){.dqkv = t[AB_DQKV],
                                                            .delta = t[AB_DELTA],
                                                            .dy = t[AB_DY],
                                                            .y = t[AB_Y],
                                                            .lse = t[AB_LSE],
                                                            .qkv = t[AB_QKV],
                                                            .heads = (int)r->row->size[3],
                                                            .kv_heads = (int)r->row->size[4],
                                                            .window = (int)r->row->size[5],
                                                            .all = r->row->options & OPT_ERF,
                                                            .lengths = t[AB_LENGTHS],
                                                            .places = t[AB_PLACES],
                                                            .drop = r->has_drop ? &key : NULL},
                                 s);
}

static void attention_back_reference(op_run *r) {
    ref_attention s = shape_with(r, AB_LENGTHS, AB_PLACES);
    arg *a = r->arg;
    ref_attention_backward(a[AB_DQKV].want, a[AB_DELTA].want, a[AB_DY].value, a[AB_Y].value, a[AB_LSE].value,
                           a[AB_QKV].value, &s);
}

typedef struct attention_ctx {
    op_run *r;
    ref_attention s;
    double *y, *lse;
} attention_ctx;
static double attention_loss(void *ctx) {
    attention_ctx *c = ctx;
    double sum = 0;
    ref_attention_forward(c->y, c->lse, c->r->arg[AB_QKV].value, &c->s);
    for (int64_t i = 0; i < c->s.B * c->s.T * c->s.C; i++) sum += c->r->arg[AB_DY].value[i] * c->y[i];
    return sum;
}

static bool attention_back_gradient(op_run *r) {  // with the exact y and lse
    ref_attention s = shape_with(r, AB_LENGTHS, AB_PLACES);
    int64_t n = s.B * s.T * s.C, stats = s.B * s.H * s.T, all = s.B * s.T * ref_attention_row(&s);
    attention_ctx c = {r, s, doubles(n), doubles(stats)};
    double *dqkv = doubles(all), *delta = doubles(stats);
    ref_attention_forward(c.y, c.lse, r->arg[AB_QKV].value, &s);
    ref_attention_backward(dqkv, delta, r->arg[AB_DY].value, c.y, c.lse, r->arg[AB_QKV].value, &s);
    bool ok = gradient_near(r, "dqkv", attention_loss, &c, r->arg[AB_QKV].value, dqkv, all);
    free(c.y), free(c.lse), free(dqkv), free(delta);
    return ok;
}

static void attention_back_cost(const op_run *r, double *bytes, double *flops) {  // five products: s, dp, dq, dk, dv
    *bytes = arg_traffic(r), *flops = 10 * pairs(r);
}

const op_kind kind_attention_backward = {"attention_backward",     attention_back_setup,    attention_back_call,
                                         attention_back_reference, attention_back_gradient, NULL,
                                         attention_back_cost};
