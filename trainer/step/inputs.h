// trainer/step/inputs.h: the samples of the micro-batches that are under way, on the device. Each has a place, from
// before its first block until its last one is done with it. The list of actions says which (trainer/step/action.h).
//
// Where copies overlap with computing there is a spare place: the next micro-batch arrives there while the one before
// is used, and the place that the list means is then the other one.
#ifndef TRAINER_STEP_INPUTS_H
#define TRAINER_STEP_INPUTS_H

#include "data/loader.h"
#include "model/model.h"

typedef struct input_place {
    tensor in[MODEL_INPUTS];  // (B, ...) the samples
    tensor draw, host_draw;   // (2) INT32: step and first sample, for dropout; on the host: pinned
    event *copied, *used;     // they are here; nothing that is queued needs them
    batch b;                  // as the loader gave them
    bool works;               // there are samples
    int64_t number;           // of the micro-batch in the step, for the board
} input_place;

typedef struct inputs {
    const model *net;
    int places;  // with the spare one
    input_place *place;
    int *at;            // [places] where a place of the list is
    int spare;          // -1: there is none
    int now;            // the place that was used last
    int filled;         // the place that was filled last
    stream *s;          // of those who use them
    stream *own;        // on which they come, where it is not s
    err_record failed;  // why this rank could not read its data in a step that is not collected yet
    double waited_s;    // for the loader, in this step
} inputs;

typedef struct input_options {
    int places;  // that the list uses
    bool spare;
    int64_t B;
    arena *memory, *staging;  // on the device, pinned
} input_options;

// Declares them; inputs_commit follows when the arenas have memory.
err_t inputs_open(inputs *x, const model *net, const input_options *o);
err_t inputs_commit(inputs *x, device *dev, stream *s);
void inputs_close(inputs *x);

// A place of the list.
static inline int inputs_index(const inputs *x, int place) { return x->at[place]; }
static inline input_place *inputs_at(const inputs *x, int place) { return &x->place[x->at[place]]; }

// The place that evaluations and samples may use between steps.
static inline tensor *inputs_now(const inputs *x) { return x->place[x->now].in; }

// A place of the list is about to be filled: the spare one, if there is one, takes its part.
input_place *inputs_turn(inputs *x, int place);

// The next micro-batch of the loader, which must be this one. A failure to read is noted in `failed`.
err_t inputs_next(inputs *x, loader *data, batch *b, int64_t step, int64_t lane, int64_t micro);

// From the loader's ring to the place that was just turned to. Where there is nothing in the ring: zeros.
err_t inputs_bring(inputs *x, const batch *b);

#endif
