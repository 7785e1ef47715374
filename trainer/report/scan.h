// trainer/report/scan.h: reads JSON in place, member by member, without heap: a million lines of a log in a second or
// two. jansson, which reads elsewhere, would make a tree of each.
//
//   scan s = scan_of(line, n);
//   scan_text key;
//   for (bool more = scan_begin(&s, '{'); more && scan_key(&s, &key); more = scan_more(&s, '}'))
//       if (scan_is(&key, "loss")) loss = scan_real(&s); else scan_skip(&s);
//   if (!scan_end(&s)) ... it was no JSON
//
// Nothing is returned of what is wrong: the scan then stands still, `bad` is set, every value is NaN or empty.
#ifndef TRAINER_REPORT_SCAN_H
#define TRAINER_REPORT_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef struct scan {
    const char *at, *end;
    bool bad;
} scan;

// A string as it stands between its quotes, escapes and all.
typedef struct scan_text {
    const char *at;
    size_t n;
} scan_text;

static inline scan scan_of(const char *text, size_t n) { return (scan){text, text + n, false}; }
static inline bool scan_is(const scan_text *t, const char *word) {
    return strlen(word) == t->n && memcmp(t->at, word, t->n) == 0;
}

// Enters an object ('{') or an array ('['). false: it is empty (and left again), or there is none (bad).
bool scan_begin(scan *s, char open);
// After a value: does another one follow? false: `close` came, or something that is no JSON (bad).
bool scan_more(scan *s, char close);
// The name of a member, and its colon.
bool scan_key(scan *s, scan_text *key);

// A value. What is not of that kind is passed over: NaN for null and all else that is no number; true and false are 1
// and 0; a text is empty.
double scan_real(scan *s);
scan_text scan_string(scan *s);
// Is an object or an array next? If not, the value is passed over.
bool scan_opens(scan *s, char open);
void scan_skip(scan *s);

// Was everything JSON, and is nothing left but white space?
bool scan_end(scan *s);

// dst = the text without its escapes, with U+FFFD for what is no UTF-8 and for NUL, cut after a whole character at room
// - 1 bytes. Returns dst.
char *scan_plain(char *dst, size_t room, scan_text t);

#endif
