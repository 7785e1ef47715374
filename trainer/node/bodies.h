// trainer/node/bodies.h: what a supervisor is given to run in the processes that it starts.
#ifndef TRAINER_NODE_BODIES_H
#define TRAINER_NODE_BODIES_H

#include "comm/team/team.h"
#include "trainer/config/config.h"
#include "trainer/log/board.h"

// The body of a rank. With [device] threads = 0 and several ranks on this node, its config has its share of the
// threads. Its main thread and the threads that it starts have SIGTERM blocked: the signal has its own listener, and
// interrupts no call.
typedef err_t (*rank_body)(const config *c, const launch *at, board *b);

// Called before the first fork: can so many ranks, on all nodes, run this? So a refusal is one line, not one for each
// rank.
typedef err_t (*world_check)(const config *c, int world);

// The body of the process beside the ranks, which may look at the board and change nothing.
typedef err_t (*watch_body)(const config *c, const watch_start *at);

typedef struct supervised {
    world_check fits;
    rank_body rank;
    watch_body watch;  // NULL: there is no watcher
    bool records;      // a failure leaves a flight recording in the run's directory (trainer/node/scribe.c)
    bool heals;        // the body can go on in another world (trainer/node/yard.h)
    // Makes what outlives the ranks of a run that heals, a descriptor; -1: err_last() says why. NULL: nothing does.
    int (*keep)(void);
} supervised;

#endif
