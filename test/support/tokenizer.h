// test/support/tokenizer.h: what the tests of tokenizers share: results that are expected, and small files.
#ifndef TEST_SUPPORT_TOKENIZER_H
#define TEST_SUPPORT_TOKENIZER_H

#include "data/tokenizer/tokenizer.h"
#include "test/support/expect.h"
#include "test/support/place.h"

#define GOLDEN "test/golden/tokenizer/"
enum { MOST = 1 << 12, LONG = 1 << 20 };

typedef struct pair {
    tokenizer *t;
    encoder *e;
} pair;

static inline pair open_pair(const char *path) {
    pair p;
    assert_ok(tokenizer_open(&p.t, path));
    assert_ok(encoder_open(&p.e, p.t));
    return p;
}

static inline void close_pair(pair *p) {
    encoder_close(p->e);
    tokenizer_close(p->t);
}

static inline void put_file(place *p, const char *name, const char *text) {
    assert_ok(io_write_file(at(p, name), text, strlen(text), NULL));
}

// The golden file with the first `from` replaced by `to`.
static inline char *change(const char *file, const char *from, const char *to) {
    char *text;
    size_t n;
    assert_ok(io_read_file(file, LONG, &text, &n));
    char *at = strstr(text, from), *changed = malloc(n + strlen(to) + 1);
    if (!at) fail_msg("%s has no %s", file, from);
    size_t head = (size_t)(at - text);
    memcpy(changed, text, head);
    strcpy(changed + head, to);
    strcat(changed + head, at + strlen(from));
    free(text);
    return changed;
}

static inline err_t open_changed(const char *file, const char *from, const char *to) {
    tokenizer *t;
    char *changed = change(file, from, to);
    err_t rc = tokenizer_parse(&t, "t.json", changed, (int64_t)strlen(changed));
    assert_true((rc == ERR_OK) == (t != NULL));
    tokenizer_close(t);
    free(changed);
    return rc;
}

#endif
