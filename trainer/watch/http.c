// trainer/watch/http.c: see http.h. One thread, one poll(), a fixed number of places for connections.
//
//   READING   the request's head  ->  WRITING  the reply  ->  DRAINING  until the other side has closed, too: to close
//             while there
//                                                             is something to read would destroy the reply on its way
//
// Pages are copied, as a slow connection may still be sending one when the next is made. Of each route there are two
// copies at most: the newest, and one that is still being sent; while both are being sent, the newest is shown again.
#include "trainer/watch/http.h"

#include "base/clock.h"
#include "trainer/watch/http_host.h"
#include "trainer/watch/http_parse.h"
#include "trainer/watch/http_token.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
    PLACES = HTTP_SLOTS + 1,
    REPLY = 1536,
    COPIES = 2,
    DRAIN = 65536,
    BACKLOG = 1024,
    TURN = 64,
    SEND_BUFFER = 256 << 10,
    MACHINE = 256
};
static const double drain_s = 1;     // for the other side to close
static const double pause_s = 0.25;  // without accepting, when the process is out of descriptors or memory

typedef enum stage { FREE, READING, WRITING, DRAINING } stage;

typedef struct copy {
    char *at;  // HTTP_BODY bytes, of which pages that were never written take no memory
    size_t n;
    const char *type;
    int status;   // 0: nothing in it yet
    double made;  // when
    int readers;  // slots that send it
} copy;

typedef struct slot {
    stage stage;
    int fd;
    double since, deadline;
    char head[HTTP_HEAD];
    size_t got;  // bytes of it
    char reply[REPLY];
    size_t size;  // bytes of it
    copy *body;   // NULL: the reply is all
    size_t sent;  // bytes of reply and body
    size_t drained;
} slot;

struct http {
    int listener;
    http_address at;
    char where[HTTP_ADDRESS], machine[MACHINE];
    bool guarded;
    uint8_t token[HTTP_TOKEN_HASH];
    const http_route *routes;
    int count;
    void *ctx;
    double accept_again;
    http_counts counts;
    char *memory;  // of all copies
    size_t bytes;
    copy copy[HTTP_ROUTES][COPIES];
    slot slot[PLACES];  // between two turns at most HTTP_SLOTS are taken
};

const char *http_where(const http *h) { return h->where; }
http_counts http_counted(const http *h) { return h->counts; }

// "Tue, 24 Nov 2026 12:00:00 GMT", whatever language is set.
static void date_text(char dst[32]) {
    static const char days[] = "SunMonTueWedThuFriSat", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    struct tm t;
    time_t now = time(NULL);
    if (!gmtime_r(&now, &t)) t = (struct tm){.tm_mday = 1, .tm_year = 70, .tm_wday = 4};
    snprintf(dst, 32, "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT", days + 3 * t.tm_wday, t.tm_mday, months + 3 * t.tm_mon,
             1900 + t.tm_year, t.tm_hour, t.tm_min, t.tm_sec);
}

// --- open and close --------------------------------------------------------------------------------------------------

static err_t listen_at(http *h) {
    int one = 1;
    h->listener = socket(h->at.at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (h->listener < 0) return err_set(ERR_UNAVAILABLE, "%s: no socket: %s", h->where, strerror(errno));
    setsockopt(h->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    // who says nothing for a second stays in the kernel so long
    setsockopt(h->listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &one, sizeof one);
    if (h->at.at.any.sa_family == AF_INET6) setsockopt(h->listener, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (bind(h->listener, &h->at.at.any, h->at.size) != 0 || listen(h->listener, BACKLOG) != 0) {
        const char *hint = "";
        if (errno == EADDRINUSE)
            hint = ". Another program has the port (ss -ltnp shows which): end it, or choose another port";
        if (errno == EADDRNOTAVAIL) hint = ". This machine does not have that address (ip address shows those it has)";
        if (errno == EACCES) hint = ". Ports below 1024 are root's: choose another one";
        return err_set(ERR_UNAVAILABLE, "%s can't be listened on: %s%s", h->where, strerror(errno), hint);
    }
    socklen_t size = h->at.size;
    getsockname(h->listener, &h->at.at.any, &size);
    http_address_text(&h->at, h->where);
    return ERR_OK;
}

err_t http_check(const http_options *o) {
    http_address at;
    char where[HTTP_ADDRESS];
    size_t n = o->token ? strlen(o->token) : 0;
    TRY(http_address_read(&at, o->address));
    http_address_text(&at, where);
    if (o->count > HTTP_ROUTES) return err_set(ERR_INTERNAL, "%d routes; at most %d", o->count, HTTP_ROUTES);
    if (!o->token && !at.loopback)
        return err_set(
            ERR_CONFIG,
            "%s: others than this machine could read the page there. Listen at 127.0.0.1 and reach it by `ssh -L`, or name a file with a token",
            where);
    if (o->token && (n < HTTP_TOKEN_LEAST || n > HTTP_TOKEN_MOST))
        return err_set(ERR_CONFIG, "%s: a token of %zu characters; expected %d to %d", where, n, HTTP_TOKEN_LEAST,
                       HTTP_TOKEN_MOST);
    return ERR_OK;
}

static err_t prepare(http *h, const http_options *o) {
    TRY(http_check(o));
    TRY(http_address_read(&h->at, o->address));
    http_address_text(&h->at, h->where);
    char date[32];
    date_text(date);  // the first call reads the time zone, from the heap
    if (sodium_init() < 0) return err_set(ERR_INTERNAL, "libsodium does not start");
    if (gethostname(h->machine, sizeof h->machine) != 0) h->machine[0] = 0;
    h->machine[sizeof h->machine - 1] = 0;
    if ((h->guarded = o->token != NULL)) http_token_hash(o->token, h->token);
    h->routes = o->routes, h->count = o->count, h->ctx = o->ctx;
    h->bytes = (size_t)o->count * COPIES * HTTP_BODY;
    h->memory =
        mmap(NULL, h->bytes ? h->bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (h->memory == MAP_FAILED) return err_set(ERR_INTERNAL, "%s: no memory for pages: %s", h->where, strerror(errno));
    for (int i = 0; i < o->count * COPIES; i++) h->copy[i / COPIES][i % COPIES].at = h->memory + (size_t)i * HTTP_BODY;
    return listen_at(h);
}

err_t http_open(http **out, const http_options *o) {
    *out = NULL;
    http *h = calloc(1, sizeof *h);
    if (!h) return err_set(ERR_INTERNAL, "%zu bytes for an HTTP server: no memory", sizeof *h);
    h->listener = -1;
    h->memory = MAP_FAILED;
    err_t rc = prepare(h, o);
    if (rc != ERR_OK) http_close(h);
    else *out = h;
    return rc;
}

void http_close(http *h) {
    if (!h) return;
    for (slot *s = h->slot; s < h->slot + PLACES; s++)
        if (s->stage != FREE) close(s->fd);
    if (h->listener >= 0) close(h->listener);
    if (h->memory != MAP_FAILED) munmap(h->memory, h->bytes ? h->bytes : 1);
    sodium_memzero(h, sizeof *h);
    free(h);
}

// --- replies ---------------------------------------------------------------------------------------------------------

static const struct {
    int status;
    const char *name, *text;
} states[] = {
    {200, "OK", ""},
    {400, "Bad Request", "This is no HTTP/1.1 request for a page.\n"},
    {401, "Unauthorized", "A token is needed: as the password, with any name, or as `Authorization: Bearer TOKEN`.\n"},
    {404, "Not Found", "There is no such page.\n"},
    {405, "Method Not Allowed", "Pages can be read, and nothing else.\n"},
    {414, "URI Too Long", "The request line is too long.\n"},
    {421, "Misdirected Request",
     "This server does not go by that name. Call it by its address, or through a tunnel by localhost.\n"},
    {431, "Request Header Fields Too Large", "The request's headers are too long.\n"},
    {500, "Internal Server Error", ""},
    {503, "Service Unavailable", "All places are taken. Try again in a second.\n"},
    {505, "HTTP Version Not Supported", "Expected HTTP/1.1.\n"},
};

static int state_at(int status) {
    int i = (int)(sizeof states / sizeof *states) - 1;
    while (i > 0 && states[i].status != status) i--;
    return i;
}

// The head of a reply with a body of so many bytes, and `text` after it. Returns its bytes.
static size_t write_reply(char dst[REPLY], int status, const char *type, size_t bytes, const char *text) {
    char date[32];
    const char *more = "";
    if (status == 401)
        more =
            "WWW-Authenticate: Basic realm=\"lockstep\", charset=\"UTF-8\"\r\nWWW-Authenticate: Bearer realm=\"lockstep\"\r\n";
    if (status == 405) more = "Allow: GET, HEAD\r\n";
    if (status == 503) more = "Retry-After: 1\r\n";
    date_text(date);
    int n = snprintf(
        dst, REPLY,
        "HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\nCache-Control: no-store\r\n"
        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n"
        "Cross-Origin-Resource-Policy: same-origin\r\n%s\r\n%s",
        status, states[state_at(status)].name, date, type, bytes, more, text);
    return n < REPLY ? (size_t)n : REPLY - 1;
}

static void begin_writing(slot *s, double now, size_t bytes) {
    s->stage = WRITING;
    s->deadline = now + HTTP_REPLY_S + (double)bytes / HTTP_RATE;
}

static void refuse(http *h, slot *s, int status, bool head, double now) {
    const char *text = states[state_at(status)].text;
    s->size = write_reply(s->reply, status, "text/plain; charset=utf-8", strlen(text), head ? "" : text);
    h->counts.refused++;
    begin_writing(s, now, s->size);
}

// A route's page into a copy that is not being sent.
static void fill(http *h, const http_route *r, copy *c, double now) {
    http_page p = {.status = 0};
    h->counts.got++;
    err_t rc = r->get(h->ctx, &p);
    if (rc == ERR_OK && p.bytes > HTTP_BODY)
        rc = err_set(ERR_INTERNAL, "%s has %zu bytes; at most %d can be shown", r->path, p.bytes, HTTP_BODY);
    if (rc != ERR_OK) {
        const char *text = err_last()->text;
        p = (http_page){.type = "text/plain; charset=utf-8", .body = text, .bytes = strlen(text), .status = 500};
    }
    if (p.bytes) memcpy(c->at, p.body, p.bytes);
    c->n = p.bytes, c->type = p.type, c->status = p.status ? p.status : 200, c->made = now;
}

static copy *page_of(http *h, int route, double now) {
    copy *a = &h->copy[route][0], *b = &h->copy[route][1];
    copy *newest = b->made > a->made ? b : a, *other = newest == a ? b : a;
    if (newest->status && now - newest->made < h->routes[route].fresh_s) return newest;
    copy *spare = !other->readers ? other : !newest->readers ? newest : NULL;
    if (!spare) return newest;
    fill(h, &h->routes[route], spare, now);
    return spare;
}

static int find_route(const http *h, http_text path) {
    for (int i = 0; i < h->count; i++)
        if (path.n == strlen(h->routes[i].path) && memcmp(path.at, h->routes[i].path, path.n) == 0) return i;
    return -1;
}

// The reply to a request, or to what is none.
static void answer(http *h, slot *s, int code, const http_request *q, double now) {
    bool named = code == HTTP_OK && http_host_is(&h->at, h->machine, q->host);
    if (code == HTTP_OK && !named) code = 421;
    if (code == HTTP_OK && h->guarded && !http_token_is(h->token, q->authorization)) code = 401;
    int route = code == HTTP_OK ? find_route(h, q->path) : -1;
    if (route < 0) {
        refuse(h, s, code == HTTP_OK ? 404 : code, q->head, now);
        return;
    }
    copy *c = page_of(h, route, now);
    s->size = write_reply(s->reply, c->status, c->type, c->n, "");
    if (!q->head) s->body = c, c->readers++;
    h->counts.shown++;
    begin_writing(s, now, s->size + c->n);
}

// --- connections -----------------------------------------------------------------------------------------------------

static void end(slot *s) {
    close(s->fd);
    if (s->body) s->body->readers--;
    sodium_memzero(s->head, s->got);  // a token may be in it
    s->stage = FREE, s->body = NULL;
}

static void drop(http *h, slot *s) {
    if (s->stage != DRAINING) h->counts.dropped++;
    end(s);
}

static bool would_block(void) { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

static void send_more(http *h, slot *s, double now) {
    size_t body = s->body ? s->body->n : 0, all = s->size + body;
    while (s->sent < all) {
        size_t head = s->sent < s->size ? s->size - s->sent : 0, done = s->sent > s->size ? s->sent - s->size : 0;
        struct iovec part[2] = {{s->reply + s->size - head, head}, {s->body ? s->body->at + done : NULL, body - done}};
        struct msghdr m = {.msg_iov = part, .msg_iovlen = 2};
        ssize_t n = sendmsg(s->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && would_block()) return;
        if (n < 0) {
            drop(h, s);
            return;
        }
        s->sent += (size_t)n;
    }
    if (s->body) s->body->readers--;
    s->body = NULL;
    shutdown(s->fd, SHUT_WR);
    s->stage = DRAINING;
    s->deadline = now + drain_s;
}

static void read_more(http *h, slot *s, double now) {
    http_request q;
    ssize_t n = recv(s->fd, s->head + s->got, sizeof s->head - s->got, MSG_DONTWAIT);
    if (n < 0 && would_block()) return;
    if (n <= 0) {
        drop(h, s);
        return;
    }
    s->got += (size_t)n;
    int code = http_parse(s->head, s->got, &q);
    if (code == HTTP_MORE) return;
    answer(h, s, code, &q, now);
    send_more(h, s, now);
}

static void drain(slot *s) {
    char bytes[4096];
    ssize_t n = recv(s->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && would_block()) return;
    s->drained += n > 0 ? (size_t)n : 0;
    if (n <= 0 || s->drained > DRAIN) end(s);
}

static void go_on(http *h, slot *s, double now) {
    switch (s->stage) {
    case READING: read_more(h, s, now); break;
    case WRITING: send_more(h, s, now); break;
    case DRAINING: drain(s); break;
    case FREE: break;
    }
}

// The connection that gives up its place to another; NULL: none. First those that only have to close, then those that
// owe their request, the oldest first: at once to one that has sent all of its own, else after their first moments.
// Last, readers that stall.
static slot *find_victim(http *h, const slot *newcomer, bool complete, double now) {
    static const stage order[] = {DRAINING, READING, WRITING};
    const double least[] = {0, complete ? 0 : HTTP_GRACE_S, HTTP_REPLY_S};
    for (size_t k = 0; k < sizeof order / sizeof *order; k++) {
        slot *oldest = NULL;
        for (slot *s = h->slot; s < h->slot + PLACES; s++)
            if (s != newcomer && s->stage == order[k] && now - s->since >= least[k] &&
                (!oldest || s->since < oldest->since))
                oldest = s;
        if (oldest) return oldest;
    }
    return NULL;
}

// 503 to one that can't be seen to. What it has sent is read, so that it finds the reply, if it has sent it already.
static void turn_away(http *h, slot *s) {
    const char *text = states[state_at(503)].text;
    s->size = write_reply(s->reply, 503, "text/plain; charset=utf-8", strlen(text), text);
    (void)!send(s->fd, s->reply, s->size, MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(s->fd, SHUT_WR);
    ssize_t n = recv(s->fd, s->head + s->got, sizeof s->head - s->got, MSG_DONTWAIT);
    s->got += n > 0 ? (size_t)n : 0;
    end(s);
    h->counts.busy++;
}

static slot *find_free(http *h, const slot *but) {
    for (slot *s = h->slot; s < h->slot + PLACES; s++)
        if (s != but && s->stage == FREE) return s;
    return NULL;
}

// One place is always free, for the newcomer: mostly its request is there already. Who then has the last one makes
// another one free.
static void take_in(http *h, int fd, double now) {
    int room = SEND_BUFFER;
    slot *s = find_free(h, NULL);
    bool last = !find_free(h, s);
    h->counts.accepted++;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);  // what the kernel keeps for a reader that stalls
    s->stage = READING;
    s->fd = fd, s->since = now, s->deadline = now + HTTP_HEAD_S;
    s->got = s->size = s->sent = s->drained = 0;
    s->body = NULL;
    if (last && !find_victim(h, s, true, now)) {
        turn_away(h, s);
        return;
    }
    read_more(h, s, now);
    if (!last || s->stage == FREE) return;
    slot *victim = find_victim(h, s, s->stage != READING, now);
    if (victim) drop(h, victim);
    else turn_away(h, s);
}

// Accepts who waits. When that fails for want of descriptors or memory, or again and again, the next attempt is later:
// the caller stays in the queue, and poll() would report it at once.
static void accept_all(http *h, double now) {
    int failed = 0;
    for (int i = 0; i < TURN; i++) {
        int fd = accept4(h->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) take_in(h, fd, now);
        else if (errno == EAGAIN || errno == EWOULDBLOCK) return;
        else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) failed = TURN;
        else if (errno != EINTR) failed++;  // mostly this caller is gone, or its network is: the next one
        if (failed < TURN / 4) continue;
        h->accept_again = now + pause_s;
        return;
    }
}

// --- the loop --------------------------------------------------------------------------------------------------------

// Waits for connections. Returns what poll returns; fd[0] is the listener's, fd[1 + i] that of slot i.
static int wait_for(const http *h, struct pollfd fd[1 + PLACES], double now, double until) {
    bool open = now >= h->accept_again;
    double wake = until;
    if (!open && h->accept_again < wake) wake = h->accept_again;
    fd[0] = (struct pollfd){.fd = open ? h->listener : -1, .events = POLLIN};
    for (int i = 0; i < PLACES; i++) {
        const slot *s = &h->slot[i];
        fd[1 + i] =
            (struct pollfd){.fd = s->stage == FREE ? -1 : s->fd, .events = s->stage == WRITING ? POLLOUT : POLLIN};
        if (s->stage != FREE && s->deadline < wake) wake = s->deadline;
    }
    double left = wake > now ? wake - now : 0;
    if (left > 3600) left = 3600;
    struct timespec t = {.tv_sec = (time_t)left, .tv_nsec = (long)(1e9 * (left - (double)(time_t)left))};
    return ppoll(fd, 1 + PLACES, &t, NULL);
}

err_t http_serve(http *h, double until) {
    struct pollfd fd[1 + PLACES];
    double now = clock_now();
    do {
        int ready = wait_for(h, fd, now, until);
        if (ready < 0 && errno == EINTR) return ERR_OK;
        if (ready < 0) return err_set(ERR_IO, "%s: poll: %s", h->where, strerror(errno));
        now = clock_now();
        for (int i = 0; i < PLACES; i++) {
            slot *s = &h->slot[i];
            if (s->stage != FREE && fd[1 + i].revents) go_on(h, s, now);
            if (s->stage != FREE && now >= s->deadline) drop(h, s);
        }
        if (fd[0].revents) accept_all(h, now);
        now = clock_now();
    } while (now < until);
    return ERR_OK;
}
