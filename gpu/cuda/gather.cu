// gpu/cuda/gather.cu: some rows of each sample, and the gradient that goes back to them.
#include "gpu/cuda/kernel.h"

enum { BLOCK = 256 };

typedef struct gather_shape {
    const int32_t *at;  // NULL: the first rows
    int T, M, C;
} gather_shape;

__device__ __forceinline__ int row_at(const gather_shape &z, int64_t sample, int m) {
    return z.at ? z.at[sample * z.M + m] : m;
}

// gather_rows_kernel: a block a row of y.
// alias      none
// moves      2 * sizeof(E) bytes an element of y; memory bound
// reference  gpu/cpu/kernel/gather.c, to the bit
template <class E> __global__ void __launch_bounds__(BLOCK) gather_rows_kernel(E *y, const E *x, const gather_shape z) {
    int64_t row = blockIdx.x, sample = row / z.M;
    const E *from = x + (sample * z.T + row_at(z, sample, (int)(row % z.M))) * z.C;
    for (int c = threadIdx.x; c < z.C; c += BLOCK) y[row * z.C + c] = from[c];
}

// scatter_rows_kernel: a block a row of dx; each thread looks through the sample's rows for those that belong there, so
// that no two threads write to one place.
// alias      none
// sums       FP32, m ascending: the same bits as the CPU's
// moves      sizeof(E) bytes an element of dx and of dy; memory bound
// reference  gpu/cpu/kernel/gather.c, to the bit
template <class E>
__global__ void __launch_bounds__(BLOCK) scatter_rows_kernel(E *dx, const E *dy, const gather_shape z) {
    int64_t row = blockIdx.x, sample = row / z.T;
    int t = (int)(row % z.T);
    for (int c = threadIdx.x; c < z.C; c += BLOCK) {
        float sum = 0;
        for (int m = 0; m < z.M; m++)
            if (row_at(z, sample, m) == t) sum += to_float(dy[(sample * z.M + m) * z.C + c]);
        round_to(&dx[row * z.C + c], sum);
    }
}

static gather_shape shape_of(const tensor *all, const tensor *some, const tensor *at) {
    assert(all->dims == 3 && some->dims == 3 && all->type == some->type && all->size[2] == some->size[2]);
    assert(all->size[0] == some->size[0] && (at || some->size[1] <= all->size[1]));
    assert(!at || (at->type == INT32 && tensor_count(at) == some->size[0] * some->size[1]));
    return (gather_shape){at ? (const int32_t *)at->data : NULL, (int)all->size[1], (int)some->size[1],
                          (int)all->size[2]};
}

err_t cuda_gather_rows(const gather_rows_args *args, stream *s) {
    gather_shape z = shape_of(args->x, args->y, args->at);
    BY_TYPE(args->y->type, E,
            LAUNCH((gather_rows_kernel<E>), (unsigned)(args->y->size[0] * z.M), BLOCK, 0, s, (E *)args->y->data,
                   (const E *)args->x->data, z));
    return ERR_OK;
}

err_t cuda_scatter_rows(const scatter_rows_args *args, stream *s) {
    gather_shape z = shape_of(args->dx, args->dy, args->at);
    BY_TYPE(args->dx->type, E,
            LAUNCH((scatter_rows_kernel<E>), (unsigned)(args->dx->size[0] * z.T), BLOCK, 0, s, (E *)args->dx->data,
                   (const E *)args->dy->data, z));
    return ERR_OK;
}
