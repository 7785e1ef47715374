// trainer/step/merge.h: where ranks that share layers meet (model.h: slice_merge): each has some of the slices of every
// layer, and they add up, compare and complete what each has computed. On the compute stream: nothing goes on without
// the result.
//
//   deal     rank k gets all parts of its own rows, and adds them along the tree of slices
//   gather   the finished rows go to all
//   whole    of small tensors everyone gets everything
//
// With [reduce] order = any the transport adds in its own order.
#ifndef TRAINER_STEP_MERGE_H
#define TRAINER_STEP_MERGE_H

#include "comm/cost.h"
#include "gpu/ops.h"
#include "model/model.h"
#include "trainer/log/board.h"
#include "trainer/log/stopwatch.h"

typedef struct merge_ranks {
    slice_merge merge;  // for passes; ctx is this struct
    comm *ranks;        // those that share layers
    comm *run;          // all ranks: what its phase says is reported with a loss
    // the step, and how often they have met in it; -1: no step, such as an evaluation, which says so itself
    int64_t step, met;
    const ops *ops;
    bool fixed;  // [reduce] order
    tensor all;  // (n) FP32: parts of a small sum from all ranks, with `most` elements of each
    int64_t most;
    size_t *cut;       // [world+1]
    comm_part *to;     // [2 * world]
    stopwatch *watch;  // by the device's clock; NULL: by the host's alone
    double waited_s;   // in calls, by the host's clock; the owner takes it from here
    comm_cost sent;    // of calls on paper, and how many
    int calls;
    board_rank *board;  // NULL: nowhere to say what is under way
} merge_ranks;

// ranks and run outlive it. One rank: there is nothing to merge, and merge.ctx is NULL.
err_t merge_open(merge_ranks *x, comm *ranks, comm *run, const ops *o, bool fixed);
void merge_close(merge_ranks *x);

// Passes with this merge, and with ops_on_paper, compute and send nothing, and may be of imaginary memory. They find
// `most`, what this rank sends, and how often ranks meet.
void merge_on_paper(merge_ranks *x, pass *p, slice_merge *paper);
slice_merge merge_paper(merge_ranks *x);

// A meeting of another kind: runs the call, says so in the phase, and counts its time.
typedef err_t (*merge_call)(merge_ranks *x, const tensor *t, void *more, stream *s);
err_t merge_meet(merge_ranks *x, const char *what, merge_call call, const tensor *t, void *more, stream *s);

// What follows is of this step; -1: of none.
void merge_begin(merge_ranks *x, int64_t step);

// Declares what calls need, after such passes.
err_t merge_declare(merge_ranks *x, arena *a);

#endif
