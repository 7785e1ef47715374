// test/test_comm_fail.c: the tcp transport when something goes wrong: a rank is killed or does not come, calls differ,
// links are damaged or end. (What it computes is in test/test_comm.c.)
#include "test/support/comm_ranks.h"

#include <inttypes.h>
#include <poll.h>

// What a rank that is expected to fail found, for the parent to look at.
static void failed_as(err_t rc, double since) {
    CHECK(rc == ERR_UNAVAILABLE, "code %d, expected ERR_UNAVAILABLE", rc);
    mine->seconds = seconds_now() - since;
    snprintf(mine->text, sizeof mine->text, "%s", err_last()->text);
}

static void expect_reports(const report *r, int world, int but, double limit_s, const char *one, const char *two) {
    for (int i = 0; i < world; i++) {
        if (i == but) continue;
        if (!r[i].done) fail_msg("rank %d has not ended well: %s", i, r[i].text);
        if (!strstr(r[i].text, one) || !strstr(r[i].text, two))
            fail_msg("rank %d: \"%s\" says nothing of \"%s\" and \"%s\"", i, r[i].text, one, two);
        if (r[i].seconds > limit_s) fail_msg("rank %d: %.1f s, expected at most %.1f", i, r[i].seconds, limit_s);
    }
}

// Rank 1 dies in the middle; all others must come back, with its number, and stay failed.
static void body_killed(comm *c, void *ctx) {
    (void)ctx;
    size_t n = 1 << 20;
    float *x = calloc(n, 4);
    err_t rc = ERR_OK;
    double since = seconds_now();
    for (int i = 0; rc == ERR_OK; i++) {
        if (c->rank == 1 && i == 3) raise(SIGKILL);
        rc = i % 2 ? c->table->all_reduce(c, x, n, FP32, REDUCE_MAX, NULL) : c->table->barrier(c, NULL);
    }
    CHECK(c->table->barrier(c, NULL) == rc && c->table->query(c) == rc, "a call after the failure succeeds");
    failed_as(rc, since);
    free(x);
}

static void a_killed_rank_is_named_by_all_others(void **state) {
    (void)state;
    expect_reports(run_ranks(&near4, 30, body_killed, NULL, 1), 4, 1, 5, "rank 1 (localhost)", "");
    expect_reports(run_ranks(&far3, 30, body_killed, NULL, 1), 3, 1, 5, "rank 1 (127.0.0.2)", "");
    expect_reports(run_ranks(&mixed5, 30, body_killed, NULL, 1), 5, 1, 5, "rank 1 (127.0.0.1)", "");
}

// Rank 2 is busy elsewhere for longer than the others wait.
static void body_absent(comm *c, void *ctx) {
    (void)ctx;
    float x[100] = {0};
    double since = seconds_now();
    c->phase.what = "reduce bucket", c->phase.number = 3, c->phase.step = 17;
    RUNS(c->table->barrier(c, NULL));
    if (c->rank == 2) {
        while (c->table->query(c) == ERR_OK) poll(NULL, 0, 20);
        failed_as(c->table->barrier(c, NULL), since);
    } else failed_as(c->table->all_reduce(c, x, 100, FP32, REDUCE_SUM, NULL), since);
}

static void a_rank_that_does_not_come_is_named(void **state) {
    (void)state;
    const char *where = "rank 2 (localhost) has not entered it (in all_reduce #2)";
    const char *there = "rank 2 (127.0.0.3) has not entered it (in all_reduce #2)";
    expect_reports(run_ranks(&near4, 0.7, body_absent, NULL, 0), 4, -1, 4, "no progress for ", where);
    expect_reports(run_ranks(&far3, 0.7, body_absent, NULL, 0), 3, -1, 4, "no progress for ", there);
    expect_reports(run_ranks(&near11, 0.7, body_absent, NULL, 0), 11, -1, 4, "no progress for ", where);
}

// A barrier makes the failure known also to a sender that has not waited for its reader.
static void body_sizes(comm *c, void *ctx) {
    size_t *sizes = ctx;
    char *x = calloc(1, 1 << 22);
    double since = seconds_now();
    err_t rc = c->rank == 0 ? c->table->exchange(c, &(comm_part){1, x, sizes[0]}, 1, NULL, 0, NULL)
                            : c->table->exchange(c, NULL, 0, &(comm_part){0, x, sizes[1]}, 1, NULL);
    if (rc == ERR_OK) rc = c->table->barrier(c, NULL);
    failed_as(rc, since);
    free(x);
}

static void sizes_that_differ_are_an_error_on_both_sides(void **state) {
    (void)state;
    static const size_t sizes[][2] = {{100, 96}, {0, 8}, {8, 0}, {3000000, 3000001}, {262145, 262144}, {64, 4000000}};
    for (int i = 0; i < 6; i++) {
        char text[64];
        snprintf(text, sizeof text, "sends %zu bytes where %zu are expected", sizes[i][0], sizes[i][1]);
        expect_reports(run_ranks(&near2, 10, body_sizes, (void *)sizes[i], 0), 2, -1, 3, "rank 0 (localhost)", text);
        expect_reports(run_ranks(&far2, 10, body_sizes, (void *)sizes[i], 0), 2, -1, 3, "rank 0 (127.0.0.1)", text);
    }
}

static void body_order(comm *c, void *ctx) {
    (void)ctx;
    float x = 0;
    double since = seconds_now();
    err_t rc =
        c->rank == 0 ? c->table->all_reduce(c, &x, 1, FP32, REDUCE_SUM, NULL) : c->table->broadcast(c, &x, 4, 0, NULL);
    if (rc == ERR_OK) rc = c->table->barrier(c, NULL);
    failed_as(rc, since);
}

static void calls_that_differ_are_named(void **state) {
    (void)state;
    expect_reports(run_ranks(&near2, 10, body_order, NULL, 0), 2, -1, 3, "all_reduce", "broadcast");
    expect_reports(run_ranks(&far2, 10, body_order, NULL, 0), 2, -1, 3, "all_reduce", "broadcast");
}

static void body_abort(comm *c, void *ctx) {
    (void)ctx;
    double since = seconds_now();
    if (c->rank == 1) poll(NULL, 0, 100), c->table->abort(c, "the loss is not a number");
    failed_as(c->table->barrier(c, NULL), since);
}

static void an_abort_ends_waits_elsewhere(void **state) {
    (void)state;
    expect_reports(run_ranks(&near4, 30, body_abort, NULL, 0), 4, -1, 3, "gives up: ", "the loss is not a number");
    expect_reports(run_ranks(&far3, 30, body_abort, NULL, 0), 3, -1, 3, "gives up: ", "the loss is not a number");
}

static void body_bad_lists(comm *c, void *ctx) {
    (void)ctx;
    char x[8] = {0};
    CHECK(c->table->exchange(c, &(comm_part){c->rank, x, 8}, 1, NULL, 0, NULL) == ERR_INTERNAL,
          "a message to oneself is sent");
    CHECK(c->table->exchange(c, NULL, 0, &(comm_part){c->world, x, 8}, 1, NULL) == ERR_INTERNAL,
          "a message from nobody is received");
    CHECK(c->table->all_reduce(c, x, 4, BF16, REDUCE_SUM, NULL) == ERR_INTERNAL, "BF16 is summed");
    CHECK(c->table->broadcast(c, x, 4, c->world, NULL) == ERR_INTERNAL, "nobody broadcasts");
    RUNS(c->table->barrier(c, NULL));
}

static void impossible_calls_are_refused(void **state) {
    (void)state;
    run_ranks(&near2, 10, body_bad_lists, NULL, 0);
}

// Over libfabric the socket carries only how ranks reach each other: test/test_fabric.c changes what libfabric carries.
#define NEEDS_SOCKETS() \
    do { \
        if (carrier_is_fabric()) skip(); \
    } while (0)

// --- a link that is not what it seems --------------------------------------------------------------------------------

// The byte to change, the byte to end at, the length of a frame to send twice (-1: none), and what all ranks then say.
typedef struct damage {
    long flip, cut, repeat;
    const char *who, *says;
} damage;

// Passes bytes from `from` to `to`, and what comes back untouched.
static void be_proxy(int from, int to, const damage *d) {
    long passed = 0;
    static char b[4096], first[300000];
    alarm(20);
    for (;;) {
        struct pollfd p[2] = {{from, POLLIN, 0}, {to, POLLIN, 0}};
        if (poll(p, 2, -1) < 0) _exit(0);
        for (int i = 0; i < 2; i++) {
            if (!p[i].revents) continue;
            ssize_t n =
                read(p[i].fd, b,
                     i == 0 && d->cut >= 0 ? (size_t)(d->cut - passed < 4096 ? d->cut - passed : 4096) : sizeof b);
            if (n <= 0) _exit(0);
            if (i == 0 && d->flip >= passed && d->flip < passed + n) b[d->flip - passed] ^= 0x10;
            if (i == 0 && d->repeat > 0 && passed < d->repeat)
                memcpy(first + passed, b, (size_t)(d->repeat - passed < n ? d->repeat - passed : n));
            bool again = i == 0 && d->repeat > 0 && passed < d->repeat && passed + n >= d->repeat;
            // the rest is dropped: the first frame again in its place
            if (again && passed + n > d->repeat) n = d->repeat - passed;
            if (write(p[!i].fd, b, (size_t)n) != n) _exit(0);
            if (again && write(p[!i].fd, first, (size_t)d->repeat) < 0) _exit(0);
            if (i == 0) passed += n;
            if (i == 0 && passed == d->cut) _exit(0);
        }
    }
}

static void body_damaged(comm *c, void *ctx) {
    (void)ctx;
    char *x = calloc(1, 300000);
    double since = seconds_now();
    err_t rc = ERR_OK;
    for (int i = 0; i < 3 && rc == ERR_OK; i++)
        rc = c->rank == 0 ? c->table->exchange(c, &(comm_part){1, x, 300000}, 1, NULL, 0, NULL)
                          : c->table->exchange(c, NULL, 0, &(comm_part){0, x, 300000}, 1, NULL);
    if (rc == ERR_OK) rc = c->table->barrier(c, NULL);
    failed_as(rc, since);
    free(x);
}

static void run_damaged(const damage *d) {
    static report *r;
    team *t = malloc(sizeof *t);
    launch node[2];
    pid_t pid[2], proxy;
    if (!r) r = mmap(NULL, 2 * sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(r, 0, 2 * sizeof *r);
    stub_open(t, node, 2, (int[]){1, 1});
    int far[2];
    stub_connect(far, 0, 1);  // rank 0 -- far[0], far[1] -- proxy -- pair[0][1]'s other end -- rank 1
    int near = t->pair[0][1];
    t->pair[0][1] = far[0];
    if ((proxy = fork()) == 0) {
        close(far[0]), close(t->pair[1][0]);
        fcntl(near, F_SETFL, 0), fcntl(far[1], F_SETFL, 0);
        be_proxy(far[1], near, d);
    }
    close(near), close(far[1]);
    for (int i = 0; i < 2; i++)
        if ((pid[i] = fork()) == 0) be_rank(t, node, i, 10, body_damaged, NULL, r);
    stub_let_go(t);
    int bad = wait_for_all(t, pid, 2, r);
    while (waitpid(proxy, NULL, 0) < 0 && errno == EINTR) {}
    stub_close(t, node);
    free(t);
    if (bad)
        fail_msg("byte %ld changed, end at %ld, %ld repeated: %s %s", d->flip, d->cut, d->repeat, r[0].text, r[1].text);
    expect_reports(r, 2, -1, 5, d->who, d->says);
}

static void damaged_frames_are_not_believed(void **state) {
    (void)state;
    NEEDS_SOCKETS();
    const char *who = "rank 0 (127.0.0.1), receiving", *head = "a frame's head does not verify",
               *payload = "a frame's payload does not verify";
    for (long i = 0; i < 40; i += 3) run_damaged(&(damage){i, -1, -1, who, head});
    const long in_payload[] = {40, 41, 4096, 262143, 262144 + 40, 262144 + 40 + 15};
    for (int i = 0; i < 6; i++) run_damaged(&(damage){in_payload[i], -1, -1, who, payload});
    run_damaged(&(damage){262144 + 56, -1, -1, who, head});  // the second frame
    run_damaged(&(damage){-1, -1, 262144 + 56, who, head});  // the first frame once more in the place of the second
}

static void a_link_that_ends_is_an_error(void **state) {
    (void)state;
    NEEDS_SOCKETS();
    const long ends[] = {20, 40, 100000, 262144 + 40, 262144 + 56};
    // whichever rank sees it first
    for (int i = 0; i < 5; i++) run_damaged(&(damage){-1, ends[i], -1, "(in ", "connection"});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_rank_is_named_by_all_others),
        cmocka_unit_test(a_rank_that_does_not_come_is_named),
        cmocka_unit_test(sizes_that_differ_are_an_error_on_both_sides),
        cmocka_unit_test(calls_that_differ_are_named),
        cmocka_unit_test(an_abort_ends_waits_elsewhere),
        cmocka_unit_test(impossible_calls_are_refused),
        cmocka_unit_test(damaged_frames_are_not_believed),
        cmocka_unit_test(a_link_that_ends_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
