// model/op/masked.c: softmax cross entropy of the logits x W^T + b against the tokens that were masked, chunk by chunk
// (model/head.h). In training it runs in backward, where x's gradient overwrites x.
#include "model/op/op.h"

static err_t losses(const frame *f, const step *s) {
    tensor x = at(f, s->v[0]);
    int64_t N = matrix_rows(&x);
    pass p = *f->p;
    tensor all = view1(&p.losses, N), targets = view1(&p.in[f->m->targets], N);
    return head_losses(&f->net->g.head, &p, &all, NULL, &x, &x, &targets);
}

static step *losses_step(lowering *L, int op, const operation *o, const char *name) {
    step *s = emit(L, name, losses, op, "u", o->in[0]);
    uses(s, o->at.w), uses(s, o->at.b);
    if (o->at.division == LINEAR_OUTPUTS) s->meets = MEET_SOFTMAX;
    return s;
}

static void forward(lowering *L, int op, const operation *o) { losses_step(L, op, o, "losses of masked tokens"); }

static void backward(lowering *L, int op, const operation *o) {
    step *s = losses_step(L, op, o, "losses and their gradient");
    adds(s, o->at.w), adds(s, o->at.b);
    L->grad[o->in[0]] = s->v[0];
}

static double flops(const model *m, const operation *o) {
    return 6 * (double)m->losses * (double)shape_count(2, m->param[o->at.w].size);
}

static const op_type type = {.name = "masked tokens", .forward = forward, .backward = backward, .flops = flops};

void masked_loss(graph *g, value x, const char *weight, const char *bias, masked_options c) {
    operation *o = graph_add(g, &type, weight, x, 0);
    model *m = g->m;
    int64_t rows = graph_at(g, x)->rows;
    m->losses = rows ? rows : m->context, m->units = m->context, m->unit = "token", m->short_unit = "tok";
    m->targets = m->inputs;
    m->adds_once = c.chunks == 1;
    m->mask = c.mask, m->begin = c.begin, m->end = c.end;
    graph_input(g, "targets", INT32, m->losses, c.vocab);
    int w = graph_param(g, weight, "", c.vocab, graph_at(g, x)->width, c.std, 0),
        b = graph_param(g, bias, "", c.vocab, 0, 0, 0);
    if (g->rc != ERR_OK) return;
    g->head = (head){.at = {.w = w, .b = b}, .classes = c.vocab, .Vp = head_rows_in_memory(c.vocab, m->slices.of)};
    g->chunks = c.chunks;
    m->param[w].tied = c.tied;
    m->param[w].rows_in_memory = m->param[b].rows_in_memory = g->head.Vp;
    linear_divide(&g->head.at, m, LINEAR_OUTPUTS, 0, NULL);
    o->at = g->head.at;
}
