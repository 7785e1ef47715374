// gpu/cuda/attention.h: what the kernels of attention share: shapes, tiles in shared memory, products of tiles on tensor cores, dropout's mask.
//
// One idea serves forward and both halves of backward. A block owns 64 rows (of q; of k and v) of one head of one
// sample, 16 to each of its four warps, and tiles of the other side move past it through shared memory, two at a time:
// while one is used, the next one is loaded (cp.async). `own moving^T` gives a warp 16 x N scores in its registers.
// Rounded to E, their layout is that of the left operand of the next product, `scores moving`, which is added to the
// rows that the block owns. So no score ever passes through memory, and every sum runs in one warp, in the order of the
// moving tiles. Published: Dao et al. 2022, algorithms 1 and 4; Dao 2023, section 3.
//
// Tiles are (rows,W) with W = 64, 128 or 256 the head size rounded up, zeros past its end and past the last row. A row
// is cut into chunks of 16 bytes, and chunk c of row r is at c XOR (r % 8): ldmatrix reads the same chunk of eight
// rows, which are then in different banks.
#ifndef GPU_CUDA_ATTENTION_H
#define GPU_CUDA_ATTENTION_H

#include "gpu/cuda/kernel.h"

enum { ATT_OWN = 64, ATT_WARPS = 4, ATT_THREADS = ATT_WARPS * WARP, ATT_HEAD_MOST = 256 };

// How many values of E represent one probability, or its gradient, in a product. 1 rounds it to E, as is usual: every
// sum then has an error as large as its storage would add. 2 adds what the rounding lost: the sums are those of FP32 up
// to 2^-17 (BF16) or 2^-22 (FP16), as gpu/ops.h promises. That costs half as many tensor core instructions again
// (forward 3 for 2, backward 10 for 7), and no more memory or shared memory.
enum { ATT_TERMS = 2 };

typedef struct attention_shape {
    int time, heads, head;  // T, H, D
    int64_t channels;       // C
    float scale;            // 1 / sqrt(D)
    bool wide;              // rows begin at multiples of 16 bytes and are whole chunks
    bool drop;
    uint32_t limit;  // dropout: words below are dropped
    float stays;     // 1 / (1-p), or 1 without dropout
    dropout_key key;
} attention_shape;

// Runs the statements with W bound to the width of tiles.
#define ATT_BY_WIDTH(head, W, ...) \
    do { \
        if ((head) <= 64) { \
            enum { W = 64 }; \
            __VA_ARGS__; \
        } else if ((head) <= 128) { \
            enum { W = 128 }; \
            __VA_ARGS__; \
        } else { \
            enum { W = 256 }; \
            __VA_ARGS__; \
        } \
    } while (0)

static inline attention_shape attention_shape_of(const tensor *qkv, int heads, const dropout_key *drop) {
    assert(qkv->dims == 3 && heads > 0 && qkv->size[2] % (3 * heads) == 0 && qkv->size[1] * heads <= INT32_MAX);
    attention_shape z = {};
    z.time = (int)qkv->size[1], z.heads = heads, z.channels = qkv->size[2] / 3, z.head = (int)(z.channels / heads);
    z.scale = 1.0f / sqrtf((float)z.head), z.stays = 1;
    z.wide = (uintptr_t)qkv->data % 16 == 0 && z.head % 8 == 0;
    assert(!drop || (drop->p >= 0 && drop->p < 1));
    if (!drop || !(drop->p > 0)) return z;
    assert((int64_t)heads * z.time * z.time <= (int64_t)1 << 34);  // a quarter of an element's number is a 32-bit counter
    z.drop = true, z.key = *drop, z.limit = dropout_limit(drop->p), z.stays = 1.0f / (1.0f - drop->p);
    return z;
}

// Blocks for every tile of `rows` rows of every head of every sample.
static inline unsigned attention_blocks(const tensor *qkv, const attention_shape *z, int rows) {
    return (unsigned)(qkv->size[0] * z->heads * ceil_div(z->time, rows));
}

// The widest tiles that shared memory and registers are laid out for.
static inline err_t attention_fits(const attention_shape *z, const char *who) {
    if (z->head <= ATT_HEAD_MOST) return ERR_OK;
    return err_set(ERR_CONFIG, "%s: heads of %d channels, expected at most %d on a GPU: use more heads", who, z->head, ATT_HEAD_MOST);
}

// attention_fp32.cu
err_t attention_forward_fp32(tensor *y, tensor *lse, const tensor *qkv, const attention_shape *z, stream *s);
err_t attention_backward_fp32(tensor *dqkv, const tensor *delta, const tensor *dy, const tensor *lse, const tensor *qkv, const attention_shape *z,
                              stream *s);

// Where a block works: tiles of `rows` rows of one head of one sample follow each other, those with the most work
// first.
typedef struct att_place {
    int64_t sample;
    int head, first;
} att_place;
__device__ __forceinline__ att_place att_place_of(const attention_shape &z, int rows, bool last_first) {
    int tiles = (z.time + rows - 1) / rows, pair = blockIdx.x / tiles, tile = blockIdx.x % tiles;
    return {pair / z.heads, pair % z.heads, (last_first ? tiles - 1 - tile : tile) * rows};
}

// Elements from the start of qkv to part 0 (q), 1 (k) or 2 (v) of (sample, t, head), and from the start of y.
__device__ __forceinline__ int64_t att_qkv(const attention_shape &z, int64_t sample, int64_t t, int head, int part) {
    return ((sample * z.time + t) * 3 + part) * z.channels + (int64_t)head * z.head;
}
__device__ __forceinline__ int64_t att_y(const attention_shape &z, int64_t sample, int64_t t, int head) {
    return (sample * z.time + t) * z.channels + (int64_t)head * z.head;
}

// --- tiles -----------------------------------------------------------------------------------------------------------------------

template <class T> __device__ __forceinline__ T att_zero() {
    T x;
    round_to(&x, 0.0f);
    return x;
}

// Index of a chunk's first element in a tile.
template <int W> __device__ __forceinline__ int tile_at(int row, int chunk) { return row * W + ((chunk ^ (row & 7)) << 3); }

// tile (ROWS,W) = rows of `head` elements at `stride`, `left` of them. Asynchronous where rows are wide: commit and wait.
template <class T, int W, int ROWS>
__device__ __forceinline__ void tile_load(T *tile, const T *from, int64_t stride, int left, const attention_shape &z) {
    for (int i = threadIdx.x; i < ROWS * (W / 8); i += ATT_THREADS) {
        int row = i / (W / 8), chunk = i % (W / 8);
        T *to = tile + tile_at<W>(row, chunk);
        const T *at = from + row * stride + chunk * 8;
        if (z.wide) {
            bool there = row < left && chunk * 8 < z.head;
            dev_cp_async16(to, there ? at : from, there ? 16 : 0);
        } else {
            pack<T> x;
#pragma unroll
            for (int e = 0; e < 8; e++) x.v[e] = row < left && chunk * 8 + e < z.head ? at[e] : att_zero<T>();
            *reinterpret_cast<pack<T> *>(to) = x;
        }
    }
}

// --- products --------------------------------------------------------------------------------------------------------------------

// Two numbers rounded to E, the first in the lower half, as fragments have them.
template <class T> __device__ __forceinline__ uint32_t pair_of(float a, float b) {
    T x[2];
    uint32_t bits;
    round_to(&x[0], a), round_to(&x[1], b);
    memcpy(&bits, x, sizeof bits);
    return bits;
}
template <class T> __device__ __forceinline__ uint32_t pair_lost(float a, float b) { return pair_of<T>(a - rounded<T>(a), b - rounded<T>(b)); }

__device__ __forceinline__ void att_mma(const fp16 *, float *d, const uint32_t *a, const uint32_t *b) { dev_mma_m16n8k16_f16(d, a, b); }
__device__ __forceinline__ void att_mma(const bf16 *, float *d, const uint32_t *a, const uint32_t *b) { dev_mma_m16n8k16_bf16(d, a, b); }

// s (16,N) = own (16 rows from `row`) moving (N,W)^T. In the lane's share of s, s[n][i] is row lane / 4 + i / 2 * 8,
// column 8n + lane % 4 * 2 + i % 2.
template <class T, int W, int N> __device__ __forceinline__ void scores_of(float (&s)[N / 8][4], const T *own, int row, const T *moving) {
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) s[n][i] = 0;
#pragma unroll
    for (int k = 0; k < W / 16; k += 2) {
        uint32_t a[2][4];
        dev_ldmatrix_x4(a[0], own + tile_at<W>(row + lane % 16, k * 2 + lane / 16));
        dev_ldmatrix_x4(a[1], own + tile_at<W>(row + lane % 16, k * 2 + 2 + lane / 16));
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
            uint32_t b[4];  // two steps of k
            dev_ldmatrix_x4(b, moving + tile_at<W>(n * 8 + lane % 8, k * 2 + lane / 8));
            att_mma(own, s[n], a[0], b);
            att_mma(own, s[n], a[1], b + 2);
        }
    }
}

// sum (16,A) += s (16,N), rounded to E, times columns 8 * chunk and on of moving (N,W).
template <class T, int W, int N, int A>
__device__ __forceinline__ void add_product(float (&sum)[A / 8][4], const float (&s)[N / 8][4], const T *moving, int chunk) {
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        uint32_t a[ATT_TERMS][4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *x = &s[2 * k + i / 2][i % 2 * 2];
            a[0][i] = pair_of<T>(x[0], x[1]);
            if (ATT_TERMS > 1) a[ATT_TERMS - 1][i] = pair_lost<T>(x[0], x[1]);
        }
#pragma unroll
        for (int n = 0; n < A / 8; n += 2) {
            uint32_t b[4];
            dev_ldmatrix_x4_trans(b, moving + tile_at<W>(k * 16 + lane % 16, chunk + n + lane / 16));
#pragma unroll
            for (int term = ATT_TERMS; term--;) {
                att_mma(moving, sum[n], a[term], b);
                att_mma(moving, sum[n + 1], a[term], b + 2);
            }
        }
    }
}

// Stores a warp's 16 rows: sum[.][i] times factor[i / 2], rounded to E, through the warp's own rows of a tile, so that
// stores are of 16 bytes.
template <class T, int W, int A>
__device__ __forceinline__ void rows_store(T *to, int64_t stride, int left, const float (&sum)[A / 8][4], const float (&factor)[2], T *tile, int row,
                                           int chunk, const attention_shape &z) {
    int lane = threadIdx.x % WARP;
    __syncwarp();
#pragma unroll
    for (int n = 0; n < A / 8; n++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            *reinterpret_cast<uint32_t *>(tile + tile_at<W>(row + lane / 4 + h * 8, chunk + n) + lane % 4 * 2) =
                pair_of<T>(sum[n][2 * h] * factor[h], sum[n][2 * h + 1] * factor[h]);
    __syncwarp();
    for (int i = lane; i < 16 * (A / 8); i += WARP) {
        int r = row + i / (A / 8), c = chunk + i % (A / 8);
        pack<T> x = *reinterpret_cast<const pack<T> *>(tile + tile_at<W>(r, c));
        T *at = to + r * stride + c * 8;
        if (r >= left) continue;
        if (z.wide) {
            if (c * 8 < z.head) *reinterpret_cast<pack<T> *>(at) = x;
            continue;
        }
#pragma unroll
        for (int e = 0; e < 8; e++)
            if (c * 8 + e < z.head) at[e] = x.v[e];
    }
}

// --- dropout ---------------------------------------------------------------------------------------------------------------------

// The mask of a tile of queries by keys, from philox's quads of elements: a byte has the four bits of a quad, 1 for
// what is kept. A row's first element is bit e % 4 of its first byte, e its number.
template <int KEYS> struct keep_row {
    enum { QUADS = KEYS / 4 + 1, BYTES = KEYS / 4 + 4 };
};

__device__ __forceinline__ int64_t att_element(const attention_shape &z, int head, int query, int key) {
    return ((int64_t)head * z.time + query) * z.time + key;
}

template <int QUERIES, int KEYS>
__device__ __forceinline__ void keep_draw(uint8_t *keep, const attention_shape &z, int64_t sample, int head, int query, int key) {
    const uint32_t step = z.key.at ? z.key.at[0] : z.key.step, drawn = (z.key.at ? z.key.at[1] : z.key.first_sample) + (uint32_t)sample;
    for (int i = threadIdx.x; i < QUERIES * keep_row<KEYS>::QUADS; i += ATT_THREADS) {
        int row = i / keep_row<KEYS>::QUADS, quad = i % keep_row<KEYS>::QUADS;
        int64_t e = att_element(z, head, query + row, key);
        if (query + row >= z.time || (quad == KEYS / 4 && e % 4 == 0)) continue;
        uint32_t word[4], bits = 0;
        philox4x32(word, z.key.seed, (uint32_t)(e / 4) + quad, z.key.site, drawn, step);
#pragma unroll
        for (int w = 0; w < 4; w++) bits |= dropout_goes(word[w], z.limit) ? 0 : 1u << w;
        keep[row * keep_row<KEYS>::BYTES + quad] = (uint8_t)bits;
    }
}

// Bit of the tile's row and column; element is the number of the row's first one.
template <int KEYS> __device__ __forceinline__ bool keep_has(const uint8_t *keep, int row, int column, int64_t element) {
    int at = (int)(element & 3) + column;
    return keep[row * keep_row<KEYS>::BYTES + at / 4] >> (at & 3) & 1;
}

#endif
