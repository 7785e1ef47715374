// comm/team/handshake.h: two processes prove to each other that they know the run's secret. Pure functions over bytes:
// no socket, no clock, no memory of their own; comm/team/door.c moves the bytes.
//
//   caller -> answerer   hello                     who calls, what it runs, a nonce
//   answerer -> caller   hello, proof              the answering side proves itself first
//   caller -> answerer   proof                     a caller has shown nothing but its hello until then
//   answerer -> caller   confirmation              from here on both know, and both have the session's keys
//
// A proof is a keyed hash (BLAKE2b, RFC 7693) over all bytes exchanged before it, which include both nonces, with the
// name of the side that proves: neither an old conversation nor the other side's own words can be played back. The keys
// of the connection are derived from the secret and the whole conversation, one for each direction and use. What must
// agree between ranks (build, configuration, ...) is not judged here but by rank 0, after the proof: a stranger learns
// nothing, not even that it is wrong.
#ifndef COMM_TEAM_HANDSHAKE_H
#define COMM_TEAM_HANDSHAKE_H

#include "comm/team/team.h"

enum {
    HELLO_VERSION = 2,  // of all that follows the handshake; the handshake itself never changes
    HELLO_MAGIC = 8,
    HELLO_NONCE = 32,
    HELLO_BYTES = HELLO_MAGIC + 8 * 4 + 4 * TEAM_TEXT + HELLO_NONCE,
    PROOF_BYTES = 32,
    HANDSHAKE_BYTES = 2 * HELLO_BYTES + 3 * PROOF_BYTES,  // of both directions
};

// COUNCIL: between nodes, whose numbers stand in `rank` and `target` (comm/team/council_net.h).
typedef enum hello_role { ROLE_CONTROL = 1, ROLE_DATA = 2, ROLE_COUNCIL = 3 } hello_role;

// How a caller identifies itself. The answering side fills in role, rank and nonce only, and repeats the caller's
// channel.
typedef struct hello {
    uint32_t version, role, node, rank, target, world, epoch;  // target: the rank that is called
    // ROLE_DATA: what the connection is for; ROLE_CONTROL: how many the run has beyond 0. 16 bits of role's word
    uint32_t channel;
    char job[TEAM_TEXT], build[TEAM_TEXT], config_hash[TEAM_TEXT], data_hash[TEAM_TEXT];
    uint8_t nonce[HELLO_NONCE];  // new random bytes for each connection
} hello;

typedef enum handshake_state {
    HANDSHAKE_GOING,     // more bytes are needed
    HANDSHAKE_KNOWN,     // the other side knows the secret; keys are ready
    HANDSHAKE_GARBAGE,   // what was received is no handshake of ours, or one for another rank
    HANDSHAKE_STRANGER,  // the other side does not know the secret
} handshake_state;

typedef struct session_keys {
    uint8_t send[TEAM_KEY], recv[TEAM_KEY];            // of control messages
    uint8_t link_send[TEAM_KEY], link_recv[TEAM_KEY];  // of a data connection
} session_keys;

typedef struct handshake {
    handshake_state state;
    bool answers, proven;           // this side answers; the caller's side: it has sent its proof
    hello mine, theirs;             // theirs is valid from KNOWN on
    uint8_t said[HANDSHAKE_BYTES];  // the conversation so far, both directions
    size_t length;                  // bytes of it
    size_t want, got;               // the message being received, at said[length]: its size, and bytes so far
    uint8_t out[HELLO_BYTES + PROOF_BYTES];
    size_t queued, sent;  // bytes of `out` to send, and bytes sent
    uint8_t prove_key[TEAM_KEY], session_key[TEAM_KEY];
    session_keys keys;  // valid from KNOWN on
} handshake;

// Starts the calling side (whose first message is then in `out`) or the answering one. mine->nonce must be fresh.
void handshake_call(handshake *h, const hello *mine, const uint8_t secret[TEAM_KEY]);
void handshake_answer(handshake *h, const hello *mine, const uint8_t secret[TEAM_KEY]);

// How many bytes the other side may send now: read no more than that from the connection. 0: none before `out` is sent,
// or ever.
size_t handshake_room(const handshake *h);

// Takes n <= handshake_room() bytes. Returns the state.
handshake_state handshake_feed(handshake *h, const uint8_t *bytes, size_t n);

// Forgets keys and conversation.
void handshake_wipe(handshake *h);

void hello_pack(uint8_t dst[HELLO_BYTES], const hello *h, bool answers);
bool hello_unpack(hello *h, const uint8_t src[HELLO_BYTES], bool answers);  // false: not a hello of that side

// mac (=) keyed hash of a counter and n bytes: how messages after the handshake are sealed.
void seal_mac(uint8_t mac[PROOF_BYTES], const uint8_t key[TEAM_KEY], uint64_t counter, const void *bytes, size_t n);
bool seal_same(const uint8_t a[PROOF_BYTES], const uint8_t b[PROOF_BYTES]);  // in constant time

static inline void put_le(uint8_t *dst, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++) dst[i] = (uint8_t)(v >> (8 * i));
}
static inline uint64_t get_le(const uint8_t *src, int bytes) {
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++) v |= (uint64_t)src[i] << (8 * i);
    return v;
}

#endif
