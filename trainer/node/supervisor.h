// trainer/node/supervisor.h: one process on each node that computes nothing. It forks the node's ranks, watches them,
// reports to systemd, and passes on requests: stop after this step, or stop immediately.
#ifndef TRAINER_NODE_SUPERVISOR_H
#define TRAINER_NODE_SUPERVISOR_H

#include "trainer/node/bodies.h"

// Forks this node's ranks and runs their body in each. Returns in every process:
//   in a rank       what body returned; with several ranks the text begins with "rank R (host): " (except with
//                   ERR_INTERRUPTED); *rank is its number, *world how many there are
//   in the watcher  what its body returned, without a text; *rank = RANK_WATCHER
//   in the delegate ERR_INTERRUPTED, without a text; *rank = RANK_DELEGATE
//   in the parent   *rank = -1. ERR_OK when all ranks ended well, ERR_INTERRUPTED when they stopped on request;
//                   otherwise the code of the rank that failed first (ERR_UNAVAILABLE when a signal killed it).
//                   *world = 0 when there was nothing to fork. The text is empty where a rank has reported it already:
//                   the only rank of a world failed, or rank 0, on this node, stopped
//
// SIGTERM and SIGINT set board->stop; a second one ends the ranks immediately. A stop before the ranks are ready ends
// them after 10 seconds. When one rank has failed the others have 5 seconds to end by themselves, then 2 more after a
// SIGTERM. Ranks and watcher die with their supervisor.
//
// Where the body heals, a rank that is lost does not end the run (trainer/node/healing.h): the others leave their
// world, it is started again, and all are given the next one.
//
// The watcher is no part of the run. If it ends, it is started again, at most every 10 seconds and three times in all.
// When all ranks have ended, it has 5 seconds for its last words, and none after a second request to stop.
enum { RANK_WATCHER = -2, RANK_DELEGATE = -3 };
err_t supervise(const config *c, const supervised *of, int *rank, int *world);

#endif
