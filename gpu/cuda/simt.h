// gpu/cuda/simt.h: the few names through which kernels touch the machine. Under nvcc they are thin covers of CUDA
// syntax and of single PTX instructions; test/sim/simt.h gives the same names a second meaning, and with it every .cu
// file is compiled by g++ and run on a CPU.
//
// Rules for kernels
//   launch         K_LAUNCH in a host function of the same file, never <<<>>>; LAUNCH of gpu/cuda/kernel.h does it and
//                  checks
//   shared memory  K_SMEM(float, tile, [8][33]) and K_DYN_SMEM(float, tile), never __shared__
//   instructions   inline asm is in this file only, one instruction a wrapper, named dev_<instruction>
//   halves         arithmetic in FP32: the half headers' own operators are missing under g++
//   contraction    is off (-fmad=false): write fmaf where one is meant
#ifndef GPU_CUDA_SIMT_H
#define GPU_CUDA_SIMT_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#define K_LAUNCH(kernel, grid, block, shared, native, ...) \
    (kernel)<<<(grid), (block), (shared), (native)>>>(__VA_ARGS__)
#define K_SMEM(T, name, ...) __shared__ __align__(16) T name __VA_ARGS__
#define K_DYN_SMEM(T, name) \
    extern __shared__ __align__(128) unsigned char k_dyn_smem_[]; \
    T *name = reinterpret_cast<T *>(k_dyn_smem_)

__device__ __forceinline__ uint32_t dev_smem_u32(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

// d (16,8) += a (16,16) b (16,8), FP32 sums; fragments as in the PTX ISA, "mma.m16n8k16 with floating-point types".
// sm_80
__device__ __forceinline__ void dev_mma_m16n8k16_f16(float *d, const uint32_t *a, const uint32_t *b) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void dev_mma_m16n8k16_bf16(float *d, const uint32_t *a, const uint32_t *b) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four 8x8 matrices of 16-bit elements: lane l gives the address of row l % 8 of matrix l / 8, 16 bytes aligned to 16.
__device__ __forceinline__ void dev_ldmatrix_x4(uint32_t *r, const void *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(dev_smem_u32(p))
                 : "memory");
}
__device__ __forceinline__ void dev_ldmatrix_x4_trans(uint32_t *r, const void *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(dev_smem_u32(p))
                 : "memory");
}

// 2^x, within two units in the last place; results below 2^-126 are zero.
__device__ __forceinline__ float dev_ex2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
    return y;
}

// Two numbers rounded to nearest even, the first in the lower half, in one instruction. sm_80
__device__ __forceinline__ uint32_t dev_cvt_bf16x2(float first, float second) {
    uint32_t bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(bits) : "f"(second), "f"(first));
    return bits;
}
__device__ __forceinline__ uint32_t dev_cvt_f16x2(float first, float second) {
    uint32_t bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(bits) : "f"(second), "f"(first));
    return bits;
}

// 16 bytes to global memory, at a multiple of 16. Plain C++ is no substitute: nvcc splits the store of a struct, and
// most stores of a uint4, into four.
__device__ __forceinline__ void dev_st_global_v4(void *p, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};\n" ::"l"(p), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// 16 bytes from global to shared memory, asynchronously; of these src_bytes are read and the rest is zero.
__device__ __forceinline__ void dev_cp_async16(void *shared, const void *global, int src_bytes = 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(dev_smem_u32(shared)), "l"(global),
                 "r"(src_bytes)
                 : "memory");
}
__device__ __forceinline__ void dev_cp_async_commit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
template <int N> __device__ __forceinline__ void dev_cp_async_wait() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(N) : "memory");
}

#endif
