// data/click/shard_read.c: opens a shard of clicks and reads it, see data/click/shard.h. No number of a file is used
// before it is checked against the size of the file.
#include "data/click/shard.h"

#include "base/le.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

const uint8_t clicks_magic[CLICKS_MAGIC_BYTES] = {0x93, 'L', 'C', 'L', 'I', 'C', 'K', 0x0a};

static err_t wrong(const click_shard *s, int offset, const char *what, uint64_t found, const char *expected) {
    return err_set(ERR_DATA, "%s: offset %d: %s %" PRIu64 ", expected %s", s->file.path, offset, what, found, expected);
}

static err_t damaged(const click_shard *s, int64_t offset, const char *what, uint32_t found, uint32_t expected) {
    return err_set(ERR_DATA,
                   "%s: offset %" PRId64
                   ": %s checksum 0x%08x, expected 0x%08x. The shard is damaged: copy or pack it again",
                   s->file.path, offset, what, found, expected);
}

static err_t check_header(click_shard *s, const uint8_t *h) {
    uint32_t crc = (uint32_t)crc32(0, h, 124), version = le32_get(h + 8), dense = le32_get(h + 12),
             tables = le32_get(h + 16);
    uint64_t records = le64_get(h + 24), bytes = le64_get(h + 32), best = le64_get(h + 40),
             all = (uint64_t)s->file.size;
    if (memcmp(h, clicks_magic, CLICKS_MAGIC_BYTES) != 0)
        return err_set(
            ERR_DATA,
            "%s: offset 0: not the magic of a shard of clicks: a damaged header, a pack that was interrupted, or another format",
            s->file.path);
    if (le32_get(h + 124) != crc) return damaged(s, 124, "header", crc, le32_get(h + 124));
    if (version != CLICKS_VERSION) return wrong(s, 8, "version", version, "1: a later lockstep wrote it");
    if (dense < 1 || dense > CLICK_DENSE) return wrong(s, 12, "numbers of a record", dense, "1 to 64");
    if (tables < 1 || tables > CLICK_TABLES) return wrong(s, 16, "ids of a record", tables, "1 to 64");
    if (bytes != all)
        return err_set(ERR_DATA, "%s: has %" PRIu64 " bytes, and its header says %" PRIu64 ": the file is %s",
                       s->file.path, all, bytes, all < bytes ? "truncated" : "too long");
    uint64_t each = (uint64_t)click_bytes((int)dense, (int)tables);
    if (records < 1 || records > all / each ||
        CLICKS_HEADER + records * each + 4 * (uint64_t)click_blocks((int64_t)records) != all)
        return wrong(s, 24, "records", records, "as many as the file has");
    memcpy(&s->best, &best, sizeof s->best);
    if (!(s->best >= 0 && s->best < INFINITY)) return wrong(s, 40, "best loss of bits", best, "0 or a loss");
    s->dense = (int)dense, s->tables = (int)tables, s->records = (int64_t)records;
    return ERR_OK;
}

static err_t read_table(click_shard *s, reader *r, uint32_t crc) {
    int64_t blocks = click_blocks(s->records), at = CLICKS_HEADER + s->records * click_bytes(s->dense, s->tables);
    s->crc = malloc((size_t)blocks * 4);
    if (!s->crc) return err_set(ERR_INTERNAL, "%s: no memory for a table of %" PRId64 " blocks", s->file.path, blocks);
    TRY(reader_read(r, &s->file, at, s->crc, blocks * 4));
    uint32_t found = (uint32_t)crc32_z(0, (const uint8_t *)s->crc, (size_t)blocks * 4);
    if (found != crc) return damaged(s, at, "table", found, crc);
    for (int64_t k = 0; k < blocks; k++) s->crc[k] = le32_get((const uint8_t *)&s->crc[k]);
    return ERR_OK;
}

err_t click_shard_open(click_shard *s, reader *r, const char *path) {
    uint8_t h[CLICKS_HEADER];
    TRY(reader_find(&s->file, path, "a shard of clicks"));
    if (s->file.size < CLICKS_HEADER)
        return err_set(ERR_DATA, "%s: ends at offset %" PRId64 ", expected the %d bytes of a header: truncated", path,
                       s->file.size, CLICKS_HEADER);
    TRY(reader_read(r, &s->file, 0, h, sizeof h));
    TRY(check_header(s, h));
    return read_table(s, r, le32_get(h + 120));
}

void click_shard_close(click_shard *s, reader *r) {
    if (s->file.path) reader_forget(r, &s->file);
    free(s->crc);
    *s = (click_shard){.file.fd = -1};
}

err_t click_shard_block(click_shard *s, reader *r, int64_t block, uint8_t *bytes, int *records) {
    int64_t each = click_bytes(s->dense, s->tables), first = block * CLICK_BLOCK, left = s->records - first,
            at = CLICKS_HEADER + first * each;
    *records = left < CLICK_BLOCK ? (int)left : CLICK_BLOCK;
    TRY(reader_read(r, &s->file, at, bytes, *records * each));
    uint32_t crc = (uint32_t)crc32_z(0, bytes, (size_t)(*records * each));
    if (crc == s->crc[block]) return ERR_OK;
    return err_set(ERR_DATA,
                   "%s: records %" PRId64 " to %" PRId64 " at offset %" PRId64
                   ": checksum 0x%08x, expected 0x%08x. The shard is damaged: copy or pack it again",
                   s->file.path, first, first + *records - 1, at, crc, s->crc[block]);
}

err_t click_take(const click_shard *s, const uint8_t *bytes, int k, int64_t number, click *out) {
    const uint8_t *at = bytes + k * click_bytes(s->dense, s->tables);
    out->label = *at++;
    if (out->label > 1)
        return err_set(ERR_DATA, "%s: record %" PRId64 ": label %d, expected 0 or 1", s->file.path, number, out->label);
    for (int i = 0; i < s->dense; i++, at += 4) {
        uint32_t bits = le32_get(at);
        memcpy(&out->dense[i], &bits, sizeof bits);
        if (!isfinite(out->dense[i]))
            return err_set(ERR_DATA, "%s: record %" PRId64 ": number %d is not finite", s->file.path, number, i);
    }
    for (int i = 0; i < s->tables; i++, at += 8) out->id[i] = le64_get(at);
    return ERR_OK;
}
