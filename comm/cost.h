// comm/cost.h: what the collectives of the tcp transport send, without sending it: for `lockstep plan`. A test compares
// these formulas with the transport's own counters, to the byte. (NCCL chooses its algorithms itself: a ring of its own
// sends up to twice as much between two hosts as all_gather here.)
#ifndef COMM_COST_H
#define COMM_COST_H

#include "comm/comm.h"

// Where the tcp transport switches algorithms: ranks, bytes, bytes, bytes. And what all_reduce's pieces are multiples
// of.
enum {
    COST_SMALL_RANKS = 8,
    COST_SMALL_BYTES = 8 << 10,
    COST_TREE_BYTES = 64 << 10,
    COST_CHAIN_BYTES = 256 << 10,
    COST_PIECE_ELEMENTS = 16
};

// What this rank sends, counted as in comm_traffic.
typedef struct comm_cost {
    int64_t sent, sent_far;  // bytes of payload, of these to other nodes
    int64_t messages, messages_far;
    int64_t sent_racks, messages_racks;  // of those to other nodes, to other racks
    int64_t sent_apart, messages_apart;  // of all, to ranks that are not joined with it
} comm_cost;

// What was counted between two moments.
static inline comm_cost cost_between(const comm_traffic *before, const comm_traffic *after) {
    return (comm_cost){after->sent - before->sent,
                       after->sent_far - before->sent_far,
                       after->messages - before->messages,
                       after->messages_far - before->messages_far,
                       after->sent_racks - before->sent_racks,
                       after->messages_racks - before->messages_racks,
                       after->sent_apart - before->sent_apart,
                       after->messages_apart - before->messages_apart};
}

static inline comm_cost cost_add(comm_cost a, comm_cost b) {
    return (comm_cost){a.sent + b.sent,
                       a.sent_far + b.sent_far,
                       a.messages + b.messages,
                       a.messages_far + b.messages_far,
                       a.sent_racks + b.sent_racks,
                       a.messages_racks + b.messages_racks,
                       a.sent_apart + b.sent_apart,
                       a.messages_apart + b.messages_apart};
}

// Messages of so many bytes in all to a rank of c.
static inline comm_cost cost_send(const comm *c, int peer, int64_t bytes, int64_t messages) {
    comm_spot from = comm_where(c, c->rank), to = comm_where(c, peer);
    bool far = from.node != to.node, racks = from.rack != to.rack, apart = !comm_joined(from, to);
    return (comm_cost){bytes,
                       far ? bytes : 0,
                       messages,
                       far ? messages : 0,
                       racks ? bytes : 0,
                       racks ? messages : 0,
                       apart ? bytes : 0,
                       apart ? messages : 0};
}

// c gives rank, world and places; nothing is called.
comm_cost cost_all_gather(const comm *c, const size_t *cut);  // cuts in bytes
comm_cost cost_reduce_scatter(const comm *c, const size_t *cut, size_t element);
comm_cost cost_all_reduce(const comm *c, size_t count, size_t element);

// A communicator with rank, world and places and no operations, for plans of runs that do not exist. place outlives it.
// comm_even_open: they lie evenly, and are named by nothing (comm_rank_text).
err_t comm_imaginary_open(comm **out, int rank, int world, const comm_place *place);
err_t comm_even_open(comm **out, int rank, int world, const comm_even *even);

#endif
