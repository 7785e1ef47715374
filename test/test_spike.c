// test/test_spike.c: when a loss counts as a spike, and which steps a run leaves out then.
#include "trainer/spike.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

static run_progress after(int steps) {
    run_progress at = progress_none();
    for (int i = 0; i < steps; i++) assert_false(spike_step(&at, 3, 2 + 0.01 * (i % 5)));
    return at;
}

static void rows_of_losses(void **state) {
    (void)state;
    static const struct {
        const char *what;
        int before;
        double times, loss[6];
        int spike;  // at which of them, from 1; 0: never
    } rows[] = {
        {"three in a row", 16, 3, {7, 7, 7, 7, 7, 7}, 3},
        {"few are known", 15, 3, {7, 7, 7, 7, 7, 7}, 4},  // the first of them is one of those before
        {"not three in a row", 32, 3, {7, 7, 2, 7, 7, 2}, 0},
        {"three times the median, and not more", 32, 3, {6.06, 6.06, 6.06, 6.06, 6.06, 6.06}, 0},
        {"not a number", 32, 3, {NAN, INFINITY, NAN, 2, 2, 2}, 3},
        {"not asked for", 32, 0, {7, 7, 7, 7, 7, 7}, 0},
        {"a slow rise", 32, 3, {2.5, 3, 3.5, 4, 4.5, 5}, 0},
        {"far ones do not move the median", 32, 3, {7, 7, 2, 7, 7, 7}, 6},
        {"once in a row", 32, 3, {2, 7, 7, 7, 7, 7}, 4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        run_progress at = after(rows[i].before);
        int spike = 0, times = 0;
        for (int k = 0; k < 6; k++)
            if (spike_step(&at, rows[i].times, rows[i].loss[k])) spike = k + 1, times++;
        if (spike != rows[i].spike || times != (spike > 0)) fail_msg("%s: at %d", rows[i].what, spike);
    }
}

static void the_last_losses_count(void **state) {
    (void)state;
    run_progress at = progress_none();
    for (int i = 0; i < 100; i++) assert_false(spike_step(&at, 30, i < 60 ? 9 : 2));
    assert_int_equal(at.losses, PROGRESS_LOSSES);
    assert_true(spike_median(&at) == 2);
    at = after(0);
    assert_true(isnan(spike_median(&at)));
    spike_step(&at, 3, NAN);  // nothing is known yet, and nothing is learned of it
    assert_int_equal(at.losses, 0);
}

// However many there are: else a run that is mostly noise would take it for what is usual.
static void far_losses_are_not_remembered(void **state) {
    (void)state;
    run_progress at = after(SPIKE_LEAST);
    for (int i = 0; i < 3 * PROGRESS_LOSSES; i++) assert_false(spike_step(&at, 3, i % 3 == 2 ? 2 : 7));
    assert_true(spike_median(&at) == 2);
    for (int i = 0; i < SPIKE_STEPS; i++) assert_true(spike_step(&at, 3, 7) == (i == SPIKE_STEPS - 1));
}

static void what_is_left_out(void **state) {
    (void)state;
    run_progress was = after(32), old = after(20);
    was.step = 40;
    spike_leave_out(&old, &was, 40);
    run_progress now = old, older = after(18);
    spike_leave_out(&older, &now, 43);  // the state is from before both
    assert_int_equal(older.rollbacks, 2);
    static const int64_t next[] = {0, 40, 40, 40, 43, 43, 43, 0};
    for (int64_t k = 0; k < 8; k++) assert_int_equal(spike_skips(&older, 37 + k), next[k]);
    assert_int_equal(spike_skips(&now, 41), 0);
    assert_int_equal(older.losses, 18);  // as they were then
}

// The state may be of a step within the spike: what was counted until then is left out with these steps.
static void the_count_begins_anew(void **state) {
    (void)state;
    run_progress was = after(32), old = after(32);
    for (int i = 0; i < SPIKE_STEPS - 1; i++) assert_false(spike_step(&old, 3, 7));
    spike_leave_out(&old, &was, 40);
    for (int i = 0; i < SPIKE_STEPS; i++) assert_true(spike_step(&old, 3, 7) == (i == SPIKE_STEPS - 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_losses),
        cmocka_unit_test(the_last_losses_count),
        cmocka_unit_test(far_losses_are_not_remembered),
        cmocka_unit_test(what_is_left_out),
        cmocka_unit_test(the_count_begins_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
