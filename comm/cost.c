// comm/cost.c: see comm/cost.h, and the table of what a rank sends at the top of comm/tcp/tcp.c, which this follows.
#include "comm/cost.h"

#include "comm/levels.h"

#include <stdlib.h>

static bool one_host(const comm *c) { return comm_nodes(c) == 1; }
static int right_of(const comm *c) { return (c->rank + 1) % c->world; }

static void add(comm_cost *x, const comm *c, int peer, int64_t bytes) {
    *x = cost_add(*x, cost_send(c, peer, bytes, 1));
}

static int64_t piece_bytes(const size_t *cut, int rank) { return (int64_t)(cut[rank + 1] - cut[rank]); }

// To all others of its node.
static void add_near(comm_cost *x, const comm *c, const levels *l, int64_t bytes) {
    int node = l->node[c->rank];
    for (int i = l->first[node]; i < l->first[node + 1]; i++)
        if (l->member[i] != c->rank) add(x, c, l->member[i], bytes);
}

// To those that stand for a piece's owner in the other nodes of this rank's rack.
static void add_rack(comm_cost *x, const comm *c, const levels *l, int owner, int64_t bytes) {
    int rack = l->rack[c->rank];
    for (int n = l->rack_first[rack]; n < l->rack_first[rack + 1]; n++)
        if (n != l->node[c->rank]) add(x, c, levels_in_node(l, owner, n), bytes);
}

// A rank sends its own piece on all routes of comm/levels.h, and hands on those for whose owners it stands.
comm_cost cost_all_gather(const comm *c, const size_t *cut) {
    int me = c->rank, room[levels_room(c->world)];
    levels l;
    comm_cost x = {0};
    levels_of(&l, c, room);
    for (int k = 0; k < l.racks; k++)
        if (k != l.rack[me]) add(&x, c, levels_in_rack(&l, me, k), piece_bytes(cut, me));
    for (int r = 0; r < c->world; r++) {
        bool stands = levels_in_node(&l, r, l.node[me]) == me, enters = levels_in_rack(&l, r, l.rack[me]) == me;
        if (enters) add_rack(&x, c, &l, r, piece_bytes(cut, r));
        if (r == me || (stands && l.node[r] != l.node[me])) add_near(&x, c, &l, piece_bytes(cut, r));
    }
    return x;
}

// On one host a rank sends every other rank its piece; in a ring it sends all pieces but its own to one neighbour.
comm_cost cost_reduce_scatter(const comm *c, const size_t *cut, size_t element) {
    comm_cost x = {0};
    if (c->world == 1) return x;
    for (int r = 0; one_host(c) && r < c->world; r++)
        if (r != c->rank) add(&x, c, r, piece_bytes(cut, r) * (int64_t)element);
    if (one_host(c)) return x;
    int64_t own = (int64_t)(cut[c->rank + 1] - cut[c->rank]), all = (int64_t)cut[c->world];
    return cost_send(c, right_of(c), (all - own) * (int64_t)element, c->world - 1);  // its own piece is only received
}

// Up the binomial tree to rank 0 and down again: once to the parent, once to each child.
static void add_tree(comm_cost *x, const comm *c, int64_t bytes) {
    int low = 1;
    while (c->rank ? !(c->rank & low) : low < c->world) low *= 2;
    if (c->rank) add(x, c, c->rank - low, bytes);
    for (int bit = low / 2; bit > 0; bit /= 2)
        if (c->rank + bit < c->world) add(x, c, c->rank + bit, bytes);
}

static comm_cost cost_small(const comm *c, int64_t bytes) {
    comm_cost x = {0};
    for (int r = 0; r < c->world && c->world <= COST_SMALL_RANKS; r++)
        if (r != c->rank) add(&x, c, r, bytes);
    if (c->world > COST_SMALL_RANKS) add_tree(&x, c, bytes);
    return x;
}

// Where a rank's piece of an all_reduce begins, in elements.
static size_t piece_at(const comm *c, size_t count, int rank) {
    if (rank == c->world) return count;
    return count / (size_t)c->world * (size_t)rank / COST_PIECE_ELEMENTS * COST_PIECE_ELEMENTS;
}

// Two rings: first a rank sends every piece but its own, then every piece but its neighbour's.
static comm_cost cost_rings(const comm *c, size_t count, size_t element) {
    int me = c->rank, right = right_of(c);
    size_t own = piece_at(c, count, me + 1) - piece_at(c, count, me),
           next = piece_at(c, count, right + 1) - piece_at(c, count, right);
    return cost_send(c, right, (int64_t)((2 * count - own - next) * element), 2 * (c->world - 1));
}

// On one host the second half goes to all others at once. There are as many ranks as a host has: few.
comm_cost cost_all_reduce(const comm *c, size_t count, size_t element) {
    if (c->world == 1) return (comm_cost){0};
    if (count * element <= (c->world <= COST_SMALL_RANKS ? COST_SMALL_BYTES : COST_TREE_BYTES))
        return cost_small(c, (int64_t)(count * element));
    if (!one_host(c)) return cost_rings(c, count, element);
    size_t cut[c->world + 1];
    for (int r = 0; r <= c->world; r++) cut[r] = piece_at(c, count, r) * element;
    return cost_add(cost_reduce_scatter(c, cut, 1), cost_all_gather(c, cut));
}

static void close_imaginary(comm *c) { free(c); }
static const comm_table imaginary = {.name = "plan", .close = close_imaginary};

err_t comm_imaginary_open(comm **out, int rank, int world, const comm_place *place) {
    comm *c = malloc(sizeof *c);
    if (!c) return err_set(ERR_INTERNAL, "no memory for a communicator");
    *c = (comm){.table = &imaginary, .rank = rank, .world = world, .place = place, .host = c};
    *out = c;
    return ERR_OK;
}

err_t comm_even_open(comm **out, int rank, int world, const comm_even *even) {
    TRY(comm_imaginary_open(out, rank, world, NULL));
    (*out)->even = *even;
    return ERR_OK;
}
