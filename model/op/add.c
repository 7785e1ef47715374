// model/op/add.c: y = a + b. A product that makes b can add a itself, and a layer norm of y can add both; then this
// operation does nothing. The gradient of a and of b is that of y.
#include "model/op/op.h"

static err_t add_both(const frame *f, const step *s) {
    tensor y = at(f, s->v[0]), a = at(f, s->v[1]), b = at(f, s->v[2]);
    return f->p->ops->add(&(add_args){.y = &y, .a = &a, .b = &b}, f->p->s);
}

static bool waits_for_norm(const lowering *L, value y) {
    for (int k = 0; k < L->v[y].users; k++)
        if (op_at(L, L->v[y].user[k])->type->role == ROLE_SUM_NORM && L->need[L->v[y].user[k]]) return true;
    return false;
}

static void forward(lowering *L, int op, const operation *o) {
    if (waits_for_norm(L, o->out[0])) return;
    emit(L, "add", add_both, op, "wrr", o->out[0], o->in[0], o->in[1]);
}

static void backward(lowering *L, int op, const operation *o) { L->grad[o->in[0]] = L->grad[o->in[1]] = L->given[op]; }

static const op_type type = {.name = "add", .role = ROLE_SUM, .forward = forward, .backward = backward};

value add(graph *g, value a, value b) {
    operation *o = graph_add(g, &type, "sum", a, b);
    if (graph_at(g, a)->width != graph_at(g, b)->width)
        graph_mistake(g, "add", "%s has width %lld, and %s %lld", graph_at(g, a)->name,
                      (long long)graph_at(g, a)->width, graph_at(g, b)->name, (long long)graph_at(g, b)->width);
    return graph_same(g, o);
}
