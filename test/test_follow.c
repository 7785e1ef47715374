// test/test_follow.c: what a supervisor of a run of several nodes does with what its council has decided, at times that
// the test makes up. Ranks are processes that sleep, or none at all: what they do is said for them.
#include "trainer/node/crew.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 2, NODES = 2 };

// Ranks that sleep, with yards of their own.
static void add_ranks(crew *w) {
    fflush(NULL);
    for (int i = 0; i < RANKS; i++) {
        int pair[2];
        assert_int_equal(yard_open(pair), ERR_OK);
        w->yard[i] = pair[0];
        if ((w->pid[i] = fork()) == 0) prctl(PR_SET_PDEATHSIG, SIGKILL), pause(), _exit(0);
        assert_true(w->pid[i] > 0);
        close(pair[1]);
    }
}

static crew *a_crew_in_a_world(uint64_t epoch) {
    crew *w = calloc(1, sizeof *w);
    assert_non_null(w);
    *w = (crew){.locals = RANKS, .seats = RANKS, .world = RANKS * NODES, .nodes = NODES, .over = -1, .root = -1};
    w->d.fd = w->own_delegate = w->own_yard = w->vault = w->voice.fd = -1;
    w->b = calloc(1, board_bytes(RANKS)), w->ruling = calloc(1, sizeof *w->ruling), w->cl = calloc(1, sizeof *w->cl);
    w->h = healing_new(RANKS), w->yard = malloc(RANKS * sizeof *w->yard), w->pid = calloc(RANKS, sizeof *w->pid);
    w->place = calloc(RANKS, sizeof *w->place);
    assert_true(w->b && w->ruling && w->cl && w->h && w->yard && w->pid && w->place);
    for (int i = 0; i < RANKS; i++) w->yard[i] = -1;
    w->h->several = true, w->entered = epoch, w->d.life = 7;
    w->over = eventfd(0, EFD_NONBLOCK);
    assert_true(w->over >= 0);
    healing_began(w->h, 0);
    healing_opened(w->h);
    return w;
}

static void drop(crew *w) {
    for (int i = 0; i < RANKS; i++)
        if (w->pid[i]) kill(w->pid[i], SIGKILL), waitpid(w->pid[i], NULL, 0), close(w->yard[i]);
    if (w->over >= 0) close(w->over);
    if (w->d.fd >= 0) close(w->d.fd);
    free(w->b), free(w->ruling), free(w->cl), free(w->h), free(w->yard), free(w->pid), free(w->place), free(w);
}

static void decide(crew *w, uint64_t epoch, decree_kind kind) {
    council_record *r = &w->ruling->record;
    w->ruling->has_record = true, w->ruling->action = COUNCIL_STAY;
    *r = (council_record){.k = epoch, .epoch = epoch, .kind = kind, .nodes = NODES, .ranks = RANKS * NODES};
    for (int j = 0; j < NODES; j++) set_add(&r->members, j), snprintf(w->cl->host[j], COMM_HOST, "127.0.0.%d", j + 1);
    for (int i = 0; i < r->ranks; i++) r->seat[i] = (council_seat){(uint16_t)(i / RANKS), (uint16_t)(i % RANKS)};
    r->life[0] = w->d.life;
}

static void look(crew *w, double now) {
    static config c;
    if (!c.run.steps) assert_int_equal(config_load(&c, NULL, 0), ERR_OK);
    assert_int_equal(crew_follow(w, &c, now), RANKS);
}

static void all_wait(crew *w, double now) {
    for (int i = 0; i < RANKS; i++) healing_left(w->h, i, now);
}

// The council's end: what it was told last.
static int listen_to(crew *w) {
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    w->d.fd = pair[0];
    return pair[1];
}

static node_facts facts_at(int fd) {
    node_facts f, last;
    int n = 0;
    while (recv(fd, &f, sizeof f, MSG_DONTWAIT) == sizeof f) last = f, n++;
    assert_true(n > 0);
    return last;
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

// --- the next world --------------------------------------------------------------------------------------------------

// It follows on a turn, and what is lost in it is a failure again.
static void after_a_turn_a_loss_is_one_again(void **state) {
    (void)state;
    crew *w = a_crew_in_a_world(1);
    add_ranks(w);
    int council = listen_to(w);
    decide(w, 2, DECREE_JOIN), look(w, 100);
    node_facts f = facts_at(council);
    assert_true(f.entered == 1 && f.inside && !f.ready && !f.failed && f.slots == RANKS);
    healing_left(w->h, 0, 101), look(w, 101);
    assert_false(w->d.facts.failed);  // who leaves at a turn has not failed
    healing_left(w->h, 1, 102), look(w, 102);
    f = facts_at(council);
    assert_true(f.entered == 2 && f.seats == RANKS && f.inside && !f.ready && !f.failed);
    assert_int_equal(atomic_load(&w->b->turn), 0);
    assert_int_equal(atomic_load(&w->b->failed), 0);
    healing_ended(w->h, 1, SIGKILL, 103), look(w, 103);
    f = facts_at(council);
    assert_true(f.entered == 2 && f.inside && f.failed);
    close(council);
    drop(w);
}

// How long it took to notice a loss is of that loss, not of one before: here the second one is a rank's own.
static void each_loss_has_its_own_time(void **state) {
    (void)state;
    crew *w = a_crew_in_a_world(1);
    add_ranks(w);
    decide(w, 2, DECREE_HEAL), w->ruling->silent_s = 5, look(w, 100);
    look(w, 101), all_wait(w, 102), look(w, 102);  // however often it looks meanwhile
    assert_true(w->entered == 2 && w->news.failed_at == 95);
    healing_left(w->h, 0, 200), look(w, 200);
    decide(w, 3, DECREE_HEAL), w->ruling->silent_s = 0, look(w, 201);
    healing_left(w->h, 1, 202), look(w, 202);
    assert_true(w->entered == 3 && w->news.failed_at == 200);
    drop(w);
}

// Another node's ranks were told before this node was, and ours have left with them: the silence counts all the same.
// Where a rank of ours has seen the end itself, and the nodes put out who has ended, it is that end which counts.
static void a_silence_is_one_for_who_hears_of_it_late(void **state) {
    (void)state;
    for (int seen = 0; seen < 2; seen++) {
        crew *w = a_crew_in_a_world(1);
        add_ranks(w);
        board_lost(w->b, 99, seen ? 98 : 0);
        healing_left(w->h, 0, 99.5), look(w, 99.5);
        healing_left(w->h, 1, 99.75), look(w, 99.75);
        decide(w, 2, DECREE_HEAL), w->ruling->silent_s = 5, look(w, 100);
        assert_true(w->entered == 2 && w->news.failed_at == (seen ? 98 : 95) && w->news.lost_at == 99);
        assert_true(w->news.left_at == 99.75 && w->alive_at == 0);
        drop(w);
    }
}

// The ranks that are left move up, and are named as what they are then.
static void who_is_left_moves_up(void **state) {
    (void)state;
    crew *w = a_crew_in_a_world(1);
    add_ranks(w);
    healing_retired(w->h, 0), healing_left(w->h, 1, 100);
    decide(w, 2, DECREE_HEAL);
    council_record *r = &w->ruling->record;
    for (int i = 0; i < r->ranks; i++) r->seat[i] = r->seat[i + 1];
    r->ranks--, look(w, 101);
    assert_true(w->entered == 2 && w->seats == 1);
    assert_int_equal(w->h->slot[1].place, SLOT_IN);
    assert_true(w->place[1].node == 0 && w->place[1].rank == 0);
    drop(w);
}

// A record that names another life of this node speaks of ranks that are gone: these wait until they are taken in.
static void another_life_is_no_member(void **state) {
    (void)state;
    crew *w = a_crew_in_a_world(0);
    add_ranks(w);
    all_wait(w, 50);
    decide(w, 3, DECREE_HEAL), w->ruling->record.life[0] = 8, look(w, 100);
    assert_int_equal(w->entered, 0);
    decide(w, 3, DECREE_HEAL), set_drop(&w->ruling->record.members, 0), look(w, 101);
    assert_int_equal(w->entered, 0);
    decide(w, 4, DECREE_JOIN), look(w, 102);
    assert_int_equal(w->entered, 4);
    drop(w);
}

// Nodes 1 and 2 go on without node 0: their places in the world are others than in the list of nodes.
static void who_follows_a_lost_node_keeps_its_machine(void **state) {
    (void)state;
    static const int rack[] = {5, 5, 9};
    crew *w = a_crew_in_a_world(1);
    council_record *r = &w->ruling->record;
    add_ranks(w);
    all_wait(w, 100), decide(w, 2, DECREE_HEAL);
    w->node = 2, w->nodes = r->nodes = 3, r->life[2] = w->d.life;
    r->members = (node_set){{6}};
    for (int i = 0; i < r->ranks; i++) r->seat[i].node++;
    for (int j = 0; j < 3; j++) w->cl->rack[j] = rack[j], snprintf(w->cl->host[j], COMM_HOST, "127.0.0.%d", j + 1);
    look(w, 101);
    assert_int_equal(w->entered, 2);
    for (int i = 0; i < RANKS; i++) {
        assert_string_equal(w->place[i].host, "127.0.0.3");
        assert_int_equal(w->place[i].node, 1);
        assert_int_equal(w->place[i].rank, RANKS + i);
        assert_int_equal(w->place[i].rack, 1);
    }
    drop(w);
}

// --- the end of this node's part -------------------------------------------------------------------------------------

static err_t fits_any(const config *c, int world) { return (void)c, (void)world, ERR_OK; }
static err_t fits_none(const config *c, int world) { return (void)c, err_set(ERR_CONFIG, "%d are too few", world); }

// The ranks of a run that has begun leave a world that can't go on, as the council has decided.
static crew *a_crew_that_ends(err_t code, world_check fits) {
    crew *w = a_crew_in_a_world(1);
    add_ranks(w);
    w->began = true, w->vault = 0, w->fits = fits;
    decide(w, 1, DECREE_FORM);
    w->ruling->action = COUNCIL_END, w->ruling->code = code;
    snprintf(w->ruling->why, sizeof w->ruling->why, "gives up");
    look(w, 100);
    return w;
}

// They meet once more, alone, and know that it is not their first world. The council says the same again meanwhile.
static void what_is_in_memory_is_saved_first(void **state) {
    (void)state;
    crew *w = a_crew_that_ends(ERR_UNAVAILABLE, fits_any);
    look(w, 100.5);
    assert_true(w->h && w->h->last_at > 0 && !w->h->last && w->told == ERR_OK);
    assert_true(was_told_to_leave(w));
    int council = listen_to(w);
    all_wait(w, 101), look(w, 101);
    assert_true(w->h && w->h->last && w->seats == RANKS && w->world == RANKS);
    assert_true(w->news.last);
    assert_string_equal(w->news.why, "gives up");
    look(w, 102);
    node_facts f = facts_at(council);
    assert_true(f.failed && !f.ready);  // no world of others counts on them
    for (int i = 0; i < RANKS; i++) healing_ended(w->h, i, ERR_INTERRUPTED << 8, 103);
    look(w, 103);
    assert_true(!w->h && w->told == ERR_UNAVAILABLE);
    assert_string_equal(w->hopeless, "gives up");
    close(council);
    drop(w);
}

// Where the others go on, the state is with them.
static void who_is_drained_saves_nothing(void **state) {
    (void)state;
    crew *w = a_crew_that_ends(ERR_OK, fits_any);
    assert_true(!w->h && w->told == ERR_INTERRUPTED);
    drop(w);
}

// A run whose ranks are stages of a pipeline, say, each on a machine of its own.
static void where_no_layout_fits_it_ends(void **state) {
    (void)state;
    crew *w = a_crew_that_ends(ERR_UNAVAILABLE, fits_none);
    all_wait(w, 101), look(w, 101);
    assert_true(!w->h && w->told == ERR_UNAVAILABLE);
    assert_string_equal(w->hopeless, "gives up; what is in memory is not saved: no layout of the run fits the ranks of "
                                     "this machine alone (2)");
    drop(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_loss_ends_the_world_at_once),
                                       cmocka_unit_test(a_turn_has_a_minute),
                                       cmocka_unit_test(after_a_turn_a_loss_is_one_again),
                                       cmocka_unit_test(another_life_is_no_member),
                                       cmocka_unit_test(each_loss_has_its_own_time),
                                       cmocka_unit_test(a_silence_is_one_for_who_hears_of_it_late),
                                       cmocka_unit_test(who_is_left_moves_up),
                                       cmocka_unit_test(who_follows_a_lost_node_keeps_its_machine),
                                       cmocka_unit_test(what_is_in_memory_is_saved_first),
                                       cmocka_unit_test(who_is_drained_saves_nothing),
                                       cmocka_unit_test(where_no_layout_fits_it_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
