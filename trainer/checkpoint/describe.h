// trainer/checkpoint/describe.h: the manifest of a state that is about to be saved.
#ifndef TRAINER_CHECKPOINT_DESCRIBE_H
#define TRAINER_CHECKPOINT_DESCRIBE_H

#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/parts.h"

// Makes the tables for *s, dealt as *w says, and fills in names, shapes and parts. ERR_INTERNAL when *s can't be
// written: a name too long, a key twice.
err_t manifest_open(manifest *m, const ckpt_state *s, const run_progress *at, const ckpt_work *w);

#endif
