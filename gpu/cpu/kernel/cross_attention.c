// gpu/cpu/kernel/cross_attention.c: attention of queries to the keys of another text, with a bias by distance, and that
// bias (gpu/ops_cross.h).
//
// An item of forward is a (sample, head) and a tile of 64 queries, whose scores of all keys are in memory at once; one
// of backward is a (sample, head), so that the sums of a distance's gradient are one thread's. Tiles of 64 keys, strips
// and the product are those of attention.c (attention_tile.h); a cell is a float here, whatever [precision] products
// says.
//
// The order of every sum, for any vector width and any number of threads:
//   s[i][j]   FMA over d ascending, q having been multiplied by scale; then the bias is added
//   row sum   lane l of 16 sums keys l mod 16, ascending, all relative to the row's largest score; then the fixed tree
//   y         FMA over keys ascending; divided by the row sum at the end
//   delta     lane l of 16 FMA over d = l mod 16, ascending; then the fixed tree
//   dk, dv    FMA over queries ascending
//   dq        FMA over keys ascending; times scale at the end
//   parts     tiles of keys, in each the queries, ascending
#include "gpu/cpu/kernel/attention_tile.h"
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/vmath.h"

#include <float.h>

typedef struct cross {
    int64_t samples, heads, head;
    int64_t queries, keys;  // of a sample
    int64_t width;          // of a row in scratch: head size, rounded up to whole vectors
    int64_t columns;        // of a row of scores: keys, rounded up to whole tiles
    int64_t channels;
    int64_t distances;  // of a row of the bias
    int64_t first;      // position of the first query
    int64_t together;   // samples of a slice of the heads
    int64_t first_head;
    float scale;
    bool causal;
    const int32_t *lengths;  // NULL: all keys
    const dropout_key *drop;
    const void *q, *kv;
    const float *bias;
    dtype type;
} cross;

static cross cross_of(const tensor *q, const tensor *kv, const tensor *bias, const tensor *lengths, int heads) {
    cross z = {.samples = q->size[0],
               .heads = heads,
               .head = q->size[2] / heads,
               .queries = q->size[1],
               .keys = kv->size[1],
               .channels = q->size[2],
               .lengths = lengths ? lengths->data : NULL,
               .q = q->data,
               .kv = kv->data,
               .bias = bias ? bias->data : NULL,
               .type = q->type};
    assert(q->dims == 3 && kv->dims == 3 && heads > 0 && q->size[2] % heads == 0 && kv->size[2] == 2 * q->size[2]);
    assert(kv->size[0] == q->size[0] && kv->type == q->type && (!lengths || lengths->type == INT32));
    z.width = (z.head + VL - 1) / VL * VL, z.columns = (z.keys + TILE - 1) / TILE * TILE;
    z.distances = z.queries + z.keys - 1;
    return z;
}

static void slices_of(cross *z, int64_t samples, int first_head, const dropout_key *drop, const tensor *bias) {
    z->together = samples ? samples : z->samples, z->first_head = first_head;
    z->drop = drop && drop->p > 0 ? drop : NULL;
    assert(z->samples % z->together == 0 && (!z->drop || z->drop->p < 1));
    if (!bias) return;
    int64_t rows = z->samples / z->together * z->heads;
    assert(bias->type == FP32 && tensor_count(bias) >= rows * (z->first + z->distances));
    z->distances = tensor_count(bias) / rows;
    assert(tensor_count(bias) == rows * z->distances);
}

// Keys of a sample that its queries see, and those that query i does.
static int64_t length_of(const cross *z, int64_t sample) {
    int64_t n = z->lengths ? z->lengths[sample % z->together] : z->keys;
    return n < 1 ? 1 : least(n, z->keys);
}
static int64_t seen_by(const cross *z, int64_t length, int64_t query) {
    return z->causal ? least(length, z->first + query + 1) : length;
}

// Element number of (sample, query, head, 0) in q and y; of (sample, key, head, 0) in kv's part 0 (k) or 1 (v).
static int64_t at_query(const cross *z, int64_t sample, int64_t query, int64_t head) {
    return (sample * z->queries + query) * z->channels + head * z->head;
}
static int64_t at_key(const cross *z, int64_t sample, int64_t key, int64_t head, int part) {
    return ((sample * z->keys + key) * 2 + part) * z->channels + head * z->head;
}

// The bias of query i and key 0: of distance -(first + i), which stands P - 1 = distances - keys after the first one.
static const float *bias_at(const cross *z, int64_t sample, int64_t head, int64_t query) {
    if (!z->bias) return NULL;
    return z->bias + (sample / z->together * z->heads + head) * z->distances + (z->distances - z->keys) -
           (z->first + query);
}

static int64_t up(int64_t n) { return (n + VL - 1) / VL * VL; }

static void factors_of(const cross *z, float *factor, int64_t sample, int64_t head, int64_t query, int64_t key,
                       int64_t n) {
    int64_t number = z->first_head + sample / z->together * z->heads + head;
    dropout_factors(factor, (number * z->queries + query) * z->keys + key, n, z->drop,
                    (uint32_t)(sample % z->together));
}

// --- forward ---------------------------------------------------------------------------------------------------------

typedef struct cross_job {
    cross z;
    void *y;
    float *lse;
    pool *workers;
} cross_job;

typedef struct cross_room {
    float *q, *y;   // (TILE,width)
    float *scores;  // (TILE,columns)
    float *kt, *v;  // (width,TILE), (TILE,width)
    float *factor;  // (columns)
} cross_room;

static int64_t cross_layout(cross_room *f, const cross *z, float *base) {
    room r = {base, 0};
    f->q = take(&r, TILE * z->width), f->y = take(&r, TILE * z->width);
    f->scores = take(&r, TILE * z->columns);
    f->kt = take(&r, z->width * TILE), f->v = take(&r, TILE * z->width);
    f->factor = take(&r, z->columns + 4 * VL);
    return r.used;
}

// A row of n scores becomes probabilities relative to the largest, times what dropout keeps; zeros up to `end`. Returns
// the sum before dropout, and the largest score.
static float probabilities(float *row, const float *bias, int64_t n, int64_t end, const float *factor, float *most) {
    float lane[VL], max = -FLT_MAX;
    vf top = vf_set1(-FLT_MAX), sum = vf_zero();
    for (int64_t j = 0; j < n; j += VL) {
        int here = (int)least(VL, n - j);
        vf x = vf_load(row + j);
        if (bias) x = vf_add(x, vf_load_n(bias + j, here));
        vf_store(row + j, x);
        top = vf_max(vf_select(vm_first(here), x, top), top);
    }
    vf_store(lane, top);
    for (int i = 0; i < VL; i++) max = lane[i] > max ? lane[i] : max;
    for (int64_t j = 0; j < n; j += VL) {
        vf p = vf_exp_down(vf_sub(vf_load(row + j), vf_set1(max)));
        p = vf_select(vm_first((int)least(VL, n - j)), p, vf_zero());
        sum = vf_add(sum, p);
        vf_store(row + j, factor ? vf_mul(p, vf_load_n(factor + j, (int)least(VL, n - j))) : p);
    }
    for (int64_t j = up(n); j < end; j += VL) vf_store(row + j, vf_zero());
    *most = max;
    return vf_sum(sum);
}

BODY void store_query(dtype t, void *out, int64_t at, const float *row, int64_t n, float divisor) {
    for (int64_t i = 0; i < n; i += VL)
        typed_store_n(out, t, at + i, vf_div(vf_load(row + i), vf_set1(divisor)), n - i);
}

// Of a tile of queries, the scores of all keys that its last one sees.
static void tile_scores(const cross *z, const cross_room *f, int64_t sample, int64_t head, int64_t rows, int64_t keys) {
    for (int64_t k = 0; k < keys; k += TILE) {
        int64_t n = least(TILE, keys - k);
        load_columns(z->type, f->kt, z->width, z->kv, at_key(z, sample, k, head, 0), 2 * z->channels, n, z->head);
        product_state p = tile_begin();
        product(f->scores + k, z->columns, f->q, z->width, f->kt, TILE, rows, up(n), product_cells(z->head), true);
        tile_end(&p);
    }
}

static void tile_values(const cross *z, const cross_room *f, int64_t sample, int64_t head, int64_t rows, int64_t keys) {
    for (int64_t k = 0; k < keys; k += TILE) {
        int64_t n = least(TILE, keys - k);
        load_across(z->type, f->v, z->width, z->kv, at_key(z, sample, k, head, 1), 2 * z->channels, n, z->head);
        product_state p = tile_begin();
        product(f->y, z->width, f->scores + k, z->columns, f->v, z->width, rows, z->width, product_cells(n), k == 0);
        tile_end(&p);
    }
}

static void cross_item(void *ctx, int64_t item, int thread) {
    const cross_job *j = ctx;
    const cross *z = &j->z;
    int64_t pairs = z->samples * z->heads, sample = item % pairs / z->heads, head = item % z->heads;
    int64_t first = item / pairs * TILE, rows = least(TILE, z->queries - first), length = length_of(z, sample);
    int64_t keys = seen_by(z, length, first + rows - 1);
    float sum[TILE], most[TILE];
    cross_room f;
    size_t bytes = (size_t)cross_layout(&f, z, NULL) * sizeof(float);
    cross_layout(&f, z, pool_scratch(j->workers, thread, bytes));
    load_rows(z->type, f.q, z->width, z->q, at_query(z, sample, first, head), z->channels, rows, z->head, z->scale);
    tile_scores(z, &f, sample, head, rows, keys);
    for (int64_t r = 0; r < rows; r++) {
        int64_t n = seen_by(z, length, first + r);
        if (z->drop) factors_of(z, f.factor, sample, head, first + r, 0, n);
        sum[r] = probabilities(f.scores + r * z->columns, bias_at(z, sample, head, first + r), n, up(keys),
                               z->drop ? f.factor : NULL, &most[r]);
    }
    tile_values(z, &f, sample, head, rows, keys);
    for (int64_t r = 0; r < rows; r++)
        BY_TYPE(z->type, store_query, j->y, at_query(z, sample, first + r, head), f.y + r * z->width, z->head, sum[r]);
    float *lse = j->lse + (sample * z->heads + head) * z->queries + first;
    for (int64_t r = 0; r < rows; r += VL) {
        int n = (int)least(VL, rows - r);
        vf_store_n(lse + r, vf_add(vf_load_n(most + r, n), vf_log(vf_load_n(sum + r, n))), n);
    }
}

err_t KERNEL(cross_attention_forward)(const cross_attention_forward_args *args, stream *s) {
    cross_job j = {.z = cross_of(args->q, args->kv, args->bias, args->lengths, args->heads),
                   .y = args->y->data,
                   .lse = args->lse->data,
                   .workers = s->workers};
    cross_room f;
    j.z.scale = args->scale, j.z.causal = args->causal, j.z.first = args->first;
    slices_of(&j.z, args->samples, args->first_head, args->drop, args->bias);
    assert(args->first >= 0 && (!args->first || !j.z.drop));
    assert(args->y->type == j.z.type && tensor_count(args->y) == tensor_count(args->q));
    assert(args->lse->type == FP32 && tensor_count(args->lse) == j.z.samples * j.z.heads * j.z.queries);
    TRY(reserve(s, cross_layout(&f, &j.z, NULL), "cross_attention_forward"));
    pool_run(s->workers, j.z.samples * j.z.heads * ((j.z.queries + TILE - 1) / TILE), cross_item, &j);
    return ERR_OK;
}

// --- backward --------------------------------------------------------------------------------------------------------

typedef struct back_job {
    cross z;
    void *dq, *dkv;
    const void *dy, *y;
    const float *lse;
    float *delta, *parts;
    pool *workers;
} back_job;

typedef struct back_room {
    float *q, *dy, *dq;            // (queries,width)
    float *k, *kt, *vt, *dk, *dv;  // (TILE,width); those with t (width,TILE)
    float *p, *ds;                 // (TILE,TILE)
    float *factor;                 // (TILE)
} back_room;

static int64_t back_layout(back_room *b, const cross *z, float *base) {
    room r = {base, 0};
    int64_t all = z->queries * z->width, tile = TILE * z->width;
    b->q = take(&r, all), b->dy = take(&r, all), b->dq = take(&r, all);
    b->k = take(&r, tile), b->kt = take(&r, tile), b->vt = take(&r, tile);
    b->dk = take(&r, tile), b->dv = take(&r, tile);
    b->p = take(&r, TILE * TILE), b->ds = take(&r, TILE * TILE);
    b->factor = take(&r, TILE + 4 * VL);
    return r.used;
}

BODY void delta_of(dtype t, const back_job *j, int64_t at, float *delta) {
    vf sum = vf_zero();
    for (int64_t i = 0; i < j->z.head; i += VL)
        sum = vf_fma(typed_load_n(j->dy, t, at + i, j->z.head - i), typed_load_n(j->y, t, at + i, j->z.head - i), sum);
    *delta = vf_sum(sum);
}

BODY void store_scaled(dtype t, void *out, int64_t at, int64_t stride, const float *in, int64_t ld, int64_t rows,
                       int64_t n, float scale) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i += VL)
            typed_store_n(out, t, at + r * stride + i, vf_mul(vf_set1(scale), vf_load(in + r * ld + i)), n - i);
}

// A pair of tiles, and where its (sample, head) is.
typedef struct pair {
    int64_t sample, head, length;
    int64_t query, rows, key, keys;
} pair;

// Row r of a pair: scores and gradients of probabilities become what dropout leaves of the probabilities, and the
// gradients of scores, which are also those of the bias. Keys that the query does not see have zeros.
static void row_gradients(const back_job *j, const back_room *b, const pair *m, int64_t r) {
    const cross *z = &j->z;
    int64_t query = m->query + r, n = seen_by(z, m->length, query) - m->key, stat = m->sample * z->heads + m->head;
    float *p = b->p + r * TILE, *ds = b->ds + r * TILE;
    const float *bias = bias_at(z, m->sample, m->head, query);
    float *part = j->parts ? j->parts + stat * z->distances + (z->queries - 1 - query) + m->key : NULL;
    vf lse = vf_set1(j->lse[stat * z->queries + query]), delta = vf_set1(j->delta[stat * z->queries + query]);
    n = n < 0 ? 0 : least(n, m->keys);
    if (z->drop && n) factors_of(z, b->factor, m->sample, m->head, query, m->key, n);
    for (int64_t i = 0; i < up(m->keys); i += VL) {
        int here = n - i < 0 ? 0 : (int)least(VL, n - i);
        vf x = vf_load(p + i), g = vf_load(ds + i), kept;
        if (bias) x = vf_add(x, vf_load_n(bias + m->key + i, here));
        x = vf_select(vm_first(here), vf_exp(vf_sub(x, lse)), vf_zero()), kept = x;
        if (z->drop) {
            vf factor = vf_load_n(b->factor + i, here);
            kept = vf_mul(x, factor), g = vf_mul(g, factor);
        }
        g = vf_select(vm_first(here), vf_mul(x, vf_sub(g, delta)), vf_zero());
        vf_store(p + i, kept), vf_store(ds + i, g);
        if (part) vf_store_n(part + i, vf_add(vf_load_n(part + i, here), g), here);
    }
}

static void pair_gradients(const back_job *j, const back_room *b, const pair *m) {
    const cross *z = &j->z;
    int64_t w = z->width, from = m->query * w, cols = up(m->keys);
    product_state mode = tile_begin();
    product(b->p, TILE, b->q + from, w, b->kt, TILE, m->rows, cols, product_cells(z->head), true);
    product(b->ds, TILE, b->dy + from, w, b->vt, TILE, m->rows, cols, product_cells(z->head), true);
    tile_end(&mode);
    for (int64_t r = 0; r < m->rows; r++) row_gradients(j, b, m, r);
    mode = tile_begin();
    product(b->dq + from, w, b->ds, TILE, b->k, w, m->rows, w, product_cells(m->keys), m->key == 0);
    product_all(true, b->dv, w, b->p, TILE, b->dy + from, w, m->keys, w, product_cells(m->rows), m->query == 0);
    product_all(true, b->dk, w, b->ds, TILE, b->q + from, w, m->keys, w, product_cells(m->rows), m->query == 0);
    tile_end(&mode);
}

static void load_item(const back_job *j, const back_room *b, int64_t sample, int64_t head) {
    const cross *z = &j->z;
    int64_t at = at_query(z, sample, 0, head), stat = sample * z->heads + head;
    load_rows(z->type, b->q, z->width, z->q, at, z->channels, z->queries, z->head, z->scale);
    load_rows(z->type, b->dy, z->width, j->dy, at, z->channels, z->queries, z->head, 1);
    for (int64_t i = 0; i < z->queries; i++)
        BY_TYPE(z->type, delta_of, j, at + i * z->channels, &j->delta[stat * z->queries + i]);
    if (j->parts) memset(j->parts + stat * z->distances, 0, (size_t)z->distances * sizeof *j->parts);
}

static void back_item(void *ctx, int64_t item, int thread) {
    const back_job *j = ctx;
    const cross *z = &j->z;
    int64_t sample = item / z->heads, head = item % z->heads, length = length_of(z, sample), w = z->width;
    back_room b;
    size_t bytes = (size_t)back_layout(&b, z, NULL) * sizeof(float);
    back_layout(&b, z, pool_scratch(j->workers, thread, bytes));
    load_item(j, &b, sample, head);
    for (int64_t k = 0; k < z->keys; k += TILE) {
        int64_t rows = least(TILE, z->keys - k), n = length - k < 0 ? 0 : least(rows, length - k);
        int64_t at = at_key(z, sample, k, head, 0), stride = 2 * z->channels;
        memset(b.dk, 0, (size_t)(rows * w) * sizeof *b.dk), memset(b.dv, 0, (size_t)(rows * w) * sizeof *b.dv);
        if (n) {
            load_across(z->type, b.k, w, z->kv, at, stride, n, z->head);
            load_columns(z->type, b.kt, w, z->kv, at, stride, n, z->head);
            load_columns(z->type, b.vt, w, z->kv, at + z->channels, stride, n, z->head);
        }
        for (int64_t q = 0; n && q < z->queries; q += TILE)
            pair_gradients(j, &b, &(pair){sample, head, length, q, least(TILE, z->queries - q), k, n});
        BY_TYPE(z->type, store_scaled, j->dkv, at, stride, b.dk, w, rows, z->head, 1);
        BY_TYPE(z->type, store_scaled, j->dkv, at + z->channels, stride, b.dv, w, rows, z->head, 1);
    }
    BY_TYPE(z->type, store_scaled, j->dq, at_query(z, sample, 0, head), z->channels, b.dq, w, z->queries, z->head,
            z->scale);
}

err_t KERNEL(cross_attention_backward)(const cross_attention_backward_args *args, stream *s) {
    back_job j = {.z = cross_of(args->q, args->kv, args->bias, args->lengths, args->heads),
                  .dq = args->dq->data,
                  .dkv = args->dkv->data,
                  .dy = args->dy->data,
                  .y = args->y->data,
                  .lse = args->lse->data,
                  .delta = args->delta->data,
                  .parts = args->parts ? args->parts->data : NULL,
                  .workers = s->workers};
    back_room b;
    slices_of(&j.z, args->samples, args->first_head, args->drop, args->bias);
    j.z.scale = args->scale, j.z.causal = args->causal;
    assert(args->dq->type == j.z.type && tensor_count(args->dq) == tensor_count(args->q));
    assert(args->dkv->type == j.z.type && tensor_count(args->dkv) == tensor_count(args->kv));
    assert(args->dy->type == j.z.type && args->y->type == j.z.type);
    assert(args->lse->type == FP32 && args->delta->type == FP32 &&
           tensor_count(args->delta) == j.z.samples * j.z.heads * j.z.queries);
    assert(j.z.distances == j.z.queries + j.z.keys - 1);
    assert(!args->parts ||
           (args->parts->type == FP32 && tensor_count(args->parts) == j.z.samples * j.z.heads * j.z.distances));
    TRY(reserve(s, back_layout(&b, &j.z, NULL), "cross_attention_backward"));
    pool_run(s->workers, j.z.samples * j.z.heads, back_item, &j);
    return ERR_OK;
}

// --- the bias --------------------------------------------------------------------------------------------------------

// A table of a slice, (buckets,heads).
typedef struct bias_job {
    distance_map map;
    dtype type;
    const void *table;
    float *bias, *dtable, *sums;
    const float *parts;
    int64_t slices, samples, heads, buckets, distances, queries;
    bool fresh;
} bias_job;

static bias_job bias_job_of(const tensor *table, const tensor *bias, int64_t queries, bool both, int64_t most) {
    int64_t slices = table->dims == 3 ? table->size[0] : 1;
    bias_job j = {.type = table->type,
                  .slices = slices,
                  .heads = table->size[table->dims - 1],
                  .buckets = table->size[table->dims - 2],
                  .queries = queries};
    j.distances = tensor_count(bias) / (slices * j.heads);
    assert(bias->type == FP32 && tensor_count(bias) == slices * j.heads * j.distances && j.distances >= queries);
    assert(j.buckets <= DISTANCE_BUCKETS);
    j.map = distance_map_of(j.buckets, both, most);
    return j;
}

BODY void bias_row(dtype t, const bias_job *j, int64_t row) {
    const void *table = typed_at(j->table, t, row / j->heads * j->buckets * j->heads + row % j->heads);
    for (int64_t i = 0; i < j->distances; i++)
        j->bias[row * j->distances + i] =
            typed_get(table, t, distance_bucket(&j->map, i - (j->queries - 1)) * j->heads);
}

static void bias_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const bias_job *j = ctx;
    BY_TYPE(j->type, bias_row, j, item);
}

err_t KERNEL(distance_bias_forward)(const distance_bias_forward_args *args, stream *s) {
    bias_job j = bias_job_of(args->table, args->bias, args->queries, args->both, args->most);
    j.table = args->table->data, j.bias = args->bias->data;
    pool_run(s->workers, j.slices * j.heads, bias_item, &j);
    return ERR_OK;
}

// A head of a slice.
static void bias_gradient(void *ctx, int64_t item, int thread) {
    (void)thread;
    const bias_job *j = ctx;
    int64_t slice = item / j->heads, head = item % j->heads, n = j->distances;
    float *sums = j->sums + item * n, bucket[DISTANCE_BUCKETS] = {0};
    memset(sums, 0, (size_t)n * sizeof *sums);
    for (int64_t b = 0; b < j->samples; b++) {
        const float *part = j->parts + ((slice * j->samples + b) * j->heads + head) * n;
        for (int64_t i = 0; i < n; i++) sums[i] += part[i];
    }
    for (int64_t i = 0; i < n; i++) bucket[distance_bucket(&j->map, i - (j->queries - 1))] += sums[i];
    for (int64_t k = 0; k < j->buckets; k++) {
        float *to = &j->dtable[(slice * j->buckets + k) * j->heads + head];
        *to = j->fresh ? bucket[k] : *to + bucket[k];
    }
}

err_t KERNEL(distance_bias_backward)(const distance_bias_backward_args *args, stream *s) {
    bias_job j = bias_job_of(args->dtable, args->sums, args->queries, args->both, args->most);
    j.dtable = args->dtable->data, j.sums = args->sums->data, j.parts = args->parts->data, j.fresh = args->fresh;
    j.samples = tensor_count(args->parts) / (j.slices * j.heads * j.distances);
    assert(args->dtable->type == FP32 && args->parts->type == FP32);
    pool_run(s->workers, j.slices * j.heads, bias_gradient, &j);
    return ERR_OK;
}
