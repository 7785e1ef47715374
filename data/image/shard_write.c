// data/image/shard_write.c: writes images to a shard, see data/image/shard.h. The header has to wait for the sums over
// all shards of a pack, so it is written last.
#include "data/image/shard.h"

#include "base/le.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

struct image_writer {
    char path[IO_PATH];
    int fd;
    image_about about;
    int64_t at;  // offset of the next image
    uint8_t *table;
    int64_t images, room;
    uint8_t head[IMAGES_HEADER];
};

void image_sums_add(image_sums *s, const picture *p) {
    int64_t pixels = (int64_t)p->h * p->w;
    s->pixels += (uint64_t)pixels;
    for (int c = 0; c < p->c; c++) {
        uint64_t sum = 0, square = 0;
        for (int64_t i = 0; i < pixels; i++) {
            uint32_t v = p->at[i * p->c + c];
            sum += v, square += v * v;
        }
        s->sum[c] += sum, s->square[c] += square;
    }
}

void image_sums_scale(const image_sums *s, int channels, float *mean, float *inv) {
    for (int c = 0; c < channels; c++) {
        double n = s->pixels ? (double)s->pixels : 1, m = (double)s->sum[c] / n,
               spread = (double)s->square[c] / n - m * m;
        mean[c] = (float)m;
        inv[c] = spread > 0 ? (float)(1 / __builtin_sqrt(spread)) : 1;
    }
}

err_t image_write_open(image_writer **out, const char *path, const image_about *about) {
    image_writer *w = *out = calloc(1, sizeof *w);
    if (!w) return err_set(ERR_INTERNAL, "%s: no memory", path);
    w->fd = -1;
    w->about = *about;
    w->at = IMAGES_HEADER;
    TRY(io_path(w->path, "%s", path));
    TRY(io_open(path, O_WRONLY | O_CREAT | O_TRUNC, &w->fd));
    return io_write(w->fd, w->path, w->head, IMAGES_HEADER, NULL);  // zeros: no shard yet
}

err_t image_write(image_writer *w, const picture *p, int32_t label) {
    if (w->images == w->room) {
        int64_t room = w->room ? 2 * w->room : 256;
        uint8_t *table = realloc(w->table, (size_t)(room * IMAGES_ENTRY));
        if (!table) return err_set(ERR_INTERNAL, "%s: no memory for a table of %" PRId64 " images", w->path, room);
        w->table = table, w->room = room;
    }
    int64_t bytes = picture_bytes(p);
    uint8_t *e = w->table + w->images++ * IMAGES_ENTRY;
    le64_put(e, (uint64_t)w->at);
    le32_put(e + 8, (uint32_t)p->h);
    le32_put(e + 12, (uint32_t)p->w);
    le32_put(e + 16, (uint32_t)label);
    le32_put(e + 20, (uint32_t)crc32_z(0, p->at, (size_t)bytes));
    w->at += bytes;
    return io_write(w->fd, w->path, p->at, (size_t)bytes, NULL);
}

err_t image_write_seal(image_writer *w) {
    const image_about *a = &w->about;
    int64_t table = w->images * IMAGES_ENTRY;
    uint32_t crc = (uint32_t)crc32_z(0, w->table, (size_t)table);
    crc = (uint32_t)crc32_z(crc, (const uint8_t *)a->names, a->name_bytes);
    memcpy(w->head, images_magic, IMAGES_MAGIC_BYTES);
    le32_put(w->head + 8, IMAGES_VERSION);
    le32_put(w->head + 12, (uint32_t)a->channels);
    le64_put(w->head + 16, (uint64_t)w->images);
    le64_put(w->head + 24, (uint64_t)w->at);
    le64_put(w->head + 32, (uint64_t)(w->at + table + a->name_bytes));
    le32_put(w->head + 40, (uint32_t)a->size);
    le32_put(w->head + 44, (uint32_t)a->classes);
    le32_put(w->head + 104, a->name_bytes);
    le32_put(w->head + 108, crc);
    TRY(io_write(w->fd, w->path, w->table, (size_t)table, NULL));
    TRY(io_write(w->fd, w->path, a->names, a->name_bytes, NULL));
    free(w->table);
    w->table = NULL;
    int fd = w->fd;
    w->fd = -1;
    return close(fd) == 0 ? ERR_OK : err_set(ERR_IO, "%s: %s", w->path, strerror(errno));
}

err_t image_write_finish(image_writer *w, const image_sums *sums) {
    le64_put(w->head + 48, sums->pixels);
    for (int c = 0; c < PICTURE_CHANNELS; c++) {
        le64_put(w->head + 56 + 8 * c, sums->sum[c]);
        le64_put(w->head + 80 + 8 * c, sums->square[c]);
    }
    le32_put(w->head + 124, (uint32_t)crc32(0, w->head, 124));
    TRY(io_open(w->path, O_WRONLY, &w->fd));
    TRY(io_write(w->fd, w->path, w->head, IMAGES_HEADER, NULL));
    return io_sync(w->fd, w->path, NULL);
}

void image_write_close(image_writer *w) {
    if (!w) return;
    if (w->fd >= 0) close(w->fd);
    free(w->table);
    free(w);
}
