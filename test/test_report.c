// test/test_report.c: who is named as the straggler, with times that are written down here instead of measured.
#include "trainer/log/report.h"
#include "comm/cost.h"
#include "trainer/step/step.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

enum { MOST = 8, TWICE = 20 };  // steps: enough for two judgements

typedef struct scene {
    comm *ranks;
    reducer *reduce;
    rank_report report;
    size_t cut[MOST + 1];
    comm_place place[MOST];
    int world;
} scene;

static void open_scene(scene *s, int world, int64_t lanes) {
    *s = (scene){.world = world};
    assert_int_equal(comm_imaginary_open(&s->ranks, 0, world, s->place), ERR_OK);
    for (int k = 0; k <= world; k++) s->cut[k] = (size_t)k;
    reduce_options o = {.ranks = s->ranks, .lanes = lanes, .segments = 1, .cut = s->cut};
    assert_int_equal(reduce_open(&s->reduce, &o), ERR_OK);
    assert_int_equal(report_open(&s->report, world), ERR_OK);
}

static void close_scene(scene *s) {
    report_close(&s->report);
    reduce_close(s->reduce);
    s->ranks->table->close(s->ranks);
}

// As many steps in which rank k computed for compute[k] ms, was in the network for 4 ms and waited for 1 ms of them.
static void steps(scene *s, int count, const double *compute) {
    double reports[MOST * REPORT_ITEMS] = {0};
    for (int k = 0; k < s->world; k++) {
        reports[k * REPORT_ITEMS + REPORT_COMPUTE_MS] = compute[k];
        reports[k * REPORT_ITEMS + REPORT_BUSY_MS] = 4;
        reports[k * REPORT_ITEMS + REPORT_WAIT_MS] = 1;
    }
    for (int i = 0; i < count; i++) report_add(&s->report, reports);
}

static rank_summary after(scene *s, int count, const double *compute) {
    steps(s, count, compute);
    return report_take(&s->report, s->reduce);
}

static void opened(scene *s, int world, int64_t lanes, const double *compute) {
    open_scene(s, world, lanes);
    steps(s, 1, compute);  // the first step of a run does not count
}

static void the_slowest_is_told(void **state) {
    (void)state;
    scene s;
    opened(&s, 4, 4, (double[]){900, 900, 900, 900});
    rank_summary t = after(&s, 3, (double[]){10, 12, 14, 11});
    assert_int_equal(t.slowest, 2);
    assert_true(t.slowest_ms == 14);
    assert_true(t.median_ms == 11);  // the lower one of the two in the middle
    assert_true(t.comm_ms == 4 && t.wait_ms == 1 && t.hidden == 0.75);
    assert_false(t.straggler);
    t = after(&s, 2, (double[]){20, 12, 14, 11});
    assert_int_equal(t.slowest, 0);  // what was reported is forgotten
    assert_true(t.slowest_ms == 20);
    close_scene(&s);
}

static void once_is_chance(void **state) {
    (void)state;
    scene s;
    double even[] = {10, 10, 10}, slow[] = {10, 30, 10}, other[] = {10, 10, 30};
    opened(&s, 3, 3, even);
    assert_false(after(&s, TWICE / 2, slow).straggler);
    assert_false(after(&s, TWICE / 2, even).straggler);
    assert_false(after(&s, TWICE / 2, slow).straggler);
    assert_false(after(&s, TWICE / 2, other).straggler);  // slow, but somebody else
    rank_summary t = after(&s, TWICE / 2, other);
    assert_true(t.straggler);
    assert_int_equal(t.slowest, 2);
    close_scene(&s);
}

static void named_once_until_it_caught_up(void **state) {
    (void)state;
    scene s;
    double even[] = {10, 10}, slow[] = {10, 16};
    opened(&s, 2, 2, even);
    int named = 0;
    for (int i = 0; i < 10; i++) named += after(&s, TWICE / 2, slow).straggler;
    assert_int_equal(named, 1);
    after(&s, TWICE / 2, even);
    for (int i = 0; i < 10; i++) named += after(&s, TWICE / 2, slow).straggler;
    assert_int_equal(named, 2);
    close_scene(&s);
}

static void little_is_not_slow(void **state) {
    (void)state;
    scene s;
    opened(&s, 2, 2, (double[]){10, 10});
    // 1.5 times is not above 1.5 times
    for (int i = 0; i < 4; i++) assert_false(after(&s, TWICE / 2, (double[]){10, 15}).straggler);
    // 0.9 ms are too little to report
    for (int i = 0; i < 4; i++) assert_false(after(&s, TWICE / 2, (double[]){0.5, 1.4}).straggler);
    for (int i = 0; i < 4; i++) assert_false(after(&s, TWICE / 2, (double[]){10, 9}).straggler);
    close_scene(&s);
}

// A short log interval is judged with those after it: four intervals of 5 steps are two judgements.
static void few_steps_wait_for_more(void **state) {
    (void)state;
    scene s;
    opened(&s, 2, 2, (double[]){10, 10});
    bool named[4];
    for (int i = 0; i < 4; i++) named[i] = after(&s, TWICE / 4, (double[]){10, 40}).straggler;
    assert_memory_equal(named, ((bool[]){false, false, false, true}), sizeof named);
    close_scene(&s);
    opened(&s, 2, 2, (double[]){10, 10});
    // each judgement is of as many steps as the first
    static const int counts[] = {TWICE / 2 - 1, 1, TWICE / 2 - 1, 1};
    for (int i = 0; i < 4; i++) named[i] = after(&s, counts[i], (double[]){10, 40}).straggler;
    assert_memory_equal(named, ((bool[]){false, false, false, true}), sizeof named);
    close_scene(&s);
}

// 8 lanes on 3 ranks: some have three, one has two. Who has less to do is not fast, and who has more is not slow.
static void more_lanes_are_not_slowness(void **state) {
    (void)state;
    scene s;
    open_scene(&s, 3, 8);
    double fair[3], slow[3];
    for (int k = 0; k < 3; k++) fair[k] = 10.0 * (double)reduce_lane_count(s.reduce, k);
    int least = 0;
    for (int k = 0; k < 3; k++)
        if (fair[k] < fair[least]) least = k;
    assert_true(fair[least] == 20);
    memcpy(slow, fair, sizeof slow);
    slow[least] = 40;  // 20 ms a lane, the others 10; as a whole step only 1.33 times theirs
    steps(&s, 1, fair);
    for (int i = 0; i < 4; i++) assert_false(after(&s, TWICE / 2, fair).straggler);
    after(&s, TWICE / 2, slow);
    rank_summary t = after(&s, TWICE / 2, slow);
    assert_true(t.straggler);
    assert_int_equal(t.slowest, least);
    assert_true(fabs(t.slowest_ms - 40) < 1e-9 && fabs(t.median_ms - 20) < 1e-9);  // both for as many lanes
    close_scene(&s);
}

// A GPU's first two steps come without times: they are nobody's speed, and not the first step that does not count.
static void what_is_not_known_is_not_fast(void **state) {
    (void)state;
    scene s;
    double unknown[] = {0, 0}, even[] = {10, 10}, slow[] = {10, 40};
    open_scene(&s, 2, 2);
    steps(&s, 2, unknown);
    assert_int_equal(s.report.steps, 0);
    steps(&s, 1, (double[]){900, 10});  // with its page faults
    rank_summary t = after(&s, 1, even);
    assert_true(t.slowest_ms == 10 && t.median_ms == 10);
    steps(&s, 2, slow);
    steps(&s, 2, unknown);  // after a resume, say
    t = after(&s, 2, slow);
    assert_true(t.slowest_ms == 40 && t.median_ms == 10);
    double one[2 * REPORT_ITEMS] = {0};
    assert_false(report_is_timed(one, 2));
    one[REPORT_COMPUTE_MS] = 1;
    assert_false(report_is_timed(one, 2));
    one[REPORT_ITEMS + REPORT_COMPUTE_MS] = 1;
    assert_true(report_is_timed(one, 2));
    close_scene(&s);
}

// Two stages of two ranks each, which have two lanes and one: the first stage's work is three times the second's.
static void other_stages_have_other_work(void **state) {
    (void)state;
    scene s;
    double even[4], slow[4];
    open_scene(&s, 2, 3);
    reduce_close(s.reduce);
    assert_int_equal(
        reduce_open(&s.reduce,
                    &(reduce_options){.ranks = s.ranks, .lanes = 3, .turns = true, .segments = 1, .cut = s.cut}),
        ERR_OK);
    report_close(&s.report);
    s.world = 4;
    assert_int_equal(report_open(&s.report, s.world), ERR_OK);
    for (int k = 0; k < 4; k++) even[k] = slow[k] = (k < 2 ? 30 : 10) * (double)reduce_lane_count(s.reduce, k % 2);
    slow[3] *= 1.75;
    steps(&s, 1, even);
    for (int i = 0; i < 4; i++) assert_false(after(&s, TWICE / 2, even).straggler);
    after(&s, TWICE / 2, slow);
    rank_summary t = after(&s, TWICE / 2, slow);
    assert_true(t.straggler);
    assert_int_equal(t.slowest, 3);
    assert_true(t.slowest_ms == slow[3] && t.median_ms == even[3]);
    close_scene(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_slowest_is_told),           cmocka_unit_test(once_is_chance),
        cmocka_unit_test(named_once_until_it_caught_up), cmocka_unit_test(little_is_not_slow),
        cmocka_unit_test(few_steps_wait_for_more),       cmocka_unit_test(more_lanes_are_not_slowness),
        cmocka_unit_test(what_is_not_known_is_not_fast), cmocka_unit_test(other_stages_have_other_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
