// model/flow.h: memory for what goes between the blocks that run on one device. These are all blocks, or some ranges of
// them: the first block of a range then reads the output of a block on another device, and another device reads the
// output of the last.
#ifndef MODEL_FLOW_H
#define MODEL_FLOW_H

#include "model/model.h"

// If block b is on one device and b+1 on the next, both have memory for x[b]: the first for each slot of b, the second
// for each slot of b+1. Where one range ends and the next begins on the same device it has both, since their slots are
// not the same micro-batches.
typedef struct flow {
    const model *of;
    model_plan plan;
    int *slots;  // [blocks] the plan's
    int *first;  // [blocks-1] in memory: x[b] of slot 0
    // [blocks-1] where one range ends and another begins: in memory, the output of the first one's slot 0; else -1
    int *end;
    tensor *memory;    // training: x of each slot of each pair of neighbours; else two, which take turns
    tensor gradient;   // one for all: a block reads its output's gradient before it writes its input's
    tensor *boundary;  // [boundaries] gradients that come from another range of blocks, or go to one
    tensor *x, *dx;    // views: (most slots, blocks-1), (blocks-1)
} flow;

// Call it after model_declare, which says which slices are here. Copies what it needs of the plan. flow_link fills in
// the views after the arena was committed.
err_t flow_declare(flow *f, const model *m, arena *a, const model_plan *o);
void flow_link(flow *f);
void flow_close(flow *f);

// Points the pass at the memory of its slot.
void flow_use(const flow *f, pass *p);

// From now on the gradient of block b's output is in this boundary: b is the last block of a range, or the one before
// its first. -1: in the memory that blocks share.
void flow_cross(flow *f, int b, int boundary);

// Block b ends one range, and another begins after it. first: passes of this slot are now passes of the first range;
// else of the second again.
void flow_leave(flow *f, int b, int slot, bool first);
static inline bool flow_ends(const flow *f, int b) { return b < f->of->blocks - 1 && f->end[b] >= 0; }

// x[b] of a slot, whole: (B, ...) of the planned number of samples.
static inline tensor *flow_x(const flow *f, int b, int slot) { return &f->x[slot * (f->of->blocks - 1) + b]; }

#endif
