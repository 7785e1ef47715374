// trainer/step/simulate.h: the lists of all ranks of a step, run against each other on paper, as streams and links
// would run them. Given how long actions take it says when each of them begins and ends; or who waits for whom, if the
// lists never end.
//
// What is modelled: a rank computes one action after the other. A message goes when both ends have posted it, or, on a
// link that keeps messages between the two ranks, when it has room; and after those before it in its FIFO
// (trainer/step/pipeline.h). A collective of the ranks that have the same stages goes when
// all of them have queued it, after those before it, and beside what they compute. A rank waits where its list says so:
//
//   AWAIT   until the message has arrived, or left
//   NEED    until the block's last GATHER is done
//   SETTLE  until every REDUCE so far is done
//   SHARE   until all ranks have come to it, and have nothing on its way
#ifndef TRAINER_STEP_SIMULATE_H
#define TRAINER_STEP_SIMULATE_H

#include "trainer/step/action.h"

// Rank stage * data + d is the d-th of those that have the stages of pipeline rank `stage`.
typedef struct simulate_lists {
    int pipeline, data;
    const action_list *const *list;  // [pipeline * data]
    const stages *const *of;
} simulate_lists;

// How long the rank's action takes: computing; the message that it posts, asked of the end that sends; a collective,
// asked of the last rank that comes to it. NULL: nothing takes any time.
// depth: how many messages a link keeps. 0: a message goes from buffer to buffer, so both ends have posted it.
typedef struct simulate_costs {
    double (*time)(void *ctx, int rank, const action *a);
    void *ctx;
    int depth;
} simulate_costs;

// Of each action when the rank came to it, and when the rank went on. Of each message of its table when it had left, or
// arrived. busy: in actions that it did itself.
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
