// gpu/cpu/kernel/gelu.c: x times how likely a normal variable is below x, tanh form or erf form (Hendrycks & Gimpel
// 2016); and tanh. The functions and their derivatives are in vmath.h, where the matrix product's epilogues find them
// too.
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/typed.h"
#include "gpu/cpu/kernel/vmath.h"

typedef struct gelu_job {
    dtype type;
    void *out;
    const void *dy, *x;
    int64_t count;
} gelu_job;

// One body for each function, so that none is chosen an element at a time.
typedef enum form { GELU_TANH, GELU_ERF, TANH } form;

BODY void forward_vector(dtype t, form f, const gelu_job *j, int64_t i, int64_t n) {
    vf x = typed_load_n(j->x, t, i, n);
    typed_store_n(j->out, t, i, f == TANH ? vf_tanh(x) : f == GELU_ERF ? vf_gelu_erf(x) : vf_gelu(x), n);
}

// Of tanh j->x is the result y.
BODY void backward_vector(dtype t, form f, const gelu_job *j, int64_t i, int64_t n) {
    vf x = typed_load_n(j->x, t, i, n), slope = f == TANH       ? vf_fnma(x, x, vf_set1(1.0f))
                                                : f == GELU_ERF ? vf_gelu_erf_grad(x)
                                                                : vf_gelu_grad(x);
    typed_store_n(j->out, t, i, vf_mul(typed_load_n(j->dy, t, i, n), slope), n);
}

BODY void forward_slice(dtype t, form f, const gelu_job *j, int64_t from, int64_t to) {
    EACH_VECTOR(from, to, forward_vector, t, f, j);
}
BODY void backward_slice(dtype t, form f, const gelu_job *j, int64_t from, int64_t to) {
    EACH_VECTOR(from, to, backward_vector, t, f, j);
}

#define ITEMS(name, slice, f) \
    static void name(void *ctx, int64_t item, int thread) { \
        (void)thread; \
        const gelu_job j = *(const gelu_job *)ctx; \
        BY_TYPE(j.type, slice, f, &j, item *SLICE, slice_end(item, j.count)); \
    }
ITEMS(forward_item, forward_slice, GELU_TANH)
ITEMS(forward_erf_item, forward_slice, GELU_ERF)
ITEMS(forward_tanh_item, forward_slice, TANH)
ITEMS(backward_item, backward_slice, GELU_TANH)
ITEMS(backward_erf_item, backward_slice, GELU_ERF)
ITEMS(backward_tanh_item, backward_slice, TANH)

// alias: y == x allowed.  moves: 2 * sizeof(E) bytes an element; memory bound
err_t KERNEL(gelu_forward)(const gelu_forward_args *args, stream *s) {
    gelu_job j = {args->x->type, args->y->data, NULL, args->x->data, tensor_count(args->x)};
    assert(args->y->type == args->x->type && tensor_count(args->y) == j.count);
    pool_run(s->workers, slices(j.count), args->erf ? forward_erf_item : forward_item, &j);
    return ERR_OK;
}

// alias: dx == dy allowed.  moves: 3 * sizeof(E) bytes an element
err_t KERNEL(gelu_backward)(const gelu_backward_args *args, stream *s) {
    gelu_job j = {args->x->type, args->dx->data, args->dy->data, args->x->data, tensor_count(args->x)};
    assert(args->dx->type == args->x->type && args->dy->type == args->x->type && tensor_count(args->dx) == j.count &&
           tensor_count(args->dy) == j.count);
    pool_run(s->workers, slices(j.count), args->erf ? backward_erf_item : backward_item, &j);
    if (!args->dbias) return ERR_OK;
    return KERNEL(bias_backward)(&(bias_backward_args){.dbias = args->dbias, .dy = args->dx, .fresh = args->fresh}, s);
}

// alias: y == x allowed.  moves: 2 * sizeof(E) bytes an element; memory bound
err_t KERNEL(tanh_forward)(const tanh_forward_args *args, stream *s) {
    gelu_job j = {args->x->type, args->y->data, NULL, args->x->data, tensor_count(args->x)};
    assert(args->y->type == args->x->type && tensor_count(args->y) == j.count);
    pool_run(s->workers, slices(j.count), forward_tanh_item, &j);
    return ERR_OK;
}

// alias: dx == dy allowed.  moves: 3 * sizeof(E) bytes an element
err_t KERNEL(tanh_backward)(const tanh_backward_args *args, stream *s) {
    gelu_job j = {args->y->type, args->dx->data, args->dy->data, args->y->data, tensor_count(args->y)};
    assert(args->dx->type == args->y->type && args->dy->type == args->y->type && tensor_count(args->dx) == j.count &&
           tensor_count(args->dy) == j.count);
    pool_run(s->workers, slices(j.count), backward_tanh_item, &j);
    return ERR_OK;
}
