// model/op/relu.c: y = max(x, 0), in place. Backward reads y, so that x need not be kept. A batch norm before it can do
// all of its work.
#include "model/op/op.h"

static err_t relu_of(const frame *f, const step *s) {
    tensor y = at(f, s->v[0]);
    return f->p->ops->relu_forward(&(relu_forward_args){.y = &y, .x = &y}, f->p->s);
}

static err_t relu_backward(const frame *f, const step *s) {
    tensor dx = at(f, s->v[0]), dy = at(f, s->v[1]), y = at(f, s->v[2]);
    return f->p->ops->relu_backward(&(relu_backward_args){.dx = &dx, .dy = &dy, .y = &y}, f->p->s);
}

static void forward(lowering *L, int op, const operation *o) { emit(L, "relu", relu_of, op, "u", o->out[0]); }

static void backward(lowering *L, int op, const operation *o) {
    value dx = L->grad[o->in[0]] = make_gradient(L, o->in[0], L->v[o->in[0]].at);
    step *s = emit(L, "relu's gradient", relu_backward, op, "wrr", dx, L->given[op], o->out[0]);
    s->into = 0, s->over = 1;
}

static const op_type type = {
    .name = "relu", .role = ROLE_RELU, .cheap = true, .reads_result = true, .forward = forward, .backward = backward};

value relu(graph *g, value x) { return graph_in_place(g, graph_add(g, &type, "relu", x, 0)); }
