// gpu/cpu/kernel/conv_weights.c: the gradient of a convolution's weights.
//
// The specification. Numbers as floats, KC = 384; element (k,r,s,c) is one chain over the output pixels (n,p,q) = m =
// 0 .. N*P*Q-1:
//
//     for each block of KC consecutive m (the last one may be shorter):
//         q = +0;  for m in the block, ascending: q = fma(dy[m][k], x[m, tap (r,s), c], q)
//         sum = q for the first block, else sum + q
//     dw = sum where fresh, else dw + sum
//
// With products = bf16-pairs dy and x are rounded to BF16, and the chain takes pixels in pairs (products.h), whatever
// rows and images they are of; the last block's last pixel may be alone, with +0 beside it:
//
//     for each block:  q = +0;  for pairs (m, m+1), ascending: q = step(dy[m], x[m], step(dy[m+1], x[m+1], q))
//
// The way: a block of pixels has a band of inputs (conv_band.h), in which the S*C inputs of a row of taps are
// neighbours: they are the columns of a tile, and filters its rows (conv_micro.h). Measured on a Zen 5, in FP32:
//
//   inputs   are read where they lie in the band if a pixel is at most DIRECT floats wide and the columns are whole
//            vectors. Wider ones share too few sets of a cache (63-70 % of FMA, 80 copied into panels of columns),
//            narrower ones gain nothing by a copy (78 %, copied 29-38)
//   dy       is read where it lies up to NARROW filters, unless OFTEN panels or more would use a copy: else it is
//            copied into panels of a tile's rows (on a Xeon with AVX-512, +7 % with 24 panels, -18 % with one)
//   narrow   where panels of columns are one vector wide (AVX2, NEON), lines of both that a tile reads fill the L1
//            badly: dy is then always copied into panels, and inputs if more than REUSED filters use the copy
//   ahead    the dy and x of the next block are prefetched while a block is multiplied: 72 to 79 % with the two above
//   pairs    are nowhere in memory, and are made as both are copied into panels: dy into wide ones, which several tiles
//            use side by side, since a vector is made as soon as a part of one
//
// Threads share a block, each with some of the columns. Where filters are small (SMALL) that leaves too little to each:
// there threads take blocks, which the specification sums apart, and the blocks' sums are added in order after that.
#include "gpu/conv_check.h"
#include "gpu/cpu/kernel/conv_band.h"
#include "gpu/cpu/kernel/conv_micro.h"
#include "gpu/cpu/kernel/kernel.h"

#include <inttypes.h>

enum {
    DIRECT = 256,                    // floats from pixel to pixel in a band
    NARROW = 1024,                   // filters
    OFTEN = 16,                      // panels of columns that use dy
    SMALL = 1 << 16,                 // weights
    WAVE = 4 << 20,                  // floats of blocks' sums that wait to be added
    SHORT = 96,                      // a last block of fewer pixels is taken with the block before it
    PANELS_A_TURN = PAIRED ? 1 : 8,  // panels of dy that are packed as one item
    PAIRS_TILE = 48,  // filters of a panel of dy, for pairs: whole tiles of each kind, and an odd number of lines
    ROWS_A_TURN = 4,  // rows of a band
    REUSED = 96,      // filters that use a copy of inputs in narrow panels, at least
    FEW = 8,          // panels of columns; fewer are divided by filters
};

enum { WIDE = CONV_VECTORS > 1 };

CONV_MICRO(tile_of_filters, false)

typedef struct weights_job {
    conv_source in;  // of group 0
    const tensor *dy;
    float *dw;
    bool fresh;
    int64_t groups, K, J, SC, pixels;  // K filters of J weights each, of a group
    bool direct, dy_in_place;
    int vectors;     // of a panel of columns, at most
    int64_t rows;    // of a tile
    int64_t tile;    // filters of a panel of dy
    int64_t *start;  // where each panel of columns begins; J after the last one
    int64_t panels;
    size_t band_floats, dy_floats;  // of a block
    pool *workers;
    // Threads take blocks:
    bool apart;
    int64_t wave, done, now;  // blocks of a wave; of those before this one; of this one
    float *partials;          // (wave, groups * K, J)
    float *sums;              // (groups * K, J) of earlier blocks
    // ... or share one:
    struct weights_block *block;
    int64_t parts;  // of the filters of a panel of columns
} weights_job;

// Pixels first .. end-1 of a group, at most KC and SHORT - 1 of them.
typedef struct weights_block {
    int64_t group, first, end;
    conv_source in;
    conv_band band;
    float *base;    // of the band, where it is filled in
    conv_run *run;  // the pixels, as runs of those that are equally far apart; those from KC on are of runs[1]
    int runs[2];
    int64_t *pixel;  // ... for pairs each: the element of the band that is its tap (0,0), channel 0
    float *dy;       // panels, or NULL: where it lies
} weights_block;

// Room for this many runs. It fills whole cache lines, so what follows it is aligned, too.
enum { PIXELS_MOST = CONV_KC + SHORT - 1, PLACES = CONV_KC + SHORT };
_Static_assert(PLACES % 8 == 0, "whole lines");

// --- operands --------------------------------------------------------------------------------------------------------

static int panel_vectors(const weights_job *j, int64_t column) {
    int vectors = conv_panel(j->J - column, j->vectors);
    int64_t room = j->SC - column % j->SC;
    return j->direct && vectors * VL > room ? (int)(room / VL) : vectors;
}

static weights_block block_of(const weights_job *j, int64_t group, int64_t first, int64_t end, float *base) {
    weights_block b = {.group = group, .first = first, .end = end, .in = j->in, .base = base};
    b.in.first += group * j->in.C;
    b.band = conv_band_of(&b.in, first / j->in.Q, (end - 1) / j->in.Q + 1, base);
    return b;
}

// Floats from pixel to pixel, or cells.
static int64_t dy_step(const weights_job *j) { return j->dy_in_place ? j->dy->size[3] : j->tile; }

// `count` pixels of a row of outputs, from pixel m of the block on; their inputs begin with element `from` of the band.
static void add_run(weights_block *b, int64_t m, int64_t count, int64_t from, int64_t s_step) {
    for (int64_t i = 0; PAIRED && i < count; i++) b->pixel[m + i] = from + i * b->band.pixel;
    for (int64_t some; !PAIRED && count > 0; count -= some, m += some, from += some * b->band.pixel) {
        const int half = m >= CONV_KC, n = b->runs[0] + b->runs[1];
        conv_run *last = b->runs[half] ? &b->run[n - 1] : NULL;
        some = half ? count : conv_min(count, CONV_KC - m);
        if (last && from == last->v_at + last->length * b->band.pixel) last->length += some;
        else b->run[n] = (conv_run){m * s_step, from, some}, b->runs[half]++;
    }
}

static void place_pixels(const weights_job *j, weights_block *b) {
    int64_t Q = b->in.Q, m = b->first, q = m % Q, count;
    for (int64_t row = b->band.row0; row < b->band.row1; row++, m += count, q = 0) {
        count = conv_min(Q - q, b->end - m);
        add_run(b, m - b->first, count, conv_band_at(&b->in, &b->band, row) + q * b->band.pixel, dy_step(j));
    }
}

static int64_t dy_panels(const weights_job *j) { return j->dy_in_place ? 0 : conv_parts(j->K, j->tile); }
static int64_t dy_panel_floats(const weights_job *j, const weights_block *b) {
    return product_cells(b->end - b->first) * j->tile + VL;
}

// Filters of dy as panels [pixel][tile], or [cell]. Whole vectors are stored: what is beyond a row is overwritten by
// the next.
BODY void pack_dy(dtype t, const weights_job *j, const weights_block *b, int64_t from, int64_t to) {
    const int64_t filters = j->dy->size[3], apart = dy_panel_floats(j, b), cells = product_cells(b->end - b->first);
    for (int64_t c = 0, m = b->first; c < cells; c++, m += CELL_K)
        for (int64_t p = from, at, count; p < to; p++) {
            at = m * filters + b->group * j->K + p * j->tile, count = j->K - p * j->tile;
            for (int64_t i = 0; i < conv_min(j->tile, count); i += VL)
                vf_store(b->dy + p * apart + c * j->tile + i,
                         conv_across(t, j->dy->data, at + i, at + filters + i, count - i, b->end - m));
        }
}

// What of a panel of columns is of one row of taps: `count` of them from column `at` on, which lie `from` elements
// after a pixel's first.
typedef struct piece {
    int64_t at, from, count;
} piece;

static int pieces_of(const weights_job *j, const weights_block *b, int64_t first, int64_t count,
                     piece to[CONV_COLUMNS]) {
    int n = 0;
    for (int64_t i = 0; i < count; i += to[n++].count) {
        int64_t in = (first + i) % j->SC;
        to[n] = (piece){i, (first + i) / j->SC * b->band.row + in, conv_min(count - i, j->SC - in)};
    }
    return n;
}

// Columns first .. first+count-1 as a panel [pixel][width]. Whole vectors are stored here, too.
static void pack_columns(const weights_job *j, const weights_block *b, int64_t first, int64_t count, float *to) {
    const int64_t width = conv_parts(count, VL) * VL;
    const float *base = b->band.base;
    for (const conv_run *r = b->run; r < b->run + b->runs[0] + b->runs[1]; r++)
        for (int64_t m = 0; m < r->length; m++, to += width)
            for (int64_t i = 0, some; i < count; i += some) {
                int64_t column = first + i;
                const float *from = base + r->v_at + m * b->band.pixel + column / j->SC * b->band.row + column % j->SC;
                some = conv_min(count - i, j->SC - column % j->SC);
                for (int64_t k = 0; k < some; k += VL) vf_store(to + i + k, typed_load_n(from, FP32, k, some - k));
            }
}

// ... as a panel [cell][width].
BODY void pack_pairs(dtype t, const weights_job *j, const weights_block *b, int64_t first, int64_t count, float *to) {
    const int64_t width = conv_parts(count, VL) * VL, pixels = b->end - b->first, cells = product_cells(pixels);
    piece part[CONV_COLUMNS];
    const int parts = pieces_of(j, b, first, count, part);
    for (int64_t c = 0, m = 0; c < cells; c++, m += CELL_K, to += width) {
        int64_t x = b->pixel[conv_min(m, pixels - 1)], y = b->pixel[conv_min(m + 1, pixels - 1)];
        for (const piece *p = part; p < part + parts; p++) {
            int64_t k = 0;
            for (; pixels - m >= CELL_K && k + VL <= p->count; k += VL)
                vf_store(to + p->at + k, cells_across(t, b->band.base, x + p->from + k, y + p->from + k));
            for (; k < p->count; k += VL)
                vf_store(to + p->at + k,
                         conv_across(t, b->band.base, x + p->from + k, y + p->from + k, p->count - k, pixels - m));
        }
    }
}

// --- a panel of columns ----------------------------------------------------------------------------------------------

// Filters k0 .. k1-1 of a panel of columns: out (K,J) (=) or (+=) their sums over the block.
static void weights_panel(const weights_job *j, const weights_block *b, int64_t panel, int64_t k0, int64_t k1,
                          float *out, bool onto, float *packed, conv_ahead *ahead) {
    const int64_t first = j->start[panel], count = j->start[panel + 1] - first, filters = j->dy->size[3],
                  apart = dy_panel_floats(j, b), cells = product_cells(b->end - b->first);
    const int vectors = (int)conv_parts(count, VL);
    const float *dy = (const float *)j->dy->data + b->first * filters + b->group * j->K, *s;
    float *c[CONV_ROWS];
    conv_run one;
    int64_t most = conv_tile_rows(vectors), rows;
    if (PAIRED) BY_TYPE(b->band.type, pack_pairs, j, b, first, count, packed);
    else if (!j->direct) pack_columns(j, b, first, count, packed);
    conv_tile t = {.s = &s,
                   .s_step = dy_step(j),
                   .v_step = j->direct ? b->band.pixel : vectors * VL,
                   .v = packed,
                   .c = c,
                   .column = first,
                   .lanes = (int)(count - (vectors - 1) * VL),
                   .ahead = ahead};
    if (j->direct) t.v = (const float *)b->band.base + first / j->SC * b->band.row + first % j->SC;
    for (int64_t from = 0, to; from < cells; from = to) {
        to = conv_min(cells, from + CONV_BLOCK);
        one = (conv_run){from * t.s_step, from * t.v_step, to - from};
        t.run = j->direct ? b->run + (from ? b->runs[0] : 0) : &one;
        t.runs = j->direct ? b->runs[from > 0] : 1;
        t.onto = onto || from > 0;
        for (int64_t k = k0; k < k1; k += rows) {
            int64_t room = j->dy_in_place ? k1 - k : conv_min(k1 - k, j->tile - k % j->tile);
            rows = conv_rows_now(room, most);
            s = j->dy_in_place ? dy + k : b->dy + k / j->tile * apart + k % j->tile;
            for (int64_t i = 0; i < rows; i++) c[i] = out + (k + i) * j->J;
            tile_of_filters[vectors - 1][rows - 1](&t);
        }
    }
}

// --- threads take blocks ---------------------------------------------------------------------------------------------

static size_t panel_floats(const weights_job *j) {
    return j->direct ? 0 : (size_t)(product_cells(PIXELS_MOST) * j->vectors * VL + VL);
}

static size_t block_bytes(const weights_job *j) {
    return (j->band_floats + j->dy_floats) * sizeof(float) + PLACES * (sizeof(conv_run) + sizeof(int64_t)) + 256;
}

// A block's memory: its band, panels of dy, and pixels. Returns what follows.
static float *lay_out(const weights_job *j, weights_block *b, void *memory) {
    float *base = memory;
    b->dy = j->dy_in_place ? NULL : base + j->band_floats;
    b->run = (conv_run *)(void *)(base + j->band_floats + j->dy_floats);
    b->pixel = (int64_t *)(void *)(b->run + PLACES);
    return (float *)(void *)(b->pixel + PLACES);
}

static void block_item(void *ctx, int64_t item, int thread) {
    const weights_job *j = ctx;
    int64_t group = item % j->groups, number = item / j->groups, first = (j->done + number) * CONV_KC;
    float *base = pool_scratch(j->workers, thread, block_bytes(j) + panel_floats(j) * sizeof *base);
    weights_block b = block_of(j, group, first, conv_min(first + CONV_KC, j->pixels), base);
    float *packed = lay_out(j, &b, base), *out = j->partials + (number * j->groups + group) * j->K * j->J;
    conv_ahead none = {(const char *)base, (const char *)base, 0};
    BY_TYPE(j->in.type, conv_band_fill, &b.in, &b.band, base, 0, conv_band_rows(&b.in, &b.band));
    place_pixels(j, &b);
    BY_TYPE(j->in.type, pack_dy, j, &b, 0, dy_panels(j));
    for (int64_t p = 0; p < j->panels; p++) weights_panel(j, &b, p, 0, j->K, out, false, packed, &none);
}

// Blocks' sums, in order: from the first, or onto what earlier ones left; after the last into dw.
static void add_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const weights_job *j = ctx;
    const int64_t count = j->groups * j->K * j->J;
    const bool first = j->done == 0, last = (j->done + j->now) * CONV_KC >= j->pixels;
    for (int64_t i = item * SLICE; i < slice_end(item, count); i += VL) {
        vf sum = typed_load_n(first ? j->partials : j->sums, FP32, i, count - i);
        for (int64_t b = first; b < j->now; b++)
            sum = vf_add(sum, typed_load_n(j->partials + b * count, FP32, i, count - i));
        if (last && !j->fresh) sum = vf_add(typed_load_n(j->dw, FP32, i, count - i), sum);
        typed_store_n(last ? j->dw : j->sums, FP32, i, sum, count - i);
    }
}

static void blocks_apart(weights_job *j) {
    const int64_t blocks = conv_parts(j->pixels, CONV_KC);
    for (j->done = 0; j->done < blocks; j->done += j->now) {
        j->now = conv_min(j->wave, blocks - j->done);
        pool_run(j->workers, j->now * j->groups, block_item, j);
        pool_run(j->workers, slices(j->groups * j->K * j->J), add_item, j);
    }
}

// --- threads share a block -------------------------------------------------------------------------------------------

static void band_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const weights_job *j = ctx;
    const weights_block *b = j->block;
    int64_t from = item * ROWS_A_TURN, to = conv_min(from + ROWS_A_TURN, conv_band_rows(&b->in, &b->band));
    BY_TYPE(j->in.type, conv_band_fill, &b->in, &b->band, b->base, from, to);
}

static void dy_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const weights_job *j = ctx;
    int64_t from = item * PANELS_A_TURN, to = conv_min(from + PANELS_A_TURN, dy_panels(j));
    BY_TYPE(j->in.type, pack_dy, j, j->block, from, to);
}

// Of the block's items, the first half prefetches the dy of the next block, the other the x, each a share. Where those
// are in x need not be exact.
static conv_ahead ahead_of(const weights_job *j, int64_t item, int64_t filters) {
    const weights_block *b = j->block;
    const int64_t bytes = (int64_t)dtype_bytes(j->in.type), items = j->panels * j->parts, half = (items + 1) / 2;
    const int64_t pixels = conv_min(CONV_KC, j->pixels - b->end), row = b->end / j->in.Q, n = row / j->in.P;
    const int64_t of_dy = pixels * j->dy->size[3] * bytes, h = row % j->in.P * j->in.stride,
                  of_x = pixels * j->in.stride * j->in.stride * j->in.pixel * bytes;
    const bool is_x = item >= half;
    const char *from = is_x ? (const char *)j->in.x + (n * j->in.H + h) * j->in.W * j->in.pixel * bytes
                            : (const char *)j->dy->data + b->end * j->dy->size[3] * bytes;
    const int64_t all = is_x ? of_x : of_dy, share = is_x ? item - half : item;
    const int64_t steps = product_cells(b->end - b->first) * conv_parts(filters, j->rows) * items / 4 + 1;
    return (conv_ahead){from + all * share / half, from + all * (share + 1) / half,
                        (of_x + of_dy) / steps > 64 ? 128 : 64};
}

static void panel_item(void *ctx, int64_t item, int thread) {
    const weights_job *j = ctx;
    const weights_block *b = j->block;
    int64_t panel = item / j->parts, part = item % j->parts, tiles = conv_parts(j->K, j->rows);
    int64_t k0 = tiles * part / j->parts * j->rows, k1 = conv_min(j->K, tiles * (part + 1) / j->parts * j->rows);
    float *packed = pool_scratch(j->workers, thread, (panel_floats(j) + VL) * sizeof *packed);
    float *out = (j->fresh ? j->dw : j->sums) + b->group * j->K * j->J;
    conv_ahead ahead = ahead_of(j, item, k1 - k0);
    if (k0 < k1) weights_panel(j, b, panel, k0, k1, out, b->first > 0, packed, &ahead);
}

// dw += sums
static void add_all_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const weights_job *j = ctx;
    const int64_t count = j->groups * j->K * j->J;
    for (int64_t i = item * SLICE; i < slice_end(item, count); i += VL)
        typed_store_n(j->dw, FP32, i,
                      vf_add(typed_load_n(j->dw, FP32, i, count - i), typed_load_n(j->sums, FP32, i, count - i)),
                      count - i);
}

static void blocks_together(weights_job *j, void *memory) {
    for (int64_t group = 0; group < j->groups; group++)
        for (int64_t first = 0, end; first < j->pixels; first = end) {
            end = conv_min(first + CONV_KC, j->pixels);
            if (j->pixels - end < SHORT) end = j->pixels;
            weights_block b = block_of(j, group, first, end, memory);
            lay_out(j, &b, memory);
            j->block = &b;
            pool_run(j->workers, conv_parts(conv_band_rows(&b.in, &b.band), ROWS_A_TURN), band_item, j);
            place_pixels(j, &b);
            pool_run(j->workers, conv_parts(dy_panels(j), PANELS_A_TURN), dy_item, j);
            pool_run(j->workers, j->panels * j->parts, panel_item, j);
        }
    j->block = NULL;
    if (!j->fresh) pool_run(j->workers, slices(j->groups * j->K * j->J), add_all_item, j);
}

// --- the plan --------------------------------------------------------------------------------------------------------

static void plan_weights(weights_job *j) {
    const int64_t blocks = conv_parts(j->pixels, CONV_KC), weights = j->groups * j->K * j->J;
    const bool fp32 = j->in.type == FP32;
    j->direct = !PAIRED && j->SC % VL == 0 && (WIDE || j->K <= REUSED) &&
                (conv_in_place(&j->in) ? j->in.pixel : j->in.C) * j->in.stride <= DIRECT;
    j->vectors = CONV_VECTORS >= 3 && j->SC % 48 == 0 ? 3 : CONV_VECTORS;
    j->rows = conv_tile_rows(conv_panel(j->J, j->vectors));
    j->tile = PAIRED ? PAIRS_TILE : j->rows;
    j->apart = weights <= SMALL && blocks * j->groups >= pool_threads(j->workers);
    j->wave = conv_min(blocks, conv_max(WAVE / weights, 1));
    for (int64_t column = 0; column < j->J; j->panels++) column += panel_vectors(j, column) * VL;
    j->dy_in_place = !PAIRED && fp32 && WIDE && j->dy->size[3] <= NARROW && j->panels < OFTEN;
    j->parts = j->panels < FEW ? conv_min(2 * pool_threads(j->workers), conv_parts(j->K, j->rows)) : 1;
    for (int64_t first = 0; first < j->pixels; first += CONV_KC) {
        weights_block b = block_of(j, 0, first, conv_min(first + PIXELS_MOST, j->pixels), NULL);
        size_t floats = (conv_band_floats(&b.in, &b.band) + 63) & ~(size_t)15;
        if (floats > j->band_floats) j->band_floats = floats;
    }
    if (!j->dy_in_place)
        j->dy_floats = ((size_t)(dy_panels(j) * (product_cells(PIXELS_MOST) * j->tile + VL)) + 15) & ~(size_t)15;
}

static err_t plan_memory(weights_job *j, void **block) {
    const size_t weights = ((size_t)(j->groups * j->K * j->J) + 15) & ~(size_t)15,
                 starts = ((size_t)(j->panels + 1) * sizeof(int64_t) + 63) & ~(size_t)63,
                 partials = j->apart ? weights * (size_t)j->wave : 0;
    const bool sums = j->apart ? j->wave * CONV_KC < j->pixels : !j->fresh;
    const size_t shared = starts + (partials + (sums ? weights : 0)) * sizeof(float) + (j->apart ? 0 : block_bytes(j)),
                 local = (panel_floats(j) + VL) * sizeof(float) + (j->apart ? block_bytes(j) : 0);
    char *memory = pool_shared(j->workers, shared);
    bool ok = memory != NULL;
    for (int i = 0; ok && i < pool_threads(j->workers); i++) ok = pool_scratch(j->workers, i, local) != NULL;
    if (!ok)
        return err_set(ERR_INTERNAL,
                       "conv weights (%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "): no memory for %.1f MB of "
                       "partial sums and inputs, and %.1f MB a thread",
                       j->groups * j->K, j->in.R, j->in.S, j->in.C, (double)shared / 1e6, (double)local / 1e6);
    j->start = (int64_t *)(void *)memory;
    j->partials = (float *)(void *)(memory + starts);
    j->sums = j->partials + partials;
    *block = j->sums + (sums ? weights : 0);
    int64_t column = 0;
    for (int64_t p = 0; p < j->panels; p++) {
        j->start[p] = column;
        column += panel_vectors(j, column) * VL;
    }
    j->start[j->panels] = j->J;
    return ERR_OK;
}

// alias      none
// moves      x and dy once, and once more what blocks share; for each block of KC pixels the sums, from a cache if they
//            fit. Bound by FMA
err_t KERNEL(conv_weights)(const conv_weights_args *args, stream *s) {
    const int64_t *y = args->dy->size, *w = args->dw->size;
    void *memory;
    conv_check(args->x, args->dy, args->dw, args->stride, args->pad, args->groups);
    assert(args->dw->type == FP32 && !(PAIRED && args->x->type == FP16));
    weights_job j = {.in = conv_source_of(args->x, args->dy, args->dw, args->stride, args->pad),
                     .dy = args->dy,
                     .dw = args->dw->data,
                     .fresh = args->fresh,
                     .groups = args->groups,
                     .K = w[0] / args->groups,
                     .J = w[1] * w[2] * w[3],
                     .SC = w[2] * w[3],
                     .pixels = y[0] * y[1] * y[2],
                     .workers = s->workers};
    plan_weights(&j);
    TRY(plan_memory(&j, &memory));
    if (j.apart) blocks_apart(&j);
    else blocks_together(&j, memory);
    return ERR_OK;
}
