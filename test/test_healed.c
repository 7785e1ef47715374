// test/test_healed.c: a supervisor whose ranks can go on in another world. Real processes with short lives: who is
// started again and who lives on, who is told to end, and that nothing is left.
#include "test/support/trial.h"

#include "trainer/node/yard.h"

#include <math.h>

enum { WORLDS = 6 };

// What a rank notes of the worlds that it was in, by world and rank. In the lab's page: pids only.
typedef struct notes {
    atomic_int pid[WORLDS][MOST], worlds;
    yard_news news[WORLDS];
} notes;

static notes *book;

static void *share(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    return at;
}

// Notes that this rank is in a world, and waits until all are.
static int enter(const config *c, const launch *at, board *b) {
    int w = (int)at->epoch;
    begin(c, at, b);
    if (w >= WORLDS) return w;
    atomic_store(&book->pid[w][at->rank], getpid());
    if (at->rank == 0 && at->yard) book->news[w] = at->yard->news;
    if (at->rank == 0) atomic_store(&book->worlds, w + 1);
    for (int i = 0; i < at->world; i++)
        for (double until = seconds() + 20; !atomic_load(&book->pid[w][i]) && seconds() < until;) nap(0.002);
    return w;
}

// As a rank that has lost another one.
static err_t leave(const launch *at, bool *over) {
    err_set(ERR_UNAVAILABLE, "another rank is lost");
    err_record why = *err_last();
    return yard_next(at, &why, over);
}

static bool peer_lost(const board *b) { return atomic_load(&b->failed) != 0; }

// Rank w % world is killed in world w, for three worlds; each world takes the run a step further.
static err_t be_killed_in_turn(const config *c, const launch *at, board *b) {
    for (bool over = false; !over;) {
        int w = enter(c, at, b);
        if (w == 3) return ERR_OK;
        atomic_store(&b->step, 10 * (w + 1));
        nap(0.1);
        if (at->rank == w % at->world) raise(SIGKILL);
        while (!peer_lost(b)) nap(0.002);
        TRY(leave(at, &over));
    }
    return ERR_OK;
}

static void who_lives_keeps_its_process(void **state) {
    (void)state;
    trial *t = prepare(be_killed_in_turn, 3);
    t->heals = true;
    start(t);
    lab *l = finish(t);
    assert_end(l, ERR_OK, "");
    assert_int_equal(book->worlds, 4);
    for (int w = 1; w < 4; w++)
        for (int i = 0; i < 3; i++) {
            bool same = book->pid[w][i] == book->pid[w - 1][i];
            if (same == (i == (w - 1) % 3))
                fail_msg("world %d: rank %d has %s process", w, i, same ? "the same" : "another");
        }
    assert_string_equal(book->news[0].why, "");
    assert_string_equal(book->news[2].why, "rank 1 (localhost) was killed by signal 9 (Killed)");
    assert_true(book->news[2].failed_at > 0 && book->news[2].left_at >= book->news[2].failed_at);
    if (t->took > 5) fail_msg("it took %.1f s", t->took);
    double least = 9;  // of the three: a busy machine may delay one
    for (int w = 1; w < 4; w++) least = fmin(least, book->news[w].left_at - book->news[w].failed_at);
    if (least > 0.5) fail_msg("leaving took %.1f s: who leaves did not wake the supervisor", least);
    drop(t);
}

// A rank is lost while it saves or evaluates, with a snapshot sealed and a turn ahead. The next world begins with no
// rank ready, none that saves or evaluates, nothing sealed, and no time of a loss.
static err_t die_while_looking(const config *c, const launch *at, board *b) {
    for (bool over = false; !over;) {
        int w = enter(c, at, b), ready = atomic_load(&b->ready), looking = atomic_load(&b->looking);
        int turn = atomic_load(&b->turn), sealed = (int)atomic_load(&b->sealed);
        double lost_at = atomic_load(&b->lost_at), alive_at = atomic_load(&b->alive_at);
        bool lost = lost_at != 0 || alive_at != 0;
        if (w == 1 && ready == at->world && looking == 0 && turn == 0 && sealed == -1 && !lost) return ERR_OK;
        if (w == 1)
            return err_set(ERR_INTERNAL, "%d are ready, %d look, turn %d, sealed %d, lost at %g, alive at %g", ready,
                           looking, turn, sealed, lost_at, alive_at);
        nap(0.1);
        if (at->rank == 1) atomic_store(&b->turn, 1), atomic_store(&b->sealed, 12), atomic_fetch_add(&b->looking, 1);
        if (at->rank == 1) board_lost(b, seconds(), seconds() - 1);
        if (at->rank == 1) raise(SIGKILL);
        while (!peer_lost(b)) nap(0.002);
        TRY(leave(at, &over));
    }
    return ERR_OK;
}

static void the_board_of_a_new_world_is_clear(void **state) {
    (void)state;
    trial *t = prepare(die_while_looking, 2);
    t->heals = true;
    start(t);
    assert_end(finish(t), ERR_OK, "");
    drop(t);
}

// Rank 0 leaves, hears nothing more, and does not end. It is killed, which ends the world that it was given.
static err_t hear_nothing(const config *c, const launch *at, board *b) {
    for (bool over = false; !over;) {
        if (at->epoch != 1 && enter(c, at, b) == 2) return ERR_OK;
        if (at->epoch == 0 && at->rank == 1) nap(0.05), raise(SIGKILL);
        if (at->rank == 0) shutdown(at->yard->fd, SHUT_RD);
        while (!peer_lost(b)) nap(0.002);
        if (leave(at, &over) != ERR_OK) sleep_on();
    }
    return ERR_OK;
}

static void who_takes_no_world_is_killed(void **state) {
    (void)state;
    trial *t = prepare(hear_nothing, 2);
    t->heals = true;
    start(t);
    assert_end(finish(t), ERR_OK, "");
    assert_string_equal(book->news[2].why, "rank 0 (localhost) was killed by signal 9 (Killed)");
    drop(t);
}

// Two at once, and one that stands still is killed after 5 seconds.
static err_t hang_in_the_first(const config *c, const launch *at, board *b) {
    for (bool over = false; !over;) {
        int w = enter(c, at, b);
        if (w == 1) return ERR_OK;
        if (at->rank == 3) sleep_on();
        atomic_store(&b->step, 1);
        nap(0.05);
        if (at->rank > 0) raise(SIGKILL);
        while (!peer_lost(b)) nap(0.002);
        TRY(leave(at, &over));
    }
    return ERR_OK;
}

static void who_does_not_leave_is_killed(void **state) {
    (void)state;
    trial *t = prepare(hang_in_the_first, 4);
    t->heals = true;
    start(t);
    assert_end(finish(t), ERR_OK, "");
    assert_int_equal(book->pid[0][0], book->pid[1][0]);
    for (int i = 1; i < 4; i++) assert_int_not_equal(book->pid[0][i], book->pid[1][i]);
    const char *why = book->news[1].why;
    if (!strstr(why, "rank 3 (localhost) was killed by signal 9 (Killed), since it had not left") ||
        !strstr(why, "rank 1 (localhost) was killed by signal 9 (Killed); rank 2"))
        fail_msg("\"%s\"", why);
    if (t->took < 4.9 || t->took > 12) fail_msg("it took %.1f s", t->took);
    drop(t);
}

static err_t find_bad_data(const config *c, const launch *at, board *b) {
    bool over = false;
    enter(c, at, b);
    if (at->rank == 1) nap(0.1);
    if (at->rank == 1) return err_set(ERR_DATA, "bad shard");
    while (!peer_lost(b)) nap(0.002);
    TRY(leave(at, &over));
    return over ? ERR_INTERNAL : ERR_OK;  // neither: there is no other world
}

static void an_error_that_stays_ends_all(void **state) {
    (void)state;
    trial *t = prepare(find_bad_data, 3);
    t->heals = true;
    start(t);
    lab *l = finish(t);
    assert_end(l, ERR_DATA, "rank 1 (localhost) ended with 65");
    assert_string_equal(l->said[1], "rank 1 (localhost): bad shard");
    assert_string_equal(l->said[2], "rank 2 (localhost): another rank is lost");
    assert_int_equal(l->started, 3);
    drop(t);
}

static err_t die_again(const config *c, const launch *at, board *b) {
    for (bool over = false; !over;) {
        enter(c, at, b);
        if (at->world == 1) return ERR_OK;
        if (at->rank == 1) raise(SIGUSR1);
        while (!peer_lost(b)) nap(0.002);
        TRY(leave(at, &over));
    }
    return ERR_OK;
}

// The others go on without its place.
static void a_rank_that_dies_again_and_again_is_left_out(void **state) {
    (void)state;
    trial *t = prepare(die_again, 2);
    t->heals = true;
    start(t);
    lab *l = finish(t);
    assert_end(l, ERR_OK, "");
    assert_int_equal(book->worlds, 5);
    if (!strstr(book->news[4].why,
                "rank 1 (localhost) was killed by signal 10 (User defined signal 1): 4 times in a row without a new "
                "step, so the run goes on without it"))
        fail_msg("\"%s\"", book->news[4].why);
    if (t->took < 4 || t->took > 12) fail_msg("it took %.1f s", t->took);  // 0, 1 and 3 s between
    drop(t);
}

static err_t die_always(const config *c, const launch *at, board *b) {
    enter(c, at, b);
    return raise(SIGUSR1), ERR_OK;
}

static void the_last_one_that_dies_again_and_again_ends_the_run(void **state) {
    (void)state;
    trial *t = prepare(die_always, 1);
    t->heals = true;
    start(t);
    lab *l = finish(t);
    assert_end(
        l, ERR_UNAVAILABLE,
        "rank 0 (localhost) was killed by signal 10 (User defined signal 1): 4 times in a row, and no new step was "
        "finished between: look at its device, its memory and dmesg");
    assert_int_equal(book->worlds, 4);
    drop(t);
}

// Nor do the others, where no world fits without it.
static err_t wants_two(const config *c, int world) { return (void)c, world == 2 ? ERR_OK : ERR_CONFIG; }

static void one_that_is_needed_ends_the_run(void **state) {
    (void)state;
    trial *t = prepare(die_again, 2);
    t->heals = true, t->fits = wants_two;
    start(t);
    lab *l = finish(t);
    assert_end(
        l, ERR_UNAVAILABLE,
        "rank 1 (localhost) was killed by signal 10 (User defined signal 1): 4 times in a row, and no new step was "
        "finished between: look at its device, its memory and dmesg");
    assert_int_equal(book->worlds, 4);
    drop(t);
}

// A place without a rank, in a world that is narrower than there are places: who waits in vain and dies is not started
// again. Here no odd world fits.
static err_t wants_even(const config *c, int world) { return (void)c, world % 2 == 0 ? ERR_OK : ERR_CONFIG; }

static err_t die_while_waiting(const config *c, const launch *at, board *b) {
    for (bool over = false; !over;) {
        int w = enter(c, at, b);
        if (w == 5) return ERR_OK;
        if (at->world == 2 && at->rank == 0) nap(0.1), kill(book->pid[3][2], SIGKILL);
        if (at->rank == 3) raise(SIGUSR1);
        while (!peer_lost(b)) nap(0.002);
        TRY(leave(at, &over));
    }
    return ERR_OK;
}

static void who_waits_in_vain_and_dies_stays_away(void **state) {
    (void)state;
    trial *t = prepare(die_while_waiting, 4);
    t->heals = true, t->fits = wants_even;
    start(t);
    lab *l = finish(t);
    assert_end(l, ERR_OK, "");
    assert_int_equal(book->worlds, 6);
    assert_int_equal(l->started, 4 * 4 + 2 + 2);  // of each world its ranks, and nobody else
    drop(t);
}

// Steps that are computed again are no progress, whoever dies in them: the run has come to 100, and all worlds but the
// first go on from 90.
static err_t die_in_turn_before_a_new_step(const config *c, const launch *at, board *b) {
    for (bool over = false; !over;) {
        atomic_store(&b->step, at->epoch ? 90 : 100);
        if (at->epoch) nap(1.1);  // the supervisor looks once a second, and sees that not all are ready
        int w = enter(c, at, b);
        if (w >= WORLDS) return ERR_OK;
        nap(0.1);
        if (w) atomic_store(&b->step, 95);
        nap(0.1);
        if (at->rank == w % 3) raise(SIGKILL);
        while (!peer_lost(b)) nap(0.002);
        TRY(leave(at, &over));
    }
    return ERR_OK;
}

static void worlds_that_go_back_are_in_vain(void **state) {
    (void)state;
    trial *t = prepare(die_in_turn_before_a_new_step, 3);
    t->heals = true;
    start(t);
    lab *l = finish(t);
    assert_end(l, ERR_UNAVAILABLE,
               "rank 1 (localhost) was killed by signal 9 (Killed): 4 worlds in a row ended before a new step was "
               "finished after step 100");
    assert_int_equal(book->worlds, 5);
    drop(t);
}

static err_t finish_or_wait(const config *c, const launch *at, board *b) {
    bool over = false;
    enter(c, at, b);
    if (at->rank == 0) return nap(0.1), ERR_OK;
    if (at->rank == 1) return leave(at, &over) == ERR_OK && over ? ERR_OK : ERR_INTERNAL;
    nap(0.15);
    raise(SIGKILL);
    return ERR_OK;
}

// Who has finished knew that all had; whatever happens to the rest undoes nothing.
static void a_run_that_was_finished_is_well(void **state) {
    (void)state;
    trial *t = prepare(finish_or_wait, 2);
    t->heals = true;
    start(t);
    assert_end(finish(t), ERR_OK, "");
    assert_int_equal(book->worlds, 1);
    drop(t);
}

// The only rank is started again, too. Asked to stop between two worlds, it is not.
static err_t die_alone(const config *c, const launch *at, board *b) {
    int w = enter(c, at, b);
    if (w == 0) raise(SIGKILL);
    if (c->run.steps == 1) return ERR_OK;
    raise(SIGKILL);
    return ERR_OK;
}

static void one_rank_is_started_again(void **state) {
    (void)state;
    trial *t = prepare(die_alone, 1);
    t->heals = true;
    t->c.run.steps = 1;
    start(t);
    assert_end(finish(t), ERR_OK, "");
    assert_int_equal(book->worlds, 2);
    drop(t);
}

// Asks the run to stop while its rank, which has died twice, waits a second for its next start.
static lab *stop_after_two_deaths(trial *t) {
    start(t);
    for (double until = seconds() + 20; atomic_load(&book->worlds) < 2 && seconds() < until;) nap(0.002);
    nap(0.2);
    kill(t->pid, SIGTERM);
    lab *l = finish(t);
    assert_end(l, ERR_INTERRUPTED,
               "stopped on request while lost ranks were being replaced; the same command continues");
    return l;
}

static void a_request_to_stop_ends_the_waiting(void **state) {
    (void)state;
    trial *t = prepare(die_alone, 1);
    t->heals = true;
    stop_after_two_deaths(t);
    assert_int_equal(book->worlds, 2);
    if (t->took > 1.5) fail_msg("it took %.1f s", t->took);
    drop(t);
}

// What is in memory is saved first, in a world of its own, and that may take longer than a start may after such a
// request.
static err_t save_slowly(const config *c, const launch *at, board *b) {
    int w = enter(c, at, b);
    if (!at->yard->news.last && w == 0) nap(1.2);  // until the supervisor has seen that all are ready
    if (!at->yard->news.last) raise(SIGKILL);
    atomic_store(&b->ready, 0);
    nap(11);
    atomic_fetch_add(&here->saved, 1);
    return err_set(ERR_INTERRUPTED, "saved");
}

static void what_is_in_memory_is_saved_first(void **state) {
    (void)state;
    trial *t = prepare(save_slowly, 1);
    t->heals = t->keeps = true;
    lab *l = stop_after_two_deaths(t);
    assert_int_equal(l->saved, 1);
    assert_int_equal(book->worlds, 3);
    assert_true(book->news[2].last && !book->news[1].last);
    drop(t);
}

// After a world in which all has been saved a run ends as it would have without that world: where a rank's device fails
// again and again, and where no rank ended and yet no world came further.
static err_t save_if_it_is_the_last(const launch *at) {
    if (!at->yard->news.last) return ERR_OK;
    atomic_fetch_add(&here->saved, 1);
    return err_set(ERR_INTERRUPTED, "saved");
}

static err_t lose_the_device(const config *c, const launch *at, board *b) {
    int w = enter(c, at, b);
    TRY(save_if_it_is_the_last(at));
    if (w == 0) nap(1.2);  // until the supervisor has seen that all are ready
    return err_set(ERR_UNAVAILABLE, "the device does not answer");
}

static err_t lose_each_other(const config *c, const launch *at, board *b) {
    for (bool over = false; !over;) {
        int w = enter(c, at, b);
        TRY(save_if_it_is_the_last(at));
        nap(w == 0 ? 1.2 : 0.1);
        TRY(leave(at, &over));
    }
    return ERR_INTERNAL;  // there is a last world
}

static void a_run_that_saved_first_ends_with_the_cause(void **state) {
    (void)state;
    static const struct {
        err_t (*life)(const config *c, const launch *at, board *b);
        int ranks, worlds;
        err_t code;
        const char *says;
    } ends[] = {
        {lose_the_device, 1, 5, ERR_UNAVAILABLE,
         "rank 0 (localhost) ended with 69: 4 times in a row, and no new step was finished between: look at its "
         "device, its memory and dmesg"},
        {lose_each_other, 2, 6, ERR_INTERNAL, "4 worlds in a row ended before a new step was finished after step 0"}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        memset(book, 0, sizeof *book);
        trial *t = prepare(ends[i].life, ends[i].ranks);
        t->heals = t->keeps = true;
        start(t);
        lab *l = finish(t);
        assert_end(l, ends[i].code, ends[i].says);
        assert_int_equal(l->saved, ends[i].ranks);
        assert_int_equal(book->worlds, ends[i].worlds);
        drop(t);
    }
}

// Not asked to heal, it does what it always did.
static void without_it_a_lost_rank_ends_the_run(void **state) {
    (void)state;
    trial *t = prepare(die_alone, 1);
    start(t);
    assert_end(finish(t), ERR_UNAVAILABLE, "rank 0 (localhost) was killed by signal 9 (Killed)");
    drop(t);
}

static int open_book(void **state) {
    (void)state;
    book = share(sizeof *book);
    return 0;
}

static int close_book(void **state) {
    end_trials(state);
    return munmap(book, sizeof *book);
}

#define TRIAL(f) cmocka_unit_test_setup_teardown(f, open_book, close_book)

int main(void) {
    const struct CMUnitTest tests[] = {
        TRIAL(who_lives_keeps_its_process),
        TRIAL(who_does_not_leave_is_killed),
        TRIAL(an_error_that_stays_ends_all),
        TRIAL(a_rank_that_dies_again_and_again_is_left_out),
        TRIAL(the_last_one_that_dies_again_and_again_ends_the_run),
        TRIAL(one_that_is_needed_ends_the_run),
        TRIAL(who_waits_in_vain_and_dies_stays_away),
        TRIAL(worlds_that_go_back_are_in_vain),
        TRIAL(a_run_that_was_finished_is_well),
        TRIAL(one_rank_is_started_again),
        TRIAL(a_request_to_stop_ends_the_waiting),
        TRIAL(what_is_in_memory_is_saved_first),
        TRIAL(a_run_that_saved_first_ends_with_the_cause),
        TRIAL(without_it_a_lost_rank_ends_the_run),
        TRIAL(the_board_of_a_new_world_is_clear),
        TRIAL(who_takes_no_world_is_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
