// test/ops/reference_image.h: the operations of images in double, as reference.h has the others.
#ifndef TEST_OPS_REFERENCE_IMAGE_H
#define TEST_OPS_REFERENCE_IMAGE_H

#include "gpu/ops.h"

#include <stdbool.h>

typedef struct ref_conv {
    int64_t N, H, W, C, K, R, S, stride, pad, groups, P, Q;
} ref_conv;
void ref_conv_forward(double *y, const double *x, const double *w, const ref_conv *z);
void ref_conv_inputs(double *dx, const double *dy, const double *w, const ref_conv *z);
void ref_conv_weights(double *dw, const double *dy, const double *x, const ref_conv *z);

// Of result i the tap that max_pool chooses, and where in x that is; z->K is z->C.
int64_t ref_max_pool(const double *x, int64_t i, const ref_conv *z, int64_t *at);

// Batch norm of M rows of C channels. With sums (2,C) of all rows of the span.
void ref_batch_norm_apply(double *y, const double *x, const double *mean, const double *rstd, const double *gain,
                          const double *bias, const double *residual, bool relu, int64_t M, int64_t C);
void ref_batch_norm_back_sums(double *sums, const double *dy, const double *x, const double *y, const double *mean,
                              int64_t M, int64_t C);
void ref_batch_norm_back(double *dx, double *g, const double *dy, const double *x, const double *y, const double *mean,
                         const double *rstd, const double *gain, const double *sums, double rows, int64_t M, int64_t C);

#endif
