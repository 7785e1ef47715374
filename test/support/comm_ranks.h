// test/support/comm_ranks.h: forked ranks over the tcp transport, or the one that test/support/carrier.h says, on one
// "node" that shares memory or on several that are joined by connections over the loopback device, and what each has to
// say.
#ifndef TEST_SUPPORT_COMM_RANKS_H
#define TEST_SUPPORT_COMM_RANKS_H

#include "comm/transport.h"
#include "test/support/carrier.h"
#include "test/support/team_stub.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

enum { NODES = 8, LIMIT_S = 100 };

typedef struct layout {
    int nodes, ranks[NODES], rack[NODES];
} layout;

#define NEAR(n) \
    { \
        .nodes = 1, .ranks = { n } \
    }
static const layout near2 = NEAR(2), near3 = NEAR(3), near4 = NEAR(4), near5 = NEAR(5), near8 = NEAR(8),
                    near11 = NEAR(11), near64 = NEAR(64);
static const layout far2 = {.nodes = 2, .ranks = {1, 1}}, far3 = {.nodes = 3, .ranks = {1, 1, 1}},
                    mixed4 = {.nodes = 2, .ranks = {2, 2}}, mixed5 = {.nodes = 3, .ranks = {3, 1, 1}},
                    mixed12 = {.nodes = 3, .ranks = {5, 3, 4}};
static const layout racks4 = {4, {1, 1, 1, 1}, {0, 0, 1, 1}}, racks8 = {4, {2, 2, 2, 2}, {0, 0, 1, 1}},
                    racks12 = {6, {2, 1, 3, 2, 1, 3}, {0, 0, 0, 1, 1, 2}};

typedef void body(comm *c, void *ctx);

// What a rank has to say about itself; shared by all.
typedef struct report {
    atomic_int done;
    double seconds;
    char text[2048];
} report;

static inline double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static report *mine;  // in a rank: where it reports

// A rank that finds something wrong says so and ends; the others then fail through the team.
static inline void wrong(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
static inline void wrong(const char *fmt, ...) {
    va_list a;
    va_start(a, fmt);
    vsnprintf(mine->text, sizeof mine->text, fmt, a);
    _exit(1);
}

#define CHECK(cond, ...) \
    do { \
        if (!(cond)) wrong(__VA_ARGS__); \
    } while (0)
#define RUNS(call) \
    do { \
        err_t ok_ = (call); \
        if (ok_ != ERR_OK) wrong("%s:%d: %s: %d: %s", __FILE__, __LINE__, #call, ok_, err_last()->text); \
    } while (0)

static inline void be_rank(team *t, launch *node, int rank, double timeout_s, body *run, void *ctx, report *r) {
    mine = &r[rank];
    alarm(LIMIT_S);
    stub_become(t, node, rank);
    comm *c;
    RUNS(carrier_open(&c, t, &(transport_options){.timeout_s = timeout_s}));
    CHECK(c->world == node[0].world && c->rank == rank && c->host == c, "a communicator of other ranks");
    run(c, ctx);
    c->table->close(c);
    atomic_store(&r[rank].done, 1);
    _exit(0);
}

// Waits for all, and does what a team's watcher does: a lost rank is reported to the others. Returns how many did not
// end with 0.
static inline int wait_for_all(team *t, pid_t *pid, int world, report *r) {
    int bad = 0;
    for (int left = world; left > 0;) {
        int status;
        pid_t p;
        do p = wait(&status);
        while (p < 0 && errno == EINTR);
        int rank = 0;
        while (rank < world && pid[rank] != p) rank++;
        if (rank == world) continue;
        left--;
        if (status == 0) continue;
        bad++;
        char text[128];
        snprintf(text, sizeof text, "rank %d (%s) is lost", rank, t->at.place[rank].host);
        if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
            snprintf(r[rank].text, sizeof r[rank].text, "ended by signal %d", WTERMSIG(status));
        team_fail(t, text);
    }
    return bad;
}

// Runs `run` on all ranks of the layout. `bad`: how many ranks are expected not to end with 0.
static inline report *run_ranks(const layout *l, double timeout_s, body *run, void *ctx, int bad) {
    static report *r;
    team *t = malloc(sizeof *t);
    launch node[NODES];
    pid_t pid[64];
    if (!r) r = mmap(NULL, 64 * sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(r, 0, 64 * sizeof *r);
    fflush(NULL);
    stub_open(t, node, l->nodes, l->ranks);
    for (int n = 0; n < l->nodes; n++) launch_racks(&node[n], l->rack);
    int world = node[0].world;
    for (int i = 0; i < world; i++)
        if ((pid[i] = fork()) == 0) be_rank(t, node, i, timeout_s, run, ctx, r);
    stub_let_go(t);
    int failed = wait_for_all(t, pid, world, r);
    for (int i = 0; i < world; i++)
        if (failed != bad && r[i].text[0])
            print_message("rank %d of %d on %d nodes: %s\n", i, world, l->nodes, r[i].text);
    stub_close(t, node);
    free(t);
    if (failed != bad) fail_msg("%d of %d ranks on %d nodes failed, expected %d", failed, world, l->nodes, bad);
    return r;
}

#endif
