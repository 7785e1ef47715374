// data/image/shard_read.c: opens a shard of images and reads it, see data/image/shard.h. No number of a file is used
// before it is checked against the size of the file; after image_shard_open() every image is known to be inside it.
#include "data/image/shard.h"

#include "base/le.h"
#include "data/shard_head.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

const uint8_t images_magic[IMAGES_MAGIC_BYTES] = {0x93, 'L', 'I', 'M', 'A', 'G', 'E', 0x0a};

// --- header and table ------------------------------------------------------------------------------------------------

static err_t check_header(image_shard *s, const uint8_t *h) {
    uint32_t channels = le32_get(h + 12), size = le32_get(h + 40), classes = le32_get(h + 44),
             names = le32_get(h + 104);
    uint64_t images = le64_get(h + 16), table = le64_get(h + 24), all = (uint64_t)s->file.size;
    if (channels != 1 && channels != 3) return shard_wrong(&s->file, 12, "channels", channels, "1 or 3");
    if (images < 1 || images > all / IMAGES_ENTRY)
        return shard_wrong(&s->file, 16, "images", images, "as many as fit in the file");
    if (table < IMAGES_HEADER || table > all || all - table != images * IMAGES_ENTRY + names)
        return shard_wrong(&s->file, 24, "table offset", table, "the end of the images");
    if (size > PICTURE_SIDE) return shard_wrong(&s->file, 40, "size", size, "at most 65500");
    if (classes < 1 || classes > IMAGES_CLASSES || classes > names)
        return shard_wrong(&s->file, 44, "classes", classes, "a name for each");
    s->channels = (int)channels, s->size = (int)size, s->classes = (int)classes, s->name_bytes = names;
    s->images = (int64_t)images, s->table_at = (int64_t)table;
    s->sums.pixels = le64_get(h + 48);
    for (int c = 0; c < PICTURE_CHANNELS; c++)
        s->sums.sum[c] = le64_get(h + 56 + 8 * c), s->sums.square[c] = le64_get(h + 80 + 8 * c);
    return ERR_OK;
}

// Images lie one after the other, so that every byte of the file has a checksum.
static err_t check_entry(const image_shard *s, int64_t k, int64_t begins, const image_entry *e) {
    int64_t at = s->table_at + k * IMAGES_ENTRY;
    if (e->offset != begins)
        return shard_wrong(&s->file, at, "image at offset", (uint64_t)e->offset, "the end of the one before");
    if (e->h < 1 || e->h > PICTURE_SIDE) return shard_wrong(&s->file, at + 8, "height", (uint32_t)e->h, "1 to 65500");
    if (e->w < 1 || e->w > PICTURE_SIDE || (int64_t)e->h * e->w > PICTURE_PIXELS)
        return shard_wrong(&s->file, at + 12, "width", (uint32_t)e->w, "1 to 65500, and at most 100000000 pixels");
    if (e->label < 0 || e->label >= s->classes)
        return shard_wrong(&s->file, at + 16, "label", (uint32_t)e->label, "one of the classes");
    return ERR_OK;
}

static err_t take_table(image_shard *s, const uint8_t *table) {
    int64_t at = IMAGES_HEADER;
    uint32_t names = 0;
    for (int64_t k = 0; k < s->images; k++, table += IMAGES_ENTRY) {
        image_entry *e = &s->entry[k];
        *e = (image_entry){.offset = (int64_t)le64_get(table),
                           .h = (int32_t)le32_get(table + 8),
                           .w = (int32_t)le32_get(table + 12),
                           .label = (int32_t)le32_get(table + 16),
                           .crc = le32_get(table + 20)};
        TRY(check_entry(s, k, at, e));
        at +=
            (int64_t)e->h * e->w * s->channels;  // below 2^63: of at most 2^63 / 24 images each has at most 2^29 bytes
        if (at > s->table_at)
            return shard_wrong(&s->file, s->table_at, "the images end at offset", (uint64_t)at, "the table's");
    }
    if (at != s->table_at)
        return shard_wrong(&s->file, s->table_at, "the images end at offset", (uint64_t)at, "the table's");
    memcpy(s->names, table, s->name_bytes);
    for (uint32_t i = 0; i < s->name_bytes; i++) names += s->names[i] == 0;
    if (names != (uint32_t)s->classes || s->names[s->name_bytes - 1])
        return shard_wrong(&s->file, s->file.size - s->name_bytes, "names of classes", names, "one for each class");
    return ERR_OK;
}

static err_t read_table(image_shard *s, reader *r, uint32_t crc) {
    int64_t bytes = s->images * IMAGES_ENTRY + s->name_bytes;
    uint8_t *table = malloc((size_t)bytes);
    s->entry = malloc((size_t)s->images * sizeof *s->entry);
    s->names = malloc(s->name_bytes);
    s->checked = calloc((size_t)(s->images + 63) / 64, sizeof *s->checked);
    err_t rc = table && s->entry && s->names && s->checked
                   ? reader_read(r, &s->file, s->table_at, table, bytes)
                   : err_set(ERR_INTERNAL, "%s: no memory for a table of %" PRId64 " images", s->file.path, s->images);
    uint32_t found = rc == ERR_OK ? (uint32_t)crc32_z(0, table, (size_t)bytes) : 0;
    if (rc == ERR_OK && found != crc) rc = shard_damaged(&s->file, s->table_at, "table", found, crc);
    if (rc == ERR_OK) rc = take_table(s, table);
    free(table);
    return rc;
}

err_t image_shard_open(image_shard *s, reader *r, const char *path) {
    static const shard_form form = {images_magic, IMAGES_VERSION, "a shard of images"};
    uint8_t h[SHARD_HEAD];
    TRY(shard_head_read(&s->file, r, path, &form, h));
    TRY(check_header(s, h));
    return read_table(s, r, le32_get(h + 108));
}

void image_shard_close(image_shard *s, reader *r) {
    if (s->file.path) reader_forget(r, &s->file);
    free(s->entry);
    free(s->names);
    free((void *)s->checked);
    *s = (image_shard){.file.fd = -1};
}

// --- images ----------------------------------------------------------------------------------------------------------

err_t image_shard_read(image_shard *s, reader *r, data_file *f, int64_t k, bool again, picture *out) {
    const image_entry *e = &s->entry[k];
    uint64_t bit = UINT64_C(1) << k % 64;
    TRY(picture_make(out, e->h, e->w, s->channels));
    TRY(reader_read(r, f, e->offset, out->at, picture_bytes(out)));
    if (!again && atomic_load_explicit(&s->checked[k / 64], memory_order_relaxed) & bit) return ERR_OK;
    uint32_t crc = (uint32_t)crc32_z(0, out->at, (size_t)picture_bytes(out));
    if (crc != e->crc)
        return err_set(
            ERR_DATA,
            "%s: image %" PRId64 " at offset %" PRId64
            ": checksum 0x%08x, expected 0x%08x. The shard is damaged; `lockstep data verify` lists all such images",
            f->path, k, e->offset, crc, e->crc);
    atomic_fetch_or_explicit(&s->checked[k / 64], bit, memory_order_relaxed);
    return ERR_OK;
}

err_t image_shard_verify(image_shard *s, reader *r, void (*report)(void *ctx, const char *text), void *ctx,
                         int64_t *faults) {
    picture p = {0};
    err_t rc = ERR_OK;
    for (int64_t k = 0; k < s->images && (rc == ERR_OK || rc == ERR_DATA); k++) {
        rc = image_shard_read(s, r, &s->file, k, true, &p);
        if (rc != ERR_OK) report(ctx, err_last()->text), ++*faults;
    }
    picture_free(&p);
    return rc == ERR_DATA ? ERR_OK : rc;
}
