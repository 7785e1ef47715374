// comm/team/control.c: news of the team. One thread per rank owns the control connections: rank 0's thread has one to
// every other rank and passes on what it receives; the others have one, to rank 0. Other threads see only one atomic
// and one descriptor.
//
// Leaving. A rank that leaves says good-bye to rank 0 and waits a moment for the answer. Rank 0 is the centre of the
// star, so when it leaves first its thread goes on serving the others until all have said good-bye, for a bounded time.
// Then it says good-bye itself, and the remaining ranks go on without news. A connection that ends after a good-bye
// from either side is no failure.
#include "base/text.h"
#include "base/thread.h"
#include "comm/team/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

// rank 0: for the others' good-byes, while nothing has failed (nor beyond the timeout)
static const double leave_wait_s = 10;
static const double leave_answer_s = 1;  // for the answer to our good-bye

// --- frames ----------------------------------------------------------------------------------------------------------

void frame_seal(uint8_t dst[FRAME_BYTES], const frame *f, const uint8_t key[TEAM_KEY], uint64_t counter) {
    put_le(dst, f->type, 4);
    put_le(dst + 4, f->code, 4);
    put_le(dst + 8, (uint64_t)f->step, 8);
    put_le(dst + 16, (uint64_t)f->number, 8);
    memcpy(dst + 24, f->text, FRAME_TEXT);
    seal_mac(dst + FRAME_BODY, key, counter, dst, FRAME_BODY);
}

bool frame_open(frame *f, const uint8_t src[FRAME_BYTES], const uint8_t key[TEAM_KEY], uint64_t counter) {
    uint8_t mac[PROOF_BYTES];
    seal_mac(mac, key, counter, src, FRAME_BODY);
    if (!seal_same(mac, src + FRAME_BODY)) return false;
    f->type = (uint32_t)get_le(src, 4);
    f->code = (uint32_t)get_le(src + 4, 4);
    f->step = (int64_t)get_le(src + 8, 8);
    f->number = (int64_t)get_le(src + 16, 8);
    memcpy(f->text, src + 24, FRAME_TEXT);
    f->text[FRAME_TEXT - 1] = 0;
    return true;
}

// --- connections -----------------------------------------------------------------------------------------------------

void conn_open(conn *c, int fd, bool owned, int peer, const session_keys *k) {
    *c = (conn){.fd = fd, .owned = owned, .peer = peer, .heard = clock_now(), .step = -1, .number = -1};
    memcpy(c->send_key, k->send, TEAM_KEY);
    memcpy(c->recv_key, k->recv, TEAM_KEY);
}

void conn_close(conn *c) {
    if (c->fd >= 0 && c->owned) close(c->fd);
    c->fd = -1;
    c->out = 0;
    sodium_memzero(c->send_key, TEAM_KEY);
    sodium_memzero(c->recv_key, TEAM_KEY);
}

bool conn_queue(conn *c, const frame *f) {
    if (c->fd < 0 || c->out + FRAME_BYTES > sizeof c->out_bytes) return false;
    frame_seal(c->out_bytes + c->out, f, c->send_key, c->sent++);
    c->out += FRAME_BYTES;
    return true;
}

// A connection that can't be written to any more has ended; the next read finds that and reports it.
int64_t conn_flush(conn *c) {
    int64_t total = 0;
    while (c->fd >= 0 && c->out > 0) {
        ssize_t n = send(c->fd, c->out_bytes, c->out, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)) break;
        if (n < 0) n = 0, c->out = 0;
        c->out -= (size_t)n;
        memmove(c->out_bytes, c->out_bytes + n, c->out);
        total += n;
    }
    return total;
}

conn_news conn_read(conn *c, frame *f) {
    while (c->in < FRAME_BYTES) {
        ssize_t n = recv(c->fd, c->in_bytes + c->in, FRAME_BYTES - c->in, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return CONN_NOTHING;
        if (n < 0) return CONN_ENDED;
        errno = 0;
        if (n == 0) return CONN_ENDED;
        c->in += (size_t)n;
    }
    c->in = 0;
    return frame_open(f, c->in_bytes, c->recv_key, c->received++) ? CONN_FRAME : CONN_FORGED;
}

// --- failure ---------------------------------------------------------------------------------------------------------

static void ring(int eventfd_) {
    uint64_t one = 1;
    ssize_t n = write(eventfd_, &one, sizeof one);
    (void)n;  // full means readable, which is what is wanted
}

void team_record(team *t, err_t code, const char *text, double alive_at) {
    pthread_mutex_lock(&t->lock);
    if (atomic_load(&t->failed) == ERR_OK) {
        err_record saved = *err_last();  // the caller's own record is left alone
        err_set(code, "%s", text);
        t->why = *err_last();
        t->failed_at = clock_now();
        t->alive_at = alive_at < 0 ? 0 : alive_at > 0 && alive_at < t->failed_at ? alive_at : t->failed_at;
        err_restore(&saved);
        atomic_store(&t->failed, (int)code);
        ring(t->news);
        ring(t->wake);
    }
    pthread_mutex_unlock(&t->lock);
}

err_t team_query(team *t) {
    return atomic_load_explicit(&t->failed, memory_order_acquire) == ERR_OK ? ERR_OK : err_restore(&t->why);
}

void team_failed_at(const team *t, double *known, double *alive) { *known = t->failed_at, *alive = t->alive_at; }

// " in reduce bucket 2 of step 17", or nothing when no phase is known.
static void phase_text(char *dst, size_t room, const char *what, int64_t step, int64_t number) {
    text t = {.at = dst, .room = room};
    text_put(&t, "%s%s", what[0] ? " in " : "", what);
    if (what[0] && number >= 0) text_put(&t, " %" PRId64, number);
    if (what[0] && step >= 0) text_put(&t, " of step %" PRId64, step);
}

// This rank's progress, three values of one moment. If they change all the time they may be torn; only messages show
// them.
static comm_phase phase_now(team *t) {
    comm_phase p;
    for (int tries = 0; tries < 100; tries++) {
        uint32_t before = atomic_load(&t->changes);
        p = (comm_phase){atomic_load(&t->what), atomic_load(&t->step), atomic_load(&t->number)};
        if (before % 2 == 0 && atomic_load(&t->changes) == before) break;
    }
    return p;
}

err_t team_fail(team *t, const char *why) {
    comm_phase now = phase_now(t);
    return team_fail_in(t, why, &now);
}

err_t team_fail_in(team *t, const char *why, const comm_phase *now) {
    char text[ERR_TEXT], name[COMM_NAME], phase[128];
    phase_text(phase, sizeof phase, now->what ? now->what : "", now->step, now->number);
    int most = FRAME_TEXT - 8 - COMM_NAME - (int)strlen(phase);  // a long reason is cut, the phase is not
    snprintf(text, sizeof text, "%s: %.*s%s%s%s", rank_text(t->at, t->at->rank, name), most, why, phase[0] ? " (" : "",
             phase[0] ? phase + 1 : "", phase[0] ? ")" : "");
    team_record(t, ERR_UNAVAILABLE, text, 0);
    return team_query(t);
}

int team_fd(const team *t) { return t->news; }

void team_progress(team *t, const char *what, int64_t step, int64_t number) {
    uint32_t even = atomic_load_explicit(&t->changes, memory_order_relaxed) & ~1u;
    if (atomic_compare_exchange_strong(&t->changes, &even, even + 1)) {
        atomic_store(&t->what, what);
        atomic_store(&t->step, step);
        atomic_store(&t->number, number);
        atomic_store(&t->changes, even + 2);
    }
    team_alive(t);
}

void team_alive(team *t) { atomic_fetch_add_explicit(&t->work, 1, memory_order_relaxed); }

uint32_t team_pulse(const team *t) { return atomic_load_explicit(&t->pulse, memory_order_relaxed); }

// --- the watcher -----------------------------------------------------------------------------------------------------

typedef struct watcher {
    team *t;
    struct pollfd poll[2 + TEAM_RANKS_MAX];  // wake, then one for each connection, then launch.over
    double now, beat_at, leave_by;
    uint32_t work;                           // of this rank, at the last beat
    bool passed_on, leaving, parting, done;  // parting: rank 0 no longer waits for the others' good-byes
} watcher;

static bool open_to(const conn *c) { return c->fd >= 0; }

static void lost(watcher *w, const conn *c, const char *how, double alive_at) {
    char text[ERR_TEXT], name[COMM_NAME], phase[128];
    phase_text(phase, sizeof phase, c->what, c->step, c->number);
    snprintf(text, sizeof text, "%s is lost: %s; last sign of life %.1f s before%s%s",
             rank_text(w->t->at, c->peer, name), how, w->now - c->heard, phase[0] ? "," : "", phase);
    team_record(w->t, ERR_UNAVAILABLE, text, alive_at);
}

// Rank 0 counts changes of the ranks' work counters; its heartbeats carry the count to the others.
static void feel_pulse(team *t, conn *c, uint32_t work) {
    if (t->at->rank != 0) atomic_store(&t->pulse, work);
    else if (work != c->work) atomic_fetch_add(&t->pulse, 1);
    c->work = work;
}

static void take_frame(watcher *w, conn *c, const frame *f) {
    c->heard = w->now;
    if (f->type == FRAME_BEAT) {
        snprintf(c->what, sizeof c->what, "%.*s", CONN_WHAT - 1, f->text);
        c->step = f->step;
        c->number = f->number;
        feel_pulse(w->t, c, f->code);
    } else if (f->type == FRAME_FAIL) {
        double alive_at = f->number < 0 ? -1 : w->now - 1e-6 * (double)f->number;
        team_record(w->t, f->code ? (err_t)f->code : ERR_UNAVAILABLE, f->text, alive_at);
    } else if (f->type == FRAME_BYE) {
        c->bye_heard = true;
    }
}

// Everything that has come on one connection.
static void hear(watcher *w, conn *c) {
    frame f;
    char how[128];
    for (;;) {
        switch (conn_read(c, &f)) {
        case CONN_NOTHING: return;
        case CONN_FRAME: take_frame(w, c, &f); continue;
        case CONN_FORGED: snprintf(how, sizeof how, "a message on its control connection is not what was sent"); break;
        case CONN_ENDED:
            snprintf(how, sizeof how, "its connection ended%s%s%s", errno ? " (" : "", errno ? strerror(errno) : "",
                     errno ? ")" : "");
            break;
        }
        if (!c->bye_heard && !c->bye_said) lost(w, c, how, 0);
        conn_close(c);
        return;
    }
}

static void beat(watcher *w) {
    team *t = w->t;
    comm_phase now = phase_now(t);
    frame f = {.type = FRAME_BEAT, .step = now.step, .number = now.number};
    uint32_t work = atomic_load(&t->work);
    if (t->at->rank == 0 && work != w->work) atomic_fetch_add(&t->pulse, 1);
    f.code = t->at->rank == 0 ? atomic_load(&t->pulse) : work;
    if (t->shown) __atomic_store_n(t->shown, atomic_load(&t->pulse), __ATOMIC_RELAXED);
    w->work = work;
    snprintf(f.text, sizeof f.text, "%s", now.what ? now.what : "");
    for (int i = 0; i < t->controls; i++)
        if (t->control[i].out == 0 && !t->control[i].bye_said) conn_queue(&t->control[i], &f);
    w->beat_at = w->now + t->heartbeat_s;
}

static bool silent(const watcher *w, const conn *c) {
    return open_to(c) && !c->bye_heard && w->now - c->heard >= w->t->timeout_s;
}

// A peer that was silent for too long is lost. Called after everything received was read, so that time in which this
// process itself did not run does not count against the peers.
static void judge_silence(watcher *w) {
    for (int i = 0; i < w->t->controls; i++) {
        conn *c = &w->t->control[i];
        if (!silent(w, c)) continue;
        if (!c->bye_said) lost(w, c, "it shows no sign of life", c->heard);
        conn_close(c);
    }
}

static void say_to_all(watcher *w, const frame *f) {
    for (int i = 0; i < w->t->controls; i++) {
        conn *c = &w->t->control[i];
        if (!open_to(c) || c->bye_said) continue;
        conn_queue(c, f);
        c->bye_said = f->type == FRAME_BYE;
    }
}

static void pass_on_failure(watcher *w) {
    team *t = w->t;
    if (w->passed_on || atomic_load(&t->failed) == ERR_OK) return;
    frame f = {.type = FRAME_FAIL, .code = (uint32_t)t->why.code};
    f.number = t->alive_at == 0 ? -1 : (int64_t)(1e6 * (t->failed_at - t->alive_at));
    snprintf(f.text, sizeof f.text, "%s", t->why.text);
    say_to_all(w, &f);
    w->passed_on = true;
}

// A good-bye is answered with a good-bye. When both were said, and ours is sent, the connection is closed.
static void part(watcher *w) {
    bool any = false;
    const frame bye = {.type = FRAME_BYE};
    for (int i = 0; i < w->t->controls; i++) {
        conn *c = &w->t->control[i];
        if (open_to(c) && c->bye_heard && !c->bye_said) c->bye_said = conn_queue(c, &bye);
        atomic_fetch_add(&w->t->wire, conn_flush(c));
        if (c->bye_heard && c->bye_said && c->out == 0) conn_close(c);
        any |= open_to(c);
    }
    w->done = w->leaving && (!any || (w->parting && w->now >= w->leave_by));
}

static void leave(watcher *w) {
    team *t = w->t;
    bool failed = atomic_load(&t->failed) != ERR_OK;
    if (!w->leaving) {
        w->leaving = true;
        w->leave_by = w->now + (t->timeout_s < leave_wait_s ? t->timeout_s : leave_wait_s);
    }
    if (w->parting || (t->at->rank == 0 && !failed && w->now < w->leave_by)) return;
    const frame bye = {.type = FRAME_BYE};
    say_to_all(w, &bye);
    w->parting = true;
    // On one machine each rank learns of a failure itself, and what was sent can be read after the sender has closed.
    // Nodes that heal learn of it from their councils, too.
    w->leave_by = w->now + (failed && (t->at->nodes == 1 || t->at->fenced) ? 0 : leave_answer_s);
}

// Sleeps until something comes, or is due.
static void sleep_until_news(watcher *w) {
    team *t = w->t;
    double due = w->beat_at;
    if (w->leaving && w->leave_by < due) due = w->leave_by;
    w->poll[0] = (struct pollfd){.fd = t->wake, .events = POLLIN};
    for (int i = 0; i < t->controls; i++) {
        const conn *c = &t->control[i];
        w->poll[1 + i] = (struct pollfd){.fd = c->fd, .events = (short)(POLLIN | (c->out ? POLLOUT : 0))};
        if (open_to(c) && !c->bye_heard && c->heard + t->timeout_s < due) due = c->heard + t->timeout_s;
    }
    // a descriptor that is never read is waited for once
    int over = t->at->over && atomic_load(&t->failed) == ERR_OK ? t->at->over[0] : -1;
    w->poll[1 + t->controls] = (struct pollfd){.fd = over, .events = POLLIN};
    double wait = due - clock_now();
    poll(w->poll, 2 + (nfds_t)t->controls, wait <= 0 ? 0 : (int)(1e3 * wait) + 1);
    uint64_t count;
    if (w->poll[0].revents && read(t->wake, &count, sizeof count) < 0) return;
}

static void *watch(void *arg) {
    team *t = arg;
    watcher w = {.t = t, .now = clock_now()};
    w.beat_at = w.now;
    for (int i = 0; i < t->controls; i++) t->control[i].heard = w.now;
    while (!w.done) {
        sleep_until_news(&w);
        w.now = clock_now();
        for (int i = 0; i < t->controls; i++)
            if (w.poll[1 + i].revents || silent(&w, &t->control[i])) hear(&w, &t->control[i]);
        if (w.poll[1 + t->controls].revents) team_record(t, ERR_UNAVAILABLE, "the nodes have ended this world", -1);
        judge_silence(&w);
        pass_on_failure(&w);
        if (w.now >= w.beat_at) beat(&w);
        if (atomic_load(&t->leaving)) leave(&w);
        part(&w);
    }
    return NULL;
}

err_t watch_start(team *t) {
    TRY(thread_start(&t->thread, "lockstep/team", watch, t));
    t->watching = true;
    return ERR_OK;
}

void watch_stop(team *t) {
    if (!t->watching) return;
    atomic_store(&t->leaving, true);
    ring(t->wake);
    pthread_join(t->thread, NULL);
    t->watching = false;
}
