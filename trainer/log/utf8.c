// trainer/log/utf8.c: see trainer/log/utf8.h.
#include "trainer/log/utf8.h"

#include <stdbool.h>
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

void utf8_printable(char *to, size_t room, const char *from) {
    size_t n = 0;
    for (const unsigned char *s = (const unsigned char *)from; *s && n + 5 < room;) {
        int length = utf8_length(s);
        bool control = ((*s < 0x20 || *s == 0x7F) && *s != '\n' && *s != '\t') || (*s == 0xC2 && s[1] < 0xA0);
        bool bad = length == 0 || control;
        if (bad) to[n++] = '?';
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
