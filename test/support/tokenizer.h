// test/support/tokenizer.h: what the tests of tokenizers share: results that are expected, and small files.
#ifndef TEST_SUPPORT_TOKENIZER_H
#define TEST_SUPPORT_TOKENIZER_H

#include "test/support/expect.h"
#include "test/support/place.h"

#define GOLDEN "test/golden/tokenizer/"
enum { MOST = 1 << 12, LONG = 1 << 20 };

static inline void put_file(place *p, const char *name, const char *text) {
    assert_ok(io_write_file(at(p, name), text, strlen(text), NULL));
}

#endif
