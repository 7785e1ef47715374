// comm/team/door.c: makes connections, in both directions, until each has proven itself. One thread, one poll(), and a
// fixed number of places: a visitor gets a place and a few seconds, and can cost no more than that. When all places are
// taken the oldest visitor is dropped, but not in its first moments (grace_s), in which an honest one has proven
// itself.
#include "comm/team/internal.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

// for a visitor to prove itself, and for an answering side to answer a hello
static const double visit_s = 5;
static const double grace_s = 0.25;                            // a visitor's first moments
static const double pause_least_s = 0.02, pause_most_s = 0.5;  // between attempts to reach a rank

// --- addresses -------------------------------------------------------------------------------------------------------

const char *peer_text(int fd, char dst[DOOR_TEXT]) {
    struct sockaddr_storage a;
    socklen_t size = sizeof a;
    char host[64], port[16];
    if (getpeername(fd, (struct sockaddr *)&a, &size) != 0 || a.ss_family == AF_UNIX ||
        getnameinfo((struct sockaddr *)&a, size, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(dst, DOOR_TEXT, "this node");
    else snprintf(dst, DOOR_TEXT, "%s port %s", host, port);
    return dst;
}

const char *where_text(const char *host, int port, char dst[DOOR_TEXT]) {
    snprintf(dst, DOOR_TEXT, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, port);
    return dst;
}

static int resolve(const char *host, int port, struct addrinfo **list) {
    char service[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    snprintf(service, sizeof service, "%d", port);
    return getaddrinfo(host, service, &hints, list);
}

// Attempts try the addresses in turn, so that a host without IPv6, or with both kinds, is reached at whichever works.
static const struct addrinfo *pick(const struct addrinfo *list, unsigned turn) {
    unsigned n = 0;
    for (const struct addrinfo *a = list; a; a = a->ai_next) n++;
    for (turn %= n; turn; turn--) list = list->ai_next;
    return list;
}

// --- visitors --------------------------------------------------------------------------------------------------------

static int listen_on(const struct addrinfo *a) {
    int one = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (a->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 1024) == 0) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

err_t meeting_listen(meeting *m, const char *host, int port) {
    struct addrinfo *list;
    int rc = resolve(host, port, &list);
    if (rc != 0) return err_set(ERR_UNAVAILABLE, "%s: %s; [cluster] nodes names this node so", host, gai_strerror(rc));
    for (const struct addrinfo *a = list; a && m->listener < 0; a = a->ai_next) m->listener = listen_on(a);
    int why = errno;
    freeaddrinfo(list);
    if (m->listener >= 0) return ERR_OK;
    char where[DOOR_TEXT];
    const char *hint = "";
    if (why == EADDRINUSE)
        hint = ". Another program has the port (ss -ltnp shows which): end it or choose another [cluster] port";
    if (why == EADDRNOTAVAIL) hint = ". This machine does not have that address now: see [cluster] nodes";
    return err_set(ERR_UNAVAILABLE, "%s can't be listened on: %s%s", where_text(host, port, where), strerror(why),
                   hint);
}

static void send_away(meeting *m, visitor *v, const char *why) {
    char from[DOOR_TEXT];
    if (!v->local) {
        m->strangers++;
        snprintf(m->stranger, sizeof m->stranger, "%s %s", peer_text(v->fd, from), why);
        close(v->fd);
    }
    handshake_wipe(&v->shake);
    v->fd = -1;
}

static visitor *oldest(meeting *m) {
    visitor *found = NULL;
    for (visitor *v = m->visitor; v < m->visitor + VISITORS_MAX; v++)
        if (v->fd >= 0 && (!found || v->since < found->since)) found = v;
    return found;
}

static visitor *free_place(meeting *m) {
    for (visitor *v = m->visitor; v < m->visitor + VISITORS_MAX; v++)
        if (v->fd < 0) return v;
    return NULL;
}

static void admit(meeting *m, visitor *v, int fd, bool local) {
    static const uint8_t none[TEAM_KEY];  // between processes of one parent there is nothing to prove
    hello mine = {.version = HELLO_VERSION, .role = m->mine.role, .rank = m->mine.rank};
    randombytes_buf(mine.nonce, sizeof mine.nonce);
    v->fd = fd;
    v->local = local;
    v->since = clock_now();
    handshake_answer(&v->shake, &mine, local ? none : m->secret);
}

static void no_delay(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

// Drops the oldest visitor, unless it is in its first moments: then no visitor is accepted until these are over. New
// callers wait in the kernel.
static visitor *make_room(meeting *m, double now, const char *why) {
    visitor *old = oldest(m);
    if (!old || now - old->since < grace_s) {
        m->accept_again = old ? old->since + grace_s : now + 0.1;
        return NULL;
    }
    send_away(m, old, why);
    return old;
}

// Accepts waiting callers.
static void open_door(meeting *m, double now) {
    for (int i = 0; i < 64; i++) {
        visitor *v = free_place(m);
        bool full = !v;
        if (full && !(v = make_room(m, now, "was slow while many others called"))) return;
        int fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            no_delay(fd);
            admit(m, v, fd, false);
            if (full) return;  // one at a time: no visitor is dropped for a caller that does not exist
            continue;
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK) return;
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (!make_room(m, now, "was slow while this process was out of descriptors")) return;
    }
}

static bool send_queued(team *t, handshake *h, int fd) {
    while (h->sent < h->queued) {
        ssize_t n = send(fd, h->out + h->sent, h->queued - h->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
        h->sent += (size_t)n;
        atomic_fetch_add(&t->wire, n);
    }
    return true;
}

// Moves the bytes of a handshake both ways as far as they go. False: the connection ended, errno says why (0: the other
// side closed it).
static bool exchange_bytes(team *t, handshake *h, int fd) {
    uint8_t bytes[HELLO_BYTES + PROOF_BYTES];
    for (;;) {
        if (!send_queued(t, h, fd)) return false;
        size_t room = handshake_room(h);
        if (room == 0) return true;
        ssize_t n = recv(fd, bytes, room, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
        errno = 0;
        if (n == 0) return false;
        handshake_feed(h, bytes, (size_t)n);
    }
}

static err_t ended_early(const meeting *m, const visitor *v) {
    char name[COMM_NAME];
    int rank = (int)(v - m->visitor) - VISITORS_MAX;  // a place of node 0 is a rank
    return err_set(ERR_UNAVAILABLE, "%s ended before the ranks had met", rank_text(m->t->at, rank, name));
}

static err_t hear_visitor(meeting *m, visitor *v) {
    bool alive = exchange_bytes(m->t, &v->shake, v->fd);
    handshake_state state = v->shake.state;
    if (!alive && v->local) return ended_early(m, v);
    const char *why = state == HANDSHAKE_GARBAGE    ? "sent something else than a hello for this rank"
                      : state == HANDSHAKE_STRANGER ? "does not know the secret"
                      : !alive                      ? "went away before it had proven that it knows the secret"
                                                    : NULL;
    if (why) send_away(m, v, why);
    if (why || state == HANDSHAKE_GOING || v->shake.sent < v->shake.queued) return ERR_OK;
    err_t rc = m->came(m, v);
    if (v->fd >= 0 && !v->local) close(v->fd);
    v->fd = -1;
    handshake_wipe(&v->shake);
    return rc;
}

// --- callers ---------------------------------------------------------------------------------------------------------

static void hang_up(caller *c, double now, const char *why) {
    if (c->fd >= 0 && !c->local) close(c->fd);
    if (!c->local) c->fd = -1;
    c->connecting = false;
    c->pause = c->pause == 0 ? pause_least_s : c->pause * 2 < pause_most_s ? c->pause * 2 : pause_most_s;
    c->again = now + c->pause;
    snprintf(c->why, sizeof c->why, "%s", why);
    handshake_wipe(&c->shake);
}

static void say_hello(meeting *m, caller *c, double now) {
    static const uint8_t none[TEAM_KEY];
    hello mine = m->mine;
    mine.target = (uint32_t)c->target;
    if (mine.role == ROLE_DATA) mine.channel = (uint32_t)c->channel;
    randombytes_buf(mine.nonce, sizeof mine.nonce);
    c->connecting = false;
    c->answer_by = now + visit_s;
    if (!c->local) no_delay(c->fd);
    handshake_call(&c->shake, &mine, c->local ? none : m->secret);
}

static void dial(meeting *m, caller *c, double now) {
    struct addrinfo *list = c->known;
    int rc = list ? 0 : resolve(c->host, c->port, &list);
    if (rc != 0) {
        hang_up(c, now, gai_strerror(rc));
        return;
    }
    const struct addrinfo *a = pick(list, c->turn++);
    c->fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    rc = c->fd < 0 ? -1 : connect(c->fd, a->ai_addr, a->ai_addrlen);
    int why = errno;
    if (m->remembers) c->known = list;
    else freeaddrinfo(list);
    if (rc != 0 && (c->fd < 0 || why != EINPROGRESS)) {
        hang_up(c, now, strerror(why));
        return;
    }
    c->connecting = true;
    c->answer_by = now + visit_s;
}

// connect() to a local port without a listener can, by chance, connect the socket to itself.
static bool called_itself(int fd) {
    struct sockaddr_storage a = {0}, b = {0};
    socklen_t na = sizeof a, nb = sizeof b;
    return getsockname(fd, (struct sockaddr *)&a, &na) == 0 && getpeername(fd, (struct sockaddr *)&b, &nb) == 0 &&
           na == nb && memcmp(&a, &b, na) == 0;
}

static void connected(meeting *m, caller *c, double now) {
    int why = 0;
    socklen_t size = sizeof why;
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &why, &size) != 0) why = errno;
    if (why == 0 && called_itself(c->fd)) why = ECONNREFUSED;
    if (why != 0) hang_up(c, now, strerror(why));
    else say_hello(m, c, now);
}

// The answer is not from the rank that was called, or was changed on the way. The right rank may still answer, so the
// call is repeated, and this answer is kept for the final error. But once rank 0 has our proof it counts us as joined,
// and we can't join twice.
static err_t not_known(const meeting *m, caller *c, double now) {
    char name[COMM_NAME];
    rank_text(m->t->at, c->target, name);
    if (c->local || (c->shake.proven && m->mine.role == ROLE_CONTROL))
        return err_set(ERR_UNAVAILABLE, "%s: its last word was changed on the way", name);
    c->met = c->shake.state;
    hang_up(c, now,
            c->met == HANDSHAKE_GARBAGE ? "something else than this run answers there"
                                        : "who answers there does not know the secret");
    return ERR_OK;
}

static err_t hear_answer(meeting *m, caller *c, double now) {
    bool alive = exchange_bytes(m->t, &c->shake, c->fd);
    int why = errno;
    char name[COMM_NAME];
    switch (c->shake.state) {
    case HANDSHAKE_GARBAGE:
    case HANDSHAKE_STRANGER: return not_known(m, c, now);
    case HANDSHAKE_GOING:
        if (!alive && c->local)  // a socket pair that ends has no second attempt
            return err_set(ERR_UNAVAILABLE, "%s ended before the ranks had met", rank_text(m->t->at, 0, name));
        if (!alive) hang_up(c, now, why ? strerror(why) : "it ended the connection");
        return ERR_OK;
    case HANDSHAKE_KNOWN: break;
    }
    c->done = true;
    err_t rc = m->reached(m, c);
    handshake_wipe(&c->shake);
    return rc;
}

// After sending its proof this side waits without limit: the other side may already rely on the connection. A council
// takes the next one instead.
static bool may_be_relied_on(const meeting *m, const caller *c) {
    return c->shake.proven && m->mine.role != ROLE_COUNCIL;
}

static err_t step_caller(meeting *m, caller *c, bool news, double now) {
    if (c->done) return ERR_OK;
    if (c->fd < 0) {
        if (now >= c->again) dial(m, c, now);
        return ERR_OK;
    }
    if (c->local && c->shake.length == 0) say_hello(m, c, now);
    if (c->connecting && news) connected(m, c, now);
    if (c->fd >= 0 && !c->connecting) TRY(hear_answer(m, c, now));
    if (c->fd >= 0 && !c->local && !c->done && !may_be_relied_on(m, c) && now >= c->answer_by)
        hang_up(c, now, "no answer");
    return ERR_OK;
}

// --- a turn ----------------------------------------------------------------------------------------------------------

err_t meeting_open(meeting *m, int locals, int callers, int watched) {
    m->listener = -1;
    m->visitors = VISITORS_MAX + locals;
    m->callers = callers;
    m->watched = watched;
    m->visitor = calloc((size_t)m->visitors, sizeof *m->visitor);
    m->caller = calloc((size_t)callers + 1, sizeof *m->caller);
    m->poll = calloc((size_t)(watched + 1 + m->visitors + callers), sizeof *m->poll);
    if (!m->visitor || !m->caller || !m->poll)
        return err_set(ERR_INTERNAL, "no memory for the meeting of %d ranks", m->t->at->world);
    for (int i = 0; i < m->visitors; i++) m->visitor[i].fd = -1;
    for (int i = 0; i < m->callers; i++) m->caller[i].fd = -1;
    return ERR_OK;
}

void meeting_close(meeting *m) {
    for (int i = 0; m->visitor && i < m->visitors; i++) {
        if (m->visitor[i].fd >= 0 && !m->visitor[i].local) close(m->visitor[i].fd);
        handshake_wipe(&m->visitor[i].shake);
    }
    for (int i = 0; m->caller && i < m->callers; i++) {
        if (m->caller[i].fd >= 0 && !m->caller[i].local && !m->caller[i].done) close(m->caller[i].fd);
        if (m->caller[i].known) freeaddrinfo(m->caller[i].known);
        handshake_wipe(&m->caller[i].shake);
    }
    if (m->listener >= 0) close(m->listener);
    free(m->visitor);
    free(m->caller);
    free(m->poll);
    m->visitor = NULL, m->caller = NULL, m->poll = NULL, m->listener = -1;
}

void meeting_admit_local(meeting *m, int place, int fd) { admit(m, &m->visitor[VISITORS_MAX + place], fd, true); }

static double sooner(double a, double b) { return a < b ? a : b; }

// Adds to what is waited for. Only what is open: poll() refuses a list that is longer than the limit of open files.
static int wait_for(meeting *m, int fd, bool sending) {
    m->poll[m->polled] = (struct pollfd){.fd = fd, .events = sending ? POLLOUT : POLLIN};
    return m->polled++;
}

static bool has_news(const meeting *m, int slot) { return slot >= 0 && m->poll[slot].revents; }

// Fills in what to wait for; *door is the listener's slot. Returns when to wake up at the latest.
static double gather(meeting *m, double now, double until, int *door) {
    bool closed = m->listener < 0 || now < m->accept_again;
    m->polled = m->watched;
    *door = closed ? -1 : wait_for(m, m->listener, false);
    if (m->listener >= 0 && closed) until = sooner(until, m->accept_again);
    for (visitor *v = m->visitor; v < m->visitor + m->visitors; v++) {
        v->slot = v->fd < 0 ? -1 : wait_for(m, v->fd, v->shake.sent < v->shake.queued);
        if (v->fd >= 0 && !v->local) until = sooner(until, v->since + visit_s);
    }
    for (caller *c = m->caller; c < m->caller + m->callers; c++) {
        c->slot = c->done || c->fd < 0 ? -1 : wait_for(m, c->fd, c->connecting || c->shake.sent < c->shake.queued);
        if (c->done) continue;
        if (c->fd < 0) until = sooner(until, c->again);
        else if (c->local && c->shake.length == 0) until = now;
        else if (!c->local && !may_be_relied_on(m, c)) until = sooner(until, c->answer_by);
    }
    return until;
}

err_t meeting_turn(meeting *m, double until) {
    int door;
    double now = clock_now(), wait = gather(m, now, until, &door) - now;
    int ready = poll(m->poll, (nfds_t)m->polled, wait <= 0 ? 0 : (int)(1e3 * wait) + 1);
    if (ready < 0 && errno != EINTR)
        return err_set(ERR_INTERNAL, "poll over %d connections: %s", m->polled, strerror(errno));
    for (int i = 0; ready < 0 && i < m->polled; i++) m->poll[i].revents = 0;  // a signal
    now = clock_now();
    for (visitor *v = m->visitor; v < m->visitor + m->visitors; v++) {
        if (v->fd >= 0 && has_news(m, v->slot)) TRY(hear_visitor(m, v));
        if (v->fd >= 0 && !v->local && now >= v->since + visit_s) send_away(m, v, "took too long to say who it is");
    }
    for (caller *c = m->caller; c < m->caller + m->callers; c++) TRY(step_caller(m, c, has_news(m, c->slot), now));
    if (has_news(m, door)) open_door(m, now);
    return ERR_OK;
}
