// gpu/cpu/kernel/widen.c: weights that are kept in 8 bits, as the compute type. Each element is computed alone.
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/typed.h"

typedef struct widen_job {
    dtype type;
    void *y;
    const int8_t *code;
    const float *scale;
    int64_t count;
} widen_job;

BODY void widen_groups(dtype t, const widen_job *j, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i += VL) {
        float code[VL];
        for (int k = 0; k < VL; k++) code[k] = (float)j->code[i + k];
        typed_store(j->y, t, i, vf_mul(vf_load(code), vf_set1(j->scale[i / WIDEN_GROUP])));
    }
}

static void widen_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const widen_job *j = ctx;
    BY_TYPE(j->type, widen_groups, j, item * SLICE, slice_end(item, j->count));
}

// moves: 1 + sizeof(E) bytes an element, and the scales; memory bound
err_t KERNEL(widen)(const widen_args *args, stream *s) {
    widen_job j = {args->y->type, args->y->data, args->codes->data, args->scales->data, tensor_count(args->y)};
    assert(args->codes->type == UINT8 && args->scales->type == FP32 && tensor_count(args->codes) == j.count);
    assert(j.count % WIDEN_GROUP == 0 && tensor_count(args->scales) == j.count / WIDEN_GROUP);
    pool_run(s->workers, slices(j.count), widen_item, &j);
    return ERR_OK;
}
