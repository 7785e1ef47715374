// test/sim/simt.h: the second meaning of gpu/cuda/simt.h: the same names over the simulator, for g++ with -x c++. It
// takes that header's place by its guard: the Makefile puts -include test/sim/simt.h before every .cu file.
//
// A kernel is a plain function that runs once for each thread; threadIdx and the like are variables; what synchronises
// is a call into the simulator with the place where it stands. Names that CUDA has and this file has not are not used
// by any kernel yet: add them here. __shared__ and __activemask are missing on purpose: the former is K_SMEM, the
// latter's result is not defined where it matters.
#ifndef GPU_CUDA_SIMT_H
#define GPU_CUDA_SIMT_H

#include "test/sim/launch.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <tuple>
#include <utility>

#undef __shared__
#undef __launch_bounds__
#define __launch_bounds__(...)

#define SIM_FN static inline __attribute__((always_inline))
#define SIM_AT \
    const char *file = __builtin_FILE(), int line = __builtin_LINE()  // default arguments: the place of the call

namespace simt {

extern uint3 thread_index, block_index;
extern dim3 block_size, grid_size;

void syncthreads(const char *file, int line);
int syncthreads_or(int predicate, const char *file, int line);
int syncthreads_and(int predicate, const char *file, int line);
int syncthreads_count(int predicate, const char *file, int line);
void threadfence();
void *static_shared(const void *key, const char *name, const char *file, int line, size_t bytes);
void *dynamic_shared(const char *name, const char *file, int line);
void syncwarp(uint32_t mask, const char *file, int line);
void shuffle(int mode, uint32_t mask, void *value, int bytes, int by, int width, const char *file, int line);
uint32_t ballot(uint32_t mask, int predicate, const char *file, int line);
void mma_m16n8k16(float *d, const uint32_t *a, const uint32_t *b, bool bf, const char *file, int line);
void ldmatrix(uint32_t *r, const void *row, int count, bool trans, const char *file, int line);
void cp_async(void *to, const void *from, int bytes, int read, const char *file, int line);
void cp_async_commit();
void cp_async_wait(int pending);
void atomic_touch(const void *p, size_t n, const void *pc);

// --- launch: the arguments are evaluated now; every thread gets copies of its own ------------------------------------

template <class... P> struct call {
    void (*kernel)(P...);
    std::tuple<P...> arguments;
};

template <class... P, size_t... I>
__attribute__((noinline, no_sanitize("thread"))) void run_thread(call<P...> *c, std::index_sequence<I...>) {
    c->kernel(std::get<I>(c->arguments)...);
}

template <class... P, class... A>
void launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
            A &&...a) {
    auto c = std::make_shared<call<P...>>(call<P...>{kernel, std::tuple<P...>(std::forward<A>(a)...)});
    enqueue_kernel(name, (const void *)kernel, grid, block, shared, stream,
                   Body{[](void *p) { run_thread((call<P...> *)p, std::index_sequence_for<P...>()); }, c});
}

// A read, a computation and a write that nothing comes between.
template <class T, class F> __attribute__((noinline, no_sanitize("thread"))) T atomic(T *p, F f) {
    atomic_touch(p, sizeof(T), __builtin_return_address(0));
    T old = *p;
    *p = f(old);
    return old;
}

}  // namespace simt

#define threadIdx simt::thread_index
#define blockIdx simt::block_index
#define blockDim simt::block_size
#define gridDim simt::grid_size
#define warpSize 32
#define K_LAUNCH(kernel, grid, block, shared, native, ...) \
    simt::launch(#kernel, (kernel), dim3(grid), dim3(block), (shared), (native), ##__VA_ARGS__)
#define K_SMEM(T, name, ...) \
    static char k_smem_##name; /* its address tells instantiations of a template apart */ \
    T(&name) \
    __VA_ARGS__ = \
        *(T(*) __VA_ARGS__)simt::static_shared(&k_smem_##name, #name, __FILE__, __LINE__, sizeof(T __VA_ARGS__))
#define K_DYN_SMEM(T, name) T *name = reinterpret_cast<T *>(simt::dynamic_shared(#name, __FILE__, __LINE__))

// --- block and warp --------------------------------------------------------------------------------------------------

SIM_FN void __syncthreads(SIM_AT) { simt::syncthreads(file, line); }
SIM_FN int __syncthreads_or(int predicate, SIM_AT) { return simt::syncthreads_or(predicate, file, line); }
SIM_FN int __syncthreads_and(int predicate, SIM_AT) { return simt::syncthreads_and(predicate, file, line); }
SIM_FN int __syncthreads_count(int predicate, SIM_AT) { return simt::syncthreads_count(predicate, file, line); }
SIM_FN void __syncwarp(uint32_t mask = ~0u, SIM_AT) { simt::syncwarp(mask, file, line); }
SIM_FN void __threadfence() { simt::threadfence(); }
SIM_FN void __threadfence_block() {}
template <class T> SIM_FN T __shfl_sync(uint32_t mask, T v, int from, int width = 32, SIM_AT) {
    return simt::shuffle(0, mask, &v, sizeof v, from, width, file, line), v;
}
template <class T> SIM_FN T __shfl_xor_sync(uint32_t mask, T v, int with, int width = 32, SIM_AT) {
    return simt::shuffle(1, mask, &v, sizeof v, with, width, file, line), v;
}
template <class T> SIM_FN T __shfl_down_sync(uint32_t mask, T v, unsigned by, int width = 32, SIM_AT) {
    return simt::shuffle(2, mask, &v, sizeof v, (int)by, width, file, line), v;
}
template <class T> SIM_FN T __shfl_up_sync(uint32_t mask, T v, unsigned by, int width = 32, SIM_AT) {
    return simt::shuffle(3, mask, &v, sizeof v, (int)by, width, file, line), v;
}
SIM_FN uint32_t __ballot_sync(uint32_t mask, int predicate, SIM_AT) {
    return simt::ballot(mask, predicate, file, line);
}
SIM_FN int __any_sync(uint32_t mask, int predicate, SIM_AT) { return simt::ballot(mask, predicate, file, line) != 0; }
SIM_FN int __all_sync(uint32_t mask, int predicate, SIM_AT) { return simt::ballot(mask, !predicate, file, line) == 0; }

// --- atomics ---------------------------------------------------------------------------------------------------------

#define SIM_ATOMIC(T) \
    SIM_FN T atomicAdd(T *p, T v) { \
        return simt::atomic(p, [v](T old) { return (T)(old + v); }); \
    } \
    SIM_FN T atomicExch(T *p, T v) { \
        return simt::atomic(p, [v](T) { return v; }); \
    }
#define SIM_ATOMIC_WORD(T) \
    SIM_ATOMIC(T) \
    SIM_FN T atomicMax(T *p, T v) { \
        return simt::atomic(p, [v](T old) { return old > v ? old : v; }); \
    } \
    SIM_FN T atomicMin(T *p, T v) { \
        return simt::atomic(p, [v](T old) { return old < v ? old : v; }); \
    } \
    SIM_FN T atomicOr(T *p, T v) { \
        return simt::atomic(p, [v](T old) { return (T)(old | v); }); \
    } \
    SIM_FN T atomicAnd(T *p, T v) { \
        return simt::atomic(p, [v](T old) { return (T)(old & v); }); \
    } \
    SIM_FN T atomicCAS(T *p, T is, T v) { \
        return simt::atomic(p, [is, v](T old) { return old == is ? v : old; }); \
    }
SIM_ATOMIC(float)
SIM_ATOMIC(double)
SIM_ATOMIC_WORD(int)
SIM_ATOMIC_WORD(unsigned)
SIM_ATOMIC_WORD(unsigned long long)

// --- arithmetic ------------------------------------------------------------------------------------------------------

SIM_FN float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
SIM_FN float __fmul_rn(float a, float b) { return a * b; }
SIM_FN float __fadd_rn(float a, float b) { return a + b; }
SIM_FN float __fsub_rn(float a, float b) { return a - b; }
SIM_FN float __fdiv_rn(float a, float b) { return a / b; }
SIM_FN float __fsqrt_rn(float a) { return sqrtf(a); }
SIM_FN float __frcp_rn(float a) { return 1.0f / a; }
SIM_FN float __frsqrt_rn(float a) { return (float)(1.0 / sqrt((double)a)); }
SIM_FN float __fdividef(float a, float b) { return a / b; }
SIM_FN float rsqrtf(float a) { return 1.0f / sqrtf(a); }
SIM_FN double rsqrt(double a) { return 1.0 / sqrt(a); }
SIM_FN double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
SIM_FN double __dmul_rn(double a, double b) { return a * b; }
SIM_FN double __dadd_rn(double a, double b) { return a + b; }
SIM_FN double __dsub_rn(double a, double b) { return a - b; }
SIM_FN double __ddiv_rn(double a, double b) { return a / b; }
SIM_FN double __dsqrt_rn(double a) { return sqrt(a); }
SIM_FN double __drcp_rn(double a) { return 1.0 / a; }
#define __expf(x) expf(x)  // the C library has these names too
#define __logf(x) logf(x)
#define __exp2f(x) exp2f(x)
#define __log2f(x) log2f(x)
#define __powf(x, y) powf((x), (y))

// Conversions saturate, and NaN becomes 0.
SIM_FN int sim_to_int(double whole) {
    return whole != whole ? 0 : whole >= 2147483647.0 ? INT32_MAX : whole <= -2147483648.0 ? INT32_MIN : (int)whole;
}
SIM_FN int __float2int_rn(float x) { return sim_to_int(rint((double)x)); }
SIM_FN int __float2int_rd(float x) { return sim_to_int(floor((double)x)); }
SIM_FN int __float2int_ru(float x) { return sim_to_int(ceil((double)x)); }
SIM_FN int __float2int_rz(float x) { return sim_to_int(trunc((double)x)); }
SIM_FN int __double2int_rn(double x) { return sim_to_int(rint(x)); }
SIM_FN float __int2float_rn(int x) { return (float)x; }
SIM_FN float __uint2float_rn(unsigned x) { return (float)x; }
SIM_FN float __double2float_rn(double x) { return (float)x; }

#define SIM_BITS(name, From, To) \
    SIM_FN To name(From x) { \
        static_assert(sizeof(From) == sizeof(To), "bits of one size"); \
        To y; \
        memcpy(&y, &x, sizeof y); \
        return y; \
    }
SIM_BITS(__float_as_uint, float, unsigned)
SIM_BITS(__float_as_int, float, int)
SIM_BITS(__uint_as_float, unsigned, float)
SIM_BITS(__int_as_float, int, float)
SIM_BITS(__double_as_longlong, double, long long)
SIM_BITS(__longlong_as_double, long long, double)

SIM_FN int __popc(unsigned x) { return __builtin_popcount(x); }
SIM_FN int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
SIM_FN int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
SIM_FN int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
SIM_FN int __ffs(int x) { return __builtin_ffs(x); }
SIM_FN int __ffsll(long long x) { return __builtin_ffsll(x); }
SIM_FN unsigned __brev(unsigned x) {
    unsigned y = 0;
    for (int i = 0; i < 32; i++) y |= (x >> i & 1) << (31 - i);
    return y;
}
SIM_FN unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
SIM_FN unsigned __byte_perm(unsigned x, unsigned y, unsigned select) {
    uint64_t bytes = (uint64_t)y << 32 | x;
    unsigned out = 0;
    for (int i = 0; i < 4; i++) {
        unsigned s = select >> 4 * i & 15, byte = (unsigned)(bytes >> 8 * (s & 7)) & 255;
        if (s & 8) byte = byte & 128 ? 255 : 0;
        out |= byte << 8 * i;
    }
    return out;
}
SIM_FN unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
    return (unsigned)((((uint64_t)high << 32 | low) << (by & 31)) >> 32);
}
SIM_FN unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return (unsigned)(((uint64_t)high << 32 | low) >> (by & 31));
}

#define SIM_MIN_MAX(T) \
    SIM_FN T min(T a, T b) { return b < a ? b : a; } \
    SIM_FN T max(T a, T b) { return a < b ? b : a; }
SIM_MIN_MAX(int)
SIM_MIN_MAX(unsigned)
SIM_MIN_MAX(long)
SIM_MIN_MAX(unsigned long)
SIM_MIN_MAX(long long)
SIM_MIN_MAX(unsigned long long)
SIM_FN float min(float a, float b) { return fminf(a, b); }
SIM_FN float max(float a, float b) { return fmaxf(a, b); }
SIM_FN double min(double a, double b) { return fmin(a, b); }
SIM_FN double max(double a, double b) { return fmax(a, b); }

// --- memory ----------------------------------------------------------------------------------------------------------

template <class T> SIM_FN T __ldg(const T *p) { return *p; }
template <class T> SIM_FN T __ldcs(const T *p) { return *p; }
template <class T> SIM_FN T __ldcg(const T *p) { return *p; }
template <class T> SIM_FN T __ldca(const T *p) { return *p; }
template <class T> SIM_FN T __ldlu(const T *p) { return *p; }
template <class T> SIM_FN void __stcs(T *p, T v) { *p = v; }
template <class T> SIM_FN void __stcg(T *p, T v) { *p = v; }
template <class T> SIM_FN void __stwb(T *p, T v) { *p = v; }

// --- the wrappers of gpu/cuda/simt.h ---------------------------------------------------------------------------------

SIM_FN void dev_mma_m16n8k16_f16(float *d, const uint32_t *a, const uint32_t *b, SIM_AT) {
    simt::mma_m16n8k16(d, a, b, false, file, line);
}
SIM_FN void dev_mma_m16n8k16_bf16(float *d, const uint32_t *a, const uint32_t *b, SIM_AT) {
    simt::mma_m16n8k16(d, a, b, true, file, line);
}
SIM_FN void dev_ldmatrix_x4(uint32_t *r, const void *p, SIM_AT) { simt::ldmatrix(r, p, 4, false, file, line); }
SIM_FN void dev_ldmatrix_x4_trans(uint32_t *r, const void *p, SIM_AT) { simt::ldmatrix(r, p, 4, true, file, line); }
SIM_FN void dev_ldmatrix_x2(uint32_t *r, const void *p, SIM_AT) { simt::ldmatrix(r, p, 2, false, file, line); }
SIM_FN void dev_ldmatrix_x2_trans(uint32_t *r, const void *p, SIM_AT) { simt::ldmatrix(r, p, 2, true, file, line); }
SIM_FN void dev_cp_async16(void *shared, const void *global, int src_bytes = 16, SIM_AT) {
    simt::cp_async(shared, global, 16, src_bytes, file, line);
}
SIM_FN void dev_cp_async_commit() { simt::cp_async_commit(); }
template <int N> SIM_FN void dev_cp_async_wait() { simt::cp_async_wait(N); }
SIM_FN void dev_st_global_v4(void *p, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    *(uint4 *)p = make_uint4(a, b, c, d);
}
SIM_FN float dev_ex2(float x) {
    float y = exp2f(x);
    return y < 0x1p-126f ? 0.0f : y;
}
SIM_FN uint32_t dev_cvt_bf16x2(float first, float second) {
    __nv_bfloat16 v[2] = {__float2bfloat16_rn(first), __float2bfloat16_rn(second)};
    uint32_t bits;
    memcpy(&bits, v, sizeof bits);
    return bits;
}
SIM_FN uint32_t dev_cvt_f16x2(float first, float second) {
    __half v[2] = {__float2half_rn(first), __float2half_rn(second)};
    uint32_t bits;
    memcpy(&bits, v, sizeof bits);
    return bits;
}

#endif
