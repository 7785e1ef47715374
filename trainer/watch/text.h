// trainer/watch/text.h: text that is built in memory of the caller's, without heap: JSON and whatever else is made of
// numbers.
#ifndef TRAINER_WATCH_TEXT_H
#define TRAINER_WATCH_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// at: `room` bytes. What does not fit is lost, and `full` says so; the text always ends with a NUL.
typedef struct text {
    char *at;
    size_t room, n;
    bool full;
} text;

// Appends as it is.
void text_put(text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// "key":x, a comma before it unless it follows a bracket or brace that opens. null where x is NaN or infinite; of whole
// numbers where n is negative; of words where s is NULL. digits: of a real number.
void text_real(text *t, const char *key, double x, int digits);
void text_whole(text *t, const char *key, int64_t n);
void text_word(text *t, const char *key, const char *s);

// A number alone, or null.
void text_number(text *t, double x, int digits);

#endif
