// comm/team/control.h: the control connections of a team once they are authenticated, and the thread that watches them.
// Internal to comm/.
//
// All news travels in frames of one fixed size, each sealed with a keyed hash over a counter and its bytes: a frame
// that was changed, repeated, left out or put elsewhere ends the connection. Socket pairs between the processes of one
// node use the same frames, with a key of zeros.
#ifndef COMM_TEAM_CONTROL_H
#define COMM_TEAM_CONTROL_H

#include "comm/team/handshake.h"

enum {
    FRAME_TEXT = 1000,
    FRAME_BODY = 24 + FRAME_TEXT,
    FRAME_BYTES = FRAME_BODY + PROOF_BYTES,
    CONN_QUEUE = 4,  // go, a heartbeat, one failure, good-bye: more is never waiting on one connection
    CONN_WHAT = 48,
};

typedef enum frame_type {
    FRAME_GO = 1,  // rank 0: all are here
    // sign of life; text, step, number: what the sender is doing; code: how much it has done (rank 0: the team's pulse)
    FRAME_BEAT,
    FRAME_FAIL,      // the run is over: code and text; number: microseconds since who is lost was heard last, -1: the
                     // nodes have ended this world
    FRAME_BYE,       // nothing follows, and nothing more is expected
    FRAME_ASK,       // rank 0, before it decides: say your settings
    FRAME_SETTINGS,  // text: a piece of them; code: it is the last one
} frame_type;

typedef struct frame {
    uint32_t type, code;
    int64_t step, number;
    char text[FRAME_TEXT];
} frame;

typedef struct conn {
    int fd;      // -1: none, or closed
    bool owned;  // ours to close; a socket pair belongs to the launch
    int peer;    // rank at the other end
    bool bye_said, bye_heard;
    double heard;          // when the last frame came
    char what[CONN_WHAT];  // the peer's progress, as last reported
    int64_t step, number;
    uint32_t work;
    uint8_t send_key[TEAM_KEY], recv_key[TEAM_KEY];
    uint64_t sent, received;  // counters of the seals
    size_t in, out;           // bytes that wait in:
    uint8_t in_bytes[FRAME_BYTES], out_bytes[CONN_QUEUE * FRAME_BYTES];
} conn;

typedef enum conn_news { CONN_NOTHING, CONN_FRAME, CONN_ENDED, CONN_FORGED } conn_news;

void conn_open(conn *c, int fd, bool owned, int peer, const session_keys *k);
void conn_close(conn *c);                  // forgets the keys too
bool conn_queue(conn *c, const frame *f);  // false: closed, or too much is waiting
int64_t conn_flush(conn *c);               // sends what can be sent without waiting; bytes sent
conn_news conn_read(conn *c, frame *f);    // never waits. CONN_ENDED: errno says why, 0 for an orderly end

// A frame as bytes, and back. frame_open is false when the seal does not fit key, counter and bytes.
void frame_seal(uint8_t dst[FRAME_BYTES], const frame *f, const uint8_t key[TEAM_KEY], uint64_t counter);
bool frame_open(frame *f, const uint8_t src[FRAME_BYTES], const uint8_t key[TEAM_KEY], uint64_t counter);

// Starts and ends the watcher. watch_stop says good-bye first.
err_t watch_start(team *t);
void watch_stop(team *t);

#endif
