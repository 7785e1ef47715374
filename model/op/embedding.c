// model/op/embedding.c: x = factor * table[token] (+ positions[t]). Rows of the table are divided: a token whose row
// another rank has is zero here, and the ranks pick the one that is not. Rows of x that begin or end within a sample,
// and samples with positions of their own, need a call each; where samples are several documents, positions are their
// places in these, and all rows are one call.
#include "model/op/op.h"

enum { TOKENS };  // input of the model

static int64_t T_in(const frame *f) { return f->p->in[TOKENS].size[1]; }

static bool has_places(const frame *f, const step *s) { return input_at(f, &f->op[s->op]); }

static bool has_positions(const frame *f, const step *s) { return f->op[s->op].at.b >= 0; }

// The first token whose row is here.
static int64_t first_token(const frame *f, const step *s) {
    return f->m->slices.first * (f->op[s->op].classes_in_memory / f->m->slices.of);
}

static err_t look_up(const frame *f, const step *s, tensor *x, const tensor *tokens, const tensor *positions,
                     const tensor *places) {
    const operation *o = &f->op[s->op];
    embedding_forward_args args = {
        .x = x, .tokens = tokens, .wte = &f->p->w[o->at.w], .wpe = positions, .factor = o->factor};
    args.part = f->p->merge, args.first = first_token(f, s), args.places = places;
    return f->p->ops->embedding_forward(&args, f->p->s);
}

// Positions `from` .. from+n-1 of sample b, to x.
static err_t embed_positions(const frame *f, const step *s, const tensor *x, int64_t b, int64_t from, int64_t n) {
    const tensor *table = &f->p->w[f->op[s->op].at.b];
    int64_t first = past_first(f->p, b) + from;
    tensor to = view3(x, 1, n, matrix_columns(x)), row = tensor_rows(&f->p->in[TOKENS], b, 1),
           all = view1(&row, T_in(f));
    tensor some = tensor_rows(&all, from, n), tokens = view2(&some, 1, n),
           wpe = tensor_rows(table, first, table->size[0] - first);
    return look_up(f, s, &to, &tokens, &wpe, NULL);
}

static err_t embed_runs(const frame *f, const step *s, const tensor *x) {
    int64_t T = T_in(f), rows = matrix_rows(x), first = model_first_row(f->m, f->all);
    for (int64_t k = 0, n; k < rows; k += n) {
        int64_t from = (first + k) % T;
        n = T - from < rows - k ? T - from : rows - k;
        tensor to = tensor_rows(x, k, n);
        TRY(embed_positions(f, s, &to, (first + k) / T, from, n));
    }
    return ERR_OK;
}

// n of an input's positions as one text.
static tensor as_text(const tensor *input, int64_t first, int64_t n) {
    tensor all = view1(input, tensor_count(input)), some = tensor_rows(&all, first, n);
    return view2(&some, 1, n);
}

// Without positions, or where each has its place, all rows are embedded as one text.
static err_t embed_text(const frame *f, const step *s, const tensor *x) {
    const operation *o = &f->op[s->op];
    int64_t n = matrix_rows(x), first = model_first_row(f->m, f->all);
    bool placed = has_positions(f, s) && has_places(f, s);
    tensor to = view3(x, 1, n, matrix_columns(x)), tokens = as_text(&f->p->in[TOKENS], first, n), places = {0};
    if (!n) return ERR_OK;
    if (placed) places = as_text(&f->p->in[o->input], first, n);
    return look_up(f, s, &to, &tokens, placed ? &f->p->w[o->at.b] : NULL, placed ? &places : NULL);
}

static err_t embed_rows(const frame *f, const step *s, const tensor *x) {
    if (!has_positions(f, s) || has_places(f, s)) return embed_text(f, s, x);
    if (f->p->past || matrix_rows(x) < f->all) return embed_runs(f, s, x);
    tensor all = view3(x, f->p->B, T_in(f), matrix_columns(x));
    return look_up(f, s, &all, &f->p->in[TOKENS], &f->p->w[f->op[s->op].at.b], NULL);
}

static err_t embed(const frame *f, const step *s) {
    tensor own = at(f, s->v[0]), all = slices_scratch(f->m, &own, f->matrix, matrix_columns(&own));
    TRY(embed_rows(f, s, &all));
    TRY(slices_whole(f->p, MERGE_PICK, &all));
    return slices_take(f->m, f->p, &own, &all);
}

// The gradients from a token slice, which begins with row `row`: from all positions of some samples, or some positions
// of one. Rows without a gradient here are zero.
static err_t embed_gradients(const frame *f, const step *s, const pass *p, const tensor *dx, const tensor *scratch,
                             int64_t row) {
    const linear *l = &f->op[s->op].at;
    // from the head's gradient, which this pass has made
    bool apart = p->dw[l->w].data != p->dw[f->net->g.head.at.w].data;
    bool placed = has_positions(f, s) && has_places(f, s);
    int64_t T = T_in(f), rows = matrix_rows(dx), n = has_positions(f, s) && !placed && rows >= T ? T : rows,
            B = rows / n;
    bool part = n < T && !placed;
    tensor some = as_text(&p->in[TOKENS], row, rows), tokens = view2(&some, B, n), sort = *scratch;
    tensor x = view3(dx, B, n, matrix_columns(dx)), dwpe = {0}, places = {0};
    if (placed) places = as_text(&p->in[f->op[s->op].input], row, rows);
    if (has_positions(f, s)) dwpe = part ? tensor_rows(&p->dw[l->b], row % T, n) : p->dw[l->b];
    if (has_positions(f, s) && part && p->fresh) TRY(stream_zero(p->s, p->dw[l->b].data, tensor_bytes(&p->dw[l->b])));
    return p->ops->embedding_backward(&(embedding_backward_args){.dwte = &p->dw[l->w],
                                                                 .dwpe = has_positions(f, s) ? &dwpe : NULL,
                                                                 .scratch = &sort,
                                                                 .dx = &x,
                                                                 .tokens = &tokens,
                                                                 .places = placed ? &places : NULL,
                                                                 .factor = f->op[s->op].factor,
                                                                 .fresh_wte = p->fresh && apart,
                                                                 .fresh_wpe = has_positions(f, s) && p->fresh && !part,
                                                                 .part = p->merge,
                                                                 .first = first_token(f, s)},
                                      p->s);
}

static err_t gradients(const frame *f, const step *s) {
    tensor all = at(f, s->v[0]), scratch = at(f, s->v[1]);
    int64_t before = model_first_row(f->m, f->all);
    for (int k = 0; k < f->m->tokens.count; k++) {
        token_part mine = model_token_part(f->m, f->p, k, f->all);
        tensor dx = tensor_rows(&all, mine.first, mine.n);
        TRY(embed_gradients(f, s, &mine.p, &dx, &scratch, before + mine.first));
    }
    return ERR_OK;
}

static void forward(lowering *L, int op, const operation *o) {
    step *s = emit(L, "embedding", embed, op, "w", o->out[0]);
    uses(s, o->at.w), uses(s, o->at.b);
    s->meets = MEET_PICK;
}

static void backward(lowering *L, int op, const operation *o) {
    const model *m = L->g->m;
    if (!is_trained(L, o->at.w)) return;
    value all = as(L, L->given[op], LAYOUT_MATRIX);
    int64_t rows = m->slices.of > 1 ? o->classes_in_memory : o->classes;
    if (o->input >= 0 && o->at.b >= 0 && rows < m->context) rows = m->context;  // those of positions are sorted, too
    int64_t sorted = L->o->B * m->context + rows + 1;
    graph_value scratch = {.name = "sorted", .letters = "N+V+1", .width = sorted, .shape = SHAPE_PLAIN, .type = INT32};
    step *s = emit(L, "embedding's gradient", gradients, op, "rw", all, make_value(L, &scratch));
    adds(s, o->at.w), adds(s, o->at.b);
}

static const op_type type = {.name = "embedding", .freezes = true, .forward = forward, .backward = backward};

value embedding(graph *g, const char *table, const char *positions, int64_t vocab, int64_t context, int64_t C,
                double std, double factor) {
    operation *o = graph_add(g, &type, "embed", 0, 0);
    g->m->stream = true, g->m->context = context;
    graph_input(g, "tokens", INT32, context, vocab);
    if (graph_documents(g)) graph_input(g, PLACES, INT32, context, context);
    o->input = graph_find_input(g, PLACES);
    o->at.w = graph_param(g, table, "", vocab, C, std, 0);
    o->at.b = positions ? graph_param(g, positions, "", context, C, std, 0) : -1;
    o->factor = (float)factor;
    if (!o->factor)
        graph_mistake(g, "embedding", "its factor is 0: expected 1, or what the rows of %s are multiplied by", table);
    o->classes = vocab, o->classes_in_memory = head_rows_in_memory(vocab, g->m->slices.of);
    if (g->rc != ERR_OK) return 0;
    g->m->param[o->at.w].rows_in_memory = o->classes_in_memory;
    model_divide(g->m, o->at.w, 0, 0, NULL);
    return graph_result(g, o, 0, (graph_value){.letters = "C", .width = C, .at = LAYOUT_STREAM, .is_E = true});
}
