// comm/groups.h: who works with whom when a model is divided as well as the data: arithmetic over rank numbers, and the
// communicators that follow from it.
//
//     rank = ((stage * data + d) * context + c) * tensor + t
//
// With 2 stages, data 2 and tensor 2:
//
//              d 0       d 1         tensor groups   0 1 | 2 3 | 4 5 | 6 7     the same stage and d: neighbours in a
//                        node
//             t0  t1    t0  t1       data groups     0 2 | 1 3 | 4 6 | 5 7     the same stage and t
//   stage 0    0   1     2   3       stage groups    0 1 2 3 | 4 5 6 7
//   stage 1    4   5     6   7       lines           0 4 | 1 5 | 2 6 | 3 7     the same d and t: the pipeline
//
// Context ranks share the positions of the same samples. Their groups have the same stage, d and t; they have whole
// weights, so they are in one data group, with those of other d: member d * context + c.
//
// Islands divide all of this once more: each has ranks, and groups, of its own, and takes its own steps from its own
// share of the lanes. The ranks with the same place in all islands are a group, in which weights are mixed:
//
//     rank = island * (ranks of an island) + rank in it
//
// Each kind of group has a channel of its own (comm/comm.h), and so has each kind of link, which joins two ranks of a
// line. So all of them may be in calls at the same time, also a rank's two links of one kind: to the stage before, and
// to the one after.
#ifndef COMM_GROUPS_H
#define COMM_GROUPS_H

#include "comm/comm.h"
#include "comm/team/team.h"

typedef enum {
    GROUP_DATA,
    GROUP_TENSOR,
    GROUP_STAGE,
    GROUP_LINE,
    GROUP_CONTEXT,
    GROUP_ISLANDS,
    GROUP_KINDS
} group_kind;

// What travels on a link. A schedule says which ones it uses: bits of grid.links.
typedef enum {
    LINK_FORWARD,        // activations from stage s to s + 1
    LINK_BACKWARD,       // their gradients, from s + 1 to s
    LINK_DOWN_FORWARD,   // activations from s + 1 to s: the second half of a V
    LINK_DOWN_BACKWARD,  // their gradients, from s to s + 1
    LINK_LOOP_FORWARD,   // activations from the last stage to the first: several chunks a stage
    LINK_LOOP_BACKWARD,  // their gradients, from the first stage to the last
    LINK_TIED,           // between the first and the last stage, both ways: what they have in common
    LINK_KINDS,
} link_kind;

enum {
    LINKS_PLAIN = 1 << LINK_FORWARD | 1 << LINK_BACKWARD,
    LINKS_V = LINKS_PLAIN | 1 << LINK_DOWN_FORWARD | 1 << LINK_DOWN_BACKWARD,
    LINKS_LOOP = LINKS_PLAIN | 1 << LINK_LOOP_FORWARD | 1 << LINK_LOOP_BACKWARD,
};

typedef struct grid {
    int data, tensor, pipeline;  // of an island
    int context;                 // 0: 1
    int islands;                 // 0: 1
    int servers;                 // the last so many of `data`: they share what is kept, and none of the work
    unsigned links;
    bool beside;  // a channel more, between all ranks: of a thread that works beside the steps
    bool paired;  // a channel more, between each server and each of the others of `data`, which has two ranks
} grid;

typedef struct grid_place {
    int stage, data, tensor, context, island;
} grid_place;

// From what is wanted; data = 0: what the others leave of the world. ERR_CONFIG: the product is not the world.
err_t grid_of(grid *out, int world, const grid *wanted);

static inline int grid_context(const grid *g) { return g->context ? g->context : 1; }
static inline int grid_islands(const grid *g) { return g->islands ? g->islands : 1; }
// ranks of one
static inline int grid_island(const grid *g) { return g->data * grid_context(g) * g->tensor * g->pipeline; }
static inline int grid_world(const grid *g) { return grid_islands(g) * grid_island(g); }
// Those of an island that share the work.
static inline int grid_workers(const grid *g) { return g->data - g->servers; }
// not only the data
static inline bool grid_is_divided(const grid *g) {
    return grid_islands(g) * grid_context(g) * g->tensor * g->pipeline > 1;
}
grid_place grid_at(const grid *g, int rank);
int grid_rank(const grid *g, grid_place p);

static inline bool grid_serves(const grid *g, int rank) { return grid_at(g, rank).data >= grid_workers(g); }

// "rank 5 (stage 2, data 0, tensor 1)", with its context and island where there are several, into dst. Returns dst.
enum { GRID_TEXT = 96 };
const char *grid_text(const grid *g, int rank, char dst[GRID_TEXT]);

// "tensor 2 x pipeline 4 x data 1" into dst: pipeline and data always, the others where there are several. Returns dst.
enum { GRID_SHAPE = 96 };
const char *grid_shape(const grid *g, char dst[GRID_SHAPE]);

// ", stage 2, tensor 1": what the layout has more than one of, and ", server", into dst. Returns dst.
const char *grid_role(const grid *g, int rank, char dst[COMM_ROLE]);

// The groups of a kind partition the ranks. Members are counted from 0, in order of rank.
int grid_group_size(const grid *g, group_kind kind);
int grid_group_index(const grid *g, group_kind kind, int rank);              // of rank in its group
int grid_group_member(const grid *g, group_kind kind, int rank, int index);  // of rank's group

// The rank at the other end of a link: with the stage after this one (`after`) or before it. -1: there is none. Links
// between the first stage and the last have the last one before the first.
int grid_link_peer(const grid *g, link_kind kind, int rank, bool after);

// --- splits of the world's communicator ------------------------------------------------------------------------------

// Arguments of a split. color -1: this rank takes part in the call only.
typedef struct grid_split {
    int color, key, channel;
} grid_split;

grid_split grid_group_split(const grid *g, group_kind kind, int rank);

// The links of one kind are made by two splits: in the first one the lower of the two stages is even, in the second it
// is odd. In each, a rank has one link at most.
grid_split grid_link_split(const grid *g, link_kind kind, int half, int rank);

// Of host memory, between all ranks.
grid_split grid_beside_split(int rank);

// Of a layout that is paired: how many peers a rank has, which are servers where it is none; and the splits that make
// the pairs, in so many rounds, in each of which a rank has one peer at most (-1: none).
int grid_peers(const grid *g, int rank);
int grid_pair_rounds(const grid *g);
int grid_pair_peer(const grid *g, int round, int rank);
grid_split grid_pair_split(const grid *g, int round, int rank);

// What launch_channels needs to know: the channels, and what each rank does. Where only the data is divided there is
// nothing of it, but for grid.beside. g outlives the plan.
channel_plan grid_channels(const grid *g);

// All of them, made from the world's communicator. Where only the data is divided nothing is made: data and stage are
// the world's.
typedef struct groups {
    grid shape;
    comm *group[GROUP_KINDS];                      // of one rank: a communicator of one rank
    comm *after[LINK_KINDS], *before[LINK_KINDS];  // NULL where there is none
    comm *beside;                                  // NULL: not asked for
    comm **pair;  // [grid_peers] of host memory, with each of them in order of rank. NULL: not asked for
    comm *world;
    comm_place *place;  // of imaginary ones
} groups;

// Collective.
err_t groups_open(groups *out, const grid *g, comm *world);
void groups_close(groups *x);

// The same for a plan of a run that need not exist, as cost.h's imaginary communicators, of which world is one.
err_t groups_imagine(groups *out, const grid *g, comm *world);

#endif
