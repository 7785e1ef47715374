// comm/server/serving.h: what a server does next, where it does not wait for all others ([server] mode): pure
// decisions, of what was asked so far and of the time. A server and its workers speak of tickets. A ticket is one
// worker's share of a step's samples:
//
//     ticket = (step - 1) * workers + share
//
//     worker            first server                 each server
//     NEXT    ->        which ticket
//     PULL    ------------------------------->       its part of the weights
//     (computes)
//     PUSH    ------------------------------->       its part of the gradient, which is applied
//
//   async    Tickets go, in order, to the worker that asks. A push is applied when it is there. So a slow worker has
//            fewer of them, and others do not wait for it (Dean et al. 2012).
//   bounded  The same, but a worker pulls for a step s only when all pushes of steps before s - staleness are applied
//            (stale synchronous parallel: Ho et al. 2013).
//   hybrid   A step is open, and its share k is worker k's. The pushes of a step are held, and become one update, their
//            mean, when all are there but those of workers that compute an earlier step, or `timeout_s` after the
//            first of them (backup workers: Chen et al. 2016). A push of an earlier step is late. It is dropped, or
//            counts in the step that is open, half as much for each step that it is late.
//
// A period is some steps, before and after which all ranks meet: weights are the same everywhere there, and all pushes
// are applied.
#ifndef COMM_SERVER_SERVING_H
#define COMM_SERVER_SERVING_H

#include <stdbool.h>
#include <stdint.h>

enum { SERVE_WORKERS = 1024, SERVE_END = -1 };

typedef enum { SERVE_ASYNC, SERVE_BOUNDED, SERVE_HYBRID } serving_kind;

typedef struct serving_rules {
    serving_kind kind;
    int workers;
    int64_t staleness;  // bounded
    double timeout_s;   // hybrid
    bool decays;        // hybrid: a late push counts; else it is dropped
} serving_rules;

// What a worker asks for. PUSH: its gradient is here.
typedef enum { ASK_NOTHING, ASK_NEXT, ASK_PULL, ASK_PUSH } serving_ask;

// What becomes of a push.
typedef enum { PUSH_APPLY, PUSH_HOLD, PUSH_DROP } serving_fate;

typedef struct serving {
    serving_rules rules;
    int64_t first, last;  // steps of the period
    int64_t next;         // ticket that no worker has yet
    int64_t done;         // all pushes of steps up to this one are applied
    int *applied;         // [last - first + 1] pushes of each step; the caller's
    int64_t open;         // hybrid: the step whose pushes are awaited; last + 1: none
    double since;         // hybrid: when the first push was held for it; 0: none is
    // [workers] the step for which it pulled last; has it not pushed since? The ticket that is held of it, -1: none
    int64_t pulled[SERVE_WORKERS], held[SERVE_WORKERS];
    bool computes[SERVE_WORKERS];
} serving;

static inline int64_t serving_step(const serving_rules *r, int64_t ticket) { return ticket / r->workers + 1; }
static inline int serving_share(const serving_rules *r, int64_t ticket) { return (int)(ticket % r->workers); }

// Begins a period. applied [last - first + 1]: its own until the period has ended.
void serving_begin(serving *x, const serving_rules *r, int64_t first, int64_t last, int *applied);

// Is it a ticket of the period?
bool serving_has(const serving *x, int64_t ticket);

// May this be answered now? What may not is asked again when something else has been answered, or time has passed.
bool serving_may(const serving *x, serving_ask what, int worker, int64_t ticket);

// Has the period no more tickets?
bool serving_has_ended(const serving *x);

// The worker's next ticket, of the first server; SERVE_END: the period has no more.
int64_t serving_next(serving *x, int worker);

void serving_pull(serving *x, int worker, int64_t ticket);
serving_fate serving_push(serving *x, int worker, int64_t ticket, double now);

// Hybrid: must the open step be closed now? And when it must, if nothing else happens; 0: it need not.
bool serving_closes(const serving *x, double now);
double serving_deadline(const serving *x);

// The share in the update of the open step of what is held of a worker; all shares together are 1. 0: nothing is held.
double serving_weight(const serving *x, int worker);

// After that update: nothing is held, and the next step is open.
void serving_close(serving *x);

// Is something held? Not when all workers have left: whose push is held waits for the update.
bool serving_holds(const serving *x);

#endif
