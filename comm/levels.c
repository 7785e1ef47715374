// comm/levels.c: see comm/levels.h.
#include "comm/levels.h"

// From numbers of members to where each begins.
static void add_up(int *first, int n) {
    for (int i = 0; i < n; i++) first[i + 1] += first[i];
}

// Nodes by rack: node i of the places becomes at[i]. rack_of, cursor: room for a number of each node, and rack.
static void sort_nodes(levels *l, int *at, int *rack_of, int *cursor) {
    for (int r = 0; r < l->world; r++) rack_of[comm_where(l->of, r).node] = comm_where(l->of, r).rack;
    for (int k = 0; k <= l->racks; k++) l->rack_first[k] = 0;
    for (int n = 0; n < l->nodes; n++) l->rack_first[rack_of[n] + 1]++;
    add_up(l->rack_first, l->racks);
    for (int k = 0; k < l->racks; k++) cursor[k] = l->rack_first[k];
    for (int n = 0; n < l->nodes; n++) at[n] = cursor[rack_of[n]]++;
}

void levels_of(levels *l, const comm *c, int *room) {
    int n = c->world;
    *l = (levels){.of = c, .world = n, .node = room, .rack = room + n, .member = room + 2 * n};
    l->first = l->member + n, l->rack_first = l->first + n + 1;
    for (int r = 0; r < n; r++) {
        comm_spot at = comm_where(c, r);
        l->nodes = at.node >= l->nodes ? at.node + 1 : l->nodes,
        l->racks = at.rack >= l->racks ? at.rack + 1 : l->racks;
    }
    sort_nodes(l, l->rack, l->member, l->first);
    for (int r = 0; r < n; r++) l->node[r] = l->rack[comm_where(c, r).node];
    for (int r = 0; r < n; r++) l->rack[r] = comm_where(c, r).rack;
    for (int i = 0; i <= l->nodes; i++) l->first[i] = 0;
    for (int r = 0; r < n; r++) l->first[l->node[r] + 1]++;
    add_up(l->first, l->nodes);
    for (int r = 0; r < n; r++) l->member[l->first[l->node[r]] + comm_where(c, r).local] = r;
}

int levels_in_node(const levels *l, int rank, int node) {
    return l->member[l->first[node] + comm_where(l->of, rank).local % (l->first[node + 1] - l->first[node])];
}

int levels_in_rack(const levels *l, int rank, int rack) {
    int at = l->node[rank] - l->rack_first[l->rack[rank]], nodes = l->rack_first[rack + 1] - l->rack_first[rack];
    return rack == l->rack[rank] ? rank : levels_in_node(l, rank, l->rack_first[rack] + at % nodes);
}

int levels_from(const levels *l, int owner, int to) {
    if (owner == to) return -1;
    if (l->node[owner] == l->node[to]) return owner;
    int by = levels_in_node(l, owner, l->node[to]);
    if (by != to) return by;
    by = levels_in_rack(l, owner, l->rack[to]);
    return by != to ? by : owner;
}

// The members from `from` to before `to` that are not in a part of them.
static int *put_around(int *order, const levels *l, int from, int to, int part, int part_end) {
    for (int i = part_end; i < to; i++) *order++ = l->member[i];
    for (int i = from; i < part; i++) *order++ = l->member[i];
    return order;
}

void levels_chain(const levels *l, int root, int *order) {
    int node = l->node[root], rack = l->rack[root], at = l->first[node] + comm_where(l->of, root).local;
    int from = l->first[node], to = l->first[node + 1];
    int rack_from = l->first[l->rack_first[rack]], rack_to = l->first[l->rack_first[rack + 1]];
    *order++ = root;
    order = put_around(order, l, from, to, at, at + 1);
    order = put_around(order, l, rack_from, rack_to, from, to);
    put_around(order, l, 0, l->world, rack_from, rack_to);
}
