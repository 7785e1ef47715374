// data/reader.c: see data/reader.h.
#include "data/reader.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BACKOFF_MS = 10, BACKOFF_DOUBLINGS = 10 };

void reader_open(reader *r, int retry, fault_list *faults) {
    pthread_condattr_t attr;
    r->retry = retry;
    r->faults = faults;
    r->most = READER_OPEN_MAX;
    atomic_init(&r->retries, 0);
    atomic_init(&r->bytes, 0);
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&r->wake, &attr);
    pthread_condattr_destroy(&attr);
}

void reader_share(reader *r, int readers) {
    if (readers > 1) r->most = READER_OPEN_MAX / readers > 1 ? READER_OPEN_MAX / readers : 1;
}

void reader_close(reader *r) {
    pthread_cond_destroy(&r->wake);
    pthread_mutex_destroy(&r->lock);
}

void reader_counts(const reader *r, int64_t *retries, int64_t *read) {
    *retries = atomic_load(&r->retries);
    *read = atomic_load(&r->bytes);
}

void reader_cancel(reader *r, bool cancelled) {
    pthread_mutex_lock(&r->lock);
    r->cancelled = cancelled;
    pthread_cond_broadcast(&r->wake);
    pthread_mutex_unlock(&r->lock);
}

// --- files -----------------------------------------------------------------------------------------------------------

err_t reader_find(data_file *f, const char *path, const char *expected) {
    struct stat st;
    f->fd = -1;
    if (!(f->path = strdup(path))) return err_set(ERR_INTERNAL, "%s: no memory", path);
    if (stat(path, &st) != 0) return err_set(ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return err_set(ERR_DATA, "%s: not a regular file, expected %s", path, expected);
    f->dev = st.st_dev;
    f->ino = st.st_ino;
    f->mtime = st.st_mtim;
    f->size = st.st_size;
    if (f->size == 0) return err_set(ERR_DATA, "%s: ends at offset 0: the file is empty, expected %s", path, expected);
    return ERR_OK;
}

void reader_forget(reader *r, data_file *f) {
    if (f->path) reader_drop(r, f);
    free(f->path);
    *f = (data_file){.fd = -1};
}

err_t reader_hold(reader *r, data_file *f) {
    struct stat st;
    if (f->fd >= 0) return ERR_OK;
    if (r->open[r->hand]) reader_drop(r, r->open[r->hand]);
    int fd;
    TRY(io_open(f->path, O_RDONLY, &fd));
    if (fstat(fd, &st) != 0 || st.st_dev != f->dev || st.st_ino != f->ino || st.st_size != f->size ||
        st.st_mtim.tv_sec != f->mtime.tv_sec || st.st_mtim.tv_nsec != f->mtime.tv_nsec) {
        close(fd);
        return err_set(ERR_DATA,
                       "%s: another file than before (%" PRId64
                       " bytes at first): it was replaced while in use; start again",
                       f->path, f->size);
    }
    f->fd = fd;
    r->open[r->hand] = f;
    r->hand = (r->hand + 1) % r->most;
    return ERR_OK;
}

void reader_drop(reader *r, data_file *f) {
    for (int i = 0; i < READER_OPEN_MAX; i++)
        if (r->open[i] == f) r->open[i] = NULL;
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
}

// --- reads -----------------------------------------------------------------------------------------------------------

static err_t read_once(reader *r, data_file *f, int64_t offset, void *dst, int64_t n) {
    TRY(reader_hold(r, f));
    if (fault_hit(r->faults, FAULT_READ))
        return err_set(ERR_IO, "%s: read of %" PRId64 " bytes at offset %" PRId64 ": %s", f->path, n, offset,
                       strerror(EIO));
    return io_read_at(f->fd, f->path, offset, dst, (size_t)n);
}

// Sleeps; false: cancelled.
static bool doze(reader *r, int64_t ms) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_mutex_lock(&r->lock);
    while (!r->cancelled && pthread_cond_timedwait(&r->wake, &r->lock, &until) == 0) {}
    bool go_on = !r->cancelled;
    pthread_mutex_unlock(&r->lock);
    return go_on;
}

static bool back_off(reader *r, int tries) {
    return doze(r, (int64_t)BACKOFF_MS << (tries - 1 < BACKOFF_DOUBLINGS ? tries - 1 : BACKOFF_DOUBLINGS));
}

err_t reader_read(reader *r, data_file *f, int64_t offset, void *dst, int64_t n) {
    if (fault_hit(r->faults, FAULT_SLOW)) doze(r, FAULT_SLOW_MS);
    for (int tries = 1;; tries++) {
        err_t rc = read_once(r, f, offset, dst, n);
        if (rc == ERR_OK) atomic_fetch_add(&r->bytes, n);
        if (rc == ERR_OK && tries > 1) atomic_fetch_add(&r->retries, 1);
        if (rc != ERR_IO) return rc;
        reader_drop(r, f);  // after an error on a network file system only a new descriptor may work
        if (tries > r->retry)
            return err_set(ERR_IO, "%s; given up after %d %s ([data] retry = %d)", err_last()->text, tries,
                           tries > 1 ? "tries" : "try", r->retry);
        if (!back_off(r, tries))
            return err_set(ERR_INTERRUPTED, "%s; not tried again: the reader is being closed", err_last()->text);
    }
}
