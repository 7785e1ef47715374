// test/test_balance.c: which deal follows from what times, and which does not. Times are made up: a lane's, as many of
// them as a rank has, what a step costs without any, and noise.
#include "trainer/balance.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS_MOST = 8 };

// Made-up ranks.
typedef struct machine {
    int ranks;
    double lane_ms[RANKS_MOST], fixed_ms, noise;  // noise: of a step's time, up to so much of it either way
    uint32_t seed;
    balance b;
    int moves, named;
    int64_t steps;
} machine;

static double chance(machine *m) {
    m->seed = m->seed * 1664525 + 1013904223;
    return (double)(m->seed >> 8) / (1 << 24);
}

static void open_equal(machine *m, int64_t lanes) {
    int64_t deal[RANKS_MOST];
    for (int k = 0; k < m->ranks; k++) deal[k] = (k + 1) * lanes / m->ranks - k * lanes / m->ranks;
    assert_int_equal(balance_open(&m->b, m->ranks, lanes, deal), ERR_OK);
}

static double time_of(machine *m, int k) {
    double ms = m->fixed_ms + m->lane_ms[k] * (double)m->b.deal[k];
    return ms * (1 + m->noise * (2 * chance(m) - 1));
}

static void run(machine *m, int windows) {
    double ms[RANKS_MOST];
    for (int w = 0; w < windows; w++) {
        for (int i = 0; i < BALANCE_STEPS; i++) {
            for (int k = 0; k < m->ranks; k++) ms[k] = time_of(m, k);
            balance_add(&m->b, ms);
        }
        balance_choice c = balance_judge(&m->b);
        m->named += c.names;
        if (c.moves) m->moves++, balance_take(&m->b);
    }
}

static void expect_deal(const machine *m, const char *want) {
    char text[96];
    assert_string_equal(balance_text(m->b.deal, m->ranks, text, sizeof text), want);
}

// --- the best deal ---------------------------------------------------------------------------------------------------

// The longest time of the best of all deals of the lanes that are left to ranks from k on.
static double best_of_all(const double *lane_ms, int ranks, int k, int64_t left, int64_t *deal) {
    double best = INFINITY;
    if (k == ranks - 1) return deal[k] = left, balance_longest(lane_ms, ranks, deal);
    for (int64_t n = 1; n <= left - (ranks - 1 - k); n++) {
        deal[k] = n;
        double ms = best_of_all(lane_ms, ranks, k + 1, left - n, deal);
        if (ms < best) best = ms;
    }
    return best;
}

static void no_deal_is_better_than_the_best(void **state) {
    (void)state;
    machine m = {.seed = 3};
    for (int i = 0; i < 300; i++) {
        int ranks = 1 + i % 4;
        int64_t lanes = ranks + (int64_t)(12 * chance(&m)), deal[4], tried[4], sum = 0;
        double ms[4];
        for (int k = 0; k < ranks; k++) ms[k] = i % 3 ? 1 + 5 * chance(&m) : 1 + (double)(int)(3 * chance(&m));
        balance_best(ms, ranks, lanes, deal);
        for (int k = 0; k < ranks; k++) assert_true(deal[k] >= 1), sum += deal[k];
        assert_int_equal(sum, lanes);
        assert_true(balance_longest(ms, ranks, deal) == best_of_all(ms, ranks, 0, lanes, tried));
    }
}

// --- decisions -------------------------------------------------------------------------------------------------------

static void a_rank_at_half_speed_has_half_the_lanes(void **state) {
    (void)state;
    machine m = {.ranks = 4, .lane_ms = {10, 10, 10, 20}, .seed = 1};
    open_equal(&m, 32);
    run(&m, 1);
    assert_int_equal(m.moves, 0);  // one window may be chance
    run(&m, 1);
    assert_int_equal(m.moves, 1);
    expect_deal(&m, "10,9,9,4");  // as good as 9,9,9,5
    run(&m, 50);
    assert_int_equal(m.moves, 1);
    balance_close(&m.b);
}

static void equal_ranks_keep_their_lanes_whatever_the_noise(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++) {
        machine m = {.ranks = 4, .lane_ms = {10, 10, 10, 10}, .fixed_ms = 5, .noise = 0.1, .seed = (uint32_t)i};
        open_equal(&m, 32);
        run(&m, 500);
        assert_int_equal(m.moves, 0);
        balance_close(&m.b);
    }
}

// Noise delays the decision, and never undoes it. What is found is within 10 % of the best.
static void noise_moves_lanes_once_or_twice_and_not_to_and_fro(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++) {
        machine m = {.ranks = 4, .lane_ms = {10, 10, 20, 10}, .fixed_ms = 5, .noise = 0.1, .seed = (uint32_t)i};
        open_equal(&m, 32);
        run(&m, 500);
        assert_in_range(m.moves, 1, 3);
        assert_true(balance_longest(m.lane_ms, 4, m.b.deal) <= 1.10 * 100);
        balance_close(&m.b);
    }
}

// What a step costs without lanes is taken for a part of each lane's time. It still ends where all are done at once.
static void what_does_not_depend_on_lanes_does_not_disturb(void **state) {
    (void)state;
    machine m = {.ranks = 4, .lane_ms = {10, 10, 10, 20}, .fixed_ms = 60, .seed = 1};
    open_equal(&m, 32);
    run(&m, 500);
    assert_in_range(m.moves, 1, 3);
    assert_true(60 + balance_longest(m.lane_ms, 4, m.b.deal) <= 1.10 * 160);
    balance_close(&m.b);
}

static void a_rank_that_recovers_has_its_lanes_again(void **state) {
    (void)state;
    machine m = {.ranks = 4, .lane_ms = {30, 10, 10, 10}, .noise = 0.02, .seed = 1};
    open_equal(&m, 32);
    run(&m, 4);
    assert_true(m.b.deal[0] <= 4);
    m.lane_ms[0] = 10;
    run(&m, 6);
    assert_true(balance_longest(m.lane_ms, 4, m.b.deal) <= 90);
    balance_close(&m.b);
}

// A single window in which one rank was held up.
static void a_disturbance_that_passes_moves_nothing(void **state) {
    (void)state;
    machine m = {.ranks = 4, .lane_ms = {10, 10, 10, 10}, .seed = 1};
    open_equal(&m, 32);
    for (int i = 0; i < 20; i++) {
        m.lane_ms[i % 4] = 40;
        run(&m, 1);
        m.lane_ms[i % 4] = 10;
        run(&m, i % 2);
    }
    assert_int_equal(m.moves, 0);
    assert_int_equal(m.named, 0);
    balance_close(&m.b);
}

// Less than what another deal must be worth: of 8 lanes on 4 ranks none can move at a fifth less speed.
static void a_small_gain_is_not_worth_it(void **state) {
    (void)state;
    machine m = {.ranks = 4, .lane_ms = {10, 10, 10, 12}, .seed = 1};
    open_equal(&m, 8);
    run(&m, 20);
    assert_int_equal(m.moves, 0);
    balance_close(&m.b);
    machine fine = {.ranks = 2, .lane_ms = {10, 10.7}, .seed = 1};
    open_equal(&fine, 64);
    run(&fine, 20);
    assert_int_equal(fine.moves, 0);
    balance_close(&fine.b);
}

// At least one lane each: a rank that does nothing can't be measured.
static void nobody_is_left_without_lanes(void **state) {
    (void)state;
    machine m = {.ranks = 3, .lane_ms = {10, 1000, 10}, .seed = 1};
    open_equal(&m, 8);
    run(&m, 10);
    expect_deal(&m, "4,1,3");
    balance_close(&m.b);
}

static void one_that_stays_slow_is_named_once(void **state) {
    (void)state;
    machine m = {.ranks = 4, .lane_ms = {10, 10, 35, 10}, .seed = 1};
    open_equal(&m, 32);
    run(&m, BALANCE_SLOW_WINDOWS - 1);
    assert_int_equal(m.named, 0);
    run(&m, 20);
    assert_int_equal(m.named, 1);
    m.lane_ms[2] = 10;
    run(&m, 2);
    m.lane_ms[2] = 35;
    run(&m, 20);
    assert_int_equal(m.named, 2);
    m.lane_ms[2] = 25;  // slow, but not so slow
    run(&m, 20);
    assert_int_equal(m.named, 2);
    balance_close(&m.b);
}

// One after the other is slow, each in a window of its own: none of them stays so.
static void who_is_slow_in_turn_is_not_named(void **state) {
    (void)state;
    machine m = {.ranks = 4, .lane_ms = {10, 10, 10, 10}, .seed = 1};
    open_equal(&m, 32);
    for (int i = 0; i < 20; i++) {
        m.lane_ms[i % 4] = 40;
        run(&m, 1);
        m.lane_ms[i % 4] = 10;
    }
    assert_int_equal(m.named, 0);
    m.lane_ms[3] = 40;
    run(&m, BALANCE_SLOW_WINDOWS);
    assert_int_equal(m.named, 1);
    balance_close(&m.b);
}

// Steps without times are no steps, and neither is the first one after another deal.
static void only_steps_with_times_count(void **state) {
    (void)state;
    machine m = {.ranks = 2, .lane_ms = {10, 30}, .seed = 1};
    double ms[2] = {40, 120}, none[2] = {0, 120}, cold[2] = {4000, 120};
    open_equal(&m, 8);
    for (int i = 0; i < 50; i++) balance_add(&m.b, none);
    assert_false(balance_judge(&m.b).moves);
    balance_add(&m.b, cold);
    for (int w = 0; w < 2; w++) {
        for (int i = 0; i < BALANCE_LEAST; i++) balance_add(&m.b, ms);
        balance_choice c = balance_judge(&m.b);
        assert_true(c.now_ms == 120 && c.then_ms == 60 && c.slowest == 1 && c.slowest_ms == 30 && c.median_ms == 10);
        assert_true(c.moves == (w == 1));
    }
    for (int i = 0; i < BALANCE_LEAST - 1; i++) balance_add(&m.b, ms);
    assert_true(balance_judge(&m.b).now_ms == 0);
    balance_add(&m.b, ms);
    assert_true(balance_judge(&m.b).now_ms == 120);
    balance_take(&m.b);  // of another deal the first one does not count
    for (int i = 0; i < BALANCE_LEAST; i++) balance_add(&m.b, ms);
    assert_true(balance_judge(&m.b).now_ms == 0);
    balance_close(&m.b);
}

static void a_world_begins_with_what_is_known(void **state) {
    (void)state;
    static const struct {
        double lane_ms[4];
        int64_t wanted[4];
        bool moves;
    } rows[] = {
        {{10, 10, 20, 10}, {5, 5, 2, 4}, true},
        {{0, 10, 20, 10}, {5, 5, 2, 4}, true},  // as fast as the median
        {{0, 0, 0, 0}, {0}, false},
        {{0, 0, 20, 0}, {4, 4, 4, 4}, false},
        {{10, 10, 10.7, 10}, {0}, false},  // not worth it
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        balance b;
        assert_int_equal(balance_open(&b, 4, 16, (int64_t[]){4, 4, 4, 4}), ERR_OK);
        balance_choice c = balance_recall(&b, rows[i].lane_ms);
        assert_int_equal(c.moves, rows[i].moves);
        if (rows[i].wanted[0]) assert_memory_equal(b.wanted, rows[i].wanted, sizeof rows[i].wanted);
        balance_close(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_deal_is_better_than_the_best),
        cmocka_unit_test(a_rank_at_half_speed_has_half_the_lanes),
        cmocka_unit_test(equal_ranks_keep_their_lanes_whatever_the_noise),
        cmocka_unit_test(noise_moves_lanes_once_or_twice_and_not_to_and_fro),
        cmocka_unit_test(what_does_not_depend_on_lanes_does_not_disturb),
        cmocka_unit_test(a_rank_that_recovers_has_its_lanes_again),
        cmocka_unit_test(a_disturbance_that_passes_moves_nothing),
        cmocka_unit_test(a_small_gain_is_not_worth_it),
        cmocka_unit_test(nobody_is_left_without_lanes),
        cmocka_unit_test(one_that_stays_slow_is_named_once),
        cmocka_unit_test(who_is_slow_in_turn_is_not_named),
        cmocka_unit_test(only_steps_with_times_count),
        cmocka_unit_test(a_world_begins_with_what_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
