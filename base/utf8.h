// base/utf8.h: text of any bytes, as a model writes it, for those who read UTF-8.
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>

// Bytes of the valid UTF-8 sequence at s (RFC 3629), 0 when there is none. s ends with a NUL, which counts as one.
int utf8_length(const unsigned char *s);

// Copies what is safe to print on a terminal: valid UTF-8 without control characters, and without those that show
// nothing and change how the rest reads, such as U+202E; '?' stands for anything else. At most room - 1 bytes and a
// NUL. `to` may be `from`: text never grows.
void utf8_printable(char *to, size_t room, const char *from);

// How many bytes at the end of the n bytes at s begin a sequence whose rest may follow: 0 to 3.
size_t utf8_begun(const char *s, size_t n);

// Copies with U+FFFD for each byte that belongs to no valid sequence; `to` has room for 3 bytes for each of `from`, and
// a NUL.
void utf8_replace(char *to, const char *from);

#endif
