// data/click/shard.h: one file of clicks or of ratings, as `lockstep pack` writes it.
//
// A checksum covers every byte of a file. All numbers are little-endian, and there is no padding:
//
//      0  magic         8 bytes  93 'LCLICK' 0a
//      8  version       u32      1: clicks; 2: ratings
//     12  dense         u32      numbers of a record, 1 to 64; of ratings 0 to 64
//     16  tables        u32      ids of a record, 1 to 64
//     20  zero          4 bytes
//     24  records       u64
//     32  file bytes    u64
//     40  best          f64      mean loss of the model that made the labels, on all records of this split's shards;
//                                0: it is not known
//     48  zero          72 bytes
//    120  table CRC     u32
//    124  header CRC    u32      of bytes 0..123
//    128  records: label u8, of ratings f32; dense f32 each, ids u64 each
//         table: the CRC u32 of each block of CLICK_BLOCK records; the last block may have fewer
//
// CRC is the CRC-32 of zlib and gzip (RFC 1952). A record is read with its block, whose checksum is computed then.
#ifndef DATA_CLICK_SHARD_H
#define DATA_CLICK_SHARD_H

#include "base/io.h"
#include "data/click/record.h"
#include "data/reader.h"

#include <stdbool.h>

enum {
    CLICKS_HEADER = 128,
    CLICKS_MAGIC_BYTES = 8,
    CLICKS_VERSION = 1,
    RATINGS_VERSION = 2,
    CLICK_BLOCK = 16,
    CLICK_BYTES = 4 + 4 * CLICK_DENSE + 8 * CLICK_TABLES,  // most of a record
};

extern const uint8_t clicks_magic[CLICKS_MAGIC_BYTES];

// What a record has.
typedef struct click_form {
    int dense, tables;
    bool rated;  // its label is a rating
} click_form;

static inline int64_t click_bytes(click_form f) {
    return (f.rated ? 4 : 1) + 4 * (int64_t)f.dense + 8 * (int64_t)f.tables;
}
static inline int64_t click_blocks(int64_t records) { return (records + CLICK_BLOCK - 1) / CLICK_BLOCK; }

typedef struct click_shard {
    data_file file;
    click_form form;
    int64_t records;
    double best;
    uint32_t *crc;         // (blocks)
    int64_t start, first;  // numbers of its first record and block among those of all shards; the source's
} click_shard;

// Reads and checks header and table. *s must be zero; click_shard_close() it in any case.
err_t click_shard_open(click_shard *s, reader *r, const char *path);
void click_shard_close(click_shard *s, reader *r);

// bytes (CLICK_BLOCK * click_bytes) (=) the block's records, checked; *records: how many there are. ERR_DATA: a wrong
// checksum.
err_t click_shard_block(click_shard *s, reader *r, int64_t block, uint8_t *bytes, int *records);

// *out = record k of such a block, which is record `number` of the shard. ERR_DATA: a label that is neither 0 nor 1, or
// a rating or a number that is not finite.
err_t click_take(const click_shard *s, const uint8_t *bytes, int k, int64_t number, click *out);

// Reads all records and reports each block that is damaged, and each record of the others that is wrong; *faults += how
// many.
err_t click_shard_verify(click_shard *s, reader *r, void (*report)(void *ctx, const char *text), void *ctx,
                         int64_t *faults);

// --- data/click/shard_write.c

typedef struct click_writer click_writer;

// Writes a shard at `path` in place (the caller renames), record by record. click_write_seal() ends it, when all are
// in; click_write_finish(), when `best` is known, puts the header in and returns when all is on disk. Between the two
// it holds no descriptor. Close in any case; closing an unfinished one leaves a useless file.
err_t click_write_open(click_writer **out, const char *path, click_form form);
err_t click_write(click_writer *w, const click *c);
err_t click_write_seal(click_writer *w);
err_t click_write_finish(click_writer *w, double best);
void click_write_close(click_writer *w);

#endif
