// comm/reduce.c: see comm/reduce.h. Lanes, ranks and nodes alone determine which rank holds which subtrees after each
// phase, so every rank computes it for all: messages carry gradients only, and a job's cost is found by walking it
// without moving anything.
#include "comm/reduce.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef enum { IN_LANE, IN_SCRATCH, IN_OWN } form;  // where a range is in a buffer: at lane_at + cut, packed, at own_at

// A subtree's sum over one owner's ranges.
typedef struct source {
    lane_span span;
    form form;
    float *base;
} source;

struct reducer {
    comm *ranks;
    const ops *ops;
    int rank, world, nodes;
    int *first_rank;  // nodes+1: first rank of each node
    lane_table lanes;
    int64_t *deal;  // [world] what lanes.count points at
    bool moves, once;
    int segments;
    const size_t *cut;
    lane_counter *kept;  // turns+1: before turn t
    comm_part *send, *recv;
    int sends, recvs, send_room, recv_room;
    source *sources;   // phase 1: room for the subtrees of all ranks of this node
    source *result;    // what they merge to
    source *gathered;  // phase 2: room for those of all nodes
    int room;
};

// --- who holds what --------------------------------------------------------------------------------------------------

// The subtrees that a rank holds at a turn, in its own buffers' numbers.
static lane_counter rank_spans(const reducer *r, int rank, int64_t turn) {
    lane_counter c = {0};
    if (r->lanes.turns) {
        int64_t lane = lane_table_at(&r->lanes, rank, turn);
        if (lane >= 0) lane_counter_push(&c, (lane_span){lane, 1, 0});
        return c;
    }
    return lane_counter_of(lane_table_first(&r->lanes, rank), lane_table_count(&r->lanes, rank), r->once);
}

static lane_counter node_spans(const reducer *r, int node, int64_t turn) {
    lane_counter c = {0};
    for (int k = r->first_rank[node]; k < r->first_rank[node + 1]; k++) {
        lane_counter one = rank_spans(r, k, turn);
        for (int i = 0; i < one.count; i++) {
            lane_counter_push(&c, one.span[i]);
            for (int into, from; lane_counter_merge(&c, &into, &from);) {}
        }
    }
    return c;
}

// The subtrees that an owner holds after each turn; `buffer` counts its kept buffers.
static void fill_kept(reducer *r) {
    enum { FRESH = 1 << 20 };
    for (int64_t t = 0; t < reduce_turns(r); t++) {
        lane_counter c = r->kept[t];
        for (int n = 0; n < r->nodes; n++) {
            lane_counter one = node_spans(r, n, t);
            for (int i = 0; i < one.count; i++) {
                one.span[i].buffer = FRESH;
                lane_counter_push(&c, one.span[i]);
                for (int into, from; lane_counter_merge(&c, &into, &from);) {}
            }
        }
        for (int i = 0; i < c.count; i++)
            if (c.span[i].buffer == FRESH) c.span[i].buffer = lane_counter_free(&c);
        r->kept[t + 1] = c;
    }
}

// The rank of a node that merges what the node has of an owner's ranges: the owner itself on its own node.
static int collector(const reducer *r, int owner, int node) {
    const comm_place *p = &r->ranks->place[owner];
    return p->node == node ? owner : r->first_rank[node] + p->local % (r->first_rank[node + 1] - r->first_rank[node]);
}

int64_t reduce_turns(const reducer *r) { return lane_table_turns(&r->lanes); }

int reduce_ranks(const reducer *r) { return r->world; }

int64_t reduce_lane_count(const reducer *r, int rank) { return lane_table_count(&r->lanes, rank); }

const lane_table *reduce_lanes(const reducer *r) { return &r->lanes; }

// A rank without lanes has its sums in one.
int reduce_lane_buffers(const reducer *r) {
    if (r->lanes.turns) return 1;
    if (r->moves) return lane_counter_most(r->lanes.lanes, r->once);
    int n = lane_counter_buffers(lane_table_first(&r->lanes, r->rank), lane_table_count(&r->lanes, r->rank), r->once);
    return n > 1 ? n : 1;
}

int reduce_kept(const reducer *r) {
    int most = 0;
    for (int64_t t = 0; r->lanes.turns && t < reduce_turns(r); t++)
        for (int i = 0; i < r->kept[t].count; i++)
            if (r->kept[t].span[i].buffer >= most) most = r->kept[t].span[i].buffer + 1;
    return most;
}

// --- opening ---------------------------------------------------------------------------------------------------------

static void count_nodes(reducer *r) {
    r->nodes = comm_nodes(r->ranks);
    for (int k = r->world - 1; k >= 0; k--) r->first_rank[r->ranks->place[k].node] = k;
    r->first_rank[r->nodes] = r->world;
}

// Subtrees that come together on one rank, at most: those of all ranks, and those kept.
static int most_sources(const reducer *r) {
    int64_t n = lane_spans_most(r->lanes.lanes, r->world), turn = r->lanes.turns ? r->world : n;
    return ORDERED_SPANS + (int)(n > turn ? n : turn);
}

static err_t check_deal(const reducer *r, const int64_t *deal) {
    int64_t sum = 0;
    bool whole = true;
    for (int k = 0; k < r->world; k++) whole &= deal[k] >= 0, sum += deal[k];
    if (whole && sum == r->lanes.lanes) return ERR_OK;
    return err_set(ERR_INTERNAL, "%d ranks were dealt %" PRId64 " lanes, expected %" PRId64 ", none of them negative",
                   r->world, sum, r->lanes.lanes);
}

static err_t take_deal(reducer *r, const int64_t *deal) {
    if (!deal) return ERR_OK;
    TRY(check_deal(r, deal));
    memcpy(r->deal, deal, (size_t)r->world * sizeof *deal);
    r->lanes.count = r->deal;
    return ERR_OK;
}

err_t reduce_deal(reducer *r, const int64_t *deal) {
    if (r->moves) return take_deal(r, deal);
    return err_set(ERR_INTERNAL, "lanes are dealt anew in a reduction that was planned for one deal");
}

err_t reduce_open(reducer **out, const reduce_options *o) {
    *out = NULL;
    reducer *r = calloc(1, sizeof *r);
    if (!r) return err_set(ERR_INTERNAL, "no memory for a reduction");
    *r = (reducer){.ranks = o->ranks,
                   .ops = o->ops,
                   .rank = o->ranks->rank,
                   .world = o->ranks->world,
                   .lanes = {.lanes = o->lanes, .world = o->ranks->world, .turns = o->turns},
                   .moves = o->moves && !o->turns,
                   .once = o->once,
                   .segments = o->segments,
                   .cut = o->cut};
    r->first_rank = calloc((size_t)comm_nodes(o->ranks) + 1, sizeof *r->first_rank);
    if (r->first_rank) count_nodes(r);
    r->deal = calloc((size_t)r->world, sizeof *r->deal);
    err_t rc = r->deal ? take_deal(r, o->deal) : ERR_OK;
    if (rc != ERR_OK) return reduce_close(r), rc;
    r->room = most_sources(r);
    r->sources = calloc((size_t)r->room, sizeof *r->sources);
    r->result = calloc((size_t)r->room, sizeof *r->result);
    r->gathered = calloc((size_t)r->room, sizeof *r->gathered);
    r->kept = calloc((size_t)reduce_turns(r) + 1, sizeof *r->kept);
    if (!r->first_rank || !r->deal || !r->sources || !r->result || !r->gathered || !r->kept) {
        reduce_close(r);
        return err_set(ERR_INTERNAL, "no memory for a reduction over %d ranks", o->ranks->world);
    }
    if (r->lanes.turns) fill_kept(r);
    *out = r;
    return ERR_OK;
}

void reduce_close(reducer *r) {
    if (!r) return;
    free(r->first_rank), free(r->deal), free(r->kept), free(r->send), free(r->recv), free(r->sources), free(r->result),
        free(r->gathered);
    free(r);
}

// --- a job -----------------------------------------------------------------------------------------------------------

// A running job, or a dry run, which has no memory and only counts what the job needs and moves.
typedef struct walk {
    reducer *r;
    const reduce_job *job;
    stream *s;
    bool dry;
    float *scratch;  // next free
    reduce_cost cost;
} walk;

static size_t range_floats(const walk *w, int g, int owner) {
    const size_t *cut = &w->r->cut[(size_t)g * (size_t)(w->r->world + 1)];
    return cut[owner + 1] - cut[owner];
}

static size_t ranges_floats(const walk *w, int owner) {
    size_t n = 0;
    for (int g = w->job->first; g < w->job->first + w->job->count; g++) n += range_floats(w, g, owner);
    return n;
}

// Where the owner's range of segment g is in a source. `packed` is the sum of the ranges before it.
static float *range_at(const walk *w, const source *x, int g, int owner, size_t packed) {
    switch (x->form) {
    case IN_LANE:
        return x->base + w->job->lane_at[g] + w->r->cut[(size_t)g * (size_t)(w->r->world + 1) + (size_t)owner];
    case IN_OWN: return x->base + w->job->own_at[g];
    default: return x->base + packed;
    }
}

// y = a + b, or y = a where b is NULL, over the owner's ranges.
static err_t combine(walk *w, int owner, const source *y, const source *a, const source *b) {
    size_t packed = 0;
    for (int g = w->job->first; g < w->job->first + w->job->count; g++) {
        size_t n = range_floats(w, g, owner);
        if (n == 0) continue;
        if (!w->dry) {
            tensor to = {range_at(w, y, g, owner, packed), FP32, 1, {(int64_t)n, 1, 1, 1}}, left = to, right = to;
            left.data = range_at(w, a, g, owner, packed);
            if (b) {
                right.data = range_at(w, b, g, owner, packed);
                TRY(w->r->ops->add(&(add_args){.y = &to, .a = &left, .b = &right}, w->s));
            } else if (left.data != to.data) {
                TRY(stream_copy(w->s, to.data, left.data, n * sizeof(float)));
            }
        }
        packed += n;
    }
    return ERR_OK;
}

// Appends `count` sources to stack[0 .. *top), in order of lane, and merges siblings. A sum over all lanes goes to
// `out`, if any.
static err_t merge(walk *w, int owner, source *stack, int *top, const source *from, int count, const source *out) {
    for (int i = 0; i < count; i++) {
        stack[(*top)++] = from[i];
        while (*top >= 2) {
            source *left = &stack[*top - 2], *right = &stack[*top - 1];
            if (left->span.size != right->span.size || left->span.first % (2 * left->span.size) != 0) break;
            bool whole = out && 2 * left->span.size == w->r->lanes.lanes;
            source to = whole ? *out : *left;
            TRY(combine(w, owner, &to, left, right));
            to.span = left->span;
            to.span.size *= 2;
            *left = to;
            (*top)--;
        }
    }
    return ERR_OK;
}

static err_t list_part(walk *w, bool sending, int peer, float *data, size_t floats) {
    reducer *r = w->r;
    comm_part **list = sending ? &r->send : &r->recv;
    int *count = sending ? &r->sends : &r->recvs, *room = sending ? &r->send_room : &r->recv_room;
    if (*count == *room) {
        if (!w->dry)
            return err_set(ERR_INTERNAL, "a reduction of segments %d .. +%d that was not planned", w->job->first,
                           w->job->count);
        int more = *room ? 2 * *room : 64;
        comm_part *grown = realloc(*list, (size_t)more * sizeof *grown);
        if (!grown) return err_set(ERR_INTERNAL, "no memory for %d messages", more);
        *list = grown;
        *room = more;
    }
    (*list)[(*count)++] = (comm_part){peer, data, floats * sizeof(float)};
    if (!sending) return ERR_OK;
    w->cost.moves = cost_add(w->cost.moves, cost_send(r->ranks, peer, (int64_t)(floats * sizeof(float)), 1));
    return ERR_OK;
}

// Lists messages with the owner's ranges of one subtree.
static err_t list_ranges(walk *w, bool sending, int peer, int owner, const source *x) {
    size_t packed = 0;
    for (int g = w->job->first; g < w->job->first + w->job->count; g++) {
        size_t n = range_floats(w, g, owner);
        if (n) TRY(list_part(w, sending, peer, w->dry ? NULL : range_at(w, x, g, owner, packed), n));
        packed += n;
    }
    return ERR_OK;
}

// Room for an owner's ranges of one subtree.
static source take_scratch(walk *w, lane_span span, int owner) {
    size_t n = ranges_floats(w, owner);
    source x = {span, IN_SCRATCH, w->dry ? NULL : w->scratch};
    w->scratch = w->dry ? NULL : w->scratch + n;
    w->cost.scratch += n;
    return x;
}

static err_t exchange(walk *w) {
    reducer *r = w->r;
    err_t rc = w->dry || r->sends + r->recvs == 0
                   ? ERR_OK
                   : r->ranks->table->exchange(r->ranks, r->send, r->sends, r->recv, r->recvs, w->s);
    r->sends = r->recvs = 0;
    return rc;
}

static source own_source(const walk *w, lane_span span) {
    return (source){span, IN_LANE, w->dry ? NULL : w->job->lane[span.buffer]};
}

// --- phase 1: inside the node ----------------------------------------------------------------------------------------

static err_t send_to_collectors(walk *w, int node) {
    lane_counter mine = rank_spans(w->r, w->r->rank, w->job->turn);
    for (int owner = 0; owner < w->r->world; owner++) {
        int peer = collector(w->r, owner, node);
        if (peer == w->r->rank) continue;
        for (int i = 0; i < mine.count; i++) {
            source x = own_source(w, mine.span[i]);
            TRY(list_ranges(w, true, peer, owner, &x));
        }
    }
    return ERR_OK;
}

// The node's subtrees of an owner's ranges, in order of lane: this rank's where they are, the others' where they will
// arrive.
static err_t list_collected(walk *w, int node, int owner, source *list, int *count) {
    reducer *r = w->r;
    for (int k = r->first_rank[node]; k < r->first_rank[node + 1]; k++) {
        lane_counter c = rank_spans(r, k, w->job->turn);
        for (int i = 0; i < c.count; i++) {
            source x = k == r->rank ? own_source(w, c.span[i]) : take_scratch(w, c.span[i], owner);
            if (k != r->rank) TRY(list_ranges(w, false, k, owner, &x));
            list[(*count)++] = x;
        }
    }
    return ERR_OK;
}

// Finds where each collected owner's ranges begin in scratch by walking in the order in which they were placed.
static err_t merge_collected(walk *w, int node, int owner, source *stack, int *top) {
    int count = 0;
    int recvs = w->r->recvs;
    TRY(list_collected(w, node, owner, w->r->sources, &count));
    w->r->recvs = recvs;
    source out = {{0, 0, 0}, IN_OWN, w->job->out};
    return merge(w, owner, stack, top, w->r->sources, count, w->r->nodes == 1 ? &out : NULL);
}

static err_t phase_one(walk *w, int node) {
    float *scratch = w->scratch;
    size_t used = w->cost.scratch;
    TRY(send_to_collectors(w, node));
    for (int owner = 0; owner < w->r->world; owner++) {
        int count = 0;
        if (collector(w->r, owner, node) == w->r->rank) TRY(list_collected(w, node, owner, w->r->sources, &count));
    }
    TRY(exchange(w));
    w->scratch = scratch;
    w->cost.scratch = used;
    return ERR_OK;
}

// --- phase 2: between nodes ------------------------------------------------------------------------------------------

// Merges what the node has for every owner elsewhere and lists it for sending; its own ranges stay, merged, in *mine.
static err_t merge_node(walk *w, int node, source *mine, int *mines) {
    reducer *r = w->r;
    for (int owner = 0; owner < r->world; owner++) {
        if (collector(r, owner, node) != r->rank) continue;
        bool here = r->ranks->place[owner].node == node;
        source *stack = here ? mine : r->result;
        int top = 0;
        TRY(merge_collected(w, node, owner, stack, &top));
        if (here) *mines = top;
        for (int i = 0; i < top && !here; i++) TRY(list_ranges(w, true, owner, owner, &stack[i]));
    }
    return ERR_OK;
}

static err_t receive_nodes(walk *w, int node, source *list, int *count) {
    reducer *r = w->r;
    for (int n = 0; n < r->nodes; n++) {
        if (n == node) continue;
        lane_counter c = node_spans(r, n, w->job->turn);
        for (int i = 0; i < c.count; i++) {
            source x = take_scratch(w, c.span[i], r->rank);
            TRY(list_ranges(w, false, collector(r, r->rank, n), r->rank, &x));
            list[(*count)++] = x;
        }
    }
    return ERR_OK;
}

// Inserts the own node's subtrees between those of the nodes before and after it.
static void put_between(source *list, int *count, const source *mine, int mines) {
    int at = 0;
    while (mines && at < *count && list[at].span.first < mine[0].span.first) at++;
    memmove(&list[at + mines], &list[at], (size_t)(*count - at) * sizeof *list);
    memcpy(&list[at], mine, (size_t)mines * sizeof *list);
    *count += mines;
}

// --- the owner -------------------------------------------------------------------------------------------------------

static err_t finish(walk *w, const source *list, int count) {
    reducer *r = w->r;
    source out = {{0, 0, 0}, IN_OWN, w->job->out}, *stack = r->result;
    const lane_counter *before = &r->kept[w->job->turn], *after = &r->kept[w->job->turn + 1];
    int top = 0;
    for (; top < before->count; top++)
        stack[top] = (source){before->span[top], IN_OWN, w->dry ? NULL : w->job->kept[before->span[top].buffer]};
    TRY(merge(w, r->rank, stack, &top, list, count, &out));
    if (top == 1 && stack[0].span.size == r->lanes.lanes) return combine(w, r->rank, &out, &stack[0], NULL);
    if (!r->lanes.turns || top != after->count)
        return err_set(ERR_INTERNAL, "%d subtrees are left of %" PRId64 " lanes on rank %d of %d", top, r->lanes.lanes,
                       r->rank, r->world);
    for (int i = 0; i < top; i++) {
        source to = {after->span[i], IN_OWN, w->dry ? NULL : w->job->kept[after->span[i].buffer]};
        TRY(combine(w, r->rank, &to, &stack[i], NULL));
    }
    return ERR_OK;
}

static err_t walk_job(walk *w) {
    reducer *r = w->r;
    int node = r->ranks->place[r->rank].node, count = 0, mines = 0;
    source mine[ORDERED_SPANS];
    r->sends = r->recvs = 0;
    TRY(phase_one(w, node));
    TRY(merge_node(w, node, mine, &mines));
    TRY(receive_nodes(w, node, r->gathered, &count));
    TRY(exchange(w));
    put_between(r->gathered, &count, mine, mines);
    return finish(w, r->gathered, count);
}

// Of any deal: the subtrees of this node's other ranks for each owner whose ranges this rank collects, and of its own
// ranges those of the other nodes.
static size_t most_scratch(const walk *w) {
    const reducer *r = w->r;
    int node = r->ranks->place[r->rank].node;
    size_t spans = (size_t)lane_spans_most(r->lanes.lanes, r->world), floats = 0;
    for (int owner = 0; owner < r->world; owner++)
        if (collector(r, owner, node) == r->rank) floats += ranges_floats(w, owner) * spans;
    return floats + (r->nodes > 1 ? ranges_floats(w, r->rank) * spans : 0);
}

err_t reduce_plan(reducer *r, int64_t turn, int first, int count, reduce_cost *out) {
    walk w = {.r = r, .job = &(reduce_job){.turn = turn, .first = first, .count = count}, .dry = true};
    TRY(walk_job(&w));
    *out = w.cost;
    if (r->moves) out->scratch = most_scratch(&w);
    return ERR_OK;
}

err_t reduce_run(reducer *r, const reduce_job *job, stream *s) {
    walk w = {.r = r, .job = job, .s = s, .scratch = job->scratch};
    return walk_job(&w);
}
