// trainer/checkpoint/checkpoint.h: the state of a run on disk. A checkpoint is there whole or not at all: files and a manifest are written
// into a temporary directory, each fsynced, the manifest last, and one rename makes it the newest.
//
//   DIR/NAME/ckpt/step-00000100/   model.safetensors       FP32 masters under the model's own names
//                                  optimizer.safetensors   "m/<name>" and "v/<name>"
//                                  manifest.json           lengths, digests, bits keys, counters, who has which part
//   DIR/NAME/best -> ckpt/step-00000050
//
// Of N > 1 ranks each writes model-00003-of-00008.safetensors and optimizer-00003-of-00008.safetensors with its parts: a part that
// is a whole tensor under the tensor's name, another as "<name>@<first element>", one-dimensional. Nodes share no disk: each has the
// files of its own ranks, copies of those of the node before it, and the full manifest. Any world size loads what any other saved.
//
// Collective functions are called by all ranks of s->ranks together and give all of them the same answer. With one rank they are
// ordinary functions, and s->work is not needed.
#ifndef TRAINER_CHECKPOINT_CHECKPOINT_H
#define TRAINER_CHECKPOINT_CHECKPOINT_H

#include "base/err.h"
#include "base/fault.h"
#include "comm/comm.h"
#include "gpu/ops.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CKPT_NAME = 96, CKPT_DIGEST = 32, CKPT_KEY = 64, CKPT_VALUE = 1024, CKPT_KEYS_MAX = 64 };

// One tensor of the state, FP32, and the part of it that this rank saves and loads, in host memory. The ranks' parts make up the tensor and
// do not overlap: a rank has elements first .. first+count-1 in row-major order, in order of rank. first is a multiple of CHUNK, and so is count
// unless the part reaches the tensor's end. With one rank the part is the whole. count = 0: another's altogether, data unused.
typedef struct ckpt_tensor {
    char name[CKPT_NAME];
    int dims;
    int64_t size[4];
    int64_t first, count;
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

// A `bits` key. usual: the default, which is what builds that did not know the key went by: a checkpoint of theirs fits where the value is that.
typedef struct ckpt_key { char key[CKPT_KEY], value[CKPT_VALUE], usual[CKPT_VALUE]; } ckpt_key;

typedef struct ckpt_state {
    ckpt_counters at;
    int keys;
    ckpt_key key[CKPT_KEYS_MAX];
    char data_hash[17];        // of the training dataset
    char build[64];            // informative
    int params;                // master, m and v have this many entries each, in name-table order; m and v may be NULL (inference)
    ckpt_tensor *master, *m, *v;
    comm *ranks;               // NULL: alone
    stream *s;                 // that gives their calls an order; NULL when alone
    struct ckpt_work *work;    // of ckpt_prepare; NULL when alone
    // What bits depend on beside the keys: the device's arithmetic and its plans (gpu/gpu.h).
    device *dev;               // whose they are: saved, compared, and its plans taken over from a checkpoint; NULL: none of that
    bool any_device;           // a checkpoint of another arithmetic will do
    char other[DEVICE_ARITHMETIC + 48];  // of what was resumed, where it was another one or a plan of it can't be used; else empty
} ckpt_state;

// Collective. Exchanges who has which part and sets s->work up: memory in which the ranks' digests meet. After ranks, s and the tables of
// tensors are filled in, before any of the collective functions below. ERR_INTERNAL when the parts don't make up the tensors.
err_t ckpt_prepare(ckpt_state *s);
void ckpt_release(ckpt_state *s);

// Collective. Writes DIR/ckpt/step-NNNNNNNN, verifies it by reading it back (before the rename: what does not verify never gets its name),
// then removes the oldest beyond `keep` (never the one `best` points to, nor later steps than this one; keep < 1 removes none).
// On failure the temporary directory is removed, what was there before is intact, and the error says why.
// An existing checkpoint of the same step is replaced only after the new one is complete. A failure of one rank is everybody's,
// under that rank's name; counters are those of rank 0.
err_t ckpt_save(const char *run_dir, const ckpt_state *s, int keep, fault_list *faults);

// Below: run_dir is this rank's node's, the first rank of each node does the work, and s is asked for its ranks only (NULL: alone).

// Collective. Removes the oldest checkpoints beyond `keep`, none newer than `saved`, never the one that `best` points to. keep < 1: removes nothing.
err_t ckpt_prune(const char *run_dir, const ckpt_state *s, int64_t saved, int keep);

// Collective. Atomically points DIR/best at the checkpoint of `step`.
err_t ckpt_mark_best(const char *run_dir, const ckpt_state *s, int64_t step, fault_list *faults);

// Collective. Sorts out what a crash left behind: removes what was never finished, and finishes what is complete over all nodes.
err_t ckpt_clean(const char *run_dir, const ckpt_state *s);

// Collective. Loads the newest checkpoint that is whole and fits: the tensors' names and shapes and every bits key and data_hash must be those
// of *s (ERR_CONFIG names the key and both values; an empty data_hash in *s is not compared), and so must the arithmetic of s->dev be, unless
// s->any_device; then s->dev has the checkpoint's plans as well (ERR_CONFIG names one that it refuses). A damaged one is reported through
// complain(ctx, text), by file and tensor, on all ranks alike, and the one before it is tried; if all are damaged ERR_DATA. *found = false when
// there is none. Tensors are read straight into s->master, m, v. With several nodes a checkpoint is whole when the nodes together
// have every file of it; what a node lacks, or has damaged, it is sent. ERR_DATA of an incomplete one names files and the hosts that wrote them.
err_t ckpt_resume(const char *run_dir, ckpt_state *s, bool *found, void (*complain)(void *ctx, const char *text), void *ctx);

// Path of the newest checkpoint directory of the run, by step number; it is not opened. *found = false when there is none.
err_t ckpt_newest(const char *run_dir, char path[1024], bool *found);

// Collective. Loads one checkpoint directory, which must hold all files; the same checks, except that keys, data_hash and arithmetic are
// not compared, and no plans taken over, when `foreign`.
err_t ckpt_load(const char *ckpt_dir, ckpt_state *s, bool foreign);

// Reads only the manifest: counters and keys, no tensor. (`eval` and `sample` take the model's shape from the INI, not from here.)
err_t ckpt_peek(const char *ckpt_dir, ckpt_state *s);

// hash: first 8 bytes of BLAKE2b-256 over names, shapes and chunk digests of the masters, as 16 hex digits. Chunks are CHUNK
// elements from the first of each tensor; a chunk's digest is BLAKE2b-256 of its bytes. state_hash adds m, v and the counters that
// the future depends on (step, adam_t, skipped, loss_scale, good_steps). Collective; the same for every way to deal the parts. No heap call.
// Fails only when ranks are lost, with an empty hash.
err_t ckpt_hash(const ckpt_state *s, char hash[17]);
err_t ckpt_state_hash(const ckpt_state *s, char hash[17]);

// The hashes of a checkpoint directory that holds all files, verified against its manifest (ERR_DATA names the tensor, or what is missing).
err_t ckpt_hash_dir(const char *ckpt_dir, char hash[17], char state_hash[17]);

#endif
