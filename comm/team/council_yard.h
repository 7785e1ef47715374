// comm/team/council_yard.h: leave, then enter: what a supervisor does with its ranks when a new epoch has begun. Those
// of an older epoch are told that it is over, also if they still meet; who has not left 5 s later is killed; only when
// every old process has left or is reaped may the node enter.
#ifndef COMM_TEAM_COUNCIL_YARD_H
#define COMM_TEAM_COUNCIL_YARD_H

#include "comm/team/council_record.h"

#define COUNCIL_LEAVE_S 5.0  // from OVER until a rank is killed

// READY: no epoch, device and data open, and so is one that has LEFT.
typedef enum yard_state { YARD_EMPTY, YARD_READY, YARD_IN_EPOCH, YARD_KILLED } yard_state;

typedef struct yard_rank {
    yard_state state;
    uint64_t epoch;  // the one it was told to enter
    double over_at;  // when it was told that it is over; negative: it was not
} yard_rank;

typedef enum yard_action { YARD_NOTHING, YARD_OVER, YARD_KILL, YARD_ENTER } yard_action;

// action[n] (=) what each rank of this node is told now. Returns whether all old processes are gone, so that ENTER may
// be sent to those that are READY. epoch: of the newest record; enters: does this node have a place in it?
bool council_yard(yard_action *action, double now, const yard_rank *rank, int n, uint64_t epoch, bool enters);

#endif
