// trainer/watch/health.c: see health.h. A pure function of the state.
#include "trainer/watch/health.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

// "rank 5 (10.0.0.2): reduce bucket 3, for 31 s" into dst.
static void describe(const watch_rank *r, char *dst, size_t room) {
    char name[COMM_NAME], number[32] = "";
    if (r->number >= 0) snprintf(number, sizeof number, " %" PRId64, r->number);
    snprintf(dst, room, "%s: %s%s, for %.0f s", comm_place_text(&r->place, name),
             r->what ? r->what : board_phase_name(r->phase), r->what ? number : "", r->what ? r->what_s : r->phase_s);
}

// The rank that has been longest at what it does, of those in this phase; NULL: none is.
static const watch_rank *slowest(const watch_state *s, board_phase phase) {
    const watch_rank *found = NULL;
    for (const watch_rank *r = s->rank; r < s->rank + s->locals; r++)
        if (r->phase == phase && (!found || r->what_s > found->what_s)) found = r;
    return found;
}

static const watch_alarm *first_alarm(const watch_state *s) {
    for (int i = 0; i < s->alarms; i++)
        if (s->alarm[i].kind == ALARM_HANG || s->alarm[i].kind == ALARM_STOPPED || s->alarm[i].kind == ALARM_DEAD)
            return &s->alarm[i];
    return NULL;
}

// A rank whose process can't go on: stopped by a signal, or ended; NULL: none. *how: a constant text.
static const watch_rank *halted(const watch_state *s, const char **how) {
    for (const watch_rank *r = s->rank; r < s->rank + s->locals; r++) {
        *how = r->process == 'T'                        ? "is stopped by a signal"
               : r->process == 'Z' || r->process == 'X' ? "has ended"
                                                        : NULL;
        if (*how) return r;
    }
    return NULL;
}

// For how long steps have been expected and none was finished. A rank that has just evaluated began to step again
// since: the shorter time counts. A node without rank 0 hears of no finished steps: there each operation must come to
// its end.
static double waited(const watch_state *s) {
    // a clock may be set back
    double shortest = s->has_news && s->news.step_time > 0 ? fmax(0, s->time - s->news.step_time) : INFINITY;
    for (const watch_rank *r = s->rank; r < s->rank + s->locals; r++) {
        double own = !s->has_news && r->what && r->what_s < r->phase_s ? r->what_s : r->phase_s;
        if (r->phase == PHASE_STEPPING && own < shortest) shortest = own;
    }
    return shortest;
}

// A node that hears of no steps does not know how long one takes, nor when the first was over.
static double allowed(const watch_state *s) {
    double p99 = (double)s->news.p99_ns * 1e-9;
    bool first = s->has_news ? s->news.step <= s->news.began_step : s->time - s->began < HEALTH_START_S;
    if (first) return HEALTH_START_S;
    return s->has_news && p99 > 0 ? fmax(HEALTH_LEAST_S, HEALTH_P99S * p99) : 10 * HEALTH_LEAST_S;
}

static bool starting(const watch_state *s, const watch_rank *r, char *text, size_t room) {
    char who[COMM_NAME + 128] = "no rank is there";
    double since = s->time - s->began;
    if (r) describe(r, who, sizeof who);
    snprintf(text, room, "%s for %.0f s (%s)", since < HEALTH_START_S ? "ok: starting" : "starting", since, who);
    return since < HEALTH_START_S;
}

static bool stepping(const watch_state *s, const watch_rank *r, char *text, size_t room) {
    char who[COMM_NAME + 128], of[64] = "";
    double age = waited(s), most = allowed(s);
    describe(r, who, sizeof who);
    if (s->has_news) snprintf(of, sizeof of, "step %" PRId64 " of %" PRId64 ", ", s->news.step, s->news.steps);
    else snprintf(of, sizeof of, "step %" PRId64 ", ", s->step);
    if (age <= most)
        snprintf(text, room, "ok: %s%s %.1f s ago", of, s->has_news ? "the last" : "an operation began", age);
    else snprintf(text, room, "%sno step for %.0f s, expected one within %.0f s (%s)", of, age, most, who);
    return age <= most;
}

bool health(const watch_state *s, char *text, size_t room) {
    static const board_phase others[] = {PHASE_EVALUATING, PHASE_SAMPLING, PHASE_SAVING};
    const watch_alarm *a = first_alarm(s);
    const watch_rank *r;
    const char *how;
    char who[COMM_NAME + 128];
    if (s->ended) {
        snprintf(text, room, "the run has ended");
        return false;
    }
    if (a) {
        snprintf(text, room, "%s", a->text);
        return false;
    }
    if ((r = halted(s, &how))) {
        snprintf(text, room, "%s %s (process %d)", comm_place_text(&r->place, who), how, r->pid);
        return false;
    }
    if (s->bad_limit > 0 && s->bad_steps >= s->bad_limit) {
        snprintf(text, room,
                 "the run diverges: the loss or the gradient of the last %" PRId64 " steps, up to step %" PRId64
                 ", was not finite",
                 s->bad_steps, s->step);
        return false;
    }
    if (!s->ready || (r = slowest(s, PHASE_STARTING))) return starting(s, slowest(s, PHASE_STARTING), text, room);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if ((r = slowest(s, others[i]))) {
            describe(r, who, sizeof who);
            snprintf(text, room, "ok: no step is expected now (%s)", who);
            return true;
        }
    if ((r = slowest(s, PHASE_STEPPING))) return stepping(s, r, text, room);
    snprintf(text, room, "no rank of this node runs");
    return false;
}
