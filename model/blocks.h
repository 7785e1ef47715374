// model/blocks.h: a safetensors file of FP32 tensors whose data is compressed with zstd, for checkpoints. Each tensor
// is cut into blocks that are compressed one by one, so that any range of it is read without what stands before it. The
// plain file is the header and then what the blocks hold.
//
//   offset 0           "lockblk1"
//   8, 16, 24          bytes of the header, bytes of the plain file, number of blocks: 64 bits each, little-endian
//   32                 CRC-32 of all else that stands before the blocks
//   36                 of each block its bytes in this file and their CRC-32: 32 bits each
//   then               the header: the plain file's first bytes, with the length in front
//   then               the blocks, in order and without gaps. One with as many bytes as it holds is not compressed
//
// In a block all least significant bytes come first, then all second ones, and so on: sign and mantissa are noise in
// which zstd finds nothing, and it is spent on the exponents alone. A value is rotated left by one bit before, which
// makes its exponent one byte.
#ifndef MODEL_BLOCKS_H
#define MODEL_BLOCKS_H

#include "base/err.h"
#include "base/fault.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BLOCKS_MAGIC = 8, BLOCK_BYTES = 1 << 20, BLOCK_LEVELS = 19 };

static inline int64_t blocks_of(int64_t bytes) { return (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES; }

// --- reading ---------------------------------------------------------------------------------------------------------

// 3 MiB to unpack blocks in, for any number of files, one after the other. For one thread.
typedef struct block_room block_room;
err_t block_room_open(block_room **out);
void block_room_close(block_room *r);

// What stands before the header.
typedef struct blocks {
    int64_t header, plain;  // bytes of the header, and of the plain file
    int64_t begin;          // where the header is in this file
    int64_t count;
    int64_t *at;       // [count + 1]: where a block begins; last: where the last one ends, which is the file's end
    uint32_t *crc;     // [count]
    block_room *room;  // NULL: made by the first read
    bool lent;         // somebody else's, who closes it later: set with `room`
} blocks;

bool blocks_are(const uint8_t first[BLOCKS_MAGIC]);

// Reads the index and checks it against the file's length. ERR_DATA. blocks_close afterwards, also after a failure.
err_t blocks_open(blocks *b, int fd, const char *path, int64_t file_bytes);
void blocks_close(blocks *b);

// out (=) bytes from .. from + n - 1 of a tensor of `bytes` bytes whose first block is number `first`. ERR_DATA names
// the block.
err_t blocks_read(blocks *b, int fd, const char *path, int64_t first, int64_t bytes, int64_t from, void *out, size_t n);

// --- writing ---------------------------------------------------------------------------------------------------------

typedef struct block_writer block_writer;

// Into an empty file. bytes [count]: of each tensor, in the order in which they are put. level: of zstd, 1 to
// BLOCK_LEVELS. The header is used until the end.
err_t block_writer_open(block_writer **out, int fd, const char *path, int level, const char *header,
                        size_t header_bytes, const int64_t *bytes, int count, fault_list *faults);
// *stored (+=) bytes that went to the file.
err_t block_writer_put(block_writer *w, const void *data, size_t n, int64_t *stored);
// After all was put: what stands before the blocks, as it will be in the file.
const char *block_writer_head(const block_writer *w, size_t *n);
// Writes it.
err_t block_writer_end(block_writer *w);
void block_writer_close(block_writer *w);

#endif
