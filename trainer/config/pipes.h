// trainer/config/pipes.h: which pipelines there are: the arithmetic that settings are checked with before a run, and
// schedules when they are made.
#ifndef TRAINER_CONFIG_PIPES_H
#define TRAINER_CONFIG_PIPES_H

#include "trainer/config/config.h"

typedef enum {
    PIPE_FITS,
    PIPE_EMPTY,     // no ranks or no micro-batches
    PIPE_CHUNKS,    // a rank can't have so many stages in this schedule
    PIPE_GROUPS,    // interleaved: the micro-batches are no multiple of the ranks
    PIPE_TOO_FEW,   // zb-v: fewer micro-batches than ranks
    PIPE_TOO_MANY,  // more units of work than a table holds: pipe_most_micros
} pipe_fault;

// A schedule with so many stages on each of `ranks`, and so many micro-batches of a step.
pipe_fault pipe_judge(pipeline_kind schedule, int64_t ranks, int64_t chunks, int64_t micros);

// Are so many stages on each rank possible? wanted: how many else.
bool pipe_has_chunks(pipeline_kind schedule, int64_t chunks, int *wanted);

int64_t pipe_most_micros(int64_t ranks, int64_t chunks);

// "5 4 3" is `count` numbers of 1 or more that add up to `blocks`. cut [count+1] (=) where each stage begins; NULL:
// only whether.
bool pipe_cuts(const char *text, int count, int blocks, int *cut);

// "4,2,1,1" is `ranks` whole numbers that add up to `lanes`: how many each of those has that share them. count [ranks]
// (=) them; NULL: only whether.
bool pipe_deal(const char *text, int ranks, int64_t lanes, int64_t *count);

// The lanes of each of g->data that share them, where [parallel] deal says it, or where some are servers. false: they
// are as equal as they can be, or `deal` does not fit. count: [data]
bool pipe_lanes(const config *c, const grid *g, int64_t *count);

// Micro-batches of a step of one that has so many lanes. One without lanes still takes part in what all do.
int64_t pipe_micros_of(const config *c, int64_t lanes);

// Micro-batches of a step that pass through pipeline `d` of those that share the lanes.
int64_t pipe_micros(const config *c, const grid *g, int d);

#endif
