// data/image/resize.h: pictures in another size, byte for byte as Image.resize(size, BILINEAR) of Pillow 3.3 to 12
// makes them. Pillow 13 goes along columns first where a picture becomes much lower and not narrower, which changes
// some bytes by one.
//
// A pixel of the result is a weighted mean of those that its area covers, and of their neighbours: the weights fall
// linearly to 0 at a distance of one pixel of the larger raster of the two, so that reducing blurs what would alias.
// They are computed in double, rounded to 22 bits after the point, and multiplied in integers, along rows first; what
// that gives is rounded to bytes, and goes along columns (Pillow's src/libImaging/Resample.c). No step depends on the
// width of vectors.
#ifndef DATA_IMAGE_RESIZE_H
#define DATA_IMAGE_RESIZE_H

#include "data/image/picture.h"

#include <stdbool.h>

// Part of a picture: h rows of w pixels of c channels, `stride` bytes from one row to the next. Up to PICTURE_SPARE
// bytes past the last one may be read.
typedef struct region {
    const uint8_t *at;
    int64_t stride;
    int h, w, c;
} region;

// The weights of one direction: result i is made of taps from first[i] on, count[i] of them, with the weights
// weight[i * most ...].
typedef struct taps {
    int32_t *first, *count, *weight;
    double *exact;  // (most) before they are rounded
    int most;
    int64_t room, exact_room;
} taps;

// Memory of a thread that resizes, used again and again. Begins as zero.
typedef struct resizer {
    taps across, down;
    uint8_t *rows;  // what the pass along rows gives
    int64_t room;
    bool plain;  // without AVX2, for tests
} resizer;

// dst (=) `from` in the size (h,w), (h,w,c) bytes.
err_t resize(resizer *r, uint8_t *dst, int h, int w, const region *from);
// Memory for pictures of up to (most_h,most_w) that become (h,w), so that none has to be found later.
err_t resizer_reserve(resizer *r, int most_h, int most_w, int h, int w, int c);
void resizer_free(resizer *r);

#endif
