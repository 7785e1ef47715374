// comm/groups.c: see comm/groups.h.
#include "comm/groups.h"

#include "base/text.h"
#include "comm/cost.h"

#include <stdio.h>
#include <stdlib.h>

// --- layouts ---------------------------------------------------------------------------------------------------------

static err_t no_grid(const grid *wanted, int world) {
    char data[16] = "the rest", context[40] = "", tensor[40] = "", islands[48] = "";
    if (wanted->data) snprintf(data, sizeof data, "%d", wanted->data);
    if (grid_context(wanted) > 1) snprintf(context, sizeof context, "context = %d, ", grid_context(wanted));
    if (wanted->tensor > 1) snprintf(tensor, sizeof tensor, "tensor = %d, ", wanted->tensor);
    if (grid_islands(wanted) > 1) snprintf(islands, sizeof islands, " and [outer] islands = %d", grid_islands(wanted));
    return err_set(ERR_CONFIG,
                   "[parallel] data = %s, %s%spipeline = %d%s %s %d rank%s: their product must be that number", data,
                   context, tensor, wanted->pipeline, islands, wanted->data ? "are not" : "does not divide", world,
                   world == 1 ? "" : "s");
}

err_t grid_of(grid *out, int world, const grid *wanted) {
    grid g = *wanted;
    if (world < 1 || g.data < 0 || g.tensor < 1 || g.pipeline < 1 || g.context < 0 || g.islands < 0)
        return err_set(
            ERR_CONFIG,
            "[parallel] data = %d, context = %d, tensor = %d, pipeline = %d, [outer] islands = %d: expected 0 or more, and 1 or more",
            g.data, grid_context(&g), g.tensor, g.pipeline, grid_islands(&g));
    int64_t model = (int64_t)g.tensor * g.pipeline * grid_context(&g);
    if (model > world) return no_grid(wanted, world);
    model *= grid_islands(&g);
    if (g.data == 0 && world % model == 0) g.data = (int)(world / model);
    if (g.data * model != world) return no_grid(wanted, world);
    *out = g;
    return ERR_OK;
}

grid_place grid_at(const grid *g, int rank) {
    int island = grid_island(g), replica = rank % island / g->tensor, context = grid_context(g);
    return (grid_place){.island = rank / island,
                        .stage = replica / context / g->data,
                        .data = replica / context % g->data,
                        .context = replica % context,
                        .tensor = rank % g->tensor};
}

int grid_rank(const grid *g, grid_place p) {
    int rank = ((p.stage * g->data + p.data) * grid_context(g) + p.context) * g->tensor + p.tensor;
    return p.island * grid_island(g) + rank;
}

const char *grid_text(const grid *g, int rank, char dst[GRID_TEXT]) {
    grid_place p = grid_at(g, rank);
    char context[24] = "", island[24] = "";
    if (grid_context(g) > 1) snprintf(context, sizeof context, "context %d, ", p.context);
    if (grid_islands(g) > 1) snprintf(island, sizeof island, "island %d, ", p.island);
    snprintf(dst, GRID_TEXT, "rank %d (%sstage %d, data %d, %stensor %d)", rank, island, p.stage, p.data, context,
             p.tensor);
    return dst;
}

const char *grid_shape(const grid *g, char dst[GRID_SHAPE]) {
    text t = {.at = dst, .room = GRID_SHAPE};
    if (g->tensor > 1) text_put(&t, "tensor %d x ", g->tensor);
    if (grid_context(g) > 1) text_put(&t, "context %d x ", grid_context(g));
    text_put(&t, "pipeline %d x data %d", g->pipeline, g->data);
    if (grid_islands(g) > 1) text_put(&t, " x islands %d", grid_islands(g));
    return dst;
}

const char *grid_role(const grid *g, int rank, char dst[COMM_ROLE]) {
    grid_place p = grid_at(g, rank);
    const char *const name[] = {"island", "stage", "data", "context", "tensor"};
    const int of[] = {grid_islands(g), g->pipeline, g->data, grid_context(g), g->tensor},
              at[] = {p.island, p.stage, p.data, p.context, p.tensor};
    text t = {.at = dst, .room = COMM_ROLE};
    dst[0] = 0;
    for (int k = 0; k < 5; k++)
        if (of[k] > 1 && (k != 2 || !g->servers || grid_is_divided(g))) text_put(&t, ", %s %d", name[k], at[k]);
    if (grid_serves(g, rank)) text_put(&t, ", server");
    return dst;
}

// --- groups ----------------------------------------------------------------------------------------------------------

int grid_group_size(const grid *g, group_kind kind) {
    switch (kind) {
    case GROUP_DATA: return g->data * grid_context(g);
    case GROUP_TENSOR: return g->tensor;
    case GROUP_STAGE: return g->data * grid_context(g) * g->tensor;
    case GROUP_LINE: return g->pipeline;
    case GROUP_CONTEXT: return grid_context(g);
    case GROUP_ISLANDS: return grid_islands(g);
    case GROUP_KINDS: break;
    }
    return 0;
}

int grid_group_index(const grid *g, group_kind kind, int rank) {
    grid_place p = grid_at(g, rank);
    int replica = p.data * grid_context(g) + p.context;
    switch (kind) {
    case GROUP_DATA: return replica;
    case GROUP_TENSOR: return p.tensor;
    case GROUP_STAGE: return replica * g->tensor + p.tensor;
    case GROUP_LINE: return p.stage;
    case GROUP_CONTEXT: return p.context;
    case GROUP_ISLANDS: return p.island;
    case GROUP_KINDS: break;
    }
    return 0;
}

int grid_group_member(const grid *g, group_kind kind, int rank, int index) {
    grid_place p = grid_at(g, rank);
    int context = grid_context(g);
    switch (kind) {
    case GROUP_DATA: p.data = index / context, p.context = index % context; break;
    case GROUP_TENSOR: p.tensor = index; break;
    case GROUP_STAGE:
        p.data = index / g->tensor / context, p.context = index / g->tensor % context, p.tensor = index % g->tensor;
        break;
    case GROUP_LINE: p.stage = index; break;
    case GROUP_CONTEXT: p.context = index; break;
    case GROUP_ISLANDS: p.island = index; break;
    case GROUP_KINDS: break;
    }
    return grid_rank(g, p);
}

// --- links -----------------------------------------------------------------------------------------------------------

static bool closes_the_line(link_kind kind) {
    return kind == LINK_LOOP_FORWARD || kind == LINK_LOOP_BACKWARD || kind == LINK_TIED;
}

int grid_link_peer(const grid *g, link_kind kind, int rank, bool after) {
    grid_place p = grid_at(g, rank);
    int last = g->pipeline - 1;
    if (last == 0 || !(g->links >> kind & 1)) return -1;
    if (closes_the_line(kind) && p.stage != (after ? last : 0)) return -1;
    if (!closes_the_line(kind) && p.stage == (after ? last : 0)) return -1;
    p.stage = closes_the_line(kind) ? last - p.stage : after ? p.stage + 1 : p.stage - 1;
    return grid_rank(g, p);
}

// --- channels --------------------------------------------------------------------------------------------------------

static int group_channel(group_kind kind) { return 1 + (int)kind; }
static int link_channel(link_kind kind) { return 1 + GROUP_KINDS + (int)kind; }
enum { BESIDE_CHANNEL = 1 + GROUP_KINDS + LINK_KINDS, PAIR_CHANNEL };
_Static_assert((int)PAIR_CHANNEL <= (int)COMM_CHANNELS, "each kind has a channel");

static bool one_group(const grid *g) { return !grid_is_divided(g); }

grid_split grid_group_split(const grid *g, group_kind kind, int rank) {
    return (grid_split){grid_group_member(g, kind, rank, 0), grid_group_index(g, kind, rank), group_channel(kind)};
}

grid_split grid_link_split(const grid *g, link_kind kind, int half, int rank) {
    grid_split s = {.color = -1, .channel = link_channel(kind)};
    for (int after = 0; after < 2; after++) {
        int peer = grid_link_peer(g, kind, rank, after);
        if (peer < 0) continue;
        int lower = grid_at(g, rank < peer ? rank : peer).stage;
        if (lower % 2 != half) continue;
        s.color = rank < peer ? rank : peer;
        s.key = rank > peer;
    }
    return s;
}

static bool in_one_group(const grid *g, group_kind kind, int a, int b) {
    return grid_group_member(g, kind, a, grid_group_index(g, kind, b)) == b;
}

grid_split grid_beside_split(int rank) { return (grid_split){0, rank, BESIDE_CHANNEL}; }

// --- pairs -----------------------------------------------------------------------------------------------------------

int grid_peers(const grid *g, int rank) { return grid_serves(g, rank) ? grid_workers(g) : g->servers; }

int grid_pair_rounds(const grid *g) { return grid_workers(g) > g->servers ? grid_workers(g) : g->servers; }

// In each round the servers are turned by one against the others.
int grid_pair_peer(const grid *g, int round, int rank) {
    int n = grid_pair_rounds(g), workers = grid_workers(g);
    bool serves = grid_serves(g, rank);
    int peer = serves ? (rank - workers - round + n) % n : (rank + round) % n;
    if (peer >= grid_peers(g, rank)) return -1;
    return serves ? peer : workers + peer;
}

grid_split grid_pair_split(const grid *g, int round, int rank) {
    int peer = grid_pair_peer(g, round, rank);
    return (grid_split){
        .color = peer < 0 || rank < peer ? (peer < 0 ? -1 : rank) : peer, .key = rank > peer, .channel = PAIR_CHANNEL};
}

static bool grid_needs(const void *ctx, int channel, int a, int b) {
    const grid *g = ctx;
    if (channel == BESIDE_CHANNEL) return g->beside;
    if (channel == PAIR_CHANNEL) return g->paired && grid_serves(g, a) != grid_serves(g, b);
    if (one_group(g)) return false;
    if (channel <= GROUP_KINDS) return in_one_group(g, (group_kind)(channel - 1), a, b);
    link_kind kind = (link_kind)(channel - 1 - GROUP_KINDS);
    return grid_link_peer(g, kind, a, true) == b || grid_link_peer(g, kind, a, false) == b;
}

static void role_of(const void *ctx, int rank, char dst[COMM_ROLE]) { grid_role(ctx, rank, dst); }

channel_plan grid_channels(const grid *g) {
    channel_plan plan = {
        .channels = GROUP_KINDS + LINK_KINDS, .needs = grid_needs, .role = role_of, .ctx = g, .ctx_bytes = sizeof *g};
    if (one_group(g) && !g->beside && !g->servers) return (channel_plan){0};
    if (one_group(g)) plan.channels = 0;
    if (g->beside) plan.channels = BESIDE_CHANNEL, plan.seats = 1;
    if (g->paired) plan.channels = PAIR_CHANNEL, plan.seats += grid_pair_rounds(g);
    if (one_group(g)) return plan;
    for (int k = 0; k < GROUP_KINDS; k++) plan.seats += grid_group_size(g, (group_kind)k) > 1;
    for (int k = 0; k < LINK_KINDS && g->pipeline > 1; k++)
        if (g->links >> k & 1) plan.seats += g->pipeline > 2 && !closes_the_line((link_kind)k) ? 2 : 1;
    return plan;
}

// --- communicators ---------------------------------------------------------------------------------------------------

static err_t split(const groups *x, grid_split s, comm **out) {
    return x->world->table->split(x->world, s.color, s.key, s.channel, out);
}

static err_t open_group(groups *x, group_kind kind) {
    if (grid_group_size(&x->shape, kind) == 1) return comm_self_open(&x->group[kind]);
    return split(x, grid_group_split(&x->shape, kind, x->world->rank), &x->group[kind]);
}

// Where no link has an odd lower stage, all ranks skip the second split.
static err_t open_link(groups *x, link_kind kind) {
    const grid *g = &x->shape;
    int rank = x->world->rank, halves = g->pipeline > 2 && !closes_the_line(kind) ? 2 : 1;
    if (g->pipeline == 1 || !(g->links >> kind & 1)) return ERR_OK;
    for (int half = 0; half < halves; half++) {
        comm *c;
        TRY(split(x, grid_link_split(g, kind, half, rank), &c));
        if (!c) continue;
        bool after = grid_at(g, rank).stage % 2 == half;
        if (closes_the_line(kind)) after = grid_at(g, rank).stage != 0;
        *(after ? &x->after[kind] : &x->before[kind]) = c;
    }
    return ERR_OK;
}

static err_t open_beside(groups *x) {
    comm *host = x->world->host;
    if (!x->shape.beside || x->world->world == 1) return ERR_OK;
    grid_split s = grid_beside_split(host->rank);
    return host->table->split(host, s.color, s.key, s.channel, &x->beside);
}

static err_t open_pairs(groups *x) {
    const grid *g = &x->shape;
    comm *host = x->world->host, *c;
    if (!g->paired) return ERR_OK;
    x->pair = calloc((size_t)grid_peers(g, host->rank), sizeof *x->pair);
    if (!x->pair) return err_set(ERR_INTERNAL, "no memory for pairs of ranks");
    for (int k = 0; k < grid_pair_rounds(g); k++) {
        grid_split s = grid_pair_split(g, k, host->rank);
        TRY(host->table->split(host, s.color, s.key, s.channel, &c));
        if (!c) continue;
        int peer = grid_pair_peer(g, k, host->rank);
        x->pair[grid_serves(g, host->rank) ? peer : peer - grid_workers(g)] = c;
    }
    return ERR_OK;
}

err_t groups_open(groups *x, const grid *g, comm *world) {
    *x = (groups){.shape = *g, .world = world};
    err_t rc = ERR_OK;
    if (grid_world(g) != world->world)
        return err_set(ERR_INTERNAL, "a layout of %d ranks over a communicator of %d", grid_world(g), world->world);
    TRY_GOTO(open_beside(x), fail);
    TRY_GOTO(open_pairs(x), fail);
    if (one_group(g)) {
        x->group[GROUP_DATA] = x->group[GROUP_STAGE] = world;
        TRY_GOTO(comm_self_open(&x->group[GROUP_TENSOR]), fail);
        TRY_GOTO(comm_self_open(&x->group[GROUP_LINE]), fail);
        TRY_GOTO(comm_self_open(&x->group[GROUP_CONTEXT]), fail);
        TRY_GOTO(comm_self_open(&x->group[GROUP_ISLANDS]), fail);
        return ERR_OK;
    }
    for (int k = 0; k < GROUP_KINDS; k++) TRY_GOTO(open_group(x, (group_kind)k), fail);
    for (int k = 0; k < LINK_KINDS; k++) TRY_GOTO(open_link(x, (link_kind)k), fail);
    return ERR_OK;
fail:;
    err_record why = *err_last();
    groups_close(x);
    return err_restore(&why);
}

// --- on paper --------------------------------------------------------------------------------------------------------

// Nodes are counted anew in each communicator, and so are a node's ranks, and racks.
static void count_nodes(comm_place *place, int n) {
    comm_place before = {0};
    for (int i = 0, node = 0, local = 0, rack = 0; i < n; i++) {
        comm_place was = place[i];
        bool same = i && was.node == before.node;
        node += i && !same, rack += i && was.rack != before.rack, local = same ? local + 1 : 0;
        place[i].node = node, place[i].local = local, place[i].rack = rack;
        before = was;
    }
}

static comm_place place_of(const comm *world, int rank) {
    if (world->place) return world->place[rank];
    comm_spot at = comm_where(world, rank);
    return (comm_place){.node = at.node, .local = at.local, .rank = rank, .rack = at.rack, .join = at.join};
}

// A group that may have as many members as the world keeps no places where the world has none, if its members are
// neighbours in rank order: those of a stage are, and without tensors those of a data group, which is one of a stage.
static bool is_even(const groups *x, group_kind kind) {
    bool stage = kind == GROUP_STAGE || (kind == GROUP_DATA && x->shape.tensor == 1);
    return stage && !x->world->place;
}

static err_t imagine_group(groups *x, group_kind kind, comm_place **at) {
    int rank = x->world->rank, n = grid_group_size(&x->shape, kind), own = grid_group_index(&x->shape, kind, rank);
    comm_place *place = *at;
    if (is_even(x, kind)) {
        comm_even even = x->world->even;
        even.first += grid_group_member(&x->shape, kind, rank, 0);
        return comm_even_open(&x->group[kind], own, n, &even);
    }
    for (int i = 0; i < n; i++) place[i] = place_of(x->world, grid_group_member(&x->shape, kind, rank, i));
    count_nodes(place, n);
    *at += n;
    return comm_imaginary_open(&x->group[kind], own, n, place);
}

static err_t imagine_link(groups *x, link_kind kind, bool after, comm_place **at) {
    int rank = x->world->rank, peer = grid_link_peer(&x->shape, kind, rank, after);
    comm_place *place = *at;
    if (peer < 0 || !(x->shape.links >> kind & 1)) return ERR_OK;
    int low = rank < peer ? rank : peer, high = rank < peer ? peer : rank;
    place[0] = place_of(x->world, low), place[1] = place_of(x->world, high);
    count_nodes(place, 2);
    *at += 2;
    return comm_imaginary_open(after ? &x->after[kind] : &x->before[kind], rank == high, 2, place);
}

err_t groups_imagine(groups *x, const grid *g, comm *world) {
    int places = 4 * LINK_KINDS;
    *x = (groups){.shape = *g, .world = world};
    for (int k = 0; k < GROUP_KINDS; k++) places += is_even(x, (group_kind)k) ? 0 : grid_group_size(g, (group_kind)k);
    comm_place *at = x->place = calloc((size_t)places, sizeof *x->place);
    err_t rc = at ? ERR_OK : err_set(ERR_INTERNAL, "no memory for groups of %d ranks", world->world);
    for (int k = 0; rc == ERR_OK && k < GROUP_KINDS; k++) rc = imagine_group(x, (group_kind)k, &at);
    for (int k = 0; rc == ERR_OK && k < 2 * LINK_KINDS; k++) rc = imagine_link(x, (link_kind)(k / 2), k % 2 == 0, &at);
    if (rc == ERR_OK) return rc;
    err_record why = *err_last();
    groups_close(x);
    return err_restore(&why);
}

// --- closing ---------------------------------------------------------------------------------------------------------

// NCCL closes a communicator on all its ranks together, so the order must match. A rank in the middle has two links of
// a kind, and closes that with the even lower stage first, as they were made.
static void close_link(groups *x, link_kind kind) {
    bool even = grid_at(&x->shape, x->world->rank).stage % 2 == 0;
    comm *pair[2] = {even ? x->after[kind] : x->before[kind], even ? x->before[kind] : x->after[kind]};
    for (int i = 0; i < 2; i++)
        if (pair[i]) pair[i]->table->close(pair[i]);
}

void groups_close(groups *x) {
    if (!x->world) return;
    for (int k = LINK_KINDS - 1; k >= 0; k--) close_link(x, (link_kind)k);
    for (int k = GROUP_KINDS - 1; k >= 0; k--)
        if (x->group[k] && x->group[k] != x->world) x->group[k]->table->close(x->group[k]);
    for (int k = 0; x->pair && k < grid_peers(&x->shape, x->world->rank); k++)
        if (x->pair[k]) x->pair[k]->table->close(x->pair[k]);
    if (x->beside) x->beside->table->close(x->beside);
    free(x->pair), free(x->place);
    *x = (groups){0};
}
