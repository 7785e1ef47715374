// trainer/step/frozen.h: rows that nothing changes (param.h: PARAM_FROZEN), the weights beside which adapters are
// trained. Each rank has those of its own blocks and slices whole, in the compute type: they are not in ZeRO's slab,
// have no master, gradient or moments, and no checkpoint holds them. They are read again whenever a run begins or goes
// on.
#ifndef TRAINER_STEP_FROZEN_H
#define TRAINER_STEP_FROZEN_H

#include "model/model.h"
#include "trainer/step/zero.h"

typedef struct frozen {
    tensor at;       // all such rows that are here, one after the other; no size: there are none
    tensor codes;    // UINT8: those that are kept in 8 bits, each as model/linear.h has it
    tensor wide;     // what the largest of these is widened into
    size_t *row_at;  // [params] where a row begins in either; ZERO_ELSEWHERE: it is not here, or not frozen
    char hash[17];   // of the values of all ranks, as they were read; "": not read
} frozen;

// Declares the memory. chunk: as zero_options.
err_t frozen_open(frozen *f, const model *net, const zero_layout *z, const int *chunk, dtype type, arena *a);
void frozen_close(frozen *f);

static inline bool frozen_has(const frozen *f, int row) { return f->row_at[row] != ZERO_ELSEWHERE; }

#endif
