// model/foreign.c: see model/foreign.h.
#include "model/foreign.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// --- reading members ---------------------------------------------------------------------------------------------------------

void foreign_refuse(foreign_reader *r, const char *name, const char *why) {
    if (r->rc == ERR_OK) r->rc = err_set(ERR_DATA, "%s/config.json: %s: %s", r->path, name, why);
}

static const json_t *member(const foreign_reader *r, const char *name) {
    const json_t *v = json_object_get(r->at, name);
    return json_is_null(v) ? NULL : v;
}

int64_t foreign_int(foreign_reader *r, const char *name, int64_t otherwise) {
    const json_t *v = member(r, name);
    if (!v) return otherwise;
    if (json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) <= INT32_MAX) return json_integer_value(v);
    foreign_refuse(r, name, "expected a whole number from 0 to 2147483647");
    return otherwise;
}

double foreign_real(foreign_reader *r, const char *name, double otherwise) {
    const json_t *v = member(r, name);
    if (!v) return otherwise;
    if (json_is_number(v)) return json_number_value(v);
    foreign_refuse(r, name, "expected a number");
    return otherwise;
}

bool foreign_bool(foreign_reader *r, const char *name, bool otherwise) {
    const json_t *v = member(r, name);
    if (!v) return otherwise;
    if (json_is_boolean(v)) return json_is_true(v);
    foreign_refuse(r, name, "expected true or false");
    return otherwise;
}

const char *foreign_text(foreign_reader *r, const char *name, const char *otherwise) {
    const json_t *v = member(r, name);
    if (!v) return otherwise;
    if (json_is_string(v)) return json_string_value(v);
    foreign_refuse(r, name, "expected a string");
    return otherwise;
}

// --- tensors -----------------------------------------------------------------------------------------------------------------

// name is "layers.N.group.both_proj.weight": one part for each of `names`, in its place.
static int split(const char *name, const char *both, const char *const *names, const int64_t *rows, int count, weight_part *part) {
    const char *at = strstr(name, both);
    for (int k = 0; k < count; k++) {
        part[k] = (weight_part){.prefixed = true, .rows = rows[k]};
        snprintf(part[k].name, sizeof part[k].name, "%.*s%s%s", (int)(at - name), name, names[k], at + strlen(both));
    }
    return count;
}

int foreign_parts(const param *p, int64_t Q, int64_t K, int64_t F, weight_part *part) {
    static const char *const qkv[] = {"q_proj", "k_proj", "v_proj"}, *const in[] = {"gate_proj", "up_proj"};
    if (strstr(p->name, "qkv_proj")) return split(p->name, "qkv_proj", qkv, (const int64_t[]){Q, K, K}, 3, part);
    if (strstr(p->name, "gate_up_proj")) return split(p->name, "gate_up_proj", in, (const int64_t[]){F, F}, 2, part);
    bool head = strcmp(p->name, "lm_head.weight") == 0, table = head || strcmp(p->name, "embed_tokens.weight") == 0;
    part[0] = (weight_part){.prefixed = !head, .table = table, .rows = p->size[0]};
    snprintf(part[0].name, sizeof part[0].name, "%s", p->name);
    return 1;
}

// --- settings ----------------------------------------------------------------------------------------------------------------

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
