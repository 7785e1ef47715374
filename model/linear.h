// model/linear.h: y = x W^T + b, and its gradients. x is (N,I), y (N,O), W (O,I), b (O).
//
// Where a model has slices, a layer's outputs may be divided among them, or its inputs:
//
//   outputs   x whole     -> y (S,N,O/S)   each slice has rows of W and b   dx is a sum over the slices
//   inputs    x (S,N,I/S) -> y whole       each slice has columns of W      y is a sum over the slices; b and residual
//                                                                           are added before it is rounded
//
// So a pair of layers, the first with divided outputs and the second with divided inputs, needs one sum over slices in
// each direction (Shoeybi et al. 2019, section 3).
#ifndef MODEL_LINEAR_H
#define MODEL_LINEAR_H

#include "model/slices.h"

typedef enum { LINEAR_WHOLE, LINEAR_OUTPUTS, LINEAR_INPUTS } linear_division;

// A matrix that is kept in 8 bits (param.int8) is UINT8 in pass.w: codes in its shape, and after the last the scales of
// WIDEN_GROUP codes each, along its rows. Each product widens it into scratch first (gpu/ops_codes.h: widen).
static inline size_t linear_codes(int64_t n) { return (size_t)(n + n / WIDEN_GROUP * 4); }

typedef struct linear {
    int w, b;                  // rows of the parameter table; b = -1: no bias
    linear_division division;  // what is divided
    const model *of;           // NULL: nothing is
    bool all_rows;             // its sums over slices have all rows on every rank, also where rows are divided
} linear;

// Divides the layer, if the model has slices. If W consists of several matrices, one below the other: how many, and the
// rows of each.
void linear_divide(linear *l, model *m, linear_division d, int matrices, const int64_t *rows);

// y (=). pre: NULL, or y = gelu(pre) and pre (=) is the sum, in one operation; erf: of that form. residual: NULL, or it
// is added before y is rounded.
err_t linear_forward(const pass *p, const linear *l, const tensor *y, const tensor *x, const tensor *pre, bool erf,
                     const tensor *residual);

// dx (=) = dy W. pre: NULL, or x was gelu(pre), and dx is the gradient of pre. The layer `before` made pre; its bias
// gradient is then formed too (NULL: it is not). Not with divided outputs. residual: NULL, or it is added
// before dx is rounded; not with divided inputs, nor with pre.
err_t linear_inputs(const pass *p, const linear *l, const tensor *dx, const tensor *dy, const tensor *pre, bool erf,
                    const linear *before, const tensor *residual);

// dW += dy^T x, and db += column sums of dy. `_only`: another operation forms db.
err_t linear_weights(const pass *p, const linear *l, const tensor *dy, const tensor *x);
err_t linear_weights_only(const pass *p, const linear *l, const tensor *dy, const tensor *x);
err_t linear_bias_only(const pass *p, const linear *l, const tensor *dy);

// db, for the operation that forms it; NULL where there is none.
tensor *linear_bias(const pass *p, const linear *l);

#endif
