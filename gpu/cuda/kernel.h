// gpu/cuda/kernel.h: what kernels share: storage types, 16-byte packs, sums over warps and blocks in a fixed order,
// random bits.
#ifndef GPU_CUDA_KERNEL_H
#define GPU_CUDA_KERNEL_H

#include "gpu/cuda/simt.h"

// Before what has functions of both: the operations' headers, and random bits.
#define DEVICE_FN __host__ __device__ static inline
#include "gpu/cuda/cuda.h"

#include "base/philox.h"

typedef __nv_bfloat16 bf16;
typedef __half fp16;

enum { WARP = 32 };

// Queues kernel<<<grid, block, shared>>> on s, notes it for messages, and returns from the calling function when it
// could not be launched.
#define LAUNCH(kernel, grid, block, shared, s, ...) \
    do { \
        K_LAUNCH(kernel, grid, block, shared, (s)->native, __VA_ARGS__); \
        TRY(cuda_launched((s), #kernel, __FILE__, __LINE__)); \
    } while (0)

// Runs the statements with T bound to the storage type.
#define BY_TYPE(type, T, ...) \
    do { \
        switch (type) { \
        case FP32: { \
            typedef float T; \
            __VA_ARGS__; \
            break; \
        } \
        case BF16: { \
            typedef bf16 T; \
            __VA_ARGS__; \
            break; \
        } \
        default: { \
            typedef fp16 T; \
            __VA_ARGS__; \
            break; \
        } \
        } \
    } while (0)

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(bf16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float to_float(fp16 x) { return __half2float(x); }
__device__ __forceinline__ void round_to(float *y, float x) { *y = x; }
__device__ __forceinline__ void round_to(bf16 *y, float x) { *y = __float2bfloat16_rn(x); }
__device__ __forceinline__ void round_to(fp16 *y, float x) { *y = __float2half_rn(x); }
template <class T> __device__ __forceinline__ float rounded(float x) {
    T t;
    round_to(&t, x);
    return to_float(t);
}

// 16 bytes of a row whose address allows 16-byte accesses.
template <class T> struct alignas(16) pack { T v[16 / sizeof(T)]; };
template <class T> static inline bool packs(const void *p, int64_t row) {
    return (uintptr_t)p % 16 == 0 && row * sizeof(T) % 16 == 0;
}

// Four bytes of rounded elements: one float, or two of 16 bits.
__device__ __forceinline__ uint32_t rounded_word(const float *, const float *v) { return __float_as_uint(v[0]); }
__device__ __forceinline__ uint32_t rounded_word(const bf16 *, const float *v) { return dev_cvt_bf16x2(v[0], v[1]); }
__device__ __forceinline__ uint32_t rounded_word(const fp16 *, const float *v) { return dev_cvt_f16x2(v[0], v[1]); }

// 16 bytes in one access.
template <class T> __device__ __forceinline__ void store_rounded(T *p, const float *v) {
    constexpr int N = 4 / sizeof(T);
    dev_st_global_v4(p, rounded_word(p, v), rounded_word(p, v + N), rounded_word(p, v + 2 * N),
                     rounded_word(p, v + 3 * N));
}

template <class T> __device__ __forceinline__ void store_pack(T *p, const pack<T> &u) {
    uint32_t word[4];
    memcpy(word, u.v, sizeof word);
    dev_st_global_v4(p, word[0], word[1], word[2], word[3]);
}

// W consecutive elements as floats and back, rounded: in 16-byte accesses where W elements are that many, which the
// address must allow.
template <int W, class T> __device__ __forceinline__ void load_floats(float *v, const T *p) {
    constexpr int N = 16 / sizeof(T);
    if constexpr (W % N == 0) {
#pragma unroll
        for (int i = 0; i < W; i += N) {
            pack<T> u = *reinterpret_cast<const pack<T> *>(p + i);
#pragma unroll
            for (int k = 0; k < N; k++) v[i + k] = to_float(u.v[k]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < W; i++) v[i] = to_float(p[i]);
    }
}
template <int W, class T> __device__ __forceinline__ void store_floats(T *p, const float *v) {
    constexpr int N = 16 / sizeof(T);
    if constexpr (W % N == 0) {
#pragma unroll
        for (int i = 0; i < W; i += N) store_rounded(p + i, v + i);
    } else {
#pragma unroll
        for (int i = 0; i < W; i++) round_to(&p[i], v[i]);
    }
}

// The pack of elements from i on, of a row of n. PACKED, if packs() is true: one access. Else one access per element,
// which gives the same elements to the same thread, so that the order of sums does not depend on addresses. Past the
// end of the row it is zero.
template <bool PACKED, class T> __device__ __forceinline__ pack<T> load_pack(const T *row, int64_t i, int64_t n) {
    pack<T> u;
    if (PACKED && i < n) return *reinterpret_cast<const pack<T> *>(row + i);
#pragma unroll
    for (int k = 0; k < (int)(16 / sizeof(T)); k++)
        if (!PACKED && i + k < n) u.v[k] = row[i + k];
        else round_to(&u.v[k], 0.0f);
    return u;
}
template <bool PACKED, class T> __device__ __forceinline__ void load_row(float *v, const T *row, int64_t i, int64_t n) {
    pack<T> u = load_pack<PACKED>(row, i, n);
#pragma unroll
    for (int k = 0; k < (int)(16 / sizeof(T)); k++) v[k] = to_float(u.v[k]);
}
template <bool PACKED, class T>
__device__ __forceinline__ void store_row(T *row, const float *v, int64_t i, int64_t n) {
    constexpr int W = 16 / sizeof(T);
    if (PACKED) {
        if (i < n) store_floats<W>(row + i, v);
    } else {
#pragma unroll
        for (int k = 0; k < W; k++)
            if (i + k < n) round_to(&row[i + k], v[k]);
    }
}

// Sum and maximum over a warp, on all of its lanes: a fixed butterfly.
__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int step = WARP / 2; step; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}
__device__ __forceinline__ double warp_sum(double v) {
#pragma unroll
    for (int step = WARP / 2; step; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}
__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
    for (int step = WARP / 2; step; step /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, step));
    return v;
}

// Sum over a block of at most 1024 threads, a multiple of 32; on all threads. `room` is shared memory for 32 floats
// that nothing else may use until the next barrier after this call.
__device__ __forceinline__ float block_sum(float v, float *room) {
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    v = warp_sum(v);
    if (lane == 0) room[warp] = v;
    __syncthreads();
    v = lane < warps ? room[lane] : 0.0f;
    v = warp_sum(v);
    __syncthreads();
    return v;
}
__device__ __forceinline__ float block_max(float v, float *room) {
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    v = warp_max(v);
    if (lane == 0) room[warp] = v;
    __syncthreads();
    v = lane < warps ? room[lane] : -INFINITY;
    v = warp_max(v);
    __syncthreads();
    return v;
}

// x[0] + x[1] + ... in double, one after the other, on thread 0 of a block of ORDERED_THREADS: for sums whose order is
// the contract. The first thread adds one tile while the other warps load the next into shared memory, so that it waits
// for additions only. `room` is shared memory.
enum { ORDERED_THREADS = 128, ORDERED_TILE = 1024 };
template <class S> __device__ __forceinline__ double ordered_sum(const S *x, int64_t n, S (*room)[ORDERED_TILE]) {
    double total = 0;
    for (int64_t at = -ORDERED_TILE; at < n; at += ORDERED_TILE) {
        int64_t next = at + ORDERED_TILE;  // the next tile; in the first turn there is nothing to add
        if (threadIdx.x >= WARP) {
            S *to = room[next / ORDERED_TILE % 2];
            for (int i = threadIdx.x - WARP; i < ORDERED_TILE && next + i < n; i += ORDERED_THREADS - WARP)
                to[i] = x[next + i];
        } else if (threadIdx.x == 0 && at >= 0) {
            const S *from = room[at / ORDERED_TILE % 2];
            int count = n - at < ORDERED_TILE ? (int)(n - at) : (int)ORDERED_TILE;
#pragma unroll 16
            for (int i = 0; i < count; i++) total += (double)from[i];
        }
        __syncthreads();
    }
    return total;
}

// What a norm multiplies a column by. Adding 0 would make +0 of -0.
__device__ __forceinline__ float gain(float w, float shift) { return shift != 0 ? shift + w : w; }

// gelu(x) = x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3)   (Hendrycks & Gimpel 2016, tanh form)
__device__ __forceinline__ float gelu(float x) {
    float u = 0.7978845608028654f * fmaf(0.044715f * x * x, x, x);
    return 0.5f * x * (1.0f + tanhf(u));
}
__device__ __forceinline__ float gelu_slope(float x) {
    // the slope is 1 or 0 there, and x^3 would overflow beyond; NaN stays
    x = x > 10.0f ? 10.0f : x < -10.0f ? -10.0f : x;
    float u = 0.7978845608028654f * fmaf(0.044715f * x * x, x, x), t = tanhf(u);
    float du = 0.7978845608028654f * fmaf(3.0f * 0.044715f * x, x, 1.0f);
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * du;
}

// x Phi(x), Phi(x) = erfc(-x / sqrt 2) / 2   (the same paper, its first form)
__device__ __forceinline__ float normal_below(float x) { return 0.5f * erfcf(x * -0.70710678118654752f); }
__device__ __forceinline__ float gelu_erf(float x) { return x * normal_below(x); }
__device__ __forceinline__ float gelu_erf_slope(float x) {
    x = x > 14.0f ? 14.0f : x < -14.0f ? -14.0f : x;  // it is 1 or 0 there; NaN stays
    return fmaf(0.3989422804014327f * x, expf(-0.5f * x * x), normal_below(x));
}

// The limit for probability p, on the host: p * 2^32, rounded up where p has bits below 2^-32. As
// gpu/cpu/kernel/vmath.h.
static inline uint32_t dropout_limit(float p) {
    double limit = (double)p * 0x1p32;
    uint32_t whole = (uint32_t)limit;
    return whole + (whole < limit);
}

// Does dropout drop the element with these random bits? As gpu/cpu/kernel/vmath.h: bits < p * 2^32.
__device__ __forceinline__ bool dropout_goes(uint32_t bits, uint32_t limit) { return bits < limit; }

#endif
