// gpu/cpu/kernel/attention.c: self-attention without a T x T matrix (Dao et al. 2022, algorithms 1 and 4; Dao
// 2023; the running softmax is Milakov & Gimelshein 2018).
//
// Queries and keys are cut into tiles of 64, the same on every machine, so that a tile on the diagonal is square; tiles
// right of it are never touched, nor those left of all windows. In a tile on the diagonal queries (in the gradient of k
// and v: keys) are taken in strips of 16: a strip stops at the last key that one of its queries sees, and what is left
// above the diagonal, or left of a window, is a probability of exactly 0.
//
// Where it is not causal there is no diagonal: every tile of queries meets every tile of keys within the sample's
// length, of which the last one may have fewer than 64 keys; what is after them is a probability of exactly 0, too.
//
// Where a sample holds several documents, each position sees those before it that are of its own: a window of its own
// length. The first key that is seen never falls along the sample. So a tile of queries begins with the first tile that
// its first query sees, and tiles that lie before all of their documents are never touched.
//
// The order of every sum, which is the same for any vector width, any number of threads and both forms of backward:
//   s[i][j]   FMA over d ascending, q having been multiplied by 1/sqrt(D)
//   row sum   lane l of 16 sums keys l mod 16: within a tile in order of keys, tiles in order, each time rescaled by
//             the new maximum; then the fixed tree over lanes
//   y         FMA over keys ascending, rescaled where the maximum rises; divided by the row sum at the end
//   delta     two vectors of 16 lanes in turn along d, added, then the fixed tree
//   dk, dv    FMA over the query heads that share the key's, ascending, and for each over queries ascending, from the
//             key's own tile on
//   dq        FMA over keys ascending; times 1/sqrt(D) at the end
//
// With products = bf16-pairs every FMA above, but for those of the row sum and of delta, is a chain of pairs
// (products.h), and what is multiplied is BF16:
//   s[i][j]   pairs of d, of q and k as they are stored; times 1/sqrt(D) after the sum
//   y         pairs of keys: an even one of the tile and the next. A probability is rounded after dropout has acted on
//             it; the row sum and lse are of those that are not rounded. The chain goes on from the rescaled y. +0 is
//             added to it before it is divided, so that a hidden key, whose probability is +0, leaves no sign of a zero
//   dp        pairs of d, of dy and v as they are stored
//   dk, dv    pairs of queries, an even one of the tile and the next, dk of q as it is stored: times 1/sqrt(D) at the
//             end. ds is rounded; where a key is hidden it is +0
//   dq        pairs of keys
// A tile's last pair may lack its second: that is +0, and so is what it is multiplied with.
//
// Backward has two forms. One pass: an item is a (sample, head), and each tile's probabilities are made once (5
// products). Two passes, over tiles of keys for dk and dv, then over tiles of queries for dq, make them twice (7
// products), but give more items. Since no sum is ever divided between items, the forms agree to the last bit, and the
// quicker one is taken.
#include "gpu/cpu/kernel/attention_tile.h"
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/vmath.h"

#include <float.h>
#include <inttypes.h>

// Queries of a forward item: enough of them that converting k and v once more for each item costs little.
enum { FORWARD_TILES = 4, FORWARD_ROWS = FORWARD_TILES * TILE };

typedef struct sizes {
    int64_t samples, time, heads, head;
    int64_t group;           // query heads that share a head of k and v
    int64_t window;          // positions that one sees: time where there is no window
    int64_t row, channels;   // elements of a position in qkv, in y
    int64_t width;           // of a row in scratch: head size, rounded up to whole vectors
    int64_t along;           // ... of a tile along: as cells (attention_tile.h)
    int64_t tiles;           // of 64 along time
    bool all;                // not causal
    const int32_t *lengths;  // of samples, with all; NULL: time
    const int32_t *places;   // (together,time) of positions in their documents; NULL: a sample is one
    float scale;             // 1 / sqrt(head size)
    dtype type;
    const dropout_key *drop;  // NULL: none
    int64_t together;         // samples of a slice of the heads
    int64_t first_head;
} sizes;

static void see_all(sizes *z, bool all, const tensor *lengths) {
    assert(all || !lengths);
    assert(!all || (z->window == z->time && z->group == 1));
    assert(!lengths || (lengths->type == INT32 && z->samples % tensor_count(lengths) == 0));
    z->all = all, z->lengths = lengths ? lengths->data : NULL;
    if (lengths) z->together = tensor_count(lengths);
}

static void see_documents(sizes *z, const tensor *places) {
    if (!places) return;
    assert(!z->all && places->type == INT32 && places->dims == 2 && places->size[1] == z->time &&
           z->samples % places->size[0] == 0);
    z->places = places->data, z->together = places->size[0];
}

static sizes sizes_of(const tensor *qkv, int heads, int kv_heads, int window, const dropout_key *drop, int64_t samples,
                      int first_head) {
    int kv = kv_heads ? kv_heads : heads;
    assert(qkv->dims == 3 && heads > 0 && kv > 0 && heads % kv == 0 && qkv->size[2] % (heads + 2 * kv) == 0 &&
           window >= 0);
    sizes z = {.samples = qkv->size[0],
               .time = qkv->size[1],
               .heads = heads,
               .group = heads / kv,
               .row = qkv->size[2],
               .type = qkv->type};
    z.window = window && window < z.time ? window : z.time;
    z.head = z.row / (heads + 2 * kv);
    z.channels = heads * z.head;
    z.width = (z.head + VL - 1) / VL * VL, z.along = cells_of_row(z.head);
    z.tiles = (z.time + TILE - 1) / TILE;
    z.scale = 1.0f / __builtin_sqrtf((float)z.head);
    assert(!PAIRED || z.type != FP16);
    assert(!drop || (drop->p >= 0 && drop->p < 1));
    z.drop = drop && drop->p > 0 ? drop : NULL;
    z.together = samples ? samples : z.samples, z.first_head = first_head;
    assert(!z.drop || (first_head + z.samples / z.together * z.heads) * z.time * z.time <=
                          (int64_t)1 << 34);  // a quarter of an element's number is a 32-bit counter
    return z;
}

// c (rows,cols) = or += a^T b, a (cells,rows), between tile_begin and tile_end.
static void product_transposed(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb,
                               int64_t rows, int64_t cols, int64_t cells, bool from_zero) {
    product_all(true, c, ldc, a, lda, b, ldb, rows, cols, cells, from_zero);
}

BODY void store_rows_of(dtype t, void *out, int64_t at, int64_t stride, const float *in, int64_t ld, int64_t rows,
                        int64_t n, float scale) {
    vf factor = vf_set1(scale);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i += VL)
            typed_store_n(out, t, at + r * stride + i, vf_mul(factor, vf_load(in + r * ld + i)), n - i);
}
static void store_rows(dtype t, void *out, int64_t at, int64_t stride, const float *in, int64_t ld, int64_t rows,
                       int64_t n, float scale) {
    BY_TYPE(t, store_rows_of, out, at, stride, in, ld, rows, n, scale);
}

static int64_t rows_of_tile(const sizes *z, int64_t tile) { return least(TILE, z->time - tile * TILE); }

// Positions of a sample that are seen, and those of a tile; 0: none.
static int64_t length_of(const sizes *z, int64_t sample) {
    int64_t n = z->lengths ? z->lengths[sample % z->together] : z->time;
    return n < 1 ? 1 : least(n, z->time);
}
static int64_t keys_of_tile(const sizes *z, int64_t sample, int64_t tile) {
    int64_t n = least(TILE, length_of(z, sample) - tile * TILE);
    return n < 0 ? 0 : n;
}

// Element number of (sample, t, query head, 0) in qkv's part 0 (q), 1 (k) or 2 (v), and in y.
static int64_t at_qkv(const sizes *z, int64_t sample, int64_t t, int64_t head, int part) {
    int64_t kv = z->heads / z->group, place = part == 0 ? head : z->heads + (part - 1) * kv + head / z->group;
    return (sample * z->time + t) * z->row + place * z->head;
}
static int64_t at_y(const sizes *z, int64_t sample, int64_t t, int64_t head) {
    return (sample * z->time + t) * z->channels + head * z->head;
}

// As tiles along, across, and along but transposed.
static void load_qkv(const sizes *z, float *out, const tensor *qkv, int64_t sample, int64_t t, int64_t head, int part,
                     int64_t rows) {
    load_rows(z->type, out, z->along, qkv->data, at_qkv(z, sample, t, head, part), z->row, rows, z->head,
              part == 0 ? z->scale : 1);
}
static void load_qkv_across(const sizes *z, float *out, const tensor *qkv, int64_t sample, int64_t t, int64_t head,
                            int part, int64_t rows) {
    load_across(z->type, out, z->width, qkv->data, at_qkv(z, sample, t, head, part), z->row, rows, z->head);
}
static void load_transposed(const sizes *z, float *out, const tensor *qkv, int64_t sample, int64_t t, int64_t head,
                            int part, int64_t rows) {
    load_columns(z->type, out, z->along, qkv->data, at_qkv(z, sample, t, head, part), z->row, rows, z->head);
}
static void store_dqkv(const sizes *z, tensor *dqkv, const float *in, int64_t sample, int64_t t, int64_t head, int part,
                       int64_t rows) {
    store_rows(z->type, dqkv->data, at_qkv(z, sample, t, head, part), z->row, in, z->width, rows, z->head,
               part == 0 || (PAIRED && part == 1) ? z->scale : 1);
}

// A tile of queries and a tile of keys, by number.
typedef struct meeting {
    int64_t sample, head, query, key;
    int64_t rows, keys;  // of the two tiles
    bool first, last;    // of the tiles of keys that the queries see
    bool begins;         // the queries are the first that see these keys
    bool diagonal;
    bool cut;               // by the window or the sample's end: some row does not see some of the tile's keys
    int64_t unseen;         // row r does not see keys before unseen + r
    const int32_t *places;  // of the rows in their documents; NULL: a sample is one
    int64_t apart;          // from the first key of the tile to the first row, along time
} meeting;

// The first key of the tile that row r may see, by the window and its document; below 1: the first of all.
VEC int64_t unseen_of(const meeting *m, int64_t r) {
    int64_t from = m->unseen + r;
    if (!m->places) return from;
    int64_t begins = m->apart + r - (m->places[r] > 0 ? m->places[r] : 0);
    return begins > from ? begins : from;
}

static const int32_t *places_of(const sizes *z, int64_t sample, int64_t t) {
    return z->places ? z->places + sample % z->together * z->time + t : NULL;
}

// Positions that one sees.
static int64_t seen_by(const sizes *z, int64_t sample, int64_t t) {
    if (!z->places) return z->window;
    int64_t place = *places_of(z, sample, t);
    return least(z->window, place > 0 ? place + 1 : 1);
}

// The first and the last tile of keys that a tile of queries sees, and of queries that see a tile of keys.
static int64_t first_keys(const sizes *z, int64_t sample, int64_t query) {
    if (z->all) return 0;
    int64_t t = query * TILE - (seen_by(z, sample, query * TILE) - 1);
    return t > 0 ? t / TILE : 0;
}
static int64_t last_keys(const sizes *z, int64_t sample, int64_t query) {
    return z->all ? (length_of(z, sample) - 1) / TILE : query;
}
static int64_t first_queries(const sizes *z, int64_t key) { return z->all ? 0 : key; }
static int64_t last_queries(const sizes *z, int64_t sample, int64_t key) {
    if (z->all) return z->tiles - 1;
    int64_t last = least(z->tiles - 1, (key * TILE + TILE - 1 + z->window - 1) / TILE), q = key;
    if (!z->places) return last;
    while (q < last && first_keys(z, sample, q + 1) <= key) q++;
    return q;
}

static meeting meeting_of(const sizes *z, int64_t sample, int64_t head, int64_t query, int64_t key) {
    int64_t unseen = z->all ? -TILE : (query - key) * TILE - z->window + 1, keys = keys_of_tile(z, sample, key);
    meeting m = {.sample = sample,
                 .head = head,
                 .query = query,
                 .key = key,
                 .rows = rows_of_tile(z, query),
                 .keys = keys,
                 .first = key == first_keys(z, sample, query),
                 .last = key == last_keys(z, sample, query),
                 .begins = query == first_queries(z, key) && head % z->group == 0,
                 .diagonal = query == key && !z->all,
                 .unseen = unseen,
                 .places = places_of(z, sample, query * TILE),
                 .apart = (query - key) * TILE};
    m.cut = unseen + TILE - 1 > 0 || (z->all && keys < TILE) || (m.places && unseen_of(&m, m.rows - 1) > 0);
    return m;
}

// scores (TILE,TILE) = x y^T, for y transposed; on the diagonal only as far as each strip of rows sees.
static void scores_of_tile(const sizes *z, float *scores, const float *x, const float *yt, const meeting *m) {
    int64_t w = z->along, cells = product_cells(z->head);
    product_state p = tile_begin();
    if (!m->diagonal) product(scores, TILE, x, w, yt, TILE, m->rows, m->keys, cells, true);
    for (int64_t r = 0; m->diagonal && r < m->rows; r += STRIP)
        product(scores + r * TILE, TILE, x + r * w, w, yt, TILE, least(STRIP, m->rows - r), r + STRIP, cells, true);
    tile_end(&p);
}

// out (rows,width) += p y, p (TILE,TILE) of queries by keys, along; or = where the keys are the first of all.
static void add_over_keys(const sizes *z, float *out, const float *p, const float *y, const meeting *m) {
    int64_t w = z->width;
    product_state mode = tile_begin();
    if (!m->diagonal) product(out, w, p, TILE_ALONG, y, w, m->rows, w, product_cells(m->keys), m->first);
    for (int64_t r = 0; m->diagonal && r < m->rows; r += STRIP)
        product(out + r * w, w, p + r * TILE_ALONG, TILE_ALONG, y, w, least(STRIP, m->rows - r), w,
                product_cells(least(r + STRIP, m->keys)), m->first);
    tile_end(&mode);
}

// out (keys,width) += p^T x, p across, or = where the queries are the first that see these keys, of the first head that
// shares them.
static void add_over_queries(const sizes *z, float *out, const float *p, const float *x, const meeting *m) {
    int64_t w = z->width, lda = CELL_K * TILE;
    bool first = m->begins;
    product_state mode = tile_begin();
    if (!m->diagonal) product_transposed(out, w, p, lda, x, w, m->keys, w, product_cells(m->rows), first);
    for (int64_t k = 0; m->diagonal && k < m->keys; k += STRIP)
        product_transposed(out + k * w, w, p + k * TILE + k, lda, x + k / CELL_K * w, w, least(STRIP, m->keys - k), w,
                           product_cells(m->rows - k), first);
    tile_end(&mode);
}

// Vectors of row r of a tile that hold keys it sees: all, or on the diagonal those up to its own key, which is in the
// last one.
static int vecs_seen(int64_t r, bool diagonal) { return diagonal ? (int)(r / VL) + 1 : TILE_VECS; }

// What of vector v of row r is seen: x there, `else_` elsewhere.
VEC vf seen_of(const meeting *m, int64_t r, int v, vf x, vf else_) {
    int64_t from = unseen_of(m, r) - v * VL, to = (m->diagonal ? r + 1 : m->keys) - v * VL;
    x = vf_select(vm_first((int)(to < 0 ? 0 : least(to, VL))), x, else_);
    return from > 0 ? vf_select(vm_first((int)least(from, VL)), else_, x) : x;
}

// 0 or 1/(1-p) for the probabilities of row r of the queries and the keys of a tile; 0 past the last key that it sees.
static void keep_factors(const sizes *z, float *factor, const meeting *m, int64_t r) {
    int64_t t = m->query * TILE + r, n = m->diagonal ? r + 1 : m->keys;
    if (n < TILE) memset(factor, 0, TILE * sizeof *factor);
    int64_t head = z->first_head + m->sample / z->together * z->heads + m->head;
    dropout_factors(factor, (head * z->time + t) * z->time + m->key * TILE, n, z->drop,
                    (uint32_t)(m->sample % z->together));
}

// --- forward ---------------------------------------------------------------------------------------------------------

typedef struct forward_job {
    sizes z;
    tensor *y, *lse;
    const tensor *qkv;
    pool *workers;
} forward_job;

typedef struct forward_room {
    float *q, *y;   // (FORWARD_ROWS,along), (FORWARD_ROWS,width)
    float *sum;     // (FORWARD_ROWS,16) lanes of the row sums
    float *max;     // (FORWARD_ROWS)
    float *kt, *v;  // (along,TILE), (TILE,width) across
    float *scores;  // (TILE,TILE); then, in the same place, probabilities along
} forward_room;

static int64_t forward_layout(forward_room *f, const sizes *z, float *base) {
    room r = {base, 0};
    int64_t rows = least(FORWARD_ROWS, z->tiles * TILE);
    f->q = take(&r, rows * z->along), f->y = take(&r, rows * z->width);
    f->sum = take(&r, rows * VL), f->max = take(&r, rows);
    f->kt = take(&r, z->along * TILE), f->v = take(&r, TILE * z->width);
    f->scores = take(&r, TILE * TILE);
    return r.used;
}

// max[r] of each row of a tile. Four rows at a time: after a transposition lane 4g+i holds row i's maximum over group g
// of lanes. Rows past the last, up to a multiple of four, are computed and not used.
static void row_maxima(float *max, const float *scores, int64_t rows, bool diagonal) {
    const vf lowest = vf_set1(-__builtin_inff());
    for (int64_t r = 0; r < rows; r += 4) {
        int last = vecs_seen(r, diagonal) - 1;
        vi x[4];
        for (int i = 0; i < 4; i++) {
            const float *row = scores + (r + i) * TILE;
            vf m = vf_load(row + last * VL);
            if (diagonal) m = vf_select(vm_first((int)((r + i) % VL) + 1), m, lowest);
            for (int v = 0; v < last; v++) m = vf_max(vf_load(row + v * VL), m);
            x[i] = vf_bits(m);
        }
        vi_transpose4(x);
        vf a = vf_max(vi_float_bits(x[0]), vi_float_bits(x[1])), b = vf_max(vi_float_bits(x[2]), vi_float_bits(x[3]));
        float lane[VL];
        vf_store(lane, vf_max(a, b));
        for (int i = 0; i < 4; i++) {
            float c = lane[i] > lane[4 + i] ? lane[i] : lane[4 + i],
                  d = lane[8 + i] > lane[12 + i] ? lane[8 + i] : lane[12 + i];
            max[r + i] = c > d ? c : d;
        }
    }
}

// The same where a window or the sample's end cuts the tile, row by row. A row that sees none of the keys has the least
// number there is as its maximum, which the first key that it does see raises.
static void cut_maxima(float *max, const float *scores, const meeting *m) {
    for (int64_t r = 0; r < m->rows; r++) {
        vf lowest = vf_set1(-FLT_MAX), most = lowest;
        for (int v = 0; v < vecs_seen(r, m->diagonal); v++)
            most = vf_max(seen_of(m, r, v, vf_load(scores + r * TILE + v * VL), lowest), most);
        float lane[VL];
        vf_store(lane, most);
        max[r] = lane[0];
        for (int i = 1; i < VL; i++) max[r] = lane[i] > max[r] ? lane[i] : max[r];
    }
}

// Row r of a tile: scores become probabilities relative to the maximum, times what dropout keeps, as cells; returns
// their sum by lanes, before dropout.
VEC vf row_probabilities(const sizes *z, float *out, const float *row, float max, const float *factor, int64_t r,
                         bool diagonal, const meeting *cut) {
    vf m = vf_set1(max), sum = vf_zero();
    int vecs = vecs_seen(r, diagonal);
#pragma GCC unroll 4
    for (int v = 0; v < vecs; v++) {
        vf p = vf_exp_down(vf_sub(score_of(vf_load(row + v * VL), z->scale), m));
        if (diagonal && v == vecs - 1) p = vf_select(vm_first((int)(r % VL) + 1), p, vf_zero());
        if (cut) p = seen_of(cut, r, v, p, vf_zero());
        sum = vf_add(sum, p);
        cells_put_along(out, v * VL, z->drop ? vf_mul(p, vf_load(factor + v * VL)) : p);
    }
    return sum;
}

// Adds one tile of keys to y, sum and max of one tile of queries.
static void forward_tile(const sizes *z, const forward_room *f, const meeting *m, int64_t from) {
    int64_t w = z->width;
    float *y = f->y + from * w, *sum = f->sum + from * VL, *max = f->max + from;
    float here[TILE], shrink[TILE], factor[TILE];
    bool first = m->first;
    scores_of_tile(z, f->scores, f->q + from * z->along, f->kt, m);
    if (m->cut) cut_maxima(here, f->scores, m);
    else row_maxima(here, f->scores, m->rows, m->diagonal);
    for (int64_t r = 0; r < m->rows; r += VL) {
        vf old = vf_load(max + r),
           new = vf_max(old, score_of(vf_load_n(here + r, (int)least(VL, m->rows - r)), z->scale));
        vf_store(shrink + r, vf_exp_down(vf_sub(old, new)));
        vf_store(max + r, new);
    }
    for (int64_t r = 0; r < m->rows; r++) {
        const float *row = f->scores + r * TILE;
        float *out = f->scores + r * TILE_ALONG;  // where no score is any more that is still needed
        if (z->drop) keep_factors(z, factor, m, r);
        vf p = m->cut        ? row_probabilities(z, out, row, max[r], factor, r, m->diagonal, m)
               : m->diagonal ? row_probabilities(z, out, row, max[r], factor, r, true, NULL)
                             : row_probabilities(z, out, row, max[r], factor, r, false, NULL);
        vf_store(sum + r * VL, first ? p : vf_fma(vf_load(sum + r * VL), vf_set1(shrink[r]), p));
        if (!first && shrink[r] != 1)
            for (int64_t i = 0; i < w; i += VL)
                vf_store(y + r * w + i, vf_mul(vf_load(y + r * w + i), vf_set1(shrink[r])));
    }
    add_over_keys(z, y, f->scores, f->v, m);
}

BODY void forward_store(dtype type, const sizes *z, const forward_room *f, const forward_job *j, const meeting *m,
                        int64_t from) {
    int64_t t = m->query * TILE;
    float *lse = (float *)j->lse->data + (m->sample * z->heads + m->head) * z->time + t;
    const float *y = f->y + from * z->width, *sum = f->sum + from * VL, *max = f->max + from;
    float total[VL];
    for (int64_t r = 0; r < m->rows; r++) {
        total[r % VL] = vf_sum(vf_load(sum + r * VL));
        vf divisor = vf_set1(total[r % VL]);
        for (int64_t i = 0; i < z->head; i += VL)
            typed_store_n(j->y->data, type, at_y(z, m->sample, t + r, m->head) + i,
                          vf_div(dividend_of(y + r * z->width + i), divisor), z->head - i);
        if (r % VL != VL - 1 && r != m->rows - 1) continue;
        int64_t first = r / VL * VL;
        int n = (int)(r - first) + 1;
        vf_store_n(lse + first, vf_add(vf_load_n(max + first, n), vf_log(vf_load_n(total, n))), n);
    }
}

// An item is a (sample, head) and FORWARD_ROWS queries; the last queries, which have the most keys, come first. Queries
// are loaded at the first tile of keys and stored after the last.
static void forward_item(void *ctx, int64_t item, int thread) {
    const forward_job *j = ctx;
    const sizes *z = &j->z;
    int64_t pairs = z->samples * z->heads, blocks = (z->tiles + FORWARD_TILES - 1) / FORWARD_TILES;
    int64_t sample = item % pairs / z->heads, head = item % z->heads;
    int64_t first = (blocks - 1 - item / pairs) * FORWARD_TILES, end = least(first + FORWARD_TILES, z->tiles);
    forward_room f;
    size_t bytes = (size_t)forward_layout(&f, z, NULL) * sizeof(float);
    forward_layout(&f, z, pool_scratch(j->workers, thread, bytes));

    for (int64_t r = 0; r < (end - first) * TILE; r++) f.max[r] = -__builtin_inff();
    for (int64_t k = first_keys(z, sample, first); k <= last_keys(z, sample, end - 1); k++) {
        load_transposed(z, f.kt, j->qkv, sample, k * TILE, head, 1, keys_of_tile(z, sample, k));
        load_qkv_across(z, f.v, j->qkv, sample, k * TILE, head, 2, keys_of_tile(z, sample, k));
        for (int64_t q = k > first && !z->all ? k : first; q < end; q++) {
            meeting m = meeting_of(z, sample, head, q, k);
            int64_t from = (q - first) * TILE;
            if (k < first_keys(z, sample, q)) break;  // nor do later queries see them
            if (m.first) load_qkv(z, f.q + from * z->along, j->qkv, sample, q * TILE, head, 0, m.rows);
            forward_tile(z, &f, &m, from);
            if (m.last) BY_TYPE(z->type, forward_store, z, &f, j, &m, from);
        }
    }
}

err_t KERNEL(attention_forward)(const attention_forward_args *args, stream *s) {
    forward_job j = {.z = sizes_of(args->qkv, args->heads, args->kv_heads, args->window, args->drop, args->samples,
                                   args->first_head),
                     .y = args->y,
                     .lse = args->lse,
                     .qkv = args->qkv,
                     .workers = s->workers};
    see_all(&j.z, args->all, args->lengths);
    see_documents(&j.z, args->places);
    assert(args->y->type == j.z.type && tensor_count(args->y) == j.z.samples * j.z.time * j.z.channels);
    assert(args->lse->type == FP32 && tensor_count(args->lse) == j.z.samples * j.z.heads * j.z.time);
    forward_room f;
    TRY(reserve(s, forward_layout(&f, &j.z, NULL), "attention_forward"));
    int64_t blocks = (j.z.tiles + FORWARD_TILES - 1) / FORWARD_TILES;
    pool_run(s->workers, j.z.samples * j.z.heads * blocks, forward_item, &j);
    return ERR_OK;
}

// --- backward --------------------------------------------------------------------------------------------------------

typedef struct backward_job {
    sizes z;
    tensor *dqkv, *delta;
    const tensor *dy, *y, *lse, *qkv;
    pool *workers;
    int64_t rows;  // of q, dy and dq in scratch: the whole time of all heads that share k and v, or one tile
} backward_job;

typedef struct backward_room {
    float *q, *dy;                 // (rows,along)
    float *q_across, *dy_across;   // (rows,width): the same memory where a tile along is one across
    float *dq;                     // (rows,width)
    float *k, *kt, *vt, *dk, *dv;  // (TILE,width), k across; those with t (along,TILE)
    float *p, *ds;                 // (TILE,TILE), across once they are more than scores
    float *ds_along;               // (TILE,TILE_ALONG), ds itself where that is one
} backward_room;

static int64_t backward_layout(backward_room *b, const backward_job *j, float *base) {
    room r = {base, 0};
    int64_t tile = TILE * j->z.width, all = j->rows * j->z.width, along = j->rows * j->z.along,
            columns = j->z.along * TILE;
    b->q = take(&r, along), b->dy = take(&r, along), b->dq = take(&r, all);
    b->q_across = WORDS ? take(&r, all / CELL_K) : b->q, b->dy_across = WORDS ? take(&r, all / CELL_K) : b->dy;
    b->k = take(&r, tile), b->kt = take(&r, columns), b->vt = take(&r, columns);
    b->dk = take(&r, tile), b->dv = take(&r, tile);
    b->p = take(&r, TILE * TILE), b->ds = take(&r, TILE * TILE);
    b->ds_along = WORDS ? take(&r, TILE * TILE_ALONG) : b->ds;
    return r.used;
}

static backward_room backward_room_of(const backward_job *j, int thread) {
    backward_room b;
    size_t bytes = (size_t)backward_layout(&b, j, NULL) * sizeof(float);
    backward_layout(&b, j, pool_scratch(j->workers, thread, bytes));
    return b;
}

BODY void delta_rows(dtype type, const backward_job *j, int64_t sample, int64_t head, int64_t t, int64_t rows) {
    const sizes *z = &j->z;
    float *delta = (float *)j->delta->data + (sample * z->heads + head) * z->time + t;
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = at_y(z, sample, t + r, head);
        vf sum[2] = {vf_zero(), vf_zero()};
        for (int64_t i = 0; i < z->head; i += VL)
            sum[i / VL % 2] = vf_fma(typed_load_n(j->dy->data, type, at + i, z->head - i),
                                     typed_load_n(j->y->data, type, at + i, z->head - i), sum[i / VL % 2]);
        delta[r] = vf_sum(vf_add(sum[0], sum[1]));
    }
}
static void delta_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const backward_job *j = ctx;
    const sizes *z = &j->z;
    int64_t pair = item / z->tiles, tile = item % z->tiles;
    BY_TYPE(z->type, delta_rows, j, pair / z->heads, pair % z->heads, tile * TILE, rows_of_tile(z, tile));
}

// Of sixteen keys that row r sees: p = exp(s - lse), times what dropout keeps, and ds = p (dp - delta), where dropout
// acts on dp.
typedef struct gradient {
    vf p, ds;
} gradient;
VEC gradient gradient_of(const sizes *z, const float *p, const float *ds, float lse, float delta, const float *factor,
                         int64_t r, int v, bool last, const meeting *cut) {
    vf x = vf_exp(vf_sub(score_of(vf_load(p + v * VL), z->scale), vf_set1(lse))), g = vf_load(ds + v * VL), kept;
    if (last) x = vf_select(vm_first((int)(r % VL) + 1), x, vf_zero());
    if (cut) x = seen_of(cut, r, v, x, vf_zero());
    kept = x;
    if (z->drop) kept = vf_mul(x, vf_load(factor + v * VL)), g = vf_mul(g, vf_load(factor + v * VL));
    g = vf_mul(x, vf_sub(g, vf_set1(delta)));
    if (PAIRED && last) g = vf_select(vm_first((int)(r % VL) + 1), g, vf_zero());
    if (PAIRED && cut) g = seen_of(cut, r, v, g, vf_zero());
    return (gradient){kept, g};
}

// Row r of a tile, and what shares its cells: scores and their gradients become p and ds, as cells.
typedef float row_factors[CELL_K][TILE];
VEC void row_gradient(const sizes *z, const backward_room *b, const float *lse, const float *delta,
                      const row_factors factor, int64_t r, bool diagonal, const meeting *m) {
    float *p = b->p + r * TILE, *ds = b->ds + r * TILE;
    int vecs = vecs_seen(r, diagonal);
#pragma GCC unroll 4
    for (int v = 0; v < vecs; v++) {
        gradient g[CELL_K];
#pragma GCC unroll 2
        for (int i = 0; i < CELL_K; i++) {
            bool last = diagonal && v == vecs - 1;
            if (r + i < m->rows)
                g[i] = gradient_of(z, p + i * TILE, ds + i * TILE, lse[r + i], delta[r + i], factor[i], r + i, v, last,
                                   m->cut ? m : NULL);
            else g[i] = (gradient){vf_zero(), vf_zero()};
            if (WORDS) cells_put_along(b->ds_along + (r + i) * TILE_ALONG, v * VL, g[i].ds);
        }
        cells_put_across(p + v * VL, g[0].p, g[CELL_K - 1].p);
        cells_put_across(ds + v * VL, g[0].ds, g[CELL_K - 1].ds);
    }
}

// One tile of queries and one of keys: computes the probabilities again and adds to the gradients that `wanted`
// selects.
typedef enum want { WANT_DKDV = 1, WANT_DQ = 2 } want;
static void backward_tile(const backward_job *j, const backward_room *b, const meeting *m, int64_t from,
                          unsigned wanted) {
    const sizes *z = &j->z;
    int64_t stat = (m->sample * z->heads + m->head) * z->time + m->query * TILE;
    const float *lse = (const float *)j->lse->data + stat, *delta = (const float *)j->delta->data + stat;
    row_factors factor;
    meeting whole = *m;  // no window
    whole.cut = false;
    scores_of_tile(z, b->p, b->q + from * z->along, b->kt, m);
    scores_of_tile(z, b->ds, b->dy + from * z->along, b->vt, m);
    for (int64_t r = 0; r < m->rows; r += CELL_K) {
        for (int i = 0; z->drop && i < CELL_K && r + i < m->rows; i++) keep_factors(z, factor[i], m, r + i);
        if (m->cut) row_gradient(z, b, lse, delta, factor, r, m->diagonal, m);
        else if (m->diagonal) row_gradient(z, b, lse, delta, factor, r, true, &whole);
        else row_gradient(z, b, lse, delta, factor, r, false, &whole);
    }
    if (product_cells(m->rows) > m->rows) {  // the last pair lacks a query
        memset(b->p + m->rows * TILE, 0, TILE * sizeof *b->p);
        memset(b->ds + m->rows * TILE, 0, TILE * sizeof *b->ds);
    }
    if (wanted & WANT_DQ) add_over_keys(z, b->dq + from * z->width, b->ds_along, b->k, m);
    if (!(wanted & WANT_DKDV)) return;
    add_over_queries(z, b->dv, b->p, b->dy_across + from / CELL_K * z->width, m);
    add_over_queries(z, b->dk, b->ds, b->q_across + from / CELL_K * z->width, m);
}

// A tile of queries, to row `from` of scratch.
static void load_queries(const backward_job *j, const backward_room *b, const meeting *m, int64_t from) {
    const sizes *z = &j->z;
    int64_t t = m->query * TILE;
    int64_t across = from / CELL_K * z->width, y = at_y(z, m->sample, t, m->head);
    load_qkv(z, b->q + from * z->along, j->qkv, m->sample, t, m->head, 0, m->rows);
    load_rows(z->type, b->dy + from * z->along, z->along, j->dy->data, y, z->channels, m->rows, z->head, 1);
    if (!WORDS) return;
    load_qkv_across(z, b->q_across + across, j->qkv, m->sample, t, m->head, 0, m->rows);
    load_across(z->type, b->dy_across + across, z->width, j->dy->data, y, z->channels, m->rows, z->head);
}

static void load_keys(const backward_job *j, const backward_room *b, int64_t sample, int64_t head, int64_t tile) {
    const sizes *z = &j->z;
    int64_t keys = keys_of_tile(z, sample, tile);
    load_qkv_across(z, b->k, j->qkv, sample, tile * TILE, head, 1, keys);
    if (WORDS) load_transposed(z, b->kt, j->qkv, sample, tile * TILE, head, 1, keys);
    else load_columns(FP32, b->kt, z->width, b->k, 0, z->width, keys, z->width);
    load_transposed(z, b->vt, j->qkv, sample, tile * TILE, head, 2, keys);
}

// Keys beyond the sample's length have no gradient.
static void store_keys(const backward_job *j, const backward_room *b, int64_t sample, int64_t head, int64_t tile) {
    int64_t keys = keys_of_tile(&j->z, sample, tile), w = j->z.width;
    size_t beyond = (size_t)((rows_of_tile(&j->z, tile) - keys) * w) * sizeof *b->dk;
    memset(b->dk + keys * w, 0, beyond), memset(b->dv + keys * w, 0, beyond);
    store_dqkv(&j->z, j->dqkv, b->dk, sample, tile * TILE, head, 1, rows_of_tile(&j->z, tile));
    store_dqkv(&j->z, j->dqkv, b->dv, sample, tile * TILE, head, 2, rows_of_tile(&j->z, tile));
}

// A tile of keys with all queries of a head that see it; queries are loaded at the first tile of keys that they see,
// and stored after the last. base: the head's first row in scratch.
static void keys_with_head(const backward_job *j, const backward_room *b, int64_t sample, int64_t head, int64_t k,
                           int64_t base) {
    const sizes *z = &j->z;
    for (int64_t q = first_queries(z, k); q <= last_queries(z, sample, k); q++) {
        meeting m = meeting_of(z, sample, head, q, k);
        int64_t from = base + q * TILE;
        if (m.first) {
            BY_TYPE(z->type, delta_rows, j, sample, head, q * TILE, m.rows);
            load_queries(j, b, &m, from);
        }
        backward_tile(j, b, &m, from, WANT_DKDV | WANT_DQ);
        if (m.last) store_dqkv(z, j->dqkv, b->dq + from * z->width, sample, q * TILE, head, 0, m.rows);
    }
}

// One pass: an item is a (sample, head of k and v).
static void backward_item(void *ctx, int64_t item, int thread) {
    const backward_job *j = ctx;
    const sizes *z = &j->z;
    backward_room b = backward_room_of(j, thread);
    int64_t kv = z->heads / z->group, sample = item / kv, head = item % kv * z->group;
    for (int64_t k = 0; k < z->tiles; k++) {
        load_keys(j, &b, sample, head, k);
        for (int64_t i = 0; i < z->group && keys_of_tile(z, sample, k); i++)
            keys_with_head(j, &b, sample, head + i, k, i * z->tiles * TILE);
        store_keys(j, &b, sample, head, k);
    }
}

// Two passes: an item is a tile of keys of one (sample, head of k and v), then one of queries of one (sample, head),
// longest first.
static void backward_keys_item(void *ctx, int64_t item, int thread) {
    const backward_job *j = ctx;
    const sizes *z = &j->z;
    backward_room b = backward_room_of(j, thread);
    int64_t kv = z->heads / z->group, pairs = z->samples * kv, sample = item % pairs / kv, head = item % kv * z->group,
            k = item / pairs;
    load_keys(j, &b, sample, head, k);
    for (int64_t i = 0; i < z->group && keys_of_tile(z, sample, k); i++)
        for (int64_t q = first_queries(z, k); q <= last_queries(z, sample, k); q++) {
            meeting m = meeting_of(z, sample, head + i, q, k);
            load_queries(j, &b, &m, 0);
            backward_tile(j, &b, &m, 0, WANT_DKDV);
        }
    store_keys(j, &b, sample, head, k);
}

static void backward_queries_item(void *ctx, int64_t item, int thread) {
    const backward_job *j = ctx;
    const sizes *z = &j->z;
    backward_room b = backward_room_of(j, thread);
    int64_t pairs = z->samples * z->heads, sample = item % pairs / z->heads, head = item % z->heads;
    int64_t q = z->tiles - 1 - item / pairs;
    for (int64_t k = first_keys(z, sample, q); k <= last_keys(z, sample, q); k++) {
        meeting m = meeting_of(z, sample, head, q, k);
        if (m.first) load_queries(j, &b, &m, 0);
        load_keys(j, &b, sample, head, k);
        backward_tile(j, &b, &m, 0, WANT_DQ);
    }
    store_dqkv(z, j->dqkv, b.dq, sample, q * TILE, head, 0, rows_of_tile(z, q));
}

err_t KERNEL(attention_backward)(const attention_backward_args *args, stream *s) {
    backward_job j = {.z = sizes_of(args->qkv, args->heads, args->kv_heads, args->window, args->drop, args->samples,
                                    args->first_head),
                      .dqkv = args->dqkv,
                      .delta = args->delta,
                      .dy = args->dy,
                      .y = args->y,
                      .lse = args->lse,
                      .qkv = args->qkv,
                      .workers = s->workers};
    see_all(&j.z, args->all, args->lengths);
    see_documents(&j.z, args->places);
    int64_t pairs = j.z.samples * j.z.heads, threads = pool_threads(s->workers);
    assert(args->dqkv->type == j.z.type && tensor_count(args->dqkv) == tensor_count(args->qkv));
    assert(args->y->type == j.z.type && tensor_count(args->y) == j.z.samples * j.z.time * j.z.channels);
    assert(args->dy->type == j.z.type && tensor_count(args->dy) == tensor_count(args->y));
    assert(args->lse->type == FP32 && args->delta->type == FP32);
    assert(tensor_count(args->lse) == pairs * j.z.time && tensor_count(args->delta) == pairs * j.z.time);

    // Products on the busiest thread: 5 for each of its items, or 7 for its share of all.
    int64_t items = pairs / j.z.group, rounds = (items + threads - 1) / threads;
    bool two_passes = j.z.tiles > 1 && 7 * items < 5 * rounds * threads;
    j.rows = two_passes ? TILE : (j.z.group - 1) * j.z.tiles * TILE + (PAIRED ? (j.z.time + 1) / 2 * 2 : j.z.time);
    backward_room b;
    TRY(reserve(s, backward_layout(&b, &j, NULL), "attention_backward"));
    if (two_passes) {
        pool_run(s->workers, pairs * j.z.tiles, delta_item, &j);
        pool_run(s->workers, items * j.z.tiles, backward_keys_item, &j);
        pool_run(s->workers, pairs * j.z.tiles, backward_queries_item, &j);
    } else {
        pool_run(s->workers, items, backward_item, &j);
    }
    return ERR_OK;
}
