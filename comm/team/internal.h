// comm/team/internal.h: what rendezvous (how a team comes together), door (how connections are made) and control (how
// it is watched) share.
#ifndef COMM_TEAM_INTERNAL_H
#define COMM_TEAM_INTERNAL_H

#include "base/clock.h"
#include "comm/team/control.h"

#include <poll.h>
#include <pthread.h>

struct team {
    const launch *at;
    double timeout_s, heartbeat_s;
    const char *settings;   // of team_options, too
    team_waiting waiting;   // of team_options, for the time of team_join
    double began, look_at;  // when that began; when `waiting` is called next
    conn *control;          // rank 0: `world` of them, by rank. Others: one, to rank 0. Join's, then the watcher's
    int controls;
    team_link *link;   // (1 + channels, world); without keys once it was taken
    pthread_t thread;  // the watcher
    bool watching;
    atomic_bool leaving;
    int wake;              // eventfd: makes the watcher look at `leaving` and `failed`
    pthread_mutex_t lock;  // held while the first failure is written
    atomic_int failed;     // its code, ERR_OK while all is well
    err_record why;        // constant once `failed` is set, as are:
    double failed_at, alive_at;
    int news;  // eventfd that is readable once `failed` is set
    // Own progress, that of the thread that began a call last. changes: odd while it is written; a thread that finds it
    // odd leaves it, since what another one does is as true.
    _Atomic uint32_t changes;
    _Atomic(const char *) what;
    _Atomic int64_t step, number;
    _Atomic uint32_t work;   // counted up by this rank
    _Atomic uint32_t pulse;  // rank 0: changes of work seen in beats. Others: rank 0's pulse, from its beats
    uint32_t *shown;         // where the pulse is put, too; NULL: nowhere
    _Atomic int64_t wire;
};

static inline const char *rank_text(const launch *at, int rank, char dst[COMM_NAME]) {
    return comm_place_text(&at->place[rank], dst);
}

// Records a failure, if it is the first, and wakes the threads that wait for one. alive_at: when who is lost was heard
// last, where only silence gave that away; 0: it has just ended; negative: the nodes have ended this world.
void team_record(team *t, err_t code, const char *text, double alive_at);

// --- comm/team/door.c: making connections ----------------------------------------------------------------------------

enum { VISITORS_MAX = 256, DOOR_TEXT = 128 };

// A caller that has connected to us and has not proven anything yet.
typedef struct visitor {
    int fd;      // -1: free
    int slot;    // in meeting.poll, -1: not waited for
    bool local;  // through a socket pair of the launch
    double since;
    handshake shake;
} visitor;

// A rank that we call until it answers.
typedef struct caller {
    int target, channel, fd, slot;
    bool local, connecting, done;
    const char *host;
    int port;
    unsigned turn;                   // of the host's addresses
    double again, pause, answer_by;  // next attempt; pause before the one after it; end of this one
    char why[DOOR_TEXT];             // how the last attempt ended
    // GARBAGE or STRANGER: how the last answer was that did not prove itself; GOING: there was none
    handshake_state met;
    struct addrinfo *known;  // of host, where the meeting remembers it
    handshake shake;
} caller;

// Connections being made in both directions, by one thread, with poll().
typedef struct meeting {
    team *t;
    const uint8_t *secret;
    hello mine;    // nonce: filled in for each connection
    int listener;  // -1: no rank calls us
    double accept_again;
    visitor *visitor;  // VISITORS_MAX that come through the listener, then those of socket pairs
    int visitors;
    caller *caller;
    int callers;
    struct pollfd *poll;  // the owner's descriptors first: `watched` of them
    int watched, polled;
    bool remembers;            // a host's addresses once they are found: finding them may take seconds
    int strangers;             // visitors that were dropped
    char stranger[DOOR_TEXT];  // the last one: address and reason
    // The handshake is done; the function takes the descriptor over by setting fd = -1. An error ends the meeting.
    err_t (*came)(struct meeting *m, visitor *v);
    err_t (*reached)(struct meeting *m, caller *c);
} meeting;

// watched: the most descriptors that the owner will watch.
err_t meeting_open(meeting *m, int locals, int callers, int watched);
void meeting_close(meeting *m);

// Listens on host:port, on that address only.
err_t meeting_listen(meeting *m, const char *host, int port);

// Visitor through the socket pair `fd`; places are 0 .. locals-1.
void meeting_admit_local(meeting *m, int place, int fd);

// Waits for events until `until`, and handles them. m->poll[0 .. watched) has events and revents of the owner.
err_t meeting_turn(meeting *m, double until);

// "10.0.0.1:29500", "[fe80::1]:29500". Returns dst.
const char *where_text(const char *host, int port, char dst[DOOR_TEXT]);

// "waiting for 10.0.0.2, 10.0.0.3 (1 of 3 nodes are here)"; on one node its ranks. missing: of each rank. room: 100 +
// COMM_HOST at least; where it is short, the last nodes are only counted.
void absent_text(char *dst, size_t room, const launch *at, const bool *missing);

// "10.0.0.3 port 40122" of the other end of a connection into dst. Returns dst.
const char *peer_text(int fd, char dst[DOOR_TEXT]);

#endif
