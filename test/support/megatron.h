// test/support/megatron.h: makes the index of a file of tokens as Megatron-LM writes it, byte by byte. Independent of
// the reader in data/text/.
#ifndef TEST_SUPPORT_MEGATRON_H
#define TEST_SUPPORT_MEGATRON_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { MEGATRON_HEADER = 34 };

static inline uint8_t *put_number(uint8_t *to, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++) *to++ = (uint8_t)(v >> 8 * i);
    return to;
}

// dst = the index of n sequences with these lengths and pointers (NULL: one after the other, of `bytes` a token), each
// a document. Returns its size.
static inline size_t megatron_index(uint8_t *dst, int type, int bytes, int64_t n, const int32_t *length,
                                    const int64_t *pointer) {
    uint8_t *p = dst;
    memcpy(p, "MMIDIDX\0", 9);
    p = put_number(p + 9, 1, 8);
    p = put_number(p, (uint64_t)type, 1);
    p = put_number(p, (uint64_t)n, 8);
    p = put_number(p, (uint64_t)n + 1, 8);
    for (int64_t i = 0; i < n; i++) p = put_number(p, (uint64_t)length[i], 4);
    for (int64_t i = 0, at = 0; i < n; at += (int64_t)bytes * length[i++])
        p = put_number(p, (uint64_t)(pointer ? pointer[i] : at), 8);
    for (int64_t i = 0; i <= n; i++) p = put_number(p, (uint64_t)i, 8);
    return (size_t)(p - dst);
}

#endif
