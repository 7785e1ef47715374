// test/sim/test_wrappers.cu: each instruction wrapper of gpu/cuda/simt.h against its definition in the PTX ISA (version
// 8, sections on mma.m16n8k16, ldmatrix and cp.async), with integers that every type holds exactly. Compiled by nvcc it
// tests the instructions, compiled for the simulator their models; `make gpu-check` begins with it, because what CI
// proves of kernels rests on the two being the same.
#include "gpu/cuda/kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { A_ROWS = 16, K_DEPTH = 16, B_COLUMNS = 8 };

static int passed, failures;

static void verdict(const char *name, bool good) {
    printf("%s: %s\n", good ? "ok" : "FAILED", name);
    if (good) passed++;
    else failures++;
}

static void must(cudaError_t e, const char *what) {
    if (e == cudaSuccess) return;
    printf("FAILED: %s: %s\n%d passed, %d failed\n", what, cudaGetErrorString(e), passed, failures + 1);
    exit(1);
}

// Device memory with a copy of n bytes, and back.
static void *to_device(const void *from, size_t n) {
    void *p;
    must(cudaMalloc(&p, n), "cudaMalloc");
    must(cudaMemcpy(p, from, n, cudaMemcpyHostToDevice), "copy to the device");
    return p;
}

static void from_device(void *to, void *p, size_t n) {
    must(cudaGetLastError(), "launch");
    must(cudaMemcpy(to, p, n, cudaMemcpyDeviceToHost), "copy from the device");
    must(cudaFree(p), "cudaFree");
}

static int small(int i) { return (i * 7 + i / 5) % 9 - 4; }

// --- mma.m16n8k16 ----------------------------------------------------------------------------------------------------

__device__ __forceinline__ void mma(fp16, float *d, const uint32_t *a, const uint32_t *b) {
    dev_mma_m16n8k16_f16(d, a, b);
}
__device__ __forceinline__ void mma(bf16, float *d, const uint32_t *a, const uint32_t *b) {
    dev_mma_m16n8k16_bf16(d, a, b);
}

// Lane l = 4 g + t holds of a: (g, 2t), (g+8, 2t), (g, 2t+8), (g+8, 2t+8), and the element right of each; of b: (2t,
// g), (2t+8, g), and the element below; of d: (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1).
template <class T> __global__ void mma_kernel(float *d, const T *a, const T *b, const float *c) {
    int g = threadIdx.x / 4, t = threadIdx.x % 4;
    uint32_t fa[4], fb[2];
    float fd[4];
    for (int i = 0; i < 4; i++) memcpy(&fa[i], &a[(g + i % 2 * 8) * K_DEPTH + 2 * t + i / 2 * 8], sizeof fa[i]);
    for (int i = 0; i < 2; i++) {
        T pair[2] = {b[(2 * t + 8 * i) * B_COLUMNS + g], b[(2 * t + 1 + 8 * i) * B_COLUMNS + g]};
        memcpy(&fb[i], pair, sizeof fb[i]);
    }
    for (int i = 0; i < 4; i++) fd[i] = c[(g + i / 2 * 8) * B_COLUMNS + 2 * t + i % 2];
    mma(T(), fd, fa, fb);
    for (int i = 0; i < 4; i++) d[(g + i / 2 * 8) * B_COLUMNS + 2 * t + i % 2] = fd[i];
}

static void store(fp16 *to, int x) { *to = __float2half_rn((float)x); }
static void store(bf16 *to, int x) { *to = __float2bfloat16_rn((float)x); }

template <class T> static void test_mma(const char *name) {
    T a[A_ROWS * K_DEPTH], b[K_DEPTH * B_COLUMNS];
    float c[A_ROWS * B_COLUMNS], d[A_ROWS * B_COLUMNS];
    for (int i = 0; i < A_ROWS * K_DEPTH; i++) store(&a[i], small(i));
    for (int i = 0; i < K_DEPTH * B_COLUMNS; i++) store(&b[i], small(3 * i + 1));
    for (int i = 0; i < A_ROWS * B_COLUMNS; i++) c[i] = (float)(100 + i);
    T *da = (T *)to_device(a, sizeof a), *db = (T *)to_device(b, sizeof b);
    float *dc = (float *)to_device(c, sizeof c), *dd = (float *)to_device(c, sizeof c);
    K_LAUNCH((mma_kernel<T>), 1, WARP, 0, 0, dd, da, db, dc);
    from_device(d, dd, sizeof d);
    bool good = true;
    for (int i = 0; i < A_ROWS; i++)
        for (int j = 0; j < B_COLUMNS; j++) {
            int sum = 100 + i * B_COLUMNS + j;
            for (int k = 0; k < K_DEPTH; k++) sum += small(i * K_DEPTH + k) * small(3 * (k * B_COLUMNS + j) + 1);
            good = good && d[i * B_COLUMNS + j] == (float)sum;
        }
    must(cudaFree(da), "cudaFree"), must(cudaFree(db), "cudaFree"), must(cudaFree(dc), "cudaFree");
    verdict(name, good);
}

// --- ldmatrix --------------------------------------------------------------------------------------------------------

// Matrix m's row r begins at shared element (32 - (8 m + r)) * 8: the lanes' addresses matter, not their order in
// memory.
template <bool TRANS> __global__ void ldmatrix_kernel(uint32_t *out, const uint16_t *in) {
    K_SMEM(uint16_t, tile, [33 * 8]);
    for (int i = threadIdx.x; i < 33 * 8; i += WARP) tile[i] = in[i];
    __syncthreads();
    uint32_t r[4];
    const uint16_t *row = tile + (32 - (int)threadIdx.x) * 8;
    if (TRANS) dev_ldmatrix_x4_trans(r, row);
    else dev_ldmatrix_x4(r, row);
    for (int i = 0; i < 4; i++) out[threadIdx.x * 4 + i] = r[i];
}

// Lane 4 g + t gets elements (g, 2t) and (g, 2t+1) of each matrix, or of its transpose.
template <bool TRANS> static void test_ldmatrix(const char *name) {
    uint16_t in[33 * 8];
    uint32_t out[WARP * 4] = {0};
    for (int i = 0; i < 33 * 8; i++) in[i] = (uint16_t)(1000 + i);
    uint16_t *din = (uint16_t *)to_device(in, sizeof in);
    uint32_t *dout = (uint32_t *)to_device(out, sizeof out);
    K_LAUNCH((ldmatrix_kernel<TRANS>), 1, WARP, 0, 0, dout, din);
    from_device(out, dout, sizeof out);
    bool good = true;
    for (int lane = 0; lane < WARP; lane++)
        for (int m = 0; m < 4; m++) {
            uint32_t want = 0;
            for (int e = 0; e < 2; e++) {
                int g = lane / 4, c = 2 * (lane % 4) + e, row = TRANS ? c : g, column = TRANS ? g : c;
                want |= (uint32_t)(1000 + (32 - (8 * m + row)) * 8 + column) << 16 * e;
            }
            good = good && out[lane * 4 + m] == want;
        }
    must(cudaFree(din), "cudaFree");
    verdict(name, good);
}

// --- cp.async --------------------------------------------------------------------------------------------------------

// Thread i copies i % 17 of 16 bytes in a first group, and all 16 in a second one that is waited for later.
__global__ void cp_async_kernel(unsigned char *out, const unsigned char *in) {
    K_SMEM(unsigned char, tile, [2 * 64 * 16]);
    unsigned char *first = tile + threadIdx.x * 16, *second = tile + (64 + threadIdx.x) * 16;
    dev_cp_async16(first, in + threadIdx.x * 16, (int)threadIdx.x % 17);
    dev_cp_async_commit();
    dev_cp_async16(second, in + threadIdx.x * 16);
    dev_cp_async_commit();
    dev_cp_async_wait<1>();
    for (int i = 0; i < 16; i++) out[threadIdx.x * 16 + i] = first[i];
    dev_cp_async_wait<0>();
    for (int i = 0; i < 16; i++) out[(64 + threadIdx.x) * 16 + i] = second[i];
}

static void test_cp_async(void) {
    unsigned char in[64 * 16], out[2 * 64 * 16];
    for (int i = 0; i < (int)sizeof in; i++) in[i] = (unsigned char)(i * 31 + 7);
    memset(out, 0xee, sizeof out);
    unsigned char *din = (unsigned char *)to_device(in, sizeof in), *dout = (unsigned char *)to_device(out, sizeof out);
    K_LAUNCH(cp_async_kernel, 1, 64, 0, 0, dout, din);
    from_device(out, dout, sizeof out);
    bool part = true, whole = true;
    for (int t = 0; t < 64; t++)
        for (int i = 0; i < 16; i++) {
            part = part && out[t * 16 + i] == (i < t % 17 ? in[t * 16 + i] : 0);
            whole = whole && out[(64 + t) * 16 + i] == in[t * 16 + i];
        }
    must(cudaFree(din), "cudaFree");
    verdict("cp.async: bytes beyond src_bytes are zero", part);
    verdict("cp.async: 16 bytes, second group", whole);
}

// --- conversions and exp2 --------------------------------------------------------------------------------------------

__global__ void convert_kernel(uint32_t *out, const float *in) {
    out[3 * threadIdx.x] = dev_cvt_bf16x2(in[2 * threadIdx.x], in[2 * threadIdx.x + 1]);
    out[3 * threadIdx.x + 1] = dev_cvt_f16x2(in[2 * threadIdx.x], in[2 * threadIdx.x + 1]);
    out[3 * threadIdx.x + 2] = __float_as_uint(dev_ex2(in[2 * threadIdx.x]));
}

__global__ void store_kernel(uint32_t *out) {
    dev_st_global_v4(out + 4 * threadIdx.x, threadIdx.x, threadIdx.x + 1, 7, ~threadIdx.x);
}

static void test_store(void) {
    uint32_t out[4 * WARP] = {0};
    uint32_t *dout = (uint32_t *)to_device(out, sizeof out);
    K_LAUNCH(store_kernel, 1, WARP, 0, 0, dout);
    from_device(out, dout, sizeof out);
    bool good = true;
    for (uint32_t i = 0; i < WARP; i++)
        good = good && out[4 * i] == i && out[4 * i + 1] == i + 1 && out[4 * i + 2] == 7 && out[4 * i + 3] == ~i;
    verdict("st.global.v4: four words in order", good);
}

// The first number in the lower half, each to nearest even; 2^x within two units in the last place, and zero below
// 2^-126.
static void test_convert(void) {
    static const float some[] = {1,    0x1.01p0f, 0x1.03p0f, -0x1.002p0f, 0x1.006p0f, 0.3f,   -7.7f, 1e30f,
                                 -130, -INFINITY, -125.5f,   12.25f,      -0.0f,      3e-39f, 1e-5f, 65519};
    float in[2 * WARP];
    uint32_t out[3 * WARP] = {0};
    for (int i = 0; i < 2 * WARP; i++) in[i] = some[i % 16] * (i < 16 ? 1 : 0.125f * (float)(i / 16));
    float *din = (float *)to_device(in, sizeof in);
    uint32_t *dout = (uint32_t *)to_device(out, sizeof out);
    K_LAUNCH(convert_kernel, 1, WARP, 0, 0, dout, din);
    from_device(out, dout, sizeof out);
    bool pairs = true, powers = true;
    for (int i = 0; i < WARP; i++) {
        bf16 b[2] = {__float2bfloat16_rn(in[2 * i]), __float2bfloat16_rn(in[2 * i + 1])};
        fp16 h[2] = {__float2half_rn(in[2 * i]), __float2half_rn(in[2 * i + 1])};
        float y;
        memcpy(&y, &out[3 * i + 2], 4);
        double want = exp2((double)in[2 * i]);
        pairs = pairs && !memcmp(b, &out[3 * i], 4) && !memcmp(h, &out[3 * i + 1], 4);
        bool near = want < 0x1p-126 ? y == 0 : want > 0x1p127 ? y > 0x1p126f : fabs(y - want) <= 2 * 0x1p-23 * want;
        powers = powers && near;
    }
    must(cudaFree(din), "cudaFree");
    verdict("cvt: two numbers to nearest even, the first below", pairs);
    verdict("ex2: within two units in the last place", powers);
}

int main(void) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        fprintf(stderr, "test_wrappers: no GPU was found\n");
        return 69;
    }
    test_mma<fp16>("mma.m16n8k16 f16");
    test_mma<bf16>("mma.m16n8k16 bf16");
    test_ldmatrix<false>("ldmatrix.x4");
    test_ldmatrix<true>("ldmatrix.x4.trans");
    test_cp_async();
    test_convert();
    test_store();
    printf("%d passed, %d failed\n", passed, failures);
    return failures ? 1 : 0;
}
