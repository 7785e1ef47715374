// data/hash.h: what sources put into the hash of their data (data/source.h), and how it is written.
#ifndef DATA_HASH_H
#define DATA_HASH_H

#include "base/le.h"

#include <sodium.h>

// Eight bytes, little-endian.
static inline void hash_number(crypto_generichash_state *state, uint64_t v) {
    uint8_t b[8];
    le64_put(b, v);
    crypto_generichash_update(state, b, sizeof b);
}

// Of a state that was begun with 32 bytes: the first 8 of them, as 16 letters.
static inline void hash_text(crypto_generichash_state *state, char hex[17]) {
    uint8_t digest[32];
    crypto_generichash_final(state, digest, sizeof digest);
    sodium_bin2hex(hex, 17, digest, 8);
}

#endif
