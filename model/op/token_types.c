// model/op/token_types.c: y = table[type], of each position: which of two texts it is part of, for one. The table is
// small, and whole on every rank.
#include "model/op/op.h"

static tensor types_at(const frame *f, const step *s) { return view2(&f->p->in[f->op[s->op].input], 1, f->all); }

static err_t look_up(const frame *f, const step *s) {
    tensor x = at(f, s->v[0]), to = view3(&x, 1, f->all, matrix_columns(&x)), types = types_at(f, s);
    return f->p->ops->embedding_forward(
        &(embedding_forward_args){.x = &to, .tokens = &types, .wte = &f->p->w[f->op[s->op].at.w], .factor = 1},
        f->p->s);
}

static err_t gradient(const frame *f, const step *s) {
    tensor dy = at(f, s->v[0]), dx = view3(&dy, 1, f->all, matrix_columns(&dy)), sort = at(f, s->v[1]),
           types = types_at(f, s);
    return f->p->ops->embedding_backward(&(embedding_backward_args){.dwte = &f->p->dw[f->op[s->op].at.w],
                                                                    .scratch = &sort,
                                                                    .dx = &dx,
                                                                    .tokens = &types,
                                                                    .factor = 1,
                                                                    .fresh_wte = f->p->fresh},
                                         f->p->s);
}

static void forward(lowering *L, int op, const operation *o) {
    uses(emit(L, "types", look_up, op, "w", o->out[0]), o->at.w);
}

static void backward(lowering *L, int op, const operation *o) {
    int64_t sorted = L->o->B * L->g->m->context + o->classes + 1;
    graph_value scratch = {
        .name = "types.sorted", .letters = "N+V+1", .width = sorted, .shape = SHAPE_PLAIN, .type = INT32};
    adds(emit(L, "types' gradient", gradient, op, "rw", L->given[op], make_value(L, &scratch)), o->at.w);
}

static const op_type type = {.name = "token types", .forward = forward, .backward = backward};

value token_types(graph *g, value x, const char *table, int64_t types, double std) {
    operation *o = graph_add(g, &type, "types", 0, 0);
    o->input = g->m->inputs, o->classes = types;
    graph_input(g, "types", INT32, g->m->context, types);
    o->at.w = graph_param(g, table, "", types, graph_at(g, x)->width, std, 0);
    graph_value y = {.letters = "C", .width = graph_at(g, x)->width, .at = LAYOUT_STREAM, .is_E = true};
    return add(g, x, graph_result(g, o, 0, y));
}
