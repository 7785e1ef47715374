// test/support/expect.h: a call that must succeed, and one that must fail with these words.
#ifndef TEST_SUPPORT_EXPECT_H
#define TEST_SUPPORT_EXPECT_H

#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define assert_ok(call) \
    do { \
        if ((call) != ERR_OK) fail_msg("%s: %s", #call, err_last()->text); \
    } while (0)

// The call fails with this code, and its message has all of these words in it.
#define assert_error(call, expected, ...) \
    assert_error_at(call, expected, (const char *const[]){__VA_ARGS__, NULL}, __LINE__)
static inline void assert_error_at(err_t rc, err_t expected, const char *const *words, int line) {
    if (rc != expected)
        fail_msg("line %d: code %d, expected %d: %s", line, (int)rc, (int)expected, rc ? err_last()->text : "");
    for (; *words; words++)
        if (!strstr(err_last()->text, *words)) fail_msg("line %d: no \"%s\" in: %s", line, *words, err_last()->text);
}

#endif
