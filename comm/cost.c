// comm/cost.c: see comm/cost.h, and the table of what a rank sends at the top of comm/tcp/tcp.c, which this follows.
#include "comm/cost.h"

#include "comm/hosts.h"

#include <stdlib.h>

static bool one_host(const comm *c) { return comm_nodes(c) == 1; }
static int right_of(const comm *c) { return (c->rank + 1) % c->world; }

static void add(comm_cost *x, const comm *c, int peer, int64_t bytes) {
    *x = cost_add(*x, cost_send(c, peer, bytes, 1));
}

static int64_t piece_bytes(const size_t *cut, int rank) { return (int64_t)(cut[rank + 1] - cut[rank]); }

// A rank sends its own piece to all of its node and once to each other node, and the pieces of other nodes that it
// hands on to all of its own.
comm_cost cost_all_gather(const comm *c, const size_t *cut) {
    int first[c->world + 1], member[c->world], here = 0;
    hosts h = {0, first, member};
    comm_cost x = {0};
    hosts_of(&h, c);
    for (int r = 0; r < c->world; r++) {
        bool near = c->place[r].node == c->place[c->rank].node;
        here += near && r != c->rank;
        if (r != c->rank && (near || hosts_hands_on(&h, c, r, c->rank))) add(&x, c, r, piece_bytes(cut, c->rank));
    }
    for (int r = 0; r < c->world; r++)
        if (hosts_hands_on(&h, c, c->rank, r)) {
            x.sent += here * piece_bytes(cut, r);
            x.messages += here;
        }
    return x;
}

// The second half of an all_reduce: on one host as above, else in a ring, in which a rank sends every piece but one.
static comm_cost cost_gather_again(const comm *c, const size_t *cut) {
    int right = right_of(c);
    if (one_host(c)) return cost_all_gather(c, cut);
    return cost_send(c, right, (int64_t)cut[c->world] - piece_bytes(cut, right), c->world - 1);
}

// On one host a rank sends every other rank its piece; in a ring it sends all pieces but its own to one neighbour. Both
// are the same bytes.
comm_cost cost_reduce_scatter(const comm *c, const size_t *cut, size_t element) {
    if (c->world == 1) return (comm_cost){0};
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

comm_cost cost_all_reduce(const comm *c, size_t count, size_t element) {
    size_t cut[c->world + 1];
    if (c->world == 1) return (comm_cost){0};
    if (count * element <= (c->world <= COST_SMALL_RANKS ? COST_SMALL_BYTES : COST_TREE_BYTES))
        return cost_small(c, (int64_t)(count * element));
    for (int r = 0; r <= c->world; r++)
        cut[r] =
            (r == c->world ? count : count / (size_t)c->world * (size_t)r / COST_PIECE_ELEMENTS * COST_PIECE_ELEMENTS) *
            element;
    return cost_add(cost_reduce_scatter(c, cut, 1), cost_gather_again(c, cut));
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
