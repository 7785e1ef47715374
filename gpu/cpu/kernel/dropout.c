// gpu/cpu/kernel/dropout.c: the mask is a function of (seed, step, sample, site, element), so it is never stored and the same for any
// number of threads and ranks; backward is the same operation on the gradient.
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/typed.h"
#include "gpu/cpu/kernel/vmath.h"

typedef struct dropout_job {
    dtype type;
    void *y;
    const void *x;
    int64_t elements;  // of a sample
    dropout_key key;
} dropout_job;

BODY void dropout_slice(dtype t, const dropout_job *j, int64_t sample, int64_t from, int64_t to) {
    const void *x = typed_at(j->x, t, sample * j->elements);
    void *y = typed_at_mut(j->y, t, sample * j->elements);
    uint32_t limit = dropout_limit(j->key.p);
    uint32_t step = dropout_step(&j->key), drawn = dropout_sample(&j->key, (uint32_t)sample);
    vf grow = vf_set1(1.0f / (1.0f - j->key.p));
    for (int64_t e = from; e < to; e += 4 * VL) {
        vi word[4];
        vi_philox64(word, j->key.seed, (uint32_t)(e / 4), j->key.site, drawn, step);
        for (int k = 0; k < 4; k++) {
            int64_t i = e + k * VL, n = to - i;
            vf stays = vf_mul(typed_load_n(x, t, i, n), grow);
            typed_store_n(y, t, i, vf_select(dropout_goes(word[k], limit), vf_zero(), stays), n);
        }
    }
}

static void dropout_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const dropout_job *j = ctx;
    int64_t per_sample = slices(j->elements), part = item % per_sample;
    BY_TYPE(j->type, dropout_slice, j, item / per_sample, part * SLICE, slice_end(part, j->elements));
}

err_t KERNEL(dropout)(tensor *y, const tensor *x, const dropout_key *drop, stream *s) {
    int64_t samples = x->size[0];
    dropout_job j = {x->type, y->data, x->data, tensor_count(x) / samples, *drop};
    assert(y->type == x->type && tensor_count(y) == tensor_count(x));
    assert(drop->p >= 0 && drop->p < 1 && j.elements <= (int64_t)1 << 34);
    pool_run(s->workers, samples * slices(j.elements), dropout_item, &j);
    return ERR_OK;
}
