// trainer/log/tfrecord.c: see trainer/log/tfrecord.h.
#include "trainer/log/tfrecord.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { HEAD = 12, FOOT = 4 };  // bytes around the data

// Bit by bit: a step's record has a few hundred bytes, which takes microseconds, and there is no table to be wrong.
uint32_t crc32c(const void *bytes, size_t n) {
    const uint8_t *b = bytes;
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= b[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    }
    return ~crc;
}

static void put_bits(uint8_t *dst, uint64_t bits, int bytes) {
    for (int i = 0; i < bytes; i++) dst[i] = (uint8_t)(bits >> 8 * i);
}

static void put_checksum(uint8_t *dst, const uint8_t *of, size_t n) {
    uint32_t crc = crc32c(of, n);
    put_bits(dst, (crc >> 15 | crc << 17) + 0xA282EAD8u, 4);
}

void tfrecord_open(tfrecord *f, const char *path) {
    f->fd = -1;
    f->out = (proto){.at = f->bytes, .room = sizeof f->bytes};
    snprintf(f->path, sizeof f->path, "%s", path);
}

void tfrecord_close(tfrecord *f) {
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
}

proto *tfrecord_begin(tfrecord *f) {
    static const uint8_t head[HEAD] = {0};
    f->begun = f->out.n;
    proto_raw(&f->out, head, sizeof head);
    return &f->out;
}

err_t tfrecord_end(tfrecord *f) {
    static const uint8_t foot[FOOT] = {0};
    uint8_t *head = f->bytes + f->begun;
    proto_raw(&f->out, foot, sizeof foot);
    if (f->out.full) {
        f->out.n = f->begun, f->out.full = false;
        tfrecord_write(f);  // so that there may be room for the next one
        return err_set(ERR_IO,
                       "%s: a record is lost: there was no room for it beside %zu bytes that waited to be written",
                       f->path, f->begun);
    }
    size_t bytes = f->out.n - f->begun - HEAD - FOOT;
    put_bits(head, bytes, 8);
    put_checksum(head + 8, head, 8);
    put_checksum(head + HEAD + bytes, head + HEAD, bytes);
    return ERR_OK;
}

static err_t write_some(tfrecord *f, size_t *put) {
    ssize_t n;
    do n = write(f->fd, f->bytes + *put, f->out.n - *put);
    while (n < 0 && errno == EINTR);
    if (n <= 0) return err_set(ERR_IO, "%s: write of %zu bytes: %s", f->path, f->out.n - *put, strerror(errno));
    *put += (size_t)n;
    return ERR_OK;
}

err_t tfrecord_write(tfrecord *f) {
    size_t put = 0;
    err_t rc = ERR_OK;
    if (f->fd < 0) f->fd = open(f->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    if (f->fd < 0) return err_set(ERR_IO, "%s: %s", f->path, strerror(errno));
    while (put < f->out.n && rc == ERR_OK) rc = write_some(f, &put);
    memmove(f->bytes, f->bytes + put, f->out.n - put);
    f->out.n -= put;
    return rc;
}

err_t tfrecord_sync(tfrecord *f) {
    if (f->fd < 0 || fdatasync(f->fd) == 0) return ERR_OK;
    return err_set(ERR_IO, "%s: sync: %s", f->path, strerror(errno));
}
