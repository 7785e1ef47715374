// gpu/cuda/interact.cu: dot products of each pair of a sample's vectors, and the gradient that goes back to them.
#include "gpu/cuda/kernel.h"

enum { BLOCK = 128, LANES = 16 };

template <class E> struct vectors {
    const E *x, *rows;
    int F, C;
};

// Element c of vector k of a sample; 0 after the last.
template <class E> __device__ __forceinline__ float element(const vectors<E> &v, int64_t sample, int k, int c) {
    if (c >= v.C) return 0;
    return to_float(k ? v.rows[(sample * v.F + k - 1) * v.C + c] : v.x[sample * v.C + c]);
}

__device__ __forceinline__ int pair(int C, int i, int k) { return C + i * (i - 1) / 2 + k; }

// The vectors i > k of pair number p: p = i (i-1) / 2 + k.
__device__ __forceinline__ int row_of(int p) {
    int i = (int)((1 + sqrtf((float)(8 * p + 1))) / 2);
    while (i * (i - 1) / 2 > p) i--;
    while (i * (i + 1) / 2 <= p) i++;
    return i;
}

// interact_forward_kernel: a block a sample, a thread a pair at a time.
// alias      none
// sums       FP32, 16 interleaved ones and a fixed tree (gpu/ops.h): the same bits as the CPU's
// moves      sizeof(E) bytes an element of x, rows and y; vectors are read again from the cache
// reference  gpu/cpu/kernel/interact.c, to the bit
template <class E>
__global__ void __launch_bounds__(BLOCK) interact_forward_kernel(E *y, const vectors<E> v, int width) {
    int64_t sample = blockIdx.x;
    for (int c = threadIdx.x; c < v.C; c += BLOCK) y[sample * width + c] = v.x[sample * v.C + c];
    for (int p = threadIdx.x; p < width - v.C; p += BLOCK) {
        int i = row_of(p), k = p - i * (i - 1) / 2;
        float lane[LANES] = {0};
        for (int c = 0; c < v.C; c += LANES)
            for (int l = 0; l < LANES; l++)
                lane[l] = fmaf(element(v, sample, i, c + l), element(v, sample, k, c + l), lane[l]);
        for (int half = LANES / 2; half; half /= 2)
            for (int l = 0; l < half; l++) lane[l] += lane[l + half];
        round_to(&y[sample * width + v.C + p], lane[0]);
    }
}

// interact_backward_kernel: a block a sample, a thread an element of a gradient at a time.
// alias      none
// sums       FP32, vectors ascending: the same bits as the CPU's
// moves      sizeof(E) bytes an element of x, rows, dy, dx and drows; vectors and dy are read again from the cache
// reference  gpu/cpu/kernel/interact.c, to the bit
template <class E>
__global__ void __launch_bounds__(BLOCK)
    interact_backward_kernel(E *dx, E *drows, const E *dy, const vectors<E> v, int width) {
    int64_t sample = blockIdx.x;
    const E *d = dy + sample * width;
    for (int at = threadIdx.x; at < (v.F + 1) * v.C; at += BLOCK) {
        int i = at / v.C, c = at % v.C;
        float sum = i ? 0 : to_float(d[c]);
        for (int k = 0; k <= v.F; k++) {
            if (k == i) continue;
            float g = to_float(d[k < i ? pair(v.C, i, k) : pair(v.C, k, i)]);
            sum = fmaf(g, element(v, sample, k, c), sum);
        }
        if (i) round_to(&drows[(sample * v.F + i - 1) * v.C + c], sum);
        else round_to(&dx[sample * v.C + c], sum);
    }
}

static void check_shapes(const tensor *y, const tensor *x, const tensor *rows) {
    assert(x->dims == 2 && rows->dims == 3 && y->dims == 2 && rows->type == x->type && y->type == x->type);
    assert(x->size[0] == rows->size[0] && y->size[0] == rows->size[0] && x->size[1] == rows->size[2]);
    assert(y->size[1] == interact_width(rows->size[2], rows->size[1]) && rows->size[1] <= INTERACT_ROWS);
    (void)y, (void)x, (void)rows;
}

template <class E> static vectors<E> vectors_of(const tensor *x, const tensor *rows) {
    return {(const E *)x->data, (const E *)rows->data, (int)rows->size[1], (int)rows->size[2]};
}

err_t cuda_interact_forward(const interact_forward_args *args, stream *s) {
    check_shapes(args->y, args->x, args->rows);
    BY_TYPE(args->y->type, E,
            LAUNCH((interact_forward_kernel<E>), (unsigned)args->x->size[0], BLOCK, 0, s, (E *)args->y->data,
                   vectors_of<E>(args->x, args->rows), (int)args->y->size[1]));
    return ERR_OK;
}

err_t cuda_interact_backward(const interact_backward_args *args, stream *s) {
    check_shapes(args->dy, args->x, args->rows);
    BY_TYPE(args->dx->type, E,
            LAUNCH((interact_backward_kernel<E>), (unsigned)args->x->size[0], BLOCK, 0, s, (E *)args->dx->data,
                   (E *)args->drows->data, (const E *)args->dy->data, vectors_of<E>(args->x, args->rows),
                   (int)args->dy->size[1]));
    return ERR_OK;
}
