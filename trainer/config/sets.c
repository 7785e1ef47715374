// trainer/config/sets.c: see trainer/config/sets.h.
#include "trainer/config/sets.h"

#include <stdio.h>
#include <string.h>

#define BLANKS " \t"
static const char LETTERS[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";

static const char *skip(const char *at) { return at + strspn(at, BLANKS); }

static err_t read_name(const char *at, size_t n, eval_set *s) {
    size_t letters = strspn(at, LETTERS);
    const char *colon = at + letters + strspn(at + letters, BLANKS);
    if (!letters || *colon != ':')
        return err_set(ERR_CONFIG,
                       "`%.*s`: expected a name of letters, digits, _ and -, a colon and files, such as code: "
                       "datasets/code-val-*.bin",
                       n > 60 ? 60 : (int)n, at);
    if (letters >= SET_NAME)
        return err_set(ERR_CONFIG, "%.*s: a name has %d letters at most", letters > 60 ? 60 : (int)letters, at,
                       SET_NAME - 1);
    snprintf(s->name, sizeof s->name, "%.*s", (int)letters, at);
    return ERR_OK;
}

// From `at`, of n letters, up to the comma or the end.
static err_t read_set(const char *at, size_t n, eval_set *s) {
    TRY(read_name(at, n, s));
    const char *files = skip(strchr(at, ':') + 1), *end = at + n;
    while (end > files && strchr(BLANKS, end[-1])) end--;
    if (files >= end) return err_set(ERR_CONFIG, "%s: expected files or globs after the colon", s->name);
    snprintf(s->files, sizeof s->files, "%.*s", (int)(end - files), files);
    return ERR_OK;
}

err_t sets_parse(eval_sets *s, const char *text) {
    *s = (eval_sets){0};
    for (const char *at = skip(text); *at;) {
        eval_set next = {0};
        size_t n = strcspn(at, ",");
        if (s->count == SETS_MOST) return err_set(ERR_CONFIG, "there are more than %d sets", SETS_MOST);
        TRY(read_set(at, n, &next));
        if (sets_find(s, next.name) >= 0) return err_set(ERR_CONFIG, "there are two sets %s", next.name);
        s->at[s->count++] = next;
        at += n;
        if (*at == ',' && !*(at = skip(at + 1))) return err_set(ERR_CONFIG, "a set is missing after the last comma");
    }
    return ERR_OK;
}

int sets_find(const eval_sets *s, const char *name) {
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->at[i].name, name) == 0) return i;
    return -1;
}

const char *sets_names(const eval_sets *s, char dst[SETS_NAMES]) {
    size_t used = 0;
    *dst = 0;
    for (int i = 0; i < s->count; i++)
        used += (size_t)snprintf(dst + used, SETS_NAMES - used, "%s%s",
                                 i == 0             ? ""
                                 : i < s->count - 1 ? ", "
                                                    : " or ",
                                 s->at[i].name);
    return dst;
}
