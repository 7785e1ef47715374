// gpu/cuda/conv.h: what the kernels of convolutions share: tiles in shared memory, and their products.
//
// A convolution is a matrix product one of whose operands is never in memory: its rows are the inputs that a result is
// made of (forward, inputs), or what a weight meets (weights). A block has BM x BN results and takes CONV_DEPTH
// products of each at a time. The tiles of both operands are gathered into shared memory straight from the images,
// asynchronously where 16 bytes belong together, two steps ahead; what is outside of an image is zero (cp.async writes
// it).
//
// Two kinds of tiles, by what lies together in memory. `along`: (rows, CONV_DEPTH), a row has its products side by
// side. `across`: (CONV_DEPTH, rows). Both are cut into chunks of 16 bytes whose places are mixed by XOR, so that
// ldmatrix, which reads the same chunk of eight rows, finds them in different banks.
//
// BF16 and FP16 go to tensor cores, 16 products at a time. FP32 is one chain of fused multiply-adds in blocks of
// CONV_BLOCK, as gpu/cpu/kernel/conv.c writes it down: the CPU's bits. Neither depends on BM and BN, so tiles may be
// chosen by the number of images.
#ifndef GPU_CUDA_CONV_H
#define GPU_CUDA_CONV_H

#include "gpu/cuda/kernel.h"

#include <inttypes.h>

enum { CONV_DEPTH = 32, CONV_THREADS = 256, CONV_BLOCK = 384, CONV_LARGE = 64, CONV_FEW = 1024 };

// Whether tiles of 128 x 128 are worth it: many enough that a GPU has something to do. A tile of 64 columns reads the
// other operand again for each 64, but wastes less of what has few.
static inline bool conv_large(int64_t rows, int64_t columns, int64_t groups) {
    return columns > 64 && ceil_div(rows, 128) * ceil_div(columns, 128) * groups >= CONV_LARGE;
}

// What kernels count in 32 bits: the elements of an image and of the filters, and all results; and what a grid can
// have.
static inline err_t conv_sizes(const tensor *x, const tensor *y, const tensor *w) {
    const int64_t of_x = tensor_count(x) / (x->size[0] ? x->size[0] : 1), of_w = tensor_count(w),
                  pixels = y->size[0] * y->size[1] * y->size[2];
    if (of_x <= INT32_MAX / 2 && of_w <= INT32_MAX / 2 && pixels <= INT32_MAX / 2) return ERR_OK;
    return err_set(ERR_UNAVAILABLE,
                   "cuda: a convolution of %" PRId64 " numbers an image, %" PRId64 " weights and %" PRId64
                   " result pixels, expected at most %d of each; lower [batch] micro, or set [device] backend = cpu",
                   of_x, of_w, pixels, INT32_MAX / 2);
}
static inline err_t conv_fits(int64_t blocks, int64_t groups, int64_t classes) {
    enum { Y_MOST = 65535 };
    if (blocks <= INT32_MAX && groups <= Y_MOST && classes <= Y_MOST) return ERR_OK;
    return err_set(ERR_UNAVAILABLE,
                   "cuda: a convolution of %" PRId64 " tiles, %" PRId64 " groups and %" PRId64
                   " classes of pixels is beyond what a grid can have (%d, %d, %d); set [device] backend = cpu",
                   blocks, groups, classes, INT32_MAX, Y_MOST, Y_MOST);
}

// A number by its digits, of which low and mid have so many values; and how far apart CONV_DEPTH numbers are, so that
// going on takes no division.
struct conv_digits {
    int low, mid, high;
};
struct conv_radix {
    int low, mid;
    conv_digits step;
};
__device__ __forceinline__ conv_digits conv_digits_of(int number, int low, int mid) {
    return {number % low, number / low % mid, number / low / mid};
}
__device__ __forceinline__ conv_radix conv_radix_of(int low, int mid) {
    return {low, mid, conv_digits_of(CONV_DEPTH, low, mid)};
}
__device__ __forceinline__ void conv_add_digits(conv_digits *at, const conv_radix &of, const conv_digits &step) {
    at->low += step.low, at->mid += step.mid, at->high += step.high;
    if (at->low >= of.low) at->low -= of.low, at->mid++;
    if (at->mid >= of.mid) at->mid -= of.mid, at->high++;
}

// --- tiles -----------------------------------------------------------------------------------------------------------

// How the threads share the chunks of a tile of `rows` rows: a thread has COPIES chunks, the same one of every STEP-th
// row of the tile in memory.
template <class T, bool ALONG, int ROWS> struct conv_tile {
    enum {
        E = 16 / sizeof(T),  // elements of a chunk
        WIDTH = ALONG ? CONV_DEPTH : ROWS,
        CHUNKS = WIDTH / E,
        STEP = CONV_THREADS / CHUNKS,
        COPIES = CONV_DEPTH * ROWS / E / CONV_THREADS,
        COUNT = CONV_DEPTH * ROWS
    };
    __device__ __forceinline__ static int chunk() { return threadIdx.x % CHUNKS; }
    __device__ __forceinline__ static int row(int copy) { return threadIdx.x / CHUNKS + copy * STEP; }
    // Index of a chunk's first element.
    __device__ __forceinline__ static int place(int row, int chunk) {
        return row * WIDTH + (chunk ^ (CHUNKS == 4 ? row >> 1 & 3 : row & 7)) * E;
    }
    __device__ __forceinline__ static int place(int copy) { return place(row(copy), chunk()); }
};

template <class T> __device__ __forceinline__ T conv_zero() {
    T x;
    round_to(&x, 0.0f);
    return x;
}

// Elements of a chunk, one by one, from get(e).
template <class T, class F> __device__ __forceinline__ void conv_gather(T *to, F get) {
    pack<T> x;
#pragma unroll
    for (int e = 0; e < (int)(16 / sizeof(T)); e++) x.v[e] = get(e);
    *reinterpret_cast<pack<T> *>(to) = x;
}

// --- sums ------------------------------------------------------------------------------------------------------------

__device__ __forceinline__ void conv_mma(const fp16 *, float *d, const uint32_t *a, const uint32_t *b) {
    dev_mma_m16n8k16_f16(d, a, b);
}
__device__ __forceinline__ void conv_mma(const bf16 *, float *d, const uint32_t *a, const uint32_t *b) {
    dev_mma_m16n8k16_bf16(d, a, b);
}

// A thread's share of BM x BN sums, each of two neighbours of a row. 16 bits: warps have BM / (8 / (BN / 32)) rows of
// 32 columns, in fragments of 16 x 8.
template <class T, bool A_ALONG, bool B_ALONG, int BM, int BN> struct conv_sums {
    typedef conv_tile<T, A_ALONG, BM> tile_a;
    typedef conv_tile<T, B_ALONG, BN> tile_b;
    enum { ACROSS = BN / 32, ROWS = BM / (CONV_THREADS / WARP / ACROSS), M = ROWS / 16, PAIRS = M * 8 };
    float sum[M][4][4] = {};

    __device__ __forceinline__ static int top() { return threadIdx.x / WARP / ACROSS * ROWS; }
    __device__ __forceinline__ static int left() { return threadIdx.x / WARP % ACROSS * 32; }

    // Adds the products of two tiles. Those past the end are of zeros.
    __device__ __forceinline__ void add(const T *a, const T *b, int) {
        const int lane = threadIdx.x % WARP;
#pragma unroll
        for (int k = 0; k < CONV_DEPTH; k += 16) {
            uint32_t x[M][4], y[2][4];
#pragma unroll
            for (int i = 0; i < M; i++)
                if (A_ALONG) dev_ldmatrix_x4(x[i], a + tile_a::place(top() + 16 * i + lane % 16, k / 8 + lane / 16));
                else
                    dev_ldmatrix_x4_trans(
                        x[i], a + tile_a::place(k + lane / 16 * 8 + lane % 8, (top() + 16 * i) / 8 + lane / 8 % 2));
#pragma unroll
            for (int j = 0; j < 2; j++)
                if (B_ALONG)
                    dev_ldmatrix_x4(
                        y[j], b + tile_b::place(left() + 16 * j + lane / 16 * 8 + lane % 8, k / 8 + lane / 8 % 2));
                else dev_ldmatrix_x4_trans(y[j], b + tile_b::place(k + lane % 16, (left() + 16 * j) / 8 + lane / 16));
#pragma unroll
            for (int i = 0; i < M; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) conv_mma(a, sum[i][j], x[i], &y[j / 2][j % 2 * 2]);
        }
    }
    // `first`: nothing was ended before.
    __device__ __forceinline__ void end_block(bool) {}
    __device__ __forceinline__ static int row_of(int pair) {
        return top() + pair / 8 * 16 + pair % 2 * 8 + threadIdx.x % WARP / 4;
    }
    __device__ __forceinline__ static int column_of(int pair) {
        return left() + pair / 2 % 4 * 8 + threadIdx.x % 4 * 2;
    }
    __device__ __forceinline__ const float *pair(int i) const { return &sum[i / 8][i / 2 % 4][i % 2 * 2]; }
};

// FP32: threads are 16 x 16, each with BM / 16 rows and BN / 16 columns.
template <bool A_ALONG, bool B_ALONG, int BM, int BN> struct conv_sums<float, A_ALONG, B_ALONG, BM, BN> {
    typedef conv_tile<float, A_ALONG, BM> tile_a;
    typedef conv_tile<float, B_ALONG, BN> tile_b;
    enum { M = BM / 16, N = BN / 16, PAIRS = M * N / 2 };
    float part[M][N] = {}, sum[M][N] = {};

    // Which rows and columns: pairs of neighbours 32 apart.
    __device__ __forceinline__ static int place(int thread, int i) { return i / 2 * 32 + thread * 2 + i % 2; }
    __device__ __forceinline__ static int y() { return threadIdx.x / 16; }
    __device__ __forceinline__ static int x() { return threadIdx.x % 16; }

    template <class TILE, bool ALONG, int COUNT>
    __device__ __forceinline__ static void fetch(float (&v)[COUNT][4], const float *tile, int thread, int k) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int row = place(thread, i);
            if (ALONG) load_floats<4>(v[i], tile + TILE::place(row, k / 4));
            else
#pragma unroll
                for (int e = 0; e < 4; e++) v[i][e] = tile[TILE::place(k + e, row / 4) + row % 4];
        }
    }
    // Adds the first `count` products: past the end there is none, not even of zeros.
    __device__ __forceinline__ void add(const float *a, const float *b, int count) {
#pragma unroll 1
        for (int k = 0; k < count; k += 4) {
            float u[M][4], v[N][4];
            fetch<tile_a, A_ALONG>(u, a, y(), k), fetch<tile_b, B_ALONG>(v, b, x(), k);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                if (k + e >= count) break;
#pragma unroll
                for (int i = 0; i < M; i++)
#pragma unroll
                    for (int j = 0; j < N; j++) part[i][j] = fmaf(u[i][e], v[j][e], part[i][j]);
            }
        }
    }
    __device__ __forceinline__ void end_block(bool first) {
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < N; j++) sum[i][j] = first ? part[i][j] : sum[i][j] + part[i][j], part[i][j] = 0;
    }
    __device__ __forceinline__ static int row_of(int pair) { return place(y(), pair / (N / 2)); }
    __device__ __forceinline__ static int column_of(int pair) { return place(x(), pair % (N / 2) * 2); }
    __device__ __forceinline__ const float *pair(int i) const { return &sum[i / (N / 2)][i % (N / 2) * 2]; }
};

// --- the loop --------------------------------------------------------------------------------------------------------

// Takes `count` products of each of a block's sums. load_a(tile) and load_b(tile) fill the next tile of each operand
// and go on by CONV_DEPTH. FP32 has two tiles of each at a time, 16 bits three: 48 KB at most.
template <class T, class SUMS, class A, class B>
__device__ __forceinline__ void conv_loop(SUMS *sums, int count, A *load_a, B *load_b) {
    enum { STAGES = sizeof(T) == 4 ? 2 : 3, OF_A = SUMS::tile_a::COUNT, ALL = OF_A + SUMS::tile_b::COUNT };
    static_assert(STAGES * ALL * sizeof(T) <= 48 << 10, "static shared memory");
    K_SMEM(T, room, [STAGES * ALL]);
    const int steps = (count + CONV_DEPTH - 1) / CONV_DEPTH;
    for (int k = 0; k < STAGES - 1; k++) {
        if (k < steps) load_a->load(room + k * ALL), load_b->load(room + k * ALL + OF_A);
        dev_cp_async_commit();
    }
    for (int k = 0, at = 0, next = STAGES - 1; k < steps; k++) {
        dev_cp_async_wait<STAGES - 2>();
        __syncthreads();  // the tiles of this step are there, and all are done with those of the last one
        if (k + STAGES - 1 < steps) load_a->load(room + next * ALL), load_b->load(room + next * ALL + OF_A);
        dev_cp_async_commit();
        const int left = count - k * CONV_DEPTH;
        sums->add(room + at * ALL, room + at * ALL + OF_A, left < CONV_DEPTH ? left : CONV_DEPTH);
        if ((k + 1) % (CONV_BLOCK / CONV_DEPTH) == 0 || k + 1 == steps) sums->end_block(k < CONV_BLOCK / CONV_DEPTH);
        at = at + 1 == STAGES ? 0 : at + 1, next = next + 1 == STAGES ? 0 : next + 1;
    }
}

#endif
