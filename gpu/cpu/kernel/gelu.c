// gpu/cpu/kernel/gelu.c: x times how likely a normal variable is below x, tanh form (Hendrycks & Gimpel 2016). The
// function and its derivative are in vmath.h, where the matrix product's epilogues find them too.
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/typed.h"
#include "gpu/cpu/kernel/vmath.h"

typedef struct gelu_job {
    dtype type;
    void *out;
    const void *dy, *x;
    int64_t count;
} gelu_job;

BODY void forward_vector(dtype t, const gelu_job *j, int64_t i, int64_t n) {
    typed_store_n(j->out, t, i, vf_gelu(typed_load_n(j->x, t, i, n)), n);
}

BODY void backward_vector(dtype t, const gelu_job *j, int64_t i, int64_t n) {
    vf slope = vf_gelu_grad(typed_load_n(j->x, t, i, n));
    typed_store_n(j->out, t, i, vf_mul(typed_load_n(j->dy, t, i, n), slope), n);
}

BODY void forward_slice(dtype t, const gelu_job *j, int64_t from, int64_t to) {
    EACH_VECTOR(from, to, forward_vector, t, j);
}
BODY void backward_slice(dtype t, const gelu_job *j, int64_t from, int64_t to) {
    EACH_VECTOR(from, to, backward_vector, t, j);
}

static void forward_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const gelu_job j = *(const gelu_job *)ctx;
    BY_TYPE(j.type, forward_slice, &j, item * SLICE, slice_end(item, j.count));
}

static void backward_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const gelu_job j = *(const gelu_job *)ctx;
    BY_TYPE(j.type, backward_slice, &j, item * SLICE, slice_end(item, j.count));
}

// alias: y == x allowed.  moves: 2 * sizeof(E) bytes an element; memory bound
err_t KERNEL(gelu_forward)(const gelu_forward_args *args, stream *s) {
    gelu_job j = {args->x->type, args->y->data, NULL, args->x->data, tensor_count(args->x)};
    assert(args->y->type == args->x->type && tensor_count(args->y) == j.count);
    pool_run(s->workers, slices(j.count), forward_item, &j);
    return ERR_OK;
}

// alias: dx == dy allowed.  moves: 3 * sizeof(E) bytes an element
err_t KERNEL(gelu_backward)(const gelu_backward_args *args, stream *s) {
    gelu_job j = {args->x->type, args->dx->data, args->dy->data, args->x->data, tensor_count(args->x)};
    assert(args->dx->type == args->x->type && args->dy->type == args->x->type && tensor_count(args->dx) == j.count &&
           tensor_count(args->dy) == j.count);
    pool_run(s->workers, slices(j.count), backward_item, &j);
    if (!args->dbias) return ERR_OK;
    return KERNEL(bias_backward)(&(bias_backward_args){.dbias = args->dbias, .dy = args->dx, .fresh = args->fresh}, s);
}
