// test/test_delegate.c: the processes that sit in the council, one for each node, on 127.0.0.1, 127.0.0.2, ...; the
// test plays their supervisors and their ranks, and sees what is decided.
#include "test/support/port.h"

#include "base/clock.h"
#include "base/version.h"
#include "trainer/node/cluster.h"
#include "trainer/node/delegate.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cmocka.h>

enum { MOST = 3, PATIENCE_S = 60 };
#define DEAD_S 1.5

typedef struct node {
    board *b;
    delegate d;
    node_facts f;
    node_ruling told;
} node;

typedef struct run {
    config c;
    cluster cl[MOST];
    node node[MOST];
    int nodes;
    bool alone;  // only node 0 is there
    int out;     // where a delegate's lines go; 0: to the terminal
    char dir[256];
    double moved_at, longest;  // when steps went forward last; the longest time between two of them
} run;

static err_t any_world(const config *c, int world) { return (void)c, (void)world, ERR_OK; }

static void make_secret(run *r) {
    const char *base = getenv("TMPDIR");
    snprintf(r->dir, sizeof r->dir, "%s/delegate-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(r->dir));
    snprintf(r->c.cluster.secret_file, sizeof r->c.cluster.secret_file, "%s/secret", r->dir);
    FILE *f = fopen(r->c.cluster.secret_file, "w");
    assert_non_null(f);
    fputs("a secret of more than thirty-two bytes, for a test\n", f);
    assert_int_equal(fclose(f) | chmod(r->c.cluster.secret_file, 0600), 0);
}

static run *open_run(int nodes) {
    run *r = calloc(1, sizeof *r);
    assert_non_null(r);
    assert_int_equal(config_load(&r->c, NULL, 0), ERR_OK);
    make_secret(r);
    r->nodes = nodes, r->c.cluster.port = free_port(), r->c.cluster.dead_s = DEAD_S, r->c.cluster.give_up_s = 600;
    r->c.cluster.min_ranks = 1;
    for (int i = 0; i < nodes; i++) {
        cluster *cl = &r->cl[i];
        *cl = (cluster){.nodes = nodes, .world = nodes, .node = i};
        for (int k = 0; k < nodes; k++) cl->ranks[k] = 1, snprintf(cl->host[k], COMM_HOST, "127.0.0.%d", k + 1);
        node *n = &r->node[i];
        n->b = mmap(NULL, board_bytes(1), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_true(n->b != MAP_FAILED);
        board_init(n->b, 1);
        atomic_store(&n->b->sealed, -1);
        n->f.slots = 1, n->f.data = 5, n->f.ready = true;
        assert_int_equal(delegate_open(&n->d), ERR_OK);
    }
    return r;
}

static void close_run(run *r) {
    for (int i = 0; i < r->nodes; i++) {
        if (r->node[i].d.pid) kill(r->node[i].d.pid, SIGCONT);
        delegate_close(&r->node[i].d);
        munmap(r->node[i].b, board_bytes(1));
    }
    unlink(r->c.cluster.secret_file), rmdir(r->dir);
    free(r);
}

// --- what supervisors and ranks do -----------------------------------------------------------------------------------

static void start_node(run *r, int i) {
    node *n = &r->node[i];
    int fd;
    if (!delegate_start(&n->d, clock_now(), &fd)) return;
    for (int k = 0; k < r->nodes; k++)
        if (k != i) delegate_forget(&r->node[k].d);
    if (r->out) dup2(r->out, STDOUT_FILENO), dup2(r->out, STDERR_FILENO);
    err_t rc = delegate_live(&(delegate_life){&r->c, &r->cl[i], n->b, any_world, n->d.page, n->d.life, fd});
    _exit(rc);
}

static void turn_of(run *r, int i) {
    node *n = &r->node[i];
    delegate_reap(&n->d);
    start_node(r, i);
    delegate_tell(&n->d, &n->f);
    (void)delegate_hear(&n->d, &n->told);
}

static void turn(run *r) {
    for (int i = 0; i < (r->alone ? 1 : r->nodes); i++) turn_of(r, i);
    nap(0.005);
}

// Ranks of all nodes finish another step.
static void step_on(run *r, int64_t step) {
    double now = clock_now();
    if (r->moved_at > 0 && now - r->moved_at > r->longest) r->longest = now - r->moved_at;
    r->moved_at = now;
    for (int i = 0; i < r->nodes; i++) atomic_store(&r->node[i].b->step, step);
}

static bool has_epoch(const node *n, uint64_t epoch) { return n->told.has_record && n->told.record.epoch >= epoch; }

static void until_epoch(run *r, uint64_t epoch, int first, int last) {
    double until = clock_now() + PATIENCE_S;
    for (int i = first; i <= last; i++)
        while (!has_epoch(&r->node[i], epoch)) {
            if (clock_now() > until) fail_msg("node %d: no epoch %d: %s", i, (int)epoch, r->node[i].told.why);
            turn(r);
        }
}

// The ranks of nodes first .. last have entered the world of the newest record, and train.
static void all_train(run *r, int64_t step, int first, int last) {
    for (int i = first; i <= last; i++) {
        node *n = &r->node[i];
        n->f.entered = n->told.record.epoch, n->f.seats = 1;
        n->f.inside = true, n->f.ready = n->f.failed = false;
        atomic_store(&n->b->ready, 1), atomic_store(&n->b->step, step), atomic_store(&n->b->sealed, step);
    }
    for (double until = clock_now() + 1; clock_now() < until;) turn(r);
}

static void begin_run(run *r, int64_t step) {
    until_epoch(r, 1, 0, r->nodes - 1);
    assert_int_equal(r->node[0].told.record.kind, DECREE_FORM);
    all_train(r, step, 0, r->nodes - 1);
}

static void expect_members(const node *n, uint64_t members) {
    assert_int_equal(n->told.record.members.word[0], members);
}

// --- tests -----------------------------------------------------------------------------------------------------------

// A council that is not heard is no loss while steps are finished: its ranks have their part in each. false: this
// machine was so busy that they were not.
static bool outlives_a_silent_council(run *r) {
    int64_t step = 1;
    begin_run(r, step);
    kill(r->node[2].d.pid, SIGSTOP);
    for (double until = clock_now() + 3 * DEAD_S; clock_now() < until; turn(r)) step_on(r, ++step);
    if (r->longest > DEAD_S / 3) return false;
    for (int i = 0; i < 2; i++) assert_false(has_epoch(&r->node[i], 2));
    return true;
}

static void steps_are_heartbeats(void **state) {
    (void)state;
    for (int attempt = 0; attempt < 5; attempt++) {
        run *r = open_run(3);
        bool calm = outlives_a_silent_council(r);
        if (calm) {  // and where none is finished any more it is one
            until_epoch(r, 2, 0, 1);
            for (int i = 0; i < 2; i++) {
                expect_members(&r->node[i], 3);
                double silent = r->node[i].told.silent_s, still = clock_now() - r->moved_at;
                if (silent < DEAD_S / 2 || silent > still) fail_msg("silent for %.1f s of %.1f s", silent, still);
            }
            all_train(r, 1000, 0, 1);
            r->node[1].f.failed = true;  // the next record keeps all nodes
            until_epoch(r, 3, 0, 1);
            for (int i = 0; i < 2; i++) assert_true(r->node[i].told.silent_s == 0);
        }
        close_run(r);
        if (calm) return;
    }
    skip();
}

// Ranks that load an older step have not heard those of the others.
static void a_step_back_is_no_heartbeat(void **state) {
    (void)state;
    int64_t step = 1000000;
    run *r = open_run(3);
    begin_run(r, step);
    kill(r->node[2].d.pid, SIGSTOP);
    for (double until = clock_now() + 10 * DEAD_S; !has_epoch(&r->node[0], 2); turn(r)) {
        if (clock_now() > until) fail_msg("node 2 is not missed: %s", r->node[0].told.why);
        step_on(r, --step);
    }
    expect_members(&r->node[0], 3);
    close_run(r);
}

// A new epoch is decided on, and the ranks are still in the one before: that they have failed there is no new loss, and
// that they finish steps there is no sign of life for this one.
static void the_epoch_before_counts_no_more(void **state) {
    (void)state;
    int64_t step = 1;
    run *r = open_run(3);
    begin_run(r, step);
    r->node[1].f.failed = true;
    until_epoch(r, 2, 0, 2);
    for (double until = clock_now() + 3 * COUNCIL_REPORT_S; clock_now() < until; turn(r)) step_on(r, ++step);
    for (int i = 0; i < 3; i++) assert_false(has_epoch(&r->node[i], 3));
    kill(r->node[2].d.pid, SIGSTOP);
    for (double until = clock_now() + 10 * DEAD_S; !has_epoch(&r->node[0], 3); turn(r)) {
        if (clock_now() > until) fail_msg("node 2 is not missed: %s", r->node[0].told.why);
        step_on(r, ++step);
    }
    expect_members(&r->node[0], 3);
    close_run(r);
}

// What counts is the highest step that was ever finished, whether the world that failed had come so far again or not.
static void the_highest_step_is_told(void **state) {
    (void)state;
    static const struct { int64_t high, step, recorded; } of[] = {{50, 40, 50}, {50, 60, 60}};
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        run *r = open_run(2);
        for (int i = 0; i < 2; i++) r->node[i].f.high = of[k].high;
        begin_run(r, of[k].step);
        r->node[1].f.failed = true;
        until_epoch(r, 2, 0, 1);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(r->node[i].told.record.kind, DECREE_HEAL);
            assert_int_equal(r->node[i].told.record.high, of[k].recorded);
            expect_members(&r->node[i], 3);
        }
        close_run(r);
    }
}

// Between the decision on a world and its beginning a node has given up a place for a rank for good: the world would
// wait for it for ever, so another one is decided on, without that place.
static void a_place_that_is_gone_is_a_failure(void **state) {
    (void)state;
    run *r = open_run(2);
    for (int i = 0; i < 2; i++) r->cl[i].world = 3, r->cl[i].ranks[1] = 2;
    r->node[1].f.slots = 2;
    until_epoch(r, 1, 0, 1);
    assert_int_equal(r->node[0].told.record.slots[1], 2);
    assert_int_equal(r->node[0].told.record.ranks + r->node[0].told.record.spares, 3);
    r->node[1].f.slots = 1;
    until_epoch(r, 2, 0, 1);
    for (int i = 0; i < 2; i++) {
        const council_record *to = &r->node[i].told.record;
        assert_int_equal(to->kind, DECREE_HEAL);
        assert_int_equal(to->slots[1], 1);
        assert_int_equal(to->ranks + to->spares, 2);
    }
    close_run(r);
}

// Who waits says for what after two seconds, and not at each report.
static void what_it_waits_for_is_said_once(void **state) {
    (void)state;
    static const char line[] = "waiting: waits for node 1 (127.0.0.2): a run begins with all nodes\n";
    char said[4096] = "";
    run *r = open_run(2);
    r->alone = true, r->out = memfd_create("said", MFD_CLOEXEC);
    assert_true(r->out > 0);
    for (double until = clock_now() + PATIENCE_S; !strstr(said, line); turn(r)) {
        if (clock_now() > until) fail_msg("it says \"%s\"", said);
        (void)!pread(r->out, said, sizeof said - 1, 0);
    }
    for (double until = clock_now() + 3 * COUNCIL_REPORT_S; clock_now() < until;) turn(r);
    (void)!pread(r->out, said, sizeof said - 1, 0);
    assert_null(strstr(strstr(said, line) + 1, line));
    close(r->out);
    close_run(r);
}

// A node of many ranks: each of them has a seat.
static void a_wide_world_fits(void **state) {
    (void)state;
    enum { WIDE = 70 };
    run *r = open_run(1);
    r->c.batch.global = r->c.batch.lanes = r->c.resolved.lanes = 2 * WIDE, r->c.batch.micro = 1;
    r->cl[0].world = r->cl[0].ranks[0] = r->node[0].f.slots = WIDE;
    until_epoch(r, 1, 0, 0);
    assert_int_equal(r->node[0].told.record.grid.data, WIDE);
    assert_int_equal(r->node[0].told.record.spares, 0);
    close_run(r);
}

// The council of a node, which the test plays: of node 0, to read what the others say, or of one with another INI.
static council_net *sit_as(run *r, int node) {
    council_net *net;
    council_net_options o = {.node = node, .nodes = r->nodes, .host = r->cl[0].host, .port = (int)r->c.cluster.port};
    char hash[17];
    config_hash(&r->c, hash);
    snprintf(o.job, sizeof o.job, "%s", r->c.run.name);
    snprintf(o.build, sizeof o.build, "%s", version_sources());
    snprintf(o.config_hash, sizeof o.config_hash, "%s", node ? "of another INI" : hash);
    assert_int_equal(cluster_secret(&r->c, o.secret), ERR_OK);
    if (council_net_open(&net, &o) != ERR_OK) fail_msg("%s", err_last()->text);
    return net;
}

// Record 1 of two nodes with a slot each, of which one rank is enough.
static council_record with_a_spare(const run *r) {
    council_record one = {.run = "a run", .k = 1, .epoch = 1, .kind = DECREE_FORM, .nodes = 2, .grid = {1, 1, 1, 1}};
    one.lanes = one.ranks = one.spares = 1, one.deal[0] = 1;
    for (int j = 0; j < 2; j++) {
        set_add(&one.members, j), set_add(&one.voters, j);
        one.slots[j] = one.weight[j] = 1, one.life[j] = j ? r->node[j].d.life : 5;
        one.seat[j].node = (uint16_t)j;
    }
    return one;
}

// A run that has begun goes on when a node with another INI calls: that node has no place in it.
static void a_stranger_ends_no_run(void **state) {
    (void)state;
    run *r = open_run(2);
    begin_run(r, 1);
    council_net *net = sit_as(r, 1);
    council_room *room = malloc(sizeof *room);
    council_message m;
    for (double until = clock_now() + PATIENCE_S; !council_net_differs(net); turn(r)) {
        if (clock_now() > until) fail_msg("the stranger is not refused");
        assert_int_equal(council_net_turn(net, -1, clock_now() + 0.02), ERR_OK);
        (void)council_net_next(net, &m, room);
    }
    council_net_close(net);
    free(room);
    for (double until = clock_now() + 3 * COUNCIL_REPORT_S; clock_now() < until; turn(r))
        assert_int_equal(r->node[0].told.action, COUNCIL_STAY);
    close_run(r);
}

// A node whose slots are all spare works by being there, and has sealed all that it has: others would wait for ever
// until all members have.
static void a_node_of_spares_has_sealed(void **state) {
    (void)state;
    run *r = open_run(2);
    node *n = &r->node[1];
    turn_of(r, 1);
    council_net *net = sit_as(r, 0);
    council_room *room = malloc(sizeof *room);
    council_record one = with_a_spare(r);
    const council_message formed = {.type = COUNCIL_FORMED, .life = 5, .newest = &one};
    council_message m = {.type = COUNCIL_FORMED};
    for (double until = clock_now() + PATIENCE_S; m.type != COUNCIL_REPORT || m.report.state != COUNCIL_WORKING;) {
        if (clock_now() > until) fail_msg("node 1 does not work: %s", n->told.why);
        council_net_send(net, 1, &formed);
        assert_int_equal(council_net_turn(net, -1, clock_now() + 0.02), ERR_OK);
        if (!council_net_next(net, &m, room)) m.type = COUNCIL_FORMED;
        turn_of(r, 1);
        n->f.entered = n->told.has_record ? n->told.record.epoch : 0;
    }
    assert_int_equal(m.report.sealed, 0);
    council_net_close(net);
    free(room);
    close_run(r);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// How long it takes, in the middle, until a council that reports every 0.3 s acts on what its supervisor has said just
// now: at times that fall evenly between two reports.
static double delay(run *r) {
    enum { TIMES = 9 };
    node *n = &r->node[0];
    double took[TIMES];
    for (int i = 0; i < TIMES; i++) {
        council_action want = i % 2 ? COUNCIL_WAIT : COUNCIL_END;
        for (double until = clock_now() + 2 * COUNCIL_REPORT_S + COUNCIL_REPORT_S * i / TIMES; clock_now() < until;)
            turn(r);
        n->f.leaving = want == COUNCIL_END;
        double start = clock_now();
        while (n->told.action != want) {
            if (clock_now() > start + PATIENCE_S) fail_msg("nothing followed: %s", n->told.why);
            turn(r);
        }
        took[i] = clock_now() - start;
    }
    qsort(took, TIMES, sizeof *took, by_value);
    return took[TIMES / 2];
}

// What ranks do is acted upon at once, not at the next report. One of some attempts, as this machine may be busy.
static void what_is_said_is_acted_upon_at_once(void **state) {
    (void)state;
    run *r = open_run(2);
    r->alone = true;
    double least = 9;
    for (int attempt = 0; attempt < 4 && least > COUNCIL_REPORT_S / 5; attempt++) least = fmin(least, delay(r));
    if (least > COUNCIL_REPORT_S / 5) fail_msg("it took %.3f s", least);
    close_run(r);
}

// The same where another node has said it: how long until its failure is followed by a record.
static double delay_of_a_failure(run *r, uint64_t *epoch) {
    enum { TIMES = 5 };
    double took[TIMES];
    for (int i = 0; i < TIMES; i++) {
        all_train(r, (int64_t)*epoch, 0, 1);
        for (double until = clock_now() + COUNCIL_REPORT_S * i / TIMES; clock_now() < until;) turn(r);
        r->node[1].f.failed = true;
        double start = clock_now();
        until_epoch(r, ++*epoch, 0, 0);
        took[i] = clock_now() - start;
        until_epoch(r, *epoch, 1, 1);
        for (int k = 0; k < 2; k++) r->node[k].f.high = (int64_t)*epoch;  // each world goes a step further
    }
    qsort(took, TIMES, sizeof *took, by_value);
    return took[TIMES / 2];
}

static void what_others_say_is_acted_upon_at_once(void **state) {
    (void)state;
    run *r = open_run(2);
    uint64_t epoch = 1;
    double least = 9;
    until_epoch(r, 1, 0, 1);
    for (int attempt = 0; attempt < 4 && least > COUNCIL_REPORT_S / 3; attempt++)
        least = fmin(least, delay_of_a_failure(r, &epoch));
    if (least > COUNCIL_REPORT_S / 3) fail_msg("it took %.3f s", least);
    close_run(r);
}

// A delegate that is started again knows nothing. So it is sent the facts even if they have not changed since the one
// before it got them.
static void one_that_is_started_again_is_told(void **state) {
    (void)state;
    run *r = open_run(1);
    node *n = &r->node[0];
    until_epoch(r, 1, 0, 0);
    assert_true(n->d.told);
    kill(n->d.pid, SIGKILL);
    for (double until = clock_now() + PATIENCE_S; n->d.pid; nap(0.005)) {
        if (clock_now() > until) fail_msg("the delegate does not end");
        delegate_reap(&n->d);
    }
    while (delegate_hear(&n->d, &n->told)) continue;  // what it said last
    memset(&n->told, 0, sizeof n->told);
    until_epoch(r, 1, 0, 0);
    close_run(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_are_heartbeats),
                                       cmocka_unit_test(a_step_back_is_no_heartbeat),
                                       cmocka_unit_test(the_epoch_before_counts_no_more),
                                       cmocka_unit_test(the_highest_step_is_told),
                                       cmocka_unit_test(a_place_that_is_gone_is_a_failure),
                                       cmocka_unit_test(a_wide_world_fits),
                                       cmocka_unit_test(what_it_waits_for_is_said_once),
                                       cmocka_unit_test(one_that_is_started_again_is_told),
                                       cmocka_unit_test(a_node_of_spares_has_sealed),
                                       cmocka_unit_test(a_stranger_ends_no_run),
                                       cmocka_unit_test(what_is_said_is_acted_upon_at_once),
                                       cmocka_unit_test(what_others_say_is_acted_upon_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
