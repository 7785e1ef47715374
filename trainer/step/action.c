// trainer/step/action.c: see trainer/step/action.h.
#include "trainer/step/action.h"

#include "comm/ordered.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

// While a list is made.
typedef struct maker {
    const action_layout *l;
    action_list *out;
    bool failed;  // no memory
    int held[2];  // ZeRO 3: the block in each of the two places, -1: none
    bool spread;  // weights of the last update may still be on their way
    // The micro-batch:
    bool works, final;  // this rank has one; its gradients, or the turn's, are final after it
    int buffer;
    int64_t turn;
    const lane_counter *c;  // where its lane is counted, not merged yet; NULL: nothing to add
} maker;

static void push(maker *m, action a) {
    action_list *o = m->out;
    if (o->count == o->room) {
        int room = o->room ? 2 * o->room : 64;
        action *at = realloc(o->at, (size_t)room * sizeof *at);
        if (!at) m->failed = true;
        if (!at) return;
        o->at = at, o->room = room;
    }
    o->at[o->count++] = a;
}

static err_t end(maker *m) {
    if (!m->failed) return ERR_OK;
    action_list_free(m->out);
    return err_set(ERR_INTERNAL, "no memory for the actions of a step");
}

// --- blocks ------------------------------------------------------------------------------------------------------------

static void gather(maker *m, int block) {
    if (block < 0 || block >= m->l->blocks || m->held[block % 2] == block) return;
    m->held[block % 2] = block;
    push(m, (action){.kind = ACTION_GATHER, .first = block});
}

// ZeRO 3: the next block is on its way while this one is used.
static void need(maker *m, int block, int next) {
    if (m->l->shards_weights) {
        gather(m, block);
        gather(m, next);
    }
    if (m->l->shards_weights || m->spread) push(m, (action){.kind = ACTION_NEED, .first = block});
}

static void forward(maker *m) {
    const action_layout *l = m->l;
    if (!l->shards_weights && !m->spread) {
        if (m->works) push(m, (action){.kind = ACTION_FORWARD, .last = l->blocks - 1});
        return;
    }
    for (int b = 0; b < l->blocks; b++) {
        need(m, b, b + 1);
        if (m->works) push(m, (action){.kind = ACTION_FORWARD, .first = b, .last = b});
    }
    m->spread = false;
}

// The bucket is final: the siblings that the last lane completes are added in it, and it is on its way.
static void finish_bucket(maker *m, int k) {
    if (m->c) {
        lane_counter after = *m->c;
        for (int into, from; lane_counter_merge(&after, &into, &from);)
            push(m, (action){.kind = ACTION_ADD, .buffer = into, .from = from, .bucket = k});
    }
    push(m, (action){.kind = ACTION_REDUCE, .bucket = k, .turn = m->turn});
}

static bool reduces(const maker *m) { return m->final && m->l->world > 1; }

static void backward(maker *m) {
    const action_layout *l = m->l;
    bool alone = !l->shards_weights && !l->slots && !reduces(m);
    if (alone && m->works) push(m, (action){.kind = ACTION_BACKWARD, .last = l->blocks - 1, .buffer = m->buffer});
    for (int b = l->blocks - 1; b >= 0 && !alone; b--) {
        if (l->shards_weights) need(m, b, b - 1);
        for (int k = 0; l->slots && k < l->buckets; k++)
            if (l->bucket[k].highest == b) push(m, (action){.kind = ACTION_TAKE, .bucket = k});
        if (m->works) push(m, (action){.kind = ACTION_BACKWARD, .first = b, .last = b, .buffer = m->buffer});
        for (int k = 0; reduces(m) && k < l->buckets; k++)
            if (l->bucket[k].lowest == b) finish_bucket(m, k);
    }
}

static void micro_batch(maker *m, int64_t lane, int64_t k) {
    if (m->works) push(m, (action){.kind = ACTION_LOAD, .lane = lane, .micro = k, .buffer = m->buffer});
    forward(m);
    backward(m);
    if (m->works) push(m, (action){.kind = ACTION_LOSSES});
}

// --- lanes -------------------------------------------------------------------------------------------------------------

static void zero(maker *m, int buffer) {
    if (!m->l->slots) push(m, (action){.kind = ACTION_ZERO, .buffer = buffer});
}

// ZeRO 0 and 1: a range of lanes, reduced once after the last. Sibling subtrees are added as soon as both exist; those
// that the last lane completes are added bucket by bucket where others wait for them.
static void range_of_lanes(maker *m, int rank) {
    const action_layout *l = m->l;
    lane_deal d = lane_deal_of(l->lanes, l->world, rank, false);
    lane_counter c = {0};
    for (int64_t lane = d.first; lane < d.first + d.count; lane++) {
        bool last = lane == d.first + d.count - 1;
        lane_place at = l->fixed ? lane_counter_begin(&c, lane, l->once) : (lane_place){0, lane > d.first};
        if (!at.joins) zero(m, at.buffer);
        if (l->fixed) lane_counter_end(&c, lane, at);
        m->buffer = at.buffer;
        for (int64_t k = 0; k < l->micros; k++) {
            m->final = last && k == l->micros - 1;
            m->c = l->fixed ? &c : NULL;
            micro_batch(m, lane, k);
        }
        bool added = last && l->world > 1;
        for (int into, from; l->fixed && !added && lane_counter_merge(&c, &into, &from);)
            push(m, (action){.kind = ACTION_ADD, .buffer = into, .from = from, .bucket = -1});
    }
}

// ZeRO 2 and 3: one lane a turn. A rank without a lane at the last turn still sends its weights and receives its sums.
static void turns_of_lanes(maker *m, int rank) {
    const action_layout *l = m->l;
    for (m->turn = 0; m->turn < lane_turns(l->lanes, l->world, true); m->turn++) {
        int64_t lane = m->turn * l->world + rank;
        m->works = lane < l->lanes;
        if (!l->slots) push(m, (action){.kind = ACTION_SETTLE});
        zero(m, 0);
        for (int64_t k = 0; k < l->micros; k++) {
            m->final = k == l->micros - 1;
            micro_batch(m, lane, k);
        }
    }
}

err_t action_step(const action_layout *l, int rank, action_list *out) {
    maker m = {.l = l, .out = out, .held = {-1, -1}, .spread = l->spreads && l->world > 1, .works = true};
    *out = (action_list){0};
    if (l->shards_gradients) turns_of_lanes(&m, rank);
    else range_of_lanes(&m, rank);
    push(&m, (action){.kind = ACTION_SETTLE});
    for (int kind = ACTION_SQUARES; kind <= ACTION_SPREAD; kind++) push(&m, (action){.kind = (action_kind)kind});
    return end(&m);
}

err_t action_look(const action_layout *l, action_list *out) {
    maker m = {.l = l, .out = out, .held = {-1, -1}, .spread = l->spreads && l->world > 1, .works = true};
    *out = (action_list){0};
    forward(&m);
    return end(&m);
}

void action_list_free(action_list *a) {
    free(a->at);
    *a = (action_list){0};
}

bool action_is_quiet(const action_layout *l, const action_list *a, int i) {
    const action *x = a->at + i;
    return i + 3 < a->count && x[0].kind == ACTION_LOAD && x[1].kind == ACTION_FORWARD && x[1].first == 0 && x[1].last == l->blocks - 1 &&
           x[2].kind == ACTION_BACKWARD && x[2].first == 0 && x[2].last == l->blocks - 1 && x[3].kind == ACTION_LOSSES;
}

const char *action_text(const action *a, char dst[ACTION_TEXT]) {
    static const char *const names[] = {
        [ACTION_LOAD] = "load",       [ACTION_ZERO] = "zero",     [ACTION_GATHER] = "gather",     [ACTION_NEED] = "need",
        [ACTION_FORWARD] = "forward", [ACTION_TAKE] = "take",     [ACTION_BACKWARD] = "backward", [ACTION_LOSSES] = "losses",
        [ACTION_ADD] = "add",         [ACTION_REDUCE] = "reduce", [ACTION_SETTLE] = "settle",     [ACTION_SQUARES] = "squares",
        [ACTION_SHARE] = "share",     [ACTION_UPDATE] = "update", [ACTION_SPREAD] = "spread"};
    int n = snprintf(dst, ACTION_TEXT, "%s", names[a->kind]);
    char *to = dst + n;
    size_t room = ACTION_TEXT - (size_t)n;
    switch (a->kind) {
    case ACTION_LOAD: snprintf(to, room, " %" PRId64 ".%" PRId64, a->lane, a->micro); break;
    case ACTION_ZERO: snprintf(to, room, " %d", a->buffer); break;
    case ACTION_GATHER:
    case ACTION_NEED: snprintf(to, room, " %d", a->first); break;
    case ACTION_FORWARD: snprintf(to, room, " %d-%d", a->first, a->last); break;
    case ACTION_BACKWARD: snprintf(to, room, " %d-%d", a->last, a->first); break;
    case ACTION_TAKE: snprintf(to, room, " bucket %d", a->bucket); break;
    case ACTION_ADD:
        if (a->bucket < 0) snprintf(to, room, " %d += %d", a->buffer, a->from);
        else snprintf(to, room, " %d += %d in bucket %d", a->buffer, a->from, a->bucket);
        break;
    case ACTION_REDUCE: snprintf(to, room, " bucket %d turn %" PRId64, a->bucket, a->turn); break;
    default: break;
    }
    return dst;
}
