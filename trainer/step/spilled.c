// trainer/step/spilled.c: see trainer/step/spilled.h.
#include "trainer/step/spilled.h"

#include "base/io.h"
#include "trainer/checkpoint/order.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// 16 blocks of AdamW's are 3 MiB. A file of few blocks has smaller windows, so that they take turns there, too.
enum { WINDOWS = 4, WINDOW_BLOCKS = 16, TURNS = 8, THREADS = 8 };

// --- opening ---------------------------------------------------------------------------------------------------------

static err_t count_blocks(spilled *x) {
    x->block = calloc((size_t)x->z->owned + 1, sizeof *x->block);
    if (!x->block) return err_set(ERR_INTERNAL, "no memory for a table of %d pieces", x->z->owned);
    for (int i = 0; i < x->z->owned; i++) {
        const zero_piece *p = &x->z->piece[i];
        bool tied = x->net->param[p->row].tied >= 0;
        x->block[i + 1] = x->block[i] + (tied ? 0 : (p->count + CHUNK - 1) / CHUNK);
    }
    return ERR_OK;
}

err_t spilled_open(spilled *x, arena *a, const zero_layout *z, const model *net, int arrays, const spilled_options *o) {
    *x = (spilled){.o = *o, .z = z, .net = net, .values = 1 + arrays, .kept = -1};
    if (x->values > SPILLED_VALUES)
        return err_set(ERR_INTERNAL, "%d arrays of an optimizer, expected at most %d", arrays, SPILLED_VALUES - 1);
    TRY(count_blocks(x));
    int64_t blocks = x->block[z->owned], window = (blocks + TURNS - 1) / TURNS;
    x->file_options = (spill_options){.block_bytes = (size_t)x->values * CHUNK * sizeof(float),
                                      .blocks = blocks,
                                      .windows = WINDOWS,
                                      .window_blocks = window < WINDOW_BLOCKS ? window : WINDOW_BLOCKS,
                                      .threads = THREADS,
                                      .faults = o->faults};
    if (!blocks) return ERR_OK;
    TRY(arena_1d(a, &x->windows, UINT8, (int64_t)spill_memory(&x->file_options) + SPILL_ALIGN));
    TRY(arena_1d(a, &x->room, FP32, ORDER_PIECE));
    return arena_1d(a, &x->kept_block, FP32, (int64_t)x->values * CHUNK);
}

err_t spilled_commit(spilled *x) {
    if (!x->file_options.blocks) return ERR_OK;
    uintptr_t at = ((uintptr_t)x->windows.data + SPILL_ALIGN - 1) / SPILL_ALIGN * SPILL_ALIGN;
    snprintf(x->name, sizeof x->name, "optimizer-state-of-rank-%d", x->o.rank);
    x->file_options.dir = x->o.dir, x->file_options.name = x->name;
    TRY(io_mkdirs(x->o.dir));
    err_t rc = spill_open(&x->file, &x->file_options, (void *)at);
    if (rc != ERR_OK) err_prefix("[parallel] offload = nvme");
    return rc;
}

void spilled_close(spilled *x) {
    spill_close(x->file);
    free(x->block);
    *x = (spilled){0};
}

int64_t spilled_bytes(const spilled *x) { return spill_file(&x->file_options); }

// --- walking ---------------------------------------------------------------------------------------------------------

typedef struct walk {
    spilled *x;
    spill_mode mode;
    int piece;  // of the block that is visited, or one before
    spilled_visit visit;
    void *ctx;
} walk;

static zero_piece part_of(const spilled *x, int piece, int64_t block) {
    zero_piece p = x->z->piece[piece];
    int64_t skip = (block - x->block[piece]) * CHUNK;
    p.first += skip, p.slab += (size_t)skip, p.shard += (size_t)skip;
    p.count = p.count - skip < CHUNK ? p.count - skip : CHUNK;
    return p;
}

static err_t visit_blocks(void *ctx, int64_t first, int64_t count, void *data) {
    walk *w = ctx;
    const spilled *x = w->x;
    size_t bytes = x->file_options.block_bytes;
    if (w->mode == SPILL_FILL) memset(data, 0, (size_t)count * bytes);
    for (int64_t b = first; b < first + count; b++) {
        while (b >= x->block[w->piece + 1]) w->piece++;
        zero_piece part = part_of(x, w->piece, b);
        tensor value[SPILLED_VALUES];
        float *at = (float *)(void *)((char *)data + (size_t)(b - first) * bytes);
        for (int k = 0; k < x->values; k++) value[k] = (tensor){at + k * CHUNK, FP32, 1, {part.count, 1, 1, 1}};
        TRY(w->visit(w->ctx, &part, value));
    }
    return ERR_OK;
}

// What the disk did not keep is said with the tensor that it was.
static err_t say_where(const spilled *x, err_t rc) {
    int64_t block;
    if (rc == ERR_OK || !spill_failed(x->file, &block) || block < 0) return rc;
    int piece = 0;
    while (block >= x->block[piece + 1]) piece++;
    zero_piece p = part_of(x, piece, block);
    err_prefix("tensor %s, slice %d, elements %" PRId64 " to %" PRId64 " of its master and moments",
               x->net->param[p.row].name, p.slice, p.first, p.first + p.count - 1);
    return rc;
}

static err_t copy_kept(void *ctx, int64_t first, int64_t count, void *data) {
    spilled *x = ctx;
    (void)first, (void)count;
    memcpy(x->changed ? data : x->kept_block.data, x->changed ? x->kept_block.data : data, x->file_options.block_bytes);
    return ERR_OK;
}

static err_t write_kept(spilled *x) {
    if (!x->changed) return ERR_OK;
    err_t rc = spill_walk(x->file, SPILL_FILL, x->kept, 1, copy_kept, x);
    x->changed = false;
    return say_where(x, rc);
}

// All blocks of any walk go through here.
static err_t walk_blocks(spilled *x, spill_mode mode, int64_t first, int64_t count, spill_visit visit, void *ctx) {
    TRY(write_kept(x));
    if (mode != SPILL_READ) x->kept = -1;
    return say_where(x, spill_walk(x->file, mode, first, count, visit, ctx));
}

err_t spilled_walk(spilled *x, spill_mode mode, spilled_visit visit, void *ctx) {
    walk w = {.x = x, .mode = mode, .visit = visit, .ctx = ctx};
    return x->file ? walk_blocks(x, mode, 0, x->file_options.blocks, visit_blocks, &w) : ERR_OK;
}

bool spilled_is_lost(const spilled *x) {
    int64_t block;
    return x->file && spill_failed(x->file, &block);
}

// --- ranges, for checkpoints -----------------------------------------------------------------------------------------

// Elements first .. first+count-1 of a value of one piece, to `to` or from `from`.
typedef struct range {
    spilled *x;
    int value, piece;
    int64_t first, count;
    float *to;
    const float *from;
} range;

// The part of the range that is in this block, which is at data.
static void move_block(const range *r, int64_t block, float *data) {
    int64_t begin = (block - r->x->block[r->piece]) * CHUNK, end = begin + CHUNK;
    int64_t a = r->first > begin ? r->first : begin, b = r->first + r->count < end ? r->first + r->count : end;
    float *there = data + (int64_t)r->value * CHUNK + (a - begin);
    if (r->to) memcpy(r->to + (a - r->first), there, (size_t)(b - a) * sizeof *there);
    else memcpy(there, r->from + (a - r->first), (size_t)(b - a) * sizeof *there);
}

static err_t move_blocks(void *ctx, int64_t first, int64_t count, void *data) {
    const range *r = ctx;
    for (int64_t b = first; b < first + count; b++)
        move_block(r, b, (float *)data + (b - first) * r->x->values * CHUNK);
    return ERR_OK;
}

static err_t move_piece(const range *r) {
    spilled *x = r->x;
    int64_t from = x->block[r->piece] + r->first / CHUNK,
            end = x->block[r->piece] + (r->first + r->count - 1) / CHUNK + 1;
    if (r->to || end - from > 1)
        return walk_blocks(x, r->to ? SPILL_READ : SPILL_UPDATE, from, end - from, move_blocks, (void *)r);
    if (x->kept != from) {
        TRY(walk_blocks(x, SPILL_READ, from, 1, copy_kept, x));
        x->kept = from;
    }
    move_block(r, from, x->kept_block.data);
    x->changed = true;
    return ERR_OK;
}

// at: of the tensor's first piece here. Its pieces follow each other.
static err_t move(range r, int64_t at, int64_t k, int64_t n) {
    r.piece = (int)at;
    for (; n > 0; r.piece++) {
        int64_t here = r.x->z->piece[r.piece].count;
        if (k >= here) {
            k -= here;
            continue;
        }
        r.first = k, r.count = n < here - k ? n : here - k;
        TRY(move_piece(&r));
        if (r.to) r.to += r.count;
        else r.from += r.count;
        n -= r.count, k = 0;
    }
    return ERR_OK;
}

static err_t get(void *ctx, const ckpt_tensor *t, int64_t k, int64_t n, float *x) {
    const spilled_group *g = ctx;
    return move((range){.x = g->of, .value = g->value, .to = x}, t->at, k, n);
}

static err_t put(void *ctx, const ckpt_tensor *t, int64_t k, int64_t n, const float *x) {
    const spilled_group *g = ctx;
    return move((range){.x = g->of, .value = g->value, .from = x}, t->at, k, n);
}

const ckpt_away *spilled_away(spilled *x, int value) {
    x->group[value] = (spilled_group){x, value};
    x->away[value] = (ckpt_away){get, put, &x->group[value], x->room.data};
    return &x->away[value];
}

int64_t spilled_at(const spilled *x, const zero_piece *p) { return p - x->z->piece; }
