// gpu/ops_images.h: operations on images, (N,H,W,C), the channels of a pixel side by side. The words are those of
// gpu/ops.h, which includes this.
#ifndef GPU_OPS_IMAGES_H
#define GPU_OPS_IMAGES_H

#include "gpu/gpu.h"

// y[n,p,q,k] = sum over (r,s,c) of x[n, p*stride - pad + r, q*stride - pad + s, c] w[k,r,s,c], P = (H + 2 pad - R) /
// stride + 1, rounded down, and Q likewise (LeCun et al. 1998). With groups G the k-th of G equal parts of the filters
// meets the k-th of G parts of the channels.
//   forward  one chain over (r,s,c) ascending. A tap outside of the image has x = +0 and takes part: +0 times an
//            infinite weight is a NaN.
//   inputs   the chain of a pixel h,w of dx is over its taps, r descending, then s descending, then k ascending: a
//            convolution of dy by the filters turned round. With a stride a pixel has those taps that reach a result's
//            place, inside of the image or outside; without any, dx is +0.
//   weights  one chain over results (n,p,q) ascending, from zero, added once.
// Chains are summed in blocks, as a matrix product's (gpu/cpu/kernel/conv.c); a CPU with `products = bf16-pairs` takes
// them in pairs, of channels, of filters or of results.
// A GPU sums BF16 and FP16 in the order of its tensor cores, and of weights ranges of pixels, which it adds in order.
typedef struct conv_forward_args {
    tensor *y;               // (N,P,Q,K) E (=), may be residual itself
    const tensor *x;         // (N,H,W,C) E
    const tensor *w;         // (K,R,S,C/G) E
    const tensor *residual;  // (N,P,Q,K) E, or NULL: y = round_E(sum + residual)
    int stride, pad, groups;
} conv_forward_args;
typedef struct conv_inputs_args {
    tensor *dx;              // (N,H,W,C) E (=), may be residual itself
    const tensor *dy;        // (N,P,Q,K) E
    const tensor *w;         // (K,R,S,C/G) E
    const tensor *residual;  // (N,H,W,C) E, or NULL
    int stride, pad, groups;
} conv_inputs_args;
typedef struct conv_weights_args {
    tensor *dw;        // (K,R,S,C/G) FP32 (+=)
    const tensor *dy;  // (N,P,Q,K) E
    const tensor *x;   // (N,H,W,C) E
    int stride, pad, groups;
    bool fresh;
} conv_weights_args;

// Results along an axis of so many pixels.
static inline int64_t conv_out(int64_t pixels, int64_t taps, int64_t stride, int64_t pad) {
    return (pixels + 2 * pad - taps) / stride + 1;
}

// y[n,p,q,c] = the largest of a window of taps x taps pixels of x, from (p*stride - pad, q*stride - pad) on, as far as
// it is inside of the image. Of several, and of several NaNs, which are larger than all else, the first. index: which
// tap it was, r * taps + s.
typedef struct max_pool_forward_args {
    tensor *y;        // (N,P,Q,C) E (=)
    tensor *index;    // (N,P,Q,C) UINT8 (=)  saved for backward
    const tensor *x;  // (N,H,W,C) E
    int taps;         // 1 .. 16
    int stride, pad;  // pad < taps, so that each window has a pixel
} max_pool_forward_args;

// dx = the sum of the dy that chose this pixel, p ascending, then q, rounded once.
typedef struct max_pool_backward_args {
    tensor *dx;           // (N,H,W,C) E (=)
    const tensor *dy;     // (N,P,Q,C) E
    const tensor *index;  // (N,P,Q,C) UINT8
    int taps, stride, pad;
} max_pool_backward_args;

// y = the mean of an image's pixels: their sum from zero, in order, times 1 / (H*W)
typedef struct mean_pool_forward_args {
    tensor *y;        // (N,C) E (=)
    const tensor *x;  // (N,H,W,C) E
} mean_pool_forward_args;
typedef struct mean_pool_backward_args {
    tensor *dx;        // (N,H,W,C) E (=): dy times 1 / (H*W)
    const tensor *dy;  // (N,C) E
} mean_pool_backward_args;

// Batch normalisation (Ioffe & Szegedy 2015) over all pixels of a span of samples, which may be more than one call has:
// the caller adds the sums of several calls, along a tree. Rows are pixels: x is (M,C) for all that has C channels.
// Statistics, gains and biases are FP32 whatever E is.
//
// sums[0] = sum of d, sums[1] = sum of d*d, d = x - center as a float: in double, each block of BATCH_NORM_ROWS rows
// from zero, the blocks in order. center: near the mean, so that the variance is no difference of large numbers.
enum { BATCH_NORM_ROWS = 256 };
typedef struct batch_norm_sums_args {
    tensor *sums;          // (2,C) FP64 (=)
    const tensor *x;       // (M,C) E
    const tensor *center;  // (C) FP32, or NULL: zeros
} batch_norm_sums_args;

// The moments of so many rows, from the sums of all of them: with m = sums[0] / rows and v = max(sums[1] / rows - m*m,
// 0) in double, mean = center + m, rstd = 1 / sqrt(v + eps), variance = v * rows / (rows - 1), which is what a running
// statistic keeps; of one row v. Of running statistics themselves (`running`): mean = center, v = running.
typedef struct batch_norm_moments_args {
    tensor *mean, *rstd;    // (C) FP32 (=)
    tensor *variance;       // (C) FP32 (=), or NULL
    const tensor *sums;     // (2,C) FP64; NULL with running
    const tensor *center;   // as batch_norm_sums'
    const tensor *running;  // (C) FP32 variances, or NULL
    int64_t rows;           // of the span
    double eps;
} batch_norm_moments_args;

// y = (x - mean) * (rstd * gain) + bias, the last two in one FMA, + residual; with relu what is positive of it
typedef struct batch_norm_apply_args {
    tensor *y;                                // (M,C) E (=), may be x or residual itself
    const tensor *x;                          // (M,C) E
    const tensor *mean, *rstd, *gain, *bias;  // (C) FP32
    const tensor *residual;                   // (M,C) E, or NULL
    bool relu;
} batch_norm_apply_args;

// With g = dy, or, after a relu, dy where y > 0 and else +0: sums[0] = sum of g, sums[1] = sum of g * (x - mean), added
// as batch_norm_sums adds. dbias = sums[0], dgain = rstd * sums[1], rounded once: of this call's rows alone.
typedef struct batch_norm_back_sums_args {
    tensor *sums;               // (2,C) FP64 (=)
    tensor *dgain, *dbias;      // (C) FP32 (+=)
    const tensor *dy;           // (M,C) E
    const tensor *x;            // (M,C) E: what was normalised
    const tensor *y;            // (M,C) E, or NULL: there was no relu
    const tensor *mean, *rstd;  // (C) FP32
    bool fresh;                 // of dgain and dbias
} batch_norm_back_sums_args;

// dx = gain * rstd * (g - mean(g) - (x - mean) * rstd^2 * mean(g * (x - mean))), means over the rows of the span, from
// the sums of all of them. dresidual = g: the gradient of batch_norm_apply's residual.
typedef struct batch_norm_back_args {
    tensor *dx;         // (M,C) E (=), may be dy itself
    tensor *dresidual;  // (M,C) E (=), or NULL; may be dy itself
    const tensor *dy, *x, *y;
    const tensor *mean, *rstd, *gain;  // (C) FP32
    const tensor *sums;                // (2,C) FP64
    int64_t rows;                      // of the span
} batch_norm_back_args;

// A running statistic moves towards the mean of so many samples of it: x += momentum * (sum / count - x), sum times 1 /
// count and the rest in one FMA, unless the step was decided against.
typedef struct average_args {
    tensor *x;          // FP32 (+=)
    const tensor *sum;  // FP32, as many
    int64_t count;
    float momentum;
    const step_state *state;  // device
} average_args;

// y[m,c] = (x[m,c] - mean[c]) * inv[c], rounded to E; channels that x does not have are +0
typedef struct pixels_args {
    tensor *y;                 // (M,Cy) E (=), Cy >= C
    const tensor *x;           // (M,C) UINT8
    const tensor *mean, *inv;  // (C) FP32
} pixels_args;

#endif
