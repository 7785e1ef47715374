// test/test_supervisor.c: a parent and its ranks, as real processes with short lives. Who is named when some fail, what
// a request to stop does once and twice, that no process remains, and what a service manager hears.
//
// Each trial runs in a process of its own, which becomes a supervisor and forks ranks. They all share one page, the
// lab, with the test's own process.
#include "test/support/trial.h"

// --- lives of ranks --------------------------------------------------------------------------------------------------

static err_t fail_at_two(const config *c, const launch *at, board *b) {
    begin(c, at, b);
    if (at->rank == 2) {
        await_flag(1);  // not before another one has complained of it
        nap(0.1);
        return err_set(ERR_DATA, "bad shard");
    }
    atomic_store(&here->flag, 1);
    return err_set(ERR_UNAVAILABLE, "rank 2 is lost");
}

static err_t all_lost(const config *c, const launch *at, board *b) {
    begin(c, at, b);
    if (at->rank != 1) await_flag(1), nap(0.1);
    atomic_store(&here->flag, 1);
    return err_set(ERR_UNAVAILABLE, "the other node is lost");
}

// Rank 0 stops on request; the others find it gone, before it or after it.
static err_t stop_and_miss_it(const config *c, const launch *at, board *b) {
    begin(c, at, b);
    if ((at->rank == 0) == (c->run.seed == 1)) await_flag(2), nap(0.1);
    atomic_fetch_add(&here->flag, at->rank == 0 ? 2 : 1);
    return at->rank == 0 ? err_set(ERR_INTERRUPTED, "stopped after step 7")
                         : err_set(ERR_UNAVAILABLE, "rank 0 is lost");
}

static err_t die_by_kill(const config *c, const launch *at, board *b) {
    begin(c, at, b);
    if (at->rank == 1) {
        atomic_store(&here->flag, 1);
        raise(SIGKILL);
    }
    await_flag(1);
    nap(0.05);
    return err_set(ERR_UNAVAILABLE, "rank 1 is lost");
}

static err_t die_by_usr1(const config *c, const launch *at, board *b) {
    begin(c, at, b);
    raise(SIGUSR1);
    return ERR_OK;
}

static err_t be_deaf_after_failure(const config *c, const launch *at, board *b) {
    begin(c, at, b);
    if (at->rank == 0) return err_set(ERR_IO, "disk full");
    sleep_on();
    return ERR_OK;
}

static err_t never_ready(const config *c, const launch *at, board *b) {
    begin(c, at, b);
    atomic_fetch_sub(&b->ready, 1);
    sleep_on();
    return ERR_OK;
}

static err_t look_around(const config *c, const launch *at, board *b) {
    sigset_t blocked;
    struct sigaction on_int;
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    sigaction(SIGINT, NULL, &on_int);
    int death = 0;
    prctl(PR_GET_PDEATHSIG, &death);
    begin(c, at, b);
    if (!sigismember(&blocked, SIGTERM)) return err_set(ERR_INTERNAL, "SIGTERM is not blocked");
    if (sigismember(&blocked, SIGINT) || sigismember(&blocked, SIGCHLD))
        return err_set(ERR_INTERNAL, "more than SIGTERM is blocked");
    if (on_int.sa_handler != SIG_IGN) return err_set(ERR_INTERNAL, "SIGINT is not ignored");
    if (death != SIGKILL) return err_set(ERR_INTERNAL, "it would outlive its supervisor");
    if (getenv("NOTIFY_SOCKET") || getenv("WATCHDOG_USEC") || getenv("WATCHDOG_PID"))
        return err_set(ERR_INTERNAL, "it could speak to systemd");
    return ERR_OK;
}

// --- ends ------------------------------------------------------------------------------------------------------------

static void test_all_well(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= 5; ranks += 4) {
        trial *t = prepare(live_well, ranks);
        start(t);
        lab *l = finish(t);
        assert_end(l, ERR_OK, "");
        assert_int_equal(l->world, ranks);
        assert_int_equal(l->started, ranks);
        for (int i = 0; i < MOST; i++) assert_int_equal(l->pid[i] != 0, i < ranks);
        drop(t);
    }
}

// The only rank of a world says everything itself, and its code is the program's.
static void test_one_fails(void **state) {
    (void)state;
    trial *t = prepare(all_lost, 1);
    t->shared->flag = 1;
    start(t);
    lab *l = finish(t);
    assert_end(l, ERR_UNAVAILABLE, "");
    assert_string_equal(l->said[0], "the other node is lost");
    drop(t);
    t = prepare(die_by_usr1, 1);  // but not this
    start(t);
    assert_end(finish(t), ERR_UNAVAILABLE, "rank 0 (localhost) was killed by signal 10 (User defined signal 1)");
    drop(t);
}

static void test_root_cause(void **state) {
    (void)state;
    trial *t = prepare(fail_at_two, 4);  // the cause ends last
    start(t);
    lab *l = finish(t);
    assert_end(l, ERR_DATA, "rank 2 (localhost) ended with 65");
    assert_string_equal(l->said[2], "rank 2 (localhost): bad shard");
    assert_string_equal(l->said[3], "rank 3 (localhost): rank 2 is lost");
    assert_true(t->took < 4);
    drop(t);
    t = prepare(fail_first, 4);  // and first
    start(t);
    assert_end(finish(t), ERR_IO, "rank 1 (localhost) ended with 74");
    drop(t);
    t = prepare(all_lost, 3);  // and is not of this node
    start(t);
    assert_end(finish(t), ERR_UNAVAILABLE, "rank 1 (localhost) ended with 69");
    drop(t);
}

static void test_killed(void **state) {
    (void)state;
    trial *t = prepare(die_by_kill, 4);
    start(t);
    lab *l = finish(t);
    assert_end(l, ERR_UNAVAILABLE, "rank 1 (localhost) was killed by signal 9 (Killed); if no person did it");
    assert_true(t->took < 5);
    drop(t);
}

// A rank that hears nothing is killed, 5 + 2 seconds after another one has failed; and 10 after a request that comes
// before all are ready.
static void test_deaf(void **state) {
    (void)state;
    trial *deaf = prepare(be_deaf_after_failure, 3), *early = prepare(never_ready, 2);
    start(deaf);
    start(early);
    await_ranks(early, 2);
    kill(early->pid, SIGTERM);
    lab *l = finish(deaf);
    assert_end(l, ERR_IO, "rank 0 (localhost) ended with 74");
    if (deaf->took < 6.5 || deaf->took > 12) fail_msg("ended after %.1f s", deaf->took);
    l = finish(early);
    assert_end(l, ERR_INTERRUPTED, "ended at once on request");
    if (early->took < 9.5 || early->took > 16) fail_msg("ended after %.1f s", early->took);
    drop(deaf);
    drop(early);
}

// --- requests --------------------------------------------------------------------------------------------------------

typedef enum { TO_PARENT, TO_ALL, TO_A_RANK } whom;

static void send_signal(trial *t, whom to, int signal) {
    if (to != TO_A_RANK) kill(t->pid, signal);
    for (int i = 0; i < MOST; i++)
        if (t->shared->pid[i] && (to == TO_ALL || (to == TO_A_RANK && i == 1))) kill(t->shared->pid[i], signal);
}

static void test_stop(void **state) {
    (void)state;
    static const struct {
        whom to;
        int signal;
    } rows[] = {
        {TO_PARENT, SIGTERM}, {TO_PARENT, SIGINT}, {TO_ALL, SIGTERM},  // systemd's KillMode=control-group
        {TO_ALL, SIGINT},                                              // Ctrl-C
        {TO_A_RANK, SIGTERM},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trial *t = prepare(stop_and_save, 3);
        start(t);
        await_ranks(t, 3);
        send_signal(t, rows[i].to, rows[i].signal);
        lab *l = finish(t);
        assert_end(l, ERR_INTERRUPTED, "");  // rank 0 says it
        assert_int_equal(l->saved, 3);
        assert_string_equal(l->said[0], "stopped after step 7");
        assert_true(t->took < 4);
        drop(t);
    }
}

// Whoever ends last: a rank that only misses one that was asked to stop makes no failure of it.
static void test_stop_and_loss(void **state) {
    (void)state;
    for (int first = 0; first < 2; first++) {
        trial *t = prepare(stop_and_miss_it, 3);
        t->c.run.seed = first;
        start(t);
        lab *l = finish(t);
        assert_int_equal(l->code, ERR_INTERRUPTED);
        assert_string_equal(l->said[0], "stopped after step 7");
        drop(t);
    }
}

static void test_stop_twice(void **state) {
    (void)state;
    static const struct {
        whom to;
        int first, second;
    } rows[] = {
        {TO_PARENT, SIGTERM, SIGTERM},
        {TO_PARENT, SIGINT, SIGTERM},
        {TO_ALL, SIGTERM, SIGTERM},
        {TO_ALL, SIGINT, SIGINT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trial *t = prepare(work_forever, 3);
        start(t);
        await_ranks(t, 3);
        send_signal(t, rows[i].to, rows[i].first);
        nap(0.3);
        assert_int_equal(waitpid(t->pid, NULL, WNOHANG), 0);  // the first one asks, and they take their time
        double asked = seconds();
        send_signal(t, rows[i].to, rows[i].second);
        lab *l = finish(t);
        if (rows[i].to == TO_PARENT) assert_end(l, ERR_INTERRUPTED, "ended at once on request");
        assert_int_equal(l->code, ERR_INTERRUPTED);
        if (seconds() - asked > 2) fail_msg("at once took %.1f s", seconds() - asked);
        drop(t);
    }
    trial *t = prepare(work_forever, 1);  // a rank that is asked itself
    start(t);
    await_ranks(t, 1);
    kill(t->shared->pid[0], SIGTERM);
    nap(0.2);
    assert_int_equal(waitpid(t->pid, NULL, WNOHANG), 0);
    kill(t->shared->pid[0], SIGTERM);
    assert_end(finish(t), ERR_INTERRUPTED, "");
    assert_true(t->took < 3);
    drop(t);
}

// We are made the parent of those whose parent dies, and so can tell when and how they end.
static void test_kill_supervisor(void **state) {
    (void)state;
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    trial *t = prepare(work_forever, 4);
    start(t);
    await_ranks(t, 4);
    kill(t->pid, SIGKILL);
    double killed = seconds();
    int status, ended = 0;
    assert_int_equal(waitpid(t->pid, &status, 0), t->pid);
    for (int i = 0; i < 4; i++) {
        for (double until = killed + 5; waitpid(t->shared->pid[i], &status, WNOHANG) == 0; nap(0.005))
            if (seconds() > until) fail_msg("rank %d lives on", i);
        ended += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    }
    assert_int_equal(ended, 4);
    assert_true(seconds() - killed < 2);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    drop(t);
}

// --- starts ----------------------------------------------------------------------------------------------------------

static void test_surroundings(void **state) {
    (void)state;
    setenv("NOTIFY_SOCKET", "/nobody/listens", 1);
    setenv("WATCHDOG_USEC", "1000000", 1);
    setenv("WATCHDOG_PID", "1", 1);
    trial *t = prepare(look_around, 3);
    start(t);
    lab *l = finish(t);
    for (int i = 0; i < 3; i++) assert_string_equal(l->said[i], "");
    assert_end(l, ERR_OK, "");
    drop(t);
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
}

static void test_cores(void **state) {
    (void)state;
    cpu_set_t all, both, sum;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    int cores = CPU_COUNT(&all);
    for (int ranks = 2; ranks <= MOST; ranks += 5) {
        trial *t = prepare(live_well, ranks);
        start(t);
        lab *l = finish(t);
        assert_end(l, ERR_OK, "");
        CPU_ZERO(&sum);
        for (int i = 0; i < ranks; i++) {
            int mine = CPU_COUNT(&l->cores[i]);
            assert_in_range(l->threads[i], 1, mine);
            if (ranks > cores) assert_int_equal(mine, 1);
            CPU_AND(&both, &sum, &l->cores[i]);
            if (ranks <= cores) assert_int_equal(CPU_COUNT(&both), 0);  // nobody else's
            CPU_OR(&sum, &sum, &l->cores[i]);
        }
        assert_int_equal(CPU_EQUAL(&sum, &all), 1);  // and none is left over
        drop(t);
    }
    for (int own = 0; own < 2; own++) {  // one rank, or threads that someone chose
        trial *t = prepare(live_well, own ? 2 : 1);
        t->c.device.threads = own ? 3 : 0;
        start(t);
        lab *l = finish(t);
        assert_end(l, ERR_OK, "");
        assert_int_equal(l->threads[0], own ? 3 : 0);
        assert_int_equal(CPU_EQUAL(&l->cores[0], &all), 1);
        drop(t);
    }
}

static void test_no_start(void **state) {
    (void)state;
    trial *t = prepare(live_well, 5);  // fewer processes than it takes
    t->poor = 4;
    start(t);
    lab *l = finish(t);
    assert_end(l, ERR_UNAVAILABLE, "no process for rank ");
    assert_non_null(strstr(
        l->text, " of 5 of this node were started): Resource temporarily unavailable; raise the limit of processes"));
    drop(t);
    t = prepare(live_well, 5);
    t->c.batch.lanes = t->c.resolved.lanes = 4;
    start(t);
    l = finish(t);
    assert_int_equal(l->code, ERR_CONFIG);
    assert_int_equal(l->world, 0);
    assert_int_equal(l->started, 0);
    drop(t);
}

// Ranks are numbered through all nodes; this one has the last three.
static void test_second_node(void **state) {
    (void)state;
    setenv("LOCKSTEP_NODE", "1", 1);
    trial *t = prepare(fail_first, 0);
    strcpy(t->c.cluster.nodes, "127.0.0.1:2, 127.0.0.2:3");
    start(t);
    lab *l = finish(t);
    assert_end(l, ERR_IO, "rank 3 (127.0.0.2) ended with 74");
    assert_int_equal(l->world, 5);
    for (int i = 0; i < MOST; i++) assert_int_equal(l->pid[i] != 0, i >= 2 && i < 5);
    assert_string_equal(l->said[3], "rank 3 (127.0.0.2): disk full");
    drop(t);
    t = prepare(stop_and_save, 0);
    strcpy(t->c.cluster.nodes, "127.0.0.1:2, 127.0.0.2:3");
    start(t);
    await_ranks(t, 3);
    kill(t->pid, SIGTERM);
    assert_end(finish(t), ERR_INTERRUPTED, "stopped on request");  // rank 0 says it on another machine
    drop(t);
    unsetenv("LOCKSTEP_NODE");
}

// --- what a service manager hears ------------------------------------------------------------------------------------

typedef struct ear {
    int fd;
    char dir[256], path[300];
} ear;

static void listen_at(ear *e, bool abstract) {
    const char *tmp = getenv("TMPDIR");
    snprintf(e->dir, sizeof e->dir, "%s/lockstep-notify-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(e->dir));
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(e->path, sizeof e->path, "%s%s/socket", abstract ? "@" : "", e->dir);
    assert_true(strlen(e->path) < sizeof at.sun_path);
    memcpy(at.sun_path, e->path, strlen(e->path));
    if (abstract) at.sun_path[0] = 0;
    e->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(e->fd, (struct sockaddr *)&at,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(e->path) + !abstract)),
                     0);
    setenv("NOTIFY_SOCKET", e->path, 1);
}

static void stop_listening(ear *e) {
    close(e->fd);
    io_remove_tree(e->dir);
    notify_forget();
}

// The next message, "" when there is none.
static const char *heard(ear *e) {
    static char text[512];
    ssize_t n = recv(e->fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    return text;
}

static void assert_heard(ear *e, const char *message) { assert_string_equal(heard(e), message); }

// looking: how much work is done between steps, 0: none is.
static void tell_at(notify *n, double now, int ready, int64_t step, int64_t looking, bool stopping) {
    notify_send(n, &(notify_news){.now = now,
                                  .loss = 1.97341,
                                  .ready = ready,
                                  .step = step,
                                  .work = looking,
                                  .looking = looking > 0,
                                  .stopping = stopping});
}

static void test_notify(void **state) {
    (void)state;
    for (int abstract = 0; abstract < 2; abstract++) {
        ear e;
        notify n;
        listen_at(&e, abstract);
        setenv("WATCHDOG_USEC", "8000000", 1);
        notify_open(&n, 2, 2000, 30, 100);
        assert_true(n.fd >= 0);
        assert_true(notify_period(&n) <= 0.25);
        tell_at(&n, 100, 0, 0, 0, false);
        assert_heard(&e, "STATUS=0 of 2 ranks are ready");
        tell_at(&n, 100.2, 1, 0, 0, false);
        assert_heard(&e, "");  // not twice a second
        tell_at(&n, 101.2, 1, 0, 0, false);
        assert_heard(&e, "STATUS=1 of 2 ranks are ready");
        tell_at(&n, 102, 1, 0, 0, false);
        assert_heard(&e, "WATCHDOG=1");  // a start within its time
        tell_at(&n, 104, 2, 0, 0, false);
        assert_heard(&e, "READY=1");
        assert_heard(&e, "STATUS=ready, step 0/2000");
        tell_at(&n, 106, 2, 412, 0, false);
        assert_heard(&e, "STATUS=step 412/2000 loss 1.9734");
        assert_heard(&e, "WATCHDOG=1");
        for (double now = 106.25; now < 130; now += 0.25) tell_at(&n, now, 2, 412, 0, false);
        assert_heard(&e, "");  // no step, no sign of life
        tell_at(&n, 130, 2, 412, 5, false);
        assert_heard(&e, "WATCHDOG=1");  // it evaluates
        tell_at(&n, 131, 2, 412, 6, false);
        assert_heard(&e, "");  // a quarter of the time is often enough
        tell_at(&n, 132, 2, 412, 6, false);
        assert_heard(&e, "WATCHDOG=1");
        for (double now = 132.25; now < 138; now += 0.25) tell_at(&n, now, 2, 412, 6, false);
        assert_heard(&e, "");  // it hangs while it evaluates
        tell_at(&n, 138, 2, 412, 7, false);
        assert_heard(&e, "WATCHDOG=1");
        tell_at(&n, 140, 2, 412, 0, true);
        assert_heard(&e, "STOPPING=1");
        tell_at(&n, 141, 2, 413, 0, true);
        assert_heard(&e, "STATUS=step 413/2000 loss 1.9734");
        assert_heard(&e, "WATCHDOG=1");
        notify_end(&n, true, "stopped on request");
        assert_heard(&e, "STATUS=stopped on request");
        assert_heard(&e, "");
        notify_close(&n);
        stop_listening(&e);
    }
}

static void test_notify_edges(void **state) {
    (void)state;
    ear e;
    notify n;
    listen_at(&e, false);
    setenv("WATCHDOG_USEC", "8000000", 1);
    notify_open(&n, 2, 10, 30, 0);  // other nodes are still to come
    notify_send(&n, &(notify_news){.now = 0.1, .ready = 0, .waits = "waiting for 10.0.0.2 (1 of 2 nodes are here)"});
    assert_heard(&e, "STATUS=waiting for 10.0.0.2 (1 of 2 nodes are here)");
    notify_send(&n, &(notify_news){.now = 1.5, .ready = 0, .waits = "waiting for 10.0.0.2 (1 of 2 nodes are here)"});
    assert_heard(&e, "");
    notify_send(&n, &(notify_news){.now = 1.6, .ready = 0, .waits = ""});
    assert_heard(&e, "STATUS=0 of 2 ranks are ready");
    notify_close(&n);
    notify_open(&n, 2, 10, 30, 0);  // a start beyond its time
    int alive = 0;
    for (double now = 0; now < 29; now += 2) {
        tell_at(&n, now, 1, 0, 0, false);
        for (const char *m; *(m = heard(&e));) alive += strcmp(m, "WATCHDOG=1") == 0;
    }
    assert_int_equal(alive, 14);
    for (double now = 30; now < 60; now += 2) tell_at(&n, now, 1, 0, 0, false);
    assert_heard(&e, "");
    notify_again(&n, 60);  // the next world has as long to start as the first
    tell_at(&n, 62, 1, 0, 0, false);
    assert_heard(&e, "WATCHDOG=1");
    tell_at(&n, 90, 1, 0, 0, false);
    assert_heard(&e, "");
    notify_end(&n, false, "rank 1 ended with 74");
    assert_heard(&e, "STATUS=rank 1 ended with 74");  // never READY
    assert_heard(&e, "STOPPING=1");
    assert_heard(&e, "");
    notify_close(&n);

    setenv("WATCHDOG_PID", "1", 1);  // someone else's watchdog
    notify_open(&n, 1, 10, 30, 0);
    assert_true(n.watchdog_s == 0);
    tell_at(&n, 50, 1, 5, true, false);
    assert_heard(&e, "READY=1");
    assert_heard(&e, "STATUS=step 5/10 loss 1.9734");
    assert_heard(&e, "");
    notify_close(&n);
    unsetenv("WATCHDOG_PID");

    notify_open(&n, 1, 10, 30, 0);  // a run that was over at once was ready all the same
    notify_end(&n, true, "done");
    assert_heard(&e, "READY=1");
    assert_heard(&e, "STATUS=done");
    assert_heard(&e, "STOPPING=1");
    notify_close(&n);

    static const char *const nobody[] = {"", "/", "@", "relative", "/nobody/is/there"};
    for (size_t i = 0; i < sizeof nobody / sizeof *nobody; i++) {
        setenv("NOTIFY_SOCKET", nobody[i], 1);
        notify_open(&n, 1, 10, 30, 0);
        assert_int_equal(n.fd, -1);
        tell_at(&n, 50, 1, 5, true, false);
        notify_end(&n, true, "done");
        notify_close(&n);
    }
    stop_listening(&e);
}

static err_t advance_and_stall(const config *c, const launch *at, board *b) {
    begin(c, at, b);
    if (at->rank != 0) {
        await_flag(1);
        return ERR_OK;
    }
    while (atomic_load(&b->ready) < at->locals) nap(0.005);
    for (int step = 1; step <= 60; step++) {
        nap(0.02);
        atomic_store(&b->loss, 2.5);
        atomic_store(&b->step, step);
    }
    atomic_store(&here->stalled_at, seconds());
    nap(1.5);
    atomic_store(&here->flag, 1);
    return ERR_OK;
}

// A supervisor and its ranks, with a watchdog of 0.4 s: it hears of a stall by hearing nothing.
static void test_watchdog(void **state) {
    (void)state;
    ear e;
    listen_at(&e, false);
    setenv("WATCHDOG_USEC", "400000", 1);
    trial *t = prepare(advance_and_stall, 2);
    start(t);
    char all[64][64];
    double when[64];
    int n = 0;
    for (bool over = false; !over;) {
        poll(&(struct pollfd){.fd = e.fd, .events = POLLIN}, 1, 50);
        siginfo_t end = {0};
        over = waitid(P_PID, (id_t)t->pid, &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid == t->pid;
        for (const char *m; n < 64 && *(m = heard(&e)); n++) {
            snprintf(all[n], sizeof all[n], "%s", m);
            when[n] = seconds();
        }
    }
    lab *l = finish(t);
    assert_end(l, ERR_OK, "");
    int ready = -1, first_step = -1, moving = 0, late = 0;
    for (int i = 0; i < n; i++) {
        if (strcmp(all[i], "READY=1") == 0) assert_int_equal(ready, -1), ready = i;
        if (strncmp(all[i], "STATUS=step ", 12) == 0 && first_step < 0) first_step = i;
        if (strcmp(all[i], "WATCHDOG=1") != 0) continue;
        moving += when[i] < l->stalled_at;
        late += when[i] > l->stalled_at + 0.5;  // the last steps may still be reported
    }
    assert_true(ready >= 0 && first_step > ready);
    assert_non_null(strstr(all[first_step], "/2000 loss 2.5000"));
    assert_true(moving >= 2);
    assert_int_equal(late, 0);
    assert_string_equal(all[n - 2], "STATUS=done");
    assert_string_equal(all[n - 1], "STOPPING=1");
    drop(t);
    stop_listening(&e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_all_well),     TEST(test_one_fails),  TEST(test_root_cause),    TEST(test_killed),
        TEST(test_stop),         TEST(test_stop_twice), TEST(test_stop_and_loss), TEST(test_kill_supervisor),
        TEST(test_surroundings), TEST(test_cores),      TEST(test_no_start),

        TEST(test_second_node),  TEST(test_notify),     TEST(test_notify_edges),  TEST(test_watchdog),
        TEST(test_deaf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
