// model/flow.h: memory for what goes between blocks, where one device runs all of them.
#ifndef MODEL_FLOW_H
#define MODEL_FLOW_H

#include "model/model.h"

typedef struct flow {
    const model *of;
    model_plan plan;
    tensor *memory;   // training: one for each slot and each pair of neighbours; else two, which take turns
    tensor gradient;  // one for all: a block reads its output's gradient before it writes its input's
    tensor *x, *dx;   // views: (slots, blocks-1), (blocks-1)
} flow;

// flow_link fills in the views after the arena was committed.
err_t flow_declare(flow *f, const model *m, arena *a, const model_plan *o);
void flow_link(flow *f);
void flow_close(flow *f);

// Gives the pass what belongs to its slot.
void flow_use(const flow *f, pass *p);

#endif
