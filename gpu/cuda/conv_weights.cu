// gpu/cuda/conv_weights.cu: the gradient of a convolution's weights: a product whose sums go over all result pixels
// (conv.h has the idea). Weights are few and pixels many, so pixels are cut into ranges, each of which leaves its part
// in the stream's scratch, and the parts are added in order. How many ranges follows from the shape.
#include "gpu/cuda/conv.h"

#include "gpu/conv_check.h"
#include "gpu/cuda/columns.h"

// x (N,H,W,pixel), dy (N,P,Q,filters). Group g has K filters of J = R*S*channels weights.
template <class T> struct weights_args {
    float *out;  // of range 0; that of the next is so many elements on
    int64_t apart;
    const T *dy, *x;
    int rows, range;  // pixels; of a range
    int H, W, pixel, P, Q, filters, S, channels, K, J;
    int stride, pad;
    bool add;  // to what is there
};

// Tiles (CONV_DEPTH, BM) of dy: pixels of some filters.
template <class T, bool WIDE, int BM> struct weights_results {
    typedef conv_tile<T, false, BM> tile;
    const weights_args<T> &g;
    const T *from;  // the thread's chunk of its first pixel
    int left, filters;

    __device__ __forceinline__ weights_results(const weights_args<T> &args, int m, int end, int first)
        : g(args), left(end - m), filters(g.K - first - tile::chunk() * tile::E) {
        from = g.dy + ((int64_t)m * g.filters + blockIdx.y * g.K + first + tile::chunk() * tile::E);
    }
    __device__ __forceinline__ void load(T *to) {
#pragma unroll
        for (int i = 0; i < tile::COPIES; i++) {
            const bool there = tile::row(i) < left && filters > 0;
            const T *p = from + (int64_t)tile::row(i) * g.filters;
            if constexpr (WIDE) dev_cp_async16(to + tile::place(i), there ? p : g.dy, there ? 16 : 0);
            else conv_gather(to + tile::place(i), [&](int e) { return there && e < filters ? p[e] : conv_zero<T>(); });
        }
        from += (int64_t)CONV_DEPTH * g.filters, left -= CONV_DEPTH;
    }
};

// Tiles (CONV_DEPTH, BN) of inputs: what each of these pixels has at the tap and channel of each column.
template <class T, bool WIDE, int BN> struct weights_inputs {
    typedef conv_tile<T, false, BN> tile;
    const weights_args<T> &g;
    conv_radix radix;
    conv_digits at[tile::COPIES];  // q, p, image
    conv_digits column;            // channel, tap: of the thread's chunk
    int columns, left;

    __device__ __forceinline__ weights_inputs(const weights_args<T> &args, int m, int end, int first)
        : g(args), radix(conv_radix_of(args.Q, args.P)), left(end - m) {
        const int mine = first + tile::chunk() * tile::E;
        column = conv_digits_of(mine, g.channels, g.S), columns = g.J - mine;
#pragma unroll
        for (int i = 0; i < tile::COPIES; i++) at[i] = conv_digits_of(m + tile::row(i), g.Q, g.P);
    }
    // Where the image's numbers of the group begin; whether a tap is inside of the image; and where it is.
    __device__ __forceinline__ const T *image(int i) const {
        return g.x + (int64_t)at[i].high * g.H * g.W * g.pixel + blockIdx.y * g.channels;
    }
    __device__ __forceinline__ int h(int i, const conv_digits &of) const {
        return at[i].mid * g.stride - g.pad + of.high;
    }
    __device__ __forceinline__ int w(int i, const conv_digits &of) const {
        return at[i].low * g.stride - g.pad + of.mid;
    }
    __device__ __forceinline__ bool inside(int i, const conv_digits &of) const {
        return (unsigned)h(i, of) < (unsigned)g.H && (unsigned)w(i, of) < (unsigned)g.W;
    }
    __device__ __forceinline__ const T *tap(int i, const conv_digits &of) const {
        return image(i) + ((h(i, of) * g.W + w(i, of)) * g.pixel + of.low);
    }
    __device__ __forceinline__ void load(T *to) {
#pragma unroll
        for (int i = 0; i < tile::COPIES; i++) {
            const bool there = tile::row(i) < left && columns > 0;
            if constexpr (WIDE) {
                const bool all = there && inside(i, column);
                dev_cp_async16(to + tile::place(i), all ? tap(i, column) : g.x, all ? 16 : 0);
            } else {
                conv_digits of = column;
                conv_gather(to + tile::place(i), [&](int e) {
                    T v = there && e < columns && inside(i, of) ? *tap(i, of) : conv_zero<T>();
                    conv_add_digits(&of, {g.channels, g.S, {}}, {1, 0, 0});
                    return v;
                });
            }
            conv_add_digits(&at[i], radix, radix.step);
        }
        left -= CONV_DEPTH;
    }
};

// conv_weights: a block has BM filters of BN weights, and range blockIdx.z of the pixels. WIDE: filters and channels of
// a group come in whole chunks of 16 bytes.
// layout     dw (K,R,S,C/G) or a part of it a range, images (N,H,W,C)
// sums       FP32: a range's pixels in order, on tensor cores 16 at a time, FP32 operands in blocks of CONV_BLOCK, then
//            the ranges in the order of add_parts
// repeatable ranges follow from the shape; a range's sum is one thread's or one warp's
// flops      2 * N*P*Q * K * R*S * C/G
// moves      a range: dy once for each BN weights, x once a tap for each BM filters, mostly from L2
// reference  gpu/cpu/kernel/conv_weights.c
template <class T, bool WIDE, int BM, int BN>
__global__ void __launch_bounds__(CONV_THREADS) conv_weights_kernel(weights_args<T> g) {
    const int across = (g.J + BN - 1) / BN, left = blockIdx.x % across * BN, top = blockIdx.x / across * BM,
              first = blockIdx.z * g.range, end = min(first + g.range, g.rows);
    conv_sums<T, false, false, BM, BN> sums;
    weights_results<T, WIDE, BM> a(g, first, end, top);
    weights_inputs<T, WIDE, BN> b(g, first, end, left);
    conv_loop<T>(&sums, end - first, &a, &b);
    float *out = g.out + blockIdx.z * g.apart;
#pragma unroll
    for (int i = 0; i < sums.PAIRS; i++) {
        const int row = top + sums.row_of(i), column = left + sums.column_of(i);
        const float *sum = sums.pair(i);
        float *to = out + (int64_t)(blockIdx.y * g.K + row) * g.J + column;
#pragma unroll
        for (int e = 0; e < 2; e++)
            if (row < g.K && column + e < g.J) to[e] = g.add ? to[e] + sum[e] : sum[e];
    }
}

// Ranges so that there are about BLOCKS blocks, of at least LEAST pixels, in whole blocks of a CPU's sums.
static int64_t weights_range(int64_t rows, int64_t tiles, int64_t weights) {
    enum { BLOCKS = 512, LEAST = 2 * CONV_BLOCK };
    const int64_t ranges = row_groups(rows, weights, ceil_div(BLOCKS, tiles), LEAST, 1);
    return ceil_div(ceil_div(rows, ranges), CONV_BLOCK) * CONV_BLOCK;
}

template <bool WIDE, int BM, int BN, class T>
static err_t weights_launch(weights_args<T> g, int groups, bool fresh, stream *s) {
    const int64_t tiles = ceil_div(g.K, BM) * ceil_div(g.J, BN), weights = (int64_t)groups * g.K * g.J;
    float *dw = g.out;
    g.range = (int)weights_range(g.rows, tiles * groups, weights);
    const int64_t ranges = ceil_div(g.rows, g.range);
    if (ranges > 1) g.out = (float *)s->scratch, g.apart = weights;
    g.add = ranges == 1 && !fresh;
    TRY(conv_fits(tiles, groups, ranges));
    dim3 grid((unsigned)tiles, (unsigned)groups, (unsigned)ranges);
    LAUNCH((conv_weights_kernel<T, WIDE, BM, BN>), grid, CONV_THREADS, 0, s, g);
    return ranges > 1 ? add_parts(dw, NULL, (const float *)s->scratch, ranges, weights, fresh, s) : ERR_OK;
}

// The tile decides the ranges, and so bits: it follows from shape and alignment.
template <class T> static err_t weights_of(const weights_args<T> &g, int groups, bool fresh, stream *s) {
    enum { E = 16 / sizeof(T) };
    const bool wide = ((uintptr_t)g.x | (uintptr_t)g.dy) % 16 == 0 && g.channels % E == 0 && g.K % E == 0;
    if (!wide) return weights_launch<false, 64, 64>(g, groups, fresh, s);
    if constexpr (sizeof(T) == 2)
        if (g.K > 64 && g.J > 64) return weights_launch<true, 128, 128>(g, groups, fresh, s);
    return weights_launch<true, 64, 64>(g, groups, fresh, s);
}

template <class T> static err_t weights_any(const conv_weights_args *args, stream *s) {
    const int64_t *x = args->x->size, *y = args->dy->size, *f = args->dw->size;
    weights_args<T> g = {(float *)args->dw->data,
                         0,
                         (const T *)args->dy->data,
                         (const T *)args->x->data,
                         (int)(y[0] * y[1] * y[2]),
                         0,
                         (int)x[1],
                         (int)x[2],
                         (int)x[3],
                         (int)y[1],
                         (int)y[2],
                         (int)y[3],
                         (int)f[2],
                         (int)f[3],
                         (int)(f[0] / args->groups),
                         (int)(f[1] * f[2] * f[3]),
                         args->stride,
                         args->pad,
                         false};
    TRY(conv_sizes(args->x, args->dy, args->dw));
    if (!g.rows) return args->fresh ? cuda_zero(s, g.out, (size_t)tensor_bytes(args->dw)) : ERR_OK;
    return weights_of(g, args->groups, args->fresh, s);
}

err_t cuda_conv_weights(const conv_weights_args *args, stream *s) {
    conv_check(args->x, args->dy, args->dw, args->stride, args->pad, args->groups);
    assert(args->dw->type == FP32);
    BY_TYPE(args->x->type, T, return weights_any<T>(args, s));
}
