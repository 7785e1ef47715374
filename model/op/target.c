// model/op/target.c: softmax cross entropy of the logits x W^T against targets of their own, chunk by chunk
// (model/head.h): what a decoder says, or the scores of what follows its text. In training it runs in backward, where
// x's gradient overwrites x.
#include "model/op/op.h"

static err_t losses(const frame *f, const step *s) {
    tensor x = at(f, s->v[0]);
    int64_t N = matrix_rows(&x);
    head *h = &f->net->g.head;
    pass p = *f->p;
    if (p.predict) {
        int64_t first = !p.past ? p.row : p.B > 1 ? 0 : N - 1;
        tensor last = tensor_rows(&x, first, p.past ? N - first : 1);
        return head_scores(h, &p, &last);
    }
    tensor all = view1(&p.losses, N), targets = view1(&p.in[f->m->targets], N);
    return head_losses(h, &p, &all, NULL, &x, &x, &targets);
}

static step *losses_step(lowering *L, int op, const operation *o, const char *name) {
    step *s = emit(L, name, losses, op, "u", o->in[0]);
    uses(s, o->at.w);
    if (o->at.division == LINEAR_OUTPUTS) s->meets = MEET_SOFTMAX;
    return s;
}

static void forward(lowering *L, int op, const operation *o) { losses_step(L, op, o, "losses of targets"); }

static void backward(lowering *L, int op, const operation *o) {
    step *s = losses_step(L, op, o, "losses and their gradient");
    if (is_trained(L, o->at.w)) adds(s, o->at.w);
    L->grad[o->in[0]] = s->v[0];
}

static const op_type type = {
    .name = "targets", .freezes = true, .forward = forward, .backward = backward, .flops = vocabulary_flops};

void target_loss(graph *g, value x, const char *weight, int64_t vocab, int tied, int64_t chunks, double std) {
    operation *o = graph_add(g, &type, weight, x, 0);
    model *m = g->m;
    int64_t rows = graph_at(g, x)->rows;
    m->losses = rows ? rows : m->context, m->units = m->context, m->unit = "token", m->short_unit = "tok";
    m->adds_once = chunks == 1;
    vocabulary_head(g, o, x, weight, vocab, tied, chunks, std);
}

void target_answers(graph *g) {
    model *m = g->m;
    m->says = g->head.says = true;
    m->metrics = 1, m->metric[0] = "accuracy";
}
