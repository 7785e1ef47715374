// test/test_evicting.c: [cluster] evict_slow in a run that is made up: what ranks report, and what its supervisor is
// asked to do then.
#include "test/support/config_file.h"
#include "trainer/evicting.h"
#include "trainer/log/report.h"
#include "trainer/node/yard.h"

enum { MOST_RANKS = 8, LANES = 16 };

// Four nodes at most. The session is that of rank 0.
typedef struct scene {
    fixture f;
    comm ranks, sharing;
    comm_place place[MOST_RANKS];
    session of;
    board b;
    evicting x;
    monitor m;
    double reports[MOST_RANKS * REPORT_ITEMS];
} scene;

// node [world]: on which each rank is.
static void open_scene(scene *s, const char *settings, int world, const int *node) {
    char text[1024];
    snprintf(text, sizeof text,
             "[model]\nlayers = 2\nheads = 2\nembed = 16\ncontext = 16\n[data]\nformat = raw16\n[batch]\nglobal = %d\n"
             "micro = 1\nlanes = %d\n[cluster]\nelastic = yes\nevict_slow = yes\nslow_s = 1\n%s",
             LANES, LANES, settings);
    if (load_text(&s->f, text) != ERR_OK) fail_msg("%s", err_last()->text);
    for (int k = 0; k < world; k++)
        s->place[k] =
            (comm_place){.node = node[k], .local = k && node[k] == node[k - 1] ? s->place[k - 1].local + 1 : 0};
    s->ranks = (comm){.world = world, .place = s->place};
    s->of = (session){.cfg = &s->f.c, .ranks = &s->ranks, .shape = config_grid(&s->f.c, world)};
    s->sharing = (comm){.world = s->of.shape.data * grid_context(&s->of.shape), .place = s->place};
    assert_int_equal(reduce_open(&s->of.state.reduce, &(reduce_options){.ranks = &s->sharing, .lanes = LANES}), ERR_OK);
    yard y = {.fd = -1};
    assert_int_equal(evicting_open(&s->x, &s->of, &(launch){.yard = &y}, &s->b), ERR_OK);
    assert_true(s->x.on);
}

static void close_scene(scene *s) {
    evicting_close(&s->x);
    reduce_close(s->of.state.reduce);
}

// A window in which every rank computes 100 ms in a step, and `slow` so many times as long.
static void window(scene *s, int slow, double times) {
    for (int i = 0; i < EVICT_STEPS; i++) {
        for (int k = 0; k < s->ranks.world; k++)
            s->reports[k * REPORT_ITEMS + REPORT_COMPUTE_MS] = k == slow ? 100 * times : 100;
        evicting_add(&s->x, &s->of, &s->m, s->reports);
    }
}

// Rank `slow` stays slow, and is asked for by its place, unless `stays`.
static void expect(void **state, const char *what, const char *settings, int world, const int *node, int slow,
                   int asks) {
    scene *s = calloc(1, sizeof *s);
    s->f = *(fixture *)*state;
    open_scene(s, settings, world, node);
    window(s, -1, 1);  // of its first step the times don't count
    for (int i = 0; i < EVICT_WINDOWS + 1; i++) window(s, slow, 8);
    int is = atomic_load(&s->b.slow);
    close_scene(s);
    free(s);
    if (is != asks) fail_msg("%s: place %d is asked for, expected %d", what, is, asks);
}

static void whom_the_run_can_do_without(void **state) {
    static const int one[MOST_RANKS] = {0}, two[] = {0, 0, 1, 1}, own[] = {0, 0, 0, 1}, turned[] = {0, 1, 1, 1};
    expect(state, "a rank", "", 4, one, 2, 3);
    expect(state, "the first one", "", 4, one, 0, 1);
    expect(state, "fewer than are wanted", "min_ranks = 4\n", 4, one, 2, 0);
    expect(state, "as many as are wanted", "min_ranks = 3\n", 4, one, 2, 3);
    expect(state, "of another node", "", 4, two, 2, 0);  // it asks its own supervisor
    expect(state, "its whole node goes", "min_ranks = 2\n", 4, two, 1, 2);
    expect(state, "and leaves too few", "min_ranks = 3\n", 4, two, 1, 0);
    expect(state, "a small node", "min_ranks = 3\n", 4, turned, 0, 1);
    expect(state, "a large node's loss costs more than it gains", "[parallel]\nbalance = auto\n", 4, own, 1, 0);
}

// Its supervisor may have been busy with something else.
static void what_is_asked_is_withdrawn(void **state) {
    static const int one[MOST_RANKS] = {0};
    scene *s = calloc(1, sizeof *s);
    s->f = *(fixture *)*state;
    open_scene(s, "", 4, one);
    window(s, -1, 1);
    for (int i = 0; i < EVICT_WINDOWS + 1; i++) window(s, 3, 8);
    assert_int_equal(atomic_load(&s->b.slow), 4);
    window(s, 3, 2.5);  // not well yet
    assert_int_equal(atomic_load(&s->b.slow), 4);
    window(s, 3, 1);
    window(s, 3, 1);
    assert_int_equal(atomic_load(&s->b.slow), 0);
    close_scene(s);
    free(s);
}

// Ranks that share positions are one place: here 0 and 1, which have 7 lanes, and 2 and 3, which have one.
static void lanes_are_those_of_a_place(void **state) {
    static const int one[MOST_RANKS] = {0};
    scene *s = calloc(1, sizeof *s);
    int64_t deal[] = {7, 7, 1, 1};
    s->f = *(fixture *)*state;
    open_scene(s, "[parallel]\ncontext = 2\nslices = 2\ntoken_slices = 2\nzero = 2\n", 4, one);
    reduce_close(s->of.state.reduce);
    assert_int_equal(
        reduce_open(&s->of.state.reduce, &(reduce_options){.ranks = &s->sharing, .lanes = LANES, .deal = deal}),
        ERR_OK);
    window(s, -1, 1);
    window(s, -1, 1);
    assert_true(s->x.deal[0] == 7 && s->x.deal[1] == 1);
    close_scene(s);
    free(s);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(whom_the_run_can_do_without),
        TEST(what_is_asked_is_withdrawn),
        TEST(lanes_are_those_of_a_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
