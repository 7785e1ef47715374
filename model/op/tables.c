// model/op/tables.c: of each sample a row of each of several tables, side by side. The tables are one parameter, one
// below the other, and ids are rows of it: so they are looked up, and their gradients are formed, in one call.
#include "model/op/op.h"

#include <stdio.h>

static tensor ids_at(const frame *f, const step *s) {
    const operation *o = &f->op[s->op];
    return view2(&f->p->in[o->input], 1, f->p->B * o->heads);
}

// A row a table: (1, B * tables, C).
static tensor rows_at(const frame *f, const step *s) {
    const operation *o = &f->op[s->op];
    tensor x = at(f, s->v[0]);
    return view3(&x, 1, f->p->B * o->heads, o->head_size);
}

static err_t look_up(const frame *f, const step *s) {
    tensor to = rows_at(f, s), ids = ids_at(f, s);
    return f->p->ops->embedding_forward(
        &(embedding_forward_args){.x = &to, .tokens = &ids, .wte = &f->p->w[f->op[s->op].at.w], .factor = 1}, f->p->s);
}

static err_t gradient(const frame *f, const step *s) {
    tensor dx = rows_at(f, s), sort = at(f, s->v[1]), ids = ids_at(f, s);
    return f->p->ops->embedding_backward(&(embedding_backward_args){.dwte = &f->p->dw[f->op[s->op].at.w],
                                                                    .scratch = &sort,
                                                                    .dx = &dx,
                                                                    .tokens = &ids,
                                                                    .factor = 1,
                                                                    .fresh_wte = f->p->fresh},
                                         f->p->s);
}

static void forward(lowering *L, int op, const operation *o) {
    uses(emit(L, "rows of tables", look_up, op, "w", o->out[0]), o->at.w);
}

static void backward(lowering *L, int op, const operation *o) {
    if (!is_trained(L, o->at.w) || L->part == BACKWARD_INPUTS) return;
    int64_t sorted = L->o->B * o->heads + o->classes + 1;
    graph_value scratch = {
        .name = "ids.sorted", .letters = "N+V+1", .width = sorted, .shape = SHAPE_PLAIN, .type = INT32};
    adds(emit(L, "tables' gradient", gradient, op, "rw", L->given[op], make_value(L, &scratch)), o->at.w);
}

static const op_type type = {
    .name = "tables", .halves = true, .freezes = true, .forward = forward, .backward = backward};

// --- on demand -------------------------------------------------------------------------------------------------------

static const pass_rows *fetched(const frame *f) { return f->p->fetched; }

// (1, B * tables): which of the fetched rows.
static tensor index_at(const frame *f, const step *s) {
    return view2(&fetched(f)->index, 1, f->p->B * f->op[s->op].heads);
}

static err_t look_up_fetched(const frame *f, const step *s) {
    tensor to = rows_at(f, s), at = index_at(f, s);
    return f->p->ops->embedding_forward(
        &(embedding_forward_args){.x = &to, .tokens = &at, .wte = &fetched(f)->values, .factor = 1}, f->p->s);
}

// Each row's gradient is the sum over the micro-batch, in order of samples.
static err_t fetched_gradient(const frame *f, const step *s) {
    tensor dx = rows_at(f, s), sort = at(f, s->v[1]), at = index_at(f, s), to = fetched(f)->gradient;
    return f->p->ops->embedding_backward(
        &(embedding_backward_args){
            .dwte = &to, .scratch = &sort, .dx = &dx, .tokens = &at, .factor = 1, .fresh_wte = true},
        f->p->s);
}

static void forward_on_demand(lowering *L, int op, const operation *o) {
    emit(L, "rows on demand", look_up_fetched, op, "w", o->out[0]);
}

static void backward_on_demand(lowering *L, int op, const operation *o) {
    if (L->part == BACKWARD_INPUTS) return;
    int64_t n = L->o->B * o->heads;
    graph_value scratch = {
        .name = "rows.sorted", .letters = "2N+1", .width = 2 * n + 1, .shape = SHAPE_PLAIN, .type = INT32};
    emit(L, "gradient of rows on demand", fetched_gradient, op, "rw", L->given[op], make_value(L, &scratch));
}

static const op_type type_on_demand = {
    .name = "rows on demand", .halves = true, .forward = forward_on_demand, .backward = backward_on_demand};

static value tables_on_demand(graph *g, const char *input, const char *name, const table_options *t) {
    operation *o = graph_add(g, &type_on_demand, name, 0, 0);
    model *m = g->m;
    o->input = m->inputs, o->heads = (int)t->tables, o->head_size = t->width;
    if (m->table.width) graph_mistake(g, name, "a model has its tables on demand in one operation");
    m->table = (model_table){.input = m->inputs, .tables = t->tables, .width = t->width, .bound = (float)t->bound};
    snprintf(m->table.name, sizeof m->table.name, "%s", name);
    graph_input(g, input, INT32, 2 * t->tables, 0);
    return graph_result(
        g, o, 0, (graph_value){.letters = "FC", .width = t->tables * t->width, .at = LAYOUT_STREAM, .is_E = true});
}

value tables(graph *g, const char *input, const char *name, table_options t) {
    if (t.demand) return tables_on_demand(g, input, name, &t);
    operation *o = graph_add(g, &type, name, 0, 0);
    o->input = g->m->inputs, o->heads = (int)t.tables, o->head_size = t.width, o->classes = t.tables * t.rows;
    graph_input(g, input, INT32, t.tables, o->classes);
    o->at.w = graph_param(g, name, ".weight", o->classes, t.width, t.std, 0);
    return graph_result(g, o, 0,
                        (graph_value){.letters = "FC", .width = t.tables * t.width, .at = LAYOUT_STREAM, .is_E = true});
}
