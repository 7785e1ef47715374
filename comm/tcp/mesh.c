// comm/tcp/mesh.c: see comm/tcp/mesh.h.
#include "comm/tcp/mesh.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

// TURN: a flow moves at most this many bytes before the next one has its turn. What one flow received is then still in
// the cache when another one sends it on.
// LOOK_NS: a rank with nothing to do polls for this long before it sleeps. It yields to other threads between looks;
// where every rank can have a core of its own it spins for the first PAUSE_NS instead. Most answers come within a
// microsecond or two, a sleep costs ten.
// CROWD_NS: on a crowded machine a yield returns milliseconds later, after another program's time slice, while a
// sleeper gets a core as soon as it is woken. After a yield of this length the next CROWD_WAITS waits sleep at once.
enum {
    TURN = 64 << 10,
    MARK = 0x4c,
    PAUSE_NS = 2000,
    LOOK_NS = 15000,
    CROWD_NS = 1000000,
    CROWD_WAITS = 256,
    NEWS_MS = 300,
};
static const int64_t LONGEST_NS = 60000000000;

struct mesh {
    team *team;
    const launch *at;
    wires *wires;
    int channel, seat;  // seat: -1 on channel 0
    shm near;
    flow *out, *in;  // by team rank
    flow **live;     // those with messages left in this call
    int lives, users;
    const flow *clash;  // of this call, which found its wire busy
    struct pollfd *watched;
    link_sleeper sleeper;  // fd -1: no engine
    char *frame;           // where a frame waits for its verification before it is added
    int64_t timeout_ns, pause_ns;
    int crowded;  // waits that will not yield
    uint64_t serial;
    uint32_t pulse;  // of the team, when this rank began to wait or last looked
};

static const char *const op_names[] = {"nothing",   "exchange",   "all_reduce", "reduce_scatter", "all_gather",
                                       "broadcast", "all_to_all", "barrier",    "split"};

static const char *op_name(unsigned op) {
    return op < sizeof op_names / sizeof *op_names ? op_names[op] : "something unknown";
}

// --- opening ---------------------------------------------------------------------------------------------------------

static int64_t pause_for(int locals) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) >= locals ? PAUSE_NS : 0;
}

// A mesh without connections and seat. It owns one reference to the wires, also when this fails.
static err_t new_mesh(mesh **out, wires *w, int channel) {
    size_t world = (size_t)w->at->world;
    mesh *m = calloc(1, sizeof *m);
    *out = m;
    if (!m) {
        wires_close(w);
        return err_set(ERR_INTERNAL, "no memory for a communicator");
    }
    *m = (mesh){.team = w->team, .at = w->at, .wires = w, .channel = channel, .seat = -1, .users = 1, .sleeper.fd = -1};
    m->pause_ns = pause_for(w->at->locals);
    m->out = calloc(world, sizeof *m->out);
    m->in = calloc(world, sizeof *m->in);
    m->live = calloc(2 * world, sizeof *m->live);
    m->watched = calloc(2 * world + 2 + LINK_WATCHED + 1, sizeof *m->watched);
    m->frame = malloc(LINK_FRAME);
    if (w->engine && (m->sleeper.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) < 0)
        return err_set(ERR_INTERNAL, "eventfd: %s", strerror(errno));
    if (m->out && m->in && m->live && m->watched && m->frame) return ERR_OK;
    return err_set(ERR_INTERNAL, "no memory for a communicator of %zu ranks", world);
}

// Closes a mesh that is not complete, and returns the failure.
static err_t unmade(mesh *m) {
    err_record why = *err_last();
    if (m) mesh_close(m);
    return err_restore(&why);
}

static err_t open_all(mesh *m) {
    TRY(shm_attach(&m->near, m->at));
    for (int r = 0; r < m->at->world; r++)
        if (r != m->at->rank) TRY(wires_connect(m->wires, 0, r));
    for (int r = 0; r < m->at->world; r++)
        if (r != m->at->rank) TRY(wires_meet(m->wires, 0, r));
    return ERR_OK;
}

err_t mesh_open(mesh **out, team *t, double timeout_s, link_engine *engine) {
    wires *w;
    mesh *m;
    TRY(wires_open(&w, t, engine));
    if (sodium_init() < 0) {
        wires_close(w);
        return err_set(ERR_INTERNAL, "libsodium does not start");
    }
    err_t rc = new_mesh(&m, w, 0);
    if (rc == ERR_OK) rc = open_all(m);
    if (rc != ERR_OK) return unmade(m);
    m->timeout_ns = (int64_t)(timeout_s * 1e9);
    *out = m;
    return ERR_OK;
}

static err_t open_some(mesh *m, const int *map, const int *seat, int world) {
    TRY(shm_attach_none(&m->near, m->at));
    for (int i = 0; i < world; i++) {
        const comm_place *p = &m->at->place[map[i]];
        if (seat[i] >= 0 && p->node == m->at->node) shm_sit(&m->near, m->at, p->local, seat[i]);
        if (map[i] != m->at->rank) TRY(wires_connect(m->wires, m->channel, map[i]));
    }
    for (int i = 0; i < world; i++)
        if (map[i] != m->at->rank) TRY(wires_meet(m->wires, m->channel, map[i]));
    return ERR_OK;
}

err_t mesh_branch(mesh **out, mesh *from, int channel, const int *map, const int *seat, int world) {
    mesh *m;
    err_t rc = new_mesh(&m, wires_share(from->wires), channel);
    if (rc == ERR_OK) rc = open_some(m, map, seat, world);
    if (rc != ERR_OK) return unmade(m);
    for (int i = 0; i < world; i++)
        if (map[i] == m->at->rank) m->seat = seat[i];
    m->timeout_ns = from->timeout_ns;
    *out = m;
    return ERR_OK;
}

mesh *mesh_share(mesh *m) {
    m->users++;
    return m;
}

void mesh_close(mesh *m) {
    if (--m->users > 0) return;
    shm_detach(&m->near);
    wires_leave_seat(m->wires, m->seat);
    wires_close(m->wires);
    if (m->sleeper.fd >= 0) close(m->sleeper.fd);
    free(m->out), free(m->in), free(m->live), free(m->watched), free(m->frame), free(m);
}

wires *mesh_wires(const mesh *m) { return m->wires; }

// --- failing ---------------------------------------------------------------------------------------------------------

static const char *name_of(const mesh *m, int r, char dst[COMM_NAME]) { return comm_place_text(&m->at->place[r], dst); }

// "all_reduce #8123"; the team adds the phase and the rank that reports it.
static const char *phase_of(const mesh_call *x, char dst[MESH_TEXT]) {
    snprintf(dst, MESH_TEXT, "%s #%" PRIu64, op_name(x->op), x->number);
    return dst;
}

// The caller's phase; if it has set none, the name of this call.
static comm_phase doing_in(const mesh_call *x) {
    comm_phase p = x->c->phase;
    if (!p.what) p.what = op_name(x->op);
    return p;
}

// Reports the failure to the team, which adds the name of this rank and keeps only the first one: what is returned may
// be another rank's.
static err_t give_up(const mesh_call *x, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static err_t give_up(const mesh_call *x, const char *fmt, ...) {
    char text[ERR_TEXT], what[MESH_TEXT];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n < (int)sizeof text) snprintf(text + n, sizeof text - (size_t)n, " (in %s)", phase_of(x, what));
    comm_phase doing = doing_in(x);
    err_t rc = team_fail_in(x->m->team, text, &doing), first = team_query(x->m->team);
    return first != ERR_OK ? first : err_set(rc, "%s", text);
}

// A connection may end because the peer has already heard of a failure elsewhere and left, before the team's own news
// reach this rank. If the reason arrives within NEWS_MS, it is returned, and the peer is not blamed.
static err_t broken_link(const mesh_call *x, const flow *f) {
    char name[COMM_NAME];
    struct pollfd news = {.fd = team_fd(x->m->team), .events = POLLIN};
    if (f->wire->far.lost && poll(&news, 1, NEWS_MS) > 0) TRY(team_query(x->m->team));
    return give_up(x, "%s, %s message %d of %d: %s", name_of(x->m, f->peer, name), f->out ? "sending" : "receiving",
                   f->k + 1, f->n, f->wire->far.why);
}

// The head of a message must be the one that this rank expects now. The error names both sides.
static err_t check_head(const mesh_call *x, const flow *f, const message *h) {
    if (h->mark == MARK && h->comm == x->id && h->op == x->op && h->sequence == f->wire->sequence[WIRE_IN] &&
        h->bytes == f->bytes)
        return ERR_OK;
    char name[COMM_NAME];
    name_of(x->m, f->peer, name);
    if (h->mark != MARK || h->sequence != f->wire->sequence[WIRE_IN])
        return give_up(x, "%s sends message number %u, expected %u: the stream is damaged", name, h->sequence,
                       f->wire->sequence[WIRE_IN]);
    if (h->comm != x->id || h->op != x->op)
        return give_up(
            x,
            "%s is in %s of communicator %u, this rank in %s of communicator %u: ranks must make the same calls in "
            "the same order",
            name, op_name(h->op), h->comm, op_name(x->op), x->id);
    return give_up(
        x, "%s sends %" PRIu64 " bytes where %zu are expected (message %d of %d): both sides must agree on sizes", name,
        h->bytes, f->bytes, f->k + 1, f->n);
}

// --- moving ----------------------------------------------------------------------------------------------------------

static size_t least(size_t a, size_t b) { return a < b ? a : b; }
static size_t whole_steps(size_t n) { return (n + RING_STEP - 1) / RING_STEP * RING_STEP; }

// Bytes of the flow's message that may move without overtaking its gate: all of them, or whole steps.
static size_t allowed(const flow *f) {
    const flow *g = f->gate;
    if (!g || g->k > f->gate_k) return f->bytes;
    if (g->k < f->gate_k) return 0;
    return g->done >= f->bytes ? f->bytes : g->done / RING_STEP * RING_STEP;
}

static void put_next(const mesh_call *x, flow *f) {
    f->data = NULL, f->bytes = 0, f->add = NULL, f->gate = NULL, f->gate_k = 0;
    f->begun = false;
    f->done = 0;
    x->next(x, f);
}

static void finish(const mesh_call *x, flow *f) {
    if (f->out) comm_count_sent(x->c, f->rank, f->bytes);
    else x->c->traffic.received += (int64_t)f->bytes;
    f->wire->sequence[f->out]++;
    if (++f->k < f->n) put_next(x, f);
}

static message head_of(const mesh_call *x, const flow *f) {
    return (message){
        .bytes = f->bytes, .sequence = f->wire->sequence[f->out], .comm = x->id, .op = (uint8_t)x->op, .mark = MARK};
}

_Static_assert(sizeof(message) == RING_STEP, "a head is one step of a ring");

static bool ring_push(const mesh_call *x, flow *f) {
    int to = x->m->at->place[f->peer].local;
    ring *r = &f->wire->out;
    size_t turn = TURN;
    bool moved = false;
    while (f->k < f->n && turn > 0) {
        char *at;
        size_t space = ring_space(r, &at), head = 0;
        if (!f->begun) {
            if (space == 0) break;
            message h = head_of(x, f);
            memcpy(at, &h, head = sizeof h);
            f->begun = true;
        }
        size_t n = least(least(allowed(f) - f->done, space - head), turn);
        if (n) memcpy(at + head, f->data + f->done, n);
        f->done += n;
        if (head + n == 0) break;
        ring_publish(r, head + whole_steps(n));
        turn -= whole_steps(n);
        moved = true;
        if (f->done == f->bytes) finish(x, f);
    }
    if (moved) shm_wake(&x->m->near, to);
    return moved;
}

static err_t ring_pull(const mesh_call *x, flow *f, bool *moved_any) {
    int from = x->m->at->place[f->peer].local;
    ring *r = &f->wire->in;
    size_t turn = TURN;
    bool moved = false;
    while (f->k < f->n && turn > 0) {
        const char *at;
        size_t ready = ring_ready(r, &at), head = 0;
        if (!f->begun) {
            if (ready == 0) break;
            message h;
            memcpy(&h, at, head = sizeof h);
            TRY(check_head(x, f, &h));
            f->begun = true;
        }
        size_t n = least(least(allowed(f) - f->done, ready - head), turn);
        if (n && f->add) f->add(f->data + f->done, at + head, n);
        else if (n) memcpy(f->data + f->done, at + head, n);
        f->done += n;
        if (head + n == 0) break;
        ring_publish(r, head + whole_steps(n));
        turn -= whole_steps(n);
        moved = true;
        if (f->done == f->bytes) finish(x, f);
    }
    if (moved) shm_wake(&x->m->near, from);
    *moved_any |= moved;
    return ERR_OK;
}

// All frames of a message but the last are full, so that the reader knows each frame's length before it arrives.
static size_t frame_of(const flow *f) { return least(f->bytes - f->done, LINK_FRAME); }

static err_t wire_push(const mesh_call *x, flow *f, bool *moved) {
    link_end *l = &f->wire->far;
    for (int turn = 0; f->k < f->n && turn < 2; turn++) {
        if (!link_sending(l)) {
            f->frame = frame_of(f);
            if (allowed(f) - f->done < f->frame) break;
            message h = head_of(x, f);
            link_post(l, &h, f->data + f->done, f->frame, f->done + f->frame == f->bytes);
        }
        int64_t before = l->wire;
        link_result r = link_push(l);
        x->c->traffic.wire += l->wire - before;
        if (r == LINK_FAILED) return broken_link(x, f);
        *moved |= r != LINK_BLOCKED;
        if (r != LINK_DONE) break;
        f->done += f->frame;
        if (f->done == f->bytes) finish(x, f);
    }
    return ERR_OK;
}

static err_t wire_head(const mesh_call *x, flow *f, link_result *r) {
    link_end *l = &f->wire->far;
    message h;
    uint32_t length;
    char name[COMM_NAME];
    *r = link_head(l, &h, &length);
    if (*r == LINK_FAILED) return broken_link(x, f);
    if (*r != LINK_DONE) return ERR_OK;
    TRY(check_head(x, f, &h));
    f->frame = frame_of(f);
    if (length != f->frame)
        return give_up(x, "%s sends a frame of %u bytes, expected %zu", name_of(x->m, f->peer, name), length, f->frame);
    f->begun = true;
    return ERR_OK;
}

static err_t wire_pull(const mesh_call *x, flow *f, bool *moved) {
    link_end *l = &f->wire->far;
    for (int turn = 0; f->k < f->n && turn < 2; turn++) {
        link_result r = LINK_DONE;
        bool aside = f->add || !f->bytes;
        char *to = aside ? x->m->frame : f->data + f->done;
        if (!l->in_frame) TRY(wire_head(x, f, &r));
        if (r == LINK_DONE && f->frame > 0) r = link_body(l, to, aside ? 0 : f->bytes - f->done - f->frame);
        if (r == LINK_FAILED) return broken_link(x, f);
        *moved |= r != LINK_BLOCKED;
        if (r == LINK_BLOCKED) break;
        if (r == LINK_MOVED) continue;
        if (f->add && f->frame) f->add(f->data + f->done, to, f->frame);
        f->done += f->frame;
        if (f->done == f->bytes) finish(x, f);
    }
    return ERR_OK;
}

// One turn for every flow. Those that are done leave the list; the order of the others stays.
static err_t move_all(const mesh_call *x, bool *moved) {
    mesh *m = x->m;
    link_engine *engine = m->wires->engine;
    TRY(team_query(m->team));
    if (engine) engine->turn(engine);
    *moved = false;
    int kept = 0, lives = m->lives;
    for (int i = 0; i < lives; i++) {
        flow *f = m->live[i];
        bool far = f->wire->far.fd >= 0;
        if (far) TRY(f->out ? wire_push(x, f, moved) : wire_pull(x, f, moved));
        else if (f->out) *moved |= ring_push(x, f);
        else TRY(ring_pull(x, f, moved));
        if (f->k < f->n) m->live[kept++] = f;
        else atomic_store_explicit(&f->wire->busy[f->out], false, memory_order_relaxed);
    }
    m->lives = kept;
    return ERR_OK;
}

// --- waiting ---------------------------------------------------------------------------------------------------------

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void pause_a_moment(void) {
#if defined(__x86_64__)
    for (int i = 0; i < 16; i++) __builtin_ia32_pause();
#endif
}

static uint64_t entry_of(const mesh_call *x) { return (uint64_t)x->id << 48 | (x->number & 0xffffffffffff); }

// A rank of this host that is in an earlier call of the same communicator, or -1. It need not be a neighbour in the
// collective: a neighbour may itself be waiting for the late rank.
static int late_here(const mesh_call *x) {
    const mesh *m = x->m;
    for (int i = 0; i < x->c->world; i++) {
        const comm_place *p = &m->at->place[x->map[i]];
        if (p->node != m->at->node || x->map[i] == m->at->rank) continue;
        uint64_t at = shm_entered(&m->near, p->local);
        if (at >> 48 == x->id && at < entry_of(x)) return x->map[i];
    }
    return -1;
}

// The slowest flow. In this order: nothing was received, too little was received, what is sent is not taken.
static const flow *slowest(const mesh *m) {
    const flow *worst = m->live[0];
    for (int i = 1; i < m->lives; i++) {
        const flow *f = m->live[i];
        bool less = f->k < worst->k || (f->k == worst->k && f->begun + f->done < worst->begun + worst->done);
        if (!f->out && (worst->out || less)) worst = f;
    }
    return worst;
}

static err_t too_long(const mesh_call *x, int64_t waited) {
    const mesh *m = x->m;
    const flow *f = slowest(m);
    int late = late_here(x);
    char name[COMM_NAME], why[MESH_TEXT];
    name_of(m, late >= 0 ? late : f->peer, name);
    if (late >= 0 || (!f->out && f->k == 0 && !f->begun)) snprintf(why, sizeof why, "%s has not entered it", name);
    else if (f->out) snprintf(why, sizeof why, "%s has not taken message %d of %d", name, f->k + 1, f->n);
    else
        snprintf(why, sizeof why, "%s has not sent more than %zu of %zu bytes of message %d of %d", name, f->done,
                 f->bytes, f->k + 1, f->n);
    return give_up(x, "no progress for %.0f s: %s", (double)waited / 1e9, why);
}

// What to wait for, and for how long at most. -1: look again instead.
static int watch(mesh *m, int64_t *most_ns) {
    link_engine *engine = m->wires->engine;
    int n = 0;
    m->watched[n++] = (struct pollfd){.fd = team_fd(m->team), .events = POLLIN};
    m->watched[n++] = (struct pollfd){.fd = shm_bell(&m->near), .events = POLLIN};
    for (int i = 0; i < m->lives; i++) {
        const flow *f = m->live[i];
        const link_end *l = &f->wire->far;
        bool waits = l->by || !f->out;  // for news; or for room
        if (l->fd >= 0 && (waits || link_sending(l)))
            m->watched[n++] = (struct pollfd){.fd = l->fd, .events = waits ? POLLIN : POLLOUT};
    }
    if (!engine) return n;
    m->watched[n++] = (struct pollfd){.fd = m->sleeper.fd, .events = POLLIN};
    int more = engine->watch(engine, m->watched + n, most_ns);
    return more < 0 ? -1 : n + more;
}

static bool patient(const mesh_call *x) { return comm_is_patient(x->c) || comm_is_patient(x->m->wires->first); }

static void yield(mesh *m) {
    int64_t since = now_ns();
    sched_yield();
    if (now_ns() - since > CROWD_NS) m->crowded = CROWD_WAITS;
}

static void doze(mesh *m) {
    link_engine *engine = m->wires->engine;
    shm_doze(&m->near);
    if (engine) engine->doze(engine, &m->sleeper);
}

static void rise(mesh *m, bool rang) {
    link_engine *engine = m->wires->engine;
    shm_rise(&m->near, rang);
    if (engine) engine->rise(engine, &m->sleeper);
}

// Nothing could be moved since `*idle`: polls for a moment, then sleeps until a neighbour rings, a socket is ready, the
// team fails, or the timeout is over.
static err_t wait_for_more(const mesh_call *x, int64_t *idle) {
    mesh *m = x->m;
    int64_t waited = now_ns() - *idle;
    if (waited < m->pause_ns || (waited < LOOK_NS && !m->crowded)) {
        if (waited < m->pause_ns) pause_a_moment();
        else yield(m);
        return ERR_OK;
    }
    if (m->crowded) m->crowded--;
    if (waited >= m->timeout_ns && !patient(x)) {
        uint32_t before = m->pulse;
        m->pulse = team_pulse(m->team);
        if (m->pulse == before) return too_long(x, waited);
        *idle = 0;  // some rank is still working: an odd share of the lanes, a slow processor
        return ERR_OK;
    }
    bool moved = false, rang = false;
    doze(m);
    err_t rc = move_all(x, &moved);
    if (rc == ERR_OK && !moved) {
        int64_t left = patient(x) ? LONGEST_NS : m->timeout_ns - waited;
        if (left > LONGEST_NS) left = LONGEST_NS;
        int n = watch(m, &left);
        struct timespec most = {left / 1000000000, left % 1000000000};
        rang = n >= 0 && ppoll(m->watched, (nfds_t)n, &most, NULL) > 0 && m->watched[1].revents != 0;
    }
    rise(m, rang);
    if (moved) *idle = 0;
    return rc;
}

// --- calls -----------------------------------------------------------------------------------------------------------

err_t mesh_begin(mesh_call *x) {
    TRY(team_query(x->m->team));
    x->number = (uint64_t)++x->c->traffic.calls;
    x->m->serial++;
    x->m->pulse = team_pulse(x->m->team);
    x->m->lives = 0;
    x->m->clash = NULL;
    shm_enter(&x->m->near, entry_of(x));
    comm_phase doing = doing_in(x);
    team_progress(x->m->team, doing.what, doing.step, doing.number);
    return ERR_OK;
}

flow *mesh_flow(const mesh_call *x, int rank, bool out) {
    mesh *m = x->m;
    int peer = x->map[rank];
    flow *f = out ? &m->out[peer] : &m->in[peer];
    if (f->serial != m->serial) {
        *f = (flow){
            .rank = rank, .peer = peer, .wire = wires_to(m->wires, m->channel, peer), .out = out, .serial = m->serial};
        m->live[m->lives++] = f;
        // Two calls of one rank that must not overlap are mostly caught here.
        if (atomic_load_explicit(&f->wire->busy[out], memory_order_relaxed)) m->clash = f;
        atomic_store_explicit(&f->wire->busy[out], true, memory_order_relaxed);
    }
    return f;
}

static err_t run(mesh_call *x) {
    mesh *m = x->m;
    int64_t idle = 0;
    char name[COMM_NAME];
    if (m->clash)
        return give_up(
            x,
            "another call uses the connection to %s on channel %d: communicators that share one must not be in calls at the same time",
            name_of(m, m->clash->peer, name), m->channel);
    for (int i = 0; i < m->lives; i++) put_next(x, m->live[i]);
    while (m->lives > 0) {
        bool moved;
        TRY(move_all(x, &moved));
        if (moved) idle = 0;
        else if (idle == 0) idle = now_ns();
        else TRY(wait_for_more(x, &idle));
    }
    m->serial++;
    return ERR_OK;
}

// A call that has failed leaves its memory to its owner: whatever an engine would still write there must not come.
err_t mesh_run(mesh_call *x) {
    link_engine *engine = x->m->wires->engine;
    err_t rc = run(x);
    if (rc == ERR_OK || !engine) return rc;
    err_record why = *err_last();
    engine->abandon(engine);
    return err_restore(&why);
}
