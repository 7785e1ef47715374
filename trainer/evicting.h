// trainer/evicting.h: [cluster] evict_slow inside a run: gives trainer/evict.h what the ranks report of each step, and
// puts the answer on the board of the machine that it is about. Its supervisor then has the run go on without that rank
// (trainer/node/next.c), or without that node (trainer/node/follow.c).
#ifndef TRAINER_EVICTING_H
#define TRAINER_EVICTING_H

#include "trainer/evict.h"
#include "trainer/log/monitor.h"
#include "trainer/session/session.h"

typedef struct evicting {
    bool on;
    evict e;
    board *b;
    double *ms;     // [world] of one step
    int64_t *deal;  // [data]
} evicting;

// For a world that has just been entered. b: of this machine.
err_t evicting_open(evicting *x, const session *of, const launch *at, board *b);
void evicting_close(evicting *x);

// A collected step's reports.
void evicting_add(evicting *x, const session *of, monitor *m, const double *reports);

#endif
