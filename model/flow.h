// model/flow.h: memory for what goes between the blocks that run on one device. These may be all, or some ranges of them: then a range takes what the block
// before it left on another device, and leaves its last output for another one.
#ifndef MODEL_FLOW_H
#define MODEL_FLOW_H

#include "model/model.h"

// With block b on one device and b+1 on the next, x[b] has memory on both: for each slot of b on the first, of b+1 on the second. dx[b] is where it
// crosses has FLOW_TURNS places on both, which take turns: one is on its way while the other is used.
enum { FLOW_TURNS = 2 };

typedef struct flow {
    const model *of;
    model_plan plan;
    int *slots;        // [blocks] the plan's
    int *first;        // [blocks-1] in memory: x[b] of slot 0
    tensor *memory;    // training: x of each slot of each pair of neighbours; else two, which take turns
    tensor gradient;   // one for all: a block reads its output's gradient before it writes its input's
    tensor *crossing;  // (FLOW_TURNS, blocks-1) dx[b] where it crosses; no data elsewhere
    tensor *x, *dx;    // views: (most slots, blocks-1), (FLOW_TURNS, blocks-1)
} flow;

// Copies what it needs of the plan. flow_link fills in the views after the arena was committed.
err_t flow_declare(flow *f, const model *m, arena *a, const model_plan *o);
void flow_link(flow *f);
void flow_close(flow *f);

// Gives the pass what belongs to its slot; turn: of gradients that cross.
void flow_use(const flow *f, pass *p, int turn);

// Is what block b leaves, and its gradient, needed here?
static inline bool flow_has(const flow *f, int b) { return f->slots[b] > 0 || f->slots[b + 1] > 0; }
// Does it come from another device, or go to one?
static inline bool flow_crosses(const flow *f, int b) { return (f->slots[b] > 0) != (f->slots[b + 1] > 0); }

// x[b] of a slot, and dx[b] of a turn, whole: (B, ...) of the planned number of samples.
static inline tensor *flow_x(const flow *f, int b, int slot) { return &f->x[slot * (f->of->blocks - 1) + b]; }
static inline tensor *flow_dx(const flow *f, int b, int turn) { return &f->dx[turn * (f->of->blocks - 1) + b]; }

#endif
