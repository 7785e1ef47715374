// gpu/cuda/batch_norm.cu: batch normalisation. All of it has the CPU's bits (gpu/cpu/kernel/batch_norm.c): sums in
// double in the same order, FP32 elsewhere, one operation after the other as there.
//
// Sums go in two steps, without atomics: a thread adds one channel of a block of BATCH_NORM_ROWS rows, then one thread
// a sum adds the blocks, in order. Blocks' sums wait in the stream's scratch; what doesn't fit there goes in turns.
#include "gpu/cuda/columns.h"

enum { NORM_THREADS = 256 };

// A thread's rows: u and u*v are summed, u = v = x - center, or, with BACK, u = g, v = x - center.
template <class T> struct norm_sums_args {
    double *parts;  // (blocks, 2, C)
    const T *x, *dy, *y;
    const float *center;
    int64_t rows, first, blocks;  // blocks first .. first+blocks-1
    int C;
};

// layout     x, dy, y (M,C)
// sums       double, row after row from zero: products of two floats are exact in it
// repeatable a sum is one thread's
// moves      x once, with BACK dy, x and, after a relu, y once; memory bound where doubles are fast
// reference  gpu/cpu/kernel/batch_norm.c: add_rows
template <class T, bool BACK> __global__ void __launch_bounds__(NORM_THREADS) norm_sums_kernel(norm_sums_args<T> g) {
    const int64_t i = (int64_t)blockIdx.x * NORM_THREADS + threadIdx.x, block = i / g.C;
    const int c = (int)(i - block * g.C);
    if (block >= g.blocks) return;
    const int64_t from = (g.first + block) * BATCH_NORM_ROWS, to = min(from + BATCH_NORM_ROWS, g.rows);
    const float center = g.center ? g.center[c] : 0.0f;
    double sum = 0, products = 0;
#pragma unroll 8
    for (int64_t m = from; m < to; m++) {
        const int64_t at = m * g.C + c;
        const double v = (double)(to_float(g.x[at]) - center);
        double u = v;
        if (BACK) u = !g.y || to_float(g.y[at]) > 0.0f ? (double)to_float(g.dy[at]) : 0.0;
        sum += u, products = fma(u, v, products);
    }
    g.parts[block * 2 * g.C + c] = sum, g.parts[(block * 2 + 1) * g.C + c] = products;
}

struct norm_blocks_args {
    double *sums;         // (2,C)
    const double *parts;  // (blocks, 2, C)
    float *dgain, *dbias;
    const float *rstd;
    int64_t blocks;
    int C;
    bool on, last, fresh;  // sums go on; they are whole then; of dgain and dbias
};

// A thread adds the blocks of one sum, in order, and, where it is the last turn, the gradient that follows from it.
// moves      16 bytes a channel and block
__global__ void __launch_bounds__(NORM_THREADS) norm_blocks_kernel(norm_blocks_args g) {
    const int i = blockIdx.x * NORM_THREADS + threadIdx.x;
    if (i >= 2 * g.C) return;
    double sum = g.on ? g.sums[i] : g.parts[i];
#pragma unroll 8
    for (int64_t b = g.on ? 0 : 1; b < g.blocks; b++) sum += g.parts[b * 2 * g.C + i];
    g.sums[i] = sum;
    float *to = i < g.C ? g.dbias : g.dgain;
    if (!g.last || !to) return;
    const int c = i < g.C ? i : i - g.C;
    const float x = (float)(i < g.C ? sum : (double)g.rstd[c] * sum);
    to[c] = g.fresh ? x : to[c] + x;
}

template <class T, bool BACK> static err_t norm_sums(norm_sums_args<T> g, norm_blocks_args b, stream *s) {
    const int64_t all = ceil_div(g.rows, BATCH_NORM_ROWS), fit = CUDA_SCRATCH / ((int64_t)sizeof(double) * 2 * g.C);
    if (fit < 1)
        return err_set(ERR_UNAVAILABLE,
                       "cuda: batch norm of %d channels, expected at most %d; use fewer, or set"
                       " [device] backend = cpu",
                       g.C, (int)(CUDA_SCRATCH / (sizeof(double) * 2)));
    g.parts = (double *)s->scratch, b.parts = g.parts, b.C = g.C;
    for (g.first = 0; g.first < all; g.first += fit) {
        g.blocks = at_most(all - g.first, fit), b.blocks = g.blocks;
        b.on = g.first > 0, b.last = g.first + g.blocks == all;
        LAUNCH((norm_sums_kernel<T, BACK>), (unsigned)ceil_div(g.blocks * g.C, NORM_THREADS), NORM_THREADS, 0, s, g);
        LAUNCH(norm_blocks_kernel, (unsigned)ceil_div(2 * g.C, NORM_THREADS), NORM_THREADS, 0, s, b);
    }
    return ERR_OK;
}

static const float *norm_floats(const tensor *t, int64_t channels) {
    assert(!t || (t->type == FP32 && tensor_count(t) == channels));
    (void)channels;
    return t ? (const float *)t->data : NULL;
}

// The channels of x, of which each of the others has the same count.
static int norm_channels(const tensor *x, int64_t channels, const tensor *a, const tensor *b, const tensor *c) {
    assert(x->size[x->dims - 1] == channels && channels <= INT32_MAX / 2 && tensor_count(x) >= channels);
    assert(!a || (a->type == x->type && tensor_count(a) == tensor_count(x)));
    assert(!b || (b->type == x->type && tensor_count(b) == tensor_count(x)));
    assert(!c || (c->type == x->type && tensor_count(c) == tensor_count(x)));
    (void)x, (void)a, (void)b, (void)c;
    return (int)channels;
}

err_t cuda_batch_norm_sums(const batch_norm_sums_args *args, stream *s) {
    const int C = norm_channels(args->x, args->sums->size[1], NULL, NULL, NULL);
    assert(args->sums->type == FP64 && tensor_count(args->sums) == 2 * C);
    norm_blocks_args b = {};
    b.sums = (double *)args->sums->data;
    BY_TYPE(args->x->type, T, {
        norm_sums_args<T> g = {};
        g.x = (const T *)args->x->data, g.center = norm_floats(args->center, C);
        g.rows = tensor_count(args->x) / C, g.C = C;
        return (norm_sums<T, false>(g, b, s));
    });
}

err_t cuda_batch_norm_back_sums(const batch_norm_back_sums_args *args, stream *s) {
    const int C = norm_channels(args->x, args->sums->size[1], args->dy, args->y, NULL);
    assert(args->sums->type == FP64 && tensor_count(args->sums) == 2 * C);
    norm_blocks_args b = {};
    b.sums = (double *)args->sums->data, b.fresh = args->fresh, b.rstd = norm_floats(args->rstd, C);
    b.dgain = (float *)norm_floats(args->dgain, C), b.dbias = (float *)norm_floats(args->dbias, C);
    BY_TYPE(args->x->type, T, {
        norm_sums_args<T> g = {};
        g.x = (const T *)args->x->data, g.dy = (const T *)args->dy->data;
        g.y = args->y ? (const T *)args->y->data : NULL, g.center = norm_floats(args->mean, C);
        g.rows = tensor_count(args->x) / C, g.C = C;
        return (norm_sums<T, true>(g, b, s));
    });
}

// batch_norm_moments: a thread a channel, in double.
// reference  gpu/cpu/kernel/batch_norm.c
__global__ void __launch_bounds__(NORM_THREADS)
    norm_moments_kernel(float *mean, float *rstd, float *variance, const double *sums, const float *center,
                        const float *running, int C, double rows, double eps) {
    const int c = blockIdx.x * NORM_THREADS + threadIdx.x;
    if (c >= C) return;
    const double m = running ? 0 : sums[c] / rows;
    double v = running ? (double)running[c] : sums[C + c] / rows - m * m;
    if (v < 0) v = 0;
    mean[c] = (float)((center ? (double)center[c] : 0.0) + m);
    rstd[c] = (float)(1 / sqrt(v + eps));
    if (variance) variance[c] = (float)(!running && rows > 1 ? v * (rows / (rows - 1)) : v);
}

err_t cuda_batch_norm_moments(const batch_norm_moments_args *args, stream *s) {
    const int64_t C = tensor_count(args->mean);
    const float *running = norm_floats(args->running, C);
    assert(C <= INT32_MAX / 2);
    assert(running || (args->rows >= 1 && args->sums->type == FP64 && tensor_count(args->sums) == 2 * C));
    float *mean = (float *)norm_floats(args->mean, C), *rstd = (float *)norm_floats(args->rstd, C),
          *variance = (float *)norm_floats(args->variance, C);
    LAUNCH(norm_moments_kernel, (unsigned)ceil_div(C, NORM_THREADS), NORM_THREADS, 0, s, mean, rstd, variance,
           running ? NULL : (const double *)args->sums->data, norm_floats(args->center, C), running, (int)C,
           (double)args->rows, args->eps);
    return ERR_OK;
}

// --- rows ------------------------------------------------------------------------------------------------------------

template <class T> struct norm_rows_args {
    T *out, *dresidual;
    const T *x, *dy, *y, *residual;
    const float *mean, *rstd, *gain, *bias;
    const float *share, *slope;  // mean of g, and of g * (x - mean) times rstd^2
    int64_t count;
    int C;
    bool relu;
};

// W elements from i on, of channels c and on.
template <bool BACK, int W, class T>
__device__ __forceinline__ void norm_elements(const norm_rows_args<T> &g, int64_t i, int c) {
    float x[W], u[W], v[W];
    load_floats<W>(x, g.x + i);
    if (BACK) load_floats<W>(u, g.dy + i);
    else if (g.residual) load_floats<W>(u, g.residual + i);
    if (BACK && g.y) load_floats<W>(v, g.y + i);
#pragma unroll
    for (int k = 0; k < W; k++) {
        const float d = x[k] - g.mean[c + k], scale = g.rstd[c + k] * g.gain[c + k];
        if (BACK) {
            if (g.y) u[k] = v[k] > 0.0f ? u[k] : 0.0f;
            x[k] = scale * fmaf(-d, g.slope[c + k], u[k] - g.share[c + k]);
        } else {
            x[k] = fmaf(d, scale, g.bias[c + k]);
            if (g.residual) x[k] += u[k];
            if (g.relu && x[k] <= 0.0f) x[k] = 0.0f;  // a NaN is not, and stays
        }
    }
    if (BACK && g.dresidual) store_floats<W>(g.dresidual + i, u);
    store_floats<W>(g.out + i, x);
}

// batch_norm_apply, and with BACK batch_norm_back: a thread has W neighbours of a row, and NORM_TURNS times that.
// alias      out or dresidual may be what is read: a thread has read what it overwrites
// moves      apply: x, y and the residual once; back: dy, x and dx once, and y and dresidual
// reference  gpu/cpu/kernel/batch_norm.c: apply_vector, back_vector
enum { NORM_TURNS = 4 };
template <class T, bool BACK, int W>
__global__ void __launch_bounds__(NORM_THREADS) norm_rows_kernel(norm_rows_args<T> g) {
    const int64_t first = (int64_t)blockIdx.x * NORM_TURNS * NORM_THREADS * W;
    const int64_t c = first % g.C;
#pragma unroll
    for (int k = 0; k < NORM_TURNS; k++) {
        const int further = (k * NORM_THREADS + threadIdx.x) * W;
        if (first + further < g.count) norm_elements<BACK, W>(g, first + further, (int)((c + further) % g.C));
    }
}

template <class T, bool BACK> static err_t norm_rows(const norm_rows_args<T> &g, stream *s) {
    constexpr int W = 16 / sizeof(T);
    const uintptr_t all = (uintptr_t)g.out | (uintptr_t)g.dresidual | (uintptr_t)g.x | (uintptr_t)g.dy |
                          (uintptr_t)g.y | (uintptr_t)g.residual;
    enum { TURN = NORM_TURNS * NORM_THREADS };
    if (packs<T>((const void *)all, g.C))
        LAUNCH((norm_rows_kernel<T, BACK, W>), (unsigned)ceil_div(g.count, TURN * W), NORM_THREADS, 0, s, g);
    else LAUNCH((norm_rows_kernel<T, BACK, 1>), (unsigned)ceil_div(g.count, TURN), NORM_THREADS, 0, s, g);
    return ERR_OK;
}

err_t cuda_batch_norm_apply(const batch_norm_apply_args *args, stream *s) {
    const int C = norm_channels(args->x, tensor_count(args->mean), args->y, args->residual, NULL);
    BY_TYPE(args->x->type, T, {
        norm_rows_args<T> g = {};
        g.out = (T *)args->y->data, g.x = (const T *)args->x->data;
        g.residual = args->residual ? (const T *)args->residual->data : NULL;
        g.mean = norm_floats(args->mean, C), g.rstd = norm_floats(args->rstd, C);
        g.gain = norm_floats(args->gain, C), g.bias = norm_floats(args->bias, C);
        g.count = tensor_count(args->x), g.C = C, g.relu = args->relu;
        return (norm_rows<T, false>(g, s));
    });
}

// What back subtracts, of each channel, from the sums: rounded once.
__global__ void __launch_bounds__(NORM_THREADS)
    norm_means_kernel(float *share, float *slope, const double *sums, const float *rstd, int C, double rows) {
    const int c = blockIdx.x * NORM_THREADS + threadIdx.x;
    if (c >= C) return;
    share[c] = (float)(sums[c] / rows);
    slope[c] = (float)((double)rstd[c] * (double)rstd[c] * (sums[C + c] / rows));
}

err_t cuda_batch_norm_back(const batch_norm_back_args *args, stream *s) {
    const int C = norm_channels(args->x, tensor_count(args->mean), args->dy, args->y, args->dresidual);
    float *means = (float *)s->scratch;
    const float *rstd = norm_floats(args->rstd, C);
    assert(args->sums->type == FP64 && tensor_count(args->sums) == 2 * C && args->rows >= 1);
    assert(args->dx->type == args->x->type && tensor_count(args->dx) == tensor_count(args->x));
    assert(!args->dresidual || args->dresidual->data != args->dx->data);
    if (C > CUDA_SCRATCH / (int)(2 * sizeof(float)))
        return err_set(ERR_UNAVAILABLE,
                       "cuda: batch norm of %d channels, expected at most %d; use fewer, or set"
                       " [device] backend = cpu",
                       C, CUDA_SCRATCH / (int)(2 * sizeof(float)));
    LAUNCH(norm_means_kernel, (unsigned)ceil_div(C, NORM_THREADS), NORM_THREADS, 0, s, means, means + C,
           (const double *)args->sums->data, rstd, C, (double)args->rows);
    BY_TYPE(args->x->type, T, {
        norm_rows_args<T> g = {};
        g.out = (T *)args->dx->data, g.x = (const T *)args->x->data, g.dy = (const T *)args->dy->data;
        g.y = args->y ? (const T *)args->y->data : NULL;
        g.dresidual = args->dresidual ? (T *)args->dresidual->data : NULL;
        g.mean = norm_floats(args->mean, C), g.rstd = rstd, g.gain = norm_floats(args->gain, C);
        g.share = means, g.slope = means + C, g.count = tensor_count(args->x), g.C = C;
        return (norm_rows<T, true>(g, s));
    });
}
