// base/utf8.c: see base/utf8.h.
#include "base/utf8.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

int utf8_length(const unsigned char *s) {
    if (s[0] < 0x80) return 1;
    int n = s[0] >= 0xF0 && s[0] <= 0xF4 ? 4 : s[0] >= 0xE0 && s[0] < 0xF0 ? 3 : s[0] >= 0xC2 && s[0] < 0xE0 ? 2 : 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    if (n == 3 && ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F))) return 0;
    if (n == 4 && ((s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F))) return 0;
    return n;
}

// The code point of a valid sequence of n bytes.
static uint32_t code_point(const unsigned char *s, int n) {
    uint32_t c = n == 1 ? s[0] : s[0] & (0x7Fu >> n);
    for (int i = 1; i < n; i++) c = c << 6 | (s[i] & 0x3F);
    return c;
}

// What a terminal would obey rather than show: controls but line ends and tabs; and what shows nothing, but turns
// around or hides what is beside it, so that a line reads as it is not: marks, embeddings, overrides and isolates of
// direction, separators of lines, spaces without width, tags. Joiners stay: Persian, Hindi and emoji are written with
// them.
static bool is_obeyed(uint32_t c) {
    static const uint32_t ranges[][2] = {{0, 0x08},        {0x0B, 0x1F},     {0x7F, 0x9F},      {0x061C, 0x061C},
                                         {0x200B, 0x200B}, {0x200E, 0x200F}, {0x2028, 0x202E},  {0x2060, 0x206F},
                                         {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}, {0xE0000, 0xE007F}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
    return false;
}

void utf8_printable(char *to, size_t room, const char *from) {
    size_t n = 0;
    for (const unsigned char *s = (const unsigned char *)from; *s && n + 5 < room;) {
        int length = utf8_length(s);
        if (length == 0 || is_obeyed(code_point(s, length))) to[n++] = '?';
        else memmove(to + n, s, (size_t)length), n += (size_t)length;
        s += length ? length : 1;
    }
    to[n] = 0;
}

size_t utf8_begun(const char *s, size_t n) {
    for (size_t k = 1; k <= 3 && k <= n; k++) {
        unsigned char c = (unsigned char)s[n - k];
        if ((c & 0xC0) == 0x80) continue;
        size_t length = c >= 0xF0 && c <= 0xF4 ? 4 : c >= 0xE0 && c < 0xF0 ? 3 : c >= 0xC2 && c < 0xE0 ? 2 : 1;
        return length > k ? k : 0;
    }
    return 0;
}

void utf8_replace(char *to, const char *from) {
    while (*from) {
        int n = utf8_length((const unsigned char *)from);
        const char *what = n ? from : "\xEF\xBF\xBD";
        memcpy(to, what, n ? (size_t)n : 3);
        to += n ? n : 3, from += n ? n : 1;
    }
    *to = 0;
}
