// gpu/cpu/kernel/gated.c: a linear layer that a second one gates (Shazeer 2020), by SiLU or by GELU, which are in
// vmath.h with their derivatives.
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/typed.h"
#include "gpu/cpu/kernel/vmath.h"

typedef enum gate { SILU, GELU } gate;

typedef struct gated_job {
    dtype type;
    gate gate;
    void *out;
    const void *dy, *x;
    int64_t rows, width;  // width: F
} gated_job;

BODY vf gate_of(gate f, vf g) { return f == SILU ? vf_silu(g) : vf_gelu(g); }
BODY vf gate_slope(gate f, vf g) { return f == SILU ? vf_silu_grad(g) : vf_gelu_grad(g); }

BODY void forward_vector(dtype t, gate f, const gated_job *j, int64_t row, int64_t i, int64_t n) {
    vf g = typed_load_n(j->x, t, row * 2 * j->width + i, n), u = typed_load_n(j->x, t, (row * 2 + 1) * j->width + i, n);
    typed_store_n(j->out, t, row * j->width + i, vf_mul(gate_of(f, g), u), n);
}

// dg = dy u f'(g), du = dy f(g)
BODY void backward_vector(dtype t, gate f, const gated_job *j, int64_t row, int64_t i, int64_t n) {
    int64_t at = row * 2 * j->width + i;
    vf g = typed_load_n(j->x, t, at, n), u = typed_load_n(j->x, t, at + j->width, n),
       d = typed_load_n(j->dy, t, row * j->width + i, n);
    typed_store_n(j->out, t, at, vf_mul(vf_mul(d, u), gate_slope(f, g)), n);
    typed_store_n(j->out, t, at + j->width, vf_mul(d, gate_of(f, g)), n);
}

BODY void forward_rows(dtype t, gate f, const gated_job *j, int64_t from, int64_t to) {
    for (int64_t row = from; row < to; row++) EACH_VECTOR(0, j->width, forward_vector, t, f, j, row);
}
BODY void backward_rows(dtype t, gate f, const gated_job *j, int64_t from, int64_t to) {
    for (int64_t row = from; row < to; row++) EACH_VECTOR(0, j->width, backward_vector, t, f, j, row);
}

static int64_t last_row(const gated_job *j, int64_t item) {
    int64_t rows = rows_per_item(j->width), to = (item + 1) * rows;
    return to < j->rows ? to : j->rows;
}

static void forward_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const gated_job j = *(const gated_job *)ctx;
    int64_t from = item * rows_per_item(j.width), to = last_row(&j, item);
    if (j.gate == SILU) BY_TYPE(j.type, forward_rows, SILU, &j, from, to);
    else BY_TYPE(j.type, forward_rows, GELU, &j, from, to);
}

static void backward_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const gated_job j = *(const gated_job *)ctx;
    int64_t from = item * rows_per_item(j.width), to = last_row(&j, item);
    if (j.gate == SILU) BY_TYPE(j.type, backward_rows, SILU, &j, from, to);
    else BY_TYPE(j.type, backward_rows, GELU, &j, from, to);
}

static int64_t items(const gated_job *j) { return (j->rows + rows_per_item(j->width) - 1) / rows_per_item(j->width); }

// alias: none.  moves: 3 * sizeof(E) bytes an element of y; memory bound
static err_t forward(gate f, const gated_forward_args *args, stream *s) {
    gated_job j = {args->x->type, f, args->y->data, NULL, args->x->data, args->y->size[0], args->y->size[1]};
    assert(args->y->type == j.type && args->y->dims == 2 && tensor_count(args->x) == 2 * tensor_count(args->y));
    pool_run(s->workers, items(&j), forward_item, &j);
    return ERR_OK;
}

// alias: dx == x allowed.  moves: 5 * sizeof(E) bytes an element of dy
static err_t backward(gate f, const gated_backward_args *args, stream *s) {
    gated_job j = {args->x->type,    f, args->dx->data, args->dy->data, args->x->data, args->dy->size[0],
                   args->dy->size[1]};
    assert(args->dx->type == j.type && args->dy->type == j.type && args->dy->dims == 2);
    assert(tensor_count(args->x) == 2 * tensor_count(args->dy) && tensor_count(args->dx) == tensor_count(args->x));
    pool_run(s->workers, items(&j), backward_item, &j);
    return ERR_OK;
}

err_t KERNEL(swiglu_forward)(const swiglu_forward_args *args, stream *s) { return forward(SILU, args, s); }
err_t KERNEL(swiglu_backward)(const swiglu_backward_args *args, stream *s) { return backward(SILU, args, s); }
err_t KERNEL(geglu_forward)(const geglu_forward_args *args, stream *s) { return forward(GELU, args, s); }
err_t KERNEL(geglu_backward)(const geglu_backward_args *args, stream *s) { return backward(GELU, args, s); }
