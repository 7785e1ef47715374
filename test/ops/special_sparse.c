// test/ops/special_sparse.c: steps of several lanes whose gradients are compressed, against Lin et al., "Deep gradient
// compression", 2018, section 3 without clipping and warm-up, written down with nothing but arrays and a sort.
#include "test/ops/special.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 3, STEPS = 12, WEIGHTS = CHUNK + 259, KEPT = 1024 };
#define MOMENTUM 0.9f

typedef struct lane {
    float target[WEIGHTS], velocity[WEIGHTS], residual[WEIGHTS];
} lane;

// Half the squared distance to the lane's target, steeper in some directions than in others.
static void gradient(const lane *l, const float *w, float *g) {
    for (int i = 0; i < WEIGHTS; i++) g[i] = (w[i] - l->target[i]) * (float)(1 + i % 5);
}

static void descend(float *w, const float *sum) {
    for (int i = 0; i < WEIGHTS; i++) {
        float by = sum[i] * (0.01f / LANES);
        w[i] -= by;
    }
}

static int descending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

// The k-th largest |v[n]|.
static float threshold(const float *v, int n, int64_t k) {
    float *size = calloc((size_t)n, sizeof *size);
    for (int i = 0; i < n; i++) size[i] = fabsf(v[i]);
    qsort(size, (size_t)n, sizeof *size, descending);
    float at = size[k - 1];
    free(size);
    return at;
}

// A step of one lane: what is not masked stays, what is goes into sum[].
static void paper_step(lane *l, const float *g, float *sum) {
    for (int i = 0; i < WEIGHTS; i++) {
        float old = MOMENTUM * l->velocity[i];
        l->velocity[i] = old + g[i];
        l->residual[i] += l->velocity[i];
    }
    for (int from = 0; from < WEIGHTS; from += CHUNK) {
        int n = WEIGHTS - from < CHUNK ? WEIGHTS - from : CHUNK;
        int64_t room = sparse_of_chunk(n, KEPT);
        float least = threshold(l->residual + from, n, room);
        for (int i = from; i < from + n; i++) room -= fabsf(l->residual[i]) > least;
        for (int i = from; i < from + n; i++) {
            float size = fabsf(l->residual[i]);
            if (size < least || (size == least && room-- <= 0)) continue;
            sum[i] += l->residual[i];
            l->residual[i] = l->velocity[i] = 0;
        }
    }
}

// The same on the device; sum (=).
static void device_step(bench *b, tensor *lanes[LANES][2], tensor *x, tensor *wire, tensor *y, const lane *l,
                        const float *w, float *g) {
    memset(g, 0, WEIGHTS * sizeof *g);
    put(b, y, g);
    for (int k = 0; k < LANES && b->ok; k++) {
        gradient(&l[k], w, g);
        put(b, x, g);
        encode_sparse_args out = {
            .wire = wire, .velocity = lanes[k][0], .residual = lanes[k][1], .x = x, .kept = KEPT, .momentum = MOMENTUM};
        did(b, b->f->table->encode_sparse(&out, b->f->s));
        did(b, b->f->table->decode_sparse(&(decode_sparse_args){.y = y, .wire = wire, .kept = KEPT}, b->f->s));
        if (b->ok) did(b, stream_wait(b->f->s));
    }
}

bool sparse_steps(const fixture *f, char why[WHY]) {
    bench b = {.f = f, .ok = true, .why = why};
    lane *l = calloc(LANES, sizeof *l);
    float *w = calloc(WEIGHTS, sizeof *w), *g = calloc(WEIGHTS, sizeof *g), *sum = calloc(WEIGHTS, sizeof *sum);
    tensor *lanes[LANES][2], *x = box(&b, FP32, WEIGHTS, 0, NULL), *y = box(&b, FP32, WEIGHTS, 0, NULL),
                             *wire = box(&b, UINT8, (int64_t)sparse_bytes(WEIGHTS, KEPT), 0, NULL);
    for (int k = 0; k < LANES; k++) {
        float *target = random_values(FP32, WEIGHTS, 1, (uint32_t)(900 + k));
        memcpy(l[k].target, target, sizeof l[k].target);
        for (int i = 0; i < 2; i++) lanes[k][i] = box(&b, FP32, WEIGHTS, 0, l[k].velocity);  // zeros
        free(target);
    }
    for (int step = 0; step < STEPS && b.ok; step++) {
        device_step(&b, lanes, x, wire, y, l, w, g);
        memset(sum, 0, WEIGHTS * sizeof *sum);
        for (int k = 0; k < LANES; k++) gradient(&l[k], w, g), paper_step(&l[k], g, sum);
        float *got = take(&b, y);
        for (int i = 0; i < WEIGHTS && b.ok; i++)
            if (got[i] != sum[i])
                say(&b, "step %d: sum[%d] is %.9g, expected %.9g", step, i, (double)got[i], (double)sum[i]);
        descend(w, sum);
        free(got);
    }
    free(l), free(w), free(g), free(sum);
    return done(&b);
}

// The second chunk is short, and an index beyond it would be outside y, or in another chunk.
bool sparse_strange_indices(const fixture *f, char why[WHY]) {
    bench b = {.f = f, .ok = true, .why = why};
    size_t bytes = sparse_bytes(WEIGHTS, KEPT);
    int64_t all = sparse_kept(WEIGHTS, KEPT);
    char *host = calloc(1, bytes);
    float *value = (float *)(void *)host;
    uint16_t *index = (uint16_t *)(void *)(host + sparse_values(WEIGHTS, KEPT));
    for (int64_t i = 0; i < all; i++) value[i] = 1, index[i] = (uint16_t)(i % KEPT);
    index[0] = CHUNK, index[1] = UINT16_MAX, index[KEPT] = WEIGHTS - CHUNK, index[KEPT + 1] = CHUNK;
    tensor *wire = box(&b, UINT8, (int64_t)bytes, 0, host), *y = box(&b, FP32, WEIGHTS, 0, NULL);
    did(&b, b.f->table->decode_sparse(&(decode_sparse_args){.y = y, .wire = wire, .kept = KEPT}, b.f->s));
    if (b.ok) did(&b, stream_wait(b.f->s));
    float *got = take(&b, y);
    for (int i = 0; i < WEIGHTS && b.ok; i++) {
        int at = i % CHUNK;
        bool sent = at > 1 && at < (i < CHUNK ? KEPT : all - KEPT);
        if (got[i] != (float)sent) say(&b, "y[%d] is %g, expected %d", i, (double)got[i], sent);
    }
    free(host), free(got);
    return done(&b);
}
