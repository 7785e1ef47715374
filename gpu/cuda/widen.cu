// gpu/cuda/widen.cu: weights that are kept in 8 bits, as the compute type.
#include "gpu/cuda/kernel.h"

enum { BLOCK = 256 };

// widen_kernel: a thread W elements of y, which are of one group.
// alias      none
// moves      1 + sizeof(E) bytes an element, and the scales; memory bound
// reference  gpu/cpu/kernel/widen.c, to the bit
template <class E, int W>
__global__ void __launch_bounds__(BLOCK)
    widen_kernel(E *__restrict__ y, const int8_t *__restrict__ code, const float *__restrict__ scale, int64_t count) {
    const int64_t i = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) * W;
    if (i >= count) return;
    const float by = scale[i / WIDEN_GROUP];
    int8_t c[W];
    float x[W];
    memcpy(c, __builtin_assume_aligned(code + i, W), sizeof c);
#pragma unroll
    for (int k = 0; k < W; k++) x[k] = (float)c[k] * by;
    store_floats<W>(y + i, x);
}

template <class E> static err_t widen(const widen_args *args, int64_t count, stream *s) {
    constexpr int W = 16 / sizeof(E);
    E *y = (E *)args->y->data;
    const int8_t *code = (const int8_t *)args->codes->data;
    const float *scale = (const float *)args->scales->data;
    const bool wide = (uintptr_t)y % 16 == 0 && (uintptr_t)code % W == 0;
    const unsigned blocks = (unsigned)ceil_div(count, BLOCK * (wide ? W : 1));
    if (wide) LAUNCH((widen_kernel<E, W>), blocks, BLOCK, 0, s, y, code, scale, count);
    else LAUNCH((widen_kernel<E, 1>), blocks, BLOCK, 0, s, y, code, scale, count);
    return ERR_OK;
}

err_t cuda_widen(const widen_args *args, stream *s) {
    const int64_t count = tensor_count(args->y);
    assert(args->codes->type == UINT8 && args->scales->type == FP32 && tensor_count(args->codes) == count);
    assert(count % WIDEN_GROUP == 0 && tensor_count(args->scales) == count / WIDEN_GROUP);
    BY_TYPE(args->y->type, E, return widen<E>(args, count, s));
}
