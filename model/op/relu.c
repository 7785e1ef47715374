// model/op/relu.c: y = max(x, 0), in place. Backward reads y, so that x need not be kept.
#include "model/op/op.h"

static err_t relu_of(const frame *f, const step *s) {
    tensor y = at(f, s->v[0]);
    return f->p->ops->relu_forward(&(relu_forward_args){.y = &y, .x = &y}, f->p->s);
}

static err_t relu_backward(const frame *f, const step *s) {
    tensor dx = at(f, s->v[0]), dy = at(f, s->v[1]), y = at(f, s->v[2]);
    return f->p->ops->relu_backward(&(relu_backward_args){.dx = &dx, .dy = &dy, .y = &y}, f->p->s);
}

static void forward(lowering *L, int op) { changes(emit(L, "relu", relu_of, op), op_at(L, op)->out[0]); }

static void backward(lowering *L, int op) {
    const operation *o = op_at(L, op);
    if (L->part == BACKWARD_WEIGHTS) return;
    step *s = emit(L, "relu's gradient", relu_backward, op);
    writes(s, L->grad[o->in[0]] = make_gradient(L, o->in[0], L->v[o->in[0]].at));
    reads(s, L->given[op]), reads(s, o->out[0]);
    s->into = 0, s->over = 1;
}

static const op_type type = {.name = "relu", .forward = forward, .backward = backward};

value relu(graph *g, value x) {
    operation *o = graph_add(g, &type, "relu", x, 0);
    return o ? graph_in_place(g, o) : 0;
}
