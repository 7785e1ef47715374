// model/families.c: see model/families.h.
#include "model/families.h"

#include "model/foreign.h"
#include "model/types.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The index of a word in a list, -1: it is not there.
static int word_index(const char *words, const char *word) {
    size_t n = strlen(word);
    for (int i = 0; *words; i++) {
        size_t m = strcspn(words, " ");
        if (m == n && strncmp(words, word, n) == 0) return i;
        words += m;
        words += strspn(words, " ");
    }
    return -1;
}

static void set_default(const setting *k, void *options) {
    void *at = (char *)options + k->offset;
    switch (k->type) {
    case KEY_INT: *(int64_t *)at = strtoll(k->fallback, NULL, 10); break;
    case KEY_REAL: *(double *)at = strtod(k->fallback, NULL); break;
    case KEY_BOOL: *(bool *)at = strcmp(k->fallback, "yes") == 0; break;
    case KEY_WORD: *(int *)at = word_index(k->words, k->fallback); break;
    case KEY_TEXT: snprintf(at, KEY_TEXT_MAX, "%s", k->fallback); break;
    case KEY_NAME: snprintf(at, KEY_WORD_MAX, "%s", k->fallback); break;
    }
}

static err_t in_limits(const setting *k, const void *options, const char *path) {
    const void *at = (const char *)options + k->offset;
    double x = k->type == KEY_INT ? (double)*(const int64_t *)at : k->type == KEY_REAL ? *(const double *)at : k->min;
    if ((k->type != KEY_INT && k->type != KEY_REAL) || (x >= k->min && x <= k->max)) return ERR_OK;
    return err_set(ERR_DATA, "%s/config.json: what would be [model] %s = %.9g is out of its limits, %g to %g", path,
                   k->key, x, k->min, k->max);
}

// --- architectures ---------------------------------------------------------------------------------------------------

static err_t options_of(const model_type *type, void *options, const json_t *config, const char *path) {
    foreign_reader r = {path, config, ERR_OK};
    model_rule rule = {.micro = 1};
    for (int i = 0; i < type->keys; i++) set_default(&type->key[i], options);
    type->from_foreign(options, &r);
    TRY(r.rc);
    for (int i = 0; i < type->keys; i++) TRY(in_limits(&type->key[i], options, path));
    if (type->resolve(options, &rule) != ERR_OK) return err_prefix("%s/config.json", path), ERR_DATA;
    return ERR_OK;
}

// "gpt2, llama, mistral": what a config.json may say that it is.
static void known_types(char *dst, size_t room) {
    size_t n = 0;
    for (int i = 0; i < MODEL_TYPES; i++)
        for (const char *w = model_types[i]->foreign; w && *w && n < room; w += strcspn(w, " "), w += strspn(w, " "))
            n += (size_t)snprintf(dst + n, room - n, "%s%.*s", n ? ", " : "", (int)strcspn(w, " "), w);
}

err_t foreign_options(const model_type **type, void **options, const json_t *config, const char *path) {
    const char *name = json_string_value(json_object_get(config, "model_type"));
    char known[200];
    for (int i = 0; i < MODEL_TYPES; i++) {
        *type = model_types[i];
        if (!(*type)->foreign || !name || word_index((*type)->foreign, name) < 0) continue;
        if (!(*options = calloc(1, (*type)->options)))
            return err_set(ERR_INTERNAL, "%s: no memory for its options", path);
        err_t rc = options_of(*type, *options, config, path);
        if (rc != ERR_OK) free(*options), *options = NULL;
        return rc;
    }
    known_types(known, sizeof known);
    return err_set(ERR_DATA, "%s/config.json: model_type %s%.60s%s: expected %s", path, name ? "\"" : "",
                   name ? name : "is missing", name ? "\"" : "", known);
}

err_t foreign_guess(const model_type **type, void **options, const struct tensor_shapes *t) {
    *options = NULL;
    for (int i = 0; i < MODEL_TYPES; i++) {
        model_rule rule = {.micro = 1};
        *type = model_types[i];
        if (!(*type)->from_tensors) continue;
        if (!(*options = calloc(1, (*type)->options))) return err_set(ERR_INTERNAL, "no memory for a model's options");
        for (int k = 0; k < (*type)->keys; k++) set_default(&(*type)->key[k], *options);
        if ((*type)->from_tensors(*options, t) && (*type)->resolve(*options, &rule) == ERR_OK) return ERR_OK;
        free(*options);
        *options = NULL;
    }
    return ERR_OK;
}

// Keys that are not of the weights, or that the shapes of the tensors tell.
static bool may_differ(const char *key) {
    static const char keys[] =
        "context decoder_context vocab dropout head_chunks task classes next_sentence masked mask_token "
        "begin_token end_token sentinel_token noise span";
    return word_index(keys, key) >= 0;
}

err_t foreign_agrees(const model_type *type, const void *options, const json_t *config, const char *path) {
    const model_type *found;
    void *theirs;
    char text[ERR_TEXT - 200] = "", a[SETTING_VALUE], b[SETTING_VALUE];
    size_t n = 0;
    TRY(foreign_options(&found, &theirs, config, path));
    if (found != type) {
        free(theirs);
        return err_set(ERR_CONFIG, "[model] type = %s: %s holds weights of type = %s", type->name, path, found->name);
    }
    for (int i = 0; i < type->keys; i++) {
        const setting *k = &type->key[i];
        setting_value(k, options, a), setting_value(k, theirs, b);
        if (may_differ(k->key) || strcmp(a, b) == 0 || n + 160 > sizeof text) continue;
        n += (size_t)snprintf(text + n, sizeof text - n, "\n  %s = %.40s, and the weights are of %s = %.40s", k->key, a,
                              k->key, b);
    }
    free(theirs);
    return n ? err_set(ERR_CONFIG,
                       "[model] and %s/config.json differ (lockstep inspect prints a [model] section that fits):%s",
                       path, text)
             : ERR_OK;
}
