// gpu/cuda/columns.cu: the operations that are sums over rows and little else: a bias gradient, by itself and together
// with GELU's.
#include "gpu/cuda/columns.h"

err_t cuda_bias_backward(const bias_backward_args *args, stream *s) {
    int64_t slices = matrix_slices(args->dy), width = tensor_count(args->dbias) / slices,
            rows = tensor_count(args->dy) / width / slices;
    assert(args->dbias->type == FP32 && slices * rows * width == tensor_count(args->dy));
    for (int64_t k = 0; k < slices; k++)
        BY_TYPE(args->dy->type, T,
                TRY(bias_of<T>((float *)args->dbias->data + k * width, (const T *)args->dy->data + k * rows * width,
                               rows, width, args->fresh, s)));
    return ERR_OK;
}

// dx = dy * gelu'(x), rounded, and the column sums of that. A thread loads ROWS rows before it stores the first: dx may
// be dy, so the compiler can't move a load over a store. Two of them where single elements and erf need the registers.
// alias      dx == dy allowed
// sums       as columns_kernel
// moves      3 * sizeof(E) bytes an element; memory bound
// reference  gpu/cpu/kernel/gelu.c: gelu_backward
template <class T, bool PACKED, bool ERF>
__global__ void __launch_bounds__(COLUMN_THREADS) gelu_columns_kernel(column_args<T> a, T *dx) {
    constexpr int W = 16 / sizeof(T), ROWS = ERF && !PACKED ? 2 : 4;
    K_SMEM(float, part, [1][W * COLUMN_THREADS]);
    const column_place<T> at = column_place_of(a);
    const int64_t step = blockDim.y;
    float sum[1][W] = {};
    for (int64_t row = at.row; row < at.end; row += ROWS * step) {
        pack<T> d[ROWS], x[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (row + r * step >= at.end) break;
            d[r] = load_pack<PACKED>(a.dy + (row + r * step) * a.width, at.i, a.width);
            x[r] = load_pack<PACKED>(a.x + (row + r * step) * a.width, at.i, a.width);
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (row + r * step >= at.end) break;
            float v[W];
#pragma unroll
            for (int k = 0; k < W; k++) {
                float at = to_float(x[r].v[k]);
                v[k] = rounded<T>(to_float(d[r].v[k]) * (ERF ? gelu_erf_slope(at) : gelu_slope(at)));
                sum[0][k] += v[k];
            }
            store_row<PACKED>(dx + (row + r * step) * a.width, v, at.i, a.width);
        }
    }
    column_finish<1>(a, at, sum, part, false);
}

template <class T, bool ERF>
static err_t gelu_columns(const gelu_backward_args *args, int64_t rows, int64_t width, stream *s) {
    int64_t groups = column_groups(rows, width, 1);
    bool one = groups == 1;
    float *dbias = (float *)args->dbias->data;
    T *dx = (T *)args->dx->data;
    column_args<T> a = {one ? dbias : (float *)s->scratch,
                        NULL,
                        (const T *)args->dy->data,
                        (const T *)args->x->data,
                        NULL,
                        NULL,
                        rows,
                        width,
                        0,
                        0,
                        one,
                        args->fresh};
    dim3 grid, block;
    columns_tile(&a, COLUMN_LANES, groups, 1, &grid, &block);
    if (packs<T>(a.dy, width) && packs<T>(a.x, width) && packs<T>(dx, width))
        LAUNCH((gelu_columns_kernel<T, true, ERF>), grid, block, 0, s, a, dx);
    else LAUNCH((gelu_columns_kernel<T, false, ERF>), grid, block, 0, s, a, dx);
    return one ? ERR_OK : add_parts(dbias, NULL, (const float *)s->scratch, groups, width, args->fresh, s);
}

err_t columns_gelu_backward(const gelu_backward_args *args, stream *s) {
    int64_t width = tensor_count(args->dbias), rows = tensor_count(args->x) / width;
    assert(args->dbias->type == FP32 && rows * width == tensor_count(args->x));
    BY_TYPE(args->x->type, T, {
        if (args->erf) TRY((gelu_columns<T, true>(args, rows, width, s)));
        else TRY((gelu_columns<T, false>(args, rows, width, s)));
    });
    return ERR_OK;
}
