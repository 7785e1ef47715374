// trainer/step/runner.h: what a rank runs steps with: what it was given, and the parts that it opens, each of which has
// a file of its own.
#ifndef TRAINER_STEP_RUNNER_H
#define TRAINER_STEP_RUNNER_H

#include "base/fault.h"
#include "model/flow.h"
#include "trainer/config/config.h"
#include "trainer/log/board.h"
#include "trainer/step/action.h"
#include "trainer/step/inputs.h"
#include "trainer/step/links.h"
#include "trainer/step/merge.h"
#include "trainer/step/parallel.h"
#include "trainer/step/recorded.h"
#include "trainer/step/results.h"
#include "trainer/step/rows.h"
#include "trainer/step/state.h"
#include "trainer/step/swap.h"

// The state of trainer/step/finish.c.
typedef struct step_end {
    step_rules rules;
    replay masters, squares, update[2];  // what is queued before the ranks share their sums; after that, by slot
    bool ran;                            // a whole step has run, so these may be recorded
    double began;                        // this step
} step_end;

// What a rank wants after a step. TURN: to save, and to go on in another world.
typedef enum step_wish { STEP_GO_ON, STEP_TURN, STEP_STOP } step_wish;

typedef struct step_runner {
    // Given:
    const config *cfg;
    device *dev;
    stream *s;
    comm *ranks;  // all of them
    const groups *groups;
    const stages *stages;
    bool pipelined;  // this rank runs a part of the blocks
    model *net;
    train_state *state;
    fault_list *faults;  // NULL: none
    board_rank *board;   // where this rank says what it is doing; NULL: nowhere
    // Fills in the rest of this rank's times and readings in a step, from REPORT_SENSED on. NULL: nothing.
    void (*sense)(void *ctx, int64_t step, double *report);
    void *sense_ctx;
    int shares;          // of a step's lanes, each with an update of its own (trainer/step/served.h); else 1
    int64_t lane_shift;  // the first lane of the share that this rank runs, less the one that the list begins with
    step_wish wish;      // of this rank
    bool written;        // its checkpoint that was begun has ended (REPORT_WRITTEN)
    // What it does:
    action_list actions, forward;  // a step of this rank; a forward pass without gradients
    action_bucket *bucket;         // [buckets] for the lists
    // With whom:
    parallel together;  // ranks that share the lanes; the stream beside
    links links;        // other stages of a pipeline
    merge_ranks merge;  // ranks that share layers; merge.sent: what this rank sends them in a step
    swap_ranks swap;    // ranks that share positions
    // With what:
    arena memory, staging;  // activations, inputs and results; pinned: what goes between host and device
    inputs inputs;
    flow flow;       // what goes between blocks
    tensor losses;   // (B, losses of a sample) FP32: of a micro-batch
    int texts;       // that can grow at the same time (model_plan.kv_slots)
    step_rows rows;  // on demand
    tensor pushed;   // FP32 (workers, what this rank owns), of a server: a gradient of each worker. No size: none
    recordings recorded;
    results results;
    step_end end;
    // Steps that are queued and not collected (step_collect): how many, the first of them, and how many may be.
    int uncollected;
    int64_t oldest;
    int ahead;
} step_runner;

// May a step be queued before the one before it is collected?
static inline bool step_runs_ahead(const step_runner *r) { return r->ahead > 1; }

// Ranks that share positions, and the number of this one among them.
static inline int step_contexts(const step_runner *r) { return r->swap.at.ranks ? r->swap.at.ranks->world : 1; }
static inline int step_context(const step_runner *r) { return r->swap.at.ranks ? r->swap.at.ranks->rank : 0; }
// Which of several islands this rank is in, and how many there are (trainer/step/outer.h).
static inline int step_islands(const step_runner *r) { return grid_islands(&r->groups->shape); }
static inline int step_island(const step_runner *r) { return r->ranks->rank / grid_island(&r->groups->shape); }
// Parts of a step that have updates of their own: islands, or shares.
static inline int step_parts(const step_runner *r) { return step_islands(r) * r->shares; }
// Samples of one round of an evaluation, on all ranks together; and where this rank's begin among them. The ranks of a
// pipeline evaluate the same samples, and so do those that share layers or positions. Servers, which come last, have
// none.
static inline int64_t step_round(const step_runner *r) {
    return step_islands(r) * grid_workers(&r->groups->shape) * r->cfg->resolved.micro;
}
static inline int64_t step_share(const step_runner *r) {
    int models = r->state->ranks->world / step_contexts(r);
    return (step_island(r) * models + r->state->ranks->rank / step_contexts(r)) * r->cfg->resolved.micro;
}
// Do several ranks run the same passes? They share layers, each with some slices, or positions.
static inline bool step_shares_layers(const step_runner *r) { return r->merge.ranks && r->merge.ranks->world > 1; }
static inline bool step_shares(const step_runner *r) { return step_shares_layers(r) || step_contexts(r) > 1; }
// Such ranks compute identical numbers; only the first contributes to global sums. Of gradients, all ranks that share
// layers have identical ones.
static inline bool step_contributes_gradients(const step_runner *r) {
    return !step_shares_layers(r) || r->merge.ranks->rank == 0;
}
static inline bool step_contributes(const step_runner *r) {
    return step_contributes_gradients(r) && step_context(r) == 0;
}
// May some losses not count? Then a step also sums how many of each sample count.
static inline bool step_weighs(const step_runner *r) { return config_weighs(r->cfg); }
// Does this rank run the last block?
static inline bool step_ends(const step_runner *r) { return r->stages->slots[r->net->blocks - 1] > 0; }

#endif
