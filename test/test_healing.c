// test/test_healing.c: what a supervisor decides when ranks are lost: rows of facts and the decision that follows, and
// thousands of seeded histories in which a world that can be opened again is, and none is opened for ever.
#include "trainer/node/healing.h"

#include "base/philox.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 4 };
static int exited(err_t code) { return (int)code << 8; }

static healing *whole(void) {
    healing *h = healing_new(SLOTS);
    assert_non_null(h);
    healing_began(h, 10);
    return h;
}

static void expect(const healing *h, double now, healing_kind kind) {
    healing_choice x = healing_choose(h, now);
    if (x.kind != kind) fail_msg("at %g: %d, expected %d (%s)", now, x.kind, kind, x.why);
}

static void expect_end(const healing *h, double now, err_t code, int slot, const char *why) {
    healing_choice x = healing_choose(h, now);
    expect(h, now, HEAL_END);
    assert_int_equal(x.code, code);
    assert_int_equal(x.slot, slot);
    if (strncmp(x.why, why, strlen(why)) != 0 || (!*why && *x.why)) fail_msg("\"%s\", expected \"%s\"", x.why, why);
}

static void leave_all(healing *h, int but, double now) {
    for (int i = 0; i < SLOTS; i++)
        if (i != but) healing_left(h, i, now);
}

static void all_are_waited_for(void **state) {
    (void)state;
    healing *h = whole();
    expect(h, 1, HEAL_NOTHING);
    healing_ended(h, 2, SIGKILL, 5);
    expect(h, 5, HEAL_WAIT);
    healing_left(h, 0, 5.1);
    healing_left(h, 3, 5.2);
    expect(h, 9.9, HEAL_WAIT);
    assert_true(healing_choose(h, 6).until == 10);  // 5 s after the first, not after the last
    expect(h, 10, HEAL_KILL);
    healing_killed(h, 1);
    assert_true(h->slot[1].hung);
    healing_ended(h, 1, SIGKILL, 10.1);
    expect(h, 10.1, HEAL_OPEN);
    assert_int_equal(h->first, 2);
    healing_opened(h);
    expect(h, 10.2, HEAL_NOTHING);
    assert_false(h->slot[1].hung);
    assert_int_equal(h->first, -1);
    free(h);
}

// Nobody ended: they had lost each other.
static void none_need_have_ended(void **state) {
    (void)state;
    healing *h = whole();
    leave_all(h, 3, 1);
    expect(h, 5.9, HEAL_WAIT);
    healing_left(h, 3, 5.9);
    expect(h, 5.9, HEAL_OPEN);
    free(h);
}

static void what_would_be_met_again_ends_the_run(void **state) {
    (void)state;
    static const err_t final[] = {ERR_USAGE, ERR_DATA, ERR_INTERNAL, ERR_AUTH, ERR_CONFIG};
    static const int again[] = {ERR_UNAVAILABLE << 8, ERR_IO << 8, SIGKILL, SIGSEGV};
    for (size_t i = 0; i < sizeof final / sizeof *final; i++) {
        healing *h = whole();
        healing_left(h, 0, 1);
        expect(h, 1, HEAL_WAIT);
        healing_ended(h, 1, exited(final[i]), 1);
        expect_end(h, 1, ERR_UNAVAILABLE, 1, "");  // at once: nobody has to leave before it
        free(h);
    }
    for (size_t i = 0; i < sizeof again / sizeof *again; i++) {
        healing *h = whole();
        healing_ended(h, 1, again[i], 1);
        leave_all(h, 1, 1);
        expect(h, 1, HEAL_OPEN);
        free(h);
    }
}

// Before all were ready once an error is for the person who waits; a kill is not.
static void a_start_that_fails_is_no_loss(void **state) {
    (void)state;
    healing *h = healing_new(SLOTS);
    healing_ended(h, 3, exited(ERR_UNAVAILABLE), 1);
    expect_end(h, 1, ERR_UNAVAILABLE, 3, "");
    free(h);
    h = healing_new(SLOTS);
    healing_ended(h, 3, SIGKILL, 1);
    leave_all(h, 3, 1);
    expect(h, 1, HEAL_OPEN);
    free(h);
}

// The run goes on without it as soon as its process has ended, however it does.
static void a_slow_one_goes(void **state) {
    (void)state;
    healing *h = whole();
    leave_all(h, -1, 1);
    expect(h, 1, HEAL_OPEN);
    healing_goes(h, 2, 1.5);
    assert_true(healing_choose(h, 2).until == 6.5);
    expect(h, 6.4, HEAL_WAIT);
    expect(h, 6.5, HEAL_KILL);
    healing_ended(h, 2, exited(ERR_OK), 2);  // and not the run with it
    expect(h, 2, HEAL_OPEN);
    assert_int_equal(healing_slots(h), 3);
    healing_opened(h);
    assert_true(h->slot[2].place == SLOT_RETIRED && h->slot[3].place == SLOT_IN);
    free(h);
    h = whole();
    leave_all(h, -1, 1), healing_goes(h, 0, 1), healing_killed(h, 0), healing_ended(h, 0, SIGKILL, 7);
    expect(h, 7, HEAL_OPEN);
    assert_int_equal(h->first, -1);
    free(h);
}

// The longest back-off counts, of any slot. The slot that was asked last to leave has its whole time.
static void the_longest_wait_counts(void **state) {
    (void)state;
    healing *h = whole();
    healing_ended(h, 0, SIGKILL, 1), leave_all(h, 0, 1);
    expect(h, 1, HEAL_OPEN);
    healing_opened(h);
    healing_ended(h, 0, SIGKILL, 2), healing_ended(h, 3, SIGKILL, 2.1);
    healing_left(h, 1, 2.1), healing_left(h, 2, 2.1);
    expect(h, 2.9, HEAL_WAIT);
    expect(h, 3, HEAL_OPEN);
    free(h);
    h = whole();
    leave_all(h, -1, 1), healing_goes(h, 0, 1), healing_goes(h, 2, 3);
    expect(h, 7.9, HEAL_WAIT);
    expect(h, 8, HEAL_KILL);
    free(h);
}

// Who ended well knew that nothing is left to be done.
static void a_run_that_is_over_is_not_opened(void **state) {
    (void)state;
    healing *h = whole();
    healing_ended(h, 1, SIGKILL, 1);
    healing_left(h, 2, 1);
    expect(h, 1, HEAL_WAIT);
    healing_ended(h, 0, exited(ERR_OK), 1);
    expect_end(h, 1, ERR_OK, -1, "");
    free(h);
    h = whole();
    healing_ended(h, 2, exited(ERR_INTERRUPTED), 1);
    expect_end(h, 1, ERR_INTERRUPTED, -1, "");
    free(h);
}

// Kills slot 1 in a world of its own, `gain` steps later. Returns after how many seconds a world may be opened, < 0: it
// ends.
static double kill_one(healing *h, double now, int64_t gain) {
    healing_step(h, h->high + gain);
    healing_ended(h, 1, SIGKILL, now);
    leave_all(h, 1, now);
    healing_choice x = healing_choose(h, now);
    if (x.kind == HEAL_END || x.kind == HEAL_RETIRE) return -1;
    double wait = x.kind == HEAL_WAIT ? x.until - now : 0;
    expect(h, now + wait, HEAL_OPEN);
    healing_opened(h);
    return wait;
}

static void starts_in_vain_are_fewer_and_fewer(void **state) {
    (void)state;
    healing *h = whole();
    for (int i = 1; i < 51; i++) assert_true(kill_one(h, i, 1) == 0);  // each after a new step
    assert_true(kill_one(h, 60, 0) == 1);
    assert_true(kill_one(h, 70, 0) == 3);
    assert_true(kill_one(h, 80, 0) == -1);
    // then the run goes on without its place, as long as there is another one
    expect(h, 80, HEAL_RETIRE);
    assert_int_equal(healing_choose(h, 80).slot, 1);
    healing_retired(h, 1);
    assert_int_equal(healing_slots(h), SLOTS - 1);
    expect(h, 80, HEAL_OPEN);
    healing_opened(h);
    assert_int_equal(h->slot[1].place, SLOT_RETIRED);
    assert_int_equal(h->slot[0].place, SLOT_IN);
    assert_int_equal(h->fruitless, 1);  // not 4: others may finish the step
    healing_retired(h, 0), healing_retired(h, 2);
    for (int i = 0; i < HEALING_DEATHS; i++) healing_ended(h, 3, SIGKILL, 90);
    expect_end(h, 90, ERR_UNAVAILABLE, 3, "4 times in a row, and no new step was finished between");
    free(h);
    h = whole();  // a step that had been finished before is no new one
    healing_step(h, 100);
    assert_true(kill_one(h, 1, 0) == 0);
    healing_step(h, 60);
    healing_step(h, 100);
    assert_true(kill_one(h, 2, 0) == 1);
    healing_step(h, 101);
    assert_true(kill_one(h, 3, 0) == 0);
    free(h);
}

static void worlds_in_vain_end(void **state) {
    (void)state;
    healing *h = whole();
    healing_opened(h);  // no rank has ended
    for (int i = 0; i < HEALING_FRUITLESS - 1; i++) {
        healing_ended(h, i, SIGKILL, 1 + i);  // another one each time
        leave_all(h, i, 1 + i);
        expect(h, 1 + i, HEAL_OPEN);
        healing_opened(h);
    }
    healing_ended(h, 0, SIGKILL, 9);
    leave_all(h, 0, 9);
    expect_end(h, 9, ERR_INTERNAL, 0, "4 worlds in a row ended before a new step was finished after step 10");
    healing_step(h, 11);
    healing_opened(h);
    assert_int_equal(h->fruitless, 0);
    free(h);
}

// --- the last world --------------------------------------------------------------------------------------------------

// A run that ends may have its state in memory alone: not before it began, and not where all agreed on an error.
static void who_ends_may_save_first(void **state) {
    (void)state;
    healing *h = whole();
    for (int i = 0; i < HEALING_FRUITLESS; i++) {
        healing_ended(h, i % 2, SIGKILL, 10 * i + 1);
        leave_all(h, i % 2, 10 * i + 1);
        expect(h, 10 * i + 9, HEAL_OPEN);
        healing_opened(h);
    }
    healing_ended(h, 2, SIGKILL, 100);
    leave_all(h, 2, 100);
    expect_end(h, 101, ERR_INTERNAL, 2, "4 worlds in a row ended before a new step was finished after step 10");
    assert_true(healing_choose(h, 101).saves);
    free(h);
    h = whole();
    healing_ended(h, 0, exited(ERR_DATA), 1);
    expect(h, 1, HEAL_END);
    assert_false(healing_choose(h, 1).saves);
    free(h);
    h = healing_new(1);
    healing_ended(h, 0, exited(ERR_CONFIG), 1);
    expect(h, 1, HEAL_END);
    assert_false(healing_choose(h, 1).saves);
    free(h);
}

// What would have ended the run does not keep it from the last world. When that is over, or does not begin, it ends.
static void the_last_world_is_opened_once(void **state) {
    (void)state;
    healing *h = whole();
    h->fruitless = HEALING_FRUITLESS;
    healing_ended(h, 1, SIGKILL, 1);
    leave_all(h, 1, 1);
    expect(h, 2, HEAL_END);
    healing_last(h, 2);
    assert_true(h->failed_at == 1 && !h->last);
    expect(h, 2, HEAL_OPEN);
    healing_opened(h);
    assert_true(h->last);
    expect(h, 1000, HEAL_NOTHING);  // saving takes as long as it takes
    healing_left(h, 0, 1000);
    expect_end(h, 1000, ERR_UNAVAILABLE, -1, "");
    free(h);
    // a rank that still computes has to leave, and is killed if it does not
    h = whole();
    healing_last(h, 5);
    expect(h, 9.9, HEAL_WAIT);
    expect(h, 10, HEAL_KILL);
    expect(h, 64.9, HEAL_KILL);
    expect_end(h, 65, ERR_UNAVAILABLE, -1, "");
    healing_ended(h, 3, exited(ERR_INTERRUPTED), 10);  // it knew that all have saved
    expect_end(h, 10, ERR_INTERRUPTED, -1, "");
    free(h);
}

// Of several nodes each starts again what it has lost, once: one that ends once more stays away.
static void the_last_world_of_a_node(void **state) {
    (void)state;
    healing *h = whole();
    h->several = true;
    healing_ended(h, 1, SIGKILL, 1);
    healing_ended(h, 2, SIGKILL, 1);
    leave_all(h, 1, 1), h->slot[2].place = SLOT_ENDED;
    healing_last(h, 2);
    expect(h, 2, HEAL_OPEN);
    healing_restarted(h, 1), healing_restarted(h, 2);
    assert_false(healing_ready(h));
    expect(h, 3, HEAL_WAIT);
    assert_true(healing_choose(h, 3).until == 62);
    healing_left(h, 2, 3);
    healing_ended(h, 1, exited(ERR_UNAVAILABLE), 3);
    assert_int_equal(h->slot[1].place, SLOT_RETIRED);
    assert_true(healing_ready(h) && healing_slots(h) == SLOTS - 1);
    expect(h, 61.9, HEAL_WAIT);
    expect_end(h, 62, ERR_UNAVAILABLE, -1, "");
    healing_opened(h);
    assert_int_equal(h->slot[1].place, SLOT_RETIRED);
    healing_ended(h, 0, SIGKILL, 70);
    expect_end(h, 70, ERR_UNAVAILABLE, -1, "");
    free(h);
}

// --- several nodes ---------------------------------------------------------------------------------------------------

static healing *of_several(void) {
    healing *h = whole();
    h->several = true;
    return h;
}

static void expect_places(const healing *h, bool inside, bool ready) {
    assert_int_equal(healing_inside(h), inside);
    assert_int_equal(healing_ready(h), ready);
}

// Another node has lost a rank: none of this one has ended, so nothing is started, and the next world comes with a
// record.
static void nothing_is_opened_without_one_that_ended(void **state) {
    (void)state;
    healing *h = of_several();
    expect_places(h, true, false);
    for (int i = 0; i < SLOTS; i++) {
        expect_places(h, true, false);
        healing_left(h, i, 1);
    }
    expect_places(h, false, true);
    expect(h, 1, HEAL_NOTHING);
    expect(h, 1000, HEAL_NOTHING);
    healing_opened(h);
    expect_places(h, true, false);
    assert_true(h->failed_at == 0);
    free(h);
}

// One that ended is started again once the others are out; then all wait for the record.
static void who_ended_is_started_again(void **state) {
    (void)state;
    healing *h = of_several();
    healing_ended(h, 2, SIGKILL, 5);
    expect(h, 5, HEAL_WAIT);
    leave_all(h, 2, 5.2);
    expect_places(h, false, false);
    expect(h, 5.2, HEAL_OPEN);
    healing_restarted(h, 2);
    assert_int_equal(h->slot[2].place, SLOT_NEW);
    expect_places(h, false, false);
    expect(h, 6, HEAL_NOTHING);
    expect(h, 1000, HEAL_NOTHING);  // opening its device and data takes as long as it takes
    healing_left(h, 2, 7);
    expect_places(h, false, true);
    expect(h, 7, HEAL_NOTHING);
    assert_true(h->failed_at == 5 && h->out_at == 5.2);  // that a new one is ready is no part of the loss
    healing_opened(h);
    expect_places(h, true, false);
    expect(h, 8, HEAL_NOTHING);
    free(h);
}

// Killed while it opens its data: once more, later each time, and not for ever. The others wait for a world without it.
static void who_dies_before_it_waits_is_started_again(void **state) {
    (void)state;
    static const double pause[] = {0, 1, 3};
    healing *h = of_several();
    leave_all(h, 1, 1);
    for (int i = 0; i < 3; i++) {
        double now = 10 * (i + 1);
        healing_ended(h, 1, SIGKILL, now);
        if (pause[i] > 0) {
            expect(h, now + pause[i] - 0.01, HEAL_WAIT);
            assert_true(healing_choose(h, now).until == now + pause[i]);
        }
        expect(h, now + pause[i], HEAL_OPEN);
        healing_restarted(h, 1);
    }
    healing_ended(h, 1, SIGKILL, 40);
    expect(h, 40, HEAL_RETIRE);
    assert_int_equal(healing_choose(h, 40).slot, 1);
    expect_places(h, false, false);
    healing_retired(h, 1);
    expect_places(h, false, true);
    expect(h, 41, HEAL_NOTHING);
    healing_opened(h);
    healing_waits(h, 0);
    assert_int_equal(h->slot[1].place, SLOT_RETIRED);
    expect_places(h, true, false);
    free(h);
}

// The council has ended the world: who does not leave is killed after 5 s, and then started again.
static void over_is_waited_for_five_seconds(void **state) {
    (void)state;
    healing *h = of_several();
    healing_over(h, 20);
    expect(h, 20, HEAL_WAIT);
    assert_true(healing_choose(h, 21).until == 25);
    for (int i = 0; i < SLOTS - 1; i++) healing_left(h, i, 21);
    healing_over(h, 22);  // said again: the time goes on
    expect(h, 24.9, HEAL_WAIT);
    expect(h, 25, HEAL_KILL);
    healing_killed(h, SLOTS - 1);
    healing_ended(h, SLOTS - 1, SIGKILL, 25.1);
    expect(h, 25.1, HEAL_OPEN);
    healing_restarted(h, SLOTS - 1);
    assert_false(h->slot[SLOTS - 1].hung);
    free(h);
}

// A rank had failed before: its time counts.
static void over_after_a_loss_gives_no_more_time(void **state) {
    (void)state;
    healing *h = of_several();
    healing_left(h, 0, 20);
    healing_over(h, 24);
    assert_true(h->failed_at == 20 && h->out_at == 20);
    expect(h, 24.9, HEAL_WAIT);
    expect(h, 25, HEAL_KILL);
    free(h);
}

// The next world has no place for some or all of them; they wait, whatever becomes of the others.
static void ranks_without_a_place_wait(void **state) {
    (void)state;
    healing *h = of_several();
    healing_over(h, 1);
    leave_all(h, -1, 1);
    healing_opened(h);
    healing_waits(h, 2), healing_waits(h, 3);
    expect_places(h, true, false);
    expect(h, 9, HEAL_NOTHING);
    healing_over(h, 20);
    expect(h, 24.9, HEAL_WAIT);
    healing_left(h, 0, 21), healing_left(h, 1, 21);
    expect_places(h, false, true);
    expect(h, 30, HEAL_NOTHING);
    healing_opened(h);
    for (int i = 0; i < SLOTS; i++) healing_waits(h, i);
    expect_places(h, false, true);
    expect(h, 40, HEAL_NOTHING);
    healing_ended(h, 3, SIGKILL, 50);
    expect(h, 50, HEAL_OPEN);
    free(h);
}

// How many worlds gained no step is the council's to count, and its record's: a node knows only its own.
static void worlds_in_vain_are_not_this_nodes(void **state) {
    (void)state;
    healing *h = of_several();
    for (int i = 0; i < 3 * HEALING_FRUITLESS; i++) {
        leave_all(h, -1, 1 + i);
        expect(h, 1 + i, HEAL_NOTHING);
        healing_opened(h);
    }
    assert_true(h->fruitless >= HEALING_FRUITLESS);
    leave_all(h, 0, 50);
    healing_ended(h, 0, SIGKILL, 50);
    expect(h, 50, HEAL_OPEN);
    free(h);
}

// --- histories -------------------------------------------------------------------------------------------------------

typedef struct dice {
    uint64_t seed, n;
} dice;

static uint32_t roll(dice *d, uint32_t sides) {
    uint32_t r[4];
    philox4x32(r, d->seed, (uint32_t)d->n++, SITE_FAULT, 0, 0);
    return r[0] % sides;
}

// A world is lost, by chance, in one of many ways; then the decisions are followed to the letter. Returns whether the
// run goes on.
static bool live(healing *h, dice *d, double *now) {
    bool gone[SLOTS] = {false};
    if (roll(d, 3)) healing_step(h, h->high + 1 + roll(d, 5));
    int left = 0;
    for (int i = 0; i < SLOTS; i++) gone[i] = h->slot[i].place == SLOT_RETIRED, left += !gone[i];
    while (left) {
        int i = (int)roll(d, SLOTS);
        if (!gone[i]) {
            gone[i] = true, left--;
            if (roll(d, 2)) healing_left(h, i, *now);
            else healing_ended(h, i, roll(d, 2) ? SIGKILL : exited(roll(d, 40) ? ERR_UNAVAILABLE : ERR_DATA), *now);
        }
        healing_choice x = healing_choose(h, *now);
        if (x.kind == HEAL_END) return false;
        if (left && x.kind == HEAL_OPEN) fail_msg("a world was opened while %d ranks were in the last one", left);
        if (!left) break;
        *now += 0.01 * roll(d, 200);
        if (healing_choose(h, *now).kind != HEAL_KILL) continue;
        for (int k = 0; k < SLOTS; k++)
            if (!gone[k]) gone[k] = true, left--, healing_killed(h, k), healing_ended(h, k, SIGKILL, *now);
    }
    for (int looks = 0;; looks++) {
        healing_choice x = healing_choose(h, *now);
        if (x.kind == HEAL_END) return false;
        if (x.kind == HEAL_OPEN) break;
        if (x.kind == HEAL_RETIRE) {
            healing_retired(h, x.slot);
            continue;
        }
        if (x.kind != HEAL_WAIT || x.until <= *now || looks > 3 + SLOTS)
            fail_msg("all are out, and %d follows", x.kind);
        *now = x.until;
    }
    healing_opened(h);
    return true;
}

static void histories_come_to_an_end(void **state) {
    (void)state;
    int ended = 0;
    for (uint64_t seed = 0; seed < 10000; seed++) {
        dice d = {seed, 0};
        double now = 1;
        healing *h = whole();
        int64_t high = h->high;
        for (int worlds = 0, vain = 0; live(h, &d, &now); worlds++) {
            vain = h->high > high ? 0 : vain + 1;
            high = h->high;
            if (vain > SLOTS * HEALING_FRUITLESS) fail_msg("seed %d: %d worlds in vain", (int)seed, vain);
            if (worlds == 60) break;
        }
        ended += healing_choose(h, now).kind == HEAL_END;
        free(h);
    }
    if (ended < 5000 || ended == 10000) fail_msg("%d of 10000 histories ended: they don't ask both", ended);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_waited_for),
        cmocka_unit_test(none_need_have_ended),
        cmocka_unit_test(a_slow_one_goes),
        cmocka_unit_test(who_ends_may_save_first),
        cmocka_unit_test(the_last_world_is_opened_once),
        cmocka_unit_test(the_last_world_of_a_node),
        cmocka_unit_test(the_longest_wait_counts),
        cmocka_unit_test(what_would_be_met_again_ends_the_run),
        cmocka_unit_test(a_start_that_fails_is_no_loss),
        cmocka_unit_test(a_run_that_is_over_is_not_opened),
        cmocka_unit_test(starts_in_vain_are_fewer_and_fewer),
        cmocka_unit_test(worlds_in_vain_end),
        cmocka_unit_test(nothing_is_opened_without_one_that_ended),
        cmocka_unit_test(who_ended_is_started_again),
        cmocka_unit_test(who_dies_before_it_waits_is_started_again),
        cmocka_unit_test(over_is_waited_for_five_seconds),
        cmocka_unit_test(over_after_a_loss_gives_no_more_time),
        cmocka_unit_test(ranks_without_a_place_wait),
        cmocka_unit_test(worlds_in_vain_are_not_this_nodes),
        cmocka_unit_test(histories_come_to_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
