// gpu/cpu/kernel/conv_band.h: the inputs that some rows of outputs need, so that those of an output pixel lie in a few
// runs.
//
//     image 0   . . . . . . . .      output rows (n,p) are counted through all images: a band is a range of them,
//               . x x x x x x .      which may begin within one image and end within another. Of each image it has
//     image 1   . x x x x x x .      the input rows that its output rows need, one after the other, with zeros where
//               . . . . . . . .      they reach beyond the image, as FP32
//
// In a band the S*C inputs that one row of taps covers are neighbours, for every output pixel: no input is copied for
// each tap (im2col), only for each band, 1.05 to 1.5 times. Where filters have one tap and nothing reaches beyond the
// image, FP32 is read where it lies.
//
// For products of BF16 pairs what is copied is rounded, once for all taps: to BF16, two bytes, where the processor
// multiplies those by itself; else to floats that are BF16 numbers. A convolution takes pairs of channels, of which
// each pixel has whole ones: an odd number gets a zero beside it. Where nothing has to be changed, BF16 is then read
// where it lies. A gradient of weights takes pairs of pixels, and makes them as it packs what is here.
#ifndef GPU_CPU_KERNEL_CONV_BAND_H
#define GPU_CPU_KERNEL_CONV_BAND_H

#include "gpu/cpu/kernel/cells.h"

#include <stdbool.h>

// Steps of a block of the sum: the specification's. What those are in cells.
enum { CONV_KC = 384, CONV_BLOCK = CONV_KC / CELL_K };

#define BAND_TYPE (WORDS ? BF16 : FP32)  // of a band's elements, where they were copied

static inline int64_t conv_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t conv_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t conv_parts(int64_t count, int64_t unit) { return (count + unit - 1) / unit; }

// The inputs of one group of a convolution. Input row of output row p and tap row r: p * stride - pad_h + r.
typedef struct conv_source {
    const void *x;
    dtype type;
    int64_t first;    // the element that is channel 0 of the group in pixel (0,0,0)
    int64_t N, H, W;  // images, their rows and pixels
    int64_t pixel;    // elements from pixel to pixel
    int64_t C;        // channels of the group
    int64_t R, S, stride, pad_h, pad_w, P, Q;
    int64_t depth;  // elements of a pixel in a band: its channels, or whole cells of them
    bool copied;    // it can't be read where it lies
} conv_source;

// Of all groups: the first one's inputs, whose channels are elements. x (N,H,W,C), y (N,P,Q,K), w (K,R,S,C/groups).
static inline conv_source conv_source_of(const tensor *x, const tensor *y, const tensor *w, int stride, int pad) {
    return (conv_source){.x = x->data,
                         .type = x->type,
                         .N = x->size[0],
                         .H = x->size[1],
                         .W = x->size[2],
                         .pixel = x->size[3],
                         .C = w->size[3],
                         .R = w->size[1],
                         .S = w->size[2],
                         .stride = stride,
                         .pad_h = pad,
                         .pad_w = pad,
                         .P = y->size[1],
                         .Q = y->size[2],
                         .depth = w->size[3],
                         .copied = !PAIRED && x->type != FP32};
}

// From now on channels are cells, which are multiplied as they are.
static inline void conv_take_cells(conv_source *s) {
    s->depth = product_cells(s->C) * CELL_K;
    s->copied = s->type != BAND_TYPE || s->depth != s->C || (PAIRED && !WORDS);
}

typedef struct conv_band {
    const void *base;
    dtype type;  // of its elements
    bool in_place;
    int64_t row0, row1;   // output rows n * P + p
    int64_t width;        // pixels of a row of the band
    int64_t row, pixel;   // elements from row to row, from output pixel to output pixel
    int64_t first_rows;   // rows of the first image, of which it may have a part
    int64_t images_rows;  // of each that follows
} conv_band;

static inline bool conv_in_place(const conv_source *s) {
    return !s->copied && s->R == 1 && s->S == 1 && s->pad_h == 0 && s->pad_w == 0 && (s->P - 1) * s->stride < s->H &&
           (s->Q - 1) * s->stride < s->W;
}

static inline int64_t conv_rows_for(const conv_source *s, int64_t outputs) { return (outputs - 1) * s->stride + s->R; }

// `base`: where it is filled in, if it is not in place.
static inline conv_band conv_band_of(const conv_source *s, int64_t row0, int64_t row1, const void *base) {
    conv_band b = {.row0 = row0, .row1 = row1, .in_place = conv_in_place(s)};
    b.width = b.in_place ? s->W : (s->Q - 1) * s->stride + s->S;
    b.row = b.in_place ? s->W * s->pixel : b.width * s->depth;
    b.pixel = s->stride * (b.in_place ? s->pixel : s->depth);
    b.type = b.in_place ? s->type : BAND_TYPE;
    b.base = b.in_place ? typed_at(s->x, s->type, s->first) : base;
    b.first_rows = conv_rows_for(s, conv_min(row1, (row0 / s->P + 1) * s->P) - row0);
    b.images_rows = conv_rows_for(s, s->P);
    return b;
}

// Rows that are filled in.
static inline int64_t conv_band_rows(const conv_source *s, const conv_band *b) {
    int64_t last = (b->row1 - 1) / s->P, more = last - b->row0 / s->P;
    if (b->in_place) return 0;
    if (more == 0) return b->first_rows;
    return b->first_rows + (more - 1) * b->images_rows + conv_rows_for(s, b->row1 - last * s->P);
}

static inline size_t conv_band_floats(const conv_source *s, const conv_band *b) {
    return ((size_t)(conv_band_rows(s, b) * b->row) * dtype_bytes(b->type) + sizeof(float) - 1) / sizeof(float);
}

// The element from which output row `row` reads its first pixel, tap (0,0).
static inline int64_t conv_band_at(const conv_source *s, const conv_band *b, int64_t row) {
    int64_t n = row / s->P, p = row % s->P, n0 = b->row0 / s->P;
    if (b->in_place) return (n * s->H + p * s->stride) * b->row;
    if (n == n0) return (row - b->row0) * s->stride * b->row;
    return (b->first_rows + (n - n0 - 1) * b->images_rows + p * s->stride) * b->row;
}

// A row of cells: n columns, or the first sixteen, of the rows of steps that begin at elements `first` and `second`; of
// steps `left` are there.
BODY vf conv_across(dtype t, const void *p, int64_t first, int64_t second, int64_t n, int64_t left) {
    if (left <= 0) return vf_zero();
    if (n >= VL && left >= CELL_K) return cells_across(t, p, first, second);
    return cells_across_n(t, p, first, second, n, left >= CELL_K);
}

// n elements, from `at` on, as those of a band.
BODY void conv_copy(dtype t, void *to, const void *from, int64_t at, int64_t n) {
    if (t == BAND_TYPE && (!PAIRED || WORDS)) {
        memcpy(to, typed_at(from, t, at), (size_t)n * dtype_bytes(t));
        return;
    }
    for (int64_t i = 0; i < n; i += VL) {
        vf x = typed_load_n(from, t, at + i, n - i);
        if (!PAIRED) typed_store_n(to, FP32, i, x, n - i);
        else if (n - i >= VL) cells_put_along(typed_at_mut(to, BAND_TYPE, i), 0, x);
        else {
            float rest[VL];
            cells_put_along(rest, 0, x);
            memcpy(typed_at_mut(to, BAND_TYPE, i), rest, (size_t)(n - i) * dtype_bytes(BAND_TYPE));
        }
    }
}

BODY void conv_zero(void *to, int64_t at, int64_t n) {
    memset(typed_at_mut(to, BAND_TYPE, at), 0, (size_t)n * dtype_bytes(BAND_TYPE));
}

// n pixels of C elements in the last n * C places of n * depth become pixels of `depth`, with zeros.
BODY void conv_widen(void *at, int64_t n, int64_t C, int64_t depth) {
    const int64_t from = n * (depth - C);
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < depth; c++) {
            if (WORDS) ((uint16_t *)at)[i * depth + c] = c < C ? ((uint16_t *)at)[from + i * C + c] : 0;
            else ((float *)at)[i * depth + c] = c < C ? ((float *)at)[from + i * C + c] : 0;
        }
}

// Rows from .. to-1 of the band.
BODY void conv_band_fill(dtype t, const conv_source *s, const conv_band *b, void *base, int64_t from, int64_t to) {
    const int64_t left = conv_min(conv_max(s->pad_w, 0), b->width),
                  right = conv_max(conv_min(s->W + s->pad_w, b->width), left);  // pixels left .. right-1 are inside
    for (int64_t row = from; row < to; row++) {
        int64_t n = b->row0 / s->P, h = b->row0 % s->P * s->stride + row;
        if (row >= b->first_rows) {
            n += 1 + (row - b->first_rows) / b->images_rows;
            h = (row - b->first_rows) % b->images_rows;
        }
        h -= s->pad_h;
        void *d = typed_at_mut(base, BAND_TYPE, row * b->row);
        if (h < 0 || h >= s->H || left == right) {
            conv_zero(d, 0, b->row);
            continue;
        }
        conv_zero(d, 0, left * s->depth);
        conv_zero(d, right * s->depth, (b->width - right) * s->depth);
        const int64_t at = s->first + ((n * s->H + h) * s->W + left - s->pad_w) * s->pixel;
        if (s->pixel == s->C) {
            void *to_pixels = typed_at_mut(d, BAND_TYPE, left * s->depth);
            const int64_t n = right - left, more = n * (s->depth - s->C);
            conv_copy(t, typed_at_mut(to_pixels, BAND_TYPE, more), s->x, at, n * s->C);
            if (more) conv_widen(to_pixels, n, s->C, s->depth);
        } else
            for (int64_t i = left; i < right; i++) {
                conv_copy(t, typed_at_mut(d, BAND_TYPE, i * s->depth), s->x, at + (i - left) * s->pixel, s->C);
                conv_zero(d, i * s->depth + s->C, s->depth - s->C);
            }
    }
}

#endif
