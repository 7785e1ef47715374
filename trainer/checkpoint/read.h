// trainer/checkpoint/read.h: reads and verifies one checkpoint directory.
#ifndef TRAINER_CHECKPOINT_READ_H
#define TRAINER_CHECKPOINT_READ_H

#include "trainer/checkpoint/manifest.h"

// Collective. Reads this rank's parts from `dir`, which has all files that this rank needs, and verifies everything.
err_t ckpt_read(const char *dir, const manifest *m, ckpt_state *s);
// ERR_CONFIG: *s is of another model, or, unless `foreign`, of another run.
err_t ckpt_fits(const char *dir, const manifest *m, const ckpt_state *s, bool foreign);
// Collective. After the tensors are loaded: takes over the progress, and, unless `foreign`, the plans of the device.
err_t ckpt_adopt(const char *dir, const manifest *m, ckpt_state *s, run_progress *at, bool foreign);
// Reads and verifies all of it, in one process, and keeps nothing. state (=): the digest of its state, had it the
// counters of `at`.
err_t ckpt_digest_dir(const char *dir, const manifest *m, const run_progress *at, uint8_t state[CKPT_DIGEST]);
// Compares every byte of one file (f of the manifest) at `path` with the manifest.
err_t ckpt_verify_file(const char *path, const manifest *m, int f);
// Compares its length and header only.
err_t ckpt_look_at_file(const char *path, const manifest *m, int f);
// ckpt_missing of the files that are not in `dir`; without the optimizer's where only the masters are wanted (groups =
// 1).
err_t ckpt_all_there(const char *dir, const manifest *m, int groups);
// ERR_DATA that names the files in absent[m->files], and the ranks that wrote them: "3 of its 16 files are missing:
// model-00003-of-00008.safetensors (of rank 3, written on node-b), ...". ERR_OK when nothing is absent.
err_t ckpt_missing(const char *where, const manifest *m, const bool *absent);

#endif
