// model/linear.h: y = x W^T + b, and its gradients. x is (N,I), y (N,O), W (O,I), b (O).
#ifndef MODEL_LINEAR_H
#define MODEL_LINEAR_H

#include "model/model.h"

typedef struct linear {
    int w, b;
} linear;  // rows of the parameter table; b = -1: no bias

// y (=). pre: NULL, or y = gelu(pre) with pre (=) the sum: both in one operation.
err_t linear_forward(const pass *p, const linear *l, const tensor *y, const tensor *x, const tensor *pre);

// y (=) the same + residual, in one operation: rounded once.
err_t linear_onto(const pass *p, const linear *l, const tensor *y, const tensor *x, const tensor *residual);

// dx (=) = dy W. pre: NULL, or x was gelu(pre), and dx is the gradient of pre: of what the layer before this one left, whose bias gradient
// the same pass then forms (before NULL: it does not).
err_t linear_inputs(const pass *p, const linear *l, const tensor *dx, const tensor *dy, const tensor *pre, const linear *before);

// dW += dy^T x, and db += column sums of dy. `_only`: another operation forms db.
err_t linear_weights(const pass *p, const linear *l, const tensor *dy, const tensor *x);
err_t linear_weights_only(const pass *p, const linear *l, const tensor *dy, const tensor *x);

// db, for the operation that forms it; NULL where there is none.
tensor *linear_bias(const pass *p, const linear *l);

#endif
