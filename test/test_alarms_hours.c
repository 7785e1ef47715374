// test/test_alarms_hours.c: stories of runs that last for hours: limits that flicker, clocks that are throttled from
// the start, evaluations in between, rings that have turned, troubles that come back. What rings rings once, keeps the
// time at which it began, and ends.
#include "test/support/story.h"

enum { HOUR = 3600 };

static void in_phase(story *t, board_phase p) {
    for (int k = 0; k < RANKS; k++) t->rank[k].phase = p;
}

// All ranks evaluate, and no step is finished.
static void evaluate_for(story *t, int seconds) {
    in_phase(t, PHASE_EVALUATING);
    stand_still(t, seconds);
    in_phase(t, PHASE_STEPPING);
}

// The news so far, of which nobody asks again.
static void forget_news(story *t) { t->count = 0; }

// --- hangs ---------------------------------------------------------------------------------------------------------

static void a_run_that_hangs_twice(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    for (int k = 0; k < 3; k++) {
        go_on(&t, 2 * HOUR);
        evaluate_for(&t, 400);
        go_on(&t, 100);
        none_told(&t);
        others_wait(&t, k);
        stand_still(&t, 300 + 100 * k);
        assert_int_equal(t.count, 1);
        TOLD(&t, 0, ALARM_HANG, true, k, "no step for 30 s");
        assert_true(lasting(&t, ALARM_HANG)->since == t.s.time - 300 - 100 * k);
        for (int r = 0; r < RANKS; r++) t.rank[r] = plain_rank(r);
        go_on(&t, 1);
        TOLD(&t, 1, ALARM_HANG, false, -1, k == 0 ? "after 301 s" : k == 1 ? "after 401 s" : "after 501 s");
        assert_int_equal(t.s.alarms, 0);
        forget_news(&t);
    }
    end(&t);
}

// So many steps of so many seconds each.
static void steps_of(story *t, int count, int seconds) {
    for (int i = 0; i < count; i++) {
        steps(t, 1);
        look(t);
        stand_still(t, seconds - 1);
    }
}

// After how many seconds a hang is told.
static int hangs_after(story *t) {
    int waited = 0;
    for (steps(t, 1), look(t); t->count == 0 && waited < HOUR; waited++) stand_still(t, 1);
    TOLD(t, 0, ALARM_HANG, true, 0, "no step");
    steps(t, 1);
    look(t);
    TOLD(t, 1, ALARM_HANG, false, -1, "steps go on");
    forget_news(t);
    return waited;
}

static void no_news(story *t) {
    begin(t, watch_limits_default(), 2);
    t->s.has_news = false;
    t->s.news = (board_news){0};
    for (int k = 0; k < RANKS; k++) t->rank[k].place.rank = k;
}

// On a node without rank 0 the limit follows the steps that it sees: the last ones, not the first ones, and not the
// evaluations between them.
static void steps_that_change_without_news(void **state) {
    (void)state;
    story t;
    no_news(&t);
    steps_of(&t, 100, 2);
    assert_in_range(hangs_after(&t), 30, 31);
    steps_of(&t, 70, 40);
    assert_in_range(hangs_after(&t), 200, 202);
    steps_of(&t, 70, 2);  // the hang was a step of 200 s, and 64 others came after it
    assert_in_range(hangs_after(&t), 30, 31);
    steps_of(&t, 70, 3);
    for (int i = 0; i < 10; i++) {
        evaluate_for(&t, 600);
        steps_of(&t, 2, 3);
    }
    assert_in_range(hangs_after(&t), 30, 31);
    end(&t);
    no_news(&t);  // steps of a second each, of which a watcher that is kept from looking sees twenty at once
    for (int i = 0; i < 40; i++) {
        steps(&t, 20);
        t.s.monotonic += 19, t.s.time += 19;
        look(&t);
    }
    assert_in_range(hangs_after(&t), 30, 31);
    end(&t);
    no_news(&t);  // of a run that went on at step 5000 the first steps are those of this process
    t.s.step = t.s.news.step = 5000;
    look(&t);
    steps_of(&t, ALARM_FIRST - 1, 3);
    stand_still(&t, 290);
    none_told(&t);
    steps_of(&t, 70, 3);
    assert_in_range(hangs_after(&t), 30, 31);
    end(&t);
}

// --- processes -----------------------------------------------------------------------------------------------------

// Whatever the run does: a rank that is gone, or stopped, will not come back from it.
static void gone_or_stopped_in_any_phase(void **state) {
    (void)state;
    static const board_phase phases[] = {PHASE_STARTING, PHASE_STEPPING, PHASE_EVALUATING, PHASE_SAMPLING,
                                         PHASE_SAVING};
    for (size_t p = 0; p < sizeof phases / sizeof *phases; p++) {
        story t;
        begin(&t, watch_limits_default(), 1);
        go_on(&t, 100);
        in_phase(&t, phases[p]);
        t.rank[1].process = 'Z', t.rank[2].process = 'T';
        stand_still(&t, 4);
        TOLD(&t, 0, ALARM_DEAD, true, 1, "process 4001 is gone", board_phase_name(phases[p]));
        assert_true(lasting(&t, ALARM_DEAD)->since <= t.s.time - 2 && lasting(&t, ALARM_DEAD)->since >= t.s.time - 4);
        stand_still(&t, 8);
        TOLD(&t, 1, ALARM_STOPPED, true, 2, "process 4002 is stopped");
        assert_true(lasting(&t, ALARM_STOPPED)->since == t.s.time - 12);
        t.rank[2].process = 'S';
        stand_still(&t, 1);
        TOLD(&t, 2, ALARM_STOPPED, false, 2, "goes on, after 13 s");
        assert_int_equal(t.count, 3);
        end(&t);
    }
}

// --- the loader ----------------------------------------------------------------------------------------------------

// Seconds until rank 0's loader is told, of an hour at this share of each step; HOUR: never.
static int reader_told_after(story *t, double share, int count) {
    int seconds = 0;
    t->s.news.data_wait_ms = 1000 * share;
    while (t->count == count && seconds < HOUR) go_on(t, 1), seconds++;
    return seconds;
}

static void a_loader_at_its_limits(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    t.rank[0].read_p99_ms = 11;  // 1.1 % of a step
    go_on(&t, HOUR);
    assert_int_equal(reader_told_after(&t, 0.32, 0), HOUR);
    t.rank[0].read_p99_ms = 9;
    assert_int_equal(reader_told_after(&t, 0.9, 0), HOUR);
    t.s.news.data_wait_ms = 1;
    go_on(&t, 60);
    t.rank[0].read_p99_ms = 11;
    assert_in_range(reader_told_after(&t, 0.36, 0), 25, 31);
    TOLD(&t, 0, ALARM_READER, true, 0, "of the last 30 s");
    assert_true(lasting(&t, ALARM_READER)->since >= t.s.time - 31 && lasting(&t, ALARM_READER)->since <= t.s.time - 29);
    t.rank[0].read_p99_ms = 1;  // it began, and lasts as long as the waiting does
    assert_int_equal(reader_told_after(&t, 0.18, 1), HOUR);
    assert_in_range(reader_told_after(&t, 0.12, 1), 1, 31);
    TOLD(&t, 1, ALARM_READER, false, 0, "keeps up");
    end(&t);
}

// How long a step takes is what reads are compared with, however many of them are between two looks; and who waits for
// a whole second does not wait for a processor.
static void a_loader_beside_its_steps(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    go_on(&t, 60);
    t.s.news.ms = 100, t.s.news.data_wait_ms = 60;
    for (int i = 0; i < 40; i++) {
        t.rank[0].read_p99_ms = i < 10 ? 0.5 : 5;  // of steps of 100 ms
        steps(&t, 10);
        look(&t);
    }
    TOLD(&t, 0, ALARM_READER, true, 0, "a step takes 1");
    assert_int_equal(t.count, 1);
    end(&t);
    for (int wait = 0; wait < 2; wait++) {
        begin(&t, watch_limits_default(), 1);
        go_on(&t, 60);
        t.rank[0].read_p99_ms = 0.1;
        t.s.news.ms = 1500, t.s.news.data_wait_ms = wait ? 1100 : 900;
        go_on(&t, 300);
        assert_int_equal(t.count, wait);
        end(&t);
    }
    begin(&t, watch_limits_default(), 1);  // one long wait in thirty seconds of many short ones explains none of these
    t.rank[0].read_p99_ms = 0.02;
    for (int i = 0; i < 300; i++) {
        t.s.news.ms = i % 29 ? 1000 : 1200, t.s.news.data_wait_ms = i % 29 ? 400 : 1100;
        go_on(&t, 1);
    }
    none_told(&t);
    end(&t);
    begin(&t, watch_limits_default(), 1);  // after a stop the time that counts begins anew
    t.s.news.data_wait_ms = 500;
    for (int i = 0; i < 20; i++) {
        t.rank[0].process = 'R', go_on(&t, 20);
        t.rank[0].process = 'T', go_on(&t, 3);
    }
    none_told(&t);
    end(&t);
}

// Only stepping counts: what evaluations wait for is nothing, and they end nothing.
static void a_loader_between_evaluations(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    go_on(&t, HOUR);
    t.s.news.data_wait_ms = 450;
    for (int i = 0; i < 50; i++) {  // evaluations are longer than all that is remembered
        go_on(&t, 20);
        if (i == 0) none_told(&t);
        for (int k = 0; k < RANKS; k++) does(&t.rank[k], "wait for data");
        evaluate_for(&t, 200);
        for (int k = 0; k < RANKS; k++) does(&t.rank[k], "forward");
        assert_int_equal(t.count, i > 0);
    }
    TOLD(&t, 0, ALARM_READER, true, 0, " % of the last 30 s");
    t.s.news.data_wait_ms = 1;
    evaluate_for(&t, 1000);
    go_on(&t, 15);
    assert_int_equal(t.count, 1);
    go_on(&t, 16);
    TOLD(&t, 1, ALARM_READER, false, 0, "keeps up");
    assert_int_equal(t.count, 2);
    end(&t);
}

static void reads_that_fail_for_hours(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    go_on(&t, 2 * HOUR);
    for (int i = 0; i < HOUR; i++) {  // four in each 32 s
        t.rank[3].read_retries += i % 8 == 0;
        go_on(&t, 1);
    }
    none_told(&t);
    for (int i = 0; i < HOUR; i++) {  // six in each 30 s
        t.rank[3].read_retries += i % 5 == 0;
        go_on(&t, 1);
    }
    TOLD(&t, 0, ALARM_READER, true, 3, "reads were tried again");
    for (int i = 0; i < HOUR; i++) {
        t.rank[3].read_retries += i % 29 == 0;
        go_on(&t, 1);
    }
    assert_int_equal(t.count, 1);
    go_on(&t, 31);
    TOLD(&t, 1, ALARM_READER, false, 3, "keeps up");
    end(&t);
}

// --- heat ----------------------------------------------------------------------------------------------------------

// One of the two ways in which a clock is held down: its driver says so, or it is only slow.
static void hold(story *t, bool says, bool on) {
    t->rank[1].sensors.limited = says && on ? LIMITED_HEAT : 0;
    t->rank[1].sensors.mhz = on && !says ? 1200 : 1980;
}

static void a_limit_that_flickers(void **state) {
    (void)state;
    for (int says = 0; says < 2; says++) {
        story t;
        int seconds = 0;
        begin(&t, watch_limits_default(), 1);
        gpus(&t);
        go_on(&t, 200);
        for (int i = 0; i < 3 * HOUR; i++) hold(&t, says, i % 3 == 0), go_on(&t, 1);
        none_told(&t);
        for (; t.count == 0 && seconds < HOUR; seconds++) hold(&t, says, seconds % 3 != 0), go_on(&t, 1);
        assert_in_range(seconds, 80, 95);  // two seconds more and one less in each three
        TOLD(&t, 0, ALARM_THROTTLED, true, 1, "median 197");
        for (int i = 0; i < 2 * HOUR; i++) hold(&t, says, i % 3 != 0), go_on(&t, 1);
        assert_int_equal(t.count, 1);
        for (seconds = 0; t.count == 1 && seconds < HOUR; seconds++) hold(&t, says, seconds % 3 == 0), go_on(&t, 1);
        assert_in_range(seconds, 80, 95);
        TOLD(&t, 1, ALARM_THROTTLED, false, 1, "no longer limited");
        end(&t);
    }
}

// However long a clock is held down, that does not become usual; and when it is over, it is over soon.
static void a_clock_that_is_slow_for_hours(void **state) {
    (void)state;
    for (int says = 0; says < 2; says++) {
        story t;
        begin(&t, watch_limits_default(), 1);
        gpus(&t);
        go_on(&t, HOUR);
        for (int k = 0; k < 2; k++) {
            t.rank[2].sensors.limited = says ? LIMITED_BRAKE : LIMITED_POWER;
            t.rank[2].sensors.mhz = says ? 1600 : 1300;
            go_on(&t, 5 * HOUR);
            assert_int_equal(t.count, 1);
            TOLD(&t, 0, ALARM_THROTTLED, true, 2, says ? "limited by brake" : "slower than usual", "median 197");
            const watch_alarm *a = lasting(&t, ALARM_THROTTLED);
            assert_true(a && a->since >= t.s.time - 5 * HOUR - 1 && a->since <= t.s.time - 5 * HOUR + 1);
            assert_non_null(strstr(a->text, "median 197"));
            t.rank[2].sensors.limited = 0;
            t.rank[2].sensors.mhz = 1980;
            go_on(&t, 29);
            assert_int_equal(t.count, 1);
            go_on(&t, 2);
            TOLD(&t, 1, ALARM_THROTTLED, false, 2, says ? "after 1803" : "after 180");
            forget_news(&t);
            go_on(&t, HOUR);
        }
        none_told(&t);
        end(&t);
    }
}

// What was throttled from the start says nothing of what is usual.
static void a_clock_that_is_slow_from_the_start(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    gpus(&t);
    t.rank[0].sensors.limited = LIMITED_HEAT, t.rank[0].sensors.mhz = 1200;
    go_on(&t, 2 * HOUR);
    assert_int_equal(t.count, 1);
    TOLD(&t, 0, ALARM_THROTTLED, true, 0, "1200 MHz; 60 C");
    t.rank[0].sensors.limited = 0, t.rank[0].sensors.mhz = 1980;
    go_on(&t, 600);
    TOLD(&t, 1, ALARM_THROTTLED, false, 0, "no longer limited");
    t.rank[0].sensors.mhz = 1200;
    go_on(&t, 31);
    TOLD(&t, 2, ALARM_THROTTLED, true, 0, "slower than usual", "1200 MHz, median 197");
    end(&t);
}

// The median is of about the last half hour: another clock that is not far from it becomes usual.
static void a_clock_that_changes_a_little(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    gpus(&t);
    go_on(&t, 4 * HOUR);
    for (int mhz = 1980; mhz > 1000; mhz -= 200) {
        for (int k = 0; k < RANKS; k++) t.rank[k].sensors.mhz = mhz;
        go_on(&t, 2 * HOUR);
    }
    none_told(&t);
    t.rank[1].sensors.mhz = 860;  // of 1180: below three quarters
    go_on(&t, 31);
    TOLD(&t, 0, ALARM_THROTTLED, true, 1, "860 MHz, median 117");
    end(&t);
}

// Evaluations compute, too: heat counts there. What is usual is only known of steps, so a clock says nothing there,
// and ends nothing. A device that waits for a disk says nothing at all.
static void heat_between_evaluations(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    gpus(&t);
    go_on(&t, HOUR);
    t.rank[1].sensors.mhz = 1300;
    for (int i = 0; i < 20; i++) {
        go_on(&t, 100);
        evaluate_for(&t, 100);
    }
    assert_int_equal(t.count, 1);
    TOLD(&t, 0, ALARM_THROTTLED, true, 1, "slower than usual");
    t.rank[1].sensors.mhz = 1980;
    go_on(&t, 31);
    TOLD(&t, 1, ALARM_THROTTLED, false, 1, "no longer");
    forget_news(&t);
    t.rank[1].sensors.limited = LIMITED_HEAT;
    in_phase(&t, PHASE_SAVING), stand_still(&t, HOUR);
    in_phase(&t, PHASE_STARTING), stand_still(&t, HOUR);
    none_told(&t);
    in_phase(&t, PHASE_EVALUATING), stand_still(&t, 20);
    in_phase(&t, PHASE_SAMPLING), stand_still(&t, 11);
    TOLD(&t, 0, ALARM_THROTTLED, true, 1, "limited by heat");
    t.rank[1].sensors.limited = 0;
    in_phase(&t, PHASE_SAVING), stand_still(&t, HOUR);
    assert_int_equal(t.count, 1);
    end(&t);
}

// --- the disk ------------------------------------------------------------------------------------------------------

// Seconds until the disk is told again, of steps that write this much; at most `most`.
static int disk_told_after(story *t, int64_t per_s, int most) {
    int seconds = 0, count = t->count;
    for (; t->count == count && seconds < most; seconds++) t->s.disk_free -= per_s, go_on(t, 1);
    return seconds;
}

static void a_disk_that_fills_after_hours(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    assert_int_equal(disk_told_after(&t, 1000, 5 * HOUR), 5 * HOUR);
    for (int k = 0; k < 2; k++) {
        assert_in_range(disk_told_after(&t, 20000000, 2 * HOUR), 600, HOUR);  // 5.5 hours
        TOLD(&t, 0, ALARM_DISK, true, -1, "less each hour");
        assert_int_equal(disk_told_after(&t, 3500000, 2 * HOUR), 2 * HOUR);  // at less than twice a day it goes on
        assert_in_range(disk_told_after(&t, 1000000, 2 * HOUR), 600, HOUR);
        TOLD(&t, 1, ALARM_DISK, false, -1, "there is room");
        forget_news(&t);
        t.s.disk_free = 400000000000;
        assert_int_equal(disk_told_after(&t, 1000, 3 * HOUR), 3 * HOUR);
    }
    none_told(&t);
    end(&t);
}

// A day before it is full, to the minute, and not earlier.
static void a_disk_that_fills_slowly(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    int seconds = disk_told_after(&t, 4000000, 12 * HOUR);  // 345.6 GB are a day's
    assert_in_range(seconds, 13600 - 10, 13600 + 120);
    TOLD(&t, 0, ALARM_DISK, true, -1, "14.4 GB less each hour: full in 24.0 h");
    end(&t);
}

// What others write while the watcher is kept from looking is no trend.
static void a_disk_that_others_use_meanwhile(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    for (int k = 0; k < 4; k++) {
        assert_int_equal(disk_told_after(&t, 1000, 900), 900);
        t.s.time += HOUR, t.s.monotonic += HOUR;
        t.s.disk_free -= 60000000000;
    }
    assert_int_equal(disk_told_after(&t, 1000, 900), 900);
    none_told(&t);
    end(&t);
}

static void save_for(story *t, int seconds, int64_t bytes, int64_t freed) {
    in_phase(t, PHASE_SAVING);
    for (int i = 0; i < seconds; i++) {
        t->s.disk_free -= bytes / seconds;
        if (i == seconds - 1) t->s.disk_free += freed;
        stand_still(t, 1);
    }
    in_phase(t, PHASE_STEPPING);
}

// Hours of checkpoints that replace each other tell nothing of the disk; what fills it between them does, and so do
// checkpoints that stay.
static void hours_of_checkpoints(void **state) {
    (void)state;
    for (int how = 0; how < 2; how++) {
        story t;
        begin(&t, watch_limits_default(), 1);
        for (int n = 0; n < 60; n++) {
            disk_told_after(&t, 1000, 280);
            save_for(&t, 20, 10000000000, n < 3 ? 0 : 10000000000);
        }
        none_told(&t);
        int saves = 0;
        for (; t.count == 0 && saves < 60; saves++) {
            disk_told_after(&t, how ? 20000000 : 1000, 280);
            save_for(&t, 20, 10000000000, how ? 10000000000 : 0);
        }
        if (how) assert_in_range(saves, 5, 12);
        else assert_in_range(saves, 2, 3);
        TOLD(&t, 0, ALARM_DISK, true, -1, "less each hour");
        if (!how) assert_in_range(disk_told_after(&t, 1000, 5 * HOUR), 600, 3 * HOUR);  // no more of them are written
        assert_int_equal(t.count, how ? 1 : 2);
        end(&t);
    }
}

// While a checkpoint is written it takes its own room; only a disk with nothing left rings then.
static void a_save_on_a_full_disk(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    for (int n = 0; n < 5; n++) {
        go_on(&t, 300);
        save_for(&t, 20, 40000000000, n < 1 ? 0 : 40000000000);
    }
    go_on(&t, 100);
    none_told(&t);
    t.s.disk_free = 45000000000;  // 1.125 times what one takes
    go_on(&t, 100);
    none_told(&t);
    save_for(&t, 20, 40000000000, 40000000000);
    none_told(&t);
    in_phase(&t, PHASE_SAVING), t.s.disk_free = 999000000;
    stand_still(&t, 1);
    TOLD(&t, 0, ALARM_DISK, true, -1, "999 MB free");
    t.s.disk_free = 45000000000;  // that save took 44 GB: below 1.3 times as much it goes on
    stand_still(&t, 60);
    in_phase(&t, PHASE_STEPPING), go_on(&t, 60);
    assert_int_equal(t.count, 1);
    t.s.disk_free = 60000000000;
    go_on(&t, 1);
    TOLD(&t, 1, ALARM_DISK, false, -1, "there is room");
    t.s.disk_free = 400000000000;  // what the next one takes is counted from its own beginning
    save_for(&t, 20, 40000000000, 40000000000);
    t.s.disk_free = 60000000000;
    go_on(&t, 10);
    assert_int_equal(t.count, 2);
    end(&t);
}

// --- all at once, on the second node -------------------------------------------------------------------------------

// A rank is named by its number in the world, and what is graver comes first.
static void ranks_of_another_node(void **state) {
    (void)state;
    static const struct {
        alarm_kind kind;
        int rank;
    } want[] = {{ALARM_HANG, 9},    {ALARM_DEAD, 10},     {ALARM_STOPPED, 9},
                {ALARM_READER, 11}, {ALARM_THROTTLED, 8}, {ALARM_DISK, -1}};
    enum { KINDS = sizeof want / sizeof *want };
    story t;
    no_news(&t);
    gpus(&t);
    for (int k = 0; k < RANKS; k++) t.rank[k].place.node = 2, t.rank[k].place.rank = 8 + k;
    t.s.node = 2, t.s.nodes = 3, t.s.world = 12;
    go_on(&t, HOUR);
    none_told(&t);
    t.rank[1].process = 'T', t.rank[2].process = 'X', t.rank[0].sensors.limited = LIMITED_HARDWARE,
    t.s.disk_free = 1000;
    does(&t.rank[3], "wait for data");
    stand_still(&t, 60);
    assert_int_equal(t.s.alarms, KINDS);
    for (int i = 0; i < KINDS; i++) {
        char name[32];
        assert_int_equal(t.s.alarm[i].kind, want[i].kind);
        assert_int_equal(t.s.alarm[i].rank, want[i].rank);
        snprintf(name, sizeof name, "rank %d (", want[i].rank);
        if (want[i].rank >= 0) assert_non_null(strstr(t.s.alarm[i].text, name));
    }
    end(&t);
}

// Each rank has its own memory: every third is stopped, each a second after the one before.
static void each_rank_for_itself(void **state) {
    (void)state;
    enum { MANY = 90, THIRD = MANY / 3 };
    watch_rank rank[MANY];
    watch_state s = {
        .time = 1e9, .nodes = 1, .world = MANY, .locals = MANY, .ready = true, .rank = rank, .disk_free = -1};
    watch_limits l = watch_limits_default();
    static alarm_news news;
    double began[MANY] = {0};
    alarms *a;
    int told = 0;
    assert_int_equal(alarms_open(&a, &l, MANY), ERR_OK);
    for (int k = 0; k < MANY; k++) rank[k] = plain_rank(k), rank[k].phase = PHASE_EVALUATING;
    for (int i = 0; i < 200; i++) {
        if (i >= 100 && i < 100 + THIRD) rank[3 * (i - 100) + 1].process = 'T';
        s.time += 1, s.monotonic += 1;
        alarms_judge(a, &s, &news);
        for (int n = 0; n < news.count; n++) began[news.change[n].rank] = i, told++;
    }
    assert_int_equal(told, THIRD);
    for (int k = 0; k < MANY; k++) assert_true(began[k] == (k % 3 == 1 ? 100 + k / 3 + 9 : 0));
    assert_int_equal(s.alarms, THIRD);
    alarms_close(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_that_hangs_twice),
        cmocka_unit_test(steps_that_change_without_news),
        cmocka_unit_test(gone_or_stopped_in_any_phase),
        cmocka_unit_test(a_loader_at_its_limits),
        cmocka_unit_test(a_loader_beside_its_steps),
        cmocka_unit_test(a_loader_between_evaluations),
        cmocka_unit_test(reads_that_fail_for_hours),
        cmocka_unit_test(a_limit_that_flickers),
        cmocka_unit_test(a_clock_that_is_slow_for_hours),
        cmocka_unit_test(a_clock_that_is_slow_from_the_start),
        cmocka_unit_test(a_clock_that_changes_a_little),
        cmocka_unit_test(heat_between_evaluations),
        cmocka_unit_test(a_disk_that_fills_after_hours),
        cmocka_unit_test(a_disk_that_fills_slowly),
        cmocka_unit_test(a_disk_that_others_use_meanwhile),
        cmocka_unit_test(hours_of_checkpoints),
        cmocka_unit_test(a_save_on_a_full_disk),
        cmocka_unit_test(ranks_of_another_node),
        cmocka_unit_test(each_rank_for_itself),
    };
    return cmocka_run_group_tests_name("hours", tests, NULL, NULL);
}
