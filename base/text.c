// base/text.c: see base/text.h.
#include "base/text.h"

#include "base/io.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- room ------------------------------------------------------------------------------------------------------------

// Room for n more bytes and a NUL, if it can be had.
static void make_room(text *t, size_t n) {
    if (t->n + n < t->room) return;
    if (t->to) (void)text_flush(t);
    if (t->at && !t->grows) return;
    size_t room = (t->n + n + 1) * 2 + 4096;
    char *at = realloc(t->at, room);
    if (at) t->at = at, t->room = room, t->grows = true;
}

// n more bytes were to be appended: as many are there as had room.
static void advance(text *t, size_t n) {
    bool fits = t->n + n < t->room;
    t->n = fits ? t->n + n : t->room ? t->room - 1 : 0;
    t->full |= !fits;
    if (t->room) t->at[t->n] = 0;
}

void text_put(text *t, const char *fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(t->room ? t->at + t->n : NULL, t->room - t->n, fmt, args);
    if (n < 0) n = 0;
    if (t->n + (size_t)n >= t->room) {
        make_room(t, (size_t)n);
        vsnprintf(t->room ? t->at + t->n : NULL, t->room - t->n, fmt, again);
    }
    advance(t, (size_t)n);
    va_end(again);
    va_end(args);
}

void text_add(text *t, const char *bytes, size_t n) {
    make_room(t, n);
    size_t left = t->room ? t->room - 1 - t->n : 0;
    if (left) memcpy(t->at + t->n, bytes, n < left ? n : left);
    advance(t, n);
}

err_t text_flush(text *t) {
    if (t->rc == ERR_OK) t->rc = io_write(t->to, t->path, t->at, t->n, NULL);
    t->n = 0;
    return t->rc;
}

void text_free(text *t) {
    if (t->grows) free(t->at);
    *t = (text){0};
}

// --- text of anyone's ------------------------------------------------------------------------------------------------

// What stands for the character; NULL: it is not special.
static const char *special(const text_escapes *how, char c) {
    for (size_t i = 0; i < sizeof how->special / sizeof *how->special && how->special[i]; i++)
        if (how->special[i][0] == c) return how->special[i] + 1;
    return NULL;
}

static void escape_one(text *t, const text_escapes *how, const unsigned char *c, int n) {
    const char *instead = special(how, (char)*c);
    bool control = *c < ' ' || *c == 0x7F || (how->upper_controls && *c == 0xC2 && c[1] < 0xA0);
    if (instead) text_add(t, instead, strlen(instead));
    else if (n == 0 && how->invalid) text_add(t, how->invalid, strlen(how->invalid));
    else if (control && how->control) text_put(t, how->control, *c);
    else text_add(t, (const char *)c, n ? (size_t)n : 1);
}

void text_escaped(text *t, const text_escapes *how, const char *s) {
    for (const unsigned char *c = (const unsigned char *)s; *c;) {
        int n = utf8_length(c);
        if (t->spare && t->room - t->n <= t->spare) {
            t->full = true;
            return;
        }
        escape_one(t, how, c, n);
        c += n ? n : 1;
    }
}

void text_html(text *t, const char *s) {
    static const text_escapes how = {.special = {"<&lt;", ">&gt;", "&&amp;", "\"&quot;", "'&#39;", "\n\n", "\t\t"},
                                     .invalid = UTF8_REPLACEMENT,
                                     .control = UTF8_REPLACEMENT,
                                     .upper_controls = true};
    text_escaped(t, &how, s);
}

// --- JSON ------------------------------------------------------------------------------------------------------------

void text_key(text *t, const char *key) {
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
    text_key(t, key);
    text_number(t, x, digits);
}

void text_whole(text *t, const char *key, int64_t n) {
    text_key(t, key);
    if (n < 0) text_put(t, "null");
    else text_put(t, "%" PRId64, n);
}

void text_quoted(text *t, const text_escapes *how, const char *s) {
    text_put(t, "\"");
    text_escaped(t, how, s);
    text_put(t, "\"");
}

void text_word(text *t, const char *key, const char *s) {
    static const text_escapes how = {
        .special = {"\"\\\"", "\\\\\\"}, .invalid = UTF8_REPLACEMENT, .control = "\\u%04x"};
    text_key(t, key);
    if (s) text_quoted(t, &how, s);
    else text_put(t, "null");
}

// --- for people ------------------------------------------------------------------------------------------------------

void text_size(text *t, double bytes) {
    const char *unit = bytes >= 1e12 ? "TB" : bytes >= 1e9 ? "GB" : bytes >= 1e6 ? "MB" : "kB";
    text_put(t, "%.3g %s", bytes / (*unit == 'T' ? 1e12 : *unit == 'G' ? 1e9 : *unit == 'M' ? 1e6 : 1e3), unit);
}

const char *text_shape(char *dst, size_t room, int dims, const int64_t *size) {
    text t = {.at = dst, .room = room};
    text_put(&t, "(");
    for (int d = 0; d < dims; d++) text_put(&t, "%s%" PRId64, d ? "," : "", size[d]);
    text_put(&t, ")");
    return dst;
}
