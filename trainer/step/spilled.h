// trainer/step/spilled.h: masters, and what the optimizer keeps of them, in a file of this rank's ([parallel] offload =
// nvme), so that memory need not hold them. As in ZeRO-Infinity (Rajbhandari et al. 2021, arXiv 2104.07857) they pass
// through a few windows of memory when the weights are updated (base/spill.h).
//
// A block of the file is a chunk of all of them, so that an update reads and writes one place:
//
//   block       | masters, CHUNK | array 0, CHUNK | array 1, CHUNK |
//   file        a block for each chunk of each piece that this rank owns, in their order; tied pieces have none
//
// A piece begins a block; what a block has beyond the end of its piece is zero and stays so.
#ifndef TRAINER_STEP_SPILLED_H
#define TRAINER_STEP_SPILLED_H

#include "base/spill.h"
#include "gpu/gpu.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/step/zero.h"

enum { SPILLED_VALUES = 16 };  // masters and arrays, at most

typedef struct spilled_options {
    const char *dir;     // is made if it is not there
    int rank;            // for the file's name, as errors say it
    fault_list *faults;  // NULL: none
} spilled_options;

// What a checkpoint's group has here.
typedef struct spilled_group {
    struct spilled *of;
    int value;  // 0: masters; k + 1: array k
} spilled_group;

typedef struct spilled {
    spilled_options o;
    const zero_layout *z;
    const model *net;
    int values;      // of a block: 1 + arrays
    int64_t *block;  // [owned + 1]: the first block of each piece; last: of all
    char name[64];   // of the file
    spill_options file_options;
    tensor windows;     // bytes
    tensor room;        // FP32 (ORDER_PIECE): what a checkpoint reads
    tensor kept_block;  // FP32 (values, CHUNK)
    spill *file;        // NULL: this rank owns nothing
    // A block that is set by a few elements at a time stays in memory until another one is: -1: none. changed: it is
    // not in the file yet.
    int64_t kept;
    bool changed;
    spilled_group group[SPILLED_VALUES];
    ckpt_away away[SPILLED_VALUES];
} spilled;

// Declares what it takes in memory. z and net outlive it, as does what o points to.
err_t spilled_open(spilled *x, arena *a, const zero_layout *z, const model *net, int arrays, const spilled_options *o);

// Once the arena has its memory: makes the file, all zeros, with its space reserved. Errors as of spill_open.
err_t spilled_commit(spilled *x);
void spilled_close(spilled *x);

// Bytes of the file: what an update reads, and writes.
int64_t spilled_bytes(const spilled *x);

// part: a chunk of a piece, or its last elements, as a piece of its own. value [values]: FP32 (part->count), masters
// first, then the arrays.
typedef err_t (*spilled_visit)(void *ctx, const zero_piece *part, tensor *value);

// Visits all chunks in the order of the pieces; valid during the call. SPILL_FILL: they are zero before. Makes no heap
// call. Errors as of spill_walk; where the disk failed, they name the tensor and the elements.
err_t spilled_walk(spilled *x, spill_mode mode, spilled_visit visit, void *ctx);

// Has a walk failed for good? Then what is in the file is of no step.
bool spilled_is_lost(const spilled *x);

// Where a checkpoint finds a value of the pieces from this one on: ckpt_tensor's `away` and `at`.
const ckpt_away *spilled_away(spilled *x, int value);
int64_t spilled_at(const spilled *x, const zero_piece *p);

#endif
