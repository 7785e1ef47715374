// gpu/cuda/rotary.cu: rotary position embedding.
#include "gpu/cuda/kernel.h"

enum { BLOCK = 256 };

template <class T> struct rotary_shape {
    T *x;
    const float *table;
    const int32_t *places;  // rows of the table; NULL: positions
    int64_t placed;         // so many of them, again and again
    int64_t pairs;          // of all heads that are turned, in packs of W
    int time, row, head, heads;
    float sign;
};

// A thread turns W pairs of a head.
// alias      in place: a thread has read what it overwrites
// moves      2 * sizeof(E) bytes an element of the heads that are turned; memory bound
// reference  gpu/cpu/kernel/rotary.c, to the bit in FP32
template <class T, int W> __global__ void __launch_bounds__(BLOCK) rotary_kernel(rotary_shape<T> z) {
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i >= z.pairs) return;
    const int half = z.head / 2, packs = half / W, of_row = packs * z.heads;
    const int64_t row = i / of_row;
    const int place = (int)(i % of_row), at = place % packs * W;
    T *x = z.x + row * z.row + place / packs * z.head + at;
    const int64_t turned_by = z.places ? z.places[row % z.placed] : row % z.time;
    const float *angle = z.table + turned_by * z.head + at;
    float a[W], b[W], c[W], s[W];
    load_floats<W>(a, x), load_floats<W>(b, x + half);
    load_floats<W>(c, angle), load_floats<W>(s, angle + half);
#pragma unroll
    for (int k = 0; k < W; k++) {
        const float sine = s[k] * z.sign, turned = fmaf(-b[k], sine, a[k] * c[k]);
        b[k] = fmaf(a[k], sine, b[k] * c[k]);
        a[k] = turned;
    }
    store_floats<W>(x, a), store_floats<W>(x + half, b);
}

template <class T> static err_t rotary(const rotary_args *args, stream *s) {
    constexpr int W = 16 / sizeof(T);
    const int head = (int)args->table->size[1];
    const int64_t rows = args->x->size[0] * args->x->size[1];
    rotary_shape<T> z = {};
    z.x = (T *)args->x->data, z.table = (const float *)args->table->data;
    z.time = (int)args->x->size[1], z.row = (int)args->x->size[2], z.head = head, z.heads = args->heads;
    z.sign = args->back ? -1.0f : 1.0f;
    if (args->places) z.places = (const int32_t *)args->places->data, z.placed = tensor_count(args->places);
    assert(!args->places || (args->places->type == INT32 && rows % z.placed == 0));
    const bool wide = head / 2 % W == 0 && packs<T>(z.x, z.row) && (uintptr_t)z.table % 16 == 0;
    z.pairs = rows * args->heads * (head / 2 / (wide ? W : 1));
    const unsigned blocks = (unsigned)ceil_div(z.pairs, BLOCK);
    if (wide) LAUNCH((rotary_kernel<T, W>), blocks, BLOCK, 0, s, z);
    else LAUNCH((rotary_kernel<T, 1>), blocks, BLOCK, 0, s, z);
    return ERR_OK;
}

err_t cuda_rotary(const rotary_args *args, stream *s) {
    const int64_t head = args->table->size[1];
    assert(args->x->dims == 3 && args->table->dims == 2 && args->table->type == FP32 &&
           args->table->size[0] >= args->x->size[1]);
    assert(head % 2 == 0 && args->x->size[2] % head == 0 && args->heads >= 1 &&
           args->heads * head <= args->x->size[2] && args->x->size[2] <= INT32_MAX);
    BY_TYPE(args->x->type, T, return rotary<T>(args, s));
}
