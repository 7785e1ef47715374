// test/sim/host/kernels.cu: the kernels of test_cudart.cpp.
#include "gpu/cuda/simt.h"

static __global__ void fill_kernel(float *y, float v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = v;
}

static __global__ void axpy_kernel(float *y, const float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}

static __global__ void shared_kernel(float *y) {
    K_DYN_SMEM(float, tile);
    tile[threadIdx.x] = (float)threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

enum { BLOCK = 64 };

void fill(float *y, float v, int n, cudaStream_t s) {
    K_LAUNCH(fill_kernel, (unsigned)(n + BLOCK - 1) / BLOCK, BLOCK, 0, s, y, v, n);
}
void axpy(float *y, const float *x, float a, int n, cudaStream_t s) {
    K_LAUNCH(axpy_kernel, (unsigned)(n + BLOCK - 1) / BLOCK, BLOCK, 0, s, y, x, a, n);
}
void shared(float *y, int bytes, cudaStream_t s) { K_LAUNCH(shared_kernel, 1, BLOCK, bytes, s, y); }
const void *shared_function(void) { return (const void *)shared_kernel; }
