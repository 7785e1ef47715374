// trainer/step/state.c: see trainer/step/state.h. Masters, what the optimizer keeps and gradients are FP32 whatever the
// compute type.
#include "trainer/step/state.h"

#include "base/philox.h"
#include "model/weights.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// --- planning --------------------------------------------------------------------------------------------------------

static err_t declare_store(arena *a, store *x, dtype type, bool sharded, const zero_layout *z) {
    size_t n = sharded ? z->shard_values : z->values;
    x->sharded = sharded;
    x->t.type = type;
    return n ? arena_1d(a, &x->t, type, (int64_t)n) : ERR_OK;  // a rank may own nothing
}

static size_t largest_piece(const train_state *t) {
    int count;
    const zero_piece *p = state_pieces(t, &count);
    size_t most = 1;
    for (int i = 0; i < count; i++)
        if ((size_t)p[i].count > most) most = (size_t)p[i].count;
    return most;
}

static bool shares_masters(const train_state *t) { return t->o.compute == FP32 && !t->o.offload; }

// A CPU computes in host memory, and offload keeps masters and optimizer state there: neither needs mirrors. What was
// left out of lanes is never offloaded.
static bool is_on_gpu(const train_state *t) { return device_about(t->dev)->kind == DEVICE_CUDA; }
static bool needs_mirrors(const train_state *t) { return is_on_gpu(t) && !t->o.offload; }

static err_t declare_mirrors(train_state *t) {
    if (!needs_mirrors(t) || !t->zero.shard_values) return ERR_OK;
    for (int k = 0; k < 1 + t->arrays; k++) TRY(arena_1d(&t->host, &t->mirror[k], FP32, (int64_t)t->zero.shard_values));
    return ERR_OK;
}

// The optimizer's, by the names that it gives them; none where nothing is updated.
static err_t declare_arrays(train_state *t, arena *a) {
    for (int k = 0; k < t->arrays; k++) TRY(declare_store(a, &t->array[k], FP32, t->shards.masters, &t->zero));
    return ERR_OK;
}

static err_t declare_outer(train_state *t) {
    const int64_t words = (int64_t)(sizeof(step_state) + 3) / 4;
    outer_room *x = &t->outer;
    if (!t->o.training || !t->o.islands) return ERR_OK;
    int64_t all = 0;
    for (int i = 0; i < t->zero.owned; i++)
        if (t->net->param[t->zero.piece[i].row].tied < 0)
            all += (t->zero.piece[i].count + OUTER_ALIGN - 1) / OUTER_ALIGN * OUTER_ALIGN;
    int64_t unit = OUTER_ALIGN * t->o.islands->world;
    all = all ? (all + unit - 1) / unit * unit : unit;
    x->most = all > OUTER_MOST ? OUTER_MOST : all;
    TRY(arena_2d(&t->memory, &x->room, FP32, 2, x->most));
    TRY(arena_1d(&t->memory, &x->whole, INT32, words));
    TRY(arena_1d(&t->memory, &x->step, INT32, words));
    return state_steps_outer(t) ? declare_store(&t->memory, &t->anchor, FP32, t->shards.masters, &t->zero) : ERR_OK;
}

// Nothing of them is in memory but windows.
static err_t declare_spilled(train_state *t) {
    TRY(declare_store(&t->memory, &t->weights, t->o.compute, t->shards.weights, &t->zero));
    TRY(spilled_open(&t->spilled, &t->host, &t->zero, t->net, t->arrays, &t->o.spilled));
    TRY(arena_1d(&t->host, &t->stage_w, t->o.compute, CHUNK));
    return arena_1d(&t->host, &t->stage_g, FP32, CHUNK);
}

static err_t declare_values(train_state *t) {
    const zero_layout *z = &t->zero;
    arena *a = t->o.offload ? &t->host : &t->memory;
    bool share = shares_masters(t);
    if (state_spills(t)) return declare_spilled(t);
    TRY(declare_store(a, &t->masters, FP32, share ? t->shards.weights : t->shards.masters, z));
    if (!share) TRY(declare_store(&t->memory, &t->weights, t->o.compute, t->shards.weights, z));
    TRY(declare_arrays(t, a));
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
        TRY(arena_1d(&t->memory, &t->slot[i], FP32, (int64_t)most));
    }
    return ERR_OK;
}

static err_t declare_slabs(train_state *t) {
    t->slab = calloc((size_t)t->buffers, sizeof *t->slab);
    if (!t->slab) return err_set(ERR_INTERNAL, "no memory for %d buffers", t->buffers);
    for (int b = 0; b < t->buffers; b++) TRY(arena_1d(&t->memory, &t->slab[b], FP32, (int64_t)t->zero.slab));
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
    *most = 0;
    for (int64_t turn = 0; turn < reduce_turns(t->reduce); turn++)
        for (int k = 0; k < t->zero.buckets; k++) {
            reduce_cost cost;
            TRY(reduce_plan(t->reduce, turn, t->zero.bucket[k].first, t->zero.bucket[k].count, &cost));
            if (cost.scratch > *most) *most = cost.scratch;
        }
    return ERR_OK;
}

static err_t declare_scratch(train_state *t) {
    size_t most;
    TRY(plan_scratch(t, &most));
    return t->o.fixed && most ? arena_1d(&t->memory, &t->scratch, FP32, (int64_t)most) : ERR_OK;
}

// --- lanes in codes --------------------------------------------------------------------------------------------------

static err_t allocate_residuals(train_state *t) {
    t->residuals = (int)reduce_lane_count(t->reduce, t->ranks->rank);
    t->kepts = t->o.kept ? 1 : lane_counter_buffers(0, t->o.lanes, true);
    t->kept = calloc((size_t)t->kepts, sizeof *t->kept);
    t->residual = calloc((size_t)t->residuals + 1, sizeof *t->residual);
    t->residual_mirror = calloc((size_t)t->residuals + 1, sizeof *t->residual_mirror);
    t->velocity = calloc((size_t)t->residuals + 1, sizeof *t->velocity);
    t->velocity_mirror = calloc((size_t)t->residuals + 1, sizeof *t->velocity_mirror);
    t->residual_name = calloc(2 * (size_t)t->o.lanes, sizeof *t->residual_name);
    if (t->kept && t->residual && t->residual_mirror && t->velocity && t->velocity_mirror && t->residual_name)
        return ERR_OK;
    return err_set(ERR_INTERNAL, "no memory for the tables of %" PRId64 " lanes", t->o.lanes);
}

// A rank without lanes still adds up its ranges of others' lanes.
static err_t declare_codes(train_state *t) {
    packed_sparse sparse = {t->o.kept, t->o.kept && !t->shards.masters};
    TRY(allocate_residuals(t));
    TRY(packed_open(&t->packed, &t->zero, t->net, t->o.compress, t->o.back, sparse));
    size_t out = t->packed.most_there > t->packed.most_back ? t->packed.most_there : t->packed.most_back,
           in = t->packed.most_own * (size_t)(t->ranks->world - 1);
    TRY(arena_1d(&t->memory, &t->out, UINT8, (int64_t)out));
    if (in) TRY(arena_1d(&t->memory, &t->in, UINT8, (int64_t)in));
    for (int i = 0; i < t->residuals; i++) {
        TRY(arena_1d(&t->memory, &t->residual[i], FP32, (int64_t)t->zero.slab));
        if (is_on_gpu(t)) TRY(arena_1d(&t->host, &t->residual_mirror[i], FP32, (int64_t)t->zero.slab));
        if (!t->o.kept) continue;
        TRY(arena_1d(&t->memory, &t->velocity[i], FP32, (int64_t)t->zero.slab));
        if (is_on_gpu(t)) TRY(arena_1d(&t->host, &t->velocity_mirror[i], FP32, (int64_t)t->zero.slab));
    }
    size_t sums = t->packed.sparse.all ? t->zero.slab : t->zero.shard;
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
    if (turns) TRY(declare_counters(t));
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

// --- opening ---------------------------------------------------------------------------------------------------------

static err_t allocate_tables(train_state *t) {
    size_t n = (size_t)t->net->params, groups = 1 + (size_t)t->arrays + (size_t)state_residual_groups(t);
    t->master = calloc(n, sizeof(tensor));
    t->w = calloc(n, sizeof(tensor));
    t->cuts = calloc((size_t)t->ranks->world + 1, sizeof *t->cuts);
    t->array = calloc(groups, sizeof *t->array);
    t->of_piece = calloc(groups, sizeof *t->of_piece);
    t->mirror = calloc(groups, sizeof *t->mirror);
    t->ckpt.group = calloc(groups, sizeof *t->ckpt.group);
    t->tensors = calloc(groups * n, sizeof *t->tensors);
    t->scalar = calloc((size_t)t->scalars + 1, sizeof *t->scalar);
    t->ckpt.scalar = calloc((size_t)t->scalars + 1, sizeof *t->ckpt.scalar);
    if (!t->master || !t->w || !t->cuts || !t->array || !t->of_piece || !t->mirror || !t->ckpt.group || !t->tensors ||
        !t->scalar || !t->ckpt.scalar)
        return err_set(ERR_INTERNAL, "no memory for the tables of %zu parameters", n);
    for (int k = 0; k < t->scalars; k++) t->scalar[k] = state_scalar(t, k).begin;
    for (int k = 0; k < t->arrays; k++) {
        const char *name = t->o.optimizer->array(t->o.keys, k);
        t->array[k].name = name ? name : "outer";
    }
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

static void *at(const tensor *t, size_t element) {
    return t->data ? (char *)t->data + element * dtype_bytes(t->type) : NULL;
}

static void link_rows(train_state *t) {
    for (int i = 0; i < t->net->params; i++) {
        const param *p = &t->net->param[i];
        size_t row = t->zero.row_at[p->tied >= 0 ? p->tied : i], own = t->zero.row_at[i];
        bool values = row != ZERO_ELSEWHERE;
        t->master[i] = row_view(&t->zero, t->masters.sharded || !values ? NULL : at(&t->masters.t, row), FP32, p);
        t->w[i] = row_view(&t->zero,
                           i == t->borrowed                ? t->copy.data
                           : t->weights.sharded || !values ? NULL
                                                           : at(&t->weights.t, row),
                           t->o.compute, p);
        if (p->fp32 && t->o.compute != FP32)
            t->w[i] = t->exact.dims ? row_view(&t->zero, at(&t->exact, t->exact_at[i]), FP32, p) : t->master[i];
        for (int b = 0; b < t->buffers; b++)
            t->grad[b * t->net->params + i] =
                row_view(&t->zero, t->slab && own != ZERO_ELSEWHERE ? at(&t->slab[b], own) : NULL, FP32, p);
    }
}

// See zero_options. A lane that is coded has one gradient of a tied tensor, and one residual.
static bool joins_tied(const train_state *t) {
    const state_options *o = &t->o;
    if (o->chunk) return false;
    return state_codes(t) || (t->ranks->world == 1 && o->lanes == 1 && o->micros == 1 && o->tokens.of <= 1);
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
    t->arrays = o->training ? optimizer_arrays(o->optimizer, o->keys) + state_steps_outer(t) : 0;
    t->scalars = o->training ? optimizer_scalars(o->optimizer, o->keys) : 0;
    TRY(allocate_tables(t));
    TRY(zero_open(&t->zero, net,
                  &(zero_options){.rank = ranks->rank,
                                  .world = ranks->world,
                                  .here = o->here,
                                  .chunk = o->chunk,
                                  .bucket_bytes = o->bucket_bytes,
                                  .joined = joins_tied(t)}));
    find_tie(t);
    TRY(fill_uses(t));
    TRY(declare_values(t));
    TRY(declare_exact(t));
    TRY(declare_mirrors(t));
    if (o->training) TRY(declare_gradients(t));
    if (t->shards.weights) TRY(declare_gather(t));
    TRY(declare_tie(t));
    link_rows(t);  // their shapes, for plans
    size_t bytes = sizeof(step_state) + (size_t)t->scalars * sizeof(step_scalar);
    return arena_1d(&t->memory, &t->step, INT32, (int64_t)(bytes + 3) / 4);
}

size_t state_bytes(const train_state *t) { return t->memory.bytes + t->host.bytes; }

err_t state_commit(train_state *t) {
    TRY(arena_commit(&t->memory));
    TRY(arena_commit(&t->host));
    if (shares_masters(t)) t->weights = t->masters;
    if (t->o.offload) {
        TRY(device_open(&t->host_dev, &(device_options){.kind = DEVICE_CPU, .threads = t->o.threads}));
        TRY(stream_open(t->host_dev, &t->host_s));
    }
    if (state_spills(t)) TRY(spilled_commit(&t->spilled));
    link_rows(t);
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
    ckpt_release(&t->ckpt);
    spilled_close(&t->spilled);
    reduce_close(t->reduce);
    zero_close(&t->zero);
    arena_close(&t->memory);
    arena_close(&t->host);
    if (t->host_s) stream_close(t->host_s);
    if (t->host_dev) device_close(t->host_dev);
    free(t->master), free(t->w), free(t->cuts), free(t->uses), free(t->slab), free(t->grad), free(t->slot),
        free(t->kept), free(t->scalar), free(t->array), free(t->of_piece), free(t->mirror), free(t->ckpt.group),
        free(t->ckpt.scalar), free(t->tensors), free(t->exact_at), free(t->residual), free(t->residual_mirror),
        free(t->residual_name), free(t->velocity), free(t->velocity_mirror);
    packed_close(&t->packed);
    *t = (train_state){0};
}

// --- pieces ----------------------------------------------------------------------------------------------------------

const zero_piece *state_pieces(const train_state *t, int *count) {
    *count = !t->shards.masters ? t->zero.wholes : t->zero.owned;
    return !t->shards.masters ? t->zero.whole : t->zero.piece;
}

static tensor flat(void *data, dtype type, int64_t n) { return (tensor){data, type, 1, {n, 1, 1, 1}}; }

int64_t state_count_of(const train_state *t, int row) {
    int count;
    int64_t n = 0;
    const zero_piece *p = state_pieces(t, &count);
    for (int i = 0; i < count; i++)
        if (p[i].row == row) n += p[i].count;
    return n;
}

tensor state_gradient(const train_state *t, const zero_piece *p) {
    if (t->shards.masters && state_codes(t)) return flat(at(&t->kept[0], p->shard), FP32, p->count);
    if (state_codes(t) && t->packed.sparse.all) return flat(at(&t->kept[0], p->slab), FP32, p->count);
    if (t->shards.gradients) return flat(at(&t->sum, p->shard), FP32, p->count);
    return flat(at(&t->slab[t->sum_buffer], p->slab), FP32, p->count);
}

const rounding_key *state_rounding(const train_state *t, const zero_piece *p, rounding_key *key) {
    int64_t room = (param_slice_room(&t->net->param[p->row]) + ROUNDING_ALIGN - 1) / ROUNDING_ALIGN * ROUNDING_ALIGN;
    *key =
        (rounding_key){.seed = t->o.seed, .site = SITE_ROUND + (uint32_t)p->row, .first = p->slice * room + p->first};
    return t->o.stochastic ? key : NULL;
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
    return stream_copy(s, at(&t->exact, t->exact_at[p->row] + (p->slab - t->zero.row_at[p->row])), master->data,
                       tensor_bytes(master));
}

const size_t *state_exact_cuts(train_state *t, int segment, char **to) {
    const zero_segment *g = &t->zero.segment[segment];
    const size_t *cut = &t->zero.cut[(size_t)segment * (size_t)(t->zero.world + 1)];
    *to = at(&t->exact, t->exact_at[g->first]);
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

// --- values ----------------------------------------------------------------------------------------------------------

// Makes a store whole on every rank from what each owns.
static err_t spread(train_state *t, store *x) {
    if (x->sharded || t->ranks->world == 1 || !x->t.data) return ERR_OK;
    comm *over = t->o.offload && x != &t->weights ? t->ranks->host : t->ranks;
    for (int g = 0; g < t->zero.segments; g++) {
        if (t->zero.segment[g].tied) continue;
        const size_t *cuts = state_cuts(t, g, dtype_bytes(x->t.type));
        TRY(over->table->all_gather(over, at(&x->t, t->zero.segment[g].at), cuts, t->s));
    }
    return ERR_OK;
}

// All ranks of a layer have the rows that are not divided, but only the first of them reads these from a checkpoint.
// Its values go to the others, to each those that it owns.
static err_t copy_shared(train_state *t, store *x) {
    comm *over = t->o.tensor;
    if (!over || over->world == 1 || !x->t.data) return ERR_OK;
    if (t->o.offload) over = over->host;
    for (int i = 0; i < t->zero.owned; i++) {
        const zero_piece *p = &t->zero.piece[i];
        tensor part = store_view(x, p);
        const param *row = &t->net->param[p->row];
        if (row->tied < 0 && param_slices(row) == 1)
            TRY(over->table->broadcast(over, part.data, tensor_bytes(&part), 0, t->s));
    }
    return ERR_OK;
}

// Only the first island reads a checkpoint.
static err_t copy_islands(train_state *t, store *x) {
    comm *over = t->o.islands;
    if (!over || !x->t.data) return ERR_OK;
    for (int i = 0; i < t->zero.owned; i++) {
        tensor part = store_view(x, &t->zero.piece[i]);
        if (t->net->param[t->zero.piece[i].row].tied < 0)
            TRY(over->table->broadcast(over, part.data, tensor_bytes(&part), 0, t->s));
    }
    return ERR_OK;
}

// What is published is a boundary's.
static err_t drop_anchor(train_state *t) {
    for (int i = 0; i < t->zero.owned && state_steps_outer(t); i++) {
        const zero_piece *p = &t->zero.piece[i];
        tensor from = store_view(&t->masters, p), to = store_view(&t->anchor, p);
        if (t->net->param[p->row].tied < 0) TRY(stream_copy(t->s, to.data, from.data, tensor_bytes(&to)));
    }
    return ERR_OK;
}

// Rounds on the device, or with offload on the host, exactly as the update that `at` counted last.
static err_t round_piece(train_state *t, const zero_piece *p, tensor *w, const tensor *master, const step_state *at) {
    rounding_key key;
    const rounding_key *round = state_rounding(t, p, &key);
    const ops *on = device_ops(t->o.offload ? t->host_dev : t->dev);
    stream *s = t->o.offload ? t->host_s : t->s;
    return round ? on->cast_stochastic(&(cast_stochastic_args){.y = w, .x = master, .round = round, .state = at}, s)
                 : on->cast(&(cast_args){.y = w, .x = master}, s);
}

// Rounds on the host and copies to the device.
static err_t round_on_host(train_state *t, const zero_piece *p, const tensor *master, const step_state *at) {
    tensor w = store_view(&t->weights, p), staged = flat(t->stage_w.data, t->o.compute, p->count);
    TRY(stream_wait(t->s));
    TRY(round_piece(t, p, &staged, master, at));
    TRY(stream_wait(t->host_s));
    return stream_copy(t->s, w.data, staged.data, tensor_bytes(&w));
}

// Rounds the masters to weights. Masters are already where their owners' optimizer reads them, in host memory or not.
static err_t round_weights(train_state *t) {
    if (t->weights.t.data == t->masters.t.data) return ERR_OK;
    int count;
    const zero_piece *p = state_pieces(t, &count);
    step_state here;
    TRY(state_get_step(t, &here));
    for (int i = 0; i < count; i++) {
        if (t->net->param[p[i].row].tied >= 0) continue;
        tensor w = store_view(&t->weights, &p[i]), master = store_view(&t->masters, &p[i]);
        TRY(t->o.offload ? round_on_host(t, &p[i], &master, &here) : round_piece(t, &p[i], &w, &master, state_step(t)));
    }
    return stream_wait(t->s);
}

// Copies between the device's stores and their mirrors, piece by piece.
static err_t copy_mirrors(train_state *t, int count, bool to_host) {
    for (int k = 0; k < count && t->mirror[k].data; k++)
        for (int i = 0; i < t->zero.owned; i++) {
            const zero_piece *p = &t->zero.piece[i];
            if (t->net->param[p->row].tied >= 0) continue;
            void *host = state_host(t, k, p), *there = store_view(state_store(t, k), p).data;
            TRY(stream_copy(t->s, to_host ? host : there, to_host ? there : host, (size_t)p->count * sizeof(float)));
        }
    return t->mirror[0].data ? stream_wait(t->s) : ERR_OK;
}

static err_t copy_residual(train_state *t, const tensor *there, const tensor *host, bool to_host) {
    if (!host->data) return ERR_OK;
    const tensor *to = to_host ? host : there, *from = to_host ? there : host;
    return stream_copy(t->s, to->data, from->data, tensor_bytes(to));
}

static err_t copy_residuals(train_state *t, bool to_host) {
    for (int i = 0; i < t->residuals; i++) {
        TRY(copy_residual(t, &t->residual[i], &t->residual_mirror[i], to_host));
        TRY(copy_residual(t, &t->velocity[i], &t->velocity_mirror[i], to_host));
    }
    TRY(copy_residual(t, &t->residual_back, &t->back_mirror, to_host));
    return state_codes(t) ? stream_wait(t->s) : ERR_OK;
}

// As copy_shared: of rows that are not divided, only the first rank of a layer reads what was left out. Ranks of a
// layer have the same lanes, and own the same ranges.
static err_t copy_shared_residuals(train_state *t) {
    comm *over = t->o.tensor;
    if (!over || over->world == 1) return ERR_OK;
    for (int i = 0; i < t->zero.wholes; i++) {
        const zero_piece *p = &t->zero.whole[i];
        if (param_slices(&t->net->param[p->row]) > 1) continue;
        for (int k = 0; k < t->residuals; k++) {
            size_t bytes = (size_t)p->count * sizeof(float);
            TRY(over->table->broadcast(over, at(&t->residual[k], p->slab), bytes, 0, t->s));
            if (t->o.kept) TRY(over->table->broadcast(over, at(&t->velocity[k], p->slab), bytes, 0, t->s));
        }
    }
    for (int i = 0; i < t->zero.owned && t->residual_back.dims; i++) {
        const zero_piece *p = &t->zero.piece[i];
        if (param_slices(&t->net->param[p->row]) > 1) continue;
        TRY(over->table->broadcast(over, at(&t->residual_back, p->shard), (size_t)p->count * sizeof(float), 0, t->s));
    }
    return ERR_OK;
}

// From the masters here.
static err_t copy_all_exact(train_state *t) {
    int count;
    const zero_piece *p = state_pieces(t, &count);
    for (int i = 0; i < count; i++) {
        tensor master = store_view(&t->masters, &p[i]);
        TRY(state_copy_exact(t, &p[i], &master, t->s));
    }
    return ERR_OK;
}

// From the other ranks.
static err_t gather_exact(train_state *t) {
    for (int g = 0; t->shards.masters && g < t->zero.segments; g++) {
        char *to;
        if (!state_has_exact(t, g)) continue;
        const size_t *cuts = state_exact_cuts(t, g, &to);
        TRY(t->ranks->table->all_gather(t->ranks, to, cuts, t->s));
    }
    return t->exact.data ? stream_wait(t->s) : ERR_OK;
}

err_t state_fetch(train_state *t, bool all) {
    TRY(copy_mirrors(t, all ? 1 + t->arrays : 1, true));
    if (all) TRY(copy_residuals(t, true));
    if (!all || !t->scalars) return ERR_OK;
    TRY(stream_copy(t->s, t->scalar, state_scalars(state_step(t)), (size_t)t->scalars * sizeof *t->scalar));
    return stream_wait(t->s);
}

// As the device computes it, one update after the other, until none changes it any more.
static double value_after(const step_scalar *begin, int64_t updates) {
    double value = begin->value;
    for (int64_t n = 0; n < updates; n++) {
        double next = begin->factor * value + begin->addend;
        if (next == value) break;
        value = next;
    }
    return value;
}

static err_t publish_scalars(train_state *t) {
    step_state here;
    if (!t->scalars) return ERR_OK;
    TRY(state_get_step(t, &here));
    for (int k = 0; k < t->scalars; k++) {
        optimizer_scalar x = state_scalar(t, k);
        if (x.follows) t->scalar[k].value = value_after(&x.begin, here.updates);
    }
    TRY(stream_copy(t->s, state_scalars(state_step(t)), t->scalar, (size_t)t->scalars * sizeof *t->scalar));
    return stream_wait(t->s);
}

// What the ranks have rounded of their masters, on all of them.
static err_t gather_weights(train_state *t) {
    TRY(gather_exact(t));
    return t->shards.masters && t->weights.t.data != t->masters.t.data ? spread(t, &t->weights) : ERR_OK;
}

static err_t publish_stores(train_state *t) {
    for (int k = 0; k < 1 + t->arrays; k++) {
        TRY(copy_islands(t, state_store(t, k)));
        TRY(copy_shared(t, state_store(t, k)));
    }
    TRY(drop_anchor(t));
    return state_mixed(t);
}

err_t state_mixed(train_state *t) {
    for (int k = 0; k < 1 + t->arrays; k++) TRY(spread(t, state_store(t, k)));
    TRY(round_weights(t));
    TRY(copy_all_exact(t));
    return gather_weights(t);
}

// As copy_shared, of all values of a chunk.
static err_t copy_shared_chunk(void *ctx, const zero_piece *p, tensor *value) {
    train_state *t = ctx;
    const param *row = &t->net->param[p->row];
    comm *over = t->o.tensor->host;
    if (param_slices(row) > 1) return ERR_OK;
    for (int k = 0; k < t->spilled.values; k++)
        TRY(over->table->broadcast(over, value[k].data, tensor_bytes(&value[k]), 0, t->s));
    return stream_wait(t->s);
}

typedef struct publishing {
    train_state *t;
    step_state at;
} publishing;

// The chunk's place in the file's windows is used again when this returns.
static err_t publish_chunk(void *ctx, const zero_piece *p, tensor *value) {
    const publishing *x = ctx;
    TRY(round_on_host(x->t, p, &value[0], &x->at));
    TRY(state_copy_exact(x->t, p, &value[0], x->t->s));
    return stream_wait(x->t->s);
}

static err_t publish_spilled(train_state *t) {
    publishing x = {.t = t};
    const comm *layer = t->o.tensor;
    TRY(state_get_step(t, &x.at));
    if (layer && layer->world > 1)
        TRY(spilled_walk(&t->spilled, layer->rank == 0 ? SPILL_READ : SPILL_UPDATE, copy_shared_chunk, t));
    return spilled_walk(&t->spilled, SPILL_READ, publish_chunk, &x);
}

err_t state_publish(train_state *t) {
    TRY(publish_scalars(t));
    TRY(copy_mirrors(t, 1 + t->arrays, false));
    TRY(copy_residuals(t, false));
    TRY(copy_shared_residuals(t));
    if (!state_spills(t)) return publish_stores(t);
    TRY(publish_spilled(t));
    return gather_weights(t);
}

static comm_cost spread_cost(train_state *t, const store *x) {
    comm_cost sum = {0};
    for (int g = 0; g < t->zero.segments && !x->sharded && x->t.dims; g++)
        if (!t->zero.segment[g].tied)
            sum = cost_add(sum, cost_all_gather(t->ranks, state_cuts(t, g, dtype_bytes(x->t.type))));
    return sum;
}

comm_cost state_mixed_cost(train_state *t) {
    comm_cost sum = {0};
    for (int k = 0; k < 1 + t->arrays; k++) sum = cost_add(sum, spread_cost(t, state_store(t, k)));
    for (int g = 0; t->shards.masters && g < t->zero.segments; g++) {
        char *to;
        if (state_has_exact(t, g)) sum = cost_add(sum, cost_all_gather(t->ranks, state_exact_cuts(t, g, &to)));
    }
    if (t->shards.masters && !shares_masters(t)) sum = cost_add(sum, spread_cost(t, &t->weights));
    return sum;
}

// Where values come from: files of others, or, where that is NULL, chance.
typedef struct values {
    const weights_map *map;
    uint64_t seed;
} values;

// Elements first .. first+count-1 in row-major order.
static err_t read_logical(const train_state *t, int row, const values *from, int64_t first, int64_t count, float *dst) {
    if (from->map) return weights_read(from->map, row, first, count, from->seed, dst);
    model_init(t->net, row, from->seed, first, count, dst);
    return ERR_OK;
}

// A piece of a row whose columns are divided, from files: whole rows are read, a few at a time, and a part of each is
// taken.
static err_t read_columns(const train_state *t, const zero_piece *p, const values *from, float *dst) {
    enum { SOME = 1 << 20 };
    const param *row = &t->net->param[p->row];
    int64_t cols = row->size[1], width = cols / row->slices, end = p->first + p->count;
    int64_t rows = SOME / cols > 0 ? SOME / cols : 1;
    float *some = malloc((size_t)(rows * cols) * sizeof *some);
    err_t rc = some ? ERR_OK : err_set(ERR_INTERNAL, "no memory for %" PRId64 " rows of %s", rows, row->name);
    for (int64_t r = p->first / width; r * width < end && rc == ERR_OK; r += rows) {
        int64_t n = (end + width - 1) / width - r < rows ? (end + width - 1) / width - r : rows;
        rc = read_logical(t, p->row, from, r * cols, n * cols, some);
        for (int64_t k = 0; k < n && rc == ERR_OK; k++) {
            int64_t at = (r + k) * width, skip = at < p->first ? p->first - at : 0,
                    stop = at + width < end ? width : end - at;
            memcpy(dst + (at + skip - p->first), some + k * cols + p->slice * width + skip,
                   (size_t)(stop - skip) * sizeof *dst);
        }
    }
    free(some);
    return rc;
}

// The masters of a piece, by their coordinates, to dst.
static err_t read_piece(const train_state *t, const zero_piece *p, const values *from, float *dst) {
    const param *row = &t->net->param[p->row];
    if (from->map && param_slices(row) > 1 && row->axis == 1) return read_columns(t, p, from, dst);
    const ckpt_order o = state_order(t, p->row);
    for (int64_t k = 0, run; k < p->count; k += run) {
        int64_t first = order_logical(&o, p->slice * param_slice_room(row) + p->first + k, &run);
        if (run > p->count - k) run = p->count - k;
        TRY(read_logical(t, p->row, from, first, run, dst + k));
    }
    return ERR_OK;
}

static err_t forget_chunk(void *ctx, const zero_piece *p, tensor *value) {
    const train_state *t = ctx;
    (void)p;
    for (int k = 1; k <= t->arrays; k++) memset(value[k].data, 0, tensor_bytes(&value[k]));
    return ERR_OK;
}

static err_t forget_arrays(train_state *t, stream *s) {
    int count;
    const zero_piece *p = state_pieces(t, &count);
    if (state_spills(t)) return spilled_walk(&t->spilled, SPILL_UPDATE, forget_chunk, t);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < t->arrays; k++) {
            tensor of = store_view(&t->array[k], &p[i]);
            TRY(stream_zero(s, of.data, tensor_bytes(&of)));
        }
    return ERR_OK;
}

err_t state_forget(train_state *t) {
    stream *s = t->o.offload ? t->host_s : t->s;
    for (int k = 0; k < t->scalars; k++) t->scalar[k] = state_scalar(t, k).begin;
    TRY(forget_arrays(t, s));
    for (int i = 0; i < t->residuals; i++) {
        TRY(stream_zero(t->s, t->residual[i].data, tensor_bytes(&t->residual[i])));
        if (t->o.kept) TRY(stream_zero(t->s, t->velocity[i].data, tensor_bytes(&t->velocity[i])));
    }
    if (t->residual_back.data) TRY(stream_zero(t->s, t->residual_back.data, tensor_bytes(&t->residual_back)));
    TRY(stream_wait(t->s));
    return stream_wait(s);
}

typedef struct reading {
    const train_state *t;
    values from;
} reading;

static err_t read_chunk(void *ctx, const zero_piece *p, tensor *value) {
    const reading *r = ctx;
    return read_piece(r->t, p, &r->from, value[0].data);
}

// The pieces of the masters that this rank owns, and no others.
static err_t read_pieces(train_state *t, const weights_map *map, uint64_t seed) {
    const values from = {map, seed};
    if (state_spills(t)) return spilled_walk(&t->spilled, SPILL_FILL, read_chunk, &(reading){t, from});
    for (int i = 0; i < t->zero.owned; i++) {
        const zero_piece *p = &t->zero.piece[i];
        if (t->net->param[p->row].tied < 0) TRY(read_piece(t, p, &from, state_host(t, 0, p)));
    }
    return ERR_OK;
}

err_t state_init(train_state *t, uint64_t seed) {
    TRY(read_pieces(t, NULL, seed));
    return state_publish(t);
}

static err_t read_weights(train_state *t, const char *path, const void *options, bool resize, uint64_t seed) {
    weights *w;
    weights_map *map = NULL;
    TRY(weights_open(&w, path));
    err_t rc = weights_match(&map, w, t->net, options, resize);
    if (rc == ERR_OK) rc = read_pieces(t, map, seed);
    weights_map_close(map);
    weights_close(w);
    return rc;
}

err_t state_init_from(train_state *t, const char *path, const void *options, bool resize, uint64_t seed) {
    err_t rc = read_weights(t, path, options, resize, seed);
    TRY(comm_agree_ok(t->all, rc, t->s));  // the files are each node's own
    return state_publish(t);
}

err_t state_set_step(train_state *t, const step_state *from) {
    TRY(stream_copy(t->s, t->step.data, from, sizeof *from));
    return stream_wait(t->s);
}

err_t state_get_step(train_state *t, step_state *to) {
    TRY(stream_copy(t->s, to, t->step.data, sizeof *to));
    return stream_wait(t->s);
}

static const double FP16_FIRST_SCALE = 32768;

void state_from_progress(step_state *to, const run_progress *at, const config *c) {
    bool scaled = c->precision.compute == FP16 || c->precision.loss_scale > 0;
    double first = c->precision.loss_scale > 0 ? c->precision.loss_scale : FP16_FIRST_SCALE;
    *to = (step_state){.updates = at->updates,
                       .good_steps = at->good_steps,
                       .skipped = at->skipped,
                       .norm_mean = at->norm_mean,
                       .norms = at->norms};
    to->loss_scale = at->step > 0 ? (float)at->loss_scale : scaled ? (float)first : 1.0f;
}
