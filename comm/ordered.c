// comm/ordered.c: see comm/ordered.h.
#include "comm/ordered.h"

#include <assert.h>
#include <stddef.h>

lane_deal lane_deal_of(int64_t lanes, int world, int rank, bool turns) {
    if (turns) return (lane_deal){rank, (lanes - rank + world - 1) / world, world};
    int64_t first = rank * lanes / world;
    return (lane_deal){first, (rank + 1) * lanes / world - first, 1};
}

int64_t lane_turns(int64_t lanes, int world, bool turns) { return turns ? (lanes + world - 1) / world : 1; }

int64_t lane_table_count(const lane_table *t, int rank) {
    int64_t span = lane_table_span(t);
    return t->count ? t->count[rank] : lane_deal_of(t->lanes / span, t->world, rank, t->turns).count * span;
}

int64_t lane_table_first(const lane_table *t, int rank) {
    if (!t->count) return lane_deal_of(t->lanes, t->world, rank, false).first;
    int64_t first = 0;
    for (int k = 0; k < rank; k++) first += t->count[k];
    return first;
}

// Those that earlier turns have run, and those of this turn on ranks before this one.
int64_t lane_table_at(const lane_table *t, int rank, int64_t turn) {
    int64_t span = lane_table_span(t), number = 0;  // of the span
    if (turn * span >= lane_table_count(t, rank)) return -1;
    if (!t->count) return (turn * t->world + rank) * span;
    for (int k = 0; k < t->world; k++) number += t->count[k] / span < turn ? t->count[k] / span : turn;
    for (int k = 0; k < rank; k++) number += t->count[k] / span > turn;
    return number * span;
}

int64_t lane_table_lane(const lane_table *t, int rank, int64_t i) {
    int64_t span = lane_table_span(t);
    return t->turns ? lane_table_at(t, rank, i / span) + i % span : lane_table_first(t, rank) + i;
}

int64_t lane_table_turns(const lane_table *t) {
    int64_t most = 0, span = lane_table_span(t);
    if (!t->turns || !t->count) return lane_turns(t->lanes / span, t->world, t->turns);
    for (int k = 0; k < t->world; k++) most = t->count[k] > most ? t->count[k] : most;
    return most / span;
}

int lane_counter_free(const lane_counter *c) {
    for (int b = 0;; b++) {
        bool taken = false;
        for (int i = 0; i < c->count; i++) taken |= c->span[i].buffer == b;
        if (!taken) return b;
    }
}

void lane_counter_push(lane_counter *c, lane_span s) {
    assert(c->count < ORDERED_SPANS && s.size > 0 && (s.size & (s.size - 1)) == 0 && s.first % s.size == 0);
    assert(c->count == 0 || c->span[c->count - 1].first + c->span[c->count - 1].size == s.first);
    c->span[c->count++] = s;
}

bool lane_counter_merge(lane_counter *c, int *into, int *from) {
    if (c->count < 2) return false;
    lane_span *left = &c->span[c->count - 2], *right = &c->span[c->count - 1];
    if (left->size != right->size || left->first % (2 * left->size) != 0) return false;
    *into = left->buffer;
    *from = right->buffer;
    left->size *= 2;
    c->count--;
    return true;
}

lane_place lane_counter_begin(const lane_counter *c, int64_t lane, bool once) {
    const lane_span *last = c->count ? &c->span[c->count - 1] : NULL;
    bool joins = once && last && last->size == 1 && last->first % 2 == 0 && last->first + 1 == lane;
    return (lane_place){joins ? last->buffer : lane_counter_free(c), joins};
}

void lane_counter_end(lane_counter *c, int64_t lane, lane_place at) {
    if (at.joins) c->span[c->count - 1].size = 2;
    else lane_counter_push(c, (lane_span){lane, 1, at.buffer});
}

// *most: spans held at once.
static lane_counter run_lanes(int64_t first, int64_t count, bool once, int *most) {
    lane_counter c = {0};
    int into, from;
    *most = 0;
    for (int64_t l = first; l < first + count; l++) {
        lane_counter_end(&c, l, lane_counter_begin(&c, l, once));
        if (c.count > *most) *most = c.count;
        while (lane_counter_merge(&c, &into, &from)) {}
    }
    return c;
}

int lane_counter_buffers(int64_t first, int64_t count, bool once) {
    int most;
    run_lanes(first, count, once, &most);
    return most;
}

static int levels(int64_t lanes) {
    int n = 0;
    while (lanes > 1 << n) n++;
    return n;
}

// A range that begins with the second lane and ends before the last one has two subtrees of each size but the largest;
// the last of them is being filled, and without joins so is its sibling.
int lane_counter_most(int64_t lanes, bool once) {
    int most = 2 * levels(lanes) - (once ? 2 : 1), least = lanes > 1 && !once ? 2 : 1;
    return most > least ? most : least;
}

// A cut between two ranks divides one subtree of each size, at most.
int64_t lane_spans_most(int64_t lanes, int world) {
    int64_t most = 1 + (int64_t)(world - 1) * levels(lanes);
    return most < lanes ? most : lanes;
}

lane_counter lane_counter_of(int64_t first, int64_t count, bool once) {
    int most;
    return run_lanes(first, count, once, &most);
}
