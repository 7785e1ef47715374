// trainer/report/html.c: see trainer/report/html.h.
#include "trainer/report/html.h"

#include "trainer/log/utf8.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool make_room(html *h, size_t more) {
    if (h->failed) return false;
    if (h->n + more + 1 <= h->room) return true;
    size_t room = (h->n + more + 1) * 2 + 4096;
    char *at = realloc(h->at, room);
    if (!at) return h->failed = true, false;
    h->at = at, h->room = room;
    return true;
}

void html_put(html *h, const char *fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    if (n > 0 && make_room(h, (size_t)n)) {
        vsnprintf(h->at + h->n, (size_t)n + 1, fmt, again);
        h->n += (size_t)n;
    }
    va_end(again);
    va_end(args);
}

static void add(html *h, const char *text, size_t n) {
    if (!make_room(h, n)) return;
    memcpy(h->at + h->n, text, n);
    h->n += n;
    h->at[h->n] = 0;
}

void html_text(html *h, const char *text) {
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        int n = utf8_length(s);
        bool control = (*s < 0x20 && *s != '\n' && *s != '\t') || *s == 0x7F || (*s == 0xC2 && s[1] < 0xA0);
        if (n == 0 || control) add(h, "\xEF\xBF\xBD", 3);
        else if (*s == '<') add(h, "&lt;", 4);
        else if (*s == '>') add(h, "&gt;", 4);
        else if (*s == '&') add(h, "&amp;", 5);
        else if (*s == '"') add(h, "&quot;", 6);
        else if (*s == '\'') add(h, "&#39;", 5);
        else add(h, (const char *)s, (size_t)n);
        s += n ? n : 1;
    }
}

void html_free(html *h) {
    free(h->at);
    *h = (html){0};
}

// --- numbers ---------------------------------------------------------------------------------------------------------

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
