// test/test_comm_team.c: the tcp transport over a real team: rendezvous, links with their own keys, the watcher.
// test/test_comm.c tests what the collectives compute; here it is that all parts work together, and that a rank that
// dies in the middle ends the others' calls, with its name.
#include "comm/transport.h"
#include "test/support/team.h"

static const float nobody = -1;

static comm *open_transport(team *t, result *r) {
    comm *c = NULL;
    err_t rc = transport_open(&c, t, &(transport_options){.kind = TRANSPORT_TCP, .timeout_s = 10}, NULL);
    r->links = -1;
    if (rc != ERR_OK) team_fail(t, err_last()->text);
    return c;
}

// Calls of all sizes; the sums are whole numbers. Leaves the number of calls in r->links, or -1.
static void some_calls(scene *s, team *t, result *r) {
    (void)s;
    enum { MOST = 400000 };
    static const size_t sizes[] = {1, 7, 2048, 2049, 65537, MOST};
    static float x[MOST], y[MOST];
    comm *c = open_transport(t, r);
    if (!c) return;
    char about[64];
    int right = (c->rank + 1) % c->world, left = (c->rank + c->world - 1) % c->world, good = 0;
    transport_describe(c, about, sizeof about);
    keep_text(r->text, ERR_OK);
    snprintf(r->text, sizeof r->text, "%s", about);
    for (int k = 0; k < 30; k++) {
        size_t n = sizes[k % 6], wrong = 0;
        for (size_t i = 0; i < n; i++) x[i] = (float)(c->rank + (int)(i % 100)), y[i] = nobody;
        if (c->table->all_reduce(c, x, n, FP32, REDUCE_SUM, NULL) != ERR_OK) return;
        for (size_t i = 0; i < n; i++)
            wrong += x[i] != (float)(c->world * (c->world - 1) / 2 + c->world * (int)(i % 100));
        for (size_t i = 0; i < n; i++) x[i] = (float)c->rank;
        if (c->table->exchange(c, &(comm_part){right, x, 4 * n}, 1, &(comm_part){left, y, 4 * n}, 1, NULL) != ERR_OK)
            return;
        for (size_t i = 0; i < n; i++) wrong += y[i] != (float)left;
        if (wrong) return;
        good++;
    }
    r->links = good;
    if (c->table->barrier(c, NULL) != ERR_OK) r->links = -2;
    c->table->close(c);
}

// A second transport over the same team would repeat the keys of the first one's frames.
static void open_twice(scene *s, team *t, result *r) {
    some_calls(s, t, r);
    comm *c = open_transport(t, r);
    keep_text(r->text, ERR_INTERNAL);
    if (c) c->table->close(c);
}

static void a_second_transport_is_refused(void **state) {
    (void)state;
    scene *s = scene_open(2, (int[]){1, 2});
    s->o.links = true;
    s->body = open_twice;
    run_all(s);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(s->b->rank[r].joined, ERR_OK);
        assert_int_equal(s->b->rank[r].after, ERR_UNAVAILABLE);
        assert_text(s->b->rank[r].later, "is taken already: another transport needs another team");
    }
    scene_close(s);
}

static const char *const kinds[] = {"shared memory", "TCP", "shared memory and TCP"};

static void run_some_calls(int nodes, const int *ranks, const char *kind) {
    scene *s = scene_open(nodes, ranks);
    s->o.links = true;
    s->body = some_calls;
    run_all(s);
    all_well(s);
    for (int r = 0; r < world_of(s); r++) {
        assert_int_equal(s->b->rank[r].links, 30);
        assert_string_equal(s->b->rank[r].text, kind);
    }
    scene_close(s);
}

static void calls_work_over_a_real_team(void **state) {
    (void)state;
    run_some_calls(1, (int[]){2}, kinds[0]);
    run_some_calls(1, (int[]){5}, kinds[0]);
    run_some_calls(2, (int[]){1, 1}, kinds[1]);
    run_some_calls(3, (int[]){2, 1, 3}, kinds[2]);
}

// Rank s->number dies in the middle of a large sum. The others leave what their call returned.
static void die_in_the_middle(scene *s, team *t, result *r) {
    enum { N = 1 << 20 };
    static float x[N];
    comm *c = open_transport(t, r);
    if (!c) return;
    c->phase.what = "reduce bucket", c->phase.number = 3, c->phase.step = 17;
    err_t rc = ERR_OK;
    for (int k = 0; rc == ERR_OK; k++) {
        if (c->rank == s->number && k == 5) {
            s->b->moment = now_s();
            raise(SIGKILL);
        }
        rc = c->table->all_reduce(c, x, N, FP32, REDUCE_MAX, NULL);
    }
    r->noticed_s = now_s() - s->b->moment;
    r->links = (int)rc;
    keep_text(r->text, rc);
    c->table->close(c);
}

static void run_death(int nodes, const int *ranks, int who) {
    scene *s = scene_open(nodes, ranks);
    char name[32];
    snprintf(name, sizeof name, "rank %d (", who);
    s->o.links = true;
    s->body = die_in_the_middle;
    s->number = who;
    for (int n = 0; n < nodes; n++) start_node(s, n, -1);
    assert_int_equal(reap(s), 1);
    for (int r = 0; r < world_of(s); r++) {
        const result *x = &s->b->rank[r];
        if (r == who) continue;
        assert_int_equal(x->links, ERR_UNAVAILABLE);
        assert_text(x->text, name);
        if (x->noticed_s > 5)
            fail_msg("rank %d returned %.1f s after the death, expected 5 at most: %s", r, x->noticed_s, x->text);
    }
    scene_close(s);
}

static void a_rank_that_dies_ends_all_calls(void **state) {
    (void)state;
    run_death(1, (int[]){2}, 1);
    run_death(1, (int[]){4}, 2);
    run_death(1, (int[]){4}, 0);
    run_death(3, (int[]){1, 1, 1}, 1);
    run_death(2, (int[]){3, 2}, 4);
    run_death(2, (int[]){2, 2}, 0);
}

// One rank alone needs no transport.
static void alone(scene *s, team *t, result *r) {
    (void)s;
    comm *c = open_transport(t, r);
    if (!c) return;
    snprintf(r->text, sizeof r->text, "%s", c->table->name);
    r->links = c->table->barrier(c, NULL);
    c->table->close(c);
}

static void one_rank_gets_the_transport_that_does_nothing(void **state) {
    (void)state;
    scene *s = scene_open(1, (int[]){1});
    s->body = alone;
    run_all(s);
    all_well(s);
    assert_string_equal(s->b->rank[0].text, "self");
    assert_int_equal(s->b->rank[0].links, ERR_OK);
    scene_close(s);
}

// Leaves the code of opening with a device of this arithmetic, negative where the failure is not marked as known to
// all.
static void compare_devices(scene *s, team *t, result *r) {
    comm *c = NULL;
    device *d = NULL;
    stream *own = NULL;
    const char *arithmetic = team_at(t)->rank == s->number ? "wing 9, of tin" : "wing 8";
    transport_options o = {.kind = TRANSPORT_TCP, .timeout_s = 10, .arithmetic = arithmetic};
    r->links = -1;
    if (device_open(&d, &(device_options){.kind = DEVICE_CPU, .threads = 1}) != ERR_OK) return;
    if (stream_open(d, &own) != ERR_OK) return;
    err_t rc = transport_open(&c, t, &o, own);
    r->links = rc == ERR_OK || err_last()->shared ? (int)rc : -(int)rc;
    keep_text(r->text, rc);
    if (c) c->table->close(c);
    stream_close(own);
    device_close(d);
}

static void devices_that_compute_otherwise_are_refused_by_all(void **state) {
    (void)state;
    for (int other = -1; other < 4; other++) {
        scene *s = scene_open(2, (int[]){1, 3});
        s->o.links = true;
        s->body = compare_devices;
        s->number = other;
        run_all(s);
        for (int r = 0; r < 4; r++) {
            assert_int_equal(s->b->rank[r].links, other < 0 ? ERR_OK : ERR_CONFIG);
            if (other < 0) continue;
            char named[32];
            snprintf(named, sizeof named, "rank %d (", other ? other : 1);
            assert_text(s->b->rank[r].text, "rank 0 (");
            assert_text(s->b->rank[r].text, named);
            assert_text(s->b->rank[r].text, "\"wing 8\"");
            assert_text(s->b->rank[r].text, "\"wing 9, of tin\"");
        }
        scene_close(s);
    }
}

static void fail_or_sleep(scene *s, team *t, result *r) {
    wait_for_all(s, t, r);
    if (team_at(t)->rank == 0) raise(SIGSTOP);
    nap(0.3);
    if (team_at(t)->rank == 1) team_fail(t, "the disk is on fire");
}

// A rank that fails and leaves waits for the answer of another machine: what it sent last might be lost. On one machine
// it does not wait for a rank that stands still.
static void a_failed_rank_waits_for_other_machines(void **state) {
    (void)state;
    for (int nodes = 1; nodes <= 2; nodes++) {
        scene *s = scene_open(nodes, nodes == 1 ? (int[]){2} : (int[]){1, 1});
        s->body = fail_or_sleep;
        for (int n = 0; n < nodes; n++) start_node(s, n, -1);
        await_count(&s->b->joined, 2);
        for (double end = now_s() + 5; !s->b->rank[1].left && now_s() < end;) nap(0.01);
        assert_int_equal(kill(s->b->rank[0].pid, SIGCONT), 0);
        assert_int_equal(reap(s), 0);
        double took = s->b->rank[1].leave_s;
        if ((took > 0.9) != (nodes == 2) || took > 1.8) fail_msg("%d nodes: leaving took %.2f s", nodes, took);
        scene_close(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_rank_waits_for_other_machines),
        cmocka_unit_test(one_rank_gets_the_transport_that_does_nothing),
        cmocka_unit_test(calls_work_over_a_real_team),
        cmocka_unit_test(a_second_transport_is_refused),
        cmocka_unit_test(a_rank_that_dies_ends_all_calls),
        cmocka_unit_test(devices_that_compute_otherwise_are_refused_by_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
