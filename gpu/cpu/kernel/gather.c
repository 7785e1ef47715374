// gpu/cpu/kernel/gather.c: some rows of each sample, and the gradient that goes back to them.
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/typed.h"

typedef struct gather_job {
    dtype type;
    void *out;
    const void *in;
    const int32_t *at;  // NULL: the first rows
    int64_t T, M, C;
} gather_job;

static int64_t row_at(const gather_job *j, int64_t b, int64_t m) { return j->at ? j->at[b * j->M + m] : m; }

static void gather_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const gather_job *j = ctx;
    int64_t b = item / j->M, from = b * j->T + row_at(j, b, item % j->M);
    size_t bytes = (size_t)j->C * dtype_bytes(j->type);
    memcpy((char *)j->out + (size_t)item * bytes, (const char *)j->in + (size_t)from * bytes, bytes);
}

// moves: 2 * sizeof(E) bytes an element of y; memory bound
err_t KERNEL(gather_rows)(const gather_rows_args *args, stream *s) {
    gather_job j = {.type = args->y->type,
                    .out = args->y->data,
                    .in = args->x->data,
                    .at = args->at ? args->at->data : NULL,
                    .T = args->x->size[1],
                    .M = args->y->size[1],
                    .C = args->x->size[2]};
    assert(args->x->dims == 3 && args->y->dims == 3 && args->x->type == j.type && args->y->size[2] == j.C);
    assert(args->x->size[0] == args->y->size[0] && (args->at || j.M <= j.T));
    assert(!args->at || (args->at->type == INT32 && tensor_count(args->at) == args->y->size[0] * j.M));
    pool_run(s->workers, args->y->size[0] * j.M, gather_item, &j);
    return ERR_OK;
}

BODY void scatter_vector(dtype t, const gather_job *j, int64_t b, int64_t row, int64_t i, int64_t n) {
    vf sum = vf_zero();
    for (int64_t m = 0; m < j->M; m++)
        if (row_at(j, b, m) == row) sum = vf_add(sum, typed_load_n(j->in, t, (b * j->M + m) * j->C + i, n));
    typed_store_n(j->out, t, (b * j->T + row) * j->C + i, sum, n);
}

BODY void scatter_row(dtype t, const gather_job *j, int64_t b, int64_t row) {
    EACH_VECTOR(0, j->C, scatter_vector, t, j, b, row);
}

static void scatter_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const gather_job *j = ctx;
    BY_TYPE(j->type, scatter_row, j, item / j->T, item % j->T);
}

// moves: sizeof(E) bytes an element of dx and of dy; memory bound
err_t KERNEL(scatter_rows)(const scatter_rows_args *args, stream *s) {
    gather_job j = {.type = args->dx->type,
                    .out = args->dx->data,
                    .in = args->dy->data,
                    .at = args->at ? args->at->data : NULL,
                    .T = args->dx->size[1],
                    .M = args->dy->size[1],
                    .C = args->dx->size[2]};
    assert(args->dx->dims == 3 && args->dy->dims == 3 && args->dy->type == j.type && args->dy->size[2] == j.C);
    assert(args->dx->size[0] == args->dy->size[0] && (args->at || j.M <= j.T));
    assert(!args->at || (args->at->type == INT32 && tensor_count(args->at) == args->dy->size[0] * j.M));
    pool_run(s->workers, args->dx->size[0] * j.T, scatter_item, &j);
    return ERR_OK;
}
