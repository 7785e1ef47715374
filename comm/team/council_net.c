// comm/team/council_net.c: see comm/team/council_net.h. comm/team/door.c makes the connections, here between nodes
// instead of ranks: a node stands in the place of a rank, and calls the nodes below it.
#include "comm/team/council_net.h"

#include "comm/team/internal.h"
#include "comm/team/settings.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

// What waits to be sent: two of the largest messages. Most are a hundredth of that.
enum { IN_BYTES = COUNCIL_MESSAGE_BYTES + PROOF_BYTES, OUT_BYTES = 2 * IN_BYTES, LENGTH_BYTES = 4 };

typedef struct peer {
    int fd;      // -1: not connected
    bool ended;  // ... any more, and what had come before is still to be taken
    int slot;
    double heard;
    uint8_t send_key[TEAM_KEY], recv_key[TEAM_KEY];
    uint64_t sent, received;  // counters of the seals
    size_t got, queued;
    uint8_t *in, *out;  // IN_BYTES, OUT_BYTES; NULL: not connected yet
} peer;

struct council_net {
    struct team names;  // of the nodes, for the door's messages: it is no team
    launch at;
    uint8_t secret[TEAM_KEY];
    meeting door;
    peer *peer;  // by node
    int turn;    // the node whose messages are taken first
    bool differs;
    bool named;  // `why` has the keys
    char why[COUNCIL_NET_WHY];
    const char *settings;
    // One with other settings, which has been sent ours and is to answer with its own.
    peer guest;
    int guest_node;
    double guest_until;
    char guest_why[COUNCIL_NET_WHY];  // what is said if it does not
};

static const double answer_s = 3;  // for the guest

// --- one connection --------------------------------------------------------------------------------------------------

static void hang_up(peer *p) {
    if (p->fd >= 0) close(p->fd);
    p->fd = -1, p->ended = false, p->got = p->queued = 0;
}

// The node's connection from now on; one that it had is closed, with what was not read.
static void take_up(peer *p, int fd, const session_keys *k) {
    hang_up(p);
    if (!p->in) p->in = malloc(IN_BYTES);
    if (!p->out) p->out = malloc(OUT_BYTES);
    if (!p->in || !p->out) {  // the next call may find memory
        close(fd);
        return;
    }
    p->fd = fd, p->heard = clock_now(), p->sent = p->received = 0;
    memcpy(p->send_key, k->send, TEAM_KEY);
    memcpy(p->recv_key, k->recv, TEAM_KEY);
}

static void flush(peer *p) {
    while (p->fd >= 0 && p->queued) {
        ssize_t n = send(p->fd, p->out, p->queued, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)) return;
        if (n < 0) {
            hang_up(p);
            return;
        }
        p->queued -= (size_t)n;
        memmove(p->out, p->out + n, p->queued);
    }
}

static void fill(peer *p) {
    while (p->fd >= 0 && p->got < IN_BYTES) {
        ssize_t n = recv(p->fd, p->in + p->got, IN_BYTES - p->got, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (n <= 0) {
            size_t got = p->got;
            hang_up(p);
            p->got = got, p->ended = true;
            return;
        }
        p->got += (size_t)n, p->heard = clock_now();
    }
}

// The whole message at the head of `in`, its seal included; 0: it is not there yet. false: no message begins so.
static bool whole_message(const peer *p, size_t *bytes) {
    *bytes = 0;
    if (p->got < LENGTH_BYTES) return true;
    size_t n = (size_t)get_le(p->in, LENGTH_BYTES);
    if (n < LENGTH_BYTES || n > COUNCIL_MESSAGE_BYTES) return false;
    if (p->got >= n + PROOF_BYTES) *bytes = n + PROOF_BYTES;
    return true;
}

// false: nothing whole is there. A connection with a message that is not what was sent is closed.
static bool take_message(peer *p, int node, council_message *m, council_room *room) {
    uint8_t mac[PROOF_BYTES];
    size_t n;
    bool sound = whole_message(p, &n);
    if (sound && n == 0) {
        if (p->ended) hang_up(p);
        return false;
    }
    if (sound) seal_mac(mac, p->recv_key, p->received++, p->in, n - PROOF_BYTES);
    sound = sound && seal_same(mac, p->in + n - PROOF_BYTES) &&
            council_unpack(m, room, p->in, n - PROOF_BYTES) == ERR_OK && m->node == node;
    if (!sound) {
        hang_up(p);
        return false;
    }
    p->got -= n;
    memmove(p->in, p->in + n, p->got);
    return true;
}

// --- who comes, and who answers --------------------------------------------------------------------------------------

#define SAME_INI "the INI must be the same on all nodes, but for local keys (`lockstep config` prints it)"

static bool value_differs(const council_net *n, char why[COUNCIL_NET_WHY], const hello *h, const char *what,
                          const char *its, const char *own, const char *hint) {
    if (strcmp(its, own) == 0) return false;
    int node = (int)h->rank, me = n->at.rank;
    snprintf(why, COUNCIL_NET_WHY, "node %d (%s) has %s %s, node %d (%s) has %s: %s", node, n->at.place[node].host,
             what, its, me, n->at.place[me].host, own, hint);
    return true;
}

// *settings (=) nothing else does.
static bool runs_differ(const council_net *n, char why[COUNCIL_NET_WHY], const hello *h, bool *settings) {
    const hello *o = &n->door.mine;
    char its[24], own[24];
    *settings = false;
    snprintf(its, sizeof its, "%u", h->version);
    snprintf(own, sizeof own, "%u", o->version);
    if (value_differs(n, why, h, "protocol", its, own, "install the same binary on all nodes") ||
        value_differs(n, why, h, "run", h->job, o->job, "[run] name must be the same on all nodes") ||
        value_differs(n, why, h, "build", h->build, o->build, "install the same binary on all nodes"))
        return true;
    return *settings = value_differs(n, why, h, "configuration", h->config_hash, o->config_hash, SAME_INI);
}

// Once keys are named they stay: the other node may call again before it ends, and leave without a word.
static void differ(council_net *n, const char *why) {
    if (n->named) return;
    snprintf(n->why, sizeof n->why, "%s", why);
    n->differs = true;
}

static bool send_one(peer *p, const council_message *m);

// A visitor that runs something else is sent a message that says what differs, since only the answering side has
// compared, and is then disconnected. The node whose number it has keeps its connection.
static void refuse(council_net *n, visitor *v, const char *why) {
    council_message m = {.type = COUNCIL_REFUSED, .node = n->at.rank, .life = 1};
    peer p = {.fd = -1};
    snprintf(m.why, sizeof m.why, "%s", why);
    take_up(&p, v->fd, &v->shake.keys);
    v->fd = -1;
    (void)send_one(&p, &m);
    hang_up(&p);
    free(p.in), free(p.out);
    sodium_memzero(&p, sizeof p);
    differ(n, why);
}

// --- in which keys two nodes differ ----------------------------------------------------------------------------------

static bool send_settings(const council_net *n, peer *p) {
    return send_one(
        p, &(council_message){.type = COUNCIL_SETTINGS, .node = n->at.rank, .life = 1, .settings = n->settings});
}

// Both sides say the same: the values of the node that came, then those of the one that answered.
static bool name_keys(council_net *n, int came, const char *its, int answered, const char *own) {
    char keys[COUNCIL_NET_WHY - 250], why[COUNCIL_NET_WHY];
    if (!settings_differ(keys, sizeof keys, its, own)) return false;
    snprintf(why, sizeof why, "node %d (%s) and node %d (%s) have different settings: %s: " SAME_INI, came,
             n->at.place[came].host, answered, n->at.place[answered].host, keys);
    differ(n, why);
    return n->named = true;
}

// One visitor at a time; what is sent to any other one has the hashes alone.
static bool ask_guest(council_net *n, visitor *v, const char *why) {
    peer *p = &n->guest;
    if (!n->settings || p->fd >= 0) return false;
    take_up(p, v->fd, &v->shake.keys);
    v->fd = -1;
    n->guest_node = (int)v->shake.theirs.rank, n->guest_until = clock_now() + answer_s;
    snprintf(n->guest_why, sizeof n->guest_why, "%s", why);
    if (!send_settings(n, p)) hang_up(p), differ(n, why);
    return true;
}

// It may have said other things before it read ours.
static void hear_guest(council_net *n) {
    peer *p = &n->guest;
    council_message m;
    council_room *room = p->fd >= 0 || p->ended ? malloc(sizeof *room) : NULL;
    bool named = false;
    while (room && !named && take_message(p, n->guest_node, &m, room))
        named = m.type == COUNCIL_SETTINGS && name_keys(n, n->guest_node, m.settings, n->at.rank, n->settings);
    if (room && !named && (p->fd < 0 || clock_now() >= n->guest_until)) differ(n, n->guest_why), named = true;
    if (named) hang_up(p);
    free(room);
}

// A visitor that is none of the nodes above is ignored.
static err_t came(meeting *m, visitor *v) {
    council_net *n = (council_net *)(void *)m->t;
    const hello *h = &v->shake.theirs;
    if (h->rank >= (uint32_t)n->at.world || (int)h->rank <= n->at.rank) return ERR_OK;
    char why[COUNCIL_NET_WHY];
    bool settings;
    if (runs_differ(n, why, h, &settings)) {
        if (!settings || !ask_guest(n, v, why)) refuse(n, v, why);
        return ERR_OK;
    }
    take_up(&n->peer[h->rank], v->fd, &v->shake.keys);
    v->fd = -1;
    return ERR_OK;
}

static err_t reached(meeting *m, caller *c) {
    council_net *n = (council_net *)(void *)m->t;
    take_up(&n->peer[c->target], c->fd, &c->shake.keys);
    return ERR_OK;
}

// --- opening ---------------------------------------------------------------------------------------------------------

static err_t name_nodes(council_net *n, const council_net_options *o) {
    _Static_assert(offsetof(council_net, names) == 0, "the door's team is the net");
    n->at = (launch){.rank = o->node, .node = o->node, .world = o->nodes, .nodes = o->nodes};
    n->at.place = calloc((size_t)o->nodes, sizeof *n->at.place);
    n->peer = calloc((size_t)o->nodes, sizeof *n->peer);
    if (!n->at.place || !n->peer) return err_set(ERR_INTERNAL, "no memory for the council of %d nodes", o->nodes);
    for (int i = 0; i < o->nodes; i++) {
        n->peer[i].fd = -1;
        n->at.place[i] = (comm_place){.node = i, .rank = i};
        memcpy(n->at.place[i].host, o->host[i], COMM_HOST);
    }
    n->names.at = &n->at;
    memcpy(n->secret, o->secret, TEAM_KEY);
    return ERR_OK;
}

static hello own_hello(const council_net_options *o) {
    hello h = {.version = HELLO_VERSION,
               .role = ROLE_COUNCIL,
               .node = (uint32_t)o->node,
               .rank = (uint32_t)o->node,
               .world = (uint32_t)o->nodes};
    memcpy(h.job, o->job, TEAM_TEXT);
    memcpy(h.build, o->build, TEAM_TEXT);
    memcpy(h.config_hash, o->config_hash, TEAM_TEXT);
    return h;
}

static err_t open_door(council_net *n, const council_net_options *o) {
    meeting *m = &n->door;
    *m = (meeting){.t = &n->names, .secret = n->secret, .mine = own_hello(o), .remembers = true};
    m->came = came, m->reached = reached;
    TRY(meeting_open(m, 0, o->node, 2 + o->nodes));
    for (int i = 0; i < o->node; i++)
        m->caller[i] = (caller){.target = i, .fd = -1, .host = n->at.place[i].host, .port = o->port};
    return o->node < o->nodes - 1 ? meeting_listen(m, o->host[o->node], o->port) : ERR_OK;
}

err_t council_net_open(council_net **out, const council_net_options *o) {
    *out = NULL;
    if (sodium_init() < 0) return err_set(ERR_INTERNAL, "libsodium did not start: no source of random numbers");
    council_net *n = calloc(1, sizeof *n);
    if (!n) return err_set(ERR_INTERNAL, "no memory for the council of %d nodes", o->nodes);
    n->door.listener = -1;
    n->guest.fd = -1, n->settings = o->settings;
    err_t rc = name_nodes(n, o);
    if (rc == ERR_OK) rc = open_door(n, o);
    if (rc == ERR_OK) return *out = n, ERR_OK;
    err_record why = *err_last();
    council_net_close(n);
    return err_restore(&why);
}

static void part(peer *p) {
    flush(p);
    hang_up(p);
    free(p->in), free(p->out);
    sodium_memzero(p, sizeof *p);
}

void council_net_close(council_net *n) {
    if (!n) return;
    for (int i = 0; n->peer && i < n->at.world; i++) part(&n->peer[i]);
    part(&n->guest);
    // the door does not close what it has handed on
    meeting_close(&n->door);
    free(n->peer), free(n->at.place);
    sodium_memzero(n, sizeof *n);
    free(n);
}

// --- a turn ----------------------------------------------------------------------------------------------------------

// A node below that has no connection is called again.
static void call_again(council_net *n, double now) {
    for (int i = 0; i < n->door.callers; i++) {
        caller *c = &n->door.caller[i];
        peer *p = &n->peer[c->target];
        if (p->fd >= 0 && now - p->heard > COUNCIL_SILENT_S) hang_up(p);
        if (!c->done || p->fd >= 0 || p->ended) continue;
        c->done = false, c->fd = -1, c->pause = 0, c->again = now;
    }
}

static void await(meeting *m, peer *p) {
    p->slot = p->fd >= 0 ? m->watched++ : -1;
    if (p->slot >= 0)
        m->poll[p->slot] = (struct pollfd){.fd = p->fd, .events = (short)(POLLIN | (p->queued ? POLLOUT : 0))};
}

// One that was taken up in this turn has another descriptor in its slot.
static void move(const meeting *m, peer *p) {
    if (p->fd < 0 || p->slot < 0 || m->poll[p->slot].fd != p->fd) return;
    if (m->poll[p->slot].revents & POLLOUT) flush(p);
    if (m->poll[p->slot].revents & ~POLLOUT) fill(p);
}

err_t council_net_turn(council_net *n, int wake, double until) {
    meeting *m = &n->door;
    call_again(n, clock_now());
    m->poll[0] = (struct pollfd){.fd = wake, .events = POLLIN};
    m->watched = 1;
    for (int i = 0; i < n->at.world; i++) await(m, &n->peer[i]);
    await(m, &n->guest);
    if (n->guest.fd >= 0 && until > n->guest_until) until = n->guest_until;
    TRY(meeting_turn(m, until));
    for (int i = 0; i < n->at.world; i++) move(m, &n->peer[i]);
    move(m, &n->guest);
    hear_guest(n);
    return ERR_OK;
}

// Of a node that has sent us away, with what differs or with its settings; refused ballots have a round.
static bool is_refusal(council_net *n, const council_message *m) {
    if (m->type == COUNCIL_REFUSED && !m->ballot.round) return differ(n, m->why), true;
    if (m->type != COUNCIL_SETTINGS) return false;
    if (n->settings) (void)send_settings(n, &n->peer[m->node]);
    if (n->settings && name_keys(n, n->at.rank, n->settings, m->node, m->settings)) return true;
    char why[COUNCIL_NET_WHY];
    snprintf(why, sizeof why, "node %d (%s) has other settings: " SAME_INI, m->node, n->at.place[m->node].host);
    return differ(n, why), true;
}

bool council_net_next(council_net *n, council_message *m, council_room *room) {
    err_record before = *err_last();
    bool found = false;
    for (int i = 0; !found && i < n->at.world; i++) {
        int node = (n->turn + i) % n->at.world;
        peer *p = &n->peer[node];
        found = p->in && take_message(p, node, m, room) && !is_refusal(n, m);
        if (found) n->turn = node;
    }
    err_restore(&before);
    return found;
}

static bool send_one(peer *p, const council_message *m) {
    size_t n = p->fd >= 0 ? council_pack(p->out + p->queued, OUT_BYTES - p->queued, m) : 0;
    if (n == 0 || p->queued + n + PROOF_BYTES > OUT_BYTES) return false;
    seal_mac(p->out + p->queued + n, p->send_key, p->sent++, p->out + p->queued, n);
    p->queued += n + PROOF_BYTES;
    flush(p);
    return true;
}

void council_net_send(council_net *n, int to, const council_message *m) {
    for (int i = 0; i < n->at.world; i++)
        if (i != n->at.rank && (to < 0 || to == i)) (void)send_one(&n->peer[i], m);
}

const char *council_net_differs(const council_net *n) { return n->differs ? n->why : NULL; }
