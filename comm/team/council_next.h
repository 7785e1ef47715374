// comm/team/council_next.h: what should follow a record, as one node sees it. Seeing is not deciding: what it proposes
// becomes a record by a vote (council_vote.h), and only then does anybody act.
//
//   lost something?        HEAL   the largest set that hears each other both ways; the voters stay
//                          WAIT   too few voters are heard, or what is left does not fit
//   a member is leaving?   TURN   members and voters without it, in one record; STOP if the rest does not fit
//   a member is slow?      TURN   the same, if the rest fits; once for each node in a run
//   a node is ready?       TURN   members with it
//   voters != members?     SETTLE the members vote from now on; no rank notices
//   too long, or for good? END
#ifndef COMM_TEAM_COUNCIL_NEXT_H
#define COMM_TEAM_COUNCIL_NEXT_H

#include "comm/team/council_view.h"

#define COUNCIL_QUIET_S 10.0     // an epoch's age at which others may join, and a seal's age at which its members vote
#define COUNCIL_OTHER_S 1.0      // if the first to propose does not, another one does after this
#define COUNCIL_PLACE_S 0.4      // ... and this for each voter before it
enum { COUNCIL_TRIES = 20000 };  // sets that are tried in search of the largest

typedef struct council_rules {
    double dead_s, give_up_s, drain_s;
    int min_ranks, lanes;
    council_grid grid;                       // tensor, pipeline, context, each from 1; data is what comes out
    uint64_t fits[TEAM_RANKS_MAX / 64 + 1];  // bit w: a data width of w fits into memory and pipeline
    uint8_t run[COUNCIL_RUN];                // of a run that this node would begin
} council_rules;

// What the node does now. FORM, HEAL, TURN, SETTLE: proposes `next`; STOP and END, too, until they are recorded.
#define COUNCIL_WORDS(X) \
    X(COUNCIL_STAY, "stay") \
    X(COUNCIL_WAIT, "wait") \
    X(COUNCIL_FORM, "form") \
    X(COUNCIL_HEAL, "heal") \
    X(COUNCIL_TURN, "turn") \
    X(COUNCIL_SETTLE, "settle") \
    X(COUNCIL_STOP, "stop") \
    X(COUNCIL_END, "end")
typedef enum council_action { COUNCIL_WORDS(WORD_ENUM) COUNCIL_ACTIONS } council_action;
extern const char *const council_action_names[COUNCIL_ACTIONS];

typedef struct council_decision {
    council_action action;
    bool proposes;        // `next` is to be voted on
    err_t code;           // of STOP and END without `next`: the exit code
    council_record next;  // its `why` is the decision's
    char why[COUNCIL_WHY];
} council_decision;

// r: this node's newest record, NULL: none.
void epoch_next(council_decision *out, double now, const council_record *r, const council_view *v,
                const council_rules *k);

// Is it this node's turn to propose the record of `d`? The lowest voter of the world to come is first. `since`: when
// this node proposed last.
bool council_proposes(const council_decision *d, double now, double since, const council_record *r,
                      const council_view *v, const council_rules *k);

// Does the node work in a world that is whole, as far as it sees? Then it refuses a HEAL.
bool council_works(double now, const council_record *r, const council_view *v, const council_rules *k);

// The largest set, by ranks, of those in `pool` that hear each other both ways and has one of `must`, if that has any;
// among equals the one with the lowest nodes. Empty: there is none.
node_set council_largest(const council_view *v, node_set pool, node_set must);

// How many data ranks so many slots make; 0: nothing fits.
int council_width(const council_rules *k, int slots);

#endif
