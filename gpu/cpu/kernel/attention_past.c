// gpu/cpu/kernel/attention_past.c: attention for a text that grows, over keys and values that are kept (gpu/ops.h:
// attention_past).
//
// Each sum has the order of attention.c: keys in tiles of 64 that begin at multiples of 64, the running softmax from
// tile to tile, row sums in 16 lanes. There a tile of queries begins at a multiple of 64 too; here it begins anywhere,
// so that each row has a place of its own in a tile of keys, and what it does not see is a probability of exactly 0. A
// sum that skips zeros, or adds them, is the same sum; in pairs but for the sign of a zero, and none is left
// (dividend_of).
#include "gpu/cpu/kernel/attention_tile.h"
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/vmath.h"

#include <inttypes.h>

enum { ROWS = TILE };  // queries of an item

typedef struct past_job {
    tensor *y, *past;
    const tensor *qkv;
    int64_t first, rows;    // position of the first query; queries
    int64_t heads, group;   // query heads; those that share a head of k and v
    int64_t head, width;    // elements of a head; rounded up to whole vectors
    int64_t along;          // cells of a head in a tile along
    float scale;            // 1 / sqrt(head size)
    int64_t window;         // positions that one sees
    int64_t row, past_row;  // elements of a position in qkv, in past
    pool *workers;
} past_job;

typedef struct past_room {
    float *q, *y;      // (ROWS,along), (ROWS,width)
    float *sum, *max;  // (ROWS,16) lanes of the row sums, (ROWS)
    // (along,TILE), (TILE,width) across, (ROWS,TILE): then, in the same place, probabilities along
    float *kt, *v, *score;
} past_room;

static int64_t past_layout(past_room *f, const past_job *j, float *base) {
    room r = {base, 0};
    f->q = take(&r, ROWS * j->along), f->y = take(&r, ROWS * j->width);
    f->sum = take(&r, ROWS * VL), f->max = take(&r, ROWS);
    f->kt = take(&r, j->along * TILE), f->v = take(&r, TILE * j->width);
    f->score = take(&r, ROWS * TILE);
    return r.used;
}

// The keys from .. to-1 of a tile are seen.
typedef struct sight {
    int64_t from, to;
} sight;

static sight sight_of(const past_job *j, int64_t position, int64_t tile) {
    int64_t from = position - j->window + 1 - tile * TILE, to = position + 1 - tile * TILE;
    return (sight){from < 0 ? 0 : from, least(to, TILE)};
}

// What of vector v is seen: x there, else_ elsewhere.
VEC vf seen_in(sight see, int64_t v, vf x, vf else_) {
    int64_t from = see.from - v * VL, to = see.to - v * VL;
    if (to < VL) x = vf_select(vm_first((int)(to < 0 ? 0 : to)), x, else_);
    return from > 0 ? vf_select(vm_first((int)least(from, VL)), else_, x) : x;
}

static float largest_seen(const float *score, sight see) {
    vf lowest = vf_set1(-__builtin_inff()), most = lowest;
    for (int64_t v = see.from / VL; v * VL < see.to; v++)
        most = vf_max(seen_in(see, v, vf_load(score + v * VL), lowest), most);
    float lane[VL];
    vf_store(lane, most);
    for (int i = 1; i < VL; i++) lane[0] = lane[i] > lane[0] ? lane[i] : lane[0];
    return lane[0];
}

// Row r's scores of a tile of `keys` keys become probabilities relative to the largest so far; its sums are brought to
// that.
static void absorb_row(const past_job *j, const past_room *f, int64_t r, sight see, int64_t keys) {
    const float *score = f->score + r * TILE;
    float *out = f->score + r * TILE_ALONG, *y = f->y + r * j->width, *sum = f->sum + r * VL;
    if (see.to <= see.from) {
        for (int64_t i = 0; i < keys; i += VL) cells_put_along(out, i, vf_zero());
        return;
    }
    vf old = vf_set1(f->max[r]), most = vf_max(old, score_of(vf_set1(largest_seen(score, see)), j->scale)),
       shrink = vf_exp_down(vf_sub(old, most)), total = vf_zero();
    for (int64_t v = 0; v * VL < keys; v++) {
        vf p = seen_in(see, v, vf_exp_down(vf_sub(score_of(vf_load(score + v * VL), j->scale), most)), vf_zero());
        cells_put_along(out, v * VL, p);
        total = vf_add(total, p);
    }
    vf_store(sum, vf_fma(vf_load(sum), shrink, total));
    float lane[VL];
    vf_store(lane, shrink);
    if (lane[0] != 1)
        for (int64_t i = 0; i < j->width; i += VL) vf_store(y + i, vf_mul(vf_load(y + i), shrink));
    vf_store(lane, most);
    f->max[r] = lane[0];
}

BODY void past_store(dtype t, const past_job *j, const past_room *f, int64_t first, int64_t rows, int64_t head) {
    for (int64_t r = 0; r < rows; r++) {
        vf divisor = vf_set1(vf_sum(vf_load(f->sum + r * VL)));
        int64_t at = ((first + r) * j->heads + head) * j->head;
        for (int64_t i = 0; i < j->head; i += VL)
            typed_store_n(j->y->data, t, at + i, vf_div(dividend_of(f->y + r * j->width + i), divisor), j->head - i);
    }
}

// An item is a head and ROWS queries; the last queries, which have the most keys, come first.
static void past_item(void *ctx, int64_t item, int thread) {
    const past_job *j = ctx;
    int64_t blocks = (j->rows + ROWS - 1) / ROWS, head = item % j->heads, first = (blocks - 1 - item / j->heads) * ROWS;
    int64_t rows = least(ROWS, j->rows - first), position = j->first + first, last = position + rows - 1,
            kv = head / j->group, w = j->width;
    dtype t = j->y->type;
    past_room f;
    size_t bytes = (size_t)past_layout(&f, j, NULL) * sizeof(float);
    past_layout(&f, j, pool_scratch(j->workers, thread, bytes));

    load_rows(t, f.q, j->along, j->qkv->data, first * j->row + head * j->head, j->row, rows, j->head, j->scale);
    memset(f.y, 0, (size_t)(rows * w) * sizeof *f.y);
    memset(f.sum, 0, (size_t)(rows * VL) * sizeof *f.sum);
    for (int64_t r = 0; r < rows; r++) f.max[r] = -__builtin_inff();
    int64_t from = position - j->window + 1;
    for (int64_t tile = from > 0 ? from / TILE : 0; tile * TILE <= last; tile++) {
        int64_t keys = least(TILE, last + 1 - tile * TILE), at = tile * TILE * j->past_row + kv * j->head;
        load_columns(t, f.kt, j->along, j->past->data, at, j->past_row, keys, j->head);
        load_across(t, f.v, w, j->past->data, at + j->past_row / 2, j->past_row, keys, j->head);
        product_state mode = tile_begin();
        product(f.score, TILE, f.q, j->along, f.kt, TILE, rows, keys, product_cells(j->head), true);
        tile_end(&mode);
        for (int64_t r = 0; r < rows; r++) absorb_row(j, &f, r, sight_of(j, position + r, tile), keys);
        mode = tile_begin();
        product(f.y, w, f.score, TILE_ALONG, f.v, w, rows, w, product_cells(keys), false);
        tile_end(&mode);
    }
    BY_TYPE(t, past_store, j, &f, first, rows, head);
}

// alias      none
// moves      keys and values once for each query head and 64 queries; for one query it is bound by memory
err_t KERNEL(attention_past)(const attention_past_args *args, stream *s) {
    int64_t kv = args->kv_heads ? args->kv_heads : args->heads, n = args->qkv->size[0];
    past_job j = {.y = args->y,
                  .past = args->past,
                  .qkv = args->qkv,
                  .first = args->first,
                  .rows = n,
                  .heads = args->heads,
                  .group = args->heads / kv,
                  .head = args->qkv->size[1] / (args->heads + 2 * kv),
                  .window = args->window ? args->window : args->first + n,
                  .row = args->qkv->size[1],
                  .past_row = args->past->size[1],
                  .workers = s->workers};
    j.width = (j.head + VL - 1) / VL * VL, j.along = cells_of_row(j.head),
    j.scale = 1.0f / __builtin_sqrtf((float)j.head);
    assert(!PAIRED || args->qkv->type != FP16);
    assert(args->heads > 0 && args->heads % kv == 0 && args->qkv->dims == 2 && j.row == (j.heads + 2 * kv) * j.head &&
           j.past_row == 2 * kv * j.head);
    assert(args->first >= 0 && args->window >= 0 && args->past->size[0] >= args->first + n &&
           tensor_count(args->y) == n * j.heads * j.head);
    assert(args->y->type == args->qkv->type && args->past->type == args->qkv->type);
    past_room f;
    TRY(reserve(s, past_layout(&f, &j, NULL), "attention_past"));
    size_t each = dtype_bytes(args->qkv->type), keep = (size_t)j.past_row * each;
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)args->past->data + (size_t)(args->first + i) * keep,
               (const char *)args->qkv->data + (size_t)(i * j.row + j.heads * j.head) * each, keep);
    pool_run(s->workers, j.heads * ((n + ROWS - 1) / ROWS), past_item, &j);
    return ERR_OK;
}
