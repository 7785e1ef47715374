// trainer/node/next.c: the supervisor's part in healing: hears who has ended or left, asks healing.h what follows, and
// does it. A rank that was lost gets a new process, forked from this one; a rank that lives gets the launch sent.
#include "trainer/node/crew.h"

#include "base/text.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

void crew_hear_yards(crew *w, double now) {
    for (int i = 0; i < w->locals; i++)
        if (w->yard[i] >= 0 && yard_heard(w->yard[i], &w->data)) healing_left(w->h, i, now);
}

// From here on a lost rank ends the run. Those that live and have left, or will, are told how to end.
void crew_stop_healing(crew *w, const healing_choice *x, double now) {
    for (int i = 0; i < w->locals; i++) yard_end(w->yard[i], x->code);
    if (x->slot >= 0) {
        w->root = x->slot, w->root_status = w->h->slot[x->slot].status;
        w->failed_at = now;
    }
    snprintf(w->hopeless, sizeof w->hopeless, "%s", x->why);
    w->stopped |= x->code == ERR_INTERRUPTED;
    w->due = 0;
    free(w->h);
    w->h = NULL;
}

// What the ranks of the next world are told of the end of this one.
void crew_describe(const crew *w, char why[YARD_WHY]) {
    const healing *h = w->h;
    char end[CREW_END];
    text t = {.at = why, .room = YARD_WHY};
    why[0] = 0;
    for (int i = 0; i < h->slots; i++) {
        const healing_slot *s = &h->slot[i];
        if (s->place != SLOT_ENDED) continue;
        text_put(&t, "%s%s%s", t.n ? "; " : "", crew_end_text(w, i, s->status, end),
                 s->hung ? ", since it had not left after a failure" : "");
    }
}

// A world like the one before, with memory and sockets of its own.
static err_t open_world(crew *w, const config *c) {
    const char *host = w->place[0].host;
    TRY(launch_open(&w->at, 1, &w->locals, &host, 0));
    w->at.epoch = ++w->epoch;
    return crew_channels(w, c);
}

// While nobody is in a world.
void crew_clear_board(crew *w) {
    atomic_store(&w->b->failed, 0);
    atomic_store(&w->b->ready, 0);
    atomic_store(&w->b->looking, 0);
    atomic_store(&w->b->turn, 0);
    atomic_store(&w->b->sealed, -1);
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
        if (w->h->slot[i].place == SLOT_LEFT && yard_enter(w->yard[i], &w->at, i, &w->news) != ERR_OK)
            kill(w->pid[i], SIGKILL);
}

static int next_world(crew *w, const config *c, double now) {
    w->news = (yard_news){.failed_at = w->h->failed_at, .left_at = w->h->out_at};
    crew_describe(w, w->news.why);
    if (!w->news.why[0]) snprintf(w->news.why, sizeof w->news.why, "the ranks had lost each other");
    crew_clear_board(w);
    int local = open_world(w, c) == ERR_OK ? crew_fork_lost(w) : -1;
    if (local >= 0 && local < w->locals) return local;
    if (local < 0) {
        healing_choice none = {.code = ERR_UNAVAILABLE, .slot = w->h->first};
        snprintf(none.why, sizeof none.why, "%.*s", (int)sizeof none.why - 1, err_last()->text);
        crew_stop_healing(w, &none, now);
    } else {
        give_world(w);
        healing_opened(w->h);
        atomic_store(&w->b->heals, (int)w->epoch);
        notify_again(&w->voice, now);
    }
    launch_close(&w->at);
    return w->locals;
}

void crew_kill_the_rest(crew *w) {
    for (int i = 0; i < w->locals; i++) {
        if (w->h->slot[i].place != SLOT_IN || w->h->slot[i].hung) continue;
        healing_killed(w->h, i);
        kill(w->pid[i], SIGKILL);
    }
}

int crew_heal(crew *w, const config *c, double now) {
    healing *h = w->h;
    crew_hear_yards(w, now);
    healing_choice x = healing_choose(h, now);
    w->due = x.kind == HEAL_WAIT ? x.until : 0;
    if (h->failed_at == 0) return w->locals;
    atomic_store(&w->b->failed, 1);  // for those that still wait for the others to come
    if (w->asked && x.kind != HEAL_END)
        x = (healing_choice){HEAL_END, .code = ERR_INTERRUPTED, .slot = -1,
                             .why =
                                 "stopped on request while lost ranks were being replaced; the same command continues"};
    if (x.kind == HEAL_OPEN) return next_world(w, c, now);
    if (x.kind == HEAL_KILL) crew_kill_the_rest(w);
    if (x.kind == HEAL_END) crew_stop_healing(w, &x, now);
    return w->locals;
}
