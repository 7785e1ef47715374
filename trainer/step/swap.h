// trainer/step/swap.h: communication among context-parallel ranks (model/division.h: row_swap). Each has whole weights
// and some token slices. Before attention they exchange their rows of all heads for all rows of some heads, and after
// it back. On the compute stream, as in trainer/step/merge.h.
#ifndef TRAINER_STEP_SWAP_H
#define TRAINER_STEP_SWAP_H

#include "trainer/step/merge.h"

typedef struct swap_ranks {
    merge_ranks at;   // calls, costs and times; whole and gather of small tensors. First, since ctx is both
    row_swap swap;    // for passes
    int slices;       // of the heads, on each rank in attention
    comm_part *part;  // [2 * (world-1) * slices]
} swap_ranks;

// As merge_open. slices: of the heads, on each of the ranks. One rank: nothing is shared, and swap.merge.ctx is NULL.
err_t swap_open(swap_ranks *x, comm *ranks, comm *run, const ops *o, int slices);
void swap_close(swap_ranks *x);

// Adds to merge_on_paper what these ranks send.
void swap_on_paper(swap_ranks *x, pass *p, row_swap *paper);

#endif
