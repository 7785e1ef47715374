// test/test_serving.c: what servers do next (comm/server/serving.h), by workers that are drawn: each ticket is given
// once, nothing stands still, weights are as new as `bounded` says, and `hybrid` closes steps with those that it
// should. And the record of it (comm/server/record.h): what was written is read, is cut off where a run goes on, and
// damage is named.
#include "base/philox.h"
#include "comm/server/record.h"
#include "comm/server/serving.h"
#include "test/support/expect.h"
#include "test/support/place.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct chance {
    uint32_t seed, n;
} chance;

static uint32_t draw(chance *c, uint32_t below) {
    uint32_t x[4];
    philox4x32(x, c->seed, c->n++, 0, 0, 0);
    return x[0] % below;
}

enum { STEPS = 64 };  // most of a period

// --- tickets ---------------------------------------------------------------------------------------------------------

// A worker asks, pulls and pushes, as trainer/step/served.c does.
typedef struct worker {
    serving_ask asks;
    int64_t ticket;
    bool left;
} worker;

// Of those that may be answered, one by chance. -1: none may.
static int choose(const serving *x, const worker *w, int n, chance *c) {
    int from = (int)draw(c, (uint32_t)n);
    for (int i = 0; i < n; i++) {
        int k = (from + i) % n;
        if (!w[k].left && w[k].asks && serving_may(x, w[k].asks, k, w[k].ticket)) return k;
    }
    return -1;
}

static void check_pull(const serving *x, int64_t step, const int *applied) {
    const serving_rules *r = &x->rules;
    for (int64_t s = x->first; r->kind == SERVE_BOUNDED && s < step - r->staleness; s++)
        assert_int_equal(applied[s - x->first], r->workers);
}

// Runs a period. given, applied: how often each ticket was given, how many pushes of each step were applied.
static void run_period(const serving_rules *r, int64_t first, int64_t last, chance *c) {
    serving x;
    int n = r->workers, left = 0, room[STEPS], applied[STEPS] = {0}, given[STEPS * 8] = {0};
    worker w[8] = {{ASK_NOTHING, 0, false}};
    serving_begin(&x, r, first, last, room);
    for (int k = 0; k < n; k++) w[k].asks = ASK_NEXT;
    while (left < n) {
        int k = choose(&x, w, n, c);
        assert_true(k >= 0);  // no worker waits for ever
        int64_t step = serving_step(r, w[k].ticket);
        if (w[k].asks == ASK_NEXT) {
            w[k].ticket = serving_next(&x, k);
            w[k].left = w[k].ticket == SERVE_END, left += w[k].left;
            w[k].asks = ASK_PULL;
            if (!w[k].left) given[w[k].ticket - (first - 1) * n]++;
        } else if (w[k].asks == ASK_PULL) {
            check_pull(&x, step, applied);
            serving_pull(&x, k, w[k].ticket);
            w[k].asks = ASK_PUSH;
        } else {
            assert_true(serving_push(&x, k, w[k].ticket, 1) == PUSH_APPLY);
            applied[step - first]++;
            w[k].asks = ASK_NEXT;
        }
    }
    for (int64_t t = 0; t < (last - first + 1) * n; t++) assert_int_equal(given[t], 1);
    assert_true(serving_has_ended(&x) && x.done == last);
}

static void test_each_ticket_is_given_once(void **state) {
    (void)state;
    chance c = {5, 0};
    for (int round = 0; round < 300; round++) {
        serving_rules r = {.kind = round % 2 ? SERVE_BOUNDED : SERVE_ASYNC,
                           .workers = 1 + (int)draw(&c, 8),
                           .staleness = 1 + draw(&c, 3)};
        int64_t first = 1 + draw(&c, 50);
        run_period(&r, first, first + draw(&c, 60), &c);
    }
}

// Staleness 1, two workers: step 3 waits for all of step 1, and not for step 2.
static void test_bounded_waits_for_the_slowest(void **state) {
    (void)state;
    serving x;
    int room[STEPS];
    serving_rules r = {.kind = SERVE_BOUNDED, .workers = 2, .staleness = 1};
    serving_begin(&x, &r, 1, 5, room);
    assert_true(serving_has(&x, 0) && serving_has(&x, 9) && !serving_has(&x, -1) && !serving_has(&x, 10));
    for (int64_t t = 0; t < 6; t++) assert_int_equal(serving_next(&x, (int)(t % 2)), t);
    assert_true(serving_may(&x, ASK_PULL, 0, 2) && !serving_may(&x, ASK_PULL, 0, 4));
    assert_true(serving_push(&x, 0, 0, 0) == PUSH_APPLY && serving_push(&x, 0, 2, 0) == PUSH_APPLY);
    assert_true(!serving_may(&x, ASK_PULL, 0, 4) && x.done == 0);
    assert_true(serving_push(&x, 1, 1, 0) == PUSH_APPLY && x.done == 1);
    assert_true(serving_may(&x, ASK_PULL, 0, 4) && !serving_may(&x, ASK_PULL, 0, 6));
    assert_true(serving_push(&x, 1, 3, 0) == PUSH_APPLY && x.done == 2);
}

// --- hybrid ----------------------------------------------------------------------------------------------------------

static serving open_hybrid(bool decays, int *room) {
    serving x;
    serving_rules r = {.kind = SERVE_HYBRID, .workers = 3, .timeout_s = 2, .decays = decays};
    serving_begin(&x, &r, 4, 6, room);
    return x;
}

static void pull_next(serving *x, int worker) {
    int64_t t = serving_next(x, worker);
    assert_int_equal(t, (x->open - 1) * 3 + worker);
    assert_true(serving_may(x, ASK_PULL, worker, t));
    serving_pull(x, worker, t);
}

static void test_hybrid_waits_for_all_or_for_a_while(void **state) {
    (void)state;
    int room[STEPS];
    serving x = open_hybrid(false, room);
    for (int k = 0; k < 3; k++) pull_next(&x, k);
    assert_true(!serving_may(&x, ASK_NEXT, 1, 0) && !serving_closes(&x, 1e9) && serving_deadline(&x) == 0);
    assert_true(serving_push(&x, 1, 10, 7) == PUSH_HOLD && serving_push(&x, 0, 9, 8) == PUSH_HOLD);
    assert_true(serving_deadline(&x) == 9 && !serving_closes(&x, 8.9) && serving_closes(&x, 9));
    assert_true(serving_weight(&x, 0) == 0.5 && serving_weight(&x, 1) == 0.5 && serving_weight(&x, 2) == 0);
    serving_close(&x);
    assert_true(x.open == 5 && !serving_holds(&x) && serving_may(&x, ASK_NEXT, 0, 0));
    for (int k = 0; k < 2; k++) pull_next(&x, k);
    assert_true(serving_push(&x, 0, 12, 10) == PUSH_HOLD && !serving_closes(&x, 10));
    assert_true(serving_push(&x, 1, 13, 10) == PUSH_HOLD);
    assert_true(serving_closes(&x, 10));  // worker 2 computes an earlier step
    serving_close(&x);
    assert_true(serving_push(&x, 2, 11, 10) == PUSH_DROP);
    assert_true(serving_may(&x, ASK_NEXT, 2, 0));  // and goes on with the open step
    for (int k = 0; k < 2; k++) pull_next(&x, k);
    for (int k = 0; k < 2; k++) assert_true(serving_push(&x, k, 15 + k, 11) == PUSH_HOLD);
    assert_false(serving_closes(&x, 11));  // which it has not pulled for yet
    pull_next(&x, 2);
    assert_true(!serving_closes(&x, 12) && serving_closes(&x, 13));
    assert_true(serving_push(&x, 2, 17, 12) == PUSH_HOLD && serving_closes(&x, 12));
}

static void test_hybrid_counts_late_ones_less(void **state) {
    (void)state;
    int room[STEPS];
    serving x = open_hybrid(true, room);
    for (int k = 0; k < 3; k++) pull_next(&x, k);
    assert_true(serving_push(&x, 0, 9, 1) == PUSH_HOLD);
    serving_close(&x);
    for (int k = 0; k < 2; k++) pull_next(&x, k);
    assert_true(serving_push(&x, 0, 12, 2) == PUSH_HOLD);
    serving_close(&x);
    pull_next(&x, 0);
    assert_true(serving_push(&x, 0, 15, 3) == PUSH_HOLD && serving_push(&x, 2, 11, 3) == PUSH_HOLD);
    assert_true(serving_push(&x, 1, 13, 3) == PUSH_HOLD);
    // 1, half, and a quarter
    assert_float_equal(serving_weight(&x, 0), 1 / 1.75, 1e-15);
    assert_float_equal(serving_weight(&x, 1), 0.5 / 1.75, 1e-15);
    assert_float_equal(serving_weight(&x, 2), 0.25 / 1.75, 1e-15);
    serving_close(&x);
    assert_true(serving_has_ended(&x) && serving_next(&x, 1) == SERVE_END && serving_may(&x, ASK_NEXT, 0, 0));
    assert_true(serving_push(&x, 1, 16, 9) == PUSH_DROP);  // of the last step, which is over
}

// A server may still be at an earlier step than the first one. Until it has closed that step, it answers nothing about
// later ones.
static void test_hybrid_holds_back_what_is_early(void **state) {
    (void)state;
    int room[STEPS];
    serving x = open_hybrid(false, room);
    assert_true(serving_may(&x, ASK_PULL, 0, 9) && !serving_may(&x, ASK_PULL, 0, 12));
    assert_true(serving_may(&x, ASK_PUSH, 0, 9) && !serving_may(&x, ASK_PUSH, 0, 12));
    // three of each of the period's steps, 4 to 6
    for (int64_t ticket = -1; ticket < 30; ticket++)
        assert_int_equal(serving_has(&x, ticket), ticket >= 9 && ticket <= 17);
}

// --- records ---------------------------------------------------------------------------------------------------------

static const served_about about = {.server = 0, .servers = 2, .workers = 3, .mode = "async"};
static const served_line lines[] = {{SERVED_PERIOD, 1, 2}, {SERVED_NEXT, 2, 0},  {SERVED_PULL, 2, 0},
                                    {SERVED_PUSH, 2, 0},   {SERVED_END, 1, 2},   {SERVED_PERIOD, 3, 4},
                                    {SERVED_DROP, 0, 7},   {SERVED_CLOSE, 3, 0}, {SERVED_END, 3, 4}};
enum { LINES = sizeof lines / sizeof *lines };

static void write_lines(const char *path, int64_t after, int first, int end) {
    served_record r;
    assert_int_equal(served_record_open(&r, path, &about, after), ERR_OK);
    for (int i = first; i < end; i++) assert_int_equal(served_write(&r, lines[i]), ERR_OK);
    assert_int_equal(served_flush(&r), ERR_OK);
    served_record_close(&r);
}

static void expect_lines(const char *path, int64_t after, int first, int end) {
    served_replay p;
    assert_int_equal(served_replay_open(&p, path, &about, after), ERR_OK);
    for (int i = first; i < end; i++) {
        assert_false(p.ended);
        assert_true(p.now.what == lines[i].what && p.now.a == lines[i].a && p.now.b == lines[i].b);
        assert_int_equal(served_replay_next(&p), ERR_OK);
    }
    assert_true(p.ended);
    served_replay_close(&p);
}

static void test_a_record_is_read_and_cut_off(void **state) {
    const char *path = at(*state, "served-0.log");
    write_lines(path, 0, 0, LINES);
    expect_lines(path, 0, 0, LINES);
    expect_lines(path, 2, 5, LINES);
    write_lines(path, 0, 0, 8);  // anew; killed in its second period
    expect_lines(path, 0, 0, 8);
    write_lines(path, 2, 5, LINES);  // goes on after step 2
    expect_lines(path, 0, 0, LINES);
    write_lines(path, 2, 5, 7);  // once more, and killed sooner
    expect_lines(path, 0, 0, 7);
    write_lines(path, 2, 5, LINES);
    served_replay p;
    assert_error(served_replay_open(&p, path, &about, 1), ERR_DATA, "no period that begins with step 2");
    served_record r;
    assert_error(served_record_open(&r, path, &about, 3), ERR_DATA, "no `end` of a period after step 3");
    // a run goes on with other servers: the record stays as it was
    served_about other = about;
    other.workers = 4;
    assert_error(served_record_open(&r, path, &other, 2), ERR_DATA,
                 "it is of another run: expected `server 0 of 2, workers 4",
                 "found `server 0 of 2, workers 3, mode async`");
    expect_lines(path, 0, 0, LINES);
}

// What a full disk does not take is said at the end of a period, if not before.
static void test_a_full_disk_is_named(void **state) {
    served_record r;
    int full = open("/dev/full", O_WRONLY);
    assert_ok(served_record_open(&r, at(*state, "served-0.log"), &about, 0));
    assert_true(full >= 0 && dup2(full, fileno(r.to)) >= 0);
    assert_ok(served_write(&r, lines[0]));
    assert_error(served_flush(&r), ERR_IO, "/served-0.log: it can't be written: No space left on device");
    served_record_close(&r);
    // and at once where that is more than is kept until then
    assert_ok(served_record_open(&r, at(*state, "served-0.log"), &about, 0));
    assert_true(dup2(full, fileno(r.to)) >= 0);
    err_t rc = ERR_OK;
    for (int i = 0; i < 1 << 16 && rc == ERR_OK; i++) rc = served_write(&r, lines[0]);
    assert_error(rc, ERR_IO, "/served-0.log: it can't be written: No space left on device");
    served_record_close(&r);
    close(full);
}

static void test_damage_is_named(void **state) {
    const char *path = at(*state, "served-0.log");
    const struct {
        const char *text, *error;
    } bad[] = {
        {"", "no record of what a server served"},
        {"lockstep served 2\n", "no record of what a server served"},
        {"lockstep served 1\n", "it is of another run"},
        {"lockstep served 1\nserver 1 of 2, workers 3, mode async\n", "it is of another run"},
        {"lockstep served 1\nserver 0 of 2, workers 3, mode async\nperiod 1 2\nnext 3 0\n", ":4: `next 3 0`"},
        {"lockstep served 1\nserver 0 of 2, workers 3, mode async\nperiod 1 2\nnext 1\n", ":4: `next 1`"},
        {"lockstep served 1\nserver 0 of 2, workers 3, mode async\nperiod 1 2\nnext 1 2 3\n", ":4: `next 1 2 3`"},
        {"lockstep served 1\nserver 0 of 2, workers 3, mode async\nperiod 1 2\npush -1 2\n", ":4: `push -1 2`"},
        {"lockstep served 1\nserver 0 of 2, workers 3, mode async\nperiod 1 2\ngive 1 2\n", ":4: `give 1 2`"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        served_replay p;
        assert_ok(io_write_file(path, bad[i].text, strlen(bad[i].text), NULL));
        err_t rc = served_replay_open(&p, path, &about, 0);
        if (rc == ERR_OK) rc = served_replay_next(&p);
        assert_int_equal(rc, ERR_DATA);
        if (!strstr(err_last()->text, bad[i].error)) fail_msg("%s: expected %s", err_last()->text, bad[i].error);
        served_replay_close(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_ticket_is_given_once),
        cmocka_unit_test(test_bounded_waits_for_the_slowest),
        cmocka_unit_test(test_hybrid_waits_for_all_or_for_a_while),
        cmocka_unit_test(test_hybrid_counts_late_ones_less),
        cmocka_unit_test(test_hybrid_holds_back_what_is_early),
        cmocka_unit_test_setup_teardown(test_a_record_is_read_and_cut_off, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_a_full_disk_is_named, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(test_damage_is_named, place_enter, place_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
