// test/support/tokenizer.h: what the tests of tokenizers share: results that are expected, and small files.
#ifndef TEST_SUPPORT_TOKENIZER_H
#define TEST_SUPPORT_TOKENIZER_H

#include "test/support/place.h"

#include <string.h>

#define assert_ok(call) \
    do { \
        if ((call) != ERR_OK) fail_msg("%s: %s", #call, err_last()->text); \
    } while (0)

#define assert_error(call, expected, ...) \
    assert_error_at(call, expected, (const char *const[]){__VA_ARGS__, NULL}, __LINE__)
static inline void assert_error_at(err_t rc, err_t expected, const char *const *words, int line) {
    if (rc != expected)
        fail_msg("line %d: code %d, expected %d: %s", line, (int)rc, (int)expected, rc ? err_last()->text : "");
    for (; *words; words++)
        if (!strstr(err_last()->text, *words)) fail_msg("line %d: no \"%s\" in: %s", line, *words, err_last()->text);
}

#define GOLDEN "test/golden/tokenizer/"
enum { MOST = 1 << 12, LONG = 1 << 20 };

static inline void put_file(place *p, const char *name, const char *text) {
    assert_ok(io_write_file(at(p, name), text, strlen(text), NULL));
}

#endif
