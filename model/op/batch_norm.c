// model/op/batch_norm.c: y = (x - mean) * rstd * gain + bias, of each channel, with the moments of all pixels of the
// micro-batch; in an evaluation, a pass without gradients, with the running ones. A sum and a relu that are the only
// readers of y are done in the same pass over the pixels, and so are their gradients.
//
// Backward, which happens once in a step whatever is computed again, adds the moments to the gradients of the running
// statistics. Those are rows with the rule `average`.
#include "model/op/op.h"

enum { Y, MOMENTS };                                           // results
enum { S_MOMENTS, S_SUMS, S_X };                               // operands of the statistics
enum { A_Y, A_X, A_MOMENTS, A_RESIDUAL };                      // of the rest of forward
enum { B_DX, B_RESIDUAL, B_DY, B_X, B_Y, B_MOMENTS, B_SUMS };  // of backward
enum { SUM, RELU };                                            // other operations
enum { MEAN, RSTD, VARIANCE, KINDS };                          // of moments

#define BATCH_NORM_EPS 1e-5
#define BATCH_NORM_MOMENTUM 0.1f

typedef struct moments {
    tensor mean, rstd, variance;  // (C)
} moments;

static moments moments_at(const frame *f, value v) {
    tensor all = at(f, v);
    int64_t C = all.size[0] / KINDS;
    return (moments){tensor_rows(&all, MEAN * C, C), tensor_rows(&all, RSTD * C, C),
                     tensor_rows(&all, VARIANCE * C, C)};
}

static tensor sums_at(const frame *f, value v) {
    tensor sums = at(f, v);
    return view2(&sums, 2, sums.size[0] / 2);
}

static int64_t pixels_of(const tensor *x) { return x->size[0] * x->size[1] * x->size[2]; }

static err_t statistics(const frame *f, const step *s) {
    const operation *o = &f->op[s->op];
    const pass *p = f->p;
    moments to = moments_at(f, s->v[S_MOMENTS]);
    tensor x = at_images(f, s->v[S_X]), sums = sums_at(f, s->v[S_SUMS]);
    batch_norm_moments_args args = {
        .mean = &to.mean, .rstd = &to.rstd, .center = &p->w[o->mean], .eps = BATCH_NORM_EPS};
    if (p->dw) {
        TRY(p->ops->batch_norm_sums(&(batch_norm_sums_args){.sums = &sums, .x = &x, .center = args.center}, p->s));
        args.sums = &sums, args.rows = pixels_of(&x), args.variance = &to.variance;
    } else args.running = &p->w[o->variance];
    return p->ops->batch_norm_moments(&args, p->s);
}

static err_t apply(const frame *f, const step *s) {
    const operation *o = &f->op[s->op];
    moments of = moments_at(f, s->v[A_MOMENTS]);
    tensor y = at_images(f, s->v[A_Y]), x = at_images(f, s->v[A_X]), residual;
    return f->p->ops->batch_norm_apply(&(batch_norm_apply_args){.y = &y,
                                                                .x = &x,
                                                                .mean = &of.mean,
                                                                .rstd = &of.rstd,
                                                                .gain = &f->p->w[o->at.w],
                                                                .bias = &f->p->w[o->at.b],
                                                                .residual = at_if(f, s->v[A_RESIDUAL], &residual),
                                                                .relu = s->other[RELU] >= 0},
                                       f->p->s);
}

// to += x; fresh: to = x
static err_t gather(const pass *p, tensor *to, const tensor *x) {
    return p->fresh ? p->ops->cast(&(cast_args){.y = to, .x = x}, p->s)
                    : p->ops->add(&(add_args){.y = to, .a = to, .b = x}, p->s);
}

static err_t norm_backward(const frame *f, const step *s) {
    const operation *o = &f->op[s->op];
    const pass *p = f->p;
    moments of = moments_at(f, s->v[B_MOMENTS]);
    tensor dx = at_images(f, s->v[B_DX]), dy = at_images(f, s->v[B_DY]), x = at_images(f, s->v[B_X]), residual, y,
           sums = sums_at(f, s->v[B_SUMS]);
    const tensor *positive = at_if(f, s->v[B_Y], &y);
    TRY(p->ops->batch_norm_back_sums(&(batch_norm_back_sums_args){.sums = &sums,
                                                                  .dgain = &p->dw[o->at.w],
                                                                  .dbias = &p->dw[o->at.b],
                                                                  .dy = &dy,
                                                                  .x = &x,
                                                                  .y = positive,
                                                                  .mean = &of.mean,
                                                                  .rstd = &of.rstd,
                                                                  .fresh = p->fresh},
                                     p->s));
    TRY(p->ops->batch_norm_back(&(batch_norm_back_args){.dx = &dx,
                                                        .dresidual = at_if(f, s->v[B_RESIDUAL], &residual),
                                                        .dy = &dy,
                                                        .x = &x,
                                                        .y = positive,
                                                        .mean = &of.mean,
                                                        .rstd = &of.rstd,
                                                        .gain = &p->w[o->at.w],
                                                        .sums = &sums,
                                                        .rows = pixels_of(&x)},
                                p->s));
    TRY(gather(p, &p->dw[o->mean], &of.mean));
    return gather(p, &p->dw[o->variance], &of.variance);
}

// --- the lists -------------------------------------------------------------------------------------------------------

// The operations after it whose work it does: a sum, of which it is the second operand, and a relu. -1: there is none.
typedef struct chain {
    int sum, relu, last;
    value y;  // the result of the last
} chain;

static chain chain_of(const lowering *L, int op, const operation *o) {
    chain c = {.sum = only_user(L, o->out[Y], ROLE_SUM), .last = op, .y = o->out[Y]};
    if (c.sum >= 0 && (op_at(L, c.sum)->in[1] != c.y || op_at(L, c.sum)->in[0] == c.y)) c.sum = -1;
    if (c.sum >= 0) c.last = c.sum, c.y = op_at(L, c.sum)->out[0];
    c.relu = c.sum < 0 && c.y == L->out ? -1 : only_user(L, c.y, ROLE_RELU);
    if (c.relu >= 0) c.last = c.relu, c.y = op_at(L, c.relu)->out[0];
    return c;
}

static void claim(lowering *L, int op, const operation *o) {
    chain c = chain_of(L, op, o);
    if (c.sum >= 0) L->by[c.sum] = op;
    if (c.relu >= 0) L->by[c.relu] = op;
}

static value make_sums(lowering *L, const operation *o) {
    graph_value x = {.name = "sums", .letters = "2C", .at = LAYOUT_STREAM, .shape = SHAPE_PLAIN, .type = FP64};
    x.width = 2 * L->v[o->out[Y]].C;
    return make_value(L, &x);
}

static void forward(lowering *L, int op, const operation *o) {
    chain c = chain_of(L, op, o);
    if (L->again[o->out[MOMENTS]] || !L->kept[o->out[MOMENTS]]) {
        step *s = emit(L, "statistics", statistics, op, "wwr", o->out[MOMENTS], make_sums(L, o), o->in[0]);
        uses(s, o->mean), uses(s, o->variance);
    }
    if (c.last != op ? !L->need[c.last] : !is_wanted(L, c.y)) return;
    step *s = emit(L,
                   c.sum < 0 ? (c.relu < 0 ? "batch norm" : "batch norm, relu")
                             : (c.relu < 0 ? "batch norm, sum" : "batch norm, sum, relu"),
                   apply, op, "wrrr", c.y, o->in[0], o->out[MOMENTS], c.sum < 0 ? 0 : op_at(L, c.sum)->in[0]);
    s->other[SUM] = c.sum, s->other[RELU] = c.relu;
    uses(s, o->at.w), uses(s, o->at.b);
    if (c.sum >= 0) L->done[c.sum] = true;
    if (c.relu >= 0) L->done[c.relu] = true;
}

// Where a relu follows the sum, the gradient of its other operand is that of y where y is positive; else it is that of
// y itself.
static void backward(lowering *L, int op, const operation *o) {
    chain c = chain_of(L, op, o);
    value x = o->in[0], dy = L->given[op], other = c.sum < 0 ? 0 : op_at(L, c.sum)->in[0], residual = 0;
    value dx = L->grad[x] = make_gradient(L, x, L->v[x].at);
    if (other && c.relu >= 0) residual = make_gradient(L, other, L->v[other].at);
    if (other) L->grad[other] = residual ? residual : dy;
    step *s = emit(L, c.relu < 0 ? "batch norm's gradient" : "batch norm's gradient, relu's", norm_backward, op,
                   "wwrrrrw", dx, residual, dy, x, c.relu < 0 ? 0 : c.y, o->out[MOMENTS], make_sums(L, o));
    s->into = residual ? B_RESIDUAL : B_DX, s->over = other && !residual ? -1 : B_DY;
    s->other[SUM] = c.sum, s->other[RELU] = c.relu;
    uses(s, o->at.w), adds(s, o->at.w), adds(s, o->at.b), adds(s, o->mean), adds(s, o->variance);
}

static const op_type type = {
    .name = "batch norm", .cheap = true, .claim = claim, .forward = forward, .backward = backward};

value batch_norm(graph *g, value x, const char *name, float gain) {
    operation *o = graph_add(g, &type, name, x, 0);
    int64_t C = graph_at(g, x)->C;
    if (!C) graph_mistake(g, name, "%s is no image", graph_at(g, x)->name);
    o->at.w = graph_param(g, name, ".weight", C, 0, 0, gain);
    o->at.b = graph_param(g, name, ".bias", C, 0, 0, 0);
    o->mean = graph_param(g, name, ".running_mean", C, 0, 0, 0);
    o->variance = graph_param(g, name, ".running_var", C, 0, 0, 1);
    graph_fp32(g, o->at.w), graph_fp32(g, o->at.b);
    graph_average(g, o->mean, BATCH_NORM_MOMENTUM), graph_average(g, o->variance, BATCH_NORM_MOMENTUM);
    graph_same(g, o);
    graph_result(g, o, MOMENTS,
                 (graph_value){.name = ".moments",
                               .letters = "3C",
                               .width = KINDS * C,
                               .at = LAYOUT_STREAM,
                               .shape = SHAPE_PLAIN,
                               .type = FP32});
    return o->out[Y];
}
