// trainer/checkpoint/resume.h: resuming with several nodes.
#ifndef TRAINER_CHECKPOINT_RESUME_H
#define TRAINER_CHECKPOINT_RESUME_H

#include "trainer/checkpoint/checkpoint.h"

// Sets ERR_IO: of the `tried` checkpoints none could be used, and some could not even be read, as this thread's last
// failure says.
err_t ckpt_unreadable(const char *run_dir, int tried, int unreadable);

// Collective. ckpt_resume for several nodes.
err_t ckpt_resume_nodes(const char *run_dir, ckpt_state *s, run_progress *at, bool *found,
                        void (*complain)(void *ctx, const err_record *why), void *ctx);

#endif
