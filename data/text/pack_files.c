// data/text/pack_files.c: see data/text/pack_files.h.
#include "data/text/pack_files.h"

#include "base/io.h"
#include "data/text/document.h"
#include "data/text/inflate.h"
#include "data/text/stories.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SNIFF = 8192 };

static err_t add_source(pack_files *p, pack_kind kind, const char *path, int64_t size, bool line_open) {
    if (p->count == p->room) {
        int64_t room = p->room ? 2 * p->room : 64;
        pack_file *files = realloc(p->at, (size_t)room * sizeof *files);
        if (!files) return err_set(ERR_INTERNAL, "no memory for a list of %" PRId64 " files", room);
        p->at = files;
        p->room = room;
    }
    char *copy = strdup(path);
    if (!copy) return err_set(ERR_INTERNAL, "no memory for a list of files");
    p->at[p->count++] = (pack_file){copy, size, kind, line_open};
    return ERR_OK;
}

// Binary: a NUL byte is in its first n bytes, or it is compressed. With a tokenizer, and of JSONL, what is gzip or zstd
// is text; what is compressed in another way and was named is taken too, so that opening it says what is wrong.
static bool is_binary(const pack_files *p, pack_kind kind, const char *head, size_t n, bool named) {
    packing how = packing_of(head, n);
    if (how == PACKING_NONE) return memchr(head, 0, n) != NULL;
    return (!p->t_wanted && kind != PACK_JSONL) || (!named && how != PACKING_GZIP && how != PACKING_ZSTD);
}

// Takes the file unless it is empty or binary. named: not found in a directory.
static err_t add_file(pack_files *p, const char *path, bool named) {
    char head[SNIFF], last = 0;
    struct stat st;
    err_t rc = ERR_OK;
    pack_kind kind = document_names_jsonl(path) ? PACK_JSONL : PACK_PLAIN;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return err_set(ERR_IO, "%s: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0) TRY_GOTO(err_set(ERR_IO, "%s: %s", path, strerror(errno)), out);
    if (!S_ISREG(st.st_mode) || st.st_size == 0) {
        p->skipped++;
        goto out;
    }
    size_t n = st.st_size < SNIFF ? (size_t)st.st_size : SNIFF;
    TRY_GOTO(io_read_at(fd, path, 0, head, n), out);
    TRY_GOTO(io_read_at(fd, path, st.st_size - 1, &last, 1), out);
    if (is_binary(p, kind, head, n, named)) p->skipped++;
    else rc = add_source(p, kind, path, st.st_size, kind == PACK_PLAIN && last != '\n');
out:
    close(fd);
    return rc;
}

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }
static int not_hidden(const struct dirent *e) { return e->d_name[0] != '.'; }
static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

// A directory, recursively. Links are not followed: they may form a circle, or lead out of the directory.
static err_t add_tree(pack_files *p, const char *dir) {
    struct dirent **names;
    int n = scandir(dir, &names, not_hidden, by_name);
    if (n < 0) return err_set(ERR_IO, "%s: %s", dir, strerror(errno));
    err_t rc = ERR_OK;
    const char *slash = dir[strlen(dir) - 1] == '/' ? "" : "/";
    for (int i = 0; i < n; i++) {
        char path[IO_PATH];
        struct stat st;
        if (rc == ERR_OK) rc = io_path(path, "%s%s%s", dir, slash, names[i]->d_name);
        free(names[i]);
        if (rc != ERR_OK) continue;
        if (lstat(path, &st) != 0) rc = err_set(ERR_IO, "%s: %s", path, strerror(errno));
        else if (S_ISDIR(st.st_mode)) rc = add_tree(p, path);
        else if (S_ISREG(st.st_mode)) rc = add_file(p, path, false);
        else p->skipped++;
    }
    free(names);
    return rc;
}

// A path that was named is taken, also if it is a link.
static err_t add_named(pack_files *p, const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) return err_set(ERR_CONFIG, "[pack] input: %s: %s", path, strerror(errno));
    return S_ISDIR(st.st_mode) ? add_tree(p, path) : add_file(p, path, true);
}

static err_t add_pattern(pack_files *p, const char *pattern) {
    glob_t g = {0};
    err_t rc = ERR_OK;
    bool tells;
    uint64_t seed;
    int64_t size;
    if (stories_parse(pattern, &tells, &seed, &size) != ERR_OK) return err_prefix("[pack] input");
    if (tells) return add_source(p, PACK_STORIES, pattern, size, true);
    int found = glob(pattern, GLOB_NOSORT, NULL, &g);
    if (found == GLOB_NOMATCH) return err_set(ERR_CONFIG, "[pack] input: no file matches \"%s\"", pattern);
    if (found != 0)
        return err_set(found == GLOB_NOSPACE ? ERR_INTERNAL : ERR_IO, "[pack] input: \"%s\" can't be expanded",
                       pattern);
    qsort(g.gl_pathv, g.gl_pathc, sizeof *g.gl_pathv, by_bytes);
    for (size_t i = 0; i < g.gl_pathc && rc == ERR_OK; i++) rc = add_named(p, g.gl_pathv[i]);
    globfree(&g);
    return rc;
}

err_t pack_files_find(pack_files *p, const char *input, bool t_wanted) {
    *p = (pack_files){.t_wanted = t_wanted};
    for (const char *at = input;;) {
        at += strspn(at, " \t");
        size_t n = strcspn(at, " \t");
        if (n == 0) break;
        char *pattern = strndup(at, n);
        if (!pattern) return err_set(ERR_INTERNAL, "no memory for a list of files");
        err_t rc = add_pattern(p, pattern);
        free(pattern);
        TRY(rc);
        at += n;
    }
    if (p->count == 0)
        return err_set(
            ERR_CONFIG,
            "[pack] input = %s: no text in it (%" PRId64
            " files skipped: empty, binary or links). Of pictures, say how they come: [pack] images = folders",
            input, p->skipped);
    p->at[p->count - 1].line_open = false;
    return ERR_OK;
}

void pack_files_free(pack_files *p) {
    for (int64_t i = 0; i < p->count; i++) free(p->at[i].path);
    free(p->at);
    *p = (pack_files){0};
}
