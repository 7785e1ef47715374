// trainer/node/next.c: the supervisor's part in healing: hears who has ended or left, asks healing.h what follows, and
// does it. A rank that was lost gets a new process, forked from this one; a rank that lives gets the launch sent.
#include "trainer/node/crew.h"

#include "base/text.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void crew_hear_yards(crew *w, double now) {
    for (int i = 0; i < w->locals; i++)
        if (w->yard[i] >= 0 && yard_heard(w->yard[i], &w->data)) healing_left(w->h, i, now);
}

bool crew_saves_first(crew *w, const crew_last *how, const char *why, double now) {
    if (w->vault < 0 || !w->began || w->h->last_at > 0) return false;
    w->last = *how;
    snprintf(w->hopeless, sizeof w->hopeless, "%s", why);
    healing_last(w->h, now);
    return true;
}

// From here on a lost rank ends the run. Those that live and have left, or will, are told how to end.
void crew_stop_healing(crew *w, const healing_choice *x, double now) {
    bool last = w->h->last_at > 0;
    err_t code = last ? w->last.code : x->code;
    int slot = last ? w->last.slot : x->slot;
    for (int i = 0; i < w->locals; i++) yard_end(w->yard[i], code);
    if (slot >= 0) {
        w->root = slot, w->root_status = last ? w->last.status : w->h->slot[slot].status;
        w->failed_at = now;
    } else if (last && code != ERR_INTERRUPTED) w->told = code, w->failed_at = now;
    if (!last) snprintf(w->hopeless, sizeof w->hopeless, "%s", x->why);
    // ranks of the last world end as those that were asked to stop
    w->stopped = (w->stopped && !last) || code == ERR_INTERRUPTED;
    w->due = 0;
    free(w->h);
    w->h = NULL;
}

void crew_describe(crew *w) {
    const healing *h = w->h;
    char end[CREW_END];
    text t = {.at = w->lost, .n = strlen(w->lost), .room = sizeof w->lost};
    for (int i = 0; i < h->slots; i++) {
        const healing_slot *s = &h->slot[i];
        if (s->place != SLOT_ENDED) continue;
        text_put(&t, "%s%s%s", t.n ? "; " : "", crew_end_text(w, i, s->status, end),
                 s->hung ? ", since it had not left after a failure" : "");
    }
}

// --- places ----------------------------------------------------------------------------------------------------------

// The largest world of at most so many ranks; 0: none fits.
static int width(const crew *w, const config *c, int most) {
    err_record before = *err_last();
    while (most > 0 && (config_fits(c, most) != ERR_OK || w->fits(c, most) != ERR_OK)) most--;
    err_restore(&before);
    return most;
}

static bool retire(crew *w, const config *c, const healing_choice *x) {
    char end[CREW_END];
    if (!w->cl && width(w, c, healing_slots(w->h) - 1) == 0) return false;
    text t = {.at = w->lost, .n = strlen(w->lost), .room = sizeof w->lost};
    text_put(&t, "%s%s: %d times in a row without a new step, so the run goes on without it", t.n ? "; " : "",
             crew_end_text(w, x->slot, w->h->slot[x->slot].status, end), w->h->slot[x->slot].deaths);
    healing_retired(w->h, x->slot);
    return true;
}

healing_choice crew_choose(crew *w, const config *c, double now) {
    healing_choice x;
    while ((x = healing_choose(w->h, now)).kind == HEAL_RETIRE && retire(w, c, &x)) {}
    if (x.kind == HEAL_RETIRE) x.kind = HEAL_END;
    return x;
}

// --- a slow rank -----------------------------------------------------------------------------------------------------

// Which place has this rank of the world?
static int slot_of(const crew *w, int seat) {
    int slot = 0;
    while (slot < w->locals && (w->h->slot[slot].place == SLOT_RETIRED || crew_seat(w, slot) != seat)) slot++;
    return slot;
}

// The ranks have found one without which the run is better off: they leave at a step that all agree on, and save it.
static void turn_from_slow(crew *w, const config *c) {
    int seat = atomic_exchange(&w->b->slow, 0) - 1, slot = seat < 0 ? w->locals : slot_of(w, seat);
    char who[COMM_NAME];
    if (slot == w->locals || w->leaves >= 0 || w->h->failed_at != 0) return;
    int left = width(w, c, healing_slots(w->h) - 1);
    if (left == 0 || left < c->cluster.min_ranks) return;
    snprintf(w->lost, sizeof w->lost, "%s stays %.1f times as slow as the others, so the run goes on without it",
             comm_place_text(&w->place[slot], who), atomic_load(&w->b->slow_times));
    w->leaves = slot;
    atomic_store(&w->b->turn, 1);
}

// Has its process ended, so that the directory's lock is free? It has left the world, and is told to end.
static bool has_gone(crew *w, double now) {
    int slot = w->leaves;
    if (slot < 0 || w->h->slot[slot].place == SLOT_RETIRED) return true;
    if (w->h->slot[slot].place == SLOT_ENDED) return healing_retired(w->h, slot), true;  // it was lost meanwhile
    healing_goes(w->h, slot, now);
    yard_end(w->yard[slot], ERR_OK);
    return false;
}

// --- the next world --------------------------------------------------------------------------------------------------

err_t crew_open_alone(crew *w, const config *c) {
    const char *host = w->place[0].host;
    int ranks = width(w, c, healing_slots(w->h));
    if (ranks == 0)
        return err_set(ERR_UNAVAILABLE, "no layout of the run fits the ranks of this machine alone (%d)",
                       healing_slots(w->h));
    for (int i = 0; i < w->locals; i++)
        if (w->h->slot[i].place == SLOT_ENDED && crew_seat(w, i) >= ranks) healing_retired(w->h, i);
    TRY(launch_open(&w->at, 1, &ranks, &host, 0));
    launch_joined(&w->at, (int)c->cluster.joined);
    w->seats = w->world = w->voice.locals = ranks;
    atomic_store(&w->b->seats, ranks);
    for (int i = 0; i < w->locals; i++)
        if (crew_seat(w, i) < ranks) w->place[i] = w->at.place[crew_seat(w, i)];
    w->at.epoch = ++w->epoch;
    return crew_channels(w, c);
}

// While nobody is in a world.
void crew_clear_board(crew *w) {
    atomic_store(&w->b->failed, 0);
    atomic_store(&w->b->ready, 0);
    atomic_store(&w->b->looking, 0);
    atomic_store(&w->b->turn, 0);
    atomic_store(&w->b->slow, 0);
    atomic_store(&w->b->first, 0);
    atomic_store(&w->b->sealed, -1);
    atomic_store(&w->b->lost_at, 0);
    atomic_store(&w->b->alive_at, 0);
    for (int i = 0; i < w->locals; i++)
        if (w->h->slot[i].place == SLOT_ENDED) board_restart(&w->b->rank[i]);
}

// Local rank that this process has become, or w->locals in the parent, where each lost rank has a process again; -1:
// one of them has none.
int crew_fork_lost(crew *w) {
    fflush(NULL);
    for (int i = 0; i < w->locals; i++) {
        if (w->h->slot[i].place != SLOT_ENDED) continue;
        pid_t pid = crew_fork_one(w, i);
        if (pid == 0) return i;
        if (pid < 0) return crew_no_process(w, i, errno), -1;
    }
    return w->locals;
}

// One that does not take it is killed; the world then ends before it has begun, and another one follows.
static void give_world(crew *w) {
    for (int i = 0; i < w->locals; i++)
        if (w->h->slot[i].place == SLOT_LEFT && crew_seat(w, i) < w->seats &&
            yard_enter(w->yard[i], &w->at, crew_seat(w, i), &w->news) != ERR_OK)
            kill(w->pid[i], SIGKILL);
}

// Those without a place in the world wait for the next one.
void crew_seat_all(crew *w) {
    healing_opened(w->h);
    for (int i = 0; i < w->locals; i++)
        if (w->h->slot[i].place == SLOT_IN && crew_seat(w, i) >= w->seats) healing_waits(w->h, i);
}

yard_news crew_news(const crew *w, double now) {
    const healing *h = w->h;
    yard_news n = {.failed_at = h->failed_at ? h->failed_at : now, .high = h->high};
    double lost_at = atomic_load(&w->b->lost_at), alive_at = atomic_load(&w->b->alive_at);
    n.left_at = h->out_at > n.failed_at ? h->out_at : n.failed_at;
    if (alive_at == 0) alive_at = w->alive_at;  // no rank has seen it: the nodes have
    if (alive_at > 0 && alive_at < n.failed_at) n.failed_at = alive_at;
    n.lost_at = lost_at > n.failed_at ? lost_at : n.failed_at;
    return n;
}

// Of places that are not retired.
static bool any_ended(const crew *w) {
    bool any = false;
    for (int i = 0; i < w->locals; i++) any |= w->h->slot[i].place == SLOT_ENDED;
    return any;
}

static int next_world(crew *w, const config *c, double now) {
    fault_kill(&w->faults, FAULT_GIVE);
    w->news = crew_news(w, now);
    crew_describe(w);
    snprintf(w->news.why, sizeof w->news.why, "%s", w->lost[0] ? w->lost : "the ranks had lost each other");
    w->lost[0] = 0;
    w->news.evicted = w->leaves >= 0 && !any_ended(w), w->news.last = w->h->last_at > 0;
    if (!w->news.evicted) scribe_start(w, c, w->h->failed_at);
    crew_clear_board(w);
    int local = crew_open_alone(w, c) == ERR_OK ? crew_fork_lost(w) : -1;
    if (local >= 0 && local < w->locals) return local;
    if (local < 0) {
        healing_choice none = {.code = ERR_UNAVAILABLE, .slot = w->h->first};
        snprintf(none.why, sizeof none.why, "%.*s", (int)sizeof none.why - 1, err_last()->text);
        crew_stop_healing(w, &none, now);
    } else {
        give_world(w);
        crew_seat_all(w);
        if (w->leaves >= 0) atomic_fetch_add(&w->b->evicted, 1);
        if (!w->news.evicted && !w->news.last) atomic_fetch_add(&w->b->heals, 1);
        w->leaves = -1;
        notify_again(&w->voice, now);
    }
    launch_close(&w->at);
    return w->locals;
}

void crew_kill_the_rest(crew *w) {
    for (int i = 0; i < w->locals; i++) {
        healing_place at = w->h->slot[i].place;
        if ((at != SLOT_IN && at != SLOT_GOING) || w->h->slot[i].hung) continue;
        healing_killed(w->h, i);
        kill(w->pid[i], SIGKILL);
    }
}

int crew_heal(crew *w, const config *c, double now) {
    healing *h = w->h;
    crew_hear_yards(w, now);
    turn_from_slow(w, c);
    healing_choice x = crew_choose(w, c, now);
    w->due = x.kind == HEAL_WAIT ? x.until : 0;
    if (h->failed_at == 0) return w->locals;
    atomic_store(&w->b->failed, 1);  // for those that still wait for the others to come
    if (w->asked && x.kind != HEAL_END && h->last_at == 0)
        x = (healing_choice){HEAL_END, .code = ERR_INTERRUPTED, .slot = -1, .saves = true,
                             .why =
                                 "stopped on request while lost ranks were being replaced; the same command continues"};
    if (x.kind == HEAL_END && x.saves) {
        crew_last how = {x.code, x.slot, x.slot < 0 ? 0 : h->slot[x.slot].status};
        if (crew_saves_first(w, &how, x.why, now)) x = crew_choose(w, c, now);
    }
    if (x.kind == HEAL_OPEN && has_gone(w, now)) return next_world(w, c, now);
    if (x.kind == HEAL_KILL) crew_kill_the_rest(w);
    if (x.kind == HEAL_END) crew_stop_healing(w, &x, now);
    return w->locals;
}
