// model/op/batch_norm.c: y = (x - mean) * rstd * gain + bias, of each channel, with the moments of all pixels of the
// micro-batch; in an evaluation, a pass without gradients, with the running ones. A sum and a relu that are the only
// readers of y are done in the same pass over the pixels, and so are their gradients.
//
// Where several lanes are one micro-batch ([batch] bn_span), each is a token slice: its samples have sums of their own,
// which are added along the tree of slices. Ranks that share the samples exchange those of theirs. Gradients of gain
// and bias are sums over a slice's own samples, as those of all weights.
//
// Backward, which happens once in a step whatever is computed again, adds the moments to the gradients of the running
// statistics, in the table of the first slice. Those are rows with the rule `average`.
#include "model/op/op.h"

#include "model/slices.h"

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

// Two sums for each channel: over all slices, and over the pixels of each slice that is here. With one slice here they
// have one place.
typedef struct span_sums {
    tensor all, parts;  // (2,C), (slices * 2, C)
} span_sums;

static int sets_of_sums(const model *m) { return m->tokens.count == 1 ? 1 : 1 + m->tokens.count; }

static span_sums sums_at(const frame *f, value v) {
    int sets = sets_of_sums(f->m), here = f->m->tokens.count;
    tensor sums = at(f, v), rows = view2(&sums, 2 * sets, sums.size[0] / (2 * sets));
    return (span_sums){tensor_rows(&rows, 0, 2), tensor_rows(&rows, 2 * (sets - here), 2 * here)};
}

static tensor sums_of_slice(const span_sums *x, int k) { return tensor_rows(&x->parts, 2 * k, 2); }

static err_t add_slices(const frame *f, const span_sums *x) {
    tensor all = view1(&x->all, tensor_count(&x->all));
    return slices_sum_tokens(f->m, f->p, &all, &x->parts);
}

// Pixels of the whole span.
static int64_t pixels_of(const frame *f, const tensor *x) { return f->all * x->size[1] * x->size[2]; }

static err_t sum_span(const frame *f, const tensor *x, const tensor *center, const span_sums *sums) {
    for (int k = 0; k < f->m->tokens.count; k++) {
        token_part own = model_token_part(f->m, f->p, k, f->all);
        tensor to = sums_of_slice(sums, k), xk = tensor_rows(x, own.first, own.n);
        TRY(f->p->ops->batch_norm_sums(&(batch_norm_sums_args){.sums = &to, .x = &xk, .center = center}, f->p->s));
    }
    return add_slices(f, sums);
}

static err_t statistics(const frame *f, const step *s) {
    const operation *o = &f->op[s->op];
    const pass *p = f->p;
    moments to = moments_at(f, s->v[S_MOMENTS]);
    tensor x = at_images(f, s->v[S_X]);
    span_sums sums = sums_at(f, s->v[S_SUMS]);
    batch_norm_moments_args args = {
        .mean = &to.mean, .rstd = &to.rstd, .center = &p->w[o->mean], .eps = BATCH_NORM_EPS};
    if (p->dw) {
        TRY(sum_span(f, &x, args.center, &sums));
        args.sums = &sums.all, args.rows = pixels_of(f, &x), args.variance = &to.variance;
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

// to += x; fresh: to = x. x NULL: zeros.
static err_t gather(const pass *p, tensor *to, const tensor *x) {
    if (!x) return p->fresh ? stream_zero(p->s, to->data, tensor_bytes(to)) : ERR_OK;
    return p->fresh ? p->ops->cast(&(cast_args){.y = to, .x = x}, p->s)
                    : p->ops->add(&(add_args){.y = to, .a = to, .b = x}, p->s);
}

// A slice's gradients of gain and bias; and the moments, once in a span.
static err_t slice_gradients(const frame *f, const operation *o, int k, const batch_norm_back_sums_args *all,
                             const span_sums *sums, const moments *of) {
    token_part own = model_token_part(f->m, f->p, k, f->all);
    batch_norm_back_sums_args x = *all;
    bool first = f->m->tokens.first + k == 0;
    tensor to = sums_of_slice(sums, k), dy = tensor_rows(x.dy, own.first, own.n),
           in = tensor_rows(x.x, own.first, own.n), y;
    if (x.y) y = tensor_rows(x.y, own.first, own.n), x.y = &y;
    x.sums = &to, x.dy = &dy, x.x = &in;
    x.dgain = &own.p.dw[o->at.w], x.dbias = &own.p.dw[o->at.b], x.fresh = own.p.fresh;
    TRY(f->p->ops->batch_norm_back_sums(&x, f->p->s));
    TRY(gather(&own.p, &own.p.dw[o->mean], first ? &of->mean : NULL));
    return gather(&own.p, &own.p.dw[o->variance], first ? &of->variance : NULL);
}

static err_t norm_backward(const frame *f, const step *s) {
    const operation *o = &f->op[s->op];
    const pass *p = f->p;
    moments of = moments_at(f, s->v[B_MOMENTS]);
    span_sums sums = sums_at(f, s->v[B_SUMS]);
    tensor dx = at_images(f, s->v[B_DX]), dy = at_images(f, s->v[B_DY]), x = at_images(f, s->v[B_X]), residual, y;
    const tensor *positive = s->v[B_Y] ? &y : NULL;
    if (positive) y = at_images(f, s->v[B_Y]);
    for (int k = 0; k < f->m->tokens.count; k++)
        TRY(slice_gradients(
            f, o, k,
            &(batch_norm_back_sums_args){.dy = &dy, .x = &x, .y = positive, .mean = &of.mean, .rstd = &of.rstd}, &sums,
            &of));
    TRY(add_slices(f, &sums));
    return p->ops->batch_norm_back(&(batch_norm_back_args){.dx = &dx,
                                                           .dresidual = at_if(f, s->v[B_RESIDUAL], &residual),
                                                           .dy = &dy,
                                                           .x = &x,
                                                           .y = positive,
                                                           .mean = &of.mean,
                                                           .rstd = &of.rstd,
                                                           .gain = &p->w[o->at.w],
                                                           .sums = &sums.all,
                                                           .rows = pixels_of(f, &x)},
                                   p->s);
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
    bool one = sets_of_sums(L->g->m) == 1;
    graph_value x = {.name = "sums",
                     .letters = one ? "2C" : "2C * (1 + slices)",
                     .at = LAYOUT_STREAM,
                     .shape = SHAPE_PLAIN,
                     .type = FP64};
    x.width = sets_of_sums(L->g->m) * 2 * L->v[o->out[Y]].C;
    return make_value(L, &x);
}

static void forward(lowering *L, int op, const operation *o) {
    chain c = chain_of(L, op, o);
    if (L->again[o->out[MOMENTS]] || !L->kept[o->out[MOMENTS]]) {
        step *s = emit(L, "statistics", statistics, op, "wwr", o->out[MOMENTS], make_sums(L, o), o->in[0]);
        uses(s, o->mean), uses(s, o->variance);
        s->meets = MEET_SPAN;
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
    s->meets = MEET_SPAN;
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
