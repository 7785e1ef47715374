// comm/team/council_record.h: the record: who is in the world, and who votes on what follows.
//
// Record k+1 is decided by one vote among the voters of record k, so the records of a run are one chain:
//
//   record 1 FORM      record 2 HEAL      record 3 SETTLE     record 4 JOIN
//   members 0 1 2      members 0 1        members 0 1         members 0 1 2
//   voters  0 1 2      voters  0 1 2      voters  0 1         voters  0 1
//   epoch   1          epoch   2          epoch   2           epoch   4
//
// An epoch is what ranks know of it: the number of the last record that changed members, lives, grid or lanes. The
// digest of that record, the fence, keeps out ranks of another epoch, and of another run's epoch of that number.
// Numbers, sets and times only: no file of the council touches a socket, a clock or a process.
#ifndef COMM_TEAM_COUNCIL_RECORD_H
#define COMM_TEAM_COUNCIL_RECORD_H

#include "base/err.h"
#include "comm/team/council_set.h"
#include "base/words.h"
#include "comm/team/team.h"

enum {
    COUNCIL_RUN = 16,                   // random bytes, drawn at a cold start
    COUNCIL_FENCE = 32,                 // BLAKE2b-256
    COUNCIL_WHY = 160,                  // a reason, with its NUL
    COUNCIL_FRUITLESS = 4,              // so many epochs in a row that gained no step end the run
    COUNCIL_RECORD_BYTES = 16 * 1024,   // more than any record takes on the wire
    COUNCIL_MESSAGE_BYTES = 64 * 1024,  // ... and any message
};

#define DECREE_WORDS(X) \
    X(DECREE_FORM, "form") \
    X(DECREE_HEAL, "heal") \
    X(DECREE_JOIN, "join") \
    X(DECREE_DRAIN, "drain") \
    X(DECREE_EVICT, "evict") \
    X(DECREE_SETTLE, "settle") \
    X(DECREE_STOP, "stop") \
    X(DECREE_END, "end")
typedef enum decree_kind { DECREE_WORDS(WORD_ENUM) DECREES } decree_kind;
extern const char *const decree_names[DECREES];

typedef struct council_seat {
    uint16_t node, slot;
} council_seat;

// tensor, pipeline and context are the run's; data is as wide as the members allow.
typedef struct council_grid {
    uint16_t data, tensor, pipeline, context;
} council_grid;

typedef struct council_record {
    uint8_t run[COUNCIL_RUN];
    uint64_t k, epoch;             // from 1; epoch <= k
    uint8_t fence[COUNCIL_FENCE];  // of record `epoch`; zeros where this is that record
    decree_kind kind;
    char why[COUNCIL_WHY];
    int nodes;  // configured: 0 .. nodes-1
    node_set members, voters;
    node_set evicted;  // were put out because they were slow, once in a run
    int64_t high;      // the highest step known to be applied when the epoch began; 0: none
    int fruitless;     // epochs in a row that began a step and ended without a higher one
    council_grid grid;
    int lanes, ranks, spares;           // ranks = data * tensor * pipeline * context
    uint64_t life[COUNCIL_NODES];       // of each node's supervisor; 0: never heard
    uint16_t weight[COUNCIL_NODES];     // of its vote
    uint16_t slots[COUNCIL_NODES];      // ranks that it can carry
    council_seat seat[TEAM_RANKS_MAX];  // (ranks + spares), ascending
    uint16_t deal[TEAM_RANKS_MAX];      // (data): how many lanes each has; their sum is `lanes`
} council_record;

// Have these nodes more than half of the voters' weight, or exactly half with the lowest voter? Two sets of which this
// holds always share a voter.
bool council_enough(const node_set *who, const council_record *r);

// fence (=) what ranks of the record's epoch derive their keys from.
void council_fence(uint8_t fence[COUNCIL_FENCE], const council_record *r);

// Is `a` of the same run and later than `b`? Also where b is NULL; never where `a` is.
bool record_newer(const council_record *a, const council_record *b);

// A record as bytes: little-endian, only the nodes, seats and lanes that there are. Returns how many bytes, at most
// COUNCIL_RECORD_BYTES; 0: they do not fit in `room`.
size_t record_pack(uint8_t *dst, size_t room, const council_record *r);

// The record that `n` bytes begin with; *used (=) its bytes. ERR_DATA: it is none, or one that no council writes.
err_t record_unpack(council_record *r, const uint8_t *src, size_t n, size_t *used);

#endif
