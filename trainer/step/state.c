// trainer/step/state.c: see trainer/step/state.h. Masters, what the optimizer keeps and gradients are FP32 whatever the
// compute type.
#include "trainer/step/state.h"

#include "base/philox.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

// --- planning --------------------------------------------------------------------------------------------------------

// Of one dimension. A rank may own nothing, or, beside frozen weights, have nothing that is trained.
static err_t declare(arena *a, tensor *t, dtype type, size_t n) {
    t->type = type;
    return n ? arena_1d(a, t, type, (int64_t)n) : ERR_OK;
}

static err_t declare_store(arena *a, store *x, dtype type, bool sharded, const zero_layout *z) {
    size_t n = sharded ? z->shard_values : z->values;
    x->sharded = sharded;
    return declare(a, &x->t, type, n);
}

static size_t largest_piece(const train_state *t) {
    int count;
    const zero_piece *p = state_pieces(t, &count);
    size_t most = 1;
    for (int i = 0; i < count; i++)
        if ((size_t)p[i].count > most) most = (size_t)p[i].count;
    return most;
}

// A CPU computes in host memory, and offload keeps masters and optimizer state there: neither needs mirrors. What was
// left out of lanes is never offloaded.
static bool is_on_gpu(const train_state *t) { return device_about(t->dev)->kind == DEVICE_CUDA; }
static bool needs_mirrors(const train_state *t) { return is_on_gpu(t) && !t->o.offload; }

static err_t declare_mirrors(train_state *t) {
    if (!needs_mirrors(t) || !t->zero.shard_values) return ERR_OK;
    for (int k = 0; k < 1 + t->arrays; k++) TRY(declare(&t->host, &t->mirror[k], FP32, t->zero.shard_values));
    return ERR_OK;
}

// The optimizer's, by the names that it gives them; none where nothing is updated.
static err_t declare_arrays(train_state *t, arena *a) {
    for (int k = 0; k < t->arrays; k++) TRY(declare_store(a, &t->array[k], FP32, t->shards.masters, &t->zero));
    return ERR_OK;
}

static err_t declare_outer(train_state *t) {
    if (!t->o.training || !t->o.islands) return ERR_OK;
    const outer_options o = {.islands = t->o.islands->world,
                             .island = t->o.islands->rank,
                             .codec = t->o.outer_codec,
                             .moments = !t->o.own_moments && state_moments(t) > 0,
                             .on_gpu = is_on_gpu(t),
                             .apart = t->o.apart,
                             .fragments = t->o.fragments,
                             .every = t->o.every,
                             .overlap = t->o.overlap};
    TRY(outer_room_open(&t->outer, &t->zero, t->net, &o, &t->memory, &t->host));
    return state_has_anchor(t) ? declare_store(&t->memory, &t->anchor, FP32, t->shards.masters, &t->zero) : ERR_OK;
}

// Are the weights of other ranks elsewhere?
static bool shards_weights(const train_state *t) { return t->shards.weights || t->o.passes; }

// Nothing of them is in memory but windows.
static err_t declare_spilled(train_state *t) {
    TRY(declare_store(&t->memory, &t->weights, t->o.compute, shards_weights(t), &t->zero));
    TRY(spilled_open(&t->spilled, &t->host, &t->zero, t->net, t->arrays, &t->o.spilled));
    TRY(arena_1d(&t->host, &t->stage_w, t->o.compute, CHUNK));
    return arena_1d(&t->host, &t->stage_g, FP32, CHUNK);
}

// Beside the masters.
static err_t declare_aside(train_state *t, arena *a) {
    if (!t->o.training || !t->o.shows_mean) return ERR_OK;
    TRY(declare_store(a, &t->aside, FP32, t->shards.masters, &t->zero));
    return arena_1d(a, &t->mean_step, INT32, (int64_t)(sizeof(step_state) + 3) / 4);
}

static err_t declare_values(train_state *t) {
    const zero_layout *z = &t->zero;
    arena *a = t->o.offload ? &t->host : &t->memory;
    bool share = state_shares_masters(t);
    if (state_spills(t)) return declare_spilled(t);
    TRY(declare_store(a, &t->masters, FP32, share ? shards_weights(t) : t->shards.masters, z));
    if (!share) TRY(declare_store(&t->memory, &t->weights, t->o.compute, shards_weights(t), z));
    TRY(declare_arrays(t, a));
    TRY(declare_aside(t, a));
    TRY(declare_outer(t));
    if (!t->o.training || !t->o.offload) return ERR_OK;
    TRY(arena_1d(a, &t->stage_w, t->o.compute, (int64_t)largest_piece(t)));
    return arena_1d(a, &t->stage_g, FP32, (int64_t)largest_piece(t));
}

// Floats of a row in a slab.
static size_t row_floats(const zero_layout *z, const param *p) {
    return (size_t)(zero_slices(z, p) * param_slice_room(p));
}

// Masters that are whole on every rank's device serve themselves.
static err_t declare_exact(train_state *t) {
    size_t n = 0;
    t->exact_at = calloc((size_t)t->net->params, sizeof *t->exact_at);
    if (!t->exact_at) return err_set(ERR_INTERNAL, "no memory for a table of %d parameters", t->net->params);
    if (t->o.compute == FP32 || (!t->shards.masters && !t->o.offload)) return ERR_OK;
    for (int i = 0; i < t->net->params; i++) {
        t->exact_at[i] = n;
        if (t->net->param[i].fp32 && zero_has(&t->zero, i)) n += row_floats(&t->zero, &t->net->param[i]);
    }
    return n ? arena_1d(&t->memory, &t->exact, FP32, (int64_t)n) : ERR_OK;
}

// Buckets that one block touches, at most.
static int buckets_of_a_block(const train_state *t) {
    const zero_layout *z = &t->zero;
    int most = 1;
    for (int b = 0; b < t->net->blocks; b++) {
        int n = 0;
        for (int k = 0; k < z->buckets; k++)
            n += z->bucket[k].block <= b && z->segment[z->bucket[k].first + z->bucket[k].count - 1].block >= b;
        if (n > most) most = n;
    }
    return most;
}

// Slots for the buckets of a block, plus one for a bucket that may still be on its way to the owners.
static err_t declare_slots(train_state *t) {
    const zero_layout *z = &t->zero;
    int wanted = buckets_of_a_block(t) + 1;
    t->slots = wanted < z->buckets ? wanted : z->buckets;
    t->slot = calloc((size_t)t->slots, sizeof *t->slot);
    if (!t->slot) return err_set(ERR_INTERNAL, "no memory for %d slots", t->slots);
    for (int i = 0; i < t->slots; i++) {
        size_t most = 0;
        for (int k = i; k < z->buckets; k += t->slots)
            if (z->bucket[k].floats > most) most = z->bucket[k].floats;
        if (t->o.serves) continue;
        TRY(declare(&t->memory, &t->slot[i], FP32, most));
    }
    return ERR_OK;
}

static err_t declare_slabs(train_state *t) {
    t->slab = calloc((size_t)t->buffers, sizeof *t->slab);
    if (!t->slab) return err_set(ERR_INTERNAL, "no memory for %d buffers", t->buffers);
    for (int b = 0; b < t->buffers && !t->o.serves; b++) TRY(declare(&t->memory, &t->slab[b], FP32, t->zero.slab));
    return ERR_OK;
}

static err_t declare_counters(train_state *t) {
    t->kepts = t->o.fixed ? reduce_kept(t->reduce) : 0;
    t->kept = calloc((size_t)t->kepts + 1, sizeof *t->kept);
    if (!t->kept) return err_set(ERR_INTERNAL, "no memory for %d counters", t->kepts);
    if (!t->zero.shard) return ERR_OK;
    for (int i = 0; i < t->kepts; i++) TRY(arena_1d(&t->memory, &t->kept[i], FP32, (int64_t)t->zero.shard));
    return arena_1d(&t->memory, &t->sum, FP32, (int64_t)t->zero.shard);
}

static err_t plan_scratch(train_state *t, size_t *most) {
    int n = t->zero.buckets;
    size_t jobs = (size_t)reduce_turns(t->reduce) * (size_t)n;
    *most = 0;
    if (!t->reduction) t->reduction = calloc(jobs + 1, sizeof *t->reduction);
    if (!t->reduction) return err_set(ERR_INTERNAL, "no memory for %zu reductions", jobs);
    for (int64_t turn = 0; turn < reduce_turns(t->reduce); turn++)
        for (int k = 0; k < n; k++) {
            const zero_bucket *b = &t->zero.bucket[k];
            reduce_cost *cost = &t->reduction[turn * n + k];
            if (b->alike < k) *cost = t->reduction[turn * n + b->alike];
            else TRY(reduce_plan(t->reduce, turn, b->first, b->count, cost));
            if (cost->scratch > *most) *most = cost->scratch;
        }
    return ERR_OK;
}

// order = any: the transport adds up, and needs no plan.
static err_t declare_scratch(train_state *t) {
    size_t most;
    if (!t->o.fixed) return ERR_OK;
    TRY(plan_scratch(t, &most));
    return most ? arena_1d(&t->memory, &t->scratch, FP32, (int64_t)most) : ERR_OK;
}

// --- lanes in codes --------------------------------------------------------------------------------------------------

static err_t allocate_residuals(train_state *t) {
    t->residuals = (int)(reduce_lane_count(t->reduce, t->ranks->rank) / lane_table_span(reduce_lanes(t->reduce)));
    t->kepts = t->o.kept ? 1 : lane_counter_buffers(0, state_spans(t), true);
    t->kept = calloc((size_t)t->kepts, sizeof *t->kept);
    t->residual = calloc((size_t)t->residuals + 1, sizeof *t->residual);
    t->residual_mirror = calloc((size_t)t->residuals + 1, sizeof *t->residual_mirror);
    t->velocity = calloc((size_t)t->residuals + 1, sizeof *t->velocity);
    t->velocity_mirror = calloc((size_t)t->residuals + 1, sizeof *t->velocity_mirror);
    t->residual_name = calloc(2 * (size_t)state_spans(t), sizeof *t->residual_name);
    if (t->kept && t->residual && t->residual_mirror && t->velocity && t->velocity_mirror && t->residual_name)
        return ERR_OK;
    return err_set(ERR_INTERNAL, "no memory for the tables of %" PRId64 " lanes", t->o.lanes);
}

static err_t declare_clip(train_state *t) {
    int64_t chunks = 0;
    if (t->o.lane_clip <= 0) return ERR_OK;
    for (int i = 0; i < t->zero.wholes; i++) chunks += (t->zero.whole[i].count + CHUNK - 1) / CHUNK;
    t->lane_rules = (step_rules){.grad_clip = t->o.lane_clip};
    TRY(arena_1d(&t->memory, &t->lane_sums, FP64, chunks));
    return arena_1d(&t->memory, &t->lane_step, UINT8, (int64_t)sizeof(step_state));
}

// A rank without lanes still adds up its ranges of others' lanes.
static err_t declare_codes(train_state *t) {
    packed_sparse sparse = {t->o.kept, t->o.kept && !t->shards.masters};
    TRY(allocate_residuals(t));
    TRY(declare_clip(t));
    TRY(packed_open(&t->packed, &t->zero, t->net, t->o.compress, t->o.back, sparse, t->o.density_warmup));
    size_t out = t->packed.most_there > t->packed.most_back ? t->packed.most_there : t->packed.most_back,
           in = t->packed.most_own * (size_t)(t->ranks->world - 1);
    TRY(declare(&t->memory, &t->out, UINT8, out));
    if (in) TRY(arena_1d(&t->memory, &t->in, UINT8, (int64_t)in));
    for (int i = 0; i < t->residuals; i++) {
        TRY(declare(&t->memory, &t->residual[i], FP32, t->zero.slab));
        if (is_on_gpu(t)) TRY(declare(&t->host, &t->residual_mirror[i], FP32, t->zero.slab));
        if (!t->o.kept) continue;
        TRY(declare(&t->memory, &t->velocity[i], FP32, t->zero.slab));
        if (is_on_gpu(t)) TRY(declare(&t->host, &t->velocity_mirror[i], FP32, t->zero.slab));
    }
    size_t sums = packed_last(&t->packed)->sparse.all ? t->zero.slab : t->zero.shard;
    if (!sums) return ERR_OK;
    for (int i = 0; i < t->kepts; i++) TRY(arena_1d(&t->memory, &t->kept[i], FP32, (int64_t)sums));
    if (t->o.back == CODEC_NONE) return ERR_OK;
    TRY(arena_1d(&t->memory, &t->residual_back, FP32, (int64_t)t->zero.shard));
    return is_on_gpu(t) ? arena_1d(&t->host, &t->back_mirror, FP32, (int64_t)t->zero.shard) : ERR_OK;
}

// --- gradients -------------------------------------------------------------------------------------------------------

// The buffer that holds the first of this rank's subtrees after its last lane.
static int last_sum(const train_state *t) {
    const lane_table *l = reduce_lanes(t->reduce);
    int rank = t->ranks->rank;
    lane_counter c = lane_counter_of(lane_table_first(l, rank), lane_table_count(l, rank), t->o.once);
    return c.count ? c.span[0].buffer : 0;
}

// Two token slices that add to each element once need one table: a + b has the same bits as a + (0 + b). Without a
// fixed order all go into one.
static int tables_of(const train_state *t) {
    int tables = t->o.tokens.count ? t->o.tokens.count : 1;
    bool joins = tables == 2 && t->o.once_each;
    return t->o.fixed && !joins ? tables : 1;
}

static err_t declare_gradients(train_state *t) {
    bool turns = t->turns;
    TRY(reduce_open(&t->reduce, &(reduce_options){.ranks = t->ranks,
                                                  .ops = device_ops(t->dev),
                                                  .lanes = t->o.lanes,
                                                  .turns = turns,
                                                  .deal = t->o.deal,
                                                  .span = t->o.compress_span,
                                                  .moves = t->o.moves,
                                                  .once = t->o.once,
                                                  .segments = t->zero.segments,
                                                  .cut = t->zero.cut}));
    t->o.deal = reduce_lanes(t->reduce)->count;
    t->table = t->buffers = t->o.fixed ? reduce_lane_buffers(t->reduce) : 1;
    t->tables = tables_of(t);
    t->buffers += t->tables - 1;
    t->sum_buffer = t->o.fixed && !turns ? last_sum(t) : 0;
    t->grad = calloc((size_t)t->buffers * (size_t)t->net->params, sizeof *t->grad);
    if (!t->grad) return err_set(ERR_INTERNAL, "no memory for the tables of %d parameters", t->net->params);
    bool slots = t->shards.gradients && t->o.micros == 1 && !t->o.chunk && t->tables == 1 && !state_codes(t);
    TRY(slots ? declare_slots(t) : declare_slabs(t));
    if (state_codes(t)) return declare_codes(t);
    if (turns || state_has_sum(t)) TRY(declare_counters(t));
    return declare_scratch(t);
}

static bool finds_use(const train_state *t, int block, const zero_segment *s) {
    if (s->tied || s->block == block) return !s->tied;
    for (int i = 0; i < t->net->params; i++)
        if (t->net->param[i].block == block && t->net->param[i].tied == s->first) return true;
    return false;
}

static err_t fill_uses(train_state *t) {
    t->uses = calloc((size_t)t->net->blocks * (size_t)t->zero.segments, sizeof *t->uses);
    if (!t->uses) return err_set(ERR_INTERNAL, "no memory for a table of %d blocks", t->net->blocks);
    for (int b = 0; b < t->net->blocks; b++)
        for (int g = 0; g < t->zero.segments; g++)
            t->uses[b * t->zero.segments + g] = finds_use(t, b, &t->zero.segment[g]);
    return ERR_OK;
}

// Stage 3: blocks alternate between two places, so that one is gathered while the other is used.
static err_t declare_gather(train_state *t) {
    for (int parity = 0; parity < 2; parity++) {
        size_t most = 0;
        for (int b = parity; b < t->net->blocks; b += 2) {
            size_t n = 0;
            for (int g = 0; g < t->zero.segments; g++) n += state_uses(t, b, g) ? t->zero.segment[g].count : 0;
            if (n > most) most = n;
        }
        if (most) TRY(arena_1d(&t->memory, &t->gather[parity], t->o.compute, (int64_t)most));
    }
    return ERR_OK;
}

static err_t declare_through(train_state *t) {
    size_t most = 0;
    for (int g = 0; g < t->zero.segments; g++)
        if (!t->zero.segment[g].tied && t->zero.segment[g].count > most) most = t->zero.segment[g].count;
    return declare(&t->memory, &t->through, t->o.compute, most);
}

// Rows whose values are on one stage and used on another, too.
static void find_tie(train_state *t) {
    t->lent = t->borrowed = -1;
    for (int i = 0; i < t->net->params; i++) {
        int of = t->net->param[i].tied;
        if (of < 0 || zero_has(&t->zero, i) == zero_has(&t->zero, of)) continue;
        if (zero_has(&t->zero, i)) t->borrowed = i;
        else t->lent = of;
    }
}

static const zero_segment *segment_of(const train_state *t, int row) {
    for (int g = 0; g < t->zero.segments; g++)
        if (t->zero.segment[g].first == row) return &t->zero.segment[g];
    return NULL;  // not reached: a tied row is alone in its segment
}

static err_t declare_tie(train_state *t) {
    if (t->borrowed >= 0) TRY(arena_1d(&t->memory, &t->copy, t->o.compute, (int64_t)segment_of(t, t->borrowed)->count));
    int64_t lent = t->lent >= 0 && t->o.training ? state_count_of(t, t->lent) : 0;
    return lent ? arena_1d(&t->memory, &t->use, FP32, lent) : ERR_OK;
}

// Room for the largest of the matrices that are updated here.
static err_t declare_muon(train_state *t) {
    int count;
    const zero_piece *p = state_pieces(t, &count);
    for (int i = 0; t->o.training && i < count; i++)
        if (t->rule[p[i].row].muon) muon_count(&t->muon, &t->net->param[p[i].row]);
    return muon_declare(&t->muon, &t->memory, t->o.tensor);
}

// --- opening ---------------------------------------------------------------------------------------------------------

static void name_arrays(train_state *t) {
    int n = state_moments(t);
    for (int k = 0; k < n; k++) t->array[k].name = optimizer_array(t->o.optimizer, t->o.keys, k);
    if (state_steps_outer(t)) t->array[n].name = "outer";
    if (!state_apart(t)) return;
    if (t->o.overlap) state_flight(t)->name = "flight";
    state_anchor(t)->name = "anchor";
    t->array[t->arrays - 1].name = "";
}

static err_t allocate_tables(train_state *t) {
    size_t n = (size_t)t->net->params, islands = (size_t)state_island_groups(t),
           groups = 1 + (size_t)t->arrays + (size_t)state_residual_groups(t) + islands;
    t->master = calloc(n, sizeof(tensor));
    t->w = calloc(n, sizeof(tensor));
    t->cuts = calloc((size_t)t->ranks->world + 1, sizeof *t->cuts);
    t->array = calloc(groups, sizeof *t->array);
    t->of_piece = calloc(groups, sizeof *t->of_piece);
    t->mirror = calloc(groups, sizeof *t->mirror);
    t->ckpt.group = calloc(groups, sizeof *t->ckpt.group);
    t->tensors = calloc(groups * n, sizeof *t->tensors);
    t->island_name = calloc(islands + 1, sizeof *t->island_name);
    t->scalar = calloc((size_t)t->scalars + 1, sizeof *t->scalar);
    t->ckpt.scalar = calloc((size_t)t->scalars + 1, sizeof *t->ckpt.scalar);
    if (!t->master || !t->w || !t->cuts || !t->array || !t->of_piece || !t->mirror || !t->ckpt.group || !t->tensors ||
        !t->scalar || !t->ckpt.scalar || !t->island_name)
        return err_set(ERR_INTERNAL, "no memory for the tables of %zu parameters", n);
    for (int k = 0; k < t->scalars; k++) t->scalar[k] = state_scalar(t, k).begin;
    name_arrays(t);
    return ERR_OK;
}

// One slice after the other: where columns are divided, each slice is a matrix of its own. Of slices that are elsewhere
// there is nothing.
static tensor row_view(const zero_layout *z, void *data, dtype type, const param *p) {
    int64_t slices = zero_slices(z, p), rows = p->size[0];
    if (param_slices(p) > 1 && p->axis == 1) return (tensor){data, type, 3, {slices, rows, p->size[1] / p->slices, 1}};
    if (slices < param_slices(p)) rows = (p->rows_in_memory ? p->rows_in_memory : rows) / p->slices * slices;
    return (tensor){data, type, p->dims, {rows, p->size[1], p->size[2], p->size[3]}};
}

static void link_rows(train_state *t) {
    for (int i = 0; i < t->net->params; i++) {
        const param *p = &t->net->param[i];
        size_t row = t->zero.row_at[p->tied >= 0 ? p->tied : i], own = t->zero.row_at[i];
        bool keeps = frozen_has(&t->frozen, i);
        bool values = row != ZERO_ELSEWHERE;
        t->master[i] = row_view(&t->zero, t->masters.sharded || !values ? NULL : state_at(&t->masters.t, row), FP32, p);
        t->w[i] = row_view(&t->zero,
                           keeps                           ? state_at(&t->frozen.at, t->frozen.row_at[i])
                           : i == t->borrowed              ? t->copy.data
                           : t->weights.sharded || !values ? NULL
                                                           : state_at(&t->weights.t, row),
                           t->o.compute, p);
        if (keeps && p->int8) t->w[i] = row_view(&t->zero, state_at(&t->frozen.codes, t->frozen.row_at[i]), UINT8, p);
        if (p->fp32 && t->o.compute != FP32)
            t->w[i] = t->exact.dims ? row_view(&t->zero, state_at(&t->exact, t->exact_at[i]), FP32, p) : t->master[i];
        for (int b = 0; b < t->buffers; b++)
            t->grad[b * t->net->params + i] =
                row_view(&t->zero, t->slab && own != ZERO_ELSEWHERE ? state_at(&t->slab[b], own) : NULL, FP32, p);
    }
}

// See zero_options. A lane that is coded has one gradient of a tied tensor, and one residual.
static bool joins_tied(const train_state *t) {
    const state_options *o = &t->o;
    if (o->chunk) return false;
    return state_codes(t) || (t->ranks->world == 1 && o->lanes == 1 && o->micros == 1 && o->tokens.of <= 1);
}

// A rank owns the same share of rows on demand as of the rest of the state. All ranks of such a run are one data group,
// since rules refuse what divides its model.
static err_t share_rows(train_state *t) {
    int world = t->all->world;
    if (!t->net->table.width) return ERR_OK;
    t->row_cut = calloc((size_t)world + 1, sizeof *t->row_cut);
    if (!t->row_cut) return err_set(ERR_INTERNAL, "no memory for the rows of %d ranks", world);
    assert(t->ranks->world == world);
    row_cuts(t->row_cut, world, t->o.weight);
    return ERR_OK;
}

int64_t state_rows_memory(const train_state *t) {
    const int *own = t->row_cut ? t->row_cut + t->all->rank : NULL;
    return own && own[1] > own[0] ? t->o.rows_memory : 0;
}

err_t state_open(train_state *t, model *net, device *dev, stream *s, comm *ranks, const state_options *o) {
    *t = (train_state){.net = net,
                       .dev = dev,
                       .s = s,
                       .ranks = ranks,
                       .all = o->all ? o->all : ranks,
                       .o = *o,
                       .shards = zero_shards_of(o->stage)};
    t->turns = t->shards.gradients || state_codes(t);
    arena_open(&t->memory, dev, MEMORY_DEVICE);
    arena_open(&t->host, dev, MEMORY_PINNED);
    t->masters.name = "";
    t->arrays =
        o->training ? optimizer_arrays(o->optimizer, o->keys) + state_steps_outer(t) + state_apart_arrays(t) : 0;
    t->scalars = o->training ? optimizer_scalars(o->optimizer, o->keys) : 0;
    TRY(allocate_tables(t));
    TRY(share_rows(t));
    TRY(row_rules_open(&t->rule, net, o->keys));
    TRY(zero_open(&t->zero, net,
                  &(zero_options){.rank = ranks->rank,
                                  .world = ranks->world,
                                  .weight = o->weight,
                                  .here = o->here,
                                  .chunk = o->chunk,
                                  .bucket_bytes = o->bucket_bytes,
                                  .joined = joins_tied(t)}));
    TRY(frozen_open(&t->frozen, net, &t->zero, o->chunk, o->compute, &t->memory));
    find_tie(t);
    TRY(fill_uses(t));
    TRY(declare_values(t));
    TRY(declare_exact(t));
    TRY(declare_mirrors(t));
    if (o->training) TRY(declare_gradients(t));
    if (t->shards.weights) TRY(declare_gather(t));
    if (t->o.passes) TRY(declare_through(t));
    TRY(declare_tie(t));
    TRY(declare_muon(t));
    link_rows(t);  // their shapes, for plans
    size_t bytes = sizeof(step_state) + (size_t)t->scalars * sizeof(step_scalar);
    return arena_1d(&t->memory, &t->step, INT32, (int64_t)(bytes + 3) / 4);
}

size_t state_bytes(const train_state *t) { return t->memory.bytes + t->host.bytes; }

static err_t open_rows_on_demand(train_state *t) {
    const model_table *of = &t->net->table;
    int rank = t->all->rank;
    if (!of->width) return ERR_OK;
    return row_table_open(&t->rows, &(row_options){.width = of->width,
                                                   .seed = t->o.seed,
                                                   .bound = of->bound,
                                                   .first = t->row_cut[rank],
                                                   .buckets = t->row_cut[rank + 1] - t->row_cut[rank],
                                                   .memory = state_rows_memory(t),
                                                   .dir = t->o.spilled.dir,
                                                   .number = rank,
                                                   .faults = t->o.spilled.faults});
}

err_t state_commit(train_state *t) {
    TRY(arena_commit(&t->memory));
    TRY(arena_commit(&t->host));
    if (state_shares_masters(t)) t->weights = t->masters;
    if (t->o.offload) {
        TRY(device_open(&t->host_dev, &(device_options){.kind = DEVICE_CPU, .threads = t->o.threads}));
        TRY(stream_open(t->host_dev, &t->host_s));
    }
    if (state_spills(t)) TRY(spilled_commit(&t->spilled));
    if (state_apart(t) && t->o.overlap) TRY(outer_room_begin(&t->outer, t->dev));
    link_rows(t);
    TRY(open_rows_on_demand(t));
    return state_link(t);
}

err_t state_deal(train_state *t, const int64_t *deal) {
    size_t scratch;
    TRY(reduce_deal(t->reduce, deal));
    TRY(plan_scratch(t, &scratch));  // lists the messages of the new deal
    t->o.deal = reduce_lanes(t->reduce)->count;
    if (t->o.fixed) t->sum_buffer = last_sum(t);
    return ERR_OK;
}

void state_close(train_state *t) {
    outer_room_close(&t->outer);  // first: what is on its way uses the memory
    ckpt_release(&t->ckpt);
    spilled_close(&t->spilled);
    reduce_close(t->reduce);
    zero_close(&t->zero);
    frozen_close(&t->frozen);
    arena_close(&t->memory);
    arena_close(&t->host);
    if (t->host_s) stream_close(t->host_s);
    if (t->host_dev) device_close(t->host_dev);
    free(t->master), free(t->w), free(t->cuts), free(t->uses), free(t->slab), free(t->grad), free(t->slot),
        free(t->kept), free(t->scalar), free(t->array), free(t->of_piece), free(t->mirror), free(t->ckpt.group),
        free(t->ckpt.scalar), free(t->tensors), free(t->exact_at), free(t->residual), free(t->residual_mirror),
        free(t->rule), muon_close(&t->muon), free(t->residual_name), free(t->velocity), free(t->velocity_mirror),
        free(t->island_name), free(t->reduction);
    packed_close(&t->packed);
    row_table_close(t->rows), free(t->row_cut);
    *t = (train_state){0};
}

// --- pieces ----------------------------------------------------------------------------------------------------------

const zero_piece *state_pieces(const train_state *t, int *count) {
    *count = !t->shards.masters ? t->zero.wholes : t->zero.owned;
    return !t->shards.masters ? t->zero.whole : t->zero.piece;
}

int64_t state_count_of(const train_state *t, int row) {
    int count;
    int64_t n = 0;
    const zero_piece *p = state_pieces(t, &count);
    for (int i = 0; i < count; i++)
        if (p[i].row == row) n += p[i].count;
    return n;
}

tensor state_gradient(const train_state *t, const zero_piece *p) {
    if (t->shards.masters && state_codes(t)) return state_flat(state_at(&t->kept[0], p->shard), FP32, p->count);
    if (state_codes(t) && packed_last(&t->packed)->sparse.all)
        return state_flat(state_at(&t->kept[0], p->slab), FP32, p->count);
    if (state_has_sum(t)) return state_flat(state_at(&t->sum, p->shard), FP32, p->count);
    return state_flat(state_at(&t->slab[t->sum_buffer], p->slab), FP32, p->count);
}

const rounding_key *state_rounding(const train_state *t, const zero_piece *p, rounding_key *key) {
    int64_t room = (param_slice_room(&t->net->param[p->row]) + ROUNDING_ALIGN - 1) / ROUNDING_ALIGN * ROUNDING_ALIGN;
    *key =
        (rounding_key){.seed = t->o.seed, .site = SITE_ROUND + (uint32_t)p->row, .first = p->slice * room + p->first};
    return t->o.stochastic ? key : NULL;
}

err_t state_gather(train_state *t, const store *x, int segment, comm *over, stream *s) {
    size_t element = dtype_bytes(x->t.type), own = zero_range(&t->zero, segment, t->zero.rank) * element;
    const size_t *cuts = state_cuts(t, segment, element);
    char *to = x->sharded ? t->through.data : state_at(&x->t, t->zero.segment[segment].at);
    if (x->sharded && own)
        TRY(stream_copy(s, to + cuts[t->zero.rank], state_at(&x->t, t->zero.shard_at[segment]), own));
    return over->table->all_gather(over, to, cuts, s);
}

const size_t *state_cuts(train_state *t, int segment, size_t element) {
    const size_t *cut = &t->zero.cut[(size_t)segment * (size_t)(t->zero.world + 1)];
    for (int k = 0; k <= t->zero.world; k++) t->cuts[k] = cut[k] * element;
    return t->cuts;
}

bool state_has_exact(const train_state *t, int segment) {
    const zero_segment *g = &t->zero.segment[segment];
    bool any = false;
    for (int i = g->first; t->exact.dims && i < g->first + g->rows; i++) any |= t->net->param[i].fp32;
    return any;
}

err_t state_copy_exact(train_state *t, const zero_piece *p, const tensor *master, stream *s) {
    if (!t->exact.data || !t->net->param[p->row].fp32) return ERR_OK;
    return stream_copy(s, state_at(&t->exact, t->exact_at[p->row] + (p->slab - t->zero.row_at[p->row])), master->data,
                       tensor_bytes(master));
}

const size_t *state_exact_cuts(train_state *t, int segment, char **to) {
    const zero_segment *g = &t->zero.segment[segment];
    const size_t *cut = &t->zero.cut[(size_t)segment * (size_t)(t->zero.world + 1)];
    *to = state_at(&t->exact, t->exact_at[g->first]);
    for (int k = 0; k <= t->zero.world; k++) {
        t->cuts[k] = 0;
        for (int i = g->first; t->exact.dims && i < g->first + g->rows; i++) {
            size_t row = t->zero.row_at[i] - g->at,
                   n = t->net->param[i].fp32 ? row_floats(&t->zero, &t->net->param[i]) : 0;
            t->cuts[k] += (cut[k] <= row ? 0 : cut[k] < row + n ? cut[k] - row : n) * sizeof(float);
        }
    }
    return t->cuts;
}
