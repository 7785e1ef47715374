// gpu/profile.c: see gpu/profile.h.
#include "gpu/profile.h"

#include "base/clock.h"
#include "gpu/backend.h"
#include "gpu/cost.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Calls with the same key share a line. Compared as bytes: cleared before it is filled.
typedef struct line_key {
    const char *op;
    int64_t size[4];
    dtype type;
    unsigned options;
} line_key;

typedef struct line {
    line_key key;
    profile_line sum;
} line;

struct profile {
    pthread_mutex_t lock;  // streams of a CPU have threads of their own
    event *from, *to;      // on a GPU, around one call; its one host thread waits after each
    int lines;
    line line[PROFILE_LINES];
};

// --- lines -----------------------------------------------------------------------------------------------------------

// "1024x3072x768 bf16 bias gelu"
static void describe(profile_line *to, const line_key *k) {
    char sizes[COST_SIZES], words[COST_WORDS];
    to->op = k->op;
    to->type = k->type;
    to->options = k->options;
    memcpy(to->size, k->size, sizeof to->size);
    cost_words(k->options & ~(unsigned)COST_BYTES, words);
    for (char *p = words; *p; p++) *p = *p == ',' ? ' ' : *p;
    bool bytes = k->options & COST_BYTES;
    snprintf(to->shape, sizeof to->shape, "%s %s%s%s", cost_sizes(k->size, sizes),
             bytes ? "bytes" : dtype_name(k->type), *words == '-' ? "" : " ", *words == '-' ? "" : words);
}

// The line of this key, made if it is new. The last line is for all keys that find no room.
static profile_line *find(profile *p, const line_key *k) {
    for (int i = 0; i < p->lines; i++)
        if (memcmp(&p->line[i].key, k, sizeof *k) == 0) return &p->line[i].sum;
    if (p->lines == PROFILE_LINES) return &p->line[PROFILE_LINES - 1].sum;
    line *l = &p->line[p->lines++];
    *l = (line){.key = *k};
    if (p->lines == PROFILE_LINES) l->sum.op = "others";
    else describe(&l->sum, k);
    return &l->sum;
}

static int slower_first(const void *a, const void *b) {
    double x = ((const profile_line *)a)->seconds, y = ((const profile_line *)b)->seconds;
    return (x < y) - (x > y);
}

int profile_read(profile *p, profile_line out[PROFILE_LINES]) {
    pthread_mutex_lock(&p->lock);
    int n = p->lines;
    for (int i = 0; i < n; i++) out[i] = p->line[i].sum;
    pthread_mutex_unlock(&p->lock);
    qsort(out, (size_t)n, sizeof *out, slower_first);
    return n;
}

void profile_clear(profile *p) {
    pthread_mutex_lock(&p->lock);
    p->lines = 0;
    pthread_mutex_unlock(&p->lock);
}

profile *device_profile(device *d) { return d->profile; }

err_t profile_open(device *d) {
    d->profile = calloc(1, sizeof *d->profile);
    if (!d->profile) return err_set(ERR_INTERNAL, "no memory for a profile");
    pthread_mutex_init(&d->profile->lock, NULL);
    if (d->info.kind == DEVICE_CPU) return ERR_OK;
    TRY(d->backend->event_open_timed(d, &d->profile->from));
    return d->backend->event_open_timed(d, &d->profile->to);
}

void profile_close(device *d) {
    if (!d->profile) return;
    if (d->profile->from) d->backend->event_close(d->profile->from);
    if (d->profile->to) d->backend->event_close(d->profile->to);
    pthread_mutex_destroy(&d->profile->lock);
    free(d->profile);
    d->profile = NULL;
}

// --- one call --------------------------------------------------------------------------------------------------------

typedef struct call {
    device *dev;
    const ops *inner;
    stream *s;
    double since;
    err_t begun;
} call;

static call begin(stream *s) {
    device *d = ((struct stream_head *)s)->dev;
    call c = {.dev = d, .inner = d->ops, .s = s, .since = clock_now()};
    if (d->profile->from) c.begun = d->backend->event_record(d->profile->from, s);
    return c;
}

// Seconds of the work queued since `begin`. On a GPU its own time: the host waits for it.
static err_t seconds_of(const call *c, double *seconds) {
    profile *p = c->dev->profile;
    *seconds = clock_now() - c->since;
    if (!p->from) return ERR_OK;
    TRY(c->begun);
    TRY(c->dev->backend->event_record(p->to, c->s));
    TRY(c->dev->backend->event_wait(p->to));
    TRY(c->dev->backend->event_elapsed(p->from, p->to, seconds));
    *seconds *= 1e-3;
    return ERR_OK;
}

static err_t end(const call *c, err_t rc, const char *op, op_cost cost) {
    double spent;
    if (rc != ERR_OK) return err_pass(__FILE__, __LINE__, op, rc);
    TRY(seconds_of(c, &spent));
    profile *p = c->dev->profile;
    line_key key;
    memset(&key, 0, sizeof key);
    key.op = op, key.type = cost.type, key.options = cost.options;
    memcpy(key.size, cost.size, sizeof key.size);
    pthread_mutex_lock(&p->lock);
    profile_line *l = find(p, &key);
    l->calls++;
    l->seconds += spent;
    l->squares += spent * spent;
    l->bytes += cost.bytes;
    l->flops += cost.flops;
    pthread_mutex_unlock(&p->lock);
    return ERR_OK;
}

// --- operations ------------------------------------------------------------------------------------------------------

#define PROFILED(op) \
    static err_t op(const op##_args *args, stream *s) { \
        call c = begin(s); \
        err_t rc = c.inner->op(args, s); \
        return end(&c, rc, #op, op##_cost(args)); \
    }
OPS(PROFILED)

#define ENTRY(op) .op = op,
const ops profile_ops = {OPS(ENTRY)};

// --- memory ----------------------------------------------------------------------------------------------------------

err_t profile_copy(stream *s, void *dst, const void *src, size_t bytes) {
    call c = begin(s);
    err_t rc = c.dev->backend->copy(s, dst, src, bytes);
    return end(&c, rc, "copy", (op_cost){INT32, {(int64_t)bytes}, COST_BYTES, 2.0 * (double)bytes, 0});
}

err_t profile_zero(stream *s, void *dst, size_t bytes) {
    call c = begin(s);
    err_t rc = c.dev->backend->zero(s, dst, bytes);
    return end(&c, rc, "zero", (op_cost){INT32, {(int64_t)bytes}, COST_BYTES, (double)bytes, 0});
}
