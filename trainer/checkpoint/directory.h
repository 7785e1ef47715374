// trainer/checkpoint/directory.h: names and directories of checkpoints on one node.
#ifndef TRAINER_CHECKPOINT_DIRECTORY_H
#define TRAINER_CHECKPOINT_DIRECTORY_H

#include "base/io.h"

#include <stdbool.h>

// The names of a step's directory: DIR/ckpt/step-N, .tmp-step-N, .old-step-N.
typedef enum ckpt_kind { KIND_FINAL, KIND_TMP, KIND_OLD, KINDS } ckpt_kind;

bool ckpt_exists(const char *path);
err_t ckpt_path(char path[IO_PATH], const char *run_dir, ckpt_kind kind, int64_t step);
// The steps of this kind in DIR/ckpt, newest first; none when there is no such directory. The caller frees *steps, also
// after a failure.
err_t ckpt_steps(const char *run_dir, ckpt_kind kind, int64_t **steps, int *count);
// Makes DIR/ckpt, and syncs it to disk before anything is put into it.
err_t ckpt_open_directory(const char *run_dir, fault_list *faults);
// For a single node: removes .tmp, and puts .old back unless step-N exists.
err_t ckpt_clean_node(const char *run_dir);
// Removes the oldest beyond `keep` of those up to step `good`, and all but the newest of those after it, up to step
// `saved`; never the one that best points to. keep < 1: removes nothing.
err_t ckpt_prune_node(const char *run_dir, int64_t saved, int64_t good, int keep);
// Renames .tmp-step-N to step-N. An earlier step-N is set aside as .old-step-N, and is put back if anything fails.
err_t ckpt_commit_node(const char *run_dir, int64_t step, fault_list *faults);
// Undoes ckpt_commit_node: .tmp-step-N is there again, and step-N is as it was.
err_t ckpt_undo_node(const char *run_dir, int64_t step);

// DIR/best is a link to a step. It is made as .best and then renamed.
err_t ckpt_make_link(const char *run_dir, int64_t step);
err_t ckpt_swing_link(const char *run_dir, fault_list *faults);
err_t ckpt_remove_link(const char *run_dir);

#endif
