// data/image/encode.h: how a picture becomes a file.
#ifndef DATA_IMAGE_ENCODE_H
#define DATA_IMAGE_ENCODE_H

#include "base/text.h"
#include "data/image/picture.h"

// Appends a PNG file of p, grey or RGB, to `out`: the same bytes each time. ERR_INTERNAL: no memory; ERR_CONFIG: it has
// other than 1 or 3 channels.
err_t png_encode(text *out, const picture *p);

#endif
