// gpu/conv_check.h: checks the arguments of convolutions (gpu/ops.h), the same for all devices. Programmer errors only:
// does nothing where asserts are off.
#ifndef GPU_CONV_CHECK_H
#define GPU_CONV_CHECK_H

#include "gpu/gpu.h"
#include "gpu/ops.h"

#include <assert.h>

// x (N,H,W,C), y (N,P,Q,K) and w (K,R,S,C/G), or their gradients.
static inline void conv_check(const tensor *x, const tensor *y, const tensor *w, int stride, int pad, int groups) {
    (void)x, (void)y, (void)w, (void)stride, (void)pad, (void)groups;
    assert(x->dims == 4 && y->dims == 4 && w->dims == 4 && stride >= 1 && pad >= 0 && groups >= 1);
    assert(x->type == y->type && (w->type == x->type || w->type == FP32) &&
           (x->type == FP32 || x->type == BF16 || x->type == FP16));
    assert(x->size[0] == y->size[0] && y->size[3] == w->size[0] && x->size[3] == w->size[3] * groups);
    assert(w->size[0] % groups == 0);
    for (int i = 1; i <= 2; i++) {
        assert(x->size[i] + 2 * pad >= w->size[i]);
        assert(y->size[i] == conv_out(x->size[i], w->size[i], stride, pad));
    }
}

static inline void conv_check_residual(const tensor *residual, const tensor *y) {
    (void)residual, (void)y;
    assert(!residual || (residual->type == y->type && tensor_count(residual) == tensor_count(y)));
}

#endif
