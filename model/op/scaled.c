// model/op/scaled.c: y = factor * x, rounded to E.
#include "model/op/op.h"

static err_t scale(const frame *f, const step *s) {
    tensor y = at(f, s->v[0]), x = at(f, s->v[1]);
    return f->p->ops->scale_columns(
        &(scale_columns_args){.y = &y, .x = &x, .width = matrix_columns(&x), .factor = f->op[s->op].factor}, f->p->s);
}

static void forward(lowering *L, int op, const operation *o) { emit(L, "scale", scale, op, "wr", o->out[0], o->in[0]); }

static void backward(lowering *L, int op, const operation *o) {
    value dx = L->grad[o->in[0]] = make_gradient(L, o->in[0], L->v[o->in[0]].at);
    emit(L, "scale's gradient", scale, op, "wr", dx, L->given[op]);
}

static const op_type type = {.name = "scale", .cheap = true, .forward = forward, .backward = backward};

value scaled(graph *g, value x, double factor) {
    operation *o = graph_add(g, &type, "scaled", x, 0);
    o->factor = (float)factor;
    return graph_same(g, o);
}
