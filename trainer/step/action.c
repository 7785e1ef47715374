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
    action unit;            // what all actions of a pipeline's unit have in common
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

// --- blocks ----------------------------------------------------------------------------------------------------------

static void gather(maker *m, int block) {
    if (block < 0 || block >= m->l->blocks || m->held[block % 2] == block) return;
    m->held[block % 2] = block;
    push(m, (action){.kind = ACTION_GATHER, .first = block});
}

// ZeRO 3: the next block is on its way while this one is used.
static void need(maker *m, int block, int next) {
    if (m->l->shards_weights) {
        gather(m, block);
        if (next != block && next % 2 != block % 2) gather(m, next);
    }
    if (m->l->shards_weights || m->spread) push(m, (action){.kind = ACTION_NEED, .first = block});
}

// As the unit says of a pipeline; else all zero.
static void push_blocks(maker *m, action_kind kind, int first, int last) {
    action a = m->unit;
    a.kind = kind, a.first = first, a.last = last;
    if (kind != ACTION_FORWARD) a.buffer = m->buffer;
    if (m->works) push(m, a);
}

// next: the block that runs after them.
static void forward(maker *m, int first, int last, int next) {
    const action_layout *l = m->l;
    if (!l->shards_weights && !m->spread) {
        push_blocks(m, ACTION_FORWARD, first, last);
        return;
    }
    for (int b = first; b <= last; b++) {
        need(m, b, b < last ? b + 1 : next);
        push_blocks(m, ACTION_FORWARD, b, b);
    }
}

// The token slices of a lane, which has ended: ((0+1)+(2+3)). The first one is in the lane's buffer.
static void add_tokens(maker *m, int buffer, int bucket) {
    const action_layout *l = m->l;
    for (int step = 1; step < l->tables; step *= 2)
        for (int k = 0; k + step < l->tables; k += 2 * step)
            push(m, (action){.kind = ACTION_ADD,
                             .buffer = k ? l->table + k - 1 : buffer,
                             .from = l->table + k + step - 1,
                             .bucket = bucket});
}

// The bucket is final: the siblings that the last lane completes are added in it, and it is on its way.
static void finish_bucket(maker *m, int k) {
    add_tokens(m, m->buffer, k);
    if (m->c) {
        lane_counter after = *m->c;
        for (int into, from; lane_counter_merge(&after, &into, &from);)
            push(m, (action){.kind = ACTION_ADD, .buffer = into, .from = from, .bucket = k});
    }
    push(m, (action){.kind = ACTION_REDUCE, .bucket = k, .turn = m->turn});
}

static bool reduces(const maker *m) { return m->final && m->l->world > 1; }

// A half for inputs finishes no gradient, and one for weights reads no weights.
static void backward(maker *m, action_kind kind, int first, int last, int next) {
    const action_layout *l = m->l;
    bool needs = l->shards_weights && kind != ACTION_WEIGHTS, ends = reduces(m) && kind != ACTION_INPUTS;
    if (!needs && !l->slots && !ends) {
        push_blocks(m, kind, first, last);
        return;
    }
    for (int b = last; b >= first; b--) {
        if (needs) need(m, b, b > first ? b - 1 : next);
        for (int k = 0; l->slots && k < l->buckets; k++)
            if (l->bucket[k].highest == b) push(m, (action){.kind = ACTION_TAKE, .bucket = k});
        push_blocks(m, kind, b, b);
        for (int k = 0; ends && k < l->buckets; k++)
            if (l->bucket[k].lowest == b) finish_bucket(m, k);
    }
}

static void micro_batch(maker *m, int64_t lane, int64_t k) {
    if (m->works) push(m, (action){.kind = ACTION_LOAD, .lane = lane, .micro = k, .buffer = m->buffer});
    forward(m, 0, m->l->blocks - 1, m->l->blocks - 1);
    m->spread = false;
    backward(m, ACTION_BACKWARD, 0, m->l->blocks - 1, 0);
    if (m->works) push(m, (action){.kind = ACTION_LOSSES});
}

// --- lanes -----------------------------------------------------------------------------------------------------------

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
        if (!added) add_tokens(m, at.buffer, -1);
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

// --- a pipeline's units ----------------------------------------------------------------------------------------------

// A lane of this rank: the buffer of its gradients, and the counter once it has ended, before siblings are merged.
typedef struct lane_plan {
    int64_t lane;
    lane_place at;
    lane_counter ended;
    bool works, last;
} lane_plan;

static void plan_range(const action_layout *l, int rank, lane_plan *plan) {
    lane_deal d = lane_deal_of(l->lanes, l->world, rank, false);
    lane_counter c = {0};
    for (int64_t i = 0; i < d.count; i++) {
        lane_plan *k = &plan[i];
        *k = (lane_plan){.lane = d.first + i, .works = true, .last = i == d.count - 1};
        k->at = l->fixed ? lane_counter_begin(&c, k->lane, l->once) : (lane_place){0, i > 0};
        if (l->fixed) lane_counter_end(&c, k->lane, k->at);
        k->ended = c;
        for (int into, from; l->fixed && lane_counter_merge(&c, &into, &from);) {}
    }
}

static void plan_turns(const action_layout *l, int rank, lane_plan *plan) {
    for (int64_t t = 0; t < lane_turns(l->lanes, l->world, true); t++) {
        int64_t lane = t * l->world + rank;
        plan[t] = (lane_plan){.lane = lane, .works = lane < l->lanes, .last = true};
    }
}

static int first_block(const action_layout *l, const unit *u) { return l->pipe->cut[u->stage]; }
static int last_block(const action_layout *l, const unit *u) { return l->pipe->cut[u->stage + 1] - 1; }

// The block whose weights are wanted after unit i; that of unit i itself if no later one wants any.
static int block_after(const maker *m, int i, int own) {
    const unit_table *t = &m->l->pipe->table;
    while (++i < t->units && t->unit[i].kind == UNIT_WEIGHTS) {}
    if (i == t->units) return own;
    return t->unit[i].kind == UNIT_FORWARD ? first_block(m->l, &t->unit[i]) : last_block(m->l, &t->unit[i]);
}

// Where this rank has the unit's micro-batch in the stage before.
static int slot_before(const unit_table *t, const unit *u) {
    int i = 0;
    while (t->unit[i].kind != UNIT_FORWARD || t->unit[i].stage != u->stage - 1 || t->unit[i].micro != u->micro) i++;
    return t->unit[i].slot;
}

static void unit_forward(maker *m, int i, const lane_plan *k) {
    const stages *p = m->l->pipe;
    const unit *u = &p->table.unit[i];
    int first = first_block(m->l, u), last = last_block(m->l, u);
    if (u->stage == stages_of(p, 0) && m->works) {
        action load = m->unit;
        load.kind = ACTION_LOAD, load.lane = k->lane, load.micro = u->micro % m->l->micros, load.buffer = m->buffer;
        push(m, load);
    }
    if (u->receive < 0 && u->stage > 0)
        push(m, (action){.kind = ACTION_HAND,
                         .first = first - 1,
                         .from = slot_before(&p->table, u),
                         .slot = u->slot,
                         .place = m->unit.place});
    m->spread = m->l->spreads && m->l->world > 1 && u->micro == 0;
    forward(m, first, last, block_after(m, i, last));
}

// The stage's part of the lane is done. Siblings that the rank's last lane completes are added where their bucket is
// reduced.
static void end_lane(maker *m, int stage, const lane_plan *k) {
    const action_layout *l = m->l;
    lane_counter after = k->ended;
    if (reduces(m)) return;
    for (int b = 0; b < l->buckets; b++)
        if (l->bucket[b].chunk == l->pipe->chunk[l->pipe->cut[stage]]) add_tokens(m, k->at.buffer, b);
    if (!l->fixed || l->shards_gradients) return;
    for (int into, from; lane_counter_merge(&after, &into, &from);)
        for (int b = 0; b < l->buckets; b++)
            if (l->bucket[b].chunk == l->pipe->chunk[l->pipe->cut[stage]])
                push(m, (action){.kind = ACTION_ADD, .buffer = into, .from = from, .bucket = b});
}

static void unit_backward(maker *m, int i, const lane_plan *k) {
    const action_layout *l = m->l;
    const unit *u = &l->pipe->table.unit[i];
    static const action_kind kinds[] = {
        [UNIT_BACKWARD] = ACTION_BACKWARD, [UNIT_INPUTS] = ACTION_INPUTS, [UNIT_WEIGHTS] = ACTION_WEIGHTS};
    int first = first_block(l, u), last = last_block(l, u);
    bool begins = u->micro % l->micros == 0, ends = u->micro % l->micros == l->micros - 1;
    if (begins && u->kind != UNIT_WEIGHTS && l->shards_gradients && m->turn > 0)
        push(m, (action){.kind = ACTION_SETTLE});
    m->unit.fresh = begins && !k->at.joins;
    backward(m, kinds[u->kind], first, last, block_after(m, i, first));
    if (u->kind != UNIT_WEIGHTS && u->stage == l->pipe->count - 1 && m->works)
        push(m, (action){.kind = ACTION_LOSSES, .place = m->unit.place});
    if (ends && u->kind != UNIT_INPUTS) end_lane(m, u->stage, k);
}

static void run_unit(maker *m, int i, const lane_plan *plan) {
    const action_layout *l = m->l;
    const unit *u = &l->pipe->table.unit[i];
    const lane_plan *k = &plan[u->micro / l->micros];
    m->works = k->works, m->buffer = k->at.buffer;
    m->turn = l->shards_gradients ? u->micro / l->micros : 0;
    m->final = k->last && u->micro % l->micros == l->micros - 1;
    m->c = l->fixed && !l->shards_gradients ? &k->ended : NULL;
    m->unit =
        (action){.place = l->pipe->place[u->micro], .slot = u->slot, .in = u->gradient_in, .out = u->gradient_out};
    if (u->reuse >= 0) push(m, (action){.kind = ACTION_AWAIT, .message = u->reuse});
    if (u->receive >= 0) push(m, (action){.kind = ACTION_AWAIT, .message = u->receive});
    if (u->kind == UNIT_FORWARD) unit_forward(m, i, k);
    else unit_backward(m, i, k);
}

// Halves for weights that were put off past the end of their lane: a stage's lanes follow each other, or the next one's
// gradients would come into their buffers. These units have no messages, so they may come earlier than in the table.
static void catch_up(maker *m, int i, bool *done, const lane_plan *plan) {
    const unit_table *t = &m->l->pipe->table;
    int lane = (int)(t->unit[i].micro / m->l->micros);
    for (int j = i + 1; j < t->units; j++) {
        const unit *u = &t->unit[j];
        if (done[j] || u->kind != UNIT_WEIGHTS || u->stage != t->unit[i].stage || u->micro / m->l->micros >= lane)
            continue;
        run_unit(m, j, plan);
        done[j] = true;
    }
}

static void units_of_lanes(maker *m, int rank, bool *done, lane_plan *plan) {
    const unit_table *t = &m->l->pipe->table;
    int posted = 0;
    if (m->l->shards_gradients) plan_turns(m->l, rank, plan);
    else plan_range(m->l, rank, plan);
    for (int i = -1; i < t->units; i++) {
        if (i >= 0 && t->unit[i].kind == UNIT_INPUTS) catch_up(m, i, done, plan);
        if (i >= 0 && !done[i]) run_unit(m, i, plan);
        for (; posted < t->messages && t->message[posted].after <= i; posted++)
            push(m, (action){.kind = ACTION_POST, .message = posted});
    }
}

static void pipeline_lanes(maker *m, int rank) {
    bool *done = calloc((size_t)m->l->pipe->table.units + 1, sizeof *done);
    lane_plan *plan = calloc((size_t)m->l->lanes + 1, sizeof *plan);
    if (done && plan) units_of_lanes(m, rank, done, plan);
    else m->failed = true;
    free(done), free(plan);
}

// --- a step ----------------------------------------------------------------------------------------------------------

err_t action_step(const action_layout *l, int rank, action_list *out) {
    maker m = {.l = l, .out = out, .held = {-1, -1}, .spread = l->spreads && l->world > 1, .works = true};
    *out = (action_list){0};
    if (l->pipe) pipeline_lanes(&m, rank);
    else if (l->shards_gradients) turns_of_lanes(&m, rank);
    else range_of_lanes(&m, rank);
    push(&m, (action){.kind = ACTION_SETTLE});
    for (int kind = ACTION_SQUARES; kind <= ACTION_SPREAD; kind++) push(&m, (action){.kind = (action_kind)kind});
    return end(&m);
}

// The rank's stages, in order of the model.
static void look_through(maker *m) {
    const stages *p = m->l->pipe;
    for (int c = 0; c < p->pipe.chunks; c++) {
        int s = stages_of(p, c), first = p->cut[s], last = p->cut[s + 1] - 1;
        if (s > 0 && stages_rank(p, s - 1) != p->rank)
            push(m, (action){.kind = ACTION_RECEIVE, .first = first - 1, .message = s});
        forward(m, first, last, c + 1 < p->pipe.chunks ? p->cut[stages_of(p, c + 1)] : last);
        if (s + 1 < p->count && stages_rank(p, s + 1) != p->rank)
            push(m, (action){.kind = ACTION_SEND, .first = last, .message = s + 1});
    }
}

err_t action_look(const action_layout *l, action_list *out) {
    maker m = {.l = l, .out = out, .held = {-1, -1}, .spread = l->spreads && l->world > 1, .works = true};
    *out = (action_list){0};
    if (l->pipe) look_through(&m);
    else forward(&m, 0, l->blocks - 1, l->blocks - 1);
    return end(&m);
}

void action_list_free(action_list *a) {
    free(a->at);
    *a = (action_list){0};
}

bool action_is_quiet(const action_layout *l, const action_list *a, int i) {
    const action *x = a->at + i;
    return i + 3 < a->count && x[0].kind == ACTION_LOAD && x[1].kind == ACTION_FORWARD && x[1].first == 0 &&
           x[1].last == l->blocks - 1 && x[2].kind == ACTION_BACKWARD && x[2].first == 0 &&
           x[2].last == l->blocks - 1 && x[3].kind == ACTION_LOSSES;
}

const char *action_text(const action *a, char dst[ACTION_TEXT]) {
    static const char *const names[] = {
        [ACTION_LOAD] = "load",         [ACTION_ZERO] = "zero",       [ACTION_GATHER] = "gather",
        [ACTION_NEED] = "need",         [ACTION_FORWARD] = "forward", [ACTION_TAKE] = "take",
        [ACTION_BACKWARD] = "backward", [ACTION_LOSSES] = "losses",   [ACTION_ADD] = "add",
        [ACTION_REDUCE] = "reduce",     [ACTION_SETTLE] = "settle",   [ACTION_SQUARES] = "squares",
        [ACTION_SHARE] = "share",       [ACTION_UPDATE] = "update",   [ACTION_SPREAD] = "spread",
        [ACTION_INPUTS] = "inputs",     [ACTION_WEIGHTS] = "weights", [ACTION_POST] = "post",
        [ACTION_AWAIT] = "await",       [ACTION_HAND] = "hand",       [ACTION_RECEIVE] = "receive",
        [ACTION_SEND] = "send"};
    int n = snprintf(dst, ACTION_TEXT, "%s", names[a->kind]);
    char *to = dst + n;
    size_t room = ACTION_TEXT - (size_t)n;
    switch (a->kind) {
    case ACTION_LOAD: snprintf(to, room, " %" PRId64 ".%" PRId64, a->lane, a->micro); break;
    case ACTION_ZERO: snprintf(to, room, " %d", a->buffer); break;
    case ACTION_GATHER:
    case ACTION_NEED: snprintf(to, room, " %d", a->first); break;
    case ACTION_FORWARD: snprintf(to, room, " %d-%d", a->first, a->last); break;
    case ACTION_BACKWARD:
    case ACTION_INPUTS:
    case ACTION_WEIGHTS: snprintf(to, room, " %d-%d", a->last, a->first); break;
    case ACTION_POST:
    case ACTION_AWAIT: snprintf(to, room, " %d", a->message); break;
    case ACTION_RECEIVE:
    case ACTION_SEND:
    case ACTION_HAND: snprintf(to, room, " %d", a->first); break;
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
