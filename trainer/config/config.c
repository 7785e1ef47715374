// trainer/config/config.c: how a file's text becomes the values of the keys in trainer/config/keys.c.
#include "base/fault.h"
#include "trainer/config/table.h"

#include <errno.h>
#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

// --- one value -----------------------------------------------------------------------------------------------

// Fails with what was expected and what was found. The caller puts the place before it.
static err_t expected(const char *found, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static err_t expected(const char *found, const char *fmt, ...) {
    char show[INI_SHOW], what[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return err_set(ERR_CONFIG, "expected %s, found `%s`", what, ini_show(show, found, strlen(found)));
}

static err_t outside(const config_key *k, const char *text) {
    if (k->type == KEY_INT) return expected(text, "a whole number from %.0f to %.0f", k->min, k->max);
    return expected(text, "%s%sa number from %g to %g", k->words ? k->words : "", k->words ? " or " : "", k->min, k->max);
}

static const char *skip_digits(const char *p) {
    while (*p >= '0' && *p <= '9') p++;
    return p;
}

// Decimal digits, perhaps with a minus; no octal, no hexadecimal, no 1e6 and no 1_000: a number means what it looks
// like.
static err_t parse_int(const config_key *k, const char *text, int64_t *out) {
    const char *digits = text + (*text == '-'), *end = skip_digits(digits);
    if (end == digits || *end || (digits[0] == '0' && digits[1]))
        return expected(text, "a whole number in decimal, from %.0f to %.0f", k->min, k->max);
    errno = 0;
    long long v = strtoll(text, NULL, 10);
    if (errno || (double)v < k->min || (double)v > k->max) return outside(k, text);
    *out = v;
    return ERR_OK;
}

// [-] digits [. digits] [e [+-] digits] with at least one digit before the e.
static bool real_syntax(const char *p) {
    p += *p == '-';
    const char *whole = p, *part;
    p = part = skip_digits(p);
    if (*p == '.') p = skip_digits(part = p + 1);
    if (part == p && whole == skip_digits(whole)) return false;
    if (*p == 'e' || *p == 'E') {
        p += 1 + (p[1] == '-' || p[1] == '+');
        const char *power = p;
        p = skip_digits(p);
        if (p == power) return false;
    }
    return *p == 0;
}

static err_t parse_real(const config_key *k, const char *text, double *out) {
    if (k->words && strcmp(text, k->words) == 0) {
        *out = 0;
        return ERR_OK;
    }
    if (!real_syntax(text)) return outside(k, text);
    // The decimal point is a point in every locale.
    locale_t here = uselocale((locale_t)0), plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!plain) return err_set(ERR_INTERNAL, "no memory for the C locale");
    uselocale(plain);
    errno = 0;
    double v = strtod(text, NULL);
    int lost = errno;
    uselocale(here);
    freelocale(plain);
    if (lost || v < k->min || v > k->max) return outside(k, text);
    *out = v == 0 ? 0 : v;  // no -0
    return ERR_OK;
}

static err_t parse_word(const config_key *k, const char *text, int *out) {
    char word[CONFIG_WORD];
    for (int i = 0; config_word(k->words, i, word); i++) {
        *out = i;
        if (strcmp(word, text) == 0) return ERR_OK;
    }
    char show[INI_SHOW];
    config_nearest_word(text, k->words, word);
    return err_set(ERR_CONFIG, "no such value `%s`. Did you mean `%s`? (values: %s)", ini_show(show, text, strlen(text)), word,
                   k->words);
}

// A name goes into paths: no separators, nothing hidden, nothing that a shell would touch.
static err_t parse_name(const char *text, char dst[CONFIG_WORD]) {
    size_t n = strlen(text);
    bool good = n > 0 && n < CONFIG_WORD && text[0] != '.' && text[0] != '-';
    for (const char *p = text; good && *p; p++)
        good = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') || strchr("._-", *p);
    if (!good)
        return expected(text, "1 to %d letters, digits, dots, dashes and underscores, first no dot or dash", CONFIG_WORD - 1);
    memcpy(dst, text, n + 1);
    return ERR_OK;
}

// The printed form must fit into a line, so that the output of `lockstep config` can be read back.
static err_t parse_text(const config_key *k, const char *text, char dst[CONFIG_TEXT]) {
    enum { PRINTED = 900 };
    size_t n = 0;
    for (const char *p = text; *p; p++) n += 1 + (strchr("\n\t\\\"", *p) != NULL);
    if (n > PRINTED) return expected(text, "at most %d characters", PRINTED);
    if (n == 0 && k->min > 0) return expected(text, "some text");
    memcpy(dst, text, strlen(text) + 1);
    if (k->offset != offsetof(config, run.faults)) return ERR_OK;
    fault_list list;
    return fault_parse(&list, text);
}

static err_t parse_value(config *c, const config_key *k, const char *text) {
    void *at = (char *)c + k->offset;
    int which = 0;
    switch (k->type) {
    case KEY_INT: return parse_int(k, text, at);
    case KEY_REAL: return parse_real(k, text, at);
    case KEY_NAME: return parse_name(text, at);
    case KEY_TEXT: return parse_text(k, text, at);
    case KEY_WORD: return parse_word(k, text, at);
    case KEY_BOOL:
        TRY(parse_word(k, text, &which));
        *(bool *)at = which == 1;
    }
    return ERR_OK;
}

// --- files ---------------------------------------------------------------------------------------------------

static int find_key(const char *section, const char *key) {
    for (int i = 0; i < config_key_count; i++)
        if (strcmp(config_keys[i].section, section) == 0 && strcmp(config_keys[i].key, key) == 0) return i;
    return -1;
}

static err_t take_entry(config *c, int file, const ini_entry *e) {
    char place[INI_PLACE];
    ini_place(place, c->files[file - 1], e->line);
    if (!config_section(e->section)) return config_no_section(place, e);
    if (!e->key[0]) return ERR_OK;
    int i = find_key(e->section, e->key);
    if (i < 0) return config_no_key(place, e);
    if (parse_value(c, &config_keys[i], e->value) != ERR_OK) return err_prefix("%s: [%s] %s", place, e->section, e->key);
    c->origin[i] = (key_origin){.file = file, .line = e->line};
    return ERR_OK;
}

static err_t take_file(config *c, const char *path) {
    char place[INI_PLACE];
    ini_file *f;
    ini_place(place, path, 0);
    if (c->file_count == CONFIG_FILES_MAX) return err_set(ERR_CONFIG, "%s: more than %d files", place, CONFIG_FILES_MAX);
    if (strlen(path) >= CONFIG_TEXT) return err_set(ERR_CONFIG, "%s: the file's name is too long", place);
    memcpy(c->files[c->file_count++], path, strlen(path) + 1);
    TRY(ini_read(path, &f));
    err_t rc = ERR_OK;
    for (int i = 0; rc == ERR_OK && i < f->count; i++) rc = take_entry(c, c->file_count, &f->entry[i]);
    free(f);
    return rc;
}

err_t config_load(config *c, const char *const *files, int count) {
    memset(c, 0, sizeof *c);
    for (int i = 0; i < config_key_count; i++)
        if (parse_value(c, &config_keys[i], config_keys[i].fallback) != ERR_OK)
            return err_prefix("default: [%s] %s", config_keys[i].section, config_keys[i].key);
    for (int i = 0; i < count; i++) TRY(take_file(c, files[i]));
    return config_resolve(c);
}
