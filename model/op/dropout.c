// model/op/dropout.c: drops elements, in place where nothing reads them again. Backward draws the mask again. Without
// dropout it does nothing.
#include "model/dropout.h"

#include "model/op/op.h"

static err_t drop(const frame *f, const step *s) {
    tensor y = at(f, s->v[0]), x = at(f, s->v[1]);
    int site = f->op[s->op].site;
    return x.dims == 3 ? dropout_slices(f->m, f->p, f->b, site, &y, &x) : dropout_rows(f->m, f->p, f->b, site, &y, &x);
}

static void drop_step(lowering *L, int op, value y, value x) {
    step *s = emit(L, "dropout", drop, op, "wr", y, x);
    s->into = 0, s->over = 1;
}

static void forward(lowering *L, int op, const operation *o) { drop_step(L, op, o->out[0], o->in[0]); }

static void backward(lowering *L, int op, const operation *o) {
    L->grad[o->in[0]] = make_gradient(L, o->in[0], L->v[L->given[op]].at);
    drop_step(L, op, L->grad[o->in[0]], L->given[op]);
}

static const op_type type = {.name = "dropout", .drops = true, .forward = forward, .backward = backward};

value dropout(graph *g, value x, int site) {
    if (g->dropout == 0) return x;
    operation *o = graph_add(g, &type, "dropped", x, 0);
    o->site = site;
    return graph_is_read_again(g, x) ? graph_same(g, o) : graph_in_place(g, o);
}
