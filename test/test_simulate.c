// test/test_simulate.c: lists of a few actions run on paper (trainer/step/simulate.h), with times by hand: collectives
// beside the blocks, what they take of these, and weights that are on their way as a step begins.
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(buckets_go_beside_the_blocks),
                                       cmocka_unit_test(collectives_cost_work_beside_them),
                                       cmocka_unit_test(new_weights_are_on_their_way)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
