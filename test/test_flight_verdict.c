// test/test_flight_verdict.c: who held up whom, of made-up ranks; and that a file says the same as the memory did.
#include "comm/flight_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALL = 1, PAIR = 77, OTHER = 99 };

// --- made-up ranks ---------------------------------------------------------------------------------------------------

static void add_rank(flight_view *v, int rank, const char *ended, const char *doing) {
    flight_who w = {.rank = rank, .node = rank / 2, .doing_s = 31.25};
    snprintf(w.who, sizeof w.who, "rank %d (10.0.0.%d)", rank, rank / 2 + 1);
    snprintf(w.ended, sizeof w.ended, "%s", ended);
    snprintf(w.doing, sizeof w.doing, "%s", doing);
    assert_int_equal(flight_view_rank(v, &w), ERR_OK);
}

// Of the last rank: it has entered n calls of a communicator, the last one of which is `op`.
static flight_line *stands(flight_view *v, uint32_t id, uint64_t members, flight_op op, flight_state state,
                           uint32_t n) {
    flight_line l = {.rank = v->who[v->ranks - 1].rank, .since_s = state == FLIGHT_DONE ? 30 : 31};
    l.at = (flight_standing){.id = id, .world = (uint32_t)__builtin_popcountll(members), .op = op, .state = state};
    l.at.member[0] = members;
    *(op == FLIGHT_EXCHANGE ? &l.at.exchanges : &l.at.calls) = n;
    l.at.step = 41, l.at.part = 3;
    snprintf(l.what, sizeof l.what, "reduce gradients");
    assert_int_equal(flight_view_line(v, &l), ERR_OK);
    return &v->line[v->lines - 1];
}

static void exchanges(flight_view *v, uint64_t members, flight_state state, uint32_t n, uint64_t with) {
    stands(v, PAIR, members, FLIGHT_EXCHANGE, state, n)->at.peer[0] = with;
}

static void says(const flight_view *v, const char *expected) {
    text t = {0};
    flight_verdict(v, &t);
    assert_false(t.full);
    assert_string_equal(t.at, expected);
    text_free(&t);
}

// --- verdicts --------------------------------------------------------------------------------------------------------

static void one_is_behind(void **state) {
    (void)state;
    flight_view v = {.world = 4};
    for (int r = 0; r < 4; r++) {
        bool behind = r == 2;
        add_rank(&v, r, "", behind ? "backward 3 of step 41" : "");
        stands(&v, ALL, 15, FLIGHT_ALL_REDUCE, behind ? FLIGHT_DONE : FLIGHT_FAILED, behind ? 8122 : 8123);
    }
    says(
        &v,
        "rank 2 (10.0.0.2) has not entered all_reduce #8123 of ranks 0-3 (reduce gradients 3 of step 41); ranks 0, 1, 3 "
        "wait in it since 31 s\n"
        "rank 2 (10.0.0.2) had not ended; its last task: backward 3 of step 41, since 31.2 s\n");
    flight_view_close(&v);
}

static void several_are_behind(void **state) {
    (void)state;
    flight_view v = {.world = 4};
    for (int r = 0; r < 4; r++) {
        add_rank(&v, r, r == 1 ? "was killed by signal 9 (Killed)" : "", "");
        stands(&v, ALL, 15, FLIGHT_ALL_GATHER, r == 0 ? FLIGHT_IN : FLIGHT_DONE, r == 0 ? 7 : 6);
    }
    says(
        &v,
        "ranks 1-3 have not entered all_gather #7 of ranks 0-3 (reduce gradients 3 of step 41); rank 0 waits in it since 31 s\n"
        "rank 1 (10.0.0.1) was killed by signal 9 (Killed)\n"
        "rank 2 (10.0.0.2) had not ended\n"
        "rank 3 (10.0.0.2) had not ended\n");
    flight_view_close(&v);
}

// Rank 2 was killed when rank 1 was in the call before, which all had entered: it is rank 2 that holds up the others.
static void victims_are_not_named(void **state) {
    (void)state;
    flight_view v = {.world = 3};
    add_rank(&v, 0, "", "");
    exchanges(&v, 7, FLIGHT_FAILED, 5, 6);
    stands(&v, ALL, 7, FLIGHT_ALL_REDUCE, FLIGHT_DONE, 9);
    add_rank(&v, 1, "", "");
    exchanges(&v, 7, FLIGHT_DONE, 4, 5);
    stands(&v, ALL, 7, FLIGHT_ALL_REDUCE, FLIGHT_FAILED, 9);
    add_rank(&v, 2, "was killed by signal 9 (Killed)", "");
    exchanges(&v, 7, FLIGHT_DONE, 4, 3);
    stands(&v, ALL, 7, FLIGHT_ALL_REDUCE, FLIGHT_DONE, 9);
    says(
        &v,
        "rank 2 (10.0.0.2) has not entered exchange #5 of ranks 0-2 (reduce gradients 3 of step 41); rank 0 waits in it since "
        "31 s\n"
        "rank 2 (10.0.0.2) was killed by signal 9 (Killed)\n");
    flight_view_close(&v);
    // nor if rank 2 was in the call, and rank 1 was still in the one before
    add_rank(&v, 0, "", "");
    stands(&v, ALL, 7, FLIGHT_ALL_REDUCE, FLIGHT_FAILED, 9);
    add_rank(&v, 1, "", "");
    stands(&v, ALL, 7, FLIGHT_BARRIER, FLIGHT_FAILED, 8);
    add_rank(&v, 2, "was killed by signal 9 (Killed)", "");
    stands(&v, ALL, 7, FLIGHT_ALL_REDUCE, FLIGHT_IN, 9);
    says(
        &v,
        "ranks 0, 2 were in all_reduce #9 of ranks 0-2 (reduce gradients 3 of step 41) since 31.0 s; rank 1 had not "
        "entered it\n"
        "rank 1 was in barrier #8 of ranks 0-2 (reduce gradients 3 of step 41) since 31.0 s, which all others of it had "
        "entered\n"
        "rank 2 (10.0.0.2) was killed by signal 9 (Killed); it was in all_reduce #9 of ranks 0-2 (reduce gradients 3 of "
        "step 41)\n");
    flight_view_close(&v);
}

// A rank whose own work failed has left it, too, but it ended by itself: no other one made it.
static void who_ended_by_itself_is_no_victim(void **state) {
    (void)state;
    flight_view v = {.world = 3};
    for (int r = 0; r < 3; r++) {
        bool cause = r == 2;
        add_rank(&v, r, cause ? "ended with 74" : "", "");
        stands(&v, ALL, 7, FLIGHT_ALL_REDUCE, cause ? FLIGHT_DONE : FLIGHT_FAILED, cause ? 8 : 9);
        v.who[r].failed = true;
    }
    says(
        &v,
        "rank 2 (10.0.0.2) has not entered all_reduce #9 of ranks 0-2 (reduce gradients 3 of step 41); ranks 0, 1 wait "
        "in it since 31 s\n"
        "rank 2 (10.0.0.2) ended with 74\n");
    flight_view_close(&v);
}

static void all_are_in(void **state) {
    (void)state;
    flight_view v = {.world = 2};
    for (int r = 0; r < 2; r++) {
        add_rank(&v, r, r ? "was killed by signal 9 (Killed)" : "", "");
        stands(&v, ALL, 3, FLIGHT_BROADCAST, r ? FLIGHT_IN : FLIGHT_FAILED, 5);
    }
    says(
        &v,
        "ranks 0, 1 were in broadcast #5 of ranks 0, 1 (reduce gradients 3 of step 41) since 31.0 s, which all others of it "
        "had entered\n"
        "rank 1 (10.0.0.1) was killed by signal 9 (Killed); it was in broadcast #5 of ranks 0, 1 (reduce gradients 3 of "
        "step 41)\n");
    flight_view_close(&v);
}

static void nobody_waits(void **state) {
    (void)state;
    flight_view v = {.world = 2};
    for (int r = 0; r < 2; r++) {
        add_rank(&v, r, "", "forward 1 of step 2");
        stands(&v, ALL, 3, FLIGHT_BARRIER, FLIGHT_DONE, 5);
    }
    says(&v, "no rank was waiting for another one\n");
    flight_view_close(&v);
    says(&v, "no rank was waiting for another one\n");
}

// Rank 0 waits for rank 1 in one communicator, which waits for rank 2 in another: only rank 2 holds up both.
static void two_communicators(void **state) {
    (void)state;
    flight_view v = {.world = 3};
    add_rank(&v, 0, "", "");
    stands(&v, ALL, 3, FLIGHT_ALL_REDUCE, FLIGHT_IN, 9);
    add_rank(&v, 1, "", "");
    stands(&v, ALL, 3, FLIGHT_ALL_REDUCE, FLIGHT_DONE, 8);
    stands(&v, OTHER, 6, FLIGHT_REDUCE_SCATTER, FLIGHT_IN, 4);
    add_rank(&v, 2, "", "read data 0 of step 41");
    stands(&v, OTHER, 6, FLIGHT_REDUCE_SCATTER, FLIGHT_DONE, 3);
    says(
        &v,
        "rank 2 (10.0.0.2) has not entered reduce_scatter #4 of ranks 1, 2 (reduce gradients 3 of step 41); rank 1 waits in "
        "it since 31 s\n"
        "rank 0 waits for these in turn\n"
        "rank 2 (10.0.0.2) had not ended; its last task: read data 0 of step 41, since 31.2 s\n");
    flight_view_close(&v);
}

static void a_circle(void **state) {
    (void)state;
    flight_view v = {.world = 2};
    add_rank(&v, 0, "", "");
    stands(&v, ALL, 3, FLIGHT_ALL_REDUCE, FLIGHT_IN, 9);
    stands(&v, OTHER, 3, FLIGHT_BARRIER, FLIGHT_DONE, 1);
    add_rank(&v, 1, "", "");
    stands(&v, ALL, 3, FLIGHT_ALL_REDUCE, FLIGHT_DONE, 8);
    stands(&v, OTHER, 3, FLIGHT_BARRIER, FLIGHT_IN, 2);
    says(
        &v,
        "ranks wait for each other, in different calls:\n"
        "rank 1 (10.0.0.1) has not entered all_reduce #9 of ranks 0, 1 (reduce gradients 3 of step 41); rank 0 waits in it "
        "since 31 s\n"
        "rank 0 (10.0.0.1) has not entered barrier #2 of ranks 0, 1 (reduce gradients 3 of step 41); rank 1 waits in it "
        "since 31 s\n");
    flight_view_close(&v);
}

// Either end of a link, sender or receiver, may be the one that is missing.
static void messages_both_ways(void **state) {
    (void)state;
    for (int missing = 0; missing < 2; missing++) {
        char expected[300];
        flight_view v = {.world = 2};
        for (int r = 0; r < 2; r++) {
            add_rank(&v, r, "", "");
            exchanges(&v, 3, r == missing ? FLIGHT_DONE : FLIGHT_IN, r == missing ? 16 : 17, r ? 1 : 2);
        }
        snprintf(
            expected, sizeof expected,
            "rank %d (10.0.0.1) has not entered exchange #17 of ranks 0, 1 (reduce gradients 3 of step 41); rank %d waits in it "
            "since 31 s\nrank %d (10.0.0.1) had not ended\n",
            missing, 1 - missing, missing);
        says(&v, expected);
        flight_view_close(&v);
    }
}

// An exchange waits for those that it is with, and not for other members; numbers may differ where a rank leaves some
// out, and then a rank that is in one with it has entered it.
static void an_exchange_of_some(void **state) {
    (void)state;
    flight_view v = {.world = 3};
    add_rank(&v, 0, "", "");
    exchanges(&v, 7, FLIGHT_IN, 10, 2);
    add_rank(&v, 1, "", "");
    exchanges(&v, 7, FLIGHT_IN, 6, 1);
    add_rank(&v, 2, "", "");
    exchanges(&v, 7, FLIGHT_DONE, 3, 1);
    says(
        &v,
        "rank 0 was in exchange #10 of ranks 0-2 (reduce gradients 3 of step 41) since 31.0 s, which all others of it had "
        "entered\n"
        "rank 1 was in exchange #6 of ranks 0-2 (reduce gradients 3 of step 41) since 31.0 s, which all others of it had "
        "entered\n");
    flight_view_close(&v);
}

// What a device has in its queue counts only where another rank has not queued it.
static void queued_calls(void **state) {
    (void)state;
    for (int behind = 0; behind < 2; behind++) {
        flight_view v = {.world = 2};
        for (int r = 0; r < 2; r++) {
            add_rank(&v, r, "", "");
            stands(&v, ALL, 3, FLIGHT_ALL_REDUCE, FLIGHT_QUEUED, r ? 7 - (uint32_t)behind : 7);
        }
        says(
            &v,
            behind
                ? "rank 1 (10.0.0.1) has not entered all_reduce #7 of ranks 0, 1 (reduce gradients 3 of step 41); rank 0 waits "
                  "in it since 31 s\n"
                  "rank 1 (10.0.0.1) had not ended; it was in all_reduce #6 of ranks 0, 1 (reduce gradients 3 of step 41)\n"
                : "no rank was waiting for another one\n");
        flight_view_close(&v);
    }
}

static void another_machine_is_not_known(void **state) {
    (void)state;
    flight_view v = {.world = 4, .nodes = 2};
    for (int r = 0; r < 2; r++) {
        add_rank(&v, r, "", "");
        stands(&v, ALL, 15, FLIGHT_ALL_REDUCE, FLIGHT_FAILED, 7);
    }
    says(
        &v,
        "ranks 0, 1 were in all_reduce #7 of ranks 0-3 (reduce gradients 3 of step 41) since 31.0 s; what ranks 2, 3 did is in "
        "the recordings of other machines: lockstep flight DIR DIR ...\n");
    // and rank 0, a call further, waits for rank 1, too
    v.line[0].at.calls = 8;
    says(
        &v,
        "rank 0 was in all_reduce #8 of ranks 0-3 (reduce gradients 3 of step 41) since 31.0 s; what ranks 2, 3 did is "
        "in the recordings of other machines: lockstep flight DIR DIR ...\n"
        "rank 1 was in all_reduce #7 of ranks 0-3 (reduce gradients 3 of step 41) since 31.0 s; what ranks 2, 3 did is "
        "in the recordings of other machines: lockstep flight DIR DIR ...\n");
    flight_view_close(&v);
}

// --- files -----------------------------------------------------------------------------------------------------------

static char *file_of(const flight_view *v, size_t *n) {
    text t = {0};
    flight_write(&t, v, NULL, 0);
    assert_false(t.full);
    *n = t.n;
    return t.at;
}

// Two machines' files give the verdict of all four ranks.
static void files_are_merged(void **state) {
    (void)state;
    flight_view all = {0};
    for (int node = 0; node < 2; node++) {
        flight_view v = {.world = 4, .node = node, .nodes = 2, .epoch = 5, .time = 1700000000, .run = "tiny"};
        for (int r = 2 * node; r < 2 * node + 2; r++) {
            bool behind = r == 2;
            add_rank(&v, r, behind ? "ended\twith\n69" : "", "");
            stands(&v, ALL, 15, FLIGHT_ALL_REDUCE, behind ? FLIGHT_DONE : FLIGHT_FAILED, behind ? 8122 : 8123);
        }
        size_t n;
        char *bytes = file_of(&v, &n);
        assert_int_equal(flight_read(&all, "a file", bytes, n), ERR_OK);
        assert_true(all.node == node && all.nodes == 2 && all.world == 4 && all.epoch == 5 && all.time == 1700000000);
        assert_string_equal(all.run, "tiny");
        free(bytes), flight_view_close(&v);
    }
    says(
        &all,
        "rank 2 (10.0.0.2) has not entered all_reduce #8123 of ranks 0-3 (reduce gradients 3 of step 41); ranks 0, 1, 3 "
        "wait in it since 31 s\n"
        "rank 2 (10.0.0.2) ended?with?69\n");
    flight_view_close(&all);
}

// All that stands in a line is the same after it was written and read.
static void nothing_is_lost(void **state) {
    (void)state;
    flight_view v = {.world = FLIGHT_RANKS, .nodes = 1, .run = "tiny"}, back = {0};
    add_rank(&v, FLIGHT_RANKS - 1, "", "forward 2 of step 3");
    flight_line *l = stands(&v, 0xfedcba98, 3, FLIGHT_EXCHANGE, FLIGHT_QUEUED, UINT32_MAX);
    l->at.channel = 7, l->at.calls = 12, l->at.bytes = INT64_MAX, l->at.part = -1;
    for (int i = 0; i < FLIGHT_WORDS; i += 3) l->at.member[i] = 0xf00000000000000full >> i, l->at.peer[i] = 1;
    size_t n;
    char *bytes = file_of(&v, &n);
    assert_int_equal(flight_read(&back, "a file", bytes, n), ERR_OK);
    assert_memory_equal(&back.line[0], l, sizeof *l);
    assert_string_equal(back.who[0].doing, "forward 2 of step 3");
    free(bytes), flight_view_close(&v), flight_view_close(&back);
}

static void refuses(const char *content, const char *reason) {
    flight_view v = {0};
    char *bytes = strdup(content);
    assert_int_equal(flight_read(&v, "a file", bytes, strlen(bytes)), ERR_DATA);
    if (!strstr(err_last()->text, reason)) fail_msg("%s: expected %s", err_last()->text, reason);
    free(bytes), flight_view_close(&v);
}

#define HEAD "lockstep flight recording 1\nabout\t0\t1\t2\t0\t1\trun\n"
#define RANK "rank\t1\t0\t0\t0.5\trank 1\t\t\n"
static void other_files_are_refused(void **state) {
    (void)state;
    refuses("", "no flight recording");
    refuses("lockstep flight recording 10\n", "no flight recording");
    refuses(HEAD, "ends too early");
    refuses("lockstep flight recording 1\n" RANK, "ends too early");
    refuses(HEAD RANK RANK, "a file:4: rank 1: expected one of 0 to 1023, and each once");
    refuses(HEAD "rank\t1024\t0\t0\t0.5\trank 1\t\t\n", "a file:3: expected the fields");
    refuses(HEAD "rank\t1\t0\t0\tnan\trank 1\t\t\n", "a file:3: expected the fields");
    refuses(HEAD "rank\t1\t0\t0\t0.5\trank 1\t\t\t\n", "a file:3: expected the fields");
    refuses(HEAD "rank\t1\n", "a file:3: expected the fields");
#define ON(rank, id, member) "on\t" rank "\t" id "\t2\t0\t1\t0\t2\t0\t0.5\t8\t1\t1\t" member "\t0\twhat\n"
    refuses(HEAD ON("1", "1", "3"), "a file:3: a communicator of rank 1");
    refuses(HEAD RANK ON("0", "1", "3"), "a file:4: a communicator of rank 0");
    refuses(HEAD RANK ON("1", "123456789", "3"), "a file:4: expected the fields");
    refuses(HEAD RANK ON("1", "1", "g"), "a file:4: expected the fields");
    refuses(HEAD RANK ON("1", "1", ""), "a file:4: expected the fields");
    flight_view v = {0};
    char right[] = HEAD RANK ON("1", "1", "3") "some words for a person\n";
    assert_int_equal(flight_read(&v, "a file", right, sizeof right - 1), ERR_OK);
    flight_view_close(&v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_is_behind),
        cmocka_unit_test(several_are_behind),
        cmocka_unit_test(who_ended_by_itself_is_no_victim),
        cmocka_unit_test(all_are_in),
        cmocka_unit_test(victims_are_not_named),
        cmocka_unit_test(nobody_waits),
        cmocka_unit_test(two_communicators),
        cmocka_unit_test(a_circle),
        cmocka_unit_test(messages_both_ways),
        cmocka_unit_test(an_exchange_of_some),
        cmocka_unit_test(queued_calls),
        cmocka_unit_test(another_machine_is_not_known),
        cmocka_unit_test(files_are_merged),
        cmocka_unit_test(nothing_is_lost),
        cmocka_unit_test(other_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
