// comm/tcp/seal.c: see comm/tcp/seal.h.
#include "comm/tcp/seal.h"

#include <string.h>

enum { MAGIC = 0x6b636f6c };  // "lock"

// Little-endian on all machines that take part: the team refuses other builds.
typedef struct frame_head {
    uint32_t magic, length;
    message m;
} frame_head;
_Static_assert(sizeof(frame_head) == LINK_HEAD, "the head has no holes");
_Static_assert(crypto_onetimeauth_BYTES == LINK_TAG && crypto_onetimeauth_KEYBYTES == 32, "Poly1305");
_Static_assert(crypto_stream_chacha20_ietf_KEYBYTES == TEAM_KEY, "ChaCha20");

const char seal_payload_changed[] =
    "a frame's payload does not verify: it was changed on the way, or is not from there";

void seal_keys_of(seal_keys *k, const uint8_t key[TEAM_KEY], uint64_t number) {
    uint8_t nonce[crypto_stream_chacha20_ietf_NONCEBYTES] = {0};
    memcpy(nonce, &number, sizeof number);
    crypto_stream_chacha20_ietf((uint8_t *)k, sizeof *k, nonce, key);
}

void seal_head(uint8_t dst[LINK_SEALED], const seal_keys *k, const message *m, uint32_t length) {
    frame_head h = {MAGIC, length, *m};
    memcpy(dst, &h, sizeof h);
    crypto_onetimeauth(dst + LINK_HEAD, dst, LINK_HEAD, k->head);
}

const char *seal_open(const uint8_t src[LINK_SEALED], const seal_keys *k, message *m, uint32_t *length) {
    frame_head h;
    if (crypto_onetimeauth_verify(src + LINK_HEAD, src, LINK_HEAD, k->head) != 0)
        return "a frame's head does not verify: it was changed on the way, or is not from there";
    memcpy(&h, src, sizeof h);
    if (h.magic != MAGIC || h.length > LINK_FRAME) return "a frame that verifies and makes no sense";
    *m = h.m;
    *length = h.length;
    return NULL;
}
