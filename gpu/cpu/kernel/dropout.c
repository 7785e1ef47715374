// gpu/cpu/kernel/dropout.c: the mask is a function of (seed, step, sample, site, element), so it is never stored and
// the same for any number of threads and ranks; backward is the same operation on the gradient.
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/typed.h"
#include "gpu/cpu/kernel/vmath.h"

typedef struct dropout_job {
    dtype type;
    void *y;
    const void *x;
    int64_t elements;  // of a sample
    dropout_key key;
    uint32_t sample;
    int64_t first;
} dropout_job;

// What a slice of a sample has in common.
typedef struct dropout_slice_of {
    void *y;
    const void *x;
    uint64_t seed;
    uint32_t site, sample, step, limit;
    vf grow;
    int64_t first;
} dropout_slice_of;

// The elements of 64 * blocks words from e on, or those of them before `to`.
BODY void dropout_blocks(dtype t, const dropout_slice_of *d, int64_t e, int64_t to, int blocks, bool whole) {
    vi word[4 * PHILOX_BLOCKS];
    vi_philox(word, blocks, d->seed, (uint32_t)((d->first + e) / 4), d->site, d->sample, d->step);
    for (int k = 0; k < 4 * blocks; k++) {
        int64_t i = e + k * VL, n = whole ? VL : to - i;
        vf stays = vf_mul(typed_load_n(d->x, t, i, n), d->grow);
        typed_store_n(d->y, t, i, vf_select(dropout_goes(word[k], d->limit), vf_zero(), stays), n);
    }
}

BODY void dropout_slice(dtype t, const dropout_job *j, int64_t sample, int64_t from, int64_t to) {
    const dropout_slice_of d = {
        .y = typed_at_mut(j->y, t, sample * j->elements),
        .x = typed_at(j->x, t, sample * j->elements),
        .seed = j->key.seed,
        .site = j->key.site,
        .sample = dropout_sample(&j->key, j->sample + (uint32_t)sample),
        .step = dropout_step(&j->key),
        .limit = dropout_limit(j->key.p),
        .grow = vf_set1(1.0f / (1.0f - j->key.p)),
        .first = j->first,
    };
    int64_t e = from;
    for (; e + PHILOX_WORDS <= to; e += PHILOX_WORDS) dropout_blocks(t, &d, e, to, PHILOX_BLOCKS, true);
    for (; e < to; e += 4 * VL) dropout_blocks(t, &d, e, to, 1, false);
}

static void dropout_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const dropout_job *j = ctx;
    int64_t per_sample = slices(j->elements), part = item % per_sample;
    BY_TYPE(j->type, dropout_slice, j, item / per_sample, part * SLICE, slice_end(part, j->elements));
}

err_t KERNEL(dropout)(const dropout_args *args, stream *s) {
    int64_t samples = args->x->size[0];
    dropout_job j = {args->x->type, args->y->data, args->x->data, tensor_count(args->x) / samples,
                     *args->drop,   args->sample,  args->first};
    assert(args->y->type == args->x->type && tensor_count(args->y) == tensor_count(args->x));
    assert(args->drop->p >= 0 && args->drop->p < 1 && j.first % 4 == 0 && j.first + j.elements <= (int64_t)1 << 34);
    pool_run(s->workers, samples * slices(j.elements), dropout_item, &j);
    return ERR_OK;
}
