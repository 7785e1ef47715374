// data/image/picture.h: a picture in memory, and how it comes out of a file. Pixels are bytes, rows from the top, each
// of w pixels of c channels: (h,w,c).
//
// What a decoder gives is byte for byte what Pillow gives: ImageOps.exif_transpose(Image.open(f)).convert("RGB"). So a
// picture stands as the camera was held (EXIF orientation), grey becomes three equal channels, transparency is dropped,
// CMYK is turned into RGB as Pillow does it. One difference: of 16 bits of grey the upper 8 are kept, as of 16 bits of
// colour; Pillow's answer depends on its version.
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
void picture_free(picture *p);

// *out = the picture in n bytes of a JPEG or PNG file, in RGB. The first bytes say which it is. ERR_DATA says what is
// wrong with it, without the file's name, which is for the caller to put before it.
err_t picture_decode(picture *out, const uint8_t *bytes, size_t n);

// --- for the decoders ------------------------------------------------------------------------------------------------

err_t jpeg_decode(picture *out, int *orientation, const uint8_t *bytes, size_t n);  // data/image/jpeg.c
err_t png_decode(picture *out, int *orientation, const uint8_t *bytes, size_t n);   // data/image/png.c

// The orientation, 1 to 8, in a block of EXIF: a TIFF file from its first byte. 1, upright, where it has none.
int exif_orientation(const uint8_t *tiff, size_t n);

#endif
