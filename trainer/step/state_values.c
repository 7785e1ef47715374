// trainer/step/state_values.c: what a state holds, where state.c has its places: values that are drawn or read, rounded
// for the pass, made whole on all ranks, brought to the host, forgotten; and what follows from the masters each time.
#include "trainer/step/state_read.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// --- whole on all ranks ----------------------------------------------------------------------------------------------

// Is any row of the segment among these? NULL: all are.
static bool has_any(const train_state *t, int segment, const bool *rows) {
    const zero_segment *g = &t->zero.segment[segment];
    bool any = !rows;
    for (int i = g->first; !any && i < g->first + g->rows; i++) any = rows[i];
    return any && !g->tied;
}

// Stores of which islands that are apart mix some rows: masters, and moments unless they are each one's own.
static int mixed_stores(const train_state *t) { return 1 + (t->o.own_moments ? 0 : state_moments(t)); }

// Is it whole on ranks that have lanes? One that passes weights on may own none of them, or have its share alone.
static bool is_whole(const train_state *t, const store *x) {
    bool weights = x == &t->weights || (x == &t->masters && state_shares_masters(t));
    return t->o.passes ? weights : !x->sharded && x->t.dims;
}

// Makes a store whole on those ranks from what each owns.
static err_t spread(train_state *t, store *x, const bool *rows) {
    if (!is_whole(t, x) || t->ranks->world == 1) return ERR_OK;
    comm *over = t->o.offload && x != &t->weights ? t->ranks->host : t->ranks;
    for (int g = 0; g < t->zero.segments; g++) {
        if (!has_any(t, g, rows)) continue;
        TRY(state_gather(t, x, g, over, t->s));
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

// Islands begin from their masters, or go on where these are a boundary's.
static err_t drop_anchor(train_state *t, bool begins) {
    bool drops = state_has_anchor(t) || (state_apart(t) && begins);
    for (int i = 0; i < t->zero.owned && drops; i++) {
        const zero_piece *p = &t->zero.piece[i];
        tensor from = store_view(&t->masters, p), to = store_view(state_anchor(t), p);
        if (t->net->param[p->row].tied < 0) TRY(stream_copy(t->s, to.data, from.data, tensor_bytes(&to)));
    }
    return ERR_OK;
}

// --- rounded for the pass --------------------------------------------------------------------------------------------

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
    tensor w = store_view(&t->weights, p), staged = state_flat(t->stage_w.data, t->o.compute, p->count);
    TRY(stream_wait(t->s));
    TRY(round_piece(t, p, &staged, master, at));
    TRY(stream_wait(t->host_s));
    return stream_copy(t->s, w.data, staged.data, tensor_bytes(&w));
}

// Rounds the masters to weights. Masters are already where their owners' optimizer reads them, in host memory or not.
static err_t round_weights(train_state *t, const bool *rows) {
    if (t->weights.t.data == t->masters.t.data) return ERR_OK;
    int count;
    const zero_piece *p = state_pieces(t, &count);
    step_state here;
    TRY(state_get_step(t, &here));
    for (int i = 0; i < count; i++) {
        if (t->net->param[p[i].row].tied >= 0 || (rows && !rows[p[i].row])) continue;
        tensor w = store_view(&t->weights, &p[i]), master = store_view(&t->masters, &p[i]);
        TRY(t->o.offload ? round_on_host(t, &p[i], &master, &here) : round_piece(t, &p[i], &w, &master, state_step(t)));
    }
    return stream_wait(t->s);
}

// --- between device and host -----------------------------------------------------------------------------------------

// Copies between the device's stores and their mirrors, piece by piece.
static err_t copy_mirrors(train_state *t, int first, int count, bool to_host) {
    for (int k = first; k < first + count && t->mirror[k].data; k++)
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
    outer_room *x = &t->outer;
    TRY(copy_residual(t, &x->residual, &x->residual_mirror, to_host));
    TRY(copy_residual(t, &x->residual_back, &x->back_mirror, to_host));
    for (int i = 0; i < t->residuals; i++) {
        TRY(copy_residual(t, &t->residual[i], &t->residual_mirror[i], to_host));
        TRY(copy_residual(t, &t->velocity[i], &t->velocity_mirror[i], to_host));
    }
    TRY(copy_residual(t, &t->residual_back, &t->back_mirror, to_host));
    return state_codes(t) || x->residual.data ? stream_wait(t->s) : ERR_OK;
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
            TRY(over->table->broadcast(over, state_at(&t->residual[k], p->slab), bytes, 0, t->s));
            if (t->o.kept) TRY(over->table->broadcast(over, state_at(&t->velocity[k], p->slab), bytes, 0, t->s));
        }
    }
    for (int i = 0; i < t->zero.owned && t->residual_back.dims; i++) {
        const zero_piece *p = &t->zero.piece[i];
        if (param_slices(&t->net->param[p->row]) > 1) continue;
        TRY(over->table->broadcast(over, state_at(&t->residual_back, p->shard), (size_t)p->count * sizeof(float), 0,
                                   t->s));
    }
    return ERR_OK;
}

// The same of what was left out of this island's deltas, and of the means that it adds up.
static err_t copy_shared_rests(train_state *t) {
    comm *over = t->o.tensor;
    const outer_room *x = &t->outer;
    if (!over || over->world == 1 || !x->residual.data) return ERR_OK;
    for (int i = 0; i < x->pieces; i++) {
        const outer_piece *p = &x->piece[i];
        size_t bytes = (size_t)p->of.count * sizeof(float);
        if (param_slices(&t->net->param[p->of.row]) > 1) continue;
        TRY(over->table->broadcast(over, state_at(&x->residual, p->of.shard), bytes, 0, t->s));
        if (p->owner == x->island)
            TRY(over->table->broadcast(over, state_at(&x->residual_back, p->of.shard - x->back_at), bytes, 0, t->s));
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
static err_t gather_exact(train_state *t, const bool *rows) {
    for (int g = 0; t->shards.masters && g < t->zero.segments; g++) {
        char *to;
        if (!state_has_exact(t, g) || !has_any(t, g, rows)) continue;
        const size_t *cuts = state_exact_cuts(t, g, &to);
        TRY(t->ranks->table->all_gather(t->ranks, to, cuts, t->s));
    }
    return t->exact.data ? stream_wait(t->s) : ERR_OK;
}

err_t state_fetch(train_state *t, bool all) {
    TRY(copy_mirrors(t, all ? 0 : state_shown(t), all ? 1 + t->arrays : 1, true));
    if (all) TRY(copy_residuals(t, true));
    if (!all || !t->scalars) return ERR_OK;
    TRY(stream_copy(t->s, t->scalar, state_scalars(state_step(t)), (size_t)t->scalars * sizeof *t->scalar));
    return stream_wait(t->s);
}

// --- what follows from the masters -----------------------------------------------------------------------------------

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
static err_t gather_weights(train_state *t, const bool *rows) {
    TRY(gather_exact(t, rows));
    return t->shards.masters && !state_shares_masters(t) ? spread(t, &t->weights, rows) : ERR_OK;
}

static err_t derive_weights(train_state *t, const bool *rows) {
    TRY(round_weights(t, rows));
    TRY(copy_all_exact(t));
    return gather_weights(t, rows);
}

// Has each island values of its own there?
static bool is_own(const train_state *t, int k, bool begins) {
    if (k == 0) return state_apart(t) && !begins;
    return k <= state_moments(t) && (t->o.own_moments || state_apart(t));
}

static err_t publish_stores(train_state *t, bool begins) {
    for (int k = 0; k < 1 + t->arrays; k++) {
        if (!is_own(t, k, begins)) TRY(copy_islands(t, state_store(t, k)));
        TRY(copy_shared(t, state_store(t, k)));
    }
    TRY(drop_anchor(t, begins));
    return state_mixed(t, NULL);
}

err_t state_mixed(train_state *t, const bool *rows) {
    for (int k = 0; k < (rows ? mixed_stores(t) : 1 + t->arrays); k++) TRY(spread(t, state_store(t, k), rows));
    return derive_weights(t, rows);
}

err_t state_derive(train_state *t) {
    TRY(spread(t, &t->masters, NULL));
    return derive_weights(t, NULL);
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

static err_t publish(train_state *t, bool begins) {
    TRY(publish_scalars(t));
    TRY(copy_mirrors(t, 0, 1 + t->arrays, false));
    TRY(copy_residuals(t, false));
    TRY(copy_shared_residuals(t));
    TRY(copy_shared_rests(t));
    if (!state_spills(t)) return publish_stores(t, begins);
    TRY(publish_spilled(t));
    return gather_weights(t, NULL);
}

err_t state_publish(train_state *t) { return publish(t, false); }
err_t state_begin(train_state *t) { return publish(t, true); }

static comm_cost spread_cost(train_state *t, const store *x, const bool *rows) {
    comm_cost sum = {0};
    for (int g = 0; g < t->zero.segments && is_whole(t, x); g++)
        if (has_any(t, g, rows))
            sum = cost_add(sum, cost_all_gather(t->ranks, state_cuts(t, g, dtype_bytes(x->t.type))));
    return sum;
}

comm_cost state_mixed_cost(train_state *t, const bool *rows) {
    comm_cost sum = {0};
    for (int k = 0; k < (rows ? mixed_stores(t) : 1 + t->arrays); k++)
        sum = cost_add(sum, spread_cost(t, state_store(t, k), rows));
    for (int g = 0; t->shards.masters && g < t->zero.segments; g++) {
        char *to;
        if (state_has_exact(t, g) && has_any(t, g, rows))
            sum = cost_add(sum, cost_all_gather(t->ranks, state_exact_cuts(t, g, &to)));
    }
    if (t->shards.masters && !state_shares_masters(t)) sum = cost_add(sum, spread_cost(t, &t->weights, rows));
    return sum;
}

// --- drawn, read, forgotten ------------------------------------------------------------------------------------------

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
    const outer_room *x = &t->outer;
    if (x->residual.data) TRY(stream_zero(t->s, x->residual.data, tensor_bytes(&x->residual)));
    if (x->residual_back.data) TRY(stream_zero(t->s, x->residual_back.data, tensor_bytes(&x->residual_back)));
    TRY(stream_wait(t->s));
    return stream_wait(s);
}

typedef struct reading {
    const train_state *t;
    values from;
} reading;

static err_t read_chunk(void *ctx, const zero_piece *p, tensor *value) {
    const reading *r = ctx;
    return state_read_piece(r->t, p, &r->from, value[0].data);
}

// The pieces of the masters that this rank owns, and no others.
static err_t read_pieces(train_state *t, const weights_map *map, uint64_t seed) {
    const values from = {map, seed};
    if (state_spills(t)) return spilled_walk(&t->spilled, SPILL_FILL, read_chunk, &(reading){t, from});
    for (int i = 0; i < t->zero.owned; i++) {
        const zero_piece *p = &t->zero.piece[i];
        if (t->net->param[p->row].tied < 0) TRY(state_read_piece(t, p, &from, state_host(t, 0, p)));
    }
    return ERR_OK;
}

err_t state_init(train_state *t, uint64_t seed) {
    TRY(read_pieces(t, NULL, seed));
    if (t->rows) TRY(row_table_clear(t->rows));
    return state_begin(t);
}

static err_t read_weights(train_state *t, const char *path, const void *options, unsigned lenient, uint64_t seed) {
    weights *w;
    weights_map *map = NULL;
    TRY(weights_open(&w, path));
    err_t rc = weights_match(&map, w, t->net, options, lenient);
    if (rc == ERR_OK) rc = read_pieces(t, map, seed);
    weights_map_close(map);
    weights_close(w);
    return rc;
}

err_t state_init_from(train_state *t, const char *path, const void *options, unsigned lenient, uint64_t seed) {
    err_t rc = read_weights(t, path, options, lenient, seed);
    TRY(comm_agree_ok(t->all, rc, t->s));  // the files are each node's own
    return state_begin(t);
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
