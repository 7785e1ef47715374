// trainer/checkpoint/describe.h: the manifest of a state that is about to be saved.
#ifndef TRAINER_CHECKPOINT_DESCRIBE_H
#define TRAINER_CHECKPOINT_DESCRIBE_H

#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/parts.h"

// Tables for what *s holds, dealt as *w says, names, shapes and parts filled in. ERR_INTERNAL when *s can't be written: a name too long, a
// key twice.
err_t manifest_open(manifest *m, const ckpt_state *s, const ckpt_work *w);

#endif
