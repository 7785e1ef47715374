// comm/flight.h: the flight recorder. What a rank asked of the others lately, in memory that outlives its process: who
// entered which call, when, and whether it came out. Who reads it after a failure needs nothing from the ranks.
//
//   flight_rank      one rank's part, in memory that its supervisor shares with it
//     at[]           each communicator that is open: how many calls were entered, and the last one. What a rank waits
//                    in is here however long it waits
//     ring[]         the last FLIGHT_CALLS calls and phases of all of them, by any thread
//
// flight_watch puts a table of its own before a transport's: a communicator that is not watched costs nothing. A
// call costs two readings of the clock, some stores and two atomic additions: no lock, no other system call.
//
// Readers may look at any time. Each record is written under a stamp; one that changes while it is copied is dropped.
// A call whose place in the ring is still being written, by a thread that fell asleep a whole ring ago, is not kept.
//
// Call number n of a communicator is the same call on all its ranks (comm/comm.h, Order). Exchanges are counted apart:
// of a sum over several machines (comm/reduce.h), a rank leaves out those in which it has no part.
//
// At its first failure a rank's part is frozen, so that unwinding does not overwrite what led to it.
#ifndef COMM_FLIGHT_H
#define COMM_FLIGHT_H

#include "comm/comm.h"

#include <stdatomic.h>

// FLIGHT_RANKS: as TEAM_RANKS_MAX, in a mask
enum { FLIGHT_CALLS = 256, FLIGHT_COMMS = 64, FLIGHT_RANKS = 1024, FLIGHT_WORDS = FLIGHT_RANKS / 64 };

#define FLIGHT_OPS(X) \
    X(NONE, "nothing") \
    X(EXCHANGE, "exchange") \
    X(ALL_REDUCE, "all_reduce") \
    X(REDUCE_SCATTER, "reduce_scatter") \
    X(ALL_GATHER, "all_gather") \
    X(BROADCAST, "broadcast") \
    X(ALL_TO_ALL, "all_to_all") \
    X(BARRIER, "barrier") \
    X(SPLIT, "split") \
    X(PHASE, "phase")
#define FLIGHT_ENUM(name, word) FLIGHT_##name,
typedef enum flight_op { FLIGHT_OPS(FLIGHT_ENUM) FLIGHT_OPS_COUNT } flight_op;
#undef FLIGHT_ENUM

// QUEUED: the host came out, and the device has it in its queue (NCCL).
typedef enum flight_state { FLIGHT_IN, FLIGHT_DONE, FLIGHT_QUEUED, FLIGHT_FAILED, FLIGHT_STATES } flight_state;

const char *flight_op_name(flight_op op);           // "all_reduce"
const char *flight_state_name(flight_state state);  // "in", "done", "queued", "failed"

// One call. Texts are constants of the binary, which all processes of a node share.
typedef struct flight_call {
    _Alignas(64) _Atomic uint64_t stamp;  // its place among all of the rank, from 1; 0: none; all bits: being written
    _Atomic uint64_t began_ns;            // CLOCK_MONOTONIC
    _Atomic uint64_t end;                 // 24 bits of the stamp, 2 of the state, 38 of microseconds that it took
    _Atomic(const char *) what;           // the rank's phase
    _Atomic uint64_t bytes;
    _Atomic uint32_t comm, number;    // which call of which communicator; of a phase 0
    _Atomic int32_t step, part;       // of the phase
    _Atomic int16_t op, peer, peers;  // an exchange's first peer, and how many there are; of others -1
    int16_t spare;
} flight_call;
_Static_assert(sizeof(flight_call) == 64, "one cache line a call");

// A communicator that is open. Its calls are made by one thread at a time, so it has one writer.
typedef struct flight_comm {
    _Alignas(64) _Atomic uint32_t id;  // the same on all its ranks; 0: this place is free
    _Atomic uint32_t world, channel;
    atomic_uint sequence;               // odd: what follows is being written
    _Atomic uint32_t calls, exchanges;  // entered so far
    _Atomic int32_t op, state;          // of the last one
    _Atomic uint64_t since_ns;          // when it was entered, or left
    _Atomic(const char *) what;
    _Atomic uint64_t bytes;
    _Atomic int32_t step, part;
    _Atomic uint64_t peer[FLIGHT_WORDS];    // of an exchange: with these ranks of the world
    _Atomic uint64_t member[FLIGHT_WORDS];  // ranks of the world
} flight_comm;

typedef struct flight_rank {
    _Atomic uint32_t world;      // epoch of flight_begin, plus 1; 0: none has begun
    _Atomic uint64_t failed_ns;  // when it froze; 0: it has not
    _Atomic uint64_t next;       // calls recorded
    flight_comm at[FLIGHT_COMMS];
    flight_call ring[FLIGHT_CALLS];
} flight_rank;

// --- the rank --------------------------------------------------------------------------------------------------------

// A world begins: what is known of communicators is of the one before. Memory that is all zero needs none of it.
void flight_begin(flight_rank *f, uint32_t epoch);

// From here on all calls of c, of its companion on the host and of all that are split from it are recorded. Before the
// first call, on all ranks or in the same order. f NULL: nothing happens. It outlives c.
void flight_watch(flight_rank *f, comm *c);

// A phase of the host begins: "save", "evaluate". f NULL: nothing happens.
void flight_phase(flight_rank *f, const char *what, int64_t step);

// This rank has failed, or will end: nothing more is recorded until flight_begin.
void flight_freeze(flight_rank *f);

// --- a reader, of memory that may be written meanwhile ---------------------------------------------------------------

// Plain copies, for those who read.
typedef struct flight_seen {
    uint64_t began_ns, took_us, bytes;
    const char *what;
    uint32_t comm, number;
    int32_t step, part;
    int op, state, peer, peers;
} flight_seen;

typedef struct flight_standing {
    uint32_t id, world, channel, calls, exchanges;
    int op, state;
    uint64_t since_ns, bytes;
    const char *what;
    int32_t step, part;
    uint64_t peer[FLIGHT_WORDS], member[FLIGHT_WORDS];
    bool torn;  // of two calls, one after the other: it was being written, again and again or when the process ended
} flight_standing;

// The last calls, oldest first. Returns how many; those that were overwritten meanwhile are left out.
int flight_calls(const flight_rank *f, flight_seen out[FLIGHT_CALLS]);

// Of place i. false: it is free.
bool flight_stands(const flight_rank *f, int i, flight_standing *out);

static inline bool flight_has(const uint64_t *mask, int rank) { return mask[rank / 64] >> (rank % 64) & 1; }
static inline void flight_put(uint64_t *mask, int rank) { mask[rank / 64] |= UINT64_C(1) << (rank % 64); }

#endif
