// gpu/cuda/norm.cu: layer norm (Ba, Kiros, Hinton 2016), and RMS norm (Zhang & Sennrich 2019), which is the same with
// means of 0 and no bias: RMS.
//
// A thread owns packs of 16 bytes of a row, the same ones whether the row's address allows 16-byte accesses or not, so
// that the order of every sum follows from the shape alone. Sums over rows go by groups of rows (columns.h).
#include "gpu/cuda/columns.h"

enum {
    HELD = 32,              // forward: elements of a row that a thread holds in registers
    FORWARD_THREADS = 256,  // forward: most threads of a row
    FORWARD_ROWS = 4,       // forward: rows of a block, where one warp holds a row
    OWNED = 8,              // backward: columns of a thread
    BACKWARD_THREADS = 512,
    LONG = OWNED * BACKWARD_THREADS,  // backward: a longer row is not kept between the sums and the result
};

// --- forward ---------------------------------------------------------------------------------------------------------

template <class T> struct norm_args {
    T *y, *sum;
    float *mean, *rstd;
    const T *x, *residual, *w, *b;
    int64_t rows, width;
    float eps, shift;
};

// The total of a row over its threads: a warp, or a block.
__device__ __forceinline__ float row_sum(float v, float *room) {
    return blockDim.x == WARP ? warp_sum(v) : block_sum(v, room);
}

// Packs p of a thread: x, or round_E(x + residual), which is stored as the sum. All loads first: `sum` may be x
// itself, and a load must not wait for the store before it.
template <bool PACKED, int P, class T>
__device__ __forceinline__ void norm_load(float v[P][16 / sizeof(T)], const norm_args<T> &a, int64_t row, int64_t i) {
    constexpr int W = 16 / sizeof(T);
    int64_t first = row * a.width, step = (int64_t)blockDim.x * W;
#pragma unroll
    for (int p = 0; p < P; p++) load_row<PACKED>(v[p], a.x + first, i + p * step, a.width);
    if (a.residual) {
        float r[P][W];
#pragma unroll
        for (int p = 0; p < P; p++) load_row<PACKED>(r[p], a.residual + first, i + p * step, a.width);
#pragma unroll
        for (int p = 0; p < P; p++)
#pragma unroll
            for (int k = 0; k < W; k++) v[p][k] = rounded<T>(v[p][k] + r[p][k]);
    }
    if (a.sum) {
#pragma unroll
        for (int p = 0; p < P; p++) store_row<PACKED>(a.sum + first, v[p], i + p * step, a.width);
    }
}

template <int P, int W> __device__ __forceinline__ float norm_total(const float v[P][W]) {
    float total = 0;
#pragma unroll
    for (int p = 0; p < P; p++)
#pragma unroll
        for (int k = 0; k < W; k++) total += v[p][k];
    return total;
}

// Squares of the distances from the mean, of the elements that are inside the row.
template <int P, int W>
__device__ __forceinline__ float norm_squares(const float v[P][W], float mean, int64_t i, int64_t step, int64_t width) {
    float total = 0;
#pragma unroll
    for (int p = 0; p < P; p++)
#pragma unroll
        for (int k = 0; k < W; k++) {
            float d = i + p * step + k < width ? v[p][k] - mean : 0.0f;
            total = fmaf(d, d, total);
        }
    return total;
}

template <bool PACKED, bool RMS, int P, class T>
__device__ __forceinline__ void norm_store(const norm_args<T> &a, const float v[P][16 / sizeof(T)], float mean,
                                           float rstd, int64_t row, int64_t i) {
    constexpr int W = 16 / sizeof(T);
#pragma unroll
    for (int p = 0; p < P; p++) {
        int64_t at = i + p * blockDim.x * W;
        float w[W], b[W], y[W];
        load_row<PACKED>(w, a.w, at, a.width);
        if (!RMS) load_row<PACKED>(b, a.b, at, a.width);
#pragma unroll
        for (int k = 0; k < W; k++)
            y[k] = RMS ? v[p][k] * rstd * gain(w[k], a.shift) : fmaf((v[p][k] - mean) * rstd, w[k], b[k]);
        store_row<PACKED>(a.y + row * a.width, y, at, a.width);
    }
}

// A row belongs to one warp, or, where it is too long for that, to one block, which holds it in registers: the variance
// is that of two passes, and every element is read once and written once. P packs a thread.
// alias      y == x and sum == x or residual allowed, y == sum not
// sums       FP32: a thread's elements in order, then a fixed butterfly over the warp and over the block's warps
// moves      2 to 4 * sizeof(E) bytes an element; memory bound
// reference  gpu/cpu/kernel/norm.c: layer_norm_forward, rms_norm_forward
template <class T, bool PACKED, bool RMS>
__global__ void __launch_bounds__(FORWARD_THREADS) norm_forward_kernel(norm_args<T> a) {
    constexpr int W = 16 / sizeof(T), P = HELD / W;
    K_SMEM(float, room, [WARP]);
    int64_t i = (int64_t)threadIdx.x * W, step = (int64_t)blockDim.x * W;
    for (int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; row < a.rows;
         row += (int64_t)gridDim.x * blockDim.y) {
        float v[P][W];
        norm_load<PACKED, P>(v, a, row, i);
        float mean = RMS ? 0 : row_sum(norm_total<P, W>(v), room) / (float)a.width;
        float rstd =
            1.0f / sqrtf(row_sum(norm_squares<P, W>(v, mean, i, step, a.width), room) / (float)a.width + a.eps);
        if (threadIdx.x == 0) a.rstd[row] = rstd;
        if (!RMS && threadIdx.x == 0) a.mean[row] = mean;
        norm_store<PACKED, RMS, P>(a, v, mean, rstd, row, i);
    }
}

// The same for rows that do not fit a block's registers: they are read again from the caches for the variance and for
// the result, by the same threads that wrote `sum`.
template <class T, bool PACKED, bool RMS>
__global__ void __launch_bounds__(FORWARD_THREADS) norm_forward_long_kernel(norm_args<T> a) {
    constexpr int W = 16 / sizeof(T);
    K_SMEM(float, room, [WARP]);
    int64_t start = (int64_t)threadIdx.x * W, step = (int64_t)blockDim.x * W;
    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        const T *x = (a.sum ? a.sum : a.x) + row * a.width;
        float v[1][W], total = 0, squares = 0;
        for (int64_t i = start; i < a.width; i += step) {
            norm_load<PACKED, 1>(v, a, row, i);
            total += norm_total<1, W>(v);
        }
        float mean = RMS ? 0 : row_sum(total, room) / (float)a.width;
        for (int64_t i = start; i < a.width; i += step) {
            load_row<PACKED>(v[0], x, i, a.width);
            squares += norm_squares<1, W>(v, mean, i, step, a.width);
        }
        float rstd = 1.0f / sqrtf(row_sum(squares, room) / (float)a.width + a.eps);
        if (threadIdx.x == 0) a.rstd[row] = rstd;
        if (!RMS && threadIdx.x == 0) a.mean[row] = mean;
        for (int64_t i = start; i < a.width; i += step) {
            load_row<PACKED>(v[0], x, i, a.width);
            norm_store<PACKED, RMS, 1>(a, v, mean, rstd, row, i);
        }
    }
}

static inline unsigned blocks_for(int64_t n) { return (unsigned)at_most(n, INT32_MAX); }  // the rest in later turns

template <class T, bool PACKED, bool RMS> static err_t norm_forward(const norm_args<T> *a, stream *s) {
    unsigned threads = (unsigned)at_most(ceil_div(ceil_div(a->width, HELD), WARP) * WARP, FORWARD_THREADS);
    bool warp = threads == WARP, held = a->width <= (int64_t)HELD * FORWARD_THREADS;
    dim3 block(threads, warp ? FORWARD_ROWS : 1);
    unsigned grid = blocks_for(ceil_div(a->rows, warp ? FORWARD_ROWS : 1));
    if (held) LAUNCH((norm_forward_kernel<T, PACKED, RMS>), grid, block, 0, s, *a);
    else LAUNCH((norm_forward_long_kernel<T, PACKED, RMS>), grid, block, 0, s, *a);
    return ERR_OK;
}

err_t cuda_layer_norm_forward(const layer_norm_forward_args *args, stream *s) {
    int64_t width = tensor_count(args->w), rows = tensor_count(args->x) / width;
    assert(rows * width == tensor_count(args->x) && tensor_count(args->y) == rows * width &&
           tensor_count(args->b) == width);
    assert(tensor_count(args->mean) == rows && tensor_count(args->rstd) == rows && args->mean->type == FP32 &&
           args->rstd->type == FP32);
    assert(args->y->type == args->x->type && args->w->type == args->x->type && args->b->type == args->x->type &&
           (args->sum || !args->residual));
    assert(!args->sum || (args->sum->type == args->x->type && tensor_count(args->sum) == rows * width &&
                          args->sum->data != args->y->data));
    assert(!args->residual || (args->residual->type == args->x->type && tensor_count(args->residual) == rows * width));
    void *kept = args->sum ? args->sum->data : NULL;
    const void *past = args->residual ? args->residual->data : NULL;
    uintptr_t all = (uintptr_t)args->y->data | (uintptr_t)kept | (uintptr_t)args->x->data | (uintptr_t)past;
    all |= (uintptr_t)args->w->data | (uintptr_t)args->b->data;
    BY_TYPE(args->x->type, T, {
        norm_args<T> a = {(T *)args->y->data,
                          (T *)kept,
                          (float *)args->mean->data,
                          (float *)args->rstd->data,
                          (const T *)args->x->data,
                          (const T *)past,
                          (const T *)args->w->data,
                          (const T *)args->b->data,
                          rows,
                          width,
                          args->eps,
                          0};
        if (packs<T>((const void *)all, width)) TRY((norm_forward<T, true, false>(&a, s)));
        else TRY((norm_forward<T, false, false>(&a, s)));
    });
    return ERR_OK;
}

err_t cuda_rms_norm_forward(const rms_norm_forward_args *args, stream *s) {
    int64_t width = tensor_count(args->w), rows = tensor_count(args->x) / width;
    assert(rows * width == tensor_count(args->x) && tensor_count(args->y) == rows * width);
    assert(tensor_count(args->rstd) == rows && args->rstd->type == FP32 && args->y->type == args->x->type &&
           args->w->type == args->x->type);
    uintptr_t all = (uintptr_t)args->y->data | (uintptr_t)args->x->data | (uintptr_t)args->w->data;
    BY_TYPE(args->x->type, T, {
        norm_args<T> a = {(T *)args->y->data,
                          NULL,
                          NULL,
                          (float *)args->rstd->data,
                          (const T *)args->x->data,
                          NULL,
                          (const T *)args->w->data,
                          NULL,
                          rows,
                          width,
                          args->eps,
                          args->shift};
        if (packs<T>((const void *)all, width)) TRY((norm_forward<T, true, true>(&a, s)));
        else TRY((norm_forward<T, false, true>(&a, s)));
    });
    return ERR_OK;
}

// --- backward --------------------------------------------------------------------------------------------------------

template <class T> struct norm_back_args {
    T *dx;
    float *dw, *db;                   // where group 0 stores its part; group g's is g * width further on
    float *dx_sums, *dresidual_sums;  // the same; NULL: not wanted
    const T *dy, *dresidual, *x, *w;
    const float *mean, *rstd;
    int64_t rows, width, per_group;
    float shift;
    bool add;  // one group only, and not fresh: its sums are added to what is there
};

// Two totals over a block. If the next call uses another `room`, one barrier a call is enough.
__device__ __forceinline__ void block_sums(float *a, float *b, float (*room)[2]) {
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    *a = warp_sum(*a), *b = warp_sum(*b);
    if (warps == 1) return;
    if (lane == 0) room[warp][0] = *a, room[warp][1] = *b;
    __syncthreads();
    *a = warp_sum(lane < warps ? room[lane][0] : 0.0f);
    *b = warp_sum(lane < warps ? room[lane][1] : 0.0f);
}

// A thread's part of a row, in storage type, so that the next row can be loaded while this one is processed.
template <class T, int P> struct norm_back_row {
    pack<T> x[P], dy[P], dresidual[P];
    float mean, rstd;
};

template <bool PACKED, bool RMS, int P, class T>
__device__ __forceinline__ void back_load(norm_back_row<T, P> *r, const norm_back_args<T> &a, int64_t row, int64_t i) {
    int64_t first = row * a.width;
#pragma unroll
    for (int p = 0; p < P; p++) {
        int64_t at = i + p * blockDim.x * (16 / sizeof(T));
        r->x[p] = load_pack<PACKED>(a.x + first, at, a.width);
        r->dy[p] = load_pack<PACKED>(a.dy + first, at, a.width);
        if (a.dresidual) r->dresidual[p] = load_pack<PACKED>(a.dresidual + first, at, a.width);
    }
    r->mean = RMS ? 0 : a.mean[row], r->rstd = a.rstd[row];
}

template <bool PACKED, bool RMS, class T>
__device__ __forceinline__ void load_gains(float *w, const norm_back_args<T> &a, int64_t i) {
    load_row<PACKED>(w, a.w, i, a.width);
#pragma unroll
    for (int k = 0; RMS && k < (int)(16 / sizeof(T)); k++) w[k] = gain(w[k], a.shift);
}

// dx of one pack from h = (x - mean) rstd and g = dy w: rstd (g - mean(g) - h mean(g h)), + dresidual.
template <bool PACKED, int W, class T>
__device__ __forceinline__ void back_store(const norm_back_args<T> &a, const pack<T> &dresidual, const float *g,
                                           const float *h, float mean_g, float mean_gh, float rstd, int64_t row,
                                           int64_t at, float *dx) {
#pragma unroll
    for (int k = 0; k < W; k++) {
        dx[k] = fmaf(-h[k], mean_gh, g[k] - mean_g) * rstd;
        if (a.dresidual) dx[k] += to_float(dresidual.v[k]);
    }
    store_row<PACKED>(a.dx + row * a.width, dx, at, a.width);
}

// A thread's columns of one of the group's sums.
template <int P, int W, class T>
__device__ __forceinline__ void sums_store(const norm_back_args<T> &a, float *out, const float (&sum)[P][W],
                                           int64_t i) {
#pragma unroll
    for (int p = 0; p < P; p++)
#pragma unroll
        for (int k = 0; k < W; k++) {
            int64_t column = i + p * blockDim.x * W + k, at = blockIdx.x * a.width + column;
            if (column < a.width) out[at] = a.add ? out[at] + sum[p][k] : sum[p][k];
        }
}

// A block takes a group of rows, one after the other; a thread has 8 columns, whose parts of dw and db, and with SUMS
// of the column sums of dx and dresidual, stay in its registers. Rows up to LONG.
// alias      dx == dresidual or dy allowed: a thread has read what it overwrites, and later rows are other memory
// sums       FP32: the two means of a row as in forward; dw and db over the rows of the group in order, then add_parts
// moves      3 or 4 * sizeof(E) bytes an element, and 16 bytes a column and group; memory bound
// reference  gpu/cpu/kernel/norm.c: layer_norm_backward, rms_norm_backward
template <class T, bool PACKED, bool SUMS, bool RMS>
__global__ void __launch_bounds__(BACKWARD_THREADS) norm_backward_kernel(norm_back_args<T> a) {
    constexpr int W = 16 / sizeof(T), P = OWNED / W;
    K_SMEM(float, room, [2][WARP][2]);
    int64_t i = (int64_t)threadIdx.x * W, step = (int64_t)blockDim.x * W;
    int64_t first = blockIdx.x * a.per_group, end = min(first + a.per_group, a.rows);
    float w[P][W], dw[P][W] = {}, db[P][W] = {}, dx_sum[P][W] = {}, past_sum[P][W] = {};
    norm_back_row<T, P> now, next;
    back_load<PACKED, RMS>(&next, a, first, i);
#pragma unroll
    for (int p = 0; p < P; p++) load_gains<PACKED, RMS>(w[p], a, i + p * step);
    for (int64_t row = first; row < end; row++) {
        float g[P][W], h[P][W], mean_g = 0, mean_gh = 0;
        now = next;
        if (row + 1 < end) back_load<PACKED, RMS>(&next, a, row + 1, i);
#pragma unroll
        for (int p = 0; p < P; p++)
#pragma unroll
            for (int k = 0; k < W; k++) {
                float d = to_float(now.dy[p].v[k]);
                h[p][k] = (to_float(now.x[p].v[k]) - now.mean) * now.rstd;
                g[p][k] = d * w[p][k];  // zero past the end of the row, where dy reads as zero
                mean_g += g[p][k];
                mean_gh = fmaf(g[p][k], h[p][k], mean_gh);
                dw[p][k] = fmaf(d, h[p][k], dw[p][k]);
                if (!RMS) db[p][k] += d;
            }
        block_sums(&mean_g, &mean_gh, room[row % 2]);
        mean_g = RMS ? 0 : mean_g / (float)a.width, mean_gh /= (float)a.width;
#pragma unroll
        for (int p = 0; p < P; p++) {
            float dx[W];
            back_store<PACKED, W>(a, now.dresidual[p], g[p], h[p], mean_g, mean_gh, now.rstd, row, i + p * step, dx);
#pragma unroll
            for (int k = 0; SUMS && k < W; k++) {
                dx_sum[p][k] += rounded<T>(dx[k]);
                if (a.dresidual) past_sum[p][k] += to_float(now.dresidual[p].v[k]);
            }
        }
    }
    sums_store<P, W>(a, a.dw, dw, i);
    if (!RMS) sums_store<P, W>(a, a.db, db, i);
    if (SUMS && a.dx_sums) sums_store<P, W>(a, a.dx_sums, dx_sum, i);
    if (SUMS && a.dresidual_sums) sums_store<P, W>(a, a.dresidual_sums, past_sum, i);
}

// dx of rows beyond LONG: one block a row, which reads it a second time from the caches. columns_kernel makes dw and db
// before it, because dx may overwrite dy.
template <class T, bool PACKED, bool RMS>
__global__ void __launch_bounds__(BACKWARD_THREADS) norm_backward_long_kernel(norm_back_args<T> a) {
    constexpr int W = 16 / sizeof(T);
    K_SMEM(float, room, [2][WARP][2]);
    int64_t start = (int64_t)threadIdx.x * W, step = (int64_t)blockDim.x * W;
    int turn = 0;
    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x, turn++) {
        norm_back_row<T, 1> r;
        float g[W], h[W], mean_g = 0, mean_gh = 0;
        for (int pass = 0; pass < 2; pass++) {
            for (int64_t i = start; i < a.width; i += step) {
                back_load<PACKED, RMS>(&r, a, row, i);
                load_gains<PACKED, RMS>(g, a, i);
#pragma unroll
                for (int k = 0; k < W; k++) {
                    h[k] = (to_float(r.x[0].v[k]) - r.mean) * r.rstd;
                    g[k] *= to_float(r.dy[0].v[k]);
                    if (!pass) mean_g += g[k], mean_gh = fmaf(g[k], h[k], mean_gh);
                }
                float dx[W];
                if (pass) back_store<PACKED, W>(a, r.dresidual[0], g, h, mean_g, mean_gh, r.rstd, row, i, dx);
            }
            if (pass) break;
            block_sums(&mean_g, &mean_gh, room[turn % 2]);
            mean_g = RMS ? 0 : mean_g / (float)a.width, mean_gh /= (float)a.width;
        }
    }
}

// So many groups that the blocks fill a device of a hundred multiprocessors and more once, but not twice.
static int64_t back_groups(int64_t rows, int64_t width, unsigned threads) {
    enum { LEAST_ROWS = 8, LEAST_GROUPS = 256, DEVICE_THREADS = 49152, SUMS_MOST = 4 };
    return row_groups(rows, width, at_least(DEVICE_THREADS / threads, LEAST_GROUPS), LEAST_ROWS, SUMS_MOST);
}

// Of rows up to LONG: the groups' parts are in the scratch, matrix after matrix.
template <class T, bool PACKED, bool RMS> static err_t norm_backward_short(norm_back_args<T> a, bool fresh, stream *s) {
    float *const out[] = {a.dw, a.db, a.dx_sums, a.dresidual_sums};
    unsigned threads = (unsigned)at_most(ceil_div(ceil_div(a.width, OWNED), WARP) * WARP, BACKWARD_THREADS);
    int64_t groups = back_groups(a.rows, a.width, threads), part = groups * a.width;
    float *parts = (float *)s->scratch;
    bool one = groups == 1;
    a.add = one && !fresh;
    a.per_group = ceil_div(a.rows, groups);
    if (!one) {
        a.dw = parts, a.db = parts + part;
        if (out[2]) a.dx_sums = parts + 2 * part;
        if (out[3]) a.dresidual_sums = parts + 3 * part;
    }
    if (!RMS && (out[2] || out[3]))
        LAUNCH((norm_backward_kernel<T, PACKED, true, false>), (unsigned)groups, threads, 0, s, a);
    else LAUNCH((norm_backward_kernel<T, PACKED, false, RMS>), (unsigned)groups, threads, 0, s, a);
    if (one) return ERR_OK;
    TRY(add_parts(out[0], out[1], parts, groups, a.width, fresh, s));
    if (out[2] && out[3]) return add_parts(out[2], out[3], parts + 2 * part, groups, a.width, fresh, s);
    if (out[2]) return add_parts(out[2], NULL, parts + 2 * part, groups, a.width, fresh, s);
    return out[3] ? add_parts(out[3], NULL, parts + 3 * part, groups, a.width, fresh, s) : ERR_OK;
}

// Of longer rows: each sum in a pass of its own. dx may overwrite dy and dresidual, so theirs come first.
template <class T, bool PACKED, bool RMS>
static err_t norm_backward_long(const norm_back_args<T> *a, bool fresh, stream *s) {
    int64_t groups = column_groups(a->rows, a->width, 2);
    bool one = groups == 1;
    float *parts = (float *)s->scratch;
    column_args<T> c = {one ? a->dw : parts,
                        one || RMS ? a->db : parts + groups * a->width,
                        a->dy,
                        a->x,
                        a->mean,
                        a->rstd,
                        a->rows,
                        a->width,
                        0,
                        0,
                        one,
                        fresh};
    if (a->dresidual_sums) TRY(bias_of<T>(a->dresidual_sums, a->dresidual, a->rows, a->width, fresh, s));
    TRY((columns<T, true>(&c, COLUMN_LANES, groups, 1, s)));
    if (!one) TRY(add_parts(a->dw, a->db, parts, groups, a->width, fresh, s));
    LAUNCH((norm_backward_long_kernel<T, PACKED, RMS>), blocks_for(a->rows), BACKWARD_THREADS, 0, s, *a);
    return a->dx_sums ? bias_of<T>(a->dx_sums, a->dx, a->rows, a->width, fresh, s) : ERR_OK;
}

err_t cuda_layer_norm_backward(const layer_norm_backward_args *args, stream *s) {
    int64_t width = tensor_count(args->w), rows = tensor_count(args->x) / width;
    assert(rows * width == tensor_count(args->x) && tensor_count(args->dx) == rows * width &&
           tensor_count(args->dy) == rows * width);
    assert(tensor_count(args->dw) == width && tensor_count(args->db) == width && args->dw->type == FP32 &&
           args->db->type == FP32);
    assert(tensor_count(args->mean) == rows && tensor_count(args->rstd) == rows && args->mean->type == FP32 &&
           args->rstd->type == FP32);
    assert(args->dx->type == args->x->type && args->dy->type == args->x->type && args->w->type == args->x->type);
    assert(!args->dresidual ||
           (args->dresidual->type == args->x->type && tensor_count(args->dresidual) == rows * width));
    const void *past = args->dresidual ? args->dresidual->data : NULL;
    uintptr_t all = (uintptr_t)args->dx->data | (uintptr_t)args->dy->data | (uintptr_t)past | (uintptr_t)args->x->data |
                    (uintptr_t)args->w->data;
    assert(!args->dx_sums || (args->dx_sums->type == FP32 && tensor_count(args->dx_sums) == width));
    assert(!args->dresidual_sums ||
           (past && args->dresidual_sums->type == FP32 && tensor_count(args->dresidual_sums) == width));
    BY_TYPE(args->x->type, T, {
        norm_back_args<T> a = {(T *)args->dx->data,
                               (float *)args->dw->data,
                               (float *)args->db->data,
                               args->dx_sums ? (float *)args->dx_sums->data : NULL,
                               args->dresidual_sums ? (float *)args->dresidual_sums->data : NULL,
                               (const T *)args->dy->data,
                               (const T *)past,
                               (const T *)args->x->data,
                               (const T *)args->w->data,
                               (const float *)args->mean->data,
                               (const float *)args->rstd->data,
                               rows,
                               width,
                               0,
                               0,
                               false};
        bool packed = packs<T>((const void *)all, width);
        if (width > LONG && packed) TRY((norm_backward_long<T, true, false>(&a, args->fresh, s)));
        else if (width > LONG) TRY((norm_backward_long<T, false, false>(&a, args->fresh, s)));
        else if (packed) TRY((norm_backward_short<T, true, false>(a, args->fresh, s)));
        else TRY((norm_backward_short<T, false, false>(a, args->fresh, s)));
    });
    return ERR_OK;
}

err_t cuda_rms_norm_backward(const rms_norm_backward_args *args, stream *s) {
    int64_t width = tensor_count(args->w), rows = tensor_count(args->x) / width;
    assert(rows * width == tensor_count(args->x) && tensor_count(args->dx) == rows * width &&
           tensor_count(args->dy) == rows * width);
    assert(tensor_count(args->dw) == width && args->dw->type == FP32 && tensor_count(args->rstd) == rows &&
           args->rstd->type == FP32);
    assert(args->dx->type == args->x->type && args->dy->type == args->x->type && args->w->type == args->x->type);
    assert(!args->dresidual ||
           (args->dresidual->type == args->x->type && tensor_count(args->dresidual) == rows * width));
    const void *past = args->dresidual ? args->dresidual->data : NULL;
    uintptr_t all = (uintptr_t)args->dx->data | (uintptr_t)args->dy->data | (uintptr_t)past | (uintptr_t)args->x->data |
                    (uintptr_t)args->w->data;
    BY_TYPE(args->x->type, T, {
        norm_back_args<T> a = {};
        a.dx = (T *)args->dx->data, a.dw = (float *)args->dw->data;
        a.dy = (const T *)args->dy->data, a.dresidual = (const T *)past, a.x = (const T *)args->x->data,
        a.w = (const T *)args->w->data;
        a.rstd = (const float *)args->rstd->data, a.rows = rows, a.width = width, a.shift = args->shift;
        bool packed = packs<T>((const void *)all, width);
        if (width > LONG && packed) TRY((norm_backward_long<T, true, true>(&a, args->fresh, s)));
        else if (width > LONG) TRY((norm_backward_long<T, false, true>(&a, args->fresh, s)));
        else if (packed) TRY((norm_backward_short<T, true, true>(a, args->fresh, s)));
        else TRY((norm_backward_short<T, false, true>(a, args->fresh, s)));
    });
    return ERR_OK;
}
