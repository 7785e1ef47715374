// trainer/step/action.c: see trainer/step/action.h.
#include "trainer/step/action.h"

#include "comm/ordered.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// While a list is made.
typedef struct maker {
    const action_layout *l;
    action_list *out;
    bool failed;  // no memory
    int held[2];  // ZeRO 3: the block in each of the two buffers of gathered weights, -1: none
    bool spread;  // weights of the last update may still be on their way
    // The micro-batch:
    bool works, final;  // this rank has one; its gradients, or the turn's, are final after it
    int buffer;
    int64_t turn;
    action unit;            // what all actions of a unit have in common
    const lane_counter *c;  // where its lane is counted, not merged yet; NULL: nothing to add
    bool records;           // of a step, what may be recorded is marked
    int run;                // the action with which a recording begins that the next one may go on; -1: none
} maker;

static bool is_part(action_kind k) {
    return k == ACTION_FORWARD || k == ACTION_BACKWARD || k == ACTION_INPUTS || k == ACTION_WEIGHTS;
}

static bool reduces(const maker *m) { return m->final && (m->l->world > 1 || m->l->codes); }

// With one stage: from the micro-batch's first block to its last nothing is sent, and nothing waited for.
static bool is_quiet(const maker *m) {
    const action_layout *l = m->l;
    return l->pipe->count == 1 && !l->shards_weights && !l->slots && !m->spread && !reduces(m);
}

// A quiet micro-batch is one recording; after a rank's last one, what ends its lanes goes with it. Of several stages
// each part of a unit is one. The losses' means go with what was just computed.
static void extend_run(maker *m, int i) {
    action_kind kind = m->out->at[i].kind;
    bool whole = is_quiet(m);
    if (!m->records) return;
    bool begins = whole ? kind == ACTION_FORWARD : is_part(kind) && m->l->pipe->count > 1;
    bool goes_on = kind == ACTION_MEANS || (whole && (is_part(kind) || (kind == ACTION_ADD && m->final)));
    if (begins) m->run = i;
    else if (!goes_on) m->run = -1;
    if (m->run >= 0) m->out->at[m->run].covers++;
}

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
    extend_run(m, o->count - 1);
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

// The lane has ended: its token slices are added, and the siblings that it completes. In a bucket, or whole buffers.
static void add_lane(maker *m, int bucket) {
    add_tokens(m, m->buffer, bucket);
    if (!m->c) return;
    lane_counter after = *m->c;
    for (int into, from; lane_counter_merge(&after, &into, &from);)
        push(m, (action){.kind = ACTION_ADD, .buffer = into, .from = from, .bucket = bucket});
}

// The bucket is final, and on its way. A rank without a lane in the turn has no gradients.
static void finish_bucket(maker *m, int k) {
    if (m->works && !m->l->clips_lanes) add_lane(m, k);
    else if (!m->l->fixed && !m->l->slots) push(m, (action){.kind = ACTION_ZERO, .bucket = k});
    push(m, (action){.kind = ACTION_REDUCE, .bucket = k, .turn = m->turn});
}

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
        for (int k = 0; l->slots && (m->works || !l->fixed) && k < l->buckets; k++)
            if (l->bucket[k].highest == b) push(m, (action){.kind = ACTION_TAKE, .bucket = k});
        push_blocks(m, kind, b, b);
        if (ends && l->clips_lanes && b == 0 && m->works) add_lane(m, -1);
        for (int k = 0; ends && k < l->buckets; k++)
            if ((l->clips_lanes ? 0 : l->bucket[k].lowest) == b) finish_bucket(m, k);
    }
}

// --- a lane's units --------------------------------------------------------------------------------------------------

// A lane of this rank: the buffer of its gradients, and the counter once it has ended, before siblings are merged.
typedef struct lane_plan {
    int64_t lane;
    lane_place at;
    lane_counter ended;
    bool works, last;
} lane_plan;

static lane_table table_of(const action_layout *l) {
    return (lane_table){l->lanes, l->world, l->turns, l->deal, l->span};
}
static int64_t span_of(const action_layout *l) {
    lane_table table = table_of(l);
    return lane_table_span(&table);
}

// The next lane of those that c counts: its buffer, and the siblings that it completes.
static void count_lane(const action_layout *l, lane_counter *c, lane_plan *k) {
    k->at = lane_counter_begin(c, k->lane, l->once);
    lane_counter_end(c, k->lane, k->at);
    k->ended = *c;
    for (int into, from; lane_counter_merge(c, &into, &from);) {}
}

// ZeRO 0 and 1: a range of lanes, reduced once after the last. Sibling subtrees are added as soon as both exist; those
// that the last lane completes are added bucket by bucket where others wait for them. A rank without lanes passes
// through the blocks once, and computes nothing.
static void plan_range(const action_layout *l, int rank, lane_plan *plan) {
    lane_table table = table_of(l);
    int64_t first = lane_table_first(&table, rank), count = lane_table_count(&table, rank);
    lane_counter c = {0};
    if (count == 0) plan[0] = (lane_plan){.lane = first, .last = true};
    for (int64_t i = 0; i < count; i++) {
        plan[i] = (lane_plan){.lane = first + i, .works = true, .last = i == count - 1};
        if (l->fixed) count_lane(l, &c, &plan[i]);
        else plan[i].at.joins = i > 0;
    }
}

// ZeRO 2 and 3: a turn has one lane, or the lanes of a span. A rank without lanes in a turn still sends its weights and
// receives its sums.
static void plan_turns(const action_layout *l, int rank, lane_plan *plan) {
    lane_table table = table_of(l);
    int64_t span = span_of(l);
    for (int64_t t = 0; t < lane_table_turns(&table); t++) {
        int64_t first = lane_table_at(&table, rank, t);
        lane_counter c = {0};
        for (int64_t i = 0; i < span; i++) {
            lane_plan *k = &plan[t * span + i];
            *k = (lane_plan){.lane = first < 0 ? -1 : first + i, .works = first >= 0, .last = i == span - 1};
            if (k->works && span > 1) count_lane(l, &c, k);
        }
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

static void push_of(maker *m, action_kind kind, const unit *u, const lane_plan *k) {
    action a = m->unit;
    a.kind = kind, a.lane = k->lane, a.micro = u->micro % m->l->micros;
    a.input_slot = m->l->pipe->input_slot[u->micro], a.fresh = kind == ACTION_FETCH && k->works;
    push(m, a);
}

static void load_and_fetch(maker *m, const unit *u, const lane_plan *plan) {
    const lane_plan *k = &plan[u->micro / m->l->micros];
    if (k->works) push_of(m, ACTION_LOAD, u, k);
    push_of(m, ACTION_FETCH, u, k);
}

// Rows on demand. The first micro-batch's are fetched and waited for; then, before a micro-batch is computed, those of
// the next one begin to come, and after the last one the owners hear what the next step begins with.
//
//   load 0  fetch 0  have 0  load 1  fetch 1  forward, backward 0  keep 0  have 1  ahead  forward, backward 1  keep 1
static void rows_of_unit(maker *m, int i, const lane_plan *plan) {
    const unit_table *t = &m->l->pipe->table;
    const unit *u = &t->unit[i];
    if (u->micro == 0) load_and_fetch(m, u, plan);
    if (m->works) push_of(m, ACTION_HAVE, u, &plan[u->micro / m->l->micros]);
    while (++i < t->units && t->unit[i].kind != UNIT_FORWARD) {}
    if (i < t->units) load_and_fetch(m, &t->unit[i], plan);
    else if (m->l->cold) push(m, (action){.kind = ACTION_AHEAD, .input_slot = 1 - m->unit.input_slot});
}

static void unit_forward(maker *m, int i, const lane_plan *plan) {
    const stages *p = m->l->pipe;
    const unit *u = &p->table.unit[i];
    int first = first_block(m->l, u), last = last_block(m->l, u);
    m->spread = m->l->spreads && m->l->world > 1 && u->micro == 0;
    if (m->l->rows) rows_of_unit(m, i, plan);
    else if (u->stage == stages_of(p, 0) && m->works) push_of(m, ACTION_LOAD, u, &plan[u->micro / m->l->micros]);
    if (u->receive < 0 && u->stage > 0)
        push(m, (action){.kind = ACTION_COPY,
                         .first = first - 1,
                         .from = slot_before(&p->table, u),
                         .slot = u->slot,
                         .input_slot = m->unit.input_slot});
    forward(m, first, last, block_after(m, i, last));
    m->spread = false;
}

// The stage's part of the lane is done: with one stage here, the lane. What the rank's last lane completes is added
// where its bucket is reduced.
static void end_lane(maker *m, int stage) {
    const action_layout *l = m->l;
    int chunk = stages_chunk(l->pipe, l->pipe->cut[stage]);
    if (reduces(m)) return;
    if (l->pipe->pipe.chunks == 1) add_lane(m, -1);
    for (int b = 0; l->pipe->pipe.chunks > 1 && b < l->buckets; b++)
        if (l->bucket[b].chunk == chunk) add_lane(m, b);
}

static void unit_backward(maker *m, int i, const lane_plan *k) {
    const action_layout *l = m->l;
    const unit *u = &l->pipe->table.unit[i];
    static const action_kind kinds[] = {
        [UNIT_BACKWARD] = ACTION_BACKWARD, [UNIT_INPUTS] = ACTION_INPUTS, [UNIT_WEIGHTS] = ACTION_WEIGHTS};
    int first = first_block(l, u), last = last_block(l, u);
    bool begins = u->micro % l->micros == 0, ends = u->micro % l->micros == l->micros - 1;
    bool losses = u->kind != UNIT_WEIGHTS && u->stage == l->pipe->count - 1 && m->works;
    m->unit.fresh = begins && !k->at.joins && !l->slots;
    backward(m, kinds[u->kind], first, last, block_after(m, i, first));
    if (losses) push(m, (action){.kind = ACTION_MEANS, .input_slot = m->unit.input_slot});
    if (m->l->rows && m->works) push_of(m, ACTION_KEEP, u, k);
    if (ends && u->kind != UNIT_INPUTS) end_lane(m, u->stage);
    if (losses) push(m, (action){.kind = ACTION_LOSSES, .input_slot = m->unit.input_slot});
}

// The turn's buffers are free again before the first gradient of it is formed. With one stage that is asked before the
// micro-batch, in the middle of which nothing else stands.
static void begin_turn(maker *m, const unit *u) {
    const action_layout *l = m->l;
    bool alone = l->pipe->count == 1, forward = u->kind == UNIT_FORWARD;
    if (!l->turns || l->slots || m->turn == 0 || u->micro % (l->micros * span_of(l)) > 0) return;
    if (alone ? forward : !forward && u->kind != UNIT_WEIGHTS) push(m, (action){.kind = ACTION_SETTLE});
}

static void run_unit(maker *m, int i, const lane_plan *plan) {
    const action_layout *l = m->l;
    const unit *u = &l->pipe->table.unit[i];
    const lane_plan *k = &plan[u->micro / l->micros];
    m->works = k->works, m->buffer = k->at.buffer;
    m->turn = l->turns ? u->micro / l->micros / span_of(l) : 0;
    m->final = k->last && u->micro % l->micros == l->micros - 1;
    m->c = l->fixed && (!l->turns || span_of(l) > 1) ? &k->ended : NULL;
    m->unit = (action){
        .input_slot = l->pipe->input_slot[u->micro], .slot = u->slot, .in = u->gradient_in, .out = u->gradient_out};
    if (u->reuse >= 0) push(m, (action){.kind = ACTION_AWAIT, .message = u->reuse});
    if (u->receive >= 0) push(m, (action){.kind = ACTION_AWAIT, .message = u->receive});
    begin_turn(m, u);
    if (u->kind == UNIT_FORWARD) unit_forward(m, i, plan);
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

// Micro-batches of a rank's units; one without lanes passes through the blocks once.
static int64_t units_of(const action_layout *l, int rank) {
    lane_table table = table_of(l);
    int64_t count = l->turns ? lane_table_turns(&table) * span_of(l) : lane_table_count(&table, rank);
    return (count ? count : 1) * l->micros;
}

// Ranks with fewer micro-batches than others take part in as many FETCH. In ranges all ranks fetch, and look ahead,
// before any of them reduces, so it is before their first micro-batch.
static void fetch_for_others(maker *m, int rank) {
    if (!m->l->rows) return;
    int64_t most = 0, own = units_of(m->l, rank);
    for (int r = 0; r < m->l->world; r++)
        if (units_of(m->l, r) > most) most = units_of(m->l, r);
    for (; own < most; own++) push(m, (action){.kind = ACTION_FETCH});
}

static void units_of_lanes(maker *m, int rank, bool *done, lane_plan *plan) {
    const unit_table *t = &m->l->pipe->table;
    int posted = 0;
    if (m->l->turns) plan_turns(m->l, rank, plan);
    else plan_range(m->l, rank, plan);
    fetch_for_others(m, rank);
    for (int i = -1; i < t->units; i++) {
        if (i >= 0 && t->unit[i].kind == UNIT_INPUTS) catch_up(m, i, done, plan);
        if (i >= 0 && !done[i]) run_unit(m, i, plan);
        for (; posted < t->messages && t->message[posted].after <= i; posted++)
            push(m, (action){.kind = ACTION_POST, .message = posted});
    }
}

static void lanes(maker *m, int rank) {
    bool *done = calloc((size_t)m->l->pipe->table.units + 1, sizeof *done);
    lane_plan *plan = calloc((size_t)m->l->lanes + 1, sizeof *plan);
    if (done && plan) units_of_lanes(m, rank, done, plan);
    else m->failed = true;
    free(done), free(plan);
}

// --- what is said of the whole list ----------------------------------------------------------------------------------

// Addresses and numbers passed by value, as far as actions that are recorded differ in them. The input slot has the
// samples, and step and first sample for dropout; the slot has the activations. Weights and the gradients in slots of
// buckets are where the blocks say. The boundaries' gradients belong to the stage's last block and to its first one.
enum { FIXES = 11 };
static void fixes(const stages *of, const action *a, int by[FIXES]) {
    bool part = is_part(a->kind), back = part && a->kind != ACTION_FORWARD, adds = a->kind == ACTION_ADD;
    const int *cut = &of->cut[stages_with(of, a->first)];
    const int all[FIXES] = {(int)a->kind,
                            a->first,
                            a->last,
                            a->input_slot,
                            a->slot,
                            back || adds ? a->buffer : 0,
                            back && a->fresh,
                            back && a->last == cut[1] - 1 ? a->in : -1,
                            back && a->first == cut[0] ? a->out : -1,
                            adds ? a->from : 0,
                            adds ? a->bucket : 0};
    memcpy(by, all, sizeof all);
}

typedef struct run {
    const stages *of;
    action *first;
    int by[FIXES];  // of the first action
} run;

static int compare(const void *x, const void *y) {
    const run *a = x, *b = y;
    if (a->first->covers != b->first->covers) return a->first->covers < b->first->covers ? -1 : 1;
    for (int k = 0; k < FIXES; k++)
        if (a->by[k] != b->by[k]) return a->by[k] < b->by[k] ? -1 : 1;
    for (int i = 1; i < a->first->covers; i++) {
        int p[FIXES], q[FIXES];
        fixes(a->of, a->first + i, p), fixes(b->of, b->first + i, q);
        for (int k = 0; k < FIXES; k++)
            if (p[k] != q[k]) return p[k] < q[k] ? -1 : 1;
    }
    return 0;
}

// Those that are equal share a number.
static void number_recordings(maker *m) {
    action_list *o = m->out;
    int runs = 0;
    run *r = malloc((size_t)(o->count + 1) * sizeof *r);
    m->failed |= !r;
    for (int i = 0; r && i < o->count; i++) {
        if (!o->at[i].covers) continue;
        r[runs] = (run){.of = m->l->pipe, .first = &o->at[i]};
        fixes(m->l->pipe, &o->at[i], r[runs++].by);
    }
    if (r) qsort(r, (size_t)runs, sizeof *r, compare);
    for (int i = 0; r && i < runs; i++) {
        o->recordings += i == 0 || compare(&r[i - 1], &r[i]) != 0;
        r[i].first->recording = o->recordings - 1;
    }
    free(r);
}

// From the end: marks the last one that reads an input slot before it is filled again.
static void mark_last_reads(maker *m) {
    action_list *o = m->out;
    bool *read = calloc((size_t)m->l->pipe->input_slots + 1, sizeof *read);
    m->failed |= !read;
    for (int i = o->count - 1; read && i >= 0; i--) {
        action *a = &o->at[i];
        if (!is_part(a->kind) && a->kind != ACTION_LOAD && a->kind != ACTION_LOSSES) continue;
        a->leaves = a->kind != ACTION_LOAD && !read[a->input_slot];
        read[a->input_slot] = a->kind != ACTION_LOAD;
    }
    free(read);
}

// --- a step ----------------------------------------------------------------------------------------------------------

static err_t end(maker *m) {
    if (!m->failed) return ERR_OK;
    action_list_free(m->out);
    return err_set(ERR_INTERNAL, "no memory for the actions of a step");
}

// Is this one of the last actions of a step?
static bool ends_with(const action_layout *l, action_kind kind) {
    if (kind == ACTION_MASTERS) return l->masters;
    if (kind == ACTION_ROWS) return l->rows;
    if (kind == ACTION_OUTER) return l->islands;
    return l->tied || (kind != ACTION_TIE_GRADIENTS && kind != ACTION_TIE_VALUES);
}

err_t action_step(const action_layout *l, int rank, action_list *out) {
    static const action_kind last[] = {ACTION_MASTERS, ACTION_SETTLE,    ACTION_ROWS,   ACTION_TIE_GRADIENTS,
                                       ACTION_SQUARES, ACTION_SHARE,     ACTION_UPDATE, ACTION_OUTER,
                                       ACTION_SPREAD,  ACTION_TIE_VALUES};
    maker m = {.l = l, .out = out, .held = {-1, -1}, .records = !l->unrecorded, .run = -1};
    *out = (action_list){0};
    lanes(&m, rank);
    for (size_t k = 0; k < sizeof last / sizeof *last; k++)
        if (ends_with(l, last[k])) push(&m, (action){.kind = last[k]});
    number_recordings(&m);
    mark_last_reads(&m);
    return end(&m);
}

// The rank's stages, in order of the model.
err_t action_forward(const action_layout *l, action_list *out) {
    const stages *p = l->pipe;
    maker m = {.l = l, .out = out, .held = {-1, -1}, .spread = l->spreads && l->world > 1, .works = true};
    *out = (action_list){0};
    for (int c = 0; c < p->pipe.chunks; c++) {
        int s = stages_of(p, c), first = p->cut[s], last = p->cut[s + 1] - 1;
        if (s > 0 && stages_rank(p, s - 1) != p->rank)
            push(&m, (action){.kind = ACTION_RECEIVE, .first = first - 1, .message = s});
        forward(&m, first, last, c + 1 < p->pipe.chunks ? p->cut[stages_of(p, c + 1)] : last);
        if (s + 1 < p->count && stages_rank(p, s + 1) != p->rank)
            push(&m, (action){.kind = ACTION_SEND, .first = last, .message = s + 1});
    }
    return end(&m);
}

void action_list_free(action_list *a) {
    free(a->at);
    *a = (action_list){0};
}

const char *action_text(const action *a, char dst[ACTION_TEXT]) {
    static const char *const names[] = {[ACTION_LOAD] = "load",
                                        [ACTION_ZERO] = "zero",
                                        [ACTION_GATHER] = "gather",
                                        [ACTION_NEED] = "need",
                                        [ACTION_FETCH] = "fetch",
                                        [ACTION_HAVE] = "have",
                                        [ACTION_AHEAD] = "ahead",
                                        [ACTION_KEEP] = "keep",
                                        [ACTION_ROWS] = "rows",
                                        [ACTION_FORWARD] = "forward",
                                        [ACTION_TAKE] = "take",
                                        [ACTION_BACKWARD] = "backward",
                                        [ACTION_LOSSES] = "losses",
                                        [ACTION_ADD] = "add",
                                        [ACTION_REDUCE] = "reduce",
                                        [ACTION_SETTLE] = "settle",
                                        [ACTION_MASTERS] = "squares of masters",
                                        [ACTION_SQUARES] = "squares",
                                        [ACTION_SHARE] = "share",
                                        [ACTION_UPDATE] = "update",
                                        [ACTION_OUTER] = "outer",
                                        [ACTION_SPREAD] = "spread",
                                        [ACTION_INPUTS] = "inputs",
                                        [ACTION_WEIGHTS] = "weights",
                                        [ACTION_POST] = "post",
                                        [ACTION_AWAIT] = "await",
                                        [ACTION_COPY] = "copy",
                                        [ACTION_RECEIVE] = "receive",
                                        [ACTION_SEND] = "send",
                                        [ACTION_MEANS] = "means",
                                        [ACTION_TIE_GRADIENTS] = "tie gradients",
                                        [ACTION_TIE_VALUES] = "tie values"};
    int n = snprintf(dst, ACTION_TEXT, "%s", names[a->kind]);
    char *to = dst + n;
    size_t room = ACTION_TEXT - (size_t)n;
    switch (a->kind) {
    case ACTION_FETCH:
        if (a->fresh) snprintf(to, room, " %" PRId64 ".%" PRId64, a->lane, a->micro);
        break;
    case ACTION_HAVE:
    case ACTION_KEEP:
    case ACTION_LOAD: snprintf(to, room, " %" PRId64 ".%" PRId64, a->lane, a->micro); break;
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
    case ACTION_COPY: snprintf(to, room, " %d", a->first); break;
    case ACTION_ZERO:
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
