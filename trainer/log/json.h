// trainer/log/json.h: writes one JSON object as a line. It is built in a fixed buffer, without heap, and what does not
// fit is cut; so this is not jansson, which reads elsewhere.
#ifndef TRAINER_LOG_JSON_H
#define TRAINER_LOG_JSON_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum { JSON_LINE = 16384 };  // bytes

typedef struct json {
    char text[JSON_LINE];
    size_t n;
} json;

// Appends this text as it is: the caller sees to brackets, commas and quotes. json_put(j, "{\"t\":\"step\"") begins a
// line.
void json_put(json *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// ,"key":x with 9 digits; null for infinity and NaN, which JSON lacks.
void json_put_real(json *j, const char *key, double x);

// ,"key":n; null for 0, which stands for: not known.
void json_put_whole(json *j, const char *key, int64_t n);

// The same as json_put_real under a name with a word in it: "%ss_per_s" and "token" make "tokens_per_s". At most 63
// bytes.
void json_put_named(json *j, const char *format, const char *word, double x);

// ,"key":"text" of any bytes: what is no UTF-8 becomes U+FFFD. Text that does not fit is cut after a whole character.
void json_put_text(json *j, const char *key, const char *text);

// Ends the object and the line, and writes it at the file's position. ERR_IO: perhaps a part of it was written.
err_t json_write(json *j, int fd, const char *path);

#endif
