// test/test_simulate.c: lists of a few actions run on paper (trainer/step/simulate.h), with times by hand: collectives
// beside the blocks, what they take of these, and weights that are on their way as a step begins; when each message
// leaves and arrives on links that keep none, one or two of them, and what each action waits for.
#include "trainer/step/simulate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// Forward takes 3, a block's backward 2 on rank 0 and 4 on rank 1, a bucket 5. Two blocks in one bucket, and one.
//   rank 0  F 0-3  B 3-5 B 5-7    B 7-9     waits      done at 21
//   rank 1  F 0-3  B 3-7 B 7-11   B 11-15   waits
//   beside                        bucket 0 11-16, bucket 1 16-21
static double bucket_time(void *ctx, int rank, const action *a) {
    (void)ctx;
    return a->kind == ACTION_FORWARD ? 3 : a->kind == ACTION_BACKWARD ? 2 + 2 * rank : a->kind == ACTION_REDUCE ? 5 : 0;
}

static void buckets_go_beside_the_blocks(void **state) {
    (void)state;
    static const action_bucket bucket[] = {{.highest = 2, .lowest = 1}, {.highest = 0, .lowest = 0}};
    block each[3] = {0};
    model net = {.blocks = 3, .block = each};
    stages x;
    action_list a[2];
    simulation out;
    assert_int_equal(stages_open(&x, &net, &(stage_options){.ranks = 1, .chunks = 1, .micros = 1}), ERR_OK);
    action_layout l = {
        .world = 2, .lanes = 2, .micros = 1, .fixed = true, .blocks = 3, .buckets = 2, .bucket = bucket, .pipe = &x};
    for (int rank = 0; rank < 2; rank++) assert_int_equal(action_step(&l, rank, &a[rank]), ERR_OK);
    simulate_lists in = {1, 2, (const action_list *[]){&a[0], &a[1]}, (const stages *[]){&x, &x}};
    assert_int_equal(simulate_run(&in, &(simulate_costs){.time = bucket_time}, &out), ERR_OK);
    assert_true(out.total == 21 && out.rank[0].busy == 9 && out.rank[1].busy == 15);
    for (int i = 0; i < a[0].count; i++)
        if (a[0].at[i].kind == ACTION_SETTLE) assert_true(out.rank[0].came[i] == 9 && out.rank[0].left[i] == 21);
    simulation_free(&out);
    for (int rank = 0; rank < 2; rank++) action_list_free(&a[rank]);
    stages_close(&x);
}

// Two buckets of 5 each are on their way, one after the other, while a block takes 3.
//   loses  0    the block 0-3                    the buckets 0-5, 5-10
//          0.5  half of it is done 0-5, by 6     0-5, 5-10
//          1    nothing is done 0-10, 10-13      0-5, 5-10
//          1.5  0-15, 15-18                      0-7.5, 7.5-15
// Then a block of 3 that the buckets do not meet, as one that waits for them.
static void collectives_cost_work_beside_them(void **state) {
    (void)state;
    static const double lost[] = {0, 0.5, 1, 1.5}, done[] = {3, 6, 13, 18}, buckets[] = {10, 10, 10, 15};
    action each[] = {{.kind = ACTION_REDUCE},
                     {.kind = ACTION_REDUCE},
                     {.kind = ACTION_FORWARD},
                     {.kind = ACTION_SETTLE},
                     {.kind = ACTION_FORWARD}};
    block one = {0};
    model net = {.blocks = 1, .block = &one};
    stages x;
    simulation out;
    assert_int_equal(stages_open(&x, &net, &(stage_options){.ranks = 1, .chunks = 1, .micros = 1}), ERR_OK);
    simulate_lists in = {1, 1, (const action_list *[]){&(action_list){.at = each, .count = 5}}, (const stages *[]){&x}};
    for (int i = 0; i < 4; i++) {
        simulate_costs by = {.time = bucket_time, .beside = lost[i]};
        assert_int_equal(simulate_run(&in, &by, &out), ERR_OK);
        const double *left = out.rank[0].left, settled = done[i] > buckets[i] ? done[i] : buckets[i];
        if (left[2] != done[i] || left[3] != settled || left[4] != settled + 3 || out.rank[0].busy != 6)
            fail_msg("%g: %g, %g, %g", lost[i], left[2], left[3], left[4]);
        simulation_free(&out);
    }
    stages_close(&x);
}

// Forward takes 2 a block, backward 1, a bucket 4. Three blocks have their new weights after a third, two thirds and
// all of the time that the SPREAD of the step before takes, after which buckets are sent.
//   SPREAD 9    F 3-5 F 6-8 F 9-11       B 11-14   buckets 13-17, 17-21
//          30   F 10-12 F 20-22 F 30-32  B 32-35           34-38, 38-42
//          1    F 1/3 and on, 6 in all   B until 9 1/3     from 8 1/3 on
static double spread_time(void *ctx, int rank, const action *a) {
    int blocks = a->last - a->first + 1;
    (void)rank;
    switch (a->kind) {
    case ACTION_FORWARD: return 2 * blocks;
    case ACTION_BACKWARD: return blocks;
    case ACTION_REDUCE: return 4;
    case ACTION_SPREAD: return *(const double *)ctx;
    default: return 0;
    }
}

static void new_weights_are_on_their_way(void **state) {
    (void)state;
    static const action_bucket bucket[] = {{.highest = 2, .lowest = 1}, {.highest = 0, .lowest = 0}};
    static const double spread[] = {9, 30, 1}, total[] = {21, 42, 1 / 3.0 + 6 + 2 + 4 + 4};
    block each[3] = {0};
    model net = {.blocks = 3, .block = each};
    stages x;
    action_list a[2];
    assert_int_equal(stages_open(&x, &net, &(stage_options){.ranks = 1, .chunks = 1, .micros = 1}), ERR_OK);
    action_layout l = {.world = 2,
                       .lanes = 2,
                       .micros = 1,
                       .fixed = true,
                       .spreads = true,
                       .blocks = 3,
                       .buckets = 2,
                       .bucket = bucket,
                       .pipe = &x};
    for (int rank = 0; rank < 2; rank++) assert_int_equal(action_step(&l, rank, &a[rank]), ERR_OK);
    simulate_lists in = {1, 2, (const action_list *[]){&a[0], &a[1]}, (const stages *[]){&x, &x}};
    for (int k = 0; k < 3; k++) {
        double time = spread[k];
        simulation out;
        assert_int_equal(simulate_run(&in, &(simulate_costs){.time = spread_time, .ctx = &time}, &out), ERR_OK);
        for (int i = 0; i < a[0].count; i++) {
            const action *n = &a[0].at[i];
            if (n->kind != ACTION_NEED || i > a[0].count / 2) continue;
            double wanted = time * (n->first + 1) / 3, came = out.rank[0].came[i];
            assert_float_equal(out.rank[0].left[i], wanted > came ? wanted : came, 1e-9);
        }
        assert_float_equal(out.total, total[k], 1e-9);
        assert_float_equal(out.rank[1].busy, 9, 1e-9);
        simulation_free(&out);
    }
    for (int rank = 0; rank < 2; rank++) action_list_free(&a[rank]);
    stages_close(&x);
}

// A time stands in the action's `lane`.
static double lane_time(void *ctx, int rank, const action *a) { return (void)ctx, (void)rank, (double)a->lane; }

static int cut[] = {0, 4};

static stages stages_of_two(message *m, int messages) {
    stages of = {.count = 1, .cut = cut};
    of.pipe.ranks = 2, of.table.message = m, of.table.messages = messages;
    return of;
}

static void run(simulation *out, int pipeline, const action_list *a, const stages *of, int depth) {
    const action_list *list[] = {&a[0], &a[1]};
    const stages *stage[] = {&of[0], &of[1]};
    simulate_costs by = {.time = lane_time, .depth = depth};
    assert_int_equal(simulate_run(&(simulate_lists){pipeline, 1, list, stage}, &by, out), ERR_OK);
}

// Four messages of 2 are sent at 0; their receives begin at 1, 11, 21 and 31. A link that keeps none waits for the
// receive, and then takes 2. One that keeps so many takes the next one as soon as an earlier one has arrived.
static void links_keep_messages(void **state) {
    (void)state;
    static const double left[3][4] = {{3, 13, 23, 33}, {2, 4, 13, 23}, {2, 4, 6, 13}},
                        arrived[3][4] = {{3, 13, 23, 33}, {2, 11, 21, 31}, {2, 11, 21, 31}};
    message m[2][4];
    action send[8], receive[12];
    for (int i = 0; i < 4; i++) {
        m[0][i] = (message){.kind = MESSAGE_ACTIVATIONS, .sends = true, .peer = 1, .stage = 1, .micro = i, .after = -1};
        m[1][i] = (message){.kind = MESSAGE_ACTIVATIONS, .peer = 0, .stage = 1, .micro = i, .after = -1};
        send[i] = (action){.kind = ACTION_POST, .message = i, .lane = 2};
        send[4 + i] = receive[8 + i] = (action){.kind = ACTION_AWAIT, .message = i};
        receive[2 * i] = (action){.kind = ACTION_FORWARD, .lane = i ? 10 : 1};
        receive[2 * i + 1] = (action){.kind = ACTION_POST, .message = i, .lane = 99};  // the sender's time counts
    }
    const action_list lists[] = {{.count = 8, .at = send}, {.count = 12, .at = receive}};
    const stages of[] = {stages_of_two(m[0], 4), stages_of_two(m[1], 4)};
    for (int depth = 0; depth <= 2; depth++) {
        simulation out;
        run(&out, 2, lists, of, depth);
        for (int i = 0; i < 4; i++) {
            if (out.rank[0].message[i] != left[depth][i] || out.rank[1].message[i] != arrived[depth][i])
                fail_msg("depth %d: message %d leaves at %g and arrives at %g, expected %g and %g", depth, i,
                         out.rank[0].message[i], out.rank[1].message[i], left[depth][i], arrived[depth][i]);
            assert_true(out.rank[0].left[4 + i] == left[depth][i]);
            double here = arrived[depth][i] > 31 ? arrived[depth][i] : 31;
            assert_true(out.rank[1].left[8 + i] == here);
        }
        assert_true(out.rank[0].busy == 0 && out.rank[1].busy == 31 && out.total == (depth ? 31 : 33));
        simulation_free(&out);
    }
}

// Collectives follow each other: a reduce 0-5, a gather 5-12, two sets of rows 12-16 and 16-20, and those of the next
// step 20-22. Each action waits for those that it needs, and not for those after them.
static void each_waits_for_its_own(void **state) {
    (void)state;
    action each[] = {{.kind = ACTION_REDUCE, .lane = 5},
                     {.kind = ACTION_GATHER, .first = 2, .lane = 7},
                     {.kind = ACTION_FETCH, .input_slot = 0, .lane = 4},
                     {.kind = ACTION_FETCH, .input_slot = 1, .lane = 4},
                     {.kind = ACTION_AHEAD, .lane = 2},
                     {.kind = ACTION_FORWARD, .lane = 1},
                     {.kind = ACTION_SETTLE},
                     {.kind = ACTION_NEED, .first = 1},
                     {.kind = ACTION_NEED, .first = 2},
                     {.kind = ACTION_HAVE, .input_slot = 0},
                     {.kind = ACTION_HAVE, .input_slot = 1},
                     {.kind = ACTION_ROWS},
                     {.kind = ACTION_REDUCE, .lane = 3},
                     {.kind = ACTION_GATHER, .first = 3, .lane = 6},
                     {.kind = ACTION_SETTLE},
                     {.kind = ACTION_SHARE}};
    static const double came[] = {0, 0, 0, 0, 0, 0, 1, 5, 5, 12, 16, 20, 22, 22, 22, 25},
                        left[] = {0, 0, 0, 0, 0, 1, 5, 5, 12, 16, 20, 22, 22, 22, 25, 31};
    const action_list list[2] = {{.count = 16, .at = each}};
    const stages of[2] = {stages_of_two(NULL, 0)};
    simulation out;
    run(&out, 1, list, of, 0);
    for (int i = 0; i < 16; i++)
        if (out.rank[0].came[i] != came[i] || out.rank[0].left[i] != left[i])
            fail_msg("action %d: from %g to %g, expected %g to %g", i, out.rank[0].came[i], out.rank[0].left[i],
                     came[i], left[i]);
    assert_true(out.total == 31 && out.rank[0].busy == 1);
    simulation_free(&out);
}

// All go on when the last one has come.
static void the_last_one_is_waited_for(void **state) {
    (void)state;
    for (int slow = 0; slow < 2; slow++) {
        action each[2][3];
        for (int i = 0; i < 2; i++) {
            each[i][0] = (action){.kind = ACTION_FORWARD, .lane = i == slow ? 9 : 3};
            each[i][1] = (action){.kind = ACTION_SHARE};
            each[i][2] = (action){.kind = ACTION_UPDATE, .lane = i == slow ? 1 : 5};
        }
        const action_list lists[] = {{.count = 3, .at = each[0]}, {.count = 3, .at = each[1]}};
        const stages of[] = {stages_of_two(NULL, 0), stages_of_two(NULL, 0)};
        simulation out;
        run(&out, 2, lists, of, 0);
        for (int i = 0; i < 2; i++) {
            const simulated_rank *r = &out.rank[i];
            assert_true(r->came[1] == (i == slow ? 9 : 3) && r->left[1] == 9);
            assert_true(r->left[2] == (i == slow ? 10 : 14) && r->busy == (i == slow ? 10 : 8));
        }
        assert_true(out.total == 14);
        simulation_free(&out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_go_beside_the_blocks), cmocka_unit_test(collectives_cost_work_beside_them),
        cmocka_unit_test(new_weights_are_on_their_way), cmocka_unit_test(links_keep_messages),
        cmocka_unit_test(each_waits_for_its_own),       cmocka_unit_test(the_last_one_is_waited_for)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
