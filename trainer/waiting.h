// trainer/waiting.h: what a person sees while the ranks of a run meet, and a request to stop that comes before they have.
#ifndef TRAINER_WAITING_H
#define TRAINER_WAITING_H

#include "comm/team/team.h"
#include "trainer/log/board.h"
#include "trainer/log/monitor.h"

typedef struct waiting {
    board *b;
    bool says;  // the first rank of its node
    monitor m;  // lines for people, and nothing else: there is no run directory yet
    char said[TEAM_WAIT_TEXT];
    double said_s;
} waiting;

void waiting_open(waiting *w, board *b, const launch *at);
void waiting_close(waiting *w);

// For team_options: lines after 2 s, when something changes, and every 30 s. ERR_INTERRUPTED: the run is to stop (board.stop). ctx: the waiting.
err_t waiting_look(void *ctx, double waited_s, const char *text);

// All have joined. A node that is not the first says where progress is shown.
void waiting_is_over(waiting *w, const launch *at);

#endif
