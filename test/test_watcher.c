// test/test_watcher.c: the process that a supervisor has beside its ranks, whatever it does there: it learns how they
// ended, is started again when it falls, leaves in time, and changes no end. (What ours does is in test/test_watch.c.)
#include "test/support/trial.h"

#include "trainer/node/crew.h"

static void begin_watching(const watch_start *at) {
    alarm(LIMIT_S);
    atomic_store(&here->how_before, at->ended);
    atomic_store(&here->watches, at->starts);
    atomic_store(&here->watcher, getpid());
}

static err_t watch_well(const config *c, const watch_start *at) {
    (void)c;
    begin_watching(at);
    while (!at->over(seconds() + 0.02)) {}
    for (int i = 0; i < at->b->locals; i++)
        here->others += at->place[i].rank == i && at->world == at->b->locals && atomic_load(&at->b->rank[i].pid) > 0;
    atomic_store(&here->told, atomic_load(&at->b->end));
    return ERR_OK;
}

static err_t watch_and_fall(const config *c, const watch_start *at) {
    (void)c;
    begin_watching(at);
    if (at->starts == 1) return err_set(ERR_IO, "no disk");
    raise(SIGKILL);
    return ERR_OK;
}

static err_t watch_for_ever(const config *c, const watch_start *at) {
    (void)c;
    begin_watching(at);
    while (true) nap(10);
    return ERR_OK;
}

// The board is only shown to it.
static err_t watch_and_write(const config *c, const watch_start *at) {
    (void)c;
    begin_watching(at);
    signal(SIGSEGV, SIG_DFL);  // of a sanitizer
    atomic_store(&at->b->stop, 1);
    return ERR_OK;
}

static trial *prepare_watched(rank_body body, int ranks, watch_body watch) {
    trial *t = prepare(body, ranks);
    t->watch = watch;
    return t;
}

// It learns how all ended, after they have, and changes no end.
static void test_watcher(void **state) {
    (void)state;
    static const struct {
        rank_body body;
        err_t code;
        board_end told;
    } rows[] = {{work_until_flag, ERR_OK, RUN_DONE},
                {fail_first, ERR_IO, RUN_FAILED},
                {stop_and_save, ERR_INTERRUPTED, RUN_STOPPED}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trial *t = prepare_watched(rows[i].body, 3, watch_well);
        start(t);
        await_ranks(t, 3);
        await_watcher(t);
        kill(t->shared->watcher, SIGTERM);  // from another process it means nothing
        kill(t->shared->watcher, SIGINT);
        nap(0.1);
        atomic_store(&t->shared->flag, 1);
        if (rows[i].told == RUN_STOPPED) kill(t->pid, SIGTERM);
        lab *l = finish(t);
        assert_int_equal(l->code, rows[i].code);
        if (rows[i].told != RUN_FAILED) assert_int_equal(l->others, 3);
        if (rows[i].told != RUN_FAILED || l->told != RUN_GOES_ON) assert_int_equal(l->told, rows[i].told);
        assert_int_equal(l->watches, 1);
        assert_true(t->took < 5);
        drop(t);
    }
}

static void test_watcher_writes_nothing(void **state) {
    (void)state;
    trial *t = prepare_watched(work_until_flag, 2, watch_and_write);
    start(t);
    await_ranks(t, 2);
    await_watcher(t);
    nap(0.2);
    atomic_store(&t->shared->flag, 1);
    assert_end(finish(t), ERR_OK, "");
    drop(t);
}

// Its last words are cut short by a request.
static void test_watcher_dies_with_the_rest(void **state) {
    (void)state;
    trial *t = prepare_watched(live_well, 2, watch_for_ever);
    start(t);
    await_ranks(t, 2);
    await_watcher(t);
    nap(0.3);
    kill(t->pid, SIGTERM);
    assert_end(finish(t), ERR_OK, "");
    assert_true(t->took < 5);  // its last words may take as long
    drop(t);
    t = prepare_watched(work_forever, 2, watch_for_ever);
    start(t);
    await_ranks(t, 2);
    await_watcher(t);
    kill(t->pid, SIGKILL);
    waitpid(t->pid, NULL, 0);
    for (double until = seconds() + 10; kill(t->shared->watcher, 0) == 0 && seconds() < until; nap(0.01)) {
        char path[64], text[256] = "";
        snprintf(path, sizeof path, "/proc/%d/stat", t->shared->watcher);
        FILE *f = fopen(path, "r");
        if (f && !fgets(text, sizeof text, f)) text[0] = 0;
        if (f) fclose(f);
        if (strstr(text, ") Z")) break;  // whoever has inherited it may be slow to bury it
        assert_true(seconds() < until - 1);
    }
    drop(t);
}

// One that does not end is killed 5 seconds after the ranks have ended; meanwhile one that has ended is started again,
// 10 after its start.
static void test_watcher_in_trouble(void **state) {
    (void)state;
    trial *silent = prepare_watched(live_well, 2, watch_for_ever),
          *falling = prepare_watched(work_until_flag, 1, watch_and_fall);
    start(silent);
    start(falling);
    assert_end(finish(silent), ERR_OK, "");
    if (silent->took < 4.5 || silent->took > 9) fail_msg("ended after %.1f s", silent->took);
    drop(silent);
    while (atomic_load(&falling->shared->watches) < 2) assert_true(seconds() < falling->started_at + 20), nap(0.01);
    assert_true(seconds() > falling->started_at + 9.5);
    assert_int_equal(WEXITSTATUS(falling->shared->how_before), ERR_IO);
    atomic_store(&falling->shared->flag, 1);
    assert_end(finish(falling), ERR_OK, "");
    drop(falling);
}

// Started once, and three times more.
static void test_watcher_starts(void **state) {
    (void)state;
    crew w = {.starts = 3};
    assert_true(watcher_is_due(&w));
    w.watcher = getpid(), assert_false(watcher_is_due(&w));  // it lives
    w.watcher = 0, w.starts++, assert_false(watcher_is_due(&w));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_watcher),
        TEST(test_watcher_writes_nothing),
        TEST(test_watcher_dies_with_the_rest),
        TEST(test_watcher_in_trouble),
        TEST(test_watcher_starts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
