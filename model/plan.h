// model/plan.h: for what a model's memory is planned: which blocks run here, for how many micro-batches at a time, with
// which slices of them, and what the forward pass keeps for the backward pass.
#ifndef MODEL_PLAN_H
#define MODEL_PLAN_H

#include "base/words.h"
#include "gpu/gpu.h"

// What the forward pass does not keep. The backward pass computes it again, with the same operations on the same
// values, so with the same bits.
//   none       keeps everything
//   selective  norms and activation functions: much memory, little work (Korthikanti et al. 2022)
//   block      all but the blocks' inputs: nearly a second forward pass (Chen et al. 2016)
#define RECOMPUTE_WORDS(X) \
    X(RECOMPUTE_NONE, "none") \
    X(RECOMPUTE_SELECTIVE, "selective") \
    X(RECOMPUTE_BLOCK, "block")
typedef enum recomputation { RECOMPUTE_WORDS(WORD_ENUM) } recomputation;

// What memory is planned for: micro-batches of at most B samples. A block keeps what its backward pass reads, for as
// many of them as it has slots.
typedef struct model_plan {
    dtype compute;
    int64_t B;
    const int *range;   // [blocks] which range of blocks each belongs to; NULL: there is one range
    int boundaries;     // gradients of other ranks' blocks that are on their way at a time
    const int *slots;   // [blocks] 0: the block does not run here, and needs no memory
    bool forward_only;  // no pass will have dw: nothing is kept for backward, and recompute is ignored
    // backward runs in halves: blocks keep the gradients that the second half reads. Otherwise the first half may do
    // all of it
    bool halves;
    recomputation recompute;
    int kv_slots;  // texts whose keys and values are kept while they grow, up to `context` positions of each
    int slice_first, slice_count;  // those that are here: a subtree of the tree of slices. 0: all
    bool slice_rows;               // the residual stream's rows are divided, too. Only of models with `stream`
    int token_first, token_count;  // token slices that are here: an aligned part of them. 0: all
} model_plan;

// How many sets of memory `count` blocks from `first` on have, one for each slot of each. at[i], unless NULL: how many
// come before those of block first + i.
int model_plan_sets(const model_plan *o, int first, int count, int *at);

#endif
