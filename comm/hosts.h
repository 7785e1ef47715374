// comm/hosts.h: the ranks of a communicator by node, in whatever order it has them, and who of another node stands for
// a rank there.
#ifndef COMM_HOSTS_H
#define COMM_HOSTS_H

#include "comm/comm.h"

typedef struct hosts {
    int nodes;
    int *first;   // [world+1]: node n's ranks are member[first[n]] .. member[first[n+1]-1]
    int *member;  // [world] ranks, by node and in it by their place there
} hosts;

// Fills in the tables, which have room for that.
static inline void hosts_of(hosts *h, const comm *c) {
    h->nodes = 0;
    for (int r = 0; r < c->world; r++)
        if (c->place[r].node >= h->nodes) h->nodes = c->place[r].node + 1;
    for (int n = 0; n <= h->nodes; n++) h->first[n] = 0;
    for (int r = 0; r < c->world; r++) h->first[c->place[r].node + 1]++;
    for (int n = 0; n < h->nodes; n++) h->first[n + 1] += h->first[n];
    for (int r = 0; r < c->world; r++) h->member[h->first[c->place[r].node] + c->place[r].local] = r;
}

// The rank of a node with the same place in it, or, where there are fewer, its place modulo their number.
static inline int hosts_stand_in(const hosts *h, const comm *c, int rank, int node) {
    return h->member[h->first[node] + c->place[rank].local % (h->first[node + 1] - h->first[node])];
}

// Does `by`, of another node, hand a rank's bytes to the others of its own node?
static inline bool hosts_hands_on(const hosts *h, const comm *c, int by, int rank) {
    int node = c->place[by].node;
    return c->place[rank].node != node && hosts_stand_in(h, c, rank, node) == by;
}

#endif
