// data/image/shard.h: one file of images with labels, as `lockstep pack` writes it. Pixels are bytes, so that the
// machine that trains decodes nothing.
//
// A checksum covers every byte of a file. All numbers are little-endian, and there is no padding:
//
//      0  magic         8 bytes  93 'LIMAGE' 0a
//      8  version       u32      1
//     12  channels      u32      1 or 3, of all images
//     16  images        u64
//     24  table offset  u64
//     32  file bytes    u64
//     40  size          u32      to which the shorter side was brought; 0: as the pictures were
//     44  classes       u32
//     48  pixels        u64      of the training images of all shards that were packed together
//     56  sums          3 u64    of their values, by channel
//     80  squares       3 u64    of these values' squares
//    104  name bytes    u32
//    108  table CRC     u32
//    112  zero          12 bytes
//    124  header CRC    u32      of bytes 0..123
//    128  images, one after the other: (h,w,channels) bytes each
//         table: for each image  offset u64, h u32, w u32, label u32, CRC u32 of its bytes
//         names of the classes in the order of their labels, each with a zero byte at its end
//
// CRC is the CRC-32 of zlib and gzip (RFC 1952). An image is a block with a checksum of its own.
#ifndef DATA_IMAGE_SHARD_H
#define DATA_IMAGE_SHARD_H

#include "base/io.h"
#include "data/image/picture.h"
#include "data/reader.h"

#include <stdatomic.h>
#include <stdbool.h>

enum {
    IMAGES_HEADER = 128,
    IMAGES_ENTRY = 24,
    IMAGES_MAGIC_BYTES = 8,
    IMAGES_VERSION = 1,
    IMAGES_CLASSES = 1 << 24,  // most
};

extern const uint8_t images_magic[IMAGES_MAGIC_BYTES];

// Sums over the values of images, exact, so that their order does not matter.
typedef struct image_sums {
    uint64_t pixels, sum[PICTURE_CHANNELS], square[PICTURE_CHANNELS];
} image_sums;

void image_sums_add(image_sums *s, const picture *p);
// mean[c] and 1 / standard deviation of channel c, for values from 0 to 255; 1 where all values are the same.
void image_sums_scale(const image_sums *s, int channels, float *mean, float *inv);

typedef struct image_entry {
    int64_t offset;
    int32_t h, w, label;
    uint32_t crc;
} image_entry;

typedef struct image_shard {
    data_file file;
    int channels, size, classes;
    int64_t images, table_at;
    image_entry *entry;          // (images)
    char *names;                 // (name_bytes)
    uint32_t name_bytes;         //
    image_sums sums;             //
    _Atomic(uint64_t) *checked;  // a bit for each image whose CRC has been found right
    int64_t start;               // number of its first image among those of all shards; the source's
} image_shard;

// Reads and checks header and table. *s must be zero; image_shard_close() it in any case.
err_t image_shard_open(image_shard *s, reader *r, const char *path);
void image_shard_close(image_shard *s, reader *r);

// *out = image k, through `f`, which is s->file or another descriptor of the same file: several threads may read at
// once, each with a reader and files of its own. ERR_DATA: a wrong checksum; it is not computed again unless `again`.
err_t image_shard_read(image_shard *s, reader *r, data_file *f, int64_t k, bool again, picture *out);

// Reads all images and checks them; report(ctx, text) for each that is damaged; *faults += their number.
err_t image_shard_verify(image_shard *s, reader *r, void (*report)(void *ctx, const char *text), void *ctx,
                         int64_t *faults);

// --- data/image/shard_write.c

typedef struct image_writer image_writer;

typedef struct image_about {
    int channels, size, classes;
    const char *names;  // (name_bytes) as in the file
    uint32_t name_bytes;
} image_about;

// Writes a shard at `path` in place (the caller renames), image by image. image_write_seal() ends it, when all are in;
// image_write_finish(), when the sums over all shards are known, puts the header in and returns when all is on disk.
// Between the two it holds no descriptor. Close in any case; closing an unfinished one leaves a useless file.
err_t image_write_open(image_writer **out, const char *path, const image_about *about);
err_t image_write(image_writer *w, const picture *p, int32_t label);
err_t image_write_seal(image_writer *w);
err_t image_write_finish(image_writer *w, const image_sums *sums);
void image_write_close(image_writer *w);

#endif
