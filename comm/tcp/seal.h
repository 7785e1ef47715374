// comm/tcp/seal.h: what makes a frame unforgeable, whatever carries it. A frame has a number, which its connection uses
// once for each direction, and from the connection's key and that number come two keys: of its head and of its payload.
// Each has a tag, Poly1305 under its key. Keys are the first 64 bytes of ChaCha20 with the number as nonce (RFC 8439,
// 2.3 and 2.5). A frame that was changed, lost, repeated or moved therefore fails its first check.
#ifndef COMM_TCP_SEAL_H
#define COMM_TCP_SEAL_H

#include "comm/team/team.h"

#include <sodium.h>

enum { LINK_FRAME = 256 << 10, LINK_HEAD = 24, LINK_TAG = 16, LINK_SEALED = LINK_HEAD + LINK_TAG };

// What precedes the payload of a message, in a ring and in the head of each of its frames.
typedef struct message {
    uint64_t bytes;     // of the whole message
    uint32_t sequence;  // of the messages from this rank to that one
    uint16_t comm;      // which communicator of the team
    uint8_t op, mark;
} message;

typedef struct seal_keys {
    uint8_t head[32], payload[32];
} seal_keys;

void seal_keys_of(seal_keys *k, const uint8_t key[TEAM_KEY], uint64_t number);

// dst (=) the head of a frame with `length` bytes of payload, and its tag.
void seal_head(uint8_t dst[LINK_SEALED], const seal_keys *k, const message *m, uint32_t length);

// Reads a head. NULL: it is the one that was sealed, and *m and *length are valid. Else what is wrong with it.
const char *seal_open(const uint8_t src[LINK_SEALED], const seal_keys *k, message *m, uint32_t *length);

// What is said of a payload whose tag is another one.
extern const char seal_payload_changed[];

#endif
