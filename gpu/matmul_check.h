// gpu/matmul_check.h: what a caller of matmul (gpu/ops.h) must not get wrong, whichever device multiplies. Programmer errors only: it is nothing where
// asserts are off.
#ifndef GPU_MATMUL_CHECK_H
#define GPU_MATMUL_CHECK_H

#include "gpu/gpu.h"
#include "gpu/ops.h"

#include <assert.h>

static inline void matmul_check(const tensor *d, const tensor *pre, const tensor *a, bool ta, const tensor *b, bool tb,
                                const tensor *bias, unsigned epilogue) {
    (void)d, (void)pre, (void)a, (void)ta, (void)b, (void)tb, (void)bias, (void)epilogue;
    assert(a->dims == 2 && b->dims == 2 && d->dims == 2 && a->type == b->type);
    assert(a->type == FP32 || a->type == BF16 || a->type == FP16);
    assert(d->size[0] == a->size[ta] && d->size[1] == b->size[!tb] && a->size[!ta] == b->size[tb]);
    assert(d->type == a->type || (d->type == FP32 && !(epilogue & (MATMUL_GELU | MATMUL_DGELU))));
    assert(!(epilogue & MATMUL_BIAS) || (bias->type == a->type && tensor_count(bias) == d->size[1]));
    assert(!(epilogue & (MATMUL_GELU | MATMUL_DGELU)) || (pre->type == a->type && tensor_count(pre) == tensor_count(d)));
    assert(!(epilogue & MATMUL_ACCUMULATE) || (d->type == FP32 && epilogue == MATMUL_ACCUMULATE));
}

#endif
