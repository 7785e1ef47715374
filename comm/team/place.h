// comm/team/place.h: where a rank is, and what it is doing: what messages, the log and hierarchical algorithms say of
// it. It stands below both the team, whose ranks it names, and the communicators, which pass it on.
#ifndef COMM_TEAM_PLACE_H
#define COMM_TEAM_PLACE_H

#include <stdint.h>

// channels 1 .. COMM_CHANNELS can be declared
enum { COMM_HOST = 64, COMM_ROLE = 64, COMM_NAME = COMM_HOST + COMM_ROLE + 32, COMM_CHANNELS = 32 };

// Ranks of one node are neighbours in rank order, and nodes of one rack are neighbours. In a part of the world node,
// local and rack are counted anew; rank is the world's, so that a message names a rank in the same way everywhere.
typedef struct comm_place {
    int node, local, rank;
    int rack;  // of the node; 0 for all where [cluster] racks says nothing
    int join;  // neighbours of a node that have the same are joined (NVLink); 0 for all where [cluster] joined says
               // nothing
    char host[COMM_HOST];
    // ", stage 2, tensor 1": what the rank does in a divided run (comm/groups.h); empty: the same as all
    char role[COMM_ROLE];
} comm_place;

// The numbers of it.
typedef struct comm_spot {
    int node, local, rack, join;
} comm_spot;

// Ranks that lie evenly, from `first` on in a cluster: so many in each node, so many in each rack; `join` neighbours of
// a node are joined, 0: none. What a plan of a cluster that need not exist has instead of places, which would be as
// many as its devices.
typedef struct comm_even {
    int first, node, rack, join;
} comm_even;

// Of the i-th of them, with nodes, the ranks of each, and racks counted anew.
comm_spot comm_even_spot(const comm_even *e, int i);

// Of the i-th of some ranks, which have places, or lie evenly where that is NULL.
static inline comm_spot comm_spot_of(const comm_place *place, const comm_even *even, int i) {
    if (!place) return comm_even_spot(even, i);
    return (comm_spot){place[i].node, place[i].local, place[i].rack, place[i].join};
}

// "rank 5 (10.0.0.2, stage 2, tensor 1)" into dst. Returns dst.
const char *comm_place_text(const comm_place *p, char dst[COMM_NAME]);

// What a rank is doing, for reports of a failure: "reduce bucket 3 of step 17". what is a constant text, or NULL.
typedef struct comm_phase {
    const char *what;
    int64_t step, number;
} comm_phase;

#endif
