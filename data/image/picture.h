// data/image/picture.h: a picture in memory. Pixels are bytes, rows from the top, each of w pixels of c channels:
// (h,w,c).
#ifndef DATA_IMAGE_PICTURE_H
#define DATA_IMAGE_PICTURE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

// A small file may claim to hold more than any memory: what is larger is refused before it is decoded.
enum { PICTURE_SIDE = 65500, PICTURE_PIXELS = 100000000, PICTURE_CHANNELS = 3 };

typedef struct picture {
    uint8_t *at;   // (h,w,c), and PICTURE_SPARE bytes that may be read
    int64_t room;  // bytes allocated
    int h, w, c;
} picture;

enum { PICTURE_SPARE = 32 };

static inline int64_t picture_bytes(const picture *p) { return (int64_t)p->h * p->w * p->c; }

// Gives p this shape; its pixels are undefined. Memory that is large enough is used again. ERR_DATA: too large.
err_t picture_make(picture *p, int64_t h, int64_t w, int c);
// Memory for pictures of up to so many bytes, so that none has to be found later.
err_t picture_reserve(picture *p, int64_t bytes);
void picture_free(picture *p);

#endif
