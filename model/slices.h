// model/slices.h: what slices that lie in several places have in common: sums over all of them, and rows that each place has of its own (model.h:
// slice_merge, model_slices).
//
// Where the residual stream's rows are divided, a layer's matrices go on with all rows, and what goes on between them with the rows that are here:
//
//    x own -> norm own -> gather -> linear all rows, outputs divided -> ... -> linear, inputs divided -> sum, of own rows -> + x own -> ...
//
#ifndef MODEL_SLICES_H
#define MODEL_SLICES_H

#include "model/model.h"

// A product whose k is cut: d (N,C) (=) = sum over all slices (+ bias) (+ residual). args: its operands, bias and residual; GELU of it if pre is given.
// own: of d and residual only the rows that are here (model_own_rows); not with pre.
err_t slices_sum(const model *m, const pass *p, matmul_args *args, bool own);

// part (any type) becomes whole in all places; of small tensors.
static inline err_t slices_whole(const pass *p, merge_kind kind, const tensor *part) {
    return p->merge ? p->merge->whole(p->merge->ctx, kind, part, p->s) : ERR_OK;
}

// all (=) the N rows of a matrix, of which `own` has those that are here: `own` itself where rows are not divided, else a scratch, until the next call.
err_t slices_gather(const model *m, const pass *p, tensor *all, const tensor *own, int64_t N);

// own (=) the rows of `all` that are here. all may be own.
err_t slices_take(const model *m, const pass *p, const tensor *own, const tensor *all);

// The scratch of slices_gather, for N rows of C; where rows are not divided, x itself.
tensor slices_scratch(const model *m, const tensor *x, int64_t N, int64_t C);

// heads (=) and rows (=): see row_swap. Nothing where all rows are here: then the two are the same memory.
err_t slices_to_heads(const pass *p, const tensor *heads, const tensor *rows);
err_t slices_to_rows(const pass *p, const tensor *rows, const tensor *heads);

// The losses of all N rows, from where each place has written its own in p->losses.
err_t slices_share_losses(const pass *p, int64_t N);

// picked (n,C) (=) rows first .. first+n-1 of N rows, of which `own` has those that are here.
err_t slices_pick_rows(const model *m, const pass *p, const tensor *picked, const tensor *own, int64_t first, int64_t N);

// Backward of a norm of N rows, of which args have those that are here: what it sums over rows is summed over each slice's rows, and the sums are added
// along the tree.
err_t slices_layer_norm_backward(const model *m, const pass *p, int64_t N, const layer_norm_backward_args *args);
err_t slices_rms_norm_backward(const model *m, const pass *p, int64_t N, const rms_norm_backward_args *args);

#endif
