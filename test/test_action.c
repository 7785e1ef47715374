// test/test_action.c: the list of actions of a step, for many layouts, without a process. Some lists are written out;
// of all others it is asked that they are complete, that no buffer is used before it is ready, and that all ranks
// communicate in the same order.
#include "trainer/step/action.h"

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
                           .shards_gradients = stage >= 2,
                           .shards_weights = stage == 3,
                           .spreads = stage == 1 || stage == 2,
                           .slots = stage >= 2 && micros == 1,
                           .blocks = BLOCKS,
                           .buckets = BUCKETS,
                           .bucket = buckets};
}

static action_list list_of(const action_layout *l, int rank) {
    action_list a;
    assert_int_equal(action_step(l, rank, &a), ERR_OK);
    return a;
}

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
        "zero 0; load 0.0; forward 0-2; backward 2-0; losses; zero 1; load 1.0; forward 0-2; backward 2-0; losses; add 0 += 1; "
        "zero 1; load 2.0; forward 0-2; backward 2-0; losses; zero 2; load 3.0; forward 0-2; backward 2-0; losses; add 1 += 2; add 0 += 1; "
        "settle; squares; share; update; spread");
    expect_list(layout_of(1, 2, 2, 0, true, true), 0,  // a right sibling goes on in its left one's buffer
                "zero 0; load 0.0; forward 0-2; backward 2-0; losses; load 0.1; forward 0-2; backward 2-0; losses; "
                "load 1.0; forward 0-2; backward 2-0; losses; load 1.1; forward 0-2; backward 2-0; losses; "
                "settle; squares; share; update; spread");
    expect_list(
        layout_of(1, 2, 1, 0, false, false), 0,
        "zero 0; load 0.0; forward 0-2; backward 2-0; losses; load 1.0; forward 0-2; backward 2-0; losses; settle; squares; share; update; spread");
}

// A lane with four token slices: the first in its own buffer, the others from buffer 5 on.
static void token_slices_are_added_when_their_lane_ends(void **state) {
    (void)state;
    action_layout l = layout_of(1, 2, 2, 0, true, false);
    l.tables = 4, l.table = 5;
    expect_list(
        l, 0,
        "zero 0; load 0.0; forward 0-2; backward 2-0; losses; load 0.1; forward 0-2; backward 2-0; losses; add 0 += 5; add 6 += 7; add 0 += 6; "
        "zero 1; load 1.0; forward 0-2; backward 2-0; losses; load 1.1; forward 0-2; backward 2-0; losses; add 1 += 5; add 6 += 7; add 1 += 6; "
        "add 0 += 1; settle; squares; share; update; spread");
    l = layout_of(2, 2, 1, 2, true, false);
    l.tables = 2, l.table = 1, l.slots = false;
    expect_list(
        l, 1,
        "settle; zero 0; load 1.0; need 0; forward 0-0; need 1; forward 1-1; need 2; forward 2-2; backward 2-2; backward 1-1; "
        "add 0 += 1 in bucket 0; reduce bucket 0 turn 0; backward 0-0; add 0 += 1 in bucket 1; reduce bucket 1 turn 0; losses; "
        "settle; squares; share; update; spread");
}

static void two_ranks_reduce_buckets_as_backward_goes_on(void **state) {
    (void)state;
    expect_list(
        layout_of(2, 4, 1, 0, true, false), 1,
        "zero 0; load 2.0; forward 0-2; backward 2-0; losses; "
        "zero 1; load 3.0; forward 0-2; backward 2-2; backward 1-1; add 0 += 1 in bucket 0; reduce bucket 0 turn 0; "
        "backward 0-0; add 0 += 1 in bucket 1; reduce bucket 1 turn 0; losses; settle; squares; share; update; spread");
    expect_list(
        layout_of(2, 2, 1, 1, true, false), 0,  // weights arrive while forward begins
        "zero 0; load 0.0; need 0; forward 0-0; need 1; forward 1-1; need 2; forward 2-2; "
        "backward 2-2; backward 1-1; reduce bucket 0 turn 0; backward 0-0; reduce bucket 1 turn 0; losses; settle; squares; share; update; spread");
}

static void zero_3_gathers_one_block_ahead(void **state) {
    (void)state;
    expect_list(
        layout_of(2, 2, 1, 3, true, false), 1,
        "load 1.0; gather 0; gather 1; need 0; forward 0-0; gather 2; need 1; forward 1-1; need 2; forward 2-2; "
        "need 2; take bucket 0; backward 2-2; gather 0; need 1; backward 1-1; reduce bucket 0 turn 0; "
        "need 0; take bucket 1; backward 0-0; reduce bucket 1 turn 0; losses; settle; squares; share; update; spread");
    expect_list(
        layout_of(2, 1, 1, 3, true, false), 1,  // no lane: it only sends its weights and receives its sums
        "gather 0; gather 1; need 0; gather 2; need 1; need 2; need 2; take bucket 0; gather 0; need 1; reduce bucket 0 turn 0; "
        "need 0; take bucket 1; reduce bucket 1 turn 0; settle; squares; share; update; spread");
}

// --- laws of all lists -----------------------------------------------------------------------------------------------

typedef struct account {
    int loads, forward[BLOCKS], backward[BLOCKS], reduced[BUCKETS], settles;
    int place[2];  // ZeRO 3: blocks gathered
    bool needed[BLOCKS], zeroed[64], taken[BUCKETS];
    lane_counter c;
} account;

static void expect(bool holds, const action_layout *l, int rank, const char *what, const action *a) {
    char one[ACTION_TEXT];
    if (holds) return;
    fail_msg("world %d, lanes %d, micros %d, %s%s%s%srank %d: at `%s`: %s", l->world, (int)l->lanes, (int)l->micros,
             l->shards_gradients ? "shards gradients, " : "", l->shards_weights ? "shards weights, " : "",
             l->fixed ? "fixed, " : "any, ", l->once ? "once, " : "", rank, action_text(a, one), what);
}

static void follow(const action_layout *l, int rank, account *k, const action *a) {
    switch (a->kind) {
    case ACTION_ZERO: k->zeroed[a->buffer] = true; break;
    case ACTION_GATHER: k->place[a->first % 2] = a->first + 1, k->needed[a->first] = false; break;
    case ACTION_NEED:
        expect(!l->shards_weights || k->place[a->first % 2] == a->first + 1, l, rank, "the block was not gathered", a);
        expect(l->shards_weights || !k->needed[a->first], l, rank, "the block was waited for before", a);
        k->needed[a->first] = true;
        break;
    case ACTION_LOAD:
        k->loads++;
        expect(l->slots || k->zeroed[a->buffer], l, rank, "the buffer was never zeroed", a);
        break;
    case ACTION_FORWARD:
    case ACTION_BACKWARD:
        for (int b = a->first; b <= a->last; b++) {
            expect(!l->shards_weights || (k->place[b % 2] == b + 1 && k->needed[b]), l, rank,
                   "the block's weights are not here", a);
            (a->kind == ACTION_FORWARD ? k->forward : k->backward)[b]++;
            for (int g = 0; a->kind == ACTION_BACKWARD && l->slots && g < BUCKETS; g++)
                if (buckets[g].highest >= b && b >= buckets[g].lowest)
                    expect(k->taken[g], l, rank, "the bucket has no slot", a);
        }
        break;
    case ACTION_TAKE: k->taken[a->bucket] = true; break;
    case ACTION_REDUCE:
        expect(k->backward[buckets[a->bucket].lowest] == k->loads, l, rank, "the bucket is not final", a);
        k->reduced[a->bucket]++;
        k->taken[a->bucket] = false;
        break;
    case ACTION_SETTLE: k->settles++; break;
    default: break;
    }
}

static void check_rank(const action_layout *l, int rank) {
    lane_deal d = lane_deal_of(l->lanes, l->world, rank, l->shards_gradients);
    action_list a = list_of(l, rank);
    account k = {0};
    for (int i = 0; i < a.count; i++) follow(l, rank, &k, &a.at[i]);
    const action *end = &a.at[a.count - 1];
    expect(k.loads == d.count * l->micros, l, rank, "not all micro-batches were loaded", end);
    for (int b = 0; b < BLOCKS; b++)
        expect(k.forward[b] == k.loads && k.backward[b] == k.loads, l, rank, "a block was left out", end);
    for (int g = 0; g < BUCKETS; g++)
        expect(k.reduced[g] == (l->world > 1 ? lane_turns(l->lanes, l->world, l->shards_gradients) : 0), l, rank,
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
                    action_list step, look;
                    l.blocks = blocks, l.buckets = 1, l.bucket = &all;
                    assert_int_equal(action_step(&l, rank, &step), ERR_OK);
                    assert_int_equal(action_look(&l, &look), ERR_OK);
                    expect_no_waste(&l, rank, &step);
                    expect_no_waste(&l, rank, &look);
                    action_list_free(&step), action_list_free(&look);
                }
}

// Adding as the list says, on numbers: the sum of a rank's lanes is in the buffers of its subtrees.
static void the_adds_are_those_of_the_tree(void **state) {
    (void)state;
    for (int64_t lanes = 1; lanes <= 32; lanes *= 2)
        for (int once = 0; once <= 1; once++) {
            action_layout l = layout_of(1, lanes, 1, 0, true, once);
            action_list a = list_of(&l, 0);
            double sum[64] = {0}, whole = 0;
            for (int i = 0; i < a.count; i++) {
                const action *x = &a.at[i];
                if (x->kind == ACTION_ZERO) sum[x->buffer] = 0;
                if (x->kind == ACTION_LOAD)
                    sum[x->buffer] += (double)(1LL << x->lane), whole += (double)(1LL << x->lane);
                if (x->kind == ACTION_ADD) sum[x->buffer] += sum[x->from];
            }
            assert_true(sum[0] == whole && whole == (double)((1LL << lanes) - 1));
            action_list_free(&a);
        }
}

static void a_look_brings_every_block(void **state) {
    (void)state;
    static const char *const expected[] = {
        "forward 0-2", "need 0; forward 0-0; need 1; forward 1-1; need 2; forward 2-2",
        "need 0; forward 0-0; need 1; forward 1-1; need 2; forward 2-2",
        "gather 0; gather 1; need 0; forward 0-0; gather 2; need 1; forward 1-1; need 2; forward 2-2"};
    for (int stage = 0; stage <= 3; stage++) {
        char text[1024] = "", one[ACTION_TEXT];
        action_layout l = layout_of(2, 2, 1, stage, true, false);
        action_list a;
        assert_int_equal(action_look(&l, &a), ERR_OK);
        for (int i = 0; i < a.count; i++) strcat(strcat(text, i ? "; " : ""), action_text(&a.at[i], one));
        assert_string_equal(text, expected[stage]);
        action_list_free(&a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_alone_adds_lanes_as_the_tree_says),
        cmocka_unit_test(two_ranks_reduce_buckets_as_backward_goes_on),
        cmocka_unit_test(token_slices_are_added_when_their_lane_ends),
        cmocka_unit_test(zero_3_gathers_one_block_ahead),
        cmocka_unit_test(all_layouts_are_complete_and_agree),
        cmocka_unit_test(nothing_is_gathered_in_vain),
        cmocka_unit_test(the_adds_are_those_of_the_tree),
        cmocka_unit_test(a_look_brings_every_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
