// trainer/node/beside.c: the watcher's process. It is no part of the run: the ranks never wait for it, and it may end
// at any time.
#include "base/clock.h"
#include "trainer/node/crew.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Seconds between two starts, and for it to end. It is started once and RESTARTS times more.
static const double restart_s = 10, last_words_s = 5, dead_s = 0.5;
enum { RESTARTS = 3, NICE = 10 };

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

err_t watcher_live(crew *w, pid_t parent, const config *c, watch_body body) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) raise(SIGKILL);  // the parent died before prctl
    signal(SIGINT, SIG_IGN);
    crew_forget(w);
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

bool watcher_is_due(const crew *w) { return !w->watcher && w->starts <= RESTARTS; }

// Without a process, or after too many, the run goes on alone.
bool watcher_start(crew *w, double now) {
    if (!watcher_is_due(w) || (w->starts && now < w->started_at + restart_s)) return false;
    fflush(NULL);
    w->starts++;
    w->started_at = now;
    pid_t pid = fork();
    if (pid > 0) w->watcher = pid;
    return pid == 0;
}

void watcher_reap(crew *w) {
    int status;
    if (!w->watcher || waitpid(w->watcher, &status, WNOHANG) == 0) return;
    w->watcher = 0;
    w->ended = status;
}

// It may hang in a disk that does not answer; then not even SIGKILL helps, and it ends when it can.
void watcher_end(crew *w, const sigset_t *set) {
    if (!w->watcher) return;
    double now = clock_now(), until = now + last_words_s, gone = until + dead_s;
    kill(w->watcher, SIGTERM);
    for (bool killed = false; w->watcher && now < gone; now = clock_now()) {
        int heard = sigtimedwait(set, NULL, &(struct timespec){.tv_nsec = 50000000});
        watcher_reap(w);
        bool enough = (heard == SIGTERM || heard == SIGINT) || w->asked > 1 || now >= until;
        if (!enough || killed || !w->watcher) continue;
        kill(w->watcher, SIGKILL);
        killed = true, gone = clock_now() + dead_s;
    }
}
