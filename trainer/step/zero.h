// trainer/step/zero.h: which rank owns what. The rows of the parameter table are laid side by side in one slab.
// Segments of it (a block's rows) are dealt to the ranks in whole chunks, and are grouped into buckets in the order in
// which backward finishes them.
//
// ZeRO (Rajbhandari et al. 2020, section 5): the stage says of which tensors a rank keeps only the range that it owns:
//   0  none: everything is everywhere     1  masters and optimizer state     2  also the sum of gradients     3  also
//      weights
// The owners depend on the model, on which of its rows have to be whole (model/param.h), on the number of ranks and on
// their weights only, not on stage, bucket size or number of nodes.
#ifndef TRAINER_STEP_ZERO_H
#define TRAINER_STEP_ZERO_H

#include "model/model.h"

typedef struct zero_shards {
    bool masters, gradients, weights;
} zero_shards;  // masters: with what the optimizer keeps of them

static inline zero_shards zero_shards_of(int stage) { return (zero_shards){stage >= 1, stage >= 2, stage >= 3}; }

typedef struct zero_segment {
    int block;         // the block that uses its rows
    int chunk;         // of the pipeline (zero_options)
    int first, rows;   // in the table
    size_t at, count;  // floats in the slab, row padding included: it is zero and goes with the last chunk
    bool tied;         // its rows share another row's values: it has only a gradient
} zero_segment;

// Whole segments of one chunk, at least one, until bucket_mb is reached.
typedef struct zero_bucket {
    int first, count;  // segments
    int chunk;
    int block;          // the bucket is final when backward has left this block
    size_t at, floats;  // in the slab
    // the first of those before it whose segments are cut as its own are: ranks send and add as much of each
    int alike;
} zero_bucket;

// Consecutive elements of one slice of a row. Slices are numbered as in the whole row, also where only some of them are
// here.
typedef struct zero_piece {
    int row, segment, slice;
    int64_t first, count;  // elements of the slice, in memory's order; first is a multiple of CHUNK
    size_t slab, shard;    // where it begins in a slab and in this rank's shard, floats
} zero_piece;

typedef struct zero_layout {
    int rank, world;
    model_slices here;
    int segments, buckets, owned, wholes;
    zero_segment *segment;
    size_t *cut;                 // (segments, world+1) floats from the segment's start
    zero_bucket *bucket;         // in the order of backward: the last block's first
    size_t *row_at;              // where each row begins in the slab; ZERO_ELSEWHERE: it is not here, or frozen
    zero_piece *piece;           // what this rank owns, `owned` of them, in order of the table, tied rows included
    zero_piece *whole;           // all slices of the rows that are here, `wholes` of them, as pieces
    size_t *shard_at;            // [segments] where this rank's range begins in its shard
    size_t *slab_at;             // [segments] where it begins in the slab
    size_t slab, values;         // floats: of all rows; of rows that are not tied, which come first
    bool joined;                 // tied rows use the memory of the rows whose values they share
    size_t shard, shard_values;  // the same of this rank's ranges
} zero_layout;

#define ZERO_ELSEWHERE SIZE_MAX

typedef struct zero_options {
    int rank, world;  // of those that share rows: those of one stage that have the same slices
    // [world] how much each owns beside the others, 0: nothing; some are above 0. NULL: all as much
    const int64_t *weight;
    model_slices here;  // which slices of divided rows are here; all 0: all of them
    // [blocks] which of this rank's ranges of blocks a block is in; -1: it runs on another stage. NULL: all are here
    const int *chunk;
    size_t bucket_bytes;
    // A step is one micro-batch of one lane, and so of one rank. Then a tied row's gradient is final before its
    // partner's is added, and backward adds the partner's on top of it (model.h): a + b has the same bits as a + (0 +
    // b). The slab has no place of its own for the tied row.
    bool joined;
} zero_options;

err_t zero_open(zero_layout *z, const model *net, const zero_options *o);
void zero_close(zero_layout *z);

// From now on the layout is that of another rank of those that share rows.
void zero_own(zero_layout *z, const model *net, int rank);

// Of a row the first slice that is here, and how many are. A row that is not divided has one, which is everywhere.
static inline int zero_first(const zero_layout *z, const param *p) { return param_slices(p) > 1 ? z->here.first : 0; }
static inline int zero_slices(const zero_layout *z, const param *p) { return param_slices(p) > 1 ? z->here.count : 1; }

// Is the row whose values this one shares here too? Where the two are on different stages, this one has a gradient and
// a copy of the values.
static inline bool zero_has(const zero_layout *z, int row) { return z->row_at[row] != ZERO_ELSEWHERE; }

// Floats of a rank's range of a segment.
static inline size_t zero_range(const zero_layout *z, int segment, int rank) {
    const size_t *cut = &z->cut[(size_t)segment * (size_t)(z->world + 1)];
    return cut[rank + 1] - cut[rank];
}

#endif
