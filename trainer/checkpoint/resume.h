// trainer/checkpoint/resume.h: resuming with several nodes.
#ifndef TRAINER_CHECKPOINT_RESUME_H
#define TRAINER_CHECKPOINT_RESUME_H

#include "trainer/checkpoint/checkpoint.h"

// Collective. ckpt_resume for several nodes.
err_t ckpt_resume_nodes(const char *run_dir, ckpt_state *s, bool *found, void (*complain)(void *ctx, const char *text), void *ctx);

#endif
