// trainer/watch/text.c: see trainer/watch/text.h.
#include "trainer/watch/text.h"

#include "trainer/log/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void text_put(text *t, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(t->at + t->n, t->room - t->n, fmt, ap);
    va_end(ap);
    if (n >= 0 && t->n + (size_t)n < t->room) t->n += (size_t)n;
    else t->at[t->n] = 0, t->full = true;
}

static void put_key(text *t, const char *key) {
    size_t k = t->n;
    while (k > 0 && strchr(" \n", t->at[k - 1])) k--;
    bool first = k == 0 || t->at[k - 1] == '{' || t->at[k - 1] == ',' || t->at[k - 1] == '[';
    text_put(t, "%s\"%s\":", first ? "" : ",", key);
}

void text_number(text *t, double x, int digits) {
    if (isfinite(x)) text_put(t, "%.*g", digits, x);
    else text_put(t, "null");
}

void text_real(text *t, const char *key, double x, int digits) {
    put_key(t, key);
    text_number(t, x, digits);
}

void text_whole(text *t, const char *key, int64_t n) {
    put_key(t, key);
    if (n < 0) text_put(t, "null");
    else text_put(t, "%" PRId64, n);
}

// What is no UTF-8 becomes U+FFFD, as in log.jsonl.
void text_word(text *t, const char *key, const char *s) {
    put_key(t, key);
    if (!s) {
        text_put(t, "null");
        return;
    }
    text_put(t, "\"");
    for (const unsigned char *c = (const unsigned char *)s; *c;) {
        int n = utf8_length(c);
        if (n == 0) text_put(t, "\xEF\xBF\xBD");
        else if (*c == '"' || *c == '\\') text_put(t, "\\%c", *c);
        else if (*c < ' ' || *c == 0x7F) text_put(t, "\\u%04x", *c);
        else text_put(t, "%.*s", n, (const char *)c);
        c += n ? n : 1;
    }
    text_put(t, "\"");
}
