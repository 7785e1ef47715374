// gpu/cuda/attention_past.cu: attention for a text that grows, over keys and values that are kept.
//
// A block has one head of one query. Each of its warps takes every eighth tile of 32 keys, with a running softmax of
// its own; at the end the warps' sums are brought to the largest maximum and added in order of warp. Which warp adds
// what depends on the query's position alone, so a row has the same bits in whatever company it comes. With one query
// there is nothing for tensor cores to do: keys and values are read once, and memory is the bound; the queries of a
// prompt read them again from the L2.
#include "gpu/cuda/kernel.h"

enum { WARPS = 8, HEAD_MOST = 256, KEYS = WARP };

struct past_shape {
    int64_t first;      // position of the first query
    int heads, group;   // query heads; those that share a head of k and v
    int head;           // elements of a head
    int row, past_row;  // elements of a position in qkv, in past
    int64_t window;     // positions that one sees
    float scale;        // 1 / sqrt(elements of a head)
};

// Keys and values of the new positions, to their rows of past. A thread has W elements.
// alias      none
// moves      4 * KV * D * sizeof(E) bytes a position; memory bound
template <class T, int W>
__global__ void __launch_bounds__(256)
    past_keep_kernel(T *__restrict__ past, const T *__restrict__ qkv, int64_t count, const past_shape z) {
    int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i >= count) return;
    const int of_row = z.past_row / W;
    const int64_t row = i / of_row, at = i % of_row * W, from = row * z.row + z.heads * z.head + at,
                  to = (z.first + row) * z.past_row + at;
#pragma unroll
    for (int k = 0; k < W; k++) past[to + k] = qkv[from + k];
}

// What a warp has summed: its maximum, its sum of probabilities, and that of their products with values.
template <int C> struct past_sums { float max, total, y[C]; };

// 32 keys from `key` on: lane l scores key + l, then has columns l, l + 32, ... of the sums.
template <class T, int C, bool PACKED>
__device__ __forceinline__ void past_tile(past_sums<C> &sum, const float *q, const T *keys, const T *values,
                                          int64_t key, int64_t position, const past_shape &z) {
    constexpr int W = 16 / sizeof(T);
    const int lane = threadIdx.x % WARP;
    const int64_t mine = key + lane;
    float score = 0;
    if (mine <= position) {
        const T *row = keys + mine * z.past_row;
        for (int d = 0; d < z.head; d += W) {
            float k[W];
            load_row<PACKED>(k, row, d, z.head);
#pragma unroll
            for (int i = 0; i < W; i++) score = fmaf(q[d + i], k[i], score);
        }
    }
    const bool seen = mine <= position && mine > position - z.window;
    const float x = seen ? score * z.scale : -INFINITY, old = sum.max;
    sum.max = fmaxf(old, warp_max(x));
    const float shrink = expf(old - sum.max), p = expf(x - sum.max);
    sum.total = fmaf(sum.total, shrink, warp_sum(p));
#pragma unroll
    for (int c = 0; c < C; c++) sum.y[c] *= shrink;
    const int count = (int)min((int64_t)KEYS, position - key + 1);
    for (int j = 0; j < count; j++) {
        const float share = __shfl_sync(0xffffffffu, p, j);
        const T *row = values + (key + j) * z.past_row;
#pragma unroll
        for (int c = 0; c < C; c++)
            if (lane + c * WARP < z.head) sum.y[c] = fmaf(share, to_float(row[lane + c * WARP]), sum.y[c]);
    }
}

// attention_past_kernel: a block for each head of each query.
// layout     y (n,HD), past (T,2 KV D): keys, then values; qkv (n,(H+2KV)D)
// alias      none
// sums       FP32: scores along D, y along the keys of a warp's tiles, ascending; row sums by a fixed butterfly for
//            each tile; then warps in order
// repeatable a row is summed by one block, in an order that D and the row's position fix
// moves      2 * D * sizeof(E) bytes for each key that a query sees; memory bound
// reference  gpu/cpu/kernel/attention_past.c
template <class T, int C, bool PACKED>
__global__ void __launch_bounds__(WARPS *WARP, 2) attention_past_kernel(T *__restrict__ y, const T *__restrict__ past,
                                                                        const T *__restrict__ qkv, const past_shape z) {
    K_SMEM(float, q, [C * WARP]);
    K_SMEM(float, max, [WARPS]);
    K_SMEM(float, total, [WARPS]);
    K_SMEM(float, part, [WARPS][C * WARP]);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, head = blockIdx.x % z.heads, kv = head / z.group;
    const int64_t query = blockIdx.x / z.heads, position = z.first + query;
    for (int i = threadIdx.x; i < C * WARP; i += WARPS * WARP)
        q[i] = i < z.head ? to_float(qkv[query * z.row + head * z.head + i]) : 0.0f;
    __syncthreads();
    past_sums<C> sum;
    sum.max = -1e30f, sum.total = 0;
#pragma unroll
    for (int c = 0; c < C; c++) sum.y[c] = 0;
    const T *keys = past + kv * z.head, *values = keys + z.past_row / 2;
    const int64_t begin = position - z.window + 1 > 0 ? (position - z.window + 1) / KEYS * KEYS : 0;
    for (int64_t key = begin + warp * KEYS; key <= position; key += WARPS * KEYS)
        past_tile<T, C, PACKED>(sum, q, keys, values, key, position, z);
    if (lane == 0) max[warp] = sum.max, total[warp] = sum.total;
#pragma unroll
    for (int c = 0; c < C; c++) part[warp][lane + c * WARP] = sum.y[c];
    __syncthreads();
    float most = max[0], all = 0;
    for (int w = 1; w < WARPS; w++) most = fmaxf(most, max[w]);
    for (int w = 0; w < WARPS; w++) all = fmaf(total[w], expf(max[w] - most), all);
    for (int i = threadIdx.x; i < z.head; i += WARPS * WARP) {
        float x = 0;
        for (int w = 0; w < WARPS; w++) x = fmaf(part[w][i], expf(max[w] - most), x);
        round_to(&y[(query * z.heads + head) * z.head + i], x / all);
    }
}

template <class T, int C> static err_t past_launch(const attention_past_args *args, const past_shape *z, stream *s) {
    constexpr int W = 16 / sizeof(T);
    T *past = (T *)args->past->data;
    const T *qkv = (const T *)args->qkv->data;
    const int64_t n = args->qkv->size[0];
    const bool wide = z->head % W == 0 && packs<T>(past, z->past_row) && packs<T>(qkv, z->row);
    const int64_t count = n * z->past_row / (wide ? W : 1);
    if (wide) LAUNCH((past_keep_kernel<T, W>), (unsigned)ceil_div(count, 256), 256, 0, s, past, qkv, count, *z);
    else LAUNCH((past_keep_kernel<T, 1>), (unsigned)ceil_div(count, 256), 256, 0, s, past, qkv, count, *z);
    const unsigned blocks = (unsigned)(n * z->heads);
    if (wide)
        LAUNCH((attention_past_kernel<T, C, true>), blocks, WARPS * WARP, 0, s, (T *)args->y->data, past, qkv, *z);
    else LAUNCH((attention_past_kernel<T, C, false>), blocks, WARPS * WARP, 0, s, (T *)args->y->data, past, qkv, *z);
    return ERR_OK;
}

err_t cuda_attention_past(const attention_past_args *args, stream *s) {
    const int64_t kv = args->kv_heads ? args->kv_heads : args->heads, n = args->qkv->size[0], row = args->qkv->size[1];
    past_shape z = {};
    z.first = args->first, z.heads = args->heads, z.group = (int)(args->heads / kv),
    z.head = (int)(row / (args->heads + 2 * kv));
    z.row = (int)row, z.past_row = (int)args->past->size[1], z.window = args->window ? args->window : args->first + n;
    z.scale = 1.0f / sqrtf((float)z.head);
    assert(args->heads > 0 && args->heads % kv == 0 && args->qkv->dims == 2 && row == (args->heads + 2 * kv) * z.head &&
           z.past_row == 2 * kv * z.head);
    assert(args->first >= 0 && args->window >= 0 && args->past->size[0] >= args->first + n &&
           n * args->heads <= INT32_MAX && row <= INT32_MAX);
    assert(args->y->type == args->qkv->type && args->past->type == args->qkv->type &&
           tensor_count(args->y) == n * args->heads * z.head);
    if (z.head > HEAD_MOST)
        return err_set(ERR_CONFIG, "attention_past: heads of %d channels, expected at most %d on a GPU: use more heads",
                       z.head, HEAD_MOST);
    BY_TYPE(args->qkv->type, T, {
        if (z.head <= 64) return (past_launch<T, 2>(args, &z, s));
        if (z.head <= 128) return (past_launch<T, 4>(args, &z, s));
        return (past_launch<T, 8>(args, &z, s));
    });
}
