// base/text.h: text that is put together piece by piece: JSON, pages, lines for people. Nobody asks after each piece
// whether it found room: `full` says at the end whether all of it is there. Always ends with a NUL.
//
//   text t = {.at = dst, .room = sizeof dst};             in the caller's memory: what finds no room is cut off
//   text t = {..., .to = fd, .path = "name of the file"}; written to a file whenever it has no room; text_flush
//   text t = {0};                                         in memory that grows, until there is none; text_free
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct text {
    char *at;
    size_t n, room;    // bytes of the text, and of the memory
    size_t spare;      // escaped text ends so many bytes before the end, after a whole character; 0: at the end
    int to;            // 0: no file
    const char *path;  // of the file
    err_t rc;          // of writing to it
    bool grows;        // `at` is ours
    bool full;         // something is missing: no room, or no memory
} text;

// Appends as it is.
void text_put(text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void text_add(text *t, const char *bytes, size_t n);

// Bytes of the text; 0: something is missing.
static inline size_t text_bytes(const text *t) { return t->full ? 0 : t->n; }

// Writes to the file what has not been written yet. ERR_IO: this, or an earlier part, could not be written.
err_t text_flush(text *t);
void text_free(text *t);

// --- text of anyone's ------------------------------------------------------------------------------------------------

// What must not stand as it is where text is to be read as text.
typedef struct text_escapes {
    const char *special[8];  // a character, and what stands for it: "<&lt;"
    const char *invalid;     // stands for a byte that belongs to no UTF-8; NULL: the byte itself
    const char *control;     // format of a control character (its number: %04x, say); NULL: itself
    bool upper_controls;     // U+0080 to U+009F are control characters, too
} text_escapes;

#define UTF8_REPLACEMENT "\xEF\xBF\xBD"  // U+FFFD

// Appends any bytes as `how` says.
void text_escaped(text *t, const text_escapes *how, const char *s);

// For a page, between tags and in an attribute's quotes: < > & " ' are escaped; what is no UTF-8, and control
// characters other than newline and tab, become U+FFFD.
void text_html(text *t, const char *s);

// --- JSON ------------------------------------------------------------------------------------------------------------

// "key": and a comma before it unless it follows a bracket or brace that opens.
void text_key(text *t, const char *key);

// A member. null where x is NaN or infinite; of whole numbers where n is negative; of words where s is NULL. digits: of
// a real number.
void text_real(text *t, const char *key, double x, int digits);
void text_whole(text *t, const char *key, int64_t n);
void text_word(text *t, const char *key, const char *s);
void text_quoted(text *t, const text_escapes *how, const char *s);  // its value alone, as `how` escapes it

// A number alone, or null.
void text_number(text *t, double x, int digits);

// --- for people ------------------------------------------------------------------------------------------------------

void text_size(text *t, double bytes);  // "61.2 GB"

// dst = "(60000,28,28)". Returns dst.
const char *text_shape(char *dst, size_t room, int dims, const int64_t *size);

#endif
