// trainer/node/rank.h: what a process does that the supervisor has forked to be a rank.
#ifndef TRAINER_NODE_RANK_H
#define TRAINER_NODE_RANK_H

#include "trainer/node/bodies.h"

#include <signal.h>

typedef struct rank_life {
    const config *c;
    rank_body body;
    pid_t parent;            // dies with it
    const sigset_t *before;  // the signals that were blocked before the supervisor blocked its own
} rank_life;

// From here on this process is local rank `local` of *at, in the place `slot`: *rank is its number. Returns what body
// did; with several ranks the text begins with "rank R (host): ", except with ERR_INTERRUPTED. Closes the launch.
err_t rank_live(launch *at, board *b, int local, int slot, const rank_life *of, int *rank);

#endif
