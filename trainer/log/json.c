// trainer/log/json.c: see trainer/log/json.h.
#include "trainer/log/json.h"

#include "base/io.h"
#include "trainer/log/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

void json_put(json *j, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(j->text + j->n, JSON_LINE - j->n, fmt, ap);
    va_end(ap);
    if (n > 0) j->n = j->n + (size_t)n < JSON_LINE ? j->n + (size_t)n : JSON_LINE - 1;
}

void json_put_real(json *j, const char *key, double x) {
    if (isfinite(x)) json_put(j, ",\"%s\":%.9g", key, x);
    else json_put(j, ",\"%s\":null", key);
}

void json_put_whole(json *j, const char *key, int64_t n) {
    if (n) json_put(j, ",\"%s\":%" PRId64, key, n);
    else json_put(j, ",\"%s\":null", key);
}

void json_put_named(json *j, const char *format, const char *word, double x) {
    char name[64];
    snprintf(name, sizeof name, format, word);
    json_put_real(j, name, x);
}

// A model may write any bytes, but a JSON string holds only UTF-8. Anything else becomes U+FFFD.
void json_put_text(json *j, const char *key, const char *text) {
    json_put(j, ",\"%s\":\"", key);
    for (const unsigned char *s = (const unsigned char *)text; *s && j->n < JSON_LINE - 64;) {
        int n = utf8_length(s);
        if (n == 0) json_put(j, "\\ufffd"), n = 1;
        else if (*s == '"' || *s == '\\') json_put(j, "\\%c", *s);
        else if (*s == '\n') json_put(j, "\\n");
        else if (*s < 0x20 || *s == 0x7F) json_put(j, "\\u%04x", *s);
        else json_put(j, "%.*s", n, (const char *)s);
        s += n;
    }
    json_put(j, "\"");
}

err_t json_write(json *j, int fd, const char *path) {
    json_put(j, "}\n");
    j->text[j->n - 1] = '\n';  // also when the record was cut
    return io_write(fd, path, j->text, j->n, NULL);
}
