// gpu/matmul_check.h: checks the arguments of matmul (gpu/ops.h), the same for all devices. Programmer errors only:
// does nothing where asserts are off.
#ifndef GPU_MATMUL_CHECK_H
#define GPU_MATMUL_CHECK_H

#include "gpu/gpu.h"
#include "gpu/ops.h"

#include <assert.h>

static inline void matmul_check(const matmul_args *args) {
    (void)args;
    assert(args->a->dims == 2 && args->b->dims == 2 && args->d->dims == 2 && args->a->type == args->b->type);
    assert(args->a->type == FP32 || args->a->type == BF16 || args->a->type == FP16);
    assert(args->d->size[0] == args->a->size[args->ta] && args->d->size[1] == args->b->size[!args->tb] &&
           args->a->size[!args->ta] == args->b->size[args->tb]);
    assert(args->d->type == args->a->type || (args->d->type == FP32 && !(args->epilogue & (MATMUL_GELU | MATMUL_DGELU))));
    assert(!(args->epilogue & MATMUL_BIAS) || (args->bias->type == args->a->type && tensor_count(args->bias) == args->d->size[1]));
    assert(!(args->epilogue & (MATMUL_GELU | MATMUL_DGELU)) ||
           (args->pre->type == args->a->type && tensor_count(args->pre) == tensor_count(args->d)));
    assert(!args->residual ||
           (!(args->epilogue & ~(unsigned)MATMUL_BIAS) && args->d->type == args->a->type && args->residual->type == args->a->type &&
            tensor_count(args->residual) == tensor_count(args->d) && args->residual->data != args->d->data));
    assert(!args->dbias || (args->epilogue == MATMUL_DGELU && args->dbias->type == FP32 && tensor_count(args->dbias) == args->d->size[1]));
    assert(!args->rows || (!args->ta && args->rows >= args->d->size[0]));
    assert(!(args->epilogue & MATMUL_ACCUMULATE) || (args->d->type == FP32 && args->epilogue == MATMUL_ACCUMULATE));
}

#endif
