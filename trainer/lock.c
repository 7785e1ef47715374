// trainer/lock.c: see trainer/lock.h.
#include "trainer/lock.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

// A process that was just killed may need a moment to exit.
enum { LOCK_TRIES = 10, LOCK_PAUSE_MS = 100 };

static bool names(const char *path, int fd) {
    struct stat now, held;
    return stat(path, &now) == 0 && fstat(fd, &held) == 0 && now.st_dev == held.st_dev && now.st_ino == held.st_ino;
}

// 0, or errno.
static int try_lock(int fd) {
    for (int i = 0;; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) return 0;
        if (errno != EWOULDBLOCK || i == LOCK_TRIES) return errno;
        poll(NULL, 0, LOCK_PAUSE_MS);
    }
}

static err_t taken(const char *path) {
    return err_set(
        ERR_UNAVAILABLE,
        "%s: another process trains this run; stop it, or choose another [run] name. (Nodes that share a file system need "
        "a [run] dir of their own each.)",
        path);
}

// NFS locks only what is open for writing, which no directory is: there the file alone has to do.
static err_t take_directory(int *fd, const char *dir) {
    *fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0 && (errno == ENOENT || errno == ENOTDIR)) return ERR_OK;
    if (*fd < 0) return err_set(ERR_IO, "%s: %s", dir, strerror(errno));
    if (try_lock(*fd) != EWOULDBLOCK) return ERR_OK;
    close(*fd), *fd = -1;
    return taken(dir);
}

// The file that was opened may have been removed before it was locked: then another one, if any, is the lock.
static err_t take_file(int *fd, const char *path, bool make) {
    for (int i = 0; i <= LOCK_TRIES; i++) {
        err_t rc = io_open(path, O_RDWR | (make ? O_CREAT : 0), fd);
        if (rc != ERR_OK && !make && (errno == ENOENT || errno == ENOTDIR)) return ERR_OK;
        TRY(rc);
        int why = try_lock(*fd);
        if (why == 0 && names(path, *fd)) return ERR_OK;
        close(*fd), *fd = -1;
        if (why == EWOULDBLOCK) return taken(path);
        if (why) return err_set(ERR_IO, "%s: lock: %s", path, strerror(why));
    }
    return err_set(ERR_UNAVAILABLE, "%s: is removed again and again", path);
}

err_t run_lock_take(run_lock *l, const char *dir, bool make) {
    char path[IO_PATH];
    TRY(io_path(path, "%s/lock", dir));
    if (make) TRY(io_mkdirs(dir));
    if (l->dir < 0) TRY(take_directory(&l->dir, dir));
    if (l->file < 0) TRY(take_file(&l->file, path, make));
    return ERR_OK;
}

// What was held is let go only after what takes its place is held.
err_t run_lock_keep(run_lock *l, const char *dir) {
    char path[IO_PATH];
    TRY(io_path(path, "%s/lock", dir));
    bool there = names(dir, l->dir);
    if (there && names(path, l->file)) return ERR_OK;
    run_lock fresh = {there ? l->dir : -1, -1};
    err_t rc = run_lock_take(&fresh, dir, true);
    if (rc == ERR_OK) {
        if (!there) close(l->dir);
        close(l->file);
        *l = fresh;
    } else if (!there && fresh.dir >= 0) close(fresh.dir);
    return rc;
}

void run_lock_release(run_lock *l) {
    if (l->file >= 0) close(l->file);
    if (l->dir >= 0) close(l->dir);
    *l = (run_lock){-1, -1};
}
