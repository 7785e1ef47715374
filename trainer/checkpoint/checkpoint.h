// trainer/checkpoint/checkpoint.h: the state of a run on disk. A checkpoint exists completely or not at all: files and
// a manifest are written into a temporary directory, each fsynced, the manifest last; then one rename makes it the
// newest.
//
//   DIR/NAME/ckpt/step-00000100/   model.safetensors       FP32 masters under the model's own names
//                                  optimizer.safetensors   what the optimizer keeps, such as "m/<name>" and "v/<name>";
//                                                          there is none where it keeps nothing
//                                  table.safetensors       rows that are made on demand (trainer/checkpoint/rows.h)
//                                  manifest.json           lengths, digests, bits keys, counters, where each part is
//   DIR/NAME/best -> ckpt/step-00000050
//
// With compression the files are model.safetensors.blocks and optimizer.safetensors.blocks (model/blocks.h). Digests
// are of what they hold, so all else is as without.
//
// With N > 1 ranks, each rank writes its parts to model-00003-of-00008.safetensors and
// optimizer-00003-of-00008.safetensors. A part is a range of a tensor's elements, or of one of its slices where the
// tensor is divided along an axis (ckpt_tensor.slices), so its place follows from logical coordinates alone. A part
// that is a whole tensor has the tensor's name; any other is named "<name>@<first element>", in a sliced tensor
// "<name>@<slice>:<first element>", and is one-dimensional. Nodes share no disk: each has the files of its own ranks,
// copies of the previous node's, and the full manifest. A checkpoint can be loaded with any world size.
//
// Collective functions are called by all ranks of s->ranks together and return the same on all of them. With one rank
// they are ordinary functions, and s->work is not needed.
#ifndef TRAINER_CHECKPOINT_CHECKPOINT_H
#define TRAINER_CHECKPOINT_CHECKPOINT_H

#include "base/err.h"
#include "base/fault.h"
#include "comm/comm.h"
#include "gpu/ops.h"
#include "trainer/checkpoint/progress.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CKPT_NAME = 128,
    CKPT_DIGEST = 32,
    CKPT_KEY = 64,
    CKPT_VALUE = 1024,
    CKPT_KEYS_MAX = 128,
    CKPT_GROUP_NAME = 16,
    CKPT_DIMS = 4,
    CKPT_SOURCES = 17,
    CKPT_REVISION = 192
};

// How dimension 0 of a sliced tensor is divided where equal shares of all of it would not do. All zero: they do.
enum { CKPT_SHARES = 3 };
typedef struct ckpt_split {
    // equal shares of so many rows, of which the tensor has the first size[0]: the last slices have fewer, or none
    int64_t padded;
    // or it is several matrices, one below the other, of so many rows each: a slice has its share of each of them
    int64_t rows[CKPT_SHARES];
} ckpt_split;

typedef struct ckpt_tensor ckpt_tensor;

// Of values that are not in memory: both functions move elements k .. k+n-1 of the tensor's range, n at most
// ORDER_PIECE (trainer/checkpoint/order.h).
typedef struct ckpt_away {
    err_t (*get)(void *ctx, const ckpt_tensor *t, int64_t k, int64_t n, float *x);
    err_t (*put)(void *ctx, const ckpt_tensor *t, int64_t k, int64_t n, const float *x);
    void *ctx;
    float *room;  // [ORDER_PIECE] for what is read, one piece at a time
} ckpt_away;

// One tensor of the state, FP32, and the range of it that this rank saves and loads, in host memory: elements first ..
// first+count-1. They count in row-major order; with slices > 1, slice after slice, cut along `axis`, each slice in
// row-major order (trainer/checkpoint/order.h). The ranges of all ranks, whichever has which, make up the tensor
// without overlap. A range begins and ends a multiple of CHUNK after the beginning of a slice, or with a slice: it may
// hold several. With one rank it is the whole tensor. count = 0: this rank has nothing of it, and data is unused.
struct ckpt_tensor {
    char name[CKPT_NAME];
    int dims;
    int64_t size[CKPT_DIMS];
    int axis, slices;  // 0 or 1 slices: not sliced. size[axis] is a multiple of slices, or `split` says otherwise
    ckpt_split split;
    int64_t first, count;
    float *data;
    const ckpt_away *away;  // the range is not in memory, and data is NULL. NULL: it is
    int64_t at;             // where the range begins there, as `away` counts
};

// Tensors of which there is one for each parameter, in name-table order, under the parameters' names, with their shapes
// and slices.
// name: what the group's tensors are called in optimizer.safetensors, "m" for "m/wte.weight"; at most 15 letters.
// Empty: the masters, whose names are the model's own.
typedef struct ckpt_group {
    const char *name;
    ckpt_tensor *tensor;
} ckpt_group;

// A number that the optimizer keeps for the whole run, the same on all ranks: rank 0's is saved. name: at most 15
// letters.
typedef struct ckpt_scalar {
    const char *name;
    double *value;
} ckpt_scalar;

// The checkpoint of another run with which a forked run began (trainer/fork.h); step 0: none.
enum { CKPT_RUN = 512 };
typedef struct ckpt_origin {
    char run[CKPT_RUN];  // its directory, as it was named then
    int64_t step;
    char hash[17];  // of its weights
} ckpt_origin;

// A `bits` key. usual: the default, which is how builds without the key behaved: their checkpoints fit if value equals
// it. open: nobody has set it, so a checkpoint with another value fits, and that value counts: then it is put into
// `value`, and adopted is set. then: the value in the checkpoint that was read last, `usual` where it does not know the
// key.
typedef struct ckpt_key {
    char key[CKPT_KEY], value[CKPT_VALUE], usual[CKPT_VALUE], then[CKPT_VALUE];
    bool open, adopted;
} ckpt_key;

// Called with every piece of a file that was written or read, by the thread that did so. NULL: nothing is.
typedef struct ckpt_pulse {
    void (*beat)(void *ctx);
    void *ctx;
} ckpt_pulse;

typedef struct ckpt_state {
    int keys;
    ckpt_key key[CKPT_KEYS_MAX];
    char data_hash[17];  // of the training dataset
    char build[64];      // informative, as are the sources
    char sources[CKPT_SOURCES];
    ckpt_origin origin;
    int params;         // tensors of each group
    int groups;         // the masters, and after them what the optimizer keeps: nothing for inference
    ckpt_group *group;  // [groups], its owner's. A checkpoint's groups are matched with these by name
    int scalars;
    ckpt_scalar *scalar;              // [scalars], as groups
    struct row_table *rows;           // this rank's of those that are made on demand (rows.h); NULL: there are none
    const int *row_cut;               // [ranks + 1] as row_cuts (comm/server/rows.h)
    const char *rows_name;            // of their tables
    struct row_digests *row_digests;  // of ckpt_prepare
    comm *ranks;                      // NULL: alone
    stream *s;                        // orders their calls; NULL when alone
    struct ckpt_work *work;           // of ckpt_prepare; NULL when alone
    ckpt_pulse pulse;
    int compress;  // level of zstd with which files are saved; 0: as they are. Either kind is loaded
    // The bits also depend on the device's arithmetic and its plans (gpu/gpu.h).
    device *dev;                         // both are saved and compared, and plans loaded into it; NULL: none of that
    bool any_device;                     // accept a checkpoint of another arithmetic
    bool any_bits;                       // accept one of another revision of the arithmetic (gpu/revision.h)
    char other[DEVICE_ARITHMETIC + 48];  // what was resumed, if it differs or a plan can't be used; else empty
    char other_bits[CKPT_REVISION];      // its revision, if that differs, in words; else empty
    char other_build[CKPT_REVISION];     // the build that wrote it, if its sources are not these; else empty
} ckpt_state;

// Collective. Exchanges which rank has which part, and sets up s->work: memory for the digests of all ranks. Call it
// after ranks, s and the tables of tensors are filled in, and before the collective functions below. ERR_INTERNAL when
// the parts don't make up the tensors.
err_t ckpt_prepare(ckpt_state *s);
void ckpt_release(ckpt_state *s);

// Collective. Writes DIR/ckpt/step-NNNNNNNN and verifies it by reading it back, before it is renamed to its final name.
// Then removes the oldest beyond `keep` (never the one `best` points to, nor later steps than this one; keep < 1
// removes none). On failure the temporary directory is removed, earlier checkpoints are intact, and the error says why.
// An existing checkpoint of the same step is replaced only after the new one is complete. If one rank fails, all return
// its error, which names the rank. The progress is rank 0's.
err_t ckpt_save(const char *run_dir, const ckpt_state *s, const run_progress *at, int keep, fault_list *faults);

// In the three functions below, run_dir is that of this rank's node, the first rank of each node does the work, and
// only the ranks of s are used (NULL: alone).

// Collective. Removes the oldest checkpoints beyond `keep`, none newer than `saved`, never the one that `best` points
// to. keep < 1: removes nothing. While the last steps are bad (at->bad_steps), what was saved in them counts apart:
// of these the newest is kept, so that no good checkpoint has to go for one of them.
err_t ckpt_prune(const char *run_dir, const ckpt_state *s, const run_progress *at, int64_t saved, int keep);

// Collective. Atomically points DIR/best at the checkpoint of `step`.
err_t ckpt_mark_best(const char *run_dir, const ckpt_state *s, int64_t step, fault_list *faults);

// Collective. Cleans up after a crash: removes checkpoints that were never finished, and finishes those for which the
// nodes together have every file.
err_t ckpt_clean(const char *run_dir, const ckpt_state *s);

// Collective. Loads the newest checkpoint that is whole and fits. *found = false when there is none. Tensors are read
// straight into the groups of *s. Where *s slices a tensor otherwise than the checkpoint does, its elements go to their
// logical coordinates; then the hash, which depends on the slices, is not compared, and each part's digest is.
//
// It fits if the tensors' names and shapes, every bits key and data_hash equal those of *s (ERR_CONFIG names the key
// and both values; an empty data_hash in *s is not compared). The arithmetic of s->dev must be equal too, unless
// s->any_device, and the revision of our own arithmetic, unless s->any_bits. If the arithmetic is equal, s->dev gets
// the checkpoint's plans (ERR_CONFIG, unless s->any_device, names one that it refuses).
//
// A damaged checkpoint, or one that can't be read, is reported through complain(ctx, why), by file and tensor, the
// same on all ranks, and the previous one is tried; ERR_DATA if all are damaged, ERR_IO if some could not be read:
// they may be whole. With several nodes a checkpoint is whole when the nodes together have every file of it; a node
// gets the files that it lacks or has damaged. ERR_DATA of an incomplete one names the files and the hosts that wrote
// them.
err_t ckpt_resume(const char *run_dir, ckpt_state *s, run_progress *at, bool *found,
                  void (*complain)(void *ctx, const err_record *why), void *ctx);

// Path of the newest checkpoint directory of the run, by step number; it is not opened. *found = false when there is
// none.
err_t ckpt_newest(const char *run_dir, char path[1024], bool *found);

// The hash of the weights in step-N of this node, as its manifest says.
err_t ckpt_saved_hash(const char *run_dir, int64_t step, char hash[17]);

// Collective. Loads one checkpoint directory, which must hold all files. The same checks; with `foreign`, keys,
// data_hash and arithmetic are not compared, and plans are not loaded.
err_t ckpt_load(const char *ckpt_dir, ckpt_state *s, run_progress *at, bool foreign);

// Reads only the manifest: progress and keys, no tensor. (`eval` and `sample` take the model's shape from the INI, not
// from here.)
err_t ckpt_peek(const char *ckpt_dir, ckpt_state *s, run_progress *at);

// hash: first 8 bytes of BLAKE2b-256 over names, shapes and chunk digests of the masters, as 16 hex digits; of a state
// with rows on demand, of these and of the rows. A tensor,
// or each slice of it, is cut into chunks of CHUNK elements; a chunk's digest is BLAKE2b-256 of its bytes. state_hash
// adds the other groups, the scalars, and what later steps depend on of the progress (step, updates, skipped,
// loss_scale, good_steps).
// Collective; does not depend on how the parts are dealt. No heap calls. Fails, with an empty hash, only when ranks are
// lost or what is not in memory can't be read.
err_t ckpt_hash(const ckpt_state *s, char hash[17]);
err_t ckpt_state_hash(const ckpt_state *s, const run_progress *at, char hash[17]);

// The hashes of a checkpoint directory that holds all files, verified against its manifest (ERR_DATA names the tensor,
// or the missing files).
err_t ckpt_hash_dir(const char *ckpt_dir, char hash[17], char state_hash[17]);

#endif
