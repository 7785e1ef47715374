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
    else if (what < 92) cut_sides(w, s);
    else if (what < 95) at->own.leaving = w->returns;
    else w->lossy = 0.3 * world_chance(w);
}

static int histories(int most) {
    const char *n = getenv("LOCKSTEP_TEST_HISTORIES");
    return n ? atoi(n) : most;
}

typedef struct tally {
    double worst;
    uint64_t seed;
    int histories, epochs, runs, joins, late;  // late: over 15 s
} tally;

static void count(tally *t, const world *w, double took) {
    t->histories++, t->epochs += w->epochs, t->runs += w->runs, t->joins += w->joins;
    if (took > t->worst) t->worst = took, t->seed = w->seed;
}

static void report(const tally *t, const char *what, int n) {
    printf(
        "%s of %d: %d histories, %d epochs, %d joins, %d runs; a step after calm: at most %.1f s (seed %llu), %d late\n",
        what, n, t->histories, t->epochs, t->joins, t->runs, t->worst, (unsigned long long)t->seed, t->late);
}

static double step_follows(world *w, double most) {
    double took = world_until_step(w, most);
    if (took < 0) fail_msg("%d nodes, seed %llu: no step in %.0f s", w->n, (unsigned long long)w->seed, most);
    return took;
}

// After a storm all nodes come back, and a step follows: at most after some have given up and all begin anew. Half of
// the storms know drains, too.
static void storms(int n, int seeds) {
    tally t = {0};
    for (int seed = 0; seed < seeds; seed++) {
        world *w = world_open(n, (uint64_t)seed);
        w->through_bytes = seed % 50 == 0, w->returns = seed % 2;
        world_begins(w);
        world_run_for(w, 40, storm);
        world_calms(w);
        for (int a = 0; a < n; a++) w->node[a].own.leaving = false;
        count(&t, w, step_follows(w, 60));
        world_close(w);
    }
    report(&t, "storms", n);
}

static void storms_of_2(void **state) { (void)state, storms(2, histories(2000)); }
static void storms_of_3(void **state) { (void)state, storms(3, histories(5000)); }
static void storms_of_4(void **state) { (void)state, storms(4, histories(3000)); }

// --- enough are left -------------------------------------------------------------------------------------------------

// Are there enough voters, one with the state among them, that can all hear each other?
static bool enough_are_left(const world *w) {
    const council_record *r = NULL;
    node_set alive = {{0}}, with_state;
    for (int a = 0; a < w->n; a++) {
        const council_record *has = w->node[a].up ? w->node[a].newest : NULL;
        if (has && (!r || memcmp(r->run, has->run, COUNCIL_RUN) != 0 || has->k > r->k)) r = has;
    }
    for (int a = 0; r && a < w->n; a++)
        if (w->node[a].up && w->node[a].newest && memcmp(w->node[a].newest->run, r->run, COUNCIL_RUN) == 0 &&
            w->node[a].life == r->life[a])
            set_add(&alive, a);
    if (!r) return false;
    with_state = set_and(alive, &r->members);
    return council_enough(&alive, r) && !set_empty(&with_state);
}

// The next world is decided within 15 s and steps, in all but one of 200 histories at most: of 20 messages one is late
// by 1 to 3 s here, which is too late for a vote; and the first world may be what somebody accepted who has died since,
// so that another one has to follow. It may be one of the dead alone: they have taken the state along.
static void survivors_step(tally *t, world *w) {
    double took = world_until_step(w, 15);
    if (took < 0) {
        double more = world_until_step(w, 15);
        t->late++;
        took = more < 0 ? -1 : 15 + more;
    }
    if (took >= 0) count(t, w, took);
    else if (enough_are_left(w)) fail_msg("%d nodes, seed %llu: no step in 30 s", w->n, (unsigned long long)w->seed);
}

// Whoever is dead when calm comes stays dead.
static void survivors(int n, int seeds) {
    tally t = {0};
    for (int seed = 0; seed < seeds; seed++) {
        world *w = world_open(n, 1000000 + (uint64_t)seed);
        world_begins(w);
        world_run_for(w, 30, storm);
        world_calms(w);
        for (int a = 0; a < n; a++) w->node[a].gone |= !w->node[a].up;
        if (enough_are_left(w)) survivors_step(&t, w);
        world_close(w);
    }
    report(&t, "survivors", n);
    assert_true(t.histories > seeds / 3 && t.late <= 1 + seeds / 200);
}

static void survivors_go_on(void **state) {
    (void)state;
    survivors(2, histories(1000)), survivors(3, histories(1000)), survivors(4, histories(1000));
}

// A one-way cut; whoever decides what follows dies in that moment, for good, and the cut ends.
static void the_decider_dies(void **state) {
    (void)state;
    tally t = {0};
    int seeds = histories(600);
    for (int seed = 0; seed < seeds; seed++) {
        world *w = world_open(3 + seed % 2, (uint64_t)seed);
        world_begins(w);
        int a = world_pick(w, w->n), b = (a + 1 + world_pick(w, w->n - 1)) % w->n;
        w->cut[a][b] = 1e9, w->kills_decider = true;
        for (double from = w->now; w->kills_decider; world_tick(w))
            if (w->now > from + 30) fail_msg("seed %d: a one-way cut, and nothing follows", seed);
        world_calms(w);
        survivors_step(&t, w);
        world_close(w);
    }
    report(&t, "the decider dies", 4);
    assert_true(t.late <= 1 + seeds / 200);
}

// --- joins, drains, ends ---------------------------------------------------------------------------------------------

// In turns nodes leave and come back. No epoch is lost, and nobody gives up.
static void drains_and_joins(void **state) {
    (void)state;
    tally t = {0};
    for (int seed = 0, seeds = histories(200); seed < seeds; seed++) {
        world *w = world_open(2 + seed % 3, (uint64_t)seed);
        w->returns = true;
        world_begins(w);
        for (int turn = 0; turn < 4; turn++) {
            world_run_for(w, 14, NULL);
            int a = world_pick(w, w->n), joins = w->joins;
            w->node[a].own.leaving = true;
            for (double from = w->now; w->node[a].up; world_tick(w)) assert_true(w->now < from + 15);
            assert_int_equal(w->node[a].code, ERR_OK);
            for (double from = w->now; w->joins == joins; world_tick(w))
                if (w->now > from + 40) fail_msg("seed %d: node %d does not come back", seed, a);
        }
        for (int a = 0; a < w->n; a++) assert_true(w->node[a].ends == 0 || w->node[a].code == ERR_OK);
        assert_int_equal(w->runs, 1);
        assert_int_equal(w->joins, 4);
        count(&t, w, step_follows(w, 15));
        world_close(w);
    }
    report(&t, "drains and joins", 4);
}

// A step that kills whoever computes it, in a storm: the run ends, and no node is left that tries again.
static void a_poisoned_step(void **state) {
    (void)state;
    for (int seed = 0, seeds = histories(300); seed < seeds; seed++) {
        world *w = world_open(2 + seed % 3, (uint64_t)seed);
        world_begins(w);
        w->poison = 20 + world_pick(w, 20);
        world_run_for(w, 15, seed % 2 ? storm : NULL);
        world_calms(w);
        bool over = false;
        for (double from = w->now; !over; world_tick(w)) {
            if (w->now > from + 300) fail_msg("seed %d: it is tried again for 300 s", seed);
            over = true;
            for (int a = 0; a < w->n; a++) over &= w->node[a].gone || !w->node[a].newest;  // or it knows of no run
            if (w->runs > 1) break;  // the storm has ended the run: another one began without the state
        }
        for (int a = 0; a < w->n && w->runs == 1; a++)
            if (w->node[a].gone) assert_int_equal(w->node[a].code, ERR_INTERNAL);
        world_close(w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(storms_of_2),     cmocka_unit_test(storms_of_3),      cmocka_unit_test(storms_of_4),
        cmocka_unit_test(survivors_go_on), cmocka_unit_test(the_decider_dies), cmocka_unit_test(drains_and_joins),
        cmocka_unit_test(a_poisoned_step),
    };
    return cmocka_run_group_tests_name("council histories", tests, NULL, NULL);
}
