// gpu/cpu/kernel/random_fill.c: numbers of a tensor that depend on nothing but their place.
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/typed.h"
#include "gpu/cpu/kernel/vmath.h"

typedef struct fill_job {
    dtype type;
    void *y;
    int64_t count;
    uint64_t seed;
} fill_job;

// Elements from e on, of 64, or those of them before `to`. e is a multiple of 64.
BODY void fill_64(dtype t, const fill_job *j, int64_t e, int64_t to) {
    vi word[4];
    vi_philox64(word, j->seed, (uint32_t)(e / 4), 0, (uint32_t)(e >> 34), 0);
    for (int k = 0; k < 4; k++) {
        vf u = vf_mul(vi_to_float(vi_shr(word[k], 8)), vf_set1(0x1p-23f));
        typed_store_n(j->y, t, e + k * VL, vf_sub(u, vf_set1(1)), to - e - k * VL);
    }
}

BODY void fill_slice(dtype t, const fill_job *j, int64_t from, int64_t to) {
    for (int64_t e = from; e < to; e += 4 * VL) fill_64(t, j, e, to);
}

static void fill_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const fill_job *j = ctx;
    BY_TYPE(j->type, fill_slice, j, item * SLICE, slice_end(item, j->count));
}

err_t KERNEL(random_fill)(const random_fill_args *args, stream *s) {
    fill_job j = {args->y->type, args->y->data, tensor_count(args->y), args->seed};
    assert(args->y->type <= FP16);
    pool_run(s->workers, slices(j.count), fill_item, &j);
    return ERR_OK;
}
