// trainer/watch/line.h: text of a fixed size, put together piece by piece; what finds no room is cut off.
#ifndef TRAINER_WATCH_LINE_H
#define TRAINER_WATCH_LINE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

typedef struct line {
    char *at;     // where the next piece goes
    size_t room;  // bytes there, with the NUL; at least 1
} line;

static inline void line_put(line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static inline void line_put(line *l, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(l->at, l->room, fmt, ap);
    va_end(ap);
    size_t used = n < 0 ? 0 : (size_t)n < l->room ? (size_t)n : l->room - 1;
    l->at += used;
    l->room -= used;
}

// "61.2 GB"
static inline void line_put_bytes(line *l, double bytes) {
    const char *unit = bytes >= 1e12 ? "TB" : bytes >= 1e9 ? "GB" : bytes >= 1e6 ? "MB" : "kB";
    line_put(l, "%.3g %s", bytes / (*unit == 'T' ? 1e12 : *unit == 'G' ? 1e9 : *unit == 'M' ? 1e6 : 1e3), unit);
}

#endif
