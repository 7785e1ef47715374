// model/op/gelu.c: GELU in its tanh form or its erf form (Hendrycks & Gimpel 2016). The product that makes x also
// computes it. The product that makes y's gradient also multiplies by the slope, and forms the bias gradient of the
// first product.
#include "model/op/op.h"

static err_t gelu_of(const frame *f, const step *s) {
    tensor y = at(f, s->v[0]), x = at(f, s->v[1]);
    return f->p->ops->gelu_forward(&(gelu_forward_args){.y = &y, .x = &x, .erf = f->op[s->op].erf}, f->p->s);
}

static err_t slope(const frame *f, const step *s) {
    tensor dx = at(f, s->v[0]), dy = at(f, s->v[1]), x = at(f, s->v[2]);
    return f->p->ops->gelu_backward(&(gelu_backward_args){.dx = &dx, .dy = &dy, .x = &x, .erf = f->op[s->op].erf},
                                    f->p->s);
}

static void claim(lowering *L, int op, const operation *o) {
    int next = only_user(L, o->out[0], ROLE_PRODUCT);
    // its input's gradient comes with the slope
    bool through = next >= 0 && op_at(L, next)->at.division != LINEAR_OUTPUTS;
    bool makes = is_made_by(L, o->in[0], ROLE_PRODUCT);
    if (through && makes && is_trained(L, op_at(L, maker_of(L, o->in[0]))->at.b))
        L->bias_by[maker_of(L, o->in[0])] = op;
}

static void forward(lowering *L, int op, const operation *o) {
    emit(L, "gelu", gelu_of, op, "wr", o->out[0], o->in[0]);
}

static void backward(lowering *L, int op, const operation *o) {
    value dx = L->grad[o->in[0]] = make_gradient(L, o->in[0], L->v[o->in[0]].at);
    emit(L, "gelu's slope", slope, op, "wrr", dx, L->given[op], o->in[0]);
}

static const op_type type = {
    .name = "gelu", .role = ROLE_GELU, .cheap = true, .claim = claim, .forward = forward, .backward = backward};

value gelu(graph *g, value x) { return graph_same(g, graph_add(g, &type, "gelu", x, 0)); }

value gelu_erf(graph *g, value x) {
    operation *o = graph_add(g, &type, "gelu", x, 0);
    o->erf = true;
    return graph_same(g, o);
}
