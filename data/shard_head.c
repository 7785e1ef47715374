// data/shard_head.c: see data/shard_head.h.
#include "data/shard_head.h"

#include "base/io.h"
#include "base/le.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

err_t shard_wrong(const data_file *f, int64_t offset, const char *what, uint64_t found, const char *expected) {
    return err_set(ERR_DATA, "%s: offset %" PRId64 ": %s %" PRIu64 ", expected %s", f->path, offset, what, found,
                   expected);
}

err_t shard_damaged(const data_file *f, int64_t offset, const char *what, uint32_t found, uint32_t expected) {
    return err_set(ERR_DATA,
                   "%s: offset %" PRId64
                   ": %s checksum 0x%08x, expected 0x%08x. The shard is damaged: copy or pack it again",
                   f->path, offset, what, found, expected);
}

static err_t check(const data_file *f, const shard_form *form, const uint8_t *h) {
    uint32_t crc = (uint32_t)crc32(0, h, 124), version = le32_get(h + 8);
    uint64_t bytes = le64_get(h + 32), all = (uint64_t)f->size;
    if (memcmp(h, form->magic, SHARD_MAGIC) != 0)
        return err_set(ERR_DATA,
                       "%s: offset 0: not the magic of %s: a damaged header, a pack that was interrupted, or another "
                       "format",
                       f->path, form->what);
    if (le32_get(h + 124) != crc) return shard_damaged(f, 124, "header", crc, le32_get(h + 124));
    if (version < 1 || version > form->version) {
        char expected[48];
        snprintf(expected, sizeof expected, "%u: a later lockstep wrote it", form->version);
        return shard_wrong(f, 8, "version", version, expected);
    }
    if (bytes == all) return ERR_OK;
    return err_set(ERR_DATA, "%s: has %" PRIu64 " bytes, and its header says %" PRIu64 ": the file is %s", f->path, all,
                   bytes, all < bytes ? "truncated" : "too long");
}

bool shard_begins(const char *path, bool (*begins)(const uint8_t *head, int64_t n)) {
    uint8_t head[SHARD_MAGIC];
    int fd;
    if (io_open(path, O_RDONLY, &fd) != ERR_OK) return false;
    bool whole = io_read_at(fd, path, 0, head, sizeof head) == ERR_OK;
    close(fd);
    return whole && begins(head, sizeof head);
}

err_t shard_head_read(data_file *f, reader *r, const char *path, const shard_form *form, uint8_t h[SHARD_HEAD]) {
    TRY(reader_find(f, path, form->what));
    if (f->size < SHARD_HEAD)
        return err_set(ERR_DATA, "%s: ends at offset %" PRId64 ", expected the %d bytes of a header: truncated", path,
                       f->size, SHARD_HEAD);
    TRY(reader_read(r, f, 0, h, SHARD_HEAD));
    return check(f, form, h);
}
