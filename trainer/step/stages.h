// trainer/step/stages.h: a model cut into the stages of a pipeline: which blocks this rank runs, in which order, and
// what it holds of them.
#ifndef TRAINER_STEP_STAGES_H
#define TRAINER_STEP_STAGES_H

#include "model/model.h"
#include "trainer/step/pipeline.h"

typedef struct stage_options {
    pipeline_kind kind;
    int ranks, rank;   // of the pipeline
    int chunks;        // stages of a rank
    int64_t micros;    // of a step, that pass through this pipeline
    const char *cuts;  // "5 4 3": blocks of each stage; "" or NULL: even work
} stage_options;

typedef struct stages {
    pipeline_layout pipe;
    int rank, count;   // stages in all
    int *cut;          // [count+1] stage s has blocks cut[s] .. cut[s+1]-1
    int *chunk;        // [blocks] which of this rank's stages has the block, -1: none. NULL: one rank, which has all
    unit_table table;  // of a step; its slots are numbered stage by stage. With one rank: forward and backward in turns
    int *slots;        // [blocks] that the block keeps at a time; 0: it is not here
    int input_slots;   // micro-batches whose inputs are held at a time, by the rank's table
    int *input_slot;   // [micros] where a micro-batch's inputs are
    bool ahead;        // a micro-batch's inputs come while the one before is computed: its rows on demand are fetched
} stages;

// ERR_CONFIG: more stages than blocks, cuts that don't add up, or no such schedule.
err_t stages_open(stages *x, const model *net, const stage_options *o);
void stages_close(stages *x);

// One rank, which has all blocks: from now on it runs so many micro-batches.
err_t stages_deal(stages *x, int64_t micros);

// Chunk c of this rank: its stage, and the stage's first and last block.
static inline int stages_of(const stages *x, int c) { return pipeline_stage_of(&x->pipe, x->rank, c); }

// Which of this rank's stages has the block, of those that are here.
static inline int stages_chunk(const stages *x, int block) { return x->chunk ? x->chunk[block] : 0; }

// The stage that has the block.
static inline int stages_with(const stages *x, int block) {
    int s = 0;
    while (x->cut[s + 1] <= block) s++;
    return s;
}

// The rank of the pipeline that has the stage.
static inline int stages_rank(const stages *x, int stage) { return pipeline_rank_of(&x->pipe, stage); }

// cut [count+1] (=) ranges of the blocks whose largest sum of work is as small as can be; of those the first ones are
// the shortest. stages_balance: the work is the blocks' flops.
void stages_cut(const double *work, int blocks, int count, int *cut);
void stages_balance(const model *net, int count, int *cut);

#endif
