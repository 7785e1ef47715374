// test/ops/kinds_cross.c: attention to another text, and its bias by distance.
#include "test/ops/op_test.h"
#include "test/ops/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double *doubles(int64_t n) { return calloc((size_t)n, sizeof(double)); }

// --- cross_attention: B Tq Tk C H, 1: with lengths, 1: with a bias, slices, first; OPT_ERF: not causal ---------------

enum { CF_Y, CF_LSE, CF_Q, CF_KV, CF_BIAS, CF_LENGTHS };
enum { CB_DQ, CB_DKV, CB_PARTS, CB_DELTA, CB_DY, CB_Y, CB_LSE, CB_Q, CB_KV, CB_BIAS, CB_LENGTHS };

static const float SCALE = 0.3f;
enum { FIRST_HEAD = 2, MORE_QUERIES = 3 };

// Of queries in the middle of a text the bias has that of some after them, too.
static int64_t bias_queries(const op_run *r) {
    const int64_t *z = r->row->size;
    return z[8] ? z[8] + z[1] + MORE_QUERIES : z[1];
}

typedef struct shape {
    int64_t B, Tq, Tk, C, H, S, D, first;
    int64_t P, n;  // queries and distances of the bias
    bool causal;
    const double *q, *kv, *bias, *lengths;
    const dropout_key *drop;
} shape;

static shape shape_of(const op_run *r, int q, int kv, int bias, int lengths) {
    const int64_t *z = r->row->size;
    shape s = {.B = z[0], .Tq = z[1], .Tk = z[2], .C = z[3], .H = z[4], .S = z[7] ? z[7] : 1};
    s.D = s.C / s.H, s.first = z[8], s.P = bias_queries(r), s.n = s.P + s.Tk - 1,
    s.causal = !(r->row->options & OPT_ERF);
    s.drop = r->has_drop ? &r->drop : NULL;
    if (q >= 0) s.q = r->arg[q].value, s.kv = r->arg[kv].value;
    if (bias >= 0 && z[6]) s.bias = r->arg[bias].value;
    if (lengths >= 0 && z[5]) s.lengths = r->arg[lengths].value;
    return s;
}

static int64_t seen_by(const shape *s, int64_t b, int64_t i) {
    int64_t n = s->lengths ? (int64_t)s->lengths[b % (s->B / s->S)] : s->Tk;
    n = n < 1 ? 1 : n > s->Tk ? s->Tk : n;
    return s->causal && s->first + i + 1 < n ? s->first + i + 1 : n;
}
static const double *row_of(const double *x, const shape *s, int64_t T, int64_t parts, int64_t b, int64_t t, int part,
                            int64_t h) {
    return x + ((b * T + t) * parts + part) * s->C + h * s->D;
}
static double keeps(const shape *s, int64_t b, int64_t h, int64_t i, int64_t j) {
    int64_t together = s->B / s->S, number = FIRST_HEAD + b / together * s->H + h;
    return ref_keep(s->drop, (uint32_t)(b % together), (number * s->Tq + i) * s->Tk + j);
}

// The scores of a query, and their log-sum-exp.
static double scores(const shape *s, int64_t b, int64_t h, int64_t i, double *x) {
    const double *q = row_of(s->q, s, s->Tq, 1, b, i, 0, h);
    double most = -INFINITY, sum = 0;
    int64_t n = seen_by(s, b, i);
    for (int64_t j = 0; j < n; j++) {
        const double *k = row_of(s->kv, s, s->Tk, 2, b, j, 0, h);
        x[j] = 0;
        for (int64_t d = 0; d < s->D; d++) x[j] += (double)SCALE * q[d] * k[d];
        if (s->bias) x[j] += s->bias[(b / (s->B / s->S) * s->H + h) * s->n + j - (s->first + i) + s->P - 1];
        most = fmax(most, x[j]);
    }
    for (int64_t j = 0; j < n; j++) sum += exp(x[j] - most);
    return most + log(sum);
}

static void reference(const shape *s, double *y, double *lse) {
    double *x = doubles(s->Tk);
    memset(y, 0, (size_t)(s->B * s->Tq * s->C) * sizeof *y);
    for (int64_t b = 0; b < s->B; b++)
        for (int64_t h = 0; h < s->H; h++)
            for (int64_t i = 0; i < s->Tq; i++) {
                double sum = scores(s, b, h, i, x), *to = (double *)row_of(y, s, s->Tq, 1, b, i, 0, h);
                lse[(b * s->H + h) * s->Tq + i] = sum;
                for (int64_t j = 0; j < seen_by(s, b, i); j++)
                    for (int64_t d = 0; d < s->D; d++)
                        to[d] += exp(x[j] - sum) * keeps(s, b, h, i, j) * row_of(s->kv, s, s->Tk, 2, b, j, 1, h)[d];
            }
    free(x);
}

typedef struct gradients {
    double *dq, *dkv, *parts, *delta;
} gradients;

static void query_back(const shape *s, const gradients *g, const double *dy, const double *y, int64_t b, int64_t h,
                       int64_t i, double *x) {
    const double *dyi = row_of(dy, s, s->Tq, 1, b, i, 0, h), *yi = row_of(y, s, s->Tq, 1, b, i, 0, h);
    const double *q = row_of(s->q, s, s->Tq, 1, b, i, 0, h);
    double lse = scores(s, b, h, i, x), delta = 0;
    for (int64_t d = 0; d < s->D; d++) delta += dyi[d] * yi[d];
    g->delta[(b * s->H + h) * s->Tq + i] = delta;
    for (int64_t j = 0; j < seen_by(s, b, i); j++) {
        const double *k = row_of(s->kv, s, s->Tk, 2, b, j, 0, h), *v = row_of(s->kv, s, s->Tk, 2, b, j, 1, h);
        double p = exp(x[j] - lse), keep = keeps(s, b, h, i, j), dp = 0;
        for (int64_t d = 0; d < s->D; d++) dp += dyi[d] * v[d] * keep;
        double ds = p * (dp - delta);
        g->parts[(b * s->H + h) * s->n + j - i + s->Tq - 1] += ds;
        for (int64_t d = 0; d < s->D; d++) {
            ((double *)row_of(g->dq, s, s->Tq, 1, b, i, 0, h))[d] += (double)SCALE * ds * k[d];
            ((double *)row_of(g->dkv, s, s->Tk, 2, b, j, 0, h))[d] += (double)SCALE * ds * q[d];
            ((double *)row_of(g->dkv, s, s->Tk, 2, b, j, 1, h))[d] += p * keep * dyi[d];
        }
    }
}

static void reference_back(const shape *s, const gradients *g, const double *dy, const double *y) {
    double *x = doubles(s->Tk);
    for (int64_t b = 0; b < s->B; b++)
        for (int64_t h = 0; h < s->H; h++)
            for (int64_t i = 0; i < s->Tq; i++) query_back(s, g, dy, y, b, h, i, x);
    free(x);
}

static void key_of(op_run *r, bool batch) {
    r->has_drop = r->row->options & OPT_DROP;
    r->drop =
        (dropout_key){.seed = 0xfedcba9876543210ull, .step = 3, .first_sample = 41, .site = 0x50000009, .p = 0.25f};
    if (batch) arg_add_key(r, r->row->size[0]);
}

// q, kv, bias, lengths: the same in both directions.
static void add_inputs(op_run *r) {
    const int64_t *z = r->row->size;
    int64_t S = z[7] ? z[7] : 1;
    double wide = r->row->options & OPT_EXTREME ? 30 : 1;  // exp without a maximum would overflow
    arg *q = arg_add(r, "q", IN, r->row->type, 3, z[0], z[1], z[3]),
        *kv = arg_add(r, "kv", IN, r->row->type, 3, z[0], z[2], 2 * z[3]),
        *bias = arg_add(r, "bias", IN, FP32, 3, S, z[4], bias_queries(r) + z[2] - 1),
        *lengths = arg_add(r, "lengths", IN, INT32, 1, z[0] / S, 0, 0);
    q->batch = kv->batch = lengths->batch = S == 1;
    bias->absent = !z[6], lengths->absent = !z[5];
    arg_fill(r, q, wide, 0);
    arg_fill(r, kv, 1, 0);
    arg_fill(r, bias, 2 * wide, 0);
    arg_fill_index(r, lengths, z[2] + 2, 0);
    key_of(r, S == 1);
}

static void forward_setup(op_run *r) {
    const int64_t *z = r->row->size;
    arg *y = arg_add(r, "y", OUT, r->row->type, 3, z[0], z[1], z[3]),
        *lse = arg_add(r, "lse", OUT, FP32, 3, z[0], z[4], z[1]);
    y->batch = lse->batch = z[7] < 2;
    add_inputs(r);
}

static int64_t together(const op_run *r) { return r->row->size[7] ? r->row->size[0] / r->row->size[7] : 0; }

static err_t forward_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    dropout_key key = r->row->size[7] < 2 ? call_key(r, t) : r->drop;
    return o->cross_attention_forward(&(cross_attention_forward_args){.y = t[CF_Y],
                                                                      .lse = t[CF_LSE],
                                                                      .q = t[CF_Q],
                                                                      .kv = t[CF_KV],
                                                                      .bias = t[CF_BIAS],
                                                                      .heads = (int)r->row->size[4],
                                                                      .scale = SCALE,
                                                                      .causal = !(r->row->options & OPT_ERF),
                                                                      .first = r->row->size[8],
                                                                      .lengths = t[CF_LENGTHS],
                                                                      .drop = r->has_drop ? &key : NULL,
                                                                      .samples = together(r),
                                                                      .first_head = FIRST_HEAD},
                                      s);
}
static void forward_reference(op_run *r) {
    shape s = shape_of(r, CF_Q, CF_KV, CF_BIAS, CF_LENGTHS);
    reference(&s, r->arg[CF_Y].want, r->arg[CF_LSE].want);
}
static double pairs_of(const op_run *r) {
    const int64_t *z = r->row->size;
    double pairs = 0;
    for (int64_t i = z[8]; i < z[8] + z[1]; i++) pairs += r->row->options & OPT_ERF || i + 1 > z[2] ? z[2] : i + 1;
    return (double)(z[0] * z[3]) * pairs;
}
static void forward_cost(const op_run *r, double *bytes, double *flops) {
    const int64_t *z = r->row->size;
    bool some = z[8] && z[8] + z[1] < z[2] && !(r->row->options & OPT_ERF);
    double unseen = some ? (double)(z[2] - z[8] - z[1]) / (double)z[2] : 0;
    *bytes = arg_traffic(r) - unseen * (double)tensor_bytes(&r->arg[CF_KV].t), *flops = 4 * pairs_of(r);
}
const op_kind kind_cross_attention_forward = {
    "cross_attention_forward", forward_setup, forward_call, forward_reference, NULL, NULL, forward_cost};

static void backward_setup(op_run *r) {
    const int64_t *z = r->row->size;
    dtype type = r->row->type;
    int64_t n = z[1] + z[2] - 1;
    arg *dq = arg_add(r, "dq", OUT, type, 3, z[0], z[1], z[3]),
        *dkv = arg_add(r, "dkv", OUT, type, 3, z[0], z[2], 2 * z[3]),
        *parts = arg_add(r, "parts", OUT, FP32, 3, z[0], z[4], n),
        *delta = arg_add(r, "delta", OUT, FP32, 3, z[0], z[4], z[1]);
    arg *dy = arg_add(r, "dy", IN, type, 3, z[0], z[1], z[3]), *y = arg_add(r, "y", IN, type, 3, z[0], z[1], z[3]),
        *lse = arg_add(r, "lse", IN, FP32, 3, z[0], z[4], z[1]);
    dq->batch = dkv->batch = parts->batch = delta->batch = dy->batch = y->batch = lse->batch = z[7] < 2;
    parts->absent = !z[6];
    add_inputs(r);
    arg_fill(r, dy, 1, 0);
    arg_fill(r, y, 0.1, 0);
    arg_fill(r, lse, 0.1, log((double)z[2]) + 0.5);
    if (r->bench) return;
    shape s = shape_of(r, CB_Q, CB_KV, CB_BIAS, CB_LENGTHS);
    double *y64 = doubles(s.B * s.Tq * s.C), *l64 = doubles(s.B * s.H * s.Tq);
    reference(&s, y64, l64);
    arg_fill_with(r, y, y64);
    arg_fill_with(r, lse, l64);
    free(y64), free(l64);
}
static err_t backward_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    dropout_key key = r->row->size[7] < 2 ? call_key(r, t) : r->drop;
    return o->cross_attention_backward(&(cross_attention_backward_args){.dq = t[CB_DQ],
                                                                        .dkv = t[CB_DKV],
                                                                        .parts = t[CB_PARTS],
                                                                        .delta = t[CB_DELTA],
                                                                        .dy = t[CB_DY],
                                                                        .y = t[CB_Y],
                                                                        .lse = t[CB_LSE],
                                                                        .q = t[CB_Q],
                                                                        .kv = t[CB_KV],
                                                                        .bias = t[CB_BIAS],
                                                                        .heads = (int)r->row->size[4],
                                                                        .scale = SCALE,
                                                                        .causal = !(r->row->options & OPT_ERF),
                                                                        .lengths = t[CB_LENGTHS],
                                                                        .drop = r->has_drop ? &key : NULL,
                                                                        .samples = together(r),
                                                                        .first_head = FIRST_HEAD},
                                       s);
}

static gradients gradients_of(const shape *s) {
    return (gradients){doubles(s->B * s->Tq * s->C), doubles(2 * s->B * s->Tk * s->C), doubles(s->B * s->H * s->n),
                       doubles(s->B * s->H * s->Tq)};
}
static void gradients_free(gradients *g) { free(g->dq), free(g->dkv), free(g->parts), free(g->delta); }

// lse is of the exact scores, whatever y was rounded to.
static void backward_reference(op_run *r) {
    shape s = shape_of(r, CB_Q, CB_KV, CB_BIAS, CB_LENGTHS);
    gradients g = gradients_of(&s);
    reference_back(&s, &g, r->arg[CB_DY].value, r->arg[CB_Y].value);
    memcpy(r->arg[CB_DQ].want, g.dq, (size_t)(s.B * s.Tq * s.C) * sizeof(double));
    memcpy(r->arg[CB_DKV].want, g.dkv, (size_t)(2 * s.B * s.Tk * s.C) * sizeof(double));
    if (s.bias) memcpy(r->arg[CB_PARTS].want, g.parts, (size_t)(s.B * s.H * s.n) * sizeof(double));
    memcpy(r->arg[CB_DELTA].want, g.delta, (size_t)(s.B * s.H * s.Tq) * sizeof(double));
    gradients_free(&g);
}

typedef struct loss_ctx {
    op_run *r;
    shape s;
    double *y, *lse;
} loss_ctx;
static double loss(void *ctx) {
    loss_ctx *c = ctx;
    double sum = 0;
    reference(&c->s, c->y, c->lse);
    for (int64_t i = 0; i < c->s.B * c->s.Tq * c->s.C; i++) sum += c->r->arg[CB_DY].value[i] * c->y[i];
    return sum;
}

// Where there is one slice, a bias's gradient is the sum of its parts.
static bool bias_gradient(op_run *r, loss_ctx *c, const gradients *g) {
    shape *s = &c->s;
    int64_t n = s->H * s->n;
    if (!s->bias || s->S > 1) return true;
    double *sum = doubles(n);
    for (int64_t i = 0; i < s->B * n; i++) sum[i % n] += g->parts[i];
    bool ok = gradient_near(r, "dbias", loss, c, r->arg[CB_BIAS].value, sum, n);
    free(sum);
    return ok;
}

static bool backward_gradient(op_run *r) {
    shape s = shape_of(r, CB_Q, CB_KV, CB_BIAS, CB_LENGTHS);
    int64_t n = s.B * s.Tq * s.C;
    loss_ctx c = {r, s, doubles(n), doubles(s.B * s.H * s.Tq)};
    gradients g = gradients_of(&s);
    reference(&s, c.y, c.lse);
    double *y = doubles(n);
    memcpy(y, c.y, (size_t)n * sizeof *y);
    reference_back(&s, &g, r->arg[CB_DY].value, y);
    bool ok = gradient_near(r, "dq", loss, &c, r->arg[CB_Q].value, g.dq, n) &&
              gradient_near(r, "dkv", loss, &c, r->arg[CB_KV].value, g.dkv, 2 * s.B * s.Tk * s.C) &&
              bias_gradient(r, &c, &g);
    gradients_free(&g);
    free(c.y), free(c.lse), free(y);
    return ok;
}
static void backward_cost(const op_run *r, double *bytes, double *flops) {
    *bytes = arg_traffic(r), *flops = 10 * pairs_of(r);
}
const op_kind kind_cross_attention_backward = {
    "cross_attention_backward", backward_setup, backward_call, backward_reference,
    backward_gradient,          NULL,           backward_cost};

// --- distance_bias: buckets H Tq Tk, most, slices, samples (of backward); OPT_ERF: both directions -------------------

enum { DB_BIAS, DB_TABLE };
enum { DG_DTABLE, DG_SUMS, DG_PARTS };

static int64_t slices_of(const op_run *r) { return r->row->size[5] ? r->row->size[5] : 1; }
static bool both(const op_run *r) { return r->row->options & OPT_ERF; }

static arg *add_table(op_run *r, const char *name, role role, dtype type) {
    const int64_t *z = r->row->size;
    if (z[5]) return arg_add(r, name, role, type, 3, z[5], z[0], z[1]);
    return arg_add(r, name, role, type, 2, z[0], z[1], 0);
}

// T5's own formula, with logarithms.
static int64_t bucket_of(const op_run *r, int64_t d) {
    int64_t half = both(r) ? r->row->size[0] / 2 : r->row->size[0], exact = half / 2, a = d < 0 ? -d : both(r) ? d : 0;
    int64_t k = a;
    if (a >= exact && exact)
        k = exact + (int64_t)(log((double)a / (double)exact) / log((double)r->row->size[4] / (double)exact) *
                                  (double)(half - exact) +
                              1e-9);
    if (k > half - 1) k = half - 1;
    return k + (both(r) && d > 0 ? half : 0);
}

static void bias_setup(op_run *r) {
    const int64_t *z = r->row->size;
    arg_add(r, "bias", OUT, FP32, 3, slices_of(r), z[1], z[2] + z[3] - 1);
    arg_fill(r, add_table(r, "table", IN, r->row->type), 1, 0);
}
static err_t bias_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->distance_bias_forward(&(distance_bias_forward_args){.bias = t[DB_BIAS],
                                                                  .table = t[DB_TABLE],
                                                                  .queries = r->row->size[2],
                                                                  .both = both(r),
                                                                  .most = r->row->size[4]},
                                    s);
}
static void bias_reference(op_run *r) {
    const int64_t *z = r->row->size;
    int64_t n = z[2] + z[3] - 1;
    for (int64_t row = 0; row < slices_of(r) * z[1]; row++)
        for (int64_t i = 0; i < n; i++)
            r->arg[DB_BIAS].want[row * n + i] =
                r->arg[DB_TABLE].value[(row / z[1] * z[0] + bucket_of(r, i - (z[2] - 1))) * z[1] + row % z[1]];
}
static void traffic_cost(const op_run *r, double *bytes, double *flops) { *bytes = arg_traffic(r), *flops = 0; }
const op_kind kind_distance_bias_forward = {
    "distance_bias_forward", bias_setup, bias_call, bias_reference, NULL, NULL, traffic_cost};

static void bias_back_setup(op_run *r) {
    const int64_t *z = r->row->size;
    int64_t n = z[2] + z[3] - 1;
    add_table(r, "dtable", r->row->options & OPT_FRESH ? OUT : ADDS, FP32);
    arg_add(r, "sums", SCRATCH, FP32, 3, slices_of(r), z[1], n);
    arg_fill(r, arg_add(r, "parts", IN, FP32, 3, slices_of(r) * z[6], z[1], n), 1, 0);
}
static err_t bias_back_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    return o->distance_bias_backward(&(distance_bias_backward_args){.dtable = t[DG_DTABLE],
                                                                    .sums = t[DG_SUMS],
                                                                    .parts = t[DG_PARTS],
                                                                    .queries = r->row->size[2],
                                                                    .both = both(r),
                                                                    .fresh = r->row->options & OPT_FRESH,
                                                                    .most = r->row->size[4]},
                                     s);
}
static void bias_back_reference(op_run *r) {
    const int64_t *z = r->row->size;
    int64_t n = z[2] + z[3] - 1, S = slices_of(r);
    for (int64_t s = 0; s < S; s++)
        for (int64_t b = 0; b < z[6]; b++)
            for (int64_t h = 0; h < z[1]; h++)
                for (int64_t i = 0; i < n; i++)
                    r->arg[DG_DTABLE].want[(s * z[0] + bucket_of(r, i - (z[2] - 1))) * z[1] + h] +=
                        r->arg[DG_PARTS].value[((s * z[6] + b) * z[1] + h) * n + i];
}
const op_kind kind_distance_bias_backward = {
    "distance_bias_backward", bias_back_setup, bias_back_call, bias_back_reference, NULL, NULL, traffic_cost};
