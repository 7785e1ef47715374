// comm/tcp/link.h: one end of a data connection between ranks of different hosts. Messages are sent as frames, and no
// frame is used before it is verified.
//
//     frame   head (24 bytes), its tag (16), payload (up to LINK_FRAME bytes), its tag (16, where there is payload)
//
// A tag is Poly1305 under a key that is used once: the first 64 bytes of ChaCha20 under the connection's key, with the
// frame's number as nonce, give both keys of a frame. A frame that was changed, lost, repeated or moved therefore fails
// its first check, and a length is used only after the head that holds it was verified. Payload is not copied on the
// way: it goes straight from its source to its destination, and unverified payload is never handed on.
#ifndef COMM_TCP_LINK_H
#define COMM_TCP_LINK_H

#include "comm/team/team.h"

#include <sodium.h>
#include <sys/uio.h>

enum { LINK_FRAME = 256 << 10, LINK_HEAD = 24, LINK_TAG = 16, LINK_BUFFER = 4096, LINK_WHY = 160 };

// What precedes the payload of a message, in a ring and in the head of each of its frames.
typedef struct message {
    uint64_t bytes;     // of the whole message
    uint32_t sequence;  // of the messages from this rank to that one
    uint16_t comm;      // which communicator of the team
    uint8_t op, mark;
} message;

typedef enum { LINK_BLOCKED, LINK_MOVED, LINK_DONE, LINK_FAILED } link_result;

typedef struct link_end {
    int fd;
    uint8_t send_key[TEAM_KEY], recv_key[TEAM_KEY];
    uint64_t sent, received;  // frames
    int64_t wire;             // bytes written to the socket
    // sending: what is left of the frame in work
    uint8_t head[LINK_HEAD + LINK_TAG], tag[LINK_TAG];
    struct iovec rest[3];
    int first, count;
    // receiving: the frame in work, and bytes that were read beyond what was asked for
    crypto_onetimeauth_state auth;
    bool in_frame;
    uint32_t length, done, tagged;  // of the payload: bytes in all, bytes there, bytes of its tag there
    uint8_t got_tag[LINK_TAG];
    uint8_t *buffer;
    size_t from, to;
    char why[LINK_WHY];  // after LINK_FAILED
    bool lost;           // and whether it is because the connection has ended
} link_end;

err_t link_open(link_end *l, const team_link *t);
void link_close(link_end *l);  // the socket is the team's and stays open

// Starts a frame; nothing may be under way. `data` must stay until link_push is done.
void link_post(link_end *l, const message *m, const void *data, size_t bytes);
static inline bool link_sending(const link_end *l) { return l->first < l->count; }
link_result link_push(link_end *l);  // BLOCKED: nothing could be written; MOVED: a part; DONE: all of the frame

// Reads the next frame's head. DONE: it is there and verified, *m and *length are valid, and link_body must follow if
// length > 0.
link_result link_head(link_end *l, message *m, uint32_t *length);
// Reads the payload to dst, which must be the same in each call for a frame. DONE: all of it is there and verified.
link_result link_body(link_end *l, void *dst);

#endif
