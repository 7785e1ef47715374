// trainer/step/timeline.h: a pipeline's tables run against each other on paper. Given how long units and messages take,
// it says when each unit runs, what the step takes, how long each rank waits, and how many activations it holds; or who
// waits for whom, if the tables never end. Pure arithmetic, for tests, for `lockstep plan`, and for drawing.
//
// What is modelled, trainer/step/simulate.h says: here it runs the lists of a model that has one block a stage, so that
// a unit is one action.
#ifndef TRAINER_STEP_TIMELINE_H
#define TRAINER_STEP_TIMELINE_H

#include "model/model.h"
#include "trainer/step/pipeline.h"

#include <stddef.h>

typedef struct timeline_costs {
    const double (*unit)[UNIT_KINDS];  // one row a stage: the time of each kind of unit, > 0
    double transfer;                   // of a message; those of one FIFO go one after the other
    int depth;                         // messages that are kept between two ranks, at most. 0: rendezvous
} timeline_costs;

typedef struct timeline_bar {
    double start, end;
    unit_kind kind;
    int stage, micro;
} timeline_bar;

typedef struct timeline_rank {
    int bars;
    timeline_bar *bar;  // its units, in order
    double busy;
    double idle;  // share of the makespan in which it runs nothing
    int held;     // activations at once: (stage, micro-batch) between FORWARD and the last unit that reads them
} timeline_rank;

typedef struct timeline {
    int ranks;
    timeline_rank *rank;
    double makespan;
    double idle;  // of all ranks
} timeline;

// Runs tables[0 .. p-1]. Freed with timeline_free. ERR_INTERNAL: no memory; what trainer/step/table_check.h refuses;
// the two ends of a FIFO name other messages; a slot is free before its output has left; or the tables never end: the
// text says what each rank in the circle waits for.
err_t timeline_run(const pipeline_layout *l, const unit_table *tables, const timeline_costs *c, timeline *out);

// The same for the tables of the layout, with the fewest buffers it has. ERR_CONFIG: there is no such schedule.
err_t timeline_of(const pipeline_layout *l, const timeline_costs *c, timeline *out);

// If blocks take as long as their flops say. Stage s has the blocks cut[s] .. cut[s+1]-1. net NULL: all stages take the
// same.
err_t timeline_of_flops(const pipeline_layout *l, const model *net, const int *cut, recomputation again, timeline *out);

void timeline_free(timeline *t);

// The drawing: a row for each rank, and a column for each `column` of time. A digit is a forward unit, a small letter a
// backward unit (both halves, or the inputs' half), a capital the weights' half: 3, d and D are of micro-batch 3, 13,
// 23, ... A point is waiting. Lines have at most 120 characters: what is longer is folded into up to TIMELINE_FOLDS
// parts, one below the other; what is still longer is sampled, and the first line says what a column stands for. Like
// snprintf: fills dst up to room, always with a terminating zero if room > 0, and returns the length of the whole.
enum { TIMELINE_WIDTH = 120, TIMELINE_FOLDS = 4 };
size_t timeline_draw(const timeline *t, double column, char *dst, size_t room);

#endif
