// trainer/watch/watcher.h: the process beside a node's ranks that looks at them once a second, also while they hang,
// and writes down what it sees: DIR/NAME/status.json, machine.jsonl, report.html, events. On request it shows it over
// HTTP.
//
//   supervisor --forks--> ranks, which write the board (trainer/log/board.h)
//              --forks--> watcher: look (sampler.h) -> watch_state (state.h) -> status_json.h, machine.h
//
// It changes nothing that ranks read, and they wait for nothing of it. What fails here is an event, and the rest goes
// on.
#ifndef TRAINER_WATCH_WATCHER_H
#define TRAINER_WATCH_WATCHER_H

#include "trainer/config/config.h"
#include "trainer/log/board.h"

// The watcher's body (trainer/node/supervisor.h: watch_body): returns soon after at->over() says so, with a last status
// of how the run ended. Nothing is written before all ranks of the node are ready: only then the directory is this
// run's.
err_t watch_run(const config *c, const watch_start *at);

#endif
