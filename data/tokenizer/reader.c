// data/tokenizer/reader.c: how a part of a tokenizer.json is refused, and found.
#include "data/tokenizer/reader.h"

#include <string.h>

enum { SHOWN = 300 };

err_t reader_refuse(const reader *r, const char *what, const json_t *value, const char *why) {
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(6)) : NULL;
    err_t rc = err_set(ERR_DATA, "%s: %s: %.*s%s is not implemented: %s", r->path, what, SHOWN, text ? text : "null",
                       text && strlen(text) > SHOWN ? "..." : "", why);
    free(text);
    return rc;
}

bool node_is(const json_t *node, const char *type) {
    const char *has = json_string_value(json_object_get(node, "type"));
    return has && strcmp(has, type) == 0;
}

bool node_given(const json_t *value) { return value && !json_is_null(value); }

int32_t reader_id(const reader *r, const char *text) {
    const json_t *id = json_object_get(r->vocab, text);
    return id ? (int32_t)json_integer_value(id) : -1;
}
