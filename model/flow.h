// model/flow.h: memory for what goes between the blocks that run on one device. These may be all, or some ranges of
// them: then a range takes what the block before it left on another device, and leaves its last output for another one.
#ifndef MODEL_FLOW_H
#define MODEL_FLOW_H

#include "model/model.h"

// With block b on one device and b+1 on the next, x[b] has memory on both: for each slot of b on the first, of b+1 on
// the second. Where one range ends and another begins on the same device it has both: their slots are not the same
// micro-batches.
typedef struct flow {
    const model *of;
    model_plan plan;
    int *slots;  // [blocks] the plan's
    int *first;  // [blocks-1] in memory: x[b] of slot 0
    // [blocks-1] where a range ends and another begins: in memory, what the first one leaves in its slot 0; -1
    // elsewhere
    int *end;
    tensor *memory;    // training: x of each slot of each pair of neighbours; else two, which take turns
    tensor gradient;   // one for all: a block reads its output's gradient before it writes its input's
    tensor *boundary;  // [boundaries] gradients that come from another range of blocks, or go to one
    tensor *x, *dx;    // views: (most slots, blocks-1), (blocks-1)
} flow;

// After the model's own plan, which says which slices are here. Copies what it needs of this one. flow_link fills in
// the views after the arena was committed.
err_t flow_declare(flow *f, const model *m, arena *a, const model_plan *o);
void flow_link(flow *f);
void flow_close(flow *f);

// Gives the pass what belongs to its slot.
void flow_use(const flow *f, pass *p);

// The gradient of what block b leaves is in this boundary from now on: where a range ends, or, of its input, before it
// begins. -1: as inside a range.
void flow_cross(flow *f, int b, int boundary);

// Where one range ends with block b and another begins: passes of this slot are now of the first range, or of the
// second again.
void flow_leave(flow *f, int b, int slot, bool first);
static inline bool flow_ends(const flow *f, int b) { return b < f->of->blocks - 1 && f->end[b] >= 0; }

// x[b] of a slot, whole: (B, ...) of the planned number of samples.
static inline tensor *flow_x(const flow *f, int b, int slot) { return &f->x[slot * (f->of->blocks - 1) + b]; }

#endif
