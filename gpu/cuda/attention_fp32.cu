// gpu/cuda/attention_fp32.cu: attention in FP32 with plain FMA: a run in FP32 promises all of FP32's digits,
// which tensor cores do not give.
//
// The idea is that of attention.h, divided differently: a warp owns R rows, shared by all of its lanes. Where scores
// are made, each lane has one of the 32 rows of the moving tile; where rows are summed, each lane has columns. Scores
// reach the other lanes through shared memory, (32,R) for each warp. Rows of the moving tile are padded by 4 floats:
// the 16 bytes that eight lanes read from as many rows are then in different banks.
#include "gpu/cuda/attention_floats.h"

// attention_forward_fp32_kernel: a block for each 4 R queries of a head of a sample; keys and values pass in tiles of
// 32.
// layout     qkv (B,T,(H+2KV)D), y (B,T,HD), lse (B,H,T)
// alias      none
// sums       FP32, one FMA chain each: scores along D, y along keys ascending; row sums by a fixed butterfly for each
//            tile
// repeatable a row is summed by one warp, in an order that D and the row's place fix
// flops      2 * T * (T+1) * D for each head; bound by shared memory
// reference  gpu/cpu/kernel/attention.c; Dao et al. 2022, algorithm 1
template <int W, int R>
__global__ void __launch_bounds__(ATT_THREADS)
    attention_forward_fp32_kernel(float *__restrict__ y, float *__restrict__ lse, const float *__restrict__ qkv,
                                  const attention_shape z) {
    K_DYN_SMEM(float, room);
    float *q = room, *pass = q + ATT_WARPS * R * W, *mids = pass + PASS * (W + 4);
    uint8_t *keep = reinterpret_cast<uint8_t *>(mids + ATT_WARPS * PASS * R);
    const att_place at = att_place_of(z, z.heads, ATT_WARPS * R, true);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, row = warp * R,
              last = z.all ? att_length(z, at.sample) : min(at.first + ATT_WARPS * R, z.time);
    const int begin = z.all ? 0 : att_begin(z, at.sample, at.first) / PASS * PASS, kv = at.head / z.group;
    const int64_t stride = z.channels + 2 * z.apart;
    const float *keys = qkv + att_k(z, at.sample, 0, kv), *values = keys + z.apart;
    float sum[R][W / WARP] = {}, max[R], total[R], s[R];
#pragma unroll
    for (int r = 0; r < R; r++) max[r] = ATT_NO_SCORE, total[r] = 0;
    floats_load<W, W, ATT_WARPS * R>(q, qkv + att_q(z, at.sample, at.first, at.head), stride, z.time - at.first, z.head,
                                     z.wide);
    for (int key = begin; key < last; key += PASS) {
        floats_load<W, W + 4, PASS>(pass, keys + key * stride, stride, z.time - key, z.head, z.wide);
        if (z.drop) keep_draw<ATT_WARPS * R, PASS>(keep, z, at.sample, at.head, at.first, key);
        __syncthreads();
        floats_scores<W, R>(s, q + row * W, pass);
        __syncthreads();  // v overwrites k
        floats_load<W, W + 4, PASS>(pass, values + key * stride, stride, z.time - key, z.head, z.wide);
#pragma unroll
        for (int r = 0; r < R; r++) {
            int t = at.first + row + r;
            bool seen = z.all ? key + lane < last : (unsigned)(t - key - lane) < (unsigned)att_seen(z, at.sample, t);
            float x = seen ? s[r] * z.scale : -INFINITY, old = max[r];
            max[r] = fmaxf(old, warp_max(x));
            float shrink = expf(old - max[r]), p = expf(x - max[r]);
            total[r] = fmaf(total[r], shrink, warp_sum(p));
            s[r] = z.drop && !keep_has<PASS>(keep, row + r, lane,
                                             att_element(z, att_number(z, at.sample, at.head), t, key))
                       ? 0.0f
                       : p;
#pragma unroll
            for (int c = 0; c < W / WARP; c++) sum[r][c] *= shrink;
        }
        __syncthreads();
        floats_add<W, R>(sum, s, mids + warp * PASS * R, pass);
        __syncthreads();
    }
    float *to = y + att_y(z, at.sample, at.first + row, at.head);
#pragma unroll
    for (int r = 0; r < R; r++) {
        int t = at.first + row + r;
        const float factor = z.stays / total[r];
        if (t >= z.time) break;
        if (lane == 0) lse[att_stat(z, at.sample, t, at.head)] = max[r] + logf(total[r]);
#pragma unroll
        for (int c = 0; c < W / WARP; c++)
            if (lane + c * WARP < z.head) to[r * z.channels + lane + c * WARP] = sum[r][c] * factor;
    }
}

// Scores and their gradient become p and ds = p (dp - delta), for the warp's R rows and the lane's column. With KEYS
// columns are queries.
template <bool KEYS, int R>
__device__ __forceinline__ void floats_gradient(float (&s)[R], float (&dp)[R], const float *lse, const float *delta,
                                                const uint8_t *keep, int row, int own, int other, int head, int sample,
                                                int length, const attention_shape &z) {
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int r = 0; r < R; r++) {
        int query = KEYS ? other + lane : own + row + r, key = KEYS ? own + row + r : other + lane;
        bool seen = (z.all ? key < length : (unsigned)(query - key) < (unsigned)att_seen(z, sample, query)) &&
                    query < z.time,
             stays = true;
        float p = seen ? expf(fmaf(s[r], z.scale, -lse[query])) : 0.0f, d = seen ? delta[query] : 0.0f;
        if (z.drop && seen)
            stays = KEYS ? keep_has<ATT_WARPS * R>(keep, lane, row + r, att_element(z, head, query, own))
                         : keep_has<PASS>(keep, row + r, lane, att_element(z, head, query, other));
        s[r] = stays ? p : 0.0f;
        dp[r] = p * ((stays ? dp[r] * z.stays : 0.0f) - d);
    }
}

// attention_backward_fp32_kernel: a block for each 4 R rows of a head of a sample: of k and v with KEYS, else of q
// (attention_backward.cu).
// layout     qkv, dqkv (B,T,(H+2KV)D), dy (B,T,HD), lse, delta (B,H,T); dqkv (=)
// alias      none
// sums       FP32, one FMA chain each: scores along D; dk and dv along query heads and queries, dq along keys,
//            ascending
// repeatable a row is summed by one warp, in an order that D and the row's place fix
// flops      KEYS: 4 * T * (T+1) * D for each head, else 3; bound by shared memory
// reference  gpu/cpu/kernel/attention.c; Dao et al. 2022, algorithm 4
template <int W, int R, bool KEYS>
__global__ void __launch_bounds__(ATT_THREADS)
    attention_backward_fp32_kernel(float *__restrict__ dqkv, const float *__restrict__ dy,
                                   const float *__restrict__ lse, const float *__restrict__ delta,
                                   const float *__restrict__ qkv, const attention_shape z) {
    enum { OWN = ATT_WARPS * R };
    K_DYN_SMEM(float, room);
    float *own1 = room, *own2 = own1 + OWN * W, *pass1 = own2 + OWN * W, *pass2 = pass1 + PASS * (W + 4),
          *mids = pass2 + PASS * (W + 4);
    uint8_t *keep = reinterpret_cast<uint8_t *>(mids + ATT_WARPS * PASS * R);
    const att_place at = att_place_of(z, KEYS ? z.kv_heads : z.heads, OWN, !KEYS);
    const int warp = threadIdx.x / WARP, row = warp * R, first = at.first;
    // elements of a position in qkv, in y
    const int64_t wide = z.channels + 2 * z.apart, narrow = z.channels;
    // the first of the query heads
    const int kv = KEYS ? at.head : at.head / z.group, head0 = KEYS ? at.head * z.group : at.head;
    const float *k = qkv + att_k(z, at.sample, 0, kv), *v = k + z.apart;
    const int length = z.all ? att_length(z, at.sample) : z.time;
    const int begin = z.all ? 0 : (KEYS ? first : att_begin(z, at.sample, first)) / PASS * PASS;
    const int end = z.all  ? (KEYS ? z.time : length)
                    : KEYS ? att_queries_end(z, at.sample, first, OWN, PASS)
                           : min(first + OWN, z.time);
    float sum1[R][W / WARP] = {}, sum2[KEYS ? R : 1][KEYS ? W / WARP : 1] = {}, s[R], dp[R];
    floats_load<W, W, OWN>(own1, KEYS ? k + first * wide : qkv + att_q(z, at.sample, first, head0), wide,
                           z.time - first, z.head, z.wide);
    floats_load<W, W, OWN>(own2, KEYS ? v + first * wide : dy + att_y(z, at.sample, first, head0), KEYS ? wide : narrow,
                           z.time - first, z.head, z.wide);
    for (int head = head0; head < head0 + (KEYS ? z.group : 1); head++) {
        const float *q = qkv + att_q(z, at.sample, 0, head), *g = dy + att_y(z, at.sample, 0, head);
        const int64_t rows = att_stat(z, at.sample, 0, head);
        for (int other = begin; other < end; other += PASS) {
            floats_load<W, W + 4, PASS>(pass1, (KEYS ? q : k) + other * wide, wide, z.time - other, z.head, z.wide);
            floats_load<W, W + 4, PASS>(pass2, KEYS ? g + other * narrow : v + other * wide, KEYS ? narrow : wide,
                                        z.time - other, z.head, z.wide);
            if (z.drop && KEYS) keep_draw<PASS, OWN>(keep, z, at.sample, head, other, first);
            if (z.drop && !KEYS) keep_draw<OWN, PASS>(keep, z, at.sample, head, first, other);
            __syncthreads();
            floats_scores<W, R>(s, own1 + row * W, pass1);
            floats_scores<W, R>(dp, own2 + row * W, pass2);
            floats_gradient<KEYS, R>(s, dp, lse + rows, delta + rows, keep, row, first, other,
                                     z.drop ? att_number(z, at.sample, head) : head, at.sample, length, z);
            if constexpr (KEYS) floats_add<W, R>(sum2, s, mids + warp * PASS * R, pass2);
            floats_add<W, R>(sum1, dp, mids + warp * PASS * R, pass1);
            __syncthreads();
        }
    }
    float *to = dqkv + (KEYS ? att_k(z, at.sample, first, kv) : att_q(z, at.sample, first, head0));
    floats_store<W, R>(to, wide, z.time - first, sum1, z.scale, row, z.head);
    if constexpr (KEYS) floats_store<W, R>(to + z.apart, wide, z.time - first, sum2, z.stays, row, z.head);
}

template <int W>
static err_t forward_launch(tensor *y, tensor *lse, const tensor *qkv, const attention_shape *z, stream *s) {
    enum {
        R = 8,
        OWN = ATT_WARPS * R,
        ROOM = (OWN * W + PASS * (W + 4) + OWN * PASS) * (int)sizeof(float) + OWN * keep_row<PASS>::BYTES
    };
    CUDA(cudaFuncSetAttribute((const void *)attention_forward_fp32_kernel<W, R>,
                              cudaFuncAttributeMaxDynamicSharedMemorySize, ROOM));
    LAUNCH((attention_forward_fp32_kernel<W, R>), attention_blocks(qkv, z, z->heads, OWN), ATT_THREADS, ROOM, s,
           (float *)y->data, (float *)lse->data, (const float *)qkv->data, *z);
    return ERR_OK;
}

template <int W, bool KEYS>
static err_t backward_launch(tensor *dqkv, const tensor *delta, const tensor *dy, const tensor *lse, const tensor *qkv,
                             const attention_shape *z, stream *s) {
    enum {
        R = W == 256 ? 2 : 8,
        OWN = ATT_WARPS * R,
        KEEP = KEYS ? PASS * keep_row<OWN>::BYTES : OWN * keep_row<PASS>::BYTES,
        ROOM = (2 * OWN * W + 2 * PASS * (W + 4) + OWN * PASS) * (int)sizeof(float) + KEEP
    };
    CUDA(cudaFuncSetAttribute((const void *)attention_backward_fp32_kernel<W, R, KEYS>,
                              cudaFuncAttributeMaxDynamicSharedMemorySize, ROOM));
    LAUNCH((attention_backward_fp32_kernel<W, R, KEYS>), attention_blocks(qkv, z, KEYS ? z->kv_heads : z->heads, OWN),
           ATT_THREADS, ROOM, s, (float *)dqkv->data, (const float *)dy->data, (const float *)lse->data,
           (const float *)delta->data, (const float *)qkv->data, *z);
    return ERR_OK;
}

err_t attention_forward_fp32(tensor *y, tensor *lse, const tensor *qkv, const attention_shape *z, stream *s) {
    ATT_BY_WIDTH(z->head, W, return forward_launch<W>(y, lse, qkv, z, s));
}

err_t attention_backward_fp32(tensor *dqkv, const tensor *delta, const tensor *dy, const tensor *lse, const tensor *qkv,
                              const attention_shape *z, stream *s) {
    ATT_BY_WIDTH(z->head, W, TRY((backward_launch<W, true>(dqkv, delta, dy, lse, qkv, z, s)));
                 return backward_launch<W, false>(dqkv, delta, dy, lse, qkv, z, s));
}
