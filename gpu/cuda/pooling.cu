// gpu/cuda/pooling.cu: images without products: the largest of a window of pixels, the mean of an image, what flows
// back from them, and pictures that become numbers. A thread has W channels of a pixel side by side: 16 bytes where the
// channels are whole chunks of that, else one.
#include "gpu/cuda/kernel.h"

enum { POOL_THREADS = 256 };

template <class T> struct pool_args {
    T *out;
    const T *in;
    uint8_t *index;
    int H, W, C, P, Q, taps, stride, pad;
};

template <int W> struct alignas(W) taps_of { uint8_t v[W]; };

template <class T>
static pool_args<T> pool_args_of(const tensor *pixels, const tensor *results, const tensor *index, int taps, int stride,
                                 int pad) {
    const int64_t *x = pixels->size, *y = results->size;
    assert(pixels->dims == 4 && results->dims == 4 && pixels->type == results->type && x[0] == y[0] && x[3] == y[3]);
    assert(taps >= 1 && taps <= 16 && stride >= 1 && pad >= 0 && pad < taps);
    assert(y[1] == conv_out(x[1], taps, stride, pad) && y[2] == conv_out(x[2], taps, stride, pad));
    assert(index->type == UINT8 && tensor_count(index) == tensor_count(results));
    // a row of an image is numbered in 32 bits, and a block has one
    assert(x[2] * x[3] <= INT32_MAX && x[0] * x[1] <= INT32_MAX);
    return {NULL,   NULL, (uint8_t *)index->data, (int)x[1], (int)x[2], (int)x[3], (int)y[1], (int)y[2], taps,
            stride, pad};
}
template <class T> static bool pool_packs(const tensor *a, const tensor *b, const tensor *index) {
    return packs<T>(a->data, a->size[3]) && packs<T>(b->data, a->size[3]) && (uintptr_t)index->data % 16 == 0;
}

// max_pool_forward: a block has a row of results of one image.
// layout     (N,H,W,C); any size
// alias      none
// exact      compares as the CPU does: of NaNs and of equal ones the first stays
// moves      x once, the overlap of windows from L2; y, and a byte a result
// reference  gpu/cpu/kernel/pooling.c
template <class T, int W> __global__ void __launch_bounds__(POOL_THREADS) max_pool_forward_kernel(pool_args<T> g) {
    const int packs = g.C / W, p = blockIdx.x % g.P, n = blockIdx.x / g.P, h0 = p * g.stride - g.pad;
    for (int i = threadIdx.x; i < g.Q * packs; i += POOL_THREADS) {
        const int q = i / packs, c = i % packs * W, w0 = q * g.stride - g.pad;
        float best[W] = {};
        taps_of<W> tap = {};
        bool first = true;
        for (int r = max(0, -h0); r < min(g.taps, g.H - h0); r++)
            for (int s = max(0, -w0); s < min(g.taps, g.W - w0); s++) {
                float x[W];
                load_floats<W>(x, g.in + (((int64_t)n * g.H + h0 + r) * g.W + w0 + s) * g.C + c);
#pragma unroll
                for (int k = 0; k < W; k++)
                    if (first || (best[k] == best[k] && !(x[k] <= best[k])))
                        best[k] = x[k], tap.v[k] = (uint8_t)(r * g.taps + s);
                first = false;
            }
        const int64_t at = ((int64_t)blockIdx.x * g.Q + q) * g.C + c;
        store_floats<W>(g.out + at, best);
        *reinterpret_cast<taps_of<W> *>(g.index + at) = tap;
    }
}

err_t cuda_max_pool_forward(const max_pool_forward_args *args, stream *s) {
    BY_TYPE(args->x->type, T, {
        pool_args<T> g = pool_args_of<T>(args->x, args->y, args->index, args->taps, args->stride, args->pad);
        const unsigned rows = (unsigned)(args->y->size[0] * args->y->size[1]);
        g.out = (T *)args->y->data, g.in = (const T *)args->x->data;
        if (pool_packs<T>(args->x, args->y, args->index))
            LAUNCH((max_pool_forward_kernel<T, 16 / sizeof(T)>), rows, POOL_THREADS, 0, s, g);
        else LAUNCH((max_pool_forward_kernel<T, 1>), rows, POOL_THREADS, 0, s, g);
    });
    return ERR_OK;
}

// Bytes by four in a word: nvcc spills an array of them.
template <int W> __device__ __forceinline__ void load_taps(uint32_t *word, const uint8_t *from) {
    if constexpr (W % 4 == 0) {
#pragma unroll
        for (int i = 0; i < W / 4; i++) word[i] = reinterpret_cast<const uint32_t *>(from)[i];
    } else word[0] = from[0];
}

// max_pool_backward: a block has a row of pixels of one image; each asks the windows that have it.
// alias      none
// sums       FP32, p ascending, then q: the CPU's bits
// moves      dx once, dy and index once, the overlap of windows from L2
// reference  gpu/cpu/kernel/pooling.c
template <class T, int W> __global__ void __launch_bounds__(POOL_THREADS) max_pool_backward_kernel(pool_args<T> g) {
    const int packs = g.C / W, h = blockIdx.x % g.H + g.pad, n = blockIdx.x / g.H;
    const int p0 = max(0, (h - g.taps + g.stride) / g.stride), p1 = min(g.P, h / g.stride + 1);
    for (int i = threadIdx.x; i < g.W * packs; i += POOL_THREADS) {
        const int x = i / packs, w = x + g.pad, c = i % packs * W;
        const int q0 = max(0, (w - g.taps + g.stride) / g.stride), q1 = min(g.Q, w / g.stride + 1);
        float sum[W] = {};
        for (int p = p0; p < p1; p++)
            for (int q = q0; q < q1; q++) {
                const int64_t at = (((int64_t)n * g.P + p) * g.Q + q) * g.C + c;
                const int tap = (h - p * g.stride) * g.taps + w - q * g.stride;
                uint32_t chosen[(W + 3) / 4];
                load_taps<W>(chosen, g.index + at);
                float dy[W];
                load_floats<W>(dy, g.in + at);
#pragma unroll
                for (int k = 0; k < W; k++) sum[k] += (int)(chosen[k / 4] >> k % 4 * 8 & 255) == tap ? dy[k] : 0.0f;
            }
        store_floats<W>(g.out + ((int64_t)blockIdx.x * g.W + x) * g.C + c, sum);
    }
}

err_t cuda_max_pool_backward(const max_pool_backward_args *args, stream *s) {
    BY_TYPE(args->dx->type, T, {
        pool_args<T> g = pool_args_of<T>(args->dx, args->dy, args->index, args->taps, args->stride, args->pad);
        const unsigned rows = (unsigned)(args->dx->size[0] * args->dx->size[1]);
        g.out = (T *)args->dx->data, g.in = (const T *)args->dy->data;
        if (pool_packs<T>(args->dx, args->dy, args->index))
            LAUNCH((max_pool_backward_kernel<T, 16 / sizeof(T)>), rows, POOL_THREADS, 0, s, g);
        else LAUNCH((max_pool_backward_kernel<T, 1>), rows, POOL_THREADS, 0, s, g);
    });
    return ERR_OK;
}

// --- the mean --------------------------------------------------------------------------------------------------------

template <class T> struct mean_args {
    T *out;
    const T *in;
    int64_t all, pixels, channels;  // all: threads that have work
    float share;
};

// mean_pool_forward: a thread has some channels of an image.
// alias      none
// sums       FP32, pixel after pixel: the CPU's bits
// moves      x once
// reference  gpu/cpu/kernel/pooling.c
template <class T, int W> __global__ void __launch_bounds__(POOL_THREADS) mean_pool_kernel(mean_args<T> g) {
    const int64_t i = (int64_t)blockIdx.x * POOL_THREADS + threadIdx.x, packs = g.channels / W;
    if (i >= g.all) return;
    const T *x = g.in + i / packs * g.pixels * g.channels + i % packs * W;
    float sum[W] = {};
#pragma unroll 4
    for (int64_t m = 0; m < g.pixels; m++) {
        float v[W];
        load_floats<W>(v, x + m * g.channels);
#pragma unroll
        for (int k = 0; k < W; k++) sum[k] += v[k];
    }
#pragma unroll
    for (int k = 0; k < W; k++) sum[k] *= g.share;
    store_floats<W>(g.out + i * W, sum);
}

// mean_pool_backward: a thread has some channels of a pixel.
// moves      dx once
template <class T, int W> __global__ void __launch_bounds__(POOL_THREADS) mean_spread_kernel(mean_args<T> g) {
    const int64_t i = (int64_t)blockIdx.x * POOL_THREADS + threadIdx.x, packs = g.channels / W;
    if (i >= g.all) return;
    float v[W];
    load_floats<W>(v, g.in + i / packs / g.pixels * g.channels + i % packs * W);
#pragma unroll
    for (int k = 0; k < W; k++) v[k] *= g.share;
    store_floats<W>(g.out + i * W, v);
}

template <class T> static mean_args<T> mean_args_of(const tensor *pixels, const tensor *means, int W, bool back) {
    const int64_t *x = pixels->size;
    assert(pixels->dims == 4 && means->type == pixels->type && tensor_count(means) == x[0] * x[3]);
    return {(T *)(back ? pixels : means)->data,
            (const T *)(back ? means : pixels)->data,
            tensor_count(back ? pixels : means) / W,
            x[1] * x[2],
            x[3],
            1.0f / (float)(x[1] * x[2])};
}

template <class T, int W, bool BACK> static err_t mean_of(const tensor *pixels, const tensor *means, stream *s) {
    const mean_args<T> g = mean_args_of<T>(pixels, means, W, BACK);
    const unsigned blocks = (unsigned)ceil_div(g.all, POOL_THREADS);
    if (BACK) LAUNCH((mean_spread_kernel<T, W>), blocks, POOL_THREADS, 0, s, g);
    else LAUNCH((mean_pool_kernel<T, W>), blocks, POOL_THREADS, 0, s, g);
    return ERR_OK;
}

template <bool BACK> static err_t mean_any(const tensor *pixels, const tensor *means, stream *s) {
    BY_TYPE(pixels->type, T,
            if (packs<T>(pixels->data, pixels->size[3]) &&
                packs<T>(means->data, pixels->size[3])) return (mean_of<T, 16 / sizeof(T), BACK>(pixels, means, s));
            return (mean_of<T, 1, BACK>(pixels, means, s)));
}

err_t cuda_mean_pool_forward(const mean_pool_forward_args *args, stream *s) {
    return mean_any<false>(args->x, args->y, s);
}
err_t cuda_mean_pool_backward(const mean_pool_backward_args *args, stream *s) {
    return mean_any<true>(args->dx, args->dy, s);
}

// --- pictures --------------------------------------------------------------------------------------------------------

// pixels: a thread has W neighbours of y, of one pixel or several.
// layout     x (M,C) bytes, y (M,Cy)
// alias      none
// exact      one subtraction and one product, as the CPU's
// moves      a byte and sizeof(E) bytes an element
// reference  gpu/cpu/kernel/pixels.c
template <class T, int W>
__global__ void __launch_bounds__(POOL_THREADS)
    pixels_kernel(T *y, const uint8_t *x, const float *mean, const float *inv, int64_t count, int channels, int width) {
    const int64_t i = ((int64_t)blockIdx.x * POOL_THREADS + threadIdx.x) * W;
    if (i >= count) return;
    int64_t m = i / width;
    int c = (int)(i - m * width);
    float v[W];
#pragma unroll
    for (int k = 0; k < W; k++) {
        v[k] = c < channels ? ((float)x[m * channels + c] - mean[c]) * inv[c] : 0.0f;
        if (++c == width) c = 0, m++;
    }
    store_floats<W>(y + i, v);
}

err_t cuda_pixels(const pixels_args *args, stream *s) {
    const int64_t C = tensor_count(args->mean), width = args->y->size[args->y->dims - 1], count = tensor_count(args->y);
    const uint8_t *x = (const uint8_t *)args->x->data;
    const float *mean = (const float *)args->mean->data, *inv = (const float *)args->inv->data;
    assert(args->x->type == UINT8 && args->x->size[args->x->dims - 1] == C && width >= C && width <= INT32_MAX);
    assert(args->mean->type == FP32 && args->inv->type == FP32 && tensor_count(args->inv) == C);
    assert(tensor_count(args->x) / C == count / width);
    BY_TYPE(args->y->type, T, {
        constexpr int W = 16 / sizeof(T);
        T *y = (T *)args->y->data;
        if (packs<T>(y, count))
            LAUNCH((pixels_kernel<T, W>), (unsigned)ceil_div(count, POOL_THREADS * W), POOL_THREADS, 0, s, y, x, mean,
                   inv, count, (int)C, (int)width);
        else
            LAUNCH((pixels_kernel<T, 1>), (unsigned)ceil_div(count, POOL_THREADS), POOL_THREADS, 0, s, y, x, mean, inv,
                   count, (int)C, (int)width);
    });
    return ERR_OK;
}
