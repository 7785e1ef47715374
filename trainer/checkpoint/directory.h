// trainer/checkpoint/directory.h: names and directories of checkpoints on one node.
#ifndef TRAINER_CHECKPOINT_DIRECTORY_H
#define TRAINER_CHECKPOINT_DIRECTORY_H

#include "base/io.h"

#include <stdbool.h>

// What a directory of a step can be called: DIR/ckpt/step-N, .tmp-step-N, .old-step-N.
typedef enum ckpt_kind { KIND_FINAL, KIND_TMP, KIND_OLD, KINDS } ckpt_kind;

bool ckpt_exists(const char *path);
err_t ckpt_path(char path[IO_PATH], const char *run_dir, ckpt_kind kind, int64_t step);
// The steps of this kind in DIR/ckpt, newest first; none when there is no such directory. The caller frees *steps, also after a failure.
err_t ckpt_steps(const char *run_dir, ckpt_kind kind, int64_t **steps, int *count);
// The directory of checkpoints, there for good before anything in it is.
err_t ckpt_open_directory(const char *run_dir, fault_list *faults);
// Of one node alone: removes .tmp, puts .old back unless a new one took its place.
err_t ckpt_clean_node(const char *run_dir);
err_t ckpt_prune_node(const char *run_dir, int64_t saved, int keep);
// .tmp-step-N becomes step-N. What stood there is set aside as .old-step-N, and comes back when anything fails.
err_t ckpt_commit_node(const char *run_dir, int64_t step, fault_list *faults);
// What ckpt_commit_node did is taken back: .tmp-step-N is there again, and step-N as it was.
err_t ckpt_undo_node(const char *run_dir, int64_t step);

// DIR/best points to a step through a link that is made as .best first, and renamed.
err_t ckpt_make_link(const char *run_dir, int64_t step);
err_t ckpt_swing_link(const char *run_dir, fault_list *faults);
err_t ckpt_remove_link(const char *run_dir);

#endif
