// model/foreign.c: see model/foreign.h.
#include "model/foreign.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// --- reading members -------------------------------------------------------------------------------------------------

void foreign_refuse(foreign_reader *r, const char *name, const char *why) {
    if (r->rc == ERR_OK) r->rc = err_set(ERR_DATA, "%s/config.json: %s: %s", r->path, name, why);
}

// NULL: absent, null, or, which is refused, of another type than these.
static const json_t *member(foreign_reader *r, const char *name, unsigned types, const char *expected) {
    const json_t *v = json_object_get(r->at, name);
    if (!v || json_is_null(v)) return NULL;
    if (types >> json_typeof(v) & 1) return v;
    foreign_refuse(r, name, expected);
    return NULL;
}

foreign_reader foreign_inside(const foreign_reader *r, const char *name) {
    return (foreign_reader){r->path, json_object_get(r->at, name), r->rc};
}

int64_t foreign_int(foreign_reader *r, const char *name, int64_t otherwise) {
    static const char expected[] = "expected a whole number from 0 to 2147483647";
    const json_t *v = member(r, name, 1U << JSON_INTEGER, expected);
    if (!v) return otherwise;
    if (json_integer_value(v) >= 0 && json_integer_value(v) <= INT32_MAX) return json_integer_value(v);
    foreign_refuse(r, name, expected);
    return otherwise;
}

double foreign_real(foreign_reader *r, const char *name, double otherwise) {
    const json_t *v = member(r, name, 1U << JSON_INTEGER | 1U << JSON_REAL, "expected a number");
    return v ? json_number_value(v) : otherwise;
}

bool foreign_bool(foreign_reader *r, const char *name, bool otherwise) {
    const json_t *v = member(r, name, 1U << JSON_TRUE | 1U << JSON_FALSE, "expected true or false");
    return v ? json_is_true(v) : otherwise;
}

const char *foreign_text(foreign_reader *r, const char *name, const char *otherwise) {
    const json_t *v = member(r, name, 1U << JSON_STRING, "expected a string");
    return v ? json_string_value(v) : otherwise;
}

// --- settings --------------------------------------------------------------------------------------------------------

void setting_value(const setting *k, const void *options, char dst[SETTING_VALUE]) {
    const void *at = (const char *)options + k->offset;
    const char *words = k->words;
    switch (k->type) {
    case KEY_INT: snprintf(dst, SETTING_VALUE, "%" PRId64, *(const int64_t *)at); break;
    case KEY_REAL: snprintf(dst, SETTING_VALUE, "%.9g", *(const double *)at); break;
    case KEY_BOOL: snprintf(dst, SETTING_VALUE, "%s", *(const bool *)at ? "yes" : "no"); break;
    case KEY_TEXT:
    case KEY_NAME: snprintf(dst, SETTING_VALUE, "%s", (const char *)at); break;
    case KEY_WORD:
        for (int i = 0; i < *(const int *)at; i++) words += strcspn(words, " ") + 1;
        snprintf(dst, SETTING_VALUE, "%.*s", (int)strcspn(words, " "), words);
    }
}
