// test/fuzz/fuzz_hello.c: any bytes at all as what the other side of a handshake says, or as control messages after
// it, or as settings. Nonces and secret are fixed here, so that a valid conversation exists among the inputs;
// whatever else comes, nobody is taken for somebody who knows the secret, no proof is shown to a stranger, and not
// one byte more is taken than there is room for.
//
//   input    how (which part is played), size of the pieces in which the bytes arrive, bytes
#include "comm/team/settings.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
bool lockstep_fuzz_try(const uint8_t *data, size_t size);
int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx);

enum { AS_ANSWERER, AS_CALLER, AS_CONN, AS_SETTINGS, PARTS };
enum { CALLER_SAYS = HELLO_BYTES + PROOF_BYTES, ANSWERER_SAYS = HELLO_BYTES + 2 * PROOF_BYTES };

static const uint8_t secret[TEAM_KEY] = "thirty-two bytes of a fuzzed key";
static const session_keys conn_keys = {.recv = "another thirty-two bytes, a key"};

static void expect(bool truth) {
    if (!truth) abort();
}

static void start(handshake *h, bool answers) {
    hello caller = {.version = HELLO_VERSION,
                    .role = ROLE_CONTROL,
                    .node = 1,
                    .rank = 3,
                    .world = 4,
                    .epoch = 1,
                    .job = "tiny",
                    .build = "1a2b",
                    .config_hash = "c0ffee",
                    .data_hash = "d00d",
                    .nonce = "one"};
    hello answerer = {.version = HELLO_VERSION, .role = ROLE_CONTROL, .nonce = "two"};
    if (answers) handshake_answer(h, &answerer, secret);
    else handshake_call(h, &caller, secret);
}

// The one conversation that is right: what each side says.
static void right(uint8_t caller[CALLER_SAYS], uint8_t answerer[ANSWERER_SAYS]) {
    handshake side[2];
    uint8_t *said[2] = {caller, answerer};
    start(&side[0], false), start(&side[1], true);
    for (int turn = 0; turn < 4; turn++) {
        handshake *from = &side[turn % 2], *to = &side[1 - turn % 2];
        size_t n = from->queued - from->sent;
        memcpy(said[turn % 2], from->out + from->sent, n);
        handshake_feed(to, from->out + from->sent, n);
        said[turn % 2] += n;
        from->sent += n;
    }
    expect(side[0].state == HANDSHAKE_KNOWN && side[1].state == HANDSHAKE_KNOWN);
}

static bool try_handshake(bool answers, size_t piece, const uint8_t *data, size_t size) {
    uint8_t caller[CALLER_SAYS], answerer[ANSWERER_SAYS];
    const uint8_t *good = answers ? caller : answerer;
    size_t most = answers ? CALLER_SAYS : ANSWERER_SAYS, first = answers ? HELLO_BYTES : CALLER_SAYS, used = 0;
    handshake h;
    right(caller, answerer);
    start(&h, answers);
    while (used < size && h.state == HANDSHAKE_GOING) {
        h.sent = h.queued;
        size_t n = handshake_room(&h);
        expect(n > 0 && n <= HELLO_BYTES + PROOF_BYTES);
        if (n > piece) n = piece;
        if (n > size - used) n = size - used;
        handshake_feed(&h, data + used, n);
        used += n;
        expect(h.length <= sizeof h.said && h.queued <= sizeof h.out && used <= most);
        if (h.state == HANDSHAKE_GOING) expect(h.length + h.want <= sizeof h.said);
        if (used < first) expect(h.length == (answers ? 0 : HELLO_BYTES));
    }
    bool same = used == most && memcmp(data, good, most) == 0;
    expect((h.state == HANDSHAKE_KNOWN) == same);
    if (!answers) expect(h.proven == (used >= first && memcmp(data, good, first) == 0));
    if (h.state != HANDSHAKE_GOING) expect(handshake_room(&h) == 0);
    handshake_wipe(&h);
    return same;
}

static bool try_conn(size_t piece, const uint8_t *data, size_t size) {
    int pair[2];
    conn c;
    frame f;
    conn_news news = CONN_NOTHING;
    uint64_t frames = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return false;
    conn_open(&c, pair[0], true, 1, &conn_keys);
    for (size_t used = 0; used < size && news != CONN_FORGED; used += piece) {
        size_t n = piece < size - used ? piece : size - used;
        expect(send(pair[1], data + used, n, MSG_NOSIGNAL) == (ssize_t)n);
        while ((news = conn_read(&c, &f)) == CONN_FRAME) frames++, expect(memchr(f.text, 0, FRAME_TEXT) != NULL);
    }
    close(pair[1]);
    for (uint64_t i = 0; i < frames; i++) expect(frame_open(&f, data + i * FRAME_BYTES, conn_keys.recv, i));
    expect(news == CONN_FORGED ? size >= (frames + 1) * FRAME_BYTES
                               : conn_read(&c, &f) == CONN_ENDED && frames == size / FRAME_BYTES);
    conn_close(&c);
    return frames > 0 && frames * FRAME_BYTES == size;
}

// The bytes as pieces of settings that a rank says, and what comes of them beside others.
static bool try_settings(size_t piece, const uint8_t *data, size_t size) {
    int pair[2];
    conn c;
    uint8_t bytes[FRAME_BYTES];
    char *theirs = malloc(SETTINGS_MAX), keys[200];
    if (piece > FRAME_TEXT - 1) piece = FRAME_TEXT - 1;
    expect(theirs && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    conn_open(&c, pair[0], true, 1, &conn_keys);
    uint64_t frames = 0;
    for (size_t used = 0; used < size && frames < 40; frames++) {
        size_t n = piece < size - used ? piece : size - used;
        frame f = {.type = FRAME_SETTINGS, .code = n == size - used};
        memcpy(f.text, data + used, n);
        frame_seal(bytes, &f, conn_keys.recv, frames);
        expect(send(pair[1], bytes, sizeof bytes, MSG_NOSIGNAL) == sizeof bytes);
        used += n;
    }
    shutdown(pair[1], SHUT_WR);
    bool whole = settings_ask(&c, theirs);
    if (whole) {
        bool differs = settings_differ(keys, sizeof keys, theirs, "run.seed=1337\noptimizer.lr=0.001\n");
        expect(memchr(keys, 0, sizeof keys) != NULL && differs == (*keys != 0));
        expect(!settings_differ(keys, sizeof keys, theirs, theirs));
    }
    close(pair[1]);
    conn_close(&c);
    free(theirs);
    return whole;
}

bool lockstep_fuzz_try(const uint8_t *data, size_t size) {
    if (size < 2) return false;
    size_t piece = 1 + 4 * (size_t)data[1];
    switch (data[0] % PARTS) {
    case AS_ANSWERER: return try_handshake(true, piece, data + 2, size - 2);
    case AS_CALLER: return try_handshake(false, piece, data + 2, size - 2);
    case AS_SETTINGS: return try_settings(piece, data + 2, size - 2);
    default: return try_conn(piece, data + 2, size - 2);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lockstep_fuzz_try(data, size);
    return 0;
}

// --- seeds: the right conversation, from both sides, and three messages ----------------------------------------------

int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx) {
    uint8_t caller[2 + CALLER_SAYS] = {AS_ANSWERER, 255}, answerer[2 + ANSWERER_SAYS] = {AS_CALLER, 255},
                       frames[2 + 3 * FRAME_BYTES] = {AS_CONN, 255};
    const frame told[3] = {{.type = FRAME_BEAT, .step = 17, .number = 2, .text = "reduce bucket"},
                           {.type = FRAME_FAIL, .code = 69, .text = "rank 2 (10.0.0.2): the disk is on fire"},
                           {.type = FRAME_BYE}};
    right(caller + 2, answerer + 2);
    for (int i = 0; i < 3; i++) frame_seal(frames + 2 + i * FRAME_BYTES, &told[i], conn_keys.recv, (uint64_t)i);
    seed(ctx, caller, sizeof caller);
    seed(ctx, answerer, sizeof answerer);
    seed(ctx, frames, sizeof frames);
    static const uint8_t settings[] = "\3\2run.seed=7\noptimizer.lr=0.01\n";
    seed(ctx, settings, sizeof settings - 1);
    caller[1] = answerer[1] = 0;  // byte by byte
    frames[1] = 20;
    seed(ctx, caller, sizeof caller);
    seed(ctx, answerer, sizeof answerer);
    seed(ctx, frames, sizeof frames);
    return 0;
}
