// gpu/cuda/attention_forward.cu: attention, forward: FP16 and BF16 on tensor cores; FP32 is in
// attention_fp32.cu.
#include "gpu/cuda/attention.h"

// One tile's scores of a warp become probabilities relative to the row's maximum so far, and are added to the running
// sums. What was summed with the old maximum must be multiplied by shrink (Milakov & Gimelshein 2018). max is of
// unscaled scores; c turns them into powers of 2. A row that sees no key of the tile keeps its maximum, ATT_NO_SCORE at
// first. seen: positions that each of the lane's rows sees, itself included. length: of a sample all of whose positions
// are seen; 0: it is causal.
template <int N, bool WINDOW>
__device__ __forceinline__ void softmax_tile(float (&s)[N / 8][4], float (&max)[2], float (&sum)[2], float (&shrink)[2],
                                             int row, int key, float c, const int (&seen)[2], int length) {
    int lane = threadIdx.x % WARP;
    if (WINDOW && length) {
        if (key + N > length) {
#pragma unroll
            for (int n = 0; n < N / 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (key + n * 8 + lane % 4 * 2 + i % 2 >= length) s[n][i] = -INFINITY;
        }
    } else if (WINDOW) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int hidden = row + lane / 4 + h * 8 - seen[h];  // the last key that the row does not see, before it
            if (hidden < key) continue;
#pragma unroll
            for (int n = 0; n < N / 8; n++)
#pragma unroll
                for (int i = 2 * h; i < 2 * h + 2; i++)
                    if (key + n * 8 + lane % 4 * 2 + i % 2 <= hidden) s[n][i] = -INFINITY;
        }
    }
    if (!(WINDOW && length) &&
        key + N - 1 > row) {  // the row that the warp begins with does not see the tile's last key
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (key + n * 8 + lane % 4 * 2 + i % 2 > row + lane / 4 + i / 2 * 8) s[n][i] = -INFINITY;
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float old = max[h], part = 0;
#pragma unroll
        for (int n = 0; n < N / 8; n++) max[h] = fmaxf(max[h], fmaxf(s[n][2 * h], s[n][2 * h + 1]));
        max[h] = fmaxf(max[h], __shfl_xor_sync(0xffffffffu, max[h], 1));
        max[h] = fmaxf(max[h], __shfl_xor_sync(0xffffffffu, max[h], 2));
        shrink[h] = dev_ex2((old - max[h]) * c);
        float base = -max[h] * c;
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int i = 2 * h; i < 2 * h + 2; i++) part += s[n][i] = dev_ex2(fmaf(s[n][i], c, base));
        sum[h] = fmaf(sum[h], shrink[h], part);
    }
}

// Applies dropout to one tile of probabilities.
template <int N>
__device__ __forceinline__ void drop_keys(float (&s)[N / 8][4], const uint8_t *keep, const attention_shape &z,
                                          const att_place &at, int row, int key) {
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int r = row + lane / 4 + h * 8;
        int64_t element = att_element(z, att_number(z, at.sample, at.head), at.first + r, key);
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (!keep_has<N>(keep, r, n * 8 + lane % 4 * 2 + i, element)) s[n][2 * h + i] = 0;
    }
}

// attention_forward_kernel: a block for each 64 queries of a head of a sample; keys and values pass in tiles of N.
// layout     qkv (B,T,(H+2KV)D), y (B,T,HD), lse (B,H,T)
// alias      none
// sums       FP32: scores along D and y along keys on tensor cores, keys ascending; row sums by lane, then a fixed
//            shuffle tree. Probabilities are rounded to E before they meet v
// repeatable a row is summed by one warp, in an order that D and the row's place fix
// flops      2 * T * (T+1) * D for each head, twice that in 1024 x 1024 tiles; bound by tensor cores from D = 64 on
// reference  gpu/cpu/kernel/attention.c; Dao et al. 2022, algorithm 1; Dao 2023, algorithm 1
template <class T, int W, int N, att_variant V>
__global__ void __launch_bounds__(ATT_THREADS)
    attention_forward_kernel(T *__restrict__ y, float *__restrict__ lse, const T *__restrict__ qkv,
                             const attention_shape z) {
    K_DYN_SMEM(T, room);
    T *q = room, *k = q + ATT_OWN * W, *v = k + 2 * N * W;
    uint8_t *keep = reinterpret_cast<uint8_t *>(v + 2 * N * W);
    const att_place at = att_place_of(z, z.heads, ATT_OWN, true);
    const int lane = threadIdx.x % WARP, row = threadIdx.x / WARP * 16;
    const int length = V != ATT_PLAIN && z.all ? att_length(z, at.sample) : 0;
    const int tiles = ((length ? length : min(at.first + ATT_OWN, z.time)) + N - 1) / N;
    const int stride = z.row, begin = V == ATT_PLAIN || length ? 0 : att_begin(z, at.sample, at.first) / N,
              kv = at.head / z.group;
    const T *keys = qkv + att_k(z, at.sample, begin * N, kv), *values = keys + z.apart;
    const float c = z.scale * 1.4426950408889634f;  // log2(e)

    const bool drop = V != ATT_PLAIN && z.drop;
    int seen[2] = {z.window, z.window};
    if (V != ATT_PLAIN)
        for (int h = 0; h < 2; h++) seen[h] = att_seen(z, at.sample, at.first + row + lane / 4 + h * 8);
    tile_source<T, W, ATT_OWN, V> from_q(qkv + att_q(z, at.sample, at.first, at.head), stride, z);
    tile_source<T, W, N, V> from_k(keys, stride, z), from_v(values, stride, z);
    own_rows<T, W, W == 64> own;

    from_q.load(q, z.time - at.first, stride, qkv, z);
    from_k.load(k + begin % 2 * N * W, z.time - begin * N, stride, qkv, z);
    from_v.load(v + begin % 2 * N * W, z.time - begin * N, stride, qkv, z);
    dev_cp_async_commit();
    float sum[W / 8][4] = {}, max[2] = {ATT_NO_SCORE, ATT_NO_SCORE}, total[2] = {0, 0}, shrink[2];
    for (int j = begin; j < tiles; j++) {
        int key = j * N, next = key + N;
        if (j + 1 < tiles) {
            from_k.load(k + (j + 1) % 2 * N * W, z.time - next, stride, qkv, z);
            from_v.load(v + (j + 1) % 2 * N * W, z.time - next, stride, qkv, z);
        }
        dev_cp_async_commit();
        if (drop) keep_draw<ATT_OWN, N>(keep, z, at.sample, at.head, at.first, key);
        dev_cp_async_wait<1>();
        __syncthreads();
        if (j == begin) own.open(q, row);
        float s[N / 8][4];
        scores_of<T, W, N>(s, own, row, k + j % 2 * N * W);
        softmax_tile<N, V != ATT_PLAIN>(s, max, total, shrink, at.first + row, key, c, seen, length);
        if (drop) drop_keys<N>(s, keep, z, at, row, key);
        if (__any_sync(0xffffffffu, shrink[0] != 1.0f ||
                                        shrink[1] != 1.0f)) {  // most tiles leave all maxima: times one changes no bit
#pragma unroll
            for (int n = 0; n < W / 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) sum[n][i] *= shrink[i / 2];
        }
        add_product<T, W, N, W>(sum, s, v + j % 2 * N * W, 0);
        __syncthreads();  // the tile after next is loaded into this one's memory
    }
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        total[h] += __shfl_xor_sync(0xffffffffu, total[h], 1);
        total[h] += __shfl_xor_sync(0xffffffffu, total[h], 2);
        factor[h] = z.stays / total[h];
        int t = at.first + row + lane / 4 + h * 8;
        if (lane % 4 == 0 && t < z.time) lse[att_stat(z, at.sample, t, at.head)] = max[h] * z.scale + logf(total[h]);
    }
    rows_store<T, W, W>(y + att_y(z, at.sample, at.first, at.head), z.channels, z.time - at.first, sum, factor, q, row,
                        0, z);
}

template <class T, int W, att_variant V>
static err_t forward_launch(tensor *y, tensor *lse, const tensor *qkv, const attention_shape *z, stream *s) {
    enum { N = 4096 / W, ROOM = (ATT_OWN + 4 * N) * W * (int)sizeof(T) + ATT_OWN * keep_row<N>::BYTES };
    CUDA(cudaFuncSetAttribute((const void *)attention_forward_kernel<T, W, N, V>,
                              cudaFuncAttributeMaxDynamicSharedMemorySize, ROOM));
    LAUNCH((attention_forward_kernel<T, W, N, V>), attention_blocks(qkv, z, z->heads, ATT_OWN), ATT_THREADS, ROOM, s,
           (T *)y->data, (float *)lse->data, (const T *)qkv->data, *z);
    return ERR_OK;
}

err_t cuda_attention_forward(const attention_forward_args *args, stream *s) {
    attention_shape z = attention_shape_of(args->qkv, args->heads, args->kv_heads, args->window, args->drop,
                                           args->samples, args->first_head);
    assert(args->y->type == args->qkv->type && tensor_count(args->y) == args->qkv->size[0] * z.time * z.channels);
    assert(args->lse->type == FP32 && tensor_count(args->lse) == args->qkv->size[0] * args->heads * z.time);
    attention_sees_all(&z, args->qkv, args->all, args->lengths);
    attention_sees_documents(&z, args->qkv, args->places);
    TRY(attention_fits(&z, "attention_forward"));
    z.wide = z.wide && (uintptr_t)args->y->data % 16 == 0;
    if (args->qkv->type == FP32) return attention_forward_fp32(args->y, args->lse, args->qkv, &z, s);
    bool plain = attention_is_plain(&z);
    if (args->qkv->type == BF16)
        ATT_BY_SHAPE(z, plain, W, V, return (forward_launch<bf16, W, V>(args->y, args->lse, args->qkv, &z, s)));
    else ATT_BY_SHAPE(z, plain, W, V, return (forward_launch<fp16, W, V>(args->y, args->lse, args->qkv, &z, s)));
}
