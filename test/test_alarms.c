// test/test_alarms.c: stories of runs that hang and of processes that are stopped or gone: each trouble is found within
// the time that the rule states, named rightly, logged once, and over when it is over.
#include "test/support/story.h"

// --- hangs -----------------------------------------------------------------------------------------------------------

static void a_rank_that_computes_for_ever(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    go_on(&t, 60);
    others_wait(&t, 2);
    t.rank[2].process = 'S', t.rank[2].cpu = 0.01;
    stand_still(&t, 29);
    none_told(&t);
    stand_still(&t, 1);  // 30 s after the last step
    assert_int_equal(t.count, 1);
    TOLD(&t, 0, ALARM_HANG, true, 2, "no step for 30 s after step 60", "rank 2 (10.0.0.2)", "CPU", "phase step",
         "forward 3 of step 61", "for 30 s", "computes nothing, or waits", "Next: gdb -p 4002");
    const watch_alarm *a = lasting(&t, ALARM_HANG);
    assert_true(a && a->rank == 2 && t.s.time - a->since == 30);
    stand_still(&t, 500);
    assert_int_equal(t.count, 1);  // once
    assert_true(lasting(&t, ALARM_HANG)->since == t.s.time - 530);
    assert_non_null(strstr(lasting(&t, ALARM_HANG)->text, "no step for 530 s"));
    go_on(&t, 1);
    assert_int_equal(t.s.alarms, 0);
    TOLD(&t, 1, ALARM_HANG, false, -1, "steps go on, with step 61", "after 531 s");
    go_on(&t, 100);
    assert_int_equal(t.count, 2);
    end(&t);
}

static void slow_is_not_idle(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    go_on(&t, 20);
    others_wait(&t, 1);
    stand_still(&t, 31);
    TOLD(&t, 0, ALARM_HANG, true, 1, "computes slowly");  // its processor is busy
    end(&t);
    begin(&t, watch_limits_default(), 1);
    gpus(&t);
    go_on(&t, 20);
    others_wait(&t, 3);
    for (int k = 0; k < RANKS; k++) t.rank[k].sensors.watts = 70, t.rank[k].low_watts_s = 29;
    stand_still(&t, 31);
    TOLD(&t, 0, ALARM_HANG, true, 3, "GPU 0000:71:00.0", "computes nothing, or waits", "70 W, median 510 W",
         "dmesg (Xid)");
    end(&t);
}

static void the_limit_is_of_the_run(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    t.s.news.p99_ns = 20000000000;  // 20 s
    go_on(&t, 20);
    stand_still(&t, 99);
    none_told(&t);
    stand_still(&t, 2);
    assert_int_equal(t.count, 1);
    end(&t);
    begin(&t, watch_limits_default(), 1);  // the first steps may take five minutes
    go_on(&t, ALARM_FIRST - 1);
    stand_still(&t, 298);
    none_told(&t);
    stand_still(&t, 4);
    assert_int_equal(t.count, 1);
    end(&t);
}

// Of a continued run the first steps are those of this process.
static void a_slow_start(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    t.s.ready = false;
    for (int k = 0; k < RANKS; k++) t.rank[k].phase = PHASE_STARTING, t.rank[k].step = 0, does(&t.rank[k], NULL);
    stand_still(&t, 1000);
    t.s.step = t.s.news.step = t.s.news.began_step = 5000;
    t.s.ready = true;
    for (int k = 0; k < RANKS; k++)
        t.rank[k].phase = PHASE_STEPPING, t.rank[k].step = 5001, does(&t.rank[k], "forward");
    stand_still(&t, 200);
    steps(&t, 1);
    stand_still(&t, 200);
    none_told(&t);
    go_on(&t, 20);
    stand_still(&t, 31);
    assert_int_equal(t.count, 1);
    end(&t);
}

static void no_step_is_expected(void **state) {
    (void)state;
    static const board_phase phases[] = {PHASE_EVALUATING, PHASE_SAMPLING, PHASE_SAVING, PHASE_STARTING};
    story t;
    begin(&t, watch_limits_default(), 1);
    go_on(&t, 30);
    for (size_t p = 0; p < 4; p++)
        for (int alone = 0; alone < 2; alone++) {
            for (int k = 0; k < (alone ? 1 : RANKS); k++) t.rank[k].phase = phases[p];
            stand_still(&t, 5000);
            for (int k = 0; k < RANKS; k++) t.rank[k].phase = PHASE_STEPPING;
            stand_still(&t, 29);
            go_on(&t, 5);
        }
    none_told(&t);
    stand_still(&t, 31);
    assert_int_equal(t.count, 1);
    t.rank[0].phase = PHASE_EVALUATING;
    look(&t);
    TOLD(&t, 1, ALARM_HANG, false, -1, "no step is expected");
    end(&t);
}

// Each suspect, and what is said of it.
static void suspects(void **state) {
    (void)state;
    story t;
    for (int c = 0; c < 10; c++) {
        begin(&t, watch_limits_default(), c == 6 ? 2 : 1);
        if (c == 4 || c == 5 || c == 8) gpus(&t);
        go_on(&t, 20);
        others_wait(&t, -1);
        watch_rank *r = &t.rank[1];
        const char *word = "", *next = "gdb -p 4001";
        switch (c) {
        case 0: r->process = 'T', word = "its process is stopped", next = "kill -CONT 4001"; break;
        case 1: r->process = 'D', does(r, "update"), word = "for a disk", next = "/proc/4001/stack"; break;
        case 2: does(r, "wait for data"), word = "it waits for data", next = "[data] train"; break;
        case 3: does(r, NULL), word = "it computes"; break;
        case 4: r->utilisation = 0, word = "its device has nothing to do"; break;
        case 5:
            for (int k = 0; k < RANKS; k++)
                t.rank[k].sensors.watts = k == 1 ? 500 : 100, t.rank[k].low_watts_s = k == 1 ? 0 : 20;
            for (int k = 0; k < RANKS; k++) does(&t.rank[k], "wait for the step's end");
            word = "it computes slowly";
            break;
        case 6: word = "all ranks of this node wait for another node", next = "lockstep status"; break;
        case 7: word = "all ranks wait for each other", next = "gdb"; break;
        case 8:
            for (int k = 0; k < RANKS; k++) t.rank[k].beside = k == 1 ? NULL : "reduce gradients";
            word = "it is behind the others";
            break;
        default: r->step -= 1, word = "it is behind the others";
        }
        stand_still(&t, 31);
        TOLD(&t, c == 0 || c == 2, ALARM_HANG, true, c == 6 || c == 7 ? -1 : 1, word, next, "phase step",
             c == 6 || c == 7 ? "for the longest time" : "waiting for rank 1 (10.0.0.2)");
        end(&t);
    }
    begin(&t, watch_limits_default(), 1);  // those that are gone do not wait
    go_on(&t, 20);
    others_wait(&t, 0);
    t.rank[0].process = 'Z';
    assert_int_equal(suspect_find(&t.s).why, SUSPECT_UNKNOWN);
    for (int k = 0; k < RANKS; k++) t.rank[k].process = 'X';
    char text[ALARM_TEXT];
    suspect_text(text, sizeof text, &t.s, suspect_find(&t.s), -1, 40, 10);
    assert_non_null(strstr(text, "no rank of this node is there"));
    end(&t);
}

// A node without rank 0 has no news: how long steps take is what is seen of them.
static void without_news(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 2);
    t.s.has_news = false;
    t.s.news = (board_news){0};
    for (int i = 0; i < 30; i++) {
        steps(&t, 1);
        stand_still(&t, 25);  // steps of 25 s: five of them are 125 s
    }
    stand_still(&t, 90);
    none_told(&t);
    stand_still(&t, 12);
    TOLD(&t, 0, ALARM_HANG, true, 0, "after step 30");
    steps(&t, 1);
    look(&t);
    TOLD(&t, 1, ALARM_HANG, false, -1, "with step 31");
    end(&t);
}

// With several nodes, rank 0's node logs the alarms of the whole run, and every node those of its own ranks. All nodes
// show alarms that are still on.
static void of_the_run_one_node_tells(void **state) {
    (void)state;
    for (int follows = 0; follows < 2; follows++) {
        story t;
        begin(&t, watch_limits_default(), 1);
        t.s.nodes = 2, t.s.follows = follows != 0;
        go_on(&t, 20);
        for (int i = 0; i < RANKS; i++) t.rank[i].waits_for = WAIT_RANKS;
        stand_still(&t, 40);
        assert_int_equal(t.count, !follows);
        assert_non_null(lasting(&t, ALARM_HANG));
        if (follows) t.rank[1].process = 'T', stand_still(&t, 20);  // it is a rank of this node after all
        if (follows) TOLD(&t, 1, ALARM_STOPPED, true, 1, "stopped by a signal");
        if (follows) TOLD(&t, 0, ALARM_HANG, true, 1, "its process is stopped");
        end(&t);
        begin(&t, watch_limits_default(), 1);
        t.s.nodes = 2, t.s.follows = follows != 0, t.s.bad_steps = t.s.bad_limit = 5;
        go_on(&t, 1);
        assert_int_equal(t.count, !follows);
        assert_non_null(lasting(&t, ALARM_BAD_STEPS));
        t.s.bad_steps = 0;
        go_on(&t, 1);
        assert_int_equal(t.count, follows ? 0 : 2);  // nor of the end of what it has not told
        end(&t);
    }
}

// --- processes -------------------------------------------------------------------------------------------------------

static void a_stopped_process(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    go_on(&t, 20);
    others_wait(&t, 1);
    t.rank[1].process = 'T';
    stand_still(&t, 9);
    none_told(&t);
    stand_still(&t, 1);
    TOLD(&t, 0, ALARM_STOPPED, true, 1, "rank 1 (10.0.0.2)", "stopped by a signal", "kill -CONT 4001");
    stand_still(&t, 25);
    assert_int_equal(t.count, 2);
    TOLD(&t, 1, ALARM_HANG, true, 1, "its process is stopped");
    assert_int_equal(t.s.alarms, 2);
    assert_int_equal(t.s.alarm[0].kind, ALARM_HANG);  // the gravest first
    t.rank[1].process = 'R';
    go_on(&t, 1);
    assert_int_equal(t.count, 4);
    TOLD(&t, 2, ALARM_HANG, false, -1, "steps go on");
    TOLD(&t, 3, ALARM_STOPPED, false, 1, "rank 1", "goes on");
    t.rank[1].phase = PHASE_EVALUATING;  // in any phase
    for (int i = 0; i < 5; i++) {        // for a moment each
        t.rank[1].process = 't';
        stand_still(&t, 9);
        t.rank[1].process = 'S';
        stand_still(&t, 1);
    }
    assert_int_equal(t.count, 4);
    t.rank[1].process = 't';
    stand_still(&t, 11);
    TOLD(&t, 4, ALARM_STOPPED, true, 1, "held by a debugger");
    end(&t);
}

// It rings once, from the limit on, also where steps are quick, and is over with the first good step.
static void steps_that_are_not_finite(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    t.s.dir = "runs/a";
    go_on(&t, 20);
    t.s.bad_steps = 100;  // a board that does not say how many are many
    go_on(&t, 1);
    none_told(&t);
    t.s.bad_limit = 5;
    for (t.s.bad_steps = 1; t.s.bad_steps < 5; t.s.bad_steps++) go_on(&t, 1);
    none_told(&t);
    go_on(&t, 1);
    TOLD(&t, 0, ALARM_BAD_STEPS, true, -1, "the run diverges", "the last 5 steps, up to step 26",
         "runs/a/events.jsonl");
    t.s.bad_steps = 40;
    go_on(&t, 30);
    assert_int_equal(t.count, 1);
    assert_non_null(lasting(&t, ALARM_BAD_STEPS));
    assert_string_equal(alarm_event(ALARM_BAD_STEPS, true), "bad_steps");
    t.s.bad_steps = 2;  // one that was good is over already: it does not ring each time
    go_on(&t, 1);
    assert_true(t.count == 1 && lasting(&t, ALARM_BAD_STEPS));
    t.s.bad_steps = 0;
    go_on(&t, 1);
    assert_int_equal(t.s.alarms, 0);
    TOLD(&t, 1, ALARM_BAD_STEPS, false, -1, "finite again");
    end(&t);
}

// The stop is what took long, not the reading in which it came; also at the look right after it.
static void stopped_while_it_waits_for_data(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    go_on(&t, 40);
    t.rank[1].process = 'T', does(&t.rank[1], "wait for data"), t.rank[1].cpu = 0;
    others_wait(&t, 1);
    stand_still(&t, 60);
    t.rank[1].process = 'R';
    look(&t);
    t.rank[1] = plain_rank(1);
    t.s.news.data_wait_ms = 60000, t.s.news.ms = 61000;
    go_on(&t, 1);
    t.s.news.data_wait_ms = 1, t.s.news.ms = 1000;
    go_on(&t, 60);
    for (int i = 0; i < t.count; i++) assert_int_not_equal(t.told[i].kind, ALARM_READER);
    assert_int_equal(t.s.alarms, 0);
    end(&t);
}

// Steps that were finished before the first look count, too.
static void a_hang_soon_after_the_start(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    steps(&t, 61);
    look(&t);
    stand_still(&t, 29);
    none_told(&t);
    stand_still(&t, 2);
    TOLD(&t, 0, ALARM_HANG, true, 0, "no step for 3", "after step 61");
    end(&t);
    begin(&t, watch_limits_default(), 1);
    t.s.news.began_step = 52, t.s.news.step = t.s.step = 61;  // nine steps: the next may be slow
    look(&t);
    stand_still(&t, 299);
    none_told(&t);
    end(&t);
}

// A run that has ended is forgotten with all of its ranks: what comes after it begins anew.
static void the_end_is_the_end(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    go_on(&t, 20);
    for (int k = 0; k < RANKS; k++) t.rank[k].process = 'T';
    stand_still(&t, 9);
    t.s.ended = true;
    look(&t);
    t.s.ended = false;
    stand_still(&t, 10);  // the first look counts from itself on
    none_told(&t);
    stand_still(&t, 1);
    assert_int_equal(t.count, RANKS);
    for (int k = 0; k < RANKS; k++) TOLD(&t, k, ALARM_STOPPED, true, k, "for 10 s");
    t.s.ended = true;
    look(&t);
    t.s.ended = false;
    for (int k = 0; k < RANKS; k++) t.rank[k].process = 'R';
    go_on(&t, 20);
    assert_int_equal(t.count, RANKS);  // nothing went on that had begun
    end(&t);
}

static void a_rank_that_is_gone(void **state) {
    (void)state;
    for (int how = 0; how < 6; how++) {
        story t;
        begin(&t, watch_limits_default(), 1);
        go_on(&t, 20);
        t.rank[3].process = how == 0 ? 'Z' : how == 1 ? 'X' : 0;
        if (how == 3) t.rank[3].phase = PHASE_ENDED;
        if (how == 4) t.s.stopping = true;
        if (how == 5) t.s.ended = true;
        stand_still(&t, 1);
        none_told(&t);
        stand_still(&t, 2);
        if (how < 3) TOLD(&t, 0, ALARM_DEAD, true, 3, "rank 3 (10.0.0.2)", "process 4003 is gone", "Next: dmesg");
        else none_told(&t);
        t.s.ended = true;
        stand_still(&t, 5);
        assert_int_equal(t.s.alarms, 0);
        assert_int_equal(t.count, how < 3);  // the run's end is no news of ours
        end(&t);
    }
    story t;  // of a process that was never seen nothing is known
    begin(&t, watch_limits_default(), 1);
    for (int k = 0; k < RANKS; k++) t.rank[k].process = 0;
    go_on(&t, 100);
    none_told(&t);
    end(&t);
}

// --- the frame -------------------------------------------------------------------------------------------------------

// More troubles at once than there is room for: each is logged once, and the list has the gravest.
static void troubles_of_many(void **state) {
    (void)state;
    enum { MANY = 60 };
    watch_rank rank[MANY];
    watch_state s = {
        .time = 1e9, .nodes = 1, .world = MANY, .locals = MANY, .ready = true, .rank = rank, .disk_free = -1};
    watch_limits l = watch_limits_default();
    static alarm_news news;
    int began[MANY] = {0}, ended[MANY] = {0};
    alarms *a;
    assert_int_equal(alarms_open(&a, &l, MANY), ERR_OK);
    for (int k = 0; k < MANY; k++) rank[k] = plain_rank(k), rank[k].process = 'T', rank[k].phase = PHASE_EVALUATING;
    for (int i = 0; i < 40; i++) {
        if (i == 30)
            for (int k = 0; k < MANY; k++) rank[k].process = 'R';
        s.time += 1, s.monotonic += 1;
        alarms_judge(a, &s, &news);
        assert_true(news.count <= WATCH_ALARMS && s.alarms <= WATCH_ALARMS);
        for (int n = 0; n < news.count; n++) (news.change[n].began ? began : ended)[news.change[n].rank]++;
    }
    for (int k = 0; k < MANY; k++) assert_true(began[k] == 1 && ended[k] == 1);
    assert_int_equal(s.alarms, 0);
    alarms_close(a);
}

// A watcher that was kept from looking for a minute knows nothing of that minute.
static void a_pause(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    go_on(&t, 60);
    t.s.monotonic += 60, t.s.time += 60;
    t.s.news.data_wait_ms = 900, t.rank[0].process = 'T', t.rank[1].sensors.limited = LIMITED_HEAT;
    go_on(&t, 1);
    none_told(&t);
    t.s.news.data_wait_ms = 1, t.rank[0].process = 'R', t.rank[1].sensors.limited = 0;
    go_on(&t, 60);
    none_told(&t);
    end(&t);
}

static void names(void **state) {
    (void)state;
    for (int k = 0; k < ALARM_KINDS; k++) {
        assert_string_not_equal(alarm_event((alarm_kind)k, true), alarm_event((alarm_kind)k, false));
        for (int j = 0; j < k; j++)
            assert_string_not_equal(alarm_event((alarm_kind)k, true), alarm_event((alarm_kind)j, true));
    }
    assert_string_equal(alarm_event(ALARM_KINDS, true), "unknown");
}

// A long text is cut, not run over: names as long as they get.
static void long_names(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    gpus(&t);
    for (int k = 0; k < RANKS; k++) {
        memset(t.rank[k].place.host, 'h', COMM_HOST - 1);
        memset(t.rank[k].place.role, 'r', COMM_ROLE - 1);
        memset(t.rank[k].device, 'd', BOARD_DEVICE - 1);
        t.rank[k].sensors.limited = LIMITED_HEAT;
        t.rank[k].read_p50_ms = t.rank[k].read_p99_ms = 1e300;
        t.rank[k].process = 'T';
    }
    t.s.news.data_wait_ms = 1e9;
    t.s.disk_free = 0;
    go_on(&t, 20);
    stand_still(&t, 40);
    assert_true(t.count >= 10);
    for (int i = 0; i < t.count; i++) assert_true(strlen(t.told[i].text) < ALARM_TEXT);
    end(&t);
}

// Ranks that are otherwise alike: the same is reported, whichever of them it is about.
static void whichever_rank_it_is(void **state) {
    (void)state;
    enum { STOPPED, TRACED, GONE, EVALUATES, WAITS_FOR_DATA, SAVES, KINDS };
    for (int kind = 0; kind < KINDS; kind++) {
        story first;
        for (int k = 0; k < RANKS; k++) {
            story t;
            begin(&t, watch_limits_default(), 2);
            for (int i = 0; i < RANKS; i++) t.rank[i] = plain_rank(1);  // not rank 0, which says more than the others
            go_on(&t, 20);
            watch_rank *r = &t.rank[k];
            if (kind <= GONE) r->process = "TtX"[kind];
            if (kind == EVALUATES) r->phase = PHASE_EVALUATING;
            if (kind == WAITS_FOR_DATA) others_wait(&t, k), does(r, "wait for data");
            // of 400 GB; another such one finds no room
            if (kind == SAVES) r->phase = PHASE_SAVING, t.s.disk_free = 50000000000;
            stand_still(&t, 40);
            r->process = 'R', r->phase = PHASE_STEPPING;
            go_on(&t, 40);
            if (k == 0) first = t;
            assert_int_equal(t.count > 0, kind != EVALUATES);
            if (kind == SAVES) TOLD(&t, 0, ALARM_DISK, true, -1, "and a checkpoint takes 350 GB");
            assert_int_equal(t.count, first.count);
            for (int i = 0; i < t.count; i++) {
                assert_true(t.told[i].kind == first.told[i].kind && t.told[i].began == first.told[i].began);
                assert_string_equal(t.told[i].text, first.told[i].text);
            }
            end(&t);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_computes_for_ever),
        cmocka_unit_test(whichever_rank_it_is),
        cmocka_unit_test(slow_is_not_idle),
        cmocka_unit_test(the_limit_is_of_the_run),
        cmocka_unit_test(a_slow_start),
        cmocka_unit_test(no_step_is_expected),
        cmocka_unit_test(suspects),
        cmocka_unit_test(without_news),
        cmocka_unit_test(of_the_run_one_node_tells),
        cmocka_unit_test(a_stopped_process),
        cmocka_unit_test(steps_that_are_not_finite),
        cmocka_unit_test(stopped_while_it_waits_for_data),
        cmocka_unit_test(a_hang_soon_after_the_start),
        cmocka_unit_test(a_rank_that_is_gone),
        cmocka_unit_test(the_end_is_the_end),
        cmocka_unit_test(troubles_of_many),
        cmocka_unit_test(a_pause),
        cmocka_unit_test(names),
        cmocka_unit_test(long_names),
    };
    return cmocka_run_group_tests_name("alarms", tests, NULL, NULL);
}
