// trainer/watch/facts.c: see trainer/watch/facts.h.
#include "trainer/watch/facts.h"

#include "trainer/checkpoint/directory.h"
#include "trainer/watch/alarms.h"
#include "trainer/watch/command.h"
#include "trainer/watch/rundir.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

enum { END_MOST = 1 << 18, TIMES = 1024, GAPS = 64 };  // bytes of the logs' ends; records whose times count
static const double DAY_S = 86400, TREND_S = 600;      // TREND: a disk's rate says nothing before

static bool is(const char *a, const char *b) { return strcmp(a, b) == 0; }

static void copy(char *to, size_t room, const char *from) { snprintf(to, room, "%s", from); }

const char *facts_age(char dst[FACTS_AGE], double s) {
    double n = floor(s + 0.5);
    if (!(n >= 0 && n < 1e9)) copy(dst, FACTS_AGE, "?");
    else if (n < 60) snprintf(dst, FACTS_AGE, "%.0f s", n);
    else if (n < 3600) snprintf(dst, FACTS_AGE, "%.0f m %.0f s", floor(n / 60), fmod(n, 60));
    else if (n < DAY_S) snprintf(dst, FACTS_AGE, "%.0f h %.0f m", floor(n / 3600), floor(fmod(n, 3600) / 60));
    else snprintf(dst, FACTS_AGE, "%.0f d %.0f h", floor(n / DAY_S), floor(fmod(n, DAY_S) / 3600));
    return dst;
}

// --- log.jsonl -------------------------------------------------------------------------------------------------------

typedef struct log_times {
    double ms[TIMES], gap[GAPS];
    int64_t records, gaps;
    double at;  // of the last record, seconds since 1970; NaN: not known
} log_times;

static void add_step(facts *f, log_times *t, const json_t *o) {
    double ms = rundir_real(o, "ms"), at = rundir_real(o, "time");
    int64_t step = rundir_whole(o, "step", 0);
    double gap = at - t->at;
    if (isnan(gap)) gap = 1e-3 * ms * (double)(step - f->step);
    if (t->records > 0 && gap > 0) t->gap[t->gaps++ % GAPS] = gap;
    if (ms >= 0) t->ms[t->records++ % TIMES] = ms;
    t->at = at;
    f->step = step;
    f->loss = rundir_real(o, "loss");
    if (!isnan(f->loss) && !json_is_true(json_object_get(o, "skipped"))) f->good_step = step;
    const char *unit = json_object_get(o, "tokens") ? "tokens" : "samples";
    f->rate = rundir_real(o, *unit == 't' ? "tokens_per_s" : "samples_per_s");
    copy(f->unit, sizeof f->unit, unit);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void sum_up(facts *f, log_times *t, double changed) {
    int n = t->records < TIMES ? (int)t->records : TIMES, gaps = t->gaps < GAPS ? (int)t->gaps : GAPS;
    f->step_age = f->now - (isnan(t->at) ? changed : t->at);
    f->gap = 0;
    for (int i = 0; i < gaps; i++)
        if (t->gap[i] > f->gap) f->gap = t->gap[i];
    if (n == 0) return;
    qsort(t->ms, (size_t)n, sizeof *t->ms, by_size);
    f->p50 = 1e-3 * t->ms[(n - 1) / 2];
    f->p99 = 1e-3 * t->ms[(99 * n + 99) / 100 - 1];
}

static void read_log(facts *f) {
    double changed = NAN;
    char *text = rundir_end(f->dir, "log.jsonl", END_MOST, &changed), *at = text;
    log_times *t = calloc(1, sizeof *t);
    json_t *o;
    if (t) t->at = NAN;
    while (text && t && (o = rundir_line(&at))) {
        const char *kind = rundir_text(o, "t");
        f->began = true;
        if (is(kind, "step")) add_step(f, t, o);
        if (is(kind, "checkpoint") && rundir_whole(o, "step", -1) == f->checkpoint)
            copy(f->hash, sizeof f->hash, rundir_text(o, "hash"));
        json_decref(o);
    }
    if (text && t) sum_up(f, t, changed);
    free(t);
    free(text);
}

// --- events.jsonl ----------------------------------------------------------------------------------------------------

static void add_event(facts *f, const json_t *o) {
    fact_event e = {.step = rundir_whole(o, "step", 0), .age = f->now - rundir_when(rundir_text(o, "at"))};
    copy(e.kind, sizeof e.kind, rundir_text(o, "kind"));
    copy(e.text, sizeof e.text, rundir_text(o, "text"));
    memmove(&f->event[1], &f->event[0], (FACTS_EVENTS - 1) * sizeof *f->event);
    f->event[0] = e;
    if (f->events < FACTS_EVENTS) f->events++;
    bool back = is(e.kind, "resume") || is(e.kind, "healed") || is(e.kind, "back") ||
                is(e.kind, "rollback");  // to an earlier step
    if (is(e.kind, "healed") && e.age < DAY_S) f->heals++, f->heal_age = e.age;
    if (is(e.kind, "evicted") && e.age < DAY_S) f->evictions++, f->evicted = e;
    if (is(e.kind, "rollback") && e.age < DAY_S) f->rollbacks++, f->rolled = e;
    if (is(e.kind, "lie") && e.age < DAY_S) f->lies++, f->lie = e;
    if (is(e.kind, "liar") && e.age < DAY_S) f->lie = e;  // which of two it was
    if (is(e.kind, "resume") && e.age < DAY_S) f->restarts++;
    if (is(e.kind, "resume")) f->restart_age = e.age;
    if (is(e.kind, "resume") || is(e.kind, "stop") || is(e.kind, "gave_up") || is(e.kind, "failed") ||
        is(e.kind, "forked"))
        f->end = e;
    if (is(e.kind, "diverged")) f->diverged = e;
    if (is(e.kind, "ruined")) f->ruined = e;
    if (back) f->diverged.kind[0] = 0;
    if (back || is(e.kind, "mended")) f->ruined.kind[0] = 0;
    if (is(e.kind, "checkpoint_failed")) f->failed_save = e.step;
    f->began = true;
}

static void read_events(facts *f) {
    double changed;
    json_t *first = rundir_first(f->dir, "events.jsonl");
    const char *from = rundir_text(first, "text");
    if (is(rundir_text(first, "kind"), "forked"))
        copy(f->forked, sizeof f->forked, from + (strncmp(from, "from ", 5) == 0 ? 5 : 0));
    json_decref(first);
    char *text = rundir_end(f->dir, "events.jsonl", END_MOST, &changed), *at = text;
    json_t *o;
    while (text && (o = rundir_line(&at))) {
        add_event(f, o);
        json_decref(o);
    }
    free(text);
}

// --- the rest --------------------------------------------------------------------------------------------------------

static void read_checkpoints(facts *f) {
    char path[IO_PATH];
    struct stat st;
    int64_t *steps;
    int count;
    if (ckpt_steps(f->dir, KIND_FINAL, &steps, &count) == ERR_OK && count > 0) f->checkpoint = steps[0];
    free(steps);
    if (f->checkpoint < 0) return;
    f->began = true;
    if (ckpt_path(path, f->dir, KIND_FINAL, f->checkpoint) == ERR_OK && stat(path, &st) == 0)
        f->checkpoint_age = f->now - (double)st.st_mtim.tv_sec;
}

// Seconds by the file's own clock: the machine that looks may have another.
static void read_status(facts *f) {
    f->status = rundir_status(f->dir, &f->damaged);
    if (!f->status) return;
    double every = rundir_real(f->status, "every_s");
    f->began = true;
    f->status_age = f->now - rundir_real(f->status, "time");
    f->fresh = f->status_age >= -5 && f->status_age <= 10 + 2 * (every > 0 ? every : 1);
    int64_t steps = rundir_whole(f->status, "steps", 0);
    if (steps > 0) f->steps = steps;
}

// What the watcher has seen a moment ago is newer than the log, which has every tenth step or so. When it is gone it is
// still the last that is known, unless the log went on.
static void prefer_status(facts *f) {
    int64_t step = rundir_whole(f->status, "step", -1);
    double at = rundir_real(f->status, "step_time"), p50 = rundir_real(f->status, "p50_ms"),
           p99 = rundir_real(f->status, "p99_ms");
    if (step < 0 || f->status_age < -5 || (!f->fresh && step < f->step)) return;
    f->step = step;
    if (at > 0) f->step_age = f->now - at;
    if (p50 > 0) f->p50 = 1e-3 * p50;
    if (p99 > 0) f->p99 = 1e-3 * p99;
    double loss = rundir_real(f->status, "loss"), rate = rundir_real(f->status, "tokens_per_s");
    if (!isnan(loss)) f->loss = loss;
    if (!isnan(rate)) f->rate = rate;
    if (!*f->unit && *rundir_text(f->status, "unit"))
        snprintf(f->unit, sizeof f->unit, "%ss", rundir_text(f->status, "unit"));
    if (rundir_whole(f->status, "checkpoint_step", -1) == f->checkpoint && f->checkpoint > 0)
        copy(f->hash, sizeof f->hash, rundir_text(f->status, "checkpoint_hash"));
}

static void read_disk(facts *f) {
    struct statvfs v;
    if (statvfs(f->dir, &v) != 0) return;
    f->disk_free = (double)v.f_bavail * (double)v.f_frsize;
    f->disk_total = (double)v.f_blocks * (double)v.f_frsize;
    double per_s = rundir_real(json_object_get(f->status, "disk"), "free_per_s"),
           since = f->now - rundir_real(f->status, "began");
    if (f->fresh && per_s < 0 && since >= TREND_S) f->disk_left_s = f->disk_free / -per_s;
}

err_t facts_gather(facts *f, const char *dir, double now) {
    *f = (facts){.dir = dir,
                 .now = now,
                 .status_age = NAN,
                 .step_age = NAN,
                 .p50 = NAN,
                 .p99 = NAN,
                 .gap = NAN,
                 .loss = NAN,
                 .rate = NAN,
                 .checkpoint = -1,
                 .checkpoint_age = NAN,
                 .failed_save = -1,
                 .good_step = -1,
                 .restart_age = NAN,
                 .heal_age = NAN,
                 .disk_free = NAN,
                 .disk_total = NAN,
                 .disk_left_s = NAN,
                 .eta_s = NAN};
    TRY(rundir_check(dir));
    f->locked = rundir_locked(dir);
    f->steps = rundir_steps(dir);
    read_checkpoints(f);
    read_log(f);
    read_events(f);
    read_status(f);
    if (f->status) prefer_status(f);
    read_disk(f);
    if (f->checkpoint > f->step) f->step = f->checkpoint;
    if (f->steps > f->step) f->eta_s = f->p50 * (double)(f->steps - f->step);
    return ERR_OK;
}

void facts_release(facts *f) {
    json_decref(f->status);
    f->status = NULL;
}

// --- judgement -------------------------------------------------------------------------------------------------------

static run_life life_of(const facts *f) {
    const char *state = rundir_text(f->status, "state");
    if (f->locked) return LIFE_RUNS;
    if (!f->began) return LIFE_NEVER;
    if (is(state, "done") || (f->steps > 0 && f->step >= f->steps)) return LIFE_DONE;
    if (is(f->end.kind, "gave_up") || is(state, "diverged")) return LIFE_DIVERGED;
    if (is(state, "stopped") || is(f->end.kind, "stop") || is(f->end.kind, "forked")) return LIFE_STOPPED;
    if (is(state, "failed") || is(f->end.kind, "failed")) return LIFE_FAILED;
    return LIFE_DIED;
}

// What an alarm or an event says to do next stands after these words at its end.
static void split(const facts *f, verdict *v, const char *text) {
    static const char mark[] = ". Next: ";
    const char *next = strstr(text, mark);
    snprintf(v->why, sizeof v->why, "%.*s", next ? (int)(next - text) : (int)strlen(text), text);
    if (next) command_from(v->next, sizeof v->next, next + strlen(mark), f->dir);
}

static const json_t *rank_of(const facts *f, int64_t rank) {
    const json_t *ranks = json_object_get(f->status, "ranks");
    for (size_t i = 0; i < json_array_size(ranks); i++)
        if (rundir_whole(json_array_get(ranks, i), "rank", -1) == rank) return json_array_get(ranks, i);
    return NULL;
}

// The rank that has been at one operation for the longest time.
static const json_t *slowest(const facts *f) {
    const json_t *ranks = json_object_get(f->status, "ranks"), *found = NULL;
    for (size_t i = 0; i < json_array_size(ranks); i++) {
        const json_t *r = json_array_get(ranks, i);
        if (!found || rundir_real(r, "doing_s") > rundir_real(found, "doing_s")) found = r;
    }
    return found;
}

static void attention(verdict *v, const char *headline) {
    v->code = 1;
    copy(v->headline, sizeof v->headline, headline);
}

// Was there no good step in the log since the run said that it diverges? Its event knows the command to go on with.
static bool judge_divergence(const facts *f, verdict *v, const char *headline) {
    if (!*f->diverged.kind || f->good_step > f->diverged.step) return false;
    attention(v, headline);
    split(f, v, f->diverged.text);
    return true;
}

// Does its loss stay far above what it was? The event knows the command here, too.
static bool judge_ruin(const facts *f, verdict *v, const char *headline) {
    if (!*f->ruined.kind) return false;
    attention(v, headline);
    split(f, v, f->ruined.text);
    return true;
}

static bool judge_alarms(const facts *f, verdict *v) {
    static const char *const says[ALARM_KINDS] = {[ALARM_HANG] = "the run hangs",
                                                  [ALARM_DEAD] = "a rank is gone",
                                                  [ALARM_STOPPED] = "a rank's process is stopped",
                                                  [ALARM_READER] = "the loader is slow",
                                                  [ALARM_THROTTLED] = "a device is slowed down",
                                                  [ALARM_BAD_STEPS] = "the run diverges",
                                                  [ALARM_DISK] = "the disk is full, or will be soon"};
    const json_t *alarms = json_object_get(f->status, "alarms"), *first = json_array_get(alarms, 0);
    const char *kind = rundir_text(first, "kind");
    if (!f->fresh || !json_is_object(first)) return false;
    attention(v, "the watcher rings");
    for (int k = 0; k < ALARM_KINDS; k++)
        if (is(kind, alarm_event((alarm_kind)k, true))) attention(v, says[k]);
    split(f, v, rundir_text(first, "text"));
    v->suspect = rank_of(f, rundir_whole(first, "rank", -1));
    if (!v->suspect && is(kind, alarm_event(ALARM_HANG, true))) v->suspect = slowest(f);
    if (is(kind, alarm_event(ALARM_BAD_STEPS, true))) judge_divergence(f, v, says[ALARM_BAD_STEPS]);
    return true;
}

// Without the watcher's word: is the last step older than steps take?
static bool judge_age(const facts *f, verdict *v) {
    const char *state = rundir_text(f->status, "state");
    char age[FACTS_AGE], limit[FACTS_AGE];
    double most = 5 * f->p99 > 30 ? 5 * f->p99 : 30;
    if (f->fresh && !is(state, "training")) return false;
    if (f->fresh && rundir_whole(f->status, "step", 0) <= rundir_whole(f->status, "began_step", 0) && most < 300)
        most = 300;
    if (!f->fresh && most < 60) most = 60;
    if (!f->fresh && 3 * f->gap > most) most = 3 * f->gap;
    if (!(f->step_age > most)) return false;
    attention(v, "no step is finished");
    snprintf(v->why, sizeof v->why, "no step for %s; at most %s were expected", facts_age(age, f->step_age),
             facts_age(limit, most));
    if (f->fresh) v->suspect = slowest(f);
    return true;
}

static bool judge_rest(const facts *f, verdict *v) {
    double least = f->disk_total / 50 < 1e9 ? f->disk_total / 50 : 1e9;
    if (f->failed_save > f->checkpoint && f->failed_save >= 0) {
        attention(v, "the last checkpoint could not be written");
        snprintf(v->why, sizeof v->why, "step %" PRId64 " could not be saved: see events.jsonl", f->failed_save);
    } else if (f->disk_free < least) {
        attention(v, "the disk is full");
    } else {
        return false;
    }
    command_on(v->next, sizeof v->next, "make room: df -h", f->dir);
    return true;
}

static void judge_running(const facts *f, verdict *v) {
    const char *state = rundir_text(f->status, "state");
    copy(v->headline, sizeof v->headline, f->fresh && *state ? state : "running");
    command_on(v->next, sizeof v->next, "nothing; lockstep tail", f->dir);
    if (judge_alarms(f, v) || (!f->fresh && judge_divergence(f, v, "the run diverges")) || judge_age(f, v) ||
        judge_rest(f, v))
        return;
    judge_ruin(f, v, "the loss is far above what it was");
}

verdict facts_judge(const facts *f) {
    verdict v = {.life = life_of(f)};
    switch (v.life) {
    case LIFE_RUNS: judge_running(f, &v); break;
    case LIFE_NEVER:
        v.code = 2;
        copy(v.headline, sizeof v.headline, "has not begun");
        if (f->steps > 0) command_of(v.next, sizeof v.next, "", "", f->dir);
        else copy(v.next, sizeof v.next, "lockstep CONFIG.ini");
        break;
    case LIFE_DONE:
        copy(v.headline, sizeof v.headline, "has all its steps");
        command_of(v.next, sizeof v.next, "nothing; ", "eval ", f->dir);
        if (!judge_divergence(f, &v, "has all its steps, and has diverged"))
            judge_ruin(f, &v, "has all its steps, and its loss is far above what it was");
        break;
    case LIFE_DIVERGED:
        v.code = 2;
        copy(v.headline, sizeof v.headline, "stopped itself: it has diverged");
        split(f, &v, f->end.text);
        break;
    case LIFE_STOPPED:
        v.code = 1, copy(v.headline, sizeof v.headline,
                         is(f->end.kind, "forked") ? "forked, and not started yet" : "stopped on request");
        break;
    case LIFE_FAILED: v.code = 2, copy(v.headline, sizeof v.headline, "failed"); break;
    case LIFE_DIED:
        v.code = 2;
        copy(v.headline, sizeof v.headline, "died");
        copy(v.why, sizeof v.why, "it ended without a word: killed, out of memory, or the machine went down");
        break;
    }
    if ((v.life == LIFE_STOPPED && !is(f->end.kind, "forked")) || v.life == LIFE_FAILED)
        snprintf(v.why, sizeof v.why, "%s", f->end.text);
    if (v.life == LIFE_STOPPED && judge_ruin(f, &v, "stopped on request, and its loss is far above what it was"))
        return v;
    if (v.life >= LIFE_STOPPED && v.life != LIFE_DIVERGED)
        command_of(v.next, sizeof v.next, v.life == LIFE_FAILED ? "when that is mended: " : "", "", f->dir);
    return v;
}
