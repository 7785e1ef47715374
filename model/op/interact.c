// model/op/interact.c: x and after it the dot products of each pair of x and the rows beside it (gpu/ops.h:
// interact_forward).
#include "model/op/op.h"

static tensor vectors(const frame *f, const step *s, value v) {
    const operation *o = &f->op[s->op];
    tensor x = at(f, v);
    return view3(&x, f->p->B, o->heads, o->head_size);
}

static err_t interact_all(const frame *f, const step *s) {
    tensor y = at(f, s->v[0]), x = at(f, s->v[1]), rows = vectors(f, s, s->v[2]);
    return f->p->ops->interact_forward(&(interact_forward_args){.y = &y, .x = &x, .rows = &rows}, f->p->s);
}

static err_t gradients(const frame *f, const step *s) {
    tensor dx = at(f, s->v[0]), drows = vectors(f, s, s->v[1]), dy = at(f, s->v[2]), x = at(f, s->v[3]),
           rows = vectors(f, s, s->v[4]);
    return f->p->ops->interact_backward(
        &(interact_backward_args){.dx = &dx, .drows = &drows, .dy = &dy, .x = &x, .rows = &rows}, f->p->s);
}

static void forward(lowering *L, int op, const operation *o) {
    emit(L, "interact", interact_all, op, "wrr", o->out[0], o->in[0], o->in[1]);
}

static void backward(lowering *L, int op, const operation *o) {
    value x = o->in[0], rows = o->in[1], dx = L->grad[x] = make_gradient(L, x, L->v[x].at),
          drows = L->grad[rows] = make_gradient(L, rows, L->v[rows].at);
    emit(L, "interaction's gradients", gradients, op, "wwrrr", dx, drows, L->given[op], x, rows);
}

static double flops(const model *m, const operation *o) {
    (void)m;
    return 3 * (double)o->heads * (double)(o->heads + 1) * (double)o->head_size;  // forward, and twice backward
}

static const op_type type = {.name = "interact", .forward = forward, .backward = backward, .flops = flops};

value interact(graph *g, value x, value rows) {
    operation *o = graph_add(g, &type, "interact", x, rows);
    int64_t C = graph_at(g, x)->width, all = graph_at(g, rows)->width;
    if (C < 1 || all % C)
        graph_mistake(g, "interact", "%s has width %lld, which is no number of rows of %s, of width %lld",
                      graph_at(g, rows)->name, (long long)all, graph_at(g, x)->name, (long long)C);
    if (g->rc != ERR_OK) return 0;
    o->heads = (int)(all / C), o->head_size = C;
    return graph_result(
        g, o, 0,
        (graph_value){.letters = "I", .width = interact_width(C, o->heads), .at = LAYOUT_STREAM, .is_E = true});
}
