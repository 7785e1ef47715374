// model/op/samples.c: the model's first input, FP32 numbers, as a matrix of a row a sample, rounded to E. In FP32 it is
// the input itself. It has no gradient.
#include "model/op/op.h"

enum { NUMBERS };  // input of the model

static err_t take(const frame *f, const step *s) {
    tensor y = at(f, s->v[0]), x = view2(&f->p->in[NUMBERS], f->p->B, y.size[1]);
    return f->p->ops->cast(&(cast_args){.y = &y, .x = &x}, f->p->s);
}

static void forward(lowering *L, int op, const operation *o) {
    value y = o->out[0];
    if (L->o->compute == FP32) L->v[y].is_input = true;
    else emit(L, "samples", take, op, "w", y);
}

static void backward(lowering *L, int op, const operation *o) { (void)L, (void)op, (void)o; }

static const op_type type = {.name = "samples", .role = ROLE_INPUT, .forward = forward, .backward = backward};

value samples(graph *g, const char *name, int64_t width) {
    operation *o = graph_add(g, &type, "samples", 0, 0);
    graph_input(g, name, FP32, width, 0);
    return graph_result(g, o, 0, (graph_value){.letters = "I", .width = width, .at = LAYOUT_STREAM, .is_E = true});
}
