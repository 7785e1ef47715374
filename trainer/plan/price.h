// trainer/plan/price.h: how long each action of a planned rank's list takes, by a table of costs: what it computes is
// found by walking its blocks on paper, and what it sends is what the plan counts. From that trainer/step/simulate.h
// makes the time of a step.
#ifndef TRAINER_PLAN_PRICE_H
#define TRAINER_PLAN_PRICE_H

#include "trainer/costs/costs.h"
#include "trainer/session/session.h"

// What a time is spent on. Ranks that share layers or positions wait for each other within a block.
typedef struct price_time {
    costs_time compute, merge, send;
} price_time;

enum { PRICE_PARTS = 4 };  // FORWARD, BACKWARD, INPUTS, WEIGHTS

// Of each block's parts, once; parts that the list does not have are 0. found: of a block that recomputes, where the
// memory that such blocks share has its values still, as no other one went forward since (model/model.h: model_held).
typedef struct price_blocks {
    int blocks;
    price_time *part[PRICE_PARTS], *found[PRICE_PARTS];  // [blocks]
    int64_t looked[FROMS];                               // how often a time was from where
} price_blocks;

// Where the run would be.
typedef struct price_machine {
    const costs *c;
    double slower;  // how much longer computing takes than the table says, where ranks share cores; 1: none do
    double room;    // ranks of a node that do not
} price_machine;

// Of one call, as costs_of_call. Where ranks share cores they share them for what a call takes of them, too; but a line
// of more ranks than have a core each was measured so.
costs_time price_call(const price_machine *m, costs_call call, costs_level level, int ranks, double bytes);

// x: a session that was planned (trainer/plan/plan.h).
err_t price_open(price_blocks *p, session *x, const price_machine *m);
void price_close(price_blocks *p);

// All of its actions: time [x->runner.actions.count] (=).
err_t price_list(session *x, const price_machine *m, price_blocks *p, price_time *time);

#endif
