// trainer/redeal.h: [parallel] balance = auto inside a run: gathers what the ranks report of each step, and between two
// steps deals the lanes anew where trainer/balance.h says so. Each decision is logged as an event, with its reason.
#ifndef TRAINER_REDEAL_H
#define TRAINER_REDEAL_H

#include "trainer/balance.h"
#include "trainer/log/monitor.h"
#include "trainer/session/session.h"

typedef struct redeal {
    balance b;
    double *ms;        // [b.ranks] of one step, of those that share the lanes; NULL: the lanes stay as they are
    bool moved;        // the deal is no longer that of the world's beginning
    board_rank *mine;  // where this rank shows how many it has; NULL: nowhere
} redeal;

// For a world that has just been entered.
err_t redeal_open(redeal *x, const session *of, board_rank *mine);
void redeal_close(redeal *x);

// Before the first step of the world, whose loader has begun: deals the lanes as the worlds before this one have
// measured it, where that is worth it. What a place for a rank has measured is on the board, which outlives its
// processes; one that has not is taken to be as fast as the median. Collective.
err_t redeal_recall(redeal *x, session *of, monitor *m);

// A collected step's reports.
void redeal_add(redeal *x, const session *of, const double *reports);

// Must the queue drain after this step, because the lanes may be dealt anew?
bool redeal_is_due(const redeal *x, int64_t step);

// Between two steps, when none is queued, if it is due. Collective. moved (=) the ranks have other lanes now.
err_t redeal_now(redeal *x, session *of, monitor *m, bool *moved);

#endif
