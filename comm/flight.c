// comm/flight.c: see comm/flight.h.
//
// Stamps as in trainer/log/board.c: stores that release, loads that acquire, and no fence. A reader that sees a word of
// a new record also sees that the stamp says busy, is odd, or has moved on.
#include "comm/flight.h"

#include <string.h>
#include <time.h>

#define PUT(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)
#define GET(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define RELEASE(field, value) atomic_store_explicit(&(field), (value), memory_order_release)
#define ACQUIRE(field) atomic_load_explicit(&(field), memory_order_acquire)

// The stamp of a record that is being written.
#define BUSY UINT64_MAX

enum { STAMP_BITS = 24, STATE_BITS = 2, TIME_BITS = 64 - STAMP_BITS - STATE_BITS };
static const uint64_t most_us = (UINT64_C(1) << TIME_BITS) - 1;

#define FLIGHT_WORD(name, word) word,
static const char *const op_names[] = {FLIGHT_OPS(FLIGHT_WORD)};
static const char *const state_names[FLIGHT_STATES] = {"in", "done", "queued", "failed"};

const char *flight_op_name(flight_op op) { return (unsigned)op < FLIGHT_OPS_COUNT ? op_names[op] : "unknown"; }
const char *flight_state_name(flight_state s) { return (unsigned)s < FLIGHT_STATES ? state_names[s] : "unknown"; }

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t end_of(uint64_t stamp, flight_state state, uint64_t us) {
    return stamp << (64 - STAMP_BITS) | (uint64_t)state << TIME_BITS | (us < most_us ? us : most_us);
}

// --- recording -------------------------------------------------------------------------------------------------------

// The place of an older record, for one writer. A thread may sleep in the middle of a record while others go once round
// the ring: who comes to a place that is being written, or has a newer record, leaves it.
static bool claim(flight_call *k, uint64_t stamp) {
    uint64_t was = GET(k->stamp);
    return was < stamp &&
           atomic_compare_exchange_strong_explicit(&k->stamp, &was, BUSY, memory_order_acquire, memory_order_relaxed);
}

// Returns its stamp.
static uint64_t write_call(flight_rank *f, const flight_seen *x) {
    uint64_t stamp = atomic_fetch_add_explicit(&f->next, 1, memory_order_relaxed) + 1;
    flight_call *k = &f->ring[(stamp - 1) % FLIGHT_CALLS];
    if (!claim(k, stamp)) return stamp;
    RELEASE(k->began_ns, x->began_ns);
    RELEASE(k->end, end_of(stamp, (flight_state)x->state, 0));
    RELEASE(k->what, x->what);
    RELEASE(k->bytes, x->bytes);
    RELEASE(k->comm, x->comm);
    RELEASE(k->number, x->number);
    RELEASE(k->step, x->step);
    RELEASE(k->part, x->part);
    RELEASE(k->op, (int16_t)x->op);
    RELEASE(k->peer, (int16_t)x->peer);
    RELEASE(k->peers, (int16_t)x->peers);
    RELEASE(k->stamp, stamp);
    return stamp;
}

// Unless another call has its place by now.
static void write_end(flight_rank *f, uint64_t stamp, flight_state state, uint64_t us) {
    uint64_t was = end_of(stamp, FLIGHT_IN, 0);
    atomic_compare_exchange_strong_explicit(&f->ring[(stamp - 1) % FLIGHT_CALLS].end, &was, end_of(stamp, state, us),
                                            memory_order_release, memory_order_relaxed);
}

static bool is_frozen(const flight_rank *f) { return GET(f->failed_ns) != 0; }

static int32_t short_of(int64_t n) { return n > INT32_MAX ? INT32_MAX : n < -1 ? -1 : (int32_t)n; }

// A call under way.
typedef struct entered {
    flight_rank *to;  // NULL: it is not recorded
    flight_comm *at;  // NULL: there were more communicators than places
    uint64_t stamp, began_ns;
} entered;

static void open_record(flight_comm *at) { PUT(at->sequence, GET(at->sequence) + 1); }
static void close_record(flight_comm *at) { RELEASE(at->sequence, GET(at->sequence) + 1); }

static void stand(flight_comm *at, const flight_seen *x, const uint64_t *peer) {
    open_record(at);
    if (x->op == FLIGHT_EXCHANGE) RELEASE(at->exchanges, x->number);
    else RELEASE(at->calls, x->number);
    RELEASE(at->op, x->op);
    RELEASE(at->state, x->state);
    RELEASE(at->since_ns, x->began_ns);
    RELEASE(at->what, x->what);
    RELEASE(at->bytes, x->bytes);
    RELEASE(at->step, x->step);
    RELEASE(at->part, x->part);
    for (int i = 0; peer && i < FLIGHT_WORDS; i++) RELEASE(at->peer[i], peer[i]);
    close_record(at);
}

// peer: of an exchange, the ranks of the world that it is with; NULL: it is no exchange.
static entered enter(comm *c, flight_op op, uint64_t bytes, const uint64_t *peer, int first, int peers) {
    comm_tap *t = &c->tap;
    if (is_frozen(t->to)) return (entered){0};
    uint32_t number = peer ? ++t->exchanges : ++t->calls;
    const flight_seen x = {.began_ns = now_ns(),
                           .bytes = bytes,
                           .what = c->phase.what,
                           .comm = t->id,
                           .number = number,
                           .step = short_of(c->phase.step),
                           .part = short_of(c->phase.number),
                           .op = op,
                           .state = FLIGHT_IN,
                           .peer = first,
                           .peers = peers};
    if (t->at) stand(t->at, &x, peer);
    return (entered){t->to, t->at, write_call(t->to, &x), x.began_ns};
}

// The first failure freezes the rank; other calls that fail with it say so still.
static err_t leave(const entered *e, err_t rc, bool queued) {
    if (!e->to) return rc;
    flight_state state = rc != ERR_OK ? FLIGHT_FAILED : queued ? FLIGHT_QUEUED : FLIGHT_DONE;
    uint64_t now = now_ns();
    write_end(e->to, e->stamp, state, (now - e->began_ns) / 1000);
    if (e->at) {
        open_record(e->at);
        RELEASE(e->at->state, (int)state);
        if (rc == ERR_OK) RELEASE(e->at->since_ns, now);  // who failed has waited since it entered
        close_record(e->at);
    }
    if (rc != ERR_OK) flight_freeze(e->to);
    return rc;
}

static err_t leave_collective(const comm *c, const entered *e, err_t rc) { return leave(e, rc, c->host != c); }

// --- the table -------------------------------------------------------------------------------------------------------

#define REAL(c) ((c)->tap.real)

static void add_peers(const comm *c, const comm_part *part, int n, uint64_t *mask, uint64_t *bytes) {
    for (int i = 0; i < n; i++) {
        if (part[i].peer >= 0 && part[i].peer < c->world) flight_put(mask, c->place[part[i].peer].rank);
        *bytes += part[i].bytes;
    }
}

static err_t watched_exchange(comm *c, const comm_part *send, int sends, const comm_part *recv, int recvs, stream *s) {
    uint64_t mask[FLIGHT_WORDS] = {0}, bytes = 0;
    add_peers(c, recv, recvs, mask, &bytes);
    add_peers(c, send, sends, mask, &bytes);
    const comm_part *first = recvs ? recv : sends ? send : NULL;
    int peer = first && first->peer >= 0 && first->peer < c->world ? c->place[first->peer].rank : -1;
    entered e = enter(c, FLIGHT_EXCHANGE, bytes, mask, peer, sends + recvs);
    return leave_collective(c, &e, REAL(c)->exchange(c, send, sends, recv, recvs, s));
}

static err_t watched_all_reduce(comm *c, void *data, size_t count, dtype type, reduce_op op, stream *s) {
    entered e = enter(c, FLIGHT_ALL_REDUCE, count * dtype_bytes(type), NULL, -1, -1);
    return leave_collective(c, &e, REAL(c)->all_reduce(c, data, count, type, op, s));
}

static err_t watched_reduce_scatter(comm *c, void *data, const size_t *cut, dtype type, stream *s) {
    entered e = enter(c, FLIGHT_REDUCE_SCATTER, (cut[c->world] - cut[0]) * dtype_bytes(type), NULL, -1, -1);
    return leave_collective(c, &e, REAL(c)->reduce_scatter(c, data, cut, type, s));
}

static err_t watched_all_gather(comm *c, void *data, const size_t *cut, stream *s) {
    entered e = enter(c, FLIGHT_ALL_GATHER, cut[c->world] - cut[0], NULL, -1, -1);
    return leave_collective(c, &e, REAL(c)->all_gather(c, data, cut, s));
}

static err_t watched_broadcast(comm *c, void *data, size_t bytes, int root, stream *s) {
    entered e = enter(c, FLIGHT_BROADCAST, bytes, NULL, -1, -1);
    return leave_collective(c, &e, REAL(c)->broadcast(c, data, bytes, root, s));
}

static err_t watched_all_to_all(comm *c, void *out, const void *in, size_t each, stream *s) {
    entered e = enter(c, FLIGHT_ALL_TO_ALL, each * (size_t)c->world, NULL, -1, -1);
    return leave_collective(c, &e, REAL(c)->all_to_all(c, out, in, each, s));
}

static err_t watched_barrier(comm *c, stream *s) {
    entered e = enter(c, FLIGHT_BARRIER, 0, NULL, -1, -1);
    return leave(&e, REAL(c)->barrier(c, s), false);
}

static void watch_as(flight_rank *f, comm *c, uint32_t id, int channel);

// The same on all ranks of a part, and another one for each split and each color.
static uint32_t id_of_part(const comm_tap *parent, int color) {
    uint32_t id = parent->id * 0x9E3779B1u + parent->splits * 0x85EBCA77u + (uint32_t)color * 0xC2B2AE3Du + 1;
    id ^= id >> 15;
    return id ? id : 1;
}

static err_t watched_split(comm *c, int color, int key, int channel, comm **out) {
    entered e = enter(c, FLIGHT_SPLIT, 0, NULL, -1, -1);
    c->tap.splits++;
    err_t rc = leave(&e, REAL(c)->split(c, color, key, channel, out), false);
    if (rc == ERR_OK && *out && !(*out)->tap.real) watch_as(c->tap.to, *out, id_of_part(&c->tap, color), channel);
    return rc;
}

static void watched_alive(comm *c) { REAL(c)->alive(c); }
static err_t watched_query(comm *c) { return REAL(c)->query(c); }

static void watched_abort(comm *c, const char *why) {
    flight_freeze(c->tap.to);
    REAL(c)->abort(c, why);
}

static err_t watched_register(comm *c, void *base, size_t bytes) {
    return REAL(c)->register_memory ? REAL(c)->register_memory(c, base, bytes) : ERR_OK;
}

static void watched_revoke_at(comm *c, int32_t *word) {
    if (REAL(c)->revoke_at) REAL(c)->revoke_at(c, word);
}

static void watched_describe(const comm *c, char *dst, size_t room) { REAL(c)->describe(c, dst, room); }

// After a failure its place says on what happened.
static void watched_close(comm *c) {
    flight_comm *at = c->tap.at;
    if (at && !is_frozen(c->tap.to)) RELEASE(at->id, 0);
    c->table = REAL(c);
    c->table->close(c);
}

static const comm_table watched = {
    .name = "watched",
    .exchange = watched_exchange,
    .all_reduce = watched_all_reduce,
    .reduce_scatter = watched_reduce_scatter,
    .all_gather = watched_all_gather,
    .broadcast = watched_broadcast,
    .all_to_all = watched_all_to_all,
    .barrier = watched_barrier,
    .split = watched_split,
    .alive = watched_alive,
    .query = watched_query,
    .abort = watched_abort,
    .register_memory = watched_register,
    .revoke_at = watched_revoke_at,
    .describe = watched_describe,
    .close = watched_close,
};

static flight_comm *free_place(flight_rank *f) {
    for (int i = 0; i < FLIGHT_COMMS && !is_frozen(f); i++)
        if (GET(f->at[i].id) == 0) return &f->at[i];
    return NULL;
}

static void watch_as(flight_rank *f, comm *c, uint32_t id, int channel) {
    flight_comm *at = free_place(f);
    uint64_t member[FLIGHT_WORDS] = {0};
    c->tap = (comm_tap){.real = c->table, .to = f, .at = at, .id = id};
    c->table = &watched;
    if (!at) return;
    for (int r = 0; r < c->world; r++) flight_put(member, c->place[r].rank);
    open_record(at);
    RELEASE(at->world, (uint32_t)c->world);
    RELEASE(at->channel, (uint32_t)channel);
    RELEASE(at->calls, 0);
    RELEASE(at->exchanges, 0);
    RELEASE(at->op, FLIGHT_NONE);
    RELEASE(at->state, FLIGHT_DONE);
    RELEASE(at->since_ns, now_ns());
    RELEASE(at->what, NULL);
    RELEASE(at->bytes, 0);
    RELEASE(at->step, -1);
    RELEASE(at->part, -1);
    for (int i = 0; i < FLIGHT_WORDS; i++) RELEASE(at->member[i], member[i]);
    RELEASE(at->id, id);
    close_record(at);
}

void flight_watch(flight_rank *f, comm *c) {
    enum { WORLD = 1, COMPANION };
    if (!f || c->tap.real) return;
    watch_as(f, c, WORLD, 0);
    if (c->host != c && !c->host->tap.real) watch_as(f, c->host, COMPANION, 0);
}

static void put_phase(flight_rank *f, const char *what, int64_t part, int64_t step) {
    write_call(f, &(flight_seen){.began_ns = now_ns(),
                                 .what = what,
                                 .step = short_of(step),
                                 .part = short_of(part),
                                 .op = FLIGHT_PHASE,
                                 .state = FLIGHT_DONE,
                                 .peer = -1,
                                 .peers = -1});
}

void flight_begin(flight_rank *f, uint32_t epoch) {
    if (!f) return;
    for (int i = 0; i < FLIGHT_COMMS; i++) {
        PUT(f->at[i].id, 0);
        PUT(f->at[i].sequence, 0);  // a process may have been killed while it wrote
    }
    for (int i = 0; i < FLIGHT_CALLS; i++)
        if (GET(f->ring[i].stamp) == BUSY) PUT(f->ring[i].stamp, 0);
    RELEASE(f->failed_ns, 0);
    RELEASE(f->world, epoch + 1);
    put_phase(f, "world", (int64_t)epoch + 1, -1);
}

void flight_phase(flight_rank *f, const char *what, int64_t step) {
    if (f && !is_frozen(f)) put_phase(f, what, -1, step);
}

void flight_freeze(flight_rank *f) {
    uint64_t none = 0;
    if (f) atomic_compare_exchange_strong(&f->failed_ns, &none, now_ns());
}

// --- reading ---------------------------------------------------------------------------------------------------------

static bool read_call(const flight_rank *f, uint64_t stamp, flight_seen *out) {
    const flight_call *k = &f->ring[(stamp - 1) % FLIGHT_CALLS];
    if (ACQUIRE(k->stamp) != stamp) return false;
    uint64_t end = ACQUIRE(k->end);
    *out = (flight_seen){.began_ns = ACQUIRE(k->began_ns),
                         .took_us = end & most_us,
                         .bytes = ACQUIRE(k->bytes),
                         .what = ACQUIRE(k->what),
                         .comm = ACQUIRE(k->comm),
                         .number = ACQUIRE(k->number),
                         .step = ACQUIRE(k->step),
                         .part = ACQUIRE(k->part),
                         .op = ACQUIRE(k->op),
                         .state = (int)(end >> TIME_BITS & ((1u << STATE_BITS) - 1)),
                         .peer = ACQUIRE(k->peer),
                         .peers = ACQUIRE(k->peers)};
    return GET(k->stamp) == stamp;
}

int flight_calls(const flight_rank *f, flight_seen out[FLIGHT_CALLS]) {
    uint64_t next = ACQUIRE(f->next);
    int n = 0;
    for (uint64_t stamp = next > FLIGHT_CALLS ? next - FLIGHT_CALLS + 1 : 1; stamp <= next; stamp++)
        n += read_call(f, stamp, &out[n]);
    return n;
}

static void copy_standing(const flight_comm *at, flight_standing *out) {
    *out = (flight_standing){.id = ACQUIRE(at->id),
                             .world = ACQUIRE(at->world),
                             .channel = ACQUIRE(at->channel),
                             .calls = ACQUIRE(at->calls),
                             .exchanges = ACQUIRE(at->exchanges),
                             .op = ACQUIRE(at->op),
                             .state = ACQUIRE(at->state),
                             .since_ns = ACQUIRE(at->since_ns),
                             .bytes = ACQUIRE(at->bytes),
                             .what = ACQUIRE(at->what),
                             .step = ACQUIRE(at->step),
                             .part = ACQUIRE(at->part)};
    for (int i = 0; i < FLIGHT_WORDS; i++) {
        out->peer[i] = out->op == FLIGHT_EXCHANGE ? ACQUIRE(at->peer[i]) : 0;
        out->member[i] = ACQUIRE(at->member[i]);
    }
}

// A process that was killed while it wrote leaves an odd number for good: what is there is better than nothing.
bool flight_stands(const flight_rank *f, int i, flight_standing *out) {
    enum { TRIES = 1000 };
    const flight_comm *at = &f->at[i];
    for (int k = 0; k < TRIES; k++) {
        unsigned before = ACQUIRE(at->sequence);
        copy_standing(at, out);
        if (out->id == 0) return false;
        if (before % 2 == 0 && GET(at->sequence) == before) return true;
    }
    return out->torn = true;
}
