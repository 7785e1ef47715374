// gpu/profile.c: see gpu/profile.h.
#include "gpu/profile.h"

#include "base/clock.h"
#include "gpu/backend.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What makes calls one line. Compared as bytes: cleared before it is filled.
typedef struct line_key {
    const char *op;
    int64_t size[4];
    dtype type;
    unsigned options;
} line_key;

enum { HAS_TA = 1 << 4, HAS_TB = 1 << 5, HAS_DROPOUT = 1 << 6, HAS_RESIDUAL = 1 << 7, HAS_GRADIENT = 1 << 8, BYTES = 1 << 9 };  // above matmul's epilogue

typedef struct line { line_key key; profile_line sum; } line;

struct profile {
    pthread_mutex_t lock;  // streams of a CPU have threads of their own
    event *from, *to;      // on a GPU, around one call; its one host thread waits behind each
    int lines;
    line line[PROFILE_LINES];
};

// --- lines ---------------------------------------------------------------------------------------------------------------------------

static void describe(profile_line *to, const line_key *k) {
    static const struct { unsigned bit; const char *name; } word[] = {
        {MATMUL_BIAS, " bias"}, {MATMUL_GELU, " gelu"}, {MATMUL_DGELU, " dgelu"}, {MATMUL_ACCUMULATE, " acc"}, {HAS_TA, " ta"}, {HAS_TB, " tb"},
        {HAS_DROPOUT, " dropout"}, {HAS_RESIDUAL, " residual"}, {HAS_GRADIENT, " gradient"}, {BYTES, " bytes"},
    };
    int n = 0;
    to->op = k->op;
    to->type = k->type;
    for (int i = 0; i < 4 && k->size[i]; i++) n += snprintf(to->shape + n, sizeof to->shape - (size_t)n, i ? "x%lld" : "%lld", (long long)k->size[i]);
    if (!(k->options & BYTES)) n += snprintf(to->shape + n, sizeof to->shape - (size_t)n, " %s", dtype_name(k->type));
    for (size_t i = 0; i < sizeof word / sizeof *word && n < PROFILE_SHAPE; i++)
        if (k->options & word[i].bit) n += snprintf(to->shape + n, sizeof to->shape - (size_t)n, "%s", word[i].name);
}

// The line of this key, made when it is new; the last one is for all that find no room.
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

// --- one call ------------------------------------------------------------------------------------------------------------------------

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

// Of what was queued since `begin`. A GPU's own: the host waits for it.
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

static err_t end(const call *c, err_t rc, const char *op, dtype type, const int64_t size[4], unsigned options, double bytes, double flops) {
    double spent;
    if (rc != ERR_OK) return err_pass(__FILE__, __LINE__, op, rc);
    TRY(seconds_of(c, &spent));
    profile *p = c->dev->profile;
    line_key key;
    memset(&key, 0, sizeof key);
    key.op = op, key.type = type, key.options = options;
    memcpy(key.size, size, sizeof key.size);
    pthread_mutex_lock(&p->lock);
    profile_line *l = find(p, &key);
    l->calls++;
    l->seconds += spent;
    l->bytes += bytes;
    l->flops += flops;
    pthread_mutex_unlock(&p->lock);
    return ERR_OK;
}

static double size_of(const tensor *t) { return t ? (double)tensor_bytes(t) : 0; }

#define SIZES(...) (const int64_t[4]){__VA_ARGS__}
#define ROWS(t) (t)->size[0], (t)->size[1]

// --- operations: the order is that of gpu/ops.h --------------------------------------------------------------------------------------

static err_t matmul(tensor *d, tensor *pre, const tensor *a, bool ta, const tensor *b, bool tb, const tensor *bias, unsigned epilogue, stream *s) {
    call c = begin(s);
    err_t rc = c.inner->matmul(d, pre, a, ta, b, tb, bias, epilogue, s);
    int64_t m = d->size[0], n = d->size[1], k = a->size[!ta];
    bool has_pre = epilogue & (MATMUL_GELU | MATMUL_DGELU);
    double bytes = size_of(a) + size_of(b) + size_of(d) * (epilogue & MATMUL_ACCUMULATE ? 2 : 1) + (has_pre ? size_of(pre) : 0) +
                   (epilogue & MATMUL_BIAS ? size_of(bias) : 0);
    return end(&c, rc, "matmul", a->type, SIZES(m, n, k), epilogue | (ta ? HAS_TA : 0) | (tb ? HAS_TB : 0), bytes,
               2.0 * (double)m * (double)n * (double)k);
}

static err_t bias_backward(tensor *dbias, const tensor *dy, stream *s) {
    call c = begin(s);
    err_t rc = c.inner->bias_backward(dbias, dy, s);
    return end(&c, rc, "bias_backward", dy->type, SIZES(ROWS(dy)), 0, 2 * size_of(dbias) + size_of(dy), 0);
}

// Multiply-adds of one T x T product under the diagonal, of all heads.
static double pairs(const tensor *y) {
    double T = (double)y->size[1];
    return (double)y->size[0] * T * (T + 1) / 2 * (double)y->size[2];
}

static err_t attention_forward(tensor *y, tensor *lse, const tensor *qkv, int heads, const dropout_key *drop, stream *s) {
    call c = begin(s);
    err_t rc = c.inner->attention_forward(y, lse, qkv, heads, drop, s);
    return end(&c, rc, "attention_forward", y->type, SIZES(ROWS(y), y->size[2], heads), drop ? HAS_DROPOUT : 0,
               size_of(y) + size_of(lse) + size_of(qkv), 4 * pairs(y));
}

// Five products: s, dp, dq, dk, dv.
static err_t attention_backward(tensor *dqkv, tensor *delta, const tensor *dy, const tensor *y, const tensor *lse, const tensor *qkv, int heads,
                                const dropout_key *drop, stream *s) {
    call c = begin(s);
    err_t rc = c.inner->attention_backward(dqkv, delta, dy, y, lse, qkv, heads, drop, s);
    return end(&c, rc, "attention_backward", y->type, SIZES(ROWS(y), y->size[2], heads), drop ? HAS_DROPOUT : 0,
               size_of(dqkv) + size_of(delta) + size_of(dy) + size_of(y) + size_of(lse) + size_of(qkv), 10 * pairs(y));
}

static err_t layer_norm_forward(tensor *y, tensor *mean, tensor *rstd, tensor *sum, const tensor *x, const tensor *residual, const tensor *w,
                                const tensor *b, float eps, stream *s) {
    call c = begin(s);
    err_t rc = c.inner->layer_norm_forward(y, mean, rstd, sum, x, residual, w, b, eps, s);
    double bytes = size_of(y) + size_of(mean) + size_of(rstd) + size_of(sum) + size_of(x) + size_of(residual) + size_of(w) + size_of(b);
    return end(&c, rc, "layer_norm_forward", x->type, SIZES(ROWS(x)), residual ? HAS_RESIDUAL : 0, bytes, 0);
}

static err_t layer_norm_backward(tensor *dx, tensor *dw, tensor *db, const tensor *dy, const tensor *dresidual, const tensor *x, const tensor *w,
                                 const tensor *mean, const tensor *rstd, stream *s) {
    call c = begin(s);
    err_t rc = c.inner->layer_norm_backward(dx, dw, db, dy, dresidual, x, w, mean, rstd, s);
    double bytes = size_of(dx) + 2 * (size_of(dw) + size_of(db)) + size_of(dy) + size_of(dresidual) + size_of(x) + size_of(w) + size_of(mean) +
                   size_of(rstd);
    return end(&c, rc, "layer_norm_backward", x->type, SIZES(ROWS(x)), dresidual ? HAS_RESIDUAL : 0, bytes, 0);
}

static err_t gelu_forward(tensor *y, const tensor *x, stream *s) {
    call c = begin(s);
    err_t rc = c.inner->gelu_forward(y, x, s);
    return end(&c, rc, "gelu_forward", x->type, SIZES(tensor_count(x)), 0, size_of(y) + size_of(x), 0);
}

static err_t gelu_backward(tensor *dx, const tensor *dy, const tensor *x, stream *s) {
    call c = begin(s);
    err_t rc = c.inner->gelu_backward(dx, dy, x, s);
    return end(&c, rc, "gelu_backward", x->type, SIZES(tensor_count(x)), 0, size_of(dx) + size_of(dy) + size_of(x), 0);
}

// A row of each table is read for each that is written.
static err_t embedding_forward(tensor *x, const tensor *tokens, const tensor *wte, const tensor *wpe, stream *s) {
    call c = begin(s);
    err_t rc = c.inner->embedding_forward(x, tokens, wte, wpe, s);
    return end(&c, rc, "embedding_forward", x->type, SIZES(ROWS(x), x->size[2], wte->size[0]), 0, 3 * size_of(x), 0);
}

// dx is read for each table; of their rows as many are updated as tokens can touch.
static err_t embedding_backward(tensor *dwte, tensor *dwpe, tensor *scratch, const tensor *dx, const tensor *tokens, stream *s) {
    call c = begin(s);
    err_t rc = c.inner->embedding_backward(dwte, dwpe, scratch, dx, tokens, s);
    int64_t N = dx->size[0] * dx->size[1], V = dwte->size[0];
    double rows = (double)((N < V ? N : V) + dx->size[1]);
    return end(&c, rc, "embedding_backward", dx->type, SIZES(ROWS(dx), dx->size[2], V), 0, 2 * size_of(dx) + 8.0 * (double)dx->size[2] * rows, 0);
}

static err_t cross_entropy(tensor *losses, tensor *logits, const tensor *targets, int64_t classes, const float *scale, const step_state *state,
                           stream *s) {
    call c = begin(s);
    err_t rc = c.inner->cross_entropy(losses, logits, targets, classes, scale, state, s);
    return end(&c, rc, "cross_entropy", logits->type, SIZES(ROWS(logits)), scale ? HAS_GRADIENT : 0,
               size_of(losses) + size_of(targets) + size_of(logits) * (scale ? 2 : 1) + (double)sizeof *state, 0);
}

static err_t loss_means(tensor *means, const tensor *losses, stream *s) {
    call c = begin(s);
    err_t rc = c.inner->loss_means(means, losses, s);
    return end(&c, rc, "loss_means", losses->type, SIZES(ROWS(losses)), 0, size_of(means) + size_of(losses), 0);
}

static err_t dropout(tensor *y, const tensor *x, const dropout_key *drop, stream *s) {
    call c = begin(s);
    err_t rc = c.inner->dropout(y, x, drop, s);
    return end(&c, rc, "dropout", x->type, SIZES(tensor_count(x)), 0, size_of(y) + size_of(x), 0);
}

static err_t add(tensor *y, const tensor *a, const tensor *b, stream *s) {
    call c = begin(s);
    err_t rc = c.inner->add(y, a, b, s);
    return end(&c, rc, "add", y->type, SIZES(tensor_count(y)), 0, size_of(y) + size_of(a) + size_of(b), 0);
}

static err_t cast(tensor *y, const tensor *x, stream *s) {
    call c = begin(s);
    err_t rc = c.inner->cast(y, x, s);
    return end(&c, rc, "cast", x->type, SIZES(tensor_count(x)), 0, size_of(y) + size_of(x), 0);
}

static err_t cast_stochastic(tensor *y, const tensor *x, const rounding_key *round, const step_state *state, stream *s) {
    call c = begin(s);
    err_t rc = c.inner->cast_stochastic(y, x, round, state, s);
    return end(&c, rc, "cast_stochastic", x->type, SIZES(tensor_count(x)), 0, size_of(y) + size_of(x) + (double)sizeof *state, 0);
}

static err_t sum_squares(tensor *sums, const tensor *g, stream *s) {
    call c = begin(s);
    err_t rc = c.inner->sum_squares(sums, g, s);
    return end(&c, rc, "sum_squares", g->type, SIZES(tensor_count(g)), 0, size_of(sums) + size_of(g), 0);
}

static err_t step_decide(step_state *state, const tensor *sums, const step_rules *r, stream *s) {
    call c = begin(s);
    err_t rc = c.inner->step_decide(state, sums, r, s);
    return end(&c, rc, "step_decide", sums->type, SIZES(tensor_count(sums)), 0, size_of(sums) + 2.0 * (double)sizeof *state, 0);
}

static err_t adamw(tensor *w, tensor *master, tensor *m, tensor *v, const tensor *grad, const step_state *state, const adamw_rules *r,
                   const rounding_key *round, stream *s) {
    call c = begin(s);
    err_t rc = c.inner->adamw(w, master, m, v, grad, state, r, round, s);
    double bytes = size_of(w) + 2 * (size_of(master) + size_of(m) + size_of(v)) + size_of(grad) + (double)sizeof *state;
    return end(&c, rc, "adamw", w ? w->type : FP32, SIZES(tensor_count(master)), 0, bytes, 0);
}

const ops profile_ops = {
    .matmul = matmul, .bias_backward = bias_backward, .attention_forward = attention_forward, .attention_backward = attention_backward,
    .layer_norm_forward = layer_norm_forward, .layer_norm_backward = layer_norm_backward, .gelu_forward = gelu_forward,
    .gelu_backward = gelu_backward, .embedding_forward = embedding_forward, .embedding_backward = embedding_backward,
    .cross_entropy = cross_entropy, .loss_means = loss_means, .dropout = dropout, .add = add, .cast = cast, .cast_stochastic = cast_stochastic, .sum_squares = sum_squares,
    .step_decide = step_decide, .adamw = adamw,
};

// --- memory --------------------------------------------------------------------------------------------------------------------------

err_t profile_copy(stream *s, void *dst, const void *src, size_t bytes) {
    call c = begin(s);
    err_t rc = c.dev->backend->copy(s, dst, src, bytes);
    return end(&c, rc, "copy", INT32, SIZES((int64_t)bytes), BYTES, 2.0 * (double)bytes, 0);
}

err_t profile_zero(stream *s, void *dst, size_t bytes) {
    call c = begin(s);
    err_t rc = c.dev->backend->zero(s, dst, bytes);
    return end(&c, rc, "zero", INT32, SIZES((int64_t)bytes), BYTES, (double)bytes, 0);
}
