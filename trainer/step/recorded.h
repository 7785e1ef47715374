// trainer/step/recorded.h: what is recorded of a step's list. The list says which of its actions may be queued as a
// whole, and which of them queue the same and share a recording (trainer/step/action.h: covers). Each is recorded once
// (trainer/step/replay.h). Events, messages and work on other streams between them are queued one by one.
//
// A recording fixes addresses. If inputs have a spare slot, a slot of the list is one of several in memory, so each
// recording is made once for each of these. And there are two of each: one of a backward pass that finds its own values
// in the memory that layers share (model.h: model_held), and one of a pass that does not.
#ifndef TRAINER_STEP_RECORDED_H
#define TRAINER_STEP_RECORDED_H

#include "model/model.h"
#include "trainer/step/replay.h"

typedef struct recorded_run {
    replay calls;
    bool ran;         // and may be recorded from now on
    model_held left;  // what layers' shared memory held then. block RECORDED_NOTHING: the run did not touch it
} recorded_run;

enum { RECORDED_NOTHING = -2 };

typedef struct recordings {
    int count, slots;   // recordings; input slots in memory that a slot of the list may be. 0: nothing is recorded
    recorded_run *run;  // [count][slots][2]
} recordings;

// ERR_INTERNAL: no memory.
err_t recorded_open(recordings *x, int count, int slots);
void recorded_close(recordings *x);

static inline recorded_run *recorded_at(const recordings *x, int recording, int slot, bool finds) {
    return &x->run[2 * (recording * x->slots + (x->slots > 1 ? slot : 0)) + finds];
}

// Runs the calls on s: from the second time on as a whole. finds: do they read in the layers' shared memory what an
// earlier run left there? `held` is then as if the calls had been made.
err_t recorded_play(recorded_run *x, model_held *held, bool finds, stream *s, replay_calls calls, void *ctx);

#endif
