// trainer/waiting.c: see trainer/waiting.h.
#include "trainer/waiting.h"

#include "trainer/log/monitor.h"
#include "trainer/node/yard.h"

#include <stdio.h>
#include <string.h>

// Nodes that are started together meet at once, and there is nothing to say.
static const double first_s = 2, change_s = 2, again_s = 30;

typedef struct waiting {
    board *b;
    bool says;
    bool first;  // no world was before this one: nothing is lost if it does not begin
    monitor m;   // lines for people, and nothing else: there is no run directory yet
    waiting_said last;
} waiting;

static void waiting_open(waiting *w, const launch *at, board *b, bool says) {
    static const sink *const lines[] = {&sink_terminal, NULL};
    static const config none;
    *w = (waiting){.b = b, .says = says, .first = !at->yard || !at->yard->news.why[0]};
    // without memory it is silent
    if (says) (void)monitor_open_list(&w->m, &(log_setup){.dir = "", .c = &none}, lines);
}

static void waiting_close(waiting *w) {
    monitor_close(&w->m);
    if (w->says) board_say(w->b, "");
}

bool waiting_says(waiting_said *last, double waited_s, const char *text) {
    bool changed = strncmp(text, last->text, sizeof last->text - 1) != 0;
    if (waited_s < first_s || waited_s < last->at_s + (changed ? change_s : again_s)) return false;
    snprintf(last->text, sizeof last->text, "%s", text);
    last->at_s = waited_s;
    return true;
}

// team_waiting.call
static err_t check_wait(void *ctx, double waited_s, const char *text) {
    waiting *w = ctx;
    if (w->first && atomic_load(&w->b->stop))
        return err_set(ERR_INTERRUPTED,
                       "stopped on request while the ranks were meeting: nothing was trained, nothing had to be saved");
    if (atomic_load(&w->b->failed))
        return err_set(ERR_UNAVAILABLE, "another rank of this node ended while the ranks were meeting");
    if (!w->says) return ERR_OK;
    board_say(w->b, text);
    if (waiting_says(&w->last, waited_s, text)) monitor_say(&w->m, "%s", text);
    return ERR_OK;
}

err_t waiting_enter(session *x, const launch *at, board *b, bool says) {
    waiting w;
    waiting_open(&w, at, b, says && at->local == 0 && at->nodes > 1);
    board_rank *mine = board_place(b, at->local);
    x->waiting = (team_waiting){check_wait, &w, mine ? &mine->pulse : NULL};
    err_t rc = session_enter(x, at);
    x->waiting = (team_waiting){0};
    if (rc == ERR_OK && w.says && at->node > 0)
        monitor_say(&w.m, "joined; progress is on node 0 (%s)", at->place[0].host);
    waiting_close(&w);
    return rc;
}
