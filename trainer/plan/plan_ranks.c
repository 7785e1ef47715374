// trainer/plan/plan_ranks.c: see trainer/plan/plan_ranks.h. Each rank gets a number that stands for all that its plan
// depends on:
//
//   its stage, context and island; which sizes its slices have; the places of those it is in groups with, as far as
//   they are near each other or far; where its links lead; what it sends to all ranks; and in its data group what it
//   owns, which lanes it runs, and what it collects for others (comm/reduce.h)
//
// Ranks with the same number have the same plan. Where it depends on more, which is rare, the number has the place in
// the data group itself.
#include "trainer/plan/plan_ranks.h"

#include "base/mix.h"
#include "model/slices.h"
#include "trainer/costs/cluster_file.h"
#include "trainer/node/cluster.h"
#include "trainer/session/session.h"
#include "trainer/step/sync.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// --- where ranks are -------------------------------------------------------------------------------------------------

static err_t no_room(int world) { return err_set(ERR_INTERNAL, "no memory for the places of %d ranks", world); }

err_t plan_world_open(plan_world *w, const config *c) {
    cluster who;
    *w = (plan_world){0};
    TRY(cluster_planned(&who, c));  // for all nodes, not only this one
    *w = (plan_world){who.world, who.nodes, who.racks, who.joined, calloc((size_t)who.world, sizeof *w->place), {0}};
    if (!w->place) return no_room(who.world);
    for (int n = 0, rank = 0; n < who.nodes; n++)
        for (int i = 0; i < who.ranks[n]; i++, rank++) {
            w->place[rank] = (comm_place){.node = n, .local = i, .rank = rank, .rack = who.rack[n]};
            if (who.joined) w->place[rank].join = i / who.joined;
            snprintf(w->place[rank].host, sizeof w->place[rank].host, "%s", who.host[n]);
        }
    return ERR_OK;
}

static void even_world(plan_world *w, int nodes, int each, int racks) {
    comm_even even = {.node = each, .rack = nodes / racks * each};
    *w = (plan_world){.world = nodes * each, .nodes = nodes, .racks = racks, .even = even};
}

static err_t world_in_file(plan_world *w, const char *path) {
    cluster_file f;
    TRY(cluster_file_read(&f, path));
    if (f.fails.nodes * f.fails.devices <= PLAN_WORLD_MOST)
        return even_world(w, (int)f.fails.nodes, (int)f.fails.devices, (int)f.racks), ERR_OK;
    return err_set(ERR_CONFIG,
                   "%s: [cluster] %" PRId64 " nodes of %" PRId64 " devices are %" PRId64
                   " devices: a plan has at most %d",
                   path, f.fails.nodes, f.fails.devices, f.fails.nodes * f.fails.devices, PLAN_WORLD_MOST);
}

err_t plan_world_any(plan_world *w, const char *text) {
    const char *p = text;
    int number[3] = {0, 0, 1}, n = 0;
    *w = (plan_world){0};
    if (cluster_is_file(text)) return world_in_file(w, text);
    for (; n < 3; n++) {
        number[n] = cluster_number(&p);
        if (*p != 'x') break;
        p++;
    }
    int nodes = number[0], each = number[1], racks = number[2];
    if (n < 1 || *p || nodes < 1 || each < 1 || racks < 1 || (int64_t)nodes * each > PLAN_WORLD_MOST || nodes % racks)
        return err_set(ERR_USAGE,
                       "--cluster %s: expected nodes x devices of each, such as 128x8, at most %d devices in all; or "
                       "with racks of as many nodes each, 128x8x4; or a file that describes one, such as ./cluster.ini",
                       text, PLAN_WORLD_MOST);
    even_world(w, nodes, each, racks);
    return ERR_OK;
}

// Of made-up nodes, too, neighbours are joined as the INI says.
static err_t join_made(plan_world *w, int64_t joined) {
    int each = w->world / w->nodes;
    w->joined = w->even.join = (int)joined;
    if (joined && each % joined)
        return err_set(ERR_CONFIG,
                       "[cluster] joined = %" PRId64 ", and each node has %d ranks: expected a number that "
                       "divides them",
                       joined, each);
    return ERR_OK;
}

err_t plan_world_made(plan_world *w, const config *c, const char *text) {
    TRY(plan_world_any(w, text));
    err_t rc = join_made(w, c->cluster.joined);
    if (rc == ERR_OK) rc = config_fits(c, w->world);
    if (rc != ERR_OK) plan_world_close(w);
    return rc;
}

void plan_world_close(plan_world *w) {
    free(w->place);
    *w = (plan_world){0};
}

// --- what a rank's plan depends on -----------------------------------------------------------------------------------

// What was found of one data group holds for those that have the same.
typedef struct known {
    uint64_t key, *mark;  // [members]
} known;

typedef struct sorter {
    const config *c;
    const plan_world *w;
    grid shape;
    uint64_t *key, *sizes;  // [world]; [tensor] of the slices of each
    known *known;
    int knowns, room;
    session paper;  // for one rank after the other
} sorter;

// Of a group: what would be counted anew of its nodes and racks (comm/groups.c).
static uint64_t mark_places(const sorter *x, group_kind kind, int rank) {
    int n = grid_group_size(&x->shape, kind);
    uint64_t h = (uint64_t)n;
    for (int i = 1; i < n; i++) {
        comm_spot a = plan_where(x->w, grid_group_member(&x->shape, kind, rank, i - 1)),
                  b = plan_where(x->w, grid_group_member(&x->shape, kind, rank, i));
        h = mix(h, (uint64_t)(a.node == b.node) << 2 | (uint64_t)comm_joined(a, b) << 1 | (a.rack == b.rack));
    }
    return h;
}

// Each group is looked at once.
static void mark_groups(sorter *x, group_kind kind) {
    int n = grid_group_size(&x->shape, kind);
    for (int r = 0; r < x->w->world; r++) {
        if (grid_group_index(&x->shape, kind, r)) continue;
        uint64_t h = mark_places(x, kind, r);
        for (int i = 0; i < n; i++) {
            uint64_t *k = &x->key[grid_group_member(&x->shape, kind, r, i)];
            *k = mix(*k, h);
        }
    }
}

static uint64_t mark_links(const sorter *x, int rank) {
    uint64_t h = 0;
    for (int k = 0; k < 2 * LINK_KINDS; k++) {
        int peer = grid_link_peer(&x->shape, (link_kind)(k / 2), rank, k % 2);
        comm_spot a = plan_where(x->w, rank), b = plan_where(x->w, peer < 0 ? rank : peer);
        h = mix(h, peer < 0 ? 0 : a.rack != b.rack ? 4 : a.node != b.node ? 3 : comm_joined(a, b) ? 1 : 2);
    }
    return h;
}

static uint64_t mark_cost(const comm_cost *c) {
    uint64_t h = mix((uint64_t)c->sent, (uint64_t)c->sent_far);
    h = mix(mix(h, (uint64_t)c->messages), (uint64_t)c->messages_far);
    h = mix(mix(h, (uint64_t)c->sent_racks), (uint64_t)c->messages_racks);
    return mix(mix(h, (uint64_t)c->sent_apart), (uint64_t)c->messages_apart);
}

// How large the slices of each rank that shares layers are.
static err_t mark_slices(sorter *x) {
    model *net;
    TRY(model_open(&net, model_types[x->c->model.type], &x->c->model.of));
    for (int t = 0; t < x->shape.tensor; t++) {
        int count = net->slices.of / x->shape.tensor;
        for (int i = 0; i < net->params; i++)
            for (int s = t * count; s < (t + 1) * count && s < param_slices(&net->param[i]); s++)
                x->sizes[t] = mix(x->sizes[t], (uint64_t)param_slice_count(&net->param[i], s));
    }
    model_close(net);
    return ERR_OK;
}

// Of few ranks on one node, which have as many rows each, all send to all others; else the place counts.
static bool tensor_ranks_differ(const sorter *x) {
    enum { EVEN = 16 };  // what is cut into pieces is cut at multiples
    const config *c = x->c;
    model *net;
    if (x->shape.tensor == 1) return false;
    if (x->shape.tensor > COST_SMALL_RANKS) return true;
    if (model_open(&net, model_types[c->model.type], &c->model.of) != ERR_OK) return true;
    int64_t rows = c->resolved.micro * (net->units > 1 ? net->units : 1);
    model_close(net);
    bool one_node = true;
    for (int r = 0; r < x->w->world && one_node; r += x->shape.tensor)
        one_node = plan_where(x->w, r).node == plan_where(x->w, r + x->shape.tensor - 1).node;
    return !one_node || rows % (EVEN * x->shape.tensor * grid_context(&x->shape)) != 0;
}

// Does a plan depend on more of a rank than what reduce_marks sees?
static bool members_differ(const sorter *x) {
    const config *c = x->c;
    return c->reduce.compress != SEND_ALL || c->outer.islands > 1 || (c->cluster.elastic && c->snapshot.every) ||
           c->resolved.span > 1;
}

// What each member of a data group owns: whole elements, and chunks of them.
static uint64_t mark_ranges(const zero_layout *z, const model *net) {
    uint64_t h = 0;
    for (int g = 0; g < z->segments; g++) h = mix(h, zero_range(z, g, z->rank));
    for (int i = 0; i < z->owned; i++) {
        const zero_piece *p = &z->piece[i];
        const param *row = &net->param[p->row];
        h = mix(mix(h, (uint64_t)p->segment), (uint64_t)p->count);
        h = mix(h, (uint64_t)row->rule << 3 | (unsigned)(row->tied >= 0) << 2 | (unsigned)row->fp32 << 1 |
                       (row->dims > 1));
        // what a matrix that is updated as a whole has room for, and what ranks that share its layer send
        for (int k = 0; k < 2 && row->whole; k++) h = mix(mix(h, (uint64_t)row->size[k]), (uint64_t)row->share[k]);
    }
    return h;
}

// order = any: what each member sends when the transport adds up a bucket. Buckets that are cut alike cost as much.
static err_t mark_sums(train_state *t, uint64_t *mark) {
    comm *own = t->ranks, as = *own;
    err_t rc = ERR_OK;
    t->ranks = &as;
    for (as.rank = 0; as.rank < as.world; as.rank++)
        for (int k = 0; k < t->zero.buckets && rc == ERR_OK; k++) {
            comm_cost sent = {0};
            if (t->zero.bucket[k].alike == k) rc = sync_gradients(t)->cost(t, k, 0, &sent);
            mark[as.rank] = mix(mark[as.rank], mark_cost(&sent));
        }
    t->ranks = own;
    return rc;
}

static err_t mark_members(session *s, uint64_t *mark) {
    train_state *t = &s->state;
    int n = t->zero.world;
    uint64_t *ranges = calloc((size_t)n, sizeof *ranges);
    if (!ranges) return err_set(ERR_INTERNAL, "no memory to compare %d ranks", n);
    for (int d = 0; d < n; d++) {
        zero_own(&t->zero, s->net, d);
        ranges[d] = mark_ranges(&t->zero, s->net);
    }
    err_t rc = reduce_marks(t->reduce, ranges, mark);
    if (rc == ERR_OK && !t->o.fixed) rc = mark_sums(t, mark);
    free(ranges);
    return rc;
}

// The marks of the data group whose first member is `rank`.
static err_t know(sorter *x, uint64_t key, int rank, const uint64_t **mark) {
    for (int i = 0; i < x->knowns; i++)
        if (x->known[i].key == key) return *mark = x->known[i].mark, ERR_OK;
    if (x->knowns == x->room) {
        int room = 2 * x->room + 16;
        known *more = realloc(x->known, (size_t)room * sizeof *more);
        if (!more) return err_set(ERR_INTERNAL, "no memory to compare ranks");
        x->known = more, x->room = room;
    }
    known *k = &x->known[x->knowns];
    *k = (known){key, calloc((size_t)grid_group_size(&x->shape, GROUP_DATA), sizeof *k->mark)};
    if (!k->mark) return err_set(ERR_INTERNAL, "no memory to compare ranks");
    x->knowns++;
    *mark = k->mark;
    TRY(plan_begin(&x->paper, x->c, rank, x->w));
    return mark_members(&x->paper, k->mark);
}

static err_t mark_data(sorter *x) {
    int n = grid_group_size(&x->shape, GROUP_DATA);
    bool differ = members_differ(x);
    for (int r = 0; r < x->w->world; r++) {
        if (grid_group_index(&x->shape, GROUP_DATA, r)) continue;
        grid_place at = grid_at(&x->shape, r);
        const uint64_t *mark = NULL;
        if (!differ) {
            uint64_t key = mix(mix(x->sizes[at.tensor], (uint64_t)at.stage), mark_places(x, GROUP_DATA, r));
            TRY(know(x, key, r, &mark));
        }
        for (int i = 0; i < n; i++) {
            uint64_t *k = &x->key[grid_group_member(&x->shape, GROUP_DATA, r, i)];
            *k = mix(*k, mark ? mark[i] : (uint64_t)i);
        }
    }
    return ERR_OK;
}

// shared: as in plan_rank.
static err_t mark_all(sorter *x, int64_t shared) {
    TRY(mark_slices(x));
    bool tensor = tensor_ranks_differ(x);
    comm all = plan_all(x->w, 0);
    for (int r = 0; r < x->w->world; r++) {
        grid_place at = grid_at(&x->shape, r);
        all.rank = r;
        comm_cost said = cost_all_reduce(&all, (size_t)shared, sizeof(double));
        uint64_t h = mix(mix(mark_cost(&said), (uint64_t)at.stage), (uint64_t)at.context);
        h = mix(h, grid_serves(&x->shape, r));
        h = mix(mix(h, (uint64_t)at.island), tensor ? (uint64_t)at.tensor : 0);
        x->key[r] = mix(mix(h, x->sizes[at.tensor]), mark_links(x, r));
    }
    mark_groups(x, GROUP_DATA), mark_groups(x, GROUP_TENSOR), mark_groups(x, GROUP_CONTEXT);
    mark_groups(x, GROUP_ISLANDS);
    return mark_data(x);
}

// --- all of them -----------------------------------------------------------------------------------------------------

typedef struct keyed {
    uint64_t key;
    int rank;
} keyed;

static int by_key(const void *a, const void *b) {
    const keyed *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->rank - y->rank;
}

// The first rank of each kind is planned. order: [world] of room.
static err_t plan_kinds(plan_ranks *p, sorter *x, keyed *order) {
    for (int r = 0; r < p->world; r++) order[r] = (keyed){x->key[r], r};
    qsort(order, (size_t)p->world, sizeof *order, by_key);
    for (int i = 0; i < p->world; i++) {
        p->kinds += !i || order[i].key != order[i - 1].key;
        p->of[order[i].rank] = p->kinds - 1;
    }
    p->kind = calloc((size_t)p->kinds, sizeof *p->kind);
    if (!p->kind) return err_set(ERR_INTERNAL, "no memory for a plan of %d ranks", p->kinds);
    for (int i = 0, k = 0; i < p->world; i++) {
        if (i && order[i].key == order[i - 1].key) continue;
        TRY(plan_begin(&x->paper, x->c, order[i].rank, x->w));
        TRY(plan_count(&x->paper, &p->kind[k++]));
    }
    return ERR_OK;
}

static void close_sorter(sorter *x) {
    for (int i = 0; i < x->knowns; i++) free(x->known[i].mark);
    session_close(&x->paper);
    free(x->known), free(x->key), free(x->sizes);
}

static err_t sort_and_plan(plan_ranks *p, sorter *x, bool each) {
    plan_rank first = {0};
    keyed *order = calloc((size_t)p->world, sizeof *order);
    err_t rc = order && x->key && x->sizes && p->of ? ERR_OK : no_room(p->world);
    for (int r = 0; each && rc == ERR_OK && r < p->world; r++) x->key[r] = (uint64_t)r;
    if (rc == ERR_OK && !each) rc = plan_begin(&x->paper, x->c, 0, x->w);
    if (rc == ERR_OK && !each) rc = plan_count(&x->paper, &first);
    if (rc == ERR_OK && !each) rc = mark_all(x, first.shared);
    if (rc == ERR_OK) rc = plan_kinds(p, x, order);
    free(order);
    return rc;
}

err_t plan_ranks_open(plan_ranks *p, const config *c, const plan_world *w, bool each) {
    size_t n = (size_t)w->world;
    sorter x = {.c = c, .w = w, .shape = config_grid(c, w->world), .key = calloc(n, sizeof *x.key)};
    x.sizes = calloc((size_t)x.shape.tensor, sizeof *x.sizes);
    *p = (plan_ranks){.world = w->world, .of = calloc(n, sizeof *p->of)};
    err_t rc = sort_and_plan(p, &x, each || w->world == 1);
    close_sorter(&x);
    if (rc != ERR_OK) plan_ranks_close(p);
    return rc;
}

void plan_ranks_close(plan_ranks *p) {
    free(p->kind), free(p->of);
    *p = (plan_ranks){0};
}
