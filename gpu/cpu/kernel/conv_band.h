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
#ifndef GPU_CPU_KERNEL_CONV_BAND_H
#define GPU_CPU_KERNEL_CONV_BAND_H

#include "gpu/cpu/kernel/typed.h"

#include <stdbool.h>

enum { CONV_KC = 384 };  // steps of a block of the sum: the specification's

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
} conv_source;

// Of all groups: the first one's inputs. x (N,H,W,C), y (N,P,Q,K), w (K,R,S,C/groups).
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
                         .Q = y->size[2]};
}

typedef struct conv_band {
    const float *base;
    bool in_place;
    int64_t row0, row1;   // output rows n * P + p
    int64_t width;        // pixels of a row of the band
    int64_t row, pixel;   // floats from row to row, from output pixel to output pixel
    int64_t first_rows;   // rows of the first image, of which it may have a part
    int64_t images_rows;  // of each that follows
} conv_band;

static inline bool conv_in_place(const conv_source *s) {
    return s->type == FP32 && s->R == 1 && s->S == 1 && s->pad_h == 0 && s->pad_w == 0 &&
           (s->P - 1) * s->stride < s->H && (s->Q - 1) * s->stride < s->W;
}

static inline int64_t conv_rows_for(const conv_source *s, int64_t outputs) { return (outputs - 1) * s->stride + s->R; }

// `base`: where it is filled in, if it is not in place.
static inline conv_band conv_band_of(const conv_source *s, int64_t row0, int64_t row1, const float *base) {
    conv_band b = {.row0 = row0, .row1 = row1, .in_place = conv_in_place(s)};
    b.width = b.in_place ? s->W : (s->Q - 1) * s->stride + s->S;
    b.row = b.in_place ? s->W * s->pixel : b.width * s->C;
    b.pixel = s->stride * (b.in_place ? s->pixel : s->C);
    b.base = b.in_place ? (const float *)s->x + s->first : base;
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
    return (size_t)(conv_band_rows(s, b) * b->row);
}

// Where output row `row` reads its first pixel, tap (0,0).
static inline const float *conv_band_at(const conv_source *s, const conv_band *b, int64_t row) {
    int64_t n = row / s->P, p = row % s->P, n0 = b->row0 / s->P;
    if (b->in_place) return b->base + (n * s->H + p * s->stride) * b->row;
    if (n == n0) return b->base + (row - b->row0) * s->stride * b->row;
    return b->base + (b->first_rows + (n - n0 - 1) * b->images_rows + p * s->stride) * b->row;
}

BODY void conv_copy(dtype t, float *to, const void *from, int64_t at, int64_t n) {
    if (t == FP32) {
        memcpy(to, (const float *)from + at, (size_t)n * sizeof *to);
        return;
    }
    for (int64_t i = 0; i < n; i += VL) typed_store_n(to, FP32, i, typed_load_n(from, t, at + i, n - i), n - i);
}

// Rows from .. to-1 of the band.
BODY void conv_band_fill(dtype t, const conv_source *s, const conv_band *b, float *base, int64_t from, int64_t to) {
    const int64_t left = conv_min(conv_max(s->pad_w, 0), b->width),
                  right = conv_max(conv_min(s->W + s->pad_w, b->width), left);  // pixels left .. right-1 are inside
    for (int64_t row = from; row < to; row++) {
        int64_t n = b->row0 / s->P, h = b->row0 % s->P * s->stride + row;
        if (row >= b->first_rows) {
            n += 1 + (row - b->first_rows) / b->images_rows;
            h = (row - b->first_rows) % b->images_rows;
        }
        h -= s->pad_h;
        float *d = base + row * b->row;
        if (h < 0 || h >= s->H || left == right) {
            memset(d, 0, (size_t)b->row * sizeof *d);
            continue;
        }
        memset(d, 0, (size_t)(left * s->C) * sizeof *d);
        memset(d + right * s->C, 0, (size_t)((b->width - right) * s->C) * sizeof *d);
        const int64_t at = s->first + ((n * s->H + h) * s->W + left - s->pad_w) * s->pixel;
        if (s->pixel == s->C) conv_copy(t, d + left * s->C, s->x, at, (right - left) * s->C);
        else
            for (int64_t i = left; i < right; i++) conv_copy(t, d + i * s->C, s->x, at + (i - left) * s->pixel, s->C);
    }
}

#endif
