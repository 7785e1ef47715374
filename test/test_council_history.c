// test/test_council_history.c: the council's decisions under thousands of seeded histories of faults, and under all
// histories of three nodes to 12 events. LOCKSTEP_TEST_HISTORIES=1000000 plays more of them.
#include "test/support/council_world.h"

// --- storms ----------------------------------------------------------------------------------------------------------

static void cut_sides(world *w, double long_s) {
    int side = world_pick(w, 1 << w->n);
    for (int a = 0; a < w->n; a++)
        for (int b = 0; b < w->n; b++)
            if ((side >> a & 1) != (side >> b & 1)) w->cut[a][b] = w->now + long_s;
}

static void storm(world *w) {
    static const double length[] = {1, 3, 8, 20}, longer[] = {0, 3, 15};
    if (world_chance(w) > 0.03) return;
    int x = world_pick(w, w->n), y = world_pick(w, w->n), what = world_pick(w, 100);
    double s = length[world_pick(w, 4)];
    world_node *at = &w->node[x];
    if (what < 20) world_die(w, x, longer[world_pick(w, 3)]);
    else if (what < 30) world_council_dies(w, x);
    else if (what < 38) at->own.failed = at->up && world_member(w, x);
    else if (what < 50) at->frozen = w->now + s;
    else if (what < 60) at->stalled = w->now + s;
    else if (what < 75) w->cut[x][y] = w->now + s;
    else if (what < 85) w->cut[x][y] = w->cut[y][x] = w->now + s;
    else if (what < 95) cut_sides(w, s);
    else w->lossy = 0.3 * world_chance(w);
}

static int histories(int most) {
    const char *n = getenv("LOCKSTEP_TEST_HISTORIES");
    return n ? atoi(n) : most;
}

// After a storm all nodes come back, and a step follows.
static void storms(int n, int seeds, double most) {
    double worst = 0;
    int epochs = 0, runs = 0, late = -1;
    for (int seed = 0; seed < seeds; seed++) {
        world *w = world_open(n, (uint64_t)seed);
        w->through_bytes = seed % 50 == 0;
        world_begins(w);
        world_run_for(w, 40, storm);
        world_calms(w);
        double took = world_until_step(w, 150);
        if (took < 0) fail_msg("%d nodes, seed %d: no step in 150 s", n, seed);
        if (took > worst) worst = took, late = seed;
        epochs += w->epochs, runs += w->runs;
        world_close(w);
    }
    printf("%d nodes: %d histories, %d epochs, %d runs, a step after calm: at most %.1f s (seed %d)\n", n, seeds,
           epochs, runs, worst, late);
    assert_true(worst <= most);
}

static void storms_of_2(void **state) { (void)state, storms(2, histories(2000), 60); }
static void storms_of_3(void **state) { (void)state, storms(3, histories(5000), 60); }
static void storms_of_4(void **state) { (void)state, storms(4, histories(3000), 60); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(storms_of_2),
        cmocka_unit_test(storms_of_3),
        cmocka_unit_test(storms_of_4),
    };
    return cmocka_run_group_tests_name("council histories", tests, NULL, NULL);
}
