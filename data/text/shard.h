// data/text/shard.h: one file of tokens, whatever its format: open, read a range, write. Private to data/text/.
//
// In the lockstep format a checksum covers every byte of a file, so that a flipped bit gives an error and never a
// strange loss curve. All numbers are little-endian, and there is no padding:
//
//      0  magic         8 bytes  93 'LSHARD' 0a
//      8  version       u32      1
//     12  token bytes   u32      1, 2 or 4
//     16  flags         u32      bit 0: blocks may be zlib streams; bit 1: answers are marked; bit 2,
//                            with it: texts have labels; bit 3, with both: which are numbers; bit 4, with
//                            bit 1 alone: rows hold several documents
//     20  block tokens  u32      tokens of every block but the last
//     24  tokens        u64
//     32  blocks        u64
//     40  file bytes    u64
//     48  table CRC     u32
//     52  row tokens    u32      where answers are marked: tokens of a sample; else 0
//     56  zero          u32
//     60  header CRC    u32      of bytes 0..59
//     64  table: for each block  offset u64, stored bytes u32, CRC of the stored bytes u32, CRC of the tokens' bytes
//         u32 blocks, one after the other, in order
//
// A block with fewer stored bytes than its tokens have is a zlib stream (RFC 1950); with as many, it is the tokens
// themselves, because they did not shrink. CRC is the CRC-32 of zlib and gzip (RFC 1952). With the second CRC of a
// block the hash of a dataset does not depend on compression.
//
// Where answers are marked, tokens have 2 or 4 bytes, and the highest bit of one says that it is part of an answer: its
// loss counts where it is the next one. The tokens are rows of equal length, a sample each. Where rows hold several
// documents, the bit below it says that a document begins with the token, or what fills the row up. Where texts have
// labels, the highest bit says that a token is of the second text, and a row's last two numbers are its length and its
// label (data/text/labels.h). Where labels are numbers, tokens have 4 bytes, and a label is the bits of an FP32.
//
// Foreign formats, read as they are:
//   llm.c     256 int32: magic 20240520, version 1, number of tokens, rest unused; then uint16 tokens (GPT-2,
//             modded-nanogpt). magic 20240801, version 7: uint32 tokens (Llama 3). As written by
//             dev/data/data_common.py of llm.c.
//   raw16     uint16 tokens and nothing else (nanoGPT); raw32: uint32 tokens
//   megatron  tokens of 1 to 8 bytes and nothing else, and an index in a file of its own (data/text/megatron.h)
#ifndef DATA_TEXT_SHARD_H
#define DATA_TEXT_SHARD_H

#include "base/fault.h"
#include "base/le.h"
#include "data/format.h"
#include "data/text/megatron.h"

#include <stddef.h>
#include <zlib.h>

enum {
    SHARD_HEADER = 64,
    SHARD_ENTRY = 20,
    SHARD_MAGIC_BYTES = 8,
    SHARD_VERSION = 1,
    SHARD_ZLIB = 1,  // flags
    SHARD_MARKS = 2,
    SHARD_LABELS = 4,
    SHARD_NUMBERS = 8,
    SHARD_DOCUMENTS = 16,
    SHARD_ROW_MAX = 1 << 24,    // most tokens of a marked row
    SHARD_BLOCK_MAX = 1 << 22,  // most bytes of the tokens of a block: bounds what a reader allocates
    // what we write: small, as a compressed block is inflated for each window of a shuffled epoch
    SHARD_BLOCK = 1 << 15,
    SHARD_OPEN_MAX = READER_OPEN_MAX,
    SHARD_CACHE_SLOTS = 16,  // inflated blocks kept
    SHARD_STAGE = 1 << 18,   // bytes of the staging buffer, at least
};

_Static_assert((int)SHARD_STAGE >= (int)MEGATRON_STAGE, "the stage holds a piece of an index");

// What is marked, of a token that was read: it is part of an answer, or of a second text; it begins a document.
enum { MARK_ANSWER = 1, MARK_BEGIN = 2 };

extern const uint8_t shard_magic[SHARD_MAGIC_BYTES];

typedef struct shard_block {
    int64_t offset;
    uint32_t stored, crc, raw_crc;
} shard_block;

typedef struct shard {
    data_file file;
    source_format format;
    int token_bytes;
    bool is_signed;  // negative numbers are no tokens, and an error
    int64_t tokens;
    int64_t data_at;         // offset of the first token (foreign formats without stretches)
    token_stretch *stretch;  // (stretches), in the order of tokens (megatron); else NULL
    int64_t stretches;
    uint32_t crc;          // of the tokens' bytes (foreign formats)
    int64_t block_tokens;  // lockstep format, to the end
    int64_t row_tokens;    // of a sample, where answers are marked; else 0
    bool labels, numbers;  // texts have labels; which are numbers
    bool documents;        // rows hold several documents
    int64_t blocks;
    shard_block *table;
    uint64_t *checked;  // a bit for each plain block whose CRC has been found right
} shard;

// What reading needs in addition to the shard, shared by all shards of a dataset: descriptors, retries, buffers. One
// reading thread at a time; the reader's cancel and retry count may be used from other threads.
typedef struct shard_slot {
    const shard *owner;  // NULL: empty
    int64_t block, used;
    uint8_t *raw;
} shard_slot;

typedef struct shard_io {
    reader reader;
    int64_t vocab;
    uint8_t *stage;
    int64_t stage_bytes;
    shard_slot slot[SHARD_CACHE_SLOTS];
    int slots;
    int64_t clock;
    uint8_t *cache;
    z_stream inflater;
    bool inflating;
} shard_io;

// io must be zero; vocab, retry, shared_by and faults are those of dataset_options. shard_io_reserve() sizes the
// buffers when every shard is open; nothing is allocated after that.
err_t shard_io_open(shard_io *io, int64_t vocab, int retry, int shared_by, fault_list *faults);
err_t shard_io_reserve(shard_io *io, const shard *shards, int count);
void shard_io_close(shard_io *io);

// Opens the file, finds its format and checks all that can be checked without the tokens. Foreign formats have no
// checksum: their CRC is computed here, which reads the file once (about 1 s for each GB; holes of a sparse file cost
// nothing). *s must be zero; shard_close() it in any case.
err_t shard_open(shard *s, shard_io *io, const char *path, source_format format);
void shard_close(shard *s, shard_io *io);

// out[0..n) = tokens first .. first+n, all inside the shard, and marks[0..n) = what is marked of them (NULL: not
// wanted). ERR_DATA: a wrong checksum, or a token >= vocab.
err_t shard_read(shard *s, shard_io *io, int64_t first, int64_t n, int32_t *out, uint8_t *marks);

// Reads and checks all of the shard; report(ctx, text) for each fault found; *faults += their number.
void shard_verify(shard *s, shard_io *io, void (*report)(void *ctx, const char *text), void *ctx, int64_t *faults);

// --- data/text/shard_write.c

typedef struct shard_writer shard_writer;

// Writes the shard at `path` in place (the caller renames); `tokens` is the total that shard_write() will get, at least
// 1. shard_write_finish() returns when it is on disk. Close in any case; closing an unfinished one leaves a useless
// file.
err_t shard_write_open(shard_writer **out, const char *path, int token_bytes, int64_t tokens, bool compress);
// Answers are marked, in rows of so many tokens. Before the first shard_write.
void shard_write_rows(shard_writer *w, int64_t row_tokens, bool labels);
// Also: rows hold several documents.
void shard_write_documents(shard_writer *w);
// Also: the labels are numbers.
void shard_write_numbers(shard_writer *w);
err_t shard_write(shard_writer *w, const uint8_t *bytes, int64_t tokens);  // tokens in little-endian
err_t shard_write_finish(shard_writer *w);
// the header's, of a finished one: it covers the table, which covers all tokens
uint32_t shard_write_crc(const shard_writer *w);
void shard_write_close(shard_writer *w);

#endif
