// trainer/costs/stragglers.h: devices that compute slower than the others, at random places of a layout. All ranks of a
// stage of a pipeline wait for its slowest, and all pipelines for the slowest one: a step on a cluster takes as long as
// that of the pipeline with the worst set of slow stages.
#ifndef TRAINER_COSTS_STRAGGLERS_H
#define TRAINER_COSTS_STRAGGLERS_H

#include "comm/groups.h"

enum { STRAGGLER_SETS = 16 };

typedef struct straggler_sets {
    int devices;  // that are slow
    int stages, count;
    bool *slow;  // [count][stages]
} straggler_sets;

// Of a share of all ranks, the nearest whole number of them, where the seed puts them. The sets of stages that one
// pipeline has, without those that are part of another one; the largest first, STRAGGLER_SETS at most. Freed with
// stragglers_free. ERR_INTERNAL: no memory.
err_t stragglers_draw(straggler_sets *out, const grid *g, double share, uint64_t seed);
void stragglers_free(straggler_sets *s);

#endif
