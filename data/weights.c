// data/weights.c: see data/weights.h. Weights are read as decimals and never as floats: shares are exact.
#include "data/weights.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS = 9 };  // before and after the point, at most

static const char *after_digits(const char *p) { return p + strspn(p, "0123456789"); }

// Is this a number, of whatever sign and form?
static bool is_number(const char *p) {
    p += *p == '+' || *p == '-';
    const char *from = p, *point = after_digits(p), *end = *point == '.' ? after_digits(point + 1) : point;
    if (end - from - (*point == '.') < 1) return false;
    if (*end == 'e' || *end == 'E') {
        p = end + 1 + (end[1] == '+' || end[1] == '-');
        end = after_digits(p);
        if (end == p) return false;
    }
    return *end == 0;
}

// *value = the decimal times 10^DIGITS.
static err_t read_weight(const char *name, const char *text, int64_t *value) {
    const char *whole = text + strspn(text, "0"), *point = after_digits(whole),
               *rest = *point == '.' ? point + 1 : point, *end = after_digits(rest);
    bool plain = *end == 0;  // no sign, no exponent
    int64_t v = 0;
    while (end > rest && end[-1] == '0') end--;
    bool fits = point - whole <= DIGITS && end - rest <= DIGITS;
    for (const char *p = whole; fits && p < point; p++) v = 10 * v + (*p - '0');
    for (int i = 0; fits && i < DIGITS; i++) v = 10 * v + (i < end - rest ? rest[i] - '0' : 0);
    if (!plain || (fits && v == 0))
        return err_set(
            ERR_CONFIG,
            "%s: the weight %s is not a positive decimal, such as 0.7 or 3. If this is the name of a file, write %s@1",
            name, text, name);
    if (!fits)
        return err_set(ERR_CONFIG, "%s: the weight %s has more than %d digits before or after the point", name, text,
                       DIGITS);
    *value = v;
    return ERR_OK;
}

static int64_t common_divisor(int64_t a, int64_t b) {
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

// Adds the name of n bytes. Without a weight its count stays 0.
static err_t add_name(weights *w, const char *name, size_t n) {
    weighted *more = realloc(w->part, (size_t)(w->parts + 1) * sizeof *more);
    if (!more) return err_set(ERR_INTERNAL, "no memory for a list of files");
    w->part = more;
    weighted *k = &more[w->parts++];
    *k = (weighted){.text = strndup(name, n), .files = strndup(name, n)};
    if (!k->text || !k->files) return err_set(ERR_INTERNAL, "no memory for a list of files");
    char *mark = strrchr(k->files, '@');
    if (!mark || mark == k->files || !is_number(mark + 1)) return ERR_OK;
    *mark = 0;
    return read_weight(k->text, mark + 1, &k->count);
}

// Whole numbers without a common divisor.
static err_t reduce(weights *w) {
    int64_t divisor = 0;
    for (int i = 0; i < w->parts; i++) divisor = common_divisor(w->part[i].count, divisor);
    for (int i = 0; i < w->parts; i++) {
        int64_t c = w->part[i].count / divisor;
        if (c > WEIGHTS_PLACES - w->places)
            return err_set(
                ERR_CONFIG,
                "%s: the weights of [data] train are too fine: the smallest block of samples that has these shares has more than %d. "
                "Write fewer digits, such as 0.3333 and 0.6667, or other numbers, such as 1 and 2",
                w->part[i].text, WEIGHTS_PLACES);
        w->part[i].count = c;
        w->places += c;
    }
    return ERR_OK;
}

err_t weights_parse(weights *out, const char *files) {
    int with = -1, without = -1;
    for (const char *p = files ? files : "";;) {
        p += strspn(p, " \t");
        size_t n = strcspn(p, " \t");
        if (n == 0) break;
        TRY(add_name(out, p, n));
        if (out->part[out->parts - 1].count) with = out->parts - 1;
        else without = out->parts - 1;
        p += n;
    }
    if (with >= 0 && without >= 0)
        return err_set(ERR_CONFIG, "%s has no weight, and %s has one: give each name a weight, as in NAME@0.5, or none",
                       out->part[without].text, out->part[with].text);
    if (with >= 0) return reduce(out);
    weights_free(out);
    return ERR_OK;
}

void weights_free(weights *w) {
    for (int i = 0; i < w->parts; i++) {
        free(w->part[i].text);
        free(w->part[i].files);
    }
    free(w->part);
    *w = (weights){0};
}
