// comm/levels.h: where the ranks of a communicator are, level by level: a rank, its node, its rack. From that follow
// routes on which bytes enter each rack once and each node once:
//
//     owner ---> the others of its node
//           ---> one rank of each other node of its rack ---> the others of that node
//           ---> one rank of each other rack ---> one of each other node there ---> the others of that node
//
// The rank that bytes come to stands for their owner there: it has the owner's place in its node, and its node has the
// place in the rack that the owner's has in its own; where there are fewer, the place modulo their number.
#ifndef COMM_LEVELS_H
#define COMM_LEVELS_H

#include "comm/comm.h"

typedef struct levels {
    const comm *of;
    int world, nodes, racks;
    int *member;       // [world] ranks by rack, in it by node, and in that by their place
    int *first;        // [nodes+1]: node n has member[first[n]] .. member[first[n+1]-1]
    int *rack_first;   // [racks+1]: rack k has the nodes rack_first[k] .. rack_first[k+1]-1
    int *node, *rack;  // [world] of each rank, as these tables number them
} levels;

// Room for the tables, in numbers.
static inline int levels_room(int world) { return 5 * world + 2; }

// Fills in the tables, in `room`, which outlives them.
void levels_of(levels *l, const comm *c, int *room);

// Who stands for a rank in a node, or in a rack: the rank itself in its own.
int levels_in_node(const levels *l, int rank, int node);
int levels_in_rack(const levels *l, int rank, int rack);

// From whom a rank gets the owner's bytes; -1: it is the owner.
int levels_from(const levels *l, int owner, int to);

// All ranks, so that neighbours are near each other: from the root on around its node, then around its rack, then
// around the racks. order: [world]. A chain along it enters each node and each rack once.
void levels_chain(const levels *l, int root, int *order);

#endif
