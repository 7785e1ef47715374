// trainer/step/parallel.c: see trainer/step/parallel.h. All ranks queue the same calls in the same order on their side
// streams, whatever they compute: a rank without a lane at a turn runs only the hooks.
#include "trainer/step/parallel.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

static void set_phase(comm *c, const char *what, int64_t step, int64_t number) {
    c->phase.what = what;
    c->phase.step = step;
    c->phase.number = number;
}

// Time spent in a call on the side stream.
static err_t begin_busy(parallel *x, double *since, stream *inner) {
    *since = clock_now();
    return stopwatch_begin(&x->watch, SPAN_BUSY, inner);
}

static err_t end_busy(parallel *x, double since, stream *inner) {
    double before = atomic_load(&x->busy_s), spent = clock_now() - since;
    while (!atomic_compare_exchange_weak(&x->busy_s, &before, before + spent)) {}
    return stopwatch_end(&x->watch, SPAN_BUSY, inner);
}

// The side stream waits for the work queued so far on the compute stream.
static err_t follow_compute(parallel *x) {
    TRY(event_record(x->computed, x->s));
    return stream_wait_event(x->side, x->computed);
}

// On a CPU the calling thread computes, so here the host waits.
static err_t wait_as(parallel *x, span_kind kind, event *e) {
    TRY(stopwatch_begin(&x->watch, kind, x->s));
    double since = clock_now();
    err_t rc = stream_wait_event(x->s, e);
    x->wait_s += clock_now() - since;
    TRY(rc);
    return stopwatch_end(&x->watch, kind, x->s);
}

static err_t wait_for(parallel *x, event *e) { return wait_as(x, SPAN_WAIT, e); }

// --- weights -----------------------------------------------------------------------------------------------------------------------

typedef struct weights_call { parallel *x; int64_t step; int what; } weights_call;  // what: a block (stage 3), or a segment

// Stage 3: copies this rank's share of a block's weights, then gathers all shares. The ranges include the padding, so
// the zeros after a vocabulary are there whichever block was here before.
static err_t gather_block(void *ctx, stream *inner) {
    const weights_call *k = ctx;
    parallel *x = k->x;
    train_state *t = x->state;
    size_t element = dtype_bytes(t->o.compute), at = 0;
    double since;
    TRY(begin_busy(x, &since, inner));
    set_phase(x->ranks, "gather weights", k->step, k->what);
    for (int g = 0; g < t->zero.segments; g++) {
        if (!state_uses(t, k->what, g)) continue;
        char *to = (char *)t->gather[k->what % 2].data + at * element;
        const size_t *cut = state_cuts(t, g, element);
        size_t own = zero_range(&t->zero, g, t->zero.rank) * element;
        if (own) TRY(stream_copy(inner, to + cut[t->zero.rank], (char *)t->weights.t.data + t->zero.shard_at[g] * element, own));
        TRY(x->ranks->table->all_gather(x->ranks, to, cut, inner));
        at += t->zero.segment[g].count;
    }
    return end_busy(x, since, inner);
}

static err_t bring_block(parallel *x, int block) {
    int place = block % 2;
    if (x->held[place] == block) return ERR_OK;
    x->held[place] = block;
    TRY(follow_compute(x));  // reads of the block that was here are done
    TRY(stream_call(x->side, gather_block, &(weights_call){x, x->step, block}, sizeof(weights_call)));
    return event_record(x->gathered[place], x->side);
}

static void point_rows(parallel *x, int block) {
    train_state *t = x->state;
    size_t element = dtype_bytes(t->o.compute), at = 0;
    for (int g = 0; g < t->zero.segments; g++) {
        if (!state_uses(t, block, g)) continue;
        const zero_segment *s = &t->zero.segment[g];
        char *base = (char *)t->gather[block % 2].data + at * element;
        for (int i = 0; i < t->net->params; i++) {
            const param *p = &t->net->param[i];
            int of = p->tied >= 0 ? p->tied : i;
            if (p->block == block && of >= s->first && of < s->first + s->rows) t->w[i].data = base + (t->zero.row_at[of] - s->at) * element;
        }
        at += s->count;
    }
}

static err_t need_block(parallel *x, int block, int next) {
    train_state *t = x->state;
    if (t->o.stage == 3) {
        TRY(bring_block(x, block));
        if (next >= 0 && next < t->net->blocks) TRY(bring_block(x, next));
        TRY(wait_for(x, x->gathered[block % 2]));
        point_rows(x, block);
        return ERR_OK;
    }
    for (int g = 0; g < t->zero.segments; g++) {
        if (!x->fresh[g] || !state_uses(t, block, g)) continue;
        x->fresh[g] = false;
        TRY(wait_for(x, x->arrived[g]));
    }
    return ERR_OK;
}

static err_t gather_segment(void *ctx, stream *inner) {
    const weights_call *k = ctx;
    train_state *t = k->x->state;
    size_t element = dtype_bytes(t->weights.t.type);
    double since;
    TRY(begin_busy(k->x, &since, inner));
    set_phase(k->x->ranks, "spread weights", k->step, k->what);
    char *at = (char *)t->weights.t.data + t->zero.segment[k->what].at * element;
    TRY(k->x->ranks->table->all_gather(k->x->ranks, at, state_cuts(t, k->what, element), inner));
    return end_busy(k->x, since, inner);
}

// Sends segments in the order in which the next forward pass needs them.
err_t parallel_spread(parallel *x) {
    train_state *t = x->state;
    parallel_forget(x);
    if (x->ranks->world == 1 || t->o.stage == 0 || t->o.stage == 3) return ERR_OK;
    TRY(follow_compute(x));
    for (int g = 0; g < t->zero.segments; g++) {
        if (t->zero.segment[g].tied) continue;
        TRY(stream_call(x->side, gather_segment, &(weights_call){x, x->step, g}, sizeof(weights_call)));
        TRY(event_record(x->arrived[g], x->side));
        x->fresh[g] = true;
    }
    return ERR_OK;
}

void parallel_forget(parallel *x) { x->held[0] = x->held[1] = -1; }

// --- gradients ---------------------------------------------------------------------------------------------------------------------

static int highest_block(const zero_layout *z, const zero_bucket *b) { return z->segment[b->first + b->count - 1].block; }

// Takes a bucket's slot when the previous bucket has left it, and zeroes it.
static err_t take_slot(parallel *x, int k) {
    train_state *t = x->state;
    const zero_bucket *b = &t->zero.bucket[k];
    int before = k - t->slots, at = k % t->slots;
    if (before < 0) before = (t->zero.buckets - 1 - at) / t->slots * t->slots + at;  // the slot's last bucket of the previous turn
    TRY(wait_for(x, x->reduced[before]));
    TRY(stream_zero(x->s, t->slot[at].data, b->floats * sizeof(float)));
    for (int g = b->first; g < b->first + b->count; g++)
        for (int i = t->zero.segment[g].first; i < t->zero.segment[g].first + t->zero.segment[g].rows; i++)
            t->grad[i].data = (float *)t->slot[at].data + (t->zero.row_at[i] - b->at);
    return ERR_OK;
}

typedef struct bucket_call { parallel *x; int64_t step, turn; int bucket; } bucket_call;

static float *bucket_base(const train_state *t, int k, int buffer) {
    return t->slots ? t->slot[k % t->slots].data : (float *)t->slab[buffer].data;
}

// Order as in the INI: along the tree.
static err_t reduce_fixed(parallel *x, int k, int64_t turn, stream *inner) {
    train_state *t = x->state;
    const zero_bucket *b = &t->zero.bucket[k];
    bool sharded = t->o.stage >= 2;
    size_t lane_at[b->first + b->count], own_at[b->first + b->count];
    for (int i = 0; i < t->buffers; i++) x->lanes[i] = bucket_base(t, k, i);
    for (int g = b->first; g < b->first + b->count; g++) {
        lane_at[g] = t->zero.segment[g].at - (t->slots ? b->at : 0);
        own_at[g] = sharded ? t->zero.shard_at[g] : t->zero.slab_at[g];
    }
    float *out = sharded ? t->sum.data : t->slab[t->sum_buffer].data;
    return reduce_run(t->reduce, &(reduce_job){.turn = turn, .first = b->first, .count = b->count, .lane = x->lanes, .lane_at = lane_at, .kept = x->kepts,
                                               .out = out, .own_at = own_at, .scratch = t->scratch.data}, inner);
}

// In the transport's order: stage 0 as one sum over all ranks, else to the owners; turns are added one after the other.
static err_t reduce_any(parallel *x, int k, int64_t turn, stream *inner) {
    train_state *t = x->state;
    const zero_bucket *b = &t->zero.bucket[k];
    float *base = bucket_base(t, k, 0);
    if (t->o.stage == 0) return x->ranks->table->all_reduce(x->ranks, base + b->at, b->floats, FP32, REDUCE_SUM, inner);
    for (int g = b->first; g < b->first + b->count; g++) {
        float *from = base + t->zero.segment[g].at - (t->slots ? b->at : 0);
        const size_t *cut = state_cuts(t, g, 1);
        TRY(x->ranks->table->reduce_scatter(x->ranks, from, cut, FP32, inner));
        int64_t n = (int64_t)zero_range(&t->zero, g, t->zero.rank);
        if (t->o.stage == 1 || n == 0) continue;
        tensor part = {from + cut[t->zero.rank], FP32, 1, {n, 1, 1, 1}}, sum = part;
        sum.data = (float *)t->sum.data + t->zero.shard_at[g];
        if (turn == 0) TRY(stream_copy(inner, sum.data, part.data, (size_t)n * sizeof(float)));
        else TRY(x->ops->add(&(add_args){.y = &sum, .a = &sum, .b = &part}, inner));
    }
    return ERR_OK;
}

// Stage 0: the owners send their sums to all ranks.
static err_t return_bucket(parallel *x, int k, stream *inner) {
    train_state *t = x->state;
    const zero_bucket *b = &t->zero.bucket[k];
    float *sum = t->slab[t->sum_buffer].data;
    for (int g = b->first; g < b->first + b->count; g++)
        TRY(x->ranks->table->all_gather(x->ranks, sum + t->zero.segment[g].at, state_cuts(t, g, sizeof(float)), inner));
    return ERR_OK;
}

static err_t reduce_bucket(void *ctx, stream *inner) {
    const bucket_call *k = ctx;
    parallel *x = k->x;
    double since;
    TRY(begin_busy(x, &since, inner));
    set_phase(x->ranks, "reduce gradients", k->step, k->bucket);
    TRY(x->state->o.fixed ? reduce_fixed(x, k->bucket, k->turn, inner) : reduce_any(x, k->bucket, k->turn, inner));
    if (x->state->o.fixed && x->state->o.stage == 0) TRY(return_bucket(x, k->bucket, inner));
    return end_busy(x, since, inner);
}

// Adds the siblings that this rank's last lane completes, in the bucket's part of the slabs.
static err_t merge_bucket(parallel *x, const zero_bucket *b) {
    const train_state *t = x->state;
    for (int i = 0; i < x->merges; i++) {
        tensor into = {(float *)t->slab[x->merge[i].into].data + b->at, FP32, 1, {(int64_t)b->floats, 1, 1, 1}}, from = into;
        from.data = (float *)t->slab[x->merge[i].from].data + b->at;
        TRY(x->ops->add(&(add_args){.y = &into, .a = &into, .b = &from}, x->s));
    }
    return ERR_OK;
}

static err_t hand_over(parallel *x, int k) {
    TRY(merge_bucket(x, &x->state->zero.bucket[k]));
    if (x->ranks->world == 1) return ERR_OK;
    TRY(follow_compute(x));
    TRY(stream_call(x->side, reduce_bucket, &(bucket_call){x, x->step, x->turn, k}, sizeof(bucket_call)));
    return event_record(x->reduced[k], x->side);
}

// --- hooks -------------------------------------------------------------------------------------------------------------------------

static err_t enter_block(void *ctx, int block, bool backward) {
    parallel *x = ctx;
    train_state *t = x->state;
    TRY(need_block(x, block, backward ? block - 1 : block + 1));
    if (!backward || !t->slots) return ERR_OK;
    for (int k = 0; k < t->zero.buckets; k++)
        if (highest_block(&t->zero, &t->zero.bucket[k]) == block) TRY(take_slot(x, k));
    return ERR_OK;
}

static err_t leave_block(void *ctx, int block, bool backward) {
    parallel *x = ctx;
    x->ranks->table->alive(x->ranks);
    TRY(x->ranks->table->query(x->ranks));  // notices a lost rank here, not at the end of a long step
    if (!backward || !x->final) return ERR_OK;
    for (int k = 0; k < x->state->zero.buckets; k++)
        if (x->state->zero.bucket[k].block == block) TRY(hand_over(x, k));
    return ERR_OK;
}

// --- a step ------------------------------------------------------------------------------------------------------------------------

void parallel_begin(parallel *x, int64_t step) {
    x->step = step;
    x->merges = 0;
    x->final = false;
}

void parallel_micro(parallel *x, int64_t turn, bool last, const lane_counter *c) {
    x->turn = turn;
    x->final = last;
    x->merges = 0;
    if (!c || !last) return;
    lane_counter after = *c;
    while (lane_counter_merge(&after, &x->merge[x->merges].into, &x->merge[x->merges].from)) x->merges++;
}

bool parallel_is_quiet(const parallel *x) {
    const train_state *t = x->state;
    if (t->slots || t->o.stage == 3 || (x->final && x->ranks->world > 1)) return false;
    for (int g = 0; g < t->zero.segments; g++)
        if (x->fresh[g]) return false;
    return true;
}

err_t parallel_lane(parallel *x) { return x->state->o.stage >= 2 && !x->state->slots ? parallel_finish(x) : ERR_OK; }

err_t parallel_finish(parallel *x) {
    if (x->ranks->world == 1) return ERR_OK;
    for (int k = 0; k < x->state->zero.buckets; k++) TRY(wait_for(x, x->reduced[k]));
    return ERR_OK;
}

err_t parallel_join(parallel *x) {
    if (!x->side) return ERR_OK;
    TRY(event_record(x->joined, x->side));
    return wait_as(x, SPAN_JOIN, x->joined);
}

err_t parallel_wait(parallel *x) {
    double since = clock_now();
    err_t rc = x->side ? stream_wait(x->side) : ERR_OK;
    x->wait_s += clock_now() - since;
    return rc;
}

void parallel_times(parallel *x, double *wait_s, double *busy_s) {
    *wait_s = x->wait_s;
    *busy_s = atomic_exchange(&x->busy_s, 0);
    x->wait_s = 0;
}

// --- opening -----------------------------------------------------------------------------------------------------------------------

static err_t open_events(event **e, int n, device *dev) {
    for (int i = 0; i < n; i++) TRY(event_open(dev, &e[i]));
    return ERR_OK;
}

// The most spans that a step can have. It waits before each block (stage 3) or for each segment that was spread. It
// waits for each bucket of each turn: before the bucket's slot is used again, and at the end. Forward and backward each
// gather a block at most once, and one block ahead.
static err_t open_watch(parallel *x) {
    const train_state *t = x->state;
    if (device_about(t->dev)->kind == DEVICE_CPU || !t->o.training) return ERR_OK;
    int turns = (int)reduce_turns(t->reduce), buckets = t->zero.buckets;
    int lanes = t->o.stage >= 2 ? turns : (int)reduce_lane_count(t->reduce, t->ranks->rank), passes = lanes * (int)t->o.micros;
    int weights = t->o.stage == 3 ? passes * 2 * (t->net->blocks + 1) : t->zero.segments;
    int most[SPANS] = {[SPAN_STEP] = 1, [SPAN_DATA] = passes};
    if (t->ranks->world > 1) most[SPAN_WAIT] = weights + (turns + 1) * buckets, most[SPAN_JOIN] = 1, most[SPAN_BUSY] = weights + turns * buckets;
    return stopwatch_open(&x->watch, t->dev, most);
}

static void fill_bases(parallel *x) {
    const train_state *t = x->state;
    for (int i = 0; i < t->kepts; i++) x->kepts[i] = t->kept[i].data;
}

err_t parallel_open(parallel *x, train_state *t) {
    *x = (parallel){.state = t, .ranks = t->ranks, .ops = device_ops(t->dev), .s = t->s, .held = {-1, -1}};
    x->hooks = (pass_hooks){x, enter_block, leave_block};
    size_t buckets = (size_t)t->zero.buckets, segments = (size_t)t->zero.segments;
    x->reduced = calloc(buckets, sizeof *x->reduced);
    x->arrived = calloc(segments, sizeof *x->arrived);
    x->fresh = calloc(segments, sizeof *x->fresh);
    x->lanes = calloc((size_t)t->buffers + 1, sizeof *x->lanes);
    x->kepts = calloc((size_t)t->kepts + 1, sizeof *x->kepts);
    if (!x->reduced || !x->arrived || !x->fresh || !x->lanes || !x->kepts) return err_set(ERR_INTERNAL, "no memory for %zu buckets", buckets);
    fill_bases(x);
    TRY(event_open(t->dev, &x->computed));
    TRY(event_open(t->dev, &x->joined));
    TRY(open_events(x->reduced, t->zero.buckets, t->dev));
    TRY(open_events(x->arrived, t->zero.segments, t->dev));
    TRY(open_events(x->gathered, 2, t->dev));
    TRY(open_watch(x));
    return t->ranks->world > 1 ? stream_open_queue(t->dev, &x->side) : ERR_OK;
}

static void close_events(event **e, int n) {
    for (int i = 0; e && i < n; i++)
        if (e[i]) event_close(e[i]);
}

void parallel_close(parallel *x) {
    if (x->side) stream_close(x->side);
    stopwatch_close(&x->watch);
    if (x->state) {
        close_events(x->reduced, x->state->zero.buckets);
        close_events(x->arrived, x->state->zero.segments);
        close_events(x->gathered, 2);
        close_events(&x->computed, 1);
        close_events(&x->joined, 1);
    }
    free(x->reduced), free(x->arrived), free(x->fresh), free(x->lanes), free(x->kepts);
    *x = (parallel){0};
}
