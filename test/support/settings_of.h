// test/support/settings_of.h: what [model] becomes of the text of a config.json, and how one is refused.
#ifndef TEST_SUPPORT_SETTINGS_OF_H
#define TEST_SUPPORT_SETTINGS_OF_H

#include "model/families.h"
#include "model/foreign.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static inline json_t *json_of(const char *text) {
    json_error_t why;
    json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    if (!j) fail_msg("%s: %s", text, why.text);
    return j;
}

// The settings that this config.json stands for; NULL: it was refused.
static inline void *options_of(const json_t *config, const model_type **type) {
    void *options = NULL;
    return foreign_options(type, &options, config, "theirs") == ERR_OK ? options : NULL;
}

static inline void value_of(const model_type *type, const void *options, const char *key, char dst[SETTING_VALUE]) {
    for (int i = 0; i < type->keys; i++)
        if (strcmp(type->key[i].key, key) == 0) return setting_value(&type->key[i], options, dst);
    fail_msg("there is no [model] %s", key);
}

// want: "key=value key=value".
static inline void expect_settings(const char *text, const char *want) {
    const model_type *type;
    json_t *config = json_of(text);
    void *options = options_of(config, &type);
    char found[SETTING_VALUE], copy[512], *rest;
    if (!options) fail_msg("%s: %s", text, err_last()->text);
    snprintf(copy, sizeof copy, "%s", want);
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(word, '=');
        *value++ = 0;
        value_of(type, options, word, found);
        if (strcmp(found, value) != 0) fail_msg("%s: %s = %s, expected %s", text, word, found, value);
    }
    free(options);
    json_decref(config);
}

static inline void expect_refused(const char *text, const char *says) {
    const model_type *type;
    json_t *config = json_of(text);
    if (options_of(config, &type)) fail_msg("%s was read", text);
    if (!strstr(err_last()->text, says)) fail_msg("%s: %s, expected \"%s\"", text, err_last()->text, says);
    if (err_last()->code != ERR_DATA) fail_msg("%s: code %d", text, err_last()->code);
    json_decref(config);
}

#endif
