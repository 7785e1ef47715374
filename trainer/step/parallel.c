// trainer/step/parallel.c: see trainer/step/parallel.h. All ranks queue the same calls in the same order on their side
// streams, whatever they compute.
#include "trainer/step/parallel.h"

#include "base/clock.h"
#include "trainer/step/rows.h"

#include <stdlib.h>
#include <string.h>

// --- the side stream -------------------------------------------------------------------------------------------------

err_t parallel_follow(parallel *x) {
    TRY(event_record(x->computed, x->s));
    return stream_wait_event(x->side, x->computed);
}

// On a CPU the calling thread computes, so here the host waits.
err_t parallel_wait_as(parallel *x, span_kind kind, event *e) {
    TRY(stopwatch_begin(&x->watch, kind, x->s));
    double since = clock_now();
    err_t rc = stream_wait_event(x->s, e);
    x->wait_s[kind] += clock_now() - since;
    TRY(rc);
    return stopwatch_end(&x->watch, kind, x->s);
}

err_t parallel_wait_for(parallel *x, event *e) { return parallel_wait_as(x, SPAN_WAIT, e); }

err_t parallel_wait_shown(parallel *x, event *e, const char *what, int64_t number) {
    board_task before = board_waiting(x->board, WAIT_RANKS, what, number, x->step);
    err_t rc = parallel_wait_for(x, e);
    board_resume(x->board, before);
    return rc;
}

typedef struct side_call {
    parallel *x;
    const char *phase;
    parallel_body body;
    int what;
    int64_t step, turn;
} side_call;

static err_t run_call(void *ctx, stream *inner) {
    const side_call *k = ctx;
    parallel *x = k->x;
    double since = clock_now();
    x->ranks->phase.what = k->phase, x->ranks->phase.step = k->step, x->ranks->phase.number = k->what;
    TRY(stopwatch_begin(&x->watch, SPAN_BUSY, inner));
    board_beside(x->board, k->phase, k->what);
    TRY(k->body(x, k->what, k->turn, inner));  // a failure leaves on the board what failed
    board_beside(x->board, NULL, -1);
    double before = atomic_load(&x->busy_s), spent = clock_now() - since;
    while (!atomic_compare_exchange_weak(&x->busy_s, &before, before + spent)) {}
    return stopwatch_end(&x->watch, SPAN_BUSY, inner);
}

err_t parallel_queue(parallel *x, const char *phase, parallel_body body, int what, int64_t turn, event *done) {
    TRY(stream_call(x->side, run_call, &(side_call){x, phase, body, what, x->step, turn}, sizeof(side_call)));
    return event_record(done, x->side);
}

// --- actions ---------------------------------------------------------------------------------------------------------

err_t parallel_gather(parallel *x, int block) { return x->weights->gather(x, block); }
err_t parallel_need(parallel *x, int block) { return x->weights->need(x, block); }
err_t parallel_spread(parallel *x) { return x->weights->spread(x); }

// The rows' ranks are all of the run, by the same connections.
static stream *of_rows(parallel *x, stream *inner) {
    x->rows->ranks->phase = x->ranks->phase;
    return inner;
}

static err_t fetch_rows(parallel *x, int set, int64_t B, stream *inner) {
    return step_rows_fetch(x->rows, set, B, of_rows(x, inner));
}

static err_t look_ahead(parallel *x, int set, int64_t B, stream *inner) {
    return step_rows_ahead(x->rows, set, B, of_rows(x, inner));
}

err_t parallel_fetch(parallel *x, int set, int64_t B) {
    TRY(parallel_follow(x));
    return parallel_queue(x, "fetch rows", fetch_rows, set, B, x->fetched[set]);
}

err_t parallel_have(parallel *x, int set) { return parallel_wait_shown(x, x->fetched[set], "wait for rows", -1); }

err_t parallel_ahead(parallel *x, int set, int64_t B) {
    TRY(parallel_follow(x));
    return parallel_queue(x, "look for rows ahead", look_ahead, set, B, x->fetched[set]);
}

// Waits until the bucket that had the slot before has left it.
err_t parallel_take(parallel *x, int k) {
    train_state *t = x->state;
    const zero_bucket *b = &t->zero.bucket[k];
    int before = k - t->slots, at = k % t->slots;
    // the slot's last bucket of the previous turn
    if (before < 0) before = (t->zero.buckets - 1 - at) / t->slots * t->slots + at;
    TRY(parallel_wait_shown(x, x->reduced[before], "wait until a bucket is reduced", before));
    TRY(stream_zero(x->s, t->slot[at].data, b->floats * sizeof(float)));
    for (int g = b->first; g < b->first + b->count; g++)
        for (int i = t->zero.segment[g].first; i < t->zero.segment[g].first + t->zero.segment[g].rows; i++)
            t->grad[i].data = (float *)t->slot[at].data + (t->zero.row_at[i] - b->at);
    return ERR_OK;
}

err_t parallel_zero(parallel *x, int bucket) {
    const zero_bucket *b = &x->state->zero.bucket[bucket];
    return stream_zero(x->s, (float *)x->state->slab[0].data + b->at, b->floats * sizeof(float));
}

err_t parallel_add(parallel *x, int bucket, int into, int from) {
    const train_state *t = x->state;
    const zero_bucket *b = bucket < 0 ? NULL : &t->zero.bucket[bucket];
    size_t at = b ? b->at : 0, n = b ? b->floats : t->zero.slab;
    tensor sum = {(float *)t->slab[into].data + at, FP32, 1, {(int64_t)n, 1, 1, 1}}, more = sum;
    more.data = (float *)t->slab[from].data + at;
    return x->ops->add(&(add_args){.y = &sum, .a = &sum, .b = &more}, x->s);
}

err_t parallel_reduce(parallel *x, int k, int64_t turn) {
    TRY(parallel_follow(x));
    return parallel_queue(x, "reduce gradients", x->gradients->reduce, k, turn, x->reduced[k]);
}

err_t parallel_settle(parallel *x) {
    if (!x->side) return ERR_OK;
    for (int k = 0; k < x->state->zero.buckets; k++)
        TRY(parallel_wait_shown(x, x->reduced[k], "wait until a bucket is reduced", k));
    return ERR_OK;
}

// --- the step's end --------------------------------------------------------------------------------------------------

err_t parallel_join(parallel *x) {
    if (!x->side) return ERR_OK;
    TRY(event_record(x->joined, x->side));
    board_task before = board_waiting(x->board, WAIT_RANKS, "wait for communication", -1, x->step);
    err_t rc = parallel_wait_as(x, SPAN_JOIN, x->joined);
    board_resume(x->board, before);
    return rc;
}

err_t parallel_wait(parallel *x) {
    double since = clock_now();
    err_t rc = x->side ? stream_wait(x->side) : ERR_OK;
    x->wait_s[SPAN_WAIT] += clock_now() - since;
    return rc;
}

void parallel_times(parallel *x, double wait_s[SPANS], double *busy_s) {
    memcpy(wait_s, x->wait_s, sizeof x->wait_s);
    *busy_s = atomic_exchange(&x->busy_s, 0);
    memset(x->wait_s, 0, sizeof x->wait_s);
}

// --- opening ---------------------------------------------------------------------------------------------------------

static err_t open_events(event **e, int n, device *dev) {
    for (int i = 0; i < n; i++) TRY(event_open(dev, &e[i]));
    return ERR_OK;
}

// One rank alone has work beside only where it codes its lanes, or finds rows.
static bool has_side(const train_state *t) { return t->ranks->world > 1 || state_codes(t) || t->net->table.width; }

// The most spans that a step can have. It waits before each block (stage 3) or for each segment that was spread. It
// waits for each bucket of each turn: before the bucket's slot is used again, and at the end. Forward and backward each
// gather a block at most once, and one block ahead. A pipeline waits for each message, and for the buckets at each turn
// of each of the rank's stages; what a tied head's ranks spread joins again.
static err_t open_watch(parallel *x, const parallel_spans *o) {
    const train_state *t = x->state;
    if (device_about(t->dev)->kind == DEVICE_CPU || !t->o.training) return ERR_OK;
    int turns = (int)reduce_turns(t->reduce), buckets = t->zero.buckets;
    int lanes = t->turns     ? turns * (int)lane_table_span(reduce_lanes(t->reduce))
                : t->o.moves ? (int)t->o.lanes
                             : (int)reduce_lane_count(t->reduce, t->ranks->rank),
        passes = lanes * (int)t->o.micros;
    int weights = (t->shards.weights ? passes * 2 * (t->net->blocks + 1) : 0) +
                  (t->shards.weights && !t->exact.dims ? 0 : t->zero.segments);
    int most[SPANS] = {[SPAN_STEP] = 1,
                       [SPAN_DATA] = passes,
                       [SPAN_BEFORE] = o->messages,
                       [SPAN_AFTER] = o->messages,
                       [SPAN_TENSOR] = o->merges};
    if (has_side(t)) {
        most[SPAN_WAIT] = weights + (turns * o->chunks + 1) * buckets;
        most[SPAN_JOIN] = 2, most[SPAN_BUSY] = weights + turns * buckets;
    }
    return stopwatch_open(&x->watch, t->dev, most);
}

static void fill_bases(parallel *x) {
    const train_state *t = x->state;
    for (int i = 0; i < t->kepts; i++) x->kept[i] = t->kept[i].data;
}

err_t parallel_open(parallel *x, train_state *t, const gradient_policy *gradients, const weight_policy *weights,
                    const parallel_spans *spans) {
    *x = (parallel){.state = t,
                    .ranks = t->ranks,
                    .ops = device_ops(t->dev),
                    .s = t->s,
                    .gradients = gradients,
                    .weights = weights};
    size_t buckets = (size_t)t->zero.buckets, segments = (size_t)t->zero.segments;
    x->reduced = calloc(buckets, sizeof *x->reduced);
    x->arrived = calloc(segments, sizeof *x->arrived);
    x->fresh = calloc(segments, sizeof *x->fresh);
    x->lanes = calloc((size_t)t->buffers + 1, sizeof *x->lanes);
    x->kept = calloc((size_t)t->kepts + 1, sizeof *x->kept);
    if (!x->reduced || !x->arrived || !x->fresh || !x->lanes || !x->kept)
        return err_set(ERR_INTERNAL, "no memory for %zu buckets", buckets);
    fill_bases(x);
    TRY(event_open(t->dev, &x->computed));
    TRY(event_open(t->dev, &x->joined));
    TRY(open_events(x->reduced, t->zero.buckets, t->dev));
    TRY(open_events(x->arrived, t->zero.segments, t->dev));
    TRY(open_events(x->gathered, 2, t->dev));
    TRY(open_events(x->fetched, 2, t->dev));
    TRY(open_watch(x, spans));
    return has_side(t) ? stream_open_queue(t->dev, &x->side) : ERR_OK;
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
        close_events(x->fetched, 2);
        close_events(&x->computed, 1);
        close_events(&x->joined, 1);
    }
    free(x->reduced), free(x->arrived), free(x->fresh), free(x->lanes), free(x->kept);
    *x = (parallel){0};
}
