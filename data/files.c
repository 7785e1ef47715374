// data/files.c: see data/files.h. The order of samples follows from the order of files, so that it may not depend on
// the locale, nor on how often a file is named.
#include "data/files.h"

#include "base/io.h"

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

// Does the pattern stand for files whose names are PREFIX-...? "" begins all names.
static bool begins_with(const char *pattern, const char *prefix) {
    if (!prefix || !*prefix) return prefix;
    while (strncmp(pattern, "./", 2) == 0) pattern += 2;
    while (strncmp(prefix, "./", 2) == 0) prefix += 2;
    size_t n = strlen(prefix);
    return strncmp(pattern, prefix, n) == 0 && strchr("-*?[", pattern[n]);
}

// The directory in which the pattern looks, as far as its name has no wildcards, and whether it is there.
static err_t no_match(const char *pattern, files_hint hint) {
    char here[PATH_MAX], in[IO_PATH] = "";
    struct stat st;
    bool absolute = *pattern == '/';
    size_t n = strcspn(pattern, "*?[\\");
    while (n > 0 && pattern[n - 1] != '/') n--;
    if (!absolute && !getcwd(here, sizeof here)) strcpy(here, ".");
    TRY(io_path(in, "%s%s%.*s", absolute ? "" : here, absolute ? "" : "/", (int)n, pattern));
    size_t m = strlen(in);
    if (m > 1) in[m - 1] = 0;  // the last slash
    const char *text =
        begins_with(pattern, hint.prefix) ? hint.text
        : absolute                        ? "Mend the name"
                   : "Names begin at the directory that lockstep is started in: start it elsewhere, or mend the name";
    if (stat(in, &st) != 0)
        return err_set(ERR_CONFIG, "no file matches \"%s\": there is no directory %s. %s", pattern, in, text);
    return err_set(ERR_CONFIG, "no file matches \"%s\" in %s. %s", pattern, in, text);
}

// *g = all files that the patterns match.
static err_t expand(glob_t *g, const char *patterns, files_hint hint) {
    const char *p = patterns ? patterns : "";
    for (;;) {
        p += strspn(p, " \t");
        size_t n = strcspn(p, " \t");
        if (n == 0) break;
        char *pattern = strndup(p, n);
        if (!pattern) return err_set(ERR_INTERNAL, "no memory for a list of files");
        int rc = glob(pattern, g->gl_pathc ? GLOB_APPEND : 0, NULL, g);
        err_t found = rc == GLOB_NOMATCH ? no_match(pattern, hint) : ERR_OK;
        free(pattern);
        TRY(found);
        if (rc == GLOB_NOSPACE) return err_set(ERR_INTERNAL, "no memory for a list of files");
        if (rc == GLOB_ABORTED) return err_set(ERR_IO, "%.*s: a directory in it can't be read", (int)n, p);
        p += n;
    }
    if (g->gl_pathc == 0) return err_set(ERR_CONFIG, "[data] train, val: empty, expected the names of files");
    if (g->gl_pathc > INT32_MAX) return err_set(ERR_CONFIG, "[data] train, val: more than %d files", INT32_MAX);
    return ERR_OK;
}

// Two patterns may match the same file.
static int sort_unique(glob_t *g) {
    size_t kept = 0;
    qsort(g->gl_pathv, g->gl_pathc, sizeof *g->gl_pathv, by_bytes);
    for (size_t i = 0; i < g->gl_pathc; i++) {
        char *path = g->gl_pathv[i];
        if (kept > 0 && strcmp(g->gl_pathv[kept - 1], path) == 0) continue;
        g->gl_pathv[i] = g->gl_pathv[kept];  // swapped, so that globfree() still finds all
        g->gl_pathv[kept++] = path;
    }
    return (int)kept;
}

err_t files_expand(file_list *out, const char *patterns, files_hint hint) {
    TRY(expand(&out->found, patterns, hint));
    out->count = sort_unique(&out->found);
    out->path = out->found.gl_pathv;
    return ERR_OK;
}

void files_free(file_list *l) {
    globfree(&l->found);
    *l = (file_list){0};
}
