// model/op/next_token.c: softmax cross entropy of the logits x W^T against the next tokens, chunk by chunk
// (model/head.h). In training it runs in backward, where x's gradient overwrites x. Or it gives the scores of what
// follows each sample.
#include "model/op/op.h"

static err_t losses(const frame *f, const step *s) {
    tensor x = at(f, s->v[0]);
    head *h = &f->net->g.head;
    pass p = *f->p;
    return p.predict ? head_stream_scores(h, &p, &x) : head_stream_losses(h, &p, &x, &p.in[f->m->targets]);
}

static step *losses_step(lowering *L, int op, const operation *o, const char *name) {
    value x = as(L, o->in[0], LAYOUT_MATRIX);
    step *s = emit(L, name, losses, op, "u", x);
    uses(s, o->at.w);
    s->meets = MEET_SOFTMAX;
    return s;
}

static void forward(lowering *L, int op, const operation *o) { losses_step(L, op, o, "losses of next tokens"); }

static void backward(lowering *L, int op, const operation *o) {
    step *s = losses_step(L, op, o, "losses and their gradient");
    if (is_trained(L, o->at.w)) adds(s, o->at.w);
    L->grad[o->in[0]] = as(L, s->v[0], LAYOUT_STREAM);
}

static const op_type type = {
    .name = "next tokens", .freezes = true, .forward = forward, .backward = backward, .flops = vocabulary_flops};

void next_token_loss(graph *g, value x, const char *weight, int64_t vocab, int tied, int64_t chunks, double std) {
    operation *o = graph_add(g, &type, weight, x, 0);
    model *m = g->m;
    m->losses = m->units = m->context, m->unit = "token", m->short_unit = "tok";
    m->adds_once = chunks <= m->tokens.of;
    vocabulary_head(g, o, x, weight, vocab, tied, chunks, std);
}
