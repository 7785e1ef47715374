// trainer/step/outer_room.h: the memory in which islands mix (trainer/step/outer.h). What travels as it is goes through
// a room of bounded size. What is coded has a place in a message for each piece of the masters that the rank owns:
//
//     out    piece | piece | ... piece |         codes of this rank's deltas, later those of the means
//            of island 0 |  of island 1 | ...    which island adds a piece up: its owner
//     in     this island's pieces, from each of the others
//
// A piece has whole chunks, so codes and what they leave out depend on no layout. Of several fragments each has a
// message of its own, in memory of its own: what one sends may be on its way while others leave or arrive.
#ifndef TRAINER_STEP_OUTER_ROOM_H
#define TRAINER_STEP_OUTER_ROOM_H

#include "gpu/gpu.h"
#include "gpu/ops.h"
#include "trainer/config/fragments.h"
#include "trainer/step/zero.h"

// OUTER_ALIGN: elements, where each run begins. OUTER_PIECE: elements of a coded piece, at most.
// OUTER_CYCLE: steps that a plan looks at, at most.
enum { OUTER_ISLANDS = 1024, OUTER_CYCLE = 2520, OUTER_MOST = 1 << 20, OUTER_ALIGN = 64, OUTER_PIECE = 16 * CHUNK };

typedef struct outer_options {
    int islands, island;
    codec codec;             // of deltas; CODEC_NONE: masters travel as they are, or deltas where islands are apart
    bool moments;            // are mixed, too
    bool on_gpu;             // a checkpoint reads a copy
    bool apart;              // islands never all hold the same (trainer/config/config.h)
    const char *fragments;   // [outer] fragments, every
    int64_t every, overlap;  // overlap: messages travel beside the steps
} outer_options;

// What of the pieces leaves together.
typedef struct outer_fragment {
    int64_t period, offset;
    int *first;      // [islands+1] an owner's pieces; where its bytes begin in the message
    size_t *cut;     // [islands+1]
    size_t out, in;  // where the message begins in out, and what the other islands send in `in`
    bool travels;    // it has left and has not been taken
    event *arrived;  // overlap: recorded when it is here
} outer_fragment;

// Part of a piece that this rank owns of the masters.
typedef struct outer_piece {
    zero_piece of;
    int owner;     // the island that adds it up
    bool codes;    // else its delta travels as it is: rows of one dimension, running statistics
    size_t there;  // where it begins in out, bytes
} outer_piece;

typedef struct outer_room {
    tensor room;  // FP32 (2, most): what this rank brings and gets; of its slice of it, what all bring. 0: no use
    int64_t most;
    // INT32: a step_state each, of the mean, of the outer step, and of what an island gives up of its own weights
    tensor whole, step, give;
    codec codec;
    int islands, island, buffers;
    bool deltas;  // they travel, not masters
    fragments rules;
    int *of_row;  // [params] which fragment a tensor is in
    bool *mixed;  // [params] is it mixed now?
    int count, pieces;
    outer_fragment *fragment;  // [count] one, unless islands are apart
    outer_piece *piece;        // by fragment, and in it by owner
    tensor out, in;            // bytes
    tensor sums;  // FP32 (buffers, OUTER_PIECE at most): for adding up, the last two for what is computed beside that
    int work;     // the first of these two
    stream *beside;  // overlap: where messages travel
    event *left;     // what they bring is in out
    // What was left out of this island's deltas, as a shard; of the means that it adds up, from back_at on.
    tensor residual, residual_back, residual_mirror, back_mirror;
    size_t back_at;
} outer_room;

// Declares it in memory, or host: what a checkpoint reads.
err_t outer_room_open(outer_room *x, const zero_layout *z, const model *net, const outer_options *o, arena *memory,
                      arena *host);
void outer_room_close(outer_room *x);

// With overlap: opens what carries messages.
err_t outer_room_begin(outer_room *x, device *dev);

// Bytes of a piece in a message, and those of all pieces that an island adds up.
size_t outer_bytes(const outer_room *x, const outer_piece *p);
static inline size_t outer_part(const outer_fragment *f, int island) { return f->cut[island + 1] - f->cut[island]; }

#endif
