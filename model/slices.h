// model/slices.h: what slices that lie in several places have in common: sums over all of them, and rows that each place has of its own (model.h:
// slice_merge).
#ifndef MODEL_SLICES_H
#define MODEL_SLICES_H

#include "model/model.h"

// Some of a matrix's rows.
typedef struct row_range {
    int64_t first, count;
} row_range;

// The rows of N that are this place's own.
row_range slices_own(const pass *p, int64_t N);

// A product whose k is cut: d (N,C) (=) = sum over all slices (+ bias) (+ residual). args: its operands, bias and residual; GELU of it if pre is given.
err_t slices_sum(const model *m, const pass *p, matmul_args *args);

// part (any type) becomes whole in all places; of small tensors.
static inline err_t slices_whole(const pass *p, merge_kind kind, const tensor *part) {
    return p->merge ? p->merge->whole(p->merge->ctx, kind, part, p->s) : ERR_OK;
}

#endif
