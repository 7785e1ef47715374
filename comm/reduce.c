// comm/reduce.c: see comm/reduce.h. Lanes and places alone determine which rank holds which subtrees after each phase,
// so every rank computes it for all: messages carry gradients only, and a job's cost is found by walking it without
// moving anything.
#include "comm/reduce.h"

#include "base/mix.h"
#include "comm/levels.h"

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

// Groups of ranks that are neighbours.
typedef struct level {
    int groups;
    int *first;  // [groups+1]: the first rank of each
    int *of;     // [world]: each rank's group
} level;

// Each rank by itself, those that are joined, those of a node, of a rack, and all.
enum { LEVELS = 5 };

struct reducer {
    comm *ranks;
    const ops *ops;
    int rank, world;
    int levels;           // of these, those that have fewer groups than the one before
    level level[LEVELS];  // with one array, level[0].first
    lane_table lanes;
    int64_t *deal;  // [world] what lanes.count points at
    bool moves, once;
    int segments;
    const size_t *cut;
    lane_counter *kept;  // turns+1: before turn t
    comm_part *send, *recv;
    int sends, recvs, send_room, recv_room;
    source *sources;  // what comes together on this rank in a phase, of one owner
    source *result;   // what the owner merges it to
    int room;
    // Of each owner whose ranges this rank has to pass on: what it merged in the phases before.
    source *held;  // (world, spans): of any range of lanes there are fewer subtrees, so one more can be merged in
    int spans;
    int *helds;  // [world]
};

// --- who holds what --------------------------------------------------------------------------------------------------

// Adds the subtrees that a rank holds at a turn, in its own buffers' numbers.
static void add_rank(const reducer *r, int rank, int64_t turn, lane_counter *c) {
    if (r->lanes.turns) {
        int64_t lane = lane_table_at(&r->lanes, rank, turn);
        if (lane >= 0) lane_counter_push(c, (lane_span){lane, lane_table_span(&r->lanes), 0});
    } else {
        lane_counter own =
            lane_counter_of(lane_table_first(&r->lanes, rank), lane_table_count(&r->lanes, rank), r->once);
        for (int i = 0; i < own.count; i++) lane_counter_push(c, own.span[i]);
    }
}

// c (=) those that a group holds once it has merged them: of a rank, as they are. What is beyond c->count is not set.
static void group_spans(const reducer *r, int at, int group, int64_t turn, lane_counter *c) {
    const level *l = &r->level[at];
    c->count = 0;
    if (at == 0) add_rank(r, group, turn, c);
    for (int k = l->first[group]; at > 0 && k < l->first[group + 1]; k++) {
        lane_counter one;
        group_spans(r, 0, k, turn, &one);
        for (int i = 0; i < one.count; i++) {
            lane_counter_push(c, one.span[i]);
            for (int into, from; lane_counter_merge(c, &into, &from);) {}
        }
    }
}

// The subtrees that an owner holds after each turn; `buffer` counts its kept buffers.
static void fill_kept(reducer *r) {
    enum { FRESH = 1 << 20 };
    for (int64_t t = 0; t < reduce_turns(r); t++) {
        lane_counter c = r->kept[t], all;
        group_spans(r, r->levels - 1, 0, t, &all);
        for (int i = 0; i < all.count; i++) {
            all.span[i].buffer = FRESH;
            lane_counter_push(&c, all.span[i]);
            for (int into, from; lane_counter_merge(&c, &into, &from);) {}
        }
        for (int i = 0; i < c.count; i++)
            if (c.span[i].buffer == FRESH) c.span[i].buffer = lane_counter_free(&c);
        r->kept[t + 1] = c;
    }
}

// The groups of the level below that make up a group: the first one, and the first of the next group.
static int parts_from(const reducer *r, int at, int group) { return r->level[at - 1].of[r->level[at].first[group]]; }
static int parts_to(const reducer *r, int at, int group) {
    return r->level[at - 1].of[r->level[at].first[group + 1] - 1] + 1;
}

// The rank of a group that merges what the group has of an owner's ranges: the owner itself in its own groups. In
// others, level by level, the part with the place that the owner's has in its own group.
static int collector(const reducer *r, int owner, int at, int group) {
    if (r->level[at].of[owner] == group) return owner;
    while (at > 0) {
        int place = r->level[at - 1].of[owner] - parts_from(r, at, r->level[at].of[owner]);
        int from = parts_from(r, at, group), parts = parts_to(r, at, group) - from;
        group = from + place % parts;
        at--;
    }
    return group;
}

static int own_group(const reducer *r, int at) { return r->level[at].of[r->rank]; }

static bool collects(const reducer *r, int owner, int at) {
    return collector(r, owner, at, own_group(r, at)) == r->rank;
}

int64_t reduce_turns(const reducer *r) { return lane_table_turns(&r->lanes); }

int reduce_ranks(const reducer *r) { return r->world; }

int64_t reduce_lane_count(const reducer *r, int rank) { return lane_table_count(&r->lanes, rank); }

const lane_table *reduce_lanes(const reducer *r) { return &r->lanes; }

// A rank without lanes has its sums in one.
int reduce_lane_buffers(const reducer *r) {
    if (r->lanes.turns) return lane_counter_buffers(0, lane_table_span(&r->lanes), r->once);
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

// Ranks of one group are neighbours: does the one before a rank belong to its group?
static bool joins_before(const reducer *r, int at, int rank) {
    comm_spot here = comm_where(r->ranks, rank), before = comm_where(r->ranks, rank - 1);
    return at == 0   ? false
           : at == 1 ? comm_joined(before, here)
           : at == 2 ? before.node == here.node
           : at == 3 ? before.rack == here.rack
                     : true;
}

// One array for all, since they are few numbers.
static err_t group_ranks(reducer *r) {
    size_t each = 2 * (size_t)r->world + 1;
    int *room = calloc(LEVELS * each, sizeof *room);
    if (!room) return err_set(ERR_INTERNAL, "no memory for the groups of %d ranks", r->world);
    for (int at = 0; at < LEVELS; at++) {
        level l = {.first = room + (size_t)r->levels * each};
        l.of = l.first + r->world + 1;
        for (int k = 0; k < r->world; k++) {
            if (k == 0 || !joins_before(r, at, k)) l.first[l.groups++] = k;
            l.of[k] = l.groups - 1;
        }
        l.first[l.groups] = r->world;
        bool more = at == 0 || l.groups < r->level[r->levels - 1].groups;
        if (more) r->level[r->levels++] = l;
    }
    return ERR_OK;
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
                   .lanes = {.lanes = o->lanes, .world = o->ranks->world, .turns = o->turns, .span = o->span},
                   .moves = o->moves && !o->turns,
                   .once = o->once,
                   .segments = o->segments,
                   .cut = o->cut};
    r->deal = calloc((size_t)r->world, sizeof *r->deal);
    err_t rc = group_ranks(r);
    if (rc == ERR_OK && r->deal) rc = take_deal(r, o->deal);
    if (rc != ERR_OK) return reduce_close(r), rc;
    r->room = most_sources(r);
    r->sources = calloc((size_t)r->room, sizeof *r->sources);
    r->result = calloc((size_t)r->room, sizeof *r->result);
    r->spans = lane_counter_most(o->lanes, false) + 2;
    r->held = calloc((size_t)r->world * (size_t)r->spans, sizeof *r->held);
    r->helds = calloc((size_t)r->world, sizeof *r->helds);
    r->kept = calloc((size_t)reduce_turns(r) + 1, sizeof *r->kept);
    if (!r->deal || !r->sources || !r->result || !r->held || !r->helds || !r->kept) {
        reduce_close(r);
        return err_set(ERR_INTERNAL, "no memory for a reduction over %d ranks", o->ranks->world);
    }
    if (r->lanes.turns) fill_kept(r);
    *out = r;
    return ERR_OK;
}

void reduce_close(reducer *r) {
    if (!r) return;
    free(r->level[0].first), free(r->deal), free(r->kept), free(r->send), free(r->recv), free(r->sources),
        free(r->result), free(r->held), free(r->helds);
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

// --- phases ----------------------------------------------------------------------------------------------------------

// What this rank holds of an owner's ranges goes to the collector of the group above.
static err_t send_up(walk *w, int at) {
    reducer *r = w->r;
    for (int owner = 0; owner < r->world; owner++) {
        if (!collects(r, owner, at - 1)) continue;
        int peer = collector(r, owner, at, own_group(r, at));
        for (int i = 0; peer != r->rank && i < r->helds[owner]; i++)
            TRY(list_ranges(w, true, peer, owner, &r->held[owner * r->spans + i]));
    }
    return ERR_OK;
}

// The group's subtrees of an owner's ranges, in order of lane: what this rank holds where it is, the others' where they
// will arrive.
static err_t list_collected(walk *w, int at, int owner, int *count) {
    reducer *r = w->r;
    int group = own_group(r, at), own = own_group(r, at - 1);
    *count = 0;
    for (int part = parts_from(r, at, group); part < parts_to(r, at, group); part++) {
        if (part == own) {
            memcpy(&r->sources[*count], &r->held[owner * r->spans], (size_t)r->helds[owner] * sizeof *r->sources);
            *count += r->helds[owner];
            continue;
        }
        lane_counter c;
        group_spans(r, at - 1, part, w->job->turn, &c);
        for (int i = 0; i < c.count; i++) {
            source x = take_scratch(w, c.span[i], owner);
            TRY(list_ranges(w, false, collector(r, owner, at - 1, part), owner, &x));
            r->sources[(*count)++] = x;
        }
    }
    return ERR_OK;
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

// The owner is in the last group, which is of all ranks.
static err_t merge_collected(walk *w, int at, int owner) {
    reducer *r = w->r;
    int count, recvs = r->recvs;
    TRY(list_collected(w, at, owner, &count));
    r->recvs = recvs;
    if (at == r->levels - 1) return finish(w, r->sources, count);
    r->helds[owner] = 0;
    return merge(w, owner, &r->held[owner * r->spans], &r->helds[owner], r->sources, count, NULL);
}

// Each group of a level merges what its parts hold. Where an owner's ranges begin in scratch is found twice by walking
// in the same order: for the messages, and for the sums.
static err_t phase(walk *w, int at) {
    reducer *r = w->r;
    float *scratch = w->scratch;
    size_t used = w->cost.scratch;
    TRY(send_up(w, at));
    for (int owner = 0, count; owner < r->world; owner++)
        if (collects(r, owner, at)) TRY(list_collected(w, at, owner, &count));
    TRY(exchange(w));
    w->scratch = scratch;
    w->cost.scratch = used;
    for (int owner = 0; owner < r->world; owner++)
        if (collects(r, owner, at)) TRY(merge_collected(w, at, owner));
    return ERR_OK;
}

static err_t walk_job(walk *w) {
    reducer *r = w->r;
    lane_counter mine;
    group_spans(r, 0, r->rank, w->job->turn, &mine);
    r->sends = r->recvs = 0;
    for (int owner = 0; owner < r->world; owner++) {
        r->helds[owner] = mine.count;
        for (int i = 0; i < mine.count; i++) r->held[owner * r->spans + i] = own_source(w, mine.span[i]);
    }
    for (int at = 1; at < r->levels; at++) TRY(phase(w, at));
    return r->levels == 1 ? finish(w, r->held, mine.count) : ERR_OK;
}

// Of any deal: the subtrees of the other parts of each group for each owner whose ranges this rank collects there.
static size_t most_scratch(const walk *w) {
    const reducer *r = w->r;
    size_t spans = (size_t)lane_spans_most(r->lanes.lanes, r->world), floats = 0;
    for (int at = 1; at < r->levels; at++)
        for (int owner = 0; owner < r->world; owner++)
            if (collects(r, owner, at)) floats += ranges_floats(w, owner) * spans;
    return floats;
}

err_t reduce_plan(reducer *r, int64_t turn, int first, int count, reduce_cost *out) {
    walk w = {.r = r, .job = &(reduce_job){.turn = turn, .first = first, .count = count}, .dry = true};
    TRY(walk_job(&w));
    *out = w.cost;
    if (r->moves) out->scratch = most_scratch(&w);
    return ERR_OK;
}

// --- ranks that do the same ------------------------------------------------------------------------------------------

// What a rank brings: its lanes, the buffers that they need, and the subtrees that are left of them. A subtree takes as
// much room, and as many bytes, however many lanes it is of.
static uint64_t mark_lanes(const reducer *r, int rank) {
    int64_t count = lane_table_count(&r->lanes, rank);
    uint64_t h = mix(0, (uint64_t)count);
    if (!r->lanes.turns && !r->moves)
        h = mix(h, (uint64_t)lane_counter_buffers(lane_table_first(&r->lanes, rank), count, r->once));
    for (int64_t t = 0; t < reduce_turns(r); t++) {
        lane_counter c;
        group_spans(r, 0, rank, t, &c);
        h = mix(h, (uint64_t)c.count);
    }
    return h;
}

// What the parts of a group bring to it, and of that each part.
static void mark_group(const reducer *r, int at, int group, uint64_t *mark) {
    const level *below = &r->level[at - 1];
    for (int64_t t = 0; t < reduce_turns(r); t++) {
        uint64_t all = 0;
        for (int own = 0; own < 2; own++)
            for (int part = parts_from(r, at, group); part < parts_to(r, at, group); part++) {
                lane_counter c;
                group_spans(r, at - 1, part, t, &c);
                if (!own) all += (uint64_t)c.count;
                for (int k = below->first[part]; own && k < below->first[part + 1]; k++)
                    mark[k] = mix(mark[k], all << 32 | (uint64_t)c.count);
            }
    }
}

// The owners whose ranges a rank merges for its group, in any order.
static void mark_owners(const reducer *r, int at, const uint64_t *ranges, uint64_t *sum, uint64_t *mark) {
    memset(sum, 0, (size_t)r->world * sizeof *sum);
    for (int owner = 0; owner < r->world; owner++)
        for (int g = 0; g < r->level[at].groups; g++) sum[collector(r, owner, at, g)] += mix(1, ranges[owner]);
    for (int k = 0; k < r->world; k++) mark[k] = mix(mark[k], sum[k]);
}

static bool has_joins(const reducer *r) {
    bool has = false;
    for (int k = 1; k < r->world; k++) has |= joins_before(r, 2, k) && !joins_before(r, 1, k);
    return has;
}

// Whose ranges a rank hands on in an all_gather, and to whom: the routes of comm/levels.h, where joined ranks are no
// level of their own. Without those, the routes are the way back of the reduction.
static void mark_routes(const reducer *r, const uint64_t *ranges, uint64_t *sum, uint64_t *mark) {
    int room[levels_room(r->world)];
    levels l;
    levels_of(&l, r->ranks, room);
    memset(sum, 0, (size_t)r->world * sizeof *sum);
    for (int owner = 0; owner < r->world; owner++) {
        for (int k = 0; k < l.racks; k++) sum[levels_in_rack(&l, owner, k)] += mix(2, ranges[owner]);
        for (int n = 0; n < l.nodes; n++) sum[levels_in_node(&l, owner, n)] += mix(3, ranges[owner]);
    }
    for (int k = 0; k < r->world; k++) {
        int from = l.first[l.node[k]], to = l.first[l.node[k] + 1], joined = 0;
        for (int i = from; i < to; i++)
            joined += comm_joined(comm_where(r->ranks, k), comm_where(r->ranks, l.member[i]));
        mark[k] = mix(mix(mark[k], sum[k]), (uint64_t)(to - from) << 32 | (uint64_t)joined);
    }
}

err_t reduce_marks(const reducer *r, const uint64_t *ranges, uint64_t *mark) {
    uint64_t *sum = calloc((size_t)r->world, sizeof *sum);
    if (!sum) return err_set(ERR_INTERNAL, "no memory to compare %d ranks", r->world);
    for (int k = 0; k < r->world; k++) mark[k] = mix(mark_lanes(r, k), ranges[k]);
    for (int at = 1; at < r->levels; at++) {
        for (int g = 0; g < r->level[at].groups; g++) mark_group(r, at, g, mark);
        if (at + 1 < r->levels) mark_owners(r, at, ranges, sum, mark);  // of all ranks each merges its own
    }
    if (has_joins(r)) mark_routes(r, ranges, sum, mark);
    free(sum);
    return ERR_OK;
}

err_t reduce_run(reducer *r, const reduce_job *job, stream *s) {
    walk w = {.r = r, .job = job, .s = s, .scratch = job->scratch};
    return walk_job(&w);
}
