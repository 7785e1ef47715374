// trainer/node/supervisor.h: one process a node that computes nothing. It forks the node's ranks, watches them, speaks to systemd, and passes on what
// whoever runs it wants: stop now, or stop at once.
#ifndef TRAINER_NODE_SUPERVISOR_H
#define TRAINER_NODE_SUPERVISOR_H

#include "comm/team/team.h"
#include "trainer/config/config.h"

#include <stdatomic.h>

// A page that supervisor and ranks share: what the node has to tell, and what is asked of it. Written by the ranks, `stop` by the supervisor.
typedef struct board {
    atomic_int stop;        // finish the step, save, leave
    atomic_int ready;       // ranks that have joined and loaded
    _Atomic int64_t step;   // last finished step
    _Atomic double loss;    // and its loss
    atomic_int looking;     // evaluating, sampling or saving: no step is finished now, and none is missed
} board;

// What a rank does with its life. Its config says how many threads are its share ([device] threads = 0 and several ranks on this node); its main
// thread runs with SIGTERM blocked, and so will the threads that it starts: the signal has a listener of its own, and no call is interrupted by it.
typedef err_t (*rank_body)(const config *c, const launch *at, board *b);

// Forks this node's ranks and runs `body` in each. Returns in every process:
//   in a rank       what body returned, with "rank R (host): " in front of the text where there are several (not of ERR_INTERRUPTED);
//                   *rank is its number, *world how many there are
//   in the parent   *rank = -1. ERR_OK when all ranks ended well, ERR_INTERRUPTED when they stopped on request; otherwise the code of the one that
//                   failed first (ERR_UNAVAILABLE when a signal killed it). *world = 0 when there was nothing to fork. The text is empty where the
//                   ranks have said it already: the only one of a world failed, or rank 0, which is of this node, stopped
// SIGTERM and SIGINT: board->stop; a second one ends the ranks at once. A stop before the ranks are ready ends them after 10 seconds. When one rank
// has failed the others have 5 seconds to end by themselves, then 2 more after a SIGTERM. Ranks die with their supervisor.
err_t supervise(const config *c, rank_body body, int *rank, int *world);

#endif
