// comm/tcp/link.h: one end of a data connection between ranks of different hosts. Messages are sent as frames, and no
// frame is used before it is verified.
//
//     frame   head (24 bytes), its tag (16), payload (up to LINK_FRAME bytes), its tag (16, where there is payload)
//
// Tags and keys are those of comm/tcp/seal.h, and a length is used only after the head that holds it was verified.
// Payload is not copied on the way: it goes straight from its source to its destination, and unverified payload is
// never handed on.
//
// The bytes go through the connection's socket, or, where there is a link_engine, through something faster
// (comm/fabric). Then the socket carries the engine's first words, and afterwards nothing: that it ends says that the
// rank has left.
#ifndef COMM_TCP_LINK_H
#define COMM_TCP_LINK_H

#include "comm/tcp/seal.h"

#include <poll.h>
#include <sys/uio.h>

enum { LINK_BUFFER = 4096, LINK_WHY = 160 };

typedef enum { LINK_BLOCKED, LINK_MOVED, LINK_DONE, LINK_FAILED } link_result;

typedef struct link_engine link_engine;

typedef struct link_end {
    int fd;
    const link_engine *by;  // NULL: the socket carries the frames
    void *end;              // the engine's
    uint8_t send_key[TEAM_KEY], recv_key[TEAM_KEY];
    uint64_t sent, received;  // frames
    int64_t wire;             // bytes written to the socket, or given to the engine
    // sending: what is left of the frame in work
    uint8_t head[LINK_SEALED], tag[LINK_TAG];
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

// Starts a frame; nothing may be under way. `last`: of its message, whose bytes must all stay until its last frame is
// DONE.
void link_post(link_end *l, const message *m, const void *data, size_t bytes, bool last);
static inline bool link_sending(const link_end *l) { return l->first < l->count; }
link_result link_push(link_end *l);  // BLOCKED: nothing could be written; MOVED: a part; DONE: all of the frame

// Reads the next frame's head. DONE: it is there and verified, *m and *length are valid, and link_body must follow if
// length > 0.
link_result link_head(link_end *l, message *m, uint32_t *length);
// Reads the payload to dst, which must be the same in each call for a frame. DONE: all of it is there and verified.
// Frames of the same message that follow may be written to the `ahead` bytes after it meanwhile; link_body is then
// called for them with that place.
link_result link_body(link_end *l, void *dst, size_t ahead);

// LINK_FAILED with that reason.
link_result link_broken(link_end *l, bool lost, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

// --- engines ---------------------------------------------------------------------------------------------------------

// A thread that sleeps until one of its links may have news. fd: an eventfd that wakes it.
typedef struct link_sleeper {
    int fd;
    struct link_sleeper *next;
} link_sleeper;

enum { LINK_WATCHED = 2 };  // descriptors of an engine that a sleeper watches, at most

// What carries the frames of all links of a rank, in place of their sockets. Links may be used by several threads at
// the same time, each direction of a link by one.
struct link_engine {
    // Begins with the link to a rank on a channel, and writes to its socket how this rank is reached. Then, when all
    // links that belong together have begun: reads how that rank is reached.
    err_t (*attach)(link_engine *e, link_end *l, int channel, int rank);
    err_t (*meet)(link_engine *e, link_end *l);
    // link_post and the others
    void (*post)(link_end *l, const message *m, const void *data, size_t bytes, bool last);
    link_result (*push)(link_end *l);
    link_result (*head)(link_end *l, message *m, uint32_t *length);
    link_result (*body)(link_end *l, void *dst, size_t ahead);
    void (*turn)(link_engine *e);  // moves what can be moved, of all links
    // A thread with nothing to do: doze; look once more; watch, which gives what to wait for and how long at most, or
    // returns -1: look again instead; sleep; rise.
    void (*doze)(link_engine *e, link_sleeper *me);
    int (*watch)(link_engine *e, struct pollfd dst[LINK_WATCHED], int64_t *most_ns);
    void (*rise)(link_engine *e, link_sleeper *me);
    // Payload will often be in this memory.
    err_t (*register_memory)(link_engine *e, void *base, size_t bytes);
    void (*describe)(const link_engine *e, char *dst, size_t room);
    // After a failure: no memory but the engine's own is touched any more, and every call fails. Any thread.
    void (*abandon)(link_engine *e);
    // Waits until the other ranks of its links have left too, for a second at most, so that nothing sent is lost; then
    // as abandon.
    void (*leave)(link_engine *e);
    void (*close)(link_engine *e);  // after leave; no link is used any more
};

#endif
