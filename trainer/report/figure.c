// trainer/report/figure.c: see trainer/report/figure.h.
#include "trainer/report/figure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

// 43600 as 43.6 and "k".
static const char *scaled(double v, double *small) {
    static const char *const names[] = {"", "k", "M", "G", "T", "P"};
    int i = 0;
    for (*small = v; fabs(*small) >= 999.95 && i < 5; i++) *small /= 1000;
    return names[i];
}

static void with_commas(char *dst, double v) {
    char plain[32];
    int n = snprintf(plain, sizeof plain, "%.0f", fabs(v)), at = 0;
    if (v < 0) dst[at++] = '-';
    for (int i = 0; i < n; i++) {
        dst[at++] = plain[i];
        if (i + 1 < n && (n - i - 1) % 3 == 0) dst[at++] = ',';
    }
    dst[at] = 0;
}

static void duration(char dst[FIGURE_TEXT], double s) {
    if (s < 0.9995) snprintf(dst, FIGURE_TEXT, "%.3g ms", 1e3 * s);
    else if (s < 120) snprintf(dst, FIGURE_TEXT, "%.3g s", s);
    else if (s < 7200) snprintf(dst, FIGURE_TEXT, "%.0f min %.0f s", floor(s / 60), floor(fmod(s, 60)));
    else if (s < 2 * 86400) snprintf(dst, FIGURE_TEXT, "%.0f h %.0f min", floor(s / 3600), floor(fmod(s, 3600) / 60));
    else snprintf(dst, FIGURE_TEXT, "%.0f d %.0f h", floor(s / 86400), floor(fmod(s, 86400) / 3600));
}

static void date(char dst[FIGURE_TEXT], double v) {
    time_t t = (time_t)v;
    struct tm utc;
    if (v < 0 || v > 1e11 || !gmtime_r(&t, &utc)) snprintf(dst, FIGURE_TEXT, "–");
    else strftime(dst, FIGURE_TEXT, "%Y-%m-%d %H:%M UTC", &utc);
}

const char *figure_text(char dst[FIGURE_TEXT], figure kind, double v, int digits) {
    double small;
    const char *unit = scaled(v, &small);
    if (digits < 3) digits = 3;  // what is scaled has up to 3 before its point
    if (!isfinite(v)) return snprintf(dst, FIGURE_TEXT, "–"), dst;
    switch (kind) {
    case FIGURE_WHOLE: fabs(v) < 1e15 ? with_commas(dst, v) : (void)snprintf(dst, FIGURE_TEXT, "%.3g", v); break;
    case FIGURE_SMALL: snprintf(dst, FIGURE_TEXT, v == 0 ? "0" : "%.*e", digits > 2 ? digits - 2 : 1, v); break;
    case FIGURE_BYTES: snprintf(dst, FIGURE_TEXT, "%.*g %sB", digits, small, unit); break;
    case FIGURE_SHARE: snprintf(dst, FIGURE_TEXT, "%.*g %%", digits, 100 * v); break;
    case FIGURE_SECONDS: duration(dst, v); break;
    case FIGURE_DATE: date(dst, v); break;
    default:
        if (fabs(v) < 1e-3 && v != 0) snprintf(dst, FIGURE_TEXT, "%.*g", digits, v);
        else snprintf(dst, FIGURE_TEXT, "%.*g%s", digits, small, unit);
    }
    return dst;
}
