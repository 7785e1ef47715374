// model/slices.h: sums over slices of which other ranks have some, and rows that each rank has of its own
// (model/division.h).
//
// Where the residual stream's rows are divided, a layer's matrix products work on all rows, and all else on this rank's
// own rows:
//
//    x own -> norm own -> gather -> linear, all rows, outputs divided -> ... -> linear, all rows, inputs divided
//      -> sum over slices, own rows -> + x own -> ...
//
#ifndef MODEL_SLICES_H
#define MODEL_SLICES_H

#include "model/model.h"

// Of a width that is divided, the part that is here.
static inline int64_t model_share(const model *m, int64_t width) { return width / m->slices.of * m->slices.count; }

// Where a slice of N rows begins.
static inline int64_t model_row(const model *m, int slice, int64_t N) { return part_row(N, slice, m->slices.of); }

// Where a token slice of N rows begins.
static inline int64_t model_token_row(const model *m, int slice, int64_t N) { return part_row(N, slice, m->tokens.of); }

// Of N rows of a micro-batch the first one of the token slices that are here, and how many they have. All matrices but
// those within attention have these rows.
static inline int64_t model_first_row(const model *m, int64_t N) { return model_token_row(m, m->tokens.first, N); }
static inline int64_t model_matrix_rows(const model *m, int64_t N) {
    return model_token_row(m, m->tokens.first + m->tokens.count, N) - model_first_row(m, N);
}

// How many context-parallel ranks share the rows; 1: all token slices are here.
static inline int model_row_ranks(const model *m) { return m->tokens.of / m->tokens.count; }

// Slices of the heads whose attention is here, and the first of them.
static inline int model_head_slices(const model *m) { return m->slices.count / model_row_ranks(m); }
static inline int64_t model_head_share(const model *m, int64_t width) {
    return width / m->slices.of * model_head_slices(m);
}  // of a width of all heads
static inline int model_head_first(const model *m) {
    return m->slices.first + m->tokens.first / m->tokens.count * model_head_slices(m);
}

// Do other ranks have rows of the residual stream?
static inline bool model_divides_rows(const model *m) { return m->slices.rows || m->tokens.count < m->tokens.of; }

// Of N rows of the residual stream, those that are here.
static inline int64_t model_own_rows(const model *m, int64_t N) {
    const model_slices *x = &m->slices;
    return x->rows ? model_row(m, x->first + x->count, N) - model_row(m, x->first, N) : model_matrix_rows(m, N);
}

// The most rows that any rank has, of N or fewer: of the residual stream, and of matrices.
static inline int64_t model_most_matrix_rows(const model *m, int64_t N) {
    return (N * m->tokens.count + m->tokens.of - 1) / m->tokens.of;
}
static inline int64_t model_most_rows(const model *m, int64_t N) {
    const model_slices *x = &m->slices;
    return x->rows ? (N * x->count + x->of - 1) / x->of : model_most_matrix_rows(m, N);
}

// Rows of a sample in block b's output: positions of a residual stream; else a sample is one row.
static inline int64_t model_left_rows(const model *m, int b) { return m->stream ? m->block[b].size[0] : 1; }

// Elements of block b's output for so many samples, on this rank. T: positions of a sample; 0: as many as the block
// says.
static inline int64_t model_left(const model *m, int b, int64_t samples, int64_t T) {
    const block *k = &m->block[b];
    int64_t n = shape_count(k->dims, k->size), rows = model_left_rows(m, b);
    if (k->divided) return samples * model_share(m, n);
    if (!T || !m->stream) T = rows;
    return model_divides_rows(m) ? model_own_rows(m, samples * T) * (n / rows) : samples * (n / rows * T);
}

// The k-th token slice of this rank, of N rows: the pass with the slice's gradients, and its rows, counted from the
// rank's first one.
typedef struct token_part {
    pass p;
    int64_t first, n;
} token_part;

static inline token_part model_token_part(const model *m, const pass *p, int k, int64_t N) {
    token_part own = {.p = *p, .first = model_token_row(m, m->tokens.first + k, N) - model_first_row(m, N)};
    own.n = model_token_row(m, m->tokens.first + k + 1, N) - model_first_row(m, N) - own.first;
    if (k && p->more_dw) own.p.dw = p->more_dw + (k - 1) * m->params;
    if (k && !p->more_dw) own.p.fresh = false;
    return own;
}

// Samples of a micro-batch of B that a rank with these token slices reads. Of texts, all: its positions may be in any.
typedef struct sample_range {
    int64_t first, count;
} sample_range;
static inline sample_range model_own_samples(const model *m, const model_tokens *t, int64_t B) {
    if (m->stream || t->count == t->of) return (sample_range){0, B};
    int64_t first = part_row(B, t->first, t->of);
    return (sample_range){first, part_row(B, t->first + t->count, t->of) - first};
}

// (N,width), or, where the width is divided, (slices here, N, its part in a slice): a view of t's first elements.
static inline tensor model_cut(const model *m, const tensor *t, int64_t N, int64_t width) {
    if (m->slices.of == 1) return view2(t, N, width);
    return view3(t, m->slices.count, N, width / m->slices.of);
}

// The same of the heads whose attention is here, with all N rows.
static inline tensor model_cut_heads(const model *m, const tensor *t, int64_t N, int64_t width) {
    if (m->slices.of == 1) return view2(t, N, width);
    return view3(t, model_head_slices(m), N, width / m->slices.of);
}

// Copies the plan's slices, and declares the scratch of sums that are cut, of at most N rows and C columns.
err_t model_plan_slices(model *m, arena *a, const model_plan *o, int64_t N, int64_t C);

// Divides a parameter along an axis among the model's slices. rows: of each of `matrices` that it consists of.
void model_divide(model *m, int param, int axis, int matrices, const int64_t *rows);

// A product whose inner dimension is cut into slices: d (N,C) (=) = sum over all slices (+ bias) (+ residual). args:
// its operands, bias and residual; GELU of it if pre is given. own: d and residual have only this rank's rows
// (model_own_rows); not with pre.
err_t slices_sum(const model *m, const pass *p, matmul_args *args, bool own);

// part (any type) becomes whole on all ranks; for small tensors.
static inline err_t slices_whole(const pass *p, merge_kind kind, const tensor *part) {
    return p->merge ? p->merge->whole(p->merge->ctx, kind, part, p->s) : ERR_OK;
}

// all = the N rows of a matrix, of which `own` has this rank's. It is `own` itself where rows are not divided, else a
// scratch that is valid until the next call.
err_t slices_gather(const model *m, const pass *p, tensor *all, const tensor *own, int64_t N);

// own (=) the rows of `all` that are here. all may be own.
err_t slices_take(const model *m, const pass *p, const tensor *own, const tensor *all);

// The scratch of slices_gather, for N rows of C; where rows are not divided, x itself.
tensor slices_scratch(const model *m, const tensor *x, int64_t N, int64_t C);

// Gives all ranks all rows of x, (N) or (N,C): each has written its own.
err_t slices_share_rows(const pass *p, const tensor *x);

// sum (n) FP64 (=) = the sum over all token slices, along their tree, of what each has: parts (token slices here, n)
// FP64. With one token slice here, sum is parts, and only other ranks' are added.
err_t slices_sum_tokens(const model *m, const pass *p, const tensor *sum, const tensor *parts);

// picked (n,C) (=) rows first .. first+n-1 of N rows, of which `own` has those that are here.
err_t slices_pick_rows(const model *m, const pass *p, const tensor *picked, const tensor *own, int64_t first,
                       int64_t N);

// Backward of a norm of N rows, of which args have this rank's. Sums over rows are formed for each slice's rows, and
// then added along the tree.
err_t slices_layer_norm_backward(const model *m, const pass *p, int64_t N, const layer_norm_backward_args *args);
err_t slices_rms_norm_backward(const model *m, const pass *p, int64_t N, const rms_norm_backward_args *args);

#endif
