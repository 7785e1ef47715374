// trainer/report/scan.c: see trainer/report/scan.h. One idea: a log has the same few forms of value on every line, so
// the common ones take the short way, and the rest is left to the C library.
#include "trainer/report/scan.h"

#include "base/utf8.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

enum { DEEPEST = 32 };  // brackets within brackets of a value that is passed over

static void space(scan *s) {
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\r' || *s->at == '\n')) s->at++;
}

static bool wrong(scan *s) {
    s->bad = true;
    s->at = s->end;
    return false;
}

static bool take(scan *s, char c) {
    if (s->at < s->end && *s->at != c) space(s);
    if (s->at == s->end || *s->at != c) return false;
    s->at++;
    return true;
}

bool scan_begin(scan *s, char open) {
    if (!take(s, open)) return wrong(s);
    return !take(s, open == '{' ? '}' : ']');
}

bool scan_more(scan *s, char close) {
    if (take(s, ',')) return true;
    return take(s, close) ? false : wrong(s);
}

// After its first quote. Control characters are no JSON.
static bool string(scan *s, scan_text *t) {
    t->at = s->at;
    for (; s->at < s->end; s->at++) {
        if (*s->at == '"') {
            t->n = (size_t)(s->at++ - t->at);
            return true;
        }
        if ((unsigned char)*s->at < 0x20) break;
        if (*s->at == '\\' && ++s->at == s->end) break;
    }
    *t = (scan_text){"", 0};
    return wrong(s);
}

bool scan_key(scan *s, scan_text *key) {
    *key = (scan_text){"", 0};
    if (!take(s, '"')) return wrong(s);
    return string(s, key) && (take(s, ':') || wrong(s));
}

scan_text scan_string(scan *s) {
    scan_text t = {"", 0};
    if (take(s, '"')) string(s, &t);
    else scan_skip(s);
    return t;
}

bool scan_opens(scan *s, char open) {
    space(s);
    if (s->at < s->end && *s->at == open) return true;
    scan_skip(s);
    return false;
}

static bool digit(const scan *s) { return s->at < s->end && *s->at >= '0' && *s->at <= '9'; }

static bool word(scan *s, const char *w, size_t n) {
    if ((size_t)(s->end - s->at) < n || memcmp(s->at, w, n) != 0) return wrong(s);
    s->at += n;
    return true;
}

// What does not fit the exact way: 15 digits and a power of ten that a double holds exactly.
static double slow_number(const char *from, size_t n) {
    char text[64];
    if (n >= sizeof text) return NAN;
    memcpy(text, from, n);
    text[n] = 0;
    return strtod(text, NULL);
}

static double number(scan *s) {
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const char *from = s->at;
    uint64_t m = 0;
    int digits = 0, point = 0, power = 0;
    bool minus = *s->at == '-';
    if (minus) s->at++;
    if (!digit(s)) return wrong(s), NAN;
    for (; digit(s); s->at++, digits++) m = m * 10 + (uint64_t)(*s->at - '0');
    if (s->at < s->end && *s->at == '.') {
        s->at++;
        if (!digit(s)) return wrong(s), NAN;
        for (; digit(s); s->at++, digits++, point++) m = m * 10 + (uint64_t)(*s->at - '0');
    }
    if (s->at < s->end && (*s->at | 32) == 'e') {
        s->at++;
        bool down = s->at < s->end && *s->at == '-';
        if (s->at < s->end && (*s->at == '-' || *s->at == '+')) s->at++;
        if (!digit(s)) return wrong(s), NAN;
        for (; digit(s); s->at++) power = power < 10000 ? power * 10 + (*s->at - '0') : power;
        if (down) power = -power;
    }
    power -= point;
    if (digits > 15 || power < -22 || power > 22) return slow_number(from, (size_t)(s->at - from));
    double x = power < 0 ? (double)m / tens[-power] : (double)m * tens[power];
    return minus ? -x : x;
}

double scan_real(scan *s) {
    space(s);
    if (s->at == s->end) return wrong(s), NAN;
    switch (*s->at) {
    case 't': return word(s, "true", 4) ? 1 : NAN;
    case 'f': return word(s, "false", 5) ? 0 : NAN;
    case 'n': return word(s, "null", 4), NAN;
    case '"':
    case '{':
    case '[': scan_skip(s); return NAN;
    default: return number(s);
    }
}

// A scalar, or the opening of what has values in it: true.
static bool skip_one(scan *s, char *opened) {
    scan_text t;
    space(s);
    if (s->at == s->end) return wrong(s);
    if (*s->at == '{' || *s->at == '[') {
        *opened = *s->at;
        return scan_begin(s, *opened);
    }
    if (*s->at == '"') s->at++, string(s, &t);
    else scan_real(s);
    return false;
}

void scan_skip(scan *s) {
    char in[DEEPEST];
    int depth = 0;
    scan_text key;
    do {
        char opened = 0;
        if (depth && in[depth - 1] == '{' && !scan_key(s, &key)) return;
        if (skip_one(s, &opened)) {
            if (depth == DEEPEST) {
                wrong(s);
                return;
            }
            in[depth++] = opened;
            continue;
        }
        while (depth && !s->bad && !scan_more(s, in[depth - 1] == '{' ? '}' : ']')) depth--;
    } while (depth && !s->bad);
}

bool scan_end(scan *s) {
    space(s);
    return !s->bad && s->at == s->end;
}

// --- text ------------------------------------------------------------------------------------------------------------

static int hex4(const char *at, const char *end) {
    int v = 0;
    if (end - at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int c = (unsigned char)at[i], d = c >= '0' && c <= '9'                 ? c - '0'
                                          : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                                               : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

static size_t encode(char to[4], unsigned c) {
    if (c == 0 || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) c = 0xFFFD;
    if (c < 0x80) return to[0] = (char)c, 1;
    if (c < 0x800) return to[0] = (char)(0xC0 | c >> 6), to[1] = (char)(0x80 | (c & 63)), 2;
    if (c < 0x10000)
        return to[0] = (char)(0xE0 | c >> 12), to[1] = (char)(0x80 | (c >> 6 & 63)), to[2] = (char)(0x80 | (c & 63)), 3;
    to[0] = (char)(0xF0 | c >> 18), to[1] = (char)(0x80 | (c >> 12 & 63)), to[2] = (char)(0x80 | (c >> 6 & 63)),
    to[3] = (char)(0x80 | (c & 63));
    return 4;
}

// The character of an escape, at its letter; *at moves past it.
static unsigned escape(const char **at, const char *end) {
    static const char letter[] = "nrtbf\"\\/", meant[] = "\n\r\t\b\f\"\\/";
    char c = *(*at)++;
    const char *known = c ? strchr(letter, c) : NULL;
    if (known) return (unsigned char)meant[known - letter];
    int high = c == 'u' ? hex4(*at, end) : -1, low;
    if (high < 0) return 0xFFFD;
    *at += 4;
    if (high < 0xD800 || high >= 0xDC00 || end - *at < 6 || (*at)[0] != '\\' || (*at)[1] != 'u') return (unsigned)high;
    low = hex4(*at + 2, end);
    if (low < 0xDC00 || low > 0xDFFF) return (unsigned)high;
    *at += 6;
    return 0x10000 + ((unsigned)(high - 0xD800) << 10) + (unsigned)(low - 0xDC00);
}

char *scan_plain(char *dst, size_t room, scan_text t) {
    const char *at = t.at, *end = t.at + t.n;
    size_t n = 0;
    while (at < end) {
        char one[4];
        size_t k;
        if (*at == '\\' && at + 1 < end) at++, k = encode(one, escape(&at, end));
        else {
            unsigned char s[5] = {0};  // ends with NUL, which utf8_length wants
            memcpy(s, at, (size_t)(end - at) < 4 ? (size_t)(end - at) : 4);
            k = s[0] ? (size_t)utf8_length(s) : 0;
            if (k) memcpy(one, at, k), at += k;
            else k = encode(one, 0xFFFD), at++;
        }
        if (n + k >= room) break;
        memcpy(dst + n, one, k);
        n += k;
    }
    dst[n] = 0;
    return dst;
}
