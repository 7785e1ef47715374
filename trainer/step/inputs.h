// trainer/step/inputs.h: the samples of the micro-batches that are computed, on the device. Each micro-batch has an
// input slot, from before its first block until its last block has run. The list of actions says which
// (trainer/step/action.h).
//
// If copies overlap with computing, there is a spare slot: the next micro-batch arrives there while the one before is
// used. So a slot of the list is one or another slot in memory.
#ifndef TRAINER_STEP_INPUTS_H
#define TRAINER_STEP_INPUTS_H

#include "data/loader.h"
#include "model/model.h"

typedef struct input_slot {
    tensor in[MODEL_INPUTS];  // (B, ...) the samples
    tensor draw, host_draw;   // (2) INT32: step and first sample, for dropout; on the host: pinned
    event *copied, *used;     // they have arrived; all that is queued has read them
    batch b;                  // as the loader gave them
    bool works;               // there are samples
    int64_t number;           // of the micro-batch in the step, for the board
} input_slot;

typedef struct inputs {
    const model *net;
    int64_t first, count;  // samples that are brought
    int slots;             // with the spare one
    input_slot *slot;
    int *at;            // [slots] where a slot of the list is in memory
    int spare;          // -1: there is none
    int now;            // the slot that was used last
    int filled;         // the slot that was filled last
    stream *s;          // on which they are used
    stream *own;        // on which they are copied, if it is not s
    err_record failed;  // why this rank could not read its data in a step that is not collected yet
    double waited_s;    // for the loader, in this step
} inputs;

typedef struct input_options {
    int slots;  // that the list uses
    bool spare;
    int64_t B;
    int64_t first, count;     // of each micro-batch only these samples are brought; count 0: all
    arena *memory, *staging;  // on the device, pinned
} input_options;

// Declares them; inputs_commit follows when the arenas have memory.
err_t inputs_open(inputs *x, const model *net, const input_options *o);
err_t inputs_commit(inputs *x, device *dev, stream *s);
void inputs_close(inputs *x);

// A slot of the list, in memory.
static inline int inputs_index(const inputs *x, int slot) { return x->at[slot]; }
static inline input_slot *inputs_at(const inputs *x, int slot) { return &x->slot[x->at[slot]]; }

// The slot that evaluations and samples may use between steps.
static inline tensor *inputs_now(const inputs *x) { return x->slot[x->now].in; }

// Call it before a slot of the list is filled. If there is a spare slot in memory, the list's slot moves there.
input_slot *inputs_turn(inputs *x, int slot);

// Takes the loader's next micro-batch, which must be this one. A failure to read is noted in `failed`.
err_t inputs_next(inputs *x, loader *data, batch *b, int64_t step, int64_t lane, int64_t micro);

// Copies the batch from the loader's ring to the slot that inputs_turn returned. A batch without data becomes zeros.
err_t inputs_bring(inputs *x, const batch *b);

#endif
