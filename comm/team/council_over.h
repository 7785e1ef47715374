// comm/team/council_over.h: leave, then enter: what a supervisor does with its ranks after a new epoch has begun. Ranks
// of an older epoch are told that it is over, even while they are still meeting. A rank that has not left 5 s later is
// killed. The node enters after every old process has left or was reaped.
#ifndef COMM_TEAM_COUNCIL_OVER_H
#define COMM_TEAM_COUNCIL_OVER_H

#include "comm/team/council_record.h"

#define COUNCIL_LEAVE_S 5.0  // from OVER until a rank is killed

// READY: no epoch, device and data open, and so is one that has LEFT.
typedef enum over_state { OVER_EMPTY, OVER_READY, OVER_IN_EPOCH, OVER_KILLED } over_state;

typedef struct over_rank {
    over_state state;
    uint64_t epoch;  // the one it was told to enter
    double over_at;  // when it was told that it is over; negative: it was not
} over_rank;

typedef enum over_action { OVER_NOTHING, OVER_TELL, OVER_KILL, OVER_ENTER } over_action;

// action[n] (=) what to do with each rank of this node. Returns whether all old processes are gone: then ENTER may be
// sent to those that are READY. epoch: of the newest record; enters: does this node have a place in it?
bool council_over(over_action *action, double now, const over_rank *rank, int n, uint64_t epoch, bool enters);

#endif
