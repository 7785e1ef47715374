// model/op/gated.c: y = f(gate) * up, for the halves of each row of x, f = silu or gelu    (Shazeer 2020). x's gradient
// may overwrite x.
#include "model/op/op.h"

static const op_type silu_gate, gelu_gate;

static err_t gate(const frame *f, const step *s) {
    tensor y = at_rows(f, s->v[0]), x = at_rows(f, s->v[1]);
    const gated_forward_args args = {.y = &y, .x = &x};
    const ops *o = f->p->ops;
    if (!f->matrix) return ERR_OK;
    return f->op[s->op].type == &gelu_gate ? o->geglu_forward(&args, f->p->s) : o->swiglu_forward(&args, f->p->s);
}

static err_t gate_backward(const frame *f, const step *s) {
    tensor dx = at_rows(f, s->v[0]), dy = at_rows(f, s->v[1]), x = at_rows(f, s->v[2]);
    const gated_backward_args args = {.dx = &dx, .dy = &dy, .x = &x};
    const ops *o = f->p->ops;
    return f->op[s->op].type == &gelu_gate ? o->geglu_backward(&args, f->p->s) : o->swiglu_backward(&args, f->p->s);
}

static void forward(lowering *L, int op, const operation *o) {
    emit(L, o->type->name, gate, op, "wr", o->out[0], o->in[0]);
}

static void backward(lowering *L, int op, const operation *o) {
    value x = o->in[0], dx = L->grad[x] = make_gradient(L, x, L->v[x].at);
    step *s = emit(L, o->type == &gelu_gate ? "geglu's gradient" : "swiglu's gradient", gate_backward, op, "wrr", dx,
                   L->given[op], x);
    s->into = 0, s->over = 2;
}

static const op_type silu_gate = {.name = "swiglu", .cheap = true, .forward = forward, .backward = backward};
static const op_type gelu_gate = {.name = "geglu", .cheap = true, .forward = forward, .backward = backward};

static value gated(graph *g, const op_type *type, value x, const char *letters) {
    operation *o = graph_add(g, type, "gated", x, 0);
    graph_value y = *graph_at(g, x);
    if (y.width % 2) graph_mistake(g, type->name, "%s has width %lld, which has no halves", y.name, (long long)y.width);
    y.name[0] = 0, y.width /= 2, y.letters = letters;
    return graph_result(g, o, 0, y);
}

value swiglu(graph *g, value x, const char *letters) { return gated(g, &silu_gate, x, letters); }
value geglu(graph *g, value x, const char *letters) { return gated(g, &gelu_gate, x, letters); }
