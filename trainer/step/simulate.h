// trainer/step/simulate.h: the lists of all ranks of a step, run against each other on paper, as streams and links
// would run them. Given how long actions take it says when each of them begins and ends; or who waits for whom, if the
// lists never end.
//
// The model: a rank computes one action after the other. A message starts when both ends have posted it, and after
// those before it in its FIFO (trainer/step/pipeline.h); on a link that keeps messages between the ranks, as soon as
// that has room. A collective of the ranks that have the same stages starts when all of them have queued it, after
// those before it; meanwhile they compute, more slowly where a collective takes processors from them. A rank waits
// where its list says so:
//
//   AWAIT   until the message has arrived, or left
//   NEED    until the block's last GATHER is done; or its part of the SPREAD of the step before, which is on its way as
//           the step begins
//   HAVE    until the last FETCH of these rows is done
//   SETTLE  until every REDUCE so far is done
//   ROWS    until all of its collectives so far are done
//   SHARE   until all ranks have reached it, and their collectives are done
#ifndef TRAINER_STEP_SIMULATE_H
#define TRAINER_STEP_SIMULATE_H

#include "trainer/step/action.h"

// Rank stage * data + d is the d-th of those that have the stages of pipeline rank `stage`.
typedef struct simulate_lists {
    int pipeline, data;
    const action_list *const *list;  // [pipeline * data]
    const stages *const *of;
} simulate_lists;

// time: how long the rank's action takes. Of a message it is asked for the POST of the sender, of a collective for the
// last rank that queues it. NULL: nothing takes any time.
// beside: seconds of its own work that a rank loses for each second that a collective takes which goes on meanwhile.
// Then data is 1: a rank stands for its group.
// depth: how many messages a link keeps. 0: a message goes from buffer to buffer, so both ends have posted it.
typedef struct simulate_costs {
    double (*time)(void *ctx, int rank, const action *a);
    void *ctx;
    int depth;
    double beside;
} simulate_costs;

// When the rank came to each action, and when it went on; when each message of its table had left or arrived; and how
// long the rank computed.
typedef struct simulated_rank {
    double *came, *left, *message;
    double busy;
} simulated_rank;

typedef struct simulation {
    int ranks;
    simulated_rank *rank;
    double total;  // until the last rank is done
} simulation;

// Freed with simulation_free. ERR_INTERNAL: no memory; the two ends of a FIFO name other messages; ranks of a group
// communicate in another order; or the lists never end: the text says what each rank of the circle waits for.
err_t simulate_run(const simulate_lists *in, const simulate_costs *costs, simulation *out);
void simulation_free(simulation *s);

#endif
