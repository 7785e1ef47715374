// test/test_alarms.c: stories of a node, told second by second: each trouble is found within the time that the rule states,
// named rightly, told once, and over when it is over; and in ordinary runs, however uneven, nothing rings.
#include "trainer/watch/alarms.h"
#include "trainer/watch/suspect.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 4, NEWS = 64 };

// A node that steps, one step a second, until someone interferes.
typedef struct story {
    alarms *a;
    watch_state s;
    watch_rank rank[RANKS];
    alarm_news now;
    alarm_change told[NEWS];
    int count;
} story;

static watch_rank plain_rank(int k) {
    watch_rank r = {.place = {.local = k, .rank = k, .host = "10.0.0.2"},
                    .pid = 4000 + k,
                    .process = 'R',
                    .phase = PHASE_STEPPING,
                    .what = "forward",
                    .number = 3,
                    .step = 1,
                    .what_s = 0.1,
                    .beside_number = -1,
                    .cpu = 1,
                    .sensors = {NAN, NAN, NAN, NAN, LIMITED_UNKNOWN},
                    .utilisation = NAN,
                    .median_watts = NAN,
                    .read_p50_ms = 1,
                    .read_p99_ms = 20,
                    .read_bytes_per_s = 1e6};
    return r;
}

static void begin(story *t, watch_limits l, int nodes) {
    *t = (story){.s = {.time = 1.8e9,
                       .monotonic = 500,
                       .nodes = nodes,
                       .world = RANKS * nodes,
                       .locals = RANKS,
                       .ready = true,
                       .has_news = true,
                       .disk_free = 400000000000,
                       .disk_total = 500000000000}};
    t->s.rank = t->rank;
    for (int k = 0; k < RANKS; k++) t->rank[k] = plain_rank(k);
    t->s.news = (board_news){.steps = 1000, .ms = 1000, .data_wait_ms = 1, .p50_ns = 1000000000, .p99_ns = 1200000000};
    assert_int_equal(alarms_open(&t->a, &l, RANKS), ERR_OK);
}

static void end(story *t) { alarms_close(t->a); }

static void gpus(story *t) {
    for (int k = 0; k < RANKS; k++) {
        watch_rank *r = &t->rank[k];
        snprintf(r->device, sizeof r->device, "0000:%d1:00.0", 4 + k);
        r->sensors = (device_sensors){.watts = 500, .celsius = 60, .mhz = 1980, .joules = NAN};
        r->utilisation = 1;
        r->median_watts = 510;
    }
}

// One second more. How old operations are, the script says.
static void look(story *t) {
    t->s.time += 1;
    t->s.monotonic += 1;
    alarms_judge(t->a, &t->s, &t->now);
    for (int i = 0; i < t->now.count && t->count < NEWS; i++) t->told[t->count++] = t->now.change[i];
    for (int i = 0; i < t->s.alarms; i++) assert_true(strlen(t->s.alarm[i].text) > 10 && t->s.alarm[i].since <= t->s.time);
}

static void steps(story *t, int64_t n) {
    t->s.step = t->s.news.step += n;
    for (int k = 0; k < RANKS; k++) t->rank[k].step = t->s.step + 1;
}

static void go_on(story *t, int seconds) {
    for (int i = 0; i < seconds; i++) {
        steps(t, 1);
        look(t);
    }
}

// Nothing is finished for so long.
static void stand_still(story *t, int seconds) {
    for (int i = 0; i < seconds; i++) {
        for (int k = 0; k < RANKS; k++) t->rank[k].what_s += 1;
        look(t);
    }
}

static void none_told(const story *t) {
    if (t->count) fail_msg("told after %.0f s: %s: %s", t->s.monotonic - 500, alarm_event(t->told[0].kind, t->told[0].began), t->told[0].text);
    assert_int_equal(t->s.alarms, 0);
}

static const watch_alarm *lasting(const story *t, alarm_kind kind) {
    for (int i = 0; i < t->s.alarms; i++)
        if (t->s.alarm[i].kind == kind) return &t->s.alarm[i];
    return NULL;
}

// News k is this, and names all of the words, up to a NULL.
static void told(const story *t, int k, alarm_kind kind, bool began, int rank, const char *const words[]) {
    if (t->count <= k) fail_msg("%d news, expected %s", t->count, alarm_event(kind, began));
    const alarm_change *c = &t->told[k];
    if (c->kind != kind || c->began != began || c->rank != rank)
        fail_msg("news %d is %s of rank %d (%s), expected %s of rank %d", k, alarm_event(c->kind, c->began), c->rank, c->text,
                 alarm_event(kind, began), rank);
    for (; *words; words++)
        if (!strstr(c->text, *words)) fail_msg("\"%s\" does not say \"%s\"", c->text, *words);
}
#define TOLD(t, k, kind, began, rank, ...) told(t, k, kind, began, rank, (const char *const[]){__VA_ARGS__, NULL})

// --- hangs -----------------------------------------------------------------------------------------------------------------------

static void others_wait(story *t, int for_rank) {
    for (int k = 0; k < RANKS; k++)
        if (k != for_rank) t->rank[k].what = "wait for communication", t->rank[k].number = -1, t->rank[k].cpu = 0.01, t->rank[k].process = 'S';
}

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
    TOLD(&t, 0, ALARM_HANG, true, 2, "no step for 30 s after step 60", "rank 2 (10.0.0.2)", "CPU", "phase step", "forward 3 of step 61", "for 30 s",
         "computes nothing, or waits", "Next: gdb -p 4002");
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
    TOLD(&t, 0, ALARM_HANG, true, 3, "GPU 0000:71:00.0", "computes nothing, or waits", "70 W, median 510 W", "dmesg (Xid)");
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
    for (int k = 0; k < RANKS; k++) t.rank[k].phase = PHASE_STARTING, t.rank[k].step = 0, t.rank[k].what = NULL;
    stand_still(&t, 1000);
    t.s.step = t.s.news.step = t.s.news.began_step = 5000;
    t.s.ready = true;
    for (int k = 0; k < RANKS; k++) t.rank[k].phase = PHASE_STEPPING, t.rank[k].step = 5001, t.rank[k].what = "forward";
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
        case 1: r->process = 'D', r->what = "update", word = "for a disk", next = "/proc/4001/stack"; break;
        case 2: r->what = "wait for data", word = "it waits for data", next = "[data] train"; break;
        case 3: r->what = NULL, word = "it computes"; break;
        case 4: r->utilisation = 0, word = "its device has nothing to do"; break;
        case 5:
            for (int k = 0; k < RANKS; k++) t.rank[k].sensors.watts = k == 1 ? 500 : 100, t.rank[k].low_watts_s = k == 1 ? 0 : 20;
            for (int k = 0; k < RANKS; k++) t.rank[k].what = "wait for the step's end";
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
    begin(&t, watch_limits_default(), 1);  // those that are gone wait for nobody
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

static void operations(void **state) {
    (void)state;
    static const char *const wait[] = {"wait for communication",
                                       "wait until a bucket is reduced",
                                       "wait for activations of stage",
                                       "share losses and norms",
                                       "add up slices",
                                       "gather rows",
                                       "reduce gradients"};
    static const char *const own[] = {"wait for data", "wait for the step's end", "forward", "backward of inputs", "add up the gradient",
                                      "update",        "hash the weights"};
    for (size_t i = 0; i < sizeof wait / sizeof *wait; i++) assert_true(suspect_waits(wait[i]));
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) assert_false(suspect_waits(own[i]));
    assert_false(suspect_waits(NULL));
}

// --- processes -------------------------------------------------------------------------------------------------------------------

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

// The stop is what took long, not the reading in which it came; also at the look right after it.
static void stopped_while_it_waits_for_data(void **state) {
    (void)state;
    story t;
    begin(&t, watch_limits_default(), 1);
    go_on(&t, 40);
    t.rank[1].process = 'T', t.rank[1].what = "wait for data", t.rank[1].cpu = 0;
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

// --- the loader --------------------------------------------------------------------------------------------------------------------

static void a_slow_loader(void **state) {
    (void)state;
    for (int who = 0; who < 2; who++) {  // rank 0 says how long it waited; of rank 1 there are looks
        story t;
        begin(&t, watch_limits_default(), 1);
        go_on(&t, 100);
        int wait = 0;
        while (t.count == 0 && wait < 60) {
            if (who == 0) t.s.news.data_wait_ms = 500;
            else t.rank[1].what = wait % 2 ? "forward" : "wait for data";
            t.rank[who].read_p50_ms = 450, t.rank[who].read_p99_ms = 900;
            go_on(&t, 1);
            wait++;
        }
        assert_in_range(wait, 10, 31);
        TOLD(&t, 0, ALARM_READER, true, who, who ? "rank 1" : "rank 0", "were waiting for data", "450 ms (p50), 900 ms (p99)", "1.0 MB/s",
             "a step takes 1e+03 ms", "iostat");
        for (int i = 0; i < 60; i++) {  // a quarter: between the two limits it goes on
            t.s.news.data_wait_ms = who ? 1 : 250;
            t.rank[1].what = who && i % 4 == 0 ? "wait for data" : "forward";
            go_on(&t, 1);
        }
        assert_int_equal(t.count, 1);
        t.s.news.data_wait_ms = 1, t.rank[1].what = "forward";
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
    t.s.news.data_wait_ms = NAN;
    go_on(&t, 60);
    t.rank[0].read_p99_ms = 500;
    go_on(&t, 300);
    none_told(&t);
    for (int k = 0; k < RANKS; k++) t.rank[k].phase = PHASE_EVALUATING, t.rank[k].what = "wait for data";
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
        t.rank[1].what = "wait for data", t.rank[1].what_s = 0;
        stand_still(&t, 3);
        t.rank[1].what = "forward";
        go_on(&t, 1);
    }
    TOLD(&t, 0, ALARM_READER, true, 1, "waiting for data");
    assert_int_equal(t.count, 1);
    end(&t);
}

// --- heat --------------------------------------------------------------------------------------------------------------------------

static void a_hot_device(void **state) {
    (void)state;
    static const struct {
        unsigned bits;
        const char *word;
    } cases[] = {{LIMITED_HEAT, "limited by heat"}, {LIMITED_BRAKE, "limited by brake"}, {LIMITED_HARDWARE | LIMITED_POWER, "limited by hardware"}};
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
        TOLD(&t, 0, ALARM_THROTTLED, true, 1, "rank 1 (10.0.0.2), GPU 0000:51:00.0", cases[c].word, "1200 MHz, median", "60 C", "500 W",
             "nvidia-smi");
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
        t.rank[k].utilisation = 0.3, t.rank[k].sensors.mhz = 345, t.rank[k].sensors.watts = 90, t.rank[k].low_watts_s = 100;
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

// --- the disk --------------------------------------------------------------------------------------------------------------------

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
    TOLD(&t, 0, ALARM_DISK, true, -1, "10.0.0.2: the run's disk has 39", "GB free of 500 GB", "GB less each hour: full in 2", "Next: make room");
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

// --- ordinary runs -----------------------------------------------------------------------------------------------------------------

static uint32_t dice(uint32_t *seed, uint32_t sides) {
    *seed = *seed * 1664525 + 1013904223;
    return (*seed >> 8) % sides;
}

// Half an hour to hours of a run with all that is ordinary in it, seen once a second.
static void ordinary(story *t, uint32_t seed) {
    static const char *const does[] = {"forward", "backward", "wait for communication", "update", "share losses and norms", "wait for data"};
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
            r->what = does[dice(&seed, 30) ? dice(&seed, 5) : 5];
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
        if (t->count) fail_msg("run of seed %u, look %d: %s: %s", seed, i, alarm_event(t->told[0].kind, t->told[0].began), t->told[0].text);
    }
    none_told(t);
    end(t);
}

static void ordinary_runs_are_quiet(void **state) {
    (void)state;
    static story t;
    for (uint32_t seed = 1; seed <= 40; seed++) ordinary(&t, seed);
}

// --- the frame ---------------------------------------------------------------------------------------------------------------------

// More troubles at once than there is room: all are told, each once, and the list has the gravest.
static void troubles_of_many(void **state) {
    (void)state;
    enum { MANY = 60 };
    watch_rank rank[MANY];
    watch_state s = {.time = 1e9, .nodes = 1, .world = MANY, .locals = MANY, .ready = true, .rank = rank, .disk_free = -1};
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
        for (int j = 0; j < k; j++) assert_string_not_equal(alarm_event((alarm_kind)k, true), alarm_event((alarm_kind)j, true));
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_computes_for_ever),
        cmocka_unit_test(slow_is_not_idle),
        cmocka_unit_test(the_limit_is_of_the_run),
        cmocka_unit_test(a_slow_start),
        cmocka_unit_test(no_step_is_expected),
        cmocka_unit_test(suspects),
        cmocka_unit_test(without_news),
        cmocka_unit_test(operations),
        cmocka_unit_test(a_stopped_process),
        cmocka_unit_test(stopped_while_it_waits_for_data),
        cmocka_unit_test(a_hang_soon_after_the_start),
        cmocka_unit_test(a_rank_that_is_gone),
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
        cmocka_unit_test(troubles_of_many),
        cmocka_unit_test(a_pause),
        cmocka_unit_test(names),
        cmocka_unit_test(long_names),
    };
    return cmocka_run_group_tests_name("alarms", tests, NULL, NULL);
}
