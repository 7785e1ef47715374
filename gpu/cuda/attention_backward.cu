// gpu/cuda/attention_backward.cu: attention, backward: FP16 and BF16 on tensor cores; FP32 is in
// attention_fp32.cu.
//
// Three kernels: delta; dk and dv, a block for each tile of keys; dq, a block for each tile of queries. The last two
// make the probabilities twice (7 products, where atomic additions to dq would need 5); in return every sum is made by
// one block, in a fixed order. They are one template:
//     KEYS   owns k and v, queries pass      s = k q^T, dp = v dy^T (transposed)     dk += ds q, dv += p dy
//     else   owns q and dy, keys pass        s = q k^T, dp = dy v^T                  dq += ds k
#include "gpu/cuda/attention.h"

// attention_delta_kernel: delta (B,H,T) = row sums of dy * y over D: what the softmax's gradient subtracts. Eight lanes
// a row of (B,T,H,D).
// alias      none
// sums       FP32: chunks of 8 channels by turns to the eight lanes, then a fixed shuffle tree
// moves      2 * B*T*C * sizeof(E) bytes; memory bound
// reference  gpu/cpu/kernel/attention.c:delta_rows; Dao et al. 2022, algorithm 4, line 19 (there D_i)
template <class T>
__global__ void __launch_bounds__(256)
    attention_delta_kernel(float *__restrict__ delta, const T *__restrict__ dy, const T *__restrict__ y, int blocks,
                           const attention_shape z) {
    const int sample = blockIdx.x / blocks;
    // of the sample
    const int row = blockIdx.x % blocks * 32 + threadIdx.x / 8, head = row % z.heads, t = row / z.heads;
    // all lanes take part in the shuffles
    const bool there = t < z.time;
    const int64_t from = there ? att_y(z, sample, t, head) : 0;
    const T *a = dy + from, *b = y + from;
    float sum = 0;
#pragma unroll 1
    for (int at = threadIdx.x % 8 * 8; at < z.head; at += 64) {
        if (z.wide) {
            pack<T> u[sizeof(T) / 2], v[sizeof(T) / 2];
#pragma unroll
            for (int i = 0; i < (int)sizeof(T) / 2; i++) {
                u[i] = reinterpret_cast<const pack<T> *>(a + at)[i],
                v[i] = reinterpret_cast<const pack<T> *>(b + at)[i];
#pragma unroll
                for (int e = 0; e < 16 / (int)sizeof(T); e++) sum = fmaf(to_float(u[i].v[e]), to_float(v[i].v[e]), sum);
            }
        } else {
            for (int e = at; e < min(at + 8, z.head); e++) sum = fmaf(to_float(a[e]), to_float(b[e]), sum);
        }
    }
#pragma unroll
    for (int step = 4; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (!there || threadIdx.x % 8) return;
    delta[att_stat(z, sample, t, head)] = sum;
}

// Scores and their gradient, 16 x M of a tile's N columns from `left` on, become p and ds = p (dp - delta). lse and
// delta are, for each row the lane holds, or with KEYS for each column of the tile, lse in powers of two and delta. own
// and other are the first row and column in time.
template <bool KEYS, int N, int M>
__device__ __forceinline__ void gradient_of_scores(float (&s)[M / 8][4], float (&dp)[M / 8][4], const float *lse,
                                                   const float *delta, const uint8_t *keep, bool drop, int row,
                                                   int left, int own, int other, int head, const attention_shape &z) {
    const int lane = threadIdx.x % WARP;
    const float c = z.scale * 1.4426950408889634f;  // log2(e)
#pragma unroll
    for (int n = 0; n < M / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int r = row + lane / 4 + i / 2 * 8, col = left + n * 8 + lane % 4 * 2 + i % 2, stat = KEYS ? col : i / 2;
            float p = dev_ex2(fmaf(s[n][i], c, -lse[stat])), g = dp[n][i];
            s[n][i] = p;
            if (drop) {
                int query = KEYS ? other + col : own + r;
                bool stays = KEYS ? keep_has<ATT_OWN>(keep, col, r, att_element(z, head, query, own))
                                  : keep_has<N>(keep, r, col, att_element(z, head, query, other));
                s[n][i] = stays ? p : 0.0f, g = stays ? g * z.stays : 0.0f;
            }
            dp[n][i] = p * (g - delta[stat]);
        }
}

// Pairs of a query with a key that it does not see, and rows past the end, count for nothing, whatever was computed of
// them. row and column: the first in time.
template <bool KEYS, bool WINDOW, int M>
__device__ __forceinline__ void mask_pairs(float (&s)[M / 8][4], float (&dp)[M / 8][4], int row, int column, int sample,
                                           int length, const attention_shape &z) {
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int n = 0; n < M / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int r = row + lane / 4 + i / 2 * 8, col = column + n * 8 + lane % 4 * 2 + i % 2, query = KEYS ? col : r,
                key = KEYS ? r : col;
            bool hidden =
                WINDOW && z.all ? key >= length : key > query || (WINDOW && key + att_seen(z, sample, query) <= query);
            if (hidden || query >= z.time) s[n][i] = dp[n][i] = 0;
        }
}

// attention_backward_kernel: see the head of the file; a block for each 64 rows of a head of a sample and each A of its
// W columns. With KEYS the head is one of k and v, and the query heads that share it pass one after the other.
// layout     qkv, dqkv (B,T,(H+2KV)D), dy (B,T,HD), lse, delta (B,H,T); dqkv (=)
// alias      none
// sums       FP32 on tensor cores: scores along D; dk and dv along query heads and queries, dq along keys, ascending. p
//            and ds are rounded to E before they meet dy, q or k; dk and dq are multiplied by 1/sqrt(D) at the end
// repeatable a row is summed by one warp, in an order that D and the row's place fix
// flops      KEYS: 4 * T * (T+1) * D for each head, else 3; bound by tensor cores from D = 64 on. With A < W the scores
//            are made W / A times
// reference  gpu/cpu/kernel/attention.c; Dao et al. 2022, algorithm 4; Dao 2023, algorithm 2
template <class T, int W, int N, int A, bool KEYS, att_variant V>
__global__ void __launch_bounds__(ATT_THREADS, W == 64 && V == ATT_PLAIN ? 3 : 1)
    attention_backward_kernel(T *__restrict__ dqkv, const T *__restrict__ dy, const float *__restrict__ lse,
                              const float *__restrict__ delta, const T *__restrict__ qkv, const attention_shape z) {
    // M columns of a tile at a time: there are not registers for more scores
    enum { HELD = W == 64 && KEYS, M = N < 32 ? N : 32 };
    // query heads may share the head; nor are there registers for three blocks and this
    enum { SHARED = KEYS && !(W == 64 && V == ATT_PLAIN) };
    K_DYN_SMEM(T, room);
    T *own1 = room, *own2 = own1 + ATT_OWN * W, *pass1 = own2 + ATT_OWN * W, *pass2 = pass1 + 2 * N * W;
    float *stats = reinterpret_cast<float *>(pass2 + 2 * N * W);  // (2,2,N) with KEYS
    uint8_t *keep = reinterpret_cast<uint8_t *>(stats + (KEYS ? 4 * N : 0));
    const att_place at = att_place_of(z, KEYS ? z.kv_heads : z.heads, ATT_OWN, !KEYS);
    const int lane = threadIdx.x % WARP, row = threadIdx.x / WARP * 16, first = at.first;
    const int wide = z.row, narrow = (int)z.channels, stride2 = KEYS ? narrow : wide;
    // the first of the query heads
    const int kv = KEYS ? at.head : at.head / z.group, head0 = KEYS ? at.head * z.group : at.head;
    const bool all = V != ATT_PLAIN && z.all;
    const int length = all ? att_length(z, at.sample) : z.time;
    const int begin = all ? 0 : KEYS ? first / N : V == ATT_PLAIN ? 0 : att_begin(z, at.sample, first) / N;
    const int seen = all              ? (KEYS ? z.time : length)
                     : !KEYS          ? first + ATT_OWN
                     : V == ATT_PLAIN ? z.time
                                      : att_queries_end(z, at.sample, first, ATT_OWN, N);
    const int end = (min(seen, z.time) + N - 1) / N;

    const bool drop = V != ATT_PLAIN && z.drop;
    own_rows<T, W, HELD> rows1, rows2;
    tile_source<T, W, ATT_OWN, V>(qkv + (KEYS ? att_k(z, at.sample, first, kv) : att_q(z, at.sample, first, head0)),
                                  wide, z)
        .load(own1, z.time - first, wide, qkv, z);
    tile_source<T, W, ATT_OWN, V>(KEYS ? qkv + (att_k(z, at.sample, first, kv) + z.apart)
                                       : dy + att_y(z, at.sample, first, head0),
                                  KEYS ? wide : narrow, z)
        .load(own2, z.time - first, KEYS ? wide : narrow, qkv, z);
    float sum1[A / 8][4] = {}, sum2[KEYS ? A / 8 : 1][4] = {}, own_lse[2] = {}, own_delta[2] = {};
    if (!KEYS)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int t = first + row + lane / 4 + h * 8;
            int64_t stat = att_stat(z, at.sample, t, head0);
            if (t < z.time) own_lse[h] = lse[stat] * 1.4426950408889634f, own_delta[h] = delta[stat];
        }
    const T *from1 = qkv + (KEYS ? att_q(z, at.sample, begin * N, head0) : att_k(z, at.sample, begin * N, kv));
    tile_source<T, W, N, V> next1(from1, wide, z),
        next2(KEYS ? dy + att_y(z, at.sample, begin * N, head0) : from1 + z.apart, stride2, z);
    for (int head = head0; head < head0 + (SHARED ? z.group : 1); head++) {
        const int64_t rows = att_stat(z, at.sample, 0, head);
        for (int j = begin - 1; j < end; j++) {  // one turn ahead of the first tile, to fetch it
            int next = (j + 1) * N, there = j & 1, other = j * N;
            if (j + 1 < end) {
                next1.load(pass1 + (1 - there) * N * W, z.time - next, wide, qkv, z);
                next2.load(pass2 + (1 - there) * N * W, z.time - next, stride2, qkv, z);
                if (KEYS && threadIdx.x < N) {
                    int t = next + (int)threadIdx.x;
                    stats[(1 - there) * 2 * N + threadIdx.x] = t < z.time ? lse[rows + t] * 1.4426950408889634f : 0;
                    stats[(1 - there) * 2 * N + N + threadIdx.x] = t < z.time ? delta[rows + t] : 0;
                }
            }
            dev_cp_async_commit();
            if (j < begin) continue;
            if (drop && KEYS) keep_draw<N, ATT_OWN>(keep, z, at.sample, head, other, first);
            if (drop && !KEYS) keep_draw<ATT_OWN, N>(keep, z, at.sample, head, first, other);
            dev_cp_async_wait<1>();
            __syncthreads();
            if (j == begin) rows1.open(own1, row), rows2.open(own2, row);
            const float *lses = KEYS ? stats + there * 2 * N : own_lse, *deltas = KEYS ? lses + N : own_delta;
            const T *tile1 = pass1 + there * N * W, *tile2 = pass2 + there * N * W;
            const int chunk = A < W ? blockIdx.y * (A / 8) : 0, from = first + row;
#pragma unroll
            for (int left = 0; left < N; left += M) {
                const int column = other + left, latest = KEYS ? from + 15 : column + M - 1,
                          earliest = KEYS ? column : from;
                float s[M / 8][4], dp[M / 8][4];
                scores_of<T, W, M>(s, rows1, row, tile1 + left * W);
                scores_of<T, W, M>(dp, rows2, row, tile2 + left * W);
                gradient_of_scores<KEYS, N, M>(s, dp, lses, deltas, keep, drop, row, left, first, other,
                                               drop ? att_number(z, at.sample, head) : head, z);
                const bool unseen =
                    // by the last query: the first key
                    V != ATT_PLAIN && !all &&
                    att_begin(z, at.sample, min(KEYS ? column + M - 1 : from + 15, z.time - 1)) >
                        (KEYS ? from : column);
                if (latest > earliest || unseen || all || (KEYS ? column + M : from + 16) > z.time)
                    mask_pairs<KEYS, V != ATT_PLAIN, M>(s, dp, from, column, at.sample, length, z);
                if constexpr (KEYS) add_product<T, W, M, A>(sum2, s, tile2 + left * W, chunk);
                add_product<T, W, M, A>(sum1, dp, tile1 + left * W, chunk);
            }
            __syncthreads();  // the tile after next is loaded into this one's memory
        }
        if (SHARED) next1.again(end - begin, wide, z.head), next2.again(end - begin, stride2, z.head);
    }
    T *to = dqkv + (KEYS ? att_k(z, at.sample, first, kv) : att_q(z, at.sample, first, head0));
    int chunk = A < W ? blockIdx.y * (A / 8) : 0;
    const float scaled[2] = {z.scale, z.scale}, kept[2] = {z.stays, z.stays};
    rows_store<T, W, A>(to, wide, z.time - first, sum1, scaled, own1, row, chunk, z);
    if constexpr (KEYS) rows_store<T, W, A>(to + z.apart, wide, z.time - first, sum2, kept, own2, row, chunk, z);
}

template <class T, int W, int A, bool KEYS, att_variant V>
static err_t backward_launch(tensor *dqkv, const tensor *delta, const tensor *dy, const tensor *lse, const tensor *qkv,
                             const attention_shape *z, stream *s) {
    // With KEYS and 128 columns, whose two sums fill 128 registers, tiles of 32 would spill.
    enum {
        N = (KEYS && W < 256 ? 2048 : 4096) / W,
        KEEP = KEYS ? N * keep_row<ATT_OWN>::BYTES : ATT_OWN * keep_row<N>::BYTES,
        ROOM = (2 * ATT_OWN + 4 * N) * W * (int)sizeof(T) + (KEYS ? 4 * N * (int)sizeof(float) : 0) + KEEP
    };
    CUDA(cudaFuncSetAttribute((const void *)attention_backward_kernel<T, W, N, A, KEYS, V>,
                              cudaFuncAttributeMaxDynamicSharedMemorySize, ROOM));
    LAUNCH((attention_backward_kernel<T, W, N, A, KEYS, V>),
           dim3(attention_blocks(qkv, z, KEYS ? z->kv_heads : z->heads, ATT_OWN), W / A), ATT_THREADS, ROOM, s,
           (T *)dqkv->data, (const T *)dy->data, (const float *)lse->data, (const float *)delta->data,
           (const T *)qkv->data, *z);
    return ERR_OK;
}

// dk and dv of 256 columns do not fit a warp's registers.
template <class T, int W, att_variant V>
static err_t backward_16(tensor *dqkv, const tensor *delta, const tensor *dy, const tensor *lse, const tensor *qkv,
                         const attention_shape *z, stream *s) {
    TRY((backward_launch<T, W, (W < 256 ? W : 128), true, V>(dqkv, delta, dy, lse, qkv, z, s)));
    return backward_launch<T, W, W, false, V>(dqkv, delta, dy, lse, qkv, z, s);
}

err_t cuda_attention_backward(const attention_backward_args *args, stream *s) {
    attention_shape z = attention_shape_of(args->qkv, args->heads, args->kv_heads, args->window, args->drop,
                                           args->samples, args->first_head);
    int64_t stats = args->qkv->size[0] * args->heads * z.time;
    assert(args->dqkv->type == args->qkv->type && tensor_count(args->dqkv) == tensor_count(args->qkv));
    assert(args->y->type == args->qkv->type && tensor_count(args->y) == args->qkv->size[0] * z.time * z.channels);
    assert(args->dy->type == args->qkv->type && tensor_count(args->dy) == tensor_count(args->y));
    assert(args->lse->type == FP32 && args->delta->type == FP32 && tensor_count(args->lse) == stats &&
           tensor_count(args->delta) == stats);
    attention_sees_all(&z, args->qkv, args->all, args->lengths);
    attention_sees_documents(&z, args->qkv, args->places);
    TRY(attention_fits(&z, "attention_backward"));
    z.wide = z.wide && ((uintptr_t)args->dqkv->data | (uintptr_t)args->dy->data | (uintptr_t)args->y->data) % 16 == 0;
    int blocks = (int)ceil_div(args->heads * z.time, 32);  // of a sample
    BY_TYPE(args->qkv->type, T,
            LAUNCH((attention_delta_kernel<T>), (unsigned)(args->qkv->size[0] * blocks), 256, 0, s,
                   (float *)args->delta->data, (const T *)args->dy->data, (const T *)args->y->data, blocks, z));
    if (args->qkv->type == FP32)
        return attention_backward_fp32(args->dqkv, args->delta, args->dy, args->lse, args->qkv, &z, s);
    bool plain = attention_is_plain(&z) && (z.group == 1 || z.head > 64);
    if (args->qkv->type == BF16)
        ATT_BY_SHAPE(z, plain, W, V,
                     return (backward_16<bf16, W, V>(args->dqkv, args->delta, args->dy, args->lse, args->qkv, &z, s)));
    else
        ATT_BY_SHAPE(z, plain, W, V,
                     return (backward_16<fp16, W, V>(args->dqkv, args->delta, args->dy, args->lse, args->qkv, &z, s)));
}
