// gpu/cuda/matmul_own.cu: a matrix product of our own, for shapes that cuBLASLt refuses: rows that begin at odd
// multiples of two bytes, say. It works for every shape and alignment, and is made to be right, not to be fast.
#include "gpu/cuda/kernel.h"

#include "gpu/cuda/plans.h"

#include <inttypes.h>

enum { OWN_SIDE = 64, OWN_DEPTH = 32, OWN_PAD = 8, OWN_THREADS = 128, OWN_SUMS = OWN_SIDE * OWN_SIDE / OWN_THREADS };

template <class T, class U> struct own_args {
    U *d;
    const U *c, *bias;  // c NULL: nothing is added
    const T *a, *b;
    int64_t m, n, k, lda, ldb;
    bool ta, tb;
};

// A tile of a or b in shared memory: [row of d or column of d][k], zeros beyond the matrix. `along`: the matrix has k
// along its rows.
template <class T>
__device__ __forceinline__ void own_load(T (*tile)[OWN_DEPTH + OWN_PAD], const T *from, int64_t ld, bool along,
                                         int64_t first, int64_t rows, int64_t k0, int64_t k) {
    for (int i = threadIdx.x; i < OWN_SIDE * OWN_DEPTH; i += OWN_THREADS) {
        // neighbours read neighbours
        int r = along ? i / OWN_DEPTH : i % OWN_SIDE, q = along ? i % OWN_DEPTH : i / OWN_SIDE;
        int64_t row = first + r, at = k0 + q;
        if (row < rows && at < k) tile[r][q] = along ? from[row * ld + at] : from[at * ld + row];
        else round_to(&tile[r][q], 0.0f);
    }
}

__device__ __forceinline__ void own_mma(const fp16 *, float *d, const uint32_t *a, const uint32_t *b) {
    dev_mma_m16n8k16_f16(d, a, b);
}
__device__ __forceinline__ void own_mma(const bf16 *, float *d, const uint32_t *a, const uint32_t *b) {
    dev_mma_m16n8k16_bf16(d, a, b);
}

// 16 bits: a warp has 32 x 32 of the tile, in fragments of 16 x 8.
template <class T>
__device__ __forceinline__ void own_add(float (&sum)[OWN_SUMS], const T (*a)[OWN_DEPTH + OWN_PAD],
                                        const T (*b)[OWN_DEPTH + OWN_PAD]) {
    const int lane = threadIdx.x % WARP, top = threadIdx.x / WARP / 2 * 32, left = threadIdx.x / WARP % 2 * 32;
#pragma unroll
    for (int k = 0; k < OWN_DEPTH; k += 16) {
        uint32_t x[2][4], y[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            dev_ldmatrix_x4(x[i], &a[top + 16 * i + lane % 16][k + lane / 16 * 8]);
            dev_ldmatrix_x4(y[i], &b[left + 16 * i + lane / 16 * 8 + lane % 8][k + lane / 8 % 2 * 8]);
        }
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) own_mma(&a[0][0], &sum[16 * i + 4 * j], x[i], &y[j / 2][j % 2 * 2]);
    }
}
template <class T> __device__ __forceinline__ void own_place(int i, int *row, int *column) {
    const int lane = threadIdx.x % WARP, top = threadIdx.x / WARP / 2 * 32, left = threadIdx.x / WARP % 2 * 32;
    *row = top + i / 16 * 16 + lane / 4 + i / 2 % 2 * 8, *column = left + i / 4 % 4 * 8 + lane % 4 * 2 + i % 2;
}

// FP32: a thread has 8 x 4 of the tile.
template <>
__device__ __forceinline__ void own_add<float>(float (&sum)[OWN_SUMS], const float (*a)[OWN_DEPTH + OWN_PAD],
                                               const float (*b)[OWN_DEPTH + OWN_PAD]) {
    const int top = threadIdx.x / 16 * 8, left = threadIdx.x % 16;
#pragma unroll 4
    for (int k = 0; k < OWN_DEPTH; k++)
#pragma unroll
        for (int i = 0; i < OWN_SUMS; i++) sum[i] = fmaf(a[top + i / 4][k], b[left + i % 4 * 16][k], sum[i]);
}
template <> __device__ __forceinline__ void own_place<float>(int i, int *row, int *column) {
    *row = (int)threadIdx.x / 16 * 8 + i / 4, *column = (int)threadIdx.x % 16 + i % 4 * 16;
}

// A block computes 64 x 64 of d.
// layout     d, c (M,N) dense; a (M,K) or (K,M), b (K,N) or (N,K) with rows of lda and ldb; bias (N)
// alias      d == c allowed: a thread has read what it overwrites
// sums       FP32, k ascending: on tensor cores 16 at a time, FP32 operands one by one; then + bias, then + c
// repeatable an element's sum is one thread's or one warp's, whatever M is
// flops      2 * M * N * K
// reference  gpu/cpu/kernel/matmul.c
template <class T, class U> __global__ void __launch_bounds__(OWN_THREADS) matmul_own_kernel(own_args<T, U> g) {
    K_SMEM(T, a, [OWN_SIDE][OWN_DEPTH + OWN_PAD]);
    K_SMEM(T, b, [OWN_SIDE][OWN_DEPTH + OWN_PAD]);
    const int64_t across = (g.n + OWN_SIDE - 1) / OWN_SIDE, top = blockIdx.x / across * OWN_SIDE,
                  left = blockIdx.x % across * OWN_SIDE;
    float sum[OWN_SUMS] = {};
    for (int64_t k0 = 0; k0 < g.k; k0 += OWN_DEPTH) {
        own_load(a, g.a, g.lda, !g.ta, top, g.m, k0, g.k);
        own_load(b, g.b, g.ldb, g.tb, left, g.n, k0, g.k);
        __syncthreads();
        own_add<T>(sum, a, b);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < OWN_SUMS; i++) {
        int r, c;
        own_place<T>(i, &r, &c);
        int64_t row = top + r, column = left + c, at = row * g.n + column;
        if (row >= g.m || column >= g.n) continue;
        float x = sum[i];
        if (g.bias) x += to_float(g.bias[column]);
        if (g.c) x += to_float(g.c[at]);
        round_to(&g.d[at], x);
    }
}

template <class T, class U> static err_t own_launch(const plan_key *k, const plan_operands *x, stream *s) {
    own_args<T, U> g = {(U *)x->out,
                        x->beta != 0 ? (const U *)x->c : NULL,
                        k->bias ? (const U *)x->bias : NULL,
                        (const T *)x->a,
                        (const T *)x->b,
                        x->m,
                        k->n,
                        k->k,
                        k->lda,
                        k->ldb,
                        k->ta != 0,
                        k->tb != 0};
    int64_t blocks = ceil_div(x->m, OWN_SIDE) * ceil_div(k->n, OWN_SIDE);
    if (blocks > INT32_MAX)
        return err_set(ERR_UNAVAILABLE, "cuda: a matrix product of %" PRId64 " tiles is beyond what a grid can have",
                       blocks);
    LAUNCH((matmul_own_kernel<T, U>), (unsigned)blocks, OWN_THREADS, 0, s, g);
    return ERR_OK;
}

err_t matmul_own(const plan_key *k, const plan_operands *x, stream *s) {
    if (k->d_type != FP32) BY_TYPE(k->type, T, return own_launch<T, T>(k, x, s));
    else BY_TYPE(k->type, T, return own_launch<T, float>(k, x, s));
}

// --- comparing -------------------------------------------------------------------------------------------------------

enum { DIFFERS_THREADS = 256, DIFFERS_BLOCKS = 1024 };

// Two bytes at a time, so that any tensor will do: for tests of an algorithm, not for a step.
__global__ void __launch_bounds__(DIFFERS_THREADS)
    memory_differs_kernel(int32_t *differ, const uint16_t *a, const uint16_t *b, int64_t count) {
    bool found = false;
    for (int64_t i = (int64_t)blockIdx.x * DIFFERS_THREADS + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * DIFFERS_THREADS)
        found |= a[i] != b[i];
    if (found) atomicMax(differ, 1);
}

err_t memory_differs(int32_t *differ, const void *a, const void *b, size_t bytes, stream *s) {
    int64_t count = (int64_t)bytes / 2, blocks = ceil_div(count, DIFFERS_THREADS);
    TRY(cuda_zero(s, differ, sizeof *differ));
    LAUNCH(memory_differs_kernel, (unsigned)(blocks < DIFFERS_BLOCKS ? blocks : (int64_t)DIFFERS_BLOCKS),
           DIFFERS_THREADS, 0, s, differ, (const uint16_t *)a, (const uint16_t *)b, count);
    return ERR_OK;
}
