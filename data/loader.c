// data/loader.c: one thread that keeps a ring of batches full, so that the trainer finds the next one ready.
//
// The ring's slots are handed out in order. `produced` and `taken` only grow; the trainer holds the batch taken last
// until it asks for the next. The thread runs at most `ahead` batches before the trainer. `ahead` grows after the
// trainer had to wait, and shrinks when over a long time at least one ready batch was always left.
#include "data/loader.h"

#include "base/clock.h"
#include "base/quantiles.h"
#include "base/thread.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { LOADER_READERS = 64 };
enum { PAGE = 4096, AHEAD_LEAST = 2, CALM = 256 };  // CALM: batches after which the depth may shrink by one

// A lane that was asked for.
typedef struct asked {
    int64_t step, lane;
} asked;

struct loader {
    loader_options o;
    source *from;
    int64_t micros;           // micro-batches of a lane
    int64_t per_step, total;  // micro-batches of this rank: of a step, and in all, or all that were asked for
    asked *ask;               // [o.asks], in turn
    int64_t slot;             // bytes of a batch in the ring
    pthread_t thread;
    bool running;

    // Readers, the loader's thread being number 0, take the samples of `filled` in turn.
    int readers;
    pthread_t helper[LOADER_READERS];  // [1 .. readers-1]
    batch filled;
    int64_t first, end;            // samples of a batch that are read
    atomic_llong next;             // the one that the next free reader takes
    pthread_mutex_t reading;       // guards what follows, up to `failed_read`
    pthread_cond_t begin, finish;  // there is a batch to fill; a helper has no more to do
    int64_t fills;                 // batches begun
    int busy;                      // helpers that are not done
    bool dismissed;
    int64_t failed_at;  // sample of the batch whose read failed, the first of them; `end`: none
    err_record failed_read;

    pthread_mutex_t lock;       // guards all below
    pthread_cond_t more, less;  // a batch was produced; there is room, or the thread must stop
    int64_t produced, taken;
    int ahead;
    int64_t calm, spare;  // batches since the last wait or change of depth; fewest ready batches in that time
    double wait_s;
    quantiles read_s;  // of one micro-batch each
    bool held;         // the trainer is using batch taken-1
    bool stop, failed;
    err_record failure;
};

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Bytes of input k of a batch, in whole pages.
static int64_t part_bytes(const loader_options *o, int k) {
    return round_up(o->micro * (int64_t)spec_bytes(&o->in[k]), PAGE);
}

static int64_t slot_bytes(const loader_options *o) {
    int64_t all = 0;
    for (int k = 0; k < o->inputs; k++) all += part_bytes(o, k);
    return all;
}

int64_t loader_bytes(const loader_options *o) { return slot_bytes(o) * o->depth; }

static int64_t lane_of(const loader_options *o, int64_t i) {
    return o->lane_list ? o->lane_list[i] : o->first_lane + i * o->lane_stride;
}

// Step and lane of micro-batch `number` of this rank, counted from the loader's first step.
static asked whose(const loader *l, int64_t number) {
    if (l->o.asks) return l->ask[number / l->micros % l->o.asks];
    return (asked){l->o.first_step + number / l->per_step, lane_of(&l->o, number % l->per_step / l->micros)};
}

static batch batch_at(const loader *l, int64_t number) {
    const loader_options *o = &l->o;
    const asked of = whose(l, number);
    int64_t micro = number % l->micros;
    char *at = (char *)o->memory + number % o->depth * l->slot;
    batch b = {
        .step = of.step,
        .lane = of.lane,
        .micro = micro,
        .first = of.lane * (o->global / o->lanes) + micro * o->micro,
    };
    for (int k = 0; k < o->inputs; k++) {
        b.in[k] = at;
        at += part_bytes(o, k);
    }
    return b;
}

static err_t read_sample(loader *l, const batch *b, int64_t i, int reader) {
    const loader_options *o = &l->o;
    source_draw d = source_draw_at(l->from, o->seed, (b->step - 1) * o->global + b->first + i, o->shuffle);
    void *to[SOURCE_TENSORS];
    for (int k = 0; k < o->inputs; k++) to[k] = (char *)b->in[k] + (size_t)i * spec_bytes(&o->in[k]);
    d.reader = reader;
    return source_read(l->from, &d, to);
}

// Reads samples of the batch until none is left. After a failure none is begun; those before it were, so that the first
// sample that fails is the same however many readers there are.
static void read_some(loader *l, int reader) {
    for (int64_t i; (i = atomic_fetch_add(&l->next, 1)) < l->end;) {
        if (read_sample(l, &l->filled, i, reader) == ERR_OK) continue;
        pthread_mutex_lock(&l->reading);
        if (i < l->failed_at) l->failed_at = i, l->failed_read = *err_last();
        pthread_mutex_unlock(&l->reading);
        atomic_store(&l->next, l->end);
    }
}

typedef struct helper {
    loader *l;
    int reader;
} helper;

static void *help(void *arg) {
    helper h = *(helper *)arg;
    loader *l = h.l;
    free(arg);
    pthread_mutex_lock(&l->reading);
    for (int64_t seen = 0;; seen++) {
        while (!l->dismissed && l->fills == seen) pthread_cond_wait(&l->begin, &l->reading);
        if (l->dismissed) break;
        pthread_mutex_unlock(&l->reading);
        read_some(l, h.reader);
        pthread_mutex_lock(&l->reading);
        if (--l->busy == 0) pthread_cond_signal(&l->finish);
    }
    pthread_mutex_unlock(&l->reading);
    return NULL;
}

static err_t fill(loader *l, const batch *b) {
    l->filled = *b;
    atomic_store(&l->next, l->first);
    pthread_mutex_lock(&l->reading);
    l->failed_at = l->end;
    l->busy = l->readers - 1;
    l->fills++;
    pthread_cond_broadcast(&l->begin);
    pthread_mutex_unlock(&l->reading);
    read_some(l, 0);
    pthread_mutex_lock(&l->reading);
    while (l->busy > 0) pthread_cond_wait(&l->finish, &l->reading);
    bool failed = l->failed_at < l->end;
    pthread_mutex_unlock(&l->reading);
    return failed ? err_restore(&l->failed_read) : ERR_OK;
}

static err_t hire(loader *l) {
    int wanted = l->o.readers < LOADER_READERS ? l->o.readers : LOADER_READERS;
    if (wanted > l->from->readers) wanted = l->from->readers;
    for (l->readers = 1; l->readers < wanted; l->readers++) {
        helper *h = malloc(sizeof *h);
        if (!h) return err_set(ERR_INTERNAL, "no memory for a thread that reads");
        *h = (helper){l, l->readers};
        err_t rc = thread_start(&l->helper[l->readers], "lockstep/reader", help, h);
        if (rc != ERR_OK) return free(h), rc;
    }
    return ERR_OK;
}

static void dismiss(loader *l) {
    pthread_mutex_lock(&l->reading);
    l->dismissed = true;
    pthread_cond_broadcast(&l->begin);
    pthread_mutex_unlock(&l->reading);
    for (int k = 1; k < l->readers; k++) pthread_join(l->helper[k], NULL);
}

// The slot that the trainer holds counts as used.
static bool has_room(const loader *l) {
    int64_t ready = l->produced - l->taken;
    return ready < l->ahead && ready + l->held < l->o.depth;
}

// Has the thread read all that there will be?
static bool has_ended(const loader *l) { return !l->o.asks && l->produced == l->total; }

static void *run(void *arg) {
    loader *l = arg;
    pthread_mutex_lock(&l->lock);
    while (!has_ended(l) && !l->failed) {
        while (!l->stop && (l->produced == l->total || !has_room(l))) pthread_cond_wait(&l->less, &l->lock);
        if (l->stop) break;
        batch b = batch_at(l, l->produced);
        pthread_mutex_unlock(&l->lock);
        double from = clock_now();
        err_t rc = fill(l, &b);
        pthread_mutex_lock(&l->lock);
        if (rc == ERR_OK) l->produced++, quantiles_add(&l->read_s, clock_now() - from);
        else l->failed = true, l->failure = *err_last();
        pthread_cond_signal(&l->more);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static err_t check(const loader_options *o, const source *from) {
    if (o->inputs < 1 || o->micro < 1 || o->lanes < 1 || o->global < 1 || o->depth < 1 || !o->memory)
        return err_set(ERR_INTERNAL,
                       "loader: %d inputs, micro %" PRId64 ", lanes %" PRId64 ", global %" PRId64
                       ", depth %d: expected at least 1",
                       o->inputs, o->micro, o->lanes, o->global, o->depth);
    for (int k = 0; k < o->inputs; k++)
        if (o->micro > INT32_MAX ||
            spec_bytes(&o->in[k]) > (uint64_t)INT64_MAX / 64 / (uint64_t)o->micro / (uint64_t)o->depth)
            return err_set(ERR_CONFIG,
                           "[batch] micro %" PRId64 " of %zu bytes of `%s`, %d batches deep, is out of reach", o->micro,
                           spec_bytes(&o->in[k]), o->in[k].name, o->depth);
    if (o->own_first < 0 || o->own_count < 0 || o->own_first + o->own_count > o->micro)
        return err_set(ERR_INTERNAL, "loader: samples %" PRId64 " + %" PRId64 " of micro-batches of %" PRId64,
                       o->own_first, o->own_count, o->micro);
    if (o->lanes > o->global || o->global % o->lanes || o->global / o->lanes % o->micro)
        return err_set(ERR_CONFIG,
                       "[batch] global %" PRId64 ", expected a multiple of lanes %" PRId64 " * micro %" PRId64,
                       o->global, o->lanes, o->micro);
    if (o->first_lane < 0 || o->lane_count < 0 || o->lane_stride < 1 ||
        (o->lane_count && (lane_of(o, 0) < 0 || lane_of(o, o->lane_count - 1) >= o->lanes)))
        return err_set(ERR_INTERNAL,
                       "loader: %" PRId64 " lanes from %" PRId64 ", every %" PRId64 "th, expected some of 0..%" PRId64,
                       o->lane_count, o->first_lane, o->lane_stride, o->lanes - 1);
    if (o->first_step < 1 || o->last_step < o->first_step - 1 || o->last_step > INT64_MAX / o->global)
        return err_set(ERR_INTERNAL, "loader: steps %" PRId64 " to %" PRId64, o->first_step, o->last_step);
    if (o->asks < 0) return err_set(ERR_INTERNAL, "loader: room for %" PRId64 " lanes that are asked for", o->asks);
    if (source_about(from).samples < 1) return err_set(ERR_DATA, "the data has no sample");
    return ERR_OK;
}

err_t loader_open(loader **out, source *from, const loader_options *o) {
    *out = NULL;
    TRY(check(o, from));
    loader *l = calloc(1, sizeof *l);
    if (!l) return err_set(ERR_INTERNAL, "no memory for the loader");
    l->o = *o;
    l->from = from;
    l->micros = o->global / o->lanes / o->micro;
    l->first = o->own_first, l->end = o->own_count ? o->own_first + o->own_count : o->micro;
    l->per_step = o->lane_count * l->micros;
    l->total = o->asks ? 0 : (o->last_step - o->first_step + 1) * l->per_step;
    l->slot = slot_bytes(o);
    l->ahead = o->depth < AHEAD_LEAST ? o->depth : AHEAD_LEAST;
    l->spare = o->depth;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->more, NULL);
    pthread_cond_init(&l->less, NULL);
    pthread_mutex_init(&l->reading, NULL);
    pthread_cond_init(&l->begin, NULL);
    pthread_cond_init(&l->finish, NULL);
    l->ask = o->asks ? calloc((size_t)o->asks, sizeof *l->ask) : NULL;
    err_t rc = o->asks && !l->ask ? err_set(ERR_INTERNAL, "no memory for the lanes that are asked for") : hire(l);
    if (rc == ERR_OK) rc = thread_start(&l->thread, "lockstep/loader", run, l);
    l->running = rc == ERR_OK;
    if (rc != ERR_OK) loader_close(l);
    else *out = l;
    return rc;
}

err_t loader_ask(loader *l, int64_t step, int64_t lane) {
    const loader_options *o = &l->o;
    if (l->total - l->taken > (o->asks - 1) * l->micros)
        return err_set(ERR_INTERNAL, "loader: more than %" PRId64 " lanes are asked for", o->asks);
    if (lane < 0 || lane >= o->lanes || step < o->first_step || step > o->last_step)
        return err_set(ERR_INTERNAL, "loader: lane %" PRId64 " of step %" PRId64 " is asked for", lane, step);
    pthread_mutex_lock(&l->lock);
    l->ask[l->total / l->micros % o->asks] = (asked){step, lane};
    l->total += l->micros;
    pthread_cond_signal(&l->less);
    pthread_mutex_unlock(&l->lock);
    return ERR_OK;
}

// The depth doubles when the trainer had to wait. It shrinks by one after CALM batches without a wait in which one less
// would have been enough. The wait for the very first batch does not count: it always happens.
static void adapt(loader *l, bool waited) {
    int64_t left = l->produced - l->taken - 1;  // ready, without the one being taken
    if (waited && l->taken > 0) {
        l->ahead = 2 * l->ahead < l->o.depth ? 2 * l->ahead : l->o.depth;
        l->calm = 0;
        l->spare = l->o.depth;
        return;
    }
    if (left < l->spare && l->produced < l->total) l->spare = left;
    if (++l->calm < CALM) return;
    if (l->spare > 0 && l->ahead > AHEAD_LEAST) l->ahead--;
    l->calm = 0;
    l->spare = l->o.depth;
}

err_t loader_next(loader *l, batch *out) {
    err_t rc = ERR_OK;
    if (l->taken == l->total)  // only this thread changes it
        return err_set(ERR_DATA, "no batch after step %" PRId64 ", the last that was asked for", l->o.last_step);
    pthread_mutex_lock(&l->lock);
    bool waited = l->produced == l->taken;
    l->held = false;
    pthread_cond_signal(&l->less);
    if (waited) {
        double from = clock_now();
        while (l->produced == l->taken && !l->failed) pthread_cond_wait(&l->more, &l->lock);
        l->wait_s += clock_now() - from;
    }
    if (l->produced == l->taken) {
        rc = err_restore(&l->failure);
    } else {
        adapt(l, waited);
        *out = batch_at(l, l->taken++);
        l->held = true;
        pthread_cond_signal(&l->less);
    }
    pthread_mutex_unlock(&l->lock);
    return rc;
}

bool loader_peek(loader *l, batch *out) {
    pthread_mutex_lock(&l->lock);
    bool here = l->taken < l->produced;
    pthread_mutex_unlock(&l->lock);
    if (here) *out = batch_at(l, l->taken);
    return here;
}

loader_stats loader_about(loader *l) {
    source_info from = source_about(l->from);
    pthread_mutex_lock(&l->lock);
    loader_stats s = {.wait_s = l->wait_s,
                      .depth = l->ahead,
                      .retries = from.retries,
                      .bytes = from.read,
                      .read_p50_s = quantiles_at(&l->read_s, 0.5),
                      .read_p99_s = quantiles_at(&l->read_s, 0.99)};
    pthread_mutex_unlock(&l->lock);
    return s;
}

// Does not wait for room in the ring, nor for a read that is about to be retried.
void loader_close(loader *l) {
    if (!l) return;
    if (l->running) {
        pthread_mutex_lock(&l->lock);
        l->stop = true;
        pthread_cond_signal(&l->less);
        pthread_mutex_unlock(&l->lock);
        source_cancel(l->from, true);
        pthread_join(l->thread, NULL);
        source_cancel(l->from, false);
    }
    dismiss(l);
    pthread_cond_destroy(&l->finish);
    pthread_cond_destroy(&l->begin);
    pthread_mutex_destroy(&l->reading);
    pthread_cond_destroy(&l->less);
    pthread_cond_destroy(&l->more);
    pthread_mutex_destroy(&l->lock);
    free(l->ask);
    free(l);
}
