// test/test_evict.c: when a rank counts as one that stays slow, and when the run is better off without it: tables of
// times and the answer that follows.
#include "trainer/evict.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

enum { RANKS = 4, WINDOWS = 8 };
static const int none[RANKS], each[RANKS] = {0, 1, 2, 3}, pairs[RANKS] = {0, 0, 1, 1}, turns[RANKS] = {0, 1, 0, 1},
                              first[RANKS] = {0, 1, 1, 1};
static const int64_t even[RANKS] = {4, 4, 4, 4};

static void open_for(evict *e, int world, const int *stage, const int *unit, const int *place, double limit_s) {
    evict_ranks of = {world, stage, unit, place, 0, 0};
    for (int k = 0; k < world; k++) of.data = place[k] >= of.data ? place[k] + 1 : of.data;
    assert_int_equal(evict_open(e, &of, limit_s), ERR_OK);
    double ms[RANKS] = {9000, 1, 1, 1};
    assert_false(evict_add(e, ms, even));  // the first step reads its data late
}

// A window in which a lane took so many milliseconds; of its steps the first `odd` took ten times as long on `rank`.
static evict_choice window(evict *e, const double *lane_ms, int rank, int odd) {
    for (int i = 0; i < EVICT_STEPS; i++) {
        double ms[RANKS];
        for (int k = 0; k < e->of.world; k++) ms[k] = 4 * lane_ms[k] * (k == rank && i < odd ? 10 : 1);
        assert_int_equal(evict_add(e, ms, even), i == EVICT_STEPS - 1);
    }
    return evict_judge(e);
}

// --- for how long ----------------------------------------------------------------------------------------------------

// Times as slow as the others in each window; a window of the slow rank takes 0.4 s for each of them.
typedef struct course {
    const char *what;
    double times[WINDOWS];  // of rank 2, or -k: of rank 3, k times
    int asks, withdraws;    // in which window, from 1; 0: never
} course;

static const course courses[] = {
    {"three times as slow", {3.5, 3.5, 3.5, 3.5, 3.5, 3.5, 3.5, 3.5}, 3, 0},
    {"much slower: still two windows", {40, 40, 40, 40, 1, 1, 1, 1}, 2, 5},
    {"one window", {40, 1, 1, 1, 1, 1, 1, 1}, 0, 0},
    {"now and then", {9, 1, 9, 1, 9, 1, 9, 1}, 0, 0},
    {"between twice and three times", {2.9, 2.9, 2.9, 2.9, 2.9, 2.9, 2.9, 2.9}, 0, 0},
    {"between counts for nothing, and forgets nothing", {3.5, 2.5, 3.5, 2.5, 2.5, 3.5, 2.5, 3.5}, 6, 0},
    {"what was said is not said again", {9, 9, 9, 9, 2.5, 9, 9, 9}, 2, 0},
    {"nor before it has been well", {9, 9, 2.5, 2.5, 2.5, 2.5, 2.5, 1.9}, 2, 8},
    {"now one and now the other", {9, -9, 9, -9, 9, -9, 9, -9}, 0, 0},
    {"what was slow long ago does not count", {40, 1, 3.5, 3.5, 3.5, 3.5, 3.5, 3.5}, 5, 0},
    {"another one", {9, 9, -9, -9, -9, -9, -9, -9}, 2, 3},
};

static void the_course_of_a_slow_rank(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof courses / sizeof *courses; i++) {
        const course *c = &courses[i];
        evict e;
        int asks = 0, withdraws = 0;
        open_for(&e, RANKS, none, each, each, 4);
        for (int w = 0; w < WINDOWS; w++) {
            double lane_ms[RANKS] = {10, 10, 10, 10}, times = c->times[w];
            lane_ms[times < 0 ? 3 : 2] *= fabs(times);
            evict_choice x = window(&e, lane_ms, -1, 0);
            if (x.asks && !asks) asks = w + 1, assert_int_equal(x.rank, 2);
            if (x.withdraws && !withdraws) withdraws = w + 1;
        }
        if (asks != c->asks || withdraws != c->withdraws)
            fail_msg("%s: asks in window %d, withdraws in %d; expected %d and %d", c->what, asks, withdraws, c->asks,
                     c->withdraws);
        evict_close(&e);
    }
}

static void slow_steps_are_no_slow_rank(void **state) {
    (void)state;
    double lane_ms[RANKS] = {10, 10, 10, 10};
    evict e;
    open_for(&e, RANKS, none, each, each, 0.1);
    for (int w = 0; w < WINDOWS; w++) assert_false(window(&e, lane_ms, 2, EVICT_STEPS / 2 - 1).asks);
    assert_false(window(&e, lane_ms, 2, EVICT_STEPS / 2 + 1).asks);
    assert_true(window(&e, lane_ms, 2, EVICT_STEPS / 2 + 1).asks);
    evict_close(&e);
}

// A window that is not full says nothing, nor do steps that some rank did not time.
static void only_steps_with_times_count(void **state) {
    (void)state;
    double ms[RANKS] = {10, 0, 100, 10};
    int64_t without[RANKS] = {4, 0, 4, 4};
    evict e;
    open_for(&e, RANKS, none, each, each, 0.1);
    for (int i = 0; i < 3 * EVICT_STEPS; i++) assert_false(evict_add(&e, ms, even));
    assert_int_equal(evict_judge(&e).rank, -1);
    for (int w = 0; w < 2; w++) {
        for (int i = 0; i < EVICT_STEPS; i++) evict_add(&e, ms, without);  // it has no lanes, and takes no time
        evict_choice x = evict_judge(&e);
        assert_true(x.rank == 2 && x.times == 10 && x.asks == (w == 1));
    }
    evict_close(&e);
}

// --- beside whom -----------------------------------------------------------------------------------------------------

static void who_is_compared(void **state) {
    (void)state;
    static const struct {
        const char *what;
        const int *stage, *unit, *place;
        double lane_ms[RANKS];
        int rank;  // -1: none
        double times;
    } rows[] = {
        {"all are slow", none, each, each, {90, 91, 92, 93}, -1, 0},
        {"half of them", none, each, each, {10, 10, 90, 90}, 2, 9},
        {"another stage does more", pairs, each, turns, {10, 10, 90, 90}, -1, 0},
        {"one of a stage", pairs, each, turns, {10, 10, 20, 90}, 3, 4.5},
        {"both of a node", none, pairs, each, {10, 10, 90, 91}, 3, 9.1},
        {"a stage that one node has alone", pairs, pairs, turns, {10, 10, 20, 90}, -1, 0},
        {"of two the slower", none, first, first, {90, 10, 11, 12}, 0, 90 / 11.0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        evict e;
        open_for(&e, RANKS, rows[i].stage, rows[i].unit, rows[i].place, 0.1);
        window(&e, rows[i].lane_ms, -1, 0);
        evict_choice x = window(&e, rows[i].lane_ms, -1, 0);
        if (x.asks != (rows[i].rank >= 0) || x.rank != rows[i].rank) fail_msg("%s: rank %d", rows[i].what, x.rank);
        if (x.asks && fabs(x.times - rows[i].times) > 1e-9) fail_msg("%s: %g times", rows[i].what, x.times);
        evict_close(&e);
    }
}

// --- is it worth it --------------------------------------------------------------------------------------------------

static void what_is_worth_it(void **state) {
    (void)state;
    static const struct {
        const char *what;
        double times;
        int64_t deal[RANKS];
        int width;
        bool balanced;
        double with, without;
        bool pays;
    } rows[] = {
        {"even lanes", 4, {4, 4, 4, 4}, 3, false, 16, 6, true},
        {"no world without it", 4, {4, 4, 4, 4}, 0, false, 16, 0, false},
        {"the world loses another one", 4, {4, 4, 4, 4}, 2, false, 16, 8, true},
        {"... and two more", 4, {4, 4, 4, 4}, 1, false, 16, 16, false},
        {"balancing carries it", 4, {4, 4, 4, 4}, 3, true, 5, 6, false},
        {"balancing can't: one lane takes too long", 10, {4, 4, 4, 4}, 3, true, 10, 6, true},
        {"few lanes by hand", 4, {5, 5, 1, 5}, 3, false, 4, 6, false},
        {"a gain of less than 8 %", 6.4, {5, 5, 1, 5}, 3, false, 6.4, 6, false},
        {"a little more", 6.5, {5, 5, 1, 5}, 3, false, 6.5, 6, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        evict e;
        open_for(&e, RANKS, none, each, each, 0.1);
        double lane_ms[RANKS] = {10, 10, 10 * rows[i].times, 10};
        window(&e, lane_ms, -1, 0);
        evict_cost c = evict_compare(&e, 2, rows[i].deal, rows[i].width, rows[i].balanced);
        if (fabs(c.with - rows[i].with) > 1e-9 || c.without != rows[i].without)
            fail_msg("%s: %g with, %g without", rows[i].what, c.with, c.without);
        if (evict_pays(c, rows[i].width) != rows[i].pays) fail_msg("%s: the other answer", rows[i].what);
        evict_close(&e);
    }
}

// Lanes that are dealt by speed go to none of the servers, which come last.
static void servers_carry_no_lanes(void **state) {
    (void)state;
    evict e;
    open_for(&e, RANKS, none, each, each, 0.1);
    window(&e, (double[RANKS]){10, 10, 40, 10}, -1, 0);
    e.of.workers = 3;
    assert_true(evict_compare(&e, 2, (int64_t[RANKS]){6, 5, 5, 0}, 2, true).with == 8);
    evict_close(&e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_course_of_a_slow_rank),
        cmocka_unit_test(slow_steps_are_no_slow_rank),
        cmocka_unit_test(only_steps_with_times_count),
        cmocka_unit_test(who_is_compared),
        cmocka_unit_test(what_is_worth_it),
        cmocka_unit_test(servers_carry_no_lanes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
