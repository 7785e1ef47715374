// test/test_fence.c: worlds of nodes that follow each other. Ranks of another one are strangers to a meeting, however
// often they come; a world is over when its launch says so; and rank 0 may listen on a port of its own.
#include "test/support/team.h"

#include <sys/eventfd.h>

enum { STRANGERS = 40 };  // the first slot of their results

typedef enum { OF_THIS_WORLD, OTHER_FENCE, OTHER_EPOCH, NO_FENCE, WORLDS } origin;
static int over = -1;  // the eventfd of these tests' launches

static void enclose(scene *s, launch *l, team_options *o) {
    l->fenced = s->number != NO_FENCE;
    memset(l->fence, s->number == OTHER_FENCE || s->number == OTHER_EPOCH ? 9 : 4, sizeof l->fence);
    if (s->number == OTHER_EPOCH) o->epoch = 2;
    if (over < 0) return;
    l->over = malloc(sizeof *l->over);
    *l->over = dup(over);
}

static scene *fenced_scene(int nodes, const int *ranks) {
    scene *s = scene_open(nodes, ranks);
    s->tweak = enclose;
    s->body = wait_for_all;
    s->o.links = true;
    s->o.timeout_s = 20;
    return s;
}

static void until_returned(scene *s, int slot) {
    for (double until = now_s() + 20; s->b->rank[slot].joined < 0 && now_s() < until;) nap(0.002);
    assert_true(s->b->rank[slot].joined >= 0);
}

// --- strangers -------------------------------------------------------------------------------------------------------

// The ranks of node `node` from elsewhere, which give up after a moment.
static const result *send_stranger(scene *s, origin from, int node, int slot) {
    double patience = s->o.timeout_s;
    s->number = from, s->o.timeout_s = 0.3;
    start_node(s, node, slot);
    s->number = OF_THIS_WORLD, s->o.timeout_s = patience;
    return &s->b->rank[slot];
}

static void a_meeting_goes_on_without_strangers(void **state) {
    (void)state;
    scene *s = fenced_scene(3, (int[]){1, 1, 1});
    start_node(s, 0, -1);
    close(dial(0, s->port));  // it listens
    for (int i = 0; i < 6; i++) {
        const result *r = send_stranger(s, (origin)(1 + i % 3), 1 + i % 2, STRANGERS + i);
        until_returned(s, STRANGERS + i);
        if (r->joined != ERR_AUTH) fail_msg("stranger %d: %d, %s", i, r->joined, r->text);
        assert_text(r->text, "does not know the secret");
        assert_int_equal(s->b->rank[0].joined, -1);
    }
    for (int node = 1; node < 3; node++) start_node(s, node, -1);
    assert_int_equal(reap(s), 0);
    all_well(s);
    scene_close(s);
}

// Rank 0 of the world before still meets, on the same port: who belongs to the next one calls until the right one has
// it.
static void the_right_rank_0_is_waited_for(void **state) {
    (void)state;
    for (int from = OF_THIS_WORLD + 1; from < WORLDS; from++) {
        scene *s = fenced_scene(2, (int[]){1, 1});
        const result *late = send_stranger(s, (origin)from, 0, STRANGERS);
        start_node(s, 1, -1);
        until_returned(s, STRANGERS);
        assert_int_equal(late->joined, ERR_UNAVAILABLE);
        assert_text(late->text, "1 of 2 ranks did not come");
        assert_int_equal(s->b->rank[1].joined, -1);
        start_node(s, 0, -1);
        assert_int_equal(reap(s), 0);
        all_well(s);
        scene_close(s);
    }
}

// --- over ------------------------------------------------------------------------------------------------------------

static void work_until_it_ends(scene *s, team *t, result *r) {
    (void)s;
    double known = 0;
    r->alive_at = -1;
    poll(&(struct pollfd){.fd = team_fd(t), .events = POLLIN}, 1, 20000);
    if (team_query(t) != ERR_OK) team_failed_at(t, &known, &r->alive_at);
}

static void all_were_ended(scene *s) {
    assert_int_equal(reap(s), 0);
    for (int i = 0; i < world_of(s); i++) {
        const result *r = &s->b->rank[i];
        assert_int_equal(r->joined, ERR_OK);
        assert_int_equal(r->after, ERR_UNAVAILABLE);
        assert_text(r->later, "the nodes have ended this world");
        assert_true(r->left);
        assert_true(r->alive_at == 0);  // it is for the nodes to say since when
    }
}

// Each node's launch says so, or one alone: the others hear it from that one's ranks.
static void a_team_that_works_is_ended(void **state) {
    (void)state;
    for (int who = -1; who < 3; who++) {
        scene *s = fenced_scene(3, (int[]){1, 2, 1});
        int bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        s->body = work_until_it_ends;
        for (int node = 0; node < 3; node++) {
            over = who < 0 || who == node ? bell : -1;
            start_node(s, node, -1);
        }
        await_count(&s->b->joined, 4);
        assert_int_equal(eventfd_write(bell, 1), 0);
        all_were_ended(s);
        close(bell), over = -1;
        scene_close(s);
    }
}

// It came while they met.
static void a_team_that_has_just_met_is_ended(void **state) {
    (void)state;
    scene *s = fenced_scene(2, (int[]){1, 2});
    over = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    s->o.links = false;  // without links the meeting ends well
    s->body = work_until_it_ends;
    for (int node = 0; node < 2; node++) start_node(s, node, -1);
    all_were_ended(s);
    close(over), over = -1;
    scene_close(s);
}

// --- rank 0's port ---------------------------------------------------------------------------------------------------

static void rank_0_listens_elsewhere(void **state) {
    (void)state;
    for (int own = 0; own < 2; own++) {
        scene *s = fenced_scene(2, (int[]){2, 1});
        int council = listen_at(0, s->port);  // has the port that rank 0 would take
        s->o.star_port = own ? s->port + 4 : 0;
        if (!own) s->o.timeout_s = 1;
        run_all(s);
        if (own) all_well(s);
        else {
            assert_int_equal(s->b->rank[0].joined, ERR_UNAVAILABLE);
            assert_text(s->b->rank[0].text, "can't be listened on");
        }
        close(council);
        scene_close(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_meeting_goes_on_without_strangers),
        cmocka_unit_test(the_right_rank_0_is_waited_for),
        cmocka_unit_test(a_team_that_works_is_ended),
        cmocka_unit_test(a_team_that_has_just_met_is_ended),
        cmocka_unit_test(rank_0_listens_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
