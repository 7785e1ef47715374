// data/image/decode.h: how a picture comes out of a file.
//
// What a decoder gives is byte for byte what Pillow gives: ImageOps.exif_transpose(Image.open(f)).convert("RGB"). So a
// picture stands as the camera was held (EXIF orientation), grey becomes three equal channels, transparency is dropped,
// CMYK is turned into RGB as Pillow does it. One difference: of 16 bits of grey the upper 8 are kept, as of 16 bits of
// colour; Pillow's answer depends on its version.
#ifndef DATA_IMAGE_DECODE_H
#define DATA_IMAGE_DECODE_H

#include "data/image/picture.h"

#include <stddef.h>

// *out = the picture in n bytes of a JPEG or PNG file, in RGB. The first bytes say which it is. ERR_DATA says what is
// wrong with it, without the file's name, which is for the caller to put before it.
err_t picture_decode(picture *out, const uint8_t *bytes, size_t n);

// --- its parts ------------------------------------------------------------------------------------------------

err_t jpeg_decode(picture *out, int *orientation, const uint8_t *bytes, size_t n);  // data/image/jpeg.c
err_t png_decode(picture *out, int *orientation, const uint8_t *bytes, size_t n);   // data/image/png.c

// The orientation, 1 to 8, in a block of EXIF: a TIFF file from its first byte. 1, upright, where it has none.
int exif_orientation(const uint8_t *tiff, size_t n);

#endif
