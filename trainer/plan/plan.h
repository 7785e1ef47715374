// trainer/plan/plan.h: the memory and traffic of a run, before it runs: `lockstep plan`. Nothing is estimated: the
// run's own arenas are declared but not allocated, and its own messages are counted but not sent. A test compares the
// figures with a real run's, to the byte. The time of a step is not planned: that needs a measurement (`lockstep
// bench`).
#ifndef TRAINER_PLAN_PLAN_H
#define TRAINER_PLAN_PLAN_H

#include "comm/cost.h"
#include "trainer/session/session.h"

#include <stdio.h>

enum { PLAN_CHUNKS = 64 };

// Whom a rank sends to: a row each in the table of traffic. Where no ranks share a model, the data group is all ranks.
typedef enum { PLAN_DATA, PLAN_TENSOR, PLAN_CONTEXT, PLAN_STAGES, PLAN_ISLANDS, PLAN_ALL, PLAN_GROUPS } plan_group;

// Of a step in which lanes are coded: the elements that a rank codes, reads from codes and copies, and those that it
// would add without codes.
typedef struct plan_codes {
    int64_t encoded, decoded;            // on their way to owners
    int64_t back_encoded, back_decoded;  // sums on their way back
    int64_t copied;                      // sums that go back as they are
    int64_t added;
} plan_codes;

typedef struct plan_rank {
    int64_t lanes;  // of a step
    // bytes; FP32 without offload: weights are the masters; moments: all that the optimizer keeps
    size_t weights, masters, moments;
    size_t gradients, counters, scratch;  // slabs or slots; counters of sharded sums; of the reduction
    size_t residuals;                     // what was left out of lanes that were coded
    size_t outer;                         // to mix islands: anchor and momentum, and the room
    int64_t disk;                         // offload = nvme: bytes of this rank's file, all of which an update writes
    int64_t disk_reads;                   // ... and how often a step reads it
    size_t gather;                        // stage 3: weights on their way
    size_t activations, staging, ring, rest;  // staging: with the windows of a file
    size_t snapshots;  // of the state: for the case that a rank is lost, and for a checkpoint beside the steps
    size_t rows;  // on demand: what they may take of memory, where the others are in a file. Else they have no limit
    size_t tied;  // copy and gradient of a tensor that another stage has too
    bool whole;   // gradients: of all parameters here, although the ZeRO stage keeps only a share of their sum
    bool on_gpu;  // then these are in host memory, and the GPU has the rest:
    size_t host;
    int64_t gpu_total;       // bytes that this machine's GPU has, -1: not known
    int64_t sent, sent_far;  // bytes of payload that a step sends; of these, to other nodes
    int64_t sent_racks;      // of these, to other racks
    // Of these, and of messages: to those that have the same stages, gradients and weights; to the stages before and
    // after, and of a tied tensor between the first and the last one; to all, what decides the step.
    comm_cost to[PLAN_GROUPS];
    comm_cost
        mixed[PLAN_GROUPS];  // beside these, at a boundary of islands, or at the step after which most leaves them
    int64_t busiest;         // that step
    double mixed_each;       // bytes that leave for other islands after a step, on average
    plan_codes codes;        // where lanes are coded
    int64_t shared;          // numbers that all ranks tell each other at the end of a step
    int stage, stages;       // in the pipeline: the rank's first stage; 1: there is none
    int first[PLAN_CHUNKS], last[PLAN_CHUNKS], chunks;  // its blocks, by stage
    // activations that each stage has memory for, of a micro-batch each
    int held[PLAN_CHUNKS];
} plan_rank;

size_t plan_bytes(const plan_rank *p);  // all memory

// Where the ranks of a run are, in their order.
typedef struct plan_world {
    int world, nodes, racks, joined;
    comm_place *place;  // [world]; NULL: as `even` says
    comm_even even;
} plan_world;

// A communicator of all of them.
static inline comm plan_all(const plan_world *w, int rank) {
    return (comm){.rank = rank, .world = w->world, .place = w->place, .even = w->even};
}
static inline comm_spot plan_where(const plan_world *w, int rank) { return comm_spot_of(w->place, &w->even, rank); }
err_t plan_comm(comm **out, const plan_world *w, int rank);

// In steps, for many ranks one after the other: x, which was {0} before the first, becomes a rank, on paper; then what
// that rank takes is counted. Freed with session_close, also after an error.
err_t plan_begin(session *x, const config *c, int rank, const plan_world *w);
err_t plan_count(session *x, plan_rank *out);

// What a message of the rank's table sends, of the sender.
comm_cost plan_message(const session *x, const message *m);

// One rank of a run over these places.
err_t plan_one(const config *c, int rank, int world, const comm_place *place, plan_rank *out);

// All of the INI's run, as a table; draw: with the schedule of its pipeline. cluster: as plan_world_made reads it;
// NULL: the nodes that the INI names.
err_t verb_plan(const config *c, bool draw, const char *cluster, FILE *out);

// What the model's blocks do in a step, forward and backward, as text (trainer/plan/graph.c). which: a block's name or
// number; "": all of them. Of ranks that differ, the first one that has such a block.
err_t verb_graph(const config *c, const char *which, FILE *out);

#endif
