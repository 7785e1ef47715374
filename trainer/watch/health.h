// trainer/watch/health.h: does the run advance? For those who only want a yes or a no: a load balancer, a cron job, a
// person with curl.
#ifndef TRAINER_WATCH_HEALTH_H
#define TRAINER_WATCH_HEALTH_H

#include "trainer/watch/state.h"

enum { HEALTH_TEXT = 512 };
#define HEALTH_LEAST_S 30.0  // without a step, at least
#define HEALTH_P99S 5.0      // times the 99th percentile of the last steps
#define HEALTH_START_S \
    900.0  // to start, and for the first step: a checkpoint is loaded, kernels are compiled, plans are measured

// true: steps advance, or none is expected now. false: none was finished for max(HEALTH_LEAST_S, HEALTH_P99S p99)
// seconds of stepping, the ranks do not get ready, one hangs, is stopped or is dead, or the run has ended. text (room;
// HEALTH_TEXT is enough): one line that says which, with what is to be seen of it; never empty.
bool health(const watch_state *s, char *text, size_t room);

#endif
