// trainer/step/state.h: the tensors of a run on this rank: what a checkpoint holds, and the gradients of one step. The
// ZeRO stage (trainer/step/zero.h) decides which of them are whole and which hold only this rank's share.
#ifndef TRAINER_STEP_STATE_H
#define TRAINER_STEP_STATE_H

#include "comm/cost.h"
#include "comm/reduce.h"
#include "comm/server/table.h"
#include "gpu/gpu.h"
#include "gpu/ops.h"
#include "model/model.h"
#include "trainer/checkpoint/order.h"
#include "trainer/config/config.h"
#include "trainer/step/frozen.h"
#include "trainer/step/optimizer.h"
#include "trainer/step/outer_room.h"
#include "trainer/step/muon.h"
#include "trainer/step/packed.h"
#include "trainer/step/row_rules.h"
#include "trainer/step/spilled.h"
#include "trainer/step/zero.h"

// One number for each value in the parameter table: all rows side by side, or only the ranges that this rank owns.
// name: what stands before the rows' names in a checkpoint.
typedef struct store {
    const char *name;
    tensor t;
    bool sharded;
} store;

typedef struct state_options {
    dtype compute;
    int stage;             // ZeRO, 0 with one rank
    offload_kind offload;  // masters and optimizer state in host memory, or in a file
    bool training;         // else no optimizer state and no gradients
    const optimizer *optimizer;
    const optimizer_keys *keys;  // what [optimizer] says
    bool fixed;                  // [reduce] order
    codec compress, back;        // [reduce] compress, compress_back
    int64_t kept;                // compress = topk: elements of a chunk that are sent; 0: no topk
    int64_t density_warmup;      // steps that send more
    int64_t compress_span;       // lanes that are added before they are coded, a subtree of them; 0: one
    double lane_clip;            // topk: the largest norm of a lane's gradient; 0: it is not clipped
    bool stochastic;             // [precision] rounding; seed: [run] seed
    uint64_t seed;
    // of a step; micro-batches of a lane. A lane whose token slices are on several ranks counts as so many lanes
    int64_t lanes, micros;
    const int64_t *deal;    // lanes of each rank that shares rows; NULL: as equal as they can be (comm/ordered.h)
    bool moves;             // state_deal may follow
    const int64_t *weight;  // what each of them owns beside the others; NULL: all as much (zero_options)
    int workers;            // how many of those with the same rows may have lanes: the first ones
    bool passing;           // in stages 1 and 2 the others keep only the weights that they own, and pass all on
    bool passes;            // ... as this rank does
    bool serves;            // this rank has no lanes in any deal, in stages 1 to 3: it keeps no lane's gradients
    // The last `servers` of those with the same rows apply gradients as they come (trainer/step/served.h). server: this
    // rank's communicators with them, or with the others where it is one; NULL on paper. 0: they do not
    int servers;
    comm **server;
    comm *islands;     // ranks with the same place in other islands (trainer/step/outer.h). NULL: there are none
    bool steps_outer;  // [outer] type = nesterov, with its lr and momentum
    double outer_lr, outer_momentum;
    codec outer_codec;  // [outer] compress
    bool own_moments;   // what the optimizer keeps is each island's own
    bool apart;         // islands never all hold the same: [outer] fragments, or overlap
    const char *fragments;
    int64_t every, overlap;
    double keep;
    bool shows_mean;  // trainer/step/mean_shown.h
    bool once_each;   // a token slice of a lane adds to every element of its gradient once
    bool once;        // so does a lane, which has one (comm/ordered.h: joins)
    size_t bucket_bytes;
    int threads;              // offload: of the host's update
    spilled_options spilled;  // offload = nvme, and rows on demand that are in a file
    int64_t rows_memory;      // bytes of rows on demand in memory; 0: all of them
    // Of a pipeline: which blocks are here (zero_options), all ranks of the run, and, where the first stage and the
    // last share a tensor, the link between them. NULL: no pipeline.
    const int *chunk;
    comm *all, *tie;
    // Ranks that share layers: which slices are here, and those that have the others. count 0, NULL: all are here.
    model_slices here;
    comm *tensor;
    model_tokens tokens;  // token slices that are here. count 0: all
} state_options;

typedef struct train_state {
    model *net;
    device *dev;
    stream *s;
    comm *ranks;  // those that have the same rows: all, or those of the same stage
    comm *all;
    state_options o;
    zero_shards shards;  // what the stage means: nothing else asks for its number
    bool turns;          // lanes are dealt in turns, each of which is reduced
    zero_layout zero;
    reducer *reduce;
    reduce_cost *reduction;  // [turns * buckets] what each bucket's takes and moves
    arena memory;            // on the device
    arena host;              // offload: masters and optimizer state, or windows of them, and the staging below
    spilled spilled;  // of offload = nvme: then the masters and the optimizer's arrays are there, and have no data here
    store masters;    // FP32 weights
    int arrays;
    // [arrays] FP32: what the optimizer keeps; then the outer optimizer's momentum, if any, and of islands that are
    // apart the anchor, with overlap the means that are not mixed in yet, and the mean of the masters, which is shown
    store *array;
    tensor *of_piece;  // [arrays] of the piece that is being updated
    store anchor;      // the masters of the last boundary, as what the optimizer keeps: state_has_anchor
    outer_room outer;
    // With shows_mean: the masters while their mean is in their place, and the step_state (INT32) of an applied step.
    // Both lie where the masters do.
    store aside;
    tensor mean_step;
    bool mean_is_shown;
    frozen frozen;    // rows that are in no store
    row_table *rows;  // this rank's of those that are made on demand; NULL: the model has none
    int *row_cut;     // [ranks + 1] as row_cuts: which buckets each rank owns
    row_rule *rule;   // [params]
    muon_room muon;
    store weights;            // compute type: what a pass reads; the masters themselves in FP32 without offload
    tensor stage_w, stage_g;  // offload: staging for the largest piece, or a chunk of one, compute type and FP32
    device *host_dev;         // offload: the CPU that updates
    stream *host_s;
    // Rows as the model sees them. Stage 3: data is set when a block's weights are gathered.
    tensor *w;
    tensor *master;  // data only where masters are whole
    // Gradients: one slab for each buffer of the lane counter, all rows side by side; grad[buffer * params + row] is a
    // view.
    int buffers;
    tensor *slab, *grad;
    // A pass's gradients, one for each token slice: the lane's buffer and those from `table` on, which are added to it
    // when the lane ends.
    int tables, table;
    // Stages 2 and 3 with one micro-batch a lane keep no slab: buckets take turns in these slots, and grad[row] moves
    // along.
    int slots;
    tensor *slot;
    // In turns: counters over this rank's ranges, and the whole sum of them, which is kept[0] where lanes are coded.
    int kepts;
    tensor *kept, sum;
    // Where lanes are coded (trainer/step/packed.h): messages, and what was left out: of each lane of this rank, like a
    // slab, and of the sums that it owns.
    packed_stages packed;
    tensor out, in;  // bytes
    // With lane_clip: squares of a lane's chunks, and a step_state that is decided for the lane alone.
    tensor lane_sums, lane_step;
    step_rules lane_rules;
    int residuals;
    tensor *residual, residual_back, *velocity;              // velocity: topk only, as residual
    tensor *residual_mirror, back_mirror, *velocity_mirror;  // pinned copies, as `mirror`
    char (*residual_name)[CKPT_GROUP_NAME];                  // [2*lanes]: residuals, velocities
    char (*island_name)[CKPT_GROUP_NAME];                    // [state_island_groups]
    // A row of the last stage that shares the values of one of the first: a copy of the values there; the gradient that
    // comes from there, here.
    // the row of values, of which another stage has a use; the row that uses another stage's. -1: none
    int lent, borrowed;
    tensor copy, use;  // (V,C) with its padding, compute type; FP32, of this rank's share or whole (state_tied)
    tensor scratch;    // of the ordered reduction
    tensor gather[2];  // stage 3: weights of two blocks
    tensor through;    // of one that passes weights on: the largest segment of them
    // Values of rows that are FP32 in 16-bit passes, of all segments one after the other, whole on every rank. No size:
    // there are none, or the masters are whole and here.
    tensor exact;
    size_t *exact_at;  // [params] where such a row begins in it
    int sum_buffer;    // stages 0 and 1: the slab that holds the final sum
    tensor step;       // on the device, as raw INT32 words: one step_state, and after it the optimizer's scalars
    int scalars;
    step_scalar *scalar;  // [scalars]: a copy on the host, as of the last state_publish or state_fetch
    // Where the host can't read device memory: a pinned copy of the masters and the optimizer's arrays, as far as this
    // rank owns them, for checkpoints, hashes and initial values. No data: the stores are read directly.
    tensor *mirror;        // [1 + arrays] FP32 (shard_values): masters first
    bool *uses;            // (blocks, segments) for state_uses
    size_t *cuts;          // world+1 numbers, for state_cuts
    ckpt_state ckpt;       // the same tensors as a checkpoint sees them,
    ckpt_tensor *tensors;  // in this table
} train_state;

// state_open declares everything, state_commit allocates it; a plan needs only state_open. ranks: that share rows; it
// outlives the state.
err_t state_open(train_state *t, model *net, device *dev, stream *s, comm *ranks, const state_options *o);
err_t state_commit(train_state *t);
void state_close(train_state *t);

// Between two steps, where stage 0 or 1 was opened with `moves`: another deal, the same on all ranks. The memory stays.
err_t state_deal(train_state *t, const int64_t *deal);

// Bytes that state_commit allocates. Beside them, of rows on demand what the rank may keep in memory; 0: it owns none,
// or all of them are there.
size_t state_bytes(const train_state *t);
int64_t state_rows_memory(const train_state *t);

// Before state_init, in a state that has trained: what the optimizer keeps is as it was at the beginning.
err_t state_forget(train_state *t);

// Random initial values (model_init), or weights that others made (model/weights.h), for a model of these options.
// Collective.
err_t state_init(train_state *t, uint64_t seed);
err_t state_init_from(train_state *t, const char *path, const void *options, unsigned lenient, uint64_t seed);

// After this rank's own masters, optimizer state and step_state were set from outside: updates everything derived from
// them, here and on the other ranks of the stage. Scalars go to the device; those that follow from the number of
// updates are computed again. Collective. In a pipeline, tied_values (trainer/step/tied.h) follows.
err_t state_publish(train_state *t);

// The same where a run begins: all islands begin with the first one's masters.
err_t state_begin(train_state *t);

// After this rank's own masters and optimizer state were mixed on the device: what is derived from them. Collective.
// rows: [params] those that were; NULL: all, with all that the optimizer keeps.
err_t state_mixed(train_state *t, const bool *rows);

// After the masters that the optimizer updates here were changed: what is derived from them alone. Collective.
err_t state_derive(train_state *t);

comm_cost state_mixed_cost(train_state *t, const bool *rows);  // what this rank sends for that

// Before a checkpoint or a hash: brings the owned masters, and with `all` also what the optimizer keeps, to where the
// host reads them. Waits for the device.
err_t state_fetch(train_state *t, bool all);

// The pieces that the optimizer updates on this rank: all rows in stage 0, else what the rank owns.
const zero_piece *state_pieces(const train_state *t, int *count);

// How the piece's masters are rounded to weights: fills in and returns key (stochastic), or NULL (to nearest).
const rounding_key *state_rounding(const train_state *t, const zero_piece *p, rounding_key *key);

// Elements of a row that this rank updates: those of all its pieces.
int64_t state_count_of(const train_state *t, int row);

// The order in which a row's elements lie in stores and slabs: slice after slice.
ckpt_order state_order(const train_state *t, int row);

// Views of a piece, one-dimensional.
static inline tensor store_view(const store *x, const zero_piece *p) {
    size_t at = (x->sharded ? p->shard : p->slab) * dtype_bytes(x->t.type);
    return (tensor){x->t.data ? (char *)x->t.data + at : NULL, x->t.type, 1, {p->count, 1, 1, 1}};
}
tensor state_gradient(const train_state *t, const zero_piece *p);  // of the step's complete sum

// Does a pass through the block read this segment's values? (The block's own rows, and the rows that its tied rows
// share.)
static inline bool state_uses(const train_state *t, int block, int segment) {
    return t->uses[block * t->zero.segments + segment];
}

// Queued: makes a segment of the weights, or of masters that are the weights, whole on all ranks but those that pass it
// on. over: t->ranks.
err_t state_gather(train_state *t, const store *x, int segment, comm *over, stream *s);

// Where a segment is cut between ranks, for all_gather, in units of `element` bytes each: world+1 offsets in bytes,
// valid until the next call.
const size_t *state_cuts(train_state *t, int segment, size_t element);

// Rows whose values are FP32 in 16-bit passes, where each rank needs a copy of what others update. Has a segment any?
// The piece's new values, which are at `master`, to its place on the device. A segment's places, and where they are cut
// between ranks (bytes, as state_cuts; none: all zero).
bool state_has_exact(const train_state *t, int segment);
err_t state_copy_exact(train_state *t, const zero_piece *p, const tensor *master, stream *s);
const size_t *state_exact_cuts(train_state *t, int segment, char **at);

// Is the mean over islands the gradient of an outer step?
static inline bool state_steps_outer(const train_state *t) { return t->o.training && t->o.islands && t->o.steps_outer; }

// Are there islands that never all hold the same?
static inline bool state_apart(const train_state *t) { return t->o.training && t->o.islands && t->o.apart; }

// Do islands that all hold the same at boundaries send how far they have gone from the masters of the last one, or go
// on from these? Those that are apart have the anchor among the arrays.
static inline bool state_has_anchor(const train_state *t) {
    bool needs = t->o.steps_outer || t->o.outer_codec != CODEC_NONE;
    return t->o.training && t->o.islands && needs && !state_apart(t);
}

// Arrays of islands that are apart.
static inline int state_apart_arrays(const train_state *t) { return state_apart(t) ? 2 + (t->o.overlap > 0) : 0; }

// Arrays of the optimizer of steps, without those of islands.
static inline int state_moments(const train_state *t) {
    return t->arrays - state_steps_outer(t) - state_apart_arrays(t);
}

static inline store *state_anchor(train_state *t) {
    return state_apart(t) ? &t->array[t->arrays - state_apart_arrays(t)] : &t->anchor;
}
static inline store *state_flight(train_state *t) { return &t->array[t->arrays - 2]; }

// Which of the stores has the run's weights, as a checkpoint shows them: the masters (0), or their mean.
static inline int state_shown(const train_state *t) { return state_apart(t) ? t->arrays : 0; }

// Are lanes coded on their way?
static inline bool state_codes(const train_state *t) {
    return t->o.training && (t->o.compress != CODEC_NONE || t->o.kept);
}

// Subtrees of lanes that are coded, each with what was left out of it.
static inline int64_t state_spans(const train_state *t) {
    return t->o.compress_span ? t->o.lanes / t->o.compress_span : t->o.lanes;
}

// Is the sum of what a rank owns apart, and not in the lanes' gradients?
static inline bool state_has_sum(const train_state *t) { return t->shards.gradients || t->o.serves; }

// Numbers of this rank that a checkpoint saves.
int64_t state_saved(const train_state *t);

// The same of another rank that shares rows, of what it owns of masters and of the optimizer's state alone.
int64_t state_saved_by(const train_state *t, int rank);

// Are masters and optimizer state in a file?
static inline bool state_spills(const train_state *t) { return t->o.offload == OFFLOAD_NVME; }

// Does the optimizer look at whole rows?
static inline bool state_has_rows(const train_state *t) { return t->o.training && t->o.optimizer->rows; }

// The step_state: host to device and back (waits).
err_t state_set_step(train_state *t, const step_state *from);
err_t state_get_step(train_state *t, step_state *to);

static inline step_state *state_step(const train_state *t) { return t->step.data; }

// The optimizer's scalars, which follow their step_state in memory.
static inline step_scalar *state_scalars(const step_state *of) { return (step_scalar *)(void *)(of + 1); }

// --- for state.c, state_values.c and state_saved.c -------------------------------------------------------------------

static inline void *state_at(const tensor *t, size_t element) {
    return t->data ? (char *)t->data + element * dtype_bytes(t->type) : NULL;
}
static inline tensor state_flat(void *data, dtype type, int64_t n) { return (tensor){data, type, 1, {n, 1, 1, 1}}; }

// Does a pass read the masters themselves?
static inline bool state_shares_masters(const train_state *t) { return t->o.compute == FP32 && !t->o.offload; }

// Masters (0), then what the optimizer keeps; and where the host reads and writes a piece of it, NULL: in a file.
store *state_store(train_state *t, int k);
float *state_host(train_state *t, int k, const zero_piece *p);

// The optimizer's k-th scalar.
optimizer_scalar state_scalar(const train_state *t, int k);

// Groups of a checkpoint after those of the optimizer: what was left out of each lane, and of their sums.
int state_residual_groups(const train_state *t);

// And after these: what each island but the first has of its own, and what was left out of islands' deltas.
int state_island_groups(const train_state *t);

// The masters, as the only group of a checkpoint that is read for its weights.
ckpt_group state_masters(const train_state *t);

// After state_commit has its memory: t->ckpt (=) the groups of a checkpoint. Collective.
err_t state_link(train_state *t);

// step_state from a run's progress.
void state_from_progress(step_state *to, const run_progress *at, const config *c);

#endif
