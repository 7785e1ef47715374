// model/op/hyperbolic.c: y = tanh(x), in place. Backward reads y, so that x need not be kept.
#include "model/op/op.h"

static err_t tanh_of(const frame *f, const step *s) {
    tensor y = at(f, s->v[0]);
    return f->p->ops->tanh_forward(&(tanh_forward_args){.y = &y, .x = &y}, f->p->s);
}

static err_t slope(const frame *f, const step *s) {
    tensor dx = at(f, s->v[0]), dy = at(f, s->v[1]), y = at(f, s->v[2]);
    return f->p->ops->tanh_backward(&(tanh_backward_args){.dx = &dx, .dy = &dy, .y = &y}, f->p->s);
}

static void forward(lowering *L, int op, const operation *o) { emit(L, "tanh", tanh_of, op, "u", o->out[0]); }

static void backward(lowering *L, int op, const operation *o) {
    value dx = L->grad[o->in[0]] = make_gradient(L, o->in[0], L->v[o->in[0]].at);
    step *s = emit(L, "tanh's slope", slope, op, "wrr", dx, L->given[op], o->out[0]);
    s->into = 0, s->over = 1;
}

static const op_type type = {
    .name = "tanh", .cheap = true, .reads_result = true, .forward = forward, .backward = backward};

value hyperbolic(graph *g, value x) { return graph_in_place(g, graph_add(g, &type, "tanh", x, 0)); }
