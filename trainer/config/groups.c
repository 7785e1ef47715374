// trainer/config/groups.c: see trainer/config/groups.h.
#include "trainer/config/groups.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP_WORD = 64 };

// The next word up to a space or one of `ends` into dst. Returns where it ends; NULL: it is too long.
static const char *next_word(const char *at, const char *ends, char *dst, size_t size) {
    char stop[16];
    at += strspn(at, " \t");
    snprintf(stop, sizeof stop, " \t%s", ends);
    size_t n = strcspn(at, stop);
    if (n >= size) return NULL;
    memcpy(dst, at, n), dst[n] = 0;
    return at + n;
}

static const char *skip(const char *at) { return at + strspn(at, " \t"); }

// A number of a word "name=number".
static err_t read_number(const char *word, const char *name, double least, double most, double *to) {
    const char *value = strchr(word, '=') + 1;
    char *end;
    *to = strtod(value, &end);
    if (end == value || *end || !(*to >= least && *to <= most))
        return err_set(ERR_CONFIG, "%s: expected %s and a number, %g to %g", word, name, least, most);
    return ERR_OK;
}

static err_t read_type(const char *word, param_group *g) {
    const char *value = word + strlen("type=");
    if (strcmp(value, "adamw") == 0) return g->type = OPTIMIZER_ADAMW, ERR_OK;
    if (strcmp(value, "muon") == 0) return g->type = OPTIMIZER_MUON, ERR_OK;
    return err_set(ERR_CONFIG,
                   "%s: the parameters of a run may be updated by adamw and by muon side by side: expected type=adamw "
                   "or type=muon",
                   word);
}

static err_t read_rule(const char *word, param_group *g) {
    if (strncmp(word, "lr=", 3) == 0) {
        TRY(read_number(word, "lr=", 0, 1000, &g->lr));
        return g->lr > 0 ? ERR_OK : err_set(ERR_CONFIG, "lr=0 trains nothing: frozen says so, and takes no memory");
    }
    if (strncmp(word, "decay=", 6) == 0) return read_number(word, "decay=", 0, 100, &g->decay);
    if (strncmp(word, "type=", 5) == 0) return read_type(word, g);
    if (strcmp(word, "frozen") == 0) return g->frozen = true, ERR_OK;
    return err_set(ERR_CONFIG,
                   "`%s` is no rule of a group: expected lr=FACTOR, decay=NUMBER, type=adamw, type=muon or frozen",
                   word);
}

// Reads up to the colon, and goes on after it.
static err_t read_globs(const char **at, param_group *g) {
    size_t used = 0;
    char word[GROUP_GLOB];
    const char *from = *at;
    for (*at = skip(*at); **at && **at != ':' && **at != ','; *at = skip(*at)) {
        if (!(*at = next_word(*at, ":,", word, sizeof word)) || used + (used > 0) + strlen(word) >= sizeof g->globs)
            return err_set(ERR_CONFIG, "%.40s...: the globs of a group have %d letters at most", from, GROUP_GLOB - 1);
        used += (size_t)snprintf(g->globs + used, sizeof g->globs - used, "%s%s", used ? " " : "", word);
    }
    if (**at != ':' || !used)
        return err_set(ERR_CONFIG,
                       "`%.*s`: expected a name with * for any letters, a colon and rules, such as *.bias: lr=0.5",
                       (int)(*at - from), from);
    return ++*at, ERR_OK;
}

static err_t read_group(const char **at, param_group *g) {
    int rules = 0;
    char word[GROUP_WORD];
    *g = (param_group){.lr = 1, .decay = -1, .type = -1};
    TRY(read_globs(at, g));
    for (*at = skip(*at); **at && **at != ','; *at = skip(*at), rules++) {
        const char *from = *at;
        if (!(*at = next_word(*at, ",", word, sizeof word)))
            return err_set(ERR_CONFIG, "%.40s...: a rule has %d letters at most", from, GROUP_WORD - 1);
        TRY(read_rule(word, g));
    }
    if (!rules) return err_set(ERR_CONFIG, "%s: expected rules after the colon, such as lr=0.1 or frozen", g->globs);
    if (g->frozen && (rules > 1)) return err_set(ERR_CONFIG, "%s: frozen parameters have no other rules", g->globs);
    return ERR_OK;
}

err_t groups_parse(param_groups *g, const char *text) {
    *g = (param_groups){0};
    for (const char *at = skip(text); *at;) {
        if (g->count == GROUPS_MOST) return err_set(ERR_CONFIG, "there are more than %d groups", GROUPS_MOST);
        TRY(read_group(&at, &g->at[g->count++]));
        if (*at == ',' && !*skip(++at)) return err_set(ERR_CONFIG, "a group is missing after the last comma");
    }
    return ERR_OK;
}

bool group_next_glob(const char **at, char dst[GROUP_GLOB]) {
    if (!*skip(*at)) return false;
    *at = next_word(*at, "", dst, GROUP_GLOB);
    return true;
}

int groups_find(const param_groups *g, const char *name) {
    char glob[GROUP_GLOB];
    for (int i = 0; i < g->count; i++)
        for (const char *at = g->at[i].globs; group_next_glob(&at, glob);)
            if (fnmatch(glob, name, 0) == 0) return i;
    return -1;
}

bool groups_have(const char *text, optimizer_kind type) {
    param_groups g;
    if (groups_parse(&g, text) != ERR_OK) return false;  // which was refused where the file was read
    for (int i = 0; i < g.count; i++)
        if (g.at[i].type == (int)type) return true;
    return false;
}

bool groups_frozen(const param_groups *g, char *dst, size_t size) {
    char glob[GROUP_GLOB];
    size_t used = 0;
    bool any = false;
    for (int i = 0; i < g->count; i++) any |= g->at[i].frozen;
    *dst = 0;
    for (int i = 0; any && i < g->count; i++)
        for (const char *at = g->at[i].globs; group_next_glob(&at, glob);) {
            int n = snprintf(dst + used, size - used, "%s%c%s", used ? " " : "", g->at[i].frozen ? '-' : '+', glob);
            if (n < 0 || (size_t)n >= size - used) return false;
            used += (size_t)n;
        }
    return true;
}
