// trainer/step/action.h: a step as data. What a rank does in a step is a list of actions, a pure function of the layout
// and the rank. The executor runs the list (trainer/step/executor.c), `lockstep plan` adds up what it sends, and tests
// read it, without a process or a model.
//
// All ranks' lists have the same collective actions (GATHER, FETCH, AHEAD, REDUCE, ROWS, SHARE, SPREAD) in the same
// order, also where a rank has nothing to compute.
#ifndef TRAINER_STEP_ACTION_H
#define TRAINER_STEP_ACTION_H

#include "trainer/step/stages.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum action_kind {
    ACTION_LOAD,    // the next micro-batch comes from the loader: `micro` of `lane`
    ACTION_ZERO,    // `bucket` becomes zero: this rank has no lane in the turn, and the sum takes all ranks' buffers
    ACTION_GATHER,  // the weights of block `first` begin to be gathered (ZeRO 3)
    ACTION_NEED,    // the weights of block `first` are here: gathered, or spread by the last update
    // this rank begins to get the rows that the micro-batch names from their owners, and gives others theirs: a
    // collective, also where it has no micro-batch. It stands before the micro-batch that is computed meanwhile
    ACTION_FETCH,
    ACTION_HAVE,  // they are here
    // the owners of the rows that the next step's first micro-batch names begin to read those that are in files
    ACTION_AHEAD,
    ACTION_FORWARD,   // blocks first .. last
    ACTION_TAKE,      // `bucket` takes its slot, zeroed
    ACTION_BACKWARD,  // blocks last .. first; their gradients go to `buffer`
    ACTION_INPUTS,    // the half of it that gives the gradient of inputs
    ACTION_WEIGHTS,   // the half that adds to the gradients of weights
    ACTION_POST,      // a pipeline's `message` may begin: what it sends is there, or what it receives into is free
    ACTION_AWAIT,     // it has arrived, or left
    // block `first`'s output is copied from slot `from` to `slot`: from one of this rank's stages to the next
    ACTION_COPY,
    ACTION_RECEIVE,  // in a forward pass without gradients: block `first`'s output arrives from another rank
    ACTION_SEND,     // ... or is sent to another rank
    ACTION_MEANS,    // the mean loss of each sample of the micro-batch
    // buffer += from, two siblings of the tree of lanes, or token slices of a lane: their part in `bucket`, or all of
    // it (-1)
    ACTION_ADD,
    ACTION_KEEP,    // the gradients of the rows go to their lane's: `micro` of `lane`
    ACTION_LOSSES,  // the means go to the step's
    ACTION_REDUCE,  // `bucket` begins to go to its owners, at `turn`
    ACTION_SETTLE,  // all that was reduced has arrived; buffers may be written again
    // The end of a step:
    ACTION_MASTERS,        // squares of the masters, for an optimizer that wants them, while gradients are on their way
    ACTION_ROWS,           // the gradients of rows on demand go to their owners, who add them
    ACTION_TIE_GRADIENTS,  // of a tensor that the first stage and the last share: they are added on the first
    ACTION_SQUARES,        // of the gradient, chunk by chunk
    ACTION_SHARE,          // all ranks learn all ranks' squares, losses and times
    ACTION_UPDATE,         // decide, and update what this rank owns
    ACTION_OUTER,          // every so many steps: what this rank owns becomes the mean over all islands
    ACTION_SPREAD,         // new weights begin to go to all ranks (ZeRO 1 and 2)
    ACTION_TIE_VALUES,     // ... and those of the shared tensor from the first stage to the last
    ACTION_KINDS,
} action_kind;

typedef struct action {
    action_kind kind;
    int first, last;  // blocks
    int bucket;
    int buffer, from;  // of the lane counter (comm/ordered.h)
    int64_t lane, micro, turn;
    int input_slot;  // where the micro-batch's inputs are
    int slot;        // where its activations are
    int in, out;     // buffers of the gradients that come from the next stage, and go to the previous one; -1: none
    int message;     // in unit_table.message
    // the first micro-batch of a buffer: its gradients overwrite what is there. Of FETCH: this rank has a micro-batch.
    // FETCH, HAVE, AHEAD and KEEP have the rows of the micro-batch, one of two sets, in input_slot
    bool fresh;
    bool leaves;  // the last action that reads the inputs: others may overwrite them
    // This action and those after it, `covers` in all, only queue work on the compute stream, the same in every step:
    // they may be recorded and queued as a whole. 0: none begins here. Those with the same number `recording` queue
    // the same.
    int covers, recording;
} action;

// A bucket of gradients: it is zeroed before backward of block `highest`, and final after that of block `lowest`.
typedef struct action_bucket {
    int highest, lowest;
    int chunk;  // of the rank's stages: which one
} action_bucket;

typedef struct action_layout {
    int world;
    int64_t lanes, micros;  // micros: of a lane
    const int64_t *deal;    // [world] lanes of each rank; NULL: as equal as they can be (comm/ordered.h)
    bool fixed;             // lanes are added along the tree; else all go into one buffer
    bool once;              // a lane adds to each element once
    // a lane's gradients, one for each token slice: its buffer and those from `table` on. 0: one
    int tables, table;
    bool turns;           // ZeRO 2 and 3, and where lanes are coded: lanes in turns, every turn is reduced
    int64_t span;         // in turns: lanes of a turn (comm/ordered.h); 0: one
    bool codes;           // [reduce] compress: one rank alone codes its lanes, too
    bool clips_lanes;     // no bucket is reduced before the whole lane is there
    bool shards_weights;  // ZeRO 3: blocks' weights are gathered before use
    bool spreads;         // ZeRO 1 and 2: weights arrive while the next step begins
    bool slots;           // buckets take turns in slots (one micro-batch a lane)
    int blocks, buckets;
    const action_bucket *bucket;  // in the order in which backward finishes them, chunk by chunk
    bool tied;                    // this rank's stage and another one share a tensor
    bool islands;                 // there are several
    bool rows, cold;              // the model has rows on demand; some may be in files
    bool masters;                 // the optimizer reads norms of weights
    bool unrecorded;              // recordings are not marked: for a list that is only read
    const stages *pipe;           // what of the model is here, and in which order this rank's units run
} action_layout;

typedef struct action_list {
    int count, room;
    action *at;
    int recordings;  // how many of them differ
} action_list;

// The step of a rank. The list is freed with action_list_free. ERR_INTERNAL: no memory.
err_t action_step(const action_layout *l, int rank, action_list *out);

// A forward pass without gradients: GATHER, NEED and FORWARD of each block, the same on all ranks.
err_t action_forward(const action_layout *l, action_list *out);

void action_list_free(action_list *a);

// "forward 0-3", "reduce bucket 1 turn 0": one action as text. Returns dst.
enum { ACTION_TEXT = 64 };
const char *action_text(const action *a, char dst[ACTION_TEXT]);

#endif
