// comm/tcp/tcp.c: the transport that needs nothing but the operating system: collectives over shared memory and TCP,
// each described as flows of messages for the engine in comm/tcp/mesh.c. All calls work in the calling thread and
// return when this rank's part is done.
//
// What a rank sends, N ranks, B bytes (what it receives follows by symmetry, where there is one):
//     exchange, all_to_all       what the lists say; B to each other rank
//     reduce_scatter             its share of the others' pieces: B minus its own piece
//     all_gather                 its own piece to each rank of its host, and once to each other host of its rack and to
//                                each other rack; there the rank that it comes to hands it on (comm/levels.h)
//     all_reduce, small          B to each other rank (N <= COST_SMALL_RANKS), else up a binomial tree and down again
//     all_reduce, beyond         a reduce_scatter and an all_gather of equal pieces in one go: 2 B (N-1)/N
//     broadcast                  B once along a chain, from COST_CHAIN_BYTES on; below that down a binomial tree over
//                                the ranks in the chain's order
//     barrier                    nothing: messages without payload
#include "comm/cost.h"
#include "comm/levels.h"
#include "comm/tcp/mesh.h"
#include "comm/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TCP_BY = 256 };  // bytes of a text that describes what carries frames

typedef struct tcp_comm {
    comm head;
    mesh *m;
    uint16_t id;
    bool one_host;
    int *map;           // rank here -> rank in the team
    comm_place *place;  // of a part of the team: its own, with its nodes counted anew. The whole team uses the launch's
    levels at;
    int *room;        // of `at`
    int *in, *out;    // [world] pieces of an all_gather that come from a rank, and go there
    int *turn;        // [world] which of those that come on its way here a rank's piece is
    int *order;       // [world] for broadcast
    size_t *cut;      // world + 1, for all_reduce
    comm_part *part;  // 2 * world, for all_to_all
    char *scratch;    // what others sent of a small all_reduce: COST_SMALL_RANKS or log2(world) slots
} tcp_comm;

static int left_of(int r, int world) { return r == 0 ? world - 1 : r - 1; }
static int wrap(int r, int world) { return ((r % world) + world) % world; }

static mesh_call call_of(tcp_comm *t, mesh_op op, void (*next)(const mesh_call *, flow *), const void *plan) {
    return (mesh_call){.c = &t->head, .op = op, .id = t->id, .map = t->map, .next = next, .plan = plan, .m = t->m};
}

// --- exchange --------------------------------------------------------------------------------------------------------

typedef struct lists {
    const comm_part *send, *recv;
} lists;

// Each flow scans the list once for its own messages: parts times peers steps in all, without allocating.
static void next_listed(const mesh_call *x, flow *f) {
    const lists *l = x->plan;
    const comm_part *p = (f->out ? l->send : l->recv) + f->cursor;
    while (p->peer != f->rank) p++;
    f->data = p->data;
    f->bytes = p->bytes;
    f->cursor = (int)(p - (f->out ? l->send : l->recv)) + 1;
}

static err_t check_list(const comm *c, const comm_part *part, int n) {
    for (int i = 0; i < n; i++)
        if (part[i].peer < 0 || part[i].peer >= c->world || part[i].peer == c->rank)
            return err_set(ERR_INTERNAL, "an exchange with rank %d, expected one of 0 to %d and not %d itself",
                           part[i].peer, c->world - 1, c->rank);
    return ERR_OK;
}

static void add_list(const mesh_call *x, const comm_part *part, int n, bool out) {
    for (int i = 0; i < n; i++) {
        flow *f = mesh_flow(x, part[i].peer, out);
        if (f->n++ == 0) f->cursor = i;
    }
}

static err_t move_lists(tcp_comm *t, mesh_op op, const comm_part *send, int sends, const comm_part *recv, int recvs) {
    lists l = {send, recv};
    mesh_call x = call_of(t, op, next_listed, &l);
    TRY(mesh_begin(&x));
    add_list(&x, recv, recvs, false);
    add_list(&x, send, sends, true);
    return mesh_run(&x);
}

static err_t tcp_exchange(comm *c, const comm_part *send, int sends, const comm_part *recv, int recvs, stream *s) {
    (void)s;
    TRY(check_list(c, send, sends));
    TRY(check_list(c, recv, recvs));
    return move_lists((tcp_comm *)c, OP_EXCHANGE, send, sends, recv, recvs);
}

static err_t tcp_all_to_all(comm *c, void *out, const void *in, size_t each, stream *s) {
    (void)s;
    tcp_comm *t = (tcp_comm *)c;
    comm_part *send = t->part, *recv = t->part + c->world;
    for (int i = 1; i < c->world; i++) {
        int to = (c->rank + i) % c->world, from = wrap(c->rank - i, c->world);
        send[i - 1] = (comm_part){to, (char *)(uintptr_t)in + (size_t)to * each, each};
        recv[i - 1] = (comm_part){from, (char *)out + (size_t)from * each, each};
    }
    if (each) memcpy((char *)out + (size_t)c->rank * each, (const char *)in + (size_t)c->rank * each, each);
    return move_lists(t, OP_ALL_TO_ALL, send, c->world - 1, recv, c->world - 1);
}

// --- pieces: reduce_scatter, all_gather, and both --------------------------------------------------------------------

typedef struct pieces {
    char *data;
    const size_t *cut;  // in units
    size_t unit;        // bytes
    sum_fn *add;        // NULL: no reduce_scatter
    bool gather;
} pieces;

static void take_piece(const pieces *p, flow *f, int piece) {
    f->data = p->data + p->cut[piece] * p->unit;
    f->bytes = (p->cut[piece + 1] - p->cut[piece]) * p->unit;
}

// One host: every rank sends each piece to its owner. The owner adds straight out of the rings, one after the other:
// own + right neighbour's + next one's... Then it sends its piece to all, and never overtakes the last addition.
// Nothing is overwritten too early: an owner sends a byte of the sum only when it has that byte of every rank, this
// rank's among them.
static void next_direct(const mesh_call *x, flow *f) {
    const pieces *p = x->plan;
    int me = x->c->rank, world = x->c->world, last = left_of(me, world), before = left_of(f->rank, world);
    bool reduces = p->add && f->k == 0, mine = f->out != reduces;
    take_piece(p, f, mine ? me : f->rank);
    if (!mine) return;
    if (f->out && p->add) f->gate = mesh_flow(x, last, false);
    if (!f->out) f->add = p->add;
    if (!f->out && before != me) f->gate = mesh_flow(x, before, false);
}

// Several hosts: a ring in rank order, so that one flow leaves and one enters each host. Piece r-1 starts at rank r, is
// added to on its way round until it reaches its owner, and then goes round once more unchanged. Message k+1 out is
// message k in.
static void next_ring(const mesh_call *x, flow *f) {
    const pieces *p = x->plan;
    int me = x->c->rank, world = x->c->world, adds = p->add ? world - 1 : 0, turn = p->add ? f->k : f->k + world - 1;
    take_piece(p, f, wrap(me - 1 - turn - !f->out, world));
    if (!f->out && f->k < adds) f->add = p->add;
    if (f->out && f->k > 0) f->gate = mesh_flow(x, left_of(me, world), false), f->gate_k = f->k - 1;
}

// all_gather over several hosts: pieces go on the routes of comm/levels.h. A rank sends another one its own piece
// first, if that is its way, and then those that it hands on, in order of owners.
static void next_staged(const mesh_call *x, flow *f) {
    const pieces *p = x->plan;
    const tcp_comm *t = (const tcp_comm *)x->c;
    int me = x->c->rank, from = f->out ? me : f->rank, to = f->out ? f->rank : me, piece = from;
    if (f->k == 0) f->cursor = 0;
    if (f->k > 0 || levels_from(&t->at, from, to) != from) {
        for (piece = f->cursor; piece == from || levels_from(&t->at, piece, to) != from; piece++) {}
        f->cursor = piece + 1;
    }
    if (f->out && piece != me) {
        f->gate = mesh_flow(x, levels_from(&t->at, piece, me), false);
        f->gate_k = t->turn[piece];
    }
    take_piece(p, f, piece);
}

// What all_gather sends on which way. It is the same in all calls.
static void count_pieces(tcp_comm *t) {
    int world = t->head.world, me = t->head.rank;
    for (int r = 0; r < world; r++) {
        t->in[r] = r != me && levels_from(&t->at, r, me) == r;
        t->turn[r] = t->out[r] = 0;
        for (int p = 0; p < world; p++) t->out[r] += levels_from(&t->at, p, r) == me;
    }
    for (int p = 0; p < world; p++) {
        int from = levels_from(&t->at, p, me);
        if (from >= 0 && from != p) t->turn[p] = t->in[from]++;
    }
}

static err_t gather_staged(tcp_comm *t, const pieces *p) {
    mesh_call x = call_of(t, OP_ALL_GATHER, next_staged, p);
    TRY(mesh_begin(&x));
    for (int r = 0; r < t->head.world; r++) {
        if (t->in[r]) mesh_add(&x, r, false, t->in[r]);
        if (t->out[r]) mesh_add(&x, r, true, t->out[r]);
    }
    return mesh_run(&x);
}

static err_t move_pieces(tcp_comm *t, mesh_op op, const pieces *p) {
    int world = t->head.world, me = t->head.rank, phases = (p->add != NULL) + p->gather;
    mesh_call x = call_of(t, op, t->one_host ? next_direct : next_ring, p);
    TRY(mesh_begin(&x));
    if (t->one_host)
        for (int i = 1; i < world; i++) {
            mesh_add(&x, (me + i) % world, false, phases);
            mesh_add(&x, wrap(me - i, world), true, phases);
        }
    else if (world > 1) {
        mesh_add(&x, left_of(me, world), false, phases * (world - 1));
        mesh_add(&x, (me + 1) % world, true, phases * (world - 1));
    }
    return mesh_run(&x);
}

static err_t adder(sum_fn **add, dtype type, reduce_op op) {
    *add = sum_of(type, op);
    return *add ? ERR_OK
                : err_set(ERR_INTERNAL, "a sum of elements of type %d: expected FP32, FP64 or INT32", (int)type);
}

static err_t tcp_reduce_scatter(comm *c, void *data, const size_t *cut, dtype type, stream *s) {
    (void)s;
    pieces p = {.data = data, .cut = cut, .unit = dtype_bytes(type)};
    TRY(adder(&p.add, type, REDUCE_SUM));
    return move_pieces((tcp_comm *)c, OP_REDUCE_SCATTER, &p);
}

static err_t tcp_all_gather(comm *c, void *data, const size_t *cut, stream *s) {
    (void)s;
    tcp_comm *t = (tcp_comm *)c;
    pieces p = {.data = data, .cut = cut, .unit = 1, .gather = true};
    return t->one_host ? move_pieces(t, OP_ALL_GATHER, &p) : gather_staged(t, &p);
}

// --- one block: broadcast, small all_reduce --------------------------------------------------------------------------

typedef struct block {
    char *data;
    size_t bytes;
    const flow *from;  // the incoming flow of what is sent on, never overtaken; NULL where the block starts here
    char *slots;       // reduction: what comes from the i-th sender goes to slot i
    int slot[COST_SMALL_RANKS > 16 ? COST_SMALL_RANKS : 16];
} block;

static void next_block(const mesh_call *x, flow *f) {
    const block *b = x->plan;
    f->bytes = b->bytes;
    f->data = !f->out && b->slots ? b->slots + (size_t)f->cursor * b->bytes : b->data;
    if (f->out) f->gate = b->from;
}

// The binomial tree over ranks counted from the root: v's parent is v without its lowest bit, its children are v plus
// each lower bit.
static int low_bit(int v, int world) {
    int bit = 1;
    while (v ? !(v & bit) : bit < world) bit *= 2;
    return bit;
}

// order: the ranks from the root on; NULL: as they are numbered.
static void broadcast_down(const mesh_call *x, block *b, const int *order) {
    int world = x->c->world, v = 0;
    while ((order ? order[v] : v) != x->c->rank) v++;
    int low = low_bit(v, world);
    bool chain = b->bytes >= COST_CHAIN_BYTES;
    if (v > 0) {
        int from = chain ? v - 1 : v - low;
        flow *in = mesh_flow(x, order ? order[from] : from, false);
        in->n = 1;
        b->from = in;
    }
    if (chain && v + 1 < world) mesh_add(x, order ? order[v + 1] : v + 1, true, 1);
    for (int bit = low / 2; !chain && bit > 0; bit /= 2)
        if (v + bit < world) mesh_add(x, order ? order[v + bit] : v + bit, true, 1);
}

static err_t tcp_broadcast(comm *c, void *data, size_t bytes, int root, stream *s) {
    (void)s;
    if (root < 0 || root >= c->world) return err_set(ERR_INTERNAL, "a broadcast from rank %d of %d", root, c->world);
    tcp_comm *t = (tcp_comm *)c;
    block b = {.data = data, .bytes = bytes};
    mesh_call x = call_of(t, OP_BROADCAST, next_block, &b);
    TRY(mesh_begin(&x));
    levels_chain(&t->at, root, t->order);
    broadcast_down(&x, &b, t->order);
    return mesh_run(&x);
}

// Few ranks: every rank sends to every other and adds in the order of the ranks.
static err_t reduce_everywhere(tcp_comm *t, mesh_call *x, block *b, sum_fn *add) {
    int world = t->head.world, me = t->head.rank;
    for (int i = 1; i < world; i++) {
        int from = (me + i) % world;
        flow *f = mesh_flow(x, from, false);
        f->n = 1;
        f->cursor = from;
        mesh_add(x, wrap(me - i, world), true, 1);
    }
    TRY(mesh_run(x));
    memcpy(b->slots + (size_t)me * b->bytes, b->data, b->bytes);
    memcpy(b->data, b->slots, b->bytes);
    for (int r = 1; r < world; r++) add(b->data, b->slots + (size_t)r * b->bytes, b->bytes);
    return ERR_OK;
}

// Many ranks: up the tree to rank 0, which broadcasts the result. Fewer messages in all, and each costs a wake-up.
static err_t reduce_by_tree(tcp_comm *t, mesh_call *x, block *b, sum_fn *add) {
    int world = t->head.world, me = t->head.rank, low = low_bit(me, world), children = 0;
    for (int bit = 1; bit < low && me + bit < world; bit *= 2) {
        flow *f = mesh_flow(x, me + bit, false);
        f->n = 1;
        f->cursor = children++;
    }
    TRY(mesh_run(x));
    for (int i = 0; i < children; i++) add(b->data, b->slots + (size_t)i * b->bytes, b->bytes);
    if (me > 0) mesh_add(x, me - low, true, 1);
    TRY(mesh_run(x));
    b->slots = NULL;
    broadcast_down(x, b, NULL);
    return mesh_run(x);
}

static err_t reduce_small(tcp_comm *t, void *data, size_t bytes, sum_fn *add) {
    block b = {.data = data, .bytes = bytes, .slots = t->scratch};
    mesh_call x = call_of(t, OP_ALL_REDUCE, next_block, &b);
    TRY(mesh_begin(&x));
    return t->head.world <= COST_SMALL_RANKS ? reduce_everywhere(t, &x, &b, add) : reduce_by_tree(t, &x, &b, add);
}

static err_t tcp_all_reduce(comm *c, void *data, size_t count, dtype type, reduce_op op, stream *s) {
    (void)s;
    tcp_comm *t = (tcp_comm *)c;
    size_t unit = dtype_bytes(type), world = (size_t)c->world;
    pieces p = {.data = data, .cut = t->cut, .unit = unit, .gather = true};
    TRY(adder(&p.add, type, op));
    if (count == 0) p.data = t->scratch;  // may be NULL
    if (count * unit <= (c->world <= COST_SMALL_RANKS ? COST_SMALL_BYTES : COST_TREE_BYTES))
        return reduce_small(t, p.data, count * unit, p.add);
    for (size_t r = 0; r <= world; r++)
        t->cut[r] = r == world ? count : count / world * r / COST_PIECE_ELEMENTS * COST_PIECE_ELEMENTS;
    return move_pieces(t, OP_ALL_REDUCE, &p);
}

// --- barrier ---------------------------------------------------------------------------------------------------------

// Few ranks: every rank signals every other. Many: in round j rank r signals r + 2^j (Hensgen, Finkel, Manber 1988),
// and then knows of 2^(j+1) ranks.
static err_t tcp_barrier(comm *c, stream *s) {
    (void)s;
    block b = {0};
    mesh_call x = call_of((tcp_comm *)c, OP_BARRIER, next_block, &b);
    TRY(mesh_begin(&x));
    for (int i = 1; i < c->world && c->world <= COST_SMALL_RANKS; i++) {
        mesh_add(&x, (c->rank + i) % c->world, true, 1);
        mesh_add(&x, wrap(c->rank - i, c->world), false, 1);
    }
    TRY(mesh_run(&x));
    for (int bit = 1; bit < c->world && c->world > COST_SMALL_RANKS; bit *= 2) {
        mesh_add(&x, (c->rank + bit) % c->world, true, 1);
        mesh_add(&x, wrap(c->rank - bit, c->world), false, 1);
        TRY(mesh_run(&x));
    }
    return ERR_OK;
}

// --- open, split, close ----------------------------------------------------------------------------------------------

static const comm_table tcp_table;

static void tcp_close(comm *c) {
    tcp_comm *t = (tcp_comm *)c;
    mesh_close(t->m);
    free(t->map), free(t->place), free(t->room), free(t->cut), free(t->part), free(t->scratch), free(t);
}

static size_t scratch_bytes(int world) {
    size_t log = 1;
    while (1 << log < world) log++;
    return world <= COST_SMALL_RANKS ? (size_t)world * COST_SMALL_BYTES : log * COST_TREE_BYTES;
}

// A communicator over ranks map[world] of the team, without places. It owns one reference to m, also when this fails.
static err_t make(tcp_comm **out, mesh *m, const int *map, int world, int rank) {
    size_t n = (size_t)world;
    tcp_comm *t = calloc(1, sizeof *t);
    if (!t) {
        mesh_close(m);
        return err_set(ERR_INTERNAL, "no memory for a communicator");
    }
    t->m = m;
    t->head = (comm){.table = &tcp_table, .rank = rank, .world = world, .host = &t->head};
    t->map = malloc(n * sizeof *t->map);
    t->cut = malloc((n + 1) * sizeof *t->cut);
    t->part = malloc(2 * n * sizeof *t->part);
    t->scratch = malloc(scratch_bytes(world));
    t->room = malloc(((size_t)levels_room(world) + 4 * n) * sizeof *t->room);
    if (!t->room || !t->map || !t->cut || !t->part || !t->scratch) {
        tcp_close(&t->head);
        return err_set(ERR_INTERNAL, "no memory for a communicator of %d ranks", world);
    }
    const comm_place *all = team_at(mesh_team(m))->place;
    t->one_host = true;
    for (int r = 0; r < world; r++) {
        t->map[r] = map ? map[r] : r;
        t->one_host &= all[t->map[r]].node == all[t->map[0]].node;
    }
    *out = t;
    return ERR_OK;
}

// Once it has its places.
static void look_around(tcp_comm *t) {
    int n = t->head.world;
    levels_of(&t->at, &t->head, t->room);
    t->in = t->room + levels_room(n), t->out = t->in + n, t->turn = t->out + n, t->order = t->turn + n;
    if (!t->one_host) count_pieces(t);
}

err_t comm_tcp_open_over(comm **out, team *t, const transport_options *o, link_engine *engine) {
    const launch *at = team_at(t);
    mesh *m;
    tcp_comm *c;
    *out = NULL;
    TRY(mesh_open(&m, t, o->timeout_s, engine));
    TRY(make(&c, m, NULL, at->world, at->rank));
    c->head.place = at->place;
    look_around(c);
    mesh_wires(m)->first = &c->head;
    *out = &c->head;
    return ERR_OK;
}

err_t comm_tcp_open(comm **out, team *t, const transport_options *o) { return comm_tcp_open_over(out, t, o, NULL); }

// What a rank says of itself when a communicator is split. seat: of a communicator of another channel, -1 where it
// needs none.
typedef struct ballot {
    int32_t color, key, rank, next_id, channel, seat;
} ballot;
enum { NO_SEAT_LEFT = -2 };

static int by_key(const void *a, const void *b) {
    const ballot *x = a, *y = b;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : x->rank - y->rank;
}

// Where the ranks of a part are: nodes and racks are counted anew, in the order in which they appear.
static err_t places_of(tcp_comm *child) {
    const comm_place *all = team_at(mesh_team(child->m))->place;
    int world = child->head.world, nodes = 0, racks = 0;
    child->place = calloc((size_t)world, sizeof *child->place);
    if (!child->place) return err_set(ERR_INTERNAL, "no memory for the places of %d ranks", world);
    for (int r = 0; r < world; r++) {
        comm_place *p = &child->place[r];
        *p = all[child->map[r]];
        int node = p->node, rack = p->rack, same = 0, beside = 0;
        while (beside < r && all[child->map[beside]].rack != rack) beside++;
        p->rack = beside < r ? child->place[beside].rack : racks++;
        for (p->local = 0; same < r && all[child->map[same]].node != node; same++) {}
        p->node = same < r ? child->place[same].node : nodes++;
        for (; same < r; same++) p->local += child->place[same].node == p->node;
    }
    child->head.place = child->place;
    look_around(child);
    return ERR_OK;
}

// The mesh of a part: its parent's, or one of its own.
static err_t mesh_for(tcp_comm *t, mesh **out, const int *map, const int *seat, int members, int channel) {
    if (channel) return mesh_branch(out, t->m, channel, map, seat, members);
    *out = mesh_share(t->m);
    return ERR_OK;
}

static err_t make_part(tcp_comm *t, ballot *mine, int members, uint16_t id, comm **out) {
    int rank = 0, *map = malloc((size_t)members * sizeof *map), *seat = malloc((size_t)members * sizeof *seat);
    qsort(mine, (size_t)members, sizeof *mine, by_key);
    for (int i = 0; i < members; i++) {
        if (map) map[i] = t->map[mine[i].rank];
        if (seat) seat[i] = mine[i].seat;
        if (mine[i].rank == t->head.rank) rank = i;
    }
    if (seat && members == 1) wires_leave_seat(mesh_wires(t->m), seat[0]), seat[0] = -1;  // it waits for nobody
    tcp_comm *child = NULL;
    mesh *m;
    err_t rc = ERR_OK;
    if (map && seat) rc = mesh_for(t, &m, map, seat, members, mine[0].channel);
    else rc = err_set(ERR_INTERNAL, "no memory for a part of %d ranks", members);
    if (rc == ERR_OK) rc = make(&child, m, map, members, rank);
    free(map), free(seat);
    TRY(rc);
    child->id = id;
    if ((rc = places_of(child)) != ERR_OK) {
        err_record why = *err_last();
        tcp_close(&child->head);
        return err_restore(&why);
    }
    *out = &child->head;
    return ERR_OK;
}

// Can ranks a and b of the communicator be in one part?
static err_t check_pair(const tcp_comm *t, const ballot *a, const ballot *b) {
    const launch *at = team_at(mesh_team(t->m));
    char name[COMM_NAME], other[COMM_NAME];
    if (a->seat == NO_SEAT_LEFT || b->seat == NO_SEAT_LEFT)
        return err_set(
            ERR_INTERNAL,
            "%s has %d communicators of further channels already, as many as it has seats: launch_channels declares them",
            comm_rank_text(&t->head, a->seat == NO_SEAT_LEFT ? a->rank : b->rank, name), at->plan.seats);
    if (launch_connects(at, a->channel, t->map[a->rank], t->map[b->rank])) return ERR_OK;
    return err_set(ERR_INTERNAL, "%s and %s have no connection on channel %d: launch_channels declares which do",
                   comm_rank_text(&t->head, a->rank, name), comm_rank_text(&t->head, b->rank, other), a->channel);
}

// Can what the ballots ask for be done? All ranks see the same ballots, and give the same answer.
static err_t check_ballots(const tcp_comm *t, const ballot *all) {
    int channels = team_at(mesh_team(t->m))->plan.channels;
    char name[COMM_NAME], other[COMM_NAME];
    for (int r = 0; r < t->head.world; r++) {
        const ballot *b = &all[r];
        if (b->channel != all[0].channel)
            return err_set(ERR_INTERNAL, "%s splits for channel %d, %s for channel %d: all ranks must name the same",
                           comm_rank_text(&t->head, r, name), b->channel, comm_rank_text(&t->head, 0, other),
                           all[0].channel);
        if (b->channel < 0 || b->channel > channels)
            return err_set(ERR_INTERNAL, "a split for channel %d, expected 0 to %d: launch_channels declares them",
                           b->channel, channels);
        for (int q = 0; q < r && b->channel && b->color >= 0; q++)
            if (all[q].color == b->color) TRY(check_pair(t, &all[q], b));
    }
    return ERR_OK;
}

// Every rank gets all ballots and draws the same conclusions. The parts of one split share an id: no rank is in two of
// them.
static err_t count_ballots(tcp_comm *t, ballot *all, comm **out) {
    ballot own = all[t->head.rank];
    int world = t->head.world, members = 0, id = 0;
    for (int r = 0; r < world; r++) t->cut[r + 1] = (size_t)(r + 1) * sizeof *all;
    t->cut[0] = 0;
    err_t rc;
    TRY_GOTO(move_pieces(t, OP_SPLIT, &(pieces){.data = (char *)all, .cut = t->cut, .unit = 1, .gather = true}), fail);
    TRY_GOTO(check_ballots(t, all), fail);
    for (int r = 0; r < world; r++) {
        if (all[r].next_id > id) id = all[r].next_id;
        if (all[r].color == own.color) all[members++] = all[r];
    }
    rc = id < UINT16_MAX ? ERR_OK : err_set(ERR_INTERNAL, "more than %d communicators in one run", UINT16_MAX);
    if (rc != ERR_OK) goto fail;
    mesh_wires(t->m)->next_id = (uint16_t)(id + 1);
    if (own.color >= 0) TRY_GOTO(make_part(t, all, members, (uint16_t)id, out), fail);
    return ERR_OK;
fail:
    wires_leave_seat(mesh_wires(t->m), own.seat);
    return rc;
}

static int seat_for(wires *w, int color, int channel) {
    if (color < 0 || channel <= 0 || !w->at->more) return -1;
    int seat = wires_take_seat(w);
    return seat < 0 ? NO_SEAT_LEFT : seat;
}

static err_t tcp_split(comm *c, int color, int key, int channel, comm **out) {
    tcp_comm *t = (tcp_comm *)c;
    wires *w = mesh_wires(t->m);
    ballot *all = calloc((size_t)c->world, sizeof *all);
    *out = NULL;
    if (!all) return err_set(ERR_INTERNAL, "no memory to split a communicator of %d ranks", c->world);
    all[c->rank] = (ballot){color, key, c->rank, w->next_id, channel, seat_for(w, color, channel)};
    err_t rc = count_ballots(t, all, out);
    free(all);
    return rc;
}

static void tcp_alive(comm *c) { team_alive(mesh_team(((tcp_comm *)c)->m)); }
static err_t tcp_query(comm *c) { return team_query(mesh_team(((tcp_comm *)c)->m)); }

static void tcp_abort(comm *c, const char *why) {
    char text[ERR_TEXT];
    snprintf(text, sizeof text, "gives up: %s", why);  // the team adds which rank
    team *t = mesh_team(((tcp_comm *)c)->m);
    if (c->phase.what) team_fail_in(t, text, &c->phase);
    else team_fail(t, text);
}

static void tcp_describe(const comm *c, char *dst, size_t room) {
    bool near = false, far = comm_nodes(c) > 1;
    for (int r = 1; r < c->world; r++) near |= c->place[r].node == c->place[r - 1].node;
    const link_engine *engine = mesh_wires(((const tcp_comm *)c)->m)->engine;
    char by[TCP_BY] = "TCP";
    if (engine) engine->describe(engine, by, sizeof by);
    snprintf(dst, room, "%s%s%s", near ? "shared memory" : "", near && far ? " and " : "", far ? by : "");
}

static err_t tcp_register(comm *c, void *base, size_t bytes) {
    link_engine *engine = mesh_wires(((tcp_comm *)c)->m)->engine;
    return engine ? engine->register_memory(engine, base, bytes) : ERR_OK;
}

static const comm_table tcp_table = {
    .name = "tcp",
    .exchange = tcp_exchange,
    .all_reduce = tcp_all_reduce,
    .reduce_scatter = tcp_reduce_scatter,
    .all_gather = tcp_all_gather,
    .broadcast = tcp_broadcast,
    .all_to_all = tcp_all_to_all,
    .barrier = tcp_barrier,
    .split = tcp_split,
    .alive = tcp_alive,
    .query = tcp_query,
    .abort = tcp_abort,
    .register_memory = tcp_register,
    .describe = tcp_describe,
    .close = tcp_close,
};
