// trainer/watch/rundir.c: see trainer/watch/rundir.h.
#include "trainer/watch/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { STATUS_MOST = 4 << 20, CONFIG_MOST = 1 << 20 };

static bool has(const char *dir, const char *name) {
    char path[IO_PATH];
    struct stat st;
    return io_path(path, "%s/%s", dir, name) == ERR_OK && stat(path, &st) == 0;
}

err_t rundir_check(const char *dir) {
    static const char *const parts[] = {"log.jsonl", "events.jsonl", "status.json", "ckpt", "lock"};
    struct stat st;
    if (stat(dir, &st) != 0)
        return err_set(ERR_USAGE, "%s: %s; expected a run's directory, such as runs/default", dir, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return err_set(ERR_USAGE, "%s: a file; expected a run's directory, such as runs/default", dir);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (has(dir, parts[i])) return ERR_OK;
    return err_set(ERR_USAGE, "%s: no run's directory: it has no log.jsonl, events.jsonl, status.json, ckpt or lock",
                   dir);
}

// A regular file, opened for reading; -1: there is none.
static int open_plain(const char *dir, const char *name, struct stat *st) {
    char path[IO_PATH];
    if (io_path(path, "%s/%s", dir, name) != ERR_OK) return -1;
    int fd;
    if (io_open(path, O_RDONLY, &fd) != ERR_OK) return -1;
    if (fstat(fd, st) == 0) return fd;
    close(fd);
    return -1;
}

// A run that starts while we hold the lock, shared and for an instant, tries again for a second.
static bool is_held(int fd) {
    bool held = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fd >= 0) close(fd);
    return held;
}

// A run holds the file, and the directory where the file system lets it: see trainer/lock.h.
bool rundir_locked(const char *dir) {
    struct stat st;
    return is_held(open_plain(dir, "lock", &st)) || is_held(open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

// What a machine leaves of a file that loses its power may be NULs, and more lines follow them: the text must not end
// there.
static const char NO_JSON = 1;

char *rundir_end(const char *dir, const char *name, size_t most, double *changed) {
    struct stat st;
    int fd = open_plain(dir, name, &st);
    if (fd < 0) return NULL;
    int64_t from = st.st_size > (int64_t)most ? st.st_size - (int64_t)most : 0;
    char *text = malloc(most + 1);
    ssize_t n = text ? pread(fd, text, most, from) : -1;
    close(fd);
    if (n < 0) return free(text), NULL;
    text[n] = 0;
    for (ssize_t i = 0; i < n; i++)
        if (!text[i]) text[i] = NO_JSON;
    *changed = (double)st.st_mtim.tv_sec + 1e-9 * (double)st.st_mtim.tv_nsec;
    while (n > 0 && text[n - 1] != '\n') text[--n] = 0;  // a line that is being written
    char *whole = from > 0 ? memchr(text, '\n', (size_t)n) : NULL;
    if (whole) memmove(text, whole + 1, (size_t)(text + n - whole));
    return text;
}

json_t *rundir_first(const char *dir, const char *name) {
    enum { MOST = 16384 };
    char text[MOST];
    struct stat st;
    int fd = open_plain(dir, name, &st);
    ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof text, 0);
    if (fd >= 0) close(fd);
    const char *end = n > 0 ? memchr(text, '\n', (size_t)n) : NULL;
    json_t *o = end ? json_loadb(text, (size_t)(end - text), 0, NULL) : NULL;
    if (json_is_object(o)) return o;
    json_decref(o);
    return NULL;
}

json_t *rundir_line(char **at) {
    while (**at) {
        char *line = *at, *end = strchr(line, '\n');
        size_t n = end ? (size_t)(end - line) : strlen(line);
        *at = line + n + (end != NULL);
        json_t *o = json_loadb(line, n, 0, NULL);
        if (json_is_object(o)) return o;
        json_decref(o);
    }
    return NULL;
}

json_t *rundir_status(const char *dir, bool *damaged) {
    struct stat st;
    json_t *o = NULL;
    *damaged = false;
    int fd = open_plain(dir, "status.json", &st);
    if (fd < 0) return NULL;
    char *text = st.st_size <= STATUS_MOST ? malloc((size_t)st.st_size + 1) : NULL;
    ssize_t n = text ? pread(fd, text, (size_t)st.st_size, 0) : -1;
    close(fd);
    if (n >= 0) o = json_loadb(text, (size_t)n, 0, NULL);
    free(text);
    if (json_is_object(o)) return o;
    json_decref(o);
    *damaged = true;
    return NULL;
}

// What stands after `key =`: a word, or text in quotes (trainer/config/print.c writes it).
static void take_value(const char *at, char *dst, size_t room) {
    size_t n = 0;
    at += strspn(at, " ");
    if (*at != '"') {
        n = strcspn(at, " ;\n");
        snprintf(dst, room, "%.*s", (int)n, at);
        return;
    }
    for (at++; *at && *at != '"' && n + 1 < room; at++) {
        char c = *at;
        if (c == '\\' && at[1]) {
            at++;
            c = *at == 'n' ? '\n' : *at == 't' ? '\t' : *at;
        }
        dst[n++] = c;
    }
    dst[n] = 0;
}

// If the line is `key = value`, where the value begins; else NULL.
static const char *value_of(const char *line, const char *key) {
    size_t n = strlen(key);
    if (strncmp(line, key, n) != 0) return NULL;
    line += n + strspn(line + n, " ");
    return *line == '=' ? line + 1 : NULL;
}

bool rundir_setting(const char *dir, const char *section, const char *key, char *dst, size_t room) {
    struct stat st;
    int fd = open_plain(dir, "config.ini", &st);
    *dst = 0;
    if (fd < 0) return false;
    size_t n = strlen(section), size = st.st_size < CONFIG_MOST ? (size_t)st.st_size : CONFIG_MOST;
    char *text = malloc(size + 1), *rest = text;
    ssize_t got = text ? pread(fd, text, size, 0) : -1;
    bool inside = false, found = false;
    close(fd);
    if (text) text[got > 0 ? got : 0] = 0;
    for (char *line; text && (line = strsep(&rest, "\n"));) {
        const char *value = inside ? value_of(line, key) : NULL;
        if (*line == '[') inside = strncmp(line + 1, section, n) == 0 && line[1 + n] == ']';
        if (value) take_value(value, dst, room), found = true;
    }
    free(text);
    return found;
}

int64_t rundir_steps(const char *dir) {
    char value[32], *end;
    if (!rundir_setting(dir, "run", "steps", value, sizeof value)) return 0;
    long long steps = strtoll(value, &end, 10);
    return *value && !*end && steps > 0 ? steps : 0;
}

// --- fields ----------------------------------------------------------------------------------------------------------

double rundir_real(const json_t *o, const char *key) {
    const json_t *x = json_object_get(o, key);
    return json_is_number(x) ? json_number_value(x) : NAN;
}

int64_t rundir_whole(const json_t *o, const char *key, int64_t otherwise) {
    double v = rundir_real(o, key);
    return fabs(v) < 9e15 ? (int64_t)v : otherwise;  // of NaN, too
}

const char *rundir_text(const json_t *o, const char *key) {
    const char *x = json_string_value(json_object_get(o, key));
    return x ? x : "";
}

double rundir_when(const char *at) {
    struct tm t = {0};
    const char *end = strptime(at, "%Y-%m-%dT%H:%M:%SZ", &t);
    return end && !*end ? (double)timegm(&t) : NAN;
}
