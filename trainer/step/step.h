// trainer/step/step.h: one training step: lanes of micro-batches forward and backward, their sum along the fixed tree,
// one update.
#ifndef TRAINER_STEP_STEP_H
#define TRAINER_STEP_STEP_H

#include "base/fault.h"
#include "data/loader.h"
#include "model/flow.h"
#include "trainer/config/config.h"
#include "trainer/log/board.h"
#include "trainer/log/report.h"
#include "trainer/step/action.h"
#include "trainer/step/links.h"
#include "trainer/step/merge.h"
#include "trainer/step/parallel.h"
#include "trainer/step/recorded.h"
#include "trainer/step/state.h"
#include "trainer/step/swap.h"

// A step's results on the host, pinned, until step_collect collects them.
typedef struct step_slot {
    tensor loss;      // (G + world * REPORT_ITEMS) FP64: sample_loss and reports, and after them sample_counts
    tensor report;    // (REPORT_ITEMS) FP64: this rank's, on its way to the device
    tensor state[2];  // step_state as INT32 words: before and after it was decided
    tensor lr;        // FP32, on its way to the device
    event *done;      // all results have arrived
    int64_t step;
} step_slot;

// A micro-batch between its first block and its last.
typedef struct step_flight {
    batch b;
    bool works;      // it has samples
    int64_t number;  // of the micro-batch in the step, for the board
} step_flight;

// Who takes part: all ranks, and of a pipeline their groups and what of the model is here.
typedef struct step_ranks {
    comm *all;
    const groups *groups;
    const stages *stages;  // also with one rank a pipeline; outlives the runner
} step_ranks;

typedef struct step_runner {
    const config *cfg;
    device *dev;
    stream *s;
    comm *ranks;  // all of them
    const groups *groups;
    const stages *stages;
    bool pipelined;  // this rank runs a part of the blocks
    links links;
    model *net;
    train_state *state;
    merge_ranks merge;  // ranks that share layers; merge.sent: what this rank sends them in a step
    swap_ranks swap;    // ranks that share positions
    parallel together;
    action_list actions, look;  // a step of this rank; a forward pass
    action_bucket *bucket;      // [buckets] for the lists
    arena memory;               // activations and batch buffers
    // [place][input] (B, ...): the samples on the device. Where copies overlap with computing there are two places: the
    // next micro-batch arrives while one is used. A pipeline has as many more as it has micro-batches on their way.
    tensor (*in)[MODEL_INPUTS];
    int places, place, loaded;  // how many; the one in use; the one that was filled last
    int ahead;                  // steps that may be queued and not collected
    step_flight *flight;        // [places]
    int texts;                  // that can grow at the same time (model_plan.places)
    // [places] (2) INT32: step and first sample of the micro-batch, for dropout; on the host: pinned
    tensor *draw, *host_draw;
    flow flow;            // what goes between blocks
    tensor losses;        // (B, losses of a sample) FP32: of a micro-batch
    tensor micro_loss;    // (B) FP64: losses of the micro-batch's samples
    tensor micro_counts;  // (B) FP64: how many of each one's losses count. No size: all do
    // Recorded work, to be queued again as a whole (trainer/step/replay.h).
    bool records, ran, updated;  // recordings are wanted; a micro-batch, a whole step has run and may be recorded
    // forward and backward, by gradient buffer, whether it is fresh, whether the micro-batch is this rank's last, and
    // place
    replay *recorded_micro;
    recorded_parts recorded_parts;                // of a pipeline's units, instead
    replay recorded_squares, recorded_update[2];  // the update: before the ranks share their sums; after that, by slot
    stream *copies;                               // batches come on it: a stream of its own, or s
    event **copied, **used;                       // [places]
    // What the ranks add up at a step's end. Each number comes from one rank and is zero on all others: adding it
    // rounds nothing.
    tensor shared;         // FP64: those below, one after the other
    tensor sums;           // (chunks) sum of squares of each chunk of the gradient, rows in order
    tensor sample_loss;    // (G) mean loss of each sample of the step
    tensor reports;        // (world, REPORT_ITEMS)
    tensor sample_counts;  // (G) how many losses of each sample count. No size: all do
    int64_t *sums_at;      // first chunk of each row
    arena staging;         // pinned: what goes between host and device
    step_slot slot[2];     // `ahead` of them: a step is queued before the previous one is collected
    int uncollected;       // steps that are queued and not collected (step_collect)
    int64_t oldest;        // the first of them
    tensor host_void;      // FP64: not a number
    step_rules rules;
    bool stop_wanted;  // this rank was asked to stop
    // Fills in the rest of this rank's report of a step, from REPORT_SENSED on. NULL: nothing.
    void (*sense)(void *ctx, int64_t step, double *report);
    void *sense_ctx;
    fault_list *faults;      // NULL: none
    board_rank *board;       // where this rank says what it is doing; NULL: nowhere
    err_record data_failed;  // why this rank could not read its data in a step that is not collected yet
    double began, data_s;    // of the step: when it began, and how long it waited for the loader
} step_runner;

// Results of a finished step; the same on all ranks.
typedef struct step_result {
    int64_t step;
    double loss;       // mean over the step's samples, added in order of sample
    double grad_norm;  // before clipping
    double lr, loss_scale;
    bool applied;  // false: skipped for overflow
    int64_t adam_t, good_steps, skipped;
    bool stop;              // some rank was asked to stop: all stop after the last step that is queued
    const double *reports;  // (world, REPORT_ITEMS), valid until this step's slot is used again
} step_result;

// Declares everything; step_commit allocates it.
err_t step_open(step_runner *r, const config *cfg, device *dev, stream *s, const step_ranks *ranks, model *net,
                train_state *state);
err_t step_commit(step_runner *r);

// From here on this rank says on the board which operation of a step it is at. Call it after step_commit.
void step_show(step_runner *r, board_rank *board);
void step_close(step_runner *r);

// Runs this rank's lanes of the step, whose micro-batches come next from the loader, and adds all ranks' lanes.
// state_gradient then gives the gradient. Collective.
err_t step_gradient(step_runner *r, loader *data, int64_t step);

// A whole step, in two halves: step_queue queues it, step_collect waits for it and returns its results. Where
// step_runs_ahead, the next step may be queued in between: then a GPU never waits for the host, and results come one
// step late. If a rank can't read its data, the step is void on all ranks: nothing is updated, and step_collect returns
// that rank's ERR_DATA or ERR_IO on all of them. A step queued after it is void as well and is not collected; `oldest`
// is then the first void step.
err_t step_queue(step_runner *r, loader *data, int64_t step);
err_t step_collect(step_runner *r, step_result *out);
static inline bool step_runs_ahead(const step_runner *r) { return r->ahead > 1; }

// Ranks that share positions, and the number of this one among them.
static inline int step_contexts(const step_runner *r) { return r->swap.at.ranks ? r->swap.at.ranks->world : 1; }
static inline int step_context(const step_runner *r) { return r->swap.at.ranks ? r->swap.at.ranks->rank : 0; }
// Samples that all ranks together look at in one round of an evaluation, and where this rank's begin among them: the
// ranks of a pipeline look at the same, and so do those that share layers or positions.
static inline int64_t step_round(const step_runner *r) {
    return r->state->ranks->world / step_contexts(r) * r->cfg->batch.micro;
}
static inline int64_t step_share(const step_runner *r) {
    return r->state->ranks->rank / step_contexts(r) * r->cfg->batch.micro;
}
// Do several ranks run the same passes? They share layers: each of them has some slices; or positions.
static inline bool step_shares_layers(const step_runner *r) { return r->merge.ranks && r->merge.ranks->world > 1; }
static inline bool step_shares(const step_runner *r) { return step_shares_layers(r) || step_contexts(r) > 1; }
// They all compute some numbers alike: of these only the first one's are added up over all ranks. Of gradients: all
// that share layers have them alike.
static inline bool step_tells_gradients(const step_runner *r) {
    return !step_shares_layers(r) || r->merge.ranks->rank == 0;
}
static inline bool step_tells(const step_runner *r) { return step_tells_gradients(r) && step_context(r) == 0; }
// May some losses not count? Then the counts of the step's samples go with their losses.
static inline bool step_weighs(const step_runner *r) { return r->cfg->data.ignore >= 0; }
// Does this rank run the last block?
static inline bool step_ends(const step_runner *r) { return r->stages->slots[r->net->blocks - 1] > 0; }

#endif
