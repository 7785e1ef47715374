// test/test_council.c: each decision of the council by itself, with the reason that it gives.
#include "comm/team/council.h"
#include "test/support/council_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// --- enough ----------------------------------------------------------------------------------------------------------

static void two_majorities_share_a_node(void **state) {
    (void)state;
    council_record r = {.nodes = 5, .voters = first(5)};
    for (int n = 1; n <= 5; n++) {
        r.voters = first(n);
        for (int w = 0; w < 1 << 2 * n; w++) {
            for (int j = 0; j < n; j++) r.weight[j] = w >> 2 * j & 3;
            for (uint64_t a = 0; a < 1u << n; a++) {
                node_set one = {{a}}, other = {{~a & ((1u << n) - 1)}};
                assert_false(council_enough(&one, &r) && council_enough(&other, &r));
            }
            assert_true(council_enough(&r.voters, &r));
        }
    }
}

static void rows_of_enough(void **state) {
    (void)state;
    static const struct {
        uint16_t weight[4];
        uint64_t voters, who;
        bool enough;
    } rows[] = {{{1, 1}, 3, 1, true},     {{1, 1}, 3, 2, false},       {{1, 1, 1}, 7, 6, true},
                {{1, 1, 1}, 7, 1, false}, {{1, 1, 1, 1}, 15, 9, true}, {{1, 1, 1, 1}, 15, 6, false},
                {{1, 3}, 3, 1, false},    {{1, 3}, 3, 2, true},        {{2, 1, 1}, 7, 1, true},
                {{9, 1, 1}, 6, 1, false}, {{9, 1, 1}, 6, 3, true},     {{1, 1, 1}, 0, 7, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        council_record r = {.nodes = 4, .voters = {{rows[i].voters}}};
        memcpy(r.weight, rows[i].weight, sizeof rows[i].weight);
        assert_int_equal(council_enough(&(node_set){{rows[i].who}}, &r), rows[i].enough);
    }
}

// --- lost ------------------------------------------------------------------------------------------------------------

static void lost_is(scene *s, uint64_t nodes, const char *why) {
    council_loss lost;
    council_lost(&lost, NOW, &s->r, &s->v, s->k.dead_s);
    assert_int_equal(lost.nodes.word[0], nodes);
    assert_int_equal(lost.any, why != NULL);
    if (why) assert_string_equal(lost.why, why);
}

static void who_is_lost(void **state) {
    (void)state;
    scene s;
    begin(&s, 3, 0), lost_is(&s, 0, NULL);
    silent(&s, 2, 2.1);
    lost_is(&s, 4, "node 2 has not been heard for 2.1 s, neither its council nor its ranks");
    silent(&s, 2, 1.9), lost_is(&s, 0, NULL);
    silent(&s, 2, 9), s.v.of[2].ranks_at = NOW - 1, lost_is(&s, 0, NULL);  // its council stands still
    silent(&s, 2, 9), s.v.of[2].at = NOW - 1, lost_is(&s, 0, NULL);        // its ranks load
    silent(&s, 2, 9), s.v.entered = NOW - 1, lost_is(&s, 0, NULL);         // the epoch has just begun
    begin(&s, 3, 0), silent(&s, 2, 9), s.r.members.word[0] = 6, s.r.life[0] = 1;
    lost_is(&s, 0, NULL);  // who is no member hears no ranks
    begin(&s, 3, 0), s.v.of[1].life = 7;
    lost_is(&s, 2, "node 1 has started anew: the life that record 4 names is over");
    begin(&s, 3, 0), s.v.of[1].says.failed = true;
    lost_is(&s, 0, "a rank of node 1 reports a failure");
    s.v.of[1].epoch = 3, lost_is(&s, 0, NULL);                      // in an epoch that is over
    s.v.of[1].epoch = 4, s.v.of[1].run[0]++, lost_is(&s, 0, NULL);  // of another run
    begin(&s, 3, 0), s.v.of[0].says.failed = true;
    lost_is(&s, 0, "a rank of node 0 reports a failure");
    begin(&s, 3, 0), s.v.of[1].life = 7, silent(&s, 1, 1), s.v.of[1].said_at = NOW - 9;
    lost_is(&s, 0, NULL);  // an old message proves nothing
}

// --- what follows ----------------------------------------------------------------------------------------------------

static void a_world_that_works_stays(void **state) {
    (void)state;
    scene s;
    begin(&s, 3, 1), is(&s, COUNCIL_STAY, "");
    assert_false(s.d.proposes);
    s.r.voters.word[0] = 3, s.v.sealed_at = NOW - 9.9, is(&s, COUNCIL_STAY, "");
    begin(&s, 3, 1), s.r.members.word[0] = 5, is(&s, COUNCIL_WAIT, "no member: waits to be taken in");
}

static void a_loss_is_healed(void **state) {
    (void)state;
    scene s;
    static const char why[] = "node 2 has not been heard for 2.1 s, neither its council nor its ranks";
    begin(&s, 3, 1), silent(&s, 2, 2.1);
    is(&s, COUNCIL_HEAL, why);
    const council_record *n = &s.d.next;
    assert_true(s.d.proposes && n->kind == DECREE_HEAL && n->k == 5 && n->epoch == 5);
    assert_int_equal(n->members.word[0], 3);
    assert_int_equal(n->voters.word[0], 7);
    assert_int_equal(n->high, 60);
    assert_int_equal(n->fruitless, 0);
    assert_int_equal(n->grid.data, 2);
    assert_int_equal(n->deal[0], 4);
    assert_int_equal(n->deal[1], 4);
    assert_int_equal(n->deal[2], 0);
    assert_memory_equal(n->run, s.r.run, COUNCIL_RUN);
    begin(&s, 3, 2), silent(&s, 0, 3), silent(&s, 1, 3);
    is(&s, COUNCIL_WAIT,
       "node 0 has not been heard for 3.0 s, neither its council nor its ranks; too few voters are heard: node 2");
    begin(&s, 3, 1), silent(&s, 0, 3), s.v.of[2].life = 7;  // which has no vote in its new life
    is(&s, COUNCIL_WAIT,
       "node 2 has started anew: the life that record 4 names is over; too few voters are heard: node 1");
    begin(&s, 3, 1), silent(&s, 2, 2.1), s.k.min_ranks = 3;
    is(&s, COUNCIL_WAIT,
       "node 2 has not been heard for 2.1 s, neither its council nor its ranks; what is left makes no world that fits");
}

static void a_rank_that_failed_keeps_its_node(void **state) {
    (void)state;
    scene s;
    begin(&s, 3, 1), s.v.of[2].says.failed = true, s.v.of[2].says.slots = 0;
    s.v.of[0].says.slots = 2;
    is(&s, COUNCIL_HEAL, "a rank of node 2 reports a failure");
    assert_int_equal(s.d.next.members.word[0], 7);
    assert_int_equal(s.d.next.ranks, 3);
    static const council_seat seats[] = {{0, 0}, {0, 1}, {1, 0}};
    assert_memory_equal(s.d.next.seat, seats, sizeof seats);
    assert_int_equal(s.d.next.slots[0], 2);
    assert_int_equal(s.d.next.weight[0], 1);  // votes change only with the voters
}

// The state is with 0 alone; the larger set, 1 and 2, would leave it behind.
static void the_state_is_not_left_behind(void **state) {
    (void)state;
    scene s;
    begin(&s, 3, 1), s.r.members.word[0] = 1, s.v.of[0].says.failed = true, s.v.of[2].says.slots = 5;
    cut(&s, 0, 2);
    assert_int_equal(next(&s), COUNCIL_HEAL);
    assert_int_equal(s.d.next.members.word[0], 3);
}

static void who_is_near(void **state) {
    (void)state;
    scene s;
    begin(&s, 3, 1), cut(&s, 1, 2);  // 2 does not hear 1
    assert_int_equal(council_near(&s.v, NOW, 2).word[0], 3);
    s.v.of[0].said_at = NOW - 2, assert_int_equal(council_near(&s.v, NOW, 2).word[0], 2);
}

static void a_new_life_is_named(void **state) {
    (void)state;
    scene s;
    begin(&s, 3, 1), s.v.of[2].life = 7, s.r.members.word[0] = 7;
    is(&s, COUNCIL_HEAL, "node 2 has started anew: the life that record 4 names is over");
    assert_int_equal(s.d.next.members.word[0], 3);
    assert_int_equal(s.d.next.life[2], ME_LIFE + 2);
    s.k.min_ranks = 3;  // nothing fits without it
    is(&s, COUNCIL_HEAL, "node 2 has started anew: the life that record 4 names is over");
    assert_int_equal(s.d.next.members.word[0], 7);
    assert_int_equal(s.d.next.life[2], 7);
    s.v.of[2].says.ready = false, assert_int_equal(next(&s), COUNCIL_WAIT);
    s.v.of[2].says.ready = s.v.of[2].says.leaving = true, assert_int_equal(next(&s), COUNCIL_WAIT);
}

static void fruitless_epochs_are_counted(void **state) {
    (void)state;
    scene s;
    begin(&s, 2, 0), s.r.high = 60, s.r.fruitless = 2, s.v.of[1].says.failed = true;
    next(&s), assert_int_equal(s.d.next.fruitless, 3);
    s.v.of[1].says.step = 61, next(&s), assert_int_equal(s.d.next.fruitless, 0);
    assert_int_equal(s.d.next.high, 61);
    s.v.of[1].run[0]++, s.v.of[0].says.failed = true, next(&s), s.v.of[1].run[0]--, s.v.of[0].says.failed = false;
    assert_int_equal(s.d.next.high, 60);  // another run's step is none of this one
    s.v.of[1].says.step = 60, s.v.of[0].says.began = s.v.of[1].says.began = false;
    next(&s), assert_int_equal(s.d.next.fruitless, 2);  // it has begun no step
    s.v.of[1].says.failed = false, s.v.of[0].says.leaving = s.v.of[1].says.began = true;
    assert_int_equal(next(&s), COUNCIL_TURN);  // which ends an epoch that has lost nothing
    assert_int_equal(s.d.next.fruitless, 2);
    s.v.of[1].says.failed = true, s.v.of[0].says.leaving = false, s.r.fruitless = 3;
    assert_int_equal(next(&s), COUNCIL_END);
    assert_string_equal(s.d.why, "4 epochs in a row ended at step 60: a step kills whoever computes it");
    assert_true(s.d.proposes && s.d.next.kind == DECREE_END && s.d.next.fruitless == 4 && s.d.next.epoch == 4);
    s.v.of[1].epoch = 3, next(&s), assert_int_equal(s.d.action, COUNCIL_STAY);  // of an epoch that is over
    s.r = s.d.next, s.r.kind = DECREE_END, snprintf(s.r.why, sizeof s.r.why, "why it ended");
    is(&s, COUNCIL_END, "why it ended");
    assert_int_equal(s.d.code, ERR_INTERNAL);
    assert_false(s.d.proposes);
}

// Nodes that are lost one right after the other: what is left has begun no step between, though the last report of one
// is still of the epoch before, in which it had.
static void a_step_of_an_epoch_that_is_over_is_not_begun(void **state) {
    (void)state;
    scene s;
    begin(&s, 3, 0), s.r.high = 60, s.r.fruitless = 3, s.v.of[0].says.began = false, silent(&s, 2, 3);
    s.v.of[1].epoch = 3, assert_int_equal(next(&s), COUNCIL_HEAL);
    assert_int_equal(s.d.next.fruitless, 3);
    s.v.of[1].epoch = 4, assert_int_equal(next(&s), COUNCIL_END);
}

static void joins(void **state) {
    (void)state;
    scene s;
    begin(&s, 3, 0), s.r.members.word[0] = s.r.voters.word[0] = 3;
    is(&s, COUNCIL_TURN, "joining: node 2");
    assert_int_equal(s.d.next.kind, DECREE_JOIN);
    assert_int_equal(s.d.next.members.word[0], 7);
    assert_int_equal(s.d.next.voters.word[0], 3);
    assert_int_equal(s.d.next.epoch, 5);
    s.v.entered = NOW - 10, s.v.sealed_at = NOW - 9, is(&s, COUNCIL_STAY, "");
    s.v.entered = NOW - 10.1, is(&s, COUNCIL_TURN, "joining: node 2");
    s.v.sealed_at = COUNCIL_NEVER, is(&s, COUNCIL_STAY, "");
    s.v.sealed_at = NOW - 9, cut(&s, 2, 1), is(&s, COUNCIL_STAY, "");  // 1 does not hear it
    begin(&s, 3, 0), s.r.members.word[0] = 3, s.r.voters.word[0] = 3, s.v.of[2].says.ready = false;
    is(&s, COUNCIL_STAY, "");
    s.v.of[2].says.ready = s.v.of[2].says.leaving = true, is(&s, COUNCIL_STAY, "");
    s.v.of[2].says.leaving = false, silent(&s, 1, 1), s.v.of[1].said_at = NOW - 3;
    is(&s, COUNCIL_STAY, "");  // not while a member's council is silent
    // other data would end the run for all, where ranks compare it
    begin(&s, 3, 0), s.r.members.word[0] = s.r.voters.word[0] = 3, s.v.of[0].says.data = 7, s.v.of[2].says.data = 8;
    is(&s, COUNCIL_STAY, "");
    s.v.of[2].says.data = 7, is(&s, COUNCIL_TURN, "joining: node 2");
    s.v.of[2].says.data = 0, is(&s, COUNCIL_TURN, "joining: node 2");
    begin(&s, 3, 2), s.r.members.word[0] = s.r.voters.word[0] = 3, s.v.of[0].says.data = 7, s.v.of[2].says.data = 8;
    is(&s, COUNCIL_WAIT, "no member: node 0, which trains, has other data: copy the same files to all nodes");
}

static void voters_settle(void **state) {
    (void)state;
    scene s;
    begin(&s, 3, 0), s.r.members.word[0] = 3, s.v.of[2].says.ready = false, s.v.of[1].says.slots = 3;
    s.r.slots[1] = 3, s.v.sealed_at = NOW - 12;
    is(&s, COUNCIL_SETTLE, "sealed for 12 s: the members vote from now on");
    const council_record *n = &s.d.next;
    assert_true(n->kind == DECREE_SETTLE && n->k == 5 && n->epoch == 4 && n->voters.word[0] == 3);
    assert_int_equal(n->weight[1], 3);
    assert_int_equal(n->high, 50);
    uint8_t fence[COUNCIL_FENCE], before[COUNCIL_FENCE];
    council_fence(fence, n), council_fence(before, &s.r);
    assert_memory_equal(fence, before, COUNCIL_FENCE);
    s.v.sealed_at = NOW - 10, is(&s, COUNCIL_STAY, "");
    s.v.sealed_at = NOW - 12, s.v.of[1].said_at = NOW - 2, is(&s, COUNCIL_STAY, "");
}

static void drains(void **state) {
    (void)state;
    scene s;
    begin(&s, 3, 0), s.v.of[0].says.leaving = true, s.v.of[2].says.slots = 2;
    is(&s, COUNCIL_TURN, "leaving: node 0");
    const council_record *n = &s.d.next;
    assert_true(n->kind == DECREE_DRAIN && n->members.word[0] == 6 && n->voters.word[0] == 6 && n->epoch == 5);
    assert_int_equal(n->weight[2], 2);
    assert_int_equal(n->ranks, 3);
    s.k.min_ranks = 4;
    is(&s, COUNCIL_STOP, "leaving: node 0; the rest does not fit: all save and stop");
    assert_true(s.d.proposes && s.d.next.kind == DECREE_STOP && s.d.next.epoch == 4 && s.d.next.members.word[0] == 7);
    s.k.min_ranks = 1, s.v.of[1].says.leaving = s.v.of[2].says.leaving = true;
    is(&s, COUNCIL_STOP, "leaving: nodes 0 1 2; the rest does not fit: all save and stop");
    begin(&s, 3, 0), s.v.of[0].says.leaving = true, s.v.of[1].said_at = NOW - 2;
    is(&s, COUNCIL_STAY, "");  // not before all members are heard
    begin(&s, 3, 0), s.v.of[0].says.leaving = s.v.of[1].says.failed = true;
    assert_int_equal(next(&s), COUNCIL_HEAL);  // first things first
    begin(&s, 3, 0), s.r.kind = DECREE_STOP, snprintf(s.r.why, sizeof s.r.why, "all leave");
    is(&s, COUNCIL_STOP, "all leave");
    assert_int_equal(s.d.code, ERR_INTERRUPTED);
}

// Its ranks can't come to the step at which all stop, and no record follows.
static void a_loss_while_all_stop_ends_who_is_out(void **state) {
    (void)state;
    scene s;
    begin(&s, 3, 0), s.r.kind = DECREE_STOP, snprintf(s.r.why, sizeof s.r.why, "all leave");
    s.v.of[1].says.failed = true, is(&s, COUNCIL_STOP, "all leave");  // its own ranks work, and may notice it or not
    s.v.of[0].says.state = COUNCIL_LEAVING;
    is(&s, COUNCIL_END, "a rank of node 1 reports a failure, while all were to save and stop");
    assert_true(s.d.code == ERR_INTERRUPTED && !s.d.proposes);
    s.v.of[0].says.state = COUNCIL_ENTERING;
    is(&s, COUNCIL_END, "a rank of node 1 reports a failure, while all were to save and stop");
    s.v.of[0].says.state = COUNCIL_ENDING, is(&s, COUNCIL_STOP, "all leave");
    s.v.of[0].says.state = COUNCIL_ENTERING, s.v.of[1].says.failed = false, is(&s, COUNCIL_STOP, "all leave");
    s.r.members.word[0] = 6, s.v.of[1].says.failed = true, is(&s, COUNCIL_STOP, "all leave");  // no member: as it is
}

static void a_slow_node_is_put_out_once(void **state) {
    (void)state;
    scene s;
    static const char why[] = "node 2 stays 3.4 times as slow as the others, so the run goes on without it";
    begin(&s, 3, 0), s.v.of[2].says.slow = 34;
    is(&s, COUNCIL_TURN, why);
    const council_record *n = &s.d.next;
    assert_true(n->kind == DECREE_EVICT && n->members.word[0] == 3 && n->voters.word[0] == 3 && n->epoch == 5);
    assert_int_equal(n->evicted.word[0], 4);
    s.r.evicted.word[0] = 4, is(&s, COUNCIL_STAY, "");  // it came back, and is slow again
    s.v.of[1].says.slow = 40, assert_int_equal(next(&s), COUNCIL_TURN);
    assert_int_equal(s.d.next.evicted.word[0], 6);
    s.r.evicted.word[0] = 0, s.v.of[1].says.slow = 0;
    s.v.of[1].said_at = NOW - 2, is(&s, COUNCIL_STAY, "");  // not before all members are heard
    begin(&s, 3, 0), s.v.of[2].says.slow = 34, s.k.min_ranks = 3;
    is(&s, COUNCIL_STAY, "");
    s.k.min_ranks = 1, s.k.fits[0] = 1 << 3, is(&s, COUNCIL_STAY, "");  // no narrower layout
    begin(&s, 1, 0), s.v.of[0].says.slow = 34, is(&s, COUNCIL_STAY, "");
    begin(&s, 3, 0), s.v.of[2].says.slow = 34, s.v.of[0].says.leaving = true;
    is(&s, COUNCIL_TURN, "leaving: node 0");  // a person first
    begin(&s, 3, 0), s.v.of[2].says.slow = 34, s.v.of[1].says.failed = true;
    assert_int_equal(next(&s), COUNCIL_HEAL);
}

static void the_leaver_goes(void **state) {
    (void)state;
    scene s;
    begin(&s, 3, 0), s.r.members.word[0] = s.r.voters.word[0] = 6, s.v.of[0].says.leaving = true, s.v.entered = NOW - 5;
    is(&s, COUNCIL_END, "has left: every member goes on without this node");
    assert_int_equal(s.d.code, ERR_OK);
    s.v.of[0].says.slow = 34;
    is(&s, COUNCIL_END, "was put out, since it stays slow: every member goes on without this node");
    s.v.of[0].says.slow = 0;
    s.v.of[2].k = 3, is(&s, COUNCIL_WAIT, "no member: waits to be taken in");
    s.v.of[2].k = 4, s.v.of[2].says.state = COUNCIL_ENTERING, is(&s, COUNCIL_WAIT, "no member: waits to be taken in");
    s.v.of[2].says.state = COUNCIL_WORKING, s.v.of[2].run[0]++;  // in another run
    is(&s, COUNCIL_WAIT, "no member: waits to be taken in");
    s.v.entered = NOW - 20, is(&s, COUNCIL_END, "has left: the others did not say in time that they go on");
    begin(&s, 3, 0), s.r.members.word[0] = 6, s.v.of[0].says.leaving = true, s.v.entered = NOW - 5;
    is(&s, COUNCIL_WAIT, "no member: waits to be taken in");  // it still votes
    s.v.of[1].says.state = s.v.of[2].says.state = COUNCIL_ENDING, is(&s, COUNCIL_END, "has left: the run is over");
    s.v.of[1].says.state = COUNCIL_WORKING, is(&s, COUNCIL_WAIT, "no member: waits to be taken in");
}

static void who_lost_the_others_at_the_end_ends_too(void **state) {
    (void)state;
    scene s;
    begin(&s, 2, 1), s.v.of[0].says.state = COUNCIL_ENDING, silent(&s, 0, 45);
    assert_int_equal(next(&s), COUNCIL_WAIT);  // its ranks may still be saving
    s.v.of[1].says.failed = true, is(&s, COUNCIL_END, "the others have ended the run, saved");
    assert_int_equal(s.d.code, ERR_OK);
    s.v.of[0].epoch--, assert_int_equal(next(&s), COUNCIL_WAIT);                      // another world
    s.v.of[0].epoch++, s.v.of[0].run[0]++, assert_int_equal(next(&s), COUNCIL_WAIT);  // another run's
    s.v.of[0].run[0]--, s.r.members.word[0] = 2, assert_int_not_equal(next(&s), COUNCIL_END);
}

static void ends(void **state) {
    (void)state;
    scene s;
    begin(&s, 2, 1), s.v.of[0].life = 7;
    is(&s, COUNCIL_END, "so many voters have started anew that no record can follow");
    assert_true(s.d.code == ERR_UNAVAILABLE && !s.d.proposes);
    begin(&s, 2, 0), s.v.of[1].life = 7;
    assert_int_equal(next(&s), COUNCIL_HEAL);  // half with the lowest
    begin(&s, 2, 1), silent(&s, 0, 45), s.v.worked_at = NOW - 41;
    is(&s, COUNCIL_END, "no world for 41 s: gives up");
    assert_true(s.d.code == ERR_UNAVAILABLE);
    s.v.worked_at = NOW - 40, assert_int_equal(next(&s), COUNCIL_WAIT);
    s.v.worked_at = NOW - 41, s.r.voters.word[0] = 1;
    // a node without a vote waits to be taken in for as long as it hears a member
    s.v.of[0].at = NOW - 39, assert_int_equal(next(&s), COUNCIL_WAIT);
    s.v.of[0].at = NOW - 45, is(&s, COUNCIL_END, "no member has been heard for 41 s: gives up");
    assert_true(s.d.code == ERR_UNAVAILABLE);
    s.v.worked_at = NOW - 40, assert_int_equal(next(&s), COUNCIL_WAIT);
    begin(&s, 3, 2), s.r.members.word[0] = s.r.voters.word[0] = 3;
    is(&s, COUNCIL_WAIT, "no member: waits to be taken in");
    s.v.worked_at = NOW - 9, s.v.of[0].says.state = s.v.of[1].says.state = COUNCIL_ENDING;
    silent(&s, 0, 2.1), silent(&s, 1, 3);
    is(&s, COUNCIL_END, "all members have ended the run, without this node");
    assert_true(s.d.code == ERR_OK);
    s.v.of[1].at = NOW - 1.9, assert_int_equal(next(&s), COUNCIL_WAIT);
    s.v.of[1].at = NOW - 3, s.v.of[1].says.state = COUNCIL_WORKING, assert_int_equal(next(&s), COUNCIL_WAIT);
    s.v.of[1].says.state = COUNCIL_ENDING, s.v.of[1].run[0]++, assert_int_equal(next(&s), COUNCIL_WAIT);
}

static void cold_start(void **state) {
    (void)state;
    scene s;
    begin(&s, 3, 0);
    for (int j = 0; j < 3; j++) s.v.of[j].has_record = false;
    epoch_next(&s.d, NOW, NULL, &s.v, &s.k);
    assert_string_equal(s.d.why, "all 3 nodes hear each other and none has a record: a run begins");
    const council_record *n = &s.d.next;
    assert_true(s.d.action == COUNCIL_FORM && n->k == 1 && n->epoch == 1 && n->kind == DECREE_FORM && n->ranks == 3);
    assert_true(n->members.word[0] == 7 && n->voters.word[0] == 7 && n->weight[2] == 1 && n->life[2] == ME_LIFE + 2);
    assert_memory_equal(n->run, s.k.run, COUNCIL_RUN);
    s.k.min_ranks = 4, epoch_next(&s.d, NOW, NULL, &s.v, &s.k);
    assert_string_equal(s.d.why, "the slots of all nodes make no world that fits");
    s.k.min_ranks = 1, cut(&s, 1, 2), epoch_next(&s.d, NOW, NULL, &s.v, &s.k);
    assert_string_equal(s.d.why, "node 2 does not hear all others, or is not heard by all");
    s.v.of[1].has_record = true, epoch_next(&s.d, NOW, NULL, &s.v, &s.k);
    assert_string_equal(s.d.why, "node 1 has a record: waits to be taken in");
    s.v.of[1].has_record = false, silent(&s, 1, 3), epoch_next(&s.d, NOW, NULL, &s.v, &s.k);
    assert_string_equal(s.d.why, "waits for node 1: a run begins with all nodes");
    assert_int_equal(s.d.action, COUNCIL_WAIT);
    s.v.worked_at = NOW - 41, epoch_next(&s.d, NOW, NULL, &s.v, &s.k);
    assert_true(s.d.action == COUNCIL_END && s.d.code == ERR_UNAVAILABLE && !s.d.proposes);
    assert_string_equal(s.d.why, "gives up after 41 s: waits for node 1: a run begins with all nodes");
    s.v.worked_at = NOW;
    s.v.of[0].says.leaving = true, epoch_next(&s.d, NOW, NULL, &s.v, &s.k);
    assert_true(s.d.action == COUNCIL_END && s.d.code == ERR_OK);
    begin(&s, 3, 1);
    for (int j = 0; j < 3; j++) s.v.of[j].has_record = false;
    epoch_next(&s.d, NOW, NULL, &s.v, &s.k);
    assert_string_equal(s.d.why, "node 0 forms the first record");
    assert_int_equal(s.d.action, COUNCIL_WAIT);
}

static void they_have_names(void **state) {
    (void)state;
    assert_string_equal(council_action_names[COUNCIL_HEAL], "heal");
    assert_string_equal(council_action_names[COUNCIL_END], "end");
    assert_string_equal(decree_names[DECREE_SETTLE], "settle");
    assert_string_equal(decree_names[DECREE_END], "end");
}

// --- the world to come -----------------------------------------------------------------------------------------------

static void widths(void **state) {
    (void)state;
    council_rules k = {.min_ranks = 4, .lanes = 8, .grid = {0, 2, 1, 1}, .fits = {(1 << 8) - 2}};
    static const int rows[][2] = {{0, 0}, {3, 0}, {4, 2}, {5, 2}, {15, 7}, {16, 7}, {100, 7}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) assert_int_equal(council_width(&k, rows[i][0]), rows[i][1]);
    k.fits[0] = 1 << 1 | 1 << 3;
    assert_int_equal(council_width(&k, 16), 3);
    assert_int_equal(council_width(&k, 4), 0);  // 2 would be below min_ranks
    k.fits[0] = ~0u, assert_int_equal(council_width(&k, 100), 8);
    k.grid = (council_grid){0, 2, 2, 2}, assert_int_equal(council_width(&k, 17), 2);
    k = (council_rules){.lanes = TEAM_RANKS_MAX, .grid = {0, 1, 1, 1}};
    k.fits[TEAM_RANKS_MAX / 64] = 1, assert_int_equal(council_width(&k, TEAM_RANKS_MAX), TEAM_RANKS_MAX);
}

static int slots_of(const council_view *v, uint64_t who, int n) {
    int slots = 0;
    for (int j = 0; j < n; j++) slots += who >> j & 1 ? v->of[j].says.slots : 0;
    return slots;
}

// Among sets of nodes a, b with as many slots: does a come first? The one with the lowest nodes.
static bool comes_first(uint64_t a, uint64_t b) {
    uint64_t differ = a ^ b;
    return differ && (a & (differ & -differ));
}

static uint64_t largest_by_trial(const council_view *v, int n, uint64_t pool, uint64_t must) {
    uint64_t best = 0;
    for (uint64_t s = 1; s < 1u << n; s++) {
        bool right = !(s & ~pool) && (!must || (s & must));
        for (int a = 0; a < n; a++)
            for (int b = 0; b < a; b++) right &= !(s >> a & 1 && s >> b & 1) || council_both(v, a, b);
        int more = slots_of(v, s, n) - slots_of(v, best, n);
        if (right && (!best || more > 0 || (more == 0 && comes_first(s, best)))) best = s;
    }
    return best;
}

static void the_largest_set(void **state) {
    (void)state;
    static council_view v;
    srand(7);
    for (int trial = 0; trial < 4000; trial++) {
        int n = 1 + trial % 8;
        council_view_open(&v, 0, n, 1, 0);
        for (int a = 0; a < n; a++) {
            v.of[a].says.hears = first(n), v.of[a].says.slots = 1 + (trial % 3 ? 0 : rand() % 3);
            for (int b = 0; b < n; b++)
                if (rand() % 4 == 0) set_drop(&v.of[a].says.hears, b);
        }
        node_set pool = {{(uint64_t)rand() & ((1u << n) - 1)}}, must = {{(uint64_t)rand() & pool.word[0]}};
        if (trial % 2) must.word[0] = 0;
        assert_int_equal(council_largest(&v, pool, must).word[0], largest_by_trial(&v, n, pool.word[0], must.word[0]));
    }
}

// 256 nodes, each of which does not hear some others: a large set is found in bounded time.
static void the_largest_set_of_many(void **state) {
    (void)state;
    static council_view v;
    srand(8);
    council_view_open(&v, 0, COUNCIL_NODES, 1, 0);
    for (int a = 0; a < COUNCIL_NODES; a++) {
        v.of[a].says.hears = first(COUNCIL_NODES), v.of[a].says.slots = 4;
        for (int i = 0; i < 8; i++) set_drop(&v.of[a].says.hears, rand() % COUNCIL_NODES);
    }
    node_set all = first(COUNCIL_NODES), best = council_largest(&v, all, (node_set){{0}});
    assert_true(set_count(&best) >= 40);
    FOR_NODES(a, &best)
        FOR_NODES(b, &best) assert_true(a == b || council_both(&v, a, b));
}

static void who_proposes(void **state) {
    (void)state;
    scene s;
    for (int me = 0; me < 3; me++) {
        begin(&s, 4, me), silent(&s, 3, 3), next(&s);
        double wait = COUNCIL_OTHER_S + COUNCIL_PLACE_S * me;
        s.v.need_at = NOW - 0.1;
        assert_int_equal(council_proposes(&s.d, NOW, 0, &s.r, &s.v, &s.k), me == 0);
        s.v.need_at = NOW - wait + 0.01;
        assert_int_equal(council_proposes(&s.d, NOW, 0, &s.r, &s.v, &s.k), me == 0);
        s.v.need_at = NOW - wait - 0.01;
        assert_true(council_proposes(&s.d, NOW, 0, &s.r, &s.v, &s.k));
        assert_false(council_proposes(&s.d, NOW, NOW - wait + 0.01, &s.r, &s.v, &s.k));  // it just did
    }
    begin(&s, 4, 1), silent(&s, 3, 3), next(&s), s.d.next.members.word[0] = 6;
    assert_true(council_proposes(&s.d, NOW, 0, &s.r, &s.v, &s.k));  // the lowest of the world to come
    s.d.next.members.word[0] = 7, s.r.voters.word[0] = 6;
    assert_true(council_proposes(&s.d, NOW, 0, &s.r, &s.v, &s.k));  // ... that has a vote
    s.r.voters.word[0] = 5;
    assert_false(council_proposes(&s.d, NOW, 0, &s.r, &s.v, &s.k));  // who does not vote does not propose
    s.r.voters.word[0] = 7, s.v.life = 7;
    assert_false(council_proposes(&s.d, NOW, 0, &s.r, &s.v, &s.k));
}

// A need that has just come up has not waited, however long all was well before: the first of the voters proposes, and
// the others leave it to that one.
static void a_new_need_has_not_waited(void **state) {
    (void)state;
    static council c;
    static council_outbox out;
    for (int me = 0; me < 3; me++) {
        scene s;
        begin(&s, 3, me);
        c = (council){.rules = s.k, .view = s.v, .page = {.has_record = true, .record = s.r}};
        c.view.need_at = c.view.entered, c.proposed_at = COUNCIL_NEVER;
        council_report own = s.v.of[me].says, fails = own;
        council_tick(&c, &s.d, &out, NOW, &own);
        assert_int_equal(s.d.action, COUNCIL_STAY);
        fails.failed = true;
        if (me == 2) own = fails;
        else council_said(&c.view, NOW + 0.2, 2, &fails);
        for (int tick = 1; tick <= 5; tick++) {
            council_tick(&c, &s.d, &out, NOW + 0.3 * tick, &own);
            assert_int_equal(s.d.action, COUNCIL_HEAL);
            assert_int_equal(c.bid.open, me == 0 || (me == 1 && tick == 5));  // in its place, where the first does not
        }
    }
}

static void who_works(void **state) {
    (void)state;
    scene s;
    begin(&s, 3, 0), assert_true(council_works(NOW, &s.r, &s.v, &s.k));
    s.v.of[2].ranks_at = NOW - 2, assert_false(council_works(NOW, &s.r, &s.v, &s.k));
    begin(&s, 3, 0), s.v.of[0].says.failed = true, assert_false(council_works(NOW, &s.r, &s.v, &s.k));
    begin(&s, 3, 0), s.r.members.word[0] = 6, assert_false(council_works(NOW, &s.r, &s.v, &s.k));
    begin(&s, 3, 0), s.v.life = 7, assert_false(council_works(NOW, &s.r, &s.v, &s.k));
    begin(&s, 3, 0), silent(&s, 1, 9), silent(&s, 2, 9);  // a new epoch gives all members their time
    s.r.k = s.r.epoch = 5, council_taken(&s.v, NOW, &s.r, 4, true);
    assert_true(council_works(NOW + 1.9, &s.r, &s.v, &s.k));
    assert_false(council_works(NOW + 2, &s.r, &s.v, &s.k));
    static council c;  // and so does a council that goes on with an epoch
    vote_page page = {.has_record = true, .record = s.r};
    council_open(&c, &s.k, 0, 3, ME_LIFE, &page, NOW);
    assert_true(council_works(NOW + 1.9, &s.r, &c.view, &s.k));
    assert_false(council_works(NOW + 2, &s.r, &c.view, &s.k));
}

// --- as many as there may be -----------------------------------------------------------------------------------------

// A scene of all nodes with so many slots each. The bytes after the decision must stay as they are.
enum { AFTER = 16 * 1024 };
static scene *a_crowd(int slots, int widest) {
    scene *s = malloc(sizeof *s + AFTER);
    assert_non_null(s);
    begin(s, COUNCIL_NODES, 0);
    memset(s + 1, 0x5a, AFTER);
    for (int j = 0; j < COUNCIL_NODES; j++) s->v.of[j].says.slots = s->r.slots[j] = s->r.weight[j] = (uint16_t)slots;
    for (int w = 1; w <= widest; w++) s->k.fits[w / 64] |= (uint64_t)1 << w % 64;
    s->k.lanes = TEAM_RANKS_MAX;
    return s;
}

static void end_of_crowd(scene *s) {
    const uint8_t *after = (const uint8_t *)(s + 1);
    for (int i = 0; i < AFTER; i++) assert_int_equal(after[i], 0x5a);
    free(s);
}

// More slots than a run may have ranks: what is beyond has no seat.
static void more_slots_than_ranks(void **state) {
    (void)state;
    static const int widest[] = {TEAM_RANKS_MAX, 1000};
    static uint8_t bytes[COUNCIL_RECORD_BYTES];
    council_record *again = malloc(sizeof *again);
    for (int i = 0; i < 2; i++) {
        scene *s = a_crowd(8, widest[i]);
        size_t used;
        silent(s, 255, 2.1);
        is(s, COUNCIL_HEAL, "node 255 has not been heard for 2.1 s, neither its council nor its ranks");
        const council_record *n = &s->d.next;
        assert_int_equal(n->ranks, widest[i]);
        assert_int_equal(n->ranks + n->spares, TEAM_RANKS_MAX);
        assert_int_equal(n->seat[TEAM_RANKS_MAX - 1].node, TEAM_RANKS_MAX / 8 - 1);
        assert_int_equal(n->seat[TEAM_RANKS_MAX - 1].slot, 7);
        size_t packed = record_pack(bytes, sizeof bytes, n);
        assert_int_equal(record_unpack(again, bytes, packed, &used), ERR_OK);
        assert_memory_equal(again->seat, n->seat, sizeof n->seat);
        end_of_crowd(s);
    }
    free(again);
}

// A reason has no room for all names: it has the first ones.
static void more_names_than_fit(void **state) {
    (void)state;
    scene *s = a_crowd(1, TEAM_RANKS_MAX);
    for (int j = 1; j < COUNCIL_NODES; j++) s->v.of[j].says.leaving = true;
    is(s, COUNCIL_TURN, "leaving: nodes 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15");
    end_of_crowd(s);
}

// --- a view ----------------------------------------------------------------------------------------------------------

static void the_back_off(void **state) {
    (void)state;
    council_view v;
    council_view_open(&v, 0, 2, 1, 0);
    assert_true(council_back_off(&v, 100) == 0);
    static const double wait[] = {10, 30, 90, 270, 600, 600};
    for (int i = 0; i < 6; i++) {
        v.put_out[v.exiles++ % COUNCIL_EXILES] = 100 + i;
        assert_true(council_back_off(&v, 100 + i) == wait[i]);
    }
    assert_true(council_back_off(&v, 699.5) == 5.5);
    assert_true(council_back_off(&v, 704.5) == 0);  // once in ten minutes
}

// A node that was suspended has heard nothing for that time, but the other nodes were not silent. So it gives up
// neither them nor itself: in a run, while it waits for one to begin, or while it waits for others to come back.
static void what_was_slept_does_not_count(void **state) {
    (void)state;
    scene s;
    const double slept = 10000, then = NOW + slept;
    begin(&s, 3, 0);
    double ran = s.v.ran_at, worked = s.v.worked_at, need = s.v.need_at, heard = s.v.of[1].at;
    council_woke(&s.v, ran + COUNCIL_PAUSE_S);  // no longer than that is no sleep
    assert_true(s.v.worked_at == worked && s.v.of[1].at == heard && s.v.ran_at == ran + COUNCIL_PAUSE_S);
    s.v.ran_at = NOW;
    council_woke(&s.v, then);
    assert_true(s.v.worked_at == worked + slept && s.v.need_at == need + slept && s.v.ran_at == then);
    for (int j = 0; j < 3; j++)
        assert_true(s.v.of[j].at == heard + slept && s.v.of[j].said_at == heard + slept &&
                    s.v.of[j].ranks_at == heard + slept);
    assert_true(s.v.entered == 50);  // how old a world is, is how old it is
    s.v.of[2].at = s.v.of[2].said_at = s.v.of[2].ranks_at = then - 0.1, s.v.ran_at = then - 5;
    council_woke(&s.v, then);
    assert_true(s.v.of[2].at == then && s.v.of[2].said_at == then && s.v.of[2].ranks_at == then);  // none is to come

    begin(&s, 3, 0), silent(&s, 1, 3), silent(&s, 2, 3);  // waits for them
    epoch_next(&s.d, NOW, &s.r, &s.v, &s.k), assert_int_equal(s.d.action, COUNCIL_WAIT);
    s.v.ran_at = NOW, council_woke(&s.v, then);
    epoch_next(&s.d, then, &s.r, &s.v, &s.k), assert_int_equal(s.d.action, COUNCIL_WAIT);
    begin(&s, 3, 0), silent(&s, 1, 3);  // waits for a run to begin
    for (int j = 0; j < 3; j++) s.v.of[j].has_record = false;
    s.v.ran_at = NOW, council_woke(&s.v, then);
    epoch_next(&s.d, then, NULL, &s.v, &s.k), assert_int_equal(s.d.action, COUNCIL_WAIT);
    epoch_next(&s.d, then + 41, NULL, &s.v, &s.k), assert_int_equal(s.d.action, COUNCIL_END);
}

static void who_is_put_out_waits(void **state) {
    (void)state;
    scene s;
    council_report own = {.ready = true, .slots = 1, .sealed = -1};
    begin(&s, 3, 2);
    council_record next = s.r;
    next.k = next.epoch = 5, next.members.word[0] = 3;
    council_taken(&s.v, NOW, &next, 4, true);
    assert_int_equal(s.v.exiles, 1);
    assert_true(s.v.entered == NOW && s.v.sealed_at == COUNCIL_NEVER);
    council_own(&s.v, NOW + 9.9, &next, &own, 2), assert_false(s.v.of[2].says.ready);
    council_own(&s.v, NOW + 10, &next, &own, 2), assert_true(s.v.of[2].says.ready);
    begin(&s, 3, 2), s.v.of[2].says.leaving = true, council_taken(&s.v, NOW, &next, 4, true);
    assert_int_equal(s.v.exiles, 0);  // it wanted to
    begin(&s, 3, 2), next.epoch = 4, council_taken(&s.v, NOW, &next, 4, true);
    assert_true(s.v.entered == 50 && s.v.sealed_at == 51);  // the epoch goes on
    assert_int_equal(s.v.of[2].says.state, COUNCIL_WORKING);
}

// A bad cable in a run of weeks: each time counts, and none for longer than its ten minutes.
static void who_is_put_out_again_and_again_waits(void **state) {
    (void)state;
    scene s;
    begin(&s, 3, 2);
    council_record next = s.r;
    next.members.word[0] = 3;
    for (int i = 0; i < 2 * COUNCIL_EXILES + 1; i++) {
        double now = NOW + i * (COUNCIL_EXILE_S + 1);
        next.k = next.epoch = s.r.epoch + 1;
        council_taken(&s.v, now, &next, s.r.epoch, true);
        assert_true(council_back_off(&s.v, now) == COUNCIL_BACK_OFF_S);
        assert_true(council_back_off(&s.v, now + COUNCIL_BACK_OFF_S) == 0);
    }
    for (int i = 1; i < 2 * COUNCIL_EXILES; i++) {  // all within ten minutes
        council_taken(&s.v, NOW + 1e6 + i, &next, s.r.epoch, true);
        assert_true(council_back_off(&s.v, NOW + 1e6 + i) >= (i > 4 ? COUNCIL_EXILE_S : COUNCIL_BACK_OFF_S));
    }
    assert_true(council_back_off(&s.v, NOW + 1e6 + 2 * COUNCIL_EXILES) == COUNCIL_EXILE_S - 1);
}

// What it says with the record may be the last that others hear of it for a while.
static void a_new_record_is_not_worked_with_yet(void **state) {
    (void)state;
    scene s;
    for (int me = 0; me < 3; me += 2) {
        begin(&s, 3, me);
        council_record next = s.r;
        next.k = next.epoch = 5, next.members.word[0] = 3;
        council_report *own = &s.v.of[me].says;
        own->failed = own->began = true, own->sealed = 7;  // of the epoch before
        council_taken(&s.v, NOW, &next, 4, true);
        assert_int_equal(own->state, me == 0 ? COUNCIL_ENTERING : COUNCIL_LEAVING);
        assert_true(!own->failed && !own->began && own->sealed == -1);
    }
}

static void a_report_of_another_life_counts_no_more(void **state) {
    (void)state;
    scene s;
    begin(&s, 3, 0);
    council_hears(&s.v, NOW, 1, 7, NULL);
    assert_false(s.v.of[1].has_record);
    assert_false(set_has(&(node_set){{council_near(&s.v, NOW, 2).word[0]}}, 1));
    assert_int_equal(s.v.of[1].says.slots, 0);
    assert_int_equal(s.v.of[1].life, 7);
}

static void a_seal_of_all(void **state) {
    (void)state;
    scene s;
    begin(&s, 3, 0), s.v.sealed_at = COUNCIL_NEVER;
    council_report own = s.v.of[0].says;
    s.v.of[2].says.sealed = -1, council_own(&s.v, NOW, &s.r, &own, 2), assert_true(s.v.sealed_at < 0);
    s.v.of[2].says.sealed = 0, s.v.of[2].epoch = 3, council_own(&s.v, NOW, &s.r, &own, 2);
    assert_true(s.v.sealed_at < 0);  // of an epoch that is over
    s.v.of[2].epoch = 4, council_own(&s.v, NOW, &s.r, &own, 2), assert_true(s.v.sealed_at == NOW);
    council_own(&s.v, NOW + 1, &s.r, &own, 2), assert_true(s.v.sealed_at == NOW);
    silent(&s, 1, 2), council_own(&s.v, NOW, &s.r, &own, 2);
    assert_int_equal(s.v.of[0].says.hears.word[0], 5);
}
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_majorities_share_a_node),
        cmocka_unit_test(rows_of_enough),
        cmocka_unit_test(who_is_lost),
        cmocka_unit_test(a_world_that_works_stays),
        cmocka_unit_test(a_loss_is_healed),
        cmocka_unit_test(a_rank_that_failed_keeps_its_node),
        cmocka_unit_test(the_state_is_not_left_behind),
        cmocka_unit_test(who_is_near),
        cmocka_unit_test(a_new_life_is_named),
        cmocka_unit_test(fruitless_epochs_are_counted),
        cmocka_unit_test(a_step_of_an_epoch_that_is_over_is_not_begun),
        cmocka_unit_test(joins),
        cmocka_unit_test(voters_settle),
        cmocka_unit_test(drains),
        cmocka_unit_test(a_loss_while_all_stop_ends_who_is_out),
        cmocka_unit_test(a_slow_node_is_put_out_once),
        cmocka_unit_test(the_leaver_goes),
        cmocka_unit_test(who_lost_the_others_at_the_end_ends_too),
        cmocka_unit_test(ends),
        cmocka_unit_test(cold_start),
        cmocka_unit_test(they_have_names),
        cmocka_unit_test(widths),
        cmocka_unit_test(the_largest_set),
        cmocka_unit_test(the_largest_set_of_many),
        cmocka_unit_test(who_proposes),
        cmocka_unit_test(a_new_need_has_not_waited),
        cmocka_unit_test(who_works),
        cmocka_unit_test(more_slots_than_ranks),
        cmocka_unit_test(more_names_than_fit),
        cmocka_unit_test(the_back_off),
        cmocka_unit_test(what_was_slept_does_not_count),
        cmocka_unit_test(who_is_put_out_waits),
        cmocka_unit_test(who_is_put_out_again_and_again_waits),
        cmocka_unit_test(a_new_record_is_not_worked_with_yet),
        cmocka_unit_test(a_report_of_another_life_counts_no_more),
        cmocka_unit_test(a_seal_of_all),
    };
    return cmocka_run_group_tests_name("council", tests, NULL, NULL);
}
