// test/support/idx.h: writes IDX files, plain or compressed. Independent of the reader in data/image/.
#ifndef TEST_SUPPORT_IDX_H
#define TEST_SUPPORT_IDX_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

// dst = the file's bytes: header and values, size[0] * size[1] * ... of them. Returns how many; dst NULL: only that.
static inline size_t idx_bytes(uint8_t *dst, int dims, const uint32_t *size, const uint8_t *bytes) {
    size_t header = 4 + 4 * (size_t)dims, n = 1;
    for (int d = 0; d < dims; d++) n *= size[d];
    if (!dst) return header + n;
    memcpy(dst, (uint8_t[4]){0, 0, 8, (uint8_t)dims}, 4);
    for (int i = 0; i < 4 * dims; i++) dst[4 + i] = (uint8_t)(size[i / 4] >> 8 * (3 - i % 4));
    memcpy(dst + header, bytes, n);
    return header + n;
}

// dst = n bytes as one member of a gzip file; room: compressBound(n) + 32. Returns how many.
static inline size_t gzip_bytes(uint8_t *dst, size_t room, const uint8_t *from, size_t n) {
    z_stream z = {.next_in = (uint8_t *)from, .avail_in = (uInt)n, .next_out = dst, .avail_out = (uInt)room};
    int began = deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), ended = deflate(&z, Z_FINISH);
    deflateEnd(&z);
    if (began != Z_OK || ended != Z_STREAM_END) abort();
    return room - z.avail_out;
}

// A new file takes the place of what was there.
static inline void write_bytes(const char *path, const uint8_t *bytes, size_t n) {
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n || close(fd) != 0) abort();
}

static inline void write_idx(const char *path, int dims, const uint32_t *size, const uint8_t *bytes, bool gzip) {
    size_t n = idx_bytes(NULL, dims, size, bytes), room = compressBound((uLong)n) + 32;
    uint8_t *plain = malloc(n), *packed = malloc(room);
    idx_bytes(plain, dims, size, bytes);
    if (gzip) write_bytes(path, packed, gzip_bytes(packed, room, plain, n));
    else write_bytes(path, plain, n);
    free(plain), free(packed);
}

#endif
