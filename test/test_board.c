// test/test_board.c: what ranks say on the board, and who reads it while they write: never half a record. Under `make
// tsan` so this also shows that no lock is needed. And what is said on it while ranks meet, and when.
#include "base/quantiles.h"
#include "trainer/log/monitor.h"
#include "trainer/waiting.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static board *make_board(int locals) {
    board *b = aligned_alloc(128, (board_bytes(locals) + 127) / 128 * 128);
    assert_non_null(b);
    memset(b, 0, board_bytes(locals));
    board_init(b, locals);
    return b;
}

// Of several ranks that notice it the first one counts.
static void the_first_sight_of_a_loss_counts(void **state) {
    (void)state;
    board *b = make_board(1);
    board_lost(b, 12.5, 12.25);
    board_lost(b, 12.75, 11.5);
    assert_true(b->lost_at == 12.5 && b->alive_at == 11.5);
    board_lost(b, 12.375, 12.375);
    assert_true(b->lost_at == 12.375 && b->alive_at == 11.5);
    board_lost(b, 12.25, 0);  // only the nodes know
    assert_true(b->lost_at == 12.25 && b->alive_at == 11.5);
    free(b);
}

// --- a rank ----------------------------------------------------------------------------------------------------------

static void phases_and_operations(void **state) {
    (void)state;
    board *b = make_board(2);
    board_rank *r = board_place(b, 1);
    assert_ptr_equal(r, &b->rank[1]);
    assert_null(board_place(b, 2));
    assert_null(board_place(NULL, 0));
    assert_int_equal(r->phase, PHASE_STARTING);
    assert_int_equal(r->number, -1);
    int64_t began = r->phase_ns;
    assert_true(began > 0 && r->since_ns == began);

    board_enter(r, PHASE_STEPPING, 7);
    assert_int_equal(r->phase, PHASE_STEPPING);
    assert_true(r->phase_ns >= began && r->in_phase_ns[PHASE_STARTING] == r->phase_ns - began);
    assert_null(r->what);
    board_doing(r, "forward", 3, 8);
    board_task before = board_waiting(r, WAIT_RANKS, "add up slices", 1, 8);
    assert_string_equal(r->what, "add up slices");
    assert_int_equal(r->waits_for, WAIT_RANKS);
    board_resume(r, before);
    assert_string_equal(r->what, "forward");
    assert_int_equal(r->waits_for, WAIT_NONE);
    board_waiting(r, WAIT_DATA, "wait for data", 3, 8);
    assert_int_equal(r->waits_for, WAIT_DATA);
    board_resume(r, before);
    assert_int_equal(r->number, 3);
    assert_int_equal(r->step, 8);

    int64_t work = board_work(b);
    board_worked(r);
    board_worked(NULL);
    assert_int_equal(board_work(b), work + 1);
    b->rank[0].pulse++;  // the team's
    assert_int_equal(board_work(b), work + 2);

    board_beside(r, "reduce gradients", 5);
    assert_string_equal(r->what, "forward");
    assert_string_equal(r->beside, "reduce gradients");
    assert_int_equal(r->beside_number, 5);
    board_beside(r, NULL, -1);
    assert_null(r->beside);

    int64_t since = r->phase_ns;
    board_enter(r, PHASE_STEPPING, 9);  // the same phase goes on
    assert_true(r->phase_ns == since && r->in_phase_ns[PHASE_STEPPING] == 0);
    assert_null(r->what);
    assert_int_equal(r->waits_for, WAIT_NONE);
    board_doing(r, "forward", 3, 10);
    board_beside(r, "reduce gradients", 6);
    board_restart(r);  // another process, which does none of that
    assert_null(r->what);
    assert_null(r->beside);
    assert_int_equal(r->phase, PHASE_STARTING);
    assert_int_equal(r->step, 10);
    board_enter(NULL, PHASE_SAVING, 0);
    board_resume(NULL, board_doing(NULL, "nothing", 0, 0));
    assert_string_equal(board_device(r), "");
    board_name_device(r, "0000:41:00.0");
    assert_string_equal(board_device(r), "0000:41:00.0");
    assert_string_equal(board_phase_name(PHASE_EVALUATING), "evaluate");
    assert_string_equal(board_phase_name((board_phase)77), "unknown");
    free(b);
}

// --- news ------------------------------------------------------------------------------------------------------------

enum { WRITINGS = 200000 };

// All words of the n-th news are n.
static board_news all_of(int64_t n) {
    uint64_t word[BOARD_WORDS];
    board_news x;
    for (int i = 0; i < BOARD_WORDS; i++) word[i] = (uint64_t)n;
    memcpy(&x, word, sizeof x);
    return x;
}

static void *write_news(void *ctx) {
    board *b = ctx;
    for (int64_t n = 1; n <= WRITINGS; n++) {
        board_news x = all_of(n);
        board_publish(b, &x);
    }
    return NULL;
}

static void *move_rank(void *ctx) {
    static const char *const what[] = {"forward", "backward"};
    board_rank *r = ctx;
    for (int n = 0; n < WRITINGS; n++) board_doing(r, what[n % 2], n, n);
    board_enter(r, PHASE_ENDED, WRITINGS);
    return NULL;
}

static void news_are_read_whole(void **state) {
    (void)state;
    board *b = make_board(1);
    board_news x = {.step = 77};
    pthread_t writer, rank;
    int64_t seen = 0, reads = 0;
    assert_false(board_read(b, &x));
    assert_int_equal(x.step, 77);
    assert_int_equal(pthread_create(&writer, NULL, write_news, b), 0);
    assert_int_equal(pthread_create(&rank, NULL, move_rank, &b->rank[0]), 0);
    while (seen < WRITINGS || atomic_load(&b->rank[0].phase) != PHASE_ENDED) {
        const char *what = atomic_load(&b->rank[0].what);
        assert_true(!what || strcmp(what, "forward") == 0 || strcmp(what, "backward") == 0);
        if (!board_read(b, &x)) continue;
        board_news want = all_of(x.step);
        assert_true(x.step >= seen);
        assert_memory_equal(&x, &want, sizeof x);
        seen = x.step, reads++;
    }
    pthread_join(writer, NULL);
    pthread_join(rank, NULL);
    assert_true(reads > 0);
    free(b);
}

// Somebody who died while writing leaves the reader without news, not in a circle.
static void half_written_news_are_none(void **state) {
    (void)state;
    board *b = make_board(1);
    board_news x = all_of(1);
    board_publish(b, &x);
    atomic_store(&b->sequence, 3);
    x.step = 77;
    assert_false(board_read(b, &x));
    assert_int_equal(x.step, 77);
    atomic_store(&b->sequence, ~0u - 1);  // the last even number: none comes for it, and 0 would say that there is none
    x = all_of(2);
    board_publish(b, &x);
    assert_true(board_read(b, &x));
    assert_int_equal(atomic_load(&b->sequence), 2);
    free(b);
}

// A line of what is waited for, whole or none.
static void a_line_is_said(void **state) {
    (void)state;
    board *b = make_board(2);
    char text[BOARD_SAID], longest[2 * BOARD_SAID];
    board_said(b, text);
    assert_string_equal(text, "");
    board_say(b, "waiting for 10.0.0.2");
    board_said(b, text);
    assert_string_equal(text, "waiting for 10.0.0.2");
    memset(longest, 'x', sizeof longest), longest[sizeof longest - 1] = 0;
    board_say(b, longest);
    board_said(b, text);
    assert_int_equal(strlen(text), BOARD_SAID - 1);
    board_say(b, "");
    board_said(b, text);
    assert_string_equal(text, "");
    free(b);
}

// --- the sink --------------------------------------------------------------------------------------------------------

static void log_step(monitor *m, int64_t step, double ms, bool skipped) {
    const step_record r = {.step = step,
                           .units = 64 * step,
                           .loss = 5,
                           .grad_norm = 0.5,
                           .lr = 1e-3,
                           .ms = ms,
                           .units_per_s = 64e3 / ms,
                           .data_wait_ms = 0.25,
                           .comm_wait_ms = NAN,
                           .loss_scale = 1,
                           .skipped = skipped,
                           .time = 1700000000.5,
                           .mfu = step == 3 ? 0.5 : NAN,
                           .world = 1};
    monitor_log(m, &(record){RECORD_STEP, .step = r});
}

// Steps that [log] every leaves out count too.
static void a_sink_copies_records(void **state) {
    (void)state;
    static const sink *const list[] = {&sink_board, NULL};
    board *b = make_board(1);
    board_news x;
    monitor m;
    config *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->run.steps = 600;
    assert_int_equal(monitor_open_list(&m, &(log_setup){.dir = "/nowhere", .c = c, .unit = "token", .board = b}, list),
                     ERR_OK);
    assert_false(board_read(b, &x));
    monitor_log(&m, &(record){RECORD_SAVED, .saved = {.step = 1, .hash = "00000000000000ab"}});
    monitor_log(&m, &(record){RECORD_START, .start = {.step = 1, .units = 64}});
    assert_true(board_read(b, &x));
    assert_true(x.step == 1 && x.began_step == 1 && x.units == 64 && x.steps == 600 && isnan(x.loss) && x.p50_ns == 0 &&
                isnan(x.best));
    assert_true(x.checkpoint_step == 1 && isnan(x.checkpoint_time));
    assert_string_equal(x.unit, "token");
    log_step(&m, 2, 12, true);
    log_step(&m, 3, 4, false);
    assert_true(board_read(b, &x));
    assert_true(x.step == 3 && x.units == 192 && x.skipped == 1 && x.loss == 5 && x.mfu == 0.5 &&
                x.step_time == 1700000000.5);
    assert_true(x.timed == 2 && fabs(x.timed_s - 0.016) < 1e-12 && x.bucket[2] == 1 && x.bucket[4] == 1);
    assert_true(x.p50_ns == 4000000 && x.p99_ns == 12000000);
    enum { FIGURES = BOARD_FIGURES + 2 };
    const char *figures[FIGURES] = {"accuracy", "code.loss"};
    double values[FIGURES] = {0.25, 3.5};
    for (int i = 2; i < FIGURES; i++) figures[i] = "law.loss", values[i] = i;
    monitor_log(&m, &(record){RECORD_EVAL, .eval = {.step = 3,
                                                    .loss = 4.5,
                                                    .metrics = FIGURES,
                                                    .metric = figures,
                                                    .value = values,
                                                    .best = 4.25,
                                                    .best_step = 2}});
    monitor_log(
        &m, &(record){RECORD_SAVED, .saved = {.step = 3, .ms = 40, .time = 1700000001, .hash = "0123456789abcdef"}});
    assert_true(board_read(b, &x));
    assert_true(x.eval_loss == 4.5 && x.eval_step == 3 && x.best == 4.25 && x.best_step == 2);
    assert_true(x.figures == BOARD_FIGURES && x.figure_value[0] == 3.5 && x.figure_value[1] == 2);
    assert_string_equal(x.figure[0], "code.loss");
    monitor_log(&m, &(record){RECORD_EVAL, .eval = {.step = 3, .loss = 4.5}});
    assert_true(board_read(b, &x) && x.figures == 0);
    assert_true(x.checkpoint_step == 3 && x.checkpoint_ms == 40 && x.checkpoint_time == 1700000001);
    assert_string_equal(x.hash, "0123456789abcdef");
    log_step(&m, 4, 1e6, false);
    assert_true(board_read(b, &x));
    assert_true(x.bucket[BOARD_BUCKETS - 1] == 1 && isnan(x.mfu));
    monitor_close(&m);
    free(c), free(b);
}

// --- quantiles -------------------------------------------------------------------------------------------------------

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

// Beside a sort of the last 1024, with many equal ones among them.
static void quantiles_are_those_of_a_sort(void **state) {
    (void)state;
    enum { NUMBERS = 5000 };
    static float all[NUMBERS], last[QUANTILES_ROOM];
    quantiles *q = calloc(1, sizeof *q);
    assert_non_null(q);
    assert_true(quantiles_at(q, 0.5) == 0);
    uint32_t word = 1;
    for (int i = 0; i < NUMBERS; i++) {
        word = word * 1664525u + 1013904223u;
        all[i] = (float)(word >> 24);
        quantiles_add(q, all[i]);
        quantiles_add(q, NAN);
        int n = i + 1 < QUANTILES_ROOM ? i + 1 : QUANTILES_ROOM;
        if (i > 2 && i % 97) continue;
        memcpy(last, &all[i + 1 - n], (size_t)n * sizeof *last);
        qsort(last, (size_t)n, sizeof *last, by_value);
        for (int k = 0; k <= 100; k++) {
            int rank = (int)ceil(k / 100.0 * n);
            assert_true(quantiles_at(q, k / 100.0) == (double)last[rank > 0 ? rank - 1 : 0]);
        }
    }
    free(q);
}

// --- while ranks meet ------------------------------------------------------------------------------------------------

// A look each quarter of a second. What is said: what did not end within 2 s, what changed, not more often than every
// 2 s, and the same again every 30 s, as often as it comes to that.
static void who_waits_says_so_now_and_then(void **state) {
    (void)state;
    static const struct {
        double from;
        const char *text;
    } course[] = {{0, "for two"}, {3, "for one"}, {80, "for nobody"}, {81, "for none"}, {1e9, ""}};
    static const double said[] = {2, 4, 34, 64, 80, 82, 112, 142};
    waiting_said last = {0};
    size_t n = 0;
    int now = 0;
    for (double s = 0; s < 150; s += 0.25) {
        now += s >= course[now + 1].from;
        if (!waiting_says(&last, s, course[now].text)) continue;
        assert_true(n < sizeof said / sizeof *said);
        if (s < said[n] || s > said[n]) fail_msg("%s: said after %g s, expected %g s", course[now].text, s, said[n]);
        assert_string_equal(last.text, course[now].text);
        n++;
    }
    assert_int_equal(n, sizeof said / sizeof *said);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(phases_and_operations),          cmocka_unit_test(news_are_read_whole),
        cmocka_unit_test(half_written_news_are_none),     cmocka_unit_test(a_line_is_said),
        cmocka_unit_test(who_waits_says_so_now_and_then), cmocka_unit_test(a_sink_copies_records),
        cmocka_unit_test(quantiles_are_those_of_a_sort),  cmocka_unit_test(the_first_sight_of_a_loss_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
