// trainer/config/nearest.c: suggestions for misspelled names. Edit distance (Damerau 1964: insert, delete, replace,
// swap neighbours; each place edited once) over the names in the table and the names of the same keys in other
// trainers.
#include "trainer/config/table.h"

#include <ctype.h>
#include <string.h>

enum { LISTED = 512 };

static int fold(char c) { return tolower((unsigned char)c); }

static int least(int a, int b) { return a < b ? a : b; }

// Ignores case, and everything after the first CONFIG_WORD-1 characters.
static int distance(const char *a, const char *b) {
    int n = (int)strnlen(a, CONFIG_WORD - 1), m = (int)strnlen(b, CONFIG_WORD - 1);
    int rows[3][CONFIG_WORD], *before = rows[0], *above = rows[1], *row = rows[2];  // rows i-2, i-1 and i of the table
    for (int j = 0; j <= m; j++) above[j] = j;
    for (int i = 1; i <= n; i++) {
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int replaced = above[j - 1] + (fold(a[i - 1]) != fold(b[j - 1]));
            row[j] = least(replaced, 1 + least(above[j], row[j - 1]));
            if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) && fold(a[i - 2]) == fold(b[j - 1])) row[j] = least(row[j], before[j - 2] + 1);
        }
        int *spare = before;
        before = above, above = row, row = spare;
    }
    return above[m];
}

// Near enough to be a typing error: one edit in three characters.
static bool near(const char *found, int edits) { return edits <= 1 || edits <= (int)strlen(found) / 3; }

static int distance_to_row(const char *found, const setting *k) {
    char word[CONFIG_WORD];
    int best = distance(found, k->key);
    for (int i = 0; config_word(k->also, i, word); i++) best = least(best, distance(found, word));
    return best;
}

// The nearest row, of this section or (NULL) of any.
static int nearest_row(const config *c, const char *found, const char *section, int *edits) {
    int best = -1;
    *edits = CONFIG_WORD + 1;
    for (int i = config_next(c, -1); i >= 0; i = config_next(c, i)) {
        if (section && strcmp(config_key(i)->section, section) != 0) continue;
        int d = distance_to_row(found, config_key(i));
        if (d >= *edits) continue;
        best = i;
        *edits = d;
    }
    return best;
}

void config_nearest_word(const char *found, const char *words, char dst[CONFIG_WORD]) {
    char word[CONFIG_WORD];
    int best = CONFIG_WORD + 1;
    for (int i = 0; config_word(words, i, word); i++) {
        int d = distance(found, word);
        if (d >= best) continue;
        best = d;
        memcpy(dst, word, CONFIG_WORD);
    }
}

static void add_word(char dst[LISTED], const char *fmt, const char *word) {
    size_t n = strlen(dst);
    snprintf(dst + n, LISTED - n, fmt, n ? " " : "", word);
}

err_t config_no_section(const char *place, const ini_entry *e) {
    char all[LISTED] = "";
    const char *nearest = "";
    int best = CONFIG_WORD + 1;
    for (int i = 0; i < config_keys(); i++) {
        const char *section = config_key(i)->section;
        if (i > 0 && strcmp(section, config_key(i - 1)->section) == 0) continue;
        add_word(all, "%s%s", section);
        int d = distance(e->section, section);
        if (d < best) best = d, nearest = section;
    }
    return err_set(ERR_CONFIG, "%s: [%s]: no such section. Did you mean [%s]? (sections: %s)", place, e->section, nearest, all);
}

// The sections that have a key of exactly this name.
static void sections_with(const config *c, const char *key, char dst[LISTED]) {
    dst[0] = 0;
    for (int i = config_next(c, -1); i >= 0; i = config_next(c, i))
        if (strcmp(config_key(i)->key, key) == 0) add_word(dst, "%s[%s]", config_key(i)->section);
}

err_t config_no_key(const config *c, const char *place, const ini_entry *e) {
    char hint[LISTED], elsewhere[LISTED], all[LISTED] = "", show[INI_SHOW];
    int edits_here, edits_any;
    int here = nearest_row(c, e->key, e->section, &edits_here), any = nearest_row(c, e->key, NULL, &edits_any);
    sections_with(c, e->key, elsewhere);
    if (elsewhere[0] && edits_here > 0) snprintf(hint, sizeof hint, "`%s` is a key of %s.", e->key, elsewhere);
    else if (near(e->key, edits_here)) snprintf(hint, sizeof hint, "Did you mean `%s`?", config_key(here)->key);
    else if (near(e->key, edits_any)) snprintf(hint, sizeof hint, "Did you mean `%s` of [%s]?", config_key(any)->key, config_key(any)->section);
    else snprintf(hint, sizeof hint, "The nearest is `%s`.", config_key(here)->key);
    for (int i = config_next(c, -1); i >= 0; i = config_next(c, i))
        if (strcmp(config_key(i)->section, e->section) == 0) add_word(all, "%s%s", config_key(i)->key);
    return err_set(ERR_CONFIG, "%s: [%s] %s: no such key. %s (keys: %s; its value here: `%s`)", place, e->section, e->key, hint, all,
                   ini_show(show, e->value, strlen(e->value)));
}
