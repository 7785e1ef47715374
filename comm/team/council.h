// comm/team/council.h: one node's council: what it has heard (council_view.h), what should follow (council_next.h) and
// the vote on it (council_vote.h), put together. It is fed times, messages and what the own ranks do; it gives messages
// and a decision with its reason. It has no socket, clock or process, and no memory but the struct: its
// caller has those, and tests play whole clusters with it.
//
//   every COUNCIL_REPORT_S: read all that has come, then council_tick
//   for each message:       council_take
//   after each of both:     write c->page to the vote page, then send what is in the outbox
#ifndef COMM_TEAM_COUNCIL_H
#define COMM_TEAM_COUNCIL_H

#include "comm/team/council_next.h"
#include "comm/team/council_vote.h"

typedef struct council {
    council_rules rules;
    council_view view;
    vote_page page;
    council_bid bid;
    double proposed_at;  // when it proposed last, or promised somebody else to vote
} council;

// Messages that are to be sent. Their records stand in the council, until its next call.
enum { COUNCIL_OUTBOX = 4 };
typedef struct council_outbox {
    int count;
    bool took;  // c->page.record is new
    struct {
        int to;  // -1: all other nodes
        council_message m;
    } out[COUNCIL_OUTBOX];
} council_outbox;

// page: what an earlier council of the same life has left; NULL: none.
void council_open(council *c, const council_rules *rules, int node, int nodes, uint64_t life, const vote_page *page,
                  double now);

// own: what the node says of itself; `hears`, and how long it must not be `ready` yet, are filled in here.
void council_tick(council *c, council_decision *d, council_outbox *out, double now, const council_report *own);

// Puts `want` to the vote; council_tick does when it is this node's turn. Appends to the outbox.
void council_propose(council *c, council_outbox *out, double now, const council_record *want);

void council_take(council *c, council_outbox *out, double now, const council_message *m);

// c's newest record; NULL: none.
static inline const council_record *council_newest(const council *c) {
    return c->page.has_record ? &c->page.record : NULL;
}

#endif
