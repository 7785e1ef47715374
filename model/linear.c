// model/linear.c: see model/linear.h.
#include "model/linear.h"

void linear_divide(linear *l, model *m, linear_division d, int matrices, const int64_t *rows) {
    if (m->slices.of == 1) return;
    l->division = d, l->of = m;
    model_divide(m, l->w, d == LINEAR_INPUTS, matrices, rows);
    if (l->b >= 0 && d == LINEAR_OUTPUTS) model_divide(m, l->b, 0, matrices, rows);
}

// Rows of the whole micro-batch of which x has those of p->B samples.
static int64_t whole_rows(const pass *p, const tensor *x) { return p->rows ? p->rows : p->whole ? matrix_rows(x) / p->B * p->whole : 0; }

static err_t forward(const pass *p, const linear *l, const tensor *y, const tensor *x, const tensor *pre, const tensor *residual) {
    tensor d = *y, sum = pre ? *pre : (tensor){0};
    unsigned epilogue = (l->b >= 0 ? MATMUL_BIAS : 0) | (pre ? MATMUL_GELU : 0);
    matmul_args args = {.d = &d,
                        .pre = pre ? &sum : NULL,
                        .a = x,
                        .b = &p->w[l->w],
                        .tb = true,
                        .bias = l->b >= 0 ? &p->w[l->b] : NULL,
                        .residual = residual,
                        .rows = whole_rows(p, x),
                        .epilogue = epilogue};
    return l->division == LINEAR_INPUTS ? slices_sum(l->of, p, &args, l->of->slices.rows) : p->ops->matmul(&args, p->s);
}

err_t linear_forward(const pass *p, const linear *l, const tensor *y, const tensor *x, const tensor *pre) { return forward(p, l, y, x, pre, NULL); }

err_t linear_onto(const pass *p, const linear *l, const tensor *y, const tensor *x, const tensor *residual) {
    return forward(p, l, y, x, NULL, residual);
}

err_t linear_inputs(const pass *p, const linear *l, const tensor *dx, const tensor *dy, const tensor *pre, const linear *before) {
    tensor d = *dx, sum = pre ? *pre : (tensor){0};
    matmul_args args = {.d = &d,
                        .pre = pre ? &sum : NULL,
                        .a = dy,
                        .b = &p->w[l->w],
                        .dbias = pre && before ? linear_bias(p, before) : NULL,
                        .fresh = p->fresh,
                        .rows = whole_rows(p, dy),
                        .epilogue = pre ? MATMUL_DGELU : 0};
    return l->division == LINEAR_OUTPUTS ? slices_sum(l->of, p, &args, l->of->slices.rows) : p->ops->matmul(&args, p->s);
}

err_t linear_weights_only(const pass *p, const linear *l, const tensor *dy, const tensor *x) {
    return p->ops->matmul(&(matmul_args){.d = &p->dw[l->w], .a = dy, .ta = true, .b = x, .epilogue = p->fresh ? 0 : MATMUL_ACCUMULATE}, p->s);
}

tensor *linear_bias(const pass *p, const linear *l) { return l->b < 0 ? NULL : &p->dw[l->b]; }

err_t linear_weights(const pass *p, const linear *l, const tensor *dy, const tensor *x) {
    TRY(linear_weights_only(p, l, dy, x));
    return l->b < 0 ? ERR_OK : p->ops->bias_backward(&(bias_backward_args){.dbias = &p->dw[l->b], .dy = dy, .fresh = p->fresh}, p->s);
}
