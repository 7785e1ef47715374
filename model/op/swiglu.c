// model/op/swiglu.c: y = silu(gate) * up, for the halves of each row of x    (Shazeer 2020). x's gradient may take x's
// place.
#include "model/op/op.h"

static err_t gate(const frame *f, const step *s) {
    tensor y = at_rows(f, s->v[0]), x = at_rows(f, s->v[1]);
    return f->matrix ? f->p->ops->swiglu_forward(&(swiglu_forward_args){.y = &y, .x = &x}, f->p->s) : ERR_OK;
}

static err_t gate_backward(const frame *f, const step *s) {
    tensor dx = at_rows(f, s->v[0]), dy = at_rows(f, s->v[1]), x = at_rows(f, s->v[2]);
    return f->p->ops->swiglu_backward(&(swiglu_backward_args){.dx = &dx, .dy = &dy, .x = &x}, f->p->s);
}

static void forward(lowering *L, int op) {
    const operation *o = op_at(L, op);
    step *s = emit(L, "swiglu", gate, op);
    writes(s, o->out[0]);
    reads(s, o->in[0]);
}

static void backward(lowering *L, int op) {
    const operation *o = op_at(L, op);
    if (L->part == BACKWARD_WEIGHTS) return;
    step *s = emit(L, "swiglu's gradient", gate_backward, op);
    writes(s, L->grad[o->in[0]] = make_gradient(L, o->in[0], L->v[o->in[0]].at));
    reads(s, L->given[op]), reads(s, o->in[0]);
    s->into = 0, s->over = 2;
}

static const op_type type = {.name = "swiglu", .cheap = true, .forward = forward, .backward = backward};

value swiglu(graph *g, value x, const char *letters) {
    operation *o = graph_add(g, &type, "gated", x, 0);
    if (!o) return 0;
    graph_value y = *graph_at(g, x);
    if (y.width % 2) graph_mistake(g, "swiglu", "%s has width %lld, which has no halves", y.name, (long long)y.width);
    y.name[0] = 0, y.width /= 2, y.letters = letters;
    return graph_result(g, o, 0, y);
}
