// test/support/trial.h: a supervisor and its ranks, as real processes with short lives, for tests of how they end:
// which rank is named, and that no process remains.
//
// Each trial runs in a process of its own, which becomes a supervisor and forks ranks. They all share one page, the
// lab, with the test's own process.
#ifndef TEST_SUPPORT_TRIAL_H
#define TEST_SUPPORT_TRIAL_H

#include "trainer/node/supervisor.h"
#include "trainer/node/notify.h"
#include "base/io.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 16, LIMIT_S = 40 };

typedef struct lab {
    atomic_int pid[MOST], started, saved, flag;
    int threads[MOST];
    cpu_set_t cores[MOST];
    char said[MOST][ERR_TEXT];  // what a rank's own failure reads like
    // the supervisor's end
    int code, rank, world, fds_before, fds_after, orphans;
    char text[ERR_TEXT];
    _Atomic double stalled_at;
    // the watcher's
    atomic_int watcher, watches, told, how_before, others;
} lab;

static lab *here;  // in the processes of a trial

int __lsan_do_recoverable_leak_check(void) __attribute__((weak));  // there with AddressSanitizer
static inline int leaks(void) { return __lsan_do_recoverable_leak_check ? __lsan_do_recoverable_leak_check() : 0; }

static inline double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void nap(double s) {
    nanosleep(&(struct timespec){.tv_sec = (time_t)s, .tv_nsec = (long)((s - (double)(time_t)s) * 1e9)}, NULL);
}

static inline int open_files(void) {
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

// --- a trial ---------------------------------------------------------------------------------------------------------

typedef struct trial {
    config c;
    lab *shared;
    rank_body body;
    world_check fits;   // NULL: any world does
    bool heals, keeps;  // keeps: something outlives its ranks
    watch_body watch;
    pid_t pid;
    double started_at, took;
    int poor;  // may start so many processes, 0: as many as it likes
} trial;

static trial *under_way[MOST];  // prepared and not dropped: after a test that failed there may be some

static inline void list_trial(trial *old, trial *new) {
    int i = 0;
    while (i < MOST && under_way[i] != old) i++;
    assert_true(i < MOST);
    under_way[i] = new;
}

static inline trial *prepare(rank_body body, int ranks) {
    trial *t = calloc(1, sizeof *t);
    assert_non_null(t);
    list_trial(NULL, t);
    assert_int_equal(config_load(&t->c, NULL, 0), ERR_OK);
    t->c.device.ranks = ranks;
    t->c.batch.lanes = t->c.resolved.lanes = 64;
    t->c.run.steps = 2000;
    t->body = body;
    t->shared = mmap(NULL, sizeof *t->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(t->shared != MAP_FAILED);
    return t;
}

static inline void become_poor(int processes) {
    bool root = geteuid() == 0;
    if (root && setresuid(54321, 54321, 54321) != 0) _exit(1);
    struct rlimit few = {.rlim_cur = root ? (rlim_t)processes : 1, .rlim_max = root ? (rlim_t)processes : 1};
    setrlimit(RLIMIT_NPROC, &few);
}

static inline err_t any_world(const config *c, int world) { return (void)c, (void)world, ERR_OK; }

static inline int something(void) { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

static inline void run_trial(trial *t) {
    here = t->shared;
    alarm(LIMIT_S);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (t->poor) become_poor(t->poor);
    int rank = -2, world = -2;
    here->fds_before = open_files();
    err_t rc = supervise(&t->c,
                         &(supervised){.fits = t->fits ? t->fits : any_world,
                                       .rank = t->body,
                                       .watch = t->watch,
                                       .heals = t->heals,
                                       .keep = t->keeps ? something : NULL},
                         &rank, &world);
    if (rank == RANK_WATCHER) _exit(leaks() ? 99 : rc);
    if (rank >= 0) {
        if (rc != ERR_OK) snprintf(here->said[rank], ERR_TEXT, "%s", err_last()->text);
        _exit(leaks() ? 99 : rc);
    }
    here->fds_after = open_files();
    here->code = rc, here->rank = rank, here->world = world;
    snprintf(here->text, sizeof here->text, "%s", rc == ERR_OK ? "" : err_last()->text);
    here->orphans = waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD;
    _exit(leaks());
}

static inline void start(trial *t) {
    fflush(NULL);
    t->started_at = seconds();
    t->pid = fork();
    assert_true(t->pid >= 0);
    setpgid(t->pid, t->pid);  // in parent and child: it holds before either goes on
    if (t->pid == 0) run_trial(t);
}

static inline void await_watcher(trial *t) {
    for (double until = seconds() + 20; !atomic_load(&t->shared->watcher); nap(0.005))
        if (seconds() > until) fail_msg("there is no watcher after 20 s");
}

// Waits until so many ranks are in their bodies and listen.
static inline void await_ranks(trial *t, int ranks) {
    for (double until = seconds() + 20; atomic_load(&t->shared->started) < ranks; nap(0.005))
        if (seconds() > until)
            fail_msg("%d of %d ranks have started after 20 s", atomic_load(&t->shared->started), ranks);
}

// The supervisor's own end, which is always a good one, and what must be true of every end: nothing is left.
static inline lab *finish(trial *t) {
    int status;
    while (waitpid(t->pid, &status, 0) < 0 && errno == EINTR) {}
    t->took = seconds() - t->started_at;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("the supervisor ended with status %d after %.1f s", status, t->took);
    lab *l = t->shared;
    assert_int_equal(l->rank, -1);
    assert_int_equal(l->orphans, 0);
    assert_int_equal(l->fds_after, l->fds_before);
    for (int i = 0; i < MOST; i++)
        if (l->pid[i] && (kill(l->pid[i], 0) == 0 || errno != ESRCH)) fail_msg("rank %d is still there", i);
    if (l->watcher && (kill(l->watcher, 0) == 0 || errno != ESRCH)) fail_msg("the watcher is still there");
    return l;
}

static inline void drop(trial *t) {
    list_trial(t, NULL);
    munmap(t->shared, sizeof *t->shared);
    free(t);
}

// A supervisor and its ranks are a process group. What a failed test has left of it ends here, or it would keep the
// output open for ever.
static inline int end_trials(void **state) {
    (void)state;
    for (int i = 0; i < MOST; i++) {
        trial *t = under_way[i];
        if (!t) continue;
        if (t->pid > 0) {
            kill(-t->pid, SIGKILL);
            waitpid(t->pid, NULL, 0);
        }
        drop(t);
    }
    return 0;
}

static inline void assert_end(const lab *l, err_t code, const char *text) {
    if (strncmp(l->text, text, strlen(text)) != 0 || (!*text && *l->text))
        fail_msg("expected \"%s\", found \"%s\" (code %d)", text, l->text, l->code);
    assert_int_equal(l->code, code);
}

// --- lives that several tests want -----------------------------------------------------------------------------------

static inline void begin(const config *c, const launch *at, board *b) {
    alarm(LIMIT_S);
    here->threads[at->rank] = (int)c->device.threads;
    sched_getaffinity(0, sizeof here->cores[0], &here->cores[at->rank]);
    atomic_store(&here->pid[at->rank], getpid());
    atomic_fetch_add(&b->ready, 1);
    atomic_fetch_add(&here->started, 1);
}

static inline void await_flag(int value) {
    while (atomic_load(&here->flag) < value) nap(0.005);
}
static inline void sleep_on(void) { await_flag(1000); }
static inline void await_stop(board *b) {
    while (!atomic_load(&b->stop)) nap(0.005);
}

static inline err_t live_well(const config *c, const launch *at, board *b) {
    begin(c, at, b);
    if (at->locals > 1) {  // they share memory and doorbells
        atomic_int *count = at->area;
        atomic_fetch_add(count, 1);
        while (atomic_load(count) < at->locals) nap(0.002);
    }
    return at->rank < at->world && at->locals == c->device.ranks ? ERR_OK : err_set(ERR_INTERNAL, "launch");
}

static inline err_t fail_first(const config *c, const launch *at, board *b) {
    begin(c, at, b);
    if (at->local == 1) {
        atomic_store(&here->flag, 1);
        return err_set(ERR_IO, "disk full");
    }
    await_flag(1);
    nap(0.1 + 0.02 * at->local);
    return err_set(ERR_UNAVAILABLE, "lost");
}

static inline err_t stop_and_save(const config *c, const launch *at, board *b) {
    begin(c, at, b);
    await_stop(b);
    nap(0.3);
    atomic_fetch_add(&here->saved, 1);
    return err_set(ERR_INTERRUPTED, "stopped after step 7");
}

static inline err_t work_forever(const config *c, const launch *at, board *b) {
    begin(c, at, b);
    sleep_on();
    return ERR_OK;
}

static inline err_t work_until_flag(const config *c, const launch *at, board *b) {
    begin(c, at, b);
    await_flag(1);
    return ERR_OK;
}

// After a test that failed: drops what it has not.
static inline int clean(void **state) {
    (void)state;
    notify_forget();
    unsetenv("LOCKSTEP_NODE");
    return prctl(PR_SET_CHILD_SUBREAPER, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, clean, end_trials)

#endif
