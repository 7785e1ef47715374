// trainer/waiting.c: see trainer/waiting.h.
#include "trainer/waiting.h"

#include <stdio.h>
#include <string.h>

// Nodes that are started together meet at once, and there is nothing to say.
static const double first_s = 2, change_s = 2, again_s = 30;

void waiting_open(waiting *w, board *b, const launch *at) {
    static const sink *const lines[] = {&sink_terminal, NULL};
    static const config none;
    *w = (waiting){.b = b, .says = at->local == 0 && at->nodes > 1};
    if (w->says) (void)monitor_open_list(&w->m, &(log_setup){.dir = "", .c = &none}, lines);
}

void waiting_close(waiting *w) {
    monitor_close(&w->m);
    if (w->says) board_say(w->b, "");
}

err_t waiting_look(void *ctx, double waited_s, const char *text) {
    waiting *w = ctx;
    if (atomic_load(&w->b->stop))
        return err_set(ERR_INTERRUPTED, "stopped on request while the ranks were meeting: nothing was trained, nothing had to be saved");
    if (atomic_load(&w->b->failed)) return err_set(ERR_UNAVAILABLE, "another rank of this node ended while the ranks were meeting");
    if (!w->says) return ERR_OK;
    board_say(w->b, text);
    bool changed = strncmp(text, w->said, sizeof w->said - 1) != 0;
    if (waited_s < first_s || waited_s < w->said_s + (changed ? change_s : again_s)) return ERR_OK;
    snprintf(w->said, sizeof w->said, "%s", text);
    w->said_s = waited_s;
    monitor_say(&w->m, "%s", text);
    return ERR_OK;
}

void waiting_is_over(waiting *w, const launch *at) {
    if (!w->says) return;
    if (at->node > 0) monitor_say(&w->m, "joined; progress is on node 0 (%s)", at->place[0].host);
    board_say(w->b, "");
}
