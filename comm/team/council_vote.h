// comm/team/council_vote.h: one vote for each record: single-decree Paxos (Lamport 2001, "Paxos Made Simple", 2.2)
// among the voters of the newest record.
//
//   proposer          voters
//   PREPARE b   ->    promise to vote in no ballot before b; say what was accepted        (one who works refuses)
//   ACCEPT b v  <-    promises of enough: v is the value accepted in the highest ballot, else the proposer's own
//               ->    accept, unless a later ballot was promised meanwhile
//   record k+1  <-    accepted by enough: v is record k+1, for good
//
// What a voter has promised and accepted is on its vote page, memory of the node's supervisor. A council that is killed
// and started again goes on with it; votes end only with the supervisor's life.
#ifndef COMM_TEAM_COUNCIL_VOTE_H
#define COMM_TEAM_COUNCIL_VOTE_H

#include "comm/team/council_wire.h"

typedef struct vote_page {
    bool has_record, has_value;
    council_ballot promised, accepted;  // round 0: none
    council_record record;              // the newest
    council_record value;               // that was accepted in ballot `accepted`
} vote_page;

// What `voter` answers to PREPARE or ACCEPT of the page's record; the page (+=) must be written before the answer
// leaves. busy: why this node would not vote for any change, NULL: it would. false: no answer.
bool council_vote(vote_page *p, council_message *answer, const council_message *m, const char *busy);

// A newer record of the run is on the page: all votes for it are over. false: it is not newer, or is record 1 and names
// another life for this node.
bool council_adopt(vote_page *p, const council_record *r, int node, uint64_t life);

// One proposal of this node.
typedef struct council_bid {
    bool open;
    council_ballot ballot;
    uint64_t refused;  // the highest round that others were seen to have promised
    node_set promised, accepted;
    council_ballot highest;  // of the accepted values that came with promises
    bool asked;              // ACCEPT was sent
    council_record value;    // what is proposed
} council_bid;

// Opens a ballot above all that this node has seen, and promises it on the own page, which must be written before
// `out`, a PREPARE to all voters, leaves. own (=) this node's PROMISE, for bid_take.
void bid_open(council_bid *b, vote_page *p, council_message *out, council_message *own, int node,
              const council_record *want);

typedef enum bid_news { BID_NOTHING, BID_ASK, BID_DECIDED } bid_news;

// What PROMISE, ACCEPTED or REFUSED of node m->node, in the life that the page's record names, brings: BID_ASK: *out is
// an ACCEPT for all voters; BID_DECIDED: b->value is the next record.
bid_news bid_take(council_bid *b, const vote_page *p, council_message *out, const council_message *m);

// --- the page in memory ----------------------------------------------------------------------------------------------

// Two copies and a word that says which counts: one that is killed while it writes leaves the other.
enum { VOTE_PAGE_BYTES = 8 + 2 * (48 + 2 * COUNCIL_RECORD_BYTES) };

void vote_page_write(uint8_t memory[VOTE_PAGE_BYTES], const vote_page *p);

// Memory that is all zeros is an empty page. ERR_DATA: it is no page.
err_t vote_page_read(vote_page *p, const uint8_t memory[VOTE_PAGE_BYTES]);

#endif
