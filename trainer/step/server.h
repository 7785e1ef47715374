// trainer/step/server.h: a server of a period (trainer/step/served.h): its part of the weights, which it updates by one
// gradient after the other.
//
// Each worker has a thread, which receives what the worker asks and sends, into a place of its own
// (step_runner.pushed), and waits there until it is answered. The rank's own thread answers: one question at a time,
// the first that may be answered now, or the one that a record says. So what is decided and computed has one order, and
// that is recorded. The gradient's place has the weights on the way back.
#ifndef TRAINER_STEP_SERVER_H
#define TRAINER_STEP_SERVER_H

#include "comm/server/record.h"
#include "comm/server/serving.h"
#include "trainer/step/runner.h"

enum { SERVED_STALE = 16 };

// What the first server knows of a step, which is so many gradients, in the order in which they were applied.
typedef struct served_step {
    double loss, norm;  // means
    double ms;          // since the step before
    int64_t pushes;
    int64_t dropped;  // came too late, meanwhile
    double missed;    // updates of others since its weights were read, mean
    double waiting;   // questions of other workers when it was applied, mean
    // [k] gradients that had missed k updates of others since their weights were read, or 2^(k-1) .. 2^k - 1 of them
    // from k = 2 on
    int64_t stale[SERVED_STALE];
} served_step;

typedef struct server_options {
    step_runner *r;
    const serving_rules *rules;
    int64_t most;           // steps of a period
    served_record *record;  // NULL: none
    served_replay *replay;  // NULL: none
} server_options;

typedef struct server server;
err_t server_open(server **out, const server_options *o);
void server_close(server *x);

// Serves all workers for steps first .. last. step [last - first + 1] (=).
err_t server_serve(server *x, int64_t first, int64_t last, served_step *step);

#endif
