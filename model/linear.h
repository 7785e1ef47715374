// model/linear.h: y = x W^T + b, and its gradients. x is (N,I), y (N,O), W (O,I), b (O).
//
// Where a model has slices, a layer's outputs may be divided among them, or its inputs:
//
//   outputs   x whole  -> y (S,N,O/S)     each slice has rows of W and b      dx is a sum over the slices
//   inputs    x (S,N,I/S) -> y whole      each slice has columns of W         y is a sum over the slices; then come b,
//             residual and the rounding
//
// So a pair of layers, the first with divided outputs, the second with divided inputs, has one sum over slices each way
// (Shoeybi et al. 2019, section 3).
#ifndef MODEL_LINEAR_H
#define MODEL_LINEAR_H

#include "model/slices.h"

typedef enum { LINEAR_WHOLE, LINEAR_OUTPUTS, LINEAR_INPUTS } linear_division;

typedef struct linear {
    int w, b;                  // rows of the parameter table; b = -1: no bias
    linear_division division;  // what is divided
    const model *of;           // NULL: nothing is
} linear;

// Divides the layer, if the model has slices. rows: of each of the matrices that W consists of, one below the other, if
// there are several.
void linear_divide(linear *l, model *m, linear_division d, int matrices, const int64_t *rows);

// y (=). pre: NULL, or y = gelu(pre) with pre (=) the sum: both in one operation. residual: NULL, or it is added, too,
// and y is rounded once.
err_t linear_forward(const pass *p, const linear *l, const tensor *y, const tensor *x, const tensor *pre,
                     const tensor *residual);

// dx (=) = dy W. pre: NULL, or x was gelu(pre), and dx is the gradient of pre: of what the layer before this one left,
// whose bias gradient the same pass then forms (before NULL: it does not). Not with divided outputs.
err_t linear_inputs(const pass *p, const linear *l, const tensor *dx, const tensor *dy, const tensor *pre,
                    const linear *before);

// dW += dy^T x, and db += column sums of dy. `_only`: another operation forms db.
err_t linear_weights(const pass *p, const linear *l, const tensor *dy, const tensor *x);
err_t linear_weights_only(const pass *p, const linear *l, const tensor *dy, const tensor *x);
err_t linear_bias_only(const pass *p, const linear *l, const tensor *dy);

// db, for the operation that forms it; NULL where there is none.
tensor *linear_bias(const pass *p, const linear *l);

#endif
