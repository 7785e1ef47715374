// trainer/report/html.h: a page that grows in memory, and numbers as people read them.
#ifndef TRAINER_REPORT_HTML_H
#define TRAINER_REPORT_HTML_H

#include <stdbool.h>
#include <stddef.h>

// All zeros: empty. The first call that finds no memory sets `failed`, and the later ones do nothing.
typedef struct html {
    char *at;
    size_t n, room;
    bool failed;
} html;

// Markup, as it stands: never what a run says of itself.
void html_put(html *h, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// Text of anyone's: < > & " ' are escaped, and what is no UTF-8 and control characters other than newline and tab
// become U+FFFD.
void html_text(html *h, const char *text);
void html_free(html *h);

// What a number counts.
typedef enum figure {
    FIGURE_PLAIN,    // 43.6k
    FIGURE_WHOLE,    // 43,602: steps
    FIGURE_SMALL,    // 1.0e-04: rates
    FIGURE_BYTES,    // 1.2 GB
    FIGURE_SHARE,    // of 0 to 1: 42 %
    FIGURE_SECONDS,  // 1 h 20 min
    FIGURE_DATE,     // seconds since 1970: 2026-11-24 12:00 UTC
} figure;

enum { FIGURE_TEXT = 40 };
// dst = v with about `digits` digits (as the kind has it); "–" for NaN. Returns dst.
const char *figure_text(char dst[FIGURE_TEXT], figure kind, double v, int digits);

#endif
