// gpu/cpu/kernel/conv.c: convolution forward, and the gradient of its inputs, without a copy of inputs for each tap.
//
// The specification. Numbers as floats (BF16 and FP16 convert exactly), KC = 384; all that an output sums is one chain
// of products j = 0 .. J-1 (gpu/ops.h says which), cut into blocks as a matrix product's is (matmul.c):
//
//     for each block of KC consecutive j (the last one may be shorter):
//         p = +0;  for j in the block, ascending: p = fma(x[j], w[j], p)
//         sum = p for the first block, else sum + p
//     y = sum, or sum + residual, rounded to E
//
//     forward  J = R*S*C/G, j = (r*S + s)*C/G + c. x is +0 outside of the image, and takes part
//     inputs   the pixels h, w of dx with the same h mod stride and w mod stride are a class, whose results are a
//              convolution of dy with stride 1: of the class's own taps, r' = 0 .. R'-1 being those of the filter in
//              descending order, j = (r'*S' + s')*K/G + k. A class without taps has the sum +0
//
// Neither threads, nor the width of vectors, nor where an image lies in the batch enter.
//
// With products = bf16-pairs x and w are rounded to BF16, and the chain takes them in pairs (products.h), each of two
// channels of a tap, or of two filters where dx is computed. Pairs don't cross taps: of an odd number of channels, the
// last one of each tap has +0 beside it, in x and in w. With C' = C/G, or one more if that is odd, and C' in the place
// of C/G in J and j (K' likewise):
//
//     for each block:  p = +0;  for pairs (j, j+1), ascending: p = step(x[j], w[j], step(x[j+1], w[j+1], p))
//
// A +0 beside a channel, of both, changes no number; p = -0 becomes +0 by it, for all widths alike.
//
// The way: filters are packed once a call, into panels of columns [j][width]. An item of work is a band of output rows
// (conv_band.h), of about BAND pixels from one image or several, and some panels. It goes block by block through j: a
// block of a panel (98 KB at most) is used from the L2 for all pixels of the band, in register tiles of a few pixels
// (conv_micro.h), which need not be of one row or one image.
#include "gpu/conv_check.h"
#include "gpu/cpu/kernel/conv_band.h"
#include "gpu/cpu/kernel/conv_micro.h"
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/transpose.h"

#include <inttypes.h>

enum {
    BAND = 256,     // output pixels of a band, about
    PACK_J = 1024,  // of a column of vectors that is packed as one item
    TURNS = 2,      // items that a thread takes at least, if there are panels enough
};

CONV_MICRO(tile_of_pixels, true)

typedef struct conv_job {
    conv_source in;  // of group 0
    int64_t groups, columns;
    int64_t J;  // cells of a chain
    // Filters; with `turned`, those of a class of inputs: tap r' is tap last_r - stride * r' of w
    const tensor *w;
    bool turned;
    int64_t last_r, last_s, stride;
    // Output pixel (n,p,q) of group 0 begins with this element of y.
    tensor *y;
    const tensor *residual;
    int64_t out, out_n, out_p, out_q;
    bool sums_in_y;  // or in a thread's scratch
    float *packed;
    int64_t panels, rows, bands, parts;  // rows of a band; parts into which its panels are divided
    size_t band_floats, sums_floats;     // of a thread's scratch
    pool *workers;
} conv_job;

// --- filters ---------------------------------------------------------------------------------------------------------

static int64_t padded(int64_t columns) { return conv_parts(columns, VL) * VL; }

// Where panel `number` begins; panels: the column after the last one.
static int64_t panel_start(const conv_job *j, int64_t number) {
    int64_t column = 0;
    for (int64_t i = 0; i < number; i++) column += conv_panel(j->columns - column, CONV_VECTORS) * VL;
    return conv_min(column, j->columns);
}

static int64_t count_panels(int64_t columns) {
    int64_t n = 0;
    for (int64_t c = 0; c < columns; n++) c += conv_panel(columns - c, CONV_VECTORS) * VL;
    return n;
}

// Vectors of columns from `column` on, where those of product 0 go, and the width of the panel.
static float *packed_at(const conv_job *j, int64_t group, int64_t column, int64_t *width) {
    int64_t start = 0;
    for (;; start += *width) {
        *width = conv_panel(j->columns - start, CONV_VECTORS) * VL;
        if (column < start + *width) break;
    }
    return j->packed + (group * padded(j->columns) + start) * j->J + column - start;
}

// Cells from .. to-1 of the filters column .. column+15, which are rows of w. A row is one piece, or has one for each
// tap, if the last cell of a tap is not full.
BODY void pack_rows(dtype t, const conv_job *j, int64_t group, int64_t column, int64_t from, int64_t to) {
    const int64_t *w = j->w->size, row = w[1] * w[2] * w[3], piece = j->in.depth == w[3] ? row : w[3],
                  cells = product_cells(piece);
    int64_t width, rows = conv_min(VL, j->columns - column), first = group * j->columns + column;
    float *out = packed_at(j, group, column, &width);
    for (int64_t at = from, some; at < to; at += some) {
        int64_t in = at % cells, place = at / cells * piece + in * CELL_K;
        vf x[VL];
        some = conv_min(VL, conv_min(to - at, cells - in));
        for (int64_t i = 0; i < VL; i++)
            x[i] = i < rows ? cells_along_n(t, j->w->data, (first + i) * row + place, piece - in * CELL_K) : vf_zero();
        transpose16(x);
        for (int64_t i = 0; i < some; i++) vf_store(out + (at + i) * width, x[i]);
    }
}

// ... of the channels column .. column+15, which are neighbours in w.
BODY void pack_turned(dtype t, const conv_job *j, int64_t group, int64_t column, int64_t from, int64_t to) {
    const int64_t *w = j->w->size, K = j->in.C, cells = product_cells(K), filter = w[1] * w[2] * w[3];
    int64_t width;
    float *out = packed_at(j, group, column, &width);
    for (int64_t at = from; at < to; at++) {
        int64_t tap = at / cells, r = j->last_r - tap / j->in.S * j->stride, s = j->last_s - tap % j->in.S * j->stride,
                k = at % cells * CELL_K, place = (group * K + k) * filter + (r * w[2] + s) * w[3] + column;
        vf_store(out + at * width, conv_across(t, j->w->data, place, place + filter, j->columns - column, K - k));
    }
}

static void pack_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const conv_job *j = ctx;
    int64_t chunks = conv_parts(j->J, PACK_J), vectors = conv_parts(j->columns, VL);
    int64_t from = item % chunks * PACK_J, to = conv_min(from + PACK_J, j->J), column = item / chunks % vectors * VL,
            group = item / chunks / vectors;
    if (j->turned) BY_TYPE(j->w->type, pack_turned, j, group, column, from, to);
    else BY_TYPE(j->w->type, pack_rows, j, group, column, from, to);
}

// --- a band ----------------------------------------------------------------------------------------------------------

// What an item works on: its pixels, the columns first .. end-1 of a group, and where sums go.
typedef struct conv_work {
    const conv_job *job;
    conv_band band;
    int64_t group, first, end, pixels;
    const float **at;  // what each pixel reads, tap (0,0)
    float **sum;       // where its column `first` is summed
    int64_t *out;      // the element of y that this is
    float *sums;       // scratch, or NULL: in y
} conv_work;

// Runs of the cells from .. to-1, for a panel of `width` columns.
static int conv_runs(const conv_work *w, int64_t from, int64_t to, int64_t width, conv_run run[CONV_BLOCK]) {
    const int64_t SC = w->job->in.S * w->job->in.depth / CELL_K, row = w->band.row / CELL_K;
    int n = 0;
    for (int64_t j = from; j < to; n++) {
        int64_t length = conv_min(to, (j / SC + 1) * SC) - j;
        run[n] = (conv_run){j / SC * row + j % SC, (j - from) * width, length};
        j += length;
    }
    return n;
}

static void multiply(const conv_work *w, int64_t from, int64_t to) {
    const conv_job *j = w->job;
    conv_run run[CONV_BLOCK];
    int64_t width;
    for (int64_t column = w->first; column < w->end; column += width) {
        const float *v = packed_at(j, w->group, column, &width);
        int vectors = (int)(width / VL);
        conv_tile t = {.run = run,
                       .runs = conv_runs(w, from, to, width, run),
                       .v = v + from * width,
                       .column = column - w->first,
                       .onto = from > 0,
                       .lanes = (int)conv_min(VL, j->columns - column - (vectors - 1) * VL)};
        for (int64_t i = 0, rows; i < w->pixels; i += rows) {
            rows = conv_rows_now(w->pixels - i, conv_tile_rows(vectors));
            t.s = w->at + i, t.c = w->sum + i;
            tile_of_pixels[vectors - 1][rows - 1](&t);
        }
    }
}

BODY void finish_typed(dtype t, const conv_work *w) {
    const conv_job *j = w->job;
    for (int64_t m = 0; m < w->pixels; m++)
        for (int64_t i = 0, n = w->end - w->first; i < n; i += VL) {
            vf x = typed_load_n(w->sum[m], FP32, i, n - i);
            if (j->residual) x = vf_add(x, typed_load_n(j->residual->data, t, w->out[m] + i, n - i));
            typed_store_n(j->y->data, t, w->out[m] + i, x, n - i);
        }
}

static void place_pixels(conv_work *w, const conv_source *in) {
    const conv_job *j = w->job;
    int64_t m = 0, ld = padded(w->end - w->first), column = j->out + w->group * j->columns + w->first;
    for (int64_t row = w->band.row0; row < w->band.row1; row++) {
        int64_t from = conv_band_at(in, &w->band, row);
        int64_t out = column + row / in->P * j->out_n + row % in->P * j->out_p;
        for (int64_t q = 0; q < in->Q; q++, m++) {
            w->at[m] = typed_at(w->band.base, BAND_TYPE, from + q * w->band.pixel);
            w->out[m] = out + q * j->out_q;
            w->sum[m] = j->sums_in_y ? (float *)j->y->data + w->out[m] : w->sums + m * ld;
        }
    }
}

static size_t scratch_bytes(const conv_job *j) {
    return (j->band_floats + j->sums_floats) * sizeof(float) + (size_t)(j->rows * j->in.Q) * 3 * sizeof(void *) + 256;
}

static void band_item(void *ctx, int64_t item, int thread) {
    const conv_job *j = ctx;
    int64_t part = item % j->parts, band = item / j->parts % j->bands, group = item / j->parts / j->bands;
    int64_t all = j->in.N * j->in.P, row0 = band * j->rows, row1 = conv_min(row0 + j->rows, all);
    char *scratch = pool_scratch(j->workers, thread, scratch_bytes(j));
    size_t most = (size_t)(j->rows * j->in.Q);
    float *base = (float *)(void *)scratch;
    conv_source in = j->in;
    in.first += group * in.C;
    conv_work w = {.job = j,
                   .band = conv_band_of(&in, row0, row1, base),
                   .group = group,
                   .first = panel_start(j, j->panels * part / j->parts),
                   .end = panel_start(j, j->panels * (part + 1) / j->parts),
                   .pixels = (row1 - row0) * in.Q,
                   .sums = j->sums_in_y ? NULL : base + j->band_floats};
    w.at = (const float **)(void *)(base + j->band_floats + j->sums_floats);
    w.sum = (float **)(void *)(w.at + most), w.out = (int64_t *)(void *)(w.sum + most);
    if (j->J) BY_TYPE(in.type, conv_band_fill, &in, &w.band, base, 0, conv_band_rows(&in, &w.band));
    place_pixels(&w, &in);
    for (int64_t at = 0; at < j->J; at += CONV_BLOCK) multiply(&w, at, conv_min(at + CONV_BLOCK, j->J));
    for (int64_t m = 0; j->J == 0 && m < w.pixels; m++) memset(w.sum[m], 0, (size_t)(w.end - w.first) * sizeof(float));
    if (!j->sums_in_y || j->residual) BY_TYPE(j->y->type, finish_typed, &w);
}

// --- the plan --------------------------------------------------------------------------------------------------------

// Rows of a band, at most `most`: of heights down to half of the highest, the one whose bands leave the busiest thread
// the fewest rows. Seven bands keep two threads busy for as long as eight would. A lower band uses a panel less often,
// so it has to save a 32nd.
static int64_t band_rows(int64_t all, int64_t most, int64_t threads) {
    const int64_t highest = conv_min(most, all);
    int64_t best = highest, least = conv_parts(conv_parts(all, highest), threads) * highest;
    for (int64_t rows = highest - 1; rows > highest / 2; rows--) {
        int64_t busiest = conv_parts(conv_parts(all, rows), threads) * rows;
        if (32 * busiest < 31 * least) least = busiest, best = rows;
    }
    return best;
}

// Bands of the same height; and if they are fewer than threads want, parts of their columns.
static void plan_bands(conv_job *j) {
    const int64_t all = j->in.N * j->in.P, most = conv_max(BAND / j->in.Q, 1),
                  wanted = TURNS * pool_threads(j->workers);
    const bool few = conv_parts(all, most) * j->groups < wanted;
    j->rows = few ? conv_parts(all, conv_parts(all, most)) : band_rows(all, most, pool_threads(j->workers));
    j->bands = conv_parts(all, j->rows);
    j->panels = count_panels(j->columns);
    j->parts = few ? conv_min(conv_parts(wanted, j->bands * j->groups), j->panels) : 1;
}

static err_t plan_memory(conv_job *j) {
    int64_t all = j->in.N * j->in.P;
    for (int64_t row = 0; row < all; row += j->rows) {
        conv_band b = conv_band_of(&j->in, row, conv_min(row + j->rows, all), NULL);
        size_t floats = (conv_band_floats(&j->in, &b) + 63) & ~(size_t)15;
        j->band_floats = floats > j->band_floats ? floats : j->band_floats;
    }
    if (!j->sums_in_y) j->sums_floats = (size_t)(j->rows * j->in.Q * padded(j->columns));
    size_t shared = ((size_t)(j->groups * padded(j->columns) * j->J) + 1024) * sizeof(float);
    j->packed = pool_shared(j->workers, shared);
    bool ok = j->packed != NULL;
    for (int i = 0; ok && i < pool_threads(j->workers); i++) ok = pool_scratch(j->workers, i, scratch_bytes(j)) != NULL;
    if (ok) return ERR_OK;
    return err_set(ERR_INTERNAL,
                   "conv (%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "), filters (%" PRId64 ",%" PRId64 ",%" PRId64
                   ",%" PRId64 "): no memory for %.1f MB of packed filters, and %.1f MB a thread",
                   j->in.N, j->in.H, j->in.W, j->in.pixel, j->w->size[0], j->w->size[1], j->w->size[2], j->w->size[3],
                   (double)shared / 1e6, (double)scratch_bytes(j) / 1e6);
}

static err_t convolve(conv_job *j) {
    assert(!PAIRED || j->in.type != FP16);
    conv_take_cells(&j->in);
    if (j->in.N * j->in.P * j->in.Q * j->columns == 0) return ERR_OK;
    plan_bands(j);
    TRY(plan_memory(j));
    pool_run(j->workers, conv_parts(j->J, PACK_J) * conv_parts(j->columns, VL) * j->groups, pack_item, j);
    pool_run(j->workers, j->bands * j->parts * j->groups, band_item, j);
    return ERR_OK;
}

// alias      y == residual allowed; else none
// moves      x once, and once more what bands share; w once a band, from a cache. Bound by FMA
err_t KERNEL(conv_forward)(const conv_forward_args *args, stream *s) {
    const int64_t *y = args->y->size, *w = args->w->size;
    conv_check(args->x, args->y, args->w, args->stride, args->pad, args->groups);
    conv_check_residual(args->residual, args->y);
    conv_job j = {.in = conv_source_of(args->x, args->y, args->w, args->stride, args->pad),
                  .groups = args->groups,
                  .columns = w[0] / args->groups,
                  .J = w[1] * w[2] * product_cells(w[3]),
                  .w = args->w,
                  .y = args->y,
                  .residual = args->residual,
                  .out_n = y[1] * y[2] * y[3],
                  .out_p = y[2] * y[3],
                  .out_q = y[3],
                  .sums_in_y = args->y->type == FP32 && !args->residual,
                  .workers = s->workers};
    return convolve(&j);
}

// An axis of a class of inputs: pixels first, first + stride, ... The first of its taps and the last, of which it has
// `taps`; what a convolution of dy has to be padded with.
typedef struct class_axis {
    int64_t pixels, taps, last, pad;
} class_axis;

static class_axis class_of(int64_t first, int64_t pixels, int64_t taps, int64_t stride, int64_t pad) {
    class_axis a = {.pixels = first < pixels ? (pixels - 1 - first) / stride + 1 : 0};
    int64_t tap = (first + pad) % stride;
    if (tap >= taps) return a;
    a.taps = (taps - 1 - tap) / stride + 1;
    a.last = tap + (a.taps - 1) * stride;
    a.pad = (a.last - first - pad) / stride;
    return a;
}

static err_t inputs_of_class(const conv_inputs_args *args, int64_t h, int64_t w, stream *s) {
    const int64_t *dx = args->dx->size, *dy = args->dy->size, *f = args->w->size;
    const class_axis a = class_of(h, dx[1], f[1], args->stride, args->pad),
                     b = class_of(w, dx[2], f[2], args->stride, args->pad);
    const bool none = !a.taps || !b.taps;
    conv_job j = {.in = {.x = args->dy->data,
                         .type = args->dy->type,
                         .N = dy[0],
                         .H = dy[1],
                         .W = dy[2],
                         .pixel = dy[3],
                         .C = f[0] / args->groups,
                         .R = none ? 1 : a.taps,
                         .S = none ? 1 : b.taps,
                         .stride = 1,
                         .pad_h = none ? 0 : a.pad,
                         .pad_w = none ? 0 : b.pad,
                         .P = a.pixels,
                         .Q = b.pixels},
                  .groups = args->groups,
                  .columns = f[3],
                  .J = a.taps * b.taps * product_cells(f[0] / args->groups),
                  .w = args->w,
                  .turned = true,
                  .last_r = a.last,
                  .last_s = b.last,
                  .stride = args->stride,
                  .y = args->dx,
                  .residual = args->residual,
                  .out = (h * dx[2] + w) * dx[3],
                  .out_n = dx[1] * dx[2] * dx[3],
                  .out_p = args->stride * dx[2] * dx[3],
                  .out_q = args->stride * dx[3],
                  .sums_in_y = args->dx->type == FP32 && !args->residual,
                  .workers = s->workers};
    return convolve(&j);
}

// alias      dx == residual allowed; else none
// moves      dy once for each class that has taps, and what bands share
err_t KERNEL(conv_inputs)(const conv_inputs_args *args, stream *s) {
    conv_check(args->dx, args->dy, args->w, args->stride, args->pad, args->groups);
    conv_check_residual(args->residual, args->dx);
    for (int64_t h = 0; h < conv_min(args->stride, args->dx->size[1]); h++)
        for (int64_t w = 0; w < conv_min(args->stride, args->dx->size[2]); w++) TRY(inputs_of_class(args, h, w, s));
    return ERR_OK;
}
