// data/image/unzip.h: a file from its first byte to its last, and inflated on the way where it is gzip (RFC 1952),
// whose members may be many.
#ifndef DATA_IMAGE_UNZIP_H
#define DATA_IMAGE_UNZIP_H

#include "data/reader.h"

#include <zlib.h>

typedef struct unzip {
    reader *reader;
    data_file *file;
    bool gzip;
    bool ended;      // a member of the gzip file has ended, and no other has begun
    int64_t at;      // offset in the file up to which it was read
    uint8_t *stage;  // compressed bytes
    z_stream z;
} unzip;

// *u must be zero; unzip_close() it in any case. The file is gzip if it begins like it.
err_t unzip_open(unzip *u, reader *r, data_file *f);
void unzip_close(unzip *u);

// The next n bytes, fewer only where the file ends: *got of them. ERR_DATA: a damaged gzip file; its checksum is only
// known to be right when fewer bytes came than were asked for.
err_t unzip_read(unzip *u, void *dst, int64_t n, int64_t *got);

#endif
