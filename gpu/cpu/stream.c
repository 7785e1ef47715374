// gpu/cpu/stream.c: streams and events of the CPU.
//
// A compute stream is a name for the pool of threads: work is done when the call returns, and its events have no state.
// A queue stream has a thread that takes calls from a ring, in order; an event on it keeps how many calls were put in
// before it.
#include "base/clock.h"
#include "base/thread.h"
#include "gpu/backend.h"
#include "gpu/cpu/cpu.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

enum { CALLS = 256 };  // a full ring makes the caller wait

typedef struct call {
    stream_function fn;
    _Alignas(16) unsigned char ctx[STREAM_CALL];
} call;

struct queue {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more, less;  // calls were put in; calls are done
    call ring[CALLS];
    uint64_t put, done;
    bool closing;
    err_record failure;  // of the first call that failed: the rest is skipped
    stream inner;
};

struct event {
    device *dev;
    queue *queue;    // NULL: never recorded, or on a compute stream
    uint64_t after;  // calls of the queue
    bool timed;
    _Atomic double at;  // seconds, when it was reached; 0: not yet
};

// --- the thread of a queue -------------------------------------------------------------------------------------------

static void *run(void *arg) {
    queue *q = arg;
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (q->put == q->done && !q->closing) pthread_cond_wait(&q->more, &q->lock);
        if (q->put == q->done) break;
        call *c = &q->ring[q->done % CALLS];
        bool skip = q->failure.code != ERR_OK;
        pthread_mutex_unlock(&q->lock);
        err_t rc = skip ? ERR_OK : c->fn(c->ctx, &q->inner);
        pthread_mutex_lock(&q->lock);
        if (rc != ERR_OK) q->failure = *err_last();
        q->done++;
        pthread_cond_broadcast(&q->less);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

static err_t put(queue *q, stream_function fn, const void *ctx, size_t bytes) {
    assert(bytes <= STREAM_CALL);
    pthread_mutex_lock(&q->lock);
    while (q->put - q->done == CALLS) pthread_cond_wait(&q->less, &q->lock);
    call *c = &q->ring[q->put++ % CALLS];
    c->fn = fn;
    memcpy(c->ctx, ctx, bytes);
    err_record failed = q->failure;
    pthread_cond_signal(&q->more);
    pthread_mutex_unlock(&q->lock);
    return failed.code == ERR_OK ? ERR_OK : err_restore(&failed);
}

static err_t wait_until(queue *q, uint64_t after) {
    pthread_mutex_lock(&q->lock);
    while (q->done < after) pthread_cond_wait(&q->less, &q->lock);
    err_record failed = q->failure;
    pthread_mutex_unlock(&q->lock);
    return failed.code == ERR_OK ? ERR_OK : err_restore(&failed);
}

// --- streams ---------------------------------------------------------------------------------------------------------

err_t cpu_stream_open(device *d, pool *workers, stream **out) {
    stream *s = malloc(sizeof *s);
    if (!s) return err_set(ERR_INTERNAL, "no memory for a stream");
    *s = (stream){.dev = d, .workers = workers};
    *out = s;
    return ERR_OK;
}

static void free_queue(queue *q) {
    if (q->inner.workers) pool_close(q->inner.workers);
    pthread_cond_destroy(&q->less);
    pthread_cond_destroy(&q->more);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

err_t cpu_stream_open_queue(device *d, stream **out) {
    stream *s = malloc(sizeof *s);
    queue *q = aligned_alloc(64, (sizeof *q + 63) / 64 * 64);
    if (!s || !q) {
        free(s), free(q);
        return err_set(ERR_INTERNAL, "no memory for a stream");
    }
    memset(q, 0, sizeof *q);
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->more, NULL);
    pthread_cond_init(&q->less, NULL);
    q->inner.dev = d;
    err_t rc = pool_open(&q->inner.workers, 1);
    if (rc == ERR_OK) rc = thread_start(&q->thread, "lockstep/queue", run, q);
    if (rc != ERR_OK) {
        free_queue(q), free(s);
        return err_pass(__FILE__, __LINE__, __func__, rc);
    }
    *s = (stream){.dev = d, .queue = q};
    *out = s;
    return ERR_OK;
}

void cpu_stream_close(stream *s) {
    queue *q = s->queue;
    if (q) {
        pthread_mutex_lock(&q->lock);
        q->closing = true;
        pthread_cond_signal(&q->more);
        pthread_mutex_unlock(&q->lock);
        pthread_join(q->thread, NULL);
        free_queue(q);
    }
    free(s);
}

// only the caller's side puts
err_t cpu_stream_wait(stream *s) { return s->queue ? wait_until(s->queue, s->queue->put) : ERR_OK; }

err_t cpu_stream_call(stream *s, stream_function fn, const void *ctx, size_t bytes) {
    if (s->queue) return put(s->queue, fn, ctx, bytes);
    _Alignas(16) unsigned char copy[STREAM_CALL];
    assert(bytes <= sizeof copy);
    memcpy(copy, ctx, bytes);
    return fn(copy, s);
}

void *cpu_stream_native(stream *s) {
    (void)s;
    return NULL;
}

// --- events ----------------------------------------------------------------------------------------------------------

err_t cpu_event_open(device *d, event **out) {
    event *e = malloc(sizeof *e);
    if (!e) return err_set(ERR_INTERNAL, "no memory for an event");
    *e = (event){.dev = d};
    *out = e;
    return ERR_OK;
}

err_t cpu_event_open_timed(device *d, event **out) {
    TRY(cpu_event_open(d, out));
    (*out)->timed = true;
    return ERR_OK;
}

void cpu_event_close(event *e) { free(e); }

static err_t note_time(void *ctx, stream *inner) {
    (void)inner;
    atomic_store(&(*(event **)ctx)->at, clock_now());
    return ERR_OK;
}

err_t cpu_event_record(event *e, stream *s) {
    if (e->timed) {
        atomic_store(&e->at, 0);
        TRY(cpu_stream_call(s, note_time, &e, sizeof e));
    }
    e->queue = s->queue;
    e->after = s->queue ? s->queue->put : 0;
    return ERR_OK;
}

err_t cpu_event_wait(event *e) { return e->queue ? wait_until(e->queue, e->after) : ERR_OK; }

err_t cpu_event_elapsed(event *from, event *to, double *ms) {
    double a = atomic_load(&from->at), b = atomic_load(&to->at);
    *ms = 0;
    if (!from->timed || !to->timed)
        return err_set(ERR_INTERNAL,
                       "cpu: an event that is not timed was asked for its time; open it with event_open_timed");
    if (a == 0 || b == 0)
        return err_set(
            ERR_INTERNAL,
            "cpu: an event was asked for its time before it was reached; wait for one recorded after it first");
    *ms = 1e3 * (b - a);
    return ERR_OK;
}

typedef struct wait_call {
    queue *queue;
    uint64_t after;
} wait_call;

static err_t wait_in_queue(void *ctx, stream *inner) {
    (void)inner;
    const wait_call *w = ctx;
    return wait_until(w->queue, w->after);
}

err_t cpu_stream_wait_event(stream *s, event *e) {
    if (!e->queue || e->queue == s->queue) return ERR_OK;
    if (!s->queue) return wait_until(e->queue, e->after);
    return put(s->queue, wait_in_queue, &(wait_call){e->queue, e->after}, sizeof(wait_call));
}

// --- copies ----------------------------------------------------------------------------------------------------------

enum {
    SLICE = 1 << 20,   // bytes of a copy or fill that one thread takes at a time
    LARGE = 64 << 20,  // bytes from which on stores bypass the caches, which would not hold so much until it is read
};

typedef struct move_job {
    char *dst;
    const char *src;
    size_t bytes;
} move_job;

static void move_cached(char *dst, const char *src, size_t n) {
    if (src) memcpy(dst, src, n);
    else memset(dst, 0, n);
}

#if defined(__x86_64__)
// Streaming stores, which do not read the lines that they overwrite, from the first whole line on.
static void move_past(char *dst, const char *src, size_t n) {
    size_t head = (size_t)(-(uintptr_t)dst & 63), at = head < n ? head : n;
    move_cached(dst, src, at);
    for (; at + 64 <= n; at += 64) {
        __m128i line[4] = {_mm_setzero_si128(), _mm_setzero_si128(), _mm_setzero_si128(), _mm_setzero_si128()};
        if (src) memcpy(line, src + at, sizeof line);
        for (int k = 0; k < 4; k++) _mm_stream_si128((__m128i *)(dst + at) + k, line[k]);
    }
    _mm_sfence();  // before others can see that it is done
    move_cached(dst + at, src ? src + at : NULL, n - at);
}
#else
static void move_past(char *dst, const char *src, size_t n) { move_cached(dst, src, n); }
#endif

static void move_slice(void *ctx, int64_t item, int thread) {
    (void)thread;
    const move_job *j = ctx;
    size_t at = (size_t)item * SLICE, n = j->bytes - at < SLICE ? j->bytes - at : SLICE;
    (j->bytes >= LARGE ? move_past : move_cached)(j->dst + at, j->src ? j->src + at : NULL, n);
}

static err_t move(void *ctx, stream *inner) {
    const move_job *j = ctx;
    pool_run(inner->workers, (int64_t)((j->bytes + SLICE - 1) / SLICE), move_slice, ctx);
    return ERR_OK;
}

err_t cpu_copy(stream *s, void *dst, const void *src, size_t bytes) {
    return cpu_stream_call(s, move, &(move_job){dst, src, bytes}, sizeof(move_job));
}

err_t cpu_zero(stream *s, void *dst, size_t bytes) { return cpu_copy(s, dst, NULL, bytes); }
