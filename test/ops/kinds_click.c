// test/ops/kinds_click.c: the interaction of vectors. Row: B F C.
#include "test/ops/op_test.h"

#include <string.h>

enum { IF_Y, IF_X, IF_ROWS };
enum { IB_DX, IB_DROWS, IB_DY, IB_X, IB_ROWS };

static int64_t width_of(const op_run *r) { return interact_width(r->row->size[2], r->row->size[1]); }

// Element c of vector k of a sample.
static const double *vector_at(const op_run *r, int x, int64_t b, int64_t k) {
    int64_t F = r->row->size[1], C = r->row->size[2];
    return k ? r->arg[x + 1].value + (b * F + k - 1) * C : r->arg[x].value + b * C;
}

static double product(const double *a, const double *b, int64_t n) {
    double sum = 0;
    for (int64_t c = 0; c < n; c++) sum += a[c] * b[c];
    return sum;
}

static void add_vectors(op_run *r) {
    const int64_t *z = r->row->size;
    arg *x = arg_add(r, "x", IN, r->row->type, 2, z[0], z[2], 0),
        *rows = arg_add(r, "rows", IN, r->row->type, 3, z[0], z[1], z[2]);
    x->batch = rows->batch = true;
    arg_fill(r, x, 1, 0.1);
    arg_fill(r, rows, 1, 0.1);
}

static void forward_setup(op_run *r) {
    arg_add(r, "y", OUT, r->row->type, 2, r->row->size[0], width_of(r), 0)->batch = true;
    add_vectors(r);
}
static err_t forward_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    (void)r;
    return o->interact_forward(&(interact_forward_args){.y = t[IF_Y], .x = t[IF_X], .rows = t[IF_ROWS]}, s);
}
static void forward_reference(op_run *r) {
    int64_t B = r->row->size[0], F = r->row->size[1], C = r->row->size[2];
    double *y = r->arg[IF_Y].want;
    for (int64_t b = 0; b < B; b++) {
        memcpy(y, vector_at(r, IF_X, b, 0), (size_t)C * sizeof *y);
        y += C;
        for (int64_t i = 1; i <= F; i++)
            for (int64_t k = 0; k < i; k++) *y++ = product(vector_at(r, IF_X, b, i), vector_at(r, IF_X, b, k), C);
    }
}
static void forward_cost(const op_run *r, double *bytes, double *flops) {
    const int64_t *z = r->row->size;
    *bytes = arg_traffic(r), *flops = (double)(z[0] * z[2] * z[1] * (z[1] + 1));
}
const op_kind kind_interact_forward = {"interact_forward", forward_setup, forward_call, forward_reference, NULL, NULL,
                                       forward_cost};

static void backward_setup(op_run *r) {
    const int64_t *z = r->row->size;
    arg_add(r, "dx", OUT, r->row->type, 2, z[0], z[2], 0)->batch = true;
    arg_add(r, "drows", OUT, r->row->type, 3, z[0], z[1], z[2])->batch = true;
    arg *dy = arg_add(r, "dy", IN, r->row->type, 2, z[0], width_of(r), 0);
    dy->batch = true;
    arg_fill(r, dy, 1, 0);
    add_vectors(r);
}
static err_t backward_call(const op_run *r, const ops *o, tensor *t[ARGS], stream *s) {
    (void)r;
    return o->interact_backward(
        &(interact_backward_args){
            .dx = t[IB_DX], .drows = t[IB_DROWS], .dy = t[IB_DY], .x = t[IB_X], .rows = t[IB_ROWS]},
        s);
}
static void backward_reference(op_run *r) {
    int64_t B = r->row->size[0], F = r->row->size[1], C = r->row->size[2];
    double *dx = r->arg[IB_DX].want, *drows = r->arg[IB_DROWS].want;
    memset(drows, 0, (size_t)(B * F * C) * sizeof *drows);
    for (int64_t b = 0; b < B; b++) {
        const double *dy = r->arg[IB_DY].value + b * width_of(r);
        memcpy(dx + b * C, dy, (size_t)C * sizeof *dx);
        dy += C;
        for (int64_t i = 1; i <= F; i++)
            for (int64_t k = 0; k < i; k++, dy++)
                for (int64_t c = 0; c < C; c++) {
                    drows[(b * F + i - 1) * C + c] += *dy * vector_at(r, IB_X, b, k)[c];
                    (k ? drows + (b * F + k - 1) * C : dx + b * C)[c] += *dy * vector_at(r, IB_X, b, i)[c];
                }
    }
}
static double backward_loss(void *ctx) {
    op_run *r = ctx;
    int64_t B = r->row->size[0], F = r->row->size[1], C = r->row->size[2];
    double sum = 0;
    for (int64_t b = 0; b < B; b++) {
        const double *dy = r->arg[IB_DY].value + b * width_of(r);
        sum += product(dy, vector_at(r, IB_X, b, 0), C);
        dy += C;
        for (int64_t i = 1; i <= F; i++)
            for (int64_t k = 0; k < i; k++)
                sum += *dy++ * product(vector_at(r, IB_X, b, i), vector_at(r, IB_X, b, k), C);
    }
    return sum;
}
static bool backward_gradient(op_run *r) {
    return gradient_near(r, "dx", backward_loss, r, r->arg[IB_X].value, r->arg[IB_DX].want,
                         tensor_count(&r->arg[IB_X].t)) &&
           gradient_near(r, "drows", backward_loss, r, r->arg[IB_ROWS].value, r->arg[IB_DROWS].want,
                         tensor_count(&r->arg[IB_ROWS].t));
}
static void backward_cost(const op_run *r, double *bytes, double *flops) {
    forward_cost(r, bytes, flops);
    *flops *= 2;
}
const op_kind kind_interact_backward = {"interact_backward", backward_setup, backward_call, backward_reference,
                                        backward_gradient,   NULL,           backward_cost};
