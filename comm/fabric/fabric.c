// comm/fabric/fabric.c: frames between machines over libfabric, for the collectives of comm/tcp. It is an engine of
// links (comm/tcp/link.h): what a frame is, its keys and its tags are the same.
//
//     sender                                   receiver, who has posted WINDOW receives for heads
//     head of frame n, tag of its payload ---> verified; where payload does not fit beside it, a receive is posted for
//                    <--- control: granted n   that, at its destination
//     payload of frame n ---->                 verified
//                    <--- control: taken n     now and then: the place of a head is free again
//
// So a receive is posted before each message comes: a provider never has to keep one, and no link blocks another. Each
// message has a tag of its own (kind, channel, sender, number), so the provider need not keep any order. Several frames
// of a message are under way at the same time.
//
// libfabric authenticates nothing. Heads, payload and control messages are sealed as frames over TCP are; control
// messages have numbers with the top bit set. Where to reach each other, ranks say over the team's own connection, as
// frame 0 of it.
#include "comm/fabric/endpoint.h"
#include "comm/tcp/mesh.h"

#include "base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

// WINDOW: frames of a link that are under way. PLACE: bytes of a head with payload beside it. CONTROLS: a grant for
// each frame under way, and notes of what was taken, every half window.
// OPEN_S: what a rank may take to open libfabric, at least: some providers need seconds.
// LOOKS: turns without news after which a link looks whether its connection has ended. GRACE_S: after that, how long
// what was sent before may still come.
enum {
    WINDOW = 8,
    PLACE = 8192,
    BESIDE = LINK_SEALED + LINK_TAG,
    SHORT = PLACE - BESIDE,
    CONTROLS = WINDOW + 3,
    LOOKS = 64
};
static const double GRACE_S = 1, LEAVE_S = 1, OPEN_S = 20;
static const uint64_t CONTROL_NUMBER = 1ull << 63;

typedef enum { TAG_HEAD, TAG_BODY, TAG_CONTROL } tag_kind;

typedef struct sent_frame {
    fabric_op head, body;
    uint8_t *place;
    const void *data;
    size_t bytes;
    bool is_long;  // payload is a message of its own
} sent_frame;

typedef struct got_frame {
    fabric_op head, body;
    uint8_t *place;
    message m;
    uint32_t length;
    uint8_t key[crypto_onetimeauth_KEYBYTES];  // of the payload
    char *to;                                  // where payload comes; NULL: no receive is posted for it
} got_frame;

typedef struct control {
    fabric_op op;
    uint8_t *place;
} control;

typedef struct fabric fabric;

// One end of a link. Frames and control messages are counted from 0, without the frame that crossed the socket.
typedef struct fabric_end {
    fabric *with;
    link_end *link;
    struct fabric_end *next;
    int channel, rank;
    fi_addr_t to;
    // sending
    sent_frame out[WINDOW];
    control told[CONTROLS];  // to this rank
    message m;               // what link_post wants to be sent, which has no place yet
    const void *data;
    size_t bytes;
    bool waits, sealed, last;  // it has none; it is in its place already; it ends a message
    uint64_t sent, asked;      // frames whose heads were posted; whose payload was, or needs no posting
    uint64_t ended;            // of which nothing is under way any more
    uint64_t listened, heard;  // control messages for which a receive was posted; which have come
    uint64_t taken, granted;   // frames, by the other rank
    // receiving
    got_frame in[WINDOW];
    control tell[CONTROLS];  // by this rank
    uint64_t armed, opened,
        done;                   // frames for whose heads a receive was posted; that were verified; that were handed on
    uint64_t allowed;           // frames that may send their payload, or have none to send
    uint64_t said, said_taken;  // control messages; what the last one said
    bool grants;                // the next one must be sent now
    // both
    int looks[2];
    double closed;  // when the connection was found ended; 0: it is there
} fabric_end;

struct fabric {
    link_engine head;
    endpoint e;
    team *team;
    const launch *at;
    double open_s;  // how long ranks may take to meet
    fabric_end *ends;
    uint8_t *places;  // of all links that this rank can have
    int links, used;
};

// What a rank says of itself over the socket.
typedef struct introduction {
    char provider[FABRIC_NAME];
    uint32_t bytes;
    uint8_t address[FABRIC_ADDRESS];
} introduction;

static uint64_t tag_of(tag_kind kind, int channel, int from, uint64_t number) {
    return (uint64_t)kind << 46 | (uint64_t)channel << 38 | (uint64_t)from << 28 | (number & 0xfffffff);
}
enum { TAG_BITS = 48, TAG_CHANNELS = 256 };
_Static_assert(TEAM_RANKS_MAX <= 1024, "a rank has ten bits of a tag");

static uint64_t tag_out(const fabric_end *d, tag_kind kind, uint64_t number) {
    return tag_of(kind, d->channel, d->with->at->rank, number);
}
static uint64_t tag_in(const fabric_end *d, tag_kind kind, uint64_t number) {
    return tag_of(kind, d->channel, d->rank, number);
}

// Of the message with the head of a frame: with no payload there is no tag of it.
static size_t message_bytes(size_t payload) {
    return !payload ? LINK_SEALED : payload > SHORT ? BESIDE : BESIDE + payload;
}

static fabric *ours(const link_engine *e) { return (fabric *)(uintptr_t)e; }

// --- failures --------------------------------------------------------------------------------------------------------

static link_result op_failed(const fabric_end *d, const fabric_op *op, const char *what) {
    return link_broken(d->link, true, "the connection is lost (%s: %s)", what, d->with->e.lib.strerror(op->why));
}

// Nothing has come. Has the other rank left? What it sent before that may still be on its way.
static link_result nothing(fabric_end *d, bool out) {
    char byte;
    if (++d->looks[out] % LOOKS) return LINK_BLOCKED;
    ssize_t n = recv(d->link->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n > 0)
        return link_broken(d->link, false, "it sends bytes over a socket that is not in use: the stream is damaged");
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return LINK_BLOCKED;
    double now = clock_now();
    if (d->closed == 0) d->closed = now;
    if (now - d->closed < GRACE_S) return LINK_BLOCKED;
    return link_broken(d->link, true, "the connection was closed from there");
}

// --- control messages ------------------------------------------------------------------------------------------------

// Says what was taken and granted since the last time. What can't be sent now is sent in a later turn: who waits for it
// has a message for this rank, which therefore comes here again.
static link_result say(fabric_end *d) {
    control *c = &d->tell[d->said % CONTROLS];
    if (op_at(&c->op) == OP_FAILED) return op_failed(d, &c->op, "sending a control message");
    if ((!d->grants && d->done - d->said_taken < WINDOW / 2) || op_at(&c->op) == OP_POSTED) return LINK_DONE;
    seal_keys k;
    seal_keys_of(&k, d->link->send_key, CONTROL_NUMBER | d->said);
    seal_head(c->place, &k, &(message){.bytes = d->done, .sequence = (uint32_t)d->allowed}, 0);
    if (!endpoint_send(&d->with->e, &c->op, d->to, tag_out(d, TAG_CONTROL, d->said), c->place, LINK_SEALED))
        return op_at(&c->op) == OP_FAILED ? op_failed(d, &c->op, "sending a control message") : LINK_DONE;
    d->link->wire += LINK_SEALED;
    d->said++;
    d->said_taken = d->done;
    d->grants = false;
    return LINK_DONE;
}

static link_result listen_more(fabric_end *d) {
    while (d->listened < d->heard + CONTROLS) {
        control *c = &d->told[d->listened % CONTROLS];
        if (!endpoint_receive(&d->with->e, &c->op, tag_in(d, TAG_CONTROL, d->listened), c->place, LINK_SEALED))
            return op_at(&c->op) == OP_FAILED ? op_failed(d, &c->op, "posting a receive") : LINK_DONE;
        d->listened++;
    }
    return LINK_DONE;
}

// Reads the control messages that have come.
static link_result hear(fabric_end *d) {
    while (d->heard < d->listened) {
        control *c = &d->told[d->heard % CONTROLS];
        message m;
        uint32_t none;
        seal_keys k;
        if (op_at(&c->op) == OP_POSTED) break;
        if (op_at(&c->op) == OP_FAILED) return op_failed(d, &c->op, "receiving a control message");
        seal_keys_of(&k, d->link->recv_key, CONTROL_NUMBER | d->heard);
        const char *wrong =
            c->op.bytes == LINK_SEALED ? seal_open(c->place, &k, &m, &none) : "a message that is cut off";
        if (wrong) return link_broken(d->link, false, "%s", wrong);
        d->taken = m.bytes;
        d->granted += (uint32_t)(m.sequence - (uint32_t)d->granted);
        d->heard++;
    }
    return listen_more(d);
}

// --- sending ---------------------------------------------------------------------------------------------------------

static void fabric_post(link_end *l, const message *m, const void *data, size_t bytes, bool last) {
    fabric_end *d = l->end;
    d->m = *m, d->data = data, d->bytes = bytes, d->last = last;
    d->waits = true, d->sealed = false;
    l->first = 0, l->count = 1;  // link_sending
}

// Puts the frame that waits into its place, sealed.
static void seal(fabric_end *d, sent_frame *f) {
    seal_keys k;
    seal_keys_of(&k, d->link->send_key, d->link->sent++);
    seal_head(f->place, &k, &d->m, (uint32_t)d->bytes);
    if (d->bytes) crypto_onetimeauth(f->place + LINK_SEALED, d->data, d->bytes, k.payload);
    f->data = d->data, f->bytes = d->bytes, f->is_long = d->bytes > SHORT;
    if (d->bytes && !f->is_long) memcpy(f->place + BESIDE, d->data, d->bytes);
    d->sealed = true;
}

// Sends the head of the frame that waits, once there is a place here and a receive there.
static link_result send_head(fabric_end *d) {
    sent_frame *f = &d->out[d->sent % WINDOW];
    if (!d->waits || d->sent - d->ended >= WINDOW || d->sent - d->taken >= WINDOW) return LINK_BLOCKED;
    if (!d->sealed) seal(d, f);
    size_t bytes = message_bytes(f->bytes);
    if (!endpoint_send(&d->with->e, &f->head, d->to, tag_out(d, TAG_HEAD, d->sent), f->place, bytes))
        return op_at(&f->head) == OP_FAILED ? op_failed(d, &f->head, "sending") : LINK_BLOCKED;
    d->link->wire += (int64_t)bytes;
    d->waits = false;
    d->sent++;
    return LINK_MOVED;
}

// Sends the payload for which the other rank has posted a receive.
static link_result send_payload(fabric_end *d) {
    uint64_t before = d->asked;
    for (; d->asked < d->sent; d->asked++) {
        sent_frame *f = &d->out[d->asked % WINDOW];
        if (!f->is_long) continue;
        if (d->granted <= d->asked) break;
        if (!endpoint_send(&d->with->e, &f->body, d->to, tag_out(d, TAG_BODY, d->asked), f->data, f->bytes)) {
            if (op_at(&f->body) == OP_FAILED) return op_failed(d, &f->body, "sending");
            break;
        }
        d->link->wire += (int64_t)f->bytes;
    }
    return d->asked > before ? LINK_MOVED : LINK_BLOCKED;
}

static link_result end_frames(fabric_end *d) {
    uint64_t before = d->ended;
    for (; d->ended < d->asked; d->ended++) {
        sent_frame *f = &d->out[d->ended % WINDOW];
        op_state head = op_at(&f->head), body = f->is_long ? op_at(&f->body) : OP_ENDED;
        if (head == OP_FAILED || body == OP_FAILED)
            return op_failed(d, head == OP_FAILED ? &f->head : &f->body, "sending");
        if (head != OP_ENDED || body != OP_ENDED) break;
    }
    return d->ended > before ? LINK_MOVED : LINK_BLOCKED;
}

static link_result fabric_push(link_end *l) {
    fabric_end *d = l->end;
    bool moved = false;
    if (hear(d) == LINK_FAILED) return LINK_FAILED;
    link_result (*const step[])(fabric_end *) = {end_frames, send_head, send_payload};
    for (size_t i = 0; i < sizeof step / sizeof *step; i++) {
        link_result r = step[i](d);
        if (r == LINK_FAILED) return r;
        moved |= r == LINK_MOVED;
    }
    if (!d->waits && (!d->last || d->ended == d->sent)) {
        l->count = 0;
        return LINK_DONE;
    }
    return moved ? LINK_MOVED : nothing(d, true);
}

// --- receiving -------------------------------------------------------------------------------------------------------

// Posts receives for heads: as many as may be under way.
static link_result arm(fabric_end *d) {
    while (d->armed < d->done + WINDOW) {
        got_frame *g = &d->in[d->armed % WINDOW];
        if (!endpoint_receive(&d->with->e, &g->head, tag_in(d, TAG_HEAD, d->armed), g->place, PLACE))
            return op_at(&g->head) == OP_FAILED ? op_failed(d, &g->head, "posting a receive") : LINK_DONE;
        d->armed++;
    }
    return LINK_DONE;
}

// Verifies the head of the next frame that was not, if it has come.
static link_result open_head(fabric_end *d) {
    got_frame *g = &d->in[d->opened % WINDOW];
    seal_keys k;
    if (d->opened >= d->armed || op_at(&g->head) == OP_POSTED) return LINK_BLOCKED;
    if (op_at(&g->head) == OP_FAILED) return op_failed(d, &g->head, "receiving");
    seal_keys_of(&k, d->link->recv_key, d->link->received++);
    const char *wrong =
        g->head.bytes >= LINK_SEALED ? seal_open(g->place, &k, &g->m, &g->length) : "a frame that is cut off";
    if (!wrong && g->head.bytes != message_bytes(g->length)) wrong = "a frame that is cut off";
    if (wrong) return link_broken(d->link, false, "%s", wrong);
    memcpy(g->key, k.payload, sizeof g->key);
    g->to = NULL;
    d->opened++;
    d->closed = 0;
    return LINK_DONE;
}

// The frame in work was handed on: its place is free.
static link_result finish_frame(fabric_end *d) {
    if (d->allowed == d->done) d->allowed++;  // a short one
    d->done++;
    d->link->in_frame = false;
    if (arm(d) == LINK_FAILED || say(d) == LINK_FAILED) return LINK_FAILED;
    return LINK_DONE;
}

static link_result fabric_head(link_end *l, message *m, uint32_t *length) {
    fabric_end *d = l->end;
    if (arm(d) == LINK_FAILED || say(d) == LINK_FAILED) return LINK_FAILED;
    if (d->opened == d->done) {
        link_result r = open_head(d);
        if (r != LINK_DONE) return r == LINK_BLOCKED ? nothing(d, false) : r;
    }
    const got_frame *g = &d->in[d->done % WINDOW];
    *m = g->m;
    *length = g->length;
    l->in_frame = g->length > 0;
    return l->in_frame ? LINK_DONE : finish_frame(d);
}

// Posts the receive for the payload of frame n, which is long. BLOCKED: not now.
static link_result await_payload(fabric_end *d, uint64_t n, char *to) {
    got_frame *g = &d->in[n % WINDOW];
    if (!endpoint_receive(&d->with->e, &g->body, tag_in(d, TAG_BODY, n), to, g->length))
        return op_at(&g->body) == OP_FAILED ? op_failed(d, &g->body, "posting a receive") : LINK_BLOCKED;
    g->to = to;
    d->allowed = n + 1;
    d->grants = true;
    return LINK_DONE;
}

// The same for the frames that follow in the same message, as far as there is room for them.
static link_result await_ahead(fabric_end *d, char *to, size_t ahead) {
    const got_frame *first = &d->in[d->done % WINDOW];
    to += first->length;
    for (uint64_t n = d->done + 1; n < d->done + WINDOW; n++) {
        link_result r = n < d->opened ? LINK_DONE : open_head(d);
        if (r != LINK_DONE) return r;
        const got_frame *g = &d->in[n % WINDOW];
        message its = g->m;
        if (memcmp(&its, &first->m, sizeof its) != 0 || g->length <= SHORT || g->length > ahead) break;
        if (!g->to && (r = await_payload(d, n, to)) != LINK_DONE) return r;
        to += g->length, ahead -= g->length;
    }
    return LINK_DONE;
}

static link_result take_payload(fabric_end *d, const got_frame *g, const void *data) {
    if (crypto_onetimeauth_verify(g->place + LINK_SEALED, data, g->length, g->key) != 0)
        return link_broken(d->link, false, "%s", seal_payload_changed);
    return finish_frame(d);
}

static link_result fabric_body(link_end *l, void *dst, size_t ahead) {
    fabric_end *d = l->end;
    got_frame *g = &d->in[d->done % WINDOW];
    if (g->length <= SHORT) {
        memcpy(dst, g->place + BESIDE, g->length);
        return take_payload(d, g, dst);
    }
    bool fresh = !g->to;
    link_result r = fresh ? await_payload(d, d->done, dst) : LINK_DONE;
    if (r == LINK_DONE) r = await_ahead(d, dst, ahead);
    if (r == LINK_FAILED || say(d) == LINK_FAILED) return LINK_FAILED;
    if (!g->to) return LINK_BLOCKED;
    if (g->to != dst) return link_broken(l, false, "its payload comes to another place than it is wanted at");
    if (op_at(&g->body) == OP_FAILED) return op_failed(d, &g->body, "receiving");
    if (op_at(&g->body) == OP_POSTED) return fresh ? LINK_MOVED : nothing(d, false);
    if (g->body.bytes != g->length) return link_broken(l, false, "a frame that is cut off");
    return take_payload(d, g, dst);
}

// --- links -----------------------------------------------------------------------------------------------------------

enum { END_BYTES = 2 * WINDOW * PLACE + 2 * CONTROLS * 64 };

static fabric_end *new_end(fabric *f, link_end *l, int channel, int rank) {
    fabric_end *d = f->used < f->links ? calloc(1, sizeof *d) : NULL;
    if (!d) return NULL;
    *d = (fabric_end){.with = f, .link = l, .channel = channel, .rank = rank, .next = f->ends};
    uint8_t *at = f->places + (size_t)f->used++ * END_BYTES;
    for (int i = 0; i < WINDOW; i++, at += 2 * PLACE) d->out[i].place = at, d->in[i].place = at + PLACE;
    for (int i = 0; i < CONTROLS; i++, at += 2 * 64) d->told[i].place = at, d->tell[i].place = at + 64;
    f->ends = d;
    l->end = d;
    return d;
}

// Reports to all ranks what kept this one and that one from meeting. The first report of the team is returned.
static err_t not_met(const fabric *f, const link_end *l, int rank, const char *why) {
    char name[COMM_NAME], text[ERR_TEXT];
    snprintf(text, sizeof text, "fabric: %s: %s", comm_place_text(&f->at->place[rank], name), why ? why : l->why);
    err_t rc = team_fail(f->team, text), first = team_query(f->team);
    return first != ERR_OK ? first : err_set(rc, "%s", text);
}

// Waits until the socket may move more.
static err_t await_socket(const fabric *f, const link_end *l, int rank, short events, double until) {
    struct pollfd p[2] = {{.fd = l->fd, .events = events}, {.fd = team_fd(f->team), .events = POLLIN}};
    double left = until - clock_now();
    char why[LINK_WHY];
    snprintf(why, sizeof why, "has not said within %g s how it is reached", f->open_s);
    if (left <= 0) return not_met(f, l, rank, why);
    poll(p, 2, (int)(left * 1e3) + 1);
    return team_query(f->team);
}

static err_t introduce(fabric *f, link_end *l, int rank) {
    introduction own = {0};
    size_t bytes;
    double until = clock_now() + f->open_s;
    TRY(endpoint_name(&f->e, own.address, &bytes));
    own.bytes = (uint32_t)bytes;
    snprintf(own.provider, sizeof own.provider, "%s", f->e.info->fabric_attr->prov_name);
    link_post(l, &(message){.bytes = sizeof own}, &own, sizeof own, true);
    for (link_result r; (r = link_push(l)) != LINK_DONE;) {
        if (r == LINK_FAILED) return not_met(f, l, rank, NULL);
        TRY(await_socket(f, l, rank, POLLOUT, until));
    }
    return ERR_OK;
}

static err_t fabric_attach(link_engine *e, link_end *l, int channel, int rank) {
    fabric *f = ours(e);
    fabric_end *d = new_end(f, l, channel, rank);
    if (!d) return err_set(ERR_INTERNAL, "fabric: no memory for the connection to rank %d", rank);
    link_result r = listen_more(d);
    if (r != LINK_FAILED) r = arm(d);
    err_t rc = r == LINK_FAILED ? not_met(f, l, rank, NULL) : introduce(f, l, rank);
    if (rc != ERR_OK) f->ends = d->next, free(d);
    return rc;
}

static err_t hear_introduction(fabric *f, link_end *l, int rank, introduction *its) {
    message m;
    uint32_t length = 0;
    double until = clock_now() + f->open_s;
    for (bool begun = false;;) {
        link_result r = begun ? link_body(l, its, 0) : link_head(l, &m, &length);
        if (r == LINK_FAILED) return not_met(f, l, rank, NULL);
        if (r == LINK_DONE && begun) return ERR_OK;
        if (r == LINK_DONE && length != sizeof *its) return not_met(f, l, rank, "introduces itself with other words");
        begun |= r == LINK_DONE;
        if (r == LINK_BLOCKED) TRY(await_socket(f, l, rank, POLLIN, until));
    }
}

static err_t fabric_meet(link_engine *e, link_end *l) {
    fabric *f = ours(e);
    fabric_end *d = l->end;
    introduction its;
    char name[COMM_NAME], other[COMM_NAME];
    const char *provider = f->e.info->fabric_attr->prov_name;
    TRY(hear_introduction(f, l, d->rank, &its));
    its.provider[sizeof its.provider - 1] = 0;
    if (strcmp(its.provider, provider) != 0)
        return err_set(
            ERR_CONFIG,
            "fabric: %s uses the provider %s, %s uses %s: set [reduce] fabric_provider to one that all nodes have (fi_info lists a node's)",
            comm_place_text(&f->at->place[f->at->rank], name), provider, comm_place_text(&f->at->place[d->rank], other),
            its.provider);
    if (its.bytes > sizeof its.address) return not_met(f, l, d->rank, "introduces itself with other words");
    TRY(endpoint_reach(&f->e, its.address, its.bytes, &d->to));
    l->by = e;
    return ERR_OK;
}

// --- the engine ------------------------------------------------------------------------------------------------------

static void fabric_turn(link_engine *e) { endpoint_turn(&ours(e)->e); }
static void fabric_doze(link_engine *e, link_sleeper *me) { endpoint_doze(&ours(e)->e, me); }
static void fabric_rise(link_engine *e, link_sleeper *me) { endpoint_rise(&ours(e)->e, me); }
static int fabric_watch(link_engine *e, struct pollfd dst[LINK_WATCHED], int64_t *most_ns) {
    return endpoint_watch(&ours(e)->e, dst, most_ns);
}
static err_t fabric_register(link_engine *e, void *base, size_t bytes) {
    return endpoint_register(&ours(e)->e, base, bytes);
}
static void fabric_abandon(link_engine *e) { endpoint_end(&ours(e)->e); }

static void fabric_describe(const link_engine *e, char *dst, size_t room) {
    const endpoint *p = &ours(e)->e;
    uint32_t version = p->lib.version();
    snprintf(dst, room, "libfabric %u.%u, provider %s on %s", FI_MAJOR(version), FI_MINOR(version),
             p->info->fabric_attr->prov_name, p->info->domain_attr->name);
}

static bool all_have_left(const fabric *f) {
    for (const fabric_end *d = f->ends; d; d = d->next) {
        char byte;
        ssize_t n = recv(d->link->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))) return false;
    }
    return true;
}

static void fabric_leave(link_engine *e) {
    fabric *f = ours(e);
    double until = clock_now() + LEAVE_S;
    for (const fabric_end *d = f->ends; d; d = d->next) shutdown(d->link->fd, SHUT_WR);
    while (!f->e.ended && !all_have_left(f) && team_query(f->team) == ERR_OK && clock_now() < until) {
        endpoint_turn(&f->e);
        poll(NULL, 0, 1);
    }
    endpoint_end(&f->e);
}

static void fabric_close(link_engine *e) {
    fabric *f = ours(e);
    for (fabric_end *d = f->ends, *next; d; d = next) {
        next = d->next;
        for (int i = 0; i < WINDOW; i++) op_forget(&d->out[i].body), op_forget(&d->in[i].body);
        free(d);
    }
    endpoint_close(&f->e);
    free(f->places), free(f);
}

static const link_engine functions = {
    .attach = fabric_attach,
    .meet = fabric_meet,
    .post = fabric_post,
    .push = fabric_push,
    .head = fabric_head,
    .body = fabric_body,
    .turn = fabric_turn,
    .doze = fabric_doze,
    .watch = fabric_watch,
    .rise = fabric_rise,
    .register_memory = fabric_register,
    .describe = fabric_describe,
    .abandon = fabric_abandon,
    .leave = fabric_leave,
    .close = fabric_close,
};

// Links that this rank can have: to each rank of another node, for each channel that connects the two.
static int count_links(const launch *at) {
    int n = 0;
    for (int r = 0; r < at->world; r++)
        for (int k = 0; k <= at->plan.channels && at->place[r].node != at->node; k++)
            n += launch_connects(at, k, at->rank, r);
    return n;
}

static err_t check_tags(const fabric *f) {
    if (f->at->plan.channels >= TAG_CHANNELS)
        return err_set(ERR_CONFIG,
                       "fabric: a layout with %d channels, expected at most %d: set [reduce] transport = tcp",
                       f->at->plan.channels, TAG_CHANNELS - 1);
    if (f->e.info->ep_attr->mem_tag_format >> (TAG_BITS - 1)) return ERR_OK;
    return err_set(ERR_UNAVAILABLE,
                   "fabric: the provider %s has tags of less than %d bits: set [reduce] fabric_provider to another one",
                   f->e.info->fabric_attr->prov_name, TAG_BITS);
}

static err_t open_engine(fabric *f, team *t, const transport_options *o) {
    size_t receives = (size_t)count_links(team_at(t)) * (2 * WINDOW + CONTROLS);
    *f = (fabric){
        .head = functions, .team = t, .at = team_at(t), .open_s = o->timeout_s > OPEN_S ? o->timeout_s : OPEN_S};
    f->links = count_links(f->at);
    TRY(endpoint_open(&f->e, o, f->at->place[f->at->rank].host, receives));
    err_t rc = check_tags(f);
    size_t bytes = (size_t)f->links * END_BYTES;
    if (rc == ERR_OK && !(f->places = aligned_alloc(64, bytes)))
        rc = err_set(ERR_INTERNAL, "fabric: no memory for %d connections", f->links);
    if (rc == ERR_OK) rc = endpoint_register(&f->e, f->places, bytes);
    if (rc == ERR_OK) return ERR_OK;
    err_record why = *err_last();
    endpoint_close(&f->e);
    free(f->places);
    return err_restore(&why);
}

err_t comm_fabric_open(comm **out, team *t, const transport_options *o) {
    *out = NULL;
    if (team_at(t)->nodes == 1) return comm_tcp_open(out, t, o);
    fabric *f = calloc(1, sizeof *f);
    if (!f) return err_set(ERR_INTERNAL, "no memory for the fabric");
    err_t rc = open_engine(f, t, o);
    if (rc != ERR_OK) {
        free(f);
        return rc;
    }
    return comm_tcp_open_over(out, t, o, &f->head);
}
