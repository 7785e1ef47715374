// data/text/inflate.c: see data/text/inflate.h. The file passes through one buffer, `stage`; what is compressed goes
// from there to a decoder.
#include "data/text/inflate.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

enum { STAGE = 1 << 18, MOST = 1 << 30 };  // bytes; zlib counts in 32 bits
// a frame may need 2^27 bytes before the ones that it decodes: what the program zstd accepts unasked
enum { WINDOW_LOG = 27 };

struct inflater {
    char *path;
    int fd;
    packing how;
    bool over;          // all of the file was read into the stage
    bool whole;         // what was decoded ends with a member or frame
    int64_t at;         // bytes of the file that were read
    size_t from, left;  // bytes of the stage that wait: stage[from .. from + left)
    uint8_t *stage;
    z_stream z;
    ZSTD_DCtx *zstd;
};

packing packing_of(const void *head, size_t n) {
    static const struct {
        packing how;
        size_t n;
        const char *bytes;
    } magic[] = {
        {PACKING_GZIP, 2, "\x1f\x8b"},
        {PACKING_ZSTD, 4, "\x28\xB5\x2F\xFD"},
        {PACKING_XZ, 6, "\xFD\x37zXZ\0"},
    };
    const uint8_t *b = head;
    for (size_t i = 0; i < sizeof magic / sizeof *magic; i++)
        if (n >= magic[i].n && memcmp(b, magic[i].bytes, magic[i].n) == 0) return magic[i].how;
    // a skippable frame
    if (n >= 4 && (b[0] & 0xF0) == 0x50 && memcmp(b + 1, "\x2A\x4D\x18", 3) == 0) return PACKING_ZSTD;
    // BZh is also how a word may begin: the level and the first block's magic follow it, or that of the end.
    if (n >= 10 && memcmp(b, "BZh", 3) == 0 && b[3] >= '1' && b[3] <= '9' &&
        (memcmp(b + 4, "1AY&SY", 6) == 0 || memcmp(b + 4, "\x17\x72\x45\x38\x50\x90", 6) == 0))
        return PACKING_BZIP2;
    return PACKING_NONE;
}

// --- the file --------------------------------------------------------------------------------------------------------

// Reads up to n bytes, fewer only at the end of the file.
static err_t read_file(inflater *x, uint8_t *to, size_t n, size_t *got) {
    for (*got = 0; *got < n && !x->over;) {
        ssize_t some = read(x->fd, to + *got, n - *got);
        if (some < 0 && errno == EINTR) continue;
        if (some < 0) return err_set(ERR_IO, "%s: read at offset %" PRId64 ": %s", x->path, x->at, strerror(errno));
        x->over = some == 0;
        x->at += some;
        *got += (size_t)some;
    }
    return ERR_OK;
}

// Bytes for the decoder, if it has none and the file has more.
static err_t refill(inflater *x) {
    if (x->left || x->over) return ERR_OK;
    x->from = 0;
    return read_file(x, x->stage, STAGE, &x->left);
}

static err_t open_decoder(inflater *x) {
    bool made = true;
    switch (x->how) {
    case PACKING_XZ:
        return err_set(ERR_DATA,
                       "%s: compressed with xz; read are plain files, gzip and zstd: unpack it first with xz -d",
                       x->path);
    case PACKING_BZIP2:
        return err_set(ERR_DATA,
                       "%s: compressed with bzip2; read are plain files, gzip and zstd: unpack it first with bzip2 -d",
                       x->path);
    case PACKING_GZIP: made = inflateInit2(&x->z, 16 + MAX_WBITS) == Z_OK; break;
    case PACKING_ZSTD:
        x->zstd = ZSTD_createDCtx();
        made = x->zstd && !ZSTD_isError(ZSTD_DCtx_setParameter(x->zstd, ZSTD_d_windowLogMax, WINDOW_LOG));
        break;
    case PACKING_NONE: break;
    }
    return made ? ERR_OK : err_set(ERR_INTERNAL, "%s: no memory to unpack it", x->path);
}

static err_t begin(inflater *x) {
    TRY(io_open(x->path, O_RDONLY, &x->fd));
    if (!(x->stage = malloc(STAGE))) return err_set(ERR_INTERNAL, "%s: no memory to read it", x->path);
    TRY(refill(x));
    x->how = packing_of(x->stage, x->left);
    return open_decoder(x);
}

err_t inflater_open(inflater **out, const char *path) {
    inflater *x = *out = calloc(1, sizeof *x);
    if (x) *x = (inflater){.fd = -1, .path = strdup(path)};
    err_t rc = x && x->path ? begin(x) : err_set(ERR_INTERNAL, "%s: no memory to read it", path);
    if (rc != ERR_OK) inflater_close(x), *out = NULL;
    return rc;
}

void inflater_close(inflater *x) {
    if (!x) return;
    if (x->fd >= 0) close(x->fd);
    inflateEnd(&x->z);  // does nothing where it was not begun
    ZSTD_freeDCtx(x->zstd);
    free(x->stage), free(x->path);
    free(x);
}

int64_t inflater_at(const inflater *x) { return x->at - (int64_t)x->left; }

// --- decoders: each turns bytes of the stage into up to n bytes at dst. They may give none though more follow --------

static err_t damaged(const inflater *x, const char *why) {
    return err_set(ERR_DATA, "%s: damaged or cut off near byte %" PRId64 " of the compressed file: %s", x->path,
                   inflater_at(x), why);
}

static void take(inflater *x, size_t n) { x->from += n, x->left -= n; }

static err_t inflate_gzip(inflater *x, uint8_t *dst, int64_t n, int64_t *got) {
    z_stream *z = &x->z;
    if (x->whole) inflateReset(z);
    z->next_in = x->stage + x->from, z->avail_in = (uInt)x->left;
    z->next_out = dst, z->avail_out = (uInt)(n < MOST ? n : MOST);
    int rc = inflate(z, Z_NO_FLUSH);
    take(x, x->left - z->avail_in);
    *got = z->next_out - dst;
    bool follows = x->whole;
    x->whole = rc == Z_STREAM_END;
    if (rc == Z_MEM_ERROR) return err_set(ERR_INTERNAL, "%s: no memory to unpack it", x->path);
    if (rc == Z_OK || rc == Z_STREAM_END || rc == Z_BUF_ERROR) return ERR_OK;
    return damaged(x, follows  ? "what follows a gzip member is not another one"
                      : z->msg ? z->msg
                               : "not a gzip member");
}

static err_t zstd_error(const inflater *x, size_t rc) {
    switch (ZSTD_getErrorCode(rc)) {
    case ZSTD_error_frameParameter_windowTooLarge:
        return err_set(
            ERR_DATA,
            "%s: near byte %" PRId64
            ": `zstd --long` or --ultra made a frame that needs more than %d MB of memory to unpack: unpack it "
            "first with zstd -d --long=31",
            x->path, inflater_at(x), (1 << WINDOW_LOG) >> 20);
    case ZSTD_error_dictionary_wrong:
        return err_set(ERR_DATA,
                       "%s: near byte %" PRId64
                       ": compressed with a dictionary: unpack it first with zstd -d -D DICTIONARY",
                       x->path, inflater_at(x));
    case ZSTD_error_memory_allocation: return err_set(ERR_INTERNAL, "%s: no memory to unpack it", x->path);
    case ZSTD_error_prefix_unknown: return damaged(x, "what follows a zstd frame is not another one");
    default: return damaged(x, ZSTD_getErrorName(rc));
    }
}

static err_t inflate_zstd(inflater *x, uint8_t *dst, int64_t n, int64_t *got) {
    ZSTD_inBuffer in = {x->stage + x->from, x->left, 0};
    ZSTD_outBuffer out = {dst, (size_t)n, 0};
    size_t rc = ZSTD_decompressStream(x->zstd, &out, &in);  // 0: a frame ends here, and all of it has been given
    take(x, in.pos);
    *got = (int64_t)out.pos;
    x->whole = rc == 0;
    return ZSTD_isError(rc) ? zstd_error(x, rc) : ERR_OK;
}

// Up to n bytes, at least one unless the text is at its end.
static err_t inflate_some(inflater *x, uint8_t *dst, int64_t n, int64_t *got) {
    for (*got = 0; *got == 0;) {
        TRY(refill(x));
        bool last = x->left == 0;  // nothing more comes in; what the decoder holds back it gives now
        if (last && x->whole) return ERR_OK;
        TRY(x->how == PACKING_GZIP ? inflate_gzip(x, dst, n, got) : inflate_zstd(x, dst, n, got));
        if (last && *got == 0 && !x->whole)
            return damaged(x, x->how == PACKING_GZIP ? "it ends inside of a gzip member"
                                                     : "it ends inside of a zstd frame");
    }
    return ERR_OK;
}

// First what opening the file has left in the stage, then from the file itself.
static err_t read_plain(inflater *x, uint8_t *dst, int64_t n, int64_t *got) {
    size_t some = x->left < (size_t)n ? x->left : (size_t)n, rest = 0;
    if (some) memcpy(dst, x->stage + x->from, some);
    take(x, some);
    err_t rc = read_file(x, dst + some, (size_t)n - some, &rest);
    *got = (int64_t)(some + rest);
    return rc;
}

err_t inflater_read(inflater *x, void *dst, int64_t n, int64_t *got) {
    uint8_t *to = dst;
    *got = 0;
    if (x->how == PACKING_NONE) return read_plain(x, to, n, got);
    while (*got < n) {
        int64_t some;
        TRY(inflate_some(x, to + *got, n - *got, &some));
        if (some == 0) break;
        *got += some;
    }
    return ERR_OK;
}
