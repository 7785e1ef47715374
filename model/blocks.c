// model/blocks.c: see model/blocks.h. Nothing in the index is trusted: sizes are checked against the file before memory
// is asked for, a block is unpacked into as many bytes as its tensor has there, whatever it claims to hold, and only
// after its checksum was compared.
#include "model/blocks.h"

#include "base/io.h"
#include "base/le.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum { HEAD = 36, HEAD_CRC = 32, ENTRY = 8, VALUE = 4 };
static const uint64_t HEADER_MAX = 100000000;  // as of safetensors
static const char MAGIC[BLOCKS_MAGIC + 1] = "lockblk1";

// --- bytes of equal significance -------------------------------------------------------------------------------------

static void split(uint8_t *restrict planes, const uint8_t *restrict x, size_t values) {
    uint8_t *b = planes + values, *c = b + values, *d = c + values;
    for (size_t i = 0; i < values; i++) {
        uint32_t v = le32_get(x + VALUE * i);
        v = v << 1 | v >> 31;
        planes[i] = (uint8_t)v, b[i] = (uint8_t)(v >> 8), c[i] = (uint8_t)(v >> 16), d[i] = (uint8_t)(v >> 24);
    }
}

static void join(uint8_t *restrict x, const uint8_t *restrict planes, size_t values) {
    const uint8_t *b = planes + values, *c = b + values, *d = c + values;
    for (size_t i = 0; i < values; i++) {
        uint32_t v = planes[i] | (uint32_t)b[i] << 8 | (uint32_t)c[i] << 16 | (uint32_t)d[i] << 24;
        le32_put(x + VALUE * i, v >> 1 | v << 31);
    }
}

static uint32_t checksum(const uint8_t *x, size_t n) { return (uint32_t)crc32_z(0, x, n); }

// --- the index -------------------------------------------------------------------------------------------------------

bool blocks_are(const uint8_t first[BLOCKS_MAGIC]) { return memcmp(first, MAGIC, BLOCKS_MAGIC) == 0; }

static err_t read_index(blocks *b, const uint8_t *index, const char *path, int64_t file_bytes) {
    int64_t at = b->begin + b->header;
    for (int64_t k = 0; k < b->count; k++) {
        uint32_t n = le32_get(index + k * ENTRY);
        if (n == 0 || n > BLOCK_BYTES)
            return err_set(ERR_DATA,
                           "%s: offset %" PRId64 ": block %" PRId64 " of %" PRId64 " has %" PRIu32
                           " bytes in the index, expected 1 to %d: the index is damaged",
                           path, HEAD + k * ENTRY, k, b->count, n, BLOCK_BYTES);
        b->at[k] = at, b->crc[k] = le32_get(index + k * ENTRY + 4);
        at += n;
    }
    b->at[b->count] = at;
    if (at == file_bytes) return ERR_OK;
    return err_set(ERR_DATA,
                   "%s: has %" PRId64 " bytes, and by its index its %" PRId64 " blocks end at %" PRId64
                   ": the file is cut short, or its index damaged",
                   path, file_bytes, b->count, at);
}

// head: all that stands before the blocks.
static uint32_t head_checksum(const uint8_t *head, size_t n) {
    return (uint32_t)crc32_z(checksum(head, HEAD_CRC), head + HEAD, n - HEAD);
}

static err_t check_head(const uint8_t *head, size_t n, const char *path) {
    uint32_t is = head_checksum(head, n), says = le32_get(head + HEAD_CRC);
    if (is == says) return ERR_OK;
    return err_set(ERR_DATA,
                   "%s: its header (%zu bytes from offset 0, with the index of its blocks) has checksum %08" PRIx32
                   ", it says %08" PRIx32 ": the file is damaged",
                   path, n, is, says);
}

err_t blocks_open(blocks *b, int fd, const char *path, int64_t file_bytes) {
    uint8_t head[HEAD];
    *b = (blocks){0};
    if (file_bytes < HEAD)
        return err_set(ERR_DATA, "%s: has %" PRId64 " bytes: cut short, expected a head of %d", path, file_bytes, HEAD);
    TRY(io_read_at(fd, path, 0, head, sizeof head));
    uint64_t header = le64_get(head + 8), plain = le64_get(head + 16), count = le64_get(head + 24),
             rest = (uint64_t)(file_bytes - HEAD);
    if (header > HEADER_MAX || count > rest / ENTRY || header > rest - count * ENTRY || plain < header ||
        plain > INT64_MAX)
        return err_set(ERR_DATA,
                       "%s: offset 8: a header of %" PRIu64 " bytes, a plain file of %" PRIu64 " and %" PRIu64
                       " blocks can't be in a file of %" PRId64 " bytes: it is cut short, or its head damaged",
                       path, header, plain, count, file_bytes);
    b->header = (int64_t)header, b->plain = (int64_t)plain, b->count = (int64_t)count;
    b->begin = HEAD + b->count * ENTRY;
    size_t n = (size_t)(b->begin + b->header);
    uint8_t *all = malloc(n);
    b->at = malloc((count + 1) * sizeof *b->at);
    b->crc = malloc((count + 1) * sizeof *b->crc);
    err_t rc = all && b->at && b->crc
                   ? ERR_OK
                   : err_set(ERR_INTERNAL, "%s: no memory for an index of %" PRIu64 " blocks", path, count);
    if (rc == ERR_OK) rc = io_read_at(fd, path, 0, all, n);
    if (rc == ERR_OK) rc = check_head(all, n, path);
    if (rc == ERR_OK) rc = read_index(b, all + HEAD, path, file_bytes);
    free(all);
    return rc;
}

// --- reading blocks --------------------------------------------------------------------------------------------------

struct block_room {
    const blocks *of;  // what is in `values`: block `number` of it; NULL: nothing
    int64_t number;
    ZSTD_DCtx *zstd;
    uint8_t stored[BLOCK_BYTES], planes[BLOCK_BYTES], values[BLOCK_BYTES];
};

err_t block_room_open(block_room **out) {
    block_room *r = *out = malloc(sizeof *r);
    if (r) r->of = NULL, r->zstd = ZSTD_createDCtx();
    if (r && r->zstd) return ERR_OK;
    free(r);
    *out = NULL;
    return err_set(ERR_INTERNAL, "no memory to unpack blocks of %d bytes", BLOCK_BYTES);
}

void block_room_close(block_room *r) {
    if (r) ZSTD_freeDCtx(r->zstd);
    free(r);
}

void blocks_close(blocks *b) {
    if (b->room && b->room->of == b) b->room->of = NULL;
    if (!b->lent) block_room_close(b->room);
    free(b->at), free(b->crc);
    *b = (blocks){0};
}

// to (=) block k, which holds n bytes.
static err_t unpack(const blocks *b, int fd, const char *path, int64_t k, uint8_t *to, size_t n) {
    block_room *r = b->room;
    size_t stored = (size_t)(b->at[k + 1] - b->at[k]);
    if (stored > n)
        return err_set(ERR_DATA,
                       "%s: block %" PRId64 " of %" PRId64 " (at offset %" PRId64
                       ") has %zu bytes in the index and holds %zu: the index is damaged",
                       path, k, b->count, b->at[k], stored, n);
    TRY(io_read_at(fd, path, b->at[k], r->stored, stored));
    uint32_t is = checksum(r->stored, stored);
    if (is != b->crc[k])
        return err_set(ERR_DATA,
                       "%s: block %" PRId64 " of %" PRId64 " (%zu bytes at offset %" PRId64 ") has checksum %08" PRIx32
                       ", the index says %08" PRIx32 ": it is damaged",
                       path, k, b->count, stored, b->at[k], is, b->crc[k]);
    bool packed = stored < n;
    size_t got = packed ? ZSTD_decompressDCtx(r->zstd, r->planes, n, r->stored, stored) : n;
    if (ZSTD_isError(got) || got != n)
        return err_set(ERR_DATA,
                       "%s: block %" PRId64 " of %" PRId64 " (%zu bytes at offset %" PRId64
                       ") can't be unpacked into the %zu bytes of its tensor that belong there: %s",
                       path, k, b->count, stored, b->at[k], n,
                       ZSTD_isError(got) ? ZSTD_getErrorName(got) : "it holds fewer");
    join(to, packed ? r->planes : r->stored, n / VALUE);
    return ERR_OK;
}

err_t blocks_read(blocks *b, int fd, const char *path, int64_t first, int64_t bytes, int64_t from, void *out,
                  size_t n) {
    uint8_t *to = out;
    if (!b->room) TRY(block_room_open(&b->room));
    block_room *r = b->room;
    while (n > 0) {
        int64_t number = from / BLOCK_BYTES, k = first + number, left = bytes - number * BLOCK_BYTES;
        size_t holds = left < BLOCK_BYTES ? (size_t)left : BLOCK_BYTES, at = (size_t)(from % BLOCK_BYTES);
        size_t some = n < holds - at ? n : holds - at;
        bool kept = r->of == b && r->number == k;
        if (some == holds && !kept) TRY(unpack(b, fd, path, k, to, holds));
        else {
            if (!kept) {
                r->of = NULL;
                TRY(unpack(b, fd, path, k, r->values, holds));
                r->of = b, r->number = k;
            }
            memcpy(to, r->values + at, some);
        }
        to += some, from += (int64_t)some, n -= some;
    }
    return ERR_OK;
}

// --- writing ---------------------------------------------------------------------------------------------------------

struct block_writer {
    int fd, level;
    const char *path;
    fault_list *faults;
    uint8_t *head;  // the index and the header
    size_t head_bytes;
    int64_t *left;  // [tensors + 1]: bytes of each that are still to be put
    int tensor;
    int64_t block;  // number of the next one
    size_t filled;  // bytes of it
    ZSTD_CCtx *zstd;
    uint8_t *packed;
    size_t room;  // of packed
    uint8_t values[BLOCK_BYTES], planes[BLOCK_BYTES];
};

static err_t no_writer(const char *path) { return err_set(ERR_INTERNAL, "%s: no memory to compress it", path); }

static err_t open_writer(block_writer *w, const char *header, size_t header_bytes, const int64_t *bytes, int count) {
    int64_t number = 0, plain = (int64_t)header_bytes;
    for (int i = 0; i < count; i++) number += blocks_of(bytes[i]), plain += bytes[i];
    w->head_bytes = HEAD + (size_t)number * ENTRY + header_bytes;
    w->head = calloc(1, w->head_bytes);
    w->left = calloc((size_t)count + 1, sizeof *w->left);
    w->zstd = ZSTD_createCCtx();
    w->room = ZSTD_compressBound(BLOCK_BYTES);
    w->packed = malloc(w->room);
    if (!w->head || !w->left || !w->zstd || !w->packed) return no_writer(w->path);
    memcpy(w->left, bytes, (size_t)count * sizeof *bytes);
    memcpy(w->head, MAGIC, BLOCKS_MAGIC);
    le64_put(w->head + 8, header_bytes), le64_put(w->head + 16, (uint64_t)plain),
        le64_put(w->head + 24, (uint64_t)number);
    memcpy(w->head + w->head_bytes - header_bytes, header, header_bytes);
    // it is written last: the sizes of blocks are known then
    if (lseek(w->fd, (off_t)w->head_bytes, SEEK_SET) < 0)
        return err_set(ERR_IO, "%s: seek: %s", w->path, strerror(errno));
    return ERR_OK;
}

err_t block_writer_open(block_writer **out, int fd, const char *path, int level, const char *header,
                        size_t header_bytes, const int64_t *bytes, int count, fault_list *faults) {
    block_writer *w = *out = calloc(1, sizeof *w);
    if (!w) return no_writer(path);
    w->fd = fd, w->path = path, w->level = level, w->faults = faults;
    err_t rc = open_writer(w, header, header_bytes, bytes, count);
    if (rc != ERR_OK) block_writer_close(w), *out = NULL;
    return rc;
}

static err_t write_block(block_writer *w, int64_t *stored) {
    size_t n = w->filled;
    split(w->planes, w->values, n / VALUE);
    size_t packed = ZSTD_compressCCtx(w->zstd, w->packed, w->room, w->planes, n, w->level);
    if (ZSTD_isError(packed))
        return err_set(ERR_INTERNAL, "%s: block %" PRId64 " can't be compressed: %s", w->path, w->block,
                       ZSTD_getErrorName(packed));
    const uint8_t *from = packed < n ? w->packed : w->planes;
    if (packed > n) packed = n;
    uint8_t *entry = w->head + HEAD + w->block * ENTRY;
    le32_put(entry, (uint32_t)packed), le32_put(entry + 4, checksum(from, packed));
    TRY(io_write(w->fd, w->path, from, packed, w->faults));
    *stored += (int64_t)packed;
    w->block++, w->filled = 0;
    return ERR_OK;
}

err_t block_writer_put(block_writer *w, const void *data, size_t n, int64_t *stored) {
    const uint8_t *x = data;
    while (n > 0) {
        while (w->left[w->tensor] == 0) w->tensor++;
        int64_t *left = &w->left[w->tensor];
        size_t some = BLOCK_BYTES - w->filled < n ? BLOCK_BYTES - w->filled : n;
        if ((int64_t)some > *left) some = (size_t)*left;
        memcpy(w->values + w->filled, x, some);
        x += some, n -= some, w->filled += some, *left -= (int64_t)some;
        if (w->filled == BLOCK_BYTES || *left == 0) TRY(write_block(w, stored));
    }
    return ERR_OK;
}

const char *block_writer_head(const block_writer *w, size_t *n) {
    le32_put(w->head + HEAD_CRC, head_checksum(w->head, w->head_bytes));
    *n = w->head_bytes;
    return (const char *)w->head;
}

err_t block_writer_end(block_writer *w) {
    if (lseek(w->fd, 0, SEEK_SET) != 0) return err_set(ERR_IO, "%s: seek: %s", w->path, strerror(errno));
    size_t n;
    return io_write(w->fd, w->path, block_writer_head(w, &n), w->head_bytes, w->faults);
}

void block_writer_close(block_writer *w) {
    if (!w) return;
    ZSTD_freeCCtx(w->zstd);
    free(w->head), free(w->left), free(w->packed);
    free(w);
}
