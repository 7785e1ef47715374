// trainer/config/fragments.c: see trainer/config/fragments.h.
#include "trainer/config/fragments.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// A number of digits alone, at most 2^31, up to `end`.
static bool read_number(const char *at, const char **end, int64_t *to) {
    char *stop;
    if (!isdigit((unsigned char)*at)) return false;
    errno = 0;
    *to = strtoll(at, &stop, 10);
    *end = stop;
    return !errno && *to <= INT32_MAX;
}

static err_t parse_one(fragment *f, const char *word, size_t length) {
    const char *colon = NULL, *at, *end = word + length;
    for (const char *p = word; p < end; p++)
        if (*p == ':') colon = p;
    size_t n = colon ? (size_t)(colon - word) : 0;
    if (!n || n >= FRAGMENT_PATTERN || !read_number(colon + 1, &at, &f->period))
        return err_set(ERR_CONFIG, "`%.*s`: expected PATTERN:PERIOD or PATTERN:PERIOD+OFFSET, such as h.0.*:50+25",
                       (int)length, word);
    if (*at == '+' && !read_number(at + 1, &at, &f->offset)) at = NULL;
    if (at != end)
        return err_set(ERR_CONFIG, "`%.*s`: after the period expected +OFFSET or nothing, such as h.0.*:50+25",
                       (int)length, word);
    if (f->period < 1 || f->offset >= f->period)
        return err_set(ERR_CONFIG,
                       "`%.*s`: expected a period of 1 or more, and an offset below it: it is due at steps "
                       "offset, offset + period, and so on",
                       (int)length, word);
    memcpy(f->pattern, word, n);
    return ERR_OK;
}

err_t fragments_parse(fragments *x, const char *words, int64_t every) {
    *x = (fragments){0};
    for (const char *at = words; *(at += strspn(at, " \t,")); at += strcspn(at, " \t,")) {
        if (x->count == FRAGMENTS_MOST) return err_set(ERR_CONFIG, "more than %d patterns", FRAGMENTS_MOST);
        TRY(parse_one(&x->of[x->count++], at, strcspn(at, " \t,")));
    }
    x->of[x->count++].period = every;
    return ERR_OK;
}

int fragments_find(const fragments *x, const char *name) {
    int k = 0;
    while (k < x->count - 1 && fnmatch(x->of[k].pattern, name, 0) != 0) k++;
    return k;
}
