// model/linear.h: y = x W^T + b, and its gradients. x is (N,I), y (N,O), W (O,I), b (O).
#ifndef MODEL_LINEAR_H
#define MODEL_LINEAR_H

#include "model/model.h"

typedef struct linear {
    int w, b;
} linear;  // rows of the parameter table; b = -1: no bias

// y (=). pre: NULL, or y = gelu(pre) with pre (=) the sum: both in one operation.
err_t linear_forward(const pass *p, const linear *l, const tensor *y, const tensor *x, const tensor *pre);

// dx (=) = dy W. pre: NULL, or x was gelu(pre), and dx is the gradient of pre.
err_t linear_inputs(const pass *p, const linear *l, const tensor *dx, const tensor *dy, const tensor *pre);

// dW += dy^T x, db += column sums of dy
err_t linear_weights(const pass *p, const linear *l, const tensor *dy, const tensor *x);

#endif
