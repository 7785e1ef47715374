// gpu/cpu/kernel/swiglu.c: a linear layer that a second one gates (Shazeer 2020).
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/typed.h"
#include "gpu/cpu/kernel/vmath.h"

typedef struct swiglu_job {
    dtype type;
    void *out;
    const void *dy, *x;
    int64_t rows, width;  // width: F
} swiglu_job;

BODY void forward_vector(dtype t, const swiglu_job *j, int64_t row, int64_t i, int64_t n) {
    vf g = typed_load_n(j->x, t, row * 2 * j->width + i, n), u = typed_load_n(j->x, t, (row * 2 + 1) * j->width + i, n);
    typed_store_n(j->out, t, row * j->width + i, vf_mul(vf_silu(g), u), n);
}

// dg = dy u silu'(g), du = dy silu(g)
BODY void backward_vector(dtype t, const swiglu_job *j, int64_t row, int64_t i, int64_t n) {
    int64_t at = row * 2 * j->width + i;
    vf g = typed_load_n(j->x, t, at, n), u = typed_load_n(j->x, t, at + j->width, n), d = typed_load_n(j->dy, t, row * j->width + i, n);
    typed_store_n(j->out, t, at, vf_mul(vf_mul(d, u), vf_silu_grad(g)), n);
    typed_store_n(j->out, t, at + j->width, vf_mul(d, vf_silu(g)), n);
}

BODY void forward_rows(dtype t, const swiglu_job *j, int64_t from, int64_t to) {
    for (int64_t row = from; row < to; row++) EACH_VECTOR(0, j->width, forward_vector, t, j, row);
}
BODY void backward_rows(dtype t, const swiglu_job *j, int64_t from, int64_t to) {
    for (int64_t row = from; row < to; row++) EACH_VECTOR(0, j->width, backward_vector, t, j, row);
}

static int64_t last_row(const swiglu_job *j, int64_t item) {
    int64_t rows = rows_per_item(j->width), to = (item + 1) * rows;
    return to < j->rows ? to : j->rows;
}

static void forward_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const swiglu_job j = *(const swiglu_job *)ctx;
    BY_TYPE(j.type, forward_rows, &j, item * rows_per_item(j.width), last_row(&j, item));
}

static void backward_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const swiglu_job j = *(const swiglu_job *)ctx;
    BY_TYPE(j.type, backward_rows, &j, item * rows_per_item(j.width), last_row(&j, item));
}

static int64_t items(const swiglu_job *j) { return (j->rows + rows_per_item(j->width) - 1) / rows_per_item(j->width); }

// alias: none.  moves: 3 * sizeof(E) bytes an element of y; memory bound
err_t KERNEL(swiglu_forward)(const swiglu_forward_args *args, stream *s) {
    swiglu_job j = {args->x->type, args->y->data, NULL, args->x->data, args->y->size[0], args->y->size[1]};
    assert(args->y->type == j.type && args->y->dims == 2 && tensor_count(args->x) == 2 * tensor_count(args->y));
    pool_run(s->workers, items(&j), forward_item, &j);
    return ERR_OK;
}

// alias: dx == x allowed.  moves: 5 * sizeof(E) bytes an element of dy
err_t KERNEL(swiglu_backward)(const swiglu_backward_args *args, stream *s) {
    swiglu_job j = {args->x->type, args->dx->data, args->dy->data, args->x->data, args->dy->size[0], args->dy->size[1]};
    assert(args->dx->type == j.type && args->dy->type == j.type && args->dy->dims == 2);
    assert(tensor_count(args->x) == 2 * tensor_count(args->dy) && tensor_count(args->dx) == tensor_count(args->x));
    pool_run(s->workers, items(&j), backward_item, &j);
    return ERR_OK;
}
