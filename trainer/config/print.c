// trainer/config/print.c: prints the configuration as text: for people, config.ini, checkpoints and other ranks.
#include "trainer/config/table.h"

#include <inttypes.h>
#include <locale.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 36 };  // column of the comments

// The shortest decimal text that reads back as the same double.
static void print_real(double v, char *dst, size_t room) {
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0), here = plain ? uselocale(plain) : (locale_t)0;
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(dst, room, "%.*g", digits, v);
        if (strtod(dst, NULL) == v) break;
    }
    if (!plain) return;
    uselocale(here);
    freelocale(plain);
}

static void print_text(const char *text, char *dst) {
    static const char special[] = "\n\t\\\"", letter[] = "nt\\\"";
    for (; *text; text++) {
        const char *s = strchr(special, *text);
        if (s) *dst++ = '\\';
        *dst++ = s ? letter[s - special] : *text;
    }
    *dst = 0;
}

void config_value(const config *c, int i, char dst[CONFIG_VALUE]) {
    const setting *k = config_key(i);
    const void *at = config_in_force((config *)c, i);
    switch (k->type) {
    case KEY_INT: snprintf(dst, CONFIG_VALUE, "%" PRId64, *(const int64_t *)at); break;
    case KEY_REAL:
        if (k->words && *(const double *)at == 0) snprintf(dst, CONFIG_VALUE, "%s", k->words);
        else print_real(*(const double *)at, dst, CONFIG_VALUE);
        break;
    case KEY_BOOL: snprintf(dst, CONFIG_VALUE, "%s", *(const bool *)at ? "yes" : "no"); break;
    case KEY_NAME:
    case KEY_TEXT: print_text(at, dst); break;
    case KEY_WORD: config_word(k->words, *(const int *)at, dst);
    }
}

const char *config_compute(const config *c, char dst[CONFIG_COMPUTE]) {
    snprintf(dst, CONFIG_COMPUTE, "%s%s", dtype_name(c->precision.compute),
             c->precision.products == PRODUCTS_BF16_PAIRS ? ", products bf16-pairs" : "");
    return dst;
}

const char *config_span(const config *c, char dst[CONFIG_SPAN]) {
    dst[0] = 0;
    if (c->resolved.span > 1)
        snprintf(dst, CONFIG_SPAN, " (spans of %" PRId64 " lanes of %" PRId64 ")", c->resolved.span, c->batch.micro);
    return dst;
}

// `key = value` as the file has it.
static int print_setting(const setting *k, const char *value, FILE *out) {
    const char *quote = k->type == KEY_TEXT ? "\"" : "";
    return fprintf(out, "%s = %s%s%s", k->key, quote, value, quote);
}

static bool opens_section(int i) { return i == 0 || strcmp(config_key(i)->section, config_key(i - 1)->section) != 0; }

void config_print(const config *c, FILE *out) {
    static const char *const classes[] = {[CLASS_BITS] = "bits", [CLASS_LAYOUT] = "layout", [CLASS_LOCAL] = "local"};
    for (int i = config_next(c, -1); i >= 0; i = config_next(c, i)) {
        char value[CONFIG_VALUE], place[INI_PLACE];
        if (c->run.epochs > 0 && config_at((config *)c, i) == &c->run.steps) continue;  // not known yet
        config_value(c, i, value);
        if (opens_section(i)) fprintf(out, "%s[%s]\n", i ? "\n" : "", config_key(i)->section);
        int n = print_setting(config_key(i), value, out);
        // A comment after a long text could make the line longer than INI_LINE.
        if (n > INI_LINE / 2) fprintf(out, "\n%*s", WIDTH, "");
        else if (n < WIDTH) fprintf(out, "%*s", WIDTH - n, "");
        const char *chosen = c->origin[i].chosen ? ", chosen" : "", *family = c->origin[i].family;
        fprintf(out, " ; %-6s %s%s%s%s%s\n", classes[config_key(i)->class], config_place(c, i, place), chosen,
                family ? ", " : "", family ? family : "", family ? " implies" : "");
    }
}

static const char *const preface =
    "; lockstep: the default run, every key with its default.\n"
    "; `lockstep config FILE...` prints what is in force, and where each value came from.\n"
    ";\n"
    "; A line is `key = value` under its [section]. A comment starts with ; or # outside quotes and ends with the line.\n"
    "; Text with one of ; # \" \\ in it, or with spaces at an end, stands in quotes: \"...\" knows \\n \\t \\\\ and \\\",\n"
    "; '...' takes everything as it stands. Names are lower case, numbers are decimal and have no units.\n"
    "; A line has at most 1000 bytes and can't be continued. A key stands once in a file. Of several files the later\n"
    "; ones override the earlier ones, so that a file needs only what it changes.\n";

void config_print_defaults(FILE *out) {
    fputs(preface, out);
    for (int i = config_next(NULL, -1); i >= 0; i = config_next(NULL, i)) {
        const setting *k = config_key(i);
        char value[CONFIG_VALUE];
        if (opens_section(i)) fprintf(out, "\n; ---- %s\n[%s]\n", config_section(k->section), k->section);
        fprintf(out, "; %s", k->comment);
        if (k->type == KEY_WORD) fprintf(out, " (%s)", k->words);
        if (k->type == KEY_TEXT) print_text(k->fallback, value);
        else snprintf(value, sizeof value, "%s", k->fallback);
        fputc('\n', out);
        print_setting(k, value, out);
        fputc('\n', out);
    }
}

err_t config_each(const config *c, key_class class, config_visit visit, void *ctx) {
    for (int i = config_next(c, -1); i >= 0; i = config_next(c, i)) {
        char name[2 * CONFIG_WORD], value[CONFIG_VALUE];
        if (config_key(i)->class != class) continue;
        snprintf(name, sizeof name, "%s.%s", config_key(i)->section, config_key(i)->key);
        config_value(c, i, value);
        TRY(visit(ctx, name, value));
    }
    return ERR_OK;
}

static err_t hash_key(void *ctx, const char *key, const char *value) {
    crypto_generichash_state *h = ctx;
    crypto_generichash_update(h, (const unsigned char *)key, strlen(key));
    crypto_generichash_update(h, (const unsigned char *)"=", 1);
    crypto_generichash_update(h, (const unsigned char *)value, strlen(value));
    crypto_generichash_update(h, (const unsigned char *)"\n", 1);
    return ERR_OK;
}

static err_t list_setting(void *ctx, const char *key, const char *value) {
    fprintf(ctx, "%s=%s\n", key, value);
    return ERR_OK;
}

// Of which config_hash is the hash, in the same order.
err_t config_shared(const config *c, char **out) {
    size_t size;
    *out = NULL;
    FILE *to = open_memstream(out, &size);
    if (to) config_each(c, CLASS_BITS, list_setting, to), config_each(c, CLASS_LAYOUT, list_setting, to);
    return to && fclose(to) == 0 ? ERR_OK : err_set(ERR_INTERNAL, "no memory for the text of the settings");
}

void config_hash(const config *c, char hex[17]) {
    crypto_generichash_state h;
    unsigned char digest[32];
    crypto_generichash_init(&h, NULL, 0, sizeof digest);
    config_each(c, CLASS_BITS, hash_key, &h);
    config_each(c, CLASS_LAYOUT, hash_key, &h);
    crypto_generichash_final(&h, digest, sizeof digest);
    for (int i = 0; i < 8; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}
