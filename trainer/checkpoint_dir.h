// trainer/checkpoint_dir.h: what the files behind trainer/checkpoint.h share: names and directories (checkpoint.c), one directory's
// reading (checkpoint_read.c), files between nodes (checkpoint_copy.c), what nodes have (checkpoint_nodes.c), resuming from it (checkpoint_resume.c).
#ifndef TRAINER_CHECKPOINT_DIR_H
#define TRAINER_CHECKPOINT_DIR_H

#include "base/io.h"
#include "trainer/checkpoint_parts.h"

// --- checkpoint.c --------------------------------------------------------------------------------------------------------------

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

// --- checkpoint_read.c ---------------------------------------------------------------------------------------------------------

// Collective. Reads this rank's parts from `dir`, in which this rank's node has all files that it needs, and verifies everything.
err_t ckpt_read(const char *dir, const manifest *m, ckpt_state *s);
// ERR_CONFIG: *s is another model, or, unless `foreign`, another run.
err_t ckpt_fits(const char *dir, const manifest *m, const ckpt_state *s, bool foreign);
// Collective. What is left to be done once the tensors are loaded: counters, and, unless `foreign`, the plans of the device.
err_t ckpt_adopt(const char *dir, const manifest *m, ckpt_state *s, bool foreign);
// Every byte of one file (f of the manifest) at `path` against the manifest.
err_t ckpt_verify_file(const char *path, const manifest *m, int f);
// Its length and header only.
err_t ckpt_look_at_file(const char *path, const manifest *m, int f);
// ERR_DATA that names what absent[m->files] says, and who wrote it: "3 of its 16 files are missing: model-00003-of-00008.safetensors (of rank 3,
// written on node-b), ...". ERR_OK when nothing is absent.
err_t ckpt_missing(const char *where, const manifest *m, const bool *absent);

// --- checkpoint_copy.c ---------------------------------------------------------------------------------------------------------

enum { CKPT_PIECE = 1 << 20 };  // bytes that travel at once

// A file that arrives in pieces under a temporary name. Failures are kept, and what still comes is thrown away: who sends must not wait.
typedef struct ckpt_incoming { int fd; char path[IO_PATH]; fault_list *faults; err_record why; } ckpt_incoming;
void incoming_open(ckpt_incoming *in, const char *dir, const char *name, fault_list *faults);
void incoming_put(ckpt_incoming *in, const void *bytes, size_t n);
// Fsync, verify against the manifest, rename into place. Returns the first failure; the temporary file is then gone.
err_t incoming_close(ckpt_incoming *in, const manifest *m, int file);

// Collective. Each rank's files in `dir` go to the next node, where they are written into that node's `dir` under their names and verified.
err_t ckpt_copy_to_buddies(const char *dir, const manifest *m, const ckpt_state *s, fault_list *faults);

// --- checkpoint_nodes.c --------------------------------------------------------------------------------------------------------

// One directory of one node with a manifest that is whole, or isn't.
typedef struct ckpt_version {
    int64_t step;
    int32_t kind, node, whole;
    uint8_t digest[CKPT_DIGEST];  // of the manifest, where it is whole
} ckpt_version;

// Collective. All directories of all nodes, newest step first, then by node and kind. The caller frees *list, also after a failure.
err_t ckpt_versions(const char *run_dir, const ckpt_state *s, ckpt_version **list, int *count);
// Collective. Brings every node's directories to final names: see there.
err_t ckpt_settle(const char *run_dir, const ckpt_state *s);
// Collective. ckpt_resume with several nodes (checkpoint_resume.c).
err_t ckpt_resume_nodes(const char *run_dir, ckpt_state *s, bool *found, void (*complain)(void *ctx, const char *text), void *ctx);

#endif
