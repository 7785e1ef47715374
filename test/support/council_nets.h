// test/support/council_nets.h: the connections of several councils in one process, on 127.0.0.1, 127.0.0.2, ..., and a
// node that is played by hand. Everything is driven by turns: none waits longer than a few milliseconds.
#ifndef TEST_SUPPORT_COUNCIL_NETS_H
#define TEST_SUPPORT_COUNCIL_NETS_H

#include "test/support/council_messages.h"
#include "test/support/team.h"

#include "comm/team/council_net.h"

enum { NETS = 4, HAND_BYTES = COUNCIL_MESSAGE_BYTES + PROOF_BYTES, INBOX = 4096 };
#define WAIT_MOST_S 20.0

// What a net has heard, in order: from whom, in which life, and the step that the report had.
typedef struct heard_message {
    council_type type;
    int node;
    uint64_t life;
    int64_t step;
} heard_message;

typedef struct nets {
    int port, nodes;
    char host[NETS][COMM_HOST];
    council_net_options o[NETS];
    council_net *net[NETS];  // NULL: closed, or played by hand
    heard_message heard[NETS][INBOX];
    int count[NETS];
    council_room newest;  // of the last message that was taken
    council_message last;
} nets;

static inline nets *nets_open(int nodes) {
    nets *n = calloc(1, sizeof *n);
    n->port = free_port(), n->nodes = nodes;
    for (int i = 0; i < nodes; i++) {
        council_net_options *o = &n->o[i];
        snprintf(n->host[i], COMM_HOST, "127.0.0.%d", i + 1);
        *o = (council_net_options){.node = i, .nodes = nodes, .port = n->port, .job = "tiny", .build = "1a2b"};
        o->host = (const char(*)[COMM_HOST])n->host;
        snprintf(o->config_hash, sizeof o->config_hash, "c0ffee");
        memset(o->secret, 7, sizeof o->secret);
    }
    return n;
}

static inline void net_open(nets *n, int node) {
    if (council_net_open(&n->net[node], &n->o[node]) != ERR_OK) fail_msg("node %d: %s", node, err_last()->text);
}

static inline void net_close(nets *n, int node) {
    council_net_close(n->net[node]);
    n->net[node] = NULL;
}

static inline void nets_close(nets *n) {
    for (int i = 0; i < n->nodes; i++) net_close(n, i);
    free(n);
}

static inline void net_take(nets *n, int node) {
    while (n->net[node] && council_net_next(n->net[node], &n->last, &n->newest)) {
        assert_true(n->count[node] < INBOX);
        n->heard[node][n->count[node]++] =
            (heard_message){n->last.type, n->last.node, n->last.life, n->last.report.step};
    }
}

// One turn of each, and what has come is taken.
static inline void nets_turn(nets *n) {
    for (int i = 0; i < n->nodes; i++) {
        if (n->net[i]) assert_int_equal(council_net_turn(n->net[i], -1, now_s() + 0.001), ERR_OK);
        net_take(n, i);
    }
}

static inline void nets_turns(nets *n, double s) {
    for (double until = now_s() + s; now_s() < until;) nets_turn(n);
}

// A report as node `node` in its life `life` sends it: `step` tells one from another.
static inline void report_of(council_message *m, council_room *room, int node, uint64_t life, int64_t step) {
    example_message(m, room, COUNCIL_REPORT);
    m->node = node, m->life = life, m->report.step = step;
}

static inline void net_report(nets *n, int from, int to, uint64_t life, int64_t step) {
    council_message m;
    council_room *room = malloc(sizeof *room);
    report_of(&m, room, from, life, step);
    council_net_send(n->net[from], to, &m);
    free(room);
}

static inline int heard_from(const nets *n, int at, int from, uint64_t life) {
    int found = 0;
    for (int i = 0; i < n->count[at]; i++) found += n->heard[at][i].node == from && n->heard[at][i].life == life;
    return found;
}

// Node `from` reports until node `at` has heard it in that life: what is said before they are connected is lost.
static inline void until_heard(nets *n, int at, int from, uint64_t life) {
    int before = heard_from(n, at, from, life);
    for (double until = now_s() + WAIT_MOST_S; heard_from(n, at, from, life) == before; nets_turn(n)) {
        if (now_s() > until) fail_msg("node %d has not heard node %d in life %d", at, from, (int)life);
        net_report(n, from, at, life, 1);
    }
}

// --- a node by hand --------------------------------------------------------------------------------------------------

typedef struct hand {
    int fd, node;
    handshake shake;
    uint64_t sent, received;
    uint8_t bytes[HAND_BYTES];
} hand;

static inline hello hello_of_node(int node, int target) {
    hello h = {.version = HELLO_VERSION, .role = ROLE_COUNCIL, .job = "tiny", .build = "1a2b", .config_hash = "c0ffee"};
    h.node = h.rank = (uint32_t)node, h.target = (uint32_t)target, h.world = 3;
    for (int i = 0; i < HELLO_NONCE; i++) h.nonce[i] = (uint8_t)random();
    return h;
}

// The handshake's bytes both ways, while the nets have their turns. false: the other side ends the connection.
static inline bool hand_shakes(nets *n, hand *h) {
    uint8_t bytes[HELLO_BYTES + PROOF_BYTES];
    for (double until = now_s() + WAIT_MOST_S; h->shake.state == HANDSHAKE_GOING; nets_turn(n)) {
        handshake *s = &h->shake;
        if (now_s() > until) fail_msg("node %d by hand: no answer", h->node);
        if (s->sent < s->queued && !write_all(h->fd, s->out + s->sent, s->queued - s->sent)) return false;
        s->sent = s->queued;
        ssize_t got = recv(h->fd, bytes, handshake_room(s), MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN)) return false;
        if (got > 0) handshake_feed(s, bytes, (size_t)got);
    }
    return h->shake.state == HANDSHAKE_KNOWN;
}

// Calls node `target`, whose net has turns, with that hello.
static inline bool hand_calls(nets *n, hand *h, int target, const hello *mine, const uint8_t key[TEAM_KEY]) {
    *h = (hand){.fd = dial(target, n->port), .node = (int)mine->rank};
    assert_true(h->fd >= 0);
    handshake_call(&h->shake, mine, key);
    return hand_shakes(n, h);
}

static inline void hand_opens(nets *n, hand *h, int node, int target) {
    hello mine = hello_of_node(node, target);
    assert_true(hand_calls(n, h, target, &mine, secret));
}

// The sealed message in h->bytes; its size.
static inline size_t hand_seals(hand *h, const council_message *m) {
    size_t size = council_pack(h->bytes, COUNCIL_MESSAGE_BYTES, m);
    assert_true(size > 0);
    seal_mac(h->bytes + size, h->shake.keys.send, h->sent++, h->bytes, size);
    return size + PROOF_BYTES;
}

static inline void hand_reports(hand *h, uint64_t life, int64_t step) {
    council_message m;
    council_room *room = malloc(sizeof *room);
    report_of(&m, room, h->node, life, step);
    assert_true(write_all(h->fd, h->bytes, hand_seals(h, &m)));
    free(room);
}

// Has the other side ended this connection? What it says is thrown away.
static inline bool hand_is_dropped(nets *n, hand *h, double within_s) {
    uint8_t bytes[4096];
    for (double until = now_s() + within_s; now_s() < until; nets_turn(n)) {
        ssize_t got = recv(h->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno == ECONNRESET)) return true;
    }
    return false;
}

#endif
