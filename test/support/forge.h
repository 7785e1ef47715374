// test/support/forge.h: a checkpoint's files read whole, written again, and given the digests that a program would give
// them. After checkpoint.h.
#ifndef TEST_SUPPORT_FORGE_H
#define TEST_SUPPORT_FORGE_H

#include "test/support/checkpoint.h"

#include <sodium.h>

static inline two two_steps(void **state) {
    two t = {*state, make_world("", 5)};
    save_step(t.w, 1, 5);
    save_step(t.w, 2, 5);
    fill(t.first, 1, 0);
    return t;
}

static inline char *slurp(const char *path, size_t *n) {
    char *text;
    OK(io_read_file(path, 1 << 24, &text, n));
    return text;
}

static inline void spill(const char *path, const void *bytes, size_t n) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), (ssize_t)n);
    close(fd);
}

// A manifest changed and given a new digest, as only a program would: no member may make the reader go wrong.
// noinline: where it is inlined, gcc 12 warns of a dangling pointer that is not there.
static __attribute__((noinline, unused)) void forge(const char *path, const char *text, const char *from,
                                                    const char *to) {
    static const char tail[] = ",\n \"digest\": \"";
    char *forged = calloc(1, strlen(text) + strlen(to) + 200);
    const char *at = strstr(text, from);
    assert_non_null(at);
    if (!forged) abort();  // gcc does not know that cmocka's assertions do not return
    sprintf(forged, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    char *end = strstr(forged, tail);
    assert_non_null(end);
    unsigned char d[32];
    char hex[65];
    crypto_generichash(d, sizeof d, (unsigned char *)forged, (size_t)(end - forged), NULL, 0);
    sprintf(end, "%s%s\"\n}\n", tail, sodium_bin2hex(hex, sizeof hex, d, sizeof d));
    spill(path, forged, strlen(forged));
    free(forged);
}

#endif
