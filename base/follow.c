// base/follow.c: see base/follow.h.
#include "base/follow.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

err_t follow_begin(follower *f, const char *path, char *text, size_t room) {
    *f = (follower){.fd = -1, .text = text, .room = room};
    return io_path(f->path, "%s", path);
}

void follow_close(follower *f) {
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
    f->begin = f->have = 0;
}

// --- is it the same file? --------------------------------------------------------------------------------------------

static follow_news compare(const follower *f, const struct stat *st) {
    char now[FOLLOW_MARK];
    if (f->at == 0) return FOLLOW_ON;
    if (st->st_ino != f->file || st->st_dev != f->device) return FOLLOW_REPLACED;
    if (st->st_size < f->at) return FOLLOW_SHORTER;
    bool same = pread(f->fd, now, f->marked, (off_t)f->at - (off_t)f->marked) == (ssize_t)f->marked &&
                memcmp(now, f->mark, f->marked) == 0;
    return same ? FOLLOW_ON : FOLLOW_OTHER;
}

err_t follow_look(follower *f, follow_news *news) {
    struct stat st;
    *news = FOLLOW_GONE;
    follow_close(f);
    err_t rc = f->rc = io_open(f->path, O_RDONLY, &f->fd);
    if (rc == ERR_IO && (errno == ENOENT || errno == ENOTDIR)) return f->rc = ERR_OK;
    TRY(rc);
    if (fstat(f->fd, &st) != 0) return f->rc = err_set(ERR_IO, "%s: %s", f->path, strerror(errno));
    *news = compare(f, &st);
    f->file = st.st_ino, f->device = st.st_dev, f->size = st.st_size;
    if (*news != FOLLOW_ON) follow_seek(f, 0);
    return ERR_OK;
}

// --- places ----------------------------------------------------------------------------------------------------------

void follow_seek(follower *f, int64_t at) {
    size_t wanted = at < FOLLOW_MARK ? (size_t)at : FOLLOW_MARK;
    ssize_t n = wanted ? pread(f->fd, f->mark, wanted, (off_t)at - (off_t)wanted) : 0;
    f->marked = n == (ssize_t)wanted ? wanted : 0;
    f->at = at, f->passing = false;
    f->begin = f->have = 0;
}

// Where the last `lines` lines begin, looked for backwards, a piece at a time.
static int64_t before_last(const follower *f, int lines) {
    bool last = true;  // the newline at the end begins no line
    for (int64_t end = f->size, from; end > 0; end = from) {
        from = end > (int64_t)f->room ? end - (int64_t)f->room : 0;
        ssize_t n = pread(f->fd, f->text, (size_t)(end - from), (off_t)from);
        if (n <= 0) return 0;
        for (ssize_t i = n; i > 0; i--) {
            if (f->text[i - 1] != '\n') continue;
            if (!last && lines-- <= 1) return from + i;
            last = false;
        }
    }
    return 0;
}

void follow_last(follower *f, int lines) { follow_seek(f, lines > 0 ? before_last(f, lines) : f->size); }

// --- lines -----------------------------------------------------------------------------------------------------------

// n more bytes were read. Those before the place are kept, so that another file is noticed.
static void take(follower *f, size_t n) {
    f->at += (int64_t)n;
    f->begin += n;
    f->marked = f->begin < FOLLOW_MARK ? f->begin : FOLLOW_MARK;
    memcpy(f->mark, f->text + f->begin - f->marked, f->marked);
}

// Reads from the place on. false: nothing is new.
static bool refill(follower *f) {
    size_t before = f->have - f->begin;
    ssize_t n;
    if (f->fd < 0) return false;
    do n = pread(f->fd, f->text, f->room, (off_t)f->at);
    while (n < 0 && errno == EINTR);
    if (n < 0) f->rc = err_set(ERR_IO, "%s: %s", f->path, strerror(errno));
    f->begin = 0, f->have = n > 0 ? (size_t)n : 0;
    return f->have > before;
}

bool follow_next(follower *f, const char **line, size_t *n) {
    for (;;) {
        const char *from = f->text + f->begin, *end = memchr(from, '\n', f->have - f->begin);
        bool passed = f->passing;
        if (end) {
            *line = from, *n = (size_t)(end - from);
            take(f, *n + 1);
            f->passing = false;
            if (!passed) return true;
        } else if (f->begin == 0 && f->have == f->room) {
            *line = NULL, *n = 0;
            take(f, f->room);
            f->passing = true;
            if (!passed) return true;
        } else if (!refill(f)) return false;
    }
}
