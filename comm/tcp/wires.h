// comm/tcp/wires.h: this rank's ends of all connections, of every channel: what the communicators of a rank have in
// common.
//
// A wire joins two ranks on one channel, in both directions: two rings in shared memory, or one link. It is made when
// the first communicator needs it, and stays until the last one is closed, because its messages are numbered through
// all of them. Two communicators may share it, but not at the same time: its user says so (`busy`), and a second one is
// an error.
#ifndef COMM_TCP_WIRES_H
#define COMM_TCP_WIRES_H

#include "comm/comm.h"
#include "comm/tcp/link.h"
#include "comm/team/shm.h"

enum { WIRE_IN, WIRE_OUT };

typedef struct wire {
    link_end far;  // fd -1: a rank of this host, reached by rings
    ring out, in;
    uint32_t sequence[2];  // WIRE_IN, WIRE_OUT: messages so far
    bool met;              // wires_meet
    _Atomic bool busy[2];  // a call uses that direction now
} wire;

typedef struct wires {
    team *team;
    const launch *at;
    const comm *first;    // the communicator that the transport opened: its patience is everybody's
    wire **wire;          // (1 + channels, world), NULL: not made yet
    bool *taken;          // seats
    uint16_t next_id;     // of communicators
    link_engine *engine;  // NULL: sockets
    int users;
} wires;

// The wires own the engine, also when this fails.
err_t wires_open(wires **out, team *t, link_engine *engine);
wires *wires_share(wires *w);
void wires_close(wires *w);  // frees all when no user is left

// Makes what is missing between this rank and that one on a channel. wires_meet: the other half, once this was called
// for all ranks of a communicator.
err_t wires_connect(wires *w, int channel, int rank);
err_t wires_meet(wires *w, int channel, int rank);
static inline wire *wires_to(const wires *w, int channel, int rank) { return w->wire[channel * w->at->world + rank]; }

// A free seat, or -1. Where the ranks of this host share nothing there are none, and none is needed.
int wires_take_seat(wires *w);
void wires_leave_seat(wires *w, int seat);

#endif
