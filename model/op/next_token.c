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

static double flops(const model *m, const operation *o) {
    return (param_is_frozen(&m->param[o->at.w]) ? 4 : 6) * (double)m->context *
           (double)shape_count(2, m->param[o->at.w].size);
}

static const op_type type = {
    .name = "next tokens", .freezes = true, .forward = forward, .backward = backward, .flops = flops};

void next_token_loss(graph *g, value x, const char *weight, int64_t vocab, int tied, int64_t chunks, double std) {
    operation *o = graph_add(g, &type, weight, x, 0);
    model *m = g->m;
    m->losses = m->units = m->context, m->unit = "token", m->short_unit = "tok", m->vocab = vocab;
    m->targets = m->inputs;
    m->adds_once = chunks <= m->tokens.of;
    graph_input(g, "targets", INT32, m->context, vocab);
    int w = graph_param(g, weight, "", vocab, graph_at(g, x)->width, std, 0);
    if (g->rc != ERR_OK) return;
    g->head = (head){.at = {.w = w, .b = -1}, .classes = vocab, .Vp = head_rows_in_memory(vocab, m->slices.of)};
    g->chunks = chunks;
    m->param[w].tied = tied;
    if (tied >= 0) m->param[w].rule = m->param[tied].rule;
    g->head.frozen = param_is_frozen(&m->param[w]);
    m->param[w].rows_in_memory = g->head.Vp;
    linear_divide(&g->head.at, m, LINEAR_OUTPUTS, 0, NULL);
    o->at = g->head.at;
}
