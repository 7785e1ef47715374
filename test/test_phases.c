// test/test_phases.c: what a loss has cost, in phases: none is negative, whatever clocks say, and together they are the
// time from the loss to going on.
#include "trainer/healed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

typedef struct row {
    yard_news n;
    double met, moved, done;  // seconds
    double is[HEALED_PHASES];
} row;

static void phases_add_up(void **state) {
    (void)state;
    static const row rows[] = {
        {{100, 101, 103, 7, "", false, false}, 106, 110, 115, {1, 2, 3, 4, 5}},
        {{100, 100, 100, 7, "", false, false}, 100, 100, 100, {0, 0, 0, 0, 0}},
        // who reads its clock a moment later says that it was earlier
        {{100, 99, 103, 7, "", false, false}, 106, 110, 115, {0, 3, 3, 4, 5}},
        {{100, 104, 103, 7, "", false, false}, 106, 110, 115, {4, 0, 2, 4, 5}},
        {{100, 101, 103, 7, "", false, false}, 102, 110, 115, {1, 2, 0, 7, 5}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *x = &rows[i];
        healed_times h;
        double value[HEALED_PHASES], sum = 0;
        healed_begin(&h, &x->n, x->met);
        healed_end(&h, HEALED_MOVE, x->moved);
        healed_end(&h, HEALED_REPLAY, x->done);
        healed_seconds(&h, value);
        assert_true(h.pending && h.high == 7);
        for (int p = 0; p < HEALED_PHASES; p++) {
            if (value[p] != x->is[p])
                fail_msg("row %zu: %s is %g, expected %g", i, healed_figures[p], value[p], x->is[p]);
            sum += value[p];
        }
        assert_true(fabs(sum - (x->done - x->n.failed_at)) < 1e-9);
    }
}

// At the step at which it was, not before and not at the one after, which may never come; and once. A world that goes
// on from there needs no step for it, one that heals nothing never says it.
static void as_far_as_it_was(void **state) {
    (void)state;
    healed_times h = {.pending = false};
    const yard_news n = {100, 101, 102, 7, "", false, false};
    assert_false(healed_caught_up(&h, 7, 110));
    for (int64_t from = 0; from <= 8; from++) {
        healed_begin(&h, &n, 103);
        healed_end(&h, HEALED_MOVE, 104);
        int64_t said = -1;
        for (int64_t step = from; step <= 9; step++)
            if (healed_caught_up(&h, step, 105 + (double)step)) assert_int_equal(said, -1), said = step;
        assert_int_equal(said, from < 7 ? 7 : from);
        assert_true(!h.pending && h.at[HEALED_PHASES] == 105 + (double)said);
    }
}

static void they_have_names(void **state) {
    (void)state;
    char text[HEALED_TEXT];
    healed_times h;
    const yard_news n = {100, 100.25, 100.5, 7, "", false, false};
    healed_begin(&h, &n, 101);
    healed_end(&h, HEALED_MOVE, 101.125);
    healed_end(&h, HEALED_REPLAY, 109);
    assert_string_equal(healed_text(&h, text),
                        "detect 0.250 s, unwind 0.250 s, enter 0.500 s, move 0.125 s, replay 7.875 s");
    assert_string_equal(healed_figures[HEALED_REPLAY], "replay_s");
    // what is longest still fits
    const yard_news never = {-99999.9, -9999.9, 99999.9, 7, "", false, false};
    healed_begin(&h, &never, 1e6);
    healed_end(&h, HEALED_MOVE, 1e7);
    healed_end(&h, HEALED_REPLAY, 1e8);
    assert_non_null(strstr(healed_text(&h, text), " s, replay 90000000.000 s"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(phases_add_up), cmocka_unit_test(as_far_as_it_was),
                                       cmocka_unit_test(they_have_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
