// trainer/log/utf8.h: text of any bytes, as a model writes it, for those who read UTF-8.
#ifndef TRAINER_LOG_UTF8_H
#define TRAINER_LOG_UTF8_H

#include <stddef.h>

// Bytes of the valid UTF-8 sequence at s (RFC 3629), 0 when there is none. s ends with a NUL, which counts as one.
int utf8_length(const unsigned char *s);

// Copies what is safe to print on a terminal: valid UTF-8 without control characters; '?' stands for anything else. At
// most room - 1 bytes and a NUL. `to` may be `from`: text never grows.
void utf8_printable(char *to, size_t room, const char *from);

#endif
