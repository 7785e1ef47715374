// trainer/node/scribe.c: after a failure, a file that says what each rank of this node did last and who held up whom
// (comm/flight_text.h). The supervisor takes what the ranks wrote into memory, which outlives them, and forks a process
// that puts it into words: a disk that hangs must not hold up a supervisor.
#include "trainer/node/crew.h"

#include "base/clock.h"
#include "comm/flight_text.h"
#include "trainer/log/monitor.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RECORDINGS = 8 };  // that are kept: the newest
static const double write_s = 5;

// Of the world that is open, or was.
static uint32_t number(const crew *w) {
    if (!w->cl) return w->epoch;
    return w->entered ? (uint32_t)w->entered - 1 : 0;
}

// Had the process in this place come into that world?
static bool came(const crew *w, int slot) { return atomic_load(&w->b->rank[slot].flight.world) == number(w) + 1; }

// A place without one may have no rank (trainer/node/next.c), or its process ended before.
static bool is_member(const crew *w, int slot) {
    if (came(w, slot) || !w->h) return came(w, slot) || number(w) == 0;
    return w->h->slot[slot].place != SLOT_RETIRED && crew_seat(w, slot) < w->seats;
}

// What is to be written.
typedef struct taken {
    flight_view v;
    flight_log *log;  // w->locals of them
    uint64_t moment_ns;
    int64_t step;
} taken;

// --- the supervisor --------------------------------------------------------------------------------------------------

static uint64_t failed_ns(const crew *w, int local) { return atomic_load(&w->b->rank[local].flight.failed_ns); }

// The first failure.
static uint64_t moment_of(const crew *w, double failed_at) {
    uint64_t first = (uint64_t)((failed_at > 0 ? failed_at : clock_now()) * 1e9);
    for (int i = 0; i < w->locals; i++)
        if (failed_ns(w, i) && failed_ns(w, i) < first) first = failed_ns(w, i);
    return first;
}

static void say_exit(const crew *w, int local, flight_who *who) {
    const crew_exit *e = &w->exit[local];
    char text[CREW_END];
    if (!e->ended || (!e->ours && !crew_is_cause(e->status)) || (WIFEXITED(e->status) && !WEXITSTATUS(e->status)))
        return;
    if (e->ours) snprintf(who->ended, sizeof who->ended, "was killed, since it had not ended after the failure");
    else snprintf(who->ended, sizeof who->ended, "%s", crew_end_text(w, local, e->status, text) + strlen(who->who) + 1);
}

// After its failure a rank's board says how it unwinds.
static void say_task(const board_rank *r, uint64_t moment_ns, flight_who *who) {
    const char *what = atomic_load(&r->what);
    int64_t number = atomic_load(&r->number), step = atomic_load(&r->step);
    text t = {.at = who->doing, .room = sizeof who->doing};
    if (atomic_load(&r->flight.failed_ns)) return;
    flight_put_phase(&t, what ? what : board_phase_name((board_phase)atomic_load(&r->phase)), what ? number : -1, step);
    who->doing_s = ((double)moment_ns - (double)atomic_load(&r->since_ns)) * 1e-9;
}

static err_t take_rank(const crew *w, taken *x, int local) {
    const board_rank *r = &w->b->rank[local];
    flight_who who = {.rank = w->place[local].rank, .node = w->node, .failed = failed_ns(w, local) != 0};
    comm_place_text(&w->place[local], who.who);
    say_exit(w, local, &who);
    if (!came(w, local)) return flight_view_rank(&x->v, &who);
    say_task(r, x->moment_ns, &who);
    flight_log *log = &x->log[x->v.ranks];
    log->n = flight_calls(&r->flight, log->call);
    return flight_view_take(&x->v, &who, &r->flight, x->moment_ns);
}

static err_t take(const crew *w, const config *c, double failed_at, taken *x) {
    *x = (taken){.moment_ns = moment_of(w, failed_at), .step = atomic_load(&w->b->step)};
    x->v.node = w->node, x->v.nodes = w->nodes, x->v.world = w->world, x->v.epoch = number(w);
    x->v.time = (int64_t)time(NULL);
    snprintf(x->v.run, sizeof x->v.run, "%s", c->run.name);
    x->log = calloc((size_t)w->locals, sizeof *x->log);
    if (!x->log) return err_set(ERR_INTERNAL, "no memory for a flight recording of %d ranks", w->locals);
    for (int i = 0; i < w->locals; i++)
        if (is_member(w, i)) TRY(take_rank(w, x, i));
    return ERR_OK;
}

static void drop(taken *x) {
    flight_view_close(&x->v);
    free(x->log);
}

// --- the scribe ------------------------------------------------------------------------------------------------------

static int is_recording(const struct dirent *e) {
    size_t n = strlen(e->d_name);
    return strncmp(e->d_name, "flight-", 7) == 0 && n > 11 && strcmp(e->d_name + n - 4, ".txt") == 0;
}

// Names begin with the time.
static void prune(const char *dir) {
    struct dirent **all;
    char path[IO_PATH];
    int n = scandir(dir, &all, is_recording, alphasort);
    for (int i = 0; i < n; i++) {
        if (i < n - RECORDINGS && io_path(path, "%s/%s", dir, all[i]->d_name) == ERR_OK) unlink(path);
        free(all[i]);
    }
    if (n >= 0) free(all);
}

// The event has the path and the verdict's first line.
static void say_event(const char *dir, const char *path, const taken *x) {
    static const sink *const events[] = {&sink_events, NULL};
    static const config none;
    monitor m;
    text t = {0}, verdict = {0};
    flight_verdict(&x->v, &verdict);
    text_put(&t, "flight recording: %s: %.*s", path, verdict.at ? (int)strcspn(verdict.at, "\n") : 0,
             verdict.at ? verdict.at : "");
    if (t.at && monitor_open_list(&m, &(log_setup){.dir = dir, .c = &none}, events) == ERR_OK)
        monitor_event(&m, "flight", x->step, t.at);
    monitor_close(&m);
    text_free(&t), text_free(&verdict);
}

static err_t write_down(const char *dir, const char *path, const taken *x) {
    text t = {0};
    flight_write(&t, &x->v, x->log, x->moment_ns);
    err_t rc = t.full ? err_set(ERR_INTERNAL, "no memory for a flight recording") : io_replace_file(path, t.at, t.n);
    text_free(&t);
    TRY(rc);
    prune(dir);
    say_event(dir, path, x);
    return ERR_OK;
}

static _Noreturn void live(crew *w, const char *dir, const taken *x) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    crew_forget(w);
    _exit(write_down(dir, w->recording, x));
}

// --- both ------------------------------------------------------------------------------------------------------------

// Before the ranks have met there is nothing to tell.
static bool has_met(const crew *w) {
    flight_standing at;
    bool met = w->began;
    for (int i = 0; i < w->locals && !met; i++) met = flight_stands(&w->b->rank[i].flight, 0, &at);
    return met;
}

static err_t name(crew *w, const config *c, int64_t now, char dir[IO_PATH]) {
    char when[32];
    time_t at = (time_t)now;
    struct tm utc;
    struct stat st;
    strftime(when, sizeof when, "%Y%m%dT%H%M%SZ", gmtime_r(&at, &utc));
    TRY(io_path(dir, "%s/%s", c->run.dir, c->run.name));
    if (stat(dir, &st) != 0) return err_set(ERR_IO, "%s: there is no such directory", dir);
    return io_path(w->recording, "%s/flight-%s-node%d-world%u.txt", dir, when, w->node, number(w) + 1);
}

void scribe_start(crew *w, const config *c, double failed_at) {
    taken x;
    char dir[IO_PATH];
    scribe_reap(w);
    if (!w->records || w->scribe || !has_met(w)) return;
    w->recording[0] = 0;
    if (take(w, c, failed_at, &x) == ERR_OK && name(w, c, x.v.time, dir) == ERR_OK) {
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) live(w, dir, &x);
        if (pid > 0) w->scribe = pid;
        else w->recording[0] = 0;
    }
    drop(&x);
}

void scribe_reap(crew *w) {
    int status;
    if (!w->scribe || waitpid(w->scribe, &status, WNOHANG) == 0) return;
    w->scribe = 0;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) w->recording[0] = 0;
}

const char *scribe_end(crew *w) {
    for (double until = clock_now() + write_s; w->scribe && clock_now() < until; scribe_reap(w))
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    if (w->scribe) kill(w->scribe, SIGKILL), w->recording[0] = 0;
    return w->recording[0] ? w->recording : NULL;
}
