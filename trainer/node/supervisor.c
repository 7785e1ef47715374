// trainer/node/supervisor.c: a parent that is too simple to fail.
//
// It holds no state that matters: the ranks agree among themselves on everything. The parent starts them, receives
// signals, finds which rank's end caused the others', and leaves no process behind. It sleeps in sigtimedwait(), which
// returns when a child ends, on a request, and when a report to the service manager is due: no signal handler is
// needed, and no global variable for one.
#include "trainer/node/supervisor.h"

#include "base/clock.h"

#include "trainer/node/cluster.h"
#include "trainer/node/notify.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Seconds for the others to end after one has failed; then after SIGTERM; and for all, when asked to stop before they
// are ready.
static const double grace_s = 5, last_call_s = 2, start_stop_s = 10;
// Between two starts of the watcher, and for it to end. It is started once and RESTARTS times more.
static const double restart_s = 10, last_words_s = 5, dead_s = 0.5;
enum { RESTARTS = 3, NICE = 10 };

typedef struct crew {
    board *b;
    notify voice;
    launch at;  // closed once the ranks are forked
    int locals, world, node, nodes;
    comm_place *place;  // locals of them, for messages after `at` was closed
    pid_t *pid;         // locals of them; 0: not started, or ended
    int left;           // ranks that have not ended
    // How it went.
    int root;         // local rank whose end was the cause, -1: none
    int root_status;  // as of wait(2)
    bool stopped;     // some rank ended with ERR_INTERRUPTED
    bool forced;      // we killed them on request
    int asked;        // requests to stop
    int sent;         // the last signal sent to all ranks, 0: none
    double failed_at, asked_at;
    // The watcher.
    pid_t watcher;      // 0: there is none now
    int starts, ended;  // how often it was started; how the last one ended, as of wait(2)
    double started_at;
} crew;

// --- in a rank -------------------------------------------------------------------------------------------------------

// systemd may signal every process of the unit, and people use killall: a rank handles SIGTERM as its supervisor does.
// LISTENED, from this process itself, ends the thread: cancelling it would need libgcc_s, which a bare machine has not.
enum { LISTENED = SIGUSR2 };
static void *listen_for_term(void *ctx) {
    board *b = ctx;
    siginfo_t from;
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, LISTENED);
    for (int heard = 0;;) {
        int signal = sigwaitinfo(&wanted, &from);
        if (signal == LISTENED && from.si_pid == getpid()) return NULL;
        if (signal != SIGTERM) continue;
        if (heard++) _exit(ERR_INTERRUPTED);
        atomic_store(&b->stop, 1);
    }
}

static err_t start_listener(pthread_t *listener, board *b, const sigset_t *before) {
    sigset_t all, term = *before;
    sigfillset(&all);
    sigaddset(&term, SIGTERM);
    signal(SIGINT, SIG_IGN);  // a terminal's Ctrl-C reaches the whole group; the supervisor passes it on
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    int failed = pthread_create(listener, NULL, listen_for_term, b);
    pthread_sigmask(SIG_SETMASK, &term, NULL);
    return failed ? err_set(ERR_INTERNAL, "no thread to listen for SIGTERM: %s", strerror(failed)) : ERR_OK;
}

// Whole cores of a container's quota (cgroup v2); more threads than that would be throttled.
static int quota_cores(int cores) {
    double quota, period;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (!f) return cores;
    bool limited = fscanf(f, "%lf %lf", &quota, &period) == 2 && quota > 0 && period > 0 && quota / period < cores;
    fclose(f);
    return limited ? (int)(quota / period) : cores;
}

// Binds this rank to its equal share of the cores; neighbouring ranks get neighbouring cores. If there are more ranks
// than cores, each gets one thread. Returns the number of threads, 0: not known.
static int take_cores(int local, int locals) {
    cpu_set_t all, mine;
    if (sched_getaffinity(0, sizeof all, &all) != 0) return 0;
    int n = CPU_COUNT(&all), from = local * n / locals, to = (local + 1) * n / locals, seen = 0;
    if (locals > n) from = local % n, to = from + 1;
    CPU_ZERO(&mine);
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &all)) continue;
        if (seen >= from && seen < to) CPU_SET(core, &mine);
        seen++;
    }
    sched_setaffinity(0, sizeof mine, &mine);  // a refusal costs some speed; the number of threads is still right
    int allowed = quota_cores(n) / locals, share = to - from;
    return share < allowed ? share : allowed > 1 ? allowed : 1;
}

static err_t run_body(const config *c, const launch *at, board *b, rank_body body) {
    if (at->locals == 1 || c->device.threads) return body(c, at, b);
    config *mine = malloc(sizeof *mine);
    if (!mine) return err_set(ERR_INTERNAL, "no memory for a rank's settings");
    *mine = *c;
    mine->device.threads = take_cores(at->local, at->locals);
    err_t rc = body(mine, at, b);
    free(mine);
    return rc;
}

// Puts this rank's name before the text, unless it is there: the team adds it to errors that it sends to others.
static void say_who(const launch *at) {
    char who[COMM_NAME];
    comm_place_text(&at->place[at->rank], who);
    if (strncmp(err_last()->text, who, strlen(who)) != 0) err_prefix("%s", who);
}

// From here on this process is a rank. First it releases what the parent made for itself.
static err_t be_rank(crew *w, int local, pid_t parent, const sigset_t *before, const config *c, rank_body body,
                     int *rank) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) raise(SIGKILL);  // the parent died before prctl
    free(w->pid), free(w->place);
    launch_become(&w->at, local);
    notify_forget();
    *rank = w->at.rank;
    atomic_store(&w->b->rank[local].pid, getpid());
    pthread_t listener;
    err_t rc = start_listener(&listener, w->b, before);
    if (rc == ERR_OK) {
        rc = run_body(c, &w->at, w->b, body);
        pthread_kill(listener, LISTENED);
        pthread_join(listener, NULL);
    }
    if (rc != ERR_OK && rc != ERR_INTERRUPTED && w->world > 1) say_who(&w->at);
    launch_close(&w->at);
    munmap(w->b, board_bytes(w->locals));
    return rc;
}

// --- in the parent ---------------------------------------------------------------------------------------------------

static void signal_all(crew *w, int signal) {
    for (int i = 0; i < w->locals; i++)
        if (w->pid[i]) kill(w->pid[i], signal);
    w->sent = signal;
}

// A rank that ends because another was lost returns ERR_UNAVAILABLE: it is the cause only if there is no better one.
static bool is_cause(int status) { return WIFSIGNALED(status) || WEXITSTATUS(status) != ERR_UNAVAILABLE; }

static void note_end(crew *w, int local, int status, double now) {
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    w->pid[local] = 0;
    w->left--;
    w->stopped |= code == ERR_INTERRUPTED;
    bool ours = w->sent && WIFSIGNALED(status) && (w->sent == SIGKILL || WTERMSIG(status) == w->sent);
    if (code == ERR_OK || code == ERR_INTERRUPTED || ours) return;
    if (w->root < 0) w->failed_at = now;
    else if (is_cause(w->root_status) || !is_cause(status)) return;
    w->root = local;
    w->root_status = status;
    atomic_store(&w->b->failed, 1);
}

static void reap(crew *w, double now) {
    for (int i = 0; i < w->locals; i++) {
        int status;
        pid_t got = w->pid[i] ? waitpid(w->pid[i], &status, WNOHANG) : 0;
        if (got < 0) status = ERR_INTERNAL << 8;  // another waitpid has reaped our child
        if (got != 0) note_end(w, i, status, now);
    }
}

static void force(crew *w) {
    w->forced = true;
    signal_all(w, SIGKILL);
}

static void ask(crew *w, double now) {
    if (w->asked++ == 0) w->asked_at = now;
    atomic_store(&w->b->stop, 1);
    if (w->asked > 1) force(w);
}

static void keep_deadlines(crew *w, double now) {
    if (w->root >= 0 && now >= w->failed_at + grace_s && !w->sent) signal_all(w, SIGTERM);
    if (w->root >= 0 && now >= w->failed_at + grace_s + last_call_s && w->sent != SIGKILL) signal_all(w, SIGKILL);
    // Nothing was trained that could be lost, and a rank that is connecting to the others does not look at board->stop.
    bool ready = atomic_load(&w->b->ready) >= w->locals;
    if (w->asked && !ready && now >= w->asked_at + start_stop_s && w->sent != SIGKILL) force(w);
}

static void report_status(crew *w, double now) {
    char waits[BOARD_SAID];
    board_said(w->b, waits);
    notify_send(&w->voice, &(notify_news){
                               .now = now,
                               .loss = atomic_load(&w->b->loss),
                               .ready = atomic_load(&w->b->ready),
                               .step = atomic_load(&w->b->step),
                               .looking = atomic_load(&w->b->looking) > 0,
                               .waits = waits,
                               .stopping = atomic_load(&w->b->stop) != 0 || w->root >= 0,
                           });
}

// The longest time to sleep if nothing happens.
static struct timespec next_look(const crew *w, bool watched) {
    double wait = w->root >= 0 || w->asked ? 0.1 : notify_period(&w->voice);
    if (watched && !w->watcher && w->starts <= RESTARTS && wait > 1) wait = 1;
    return (struct timespec){.tv_sec = (time_t)wait, .tv_nsec = (long)((wait - (double)(time_t)wait) * 1e9)};
}

// --- the watcher -----------------------------------------------------------------------------------------------------

// watch_start.over. SIGTERM is blocked, and means what it says only from the supervisor: systemd and killall send it to
// everybody.
static bool is_over(double until) {
    sigset_t term;
    siginfo_t from;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    for (;;) {
        double left = until - clock_now();
        if (left < 0) left = 0;
        struct timespec wait = {.tv_sec = (time_t)left, .tv_nsec = (long)((left - (double)(time_t)left) * 1e9)};
        int heard = sigtimedwait(&term, &from, &wait);
        if (heard == SIGTERM && from.si_pid == getppid()) return true;
        if (heard < 0 && errno != EINTR) return false;
    }
}

static err_t be_watcher(crew *w, pid_t parent, const config *c, watch_body body) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) raise(SIGKILL);  // the parent died before prctl
    signal(SIGINT, SIG_IGN);
    notify_close(&w->voice);
    notify_forget();
    prctl(PR_SET_NAME, "lockstep/watch");
    (void)!nice(NICE);
    mprotect(w->b, board_bytes(w->locals), PROT_READ);
    watch_start at = {.b = w->b,
                      .place = w->place,
                      .node = w->node,
                      .nodes = w->nodes,
                      .world = w->world,
                      .starts = w->starts,
                      .ended = w->ended,
                      .over = is_over};
    return body(c, &at);
}

// True in the new process. Without a process, or after too many, the run goes on alone.
static bool start_watcher(crew *w, double now) {
    if (w->watcher || w->starts > RESTARTS || (w->starts && now < w->started_at + restart_s)) return false;
    fflush(NULL);
    w->starts++;
    w->started_at = now;
    pid_t pid = fork();
    if (pid > 0) w->watcher = pid;
    return pid == 0;
}

static void reap_watcher(crew *w) {
    int status;
    if (!w->watcher || waitpid(w->watcher, &status, WNOHANG) == 0) return;
    w->watcher = 0;
    w->ended = status;
}

// It may hang in a disk that does not answer; then not even SIGKILL helps, and it ends when it can.
static void end_watcher(crew *w, const sigset_t *set) {
    if (!w->watcher) return;
    double now = clock_now(), until = now + last_words_s, gone = until + dead_s;
    kill(w->watcher, SIGTERM);
    for (bool killed = false; w->watcher && now < gone; now = clock_now()) {
        int heard = sigtimedwait(set, NULL, &(struct timespec){.tv_nsec = 50000000});
        reap_watcher(w);
        bool enough = (heard == SIGTERM || heard == SIGINT) || w->asked > 1 || now >= until;
        if (!enough || killed || !w->watcher) continue;
        kill(w->watcher, SIGKILL);
        killed = true, gone = clock_now() + dead_s;
    }
}

// True in a process that has become the watcher.
static bool watch(crew *w, const sigset_t *set, bool watched) {
    while (w->left) {
        if (watched && start_watcher(w, clock_now())) return true;
        report_status(w, clock_now());
        struct timespec wait = next_look(w, watched);
        int heard = sigtimedwait(set, NULL, &wait);
        double now = clock_now();
        reap(w, now);
        reap_watcher(w);
        if (heard == SIGTERM || heard == SIGINT) ask(w, now);
        keep_deadlines(w, now);
    }
    return false;
}

// ERR_OK, or the error to report for the way the ranks ended.
static err_t verdict(const crew *w) {
    // Ranks that received two signals themselves exit immediately, and the others lose them: that is no failure.
    bool failed = w->root >= 0 && !(w->stopped && !is_cause(w->root_status)),
         began = atomic_load(&w->b->ready) >= w->locals;
    if (!failed && (w->forced || w->root >= 0))
        return err_set(ERR_INTERRUPTED, "%s",
                       began ? "ended at once on request; the newest checkpoint stands, and the same command continues"
                             : "ended at once on request; nothing was trained, nothing had to be saved");
    if (!failed && !w->stopped) return ERR_OK;
    bool diverged = atomic_load(&w->b->gave_up) != 0;
    if (!failed)
        return err_set(ERR_INTERRUPTED, "%s",
                       w->node == 0 ? ""
                       : diverged   ? "stopped: the run has diverged; the first node says how to go on"
                       : began      ? "stopped on request; the same command continues"
                                    : "stopped on request; nothing was trained, nothing had to be saved");
    int status = w->root_status;
    char who[COMM_NAME];
    comm_place_text(&w->place[w->root], who);
    if (WIFSIGNALED(status)) {
        int signal = WTERMSIG(status);
        const char *name = sigdescr_np(signal);
        return err_set(ERR_UNAVAILABLE, "%s was killed by signal %d (%s)%s", who, signal, name ? name : "unknown",
                       signal == SIGKILL ? "; if no person did it, the kernel had run out of memory: see dmesg" : "");
    }
    err_t code = (err_t)WEXITSTATUS(status);
    if (w->world == 1) return err_set(code, "%s", "");
    return err_set(code, "%s ended with %d", who, (int)code);
}

// --- both ------------------------------------------------------------------------------------------------------------

// Of this node's ranks.
static comm_place *own_places(const launch *at) {
    comm_place *copy = malloc((size_t)at->locals * sizeof *copy);
    int first = 0;
    while (at->place[first].node != at->node) first++;
    if (copy) memcpy(copy, &at->place[first], (size_t)at->locals * sizeof *copy);
    return copy;
}

static err_t open_crew(crew *w, const config *c, world_check fits) {
    cluster *cl = malloc(sizeof *cl);
    const char *hosts[TEAM_NODES_MAX];
    if (!cl) return err_set(ERR_INTERNAL, "no memory for the list of nodes");
    err_t rc = cluster_resolve(cl, c);
    if (rc == ERR_OK) rc = fits(c, cl->world);
    for (int i = 0; rc == ERR_OK && i < cl->nodes; i++) hosts[i] = cl->host[i];
    if (rc == ERR_OK) rc = launch_open(&w->at, cl->nodes, cl->ranks, hosts, cl->node);
    if (rc == ERR_OK) {
        grid shape = config_grid(c, cl->world);
        channel_plan plan = grid_channels(&shape);  // of the groups that the shape needs
        if (plan.channels) rc = launch_channels(&w->at, &plan);
        if (rc != ERR_OK) launch_close(&w->at);  // leaves the error as it is
    }
    if (rc == ERR_OK) {
        w->world = cl->world, w->node = cl->node, w->nodes = cl->nodes, w->locals = cl->ranks[cl->node];
        w->place = own_places(&w->at);
    }
    free(cl);
    TRY(rc);
    w->pid = calloc((size_t)w->locals, sizeof *w->pid);
    w->b = mmap(NULL, board_bytes(w->locals), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (w->b != MAP_FAILED) board_init(w->b, w->locals);
    if (w->pid && w->place && w->b != MAP_FAILED) return ERR_OK;
    free(w->pid), free(w->place);
    if (w->b != MAP_FAILED) munmap(w->b, board_bytes(w->locals));
    launch_close(&w->at);
    return err_set(ERR_INTERNAL, "no memory to watch %d ranks", w->locals);
}

// Local rank that this process has become, or w->locals in the parent; -1: a fork failed.
static int fork_all(crew *w) {
    fflush(NULL);  // or every rank would write our buffered output again
    for (int i = 0; i < w->locals; i++) {
        pid_t pid = fork();
        if (pid == 0) return i;
        if (pid < 0) return -1;
        w->pid[i] = pid;
        w->left++;
    }
    return w->locals;
}

static err_t no_fork(crew *w) {
    int why = errno, started = w->left;
    char who[COMM_NAME];
    signal_all(w, SIGKILL);
    for (int i = 0; i < w->locals; i++)
        if (w->pid[i]) waitpid(w->pid[i], NULL, 0);
    w->left = 0;
    return err_set(
        ERR_UNAVAILABLE,
        "no process for %s (%d of %d of this node were started): %s; raise the limit of processes (TasksMax, ulimit -u) or "
        "lower the number of ranks",
        comm_place_text(&w->place[started], who), started, w->locals, strerror(why));
}

// *watcher: this process has become one, and this is how it ended.
static err_t lead(crew *w, const config *c, const sigset_t *set, watch_body body, bool *watcher) {
    pid_t self = getpid();
    launch_close(&w->at);  // or rank 0 would not notice closed connections, because we hold their other ends open
    notify_open(&w->voice, w->locals, c->run.steps, 2 * c->cluster.timeout, clock_now());
    *watcher = watch(w, set, body != NULL);
    if (*watcher) return be_watcher(w, self, c, body);
    err_t rc = verdict(w);
    err_record why = *err_last();
    bool well = rc == ERR_OK || rc == ERR_INTERRUPTED, diverged = well && atomic_load(&w->b->gave_up);
    atomic_store(&w->b->end, rc == ERR_OK ? RUN_DONE : diverged ? RUN_DIVERGED : well ? RUN_STOPPED : RUN_FAILED);
    end_watcher(w, set);
    const char *how = rc == ERR_OK ? "done"
                      : diverged   ? "stopped: the run has diverged, see the log"
                      : well       ? "stopped on request"
                                   : "failed, see the log";
    notify_end(&w->voice, well, rc != ERR_OK && *why.text ? why.text : how);
    notify_close(&w->voice);
    return rc == ERR_OK ? rc : err_restore(&why);
}

err_t supervise(const config *c, const supervised *of, int *rank, int *world) {
    crew w = {.root = -1};
    bool watcher = false;
    *rank = -1;
    *world = 0;
    TRY(open_crew(&w, c, of->fits));
    *world = w.world;
    // Block signals before the first fork: none is lost between fork and loop, and in a rank SIGTERM waits for its
    // listener.
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGCHLD);
    struct sigaction plain = {.sa_handler = SIG_DFL}, ignore = {.sa_handler = SIG_IGN}, was_child, was_pipe;
    sigaction(SIGCHLD, &plain, &was_child);  // some parents leave it ignored; then the ranks' ends would be lost
    sigaction(SIGPIPE, &ignore, &was_pipe);  // a reader that went away must not end a run
    pthread_sigmask(SIG_BLOCK, &set, &before);
    pid_t self = getpid();
    int local = fork_all(&w);
    if (local >= 0 && local < w.locals) return be_rank(&w, local, self, &before, c, of->rank, rank);
    err_t rc = local < 0 ? no_fork(&w) : lead(&w, c, &set, of->watch, &watcher);
    if (local < 0) launch_close(&w.at);
    free(w.pid), free(w.place);
    munmap(w.b, board_bytes(w.locals));
    if (watcher) *rank = RANK_WATCHER;
    if (watcher) return rc == ERR_OK ? rc : err_set(rc, "%s", "");  // it has reported what happened
    // discards a late request: there is nothing left to stop
    while (sigtimedwait(&set, NULL, &(struct timespec){0}) > 0) {}
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    sigaction(SIGCHLD, &was_child, NULL);
    sigaction(SIGPIPE, &was_pipe, NULL);
    return rc;
}
