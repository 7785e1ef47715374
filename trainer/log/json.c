// trainer/log/json.c: see trainer/log/json.h.
#include "trainer/log/json.h"

#include "base/io.h"

#include <stdio.h>

void json_put_real(text *j, const char *key, double x) { text_real(j, key, x, 9); }

void json_put_named(text *j, const char *format, const char *word, double x) {
    char name[64];
    snprintf(name, sizeof name, format, word);
    json_put_real(j, name, x);
}

void json_put_text(text *j, const char *key, const char *s) {
    static const text_escapes how = {
        .special = {"\"\\\"", "\\\\\\", "\n\\n"}, .invalid = "\\ufffd", .control = "\\u%04x"};
    text_key(j, key);
    text_quoted(j, &how, s);
}

err_t json_write(text *j, int fd, const char *path) {
    text_put(j, "}\n");
    j->at[j->n - 1] = '\n';  // also when the record was cut
    return io_write(fd, path, j->at, j->n, NULL);
}
