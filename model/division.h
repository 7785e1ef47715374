// model/division.h: how a model is divided among ranks: its layers by slices (tensor parallelism), its rows by slices
// (sequence parallelism) or by token slices (context parallelism); and what these ranks communicate. The model sees
// only the functions by which they do.
#ifndef MODEL_DIVISION_H
#define MODEL_DIVISION_H

#include "gpu/gpu.h"

enum { SUMS_OVER_ROWS = 4 };

// Sums over heads, hidden channels and the vocabulary are cut into `of` slices, a power of two. Each slice is summed as
// the whole would be. The results are added along one binary tree, ((0+1)+(2+3)), only siblings at a time. So a rank
// that has an aligned part of the slices can add them alone. The gradients of norms are sums over rows; they use the
// same tree: slice s of a matrix of N rows begins with row part_row(N, s, of). With `rows` a rank has only the rows of
// its own slices, wherever the residual stream goes (Korthikanti et al. 2022, section 4.2.2).
typedef struct model_slices {
    int of;            // 1: sums are whole
    int first, count;  // those that are here
    bool rows;         // the residual stream's rows are divided, too
} model_slices;

// A gradient of weights that is a sum over positions is one sum for each token slice. Token slice k of the N rows of a
// micro-batch, samples one after the other, begins with row part_row(N, k, of). The slices are the lowest levels of the
// tree of lanes, leaf `lane * of + k`, so a rank can have some of them and work on their rows alone (row_swap). Within
// a token slice the rows have `model_slices.of / of` slices for norms.
typedef struct model_tokens {
    int of;            // 1: sums are whole. Divides model_slices.of
    int first, count;  // those that are here
} model_tokens;

// How all ranks get a result of which each has some slices.
typedef enum merge_kind {
    MERGE_SUM,      // FP32, or FP64: sums of aligned slices, added along the tree of slices
    MERGE_LARGEST,  // FP32
    MERGE_PICK,     // any type: at most one rank has bits other than 0
} merge_kind;

// Of N rows, part k of `parts` begins with this one.
static inline int64_t part_row(int64_t N, int k, int parts) { return N * k / parts; }

// What tensor-parallel ranks communicate. All of them make the same calls in the same order. Rank k has the slices from
// k * S / ranks on, and of each matrix of N rows its own rows, from part_row(N, k, ranks) on; there may be none.
typedef struct slice_merge {
    int ranks, rank;
    // part becomes whole on all ranks. For small tensors: every rank gets all parts.
    err_t (*whole)(void *ctx, merge_kind kind, const tensor *part, stream *s);
    // parts (=) every rank's `part`, (N,C) FP32, of this rank's own rows: (ranks, rows, C), or (1, rows, C) if they
    // arrive added up. `part` is scratch afterwards.
    err_t (*deal)(void *ctx, tensor *parts, const tensor *part, stream *s);
    // x (N,C) any type (=): the rows of all ranks, from `own` of each; own NULL: from where they are in x.
    err_t (*gather)(void *ctx, const tensor *x, const tensor *own, stream *s);
    void *ctx;
} slice_merge;

// What context-parallel ranks communicate. Rank k has its own rows of a micro-batch, from part_row(N, k, ranks) on, of
// all heads. For attention it has all rows of its share of the heads' slices.
//
//            rows (S,n,W)                          heads (S/ranks,N,W)
//          slice 0 1 2 3                                slice 0 1
//   rank 0    [ a b c d ]  rows 0, 1    rank 0  rows 0, 1  [ a b ]     Between two ranks go the blocks that one has on
//   rank 1    [ e f g h ]  rows 2, 3            rows 2, 3  [ e f ]     the left and the other on the right (Jacobs et
//                                                                      al. 2023, DeepSpeed Ulysses)
typedef struct row_swap {
    slice_merge merge;  // ranks, rank, whole and gather; deal is NULL
    err_t (*to_heads)(void *ctx, const tensor *heads, const tensor *rows, stream *s);  // heads (=)
    err_t (*to_rows)(void *ctx, const tensor *rows, const tensor *heads, stream *s);   // rows (=)
} row_swap;

// Scratch of sums over slices and over rows, of at most N rows and C columns.
typedef struct slices_scratch_memory {
    tensor partials;  // (slices here,N,C) FP32: of sums that are cut, on a GPU
    tensor partial;   // (N,C) FP32: this rank's part of them, where other ranks have slices
    tensor parts;     // (ranks, own rows, C) FP32: all ranks' parts of this rank's rows
    tensor all_rows;  // (N,C) E: the rows of all ranks, where each has its own
    tensor row_sums;  // (SUMS_OVER_ROWS, slices of rows here, C) FP32: the sums of each slice's rows
    tensor row_sum;   // (SUMS_OVER_ROWS, C) FP32: those of all slices
} slices_scratch_memory;

#endif
