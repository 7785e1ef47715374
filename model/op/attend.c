// model/op/attend.c: attention of heads, causal or not (gpu/ops.h). It works on all rows of a micro-batch, and the
// heads that are here. While a text grows, keys and values of earlier positions are kept (model/past.h).
#include "model/op/op.h"

#include "model/dropout.h"

#include <stdio.h>

enum { Y, LSE };                                    // results
enum { F_Y, F_LSE, F_QKV };                         // operands of forward
enum { B_DQKV, B_DELTA, B_DY, B_Y, B_LSE, B_QKV };  // of backward

// Arguments that forward and backward share: the heads that are here, and dropout of their probabilities.
#define HEADS \
    .heads = heads_of(f, o->heads), .kv_heads = heads_of(f, o->kv_heads), .window = o->window, .all = o->all, \
    .lengths = o->all ? input_at(f, o) : NULL, .places = o->all ? NULL : input_at(f, o), \
    .drop = drops ? dropout_at(f->p, f->b, o->site, &key) : NULL, .samples = drops ? f->p->B : 0, \
    .first_head = drops ? model_head_first(f->m) * heads_of(f, o->heads) : 0

static int heads_of(const frame *f, int heads) { return heads / f->m->slices.of; }

static err_t attention(const frame *f, const step *s) {
    const operation *o = &f->op[s->op];
    tensor y = at(f, s->v[F_Y]), qkv = at(f, s->v[F_QKV]), lse = at(f, s->v[F_LSE]);
    const graph *g = &f->net->g;
    dropout_key key;
    if (f->p->past) return past_attend(&g->past, f->p, f->b - g->attends, o->window, &y, &qkv);
    y = at_samples(f, s->v[F_Y]), qkv = at_samples(f, s->v[F_QKV]);
    bool drops = o->site >= 0;
    return f->p->ops->attention_forward(&(attention_forward_args){.y = &y, .lse = &lse, .qkv = &qkv, HEADS}, f->p->s);
}

static err_t attention_gradient(const frame *f, const step *s) {
    const operation *o = &f->op[s->op];
    tensor dqkv = at_samples(f, s->v[B_DQKV]), delta = at(f, s->v[B_DELTA]), dy = at_samples(f, s->v[B_DY]);
    tensor y = at_samples(f, s->v[B_Y]), lse = at(f, s->v[B_LSE]), qkv = at_samples(f, s->v[B_QKV]);
    dropout_key key;
    bool drops = o->site >= 0;
    return f->p->ops->attention_backward(
        &(attention_backward_args){.dqkv = &dqkv, .delta = &delta, .dy = &dy, .y = &y, .lse = &lse, .qkv = &qkv, HEADS},
        f->p->s);
}

static void forward(lowering *L, int op, const operation *o) {
    value qkv = as(L, o->in[0], LAYOUT_HEADS);
    emit(L, "attention", attention, op, "wwr", o->out[Y], o->out[LSE], qkv);
}

static void backward(lowering *L, int op, const operation *o) {
    value qkv = as(L, o->in[0], LAYOUT_HEADS), dqkv = make_gradient(L, qkv, LAYOUT_HEADS),
          dy = as(L, L->given[op], LAYOUT_HEADS);
    graph_value delta = L->v[o->out[LSE]];
    snprintf(delta.name, sizeof delta.name, "%s.delta", o->name);
    emit(L, "attention's gradient", attention_gradient, op, "wwrrrr", dqkv, make_value(L, &delta), dy, o->out[Y],
         o->out[LSE], qkv);
    L->grad[o->in[0]] = dqkv;
}

// Counts pairs of a position and one that it sees.
static double flops(const model *m, const operation *o) {
    double T = (double)m->context, W = o->window && o->window < T ? o->window : T,
           pairs = o->all   ? T * T
                   : W >= T ? T * T / 2
                            : W * (T - W / 2);
    return 12 * pairs * (double)(o->heads * o->head_size);
}

static const op_type type = {
    .name = "attention", .reads_result = true, .forward = forward, .backward = backward, .flops = flops};

value attend(graph *g, value qkv, attention_options a) {
    operation *o = graph_add(g, &type, "att", qkv, 0);
    int64_t kv = a.kv_heads ? a.kv_heads : a.heads;
    if (graph_at(g, qkv)->width != (a.heads + 2 * kv) * a.head_size)
        graph_mistake(g, "attention", "%lld + 2 x %lld heads of %lld are not %lld wide", (long long)a.heads,
                      (long long)kv, (long long)a.head_size, (long long)graph_at(g, qkv)->width);
    o->heads = (int)a.heads, o->head_size = a.head_size, o->kv_heads = (int)a.kv_heads, o->window = (int)a.window,
    o->site = a.site;
    o->all = a.all, o->input = a.lengths ? graph_find_input(g, a.lengths) : a.all ? -1 : graph_find_input(g, PLACES);
    if (a.all && (a.window || kv != a.heads))
        graph_mistake(g, "attention",
                      "where all positions are seen there is no window, and each head has its own keys");
    if (a.lengths && (!a.all || o->input < 0))
        graph_mistake(g, "attention", "lengths are those of samples all of whose positions are seen, and an input: %s",
                      a.lengths);
    if (!a.all) graph_keeps(g, "attention", a.heads, kv, a.head_size);
    graph_result(g, o, Y,
                 (graph_value){.letters = a.letters, .width = a.heads * a.head_size, .at = LAYOUT_HEADS, .is_E = true});
    graph_result(g, o, LSE,
                 (graph_value){.name = ".lse",
                               .letters = "H",
                               .width = a.heads,
                               .at = LAYOUT_HEADS,
                               .shape = SHAPE_PER_HEAD,
                               .type = FP32});
    return o->out[Y];
}
