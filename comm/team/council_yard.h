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

// --- what a supervisor and its ranks say to each other ---------------------------------------------------------------

typedef enum yard_type {
    YARD_SAYS_READY,  // rank: device and data are open
    YARD_SAYS_LEFT,   // rank: epoch; code, why; the highest step that it has applied
    YARD_SAYS_ENTER,  // supervisor: the record, and which rank of it; descriptors come with the message
    YARD_SAYS_OVER,   // supervisor: epoch
    YARD_SAYS_END,    // supervisor: the run is over
    YARD_TYPES
} yard_type;

typedef struct yard_message {
    yard_type type;
    uint64_t epoch;
    err_t code;
    int64_t applied;
    int rank;
    const council_record *record;
} yard_message;

enum { YARD_BYTES = 64 + COUNCIL_RECORD_BYTES };

// As council_pack and council_unpack (council_wire.h). ENTER's rank is one of its record.
size_t yard_pack(uint8_t *dst, size_t room, const yard_message *m);
err_t yard_unpack(yard_message *m, council_record *room, const uint8_t *src, size_t n);

#endif
