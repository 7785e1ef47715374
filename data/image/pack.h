// data/image/pack.h: pictures become shards of images.
#ifndef DATA_IMAGE_PACK_H
#define DATA_IMAGE_PACK_H

#include "base/err.h"
#include "data/images.h"

#include <stdint.h>

typedef struct image_pack_options {
    image_kind kind;        // not IMAGES_NO
    const char *input;      // files, folders and globs, space between
    const char *val_input;  // the validation images; "": val_fraction of the input
    const char *output;     // prefix: PREFIX-train-00000.bin ..., PREFIX-val-00000.bin
    int64_t shard_images;   // most images in a file
    double val_fraction;    // share of the images that goes to the validation files, drawn by chance, always the same
    int64_t size;           // the shorter side of each picture is brought to it; 0: they stay as they are
    int64_t bad_most;       // with more pictures that can't be read, nothing is packed
    int threads;            // 0: as many as there are processors
    void (*progress)(void *ctx, int64_t done, int64_t images);  // NULL: not wanted
    void (*bad)(void *ctx, const char *text);                   // called for each picture that can't be read
    void *ctx;
} image_pack_options;

typedef struct image_pack_report {
    int64_t train, val, bad, skipped;
    int64_t classes, bytes;  // of pixels
    int channels, shards_out;
    float mean[3], inv[3];  // of the training images, for values from 0 to 255: (x - mean) * inv
} image_pack_report;

// Decodes, resizes and writes, each file atomically; the old shards of the same prefix are removed when the new ones
// are complete on disk. The bytes that it writes do not depend on the number of threads.
err_t image_pack_run(const image_pack_options *o, image_pack_report *r);

#endif
