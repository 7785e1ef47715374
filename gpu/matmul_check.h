// gpu/matmul_check.h: checks the arguments of matmul (gpu/ops.h), the same for all devices. Programmer errors only:
// does nothing where asserts are off.
#ifndef GPU_MATMUL_CHECK_H
#define GPU_MATMUL_CHECK_H

#include "gpu/gpu.h"
#include "gpu/ops.h"

#include <assert.h>

static inline void matmul_check(const matmul_args *args) {
    (void)args;
    int64_t m = matrix_rows(args->d), n = matrix_columns(args->d), slices = matmul_slices(args);
    (void)m, (void)n, (void)slices;
    assert(args->a->type == args->b->type && (slices & (slices - 1)) == 0);
    assert(m == (args->ta ? matrix_columns(args->a) : matrix_rows(args->a)) &&
           n == (args->tb ? matrix_rows(args->b) : matrix_columns(args->b)));
    assert((args->ta ? matrix_rows(args->a) : matrix_columns(args->a)) ==
           (args->tb ? matrix_columns(args->b) : matrix_rows(args->b)));
    assert(!args->tb || matrix_slices(args->b) == slices);
    assert(matrix_slices(args->d) == 1 ||
           (!args->residual && (!args->pre || matrix_slices(args->pre) == matrix_slices(args->d))));
    assert(args->a->type == FP32 || args->a->type == BF16 || args->a->type == FP16);
    assert(args->d->type == args->a->type ||
           (args->d->type == FP32 && !(args->epilogue & (MATMUL_GELU | MATMUL_DGELU))));
    assert(!(args->epilogue & MATMUL_BIAS) || (args->bias->type == args->a->type && tensor_count(args->bias) == n));
    assert(!(args->epilogue & (MATMUL_GELU | MATMUL_DGELU)) ||
           (args->pre->type == args->a->type && tensor_count(args->pre) == tensor_count(args->d)));
    assert(!args->residual ||
           (!(args->epilogue & ~(unsigned)MATMUL_BIAS) && args->d->type == args->a->type &&
            args->residual->type == args->a->type && tensor_count(args->residual) == tensor_count(args->d) &&
            args->residual->data != args->d->data));
    assert(!args->dbias ||
           (args->epilogue == MATMUL_DGELU && args->dbias->type == FP32 && tensor_count(args->dbias) == n));
    assert(!args->rows || (!args->ta && args->rows >= m));
    assert(!(args->epilogue & MATMUL_ACCUMULATE) || (args->d->type == FP32 && args->epilogue == MATMUL_ACCUMULATE));
}

#endif
