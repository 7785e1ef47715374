// trainer/checkpoint/fork.h: a checkpoint's files, copied to another run, with a manifest of that run's own.
#ifndef TRAINER_CHECKPOINT_FORK_H
#define TRAINER_CHECKPOINT_FORK_H

#include "base/io.h"
#include "trainer/checkpoint/manifest.h"

// Copies the checkpoint `from`, described by m, to the new directory `to`, every byte synced and verified, with the
// manifest `as`: m's tables with other keys, counters, data and origin. as->state_hash is made for its counters.
// stop(ctx): asked after each megabyte; true: ERR_INTERRUPTED. ERR_DATA: a file is damaged, or missing: on another
// node, or removed meanwhile by the run that it belongs to. What was made stays there after a failure.
err_t ckpt_fork(const char *from, const manifest *m, const char *to, manifest *as, bool (*stop)(void *ctx), void *ctx);

#endif
