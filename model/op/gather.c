// model/op/gather.c: some rows of each sample: those that a loss is about. Backward gives the others zeros; where
// another operation reads x after it, it adds to the gradient that that one has formed.
#include "model/op/op.h"

static const tensor *places(const frame *f, const step *s) {
    int input = f->op[s->op].input;
    return input < 0 ? NULL : &f->p->in[input];
}

static tensor some_of(const frame *f, const tensor *y) {
    return view3(y, f->p->B, matrix_rows(y) / f->p->B, matrix_columns(y));
}

static err_t gather(const frame *f, const step *s) {
    tensor rows = at(f, s->v[0]), y = some_of(f, &rows), x = at_samples(f, s->v[1]);
    return f->p->ops->gather_rows(&(gather_rows_args){.y = &y, .x = &x, .at = places(f, s)}, f->p->s);
}

static err_t scatter(const frame *f, const step *s) {
    tensor dx = at_samples(f, s->v[0]), rows = at(f, s->v[1]), dy = some_of(f, &rows);
    return f->p->ops->scatter_rows(&(scatter_rows_args){.dx = &dx, .dy = &dy, .at = places(f, s)}, f->p->s);
}

static void forward(lowering *L, int op, const operation *o) {
    emit(L, "gather", gather, op, "wr", o->out[0], o->in[0]);
}

static err_t add_gradients(const frame *f, const step *s) {
    tensor past = at(f, s->v[0]), dx = at(f, s->v[1]);
    return f->p->ops->add(&(add_args){.y = &past, .a = &past, .b = &dx}, f->p->s);
}

static void backward(lowering *L, int op, const operation *o) {
    value past = L->grad[o->in[0]], dx = make_gradient(L, o->in[0], L->v[o->in[0]].at);
    emit(L, "scatter", scatter, op, "wr", dx, L->given[op]);
    if (past) emit(L, "add", add_gradients, op, "ur", past, dx);
    else L->grad[o->in[0]] = dx;
}

static const op_type type = {.name = "gather", .adds = true, .forward = forward, .backward = backward};

value gather_rows(graph *g, value x, const char *input, int64_t M) {
    operation *o = graph_add(g, &type, "some", x, 0);
    graph_value y = *graph_at(g, x);
    if (input) o->input = g->m->inputs, graph_input(g, input, INT32, M, g->m->context);
    y.name[0] = 0, y.rows = M;
    return graph_result(g, o, 0, y);
}

void sample_length(graph *g, const char *name) { graph_input(g, name, INT32, 0, g->m->context + 1); }
