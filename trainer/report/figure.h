// trainer/report/figure.h: numbers as people read them.
#ifndef TRAINER_REPORT_FIGURE_H
#define TRAINER_REPORT_FIGURE_H

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
