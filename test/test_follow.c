// test/test_follow.c: what a supervisor of a run of several nodes does with what its council has decided, at times that
// the test makes up. No process is started: the places are those of ranks that are said to be in a world.
#include "trainer/node/crew.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { RANKS = 2, NODES = 2 };

static crew *a_crew_in_a_world(uint64_t epoch) {
    crew *w = calloc(1, sizeof *w);
    assert_non_null(w);
    *w = (crew){.locals = RANKS, .seats = RANKS, .world = RANKS * NODES, .nodes = NODES, .over = -1, .root = -1};
    w->d.fd = w->own_delegate = w->own_yard = w->vault = w->voice.fd = -1;
    w->b = calloc(1, board_bytes(RANKS)), w->ruling = calloc(1, sizeof *w->ruling), w->cl = calloc(1, sizeof *w->cl);
    w->h = healing_new(RANKS), w->yard = malloc(RANKS * sizeof *w->yard), w->pid = calloc(RANKS, sizeof *w->pid);
    assert_true(w->b && w->ruling && w->cl && w->h && w->yard && w->pid);
    for (int i = 0; i < RANKS; i++) w->yard[i] = -1;
    w->h->several = true, w->entered = epoch, w->d.life = 7;
    w->over = eventfd(0, EFD_NONBLOCK);
    assert_true(w->over >= 0);
    healing_began(w->h, 0);
    healing_opened(w->h);
    return w;
}

static void drop(crew *w) {
    if (w->over >= 0) close(w->over);
    free(w->b), free(w->ruling), free(w->cl), free(w->h), free(w->yard), free(w->pid), free(w);
}

static void decide(crew *w, uint64_t epoch, decree_kind kind) {
    council_record *r = &w->ruling->record;
    w->ruling->has_record = true, w->ruling->action = COUNCIL_STAY;
    *r = (council_record){.k = epoch, .epoch = epoch, .kind = kind, .nodes = NODES, .ranks = RANKS * NODES};
    for (int j = 0; j < NODES; j++) set_add(&r->members, j);
    r->life[0] = w->d.life;
}

static void look(crew *w, double now) {
    static const config c;
    assert_int_equal(crew_follow(w, &c, now), RANKS);
}

static bool was_told_to_leave(crew *w) {
    eventfd_t n = 0;
    return eventfd_read(w->over, &n) == 0 && n > 0;
}

// The ranks of a world that is over are told so at once.
static void a_loss_ends_the_world_at_once(void **state) {
    (void)state;
    crew *w = a_crew_in_a_world(1);
    decide(w, 1, DECREE_FORM), look(w, 10);
    assert_false(was_told_to_leave(w));
    decide(w, 2, DECREE_HEAL), look(w, 11);
    assert_true(was_told_to_leave(w));
    assert_int_equal(atomic_load(&w->b->failed), 1);
    assert_int_equal(atomic_load(&w->b->turn), 0);
    assert_true(w->h->failed_at == 11);
    drop(w);
}

// Where a node comes or goes they are asked to leave at a step that all agree on, and have a minute for it: however
// often the supervisor looks meanwhile, who hangs then is told to leave as after a loss.
static void a_turn_has_a_minute(void **state) {
    (void)state;
    static const decree_kind kinds[] = {DECREE_JOIN, DECREE_DRAIN};
    for (int i = 0; i < 2; i++) {
        crew *w = a_crew_in_a_world(1);
        decide(w, 2, kinds[i]);
        for (double now = 100; now < 160; now += 0.3) {
            look(w, now);
            assert_int_equal(atomic_load(&w->b->turn), 1);
            assert_int_equal(atomic_load(&w->b->failed), 0);
            assert_true(w->due == 160);  // when to look again, if nothing happens before
            assert_false(was_told_to_leave(w));
        }
        look(w, 160);
        assert_int_equal(atomic_load(&w->b->failed), 1);
        assert_true(was_told_to_leave(w) && w->h->failed_at == 160);
        drop(w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_loss_ends_the_world_at_once),
                                       cmocka_unit_test(a_turn_has_a_minute)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
