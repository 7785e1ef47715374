// base/io.c: see base/io.h.
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

err_t io_path(char dst[IO_PATH], const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(dst, IO_PATH, fmt, ap);
    va_end(ap);
    if (n < 0 || n >= IO_PATH)
        return err_set(ERR_CONFIG, "path \"%.200s...\" has %d bytes, expected fewer than %d: use a shorter [run] dir",
                       dst, n, IO_PATH);
    return ERR_OK;
}

static const char *kind_of(mode_t mode) {
    switch (mode & S_IFMT) {
    case S_IFDIR: return "a directory";
    case S_IFIFO: return "a FIFO (a named pipe)";
    case S_IFCHR:
    case S_IFBLK: return "a device";
    case S_IFSOCK: return "a socket";
    default: return "no regular file";
    }
}

static err_t not_a_file(const char *path, mode_t mode) {
    return err_set(ERR_DATA, "%s: %s, expected a regular file", path, kind_of(mode));
}

// O_NONBLOCK: the open of a FIFO would wait for its other end. Reads and writes of a regular file ignore it.
err_t io_open(const char *path, int flags, int *fd) {
    struct stat st;
    *fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0644);
    int why = *fd < 0 ? errno : 0;
    if (*fd < 0 && stat(path, &st) == 0 &&
        !S_ISREG(st.st_mode)) {  // a socket, a directory to write to, a FIFO without a reader
        err_t rc = not_a_file(path, st.st_mode);
        errno = why;
        return rc;
    }
    err_t rc = ERR_OK;
    if (*fd < 0) rc = err_set(ERR_IO, "%s: %s", path, strerror(why));
    else if (fstat(*fd, &st) != 0) rc = err_set(ERR_IO, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode)) rc = not_a_file(path, st.st_mode);
    if (rc != ERR_OK && *fd >= 0) close(*fd), *fd = -1;
    errno = why;
    return rc;
}

err_t io_read_at(int fd, const char *path, int64_t offset, void *dst, size_t n) {
    size_t done = 0;
    while (done < n) {
        ssize_t got = pread(fd, (char *)dst + done, n - done, (off_t)offset + (off_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return err_set(ERR_IO, "%s: read of %zu bytes at offset %" PRId64 ": %s", path, n, offset, strerror(errno));
        if (got == 0)
            return err_set(ERR_DATA,
                           "%s: ends at offset %" PRId64 ", expected %zu bytes at offset %" PRId64
                           ": the file is truncated",
                           path, offset + (int64_t)done, n, offset);
        done += (size_t)got;
    }
    return ERR_OK;
}

// Does what a bad disk or cable does: flips a bit in the middle of the n bytes before the current position, and reports
// no error.
static err_t flip_bit(int fd, const char *path, const uint8_t *src, size_t n) {
    uint8_t wrong = src[n / 2] ^ 0x10;
    off_t end = lseek(fd, 0, SEEK_CUR), at = end - (off_t)n + (off_t)(n / 2);
    if (end >= (off_t)n && pwrite(fd, &wrong, 1, at) == 1) return ERR_OK;
    return err_set(ERR_IO, "%s: a bit was to be flipped, and could not be: %s", path, strerror(errno));
}

err_t io_write(int fd, const char *path, const void *src, size_t n, fault_list *faults) {
    size_t done = 0;
    while (done < n) {
        ssize_t put = -1;
        if (fault_hit(faults, FAULT_WRITE)) errno = ENOSPC;
        else put = write(fd, (const char *)src + done, n - done);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0)
            return err_set(ERR_IO, "%s: write of %zu bytes: %s%s", path, n, strerror(errno),
                           errno == ENOSPC ? "; free some space" : "");
        if (fault_hit(faults, FAULT_FLIP)) TRY(flip_bit(fd, path, (const uint8_t *)src + done, (size_t)put));
        done += (size_t)put;
    }
    return ERR_OK;
}

err_t io_read_file(const char *path, size_t limit, char **out, size_t *size) {
    *out = NULL;
    *size = 0;
    struct stat st;
    int fd;
    TRY(io_open(path, O_RDONLY, &fd));
    err_t rc = ERR_OK;
    char *text = NULL;
    if (fstat(fd, &st) != 0) rc = err_set(ERR_IO, "%s: %s", path, strerror(errno));
    else if ((uintmax_t)st.st_size > limit)
        rc = err_set(ERR_DATA, "%s: has %" PRId64 " bytes, expected at most %zu", path, st.st_size, limit);
    else if (!(text = malloc((size_t)st.st_size + 1)))
        rc = err_set(ERR_INTERNAL, "%s: no memory for %" PRId64 " bytes", path, st.st_size);
    else rc = io_read_at(fd, path, 0, text, (size_t)st.st_size);
    close(fd);
    if (rc != ERR_OK) {
        free(text);
        return rc;
    }
    text[st.st_size] = 0;
    *out = text;
    *size = (size_t)st.st_size;
    return ERR_OK;
}

err_t io_push(int fd, const char *path, int64_t first, int64_t n, bool waits) {
    unsigned wait = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    if (sync_file_range(fd, first, n, waits ? wait : SYNC_FILE_RANGE_WRITE) == 0) return ERR_OK;
    if (errno != EIO && errno != ENOSPC) return ERR_OK;  // a file system without it
    return err_set(ERR_IO, "%s: write to disk: %s", path, strerror(errno));
}

err_t io_sync(int fd, const char *path, fault_list *faults) {
    int rc = -1;
    if (fault_hit(faults, FAULT_SYNC)) errno = EIO;
    else rc = fsync(fd);
    if (rc != 0) return err_set(ERR_IO, "%s: fsync: %s; what was written may not be on disk", path, strerror(errno));
    return ERR_OK;
}

err_t io_sync_dir(const char *path, fault_list *faults) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return err_set(ERR_IO, "%s: %s", path, strerror(errno));
    err_t rc = io_sync(fd, path, faults);
    close(fd);
    return rc;
}

static err_t sync_parent(const char *path, fault_list *faults) {
    char parent[IO_PATH];
    TRY(io_path(parent, "%s", path));
    char *slash = strrchr(parent, '/');
    if (!slash) strcpy(parent, ".");
    else slash[slash == parent] = 0;  // "/x" keeps its slash
    return io_sync_dir(parent, faults);
}

err_t io_rename(const char *from, const char *to, fault_list *faults) {
    int rc = -1;
    if (fault_hit(faults, FAULT_RENAME)) errno = EIO;
    else rc = rename(from, to);
    if (rc != 0) return err_set(ERR_IO, "%s: rename to %s: %s", from, to, strerror(errno));
    return sync_parent(to, faults);
}

err_t io_write_file(const char *path, const void *src, size_t n, fault_list *faults) {
    char temp[IO_PATH];
    TRY(io_path(temp, "%s.tmp", path));
    int fd;
    TRY(io_open(temp, O_WRONLY | O_CREAT | O_TRUNC, &fd));
    err_t rc = io_write(fd, temp, src, n, faults);
    if (rc == ERR_OK) rc = io_sync(fd, temp, faults);
    close(fd);
    if (rc == ERR_OK) rc = io_rename(temp, path, faults);
    if (rc != ERR_OK) unlink(temp);
    return rc;
}

err_t io_replace_file(const char *path, const void *src, size_t n) {
    char temp[IO_PATH];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    TRY(io_path(temp, "%.*s.%s.new", (int)(name - path), path, name));
    int fd;
    TRY(io_open(temp, O_WRONLY | O_CREAT | O_TRUNC, &fd));
    err_t rc = io_write(fd, temp, src, n, NULL);
    close(fd);
    if (rc == ERR_OK && rename(temp, path) != 0) rc = err_set(ERR_IO, "%s: rename: %s", path, strerror(errno));
    if (rc != ERR_OK) unlink(temp);
    return rc;
}

err_t io_mkdirs(const char *path) {
    char dir[IO_PATH];
    TRY(io_path(dir, "%s", path));
    for (char *p = dir + 1;; p++) {
        if (*p != '/' && *p != 0) continue;
        char end = *p;
        *p = 0;
        // else a crash of the machine may lose the directory and all its files
        if (mkdir(dir, 0755) == 0) TRY(sync_parent(dir, NULL));
        else if (errno != EEXIST) return err_set(ERR_IO, "%s: mkdir: %s", dir, strerror(errno));
        *p = end;
        if (!end) return ERR_OK;
    }
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

err_t io_remove_tree(const char *path) {
    if (access(path, F_OK) != 0 && errno == ENOENT) return ERR_OK;
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0)
        return err_set(ERR_IO, "%s: remove: %s", path, strerror(errno));
    return ERR_OK;
}
