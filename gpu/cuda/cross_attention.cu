// gpu/cuda/cross_attention.cu: attention of queries to the keys of another text, with a bias by distance, and that bias
// (gpu/ops_cross.h). Products are plain FMA in FP32 for every storage type, divided as attention_fp32.cu does it.
#include "gpu/cuda/attention_floats.h"

typedef struct cross_shape {
    int heads, head, queries, keys;
    int64_t channels;        // H * D: of a query; a key has twice as many
    int64_t distances;       // of a row of the bias: P + Tk - 1
    int first;               // position of the first query
    const float *bias;       // (S,H,distances); NULL: none
    const int32_t *lengths;  // of samples; NULL: all keys
    float scale;
    bool causal, wide;  // wide: rows begin at multiples of 16 bytes and are whole packs of four
    bool drop;
    uint32_t limit;
    float stays;  // 1 / (1-p), or 1
    dropout_key key;
    int samples, first_head;  // of a slice of the heads
} cross_shape;

static cross_shape cross_shape_of(const tensor *q, const tensor *kv, const tensor *bias, const tensor *lengths,
                                  int heads, int64_t first, int64_t samples, int first_head, const dropout_key *drop) {
    cross_shape z = {};
    assert(q->dims == 3 && kv->dims == 3 && heads > 0 && q->size[2] % heads == 0 && kv->size[2] == 2 * q->size[2]);
    assert(kv->size[0] == q->size[0] && kv->type == q->type && (!lengths || lengths->type == INT32));
    z.heads = heads, z.head = (int)q->size[2] / heads, z.queries = (int)q->size[1], z.keys = (int)kv->size[1];
    z.channels = q->size[2], z.first = (int)first, z.distances = first + z.queries + z.keys - 1;
    z.bias = bias ? (const float *)bias->data : NULL;
    z.lengths = lengths ? (const int32_t *)lengths->data : NULL;
    z.samples = (int)(samples ? samples : q->size[0]), z.first_head = first_head, z.stays = 1;
    z.wide = ((uintptr_t)q->data | (uintptr_t)kv->data) % 16 == 0 && z.head % 8 == 0;
    assert(q->size[0] % z.samples == 0);
    if (bias) {
        const int64_t rows = q->size[0] / z.samples * heads;
        assert(bias->type == FP32 && tensor_count(bias) % rows == 0 && tensor_count(bias) / rows >= z.distances);
        z.distances = tensor_count(bias) / rows;
    }
    assert(first >= 0 && (!first || !drop || !(drop->p > 0)));
    if (!drop || !(drop->p > 0)) return z;
    z.drop = true, z.key = *drop, z.limit = dropout_limit(drop->p), z.stays = 1.0f / (1.0f - drop->p);
    return z;
}

static err_t cross_fits(const cross_shape *z, const char *who) {
    if (z->head <= ATT_HEAD_MOST) return ERR_OK;
    return err_set(ERR_CONFIG, "%s: heads of %d channels, expected at most %d on a GPU: use more heads", who, z->head,
                   ATT_HEAD_MOST);
}

// A (sample, head), and what of it does not depend on a query or a key.
typedef struct cross_pair {
    int sample, head, length;
    int64_t stat;       // its first query in lse and delta
    const float *bias;  // of distance 0; NULL: none
} cross_pair;

__device__ __forceinline__ cross_pair cross_pair_of(const cross_shape &z, int pair) {
    cross_pair m;
    m.sample = pair / z.heads, m.head = pair % z.heads, m.stat = (int64_t)pair * z.queries;
    m.length = z.lengths ? max(1, min(z.lengths[m.sample % z.samples], z.keys)) : z.keys;
    m.bias = z.bias ? z.bias + (m.sample / z.samples * z.heads + m.head) * z.distances + z.distances - z.keys : NULL;
    return m;
}

__device__ __forceinline__ int64_t cross_query(const cross_shape &z, const cross_pair &m, int query) {
    return ((int64_t)m.sample * z.queries + query) * z.channels + (int64_t)m.head * z.head;
}
__device__ __forceinline__ int64_t cross_key(const cross_shape &z, const cross_pair &m, int key) {
    return ((int64_t)m.sample * z.keys + key) * 2 * z.channels + (int64_t)m.head * z.head;
}

__device__ __forceinline__ bool cross_sees(const cross_shape &z, const cross_pair &m, int query, int key) {
    return query < z.queries && key < m.length && (!z.causal || key <= z.first + query);
}

__device__ __forceinline__ float cross_score(const cross_shape &z, const cross_pair &m, float s, int query, int key) {
    return m.bias ? fmaf(s, z.scale, m.bias[key - z.first - query]) : s * z.scale;
}

// Does dropout leave the probability?
__device__ __forceinline__ bool cross_stays(const cross_shape &z, const cross_pair &m, int query, int key) {
    const uint32_t step = z.key.at ? z.key.at[0] : z.key.step,
                   drawn = (z.key.at ? z.key.at[1] : z.key.first_sample) + (uint32_t)(m.sample % z.samples);
    const int64_t head = z.first_head + m.sample / z.samples * z.heads + m.head,
                  e = (head * z.queries + query) * z.keys + key;
    uint32_t word[4];
    philox4x32(word, z.key.seed, (uint32_t)(e / 4), z.key.site, drawn, step);
    return !dropout_goes(word[e % 4], z.limit);
}

// cross_forward_kernel: a block for each 4 R queries of a head of a sample; keys and values pass in tiles of 32.
// layout     q, y (B,Tq,HD), kv (B,Tk,2HD), lse (B,H,Tq), bias (S,H,Tq+Tk-1)
// alias      none
// sums       FP32, one FMA chain each: scores along D, y along keys ascending; row sums by a fixed butterfly for each
//            tile
// repeatable a row is summed by one warp, in an order that D and the row's place fix
// flops      4 * Tq * Tk * D for each head; bound by shared memory
// reference  gpu/cpu/kernel/cross_attention.c
template <class T, int W, int R>
__global__ void __launch_bounds__(ATT_THREADS)
    cross_forward_kernel(T *__restrict__ y, float *__restrict__ lse, const T *__restrict__ q, const T *__restrict__ kv,
                         const cross_shape z) {
    enum { OWN = ATT_WARPS * R };
    K_DYN_SMEM(float, room);
    float *own = room, *pass = own + OWN * W, *mids = pass + PASS * (W + 4);
    const int tiles = (z.queries + OWN - 1) / OWN, first = blockIdx.x % tiles * OWN;
    const cross_pair m = cross_pair_of(z, blockIdx.x / tiles);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, row = warp * R;
    const int end = z.causal ? min(m.length, z.first + min(first + OWN, z.queries)) : m.length;
    const int64_t stride = 2 * z.channels;
    const T *keys = kv + cross_key(z, m, 0), *values = keys + z.channels;
    float sum[R][W / WARP] = {}, max[R], total[R], s[R];
#pragma unroll
    for (int r = 0; r < R; r++) max[r] = ATT_NO_SCORE, total[r] = 0;
    floats_load<W, W, OWN>(own, q + cross_query(z, m, first), z.channels, z.queries - first, z.head, z.wide);
    for (int key = 0; key < end; key += PASS) {
        floats_load<W, W + 4, PASS>(pass, keys + key * stride, stride, end - key, z.head, z.wide);
        __syncthreads();
        floats_scores<W, R>(s, own + row * W, pass);
        __syncthreads();  // v overwrites k
        floats_load<W, W + 4, PASS>(pass, values + key * stride, stride, end - key, z.head, z.wide);
#pragma unroll
        for (int r = 0; r < R; r++) {
            int query = first + row + r;
            bool seen = cross_sees(z, m, query, key + lane);
            float x = seen ? cross_score(z, m, s[r], query, key + lane) : -INFINITY, old = max[r];
            max[r] = fmaxf(old, warp_max(x));
            float shrink = expf(old - max[r]), p = expf(x - max[r]);
            total[r] = fmaf(total[r], shrink, warp_sum(p));
            s[r] = z.drop && seen && !cross_stays(z, m, query, key + lane) ? 0.0f : p;
#pragma unroll
            for (int c = 0; c < W / WARP; c++) sum[r][c] *= shrink;
        }
        __syncthreads();
        floats_add<W, R>(sum, s, mids + warp * PASS * R, pass);
        __syncthreads();
    }
    T *to = y + cross_query(z, m, first + row);
#pragma unroll
    for (int r = 0; r < R; r++) {
        int query = first + row + r;
        const float factor = z.stays / total[r];
        if (query >= z.queries) break;
        if (lane == 0) lse[m.stat + query] = max[r] + logf(total[r]);
#pragma unroll
        for (int c = 0; c < W / WARP; c++)
            if (lane + c * WARP < z.head) round_to(&to[r * z.channels + lane + c * WARP], sum[r][c] * factor);
    }
}

// cross_delta_kernel: delta (B,H,Tq) = row sums of dy * y over D; a warp a row.
// alias      none
// sums       FP32: channels by turns to the lanes, then a fixed butterfly
// moves      2 * B*Tq*HD * sizeof(E) bytes; memory bound
// reference  gpu/cpu/kernel/cross_attention.c:delta_of
template <class T>
__global__ void __launch_bounds__(ATT_THREADS)
    cross_delta_kernel(float *__restrict__ delta, const T *__restrict__ dy, const T *__restrict__ y, int64_t rows,
                       const cross_shape z) {
    const int64_t stat = (int64_t)blockIdx.x * ATT_WARPS + threadIdx.x / WARP;
    if (stat >= rows) return;
    const cross_pair m = cross_pair_of(z, (int)(stat / z.queries));
    const int64_t at = cross_query(z, m, (int)(stat % z.queries));
    float sum = 0;
    for (int i = threadIdx.x % WARP; i < z.head; i += WARP) sum = fmaf(to_float(dy[at + i]), to_float(y[at + i]), sum);
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) delta[stat] = sum;
}

// Scores and their gradient become p and ds = p (dp - delta), for the warp's R rows and the lane's column. With KEYS
// columns are queries.
template <bool KEYS, int R>
__device__ __forceinline__ void cross_gradient(float (&s)[R], float (&dp)[R], const float *lse, const float *delta,
                                               int first, int other, const cross_pair &m, const cross_shape &z) {
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int r = 0; r < R; r++) {
        int query = KEYS ? other + lane : first + r, key = KEYS ? first + r : other + lane;
        bool seen = cross_sees(z, m, query, key), stays = !z.drop || !seen || cross_stays(z, m, query, key);
        float p = seen ? expf(cross_score(z, m, s[r], query, key) - lse[m.stat + query]) : 0.0f,
              d = seen ? delta[m.stat + query] : 0.0f;
        s[r] = stays ? p : 0.0f;
        dp[r] = seen ? p * ((stays ? dp[r] * z.stays : 0.0f) - d) : 0.0f;
    }
}

// A tile of gradients of scores, (OWN,PASS+1) in shared memory, to the sums of its distances, each by one thread, rows
// ascending. from: the distance of the tile's last row and first column, counted from the first of all.
template <int OWN> __device__ __forceinline__ void add_distances(float *part, const float *tile, int from, int most) {
    const int t = threadIdx.x;
    float sum = 0;
    if (t >= OWN + PASS - 1 || from + t < 0 || from + t >= most) return;
    for (int i = max(0, OWN - 1 - t); i < OWN && t - (OWN - 1) + i < PASS; i++)
        sum += tile[i * (PASS + 1) + t - (OWN - 1) + i];
    part[from + t] += sum;
}

// cross_backward_kernel: a block for each 4 R rows of a head of a sample: of k and v with KEYS, else of q. With parts
// it takes all queries of a head of a sample, one tile after the other, so that the sums of a distance are one block's.
// layout     q, dq, dy (B,Tq,HD), kv, dkv (B,Tk,2HD), lse, delta (B,H,Tq), parts (B,H,Tq+Tk-1) alias      none sums
// FP32, one FMA chain each: scores along D; dk and dv along queries, dq along keys, ascending; a distance's
//            gradient along the rows of a tile, then over tiles of keys, then of queries, ascending
// repeatable a row is summed by one warp, a distance by one block, in an order that D and the row's place fix
// flops      KEYS: 8 * Tq * Tk * D for each head, else 6; bound by shared memory
// reference  gpu/cpu/kernel/cross_attention.c
template <class T, int W, int R, bool KEYS>
__global__ void __launch_bounds__(ATT_THREADS)
    cross_backward_kernel(T *__restrict__ out, float *__restrict__ parts, const T *__restrict__ dy,
                          const float *__restrict__ lse, const float *__restrict__ delta, const T *__restrict__ q,
                          const T *__restrict__ kv, const cross_shape z) {
    enum { OWN = ATT_WARPS * R };
    K_DYN_SMEM(float, room);
    float *own1 = room, *own2 = own1 + OWN * W, *pass1 = own2 + OWN * W, *pass2 = pass1 + PASS * (W + 4),
          *mids = pass2 + PASS * (W + 4), *tile = mids + OWN * PASS;
    const int rows = KEYS ? z.keys : z.queries, tiles = !KEYS && parts ? 1 : (rows + OWN - 1) / OWN;
    const cross_pair m = cross_pair_of(z, blockIdx.x / tiles);
    const int warp = threadIdx.x / WARP, row = warp * R, begin = blockIdx.x % tiles * OWN;
    const int64_t wide = 2 * z.channels, narrow = z.channels;
    const T *k = kv + cross_key(z, m, 0), *v = k + z.channels, *qs = q + cross_query(z, m, 0),
            *g = dy + cross_query(z, m, 0);
    float *part = !KEYS && parts ? parts + (int64_t)(blockIdx.x / tiles) * z.distances : NULL;
    for (int64_t i = threadIdx.x; part && i < z.distances; i += ATT_THREADS) part[i] = 0;
    for (int first = begin; first < (part ? rows : begin + 1); first += OWN) {
        const int from = KEYS && z.causal ? first / PASS * PASS : 0, end = KEYS ? (first < m.length ? z.queries : 0)
                                                                           : z.causal ? min(m.length, first + OWN)
                                                                                      : m.length;
        float sum1[R][W / WARP] = {}, sum2[KEYS ? R : 1][KEYS ? W / WARP : 1] = {}, s[R], dp[R];
        __syncthreads();
        floats_load<W, W, OWN>(own1, KEYS ? k + first * wide : qs + first * narrow, KEYS ? wide : narrow, rows - first,
                               z.head, z.wide);
        floats_load<W, W, OWN>(own2, KEYS ? v + first * wide : g + first * narrow, KEYS ? wide : narrow, rows - first,
                               z.head, z.wide);
        for (int other = from; other < end; other += PASS) {
            const int left = (KEYS ? z.queries : z.keys) - other;
            floats_load<W, W + 4, PASS>(pass1, KEYS ? qs + other * narrow : k + other * wide, KEYS ? narrow : wide,
                                        left, z.head, z.wide);
            floats_load<W, W + 4, PASS>(pass2, KEYS ? g + other * narrow : v + other * wide, KEYS ? narrow : wide, left,
                                        z.head, z.wide);
            __syncthreads();
            floats_scores<W, R>(s, own1 + row * W, pass1);
            floats_scores<W, R>(dp, own2 + row * W, pass2);
            cross_gradient<KEYS, R>(s, dp, lse, delta, first + row, other, m, z);
            if constexpr (KEYS) floats_add<W, R>(sum2, s, mids + warp * PASS * R, pass2);
            floats_add<W, R>(sum1, dp, mids + warp * PASS * R, pass1);
#pragma unroll
            for (int r = 0; part && r < R; r++) tile[(row + r) * (PASS + 1) + threadIdx.x % WARP] = dp[r];
            __syncthreads();
            if (part) add_distances<OWN>(part, tile, other - first - (OWN - 1) + z.queries - 1, (int)z.distances);
            if (part) __syncthreads();
        }
        T *to = out + (KEYS ? cross_key(z, m, first) : cross_query(z, m, first));
        floats_store<W, R>(to, KEYS ? wide : narrow, rows - first, sum1, z.scale, row, z.head);
        if constexpr (KEYS) floats_store<W, R>(to + z.channels, wide, rows - first, sum2, z.stays, row, z.head);
    }
}

template <class T, int W>
static err_t forward_launch(const cross_attention_forward_args *a, const cross_shape *z, stream *s) {
    enum { R = W == 256 ? 4 : 8, OWN = ATT_WARPS * R, ROOM = (OWN * W + PASS * (W + 4) + OWN * PASS) * 4 };
    CUDA(cudaFuncSetAttribute((const void *)cross_forward_kernel<T, W, R>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              ROOM));
    LAUNCH((cross_forward_kernel<T, W, R>), (unsigned)(a->q->size[0] * z->heads * ceil_div(z->queries, OWN)),
           ATT_THREADS, ROOM, s, (T *)a->y->data, (float *)a->lse->data, (const T *)a->q->data, (const T *)a->kv->data,
           *z);
    return ERR_OK;
}

template <class T, int W, bool KEYS>
static err_t backward_launch(const cross_attention_backward_args *a, const cross_shape *z, stream *s) {
    enum {
        R = W == 256   ? 2
            : W == 128 ? 4
                       : 8,
        OWN = ATT_WARPS * R,
        ROOM = (2 * OWN * W + 2 * PASS * (W + 4) + OWN * PASS + OWN * (PASS + 1)) * 4
    };
    const bool whole = !KEYS && a->parts;
    const int64_t tiles = whole ? 1 : ceil_div(KEYS ? z->keys : z->queries, OWN);
    CUDA(cudaFuncSetAttribute((const void *)cross_backward_kernel<T, W, R, KEYS>,
                              cudaFuncAttributeMaxDynamicSharedMemorySize, ROOM));
    LAUNCH((cross_backward_kernel<T, W, R, KEYS>), (unsigned)(a->q->size[0] * z->heads * tiles), ATT_THREADS, ROOM, s,
           (T *)(KEYS ? a->dkv : a->dq)->data, whole ? (float *)a->parts->data : (float *)NULL, (const T *)a->dy->data,
           (const float *)a->lse->data, (const float *)a->delta->data, (const T *)a->q->data, (const T *)a->kv->data,
           *z);
    return ERR_OK;
}

err_t cuda_cross_attention_forward(const cross_attention_forward_args *args, stream *s) {
    cross_shape z = cross_shape_of(args->q, args->kv, args->bias, args->lengths, args->heads, args->first,
                                   args->samples, args->first_head, args->drop);
    z.scale = args->scale, z.causal = args->causal;
    assert(args->y->type == args->q->type && tensor_count(args->y) == tensor_count(args->q));
    assert(args->lse->type == FP32 && tensor_count(args->lse) == args->q->size[0] * z.heads * z.queries);
    TRY(cross_fits(&z, "cross_attention_forward"));
    BY_TYPE(args->q->type, T, ATT_BY_WIDTH(z.head, W, return (forward_launch<T, W>(args, &z, s))));
    return ERR_OK;
}

err_t cuda_cross_attention_backward(const cross_attention_backward_args *args, stream *s) {
    cross_shape z = cross_shape_of(args->q, args->kv, args->bias, args->lengths, args->heads, 0, args->samples,
                                   args->first_head, args->drop);
    const int64_t rows = args->q->size[0] * z.heads * z.queries;
    z.scale = args->scale, z.causal = args->causal;
    z.wide = z.wide && (uintptr_t)args->dy->data % 16 == 0;
    assert(args->dq->type == args->q->type && tensor_count(args->dq) == tensor_count(args->q));
    assert(args->dkv->type == args->q->type && tensor_count(args->dkv) == tensor_count(args->kv));
    assert(args->lse->type == FP32 && args->delta->type == FP32 && tensor_count(args->delta) == rows);
    assert(z.distances == z.queries + z.keys - 1 && (!args->parts || args->parts->type == FP32));
    TRY(cross_fits(&z, "cross_attention_backward"));
    BY_TYPE(args->q->type, T,
            LAUNCH((cross_delta_kernel<T>), (unsigned)ceil_div(rows, ATT_WARPS), ATT_THREADS, 0, s,
                   (float *)args->delta->data, (const T *)args->dy->data, (const T *)args->y->data, rows, z));
    BY_TYPE(args->q->type, T,
            ATT_BY_WIDTH(z.head, W, TRY((backward_launch<T, W, true>(args, &z, s)));
                         return (backward_launch<T, W, false>(args, &z, s))));
    return ERR_OK;
}

// --- the bias --------------------------------------------------------------------------------------------------------

enum { BIAS_THREADS = 128 };

// A table of a slice, (buckets,heads).
typedef struct bias_shape {
    distance_map map;
    int heads, buckets, queries, samples;
    int64_t distances;
    bool fresh;
} bias_shape;

// distance_bias_kernel: a block a head of a slice; a thread an element.
// alias      none
// moves      4 bytes an element of bias; memory bound
// reference  gpu/cpu/kernel/cross_attention.c:bias_row, to the bit
template <class T>
__global__ void __launch_bounds__(BIAS_THREADS)
    distance_bias_kernel(float *__restrict__ bias, const T *__restrict__ table, const bias_shape z) {
    const int row = blockIdx.x;
    const T *of = table + (int64_t)(row / z.heads) * z.buckets * z.heads + row % z.heads;
    for (int64_t i = threadIdx.x; i < z.distances; i += BIAS_THREADS)
        bias[row * z.distances + i] = to_float(of[distance_bucket(&z.map, i - (z.queries - 1)) * z.heads]);
}

// distance_gradient_kernel: a block a head of a slice: a thread a distance's sum over samples, then a bucket's over
// distances.
// alias      none
// sums       FP32, one addition after the other, samples and distances ascending
// repeatable each sum is one thread's
// moves      4 bytes an element of parts; memory bound
// reference  gpu/cpu/kernel/cross_attention.c:bias_gradient, to the bit
__global__ void __launch_bounds__(BIAS_THREADS)
    distance_gradient_kernel(float *__restrict__ dtable, float *__restrict__ sums, const float *__restrict__ parts,
                             const bias_shape z) {
    const int row = blockIdx.x, slice = row / z.heads, head = row % z.heads;
    float *own = sums + row * z.distances;
    for (int64_t i = threadIdx.x; i < z.distances; i += BIAS_THREADS) {
        float sum = 0;
        for (int b = 0; b < z.samples; b++)
            sum += parts[(((int64_t)slice * z.samples + b) * z.heads + head) * z.distances + i];
        own[i] = sum;
    }
    __syncthreads();
    for (int k = threadIdx.x; k < z.buckets; k += BIAS_THREADS) {
        float sum = 0, *to = &dtable[((int64_t)slice * z.buckets + k) * z.heads + head];
        for (int64_t i = 0; i < z.distances; i++)
            if (distance_bucket(&z.map, i - (z.queries - 1)) == k) sum += own[i];
        *to = z.fresh ? sum : *to + sum;
    }
}

static bias_shape bias_shape_of(const tensor *table, const tensor *bias, int64_t queries, bool both, int64_t most) {
    bias_shape z = {};
    int64_t slices = table->dims == 3 ? table->size[0] : 1;
    z.heads = (int)table->size[table->dims - 1], z.buckets = (int)table->size[table->dims - 2],
    z.queries = (int)queries;
    z.distances = tensor_count(bias) / (slices * z.heads);
    assert(bias->type == FP32 && z.distances >= queries && z.buckets <= DISTANCE_BUCKETS);
    z.map = distance_map_of(z.buckets, both, most);
    return z;
}

err_t cuda_distance_bias_forward(const distance_bias_forward_args *args, stream *s) {
    const bias_shape z = bias_shape_of(args->table, args->bias, args->queries, args->both, args->most);
    const unsigned rows = (unsigned)(tensor_count(args->bias) / z.distances);
    BY_TYPE(args->table->type, T,
            LAUNCH((distance_bias_kernel<T>), rows, BIAS_THREADS, 0, s, (float *)args->bias->data,
                   (const T *)args->table->data, z));
    return ERR_OK;
}

err_t cuda_distance_bias_backward(const distance_bias_backward_args *args, stream *s) {
    bias_shape z = bias_shape_of(args->dtable, args->sums, args->queries, args->both, args->most);
    const int64_t rows = tensor_count(args->sums) / z.distances;
    z.samples = (int)(tensor_count(args->parts) / tensor_count(args->sums)), z.fresh = args->fresh;
    assert(args->dtable->type == FP32 && args->parts->type == FP32);
    LAUNCH(distance_gradient_kernel, (unsigned)rows, BIAS_THREADS, 0, s, (float *)args->dtable->data,
           (float *)args->sums->data, (const float *)args->parts->data, z);
    return ERR_OK;
}
