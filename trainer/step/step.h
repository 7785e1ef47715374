// trainer/step/step.h: one training step: lanes of micro-batches forward and backward, their sum along the fixed tree,
// one update.
#ifndef TRAINER_STEP_STEP_H
#define TRAINER_STEP_STEP_H

#include "trainer/step/runner.h"

// All ranks; and in a pipeline, their groups, and the part of the model that is here.
typedef struct step_ranks {
    comm *all;
    const groups *groups;
    const stages *stages;  // also with one rank a pipeline; outlives the runner
} step_ranks;

// Results of a finished step; the same on all ranks.
typedef struct step_result {
    int64_t step;
    double loss;       // mean over the step's samples, added in order of sample
    double grad_norm;  // before clipping
    double lr, loss_scale;
    int64_t rows;       // on demand, that there are; 0: none
    int64_t cold_rows;  // of those before the step, how many were in files alone
    double norm_mean;   // of the norms of the steps before (gpu/ops.h); 0: there is none
    bool applied;       // false: skipped, as the gradient was not finite, or an outlier
    int64_t updates, good_steps, skipped;
    step_wish wish;  // the strongest one of any rank: all follow it after the last step that is queued
    bool written;    // every rank's checkpoint that was begun had ended before this step was queued
    const struct served_step *served;  // what servers know of it, where they do not wait for all of a step; else NULL
    double over;                       // and when it was over, by clock_wall; else 0
    const double *reports;             // (world, REPORT_ITEMS), valid until this step's slot is used again
} step_result;

// Declares everything; step_commit allocates it.
err_t step_open(step_runner *r, const config *cfg, device *dev, stream *s, const step_ranks *ranks, model *net,
                train_state *state);
err_t step_commit(step_runner *r);

// What a rank that is planned would compute in a step: runs each part of each block that its list has, once, on paper
// (gpu/paper.h): ops and s see the operations, and after each part `done` hears what it sent to ranks that share layers
// and positions, in bytes and in calls.
typedef struct step_part {
    action_kind kind;  // FORWARD, BACKWARD, INPUTS, WEIGHTS
    int block;
    bool found;  // of a block that recomputes: the memory that such blocks share has its values still
    int64_t merged, swapped;
    int merges, swaps;
} step_part;
typedef struct step_paper {
    const ops *ops;
    stream *s;
    void (*done)(void *ctx, const step_part *part);
    void *ctx;
    bool both;  // backward of a block that recomputes is walked twice, where its values are found and where not
} step_paper;
err_t step_on_paper(step_runner *r, const step_paper *paper);

// Between two steps, when none is queued: the lanes were dealt anew (state_deal, stages_deal), so this rank's list is
// made again, and what was recorded of the old one is dropped.
err_t step_deal(step_runner *r);

// From now on this rank shows on the board which operation of a step it is at. Call it after step_commit.
void step_show(step_runner *r, board_rank *board);
void step_close(step_runner *r);

// Runs this rank's lanes of the step, whose micro-batches come next from the loader, and adds all ranks' lanes.
// state_gradient then gives the gradient. Collective.
err_t step_gradient(step_runner *r, loader *data, int64_t step);

// A whole step in two halves: step_queue queues it, step_collect waits for it and returns its results. If
// step_runs_ahead, the next step may be queued in between; then a GPU never waits for the host, and results come one
// step late. If a rank can't read its data, the step is void on all ranks: nothing is updated, and step_collect returns
// that rank's ERR_DATA or ERR_IO on all of them. A step queued after it is void as well and is not collected; `oldest`
// is then the first void step.
err_t step_queue(step_runner *r, loader *data, int64_t step);
err_t step_collect(step_runner *r, step_result *out);

#endif
