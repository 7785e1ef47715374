// trainer/step/recorded.h: what is recorded of a step's list. The list says which of its actions may be queued as a
// whole, and which of them queue the same and share a recording (trainer/step/action.h: covers). Each is recorded once
// (trainer/step/replay.h). What stands between them in the list, events, messages, other streams, is queued one by one.
//
// A recording fixes addresses. Where inputs have a spare place, a place of the list is one of several in memory, so
// each recording is made once for each of these. And there are two of each: of a backward pass that finds values of its
// own in the memory that layers share (model.h: model_held), and of one that does not.
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
    int count, places;  // how many there are; in memory, that a place of the list may be. 0: nothing is recorded
    recorded_run *run;  // [count][places][2]
} recordings;

// ERR_INTERNAL: no memory.
err_t recorded_open(recordings *x, int count, int places);
void recorded_close(recordings *x);

static inline recorded_run *recorded_at(const recordings *x, int recording, int place, bool finds) {
    return &x->run[2 * (recording * x->places + (x->places > 1 ? place : 0)) + finds];
}

// Runs the calls on s: from the second time on as a whole. finds: do they read in the layers' shared memory what an
// earlier run left there? `held` is then as if the calls had been made.
err_t recorded_play(recorded_run *x, model_held *held, bool finds, stream *s, replay_calls calls, void *ctx);

#endif
