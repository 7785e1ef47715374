// comm/team/handshake.c: the handshake as a state machine that is fed bytes. Every message has a fixed size, so the
// other side cannot choose how much is read or kept.
#include "comm/team/handshake.h"

#include <sodium.h>
#include <string.h>

static const uint8_t magic[HELLO_MAGIC] = {'l', 'o', 'c', 'k', 's', 't', 'e', 'p'};

// --- hello -----------------------------------------------------------------------------------------------------------

void hello_pack(uint8_t dst[HELLO_BYTES], const hello *h, bool answers) {
    const uint32_t number[8] = {answers,  h->version, h->role | h->channel << 16, h->node, h->rank, h->target,
                                h->world, h->epoch};
    const char *const text[4] = {h->job, h->build, h->config_hash, h->data_hash};
    memcpy(dst, magic, HELLO_MAGIC), dst += HELLO_MAGIC;
    for (int i = 0; i < 8; i++, dst += 4) put_le(dst, number[i], 4);
    for (int i = 0; i < 4; i++, dst += TEAM_TEXT) memcpy(dst, text[i], TEAM_TEXT);
    memcpy(dst, h->nonce, HELLO_NONCE);
}

bool hello_unpack(hello *h, const uint8_t src[HELLO_BYTES], bool answers) {
    uint32_t side, *const number[8] = {&side,    &h->version, &h->role,  &h->node,
                                       &h->rank, &h->target,  &h->world, &h->epoch};
    char *const text[4] = {h->job, h->build, h->config_hash, h->data_hash};
    if (memcmp(src, magic, HELLO_MAGIC) != 0) return false;
    src += HELLO_MAGIC;
    for (int i = 0; i < 8; i++, src += 4) *number[i] = (uint32_t)get_le(src, 4);
    for (int i = 0; i < 4; i++, src += TEAM_TEXT) {
        memcpy(text[i], src, TEAM_TEXT);
        text[i][TEAM_TEXT - 1] = 0;
    }
    memcpy(h->nonce, src, HELLO_NONCE);
    h->channel = h->role >> 16;
    h->role &= 0xffff;
    return side == (uint32_t)answers;
}

// --- keys ------------------------------------------------------------------------------------------------------------

// Subkeys of the secret, and of a session. The secret itself is never used for anything else.
enum {
    KEY_PROVE = 1,
    KEY_SESSION = 2,
    KEY_TO_ANSWERER = 3,
    KEY_TO_CALLER = 4,
    KEY_LINK_TO_ANSWERER = 5,
    KEY_LINK_TO_CALLER = 6
};

static void derive(uint8_t out[TEAM_KEY], uint64_t what, const uint8_t from[TEAM_KEY]) {
    _Static_assert(TEAM_KEY == crypto_kdf_KEYBYTES && PROOF_BYTES == crypto_generichash_BYTES, "sizes of keys");
    crypto_kdf_derive_from_key(out, TEAM_KEY, what, "lockstep", from);
}

// mac (=) keyed hash of a label and of the conversation so far.
static void prove(uint8_t mac[PROOF_BYTES], const handshake *h, const uint8_t key[TEAM_KEY], const char *label) {
    crypto_generichash_state s;
    crypto_generichash_init(&s, key, TEAM_KEY, PROOF_BYTES);
    crypto_generichash_update(&s, (const uint8_t *)label, 8);
    crypto_generichash_update(&s, h->said, h->length);
    crypto_generichash_final(&s, mac, PROOF_BYTES);
    sodium_memzero(&s, sizeof s);
}

void seal_mac(uint8_t mac[PROOF_BYTES], const uint8_t key[TEAM_KEY], uint64_t counter, const void *bytes, size_t n) {
    crypto_generichash_state s;
    uint8_t count[8];
    put_le(count, counter, 8);
    crypto_generichash_init(&s, key, TEAM_KEY, PROOF_BYTES);
    crypto_generichash_update(&s, count, sizeof count);
    crypto_generichash_update(&s, bytes, n);
    crypto_generichash_final(&s, mac, PROOF_BYTES);
    sodium_memzero(&s, sizeof s);
}

bool seal_same(const uint8_t a[PROOF_BYTES], const uint8_t b[PROOF_BYTES]) {
    return sodium_memcmp(a, b, PROOF_BYTES) == 0;
}

// After both proofs: the session's key is derived from the conversation, and all other keys from the session's.
static void derive_session(handshake *h) {
    uint8_t session[TEAM_KEY];
    session_keys *k = &h->keys;
    prove(session, h, h->session_key, "session");
    derive(h->answers ? k->recv : k->send, KEY_TO_ANSWERER, session);
    derive(h->answers ? k->send : k->recv, KEY_TO_CALLER, session);
    derive(h->answers ? k->link_recv : k->link_send, KEY_LINK_TO_ANSWERER, session);
    derive(h->answers ? k->link_send : k->link_recv, KEY_LINK_TO_CALLER, session);
    sodium_memzero(session, sizeof session);
}

// --- the machine -----------------------------------------------------------------------------------------------------

static void say(handshake *h, const uint8_t *bytes, size_t n) {
    memcpy(h->said + h->length, bytes, n);
    memcpy(h->out + h->queued, bytes, n);
    h->length += n;
    h->queued += n;
}

static void say_hello(handshake *h) {
    uint8_t packed[HELLO_BYTES];
    hello_pack(packed, &h->mine, h->answers);
    say(h, packed, sizeof packed);
}

static void say_proof(handshake *h, const char *label, const uint8_t key[TEAM_KEY]) {
    uint8_t mac[PROOF_BYTES];
    prove(mac, h, key, label);
    say(h, mac, sizeof mac);
}

// Is what was received, at said[length], the proof that belongs there?
static bool proof_holds(const handshake *h, const char *label, const uint8_t key[TEAM_KEY]) {
    uint8_t mac[PROOF_BYTES];
    prove(mac, h, key, label);
    return seal_same(mac, h->said + h->length);
}

static void start(handshake *h, const hello *mine, const uint8_t secret[TEAM_KEY], bool answers) {
    *h = (handshake){.answers = answers, .mine = *mine, .want = answers ? HELLO_BYTES : HELLO_BYTES + PROOF_BYTES};
    derive(h->prove_key, KEY_PROVE, secret);
    derive(h->session_key, KEY_SESSION, secret);
}

void handshake_call(handshake *h, const hello *mine, const uint8_t secret[TEAM_KEY]) {
    start(h, mine, secret, false);
    say_hello(h);
}

void handshake_answer(handshake *h, const hello *mine, const uint8_t secret[TEAM_KEY]) { start(h, mine, secret, true); }

size_t handshake_room(const handshake *h) {
    return h->state == HANDSHAKE_GOING && h->sent == h->queued ? h->want - h->got : 0;
}

// The message of `got` bytes becomes part of the conversation; the next one has `want`.
static void heard(handshake *h, size_t n, size_t want) {
    h->length += n;
    h->got = 0;
    h->want = want;
    h->queued = h->sent = 0;
}

static handshake_state answer_next(handshake *h) {
    if (h->length == 0) {
        if (!hello_unpack(&h->theirs, h->said, false) || h->theirs.role != h->mine.role ||
            h->theirs.target != h->mine.rank)
            return HANDSHAKE_GARBAGE;
        heard(h, HELLO_BYTES, PROOF_BYTES);
        h->mine.channel = h->theirs.channel;
        say_hello(h);
        say_proof(h, "answers", h->prove_key);
        return HANDSHAKE_GOING;
    }
    if (!proof_holds(h, "calling", h->prove_key)) return HANDSHAKE_STRANGER;
    heard(h, PROOF_BYTES, 0);
    derive_session(h);
    say_proof(h, "welcome", h->keys.send);
    return HANDSHAKE_KNOWN;
}

static handshake_state call_next(handshake *h) {
    if (h->length == HELLO_BYTES) {
        const hello *theirs = &h->theirs, *mine = &h->mine;
        if (!hello_unpack(&h->theirs, h->said + h->length, true) || theirs->role != mine->role ||
            theirs->channel != mine->channel || theirs->rank != mine->target)
            return HANDSHAKE_GARBAGE;
        h->length += HELLO_BYTES;
        if (!proof_holds(h, "answers", h->prove_key)) return HANDSHAKE_STRANGER;
        heard(h, PROOF_BYTES, PROOF_BYTES);
        say_proof(h, "calling", h->prove_key);
        derive_session(h);
        h->proven = true;
        return HANDSHAKE_GOING;
    }
    if (!proof_holds(h, "welcome", h->keys.recv)) return HANDSHAKE_STRANGER;
    heard(h, PROOF_BYTES, 0);
    return HANDSHAKE_KNOWN;
}

handshake_state handshake_feed(handshake *h, const uint8_t *bytes, size_t n) {
    if (h->state != HANDSHAKE_GOING || n > handshake_room(h)) return h->state = HANDSHAKE_GARBAGE;
    uint8_t *at = h->said + h->length;
    memcpy(at + h->got, bytes, n);
    h->got += n;
    // A peer that does not speak this protocol is dropped at its first wrong byte.
    bool expects_hello = h->want >= HELLO_BYTES;
    if (expects_hello && memcmp(at, magic, h->got < HELLO_MAGIC ? h->got : HELLO_MAGIC) != 0)
        return h->state = HANDSHAKE_GARBAGE;
    if (h->got < h->want) return HANDSHAKE_GOING;
    h->state = h->answers ? answer_next(h) : call_next(h);
    if (h->state != HANDSHAKE_GOING) {  // only the session's keys and the bytes to send are still needed
        sodium_memzero(h->prove_key, sizeof h->prove_key);
        sodium_memzero(h->session_key, sizeof h->session_key);
    }
    return h->state;
}

void handshake_wipe(handshake *h) { sodium_memzero(h, sizeof *h); }
