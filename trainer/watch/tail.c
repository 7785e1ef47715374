// trainer/watch/tail.c: see trainer/watch/tail.h. Files are looked at five times a second (base/follow.h), which works
// on every file system.
#include "trainer/watch/tail.h"

#include "base/follow.h"
#include "base/utf8.h"
#include "trainer/log/progress.h"
#include "trainer/watch/command.h"
#include "trainer/watch/rundir.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LOOK_MS = 200, ROOM = 1 << 17, LINES = 10, LINES_MOST = 100000, EVENTS = 3 };

typedef struct tail {
    const char *dir;
    progress shown;
    follower log, events;
    int64_t step;            // of the last record of a step, 0: none
    int64_t first;           // and of the first one since the log was cut
    double first_s, last_s;  // what the log says of their times, seconds
    char text[ROOM];         // of both files
} tail;

// --- records ---------------------------------------------------------------------------------------------------------

static const char *unit_of(const json_t *o) { return json_object_get(o, "tokens") ? "tok" : "samples"; }

// Seconds until the end, by what the log says of the time that steps took; NaN: not known.
static double time_left(const tail *t) {
    if (t->shown.steps <= 0 || t->step <= t->first) return NAN;
    return (t->last_s - t->first_s) / (double)(t->step - t->first) * (double)(t->shown.steps - t->step);
}

static void take_step(tail *t, const json_t *o) {
    const char *rate = json_object_get(o, "tokens_per_s") ? "tokens_per_s" : "samples_per_s";
    step_record r = {.step = rundir_whole(o, "step", 0), .logged = true};
    double at = rundir_real(o, "time");
    r.loss = rundir_real(o, "loss"), r.grad_norm = rundir_real(o, "grad_norm"), r.lr = rundir_real(o, "lr"),
    r.ms = rundir_real(o, "ms");
    r.units_per_s = rundir_real(o, rate), r.data_wait_ms = rundir_real(o, "data_wait_ms");
    r.skipped = json_is_true(json_object_get(o, "skipped"));
    if (isnan(at)) at = t->last_s + 1e-3 * r.ms * (double)(r.step - t->step);  // an older log
    if (t->step == 0 || r.step <= t->step) t->first = r.step, t->first_s = isnan(at) ? 0 : at;
    t->step = r.step;
    t->last_s = isnan(at) ? t->first_s : at;
    t->shown.unit = unit_of(o);
    progress_step(&t->shown, &r, time_left(t));
}

// What is printed of a file as it stands must be safe on a terminal.
static const char *printable(const json_t *o, const char *key, char *to, size_t room) {
    utf8_printable(to, room, rundir_text(o, key));
    return to;
}

static void take_eval(tail *t, const json_t *o) {
    enum { FIGURES = 40 };
    static const char *const known[] = {"t",        "step",    "loss",    "best", "best_step",
                                        "possible", "windows", "samples", "ms",   "time"};
    const char *name[FIGURES], *key;
    double value[FIGURES];
    json_t *x;
    eval_record r = {.step = rundir_whole(o, "step", 0),
                     .of = json_object_get(o, "windows") ? "windows" : "samples",
                     .metric = name,
                     .value = value};
    r.samples = rundir_whole(o, r.of, 0), r.loss = rundir_real(o, "loss"), r.ms = rundir_real(o, "ms");
    r.best = rundir_real(o, "best"), r.best_step = rundir_whole(o, "best_step", 0);
    char best_of[32];
    r.best_of = printable(o, "best_of", best_of, sizeof best_of);
    if (json_object_get(o, "possible")) r.possible = rundir_real(o, "possible");
    json_object_foreach((json_t *)(uintptr_t)o, key, x) {
        bool other = json_is_number(x) && r.metrics < FIGURES &&
                     strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-.0123456789") == strlen(key);
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) other &= strcmp(key, known[i]) != 0;
        if (other) name[r.metrics] = key, value[r.metrics++] = json_number_value(x);
    }
    progress_eval(&t->shown, &r);
}

static void take_record(tail *t, const char *line, size_t n) {
    json_t *o = json_loadb(line, n, 0, NULL);
    const char *kind = rundir_text(o, "t");
    char hash[32];
    int64_t step = rundir_whole(o, "step", 0);
    if (strcmp(kind, "step") == 0) take_step(t, o);
    else if (strcmp(kind, "eval") == 0) take_eval(t, o);
    else if (strcmp(kind, "checkpoint") == 0)
        progress_checkpoint(&t->shown, &(checkpoint_record){.step = step,
                                                            .ms = rundir_real(o, "ms"),
                                                            .hash = printable(o, "hash", hash, sizeof hash)});
    else if (strcmp(kind, "sample") == 0)
        progress_sample(&t->shown, &(sample_record){step, rundir_text(o, "prompt"), rundir_text(o, "text")});
    json_decref(o);
}

static void take_event(tail *t, const char *line, size_t n) {
    json_t *o = json_loadb(line, n, 0, NULL);
    char kind[32], text[1024];
    printable(o, "kind", kind, sizeof kind);
    printable(o, "text", text, sizeof text);
    if (*kind)
        progress_event(&t->shown, &(incident_record){.step = rundir_whole(o, "step", 0), .kind = kind, .text = text});
    json_decref(o);
}

// --- following -------------------------------------------------------------------------------------------------------

static void start_at(tail *t, follower *f, const char *name, int lines) {
    char path[IO_PATH];
    follow_news news;
    f->fd = -1;
    if (io_path(path, "%s/%s", t->dir, name) != ERR_OK || follow_begin(f, path, t->text, ROOM) != ERR_OK) return;
    if (follow_look(f, &news) == ERR_OK && news != FOLLOW_GONE) follow_last(f, lines);
}

// Takes the lines that were added. A file that was cut is followed on from its end; of one that has other lines by now
// the last ones are shown. The log says so.
static void follow_on(tail *t, follower *f, void (*take)(tail *t, const char *line, size_t n)) {
    follow_news news;
    const char *line;
    size_t n;
    if (follow_look(f, &news) != ERR_OK) return;
    if (news == FOLLOW_SHORTER) follow_last(f, 0);
    if (news == FOLLOW_OTHER) follow_last(f, LINES);
    bool cut = news != FOLLOW_ON && news != FOLLOW_GONE;
    if (cut && f == &t->log) {
        t->step = 0;
        progress_say(&t->shown, "log     cut back: the run goes on from a checkpoint");
    }
    while (follow_next(f, &line, &n))
        if (line) take(t, line, n);
}

// The last step in the log, also where fewer lines were asked for than have come since.
static int64_t last_step(const char *dir) {
    enum { END = 1 << 16 };
    double changed;
    int64_t step = 0;
    char *text = rundir_end(dir, "log.jsonl", END, &changed), *at = text;
    json_t *o;
    while (text && (o = rundir_line(&at))) {
        if (strcmp(rundir_text(o, "t"), "step") == 0) step = rundir_whole(o, "step", 0);
        json_decref(o);
    }
    free(text);
    return step;
}

static void say_end(tail *t) {
    int64_t step = last_step(t->dir);
    if (t->shown.steps > 0 && step >= t->shown.steps)
        progress_say(&t->shown, "done    the run has all its %" PRId64 " steps", step);
    else {
        char command[IO_PATH + 64];
        command_on(command, sizeof command, "lockstep status", t->dir);
        progress_say(&t->shown, "over    the run does not go on after step %" PRId64 "; %s says why", step, command);
    }
}

static err_t follow_run(tail *t, int lines) {
    sigset_t ends, before;
    err_t rc = ERR_OK;
    start_at(t, &t->log, "log.jsonl", lines);
    start_at(t, &t->events, "events.jsonl", lines < EVENTS ? lines : EVENTS);
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, &before);
    for (bool more = true; more;) {
        more = rundir_locked(t->dir);  // before the look: what was written until its end is seen
        follow_on(t, &t->log, take_record);
        follow_on(t, &t->events, take_event);
        if (ferror(stdout)) rc = err_set(ERR_IO, "standard output: could not be written"), more = false;
        if (more && sigtimedwait(&ends, NULL, &(struct timespec){0, LOOK_MS * 1000000}) > 0) break;
        if (more) continue;
        if (rc == ERR_OK) say_end(t);
    }
    progress_close(&t->shown);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static err_t parse_lines(const char *text, int *lines) {
    char *end;
    long n = strtol(text, &end, 10);
    if (!*text || *end || n < 0 || n > LINES_MOST)
        return err_set(ERR_USAGE, "--lines %s: expected a number from 0 to %d", text, LINES_MOST);
    *lines = (int)n;
    return ERR_OK;
}

err_t verb_tail(int argc, char **argv) {
    const char *dir = NULL;
    int lines = LINES;
    for (int i = 0; i < argc; i++) {
        bool option = strcmp(argv[i], "--lines") == 0;
        if (option && i + 1 == argc) return err_set(ERR_USAGE, "--lines: expected a value after it");
        if (option) TRY(parse_lines(argv[++i], &lines));
        else if (dir || argv[i][0] == '-')
            return err_set(ERR_USAGE, "lockstep tail: expected one run's directory and --lines N, found %s", argv[i]);
        else dir = argv[i];
    }
    if (!dir) return err_set(ERR_USAGE, "lockstep tail: expected a run's directory, e.g. lockstep tail runs/default");
    TRY(rundir_check(dir));
    tail *t = calloc(1, sizeof *t);
    if (!t) return err_set(ERR_INTERNAL, "no memory to follow a run");
    t->dir = dir;
    progress_open(&t->shown, rundir_steps(dir), "tok");
    err_t rc = follow_run(t, lines);
    follow_close(&t->log);
    follow_close(&t->events);
    free(t);
    return rc;
}
