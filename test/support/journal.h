// test/support/journal.h: what a process asks of the disk, in the order in which it asks. The test's program is linked
// with --wrap for the calls below (see the Makefile), so that the product's own calls come here first; those that
// succeed on paths under the journal's root become lines such as "sync ckpt" or "rename ckpt/.tmp-step-00000001
// ckpt/step-00000001". What a file descriptor stands for, the kernel says. Writes and reads that follow each other on
// one file, and removals in one directory ("empty ..."), are one line. Every line has a number that counts through all
// processes that share the journals' page.
#ifndef TEST_SUPPORT_JOURNAL_H
#define TEST_SUPPORT_JOURNAL_H

#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { JOURNAL_LINES = 400, JOURNAL_LINE = 160 };

typedef struct journal {
    char root[2][PATH_MAX];  // as it was given, for the paths in calls; without links, for those of descriptors
    atomic_int *clock;
    int lines, when[JOURNAL_LINES];
    char line[JOURNAL_LINES][JOURNAL_LINE];
} journal;

static journal *writing;  // of this process; NULL: calls are not recorded
static pthread_mutex_t writing_lock = PTHREAD_MUTEX_INITIALIZER;

// `path` as seen from the root: "." is the root itself, ".." its parent; NULL: elsewhere.
static inline const char *seen_from_root(const char *path) {
    for (int i = 0; i < 2; i++) {
        const char *root = writing->root[i];
        size_t n = strlen(root), parent = (size_t)(strrchr(root, '/') - root);
        if (strlen(path) == parent && strncmp(path, root, parent) == 0) return "..";
        if (strncmp(path, root, n) != 0 || (path[n] != 0 && path[n] != '/')) continue;
        return path[n] ? path + n + 1 : ".";
    }
    return NULL;
}

static inline void note_line(const char *fmt, ...) {
    char text[JOURNAL_LINE];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&writing_lock);
    journal *j = writing;
    bool many = strncmp(text, "write ", 6) == 0 || strncmp(text, "read ", 5) == 0 || strncmp(text, "empty ", 6) == 0;
    bool again = many && j->lines > 0 && strcmp(j->line[j->lines - 1], text) == 0;
    if (!again && j->lines < JOURNAL_LINES) {
        j->when[j->lines] = atomic_fetch_add(j->clock, 1);
        strcpy(j->line[j->lines++], text);
    }
    pthread_mutex_unlock(&writing_lock);
}

static inline void note_paths(const char *verb, const char *path, const char *to) {
    if (!writing) return;
    const char *a = seen_from_root(path), *b = to ? seen_from_root(to) : NULL;
    if (a && to) note_line("%s %s %s", verb, a, b ? b : to);
    else if (a) note_line("%s %s", verb, a);
}

static inline void note_fd(const char *verb, int fd, const char *more) {
    char link[64], path[PATH_MAX] = "";
    if (!writing) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) <= 0) return;
    const char *a = seen_from_root(path);
    if (a) note_line("%s %s%s", verb, a, more);
}

// Of a record of a log its kind belongs to the line: " step", " eval", ...
static inline const char *kind_of_record(const void *bytes, size_t n, char dst[32]) {
    dst[0] = 0;
    if (n > 6 && memcmp(bytes, "{\"t\":\"", 6) == 0)
        snprintf(dst, 32, " %.*s", (int)strcspn((const char *)bytes + 6, "\""), (const char *)bytes + 6);
    return dst;
}

int __real_fsync(int fd);
int __real_fdatasync(int fd);
int __real_rename(const char *from, const char *to);
int __real_mkdir(const char *path, mode_t mode);
int __real_symlink(const char *target, const char *path);
int __real_unlink(const char *path);
int __real_remove(const char *path);
ssize_t __real_write(int fd, const void *src, size_t n);
ssize_t __real_pread(int fd, void *dst, size_t n, off_t at);

int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_rename(const char *from, const char *to);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_symlink(const char *target, const char *path);
int __wrap_unlink(const char *path);
int __wrap_remove(const char *path);
ssize_t __wrap_write(int fd, const void *src, size_t n);
ssize_t __wrap_pread(int fd, void *dst, size_t n, off_t at);

int __wrap_fsync(int fd) {
    int rc = __real_fsync(fd);
    if (rc == 0) note_fd("sync", fd, "");
    return rc;
}

int __wrap_fdatasync(int fd) {
    int rc = __real_fdatasync(fd);
    if (rc == 0) note_fd("sync", fd, "");
    return rc;
}

int __wrap_rename(const char *from, const char *to) {
    int rc = __real_rename(from, to);
    if (rc == 0) note_paths("rename", from, to);
    return rc;
}

int __wrap_mkdir(const char *path, mode_t mode) {
    int rc = __real_mkdir(path, mode);
    if (rc == 0) note_paths("mkdir", path, NULL);
    return rc;
}

int __wrap_symlink(const char *target, const char *path) {
    int rc = __real_symlink(target, path);
    if (rc == 0) note_paths("link", path, target);
    return rc;
}

int __wrap_unlink(const char *path) {
    int rc = __real_unlink(path);
    if (rc == 0) note_paths("remove", path, NULL);
    return rc;
}

// Files go in the order in which the file system lists them: only their directory is written down.
int __wrap_remove(const char *path) {
    struct stat st;
    char dir[PATH_MAX];
    bool file = lstat(path, &st) == 0 && !S_ISDIR(st.st_mode);
    int rc = __real_remove(path);
    snprintf(dir, sizeof dir, "%.*s", file ? (int)(strrchr(path, '/') - path) : (int)strlen(path), path);
    if (rc == 0) note_paths(file ? "empty" : "remove", dir, NULL);
    return rc;
}

ssize_t __wrap_write(int fd, const void *src, size_t n) {
    char kind[32];
    ssize_t put = __real_write(fd, src, n);
    if (put > 0) note_fd("write", fd, kind_of_record(src, n, kind));
    return put;
}

ssize_t __wrap_pread(int fd, void *dst, size_t n, off_t at) {
    ssize_t got = __real_pread(fd, dst, n, at);
    if (got > 0) note_fd("read", fd, "");
    return got;
}

// `count` journals that processes forked from this one share. Freed by journal_drop.
static inline journal *journal_open(int count) {
    size_t bytes = (size_t)count * sizeof(journal) + sizeof(atomic_int);
    journal *j = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (j == MAP_FAILED) abort();
    for (int i = 0; i < count; i++) j[i].clock = (atomic_int *)(j + count);
    return j;
}

static inline void journal_drop(journal *j, int count) {
    munmap(j, (size_t)count * sizeof(journal) + sizeof(atomic_int));
}

// From here on this process writes into *j, anew.
static inline void journal_begin(journal *j, const char *root) {
    j->lines = 0;
    snprintf(j->root[0], PATH_MAX, "%s", root);
    if (!realpath(root, j->root[1])) abort();
    writing = j;
}

static inline void journal_end(void) { writing = NULL; }

static inline void journal_print(const journal *j) {
    for (int i = 0; i < j->lines; i++) fprintf(stderr, "  %4d %s\n", j->when[i], j->line[i]);
}

#endif
