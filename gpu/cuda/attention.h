// gpu/cuda/attention.h: what the kernels of attention share: shapes, tiles in shared memory, products of tiles on
// tensor cores, dropout's mask.
//
// One idea serves forward and both halves of backward. A block owns 64 rows (of q; of k and v) of one head of one
// sample, 16 to each of its four warps, and tiles of the other side move past it through shared memory, two at a time:
// while one is used, the next one is loaded (cp.async). `own moving^T` gives a warp 16 x N scores in its registers.
// Rounded to E, once, their layout is that of the left operand of the next product, `scores moving`, which is added to
// the rows that the block owns. So no score ever passes through memory, and every sum runs in one warp, in the order of
// the moving tiles. Published: Dao et al. 2022, algorithms 1 and 4; Dao 2023, section 3.
//
// Tiles are (rows,W) with W = 64, 128 or 256 the head size rounded up, zeros past its end and past the last row. A row
// is cut into chunks of 16 bytes, and chunk c of row r is at c XOR (r % 8): ldmatrix reads the same chunk of eight
// rows, which are then in different banks.
#ifndef GPU_CUDA_ATTENTION_H
#define GPU_CUDA_ATTENTION_H

#include "gpu/cuda/kernel.h"

enum { ATT_OWN = 64, ATT_WARPS = 4, ATT_THREADS = ATT_WARPS * WARP, ATT_HEAD_MOST = 256 };

// The maximum of a row that has seen no key: below every score, and finite, so that its difference from itself is 0.
static const float ATT_NO_SCORE = -1e30f;

// What a kernel is compiled for. PLAIN, the usual case: rows are whole chunks of 16 bytes, nothing is dropped, and
// it is causal without a window. MORE: such rows, with dropout, a window, documents, or all positions to be seen. ANY
// finds all of that out when it runs.
enum att_variant { ATT_PLAIN, ATT_MORE, ATT_ANY };

typedef struct attention_shape {
    int time, heads, head;   // T, H, D
    int kv_heads, group;     // KV; H / KV
    int window;              // positions that one sees: T where there is no window
    int row;                 // elements of a position in qkv
    int apart;               // from k to v: KV * D
    int64_t channels;        // of a position in y: H * D
    float scale;             // 1 / sqrt(D)
    bool all;                // a position sees those after it, too
    const int32_t *lengths;  // with all: of samples; NULL: T
    const int32_t *places;   // (samples,T) of positions in their documents; NULL: a sample is one
    bool wide;               // rows begin at multiples of 16 bytes and are whole chunks
    bool drop;
    uint32_t limit;  // dropout: words below are dropped
    float stays;     // 1 / (1-p), or 1 without dropout
    dropout_key key;
    int samples, first_head;  // of a slice of the heads; the number of the first head: dropout draws by it
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

// The same, with V bound to the variant. The widest heads, which are rare, have one variant. plain: PLAIN will do, as
// far as the rows allow.
#define ATT_BY_VARIANT(z, plain, V, ...) \
    do { \
        if (!(z).wide) { \
            constexpr att_variant V = ATT_ANY; \
            __VA_ARGS__; \
        } else if (!(plain)) { \
            constexpr att_variant V = ATT_MORE; \
            __VA_ARGS__; \
        } else { \
            constexpr att_variant V = ATT_PLAIN; \
            __VA_ARGS__; \
        } \
    } while (0)
#define ATT_BY_SHAPE(z, plain, W, V, ...) \
    ATT_BY_WIDTH((z).head, W, if constexpr (W > 128) { \
        constexpr att_variant V = ATT_ANY; \
        __VA_ARGS__; \
    } else ATT_BY_VARIANT(z, plain, V, __VA_ARGS__))

static inline attention_shape attention_shape_of(const tensor *qkv, int heads, int kv_heads, int window,
                                                 const dropout_key *drop, int64_t samples, int first_head) {
    const int kv = kv_heads ? kv_heads : heads;
    assert(qkv->dims == 3 && heads > 0 && kv > 0 && heads % kv == 0 && qkv->size[2] % (heads + 2 * kv) == 0 &&
           window >= 0);
    // a sample's elements are numbered in 32 bits
    assert(qkv->size[1] * qkv->size[2] <= INT32_MAX && qkv->size[1] * heads <= INT32_MAX);
    attention_shape z = {};
    z.time = (int)qkv->size[1], z.heads = heads, z.kv_heads = kv, z.group = heads / kv, z.row = (int)qkv->size[2];
    z.head = z.row / (heads + 2 * kv), z.channels = heads * z.head, z.apart = kv * z.head,
    z.window = window && window < z.time ? window : z.time;
    z.scale = 1.0f / sqrtf((float)z.head), z.stays = 1;
    z.wide = (uintptr_t)qkv->data % 16 == 0 && z.head % 8 == 0;
    assert(!drop || (drop->p >= 0 && drop->p < 1));
    if (!drop || !(drop->p > 0)) return z;
    z.samples = (int)(samples ? samples : qkv->size[0]), z.first_head = first_head;
    assert((first_head + qkv->size[0] / z.samples * heads) * z.time * z.time <= (int64_t)1
                                                                                    // a quarter of an element's number
                                                                                    // is a 32-bit counter
                                                                                    << 34);
    z.drop = true, z.key = *drop, z.limit = dropout_limit(drop->p), z.stays = 1.0f / (1.0f - drop->p);
    return z;
}

// Where it is not causal.
static inline void attention_sees_all(attention_shape *z, const tensor *qkv, bool all, const tensor *lengths) {
    assert((all || !lengths) && (!all || (z->window == z->time && z->group == 1)));
    assert(!lengths || (lengths->type == INT32 && qkv->size[0] % tensor_count(lengths) == 0));
    z->all = all, z->lengths = lengths ? (const int32_t *)lengths->data : NULL;
    z->samples = (int)(lengths ? tensor_count(lengths) : z->samples ? z->samples : qkv->size[0]);
}

// Where a sample is several documents. After attention_sees_all.
static inline void attention_sees_documents(attention_shape *z, const tensor *qkv, const tensor *places) {
    if (!places) return;
    assert(!z->all && places->type == INT32 && places->dims == 2 && places->size[1] == z->time &&
           qkv->size[0] % places->size[0] == 0);
    z->places = (const int32_t *)places->data, z->samples = (int)places->size[0];
}

// PLAIN will do, as far as the rows allow.
static inline bool attention_is_plain(const attention_shape *z) {
    return !z->drop && z->window == z->time && !z->all && !z->places;
}

// Blocks for every tile of `rows` rows of every one of `heads` heads of every sample.
static inline unsigned attention_blocks(const tensor *qkv, const attention_shape *z, int heads, int rows) {
    return (unsigned)(qkv->size[0] * heads * ceil_div(z->time, rows));
}

// The widest tiles that shared memory and registers are laid out for.
static inline err_t attention_fits(const attention_shape *z, const char *who) {
    if (z->head <= ATT_HEAD_MOST) return ERR_OK;
    return err_set(ERR_CONFIG, "%s: heads of %d channels, expected at most %d on a GPU: use more heads", who, z->head,
                   ATT_HEAD_MOST);
}

// attention_fp32.cu
err_t attention_forward_fp32(tensor *y, tensor *lse, const tensor *qkv, const attention_shape *z, stream *s);
err_t attention_backward_fp32(tensor *dqkv, const tensor *delta, const tensor *dy, const tensor *lse, const tensor *qkv,
                              const attention_shape *z, stream *s);

// Where a block works: tiles of `rows` rows of one of `heads` heads of one sample follow each other, those with the
// most work first.
typedef struct att_place {
    int sample, head, first;
} att_place;
__device__ __forceinline__ att_place att_place_of(const attention_shape &z, int heads, int rows, bool last_first) {
    int tiles = (z.time + rows - 1) / rows, pair = blockIdx.x / tiles, tile = blockIdx.x % tiles;
    return {pair / heads, pair % heads, (last_first ? tiles - 1 - tile : tile) * rows};
}

// Elements from the start of qkv to q or k of (sample, t), of a head of its own number, and from the start of y. v is
// z.apart elements after k: where both are read, one address in registers will do.
__device__ __forceinline__ int64_t att_q(const attention_shape &z, int sample, int t, int head) {
    return ((int64_t)sample * z.time + t) * z.row + head * z.head;
}
__device__ __forceinline__ int64_t att_k(const attention_shape &z, int sample, int t, int kv) {
    return att_q(z, sample, t, z.heads + kv);
}
__device__ __forceinline__ int64_t att_y(const attention_shape &z, int sample, int t, int head) {
    return ((int64_t)sample * z.time + t) * z.channels + (int64_t)head * z.head;
}

// Positions of a sample that are seen.
__device__ __forceinline__ int att_length(const attention_shape &z, int sample) {
    return z.lengths ? max(1, min(z.lengths[sample % z.samples], z.time)) : z.time;
}

// Positions that one of a sample sees, itself included.
__device__ __forceinline__ int att_seen(const attention_shape &z, int sample, int t) {
    if (!z.places || t >= z.time) return z.window;
    return min(z.window, max(z.places[(int64_t)(sample % z.samples) * z.time + t], 0) + 1);
}

// The first of them.
__device__ __forceinline__ int att_begin(const attention_shape &z, int sample, int t) {
    return max(t - att_seen(z, sample, t) + 1, 0);
}

// One past the last query that sees some of the keys first .. first + rows - 1, or a later one of the same `step`.
__device__ __forceinline__ int att_queries_end(const attention_shape &z, int sample, int first, int rows, int step) {
    int most = (int)min((int64_t)first + rows - 1 + z.window, (int64_t)z.time), t = (first + rows) / step * step;
    if (!z.places) return most;
    while (t < most && att_begin(z, sample, t) < first + rows) t += step;
    return min(t, most);
}

// And from the start of lse and delta.
__device__ __forceinline__ int64_t att_stat(const attention_shape &z, int sample, int t, int head) {
    return ((int64_t)sample * z.heads + head) * z.time + t;
}

// --- tiles -----------------------------------------------------------------------------------------------------------

template <class T> __device__ __forceinline__ T att_zero() {
    T x;
    round_to(&x, 0.0f);
    return x;
}

// Index of a chunk's first element in a tile.
template <int W> __device__ __forceinline__ int tile_at(int row, int chunk) {
    return row * W + ((chunk ^ (row & 7)) << 3);
}

// Fills tiles (ROWS,W) with rows of `head` elements, `stride` apart, one tile after the other: what a thread copies,
// and where to, is worked out once. Asynchronous where rows are whole chunks: commit and wait.
template <class T, int W, int ROWS, att_variant V> struct tile_source {
    // chunks of a row; rows between those of a thread
    enum { CHUNKS = W / 8, STEP = ATT_THREADS / CHUNKS, COPIES = ROWS / STEP };
    // the first row: the same for all threads
    const T *from;
    uint32_t at;  // from there on: the thread's chunk of its first row of the next tile
    int to;       // its place in a tile
    int bytes;    // of the chunk that are inside the head: the rest is zero

    __device__ __forceinline__ static int row() { return threadIdx.x / CHUNKS; }
    __device__ __forceinline__ static int chunk() { return threadIdx.x % CHUNKS; }

    __device__ __forceinline__ tile_source(const T *rows, uint32_t stride, const attention_shape &z) {
        bytes = chunk() * 8 < z.head ? 16 : 0;
        to = tile_at<W>(row(), chunk());
        from = rows, at = row() * stride + (bytes ? chunk() * 8 : 0);
    }

    // Where the thread's i-th copy goes: the same chunk, unless STEP is no multiple of 8.
    __device__ __forceinline__ int place(int i) const {
        return STEP % 8 && i % 2 ? tile_at<W>(row() + i * STEP, chunk()) : to + i * STEP * W;
    }

    // The next tile, of which `left` rows are there. `safe` is an address that a copy of nothing may have.
    __device__ __forceinline__ void load(T *tile, int left, uint32_t stride, const T *safe, const attention_shape &z) {
        if (V == ATT_ANY) load_any(tile, left, stride, safe, z);
        else if (left >= ROWS) {
#pragma unroll
            for (int i = 0; i < COPIES; i++) dev_cp_async16(tile + place(i), from + (at + i * STEP * stride), bytes);
        } else {
#pragma unroll
            for (int i = 0; i < COPIES; i++) {
                bool there = row() + i * STEP < left;
                dev_cp_async16(tile + place(i), there ? from + (at + i * STEP * stride) : safe, there ? bytes : 0);
            }
        }
        at += ROWS * stride;
    }

    // Back by so many tiles, to a head that is `further` elements on.
    __device__ __forceinline__ void again(int tiles, uint32_t stride, int further) {
        from += further, at -= tiles * ROWS * stride;
    }

    __device__ __forceinline__ void load_any(T *tile, int left, uint32_t stride, const T *safe,
                                             const attention_shape &z) {
        const T *first = from + (at - row() * stride - (bytes ? chunk() * 8 : 0));
        for (int i = threadIdx.x; i < ROWS * CHUNKS; i += ATT_THREADS) {
            int r = i / CHUNKS, c = i % CHUNKS;
            T *into = tile + tile_at<W>(r, c);
            const T *p = first + (r * stride + c * 8);
            if (z.wide) {
                bool there = r < left && c * 8 < z.head;
                dev_cp_async16(into, there ? p : safe, there ? 16 : 0);
                continue;
            }
            pack<T> x;
#pragma unroll
            for (int e = 0; e < 8; e++) x.v[e] = r < left && c * 8 + e < z.head ? p[e] : att_zero<T>();
            *reinterpret_cast<pack<T> *>(into) = x;
        }
    }
};

// --- products --------------------------------------------------------------------------------------------------------

// Two numbers rounded to E, the first in the lower half, as fragments have them.
__device__ __forceinline__ uint32_t att_pair(const fp16 *, float a, float b) { return dev_cvt_f16x2(a, b); }
__device__ __forceinline__ uint32_t att_pair(const bf16 *, float a, float b) { return dev_cvt_bf16x2(a, b); }

__device__ __forceinline__ void att_mma(const fp16 *, float *d, const uint32_t *a, const uint32_t *b) {
    dev_mma_m16n8k16_f16(d, a, b);
}
__device__ __forceinline__ void att_mma(const bf16 *, float *d, const uint32_t *a, const uint32_t *b) {
    dev_mma_m16n8k16_bf16(d, a, b);
}

// The left operands of a product with rows that the block owns: 16 rows from `row`, all W columns. Of narrow heads they
// stay in registers; else they are read from the tile for each product (HELD false).
template <class T, int W, bool HELD> struct own_rows {
    const T *tile = nullptr;
    uint32_t held[HELD ? W / 16 : 1][4];

    __device__ __forceinline__ static const T *place(const T *own, int row, int k) {
        int lane = threadIdx.x % WARP;
        return own + tile_at<W>(row + lane % 16, k * 2 + lane / 16);
    }
    __device__ __forceinline__ void open(const T *own, int row) {
        tile = own;
        if constexpr (HELD) {
#pragma unroll
            for (int k = 0; k < W / 16; k++) dev_ldmatrix_x4(held[k], place(own, row, k));
        }
    }
    // Columns 16 k and on.
    __device__ __forceinline__ void get(uint32_t (&a)[4], int row, int k) const {
        if constexpr (HELD) {
#pragma unroll
            for (int i = 0; i < 4; i++) a[i] = held[k][i];
        } else dev_ldmatrix_x4(a, place(tile, row, k));
    }
};

// s (16,N) = own (16 rows from `row`) moving (N,W)^T. In the lane's share of s, s[n][i] is row lane / 4 + i / 2 * 8,
// column 8n + lane % 4 * 2 + i % 2.
template <class T, int W, int N, bool HELD>
__device__ __forceinline__ void scores_of(float (&s)[N / 8][4], const own_rows<T, W, HELD> &own, int row,
                                          const T *moving) {
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) s[n][i] = 0;
#pragma unroll
    for (int k = 0; k < W / 16; k += 2) {
        uint32_t a[2][4];
        own.get(a[0], row, k), own.get(a[1], row, k + 1);
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
            uint32_t b[4];  // two steps of k
            dev_ldmatrix_x4(b, moving + tile_at<W>(n * 8 + lane % 8, k * 2 + lane / 8));
            att_mma(moving, s[n], a[0], b);
            att_mma(moving, s[n], a[1], b + 2);
        }
    }
}

// sum (16,A) += s (16,N), rounded to E, times columns 8 * chunk and on of moving (N,W).
template <class T, int W, int N, int A>
__device__ __forceinline__ void add_product(float (&sum)[A / 8][4], const float (&s)[N / 8][4], const T *moving,
                                            int chunk) {
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        uint32_t a[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[i] = att_pair(moving, s[2 * k + i / 2][i % 2 * 2], s[2 * k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int n = 0; n < A / 8; n += 2) {
            uint32_t b[4];
            dev_ldmatrix_x4_trans(b, moving + tile_at<W>(k * 16 + lane % 16, chunk + n + lane / 16));
            att_mma(moving, sum[n], a, b);
            att_mma(moving, sum[n + 1], a, b + 2);
        }
    }
}

// Stores a warp's 16 rows: sum[.][i] times factor[i / 2], rounded to E, through the warp's own rows of a tile, so that
// stores are of 16 bytes.
template <class T, int W, int A>
__device__ __forceinline__ void rows_store(T *to, int64_t stride, int left, const float (&sum)[A / 8][4],
                                           const float (&factor)[2], T *tile, int row, int chunk,
                                           const attention_shape &z) {
    int lane = threadIdx.x % WARP;
    __syncwarp();
#pragma unroll
    for (int n = 0; n < A / 8; n++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            *reinterpret_cast<uint32_t *>(tile + tile_at<W>(row + lane / 4 + h * 8, chunk + n) + lane % 4 * 2) =
                att_pair(tile, sum[n][2 * h] * factor[h], sum[n][2 * h + 1] * factor[h]);
    __syncwarp();
    for (int i = lane; i < 16 * (A / 8); i += WARP) {
        int r = row + i / (A / 8), c = chunk + i % (A / 8);
        pack<T> x = *reinterpret_cast<const pack<T> *>(tile + tile_at<W>(r, c));
        T *at = to + r * stride + c * 8;
        if (r >= left) continue;
        if (z.wide) {
            if (c * 8 < z.head) store_pack(at, x);
            continue;
        }
#pragma unroll
        for (int e = 0; e < 8; e++)
            if (c * 8 + e < z.head) at[e] = x.v[e];
    }
}

// --- dropout ---------------------------------------------------------------------------------------------------------

// The mask of a tile of queries by keys, from philox's quads of elements: a byte has the four bits of a quad, 1 for
// what is kept. A row's first element is bit e % 4 of its first byte, e its number.
template <int KEYS> struct keep_row {
    enum { QUADS = KEYS / 4 + 1, BYTES = KEYS / 4 + 4 };
};

// A head's number among those of all slices.
__device__ __forceinline__ int att_number(const attention_shape &z, int sample, int head) {
    return z.first_head + sample / z.samples * z.heads + head;
}

// head: as att_number has it.
__device__ __forceinline__ int64_t att_element(const attention_shape &z, int head, int query, int key) {
    return ((int64_t)head * z.time + query) * z.time + key;
}

template <int QUERIES, int KEYS>
__device__ __forceinline__ void keep_draw(uint8_t *keep, const attention_shape &z, int sample, int head, int query,
                                          int key) {
    const uint32_t step = z.key.at ? z.key.at[0] : z.key.step,
                   drawn = (z.key.at ? z.key.at[1] : z.key.first_sample) + (uint32_t)(sample % z.samples);
    head = att_number(z, sample, head);
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
template <int KEYS>
__device__ __forceinline__ bool keep_has(const uint8_t *keep, int row, int column, int64_t element) {
    int at = (int)(element & 3) + column;
    return keep[row * keep_row<KEYS>::BYTES + at / 4] >> (at & 3) & 1;
}

#endif
