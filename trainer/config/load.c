// trainer/config/load.c: how a file's text becomes the values of the keys in trainer/config/keys.c.
#include "base/fault.h"
#include "trainer/config/nodes_of.h"
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

static err_t outside(const setting *k, const char *text) {
    if (k->type == KEY_INT) return expected(text, "a whole number from %.0f to %.0f", k->min, k->max);
    return expected(text, "%s%sa number from %g to %g", k->words ? k->words : "", k->words ? " or " : "", k->min,
                    k->max);
}

static const char *skip_digits(const char *p) {
    while (*p >= '0' && *p <= '9') p++;
    return p;
}

// Decimal digits, perhaps with a minus; no octal, no hexadecimal, no 1e6 and no 1_000: a number means what it looks
// like.
static err_t parse_int(const setting *k, const char *text, int64_t *out) {
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

static err_t parse_real(const setting *k, const char *text, double *out) {
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

// [parallel] offload was yes or no, when there was one place to offload to.
static const char *offload_word(const char *text) {
    return strcmp(text, "no") == 0 ? "none" : strcmp(text, "yes") == 0 ? "host" : text;
}

static err_t parse_word(const setting *k, const char *text, int *out) {
    char word[CONFIG_WORD];
    for (int i = 0; config_word(k->words, i, word); i++) {
        *out = i;
        if (strcmp(word, text) == 0) return ERR_OK;
    }
    return config_no_value(k, text);
}

// A name goes into paths: no separators, nothing hidden, nothing that a shell would touch.
static err_t parse_name(const char *text, char dst[CONFIG_WORD]) {
    size_t n = strlen(text);
    bool good = n > 0 && n < CONFIG_WORD && text[0] != '.' && text[0] != '-';
    for (const char *p = text; good && *p; p++)
        good = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') || strchr("._-", *p);
    if (!good)
        return expected(text, "1 to %d letters, digits, dots, dashes and underscores, first no dot or dash",
                        CONFIG_WORD - 1);
    memcpy(dst, text, n + 1);
    return ERR_OK;
}

// The printed form must fit into a line, so that the output of `lockstep config` can be read back.
enum { PRINTED = 900 };
static err_t parse_text(const setting *k, const char *text, char dst[CONFIG_TEXT]) {
    size_t n = 0;
    for (const char *p = text; *p; p++) n += 1 + (strchr("\n\t\\\"", *p) != NULL);
    if (n > PRINTED) return expected(text, "at most %d characters", PRINTED);
    if (n == 0 && k->min > 0) return expected(text, "some text");
    memcpy(dst, text, strlen(text) + 1);
    return ERR_OK;
}

static err_t parse_value(config *c, int row, const char *text) {
    const setting *k = config_key(row);
    void *at = config_at(c, row);
    int which = 0;
    switch (k->type) {
    case KEY_INT: return parse_int(k, text, at);
    case KEY_REAL: return parse_real(k, text, at);
    case KEY_NAME: return parse_name(text, at);
    case KEY_TEXT:
        TRY(parse_text(k, text, at));
        if (row == config_row(offsetof(config, cluster.nodes))) return nodes_of(at, PRINTED);
        return row == config_row(offsetof(config, run.faults)) ? fault_parse(&(fault_list){0}, text) : ERR_OK;
    case KEY_WORD:
        if (row == config_row(offsetof(config, parallel.offload))) text = offload_word(text);
        return parse_word(k, text, at);
    case KEY_BOOL: TRY(parse_word(k, text, &which)); *(bool *)at = which == 1;
    }
    return ERR_OK;
}

// --- files ---------------------------------------------------------------------------------------------------

// Where settings come from.
typedef struct sources {
    const char *const *files, *const *overrides;
    int count, override_count;
    const model_alias *family;  // the word of [model] type, once it is read; NULL: an architecture's own name
} sources;

static err_t set_key(config *c, int file, const ini_entry *e) {
    char place[INI_PLACE];
    key_origin from = {.file = file, .line = e->line};
    config_origin(c, from, place);
    if (!config_section(e->section)) return config_no_section(place, e);
    if (!e->key[0]) return ERR_OK;
    int i = config_find(c, e->section, e->key);
    if (i < 0) return config_no_key(c, place, e);
    if (parse_value(c, i, e->value) != ERR_OK) return err_prefix("%s: [%s] %s", place, e->section, e->key);
    c->origin[i] = from;
    return ERR_OK;
}

static bool is_type(const ini_entry *e) { return strcmp(e->section, "model") == 0 && strcmp(e->key, "type") == 0; }

// A family stands for an architecture and for what it implies.
static err_t set_type(config *c, sources *s, int file, const ini_entry *e) {
    int type;
    ini_entry own = *e;
    s->family = config_family(e->value, &type);
    if (s->family) snprintf(own.value, sizeof own.value, "%s", model_types[type]->name);
    return set_key(c, file, &own);
}

// All but the architecture, which find_type has taken.
static err_t set_from_file(config *c, int file, const ini_file *f) {
    for (int i = 0; i < f->count; i++)
        if (!is_type(&f->entry[i])) TRY(set_key(c, file, &f->entry[i]));
    return ERR_OK;
}

static err_t read_file(config *c, const char *path, ini_file **f) {
    char place[INI_PLACE];
    ini_place(place, path, 0);
    if (c->file_count == CONFIG_FILES_MAX)
        return err_set(ERR_CONFIG, "%s: more than %d files", place, CONFIG_FILES_MAX);
    if (strlen(path) >= CONFIG_TEXT) return err_set(ERR_CONFIG, "%s: the file's name is too long", place);
    memcpy(c->files[c->file_count++], path, strlen(path) + 1);
    return ini_read(path, f);
}

// --- the command line ------------------------------------------------------------------------------------------------

static bool copy_name(char dst[INI_NAME], const char *from, const char *end) {
    size_t n = (size_t)(end - from);
    if (n == 0 || n >= INI_NAME) return false;
    for (const char *p = from; p < end; p++)
        if (!(*p >= 'a' && *p <= 'z') && !(*p >= 'A' && *p <= 'Z') && !(*p >= '0' && *p <= '9') && *p != '_')
            return false;
    memcpy(dst, from, n);
    dst[n] = 0;
    return true;
}

// "section.key=value". A value may hold what a quoted one of a file may.
static err_t parse_override(const char *text, int number, ini_entry *e) {
    char show[INI_SHOW];
    const char *equals = strchr(text, '='), *dot = equals ? memchr(text, '.', (size_t)(equals - text)) : NULL;
    *e = (ini_entry){.line = number};
    if (!dot || !copy_name(e->section, text, dot) || !copy_name(e->key, dot + 1, equals))
        return err_set(ERR_CONFIG, "command line: -o `%s`: expected section.key=value, such as run.steps=100",
                       ini_show(show, text, strlen(text)));
    size_t n = strlen(equals + 1);
    bool plain = n <= INI_LINE;
    for (const char *p = equals + 1; plain && *p; p++)
        plain = *p == '\n' || *p == '\t' || ((unsigned char)*p >= ' ' && *p != 127);
    if (!plain)
        return err_set(ERR_CONFIG, "command line: [%s] %s: expected at most %d bytes of plain text, found `%s`",
                       e->section, e->key, INI_LINE, ini_show(show, equals + 1, n));
    memcpy(e->value, equals + 1, n + 1);
    return ERR_OK;
}

// Those that are the architecture, or all others.
static err_t set_from_overrides(config *c, sources *s, bool types) {
    ini_entry e;
    for (int i = 0; i < s->override_count; i++) {
        TRY(parse_override(s->overrides[i], i + 1, &e));
        if (is_type(&e) != types) continue;
        TRY(types ? set_type(c, s, ORIGIN_COMMAND_LINE, &e) : set_key(c, ORIGIN_COMMAND_LINE, &e));
    }
    return ERR_OK;
}

// --- all of it -------------------------------------------------------------------------------------------------------

// The architecture of the last file that names one decides which keys there are, so it is looked for first.
static err_t find_type(config *c, sources *s, ini_file *const *f) {
    for (int k = 0; k < c->file_count; k++)
        for (int i = 0; i < f[k]->count; i++)
            if (is_type(&f[k]->entry[i])) TRY(set_type(c, s, k + 1, &f[k]->entry[i]));
    return ERR_OK;
}

// What the family implies for a key, "": nothing.
static void implied(const model_alias *family, const setting *k, char dst[CONFIG_WORD]) {
    char word[CONFIG_WORD];
    size_t n = strlen(k->key);
    *dst = 0;
    if (!family || strcmp(k->section, "model") != 0) return;
    for (int i = 0; config_word(family->implies, i, word); i++)
        if (strncmp(word, k->key, n) == 0 && word[n] == '=') strcpy(dst, word + n + 1);
}

static err_t set_defaults(config *c, const model_alias *family) {
    int type = config_row(offsetof(config, model.type));
    for (int i = config_next(c, -1); i >= 0; i = config_next(c, i)) {
        const setting *k = config_key(i);
        char value[CONFIG_WORD];
        if (c->origin[i].file) continue;
        implied(family, k, value);
        if (parse_value(c, i, *value ? value : k->fallback) != ERR_OK)
            return err_prefix("default: [%s] %s", k->section, k->key);
        if (*value)
            c->origin[i] =
                (key_origin){.file = c->origin[type].file, .line = c->origin[type].line, .family = family->name};
    }
    if (family) c->origin[type].family = family->name;
    return ERR_OK;
}

static err_t load(config *c, ini_file **f, sources *s) {
    for (int k = 0; k < s->count; k++) TRY(read_file(c, s->files[k], k < CONFIG_FILES_MAX ? &f[k] : NULL));
    TRY(find_type(c, s, f));
    TRY(set_from_overrides(c, s, true));
    TRY(set_defaults(c, s->family));
    for (int k = 0; k < s->count; k++) TRY(set_from_file(c, k + 1, f[k]));
    TRY(set_from_overrides(c, s, false));
    return config_resolve(c);
}

err_t config_load_with(config *c, const char *const *files, int count, const char *const *overrides, int n) {
    ini_file *f[CONFIG_FILES_MAX] = {0};
    memset(c, 0, sizeof *c);
    err_t rc = load(c, f, &(sources){.files = files, .count = count, .overrides = overrides, .override_count = n});
    for (int k = 0; k < CONFIG_FILES_MAX; k++) free(f[k]);
    return rc;
}

err_t config_load(config *c, const char *const *files, int count) { return config_load_with(c, files, count, NULL, 0); }

err_t config_rename(config *c, const char *name) {
    return parse_name(name, c->run.name) == ERR_OK ? ERR_OK : err_prefix("[run] name");
}

bool config_given(const config *c, const char *section, const char *key, int after) {
    int row = config_find(c, section, key);
    return row >= 0 && c->origin[row].file > after;
}

err_t config_blame(const config *c, const char *section, const char *key) {
    char place[INI_PLACE];
    int row = config_find(c, section, key);
    bool set = row >= 0 && c->origin[row].file;
    return err_prefix("%s%s[%s] %s", set ? config_place(c, row, place) : "", set ? ": " : "", section, key);
}

// --- values of a checkpoint ------------------------------------------------------------------------------------------

bool config_follows_steps(const config *c, const char *key) {
    int row = strcmp(key, "schedule.warmup") == 0        ? config_row(offsetof(config, schedule.warmup))
              : strcmp(key, "schedule.decay_steps") == 0 ? config_row(offsetof(config, schedule.decay_steps))
                                                         : -1;
    return row >= 0 && c->origin[row].chosen;
}

err_t config_adopt(config *c, const char *key, const char *value) {
    char section[CONFIG_WORD];
    const char *dot = strchr(key, '.');
    snprintf(section, sizeof section, "%.*s", dot ? (int)(dot - key) : 0, key);
    int row = dot ? config_find(c, section, dot + 1) : -1;
    if (row < 0) return err_set(ERR_INTERNAL, "%s: no such key", key);
    if (parse_value(c, row, value) != ERR_OK) return err_prefix("%s of the checkpoint", key);
    void *at = config_at(c, row), *in_force = config_in_force(c, row);
    if (in_force != at) *(int64_t *)in_force = *(int64_t *)at;
    return ERR_OK;
}
