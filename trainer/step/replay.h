// trainer/step/replay.h: a sequence of calls that every step queues with the same arguments is recorded once and from
// then on queued as a whole (gpu/gpu.h: recordings). Values that change from step to step are read from device memory,
// or copied from pinned memory at a fixed address.
#ifndef TRAINER_STEP_REPLAY_H
#define TRAINER_STEP_REPLAY_H

#include "gpu/gpu.h"

typedef struct replay {
    recording *made;
} replay;  // NULL: not recorded yet

typedef err_t (*replay_calls)(void *ctx);  // queues on one stream only, and waits for nothing

// Queues on s what `calls` queues; the first time, it records it. The calls must have run once without recording: the
// first run makes plans, tables and kernel attributes, which can't be recorded. If the calls fail while they are
// recorded, returns their error and keeps nothing.
err_t replay_run(replay *r, stream *s, replay_calls calls, void *ctx);
void replay_close(replay *r);

#endif
