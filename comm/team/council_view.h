// comm/team/council_view.h: what one node has heard of the others, and whom it must take for lost.
//
// Times are seconds of this node's clock; no two nodes' clocks are compared. Steps are heartbeats: a node whose ranks
// are heard is not lost, whatever its council does.
#ifndef COMM_TEAM_COUNCIL_VIEW_H
#define COMM_TEAM_COUNCIL_VIEW_H

#include "comm/team/council_record.h"

enum { COUNCIL_EXILES = 8 };
#define COUNCIL_NEVER (-1e9)     // the time of what has not happened
#define COUNCIL_REPORT_S 0.3     // between two reports of a node
#define COUNCIL_PAUSE_S 1.0      // a council that runs again after a longer time than that has stood still
#define COUNCIL_EXILE_S 600.0    // how long it counts that a node was put out
#define COUNCIL_BACK_OFF_S 10.0  // how long who was put out once waits; three times as long for each further time

// OUT: without a record. WAITING: no member. ENTERING: its ranks meet and load. LEAVING: they unwind after a failure.
typedef enum council_state {
    COUNCIL_OUT,
    COUNCIL_WAITING,
    COUNCIL_ENTERING,
    COUNCIL_WORKING,
    COUNCIL_LEAVING,
    COUNCIL_ENDING,
    COUNCIL_STATES
} council_state;

// What a node says of itself.
typedef struct council_report {
    node_set hears;  // whom it has heard within dead_s
    council_state state;
    bool ready;        // device and data are open, and it has waited long enough since it was put out
    bool leaving;      // it was asked to drain
    bool failed;       // a rank of it has recorded a failure in this epoch
    bool began;        // its ranks have begun a step in this epoch
    int slots;         // ranks that it can carry
    int64_t step;      // the highest that its ranks have applied; 0: none
    int64_t sealed;    // step of the newest generation of this epoch that all its ranks have sealed; -1: none
    uint16_t slow;     // tenths: a rank of it stays so many times as slow as the others, and is to leave; 0: none
    uint32_t lane_us;  // microseconds that a rank takes for a lane; 0: unknown
    uint64_t data;     // stands for the content of its datasets; 0: unknown
} council_report;

typedef struct council_heard {
    double at;        // of the newest message
    double said_at;   // ... and of the newest report
    double ranks_at;  // when our ranks last heard one of that node's
    uint64_t life;
    bool has_record;  // its newest record:
    uint8_t run[COUNCIL_RUN];
    uint64_t k, epoch;
    council_report says;
} council_heard;

typedef struct council_view {
    int node, nodes;
    uint64_t life;
    council_heard of[COUNCIL_NODES];  // also of itself
    double ran_at;                    // when this council judged last
    double entered;                   // when it took the record that began this epoch
    double sealed_at;                 // when it first saw that all members have sealed a generation of this epoch
    double worked_at;                 // the last time at which it worked, or took a record
    double need_at;                   // since when a record is needed; now, where none is
    double put_out[COUNCIL_EXILES];
    int exiles;
} council_view;

void council_view_open(council_view *v, int node, int nodes, uint64_t life, double now);

// A message of `from` has come. After the first one of a life none of an earlier life may come: who moves the bytes
// closes a node's connection when that node opens another one.
void council_hears(council_view *v, double now, int from, uint64_t life, const council_record *newest);
// ... and it is a report.
void council_said(council_view *v, double now, int from, const council_report *r);

// The council runs: if it has not for a while, that while is nobody's silence.
void council_woke(council_view *v, double now);

// What the node says of itself: `own`, but for `hears` and `ready`, which only the council knows.
void council_own(council_view *v, double now, const council_record *r, const council_report *own, double dead_s);

// The record `r` is taken. epoch, member: of the record before it, 0 and false where there was none.
void council_taken(council_view *v, double now, const council_record *r, uint64_t epoch, bool member);

// When may a node that was put out come back? 0: at once.
double council_back_off(const council_view *v, double now);

// --- what follows from it --------------------------------------------------------------------------------------------

// Do a and b hear each other?
bool council_both(const council_view *v, int a, int b);

// Nodes that have reported within dead_s and hear this one; itself.
node_set council_near(const council_view *v, double now, double dead_s);

// Those of `who` that have the life which the record names.
node_set council_same_life(const council_view *v, const council_record *r, node_set who);

// Is node `j` one of which the record says so, in the life that it names?
bool council_member(const council_view *v, const council_record *r, int j);
bool council_votes(const council_view *v, const council_record *r, int j);

typedef struct council_loss {
    node_set nodes;  // lost: of another life, or silent
    bool any;        // something was lost: a node, or a rank of one that lives
    char why[COUNCIL_WHY];
} council_loss;

// What the epoch of record r has lost, as far as this node can know.
void council_lost(council_loss *out, double now, const council_record *r, const council_view *v, double dead_s);

#endif
