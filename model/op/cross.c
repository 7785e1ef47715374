// model/op/cross.c: attention of queries to keys and values that come from elsewhere, with a bias by distance
// (gpu/ops_cross.h). It works on all rows of a micro-batch, and the heads that are here.
//
// While a text is said, its earlier keys and values are kept, and those of the text that was read (model/past.h). Then
// each sample has calls of its own: of the queries of its new positions, to the keys of its slot.
//
// Layers share the table of the bias. Each has a row of its own for it, which shares the values of the first layer's
// and has its own gradient; where rows that share values also share the memory of their gradients, the layer that comes
// first in backward writes it, and the others add.
#include "model/op/op.h"

#include "model/dropout.h"

#include <stdio.h>

enum { Y, LSE };                         // results
enum { F_Y, F_LSE, F_Q, F_KV, F_BIAS };  // operands of forward
enum { B_DQ, B_DKV, B_DELTA, B_PARTS, B_DY, B_Y, B_LSE, B_Q, B_KV, B_BIAS };
enum { T_SUMS, T_PARTS };

static int64_t heads_of(const frame *f, const operation *o) { return o->heads / f->m->slices.of; }
static int64_t slices_here(const frame *f) { return model_head_slices(f->m); }

#define COMMON \
    .heads = (int)heads_of(f, o), .scale = o->factor, .causal = !o->all, \
    .lengths = o->input < 0 || f->p->past ? NULL : &f->p->in[o->input], .samples = f->p->B, \
    .drop = o->site >= 0 ? dropout_at(f->p, f->b, o->site, &key) : NULL, \
    .first_head = model_head_first(f->m) * (int)heads_of(f, o)

// Distances of a sample's queries and keys, and a plain value as a row of them for each head here: of each slice, or of
// each sample of it.
static int64_t distances(const tensor *q, const tensor *kv) { return q->size[1] + kv->size[1] - 1; }
static tensor rows_of(const frame *f, const operation *o, value v, int64_t samples, int64_t n) {
    tensor t = at(f, v);
    return view3(&t, slices_here(f) * samples, heads_of(f, o), n);
}

// While a text is said, the bias is that of all its positions; a text that is read has as many as there are.
static err_t spread(const frame *f, const step *s) {
    const operation *o = &f->op[s->op];
    bool whole = f->p->text != TEXT_READ;
    int64_t queries = whole ? o->rows : T_of(f);
    tensor bias = rows_of(f, o, s->v[0], 1, whole ? o->outputs : 2 * queries - 1);
    return f->p->ops->distance_bias_forward(
        &(distance_bias_forward_args){
            .bias = &bias, .table = &f->p->w[o->at.w], .queries = queries, .both = o->all, .most = o->window},
        f->p->s);
}

// --- a text that is said ---------------------------------------------------------------------------------------------

static bool is_said(const frame *f, value v) { return f->x->v[v].text == TEXT_SAID; }

// Of the text that is said, or of the one that it is said of.
static const past *past_of(const frame *f, value kv) { return is_said(f, kv) ? &f->net->g.past : &f->net->g.read; }

static err_t keep(const frame *f, const step *s) {
    tensor kv = at(f, s->v[0]);
    return f->p->past ? past_keep(past_of(f, s->v[0]), f->p, f->b - f->net->g.attends, &kv) : ERR_OK;
}

// The n rows of sample i of x (slices*B*n,width).
static tensor sample_of(const tensor *x, int64_t i, int64_t n) {
    tensor some = tensor_rows(x, i * n, n);
    return view3(&some, 1, n, x->size[1]);
}

// The keys of sample b: all of a slot, of which a causal query sees those up to its own position, or the text that was
// read.
static tensor keys_of(const frame *f, value kv, int64_t slice, const pass_past *kept) {
    tensor slot = past_slot(past_of(f, kv), f->b - f->net->g.attends, slice, kept->kv_slot);
    int64_t n = is_said(f, kv) ? slot.size[0] : kept->read;
    return view3(&slot, 1, n, slot.size[1]);
}

static err_t attention_to_kept(const frame *f, const step *s) {
    const operation *o = &f->op[s->op];
    tensor y = at_rows(f, s->v[F_Y]), q = at_rows(f, s->v[F_Q]), lse = at(f, s->v[F_LSE]), biases = {0};
    int64_t B = f->p->B, n = T_of(f);
    if (s->v[F_BIAS]) biases = rows_of(f, o, s->v[F_BIAS], 1, o->outputs);
    for (int64_t i = 0; i < slices_here(f) * B; i++) {
        const pass_past *kept = &f->p->past[i % B];
        tensor out = sample_of(&y, i, n), in = sample_of(&q, i, n), kv = keys_of(f, s->v[F_KV], i / B, kept),
               sums = tensor_rows(&lse, i, 1), bias = {0};
        if (s->v[F_BIAS]) bias = tensor_rows(&biases, i / B, 1);
        TRY(f->p->ops->cross_attention_forward(&(cross_attention_forward_args){.y = &out,
                                                                               .lse = &sums,
                                                                               .q = &in,
                                                                               .kv = &kv,
                                                                               .bias = s->v[F_BIAS] ? &bias : NULL,
                                                                               .heads = (int)heads_of(f, o),
                                                                               .scale = o->factor,
                                                                               .causal = !o->all,
                                                                               .first = o->all ? 0 : kept->first},
                                               f->p->s));
    }
    return ERR_OK;
}

// --- of all rows -----------------------------------------------------------------------------------------------------

static err_t attention(const frame *f, const step *s) {
    const operation *o = &f->op[s->op];
    if (f->p->text == TEXT_SAID) return attention_to_kept(f, s);
    tensor y = at_samples(f, s->v[F_Y]), lse = at(f, s->v[F_LSE]), q = at_samples(f, s->v[F_Q]),
           kv = at_samples(f, s->v[F_KV]), bias;
    dropout_key key;
    if (s->v[F_BIAS]) bias = rows_of(f, o, s->v[F_BIAS], 1, distances(&q, &kv));
    return f->p->ops->cross_attention_forward(
        &(cross_attention_forward_args){
            .y = &y, .lse = &lse, .q = &q, .kv = &kv, .bias = s->v[F_BIAS] ? &bias : NULL, COMMON},
        f->p->s);
}

static err_t attention_gradient(const frame *f, const step *s) {
    const operation *o = &f->op[s->op];
    tensor dq = at_samples(f, s->v[B_DQ]), dkv = at_samples(f, s->v[B_DKV]), delta = at(f, s->v[B_DELTA]),
           dy = at_samples(f, s->v[B_DY]), y = at_samples(f, s->v[B_Y]), lse = at(f, s->v[B_LSE]),
           q = at_samples(f, s->v[B_Q]), kv = at_samples(f, s->v[B_KV]), bias, parts;
    int64_t n = distances(&q, &kv);
    dropout_key key;
    if (s->v[B_BIAS]) bias = rows_of(f, o, s->v[B_BIAS], 1, n);
    if (s->v[B_PARTS]) parts = rows_of(f, o, s->v[B_PARTS], f->p->B, n);
    return f->p->ops->cross_attention_backward(&(cross_attention_backward_args){.dq = &dq,
                                                                                .dkv = &dkv,
                                                                                .parts = s->v[B_PARTS] ? &parts : NULL,
                                                                                .delta = &delta,
                                                                                .dy = &dy,
                                                                                .y = &y,
                                                                                .lse = &lse,
                                                                                .q = &q,
                                                                                .kv = &kv,
                                                                                .bias = s->v[B_BIAS] ? &bias : NULL,
                                                                                COMMON},
                                               f->p->s);
}

// Has no later layer written to the memory of this row's gradient?
static bool is_first(const frame *f, int row) {
    const model *m = f->m;
    int of = m->param[row].tied >= 0 ? m->param[row].tied : row;
    for (int i = row + 1; i < m->params; i++)
        if (m->param[i].tied == of && f->p->dw[i].data == f->p->dw[row].data) return false;
    return true;
}

static err_t table_gradient(const frame *f, const step *s) {
    const operation *o = &f->op[s->op];
    tensor sums = rows_of(f, o, s->v[T_SUMS], 1, o->outputs), parts = rows_of(f, o, s->v[T_PARTS], f->p->B, o->outputs);
    return f->p->ops->distance_bias_backward(
        &(distance_bias_backward_args){.dtable = &f->p->dw[o->at.w],
                                       .sums = &sums,
                                       .parts = &parts,
                                       .queries = o->rows,
                                       .both = o->all,
                                       .fresh = f->p->fresh && is_first(f, o->at.w),
                                       .most = o->window},
        f->p->s);
}

// `samples` rows of distances for each head; 0: there is no bias.
static value make_rows(lowering *L, const operation *o, const char *name, int64_t samples) {
    graph_value x = {.letters = "H(Q+K)", .width = samples * o->heads * o->outputs, .shape = SHAPE_PLAIN, .type = FP32};
    x.text = L->v[o->in[0]].text;
    snprintf(x.name, sizeof x.name, "%s.%s", o->name, name);
    return make_value(L, &x);
}

static value make_bias(lowering *L, int op, const operation *o) {
    if (o->at.w < 0) return 0;
    value bias = make_rows(L, o, "bias", 1);
    uses(emit(L, "bias", spread, op, "w", bias), o->at.w);
    return bias;
}

static void forward(lowering *L, int op, const operation *o) {
    value bias = make_bias(L, op, o);
    if (L->o->kv_slots && L->v[o->in[0]].text == TEXT_SAID) emit(L, "keep", keep, op, "r", o->in[1]);
    emit(L, "attention", attention, op, "wwrrr", o->out[Y], o->out[LSE], o->in[0], o->in[1], bias);
}

// Its parts wait for the second half as if they were the gradient of lse.
static void table_step(lowering *L, int op, const operation *o) {
    value parts = L->grad[o->out[LSE]];
    if (parts) adds(emit(L, "bias' gradient", table_gradient, op, "wr", make_rows(L, o, "sums", 1), parts), o->at.w);
}

static void backward(lowering *L, int op, const operation *o) {
    value q = o->in[0], kv = o->in[1];
    if (L->part == BACKWARD_WEIGHTS) return table_step(L, op, o);
    value bias = make_bias(L, op, o), parts = is_trained(L, o->at.w) ? make_rows(L, o, "parts", L->o->B) : 0;
    value dq = make_gradient(L, q, L->v[q].at), dkv = make_gradient(L, kv, L->v[kv].at);
    graph_value delta = L->v[o->out[LSE]];
    snprintf(delta.name, sizeof delta.name, "%s.delta", o->name);
    emit(L, "attention's gradient", attention_gradient, op, "wwwwrrrrrr", dq, dkv, make_value(L, &delta), parts,
         L->given[op], o->out[Y], o->out[LSE], q, kv, bias);
    L->grad[q] = dq, L->grad[kv] = dkv, L->grad[o->out[LSE]] = parts;
    if (L->part == BACKWARD_WHOLE) table_step(L, op, o);
}

static double flops(const model *m, const operation *o) {
    double pairs = (double)o->rows * (double)(o->outputs + 1 - o->rows);
    (void)m;
    return 12 * (o->all ? pairs : pairs / 2) * (double)(o->heads * o->head_size);
}

static const op_type type = {.name = "cross attention",
                             .halves = true,
                             .reads_result = true,
                             .freezes = true,
                             .forward = forward,
                             .backward = backward,
                             .flops = flops};

static void add_table(graph *g, operation *o, const cross_options *a) {
    o->at.w = graph_param(g, a->bias, "", a->buckets, a->heads, a->tied < 0 ? a->std : 0, 0);
    if (g->rc != ERR_OK) return;
    g->m->param[o->at.w].tied = a->tied;
    if (a->tied >= 0) g->m->param[o->at.w].rule = g->m->param[a->tied].rule;
    linear_divide(&o->at, g->m, LINEAR_INPUTS, 0, NULL);
}

// rows: queries of a sample; outputs: distances; window: the distance from which on all share a bucket.
value cross_attend(graph *g, value q, value kv, cross_options a) {
    operation *o = graph_add(g, &type, "att", q, kv);
    const graph_value *of = graph_at(g, q), *to = graph_at(g, kv);
    int64_t width = a.heads * a.head_size, rows = of->rows ? of->rows : g->m->context,
            keys = to->rows ? to->rows : g->m->context;
    if (of->width != width || to->width != 2 * width)
        graph_mistake(g, "cross attention", "%lld heads of %lld are not %lld wide, or their keys and values not %lld",
                      (long long)a.heads, (long long)a.head_size, (long long)of->width, (long long)to->width);
    o->heads = (int)a.heads, o->head_size = a.head_size, o->site = a.site, o->all = !a.causal,
    o->factor = (float)a.scale;
    o->rows = rows, o->outputs = rows + keys - 1, o->window = (int)a.most;
    o->input = a.lengths ? graph_find_input(g, a.lengths) : -1;
    if (a.lengths && o->input < 0) graph_mistake(g, "cross attention", "there is no input %s", a.lengths);
    if (a.bias) add_table(g, o, &a);
    // each block that says a text has two of these
    if (of->text == TEXT_SAID && a.causal) graph_keeps(g, "cross attention", a.heads, a.heads, a.head_size);
    graph_value y = {.letters = a.letters, .width = width, .rows = of->rows, .text = of->text, .at = LAYOUT_HEADS},
                lse = y;
    y.is_E = true;
    snprintf(lse.name, sizeof lse.name, ".lse");
    lse.letters = "H", lse.width = a.heads, lse.shape = SHAPE_PER_HEAD, lse.type = FP32;
    graph_result(g, o, Y, y);
    graph_result(g, o, LSE, lse);
    return o->out[Y];
}
