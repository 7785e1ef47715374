// trainer/node/follow.c: the supervisor's part where a run of several nodes heals: it carries out what the council of
// nodes has decided (trainer/node/delegate.h), and says what its own ranks do.
//
//   a new epoch is recorded    the ranks of the one before are told that it is over: at once, or, where a node comes or
//                              goes, at the next step that all agree on, after they have saved it
//   a rank ended               it is started again, opens its device and data, and waits with the others
//   all of them wait           they are given the world of the newest record, if this node has a place in it
#include "trainer/node/crew.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static const double turn_s = 60;  // for the ranks to reach a step that all agree on, and to save it

// --- leaving ---------------------------------------------------------------------------------------------------------

// For those that still meet, and for those that compute.
static void end_world(crew *w, double now) {
    atomic_store(&w->b->failed, 1);
    if (w->over >= 0) (void)eventfd_write(w->over, 1);
    healing_over(w->h, now);
}

// --- the end of this node's part -------------------------------------------------------------------------------------

// How the node ends, as the council says: ranks that wait are told to end, those that still compute to leave first.
static void finish(crew *w, err_t code, const char *why) {
    if (healing_inside(w->h)) end_world(w, clock_now());
    for (int i = 0; i < w->locals; i++) yard_end(w->yard[i], ERR_INTERRUPTED);
    w->told = code == ERR_OK ? ERR_INTERRUPTED : code;
    if (why != w->hopeless) snprintf(w->hopeless, sizeof w->hopeless, "%s", why);
    w->failed_at = clock_now();
    w->due = 0;
    free(w->h);
    w->h = NULL;
}

// Where the others go on, or have saved, the state is with them.
static void end_as_told(crew *w, err_t code, const char *why) {
    double now = clock_now();
    if (code == ERR_OK || !crew_saves_first(w, &(crew_last){code, -1, 0}, why, now)) finish(w, code, why);
    else end_world(w, now);
}

// --- another epoch ---------------------------------------------------------------------------------------------------

static bool is_planned(const council_record *r) {
    return r->kind == DECREE_JOIN || r->kind == DECREE_DRAIN || r->kind == DECREE_EVICT;
}

// A node is put out for its silence. Our ranks may have left before this: those of another node were the first to know.
static void note_silence(crew *w, double now) {
    const node_ruling *told = w->ruling;
    bool put_out = told->has_record && told->record.epoch != w->entered && told->silent_s > 0;
    if (put_out && w->alive_at == 0) w->alive_at = now - told->silent_s;
}

static void leave_epoch(crew *w, double now) {
    const council_record *r = &w->ruling->record;
    fault_kill(&w->faults, FAULT_FOLLOW);
    if (!is_planned(r) || (w->turn_at && now >= w->turn_at + turn_s)) {
        end_world(w, now);
        return;
    }
    if (w->turn_at == 0) w->turn_at = now;
    atomic_store(&w->b->turn, 1);
    w->due = w->turn_at + turn_s;
}

// --- entering --------------------------------------------------------------------------------------------------------

// The nodes that have a place in a world.
typedef struct seated {
    int nodes;
    const char *host[TEAM_NODES_MAX];
    int ranks[TEAM_NODES_MAX], rack[TEAM_NODES_MAX];
} seated;

// Those of the world of r. Returns which one is this node; -1: it has no place.
static int seats_of(const crew *w, const council_record *r, seated *out) {
    int here = -1, last = -1;
    out->nodes = 0;
    for (int i = 0; i < r->ranks; i++) {
        int node = r->seat[i].node;
        if (node != last) {
            if (node == w->node) here = out->nodes;
            out->host[out->nodes] = w->cl->host[node], out->rack[out->nodes] = w->cl->rack[node];
            out->ranks[out->nodes++] = 0;
            last = node;
        }
        out->ranks[out->nodes - 1]++;
    }
    return here;
}

static int first_of(const launch *at) {
    int r = 0;
    while (at->place[r].node != at->node) r++;
    return r;
}

static err_t open_epoch(crew *w, const config *c, const council_record *r) {
    seated of;
    int here = seats_of(w, r, &of);
    w->seats = here < 0 ? 0 : of.ranks[here];
    w->world = r->ranks, w->voice.locals = w->seats;
    atomic_store(&w->b->seats, w->seats);
    if (here < 0) return ERR_OK;
    TRY(launch_open(&w->at, of.nodes, of.ranks, of.host, here));
    launch_racks(&w->at, of.rack);
    launch_joined(&w->at, (int)c->cluster.joined);
    w->at.epoch = w->epoch = (uint32_t)r->epoch - 1, w->at.fenced = true;
    council_fence(w->at.fence, r);
    TRY(launch_watch(&w->at));
    if ((w->over = fcntl(w->at.over[0], F_DUPFD_CLOEXEC, 0)) < 0)
        return err_set(ERR_INTERNAL, "dup: %s; raise the limit of open files (LimitNOFILE)", strerror(errno));
    for (int i = 0; i < w->locals; i++)
        if (crew_seat(w, i) < w->seats) w->place[i] = w->at.place[first_of(&w->at) + crew_seat(w, i)];
    return crew_channels(w, c);
}

// One that does not take it is killed.
static void seat_ranks(crew *w) {
    for (int i = 0; i < w->locals; i++)
        if (w->h->slot[i].place != SLOT_RETIRED && crew_seat(w, i) < w->seats &&
            yard_enter(w->yard[i], &w->at, crew_seat(w, i), &w->news) != ERR_OK)
            kill(w->pid[i], SIGKILL);
    crew_seat_all(w);
}

// A world that can't be opened, or that a rank does not take, has failed on this node: the council hears of it.
static void give_epoch(crew *w, const config *c, double now) {
    const council_record *r = &w->ruling->record;
    bool first = r->kind == DECREE_FORM;
    fault_kill(&w->faults, FAULT_GIVE);
    w->news = crew_news(w, now);
    if (!first) snprintf(w->news.why, sizeof w->news.why, "%s", w->lost[0] ? w->lost : r->why);
    // of a loss here, start_lost has done so
    if (w->h->failed_at && !w->turn_at && !w->lost[0]) scribe_start(w, c, w->h->failed_at);
    w->news.evicted = r->kind == DECREE_EVICT && !w->lost[0];
    w->lost[0] = 0;
    crew_clear_board(w);
    if (w->over >= 0) close(w->over);
    w->over = -1, w->turn_at = w->alive_at = 0, w->entered = r->epoch;
    err_t rc = open_epoch(w, c, r);
    if (rc != ERR_OK) w->seats = 0;
    seat_ranks(w);
    if (rc != ERR_OK) healing_over(w->h, now);
    if (r->kind == DECREE_HEAL) atomic_fetch_add(&w->b->heals, 1);
    if (r->kind == DECREE_EVICT) atomic_fetch_add(&w->b->evicted, 1);
    notify_again(&w->voice, now);
    launch_close(&w->at);
}

// The last world: of this node alone, for what its ranks hold.
static void give_last(crew *w, const config *c, double now) {
    w->news = crew_news(w, now);
    w->news.last = true;
    snprintf(w->news.why, sizeof w->news.why, "%s", w->hopeless);
    crew_clear_board(w);
    err_t rc = crew_open_alone(w, c);
    w->at.fenced = true;
    if (rc == ERR_OK) seat_ranks(w);
    launch_close(&w->at);
    if (rc == ERR_OK) return;
    char why[COUNCIL_NET_WHY];
    snprintf(why, sizeof why, "%.300s; what is in memory is not saved: %.200s", w->hopeless, err_last()->text);
    finish(w, w->last.code, why);
}

// --- what is told, and heard -----------------------------------------------------------------------------------------

static int tenths(double x) { return x < 6000 ? (int)(10 * x + 0.5) : 60000; }

static void tell_facts(crew *w) {
    node_facts f;
    memset(&f, 0, sizeof f);  // they are compared as bytes
    f.entered = w->entered, f.seats = w->seats, f.slots = healing_slots(w->h), f.data = w->data;
    bool ending = w->h->last_at > 0;  // then no world of others counts on it
    f.high = w->h->high, f.inside = healing_inside(w->h), f.ready = healing_ready(w->h) && !ending;
    f.failed = ending || (w->h->failed_at != 0 && !w->turn_at), f.leaving = w->asked > 0;
    f.slow = atomic_load(&w->b->slow) ? tenths(atomic_load(&w->b->slow_times)) : 0;
    delegate_tell(&w->d, &f);
}

void crew_say_over(crew *w) {
    node_facts f;
    memset(&f, 0, sizeof f);
    f.entered = w->entered, f.over = true;
    delegate_tell(&w->d, &f);
}

static bool is_member(const crew *w) {
    const council_record *r = &w->ruling->record;
    return w->ruling->has_record && set_has(&r->members, w->node) && r->life[w->node] == w->d.life;
}

// Which local rank this process has become, or w->locals in the parent; -1: one that was lost has no process.
static int start_lost(crew *w, const config *c) {
    scribe_start(w, c, w->h->failed_at);
    crew_describe(w);
    if (crew_name_ranks(w, w->cl) != ERR_OK) return -1;
    int local = crew_fork_lost(w);
    if (local < 0 || local == w->locals) launch_close(&w->at);
    for (int i = 0; local == w->locals && i < w->locals; i++)
        if (w->h->slot[i].place == SLOT_ENDED) healing_restarted(w->h, i);
    return local;
}

static int follow(crew *w, const config *c, double now) {
    healing_choice x = crew_choose(w, c, now);
    bool ending = w->h->last_at > 0;
    w->due = x.kind == HEAL_WAIT ? x.until : 0;
    if (x.kind == HEAL_END && ending) finish(w, w->last.code, w->hopeless);
    else if (x.kind == HEAL_END) crew_stop_healing(w, &x, now);
    if (x.kind == HEAL_KILL) crew_kill_the_rest(w);
    if (x.kind == HEAL_OPEN) {
        int local = start_lost(w, c);
        if (local >= 0) return local;
        finish(w, ERR_UNAVAILABLE, err_last()->text);
    }
    if (!w->h) return w->locals;
    if (ending) {
        if (healing_ready(w->h) && !w->h->last) give_last(w, c, now);
        return w->locals;
    }
    const node_ruling *told = w->ruling;
    note_silence(w, now);
    if (told->has_record && told->record.epoch != w->entered && healing_inside(w->h)) leave_epoch(w, now);
    if (w->h->failed_at) atomic_store(&w->b->failed, 1);
    if (is_member(w) && told->record.epoch > w->entered && healing_ready(w->h)) give_epoch(w, c, now);
    return w->locals;
}

// All save and stop: ranks that are in a world, or will be given one, do; those of a node that has none wait in vain.
static void follow_end(crew *w) {
    const node_ruling *told = w->ruling;
    if (told->action == COUNCIL_STOP) atomic_store(&w->b->stop, 1);
    bool apart = told->action == COUNCIL_STOP && !is_member(w) && !healing_inside(w->h);
    if (told->action == COUNCIL_END || apart) end_as_told(w, told->code, told->why);
}

int crew_follow(crew *w, const config *c, double now) {
    delegate_reap(&w->d);
    (void)delegate_hear(&w->d, w->ruling);
    crew_hear_yards(w, now);
    int local = follow(w, c, now);
    if (local != w->locals || !w->h) return local;
    tell_facts(w);
    if (w->h->last_at == 0) follow_end(w);
    return w->locals;
}
