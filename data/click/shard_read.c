// data/click/shard_read.c: opens a shard of clicks and reads it, see data/click/shard.h. No number of a file is used
// before it is checked against the size of the file.
#include "data/click/shard.h"

#include "base/le.h"
#include "data/shard_head.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

const uint8_t clicks_magic[CLICKS_MAGIC_BYTES] = {0x93, 'L', 'C', 'L', 'I', 'C', 'K', 0x0a};

static err_t check_header(click_shard *s, const uint8_t *h) {
    bool rated = le32_get(h + 8) == RATINGS_VERSION;
    uint32_t dense = le32_get(h + 12), tables = le32_get(h + 16);
    uint64_t records = le64_get(h + 24), best = le64_get(h + 40), all = (uint64_t)s->file.size;
    if (dense < !rated || dense > CLICK_DENSE)
        return shard_wrong(&s->file, 12, "numbers of a record", dense, rated ? "0 to 64" : "1 to 64");
    if (tables < 1 || tables > CLICK_TABLES) return shard_wrong(&s->file, 16, "ids of a record", tables, "1 to 64");
    s->form = (click_form){(int)dense, (int)tables, rated};
    uint64_t each = (uint64_t)click_bytes(s->form);
    if (records < 1 || records > all / each ||
        CLICKS_HEADER + records * each + 4 * (uint64_t)click_blocks((int64_t)records) != all)
        return shard_wrong(&s->file, 24, "records", records, "as many as the file has");
    memcpy(&s->best, &best, sizeof s->best);
    if (!(s->best >= 0 && s->best < INFINITY))
        return shard_wrong(&s->file, 40, "best loss of bits", best, "0 or a loss");
    s->records = (int64_t)records;
    return ERR_OK;
}

static err_t read_table(click_shard *s, reader *r, uint32_t crc) {
    int64_t blocks = click_blocks(s->records), at = CLICKS_HEADER + s->records * click_bytes(s->form);
    s->crc = malloc((size_t)blocks * 4);
    if (!s->crc) return err_set(ERR_INTERNAL, "%s: no memory for a table of %" PRId64 " blocks", s->file.path, blocks);
    TRY(reader_read(r, &s->file, at, s->crc, blocks * 4));
    uint32_t found = (uint32_t)crc32_z(0, (const uint8_t *)s->crc, (size_t)blocks * 4);
    if (found != crc) return shard_damaged(&s->file, at, "table", found, crc);
    for (int64_t k = 0; k < blocks; k++) s->crc[k] = le32_get((const uint8_t *)&s->crc[k]);
    return ERR_OK;
}

err_t click_shard_open(click_shard *s, reader *r, const char *path) {
    static const shard_form form = {clicks_magic, RATINGS_VERSION, "a shard of clicks"};
    uint8_t h[SHARD_HEAD];
    TRY(shard_head_read(&s->file, r, path, &form, h));
    TRY(check_header(s, h));
    return read_table(s, r, le32_get(h + 120));
}

void click_shard_close(click_shard *s, reader *r) {
    if (s->file.path) reader_forget(r, &s->file);
    free(s->crc);
    *s = (click_shard){.file.fd = -1};
}

err_t click_shard_block(click_shard *s, reader *r, int64_t block, uint8_t *bytes, int *records) {
    int64_t each = click_bytes(s->form), first = block * CLICK_BLOCK, left = s->records - first,
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

static float float_at(const uint8_t *at) {
    uint32_t bits = le32_get(at);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// *at moves on to what follows it.
static err_t take_label(const click_shard *s, const uint8_t **at, int64_t number, float *label) {
    *label = s->form.rated ? float_at(*at) : **at;
    *at += s->form.rated ? 4 : 1;
    if (s->form.rated && !isfinite(*label))
        return err_set(ERR_DATA, "%s: record %" PRId64 ": its rating is not finite", s->file.path, number);
    if (s->form.rated || *label <= 1) return ERR_OK;
    return err_set(ERR_DATA, "%s: record %" PRId64 ": label %d, expected 0 or 1", s->file.path, number, (int)*label);
}

err_t click_take(const click_shard *s, const uint8_t *bytes, int k, int64_t number, click *out) {
    const uint8_t *at = bytes + k * click_bytes(s->form);
    TRY(take_label(s, &at, number, &out->label));
    for (int i = 0; i < s->form.dense; i++, at += 4) {
        out->dense[i] = float_at(at);
        if (!isfinite(out->dense[i]))
            return err_set(ERR_DATA, "%s: record %" PRId64 ": number %d is not finite", s->file.path, number, i);
    }
    for (int i = 0; i < s->form.tables; i++, at += 8) out->id[i] = le64_get(at);
    return ERR_OK;
}

err_t click_shard_verify(click_shard *s, reader *r, void (*report)(void *ctx, const char *text), void *ctx,
                         int64_t *faults) {
    uint8_t bytes[CLICK_BLOCK * CLICK_BYTES];
    for (int64_t block = 0; block < click_blocks(s->records); block++) {
        int records;
        click one;
        err_t rc = click_shard_block(s, r, block, bytes, &records);
        if (rc != ERR_OK && rc != ERR_DATA) return rc;
        if (rc == ERR_DATA) report(ctx, err_last()->text), ++*faults;
        for (int k = 0; k < records && rc == ERR_OK; k++)
            if (click_take(s, bytes, k, block * CLICK_BLOCK + k, &one) != ERR_OK)
                report(ctx, err_last()->text), ++*faults;
    }
    return ERR_OK;
}
