// trainer/step/replay.h: a stretch of calls that every step queues with the same arguments is recorded once and from then on
// queued in one go (gpu/gpu.h: recordings). What changes from step to step the calls read from device memory, or copy from
// pinned memory at a fixed address.
#ifndef TRAINER_STEP_REPLAY_H
#define TRAINER_STEP_REPLAY_H

#include "gpu/gpu.h"

typedef struct replay { recording *made; } replay;  // NULL: not recorded yet

typedef err_t (*replay_calls)(void *ctx);  // queues on one stream only, and waits for nothing

// Queues what `calls` queues on s, recording it first where that was not done. The calls must have run plainly before: plans,
// tables and attributes of kernels are made the first time, and that can't be recorded. Returns the calls' own failure where
// they fail while they are recorded; nothing is kept then.
err_t replay_run(replay *r, stream *s, replay_calls calls, void *ctx);
void replay_close(replay *r);

#endif
