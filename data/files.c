// data/files.c: see data/files.h. The order of samples follows from the order of files, so that it may not depend on the locale, nor on how
// often a file is named.
#include "data/files.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

// *g = all files that the patterns match.
static err_t expand(glob_t *g, const char *patterns, const char *hint) {
    const char *p = patterns ? patterns : "";
    for (;;) {
        p += strspn(p, " \t");
        size_t n = strcspn(p, " \t");
        if (n == 0) break;
        char *pattern = strndup(p, n);
        if (!pattern) return err_set(ERR_INTERNAL, "no memory for a list of files");
        int rc = glob(pattern, g->gl_pathc ? GLOB_APPEND : 0, NULL, g);
        free(pattern);
        if (rc == GLOB_NOSPACE) return err_set(ERR_INTERNAL, "no memory for a list of files");
        if (rc == GLOB_ABORTED) return err_set(ERR_IO, "%.*s: a directory in it can't be read", (int)n, p);
        if (rc == GLOB_NOMATCH) return err_set(ERR_CONFIG, "no file matches \"%.*s\". %s", (int)n, p, hint);
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

err_t files_expand(file_list *out, const char *patterns, const char *hint) {
    TRY(expand(&out->found, patterns, hint));
    out->count = sort_unique(&out->found);
    out->path = out->found.gl_pathv;
    return ERR_OK;
}

void files_free(file_list *l) {
    globfree(&l->found);
    *l = (file_list){0};
}
