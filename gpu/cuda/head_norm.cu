// gpu/cuda/head_norm.cu: RMS norm of queries and keys, head by head and in place.
//
// Row r of the work is head r % count of row r / count of x. A warp has such a row; its lanes own packs of 16 bytes,
// the same ones whether the address allows 16-byte accesses or not.
#include "gpu/cuda/columns.h"

// rows of a block; columns and rows of a block of sums
enum { ROWS = 8, THREADS = ROWS * WARP, TILE = WARP, DEPTH = ROWS };

template <class T> struct head_args {
    T *x, *kept;
    float *rstd;
    const T *w;
    int64_t rows, row, first, width;  // count * N; elements of a row of x, and before the first head; D
    int count;
    float eps, shift;
    __device__ T *at(int64_t r) const { return x + r / count * row + first + r % count * width; }
};

template <bool PACKED, class T> __device__ __forceinline__ void load_gains(float *w, const head_args<T> &a, int64_t i) {
    load_row<PACKED>(w, a.w, i, a.width);
#pragma unroll
    for (int k = 0; k < (int)(16 / sizeof(T)); k++) w[k] = gain(w[k], a.shift);
}

// alias      in place: a lane reads what it overwrites
// sums       FP32, a lane its packs in order, then a fixed butterfly
// moves      3 * sizeof(E) bytes an element of the heads; memory bound
// reference  gpu/cpu/kernel/norm.c: head_norm_forward
template <class T, bool PACKED> __global__ void __launch_bounds__(THREADS) head_norm_kernel(head_args<T> a) {
    constexpr int W = 16 / sizeof(T);
    const int lane = threadIdx.x % WARP;
    const int64_t r = (int64_t)blockIdx.x * ROWS + threadIdx.x / WARP;
    if (r >= a.rows) return;
    T *x = a.at(r);
    float v[W], w[W], total = 0;
#pragma unroll 1  // once or twice, as a rule
    for (int64_t i = lane * W; i < a.width; i += WARP * W) {
        load_row<PACKED>(v, x, i, a.width);
        store_row<PACKED>(a.kept + r * a.width, v, i, a.width);
#pragma unroll
        for (int k = 0; k < W; k++) total = fmaf(v[k], v[k], total);
    }
    const float rstd = 1.0f / sqrtf(warp_sum(total) / (float)a.width + a.eps);
    if (lane == 0) a.rstd[r] = rstd;
#pragma unroll 1  // once or twice, as a rule
    for (int64_t i = lane * W; i < a.width; i += WARP * W) {
        load_row<PACKED>(v, x, i, a.width);
        load_gains<PACKED>(w, a, i);
#pragma unroll
        for (int k = 0; k < W; k++) v[k] = v[k] * rstd * w[k];
        store_row<PACKED>(x, v, i, a.width);
    }
}

// With h = x rstd and g = dy w:  dx = rstd (g - h mean(g h)).
// alias, sums, moves as forward
template <class T, bool PACKED> __global__ void __launch_bounds__(THREADS) head_norm_backward_kernel(head_args<T> a) {
    constexpr int W = 16 / sizeof(T);
    const int lane = threadIdx.x % WARP;
    const int64_t r = (int64_t)blockIdx.x * ROWS + threadIdx.x / WARP;
    if (r >= a.rows) return;
    T *dx = a.at(r);
    const T *x = a.kept + r * a.width;
    const float rstd = a.rstd[r];
    float d[W], h[W], w[W], total = 0;
#pragma unroll 1  // once or twice, as a rule
    for (int64_t i = lane * W; i < a.width; i += WARP * W) {
        load_row<PACKED>(d, dx, i, a.width), load_row<PACKED>(h, x, i, a.width), load_gains<PACKED>(w, a, i);
#pragma unroll
        for (int k = 0; k < W; k++) total = fmaf(d[k] * w[k], h[k] * rstd, total);
    }
    const float mean = warp_sum(total) / (float)a.width;
#pragma unroll 1  // once or twice, as a rule
    for (int64_t i = lane * W; i < a.width; i += WARP * W) {
        load_row<PACKED>(d, dx, i, a.width), load_row<PACKED>(h, x, i, a.width), load_gains<PACKED>(w, a, i);
#pragma unroll
        for (int k = 0; k < W; k++) d[k] = fmaf(-(h[k] * rstd), mean, d[k] * w[k]) * rstd;
        store_row<PACKED>(dx, d, i, a.width);
    }
}

// Sums of dy h over a group of rows, for a tile of columns: a part of dw.
// sums       FP32: each thread its rows in order, then the block's rows in order: repeatable
// moves      2 * sizeof(E) bytes an element of the heads
template <class T>
__global__ void __launch_bounds__(THREADS) head_norm_sums_kernel(head_args<T> a, float *parts, int64_t per_group) {
    K_SMEM(float, part, [DEPTH][TILE]);
    const int column = threadIdx.x % TILE, depth = threadIdx.x / TILE;
    const int64_t i = (int64_t)blockIdx.x * TILE + column, from = blockIdx.y * per_group,
                  to = min(from + per_group, a.rows);
    float sum = 0;
    if (i < a.width)
        for (int64_t r = from + depth; r < to; r += DEPTH)
            sum = fmaf(to_float(a.at(r)[i]), to_float(a.kept[r * a.width + i]) * a.rstd[r], sum);
    part[depth][column] = sum;
    __syncthreads();
    if (depth || i >= a.width) return;
    float total = 0;
    for (int k = 0; k < DEPTH; k++) total += part[k][column];
    parts[blockIdx.y * a.width + i] = total;
}

template <class T>
static head_args<T> head_args_of(const tensor *x, const tensor *kept, const tensor *rstd, const tensor *w, int first,
                                 float eps, float shift, bool *packed) {
    const int64_t D = tensor_count(w), count = kept->size[1] / D, rows = x->size[0];
    assert(x->dims == 2 && kept->dims == 2 && kept->size[0] == rows && kept->size[1] == count * D && first >= 0);
    assert((first + count) * D <= x->size[1] && tensor_count(rstd) == rows * count && rstd->type == FP32);
    assert(kept->type == x->type && w->type == x->type);
    *packed = packs<T>(x->data, x->size[1]) && packs<T>(kept->data, D) && packs<T>(w->data, D);
    return {(T *)x->data,
            (T *)kept->data,
            (float *)rstd->data,
            (const T *)w->data,
            rows * count,
            x->size[1],
            first * D,
            D,
            (int)count,
            eps,
            shift};
}

err_t cuda_head_norm_forward(const head_norm_forward_args *args, stream *s) {
    BY_TYPE(args->x->type, T, {
        bool packed;
        head_args<T> a =
            head_args_of<T>(args->x, args->kept, args->rstd, args->w, args->first, args->eps, args->shift, &packed);
        const unsigned blocks = (unsigned)ceil_div(a.rows, ROWS);
        if (packed) LAUNCH((head_norm_kernel<T, true>), blocks, THREADS, 0, s, a);
        else LAUNCH((head_norm_kernel<T, false>), blocks, THREADS, 0, s, a);
    });
    return ERR_OK;
}

// The sums read what is overwritten after them.
err_t cuda_head_norm_backward(const head_norm_backward_args *args, stream *s) {
    assert(args->dw->type == FP32 && tensor_count(args->dw) == tensor_count(args->w));
    BY_TYPE(args->dx->type, T, {
        bool packed;
        head_args<T> a =
            head_args_of<T>(args->dx, args->kept, args->rstd, args->w, args->first, 0, args->shift, &packed);
        const int64_t groups = row_groups(a.rows, a.width, 256, 256, 1), per_group = ceil_div(a.rows, groups);
        const dim3 grid((unsigned)ceil_div(a.width, TILE), (unsigned)groups);
        LAUNCH((head_norm_sums_kernel<T>), grid, THREADS, 0, s, a, (float *)s->scratch, per_group);
        TRY(add_parts((float *)args->dw->data, NULL, (const float *)s->scratch, groups, a.width, args->fresh, s));
        const unsigned blocks = (unsigned)ceil_div(a.rows, ROWS);
        if (packed) LAUNCH((head_norm_backward_kernel<T, true>), blocks, THREADS, 0, s, a);
        else LAUNCH((head_norm_backward_kernel<T, false>), blocks, THREADS, 0, s, a);
    });
    return ERR_OK;
}
