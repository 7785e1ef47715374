// comm/ordered.h: the fixed order in which lanes are added, whichever ranks hold them.
//
// A step's gradient is the sum over lanes, added along one binary tree over the lane index:
// (((0+1)+(2+3))+((4+5)+(6+7))). Floating-point addition is not associative, so the tree defines the result: only
// siblings are ever added. A rank that runs lanes [a,b) keeps a binary counter of finished subtrees. At the end the
// maximal aligned subtrees of [a,b) are left. Merging those of all ranks by the same rule, in order of lane, gives the
// whole tree, and the same bits for any split.
//
// This file knows lanes and buffer numbers only; adding two buffers is the caller's work.
#ifndef COMM_ORDERED_H
#define COMM_ORDERED_H

#include <stdbool.h>
#include <stdint.h>

enum { ORDERED_LEVELS = 24, ORDERED_SPANS = 2 * ORDERED_LEVELS };

// Which lanes a rank runs where all have as many, or some one more: first, first + stride, ... `count` of them. In
// ranges: each rank a contiguous one. In turns: lane t * world + r at turn t.
typedef struct lane_deal {
    int64_t first, count, stride;
} lane_deal;
lane_deal lane_deal_of(int64_t lanes, int world, int rank, bool turns);

// A deal in which ranks may have different numbers of lanes, or none. In ranges each rank has the lanes after those of
// the ranks before it. In turns a rank with n lanes takes part in the first n turns; a turn has lanes for those that
// do, in order of rank. Of 8 lanes, dealt 4 2 0 2:
//
//   rank          0         1      2    3
//   in ranges     0 1 2 3   4 5    -    6 7
//   turns 0 .. 3  0 3 6 7   1 4    -    2 5
//
// In turns a rank may run several lanes at each, a subtree: the deal is one of such spans. In spans of 2:
//
//   turns 0, 1    0 1 6 7   2 3    -    4 5
typedef struct lane_table {
    int64_t lanes;
    int world;
    bool turns;
    const int64_t *count;  // [world] lanes of each rank, whole spans; NULL: as lane_deal_of
    int64_t span;          // lanes of a turn, a power of two that divides `lanes`; 0: one
} lane_table;

// Lanes of a turn.
static inline int64_t lane_table_span(const lane_table *t) { return t->turns && t->span ? t->span : 1; }

int64_t lane_table_count(const lane_table *t, int rank);
int64_t lane_table_first(const lane_table *t, int rank);             // in ranges
int64_t lane_table_at(const lane_table *t, int rank, int64_t turn);  // in turns: the first of the span; -1: none
int64_t lane_table_lane(const lane_table *t, int rank, int64_t i);   // the i-th lane that the rank runs

// Turns of a step: 1 where lanes are dealt in ranges.
int64_t lane_table_turns(const lane_table *t);

// Turns where all ranks have as many lanes.
int64_t lane_turns(int64_t lanes, int world, bool turns);

typedef struct lane_span {
    int64_t first, size;  // lanes first .. first+size-1, a subtree: size is a power of two that divides first
    int buffer;           // where its sum is
} lane_span;

typedef struct lane_counter {
    int count;
    lane_span span[ORDERED_SPANS];  // in order of lane
} lane_counter;

// Where the next lane's gradient is accumulated. joins: in its left sibling's buffer, on top of it, so that no merge is
// needed. That is possible where a lane adds to each element once (`once`: one micro-batch, its head in one chunk),
// because (0 + a) + b has the bits of (0 + a) + (0 + b).
typedef struct lane_place {
    int buffer;
    bool joins;
} lane_place;

lane_place lane_counter_begin(const lane_counter *c, int64_t lane, bool once);
void lane_counter_end(lane_counter *c, int64_t lane, lane_place at);

// Buffers that lanes [first, first+count), run one after the other, need at the same time, the one being filled
// included; and the most that any range of so many lanes needs.
int lane_counter_buffers(int64_t first, int64_t count, bool once);
int lane_counter_most(int64_t lanes, bool once);

// Subtrees that are left of all ranks' ranges, at most, however the lanes are dealt.
int64_t lane_spans_most(int64_t lanes, int world);

// The subtrees that are left of them when everything that can be merged is merged.
lane_counter lane_counter_of(int64_t first, int64_t count, bool once);

// The lowest buffer number that no span holds.
int lane_counter_free(const lane_counter *c);

// Appends a finished subtree.
void lane_counter_push(lane_counter *c, lane_span s);

// When the last two spans are siblings: makes them one span in *into. The caller must then do buffer[into] =
// buffer[into] + buffer[from]; *from is free afterwards. Call until false.
bool lane_counter_merge(lane_counter *c, int *into, int *from);

#endif
