// base/scratch.c: see base/scratch.h.
#include "base/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static err_t make(scratch *x, const char *name) {
    TRY(io_path(x->path, "%s/%s.XXXXXX", x->dir, name));
    x->fd = mkostemp(x->path, O_CLOEXEC);
    if (x->fd < 0) return err_set(ERR_IO, "%s: %s", x->path, strerror(errno));
    return unlink(x->path) == 0 ? ERR_OK : err_set(ERR_IO, "%s: unlink: %s", x->path, strerror(errno));
}

err_t scratch_open(scratch *x, const char *dir, const char *name, fault_list *faults) {
    *x = (scratch){.dir = dir, .fd = -1, .faults = faults};
    err_t rc = make(x, name);
    if (rc != ERR_OK) scratch_close(x);
    return rc;
}

void scratch_close(scratch *x) {
    if (x->fd >= 0) close(x->fd);
    x->fd = -1;
}

err_t scratch_read(const scratch *x, int64_t at, void *to, size_t n) {
    if (fault_hit(x->faults, FAULT_SPILL_READ))
        return err_set(ERR_IO, "%s: read of %zu bytes at offset %" PRId64 ": %s", x->path, n, at, strerror(EIO));
    return io_read_at(x->fd, x->path, at, to, n);
}

static err_t write_all(const scratch *x, int64_t at, const char *data, size_t n) {
    for (size_t done = 0; done < n;) {
        bool fails = fault_hit(x->faults, FAULT_SPILL_WRITE);
        ssize_t put = fails ? -1 : pwrite(x->fd, data + done, n - done, (off_t)at + (off_t)done);
        if (fails) errno = ENOSPC;
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0)
            return err_set(ERR_IO, "%s: write of %zu bytes at offset %" PRId64 ": %s", x->path, n, at,
                           put ? strerror(errno) : "nothing was written");
        done += (size_t)put;
    }
    return ERR_OK;
}

err_t scratch_write(const scratch *x, int64_t at, char *data, size_t n) {
    bool flips = fault_hit(x->faults, FAULT_SPILL_FLIP);
    if (flips) data[n / 2] ^= 0x10;
    err_t rc = write_all(x, at, data, n);
    if (flips) data[n / 2] ^= 0x10;
    return rc;
}
