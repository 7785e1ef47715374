// data/text/strip.c: see data/text/strip.h.
#include "data/text/strip.h"

#include "data/tokenizer/unicode.h"

#include <stdbool.h>
#include <string.h>

// What Python's str.strip takes away: \s and U+001C to U+001F.
static bool is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

int64_t strip_end(const bytes *x) {
    int64_t n = x->n;
    while (n > 0) {
        int64_t at = n - 1;
        uint32_t c;
        while (at > 0 && (x->at[at] & 0xC0) == 0x80) at--;
        utf8_next(x->at + at, n - at, &c);
        if (!is_space(c)) break;
        n = at;
    }
    return n;
}

void strip_both(bytes *x) {
    int64_t first = 0;
    uint32_t c;
    x->n = strip_end(x);
    for (int k; first < x->n && (k = utf8_next(x->at + first, x->n - first, &c)) > 0 && is_space(c);) first += k;
    if (first) memmove(x->at, x->at + first, (size_t)(x->n - first));
    x->n -= first;
}
