// data/shard_head.h: what the headers of shards of images and of clicks have alike. Of 128 bytes these are:
//
//      0  magic         8 bytes
//      8  version       u32
//     32  file bytes    u64
//    124  header CRC    u32      of bytes 0..123
#ifndef DATA_SHARD_HEAD_H
#define DATA_SHARD_HEAD_H

#include "data/reader.h"

enum { SHARD_HEAD = 128, SHARD_MAGIC = 8 };

typedef struct shard_form {
    const uint8_t *magic;  // [SHARD_MAGIC]
    uint32_t version;      // the newest that is known; the oldest is 1
    const char *what;      // "a shard of images"
} shard_form;

// Does the file begin as `begins` says of its first bytes? false where they can't be read.
bool shard_begins(const char *path, bool (*begins)(const uint8_t *head, int64_t n));

// Finds the file at `path`, reads its header to h and checks what is above. ERR_DATA: it is no such file, or damaged.
err_t shard_head_read(data_file *f, reader *r, const char *path, const shard_form *form, uint8_t h[SHARD_HEAD]);

// ERR_DATA: a number of the file, and a checksum, that can't be.
err_t shard_wrong(const data_file *f, int64_t offset, const char *what, uint64_t found, const char *expected);
err_t shard_damaged(const data_file *f, int64_t offset, const char *what, uint32_t found, uint32_t expected);

#endif
