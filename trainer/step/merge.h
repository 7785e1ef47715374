// trainer/step/merge.h: communication among tensor-parallel ranks (model/division.h: slice_merge), each of which has
// some slices of every layer. It is on the compute stream, since what follows needs the result.
//
//   deal     rank k receives all parts of its own rows, and adds them along the tree of slices
//   gather   all ranks receive the finished rows
//   whole    all ranks receive all parts of a small tensor
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
    comm *run;          // all ranks: if one is lost, the error has its phase
    int64_t step,
        met;  // the step, and the calls in it so far; step -1: none, as in an evaluation, which sets the phase
    const ops *ops;
    bool fixed;  // [reduce] order
    tensor all;  // (n) FP32: parts of a small sum from all ranks, with `most` elements of each
    int64_t most;
    size_t *cut;       // [world+1]
    comm_part *to;     // [2 * world]
    stopwatch *watch;  // times by the device's clock; NULL: only by the host's
    double waited_s;   // in calls, by the host's clock; the owner reads and resets it
    comm_cost sent;    // in a dry run: what this rank sends, and in how many calls
    int calls;
    board_rank *board;  // NULL: nowhere to say what is under way
} merge_ranks;

// ranks and run outlive it. One rank: there is nothing to merge, and merge.ctx is NULL.
err_t merge_open(merge_ranks *x, comm *ranks, comm *run, const ops *o, bool fixed);
void merge_close(merge_ranks *x);

// For a dry run: passes with this merge and with ops_on_paper compute and send nothing, and may have fake addresses.
// They find `most`, what this rank sends, and how many calls it makes.
void merge_on_paper(merge_ranks *x, pass *p, slice_merge *paper);
slice_merge merge_paper(merge_ranks *x);

// Runs another collective of these ranks, with its name in the phase, and measures its time.
typedef err_t (*merge_call)(merge_ranks *x, const tensor *t, void *more, stream *s);
err_t merge_run(merge_ranks *x, const char *what, merge_call call, const tensor *t, void *more, stream *s);

// The calls that follow belong to this step; -1: to none.
void merge_begin(merge_ranks *x, int64_t step);

// Declares the memory that calls need. After a dry run.
err_t merge_declare(merge_ranks *x, arena *a);

#endif
