// trainer/plan/guess.h: about how long a step of a layout takes, and how many bytes it needs at least, without a plan
// of it. A search puts its layouts in order by this, and plans and simulates those that come first.
#ifndef TRAINER_PLAN_GUESS_H
#define TRAINER_PLAN_GUESS_H

#include "trainer/plan/choice.h"
#include "trainer/plan/plan.h"
#include "trainer/plan/price.h"

// Of a micro-batch on a rank: what its blocks take, and the most bytes that one of them leaves for the next.
typedef struct block_times {
    int blocks;
    double *forward, *backward;  // [blocks] seconds
    double left;
} block_times;

// Of the ranks that share gradients and weights with rank 0: how many are in its node, in its rack, in all.
typedef struct guess_group {
    int stride, node, rack, all;
} guess_group;

typedef struct guesser {
    const config *c;
    const plan_world *w;
    const costs *k;
    price_machine m;
    double values;      // of the model
    guess_group group;  // the last one that was asked for; {0} before
} guesser;

// Ranks of an island that share its lanes: not the servers.
int guess_workers(const guesser *g, const search_choice *is);

// What the rank with most to do takes for a micro-batch. cut [stages + 1] (=): the cuts with which it does least.
double guess_slowest_rank(const block_times *b, const search_choice *is, int *cut);

// Seconds of a step.
double guess_step(guesser *g, const search_choice *is, const block_times *b);

// Without activations: what a rank must have at least.
double guess_least_bytes(const guesser *g, const search_choice *is);

#endif
