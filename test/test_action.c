// test/test_action.c: the list of actions of a step, for many layouts, without a process. Some lists are written out;
// of all others it is asked that they are complete, that no buffer is used before it is ready, and that all ranks
// communicate in the same order.
#include "trainer/step/action.h"
#include "trainer/step/simulate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comm/ordered.h"

enum { BLOCKS = 3, BUCKETS = 2 };

// Block 2 and 1 in one bucket, block 0 in the other.
static const action_bucket buckets[] = {{.highest = 2, .lowest = 1}, {.highest = 0, .lowest = 0}};

static action_layout layout_of(int world, int64_t lanes, int64_t micros, int stage, bool fixed, bool once) {
    return (action_layout){.world = world,
                           .lanes = lanes,
                           .micros = micros,
                           .fixed = fixed,
                           .once = once,
                           .turns = stage >= 2,
                           .shards_weights = stage == 3,
                           .spreads = stage == 1 || stage == 2,
                           .slots = stage >= 2 && micros == 1,
                           .blocks = BLOCKS,
                           .buckets = BUCKETS,
                           .bucket = buckets};
}

// A pipeline of one stage, with the micro-batches of this rank's lanes. Freed with stages_close.
static stages stage_of(const action_layout *l, int rank) {
    static block each[8];
    model net = {.blocks = l->blocks, .block = each, .table.width = l->rows};
    int64_t lanes =
        l->turns ? lane_turns(l->lanes, l->world, true) : lane_deal_of(l->lanes, l->world, rank, false).count;
    stages x;
    assert_true(l->blocks <= 8);
    assert_int_equal(stages_open(&x, &net, &(stage_options){.ranks = 1, .chunks = 1, .micros = lanes * l->micros}),
                     ERR_OK);
    return x;
}

static action_list list_by(action_layout l, int rank, err_t (*make)(const action_layout *, int, action_list *)) {
    stages x = stage_of(&l, rank);
    action_list a;
    l.pipe = &x;
    assert_int_equal(make(&l, rank, &a), ERR_OK);
    stages_close(&x);
    return a;
}

static action_list list_of(const action_layout *l, int rank) { return list_by(*l, rank, action_step); }

static err_t make_forward(const action_layout *l, int rank, action_list *a) { return (void)rank, action_forward(l, a); }

// --- lists that are written out --------------------------------------------------------------------------------------

static void expect_list(action_layout l, int rank, const char *expected) {
    char text[4096] = "", one[ACTION_TEXT];
    action_list a = list_of(&l, rank);
    for (int i = 0; i < a.count; i++) strcat(strcat(text, i ? "; " : ""), action_text(&a.at[i], one));
    action_list_free(&a);
    if (strcmp(text, expected) != 0) fail_msg("rank %d of %d:\n%s\nexpected:\n%s", rank, l.world, text, expected);
}

static void a_rank_alone_adds_lanes_as_the_tree_says(void **state) {
    (void)state;
    expect_list(
        layout_of(1, 4, 1, 0, true, false), 0,
        "load 0.0; forward 0-2; backward 2-0; means; losses; load 1.0; forward 0-2; backward 2-0; means; add 0 += 1; losses; "
        "load 2.0; forward 0-2; backward 2-0; means; losses; load 3.0; forward 0-2; backward 2-0; means; add 1 += 2; add 0 += 1; losses; "
        "settle; squares; share; update; spread");
    expect_list(
        layout_of(1, 2, 2, 0, true, true), 0,  // a right sibling goes on in its left one's buffer
        "load 0.0; forward 0-2; backward 2-0; means; losses; load 0.1; forward 0-2; backward 2-0; means; losses; "
        "load 1.0; forward 0-2; backward 2-0; means; losses; load 1.1; forward 0-2; backward 2-0; means; losses; "
        "settle; squares; share; update; spread");
    expect_list(
        layout_of(1, 2, 1, 0, false, false), 0,
        "load 0.0; forward 0-2; backward 2-0; means; losses; load 1.0; forward 0-2; backward 2-0; means; losses; settle; squares; share; update; spread");
}

// A lane with four token slices: the first in its own buffer, the others from buffer 5 on.
static void token_slices_are_added_when_their_lane_ends(void **state) {
    (void)state;
    action_layout l = layout_of(1, 2, 2, 0, true, false);
    l.tables = 4, l.table = 5;
    expect_list(
        l, 0,
        "load 0.0; forward 0-2; backward 2-0; means; losses; load 0.1; forward 0-2; backward 2-0; means; add 0 += 5; add 6 += 7; add 0 += 6; losses; "
        "load 1.0; forward 0-2; backward 2-0; means; losses; load 1.1; forward 0-2; backward 2-0; means; add 1 += 5; add 6 += 7; add 1 += 6; "
        "add 0 += 1; losses; settle; squares; share; update; spread");
    l = layout_of(2, 2, 1, 2, true, false);
    l.tables = 2, l.table = 1, l.slots = false;
    expect_list(
        l, 1,
        "load 1.0; need 0; forward 0-0; need 1; forward 1-1; need 2; forward 2-2; backward 2-2; backward 1-1; "
        "add 0 += 1 in bucket 0; reduce bucket 0 turn 0; backward 0-0; add 0 += 1 in bucket 1; reduce bucket 1 turn 0; means; losses; "
        "settle; squares; share; update; spread");
}

static void two_ranks_reduce_buckets_as_backward_goes_on(void **state) {
    (void)state;
    expect_list(
        layout_of(2, 4, 1, 0, true, false), 1,
        "load 2.0; forward 0-2; backward 2-0; means; losses; "
        "load 3.0; forward 0-2; backward 2-2; backward 1-1; add 0 += 1 in bucket 0; reduce bucket 0 turn 0; "
        "backward 0-0; add 0 += 1 in bucket 1; reduce bucket 1 turn 0; means; losses; settle; squares; share; update; spread");
    expect_list(
        layout_of(2, 2, 1, 1, true, false), 0,  // weights arrive while forward begins
        "load 0.0; need 0; forward 0-0; need 1; forward 1-1; need 2; forward 2-2; "
        "backward 2-2; backward 1-1; reduce bucket 0 turn 0; backward 0-0; reduce bucket 1 turn 0; means; losses; settle; squares; share; update; spread");
}

static void zero_3_gathers_one_block_ahead(void **state) {
    (void)state;
    expect_list(
        layout_of(2, 2, 1, 3, true, false), 1,
        "load 1.0; gather 0; gather 1; need 0; forward 0-0; gather 2; need 1; forward 1-1; need 2; forward 2-2; "
        "need 2; take bucket 0; backward 2-2; gather 0; need 1; backward 1-1; reduce bucket 0 turn 0; "
        "need 0; take bucket 1; backward 0-0; reduce bucket 1 turn 0; means; losses; settle; squares; share; update; spread");
    expect_list(
        layout_of(2, 1, 1, 3, true, false), 1,  // no lane: it only sends its weights and receives its sums
        "gather 0; gather 1; need 0; gather 2; need 1; need 2; need 2; gather 0; need 1; reduce bucket 0 turn 0; "
        "need 0; reduce bucket 1 turn 0; settle; squares; share; update; spread");
}

// Also where a rank is alone: it is its own owner.
static void lanes_in_codes_are_reduced_one_by_one(void **state) {
    (void)state;
    action_layout l = layout_of(1, 2, 1, 0, true, false);
    l.turns = l.codes = true;
    expect_list(
        l, 0,
        "load 0.0; forward 0-2; backward 2-2; backward 1-1; reduce bucket 0 turn 0; backward 0-0; reduce bucket 1 turn 0; means; losses; "
        "settle; load 1.0; forward 0-2; backward 2-2; backward 1-1; reduce bucket 0 turn 1; backward 0-0; reduce bucket 1 turn 1; means; losses; "
        "settle; squares; share; update; spread");
}

// Two lanes are added before they are reduced: bucket by bucket, or, where the whole is clipped, at once before that.
static void spans_of_lanes_in_codes_are_reduced_at_once(void **state) {
    (void)state;
    action_layout l = layout_of(2, 4, 1, 0, true, false);
    l.turns = l.codes = true, l.span = 2;
    expect_list(
        l, 1,
        "load 2.0; forward 0-2; backward 2-0; means; losses; "
        "load 3.0; forward 0-2; backward 2-2; backward 1-1; add 0 += 1 in bucket 0; reduce bucket 0 turn 0; "
        "backward 0-0; add 0 += 1 in bucket 1; reduce bucket 1 turn 0; means; losses; settle; squares; share; update; spread");
    l.clips_lanes = true;
    expect_list(l, 0,
                "load 0.0; forward 0-2; backward 2-0; means; losses; "
                "load 1.0; forward 0-2; backward 2-2; backward 1-1; backward 0-0; add 0 += 1; reduce bucket 0 turn 0; "
                "reduce bucket 1 turn 0; means; losses; settle; squares; share; update; spread");
    l.world = 1, l.clips_lanes = false;  // the second turn begins when the first one's buffers are free
    expect_list(
        l, 0,
        "load 0.0; forward 0-2; backward 2-0; means; losses; "
        "load 1.0; forward 0-2; backward 2-2; backward 1-1; add 0 += 1 in bucket 0; reduce bucket 0 turn 0; "
        "backward 0-0; add 0 += 1 in bucket 1; reduce bucket 1 turn 0; means; losses; settle; "
        "load 2.0; forward 0-2; backward 2-0; means; losses; "
        "load 3.0; forward 0-2; backward 2-2; backward 1-1; add 0 += 1 in bucket 0; reduce bucket 0 turn 1; "
        "backward 0-0; add 0 += 1 in bucket 1; reduce bucket 1 turn 1; means; losses; settle; squares; share; update; spread");
}

// After the update, before the new weights leave for other ranks. Between boundaries the executor passes over it.
static void islands_mix_what_was_updated(void **state) {
    (void)state;
    action_layout l = layout_of(2, 2, 1, 1, true, false);
    l.islands = l.tied = true;
    expect_list(
        l, 0,
        "load 0.0; need 0; forward 0-0; need 1; forward 1-1; need 2; forward 2-2; "
        "backward 2-2; backward 1-1; reduce bucket 0 turn 0; backward 0-0; reduce bucket 1 turn 0; means; losses; "
        "settle; tie gradients; squares; share; update; outer; spread; tie values");
}

// Of weights, which are there: while the last gradients are on their way.
static void squares_of_masters_do_not_wait_for_gradients(void **state) {
    (void)state;
    action_layout l = layout_of(2, 2, 1, 1, true, false);
    l.masters = true;
    expect_list(
        l, 0,
        "load 0.0; need 0; forward 0-0; need 1; forward 1-1; need 2; forward 2-2; "
        "backward 2-2; backward 1-1; reduce bucket 0 turn 0; backward 0-0; reduce bucket 1 turn 0; means; losses; squares of masters; settle; squares; share; update; spread");
    l.tied = true;
    expect_list(
        l, 0,
        "load 0.0; need 0; forward 0-0; need 1; forward 1-1; need 2; forward 2-2; "
        "backward 2-2; backward 1-1; reduce bucket 0 turn 0; backward 0-0; reduce bucket 1 turn 0; means; losses; "
        "squares of masters; settle; tie gradients; squares; share; update; spread; tie values");
}

// --- laws of all lists -----------------------------------------------------------------------------------------------

typedef struct account {
    int loads, forward[BLOCKS], backward[BLOCKS], reduced[BUCKETS], settles;
    int place[2];  // ZeRO 3: blocks gathered
    bool needed[BLOCKS], taken[BUCKETS];
    bool valid[64][BLOCKS];  // what a buffer has of a block; else it is garbage
} account;

static void expect(bool holds, const action_layout *l, int rank, const char *what, const action *a) {
    char one[ACTION_TEXT];
    if (holds) return;
    fail_msg("world %d, lanes %d, micros %d, %s%s%s%srank %d: at `%s`: %s", l->world, (int)l->lanes, (int)l->micros,
             l->turns ? "shards gradients, " : "", l->shards_weights ? "shards weights, " : "",
             l->fixed ? "fixed, " : "any, ", l->once ? "once, " : "", rank, action_text(a, one), what);
}

static bool holds(int bucket, int block) {
    return bucket < 0 || (buckets[bucket].highest >= block && block >= buckets[bucket].lowest);
}

static void follow_gradients(const action_layout *l, int rank, account *k, const action *a) {
    for (int b = a->first; b <= a->last && !l->slots; b++) {
        bool *valid = &k->valid[a->buffer][b];
        expect(*valid != a->fresh, l, rank, a->fresh ? "it overwrites gradients" : "it adds to garbage", a);
        *valid = true;
    }
    for (int g = 0; g < BUCKETS && l->slots; g++)
        for (int b = a->first; b <= a->last; b++)
            expect(!a->fresh && (!holds(g, b) || k->taken[g]), l, rank, "the bucket has no slot", a);
}

static void follow_add(const action_layout *l, int rank, account *k, const action *a) {
    for (int b = 0; b < BLOCKS; b++) {
        if (!holds(a->bucket, b)) continue;
        expect(k->valid[a->buffer][b] && k->valid[a->from][b], l, rank, "it adds garbage", a);
        k->valid[a->from][b] = false;
    }
}

// The transport adds the buffers of all ranks: that of one without a lane is zero.
static void follow_reduce(const action_layout *l, int rank, account *k, const action *a) {
    expect(k->backward[buckets[a->bucket].lowest] == k->loads, l, rank, "the bucket is not final", a);
    for (int b = 0; b < BLOCKS && !l->slots && !l->fixed; b++)
        if (holds(a->bucket, b)) expect(k->valid[0][b], l, rank, "it sends garbage", a);
    k->reduced[a->bucket]++;
    k->taken[a->bucket] = false;
}

static void follow(const action_layout *l, int rank, account *k, const action *a) {
    switch (a->kind) {
    case ACTION_ZERO:
        expect(!l->fixed && l->turns, l, rank, "it is not added to others' gradients", a);
        for (int b = 0; b < BLOCKS; b++) {
            if (!holds(a->bucket, b)) continue;
            expect(!k->valid[0][b], l, rank, "it wipes gradients", a);
            k->valid[0][b] = true;
        }
        break;
    case ACTION_GATHER: k->place[a->first % 2] = a->first + 1, k->needed[a->first] = false; break;
    case ACTION_NEED:
        expect(!l->shards_weights || k->place[a->first % 2] == a->first + 1, l, rank, "the block was not gathered", a);
        expect(l->shards_weights || !k->needed[a->first], l, rank, "the block was waited for before", a);
        k->needed[a->first] = true;
        break;
    case ACTION_LOAD: k->loads++; break;
    case ACTION_FORWARD:
    case ACTION_BACKWARD:
        for (int b = a->first; b <= a->last; b++) {
            expect(!l->shards_weights || (k->place[b % 2] == b + 1 && k->needed[b]), l, rank,
                   "the block's weights are not here", a);
            (a->kind == ACTION_FORWARD ? k->forward : k->backward)[b]++;
        }
        if (a->kind == ACTION_BACKWARD) follow_gradients(l, rank, k, a);
        break;
    case ACTION_TAKE: k->taken[a->bucket] = true; break;
    case ACTION_ADD: follow_add(l, rank, k, a); break;
    case ACTION_REDUCE: follow_reduce(l, rank, k, a); break;
    case ACTION_SETTLE:
        k->settles++;
        if (l->turns) memset(k->valid, 0, sizeof k->valid);
        break;
    default: break;
    }
}

static void check_rank(const action_layout *l, int rank) {
    lane_deal d = lane_deal_of(l->lanes, l->world, rank, l->turns);
    action_list a = list_of(l, rank);
    account k = {0};
    for (int i = 0; i < a.count; i++) follow(l, rank, &k, &a.at[i]);
    const action *end = &a.at[a.count - 1];
    expect(k.loads == d.count * l->micros, l, rank, "not all micro-batches were loaded", end);
    for (int b = 0; b < BLOCKS; b++)
        expect(k.forward[b] == k.loads && k.backward[b] == k.loads, l, rank, "a block was left out", end);
    for (int g = 0; g < BUCKETS; g++)
        expect(k.reduced[g] == (l->world > 1 || l->codes ? lane_turns(l->lanes, l->world, l->turns) : 0), l, rank,
               "a bucket was not reduced once a turn", end);
    expect(end->kind == ACTION_SPREAD && k.settles >= 1, l, rank, "the end is missing", end);
    action_list_free(&a);
}

static bool collective(const action *a) {
    return a->kind == ACTION_GATHER || a->kind == ACTION_REDUCE || a->kind >= ACTION_SHARE;
}

static void check_order(const action_layout *l) {
    action_list first = list_of(l, 0);
    for (int rank = 1; rank < l->world; rank++) {
        action_list a = list_of(l, rank);
        int i = 0, n = 0;
        for (;; i++, n++) {
            while (i < a.count && !collective(&a.at[i])) i++;
            while (n < first.count && !collective(&first.at[n])) n++;
            if (i == a.count || n == first.count) break;
            const action *x = &a.at[i], *y = &first.at[n];
            expect(x->kind == y->kind && x->first == y->first && x->bucket == y->bucket && x->turn == y->turn, l, rank,
                   "rank 0 communicates in another order", x);
        }
        expect(i == a.count && n == first.count, l, rank, "rank 0 communicates more or less", &a.at[a.count - 1]);
        action_list_free(&a);
    }
    action_list_free(&first);
}

static void all_layouts_are_complete_and_agree(void **state) {
    (void)state;
    int layouts = 0;
    for (int64_t lanes = 1; lanes <= 16; lanes *= 2)
        for (int world = 1; world <= lanes; world++)
            for (int64_t micros = 1; micros <= 3; micros++)
                for (int stage = 0; stage <= (world > 1 ? 3 : 0); stage++)
                    for (int kind = 0; kind < 4; kind++, layouts++) {
                        action_layout l = layout_of(world, lanes, micros, stage, kind & 1, kind & 2);
                        for (int rank = 0; rank < world; rank++) check_rank(&l, rank);
                        check_order(&l);
                    }
    assert_true(layouts > 1000);
}

// What ZeRO 3 gathers costs traffic: a block that is here is not gathered again, and none gives way before it was used.
// And it costs time: a block comes while the one before it is used, unless both have the same place. Three blocks are
// too few to see it: the last and the first one share a place.
static void expect_no_waste(const action_layout *l, int rank, const action_list *a) {
    int here[2] = {-1, -1}, before = -1;  // the place of the block that was used last
    bool used[2] = {true, true}, fresh[2] = {false, false};
    for (int i = 0; i < a->count; i++) {
        const action *x = &a->at[i];
        int place = x->first % 2;
        if (x->kind == ACTION_GATHER) {
            expect(here[place] != x->first, l, rank, "the block is here already", x);
            expect(used[place], l, rank, "the block before it in this place was gathered in vain", x);
            here[place] = x->first, used[place] = false, fresh[place] = true;
        }
        if (x->kind == ACTION_NEED) {
            expect(!fresh[place] || before < 0 || before == place, l, rank,
                   "it was not gathered while the block before was used", x);
            used[place] = true, before = place;
            fresh[0] = fresh[1] = false;
        }
    }
    expect(used[0] && used[1], l, rank, "a block was gathered in vain", &a->at[a->count - 1]);
}

static void nothing_is_gathered_in_vain(void **state) {
    (void)state;
    for (int blocks = 1; blocks <= 7; blocks++)
        for (int64_t lanes = 1; lanes <= 4; lanes *= 2)
            for (int64_t micros = 1; micros <= 3; micros++)
                for (int rank = 0; rank < 3; rank++) {
                    action_bucket all = {.highest = blocks - 1, .lowest = 0};
                    action_layout l = layout_of(3, lanes, micros, 3, true, false);
                    l.blocks = blocks, l.buckets = 1, l.bucket = &all;
                    action_list step = list_of(&l, rank), pass = list_by(l, rank, make_forward);
                    expect_no_waste(&l, rank, &step);
                    expect_no_waste(&l, rank, &pass);
                    action_list_free(&step), action_list_free(&pass);
                }
}

// Adding as the list says, on numbers: the sum of a rank's lanes is in the buffers of its subtrees.
static void the_adds_are_those_of_the_tree(void **state) {
    (void)state;
    for (int64_t lanes = 1; lanes <= 32; lanes *= 2)
        for (int once = 0; once <= 1; once++) {
            action_layout l = layout_of(1, lanes, 1, 0, true, once);
            action_list a = list_of(&l, 0);
            double sum[64] = {0}, whole = 0, lane = 0;
            for (int i = 0; i < a.count; i++) {
                const action *x = &a.at[i];
                if (x->kind == ACTION_LOAD) lane = (double)(1LL << x->lane), whole += lane;
                if (x->kind == ACTION_BACKWARD) sum[x->buffer] = (x->fresh ? 0 : sum[x->buffer]) + lane;
                if (x->kind == ACTION_ADD) sum[x->buffer] += sum[x->from];
            }
            assert_true(sum[0] == whole && whole == (double)((1LL << lanes) - 1));
            action_list_free(&a);
        }
}

// Of one stage, whole micro-batches in which nothing is sent: what differs is the buffer, whether it is fresh, and what
// ends a rank's last lane if no rank waits for it. "F" covers forward, backward and means, "F+2" two adds after them.
static void whole_micro_batches_are_recorded(void **state) {
    (void)state;
    static const struct {
        int world;
        int64_t lanes, micros;
        int stage, expected;
        const char *runs;  // by the number of each one's recording
    } rows[] = {{1, 1, 1, 0, 1, "F"},         {1, 1, 3, 0, 2, "F F F"}, {1, 4, 1, 0, 3, "F F F F+2"},
                {1, 2, 2, 0, 4, "F F F F+1"}, {2, 4, 1, 0, 1, "F"},     {2, 2, 1, 0, 0, ""},
                {2, 4, 3, 0, 4, "F F F F F"}, {2, 4, 2, 1, 2, "F F"},   {2, 4, 2, 2, 1, "F"},
                {2, 4, 3, 3, 0, ""}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        action_layout l = layout_of(rows[k].world, rows[k].lanes, rows[k].micros, rows[k].stage, true, false);
        action_list a = list_of(&l, 0);
        char runs[256] = "";
        for (int i = 0; i < a.count; i++) {
            const action *x = &a.at[i];
            if (!x->covers) continue;
            assert_true(x->kind == ACTION_FORWARD && x[1].kind == ACTION_BACKWARD && x[2].kind == ACTION_MEANS);
            for (int n = 3; n < x->covers; n++) assert_int_equal(x[n].kind, ACTION_ADD);
            size_t at = strlen(runs);
            snprintf(runs + at, sizeof runs - at, x->covers > 3 ? "%sF+%d" : "%sF", at ? " " : "", x->covers - 3);
        }
        if (a.recordings != rows[k].expected || strcmp(runs, rows[k].runs) != 0)
            fail_msg("row %zu: %d recordings, `%s`, expected %d, `%s`", k, a.recordings, runs, rows[k].expected,
                     rows[k].runs);
        action_list_free(&a);
    }
}

static void a_forward_pass_brings_every_block(void **state) {
    (void)state;
    static const char *const expected[] = {
        "forward 0-2", "need 0; forward 0-0; need 1; forward 1-1; need 2; forward 2-2",
        "need 0; forward 0-0; need 1; forward 1-1; need 2; forward 2-2",
        "gather 0; gather 1; need 0; forward 0-0; gather 2; need 1; forward 1-1; need 2; forward 2-2"};
    for (int stage = 0; stage <= 3; stage++) {
        char text[1024] = "", one[ACTION_TEXT];
        action_layout l = layout_of(2, 2, 1, stage, true, false);
        action_list a = list_by(l, 0, make_forward);
        for (int i = 0; i < a.count; i++) strcat(strcat(text, i ? "; " : ""), action_text(&a.at[i], one));
        assert_string_equal(text, expected[stage]);
        action_list_free(&a);
    }
}

// --- rows on demand --------------------------------------------------------------------------------------------------

static action_layout with_rows(action_layout l) {
    l.rows = true;
    return l;
}

static void rows_are_fetched_before_and_kept_after(void **state) {
    (void)state;
    action_layout l = with_rows(layout_of(1, 2, 2, 0, true, false));
    expect_list(
        l, 0,
        "load 0.0; fetch 0.0; have 0.0; load 0.1; fetch 0.1; forward 0-2; backward 2-0; means; keep 0.0; losses; "
        "have 0.1; load 1.0; fetch 1.0; forward 0-2; backward 2-0; means; keep 0.1; losses; "
        "have 1.0; load 1.1; fetch 1.1; forward 0-2; backward 2-0; means; keep 1.0; losses; "
        "have 1.1; forward 0-2; backward 2-0; means; keep 1.1; add 0 += 1; losses; "
        "settle; rows; squares; share; update; spread");
    // of 3 ranks the last has two lanes: the others fetch once more, before they have anything to reduce; and all look
    // ahead
    l = with_rows(layout_of(3, 4, 1, 0, true, false));
    l.cold = true;
    expect_list(l, 0,
                "fetch; load 0.0; fetch 0.0; have 0.0; ahead; forward 0-2; backward 2-2; backward 1-1; reduce bucket 0 "
                "turn 0; backward 0-0; reduce bucket 1 turn 0; means; keep 0.0; losses; settle; rows; squares; share; "
                "update; spread");
    // a rank without a lane in the last turn
    l = with_rows(layout_of(3, 4, 1, 3, true, false));
    l.cold = true;
    char text[4096] = "", one[ACTION_TEXT];
    action_list a = list_of(&l, 2);
    for (int i = 0; i < a.count; i++)
        if (a.at[i].kind <= ACTION_LOAD || (a.at[i].kind >= ACTION_FETCH && a.at[i].kind <= ACTION_AHEAD))
            strcat(strcat(text, action_text(&a.at[i], one)), "; ");
    assert_string_equal(text, "load 2.0; fetch 2.0; have 2.0; fetch; ahead; ");
    action_list_free(&a);
}

// What is in a set of rows, and in an input slot: the next micro-batch, those of the one that is computed, or nothing.
typedef enum set_use { NOTHING, LOADED, FETCHED, USED } set_use;
typedef struct set_holds {
    set_use use;
    int64_t lane, micro;
} set_holds;

// A set is filled by one micro-batch at a time, and is kept until its gradients are.
static void follow_rows(const action_list *a) {
    set_holds set[2] = {0};
    int ahead = 0, now = -1;
    for (int i = 0; i < a->count; i++) {
        const action *x = &a->at[i];
        assert_true(x->input_slot >= 0 && x->input_slot < 2);
        set_holds *k = &set[x->input_slot];
        bool same = k->lane == x->lane && k->micro == x->micro;
        switch (x->kind) {
        case ACTION_LOAD:
            assert_true(k->use == NOTHING && !ahead);
            *k = (set_holds){LOADED, x->lane, x->micro};
            break;
        case ACTION_FETCH:
            assert_true(k->use == (x->fresh ? LOADED : NOTHING) && (!x->fresh || same) && !ahead);
            if (x->fresh) k->use = FETCHED;
            break;
        case ACTION_HAVE:
            assert_true(k->use == FETCHED && same && now < 0);
            k->use = USED, now = x->input_slot;
            break;
        case ACTION_FORWARD:
        case ACTION_BACKWARD: assert_int_equal(x->input_slot, now); break;
        case ACTION_AHEAD:
            assert_true(k->use == NOTHING);
            ahead++;
            break;
        case ACTION_KEEP:
            assert_true(k->use == USED && same && now == x->input_slot);
            k->use = NOTHING, now = -1;
            break;
        case ACTION_ROWS: assert_true(set[0].use == NOTHING && set[1].use == NOTHING && ahead == 1); break;
        default: break;
        }
    }
}

// What all ranks do together is in the same order on each, and none of them waits for ever.
static void all_ranks_fetch_alike(void **state) {
    (void)state;
    for (int n = 0; n < 4 * 4 * 2 * 2; n++) {
        int world = 1 + n % 4, stage = n / 4 % 4;
        action_layout l = with_rows(layout_of(world, 4, 1 + n / 16 % 2, stage, n / 32 == 0, false));
        l.cold = true;
        char first[4096] = "", text[4096], one[ACTION_TEXT];
        action_list a[4];
        const action_list *lists[4];
        stages x[4];
        const stages *of[4];
        simulation out;
        for (int r = 0; r < world; r++) {
            a[r] = list_of(&l, r), lists[r] = &a[r];
            x[r] = stage_of(&l, r), of[r] = &x[r];
            int keeps = 0;
            text[0] = 0;
            for (int i = 0; i < a[r].count; i++) {
                action_kind k = a[r].at[i].kind;
                keeps += k == ACTION_KEEP;
                if (k == ACTION_FETCH || k == ACTION_AHEAD || k == ACTION_REDUCE || k == ACTION_ROWS ||
                    k == ACTION_SHARE)
                    strcat(strcat(text, k == ACTION_FETCH ? "fetch" : action_text(&a[r].at[i], one)), "; ");
            }
            lane_table t = {.lanes = 4, .world = world, .turns = l.turns};
            assert_int_equal(keeps, lane_table_count(&t, r) * l.micros);
            if (r == 0) strcpy(first, text);
            assert_string_equal(text, first);
            follow_rows(&a[r]);
        }
        assert_int_equal(simulate_run(&(simulate_lists){1, world, lists, of}, NULL, &out), ERR_OK);
        simulation_free(&out);
        for (int r = 0; r < world; r++) action_list_free(&a[r]), stages_close(&x[r]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_fetched_before_and_kept_after),
        cmocka_unit_test(all_ranks_fetch_alike),
        cmocka_unit_test(a_rank_alone_adds_lanes_as_the_tree_says),
        cmocka_unit_test(two_ranks_reduce_buckets_as_backward_goes_on),
        cmocka_unit_test(token_slices_are_added_when_their_lane_ends),
        cmocka_unit_test(zero_3_gathers_one_block_ahead),
        cmocka_unit_test(lanes_in_codes_are_reduced_one_by_one),
        cmocka_unit_test(spans_of_lanes_in_codes_are_reduced_at_once),
        cmocka_unit_test(squares_of_masters_do_not_wait_for_gradients),
        cmocka_unit_test(islands_mix_what_was_updated),
        cmocka_unit_test(all_layouts_are_complete_and_agree),
        cmocka_unit_test(nothing_is_gathered_in_vain),
        cmocka_unit_test(the_adds_are_those_of_the_tree),
        cmocka_unit_test(whole_micro_batches_are_recorded),
        cmocka_unit_test(a_forward_pass_brings_every_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
