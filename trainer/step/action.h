// trainer/step/action.h: a step as data. What a rank does in a step is a list of actions, a pure function of the layout
// and the rank. The executor runs the list (trainer/step/executor.c), `lockstep plan` adds up what it sends, and tests
// read it, without a process or a model.
//
// All ranks' lists have the same collective actions (GATHER, REDUCE, SHARE, SPREAD) in the same order, also where a
// rank has nothing to compute.
#ifndef TRAINER_STEP_ACTION_H
#define TRAINER_STEP_ACTION_H

#include "trainer/step/stages.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum action_kind {
    ACTION_LOAD,      // the next micro-batch comes from the loader: `micro` of `lane`. Its gradients go to `buffer`
    ACTION_ZERO,      // `buffer` starts from zero: the next micro-batch overwrites it
    ACTION_GATHER,    // the weights of block `first` begin to come to their place (ZeRO 3)
    ACTION_NEED,      // the weights of block `first` are here: gathered, or spread by the last update
    ACTION_FORWARD,   // blocks first .. last
    ACTION_TAKE,      // `bucket` takes its slot, zeroed
    ACTION_BACKWARD,  // blocks last .. first
    ACTION_INPUTS,    // the half of it that gives the gradient of inputs
    ACTION_WEIGHTS,   // the half that adds to the gradients of weights
    ACTION_POST,      // a pipeline's `message` may begin: what it sends is there, or what it receives into is free
    ACTION_AWAIT,     // it has arrived, or left
    // what block `first` left goes from slot `from` to `slot`: from one of this rank's stages to the next
    ACTION_HAND,
    ACTION_RECEIVE,  // of a forward pass without gradients: what block `first` left on another rank comes now
    ACTION_SEND,     // ... or goes to another rank
    ACTION_LOSSES,   // of the micro-batch, to the step's
    // buffer += from, two siblings of the tree of lanes, or token slices of a lane: their part in `bucket`, or all of
    // it (-1)
    ACTION_ADD,
    ACTION_REDUCE,   // `bucket` begins to go to its owners, at `turn`
    ACTION_SETTLE,   // all that was reduced has arrived; buffers may be written again
    ACTION_SQUARES,  // of the gradient, chunk by chunk
    ACTION_SHARE,    // all ranks learn all ranks' squares, losses and reports
    ACTION_UPDATE,   // decide, and update what this rank owns
    ACTION_SPREAD,   // new weights begin to go to all ranks (ZeRO 1 and 2)
} action_kind;

typedef struct action {
    action_kind kind;
    int first, last;  // blocks
    int bucket;
    int buffer, from;  // of the lane counter (comm/ordered.h)
    int64_t lane, micro, turn;
    // Of a pipeline:
    int place, slot;  // where the micro-batch's inputs are, and its activations
    int in, out;      // buffers of the gradients that come from the next stage, and go to the previous one; -1: none
    int message;      // in unit_table.message
    bool fresh;       // the first micro-batch of a buffer: its gradients overwrite what is there
} action;

// A bucket of gradients: it is zeroed before backward of block `highest`, and final after that of block `lowest`.
typedef struct action_bucket {
    int highest, lowest;
    int chunk;  // of a pipeline
} action_bucket;

typedef struct action_layout {
    int world;
    int64_t lanes, micros;  // micros: of a lane
    bool fixed;             // lanes are added along the tree; else all go into one buffer
    bool once;              // a lane adds to each element once
    // a lane's gradients, one for each token slice: its buffer and those from `table` on. 0: one
    int tables, table;
    bool shards_gradients;  // ZeRO 2 and 3: lanes in turns, every turn is reduced
    bool shards_weights;    // ZeRO 3: blocks' weights are gathered before use
    bool spreads;           // ZeRO 1 and 2: weights arrive while the next step begins
    bool slots;             // buckets take turns in slots (one micro-batch a lane)
    int blocks, buckets;
    const action_bucket *bucket;  // in the order in which backward finishes them, of a pipeline chunk by chunk
    const stages *pipe;           // of more than one rank; NULL: this rank runs all blocks
} action_layout;

typedef struct action_list {
    int count, room;
    action *at;
} action_list;

// The step of a rank. The list is freed with action_list_free. ERR_INTERNAL: no memory.
err_t action_step(const action_layout *l, int rank, action_list *out);

// A forward pass without gradients: GATHER, NEED and FORWARD of each block, the same on all ranks.
err_t action_look(const action_layout *l, action_list *out);

void action_list_free(action_list *a);

// Is action i the first of a micro-batch's LOAD, FORWARD of all blocks, BACKWARD of all, LOSSES with nothing between?
bool action_is_quiet(const action_layout *l, const action_list *a, int i);

// "forward 0-3", "reduce bucket 1 turn 0": one action as text. Returns dst.
enum { ACTION_TEXT = 64 };
const char *action_text(const action *a, char dst[ACTION_TEXT]);

#endif
