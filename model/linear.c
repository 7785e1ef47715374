// model/linear.c: see model/linear.h.
#include "model/linear.h"

err_t linear_forward(const pass *p, const linear *l, const tensor *y, const tensor *x, const tensor *pre) {
    tensor d = *y, sum = pre ? *pre : (tensor){0};
    unsigned epilogue = (l->b >= 0 ? MATMUL_BIAS : 0) | (pre ? MATMUL_GELU : 0);
    return p->ops->matmul(
        &(matmul_args){
            .d = &d, .pre = pre ? &sum : NULL, .a = x, .b = &p->w[l->w], .tb = true, .bias = l->b >= 0 ? &p->w[l->b] : NULL, .epilogue = epilogue},
        p->s);
}

err_t linear_inputs(const pass *p, const linear *l, const tensor *dx, const tensor *dy, const tensor *pre) {
    tensor d = *dx, sum = pre ? *pre : (tensor){0};
    return p->ops->matmul(&(matmul_args){.d = &d, .pre = pre ? &sum : NULL, .a = dy, .b = &p->w[l->w], .epilogue = pre ? MATMUL_DGELU : 0}, p->s);
}

err_t linear_weights(const pass *p, const linear *l, const tensor *dy, const tensor *x) {
    TRY(p->ops->matmul(&(matmul_args){.d = &p->dw[l->w], .a = dy, .ta = true, .b = x, .epilogue = MATMUL_ACCUMULATE}, p->s));
    return l->b < 0 ? ERR_OK : p->ops->bias_backward(&(bias_backward_args){.dbias = &p->dw[l->b], .dy = dy}, p->s);
}
