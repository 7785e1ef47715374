// data/click/shard_write.c: writes records to a shard, see data/click/shard.h. The header has to wait for the mean over
// all shards of a split, so it is written last.
#include "data/click/shard.h"

#include "base/le.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

struct click_writer {
    char path[IO_PATH];
    int fd;
    click_form form;
    int64_t records, room;  // room: CRCs that fit in `table`
    uint8_t *table;
    uint8_t block[CLICK_BLOCK * CLICK_BYTES];
    int in_block;
    uint8_t head[CLICKS_HEADER];
};

err_t click_write_open(click_writer **out, const char *path, click_form form) {
    click_writer *w = *out = calloc(1, sizeof *w);
    if (!w) return err_set(ERR_INTERNAL, "%s: no memory", path);
    w->fd = -1, w->form = form;
    TRY(io_path(w->path, "%s", path));
    TRY(io_open(path, O_WRONLY | O_CREAT | O_TRUNC, &w->fd));
    return io_write(w->fd, w->path, w->head, CLICKS_HEADER, NULL);  // zeros: no shard yet
}

static err_t write_block(click_writer *w) {
    size_t bytes = (size_t)(w->in_block * click_bytes(w->form));
    int64_t block = click_blocks(w->records) - 1;
    if (!w->in_block) return ERR_OK;
    if (block == w->room) {
        int64_t room = w->room ? 2 * w->room : 256;
        uint8_t *table = realloc(w->table, (size_t)room * 4);
        if (!table) return err_set(ERR_INTERNAL, "%s: no memory for a table of %" PRId64 " blocks", w->path, room);
        w->table = table, w->room = room;
    }
    le32_put(w->table + 4 * block, (uint32_t)crc32_z(0, w->block, bytes));
    w->in_block = 0;
    return io_write(w->fd, w->path, w->block, bytes, NULL);
}

static void put_float(uint8_t *to, float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    le32_put(to, bits);
}

err_t click_write(click_writer *w, const click *c) {
    uint8_t *to = w->block + w->in_block * click_bytes(w->form);
    if (w->form.rated) put_float(to, c->label);
    else *to = (uint8_t)c->label;
    to += w->form.rated ? 4 : 1;
    for (int k = 0; k < w->form.dense; k++, to += 4) put_float(to, c->dense[k]);
    for (int k = 0; k < w->form.tables; k++, to += 8) le64_put(to, c->id[k]);
    w->records++;
    return ++w->in_block == CLICK_BLOCK ? write_block(w) : ERR_OK;
}

err_t click_write_seal(click_writer *w) {
    TRY(write_block(w));
    size_t table = (size_t)click_blocks(w->records) * 4;
    memcpy(w->head, clicks_magic, CLICKS_MAGIC_BYTES);
    le32_put(w->head + 8, w->form.rated ? RATINGS_VERSION : CLICKS_VERSION);
    le32_put(w->head + 12, (uint32_t)w->form.dense);
    le32_put(w->head + 16, (uint32_t)w->form.tables);
    le64_put(w->head + 24, (uint64_t)w->records);
    le64_put(w->head + 32, (uint64_t)(CLICKS_HEADER + w->records * click_bytes(w->form)) + (uint64_t)table);
    le32_put(w->head + 120, (uint32_t)crc32_z(0, w->table, table));
    TRY(io_write(w->fd, w->path, w->table, table, NULL));
    free(w->table);
    w->table = NULL;
    int fd = w->fd;
    w->fd = -1;
    return close(fd) == 0 ? ERR_OK : err_set(ERR_IO, "%s: %s", w->path, strerror(errno));
}

err_t click_write_finish(click_writer *w, double best) {
    uint64_t bits;
    memcpy(&bits, &best, sizeof bits);
    le64_put(w->head + 40, bits);
    le32_put(w->head + 124, (uint32_t)crc32(0, w->head, 124));
    TRY(io_open(w->path, O_WRONLY, &w->fd));
    TRY(io_write(w->fd, w->path, w->head, CLICKS_HEADER, NULL));
    return io_sync(w->fd, w->path, NULL);
}

void click_write_close(click_writer *w) {
    if (!w) return;
    if (w->fd >= 0) close(w->fd);
    free(w->table);
    free(w);
}
