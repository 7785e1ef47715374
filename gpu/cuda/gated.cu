// gpu/cuda/gated.cu: a linear layer that a second one gates (Shazeer 2020), by SiLU or by GELU.
#include "gpu/cuda/kernel.h"

enum { BLOCK = 256 };

template <class T> struct gated_shape {
    T *out;
    const T *dy, *x;
    int64_t count, width;  // packs of W; F
};

struct silu_gate {
    static __device__ __forceinline__ float of(float x) { return x / (1.0f + expf(-x)); }
    // s + x (e s) s with e = e^-x, s = 1 / (1 + e): see gpu/cpu/kernel/vmath.h
    static __device__ __forceinline__ float slope(float x) {
        x = x < -80.0f ? -80.0f : x > 200.0f ? 200.0f : x;
        float e = expf(-x), s = 1.0f / (1.0f + e);
        return fmaf(x * (e * s), s, s);
    }
};

struct gelu_gate {
    static __device__ __forceinline__ float of(float x) { return gelu(x); }
    static __device__ __forceinline__ float slope(float x) { return gelu_slope(x); }
};

// A thread has W columns of a row, of both halves.
// alias      backward: dx == x allowed
// moves      forward 3, backward 5 * sizeof(E) bytes an element of y; memory bound
// reference  gpu/cpu/kernel/gated.c
template <class GATE, class T, int W, bool BACK>
__global__ void __launch_bounds__(BLOCK) gated_kernel(gated_shape<T> z) {
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i >= z.count) return;
    const int64_t across = z.width / W, row = i / across, at = i % across * W, pair = row * 2 * z.width + at;
    float g[W], u[W], d[W];
    load_floats<W>(g, z.x + pair), load_floats<W>(u, z.x + pair + z.width);
    if (BACK) load_floats<W>(d, z.dy + row * z.width + at);
#pragma unroll
    for (int k = 0; k < W; k++) {
        if (!BACK) g[k] = GATE::of(g[k]) * u[k];
        else {
            float slope = GATE::slope(g[k]);
            u[k] = d[k] * u[k] * slope;
            g[k] = d[k] * GATE::of(g[k]);
        }
    }
    if (!BACK) store_floats<W>(z.out + row * z.width + at, g);
    else store_floats<W>(z.out + pair, u), store_floats<W>(z.out + pair + z.width, g);
}

template <class GATE, class T, bool BACK> static err_t gated(gated_shape<T> z, int64_t rows, stream *s) {
    constexpr int W = 16 / sizeof(T);
    const bool wide = packs<T>(z.x, z.width) && packs<T>(z.out, z.width) && (!BACK || packs<T>(z.dy, z.width));
    z.count = rows * (z.width / (wide ? W : 1));
    const unsigned blocks = (unsigned)ceil_div(z.count, BLOCK);
    if (wide) LAUNCH((gated_kernel<GATE, T, W, BACK>), blocks, BLOCK, 0, s, z);
    else LAUNCH((gated_kernel<GATE, T, 1, BACK>), blocks, BLOCK, 0, s, z);
    return ERR_OK;
}

template <class GATE> static err_t forward(const gated_forward_args *args, stream *s) {
    assert(args->y->type == args->x->type && args->y->dims == 2 && tensor_count(args->x) == 2 * tensor_count(args->y));
    BY_TYPE(args->x->type, T, {
        gated_shape<T> z = {(T *)args->y->data, NULL, (const T *)args->x->data, 0, args->y->size[1]};
        return (gated<GATE, T, false>(z, args->y->size[0], s));
    });
}

template <class GATE> static err_t backward(const gated_backward_args *args, stream *s) {
    assert(args->dx->type == args->x->type && args->dy->type == args->x->type && args->dy->dims == 2);
    assert(tensor_count(args->x) == 2 * tensor_count(args->dy) && tensor_count(args->dx) == tensor_count(args->x));
    BY_TYPE(args->x->type, T, {
        gated_shape<T> z = {(T *)args->dx->data, (const T *)args->dy->data, (const T *)args->x->data, 0,
                            args->dy->size[1]};
        return (gated<GATE, T, true>(z, args->dy->size[0], s));
    });
}

err_t cuda_swiglu_forward(const swiglu_forward_args *args, stream *s) { return forward<silu_gate>(args, s); }
err_t cuda_swiglu_backward(const swiglu_backward_args *args, stream *s) { return backward<silu_gate>(args, s); }
err_t cuda_geglu_forward(const geglu_forward_args *args, stream *s) { return forward<gelu_gate>(args, s); }
err_t cuda_geglu_backward(const geglu_backward_args *args, stream *s) { return backward<gelu_gate>(args, s); }
