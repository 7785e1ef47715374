// comm/team/council_wire.h: what councils say to each other, and its bytes.
//
//   length (4)  version (1)  type (1)  node (2)  life (8)  record?  what the type needs        all little-endian
//
// Every message carries the sender's newest record, so one that was missed comes with the next message.
#ifndef COMM_TEAM_COUNCIL_WIRE_H
#define COMM_TEAM_COUNCIL_WIRE_H

#include "comm/team/council_view.h"

enum { COUNCIL_VERSION = 3 };

// A proposal's place in the order of proposals for one record: later rounds first, then higher nodes. 0: none.
typedef struct council_ballot {
    uint64_t round;
    uint16_t node;
} council_ballot;

static inline bool ballot_before(council_ballot a, council_ballot b) {
    return a.round < b.round || (a.round == b.round && a.node < b.node);
}
static inline bool ballot_same(council_ballot a, council_ballot b) { return a.round == b.round && a.node == b.node; }

typedef enum council_type {
    COUNCIL_REPORT,
    COUNCIL_PREPARE,   // ballot: will you vote in it?
    COUNCIL_PROMISE,   // ballot, and what was accepted before
    COUNCIL_ACCEPT,    // ballot, value
    COUNCIL_ACCEPTED,  // ballot
    COUNCIL_REFUSED,   // why; accepted: the ballot that is promised
    COUNCIL_FORMED,    // the record is record 1
    COUNCIL_SETTINGS,  // settings: who has others compares them, and answers with its own
    COUNCIL_TYPES
} council_type;

typedef struct council_message {
    council_type type;
    int node;
    uint64_t life;
    const council_record *newest;  // NULL: none
    council_ballot ballot, accepted;
    const council_record *value;  // of PROMISE, NULL where nothing was accepted; of ACCEPT
    council_report report;
    char why[COUNCIL_WHY];
    const char *settings;  // of SETTINGS, which has no ballot; what exceeds COUNCIL_SETTINGS_BYTES is not sent
} council_message;

// Where the records and the settings of a message that was read are kept.
enum { COUNCIL_SETTINGS_BYTES = 32 * 1024 };  // with the NUL
typedef struct council_room {
    council_record newest, value;
    char settings[COUNCIL_SETTINGS_BYTES];
} council_room;

// Bytes of the message; 0: they do not fit in `room`. COUNCIL_MESSAGE_BYTES are always enough.
size_t council_pack(uint8_t *dst, size_t room, const council_message *m);

// The message that is exactly these n bytes. ERR_DATA: they are none.
err_t council_unpack(council_message *m, council_room *room, const uint8_t *src, size_t n);

#endif
