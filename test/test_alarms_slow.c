// test/test_alarms_slow.c: stories of what makes a run slow, or will end it: a loader, heat, a disk that fills. And of
// ordinary runs, however uneven, in which nothing rings.
#include "test/support/story.h"

// --- the loader ------------------------------------------------------------------------------------------------------

static void a_slow_loader(void **state) {
    (void)state;
    for (int who = 0; who < 2; who++) {  // rank 0 says how long it waited; of rank 1 there are looks
        story t;
        begin(&t, watch_limits_default(), 1);
        go_on(&t, 100);
        int wait = 0;
        while (t.count == 0 && wait < 60) {
            if (who == 0) t.s.news.data_wait_ms = 500;
            else does(&t.rank[1], wait % 2 ? "forward" : "wait for data");
            t.rank[who].read_p50_ms = 450, t.rank[who].read_p99_ms = 900;
            go_on(&t, 1);
            wait++;
        }
        assert_in_range(wait, 10, 31);
        TOLD(&t, 0, ALARM_READER, true, who, who ? "rank 1" : "rank 0", "were waiting for data",
             "450 ms (p50), 900 ms (p99)", "1.0 MB/s", "a step takes 1e+03 ms", "iostat");
        for (int i = 0; i < 60; i++) {  // a quarter: between the two limits it goes on
            t.s.news.data_wait_ms = who ? 1 : 250;
            does(&t.rank[1], who && i % 4 == 0 ? "wait for data" : "forward");
            go_on(&t, 1);
        }
        assert_int_equal(t.count, 1);
        t.s.news.data_wait_ms = 1, does(&t.rank[1], "forward");
        go_on(&t, 31);
        TOLD(&t, 1, ALARM_READER, false, who, "keeps up");
        end(&t);
    }
}

static void waits_that_are_no_alarm(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    for (int i = 0; i < 20; i++) {  // the first ten seconds of every minute
        t.s.news.data_wait_ms = 900;
        go_on(&t, 9);
        t.s.news.data_wait_ms = 1;
        go_on(&t, 51);
    }
    none_told(&t);
    t.s.news.data_wait_ms = 280;
    go_on(&t, 300);
    none_told(&t);
    t.s.news.data_wait_ms = 900, t.rank[0].read_p99_ms = 9;  // the thread that reads was not let run
    go_on(&t, 300);
    none_told(&t);
    // nor for seconds, where others have the processors
    t.s.news.data_wait_ms = 1900, t.rank[0].read_p99_ms = 0.02, t.rank[0].starved = 0.6;
    go_on(&t, 300);
    none_told(&t);
    t.rank[0].starved = NAN, t.s.news.data_wait_ms = NAN;
    go_on(&t, 60);
    t.rank[0].read_p99_ms = 500;
    go_on(&t, 300);
    none_told(&t);
    for (int k = 0; k < RANKS; k++) t.rank[k].phase = PHASE_EVALUATING, does(&t.rank[k], "wait for data");
    stand_still(&t, 300);
    none_told(&t);
    end(&t);
}

static void reads_that_are_tried_again(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    t.rank[2].read_retries = 100;  // before anyone looked
    go_on(&t, 60);
    for (int i = 0; i < 20; i++) {  // one a minute
        t.rank[2].read_retries++;
        go_on(&t, 60);
    }
    none_told(&t);
    for (int i = 0; i < 5; i++) {
        t.rank[2].read_retries++;
        go_on(&t, 3);
    }
    TOLD(&t, 0, ALARM_READER, true, 2, "5 reads were tried again");
    go_on(&t, 26);
    assert_int_equal(t.count, 1);
    go_on(&t, 10);
    TOLD(&t, 1, ALARM_READER, false, 2, "keeps up");
    end(&t);
}

// A few reads of some seconds each are less than one of a hundred, and all that one waits for.
static void a_loader_that_stalls(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    go_on(&t, 60);
    t.rank[1].read_p99_ms = 0.1;
    for (int i = 0; i < 8; i++) {
        does(&t.rank[1], "wait for data"), t.rank[1].what_s = 0;
        stand_still(&t, 3);
        does(&t.rank[1], "forward");
        go_on(&t, 1);
    }
    TOLD(&t, 0, ALARM_READER, true, 1, "waiting for data");
    assert_int_equal(t.count, 1);
    end(&t);
}

// --- heat ------------------------------------------------------------------------------------------------------------

static void a_hot_device(void **state) {
    (void)state;
    static const struct {
        unsigned bits;
        const char *word;
    } cases[] = {{LIMITED_HEAT, "limited by heat"},
                 {LIMITED_BRAKE, "limited by brake"},
                 {LIMITED_HARDWARE | LIMITED_POWER, "limited by hardware"}};
    for (int c = 0; c < 3; c++) {
        story t;
        begin(&t, watch_limits_default(), 1);
        gpus(&t);
        go_on(&t, 100);
        t.rank[1].sensors.limited = cases[c].bits;
        t.rank[1].sensors.mhz = 1200;
        go_on(&t, 29);
        none_told(&t);
        go_on(&t, 1);
        TOLD(&t, 0, ALARM_THROTTLED, true, 1, "rank 1 (10.0.0.2), GPU 0000:51:00.0", cases[c].word, "1200 MHz, median",
             "60 C", "500 W", "nvidia-smi");
        for (int i = 0; i < 60; i++) {  // it flickers
            t.rank[1].sensors.limited = i % 3 ? cases[c].bits : 0;
            go_on(&t, 1);
        }
        assert_int_equal(t.count, 1);
        t.rank[1].sensors.limited = LIMITED_POWER, t.rank[1].sensors.mhz = 1980;
        go_on(&t, 31);
        TOLD(&t, 1, ALARM_THROTTLED, false, 1, "no longer limited");
        end(&t);
    }
}

static void limits_that_are_normal(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    gpus(&t);
    for (int i = 0; i < 2000; i++) {
        for (int k = 0; k < RANKS; k++) {
            device_sensors *d = &t.rank[k].sensors;
            d->limited = LIMITED_POWER | (i % 5 == k ? LIMITED_HEAT : 0);  // heat now and then
            d->mhz = 1980 - 20 * (i % 16);
            d->watts = i % 7 ? 500 : 200;
            t.rank[k].low_watts_s = i % 7 ? 0 : 1;
        }
        go_on(&t, 1);
    }
    none_told(&t);
    for (int k = 0; k < RANKS; k++) {  // nothing to do: clocks and watts go down by themselves
        t.rank[k].utilisation = 0.3, t.rank[k].sensors.mhz = 345, t.rank[k].sensors.watts = 90,
        t.rank[k].low_watts_s = 100;
        t.rank[k].sensors.limited = LIMITED_UNKNOWN;
    }
    go_on(&t, 200);
    for (int k = 0; k < RANKS; k++) t.rank[k].utilisation = 1, t.rank[k].sensors.mhz = 1980;  // spinning, for others
    go_on(&t, 200);
    none_told(&t);
    end(&t);
}

static void a_slow_clock(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    gpus(&t);
    go_on(&t, 30);
    t.rank[0].sensors.mhz = 900;  // too early to know what is usual
    go_on(&t, 25);
    t.rank[0].sensors.mhz = 1980;
    go_on(&t, 100);
    none_told(&t);
    t.rank[0].sensors.mhz = 1300;
    go_on(&t, 30);
    TOLD(&t, 0, ALARM_THROTTLED, true, 0, "slower than usual", "1300 MHz, median 19");
    t.rank[0].sensors.mhz = 1900;
    go_on(&t, 31);
    TOLD(&t, 1, ALARM_THROTTLED, false, 0, "no longer limited");
    end(&t);
    begin(&t, watch_limits_default(), 1);  // alone, its watts tell
    gpus(&t);
    t.s.world = 1;
    t.s.locals = 1;
    t.rank[0].sensors.mhz = NAN;
    go_on(&t, 100);
    t.rank[0].sensors.watts = 150;
    for (int i = 0; i < 41; i++) t.rank[0].low_watts_s++, go_on(&t, 1);
    TOLD(&t, 0, ALARM_THROTTLED, true, 0, "150 W, median 510 W");
    end(&t);
}

// --- the disk --------------------------------------------------------------------------------------------------------

static void spend(story *t, int seconds, int64_t per_s) {
    for (int i = 0; i < seconds; i++) {
        t->s.disk_free -= per_s;
        go_on(t, 1);
    }
}

static void a_disk_that_fills(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    go_on(&t, 30);
    spend(&t, 590, 5000000);  // 400 GB at 5 MB/s: 22 hours
    none_told(&t);
    spend(&t, 3600, 5000000);
    assert_int_equal(t.count, 1);
    TOLD(&t, 0, ALARM_DISK, true, -1, "10.0.0.2: the run's disk has 39", "GB free of 500 GB",
         "GB less each hour: full in 2", "Next: make room");
    go_on(&t, 3 * 3600);
    TOLD(&t, 1, ALARM_DISK, false, -1, "there is room");
    end(&t);
    begin(&t, watch_limits_default(), 1);
    spend(&t, 8 * 3600, 3000000);  // 37 hours at first, 30 at last
    none_told(&t);
    t.s.disk_free -= 50000000000;  // one large file: no trend, and it fits
    spend(&t, 600, 0);
    none_told(&t);
    end(&t);
}

static void a_disk_that_is_full(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    go_on(&t, 10);
    t.s.disk_free = 900000000;
    go_on(&t, 1);
    TOLD(&t, 0, ALARM_DISK, true, -1, "900 MB free of 500 GB");
    t.s.disk_free = 1900000000;
    go_on(&t, 10);
    assert_int_equal(t.count, 1);
    t.s.disk_free = 2100000000;
    go_on(&t, 10);
    TOLD(&t, 1, ALARM_DISK, false, -1, "there is room");
    end(&t);
    begin(&t, watch_limits_default(), 1);  // a small disk has little free, and that is enough
    t.s.disk_total = 100000000, t.s.disk_free = 50000000;
    go_on(&t, 1000);
    none_told(&t);
    t.s.disk_free = 1900000;
    go_on(&t, 1);
    assert_int_equal(t.count, 1);
    end(&t);
    begin(&t, watch_limits_default(), 1);  // not known
    t.s.disk_free = t.s.disk_total = -1;
    go_on(&t, 1000);
    none_told(&t);
    end(&t);
}

// A save of 20 s that takes `bytes`, and gives `freed` back at its end.
static void save(story *t, int64_t bytes, int64_t freed) {
    for (int i = 0; i < 20; i++) {
        for (int k = 0; k < RANKS; k++) t->rank[k].phase = PHASE_SAVING;
        t->s.disk_free -= bytes / 20;
        if (i == 19) t->s.disk_free += freed;
        stand_still(t, 1);
    }
    for (int k = 0; k < RANKS; k++) t->rank[k].phase = PHASE_STEPPING;
}

static void checkpoints_come_and_go(void **state) {
    (void)state;
    watch_limits l = watch_limits_default();
    story t;
    begin(&t, l, 1);
    for (int n = 0; n < 60; n++) {  // the first three replace none
        go_on(&t, 300);
        save(&t, 40000000000, n < 3 ? 0 : 40000000000);
    }
    none_told(&t);
    t.s.disk_free = 41000000000;  // the next one will not fit
    go_on(&t, 1);
    TOLD(&t, 0, ALARM_DISK, true, -1, "a checkpoint takes 38 GB");
    end(&t);
    begin(&t, l, 1);  // they are not removed
    int saved = 0;
    while (t.count == 0 && saved < 20) {
        go_on(&t, 1800);
        save(&t, 10000000000, 0);
        saved++;
    }
    assert_in_range(saved, 5, 6);
    TOLD(&t, 0, ALARM_DISK, true, -1, "full in 1");
    end(&t);
}

// --- ordinary runs ---------------------------------------------------------------------------------------------------

static uint32_t dice(uint32_t *seed, uint32_t sides) {
    *seed = *seed * 1664525 + 1013904223;
    return (*seed >> 8) % sides;
}

// Half an hour to hours of a run with all that is ordinary in it, seen once a second.
static void ordinary(story *t, uint32_t seed) {
    static const char *const acts[] = {
        "forward", "backward", "wait for communication", "update", "share losses and norms", "wait for data"};
    double step_s = 0.05 * (1 + dice(&seed, 100)), left = 0;  // up to 5 s, and up to ten times as long
    bool gpu = dice(&seed, 2);
    begin(t, watch_limits_default(), 1 + (int)dice(&seed, 2));
    if (gpu) gpus(t);
    t->s.news.p99_ns = 0;
    t->s.ready = false;
    for (int k = 0; k < RANKS; k++) t->rank[k].phase = PHASE_STARTING;
    stand_still(t, (int)dice(&seed, 400));  // a slow start
    t->s.ready = true;
    for (int k = 0; k < RANKS; k++) t->rank[k].phase = PHASE_STEPPING;
    stand_still(t, (int)dice(&seed, 100));  // and a slow first step
    for (int i = 0, looks = 3600 + (int)dice(&seed, 3600), saves = 0; i < looks; i++) {
        for (left -= 1; left <= 0; left += step_s * (1 + (dice(&seed, 20) == 0 ? 9 : dice(&seed, 3)))) steps(t, 1);
        t->s.news.p99_ns = (int64_t)(1e10 * step_s);
        t->s.news.data_wait_ms = dice(&seed, 200);
        for (int k = 0; k < RANKS; k++) {
            watch_rank *r = &t->rank[k];
            does(r, acts[dice(&seed, 30) ? dice(&seed, 5) : 5]);
            r->process = "RRSSSD"[dice(&seed, 6)];
            r->cpu = 0.01 * dice(&seed, 100);
            if (!gpu) continue;
            r->sensors.watts = 80 + dice(&seed, 500);
            r->low_watts_s = dice(&seed, 8);
            r->sensors.mhz = 1500 + dice(&seed, 500);
            r->sensors.limited = dice(&seed, 4) ? LIMITED_POWER : dice(&seed, 3) ? 0 : LIMITED_HEAT;
        }
        t->rank[dice(&seed, RANKS)].read_retries += dice(&seed, 400) == 0;
        t->s.disk_free -= dice(&seed, 200000);
        look(t);
        for (int k = 0; k < RANKS; k++) t->rank[k].sensors.limited &= ~(unsigned)LIMITED_HEAT;
        if (dice(&seed, 300) == 0) save(t, 10000000000, saves++ < 3 ? 0 : 10000000000);
        if (dice(&seed, 300) == 0) {
            board_phase p = dice(&seed, 2) ? PHASE_EVALUATING : PHASE_SAMPLING;
            for (int k = 0; k < RANKS; k++) t->rank[k].phase = p;
            stand_still(t, (int)dice(&seed, 200));
            for (int k = 0; k < RANKS; k++) t->rank[k].phase = PHASE_STEPPING;
        }
        if (t->count)
            fail_msg("run of seed %u, look %d: %s: %s", seed, i, alarm_event(t->told[0].kind, t->told[0].began),
                     t->told[0].text);
    }
    none_told(t);
    end(t);
}

static void ordinary_runs_are_quiet(void **state) {
    (void)state;
    static story t;
    for (uint32_t seed = 1; seed <= 40; seed++) ordinary(&t, seed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_loader),
        cmocka_unit_test(waits_that_are_no_alarm),
        cmocka_unit_test(reads_that_are_tried_again),
        cmocka_unit_test(a_loader_that_stalls),
        cmocka_unit_test(a_hot_device),
        cmocka_unit_test(limits_that_are_normal),
        cmocka_unit_test(a_slow_clock),
        cmocka_unit_test(a_disk_that_fills),
        cmocka_unit_test(a_disk_that_is_full),
        cmocka_unit_test(checkpoints_come_and_go),
        cmocka_unit_test(ordinary_runs_are_quiet),
    };
    return cmocka_run_group_tests_name("slow", tests, NULL, NULL);
}
