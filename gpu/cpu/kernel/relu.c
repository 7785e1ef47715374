// gpu/cpu/kernel/relu.c: what is positive, and zero for the rest.
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/typed.h"

typedef struct relu_job {
    dtype type;
    void *out;
    const void *dy, *x;
    int64_t count;
} relu_job;

// Compared by x <= 0, which a NaN is not, so that it stays; and -0 is, so that it becomes +0.
BODY void forward_vector(dtype t, const relu_job *j, int64_t i, int64_t n) {
    vf x = typed_load_n(j->x, t, i, n);
    typed_store_n(j->out, t, i, vf_select(vf_le(x, vf_zero()), vf_zero(), x), n);
}

BODY void backward_vector(dtype t, const relu_job *j, int64_t i, int64_t n) {
    vm on = vf_lt(vf_zero(), typed_load_n(j->x, t, i, n));
    typed_store_n(j->out, t, i, vf_select(on, typed_load_n(j->dy, t, i, n), vf_zero()), n);
}

BODY void forward_slice(dtype t, const relu_job *j, int64_t from, int64_t to) {
    EACH_VECTOR(from, to, forward_vector, t, j);
}
BODY void backward_slice(dtype t, const relu_job *j, int64_t from, int64_t to) {
    EACH_VECTOR(from, to, backward_vector, t, j);
}

static void forward_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const relu_job j = *(const relu_job *)ctx;
    BY_TYPE(j.type, forward_slice, &j, item * SLICE, slice_end(item, j.count));
}

static void backward_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const relu_job j = *(const relu_job *)ctx;
    BY_TYPE(j.type, backward_slice, &j, item * SLICE, slice_end(item, j.count));
}

// alias: y == x allowed.  moves: 2 * sizeof(E) bytes an element; memory bound
err_t KERNEL(relu_forward)(const relu_forward_args *args, stream *s) {
    relu_job j = {args->x->type, args->y->data, NULL, args->x->data, tensor_count(args->x)};
    assert(args->y->type == args->x->type && tensor_count(args->y) == j.count);
    pool_run(s->workers, slices(j.count), forward_item, &j);
    return ERR_OK;
}

// alias: dx == dy allowed.  moves: 3 * sizeof(E) bytes an element
err_t KERNEL(relu_backward)(const relu_backward_args *args, stream *s) {
    relu_job j = {args->y->type, args->dx->data, args->dy->data, args->y->data, tensor_count(args->y)};
    assert(args->dx->type == args->y->type && args->dy->type == args->y->type && tensor_count(args->dx) == j.count &&
           tensor_count(args->dy) == j.count);
    pool_run(s->workers, slices(j.count), backward_item, &j);
    return ERR_OK;
}
