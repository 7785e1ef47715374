// trainer/checkpoint.h: the state of a run on disk. A checkpoint is there whole or not at all: files and a manifest are written
// into a temporary directory, each fsynced, the manifest last, and one rename makes it the newest.
//
//   DIR/NAME/ckpt/step-00000100/   model.safetensors       FP32 masters under the model's own names
//                                  optimizer.safetensors   "m/<name>" and "v/<name>"
//                                  manifest.json           lengths, digests, bits keys, counters
//   DIR/NAME/best -> ckpt/step-00000050
#ifndef TRAINER_CHECKPOINT_H
#define TRAINER_CHECKPOINT_H

#include "base/err.h"
#include "base/fault.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CKPT_NAME = 96, CKPT_CHUNK = 16384, CKPT_DIGEST = 32, CKPT_KEY = 64, CKPT_VALUE = 1024, CKPT_KEYS_MAX = 64 };

// One tensor of the state, FP32, in host memory.
typedef struct ckpt_tensor {
    char name[CKPT_NAME];
    int dims;
    int64_t size[4];
    float *data;
} ckpt_tensor;

// Everything of a run's state that is not a tensor.
typedef struct ckpt_counters {
    int64_t step;          // finished steps; data position is step * global
    int64_t adam_t;        // updates applied (a skipped step is not one)
    int64_t skipped;       // steps skipped for overflow
    double loss_scale;
    int64_t good_steps;    // since the scale last changed
    double best_loss;      // of the validation split; INFINITY before the first evaluation (stored as null)
    int64_t best_step;     // 0: none yet
    int64_t log_bytes;     // length of log.jsonl when this state was current
} ckpt_counters;

typedef struct ckpt_key { char key[CKPT_KEY], value[CKPT_VALUE]; } ckpt_key;  // a `bits` key

typedef struct ckpt_state {
    ckpt_counters at;
    int keys;
    ckpt_key key[CKPT_KEYS_MAX];
    char data_hash[17];        // of the training dataset
    char build[64];            // informative
    int params;                // master, m and v have this many entries each, in name-table order; m and v may be NULL (inference)
    ckpt_tensor *master, *m, *v;
} ckpt_state;

// Writes DIR/ckpt/step-NNNNNNNN, verifies it by reading it back (before the rename: what does not verify never gets its name),
// then removes the oldest beyond `keep` (never the one `best` points to, nor later steps than this one; keep < 1 removes none).
// On failure the temporary directory is removed, what was there before is intact, and the error says why.
// An existing checkpoint of the same step is replaced only after the new one is complete.
err_t ckpt_save(const char *run_dir, const ckpt_state *s, int keep, fault_list *faults);

// Removes the oldest checkpoints beyond `keep`, none newer than `saved`, never the one that `best` points to. keep < 1: removes nothing.
err_t ckpt_prune(const char *run_dir, int64_t saved, int keep);

// Atomically points DIR/best at the checkpoint of `step`.
err_t ckpt_mark_best(const char *run_dir, int64_t step, fault_list *faults);

// Removes temporary directories that a crash left behind.
err_t ckpt_clean(const char *run_dir);

// Loads the newest checkpoint that is whole and fits: the tensors' names and shapes and every bits key and data_hash must be those
// of *s (ERR_CONFIG names the key and both values; an empty data_hash in *s is not compared). A damaged one is reported through
// complain(ctx, text), by file and tensor, and the one before it is tried; if all are damaged ERR_DATA. *found = false when there
// is none. Tensors are read straight into s->master, m, v.
err_t ckpt_resume(const char *run_dir, ckpt_state *s, bool *found, void (*complain)(void *ctx, const char *text), void *ctx);

// Path of the newest checkpoint directory of the run, by step number; it is not opened. *found = false when there is none.
err_t ckpt_newest(const char *run_dir, char path[1024], bool *found);

// Loads one checkpoint directory; the same checks, except that keys and data_hash are not compared when `foreign`.
err_t ckpt_load(const char *ckpt_dir, ckpt_state *s, bool foreign);

// Reads only the manifest: counters and keys, no tensor. (`eval` and `sample` take the model's shape from the INI, not from here.)
err_t ckpt_peek(const char *ckpt_dir, ckpt_state *s);

// hash: first 8 bytes of BLAKE2b-256 over names, shapes and chunk digests of the masters, as 16 hex digits. Chunks are CKPT_CHUNK
// elements from the first of each tensor; a chunk's digest is BLAKE2b-256 of its bytes. state_hash adds m, v and the counters that
// the future depends on (step, adam_t, skipped, loss_scale, good_steps).
void ckpt_hash(const ckpt_state *s, char hash[17]);
void ckpt_state_hash(const ckpt_state *s, char hash[17]);

// The hashes of a checkpoint directory, verified against its manifest (ERR_DATA names the tensor).
err_t ckpt_hash_dir(const char *ckpt_dir, char hash[17], char state_hash[17]);

#endif
