// test/test_next.c: the next world of one node's ranks after a place was retired, or a rank was slow: those that are
// left move up, and each is given, named and put out as what it is then. The ranks are processes that sleep: the test
// hears what they would.
#include "comm/team/handover.h"
#include "trainer/node/crew.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, WORD_MOST = 4096 };

typedef struct node {
    config c;
    crew w;
    int rank[RANKS];  // their ends
} node;

static err_t any_world(const config *c, int world) { return (void)c, (void)world, ERR_OK; }

static node *a_node_without_place(int retired) {
    node *n = calloc(1, sizeof *n);
    assert_non_null(n);
    fflush(NULL);
    assert_int_equal(config_load(&n->c, NULL, 0), ERR_OK);
    n->w = (crew){.locals = RANKS, .seats = RANKS, .world = RANKS, .nodes = 1, .root = -1, .leaves = -1, .over = -1};
    crew *w = &n->w;
    w->fits = any_world;
    w->d.fd = w->own_delegate = w->own_yard = w->vault = w->voice.fd = -1;
    w->b = calloc(1, board_bytes(RANKS)), w->h = healing_new(RANKS);
    w->yard = malloc(RANKS * sizeof *w->yard), w->pid = calloc(RANKS, sizeof *w->pid);
    w->place = calloc(RANKS, sizeof *w->place);
    assert_true(w->b && w->h && w->yard && w->pid && w->place);
    for (int i = 0; i < RANKS; i++) {
        int pair[2];
        if ((w->pid[i] = fork()) == 0) prctl(PR_SET_PDEATHSIG, SIGKILL), pause(), _exit(0);
        assert_true(w->pid[i] > 0);
        assert_int_equal(yard_open(pair), ERR_OK);
        w->yard[i] = pair[0], n->rank[i] = pair[1];
        w->place[i] = (comm_place){.rank = i, .local = i, .host = "localhost"};
    }
    healing_began(w->h, 0);
    healing_opened(w->h);
    healing_retired(w->h, retired);
    return n;
}

static void drop(node *n) {
    crew *w = &n->w;
    for (int i = 0; i < RANKS; i++) {
        kill(w->pid[i], SIGKILL), waitpid(w->pid[i], NULL, 0);
        close(w->yard[i]), close(n->rank[i]);
    }
    free(w->b), free(w->h), free(w->yard), free(w->pid), free(w->place), free(n);
}

// The rank of the next world that the process in this place becomes.
static int taken_by(node *n, int slot) {
    uint8_t word[WORD_MOST];
    launch at;
    assert_true(recv(n->rank[slot], word, sizeof word, MSG_DONTWAIT) > 0);
    assert_int_equal(launch_take(&at, n->rank[slot]), ERR_OK);
    int rank = at.rank;
    assert_int_equal(at.world, RANKS - 1);
    launch_close(&at);
    return rank;
}

static void who_is_left_moves_up(void **state) {
    (void)state;
    for (int retired = 0; retired < RANKS; retired++) {
        node *n = a_node_without_place(retired);
        for (int i = 0; i < RANKS; i++)
            if (i != retired) healing_left(n->w.h, i, 100);
        assert_int_equal(crew_heal(&n->w, &n->c, 101), RANKS);
        assert_int_equal(n->w.seats, RANKS - 1);
        for (int i = 0, rank = 0; i < RANKS; i++) {
            if (i == retired) continue;
            assert_int_equal(n->w.h->slot[i].place, SLOT_IN);
            assert_int_equal(taken_by(n, i), rank);
            assert_int_equal(n->w.place[i].rank, rank);
            rank++;
        }
        drop(n);
    }
}

// The ranks say which of them is slow by its number in their world.
static void who_is_slow_is_found(void **state) {
    (void)state;
    for (int retired = 0; retired < RANKS; retired++)
        for (int seat = 0; seat < RANKS - 1; seat++) {
            node *n = a_node_without_place(retired);
            atomic_store(&n->w.b->slow_times, 3), atomic_store(&n->w.b->slow, seat + 1);
            assert_int_equal(crew_heal(&n->w, &n->c, 100), RANKS);
            assert_int_equal(n->w.leaves, seat + (seat >= retired));
            assert_int_equal(atomic_load(&n->w.b->turn), 1);
            drop(n);
        }
}

// One slow rank after the other, and only where enough are left.
static void one_leaves_at_a_time(void **state) {
    (void)state;
    node *n = a_node_without_place(2);
    n->c.cluster.min_ranks = 2;
    atomic_store(&n->w.b->slow, 1);
    assert_int_equal(crew_heal(&n->w, &n->c, 100), RANKS);
    assert_int_equal(n->w.leaves, -1);
    n->c.cluster.min_ranks = 1;
    for (int seat = 0; seat < 2; seat++) {
        atomic_store(&n->w.b->slow, seat + 1);
        assert_int_equal(crew_heal(&n->w, &n->c, 101), RANKS);
        assert_int_equal(n->w.leaves, 0);
    }
    drop(n);
}

static void all_leave(node *n, double now) {
    for (int i = 0; i < RANKS; i++)
        if (n->w.h->slot[i].place == SLOT_IN) healing_left(n->w.h, i, now);
    assert_int_equal(crew_heal(&n->w, &n->c, now), RANKS);
}

// The world that follows on a slow rank is no heal, and one that follows on that is.
static void after_a_slow_rank_a_loss_is_one_again(void **state) {
    (void)state;
    node *n = a_node_without_place(2);
    atomic_store(&n->w.b->slow, 1);
    assert_int_equal(crew_heal(&n->w, &n->c, 100), RANKS);
    all_leave(n, 101);
    assert_int_equal(n->w.h->slot[0].place, SLOT_GOING);
    healing_ended(n->w.h, 0, 0, 102);
    assert_int_equal(crew_heal(&n->w, &n->c, 103), RANKS);
    assert_int_equal(n->w.seats, 1);
    assert_true(n->w.news.evicted && strstr(n->w.news.why, "rank 0 (localhost) stays"));
    assert_true(atomic_load(&n->w.b->evicted) == 1 && atomic_load(&n->w.b->heals) == 0);
    all_leave(n, 200);
    assert_false(n->w.news.evicted);
    assert_string_equal(n->w.news.why, "the ranks had lost each other");
    assert_true(atomic_load(&n->w.b->evicted) == 1 && atomic_load(&n->w.b->heals) == 1);
    drop(n);
}

// Asked to stop while a rank leaves, they meet once more, to save: the run does not go on, so that is no heal. Asked
// again meanwhile, it changes nothing.
static void the_last_world_is_no_heal(void **state) {
    (void)state;
    node *n = a_node_without_place(2);
    crew *w = &n->w;
    w->began = true, w->vault = 0, w->asked = 1;
    healing_left(w->h, 0, 100);
    assert_int_equal(crew_heal(w, &n->c, 101), RANKS);
    assert_true(w->h && w->h->last_at == 101 && !w->h->last);
    all_leave(n, 102);
    assert_true(w->h && w->h->last && w->news.last && !w->news.evicted);
    assert_int_equal(w->seats, RANKS - 1);
    assert_int_equal(atomic_load(&w->b->heals), 0);
    for (int i = 0; i < 2; i++) healing_ended(w->h, i, ERR_INTERRUPTED << 8, 103);
    assert_int_equal(crew_heal(w, &n->c, 103), RANKS);
    assert_true(!w->h && w->stopped && w->root < 0);
    assert_non_null(strstr(w->hopeless, "stopped on request while lost ranks were being replaced"));
    drop(n);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(who_is_left_moves_up), cmocka_unit_test(who_is_slow_is_found),
                                       cmocka_unit_test(one_leaves_at_a_time),
                                       cmocka_unit_test(after_a_slow_rank_a_loss_is_one_again),
                                       cmocka_unit_test(the_last_world_is_no_heal)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
