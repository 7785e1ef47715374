// comm/team/shm.h: byte rings in the memory that the ranks of one host share, and how a rank waits for its neighbours.
//
// For each ordered pair of ranks that a channel connects there is one ring with one writer and one reader. Each end
// owns one counter, which only grows; the other end reads it. Bytes between tail and head are the reader's, all others
// the writer's: no lock, and no byte is ever touched by both. Positions are multiples of RING_STEP, so that no element
// of a vector is ever cut in two by the end of the ring.
//
// Where a thread of a rank waits is a seat: a place in the shared memory that says whether it sleeps, and a bell that
// wakes it. All communicators of channel 0 are in calls one after the other, and share a seat. Each communicator of
// another channel has a seat of its own on each of its ranks.
#ifndef COMM_TEAM_SHM_H
#define COMM_TEAM_SHM_H

#include "comm/team/team.h"

enum { RING_STEP = 16 };

// One end of a ring, as its owner sees it.
typedef struct ring {
    _Atomic uint64_t *mine, *theirs;  // the counter that this end publishes, and the one that it looks at
    char *data;
    size_t room;        // a power of two
    uint64_t at, seen;  // own position; the other's when last looked at
} ring;

// This rank's ends of the rings to and from local rank `peer` on a channel. The area must be that of launch_open and
// launch_channels, and the channel must connect the two.
err_t shm_rings(const launch *at, int channel, int peer, ring *out, ring *in);

typedef struct shm_seat shm_seat;

// The seats that the ranks of a communicator have on this host.
typedef struct shm {
    int me, locals;
    // by local number; NULL: not a member. The array itself is NULL if this rank waits for no rank of this host
    shm_seat **seat;
    int *bell;
} shm;

// All ranks of the host, on channel 0's seats. With one rank there is nothing to attach to: ERR_OK.
err_t shm_attach(shm *s, const launch *at);

// Room for a communicator of another channel: no member yet. Then local rank i sits down on its seat number `seat`.
err_t shm_attach_none(shm *s, const launch *at);
void shm_sit(shm *s, const launch *at, int i, int seat);
void shm_detach(shm *s);

// The writer's end: bytes that may be written from *at on, in one piece. ring_publish makes them visible.
static inline size_t ring_space(ring *r, char **at) {
    size_t place = (size_t)r->at & (r->room - 1), whole = r->room - place;
    if (r->room - (size_t)(r->at - r->seen) < whole) r->seen = atomic_load_explicit(r->theirs, memory_order_acquire);
    size_t space = r->room - (size_t)(r->at - r->seen);
    *at = r->data + place;
    return space < whole ? space : whole;
}

// The reader's end: bytes that may be read from *at on, in one piece.
static inline size_t ring_ready(ring *r, const char **at) {
    size_t place = (size_t)r->at & (r->room - 1), whole = r->room - place;
    if ((size_t)(r->seen - r->at) < whole) r->seen = atomic_load_explicit(r->theirs, memory_order_acquire);
    size_t ready = (size_t)(r->seen - r->at);
    *at = r->data + place;
    return ready < whole ? ready : whole;
}

// Gives `bytes` (a multiple of RING_STEP) to the other end: written, or read and free again.
static inline void ring_publish(ring *r, size_t bytes) {
    r->at += bytes;
    atomic_store_explicit(r->mine, r->at, memory_order_release);
}

// Call after publishing: wakes the neighbour if it sleeps. Returns whether it did.
bool shm_wake(shm *s, int local);

// shm_doze announces that this rank is about to sleep. Between it and poll() on shm_bell() look at everything once
// more: a neighbour that published before it could see the announcement will not ring. shm_rise takes the announcement
// back, and silences the bell if it rang.
void shm_doze(shm *s);
void shm_rise(shm *s, bool rang);
static inline int shm_bell(const shm *s) { return s->bell ? s->bell[s->me] : -1; }

// The call that a rank has entered last from this seat, for its neighbours' error messages only.
void shm_enter(shm *s, uint64_t call);
uint64_t shm_entered(const shm *s, int local);

#endif
