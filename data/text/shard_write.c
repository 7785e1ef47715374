// data/text/shard_write.c: writes tokens to a shard. Each block is written when it is full. The header and the table,
// whose size follows from the number of tokens, are left as a hole at the start and written last.
#include "data/text/shard.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ZLIB_LEVEL = 6 };

struct shard_writer {
    char path[IO_PATH];
    int fd, token_bytes;
    bool compress;
    int64_t row_tokens;  // 0: answers are not marked
    bool labels, numbers, documents;
    int64_t tokens, block_tokens, blocks;
    int64_t done, block, at;  // tokens taken, blocks written, offset of the next block
    int64_t fill, room;       // bytes in raw, and bytes that fit
    uint8_t *raw, *packed;
    uint8_t *head;  // header and table
    z_stream deflater;
};

err_t shard_write_open(shard_writer **out, const char *path, int token_bytes, int64_t tokens, bool compress) {
    shard_writer *w = *out = calloc(1, sizeof *w);
    if (!w) return err_set(ERR_INTERNAL, "%s: no memory", path);
    w->fd = -1;
    TRY(io_path(w->path, "%s", path));
    w->token_bytes = token_bytes;
    w->tokens = tokens;
    w->room = SHARD_BLOCK;
    w->block_tokens = w->room / token_bytes;
    w->blocks = (tokens - 1) / w->block_tokens + 1;
    w->at = SHARD_HEADER + w->blocks * SHARD_ENTRY;
    w->raw = malloc((size_t)w->room);
    w->packed = malloc((size_t)w->room);
    w->head = calloc(1, (size_t)w->at);
    if (!w->raw || !w->packed || !w->head || (compress && deflateInit(&w->deflater, ZLIB_LEVEL) != Z_OK))
        return err_set(ERR_INTERNAL, "%s: no memory for a shard of %" PRId64 " blocks", path, w->blocks);
    w->compress = compress;
    TRY(io_open(path, O_WRONLY | O_CREAT | O_TRUNC, &w->fd));
    if (lseek(w->fd, w->at, SEEK_SET) < 0) return err_set(ERR_IO, "%s: %s", path, strerror(errno));
    return ERR_OK;
}

void shard_write_rows(shard_writer *w, int64_t row_tokens, bool labels) {
    w->row_tokens = row_tokens, w->labels = labels;
}

void shard_write_documents(shard_writer *w) { w->documents = true; }
void shard_write_numbers(shard_writer *w) { w->numbers = true; }

// Compresses the block into `packed` as a zlib stream. Returns its bytes, or 0 when it is not shorter.
static int64_t deflate_block(shard_writer *w) {
    z_stream *z = &w->deflater;
    deflateReset(z);
    z->next_in = w->raw;
    z->avail_in = (uInt)w->fill;
    z->next_out = w->packed;
    z->avail_out = (uInt)(w->fill - 1);
    return deflate(z, Z_FINISH) == Z_STREAM_END ? w->fill - 1 - z->avail_out : 0;
}

static err_t write_block(shard_writer *w) {
    int64_t packed = w->compress ? deflate_block(w) : 0, stored = packed ? packed : w->fill;
    const uint8_t *bytes = packed ? w->packed : w->raw;
    uint8_t *entry = w->head + SHARD_HEADER + w->block * SHARD_ENTRY;
    le64_put(entry, (uint64_t)w->at);
    le32_put(entry + 8, (uint32_t)stored);
    le32_put(entry + 12, (uint32_t)crc32(0, bytes, (uInt)stored));
    le32_put(entry + 16, (uint32_t)crc32(0, w->raw, (uInt)w->fill));
    TRY(io_write(w->fd, w->path, bytes, (size_t)stored, NULL));
    w->block++;
    w->at += stored;
    w->fill = 0;
    return ERR_OK;
}

err_t shard_write(shard_writer *w, const uint8_t *bytes, int64_t tokens) {
    if (tokens > w->tokens - w->done)
        return err_set(ERR_INTERNAL, "%s: more than the %" PRId64 " tokens announced", w->path, w->tokens);
    w->done += tokens;
    for (int64_t n = tokens * w->token_bytes; n > 0;) {
        int64_t most = w->block_tokens * w->token_bytes - w->fill, some = n < most ? n : most;
        memcpy(w->raw + w->fill, bytes, (size_t)some);
        w->fill += some;
        bytes += some;
        n -= some;
        if (w->fill == w->block_tokens * w->token_bytes) TRY(write_block(w));
    }
    return ERR_OK;
}

err_t shard_write_finish(shard_writer *w) {
    if (w->done != w->tokens)
        return err_set(ERR_INTERNAL, "%s: %" PRId64 " tokens of the %" PRId64 " announced", w->path, w->done,
                       w->tokens);
    if (w->fill) TRY(write_block(w));
    int64_t table = w->blocks * SHARD_ENTRY;
    memcpy(w->head, shard_magic, SHARD_MAGIC_BYTES);
    le32_put(w->head + 8, SHARD_VERSION);
    le32_put(w->head + 12, (uint32_t)w->token_bytes);
    le32_put(w->head + 16, (w->compress ? SHARD_ZLIB : 0) | (w->row_tokens ? SHARD_MARKS : 0) |
                               (w->labels ? SHARD_LABELS : 0) | (w->numbers ? SHARD_NUMBERS : 0) |
                               (w->documents ? SHARD_DOCUMENTS : 0));
    le32_put(w->head + 20, (uint32_t)w->block_tokens);
    le64_put(w->head + 24, (uint64_t)w->tokens);
    le64_put(w->head + 32, (uint64_t)w->blocks);
    le64_put(w->head + 40, (uint64_t)w->at);
    le32_put(w->head + 48, (uint32_t)crc32_z(0, w->head + SHARD_HEADER, (size_t)table));
    le32_put(w->head + 52, (uint32_t)w->row_tokens);
    le32_put(w->head + 60, (uint32_t)crc32(0, w->head, 60));
    if (lseek(w->fd, 0, SEEK_SET) < 0) return err_set(ERR_IO, "%s: %s", w->path, strerror(errno));
    TRY(io_write(w->fd, w->path, w->head, (size_t)(SHARD_HEADER + table), NULL));
    return io_sync(w->fd, w->path, NULL);
}

uint32_t shard_write_crc(const shard_writer *w) { return le32_get(w->head + 60); }

void shard_write_close(shard_writer *w) {
    if (!w) return;
    if (w->fd >= 0) close(w->fd);
    if (w->compress) deflateEnd(&w->deflater);
    free(w->raw);
    free(w->packed);
    free(w->head);
    free(w);
}
