// data/image/unzip.c: see data/image/unzip.h.
#include "data/image/unzip.h"

#include <inttypes.h>
#include <stdlib.h>

enum { STAGE = 1 << 18, MOST = 1 << 30 };  // bytes; zlib counts in 32 bits

err_t unzip_open(unzip *u, reader *r, data_file *f) {
    uint8_t magic[2] = {0};
    u->reader = r;
    u->file = f;
    if (f->size >= 2) TRY(reader_read(r, f, 0, magic, 2));
    if (magic[0] != 0x1f || magic[1] != 0x8b) return ERR_OK;
    u->stage = malloc(STAGE);
    if (!u->stage || inflateInit2(&u->z, 16 + MAX_WBITS) != Z_OK)
        return err_set(ERR_INTERNAL, "%s: no memory to inflate it", f->path);
    u->gzip = true;
    return ERR_OK;
}

void unzip_close(unzip *u) {
    if (u->gzip) inflateEnd(&u->z);
    free(u->stage);
    *u = (unzip){0};
}

static int64_t left(const unzip *u) { return u->file->size - u->at; }

static err_t damaged(const unzip *u, const char *what) {
    return err_set(ERR_DATA, "%s: offset %" PRId64 ": %s: the gzip file is damaged; `gzip -t` says so too",
                   u->file->path, u->at - u->z.avail_in, what);
}

// Compressed bytes for zlib, if it has none and the file has more.
static err_t refill(unzip *u) {
    int64_t n = left(u) < STAGE ? left(u) : STAGE;
    if (u->z.avail_in || n == 0) return ERR_OK;
    TRY(reader_read(u->reader, u->file, u->at, u->stage, n));
    u->at += n;
    u->z.next_in = u->stage;
    u->z.avail_in = (uInt)n;
    return ERR_OK;
}

// Inflates up to n bytes, at least one unless the file is at its end.
static err_t inflate_some(unzip *u, uint8_t *dst, int64_t n, int64_t *got) {
    z_stream *z = &u->z;
    z->next_out = dst;
    z->avail_out = (uInt)(n < MOST ? n : MOST);
    while (z->next_out == dst) {
        TRY(refill(u));
        if (z->avail_in == 0) {  // the file is at its end
            if (!u->ended) return damaged(u, "ends inside of a gzip member, expected more: truncated");
            break;
        }
        if (u->ended) inflateReset(z), u->ended = false;
        int rc = inflate(z, Z_NO_FLUSH);
        u->ended = rc == Z_STREAM_END;
        if (rc != Z_OK && rc != Z_STREAM_END) return damaged(u, z->msg ? z->msg : "not a gzip member");
    }
    *got = z->next_out - dst;
    return ERR_OK;
}

err_t unzip_read(unzip *u, void *dst, int64_t n, int64_t *got) {
    uint8_t *to = dst;
    *got = 0;
    if (!u->gzip) {
        if (n > left(u)) n = left(u);
        if (n > 0) TRY(reader_read(u->reader, u->file, u->at, dst, n));
        u->at += n;
        *got = n;
        return ERR_OK;
    }
    while (*got < n) {
        int64_t some = 0;
        TRY(inflate_some(u, to + *got, n - *got, &some));
        if (some == 0) break;
        *got += some;
    }
    return ERR_OK;
}
