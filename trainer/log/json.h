// trainer/log/json.h: a record as a line of JSON (base/text.h), built in memory of one size, without heap: what does
// not fit is cut.
#ifndef TRAINER_LOG_JSON_H
#define TRAINER_LOG_JSON_H

#include "base/text.h"

enum { JSON_LINE = 16384, JSON_SPARE = 64 };  // bytes: the most, and of these for what follows a long text

// An empty line in `at`.
static inline text json_line(char at[JSON_LINE]) { return (text){.at = at, .room = JSON_LINE, .spare = JSON_SPARE}; }

// Members. A real number has 9 digits; a text may have any bytes: what is no UTF-8 becomes U+FFFD, and a text that does
// not fit is cut after a whole character.
void json_put_real(text *j, const char *key, double x);
void json_put_text(text *j, const char *key, const char *s);

// A real number under a name with a word in it: "%ss_per_s" and "token" make "tokens_per_s". At most 63 bytes.
void json_put_named(text *j, const char *format, const char *word, double x);

// Ends the object and the line, and writes it at the file's position. ERR_IO: perhaps a part of it was written.
err_t json_write(text *j, int fd, const char *path);

#endif
