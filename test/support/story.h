// test/support/story.h: a node as its watcher sees it, told second by second, for tests of alarms: what a script
// changes is in `s` and `rank`, and what the alarms said comes into `told`.
#ifndef TEST_SUPPORT_STORY_H
#define TEST_SUPPORT_STORY_H

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

static inline watch_rank plain_rank(int k) {
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

static inline void begin(story *t, watch_limits l, int nodes) {
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

static inline void end(story *t) { alarms_close(t->a); }

static inline void gpus(story *t) {
    for (int k = 0; k < RANKS; k++) {
        watch_rank *r = &t->rank[k];
        snprintf(r->device, sizeof r->device, "0000:%d1:00.0", 4 + k);
        r->sensors = (device_sensors){.watts = 500, .celsius = 60, .mhz = 1980, .joules = NAN};
        r->utilisation = 1;
        r->median_watts = 510;
    }
}

// One second more. How old operations are, the script says.
static inline void look(story *t) {
    t->s.time += 1;
    t->s.monotonic += 1;
    alarms_judge(t->a, &t->s, &t->now);
    for (int i = 0; i < t->now.count && t->count < NEWS; i++) t->told[t->count++] = t->now.change[i];
    for (int i = 0; i < t->s.alarms; i++)
        assert_true(strlen(t->s.alarm[i].text) > 10 && t->s.alarm[i].since <= t->s.time);
}

static inline void steps(story *t, int64_t n) {
    t->s.step = t->s.news.step += n;
    for (int k = 0; k < RANKS; k++) t->rank[k].step = t->s.step + 1;
}

static inline void go_on(story *t, int seconds) {
    for (int i = 0; i < seconds; i++) {
        steps(t, 1);
        look(t);
    }
}

// What a rank is at, and whether it waits there.
static inline void does(watch_rank *r, const char *what) {
    static const struct {
        const char *what;
        board_wait waits_for;
    } known[] = {{"wait for data", WAIT_DATA},
                 {"wait for the step's end", WAIT_DEVICE},
                 {"wait for communication", WAIT_RANKS},
                 {"share losses and norms", WAIT_RANKS}};
    r->what = what, r->waits_for = WAIT_NONE;
    for (size_t i = 0; what && i < sizeof known / sizeof *known; i++)
        if (strcmp(what, known[i].what) == 0) r->waits_for = known[i].waits_for;
}

// Nothing is finished for so long.
static inline void stand_still(story *t, int seconds) {
    for (int i = 0; i < seconds; i++) {
        for (int k = 0; k < RANKS; k++) t->rank[k].what_s += 1;
        look(t);
    }
}

static inline void none_told(const story *t) {
    if (t->count)
        fail_msg("told after %.0f s: %s: %s", t->s.monotonic - 500, alarm_event(t->told[0].kind, t->told[0].began),
                 t->told[0].text);
    assert_int_equal(t->s.alarms, 0);
}

static inline const watch_alarm *lasting(const story *t, alarm_kind kind) {
    for (int i = 0; i < t->s.alarms; i++)
        if (t->s.alarm[i].kind == kind) return &t->s.alarm[i];
    return NULL;
}

// News k is this, and names all of the words, up to a NULL.
static inline void told(const story *t, int k, alarm_kind kind, bool began, int rank, const char *const words[]) {
    if (t->count <= k) fail_msg("%d news, expected %s", t->count, alarm_event(kind, began));
    const alarm_change *c = &t->told[k];
    if (c->kind != kind || c->began != began || c->rank != rank)
        fail_msg("news %d is %s of rank %d (%s), expected %s of rank %d", k, alarm_event(c->kind, c->began), c->rank,
                 c->text, alarm_event(kind, began), rank);
    for (; *words; words++)
        if (!strstr(c->text, *words)) fail_msg("\"%s\" does not say \"%s\"", c->text, *words);
}
#define TOLD(t, k, kind, began, rank, ...) told(t, k, kind, began, rank, (const char *const[]){__VA_ARGS__, NULL})

// The others do, in communication; for_rank -1: all of them.
static inline void others_wait(story *t, int for_rank) {
    for (int k = 0; k < RANKS; k++)
        if (k != for_rank)
            does(&t->rank[k], "wait for communication"), t->rank[k].number = -1, t->rank[k].cpu = 0.01,
                                                         t->rank[k].process = 'S';
}

#endif
