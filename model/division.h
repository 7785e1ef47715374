// model/division.h: how a model is divided among places: its layers by slices, its rows by slices or token slices; and
// where places meet.
#ifndef MODEL_DIVISION_H
#define MODEL_DIVISION_H

#include "gpu/gpu.h"

enum { SUMS_OVER_ROWS = 4 };

// Sums over heads, over hidden channels and over a vocabulary are cut into `of` slices, a power of two. Each is summed
// as the whole would be, and the results are added along one binary tree, ((0+1)+(2+3)): only siblings are. So a rank
// that has an aligned part of the slices can add them alone. The same tree adds what is summed over rows of the
// residual stream alone, the gradients of norms: slice s of a matrix of N rows begins with row part_row(N, s, of). With
// `rows` a place has the rows of its slices and no others, wherever the residual stream goes (Korthikanti et al. 2022,
// section 4.2.2).
typedef struct model_slices {
    int of;            // 1: sums are whole
    int first, count;  // those that are here
    bool rows;         // of rows, too
} model_slices;

// Where a gradient of weights is a sum over positions, it is one sum for each token slice: of the N rows of a
// micro-batch, samples one after the other, token slice k begins with row part_row(N, k, of). A run adds them along the
// tree of lanes, of which they are the lowest levels: leaf `lane * of + k`. So places can have some of them, and work
// on their rows alone (row_swap). Within a token slice the rows have `model_slices.of / of` slices for norms.
typedef struct model_tokens {
    int of;            // 1: sums are whole. Divides model_slices.of
    int first, count;  // those that are here
} model_tokens;

// How a result whose slices lie in several places becomes whole, in all of them.
typedef enum merge_kind {
    MERGE_SUM,      // FP32: sums of aligned slices, added along the tree of slices
    MERGE_LARGEST,  // FP32
    MERGE_PICK,     // any type: at most one place has bits other than 0
} merge_kind;

// Of N rows, part k of `parts` begins with this one.
static inline int64_t part_row(int64_t N, int k, int parts) { return N * k / parts; }

// Places meet: all of them make the same calls in the same order. Place k has slices k * S / places and on, and of each
// matrix of N rows it has rows of its own, from part_row(N, k, places) on: there may be none.
typedef struct slice_merge {
    int places, place;
    // part becomes whole in all places. Small tensors: every place gets all that the others have.
    err_t (*whole)(void *ctx, merge_kind kind, const tensor *part, stream *s);
    // parts (=) what the places have in their `part`, (N,C) FP32, of this place's own rows: (places, rows, C), or (1,
    // rows, C) where they come added up. `part` is scratch afterwards.
    err_t (*deal)(void *ctx, tensor *parts, const tensor *part, stream *s);
    // x (N,C) any type (=): the rows of all places, from `own` of each, or, where that is NULL, from where they are in
    // x.
    err_t (*gather)(void *ctx, const tensor *x, const tensor *own, stream *s);
    void *ctx;
} slice_merge;

// Places that share the rows of a micro-batch, and work on all rows together in attention: place k has rows of its own,
// from part_row(N, k, places) on, of all heads, or all rows of the k-th share of the heads' slices.
//
//            rows (S,n,W)                          heads (S/places,N,W)
//          slice 0 1 2 3                                slice 0 1
//   place 0   [ a b c d ]  rows 0, 1    place 0 rows 0, 1  [ a b ]      A message from one place to another: what is in
//             both.
//   place 1   [ e f g h ]  rows 2, 3            rows 2, 3  [ e f ]      (Jacobs et al. 2023, DeepSpeed Ulysses)
typedef struct row_swap {
    slice_merge merge;  // places, place; whole and gather of what they have: deal is NULL
    err_t (*to_heads)(void *ctx, const tensor *heads, const tensor *rows, stream *s);  // heads (=)
    err_t (*to_rows)(void *ctx, const tensor *rows, const tensor *heads, stream *s);   // rows (=)
} row_swap;

// Scratch of sums over slices and over rows, of at most N rows and C columns.
typedef struct slices_scratch_memory {
    tensor partials;  // (slices here,N,C) FP32: of sums that are cut, on a GPU
    tensor partial;   // (N,C) FP32: this place's part of them, where slices are elsewhere too
    tensor parts;     // (places, own rows, C) FP32: all places' parts of this place's rows
    tensor all_rows;  // (N,C) E: rows of all places, where each has its own
    tensor row_sums;  // (SUMS_OVER_ROWS, slices of rows here, C) FP32: sums over a slice's rows; and of all of them
    tensor row_sum;   // (SUMS_OVER_ROWS, C)
} slices_scratch_memory;

#endif
