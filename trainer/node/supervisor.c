// trainer/node/supervisor.c: a parent that is too simple to fail.
//
// It holds no state that matters: the ranks agree among themselves on everything. The parent starts them, receives
// signals, finds which rank's end caused the others', and leaves no process behind. It sleeps in sigtimedwait(), which
// returns when a child ends, on a request, and when a report to the service manager is due: no signal handler is
// needed, and no global variable for one.
#include "trainer/node/supervisor.h"

#include "base/clock.h"
#include "trainer/node/crew.h"
#include "trainer/node/rank.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Seconds for the others to end after one has failed; then after SIGTERM; and for all, when asked to stop before they
// are ready.
static const double grace_s = 5, last_call_s = 2, start_stop_s = 10;

// --- while ranks live ------------------------------------------------------------------------------------------------

static void force(crew *w) {
    w->forced = true;
    crew_signal(w, SIGKILL);
}

static void ask(crew *w, double now) {
    if (w->asked++ == 0) w->asked_at = now;
    if (!w->cl || !w->h) atomic_store(&w->b->stop, 1);  // with a council the node is drained
    if (w->asked > 1) force(w);
}

static void keep_deadlines(crew *w, double now) {
    bool ends = w->root >= 0 || w->told != ERR_OK;
    if (ends && now >= w->failed_at + grace_s && !w->sent) crew_signal(w, SIGTERM);
    if (ends && now >= w->failed_at + grace_s + last_call_s && w->sent != SIGKILL) crew_signal(w, SIGKILL);
    // Nothing was trained that could be lost, and a rank that is connecting to the others does not look at board->stop.
    bool ready = w->began || atomic_load(&w->b->ready) >= w->seats;
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
                               .work = board_work(w->b),
                               .looking = atomic_load(&w->b->looking) > 0,
                               .waits = waits,
                               .stopping = atomic_load(&w->b->stop) != 0 || w->root >= 0,
                           });
}

// The longest time to sleep if nothing happens.
static struct timespec next_look(const crew *w, bool watched, double now) {
    double wait = w->root >= 0 || w->asked || w->told ? 0.1 : notify_period(&w->voice);
    if (w->cl && !w->d.pid && wait > 0.5) wait = 0.5;
    if (watched && watcher_is_due(w) && wait > 1) wait = 1;
    if (w->due && wait > w->due - now) wait = w->due > now ? w->due - now : 0;
    return (struct timespec){.tv_sec = (time_t)wait, .tv_nsec = (long)((wait - (double)(time_t)wait) * 1e9)};
}

static void look_at_board(crew *w) {
    int64_t step = atomic_load(&w->b->step);
    bool ready = w->seats > 0 && atomic_load(&w->b->ready) >= w->seats;
    if (w->h && ready && !w->began) healing_began(w->h, step);
    if (w->h && w->began) healing_step(w->h, step);
    w->began |= ready;
}

// Returns w->locals after the last rank has ended; in a process that has become a rank, its local number; in the
// watcher, RANK_WATCHER.
static int watch(crew *w, const config *c, const sigset_t *set, bool watched) {
    while (w->left || w->h) {
        if (watched && watcher_start(w, clock_now())) return RANK_WATCHER;
        if (w->cl && delegate_start(&w->d, clock_now(), &w->own_delegate)) return RANK_DELEGATE;
        report_status(w, clock_now());
        struct timespec wait = next_look(w, watched, clock_now());
        int heard = sigtimedwait(set, NULL, &wait);
        double now = clock_now();
        look_at_board(w);
        crew_reap(w, now);
        watcher_reap(w);
        scribe_reap(w);
        if (heard == SIGTERM || heard == SIGINT) ask(w, now);
        int local = !w->h ? w->locals : w->cl ? crew_follow(w, c, now) : crew_heal(w, c, now);
        if (local < w->locals) return local;
        keep_deadlines(w, now);
    }
    return w->locals;
}

// ERR_OK, or the error to report for the way the ranks ended.
static err_t verdict(const crew *w) {
    if (w->told != ERR_OK) return err_set(w->told, "%s", w->hopeless);
    // Ranks that received two signals themselves exit immediately, and the others lose them: that is no failure.
    bool failed = w->root >= 0 && !(w->stopped && !crew_is_cause(w->root_status)),
         began = w->began || atomic_load(&w->b->ready) >= w->seats;
    if (!failed && (w->forced || w->root >= 0))
        return err_set(ERR_INTERRUPTED, "%s",
                       began ? "ended at once on request; the newest checkpoint stands, and the same command continues"
                             : "ended at once on request; nothing was trained, nothing had to be saved");
    if (!failed && !w->stopped) return ERR_OK;
    bool diverged = atomic_load(&w->b->gave_up) == BOARD_DIVERGED;
    if (!failed && atomic_load(&w->b->gave_up) == BOARD_NO_DISK)
        return err_set(ERR_IO, "%s",
                       w->node == 0 ? ""
                                    : "ended: too many checkpoints in a row could not be written; see the first node");
    if (!failed)
        return err_set(ERR_INTERRUPTED, "%s",
                       *w->hopeless   ? w->hopeless
                       : w->node == 0 ? ""
                       : diverged     ? "stopped: the run has diverged; the first node says how to go on"
                       : began        ? "stopped on request; the same command continues"
                                      : "stopped on request; nothing was trained, nothing had to be saved");
    int status = w->root_status;
    char end[CREW_END];
    const char *more = w->hopeless, *colon = *more ? ": " : "";
    crew_end_text(w, w->root, status, end);
    if (!WIFSIGNALED(status))
        return err_set((err_t)WEXITSTATUS(status), "%s%s%s", w->world == 1 && !*more ? "" : end, colon, more);
    const char *memory = "; if no person did it, the kernel had run out of memory: see dmesg";
    return err_set(ERR_UNAVAILABLE, "%s%s%s%s", end, colon, more, WTERMSIG(status) == SIGKILL && !*more ? memory : "");
}

// --- both ------------------------------------------------------------------------------------------------------------

static int lead(crew *w, const config *c, const sigset_t *set, bool watched) {
    launch_close(&w->at);  // or rank 0 would not notice closed connections, because we hold their other ends open
    notify_open(&w->voice, w->locals, c->run.steps, 2 * c->cluster.timeout, clock_now());
    return watch(w, c, set, watched);
}

// Of a failure that may have come from what the ranks did: writes what that was, and adds to the error where it is.
// Before they are ready, only of one that is lost: all else was wrong before they began, and its error says it.
static void record_failure(crew *w, const config *c, err_t rc) {
    bool refused = rc == ERR_USAGE || rc == ERR_AUTH || rc == ERR_CONFIG;
    if (rc == ERR_OK || rc == ERR_INTERRUPTED || refused || (!w->began && rc != ERR_UNAVAILABLE)) return;
    err_record why = *err_last();
    scribe_start(w, c, w->failed_at);
    const char *path = scribe_end(w);
    err_restore(&why);
    if (path) err_set(rc, "%s%sflight recording: %s", why.text, *why.text ? "; " : "", path);
}

// How all ranks have ended, for everybody who waits to hear it.
static err_t conclude(crew *w, const config *c, const sigset_t *set) {
    err_t rc = verdict(w);
    record_failure(w, c, rc);
    err_record why = *err_last();
    bool well = rc == ERR_OK || rc == ERR_INTERRUPTED, diverged = well && atomic_load(&w->b->gave_up) == BOARD_DIVERGED;
    atomic_store(&w->b->end, rc == ERR_OK ? RUN_DONE : diverged ? RUN_DIVERGED : well ? RUN_STOPPED : RUN_FAILED);
    if (well && w->cl) crew_say_over(w);
    watcher_end(w, set);
    const char *how = rc == ERR_OK ? "done"
                      : diverged   ? "stopped: the run has diverged, see the log"
                      : well       ? "stopped on request"
                                   : "failed, see the log";
    notify_end(&w->voice, well, rc != ERR_OK && *why.text ? why.text : how);
    notify_close(&w->voice);
    return rc == ERR_OK ? rc : err_restore(&why);
}

// In a process that has become a rank.
static err_t be_rank(crew *w, int slot, const rank_life *of, int *rank) {
    launch at = w->at;
    int local = crew_seat(w, slot);
    yard next = {.fd = w->own_yard, .vault = w->vault, .at = &at, .news = w->news};
    board *b = w->b;
    int locals = w->locals;
    if (next.fd >= 0) at.yard = &next;
    crew_forget(w);
    w->at = (launch){0}, w->b = NULL, w->vault = -1;  // the rank's now
    crew_close(w);
    err_t rc = rank_live(&at, b, local, slot, of, rank);
    if (next.fd >= 0) close(next.fd);
    if (next.vault >= 0) close(next.vault);
    munmap(b, board_bytes(locals));
    return rc;
}

// In a process that has become the delegate. What it has to say, it has told its supervisor.
static err_t be_delegate(crew *w, pid_t parent, const config *c, world_check fits) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) raise(SIGKILL);  // the parent died before prctl
    signal(SIGINT, SIG_IGN);
    prctl(PR_SET_NAME, "lockstep/nodes");
    crew_forget(w);
    notify_forget();
    (void)delegate_live(&(delegate_life){
        .c = c, .cl = w->cl, .b = w->b, .fits = fits, .page = w->d.page, .life = w->d.life, .fd = w->own_delegate});
    close(w->own_delegate);
    crew_close(w);
    return err_set(ERR_INTERRUPTED, "%s", "");
}

// In a process that has become the watcher. It has reported what happened.
static err_t be_watcher(crew *w, pid_t parent, const config *c, watch_body body) {
    err_t rc = watcher_live(w, parent, c, body);
    crew_close(w);
    return rc == ERR_OK ? rc : err_set(rc, "%s", "");
}

err_t supervise(const config *c, const supervised *of, int *rank, int *world) {
    crew w;
    *rank = -1;
    *world = 0;
    TRY(crew_open(&w, c, of));
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
    rank_life life = {c, of->rank, getpid(), &before};
    int local = crew_fork(&w);
    bool forked = local >= 0;
    if (local == w.locals) local = lead(&w, c, &set, of->watch != NULL);
    if (local == RANK_WATCHER) return *rank = RANK_WATCHER, be_watcher(&w, life.parent, c, of->watch);
    if (local == RANK_DELEGATE) return *rank = RANK_DELEGATE, be_delegate(&w, life.parent, c, of->fits);
    if (local >= 0 && local < w.locals) return be_rank(&w, local, &life, rank);
    err_t rc = forked ? conclude(&w, c, &set) : crew_no_fork(&w);
    crew_close(&w);
    // discards a late request: there is nothing left to stop
    while (sigtimedwait(&set, NULL, &(struct timespec){0}) > 0) {}
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    sigaction(SIGCHLD, &was_child, NULL);
    sigaction(SIGPIPE, &was_pipe, NULL);
    return rc;
}
