// gpu/cuda/conv.cu: convolution forward, and the gradient of its inputs, which is a convolution of dy by the filters
// turned round: one kernel (conv.h has the idea). With a stride s the inputs are s x s classes of pixels, each with
// taps of its own: blockIdx.z.
#include "gpu/cuda/conv.h"

#include "gpu/conv_check.h"

#include <inttypes.h>

// x (N,H,W,pixel) is read, y (N,P,Q,out) written; of inputs x is dy, and y is dx. w (filters,R,S,channels).
template <class T> struct conv_args {
    T *y;
    const T *x, *w, *residual;
    int N, H, W, pixel, P, Q, out, R, S, channels;
    int depth, columns;  // channels of a group of x, and of y
    int stride, pad;
};

// What a block computes: rows x columns of the results of group blockIdx.y. Of inputs those of a class, whose pixels
// first, first + step, ... are P x Q; their taps are R x S, of which the first is last_r, last_s of w.
struct conv_part {
    int P, Q, R, S, pad_h, pad_w, first_h, first_w, last_r, last_s, rows, count;
};

// An axis of a class (gpu/cpu/kernel/conv.c: class_of).
__device__ __forceinline__ void conv_axis(int first, int pixels, int taps, int stride, int pad, int *count, int *of,
                                          int *last, int *before) {
    const int tap = (first + pad) % stride;
    *count = first < pixels ? (pixels - 1 - first) / stride + 1 : 0, *of = 0, *last = 0, *before = 0;
    if (tap >= taps) return;
    *of = (taps - 1 - tap) / stride + 1;
    *last = tap + (*of - 1) * stride;
    *before = (*last - first - pad) / stride;
}

template <bool TURNED, class T> __device__ __forceinline__ conv_part conv_part_of(const conv_args<T> &g) {
    conv_part c = {g.P, g.Q, g.R, g.S, g.pad, g.pad, 0, 0, 0, 0, 0, 0};
    if (TURNED) {
        c.first_h = blockIdx.z / g.stride, c.first_w = blockIdx.z % g.stride;
        conv_axis(c.first_h, g.P, g.R, g.stride, g.pad, &c.P, &c.R, &c.last_r, &c.pad_h);
        conv_axis(c.first_w, g.Q, g.S, g.stride, g.pad, &c.Q, &c.S, &c.last_s, &c.pad_w);
        // steps go through digits, which need a size
        if (c.R == 0 || c.S == 0) c.R = 0, c.S = 1;
    }
    c.rows = g.N * c.P * c.Q, c.count = c.R * c.S * g.depth;
    return c;
}

// Tiles (BM, CONV_DEPTH) of what results are made of: of each its taps, of each tap the channels of a group.
template <class T, bool WIDE, int BM> struct conv_pixels {
    typedef conv_tile<T, true, BM> tile;
    const conv_args<T> &g;
    const T *image[tile::COPIES];          // of each row: its image's first channel of the group
    int h[tile::COPIES], w[tile::COPIES];  // and tap (0,0); of none it is outside of every image
    conv_radix radix;
    conv_digits at;  // channel, tap
    int left;

    __device__ __forceinline__ conv_pixels(const conv_args<T> &args, const conv_part &c, int stride, int first)
        : g(args), radix(conv_radix_of(args.depth, c.S)) {
#pragma unroll
        for (int i = 0; i < tile::COPIES; i++) {
            const int m = first + tile::row(i), q = m % c.Q, p = m / c.Q % c.P, n = m / c.Q / c.P;
            const bool there = m < c.rows;
            image[i] = g.x + (int64_t)(there ? n : 0) * g.H * g.W * g.pixel + blockIdx.y * g.depth;
            h[i] = there ? p * stride - c.pad_h : INT32_MIN / 2, w[i] = q * stride - c.pad_w;
        }
        at = conv_digits_of(tile::chunk() * tile::E, radix.low, radix.mid);
        left = c.count - tile::chunk() * tile::E;
    }
    __device__ __forceinline__ bool inside(int i, const conv_digits &of) const {
        return (unsigned)(h[i] + of.high) < (unsigned)g.H && (unsigned)(w[i] + of.mid) < (unsigned)g.W;
    }
    __device__ __forceinline__ const T *tap(int i, const conv_digits &of) const {
        return image[i] + (((h[i] + of.high) * g.W + w[i] + of.mid) * g.pixel + of.low);
    }
    __device__ __forceinline__ void load(T *to) {
#pragma unroll
        for (int i = 0; i < tile::COPIES; i++) {
            if constexpr (WIDE) {
                const bool there = left > 0 && inside(i, at);
                dev_cp_async16(to + tile::place(i), there ? tap(i, at) : g.x, there ? 16 : 0);
            } else {
                conv_digits of = at;
                conv_gather(to + tile::place(i), [&](int e) {
                    T v = e < left && inside(i, of) ? *tap(i, of) : conv_zero<T>();
                    conv_add_digits(&of, radix, {1, 0, 0});
                    return v;
                });
            }
        }
        conv_add_digits(&at, radix, radix.step), left -= CONV_DEPTH;
    }
};

// Tiles of the filters of a group: of forward a row of them is a filter, ...
template <class T, bool WIDE, int BN> struct conv_filters {
    typedef conv_tile<T, true, BN> tile;
    const T *w, *from;
    int count, at, columns;

    __device__ __forceinline__ conv_filters(const conv_args<T> &g, const conv_part &c, int first)
        : w(g.w), count(c.count), at(tile::chunk() * tile::E), columns(g.columns - first) {
        from = w + (int64_t)(blockIdx.y * g.columns + first) * count;
    }
    __device__ __forceinline__ void load(T *to) {
#pragma unroll
        for (int i = 0; i < tile::COPIES; i++) {
            const int row = tile::row(i);
            const T *p = from + ((int64_t)row * count + at);
            if constexpr (WIDE) {
                const bool there = row < columns && at < count;
                dev_cp_async16(to + tile::place(i), there ? p : w, there ? 16 : 0);
            } else
                conv_gather(to + tile::place(i),
                            [&](int e) { return row < columns && at + e < count ? p[e] : conv_zero<T>(); });
        }
        at += CONV_DEPTH;
    }
};

// ... of inputs the channels of a tap of a filter lie together, in the order of columns.
template <class T, bool WIDE, int BN> struct conv_turned {
    typedef conv_tile<T, false, BN> tile;
    const conv_args<T> &g;
    conv_radix radix;
    conv_digits at[tile::COPIES];  // filter, tap
    int last_r, last_s, column, left;

    __device__ __forceinline__ conv_turned(const conv_args<T> &args, const conv_part &c, int first)
        : g(args), radix(conv_radix_of(args.depth, c.S)), last_r(c.last_r), last_s(c.last_s),
          column(first + tile::chunk() * tile::E), left(c.count) {
#pragma unroll
        for (int i = 0; i < tile::COPIES; i++) at[i] = conv_digits_of(tile::row(i), radix.low, radix.mid);
    }
    __device__ __forceinline__ void load(T *to) {
#pragma unroll
        for (int i = 0; i < tile::COPIES; i++) {
            const int filter = blockIdx.y * g.depth + at[i].low, r = last_r - at[i].high * g.stride,
                      s = last_s - at[i].mid * g.stride;
            const T *p = g.w + (((int64_t)(filter * g.R + r) * g.S + s) * g.channels + column);
            const bool there = tile::row(i) < left;
            if constexpr (WIDE) {
                const bool all = there && column < g.columns;
                dev_cp_async16(to + tile::place(i), all ? p : g.w, all ? 16 : 0);
            } else
                conv_gather(to + tile::place(i),
                            [&](int e) { return there && column + e < g.columns ? p[e] : conv_zero<T>(); });
            conv_add_digits(&at[i], radix, radix.step);
        }
        left -= CONV_DEPTH;
    }
};

// Two neighbours of a row of results.
template <bool WIDE, class T>
__device__ __forceinline__ void conv_store(T *y, const T *residual, const float *sum, bool two) {
    float v[2] = {sum[0], two ? sum[1] : 0.0f};
    if (residual) {
        v[0] += to_float(residual[0]);
        if (two) v[1] += to_float(residual[1]);
    }
    if constexpr (WIDE && sizeof(T) == 2) *reinterpret_cast<uint32_t *>(y) = rounded_word(y, v);
    else {
        round_to(&y[0], v[0]);
        if (two) round_to(&y[1], v[1]);
    }
}

// conv_forward, and with TURNED conv_inputs: a block has BM results of BN channels. WIDE: channels come in whole chunks
// of 16 bytes. Any size, stride, padding and number of groups.
// layout     images (N,H,W,C), filters (K,R,S,C/G)
// alias      y == residual allowed: a thread has read what it overwrites
// sums       FP32, in the order of gpu/ops.h: on tensor cores 16 at a time; of FP32 operands the CPU's bits
// repeatable an element's sum is one thread's or one warp's, whatever the tile and the number of images
// flops      2 * N*P*Q * K * R*S * C/G; of inputs the same, of each class its own taps
// moves      each tile of results reads its filters and, mostly from L2, a pixel once a tap
// reference  gpu/cpu/kernel/conv.c
template <class T, bool TURNED, bool WIDE, int BM, int BN>
__global__ void __launch_bounds__(CONV_THREADS) conv_kernel(conv_args<T> g) {
    const int across = (g.columns + BN - 1) / BN, left = blockIdx.x % across * BN;
    const conv_part c = conv_part_of<TURNED>(g);
    const int64_t first = (int64_t)(blockIdx.x / across) * BM;
    if (first >= c.rows) return;  // a class of fewer pixels than the largest
    const int top = (int)first;
    conv_sums<T, true, !TURNED, BM, BN> sums;
    conv_pixels<T, WIDE, BM> a(g, c, TURNED ? 1 : g.stride, top);
    if constexpr (TURNED) {
        conv_turned<T, WIDE, BN> b(g, c, left);
        conv_loop<T>(&sums, c.count, &a, &b);
    } else {
        conv_filters<T, WIDE, BN> b(g, c, left);
        conv_loop<T>(&sums, c.count, &a, &b);
    }
#pragma unroll
    for (int i = 0; i < sums.PAIRS; i++) {
        const int row = top + sums.row_of(i), column = left + sums.column_of(i);
        if (row >= c.rows || column >= g.columns) continue;
        int64_t pixel = row;
        if (TURNED && g.stride > 1) {
            const int q = row % c.Q, p = row / c.Q % c.P, n = row / c.Q / c.P;
            pixel = ((int64_t)n * g.P + c.first_h + p * g.stride) * g.Q + c.first_w + q * g.stride;
        }
        const int64_t at = pixel * g.out + blockIdx.y * g.columns + column;
        conv_store<WIDE>(g.y + at, g.residual ? g.residual + at : nullptr, sums.pair(i), column + 1 < g.columns);
    }
}

template <bool TURNED, bool WIDE, int BM, int BN, class T>
static err_t conv_launch(const conv_args<T> &g, int groups, stream *s) {
    // the class of pixel 0 has no fewer pixels than any other
    const int step = TURNED ? g.stride : 1;
    const int64_t rows = (int64_t)g.N * ceil_div(g.P, step) * ceil_div(g.Q, step),
                  blocks = ceil_div(rows, BM) * ceil_div(g.columns, BN);
    dim3 grid((unsigned)blocks, (unsigned)groups, (unsigned)(step * step));
    TRY(conv_fits(blocks, groups, (int64_t)step * step));
    LAUNCH((conv_kernel<T, TURNED, WIDE, BM, BN>), grid, CONV_THREADS, 0, s, g);
    return ERR_OK;
}

// Channels that are not in whole chunks, and alignments that models don't have, are for one small tile.
template <bool TURNED, class T> static err_t conv_of(const conv_args<T> &g, int groups, stream *s) {
    enum { E = 16 / sizeof(T) };
    const bool wide = ((uintptr_t)g.x | (uintptr_t)g.w | (uintptr_t)g.y) % 16 == 0 && g.depth % E == 0 &&
                      g.columns % (TURNED ? E : 2) == 0;
    const int64_t rows = (int64_t)g.N * g.P * g.Q;
    if (!wide) return conv_launch<TURNED, false, 64, 64>(g, groups, s);
    if constexpr (sizeof(T) == 2)
        if (conv_large(rows, g.columns, groups)) return conv_launch<TURNED, true, 128, 128>(g, groups, s);
    if (rows > CONV_FEW) return conv_launch<TURNED, true, 128, 64>(g, groups, s);
    return conv_launch<TURNED, true, 64, 64>(g, groups, s);
}

template <bool TURNED, class T>
static err_t conv_any(tensor *y, const tensor *x, const tensor *w, const tensor *residual, int stride, int pad,
                      int groups, stream *s) {
    const int64_t *f = w->size, channels = TURNED ? f[0] : x->size[3];
    conv_args<T> g = {(T *)y->data,
                      (const T *)x->data,
                      (const T *)w->data,
                      residual ? (const T *)residual->data : NULL,
                      (int)x->size[0],
                      (int)x->size[1],
                      (int)x->size[2],
                      (int)channels,
                      (int)y->size[1],
                      (int)y->size[2],
                      (int)y->size[3],
                      (int)f[1],
                      (int)f[2],
                      (int)f[3],
                      (int)(channels / groups),
                      (int)(y->size[3] / groups),
                      stride,
                      pad};
    TRY(conv_sizes(x, y, w));
    return tensor_count(y) ? conv_of<TURNED>(g, groups, s) : ERR_OK;
}

err_t cuda_conv_forward(const conv_forward_args *args, stream *s) {
    conv_check(args->x, args->y, args->w, args->stride, args->pad, args->groups);
    conv_check_residual(args->residual, args->y);
    BY_TYPE(args->y->type, T,
            return (conv_any<false, T>(args->y, args->x, args->w, args->residual, args->stride, args->pad, args->groups,
                                       s)));
}

err_t cuda_conv_inputs(const conv_inputs_args *args, stream *s) {
    conv_check(args->dx, args->dy, args->w, args->stride, args->pad, args->groups);
    conv_check_residual(args->residual, args->dx);
    BY_TYPE(args->dx->type, T,
            return (conv_any<true, T>(args->dx, args->dy, args->w, args->residual, args->stride, args->pad,
                                      args->groups, s)));
}
