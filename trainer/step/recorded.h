// trainer/step/recorded.h: what is recorded of a pipeline. A part of a unit, an action of FORWARD, BACKWARD, INPUTS or
// WEIGHTS, queues the same in every step, and the same as others of the list whose micro-batches meet the same buffers.
// Each is recorded once (trainer/step/replay.h). What stands between them in the list, events, messages, other streams,
// is queued one by one.
#ifndef TRAINER_STEP_RECORDED_H
#define TRAINER_STEP_RECORDED_H

#include "trainer/step/action.h"
#include "trainer/step/replay.h"

typedef struct recorded_part {
    replay calls;
    bool ran;         // and may be recorded from now on
    model_held left;  // what layers' shared memory held then. block RECORDED_NOTHING: the part did not touch it
} recorded_part;

enum { RECORDED_NOTHING = -2 };

// [actions] which one an action queues; -1: it is no part of a unit. Of each there are two: of a part that finds its
// own values in the memory that layers share (model.h: model_held), and of one that does not.
typedef struct recorded_parts {
    int *of;
    int count;
    recorded_part *part;  // [2 * count]
} recorded_parts;

// As many as the list has different ones. ERR_INTERNAL: no memory.
err_t recorded_open(recorded_parts *x, const action_list *a, const stages *of);
void recorded_close(recorded_parts *x);

// Of the list's action i. NULL: nothing is recorded.
recorded_part *recorded_at(const recorded_parts *x, int i, bool finds);

// Are the losses of the micro-batch formed right after these blocks? Then with them. A step's list has other actions at
// its end.
static inline bool recorded_losses(const action *blocks) { return blocks[1].kind == ACTION_LOSSES; }

#endif
