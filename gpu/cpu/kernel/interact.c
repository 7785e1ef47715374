// gpu/cpu/kernel/interact.c: dot products of each pair of a sample's vectors, and the gradient that goes back to them.
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/typed.h"

typedef struct interact_job {
    dtype type;
    void *y, *dx, *drows;  // y: of backward, dy, which is read
    const void *x, *rows;
    int64_t F, C;
} interact_job;

static interact_job job_of(const tensor *y, const tensor *x, const tensor *rows) {
    interact_job j = {x->type, y->data, NULL, NULL, x->data, rows->data, rows->size[1], rows->size[2]};
    assert(x->dims == 2 && rows->dims == 3 && y->dims == 2 && rows->type == j.type && y->type == j.type);
    assert(x->size[0] == rows->size[0] && y->size[0] == rows->size[0] && x->size[1] == j.C);
    assert(y->size[1] == interact_width(j.C, j.F));
    return j;
}

// Elements i .. i+n-1 of vector k of sample b.
BODY vf load(dtype t, const interact_job *j, int64_t b, int64_t k, int64_t i, int64_t n) {
    return k ? typed_load_n(j->rows, t, (b * j->F + k - 1) * j->C + i, n) : typed_load_n(j->x, t, b * j->C + i, n);
}

// Where in y the product of vectors i and k is, k < i.
BODY int64_t pair(const interact_job *j, int64_t i, int64_t k) { return j->C + i * (i - 1) / 2 + k; }

BODY void copy_vector(dtype t, const interact_job *j, int64_t b, int64_t i, int64_t n) {
    typed_store_n(j->y, t, b * interact_width(j->C, j->F) + i, load(t, j, b, 0, i, n), n);
}

BODY void products_of(dtype t, const interact_job *j, int64_t b) {
    int64_t first = b * interact_width(j->C, j->F);
    EACH_VECTOR(0, j->C, copy_vector, t, j, b);
    for (int64_t i = 1; i <= j->F; i++)
        for (int64_t k = 0; k < i; k++) {
            vf sum = vf_zero();
            for (int64_t c = 0; c < j->C; c += VL)
                sum = vf_fma(load(t, j, b, i, c, j->C - c), load(t, j, b, k, c, j->C - c), sum);
            typed_set(j->y, t, first + pair(j, i, k), vf_sum(sum));
        }
}

static void forward_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const interact_job *j = ctx;
    BY_TYPE(j->type, products_of, j, item);
}

// moves: sizeof(E) bytes an element of x, rows and y; bound by products where F is more than a few
err_t KERNEL(interact_forward)(const interact_forward_args *args, stream *s) {
    interact_job j = job_of(args->y, args->x, args->rows);
    pool_run(s->workers, args->x->size[0], forward_item, &j);
    return ERR_OK;
}

BODY void gradient_vector(dtype t, const interact_job *j, int64_t b, int64_t i, const float *dy, int64_t c, int64_t n) {
    vf sum = i ? vf_zero() : typed_load_n(j->y, t, b * interact_width(j->C, j->F) + c, n);
    for (int64_t k = 0; k <= j->F; k++)
        if (k != i) sum = vf_fma(vf_set1(dy[k]), load(t, j, b, k, c, n), sum);
    if (i) typed_store_n(j->drows, t, (b * j->F + i - 1) * j->C + c, sum, n);
    else typed_store_n(j->dx, t, b * j->C + c, sum, n);
}

BODY void gradients_of(dtype t, const interact_job *j, int64_t b) {
    float dy[INTERACT_ROWS + 1] = {0};
    int64_t first = b * interact_width(j->C, j->F);
    for (int64_t i = 0; i <= j->F; i++) {
        for (int64_t k = 0; k <= j->F; k++)
            if (k != i) dy[k] = typed_get(j->y, t, first + (k < i ? pair(j, i, k) : pair(j, k, i)));
        EACH_VECTOR(0, j->C, gradient_vector, t, j, b, i, dy);
    }
}

static void backward_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const interact_job *j = ctx;
    BY_TYPE(j->type, gradients_of, j, item);
}

// moves: sizeof(E) bytes an element of x, rows, dy, dx and drows; bound by products where F is more than a few
err_t KERNEL(interact_backward)(const interact_backward_args *args, stream *s) {
    interact_job j = job_of(args->dy, args->x, args->rows);
    assert(tensor_count(args->dx) == tensor_count(args->x) && tensor_count(args->drows) == tensor_count(args->rows));
    assert(args->dx->type == j.type && args->drows->type == j.type && j.F <= INTERACT_ROWS);
    j.dx = args->dx->data, j.drows = args->drows->data;
    pool_run(s->workers, args->x->size[0], backward_item, &j);
    return ERR_OK;
}
