// test/support/council_world.h: nodes, a network and clocks, played in one process: councils are the product's, all
// else is a model: ranks that meet, seal, step and fail, messages that are lost, late, repeated or out of order, links
// that are cut one way, nodes that stop, and supervisors, councils and ranks that are killed. One seed, one history.
//
// After each event the promises are checked: one record for each number; any two majorities of neighbouring records
// share a voter; a step is applied by a whole epoch alone, and never after a later epoch, or a later run, applied one.
#ifndef TEST_SUPPORT_COUNCIL_WORLD_H
#define TEST_SUPPORT_COUNCIL_WORLD_H

#include "base/philox.h"
#include "comm/team/council.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WORLD_NODES = 5, WORLD_MESSAGES = 4096, WORLD_RECORDS = 400 };
#define WORLD_DT 0.1
#define WORLD_DEAD 2.0
#define WORLD_GIVE_UP 40.0
#define WORLD_RESTART 4.0
#define WORLD_STEP 0.5
#define WORLD_ENTER 1.0

typedef struct world_message {
    double at;
    uint32_t order;
    int from, to;
    uint64_t to_life;
    int birth;  // of the sender
    council_message m;
} world_message;

typedef struct world_node {
    council c;
    bool up, gone;           // gone: it does not come back
    double back;             // when it starts again
    double frozen, stalled;  // until when the node, or its council alone, does not run
    uint64_t life;
    council_report own;
    double enter_at, seal_at, late;
    const council_record *newest;  // as the world keeps it
    council_action action;
    err_t code;  // of its last end
    char why[COUNCIL_WHY];
    int ends, taken, births;
    int heard[WORLD_NODES];  // the newest birth of each node of which a message came
} world_node;

typedef struct world {
    uint64_t seed, rolls;
    int n;
    double now, lossy;
    council_rules rules;
    world_node node[WORLD_NODES];
    double cut[WORLD_NODES][WORLD_NODES];  // until when a -> b is cut
    world_message *msg;
    int messages;
    council_record *pool;  // every record that was sent
    int pooled;
    const council_record *decided[WORLD_RECORDS];
    int decisions, epochs, joins, runs, steps;
    uint8_t run[64][COUNCIL_RUN];
    uint64_t last_run, last_epoch;  // of the last step
    double progress;
    int64_t poison;      // a step that kills whoever computes it; 0: none
    bool through_bytes;  // each message goes through its bytes
    bool returns;        // who has left, or stopped, comes back
    bool kills_decider;  // whoever decides what follows is gone in that moment
} world;

static inline uint64_t world_roll(world *w) {
    uint32_t out[4];
    philox4x32(out, (uint32_t)w->seed, 7, SITE_FAULT, (uint32_t)w->rolls, (uint32_t)(w->rolls >> 32));
    w->rolls++;
    return (uint64_t)out[0] << 32 | out[1];
}
static inline double world_chance(world *w) { return (double)(world_roll(w) >> 11) / 9007199254740992.0; }
static inline int world_pick(world *w, int n) { return (int)(world_roll(w) % (uint64_t)n); }

// --- records ---------------------------------------------------------------------------------------------------------

static inline bool world_equal(const council_record *a, const council_record *b) {
    static uint8_t x[COUNCIL_RECORD_BYTES], y[COUNCIL_RECORD_BYTES];
    if (a->k != b->k || a->kind != b->kind || memcmp(a->run, b->run, COUNCIL_RUN) != 0) return false;
    size_t n = record_pack(x, sizeof x, a);
    return n == record_pack(y, sizeof y, b) && memcmp(x, y, n) == 0;
}

static inline const council_record *world_keep(world *w, const council_record *r) {
    if (!r) return NULL;
    for (int i = w->pooled - 1; i >= 0; i--)
        if (world_equal(&w->pool[i], r)) return &w->pool[i];
    assert_true(w->pooled < WORLD_RECORDS);
    w->pool[w->pooled] = *r;
    return &w->pool[w->pooled++];
}

static inline int world_run(world *w, const council_record *r) {
    for (int i = 0; i < w->runs; i++)
        if (memcmp(w->run[i], r->run, COUNCIL_RUN) == 0) return i;
    assert_true(w->runs < 64);
    memcpy(w->run[w->runs], r->run, COUNCIL_RUN);
    return w->runs++;
}

// Every two sets that are enough for one of these records share a node.
static inline void world_overlap(const council_record *r) {
    for (uint64_t a = 1; a < 1u << r->nodes; a++) {
        node_set one = {{a}}, other = {{((1u << r->nodes) - 1) & ~a}};
        assert_false(council_enough(&one, r) && council_enough(&other, r));
    }
}

// The record was taken by somebody: it is the only one with its number.
static inline void world_decided(world *w, const council_record *r) {
    for (int i = 0; i < w->decisions; i++) {
        const council_record *d = w->decided[i];
        if (d->k != r->k || memcmp(d->run, r->run, COUNCIL_RUN) != 0) continue;
        if (d != r)
            fail_msg("seed %llu, %.1f s: two records %llu", (unsigned long long)w->seed, w->now,
                     (unsigned long long)r->k);
        return;
    }
    assert_true(w->decisions < WORLD_RECORDS);
    w->decided[w->decisions++] = r;
    w->epochs += r->epoch == r->k, w->joins += r->kind == DECREE_JOIN;
    world_overlap(r);
    uint8_t bytes[COUNCIL_RECORD_BYTES];
    council_record again;
    size_t used, n = record_pack(bytes, sizeof bytes, r);
    assert_int_equal(record_unpack(&again, bytes, n, &used), ERR_OK);
    assert_int_equal(used, n);
}

// --- messages --------------------------------------------------------------------------------------------------------

static inline bool world_linked(const world *w, int a, int b) { return w->now >= w->cut[a][b]; }

static inline void world_post(world *w, int a, int b, const council_message *m) {
    static const double delay[] = {0, 0.1, 0.1, 0.3};
    if (a == b || !world_linked(w, a, b) || !w->node[b].up || world_chance(w) < w->lossy) return;
    for (int i = 1 + (world_chance(w) < 0.1); i; i--) {
        double late = world_chance(w) < 0.95 ? delay[world_pick(w, 4)] : world_pick(w, 2) ? 1.0 : 3.0;
        assert_true(w->messages < WORLD_MESSAGES);
        w->msg[w->messages++] = (world_message){.at = w->now + late,
                                                .order = (uint32_t)world_roll(w),
                                                .from = a,
                                                .to = b,
                                                .to_life = w->node[b].life,
                                                .birth = w->node[a].births,
                                                .m = *m};
    }
}

static inline void world_entered(world *w, world_node *x, const council_record *was);

// What a council gave: its new record is noted, its messages are sent.
static inline void world_sends(world *w, int a, const council_outbox *out) {
    world_node *x = &w->node[a];
    const council_record *was = x->newest;
    if (out->took) {
        x->newest = world_keep(w, council_newest(&x->c));
        x->taken++;
        int before = w->decisions;
        world_decided(w, x->newest);
        world_entered(w, x, was);
        if (w->kills_decider && w->decisions > before) {
            w->kills_decider = false, x->up = false, x->gone = true;
            return;
        }
    }
    for (int i = 0; i < out->count; i++) {
        council_message m = out->out[i].m;
        m.newest = x->newest, m.value = m.value ? world_keep(w, m.value) : NULL;
        for (int b = 0; b < w->n; b++)
            if (out->out[i].to < 0 || out->out[i].to == b) world_post(w, a, b, &m);
    }
}

static inline void world_deliver(world *w, const world_message *m) {
    static council_outbox out;
    static council_room room;
    static uint8_t bytes[COUNCIL_MESSAGE_BYTES];
    world_node *x = &w->node[m->to];
    council_message read = m->m;
    if (!x->up || x->life != m->to_life || !world_linked(w, m->from, m->to)) return;
    if (m->birth < x->heard[m->from]) return;  // its connection is closed
    x->heard[m->from] = m->birth;
    if (w->through_bytes) {
        size_t n = council_pack(bytes, sizeof bytes, &m->m);
        assert_true(n > 0);
        assert_int_equal(council_unpack(&read, &room, bytes, n), ERR_OK);
    }
    council_take(&x->c, &out, w->now, &read);
    world_sends(w, m->to, &out);
}

// --- supervisors and councils ----------------------------------------------------------------------------------------

static inline void world_born(world *w, int a) {
    world_node *x = &w->node[a];
    x->life = world_roll(w) | 1;
    x->up = true, x->newest = NULL, x->births++;
    memset(x->heard, 0, sizeof x->heard);
    x->frozen = x->stalled = 0;
    x->own = (council_report){.ready = true, .slots = 1, .sealed = -1, .step = 0};
    for (int i = 0; i < 2; i++) {
        uint64_t r = world_roll(w);
        memcpy(w->rules.run + 8 * i, &r, 8);
    }
    council_open(&x->c, &w->rules, a, w->n, x->life, NULL, w->now);
}

static inline void world_die(world *w, int a, double longer) {
    world_node *x = &w->node[a];
    if (!x->up) return;
    x->up = false, x->ends++;
    x->back = w->now + WORLD_RESTART + longer;
}

// The council alone is killed: its successor has only the vote page.
static inline void world_council_dies(world *w, int a) {
    static uint8_t memory[VOTE_PAGE_BYTES];
    static vote_page page;
    world_node *x = &w->node[a];
    if (!x->up) return;
    vote_page_write(memory, &x->c.page);
    assert_int_equal(vote_page_read(&page, memory), ERR_OK);
    council_open(&x->c, &w->rules, a, w->n, x->life, &page, w->now);
    x->newest = world_keep(w, council_newest(&x->c));
}

static inline void world_judges(world *w, int a) {
    static council_outbox out;
    static council_decision d;
    world_node *x = &w->node[a];
    council_tick(&x->c, &d, &out, w->now, &x->own);
    x->action = d.action;
    snprintf(x->why, sizeof x->why, "%s", d.why);
    world_sends(w, a, &out);
    if (d.action != COUNCIL_END && d.action != COUNCIL_STOP) return;
    if (d.proposes) return;
    x->code = d.code;
    x->gone |= d.code != ERR_UNAVAILABLE && !w->returns;
    world_die(w, a, 0);
}

// --- ranks -----------------------------------------------------------------------------------------------------------

static inline bool world_member(const world *w, int a) {
    return council_member(&w->node[a].c.view, w->node[a].newest, a);
}

static inline bool world_same(const council_record *a, const council_record *b) {
    return a && b && a->epoch == b->epoch && memcmp(a->run, b->run, COUNCIL_RUN) == 0;
}

static inline void world_entered(world *w, world_node *x, const council_record *was) {
    if (world_same(was, x->newest)) return;
    bool member = world_member(w, (int)(x - w->node));
    x->own.state = member ? COUNCIL_ENTERING : COUNCIL_WAITING;
    x->own.failed = x->own.began = false, x->own.sealed = -1;
    x->enter_at = w->now + WORLD_ENTER, x->seal_at = x->enter_at + 0.1 * world_pick(w, 6), x->late = 0;
}

static inline bool world_runs(const world *w, int a, const council_record *r) {
    const world_node *x = &w->node[a];
    return x->up && world_same(x->newest, r) && w->now >= x->frozen && !x->own.failed && r->life[a] == x->life;
}

static inline bool world_whole(const world *w, const council_record *r) {
    FOR_NODES(a, &r->members) {
        if (!world_runs(w, a, r)) return false;
        FOR_NODES(b, &r->members)
            if (a != b && !world_linked(w, a, b)) return false;
    }
    return true;
}

static inline void world_step(world *w, const council_record *r) {
    int64_t top = 0;
    uint64_t run = (uint64_t)world_run(w, r);
    FOR_NODES(a, &r->members)
        if (w->node[a].own.step > top) top = w->node[a].own.step;
    FOR_NODES(a, &r->members) w->node[a].own.began = true;
    if (w->poison && top + 1 == w->poison) {
        w->node[set_lowest(&r->members)].own.failed = true;
        return;
    }
    if (run < w->last_run || (run == w->last_run && r->epoch < w->last_epoch))
        fail_msg("seed %llu, %.1f s: epoch %llu applies a step after epoch %llu did", (unsigned long long)w->seed,
                 w->now, (unsigned long long)r->epoch, (unsigned long long)w->last_epoch);
    w->last_run = run, w->last_epoch = r->epoch;
    w->steps++;
    FOR_NODES(a, &r->members) {
        w->node[a].own.step = top + 1, w->node[a].own.state = COUNCIL_WORKING;
        FOR_NODES(b, &r->members) w->node[a].c.view.of[b].ranks_at = w->now;
    }
}

// A whole epoch enters, seals, steps; one that is not whole is noticed by its ranks.
static inline void world_works(world *w, const council_record *r) {
    bool ready = true, sealed = true;
    FOR_NODES(a, &r->members) {
        world_node *x = &w->node[a];
        ready &= w->now >= x->enter_at;
        if (w->now >= x->seal_at && x->own.sealed < 0 && !x->own.failed) x->own.sealed = x->own.step;
        sealed &= x->own.sealed >= 0;
        x->late = 0;
        if (w->now < x->enter_at) continue;
        FOR_NODES(b, &r->members) x->c.view.of[b].ranks_at = w->now;
    }
    if (!ready || !sealed) return;
    w->progress += WORLD_DT;
    if (w->progress >= WORLD_STEP) w->progress = 0, world_step(w, r);
}

static inline void world_fails(world *w, int a, const council_record *r) {
    world_node *x = &w->node[a];
    bool lost = false;
    FOR_NODES(b, &r->members) {
        const world_node *y = &w->node[b];
        lost |= b != a && (!y->up || !y->newest || y->life != r->life[b] || y->own.failed);
    }
    x->late += WORLD_DT;
    if ((lost && w->now > x->enter_at) || x->late > WORLD_DEAD + WORLD_ENTER)
        x->own.failed = true, x->own.state = COUNCIL_LEAVING;
}

static inline void world_ranks(world *w) {
    const council_record *done[WORLD_NODES];
    for (int a = 0; a < w->n; a++) {
        const council_record *r = w->node[a].up && world_member(w, a) ? w->node[a].newest : NULL;
        done[a] = r;
        for (int b = 0; r && b < a; b++)
            if (world_same(done[b], r)) r = NULL;
        if (!r) continue;
        if (world_whole(w, r)) {
            world_works(w, r);
            continue;
        }
        FOR_NODES(b, &r->members)
            if (world_runs(w, b, r)) world_fails(w, b, r);
    }
}

// --- time ------------------------------------------------------------------------------------------------------------

static inline int world_order(const void *a, const void *b) {
    const world_message *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

static inline void world_delivers(world *w) {
    static world_message due[WORLD_MESSAGES];
    int n = 0, left = 0;
    for (int i = 0; i < w->messages; i++)
        if (w->msg[i].at <= w->now) due[n++] = w->msg[i];
        else if (left++ != i) w->msg[left - 1] = w->msg[i];
    w->messages = left;
    qsort(due, (size_t)n, sizeof *due, world_order);
    for (int i = 0; i < n; i++) {
        world_node *x = &w->node[due[i].to];
        double until = x->frozen > x->stalled ? x->frozen : x->stalled;
        if (w->now < until) {  // it stays in the socket
            due[i].at = until;
            w->msg[w->messages++] = due[i];
        } else world_deliver(w, &due[i]);
    }
}

static inline void world_tick(world *w) {
    w->now += WORLD_DT;
    int third = (int)(w->now / WORLD_DT + 0.5) % 3;
    world_delivers(w);
    for (int a = 0; a < w->n; a++) {
        world_node *x = &w->node[a];
        if (!x->up && !x->gone && w->now >= x->back) world_born(w, a);
        if (x->up && w->now >= x->frozen && w->now >= x->stalled && third == a % 3) world_judges(w, a);
    }
    world_ranks(w);
}

typedef void (*world_faults)(world *w);

static inline void world_run_for(world *w, double s, world_faults faults) {
    for (double end = w->now + s - WORLD_DT / 2; w->now < end;) {
        if (faults) faults(w);
        world_tick(w);
    }
}

static inline council_rules world_rules(int n) {
    council_rules k = {.dead_s = WORLD_DEAD, .give_up_s = WORLD_GIVE_UP, .drain_s = 20, .min_ranks = 1, .lanes = 8};
    k.grid = (council_grid){0, 1, 1, 1};
    for (int i = 0; i <= n; i++) k.fits[0] |= (uint64_t)1 << i;
    return k;
}

static inline world *world_open(int n, uint64_t seed) {
    world *w = calloc(1, sizeof *w);
    w->msg = calloc(WORLD_MESSAGES, sizeof *w->msg);
    w->pool = calloc(WORLD_RECORDS, sizeof *w->pool);
    assert_true(w->msg && w->pool);
    w->n = n, w->seed = seed, w->rules = world_rules(n);
    for (int a = 0; a < n; a++) world_born(w, a);
    return w;
}

// Until the first step of the run.
static inline void world_begins(world *w) {
    while (w->steps == 0 && w->now < 15) world_tick(w);
    if (!w->steps) fail_msg("seed %llu: no start", (unsigned long long)w->seed);
}

// All faults end. Who is dead comes back, unless it is gone.
static inline void world_calms(world *w) {
    memset(w->cut, 0, sizeof w->cut);
    w->lossy = 0;
    for (int a = 0; a < w->n; a++) w->node[a].frozen = w->node[a].stalled = 0;
}

// Seconds until the next step; -1: none within `most`.
static inline double world_until_step(world *w, double most) {
    int before = w->steps;
    double from = w->now;
    while (w->steps == before && w->now < from + most) world_tick(w);
    return w->steps == before ? -1 : w->now - from;
}

static inline void world_close(world *w) {
    free(w->pool);
    free(w->msg);
    free(w);
}

#endif
