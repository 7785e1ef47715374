// gpu/cuda/columns.h: sums over the rows of a matrix, column by column: bias gradients, and those of a norm.
//
// They go in two steps, without atomics: each group of consecutive rows leaves its part in the stream's scratch, then
// one kernel adds the parts, in order, once to what is there. The number of groups follows from the shape, and so do
// the bits. A thread owns packs of 16 bytes of a row, the same ones whether the row's address allows 16-byte accesses
// or not.
#ifndef GPU_CUDA_COLUMNS_H
#define GPU_CUDA_COLUMNS_H

#include "gpu/cuda/kernel.h"

static inline int64_t at_most(int64_t n, int64_t most) { return n < most ? n : most; }
static inline int64_t at_least(int64_t n, int64_t least) { return n > least ? n : least; }

enum { COLUMN_THREADS = 256, COLUMN_LANES = 32 };

// out0 of a plain sum is the column sums of dy; with NORM out0 is those of dy * h, h = (x - mean) * rstd, and out1
// those of dy, unless it is NULL; mean NULL: means of 0.
// Group g leaves its part in row g of the outputs; with `last` there is one group only, and its sum is added to them,
// or, with `fresh`, put there. A plain sum may be of two matrices of the same shape, one after the other in memory,
// into out0 and out1: blockIdx.y.
template <class T> struct column_args {
    float *out0, *out1;
    const T *dy, *x;
    const float *mean, *rstd;
    int64_t rows, width, per_group, tiles;
    bool last, fresh;
};

// What a block of 256 threads takes: blockDim.x packs of columns side by side times blockDim.y rows, going down the
// rows of its group.
template <class T> struct column_place {
    int64_t group, left, i, row, end;  // i: the thread's first column, row: its first row
};
template <class T> __device__ __forceinline__ column_place<T> column_place_of(const column_args<T> &a) {
    constexpr int W = 16 / sizeof(T);
    int64_t tile = blockIdx.x % a.tiles, group = blockIdx.x / a.tiles, left = tile * blockDim.x * W;
    return {group, left, left + threadIdx.x * W, group * a.per_group + threadIdx.y,
            min((group + 1) * a.per_group, a.rows)};
}

// Adds the block's rows in order, and leaves the group's sums.
template <int SUMS, class T>
__device__ __forceinline__ void column_finish(const column_args<T> &a, const column_place<T> &at,
                                              const float (&sum)[SUMS][16 / sizeof(T)],
                                              float (*part)[16 / sizeof(T) * COLUMN_THREADS], bool second) {
    constexpr int W = 16 / sizeof(T);
    int lanes = blockDim.x, depth = blockDim.y, t = threadIdx.y * lanes + threadIdx.x;
#pragma unroll
    for (int n = 0; n < SUMS; n++)
#pragma unroll
        for (int k = 0; k < W; k++) part[n][(threadIdx.y * W + k) * lanes + threadIdx.x] = sum[n][k];
    __syncthreads();
    if (t >= lanes * W) return;
    int64_t column = at.left + t % lanes * W + t / lanes;
    if (column >= a.width) return;
#pragma unroll
    for (int n = 0; n < SUMS; n++) {
        float total = 0, *base = n || second ? a.out1 : a.out0,
              *out = base + (a.last ? 0 : at.group * a.width) + column;
        if (!base) continue;
        for (int k = 0; k < depth; k++) total += part[n][k * lanes * W + t];
        *out = a.last && !a.fresh ? *out + total : total;
    }
}

// sums       FP32: each thread its rows in order, then the block's rows in order
// moves      sizeof(E) bytes an element, with NORM twice that; memory bound
// reference  gpu/cpu/kernel/elementwise.c: bias_backward; norm.c: back_row
template <class T, bool PACKED, bool NORM>
__global__ void __launch_bounds__(COLUMN_THREADS) columns_kernel(column_args<T> a) {
    constexpr int W = 16 / sizeof(T), SUMS = NORM ? 2 : 1;
    K_SMEM(float, part, [SUMS][W * COLUMN_THREADS]);
    const column_place<T> at = column_place_of(a);
    const T *dy = a.dy + blockIdx.y * a.rows * a.width;
    float sum[SUMS][W] = {};
#pragma unroll(PACKED ? 4 : 1)
    for (int64_t row = at.row; row < at.end; row += blockDim.y) {
        float d[W], h[W];
        load_row<PACKED>(d, dy + row * a.width, at.i, a.width);
        if (NORM) {
            load_row<PACKED>(h, a.x + row * a.width, at.i, a.width);
            float mean = a.mean ? a.mean[row] : 0.0f, rstd = a.rstd[row];
#pragma unroll
            for (int k = 0; k < W; k++) sum[0][k] = fmaf(d[k], (h[k] - mean) * rstd, sum[0][k]);
        }
#pragma unroll
        for (int k = 0; k < W; k++) sum[SUMS - 1][k] += d[k];
    }
    column_finish<SUMS>(a, at, sum, part, !NORM && blockIdx.y);
}

// Fills in a's tiling for `most` lanes side by side, and the grid and block of it.
template <class T>
static void columns_tile(column_args<T> *a, int most, int64_t groups, int matrices, dim3 *grid, dim3 *block) {
    constexpr int W = 16 / sizeof(T);
    int lanes = 1;
    while (lanes < most && lanes * W < a->width) lanes *= 2;
    a->tiles = ceil_div(a->width, lanes * W);
    a->per_group = ceil_div(a->rows, groups);
    groups = ceil_div(a->rows, a->per_group);
    assert(groups == 1 || !a->last);
    *grid = dim3((unsigned)(a->tiles * groups), (unsigned)matrices),
    *block = dim3((unsigned)lanes, (unsigned)(COLUMN_THREADS / lanes));
}

template <class T, bool NORM>
static err_t columns(column_args<T> *a, int most, int64_t groups, int matrices, stream *s) {
    dim3 grid, block;
    columns_tile(a, most, groups, matrices, &grid, &block);
    bool packed = packs<T>(a->dy, a->width) && (!NORM || packs<T>(a->x, a->width));
    if (packed) LAUNCH((columns_kernel<T, true, NORM>), grid, block, 0, s, *a);
    else LAUNCH((columns_kernel<T, false, NORM>), grid, block, 0, s, *a);
    return ERR_OK;
}

// The number of groups of rows: `wanted`, but each has at least `least` rows, and the scratch must hold `matrices`
// parts of each. None of them is empty.
static inline int64_t row_groups(int64_t rows, int64_t width, int64_t wanted, int64_t least, int matrices) {
    int64_t fit = CUDA_SCRATCH / ((int64_t)sizeof(float) * width * matrices);
    int64_t groups = at_least(at_most(at_most(wanted, ceil_div(rows, least)), fit), 1);
    return ceil_div(rows, ceil_div(rows, groups));
}

static inline int64_t column_groups(int64_t rows, int64_t width, int matrices) {
    enum { BLOCKS = 1024, LEAST_ROWS = 64, TILE = 256 };
    return row_groups(rows, width, ceil_div(BLOCKS, ceil_div(width, TILE)), LEAST_ROWS, matrices);
}

// out0 (and out1, unless NULL) get the sum of the groups' parts: (+=), or (=) if fresh. First those of out0, then those
// of out1. Each block takes few columns: there are not many, and enough blocks are needed to go down them.
static inline err_t add_parts(float *out0, float *out1, const float *parts, int64_t groups, int64_t width, bool fresh,
                              stream *s) {
    column_args<float> a = {out0, out1, parts, NULL, NULL, NULL, groups, width, 0, 0, true, fresh};
    return columns<float, false>(&a, 8, 1, out1 ? 2 : 1, s);
}

// dbias (+=), or (=) if fresh, the column sums of dy.
template <class T> static err_t bias_of(float *dbias, const T *dy, int64_t rows, int64_t width, bool fresh, stream *s) {
    int64_t groups = column_groups(rows, width, 1);
    bool one = groups == 1;
    column_args<T> a = {one ? dbias : (float *)s->scratch, NULL, dy, NULL, NULL, NULL, rows, width, 0, 0, one, fresh};
    TRY((columns<T, false>(&a, COLUMN_LANES, groups, 1, s)));
    return one ? ERR_OK : add_parts(dbias, NULL, (const float *)s->scratch, groups, width, fresh, s);
}

err_t columns_gelu_backward(const gelu_backward_args *args, stream *s);  // columns.cu; with dbias

#endif
