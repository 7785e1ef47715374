// trainer/checkpoint/save.h: a save in two halves. What is said of the state is read first, by the thread that owns it;
// then any thread writes it. ckpt_save is both.
#ifndef TRAINER_CHECKPOINT_SAVE_H
#define TRAINER_CHECKPOINT_SAVE_H

#include "base/io.h"
#include "trainer/checkpoint/parts.h"

typedef struct ckpt_saving {
    const char *run_dir;
    char tmp[IO_PATH];
    const ckpt_state *s;
    const run_progress *at;
    fault_list *faults;
    ckpt_work *w;
    manifest m;      // m.hash is known when it is written
    err_record why;  // of saving_open
    bool renaming;
} ckpt_saving;

// Local; everything is used until saving_close. A failure is kept in x->why, so that all ranks learn of it.
void saving_open(ckpt_saving *x, const char *run_dir, const ckpt_state *s, const run_progress *at, fault_list *faults);

// Collective, as ckpt_save; of s the tensors are read, and nothing of the device.
err_t saving_write(ckpt_saving *x, int keep);

void saving_close(ckpt_saving *x);

#endif
