// trainer/watch/status.c: see trainer/watch/status.h. One line for each question, the verdict first, the next command
// last.
#include "trainer/watch/status.h"

#include "base/text.h"
#include "base/utf8.h"
#include "trainer/log/progress.h"
#include "trainer/watch/facts.h"
#include "trainer/watch/rundir.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

// --- lines -----------------------------------------------------------------------------------------------------------

enum { KEY = 10, LINE = 1024 };

typedef struct page {
    FILE *out;
    int lines;
    char made[LINE];  // the text that say() prints
    text next;
} page;

// An empty text, for say() to print.
static text *begin(page *p) {
    p->made[0] = 0;
    p->next = (text){.at = p->made, .room = sizeof p->made};
    return &p->next;
}

// A key, and text after it, which is wrapped between words, and cut after `most` lines.
static void put(page *p, const char *key, int most, const char *said) {
    char clean[LINE];
    const int wide = STATUS_COLUMNS - KEY;
    utf8_printable(clean, sizeof clean, said);
    for (char *c = clean; *c; c++)
        if (*c == '\n' || *c == '\t') *c = ' ';
    for (char *at = clean; *at && most > 0 && p->lines < STATUS_LINES; most--, p->lines++, key = "") {
        int n = (int)strlen(at), cut = n;
        bool ends = most == 1 || p->lines == STATUS_LINES - 1;
        if (n > wide) {
            for (cut = wide; cut > 0 && at[cut] != ' '; cut--) {}
            if (cut == 0) cut = wide;
            if (ends && cut > wide - 3) cut = wide - 3;
            while (cut > 1 && ((unsigned char)at[cut] & 0xC0) == 0x80) cut--;  // not inside a character
        }
        fprintf(p->out, "%-*s%.*s%s\n", KEY, key, cut, at, n > wide && ends ? "..." : "");
        at += cut;
        at += strspn(at, " ");
    }
}

static void say(page *p, const char *key, int most) { put(p, key, most, p->made); }

static void put_verdict(page *p, const facts *f, const verdict *v) {
    static const char *const word[] = {"FINE", "ATTENTION", "DEAD"};
    char age[FACTS_AGE], p99[FACTS_AGE];
    text *t = begin(p);
    text_put(t, "%s: %s", word[v->code], v->headline);
    if (v->life != LIFE_NEVER) {
        text_put(t, ": step %" PRId64, f->step);
        if (f->steps > 0) text_put(t, "/%" PRId64, f->steps);
        if (!isnan(f->step_age)) text_put(t, ", %s ago", facts_age(age, f->step_age));
    }
    if (v->life == LIFE_RUNS && f->p99 > 0 && f->p99 < 1) text_put(t, " (p99 %.3g ms)", 1e3 * f->p99);
    else if (v->life == LIFE_RUNS && f->p99 > 0 && f->p99 < 10) text_put(t, " (p99 %.3g s)", f->p99);
    else if (v->life == LIFE_RUNS && f->p99 >= 10) text_put(t, " (p99 %s)", facts_age(p99, f->p99));
    say(p, "run", 2);
}

static void put_note(page *p, const facts *f, const verdict *v) {
    char age[FACTS_AGE];
    text *t = begin(p);
    if (f->damaged) text_put(t, "status.json can't be read: what follows is from the other files");
    else if (f->status && f->status_age < -5)
        text_put(t, "status.json is %s in the future: clocks differ; what follows is from the other files",
                 facts_age(age, -f->status_age));
    else if (f->status && !f->fresh && v->life == LIFE_RUNS)
        text_put(t, "the watcher is gone: status.json is %s old; what follows is from the other files",
                 facts_age(age, f->status_age));
    else if (!f->status && v->life == LIFE_RUNS)
        text_put(t, "there is no watcher, so nobody looks at ranks, devices and disk");
    say(p, "note", 2);
}

static void put_suspect(page *p, const verdict *v) {
    const json_t *r = v->suspect;
    if (!r) return;
    text *t = begin(p);
    const char *device = rundir_text(r, "device"), *doing = rundir_text(r, "doing"), *role = rundir_text(r, "role");
    text_put(t, "rank %" PRId64 " (%s%s%s)%s%s", rundir_whole(r, "rank", -1), rundir_text(r, "host"), *role ? ", " : "",
             role, *device ? ", GPU " : ", CPU", device);
    text_put(t, ", pid %" PRId64 ": phase %s", rundir_whole(r, "pid", 0), rundir_text(r, "phase"));
    if (*doing) text_put(t, ", %s", doing);
    if (*doing && rundir_whole(r, "number", -1) >= 0) text_put(t, " %" PRId64, rundir_whole(r, "number", -1));
    text_put(t, " of step %" PRId64 " for %.0f s", rundir_whole(r, "step", 0), rundir_real(r, "doing_s"));
    say(p, "waits for", 2);
}

// The watts of all ranks here, and of the one that is furthest below its own median.
static void put_power(page *p, const facts *f) {
    const json_t *ranks = json_object_get(f->status, "ranks"), *least = NULL;
    double watts = 0, median = 0, low = INFINITY;
    int known = 0;
    for (size_t i = 0; f->fresh && i < json_array_size(ranks); i++) {
        const json_t *r = json_array_get(ranks, i);
        double w = rundir_real(r, "watts"), m = rundir_real(r, "median_watts");
        if (isnan(w)) continue;
        known++, watts += w, median += m;
        if (m > 0 && w / m < low) low = w / m, least = r;
    }
    if (known == 0) return;
    text *t = begin(p);
    text_put(t, "%.0f W of %d device%s", watts, known, known == 1 ? "" : "s");
    if (median > 0) text_put(t, ", median %.0f W", median);
    if (known > 1 && least)
        text_put(t, "; rank %" PRId64 ": %.0f W, median %.0f W", rundir_whole(least, "rank", -1),
                 rundir_real(least, "watts"), rundir_real(least, "median_watts"));
    say(p, "power", 1);
}

// Of the ranks here, where they have different numbers of them.
static void put_lanes(page *p, const facts *f) {
    const json_t *ranks = json_object_get(f->status, "ranks");
    int64_t first = rundir_whole(json_array_get(ranks, 0), "lanes", -1);
    bool differ = false;
    for (size_t i = 1; f->fresh && i < json_array_size(ranks); i++)
        differ |= rundir_whole(json_array_get(ranks, i), "lanes", -1) != first;
    if (!differ) return;
    text *t = begin(p);
    for (size_t i = 0; i < json_array_size(ranks); i++) {
        const json_t *r = json_array_get(ranks, i);
        const char *role = json_string_value(json_object_get(r, "role"));
        text_put(t, "%s%" PRId64 "%s", i ? " " : "", rundir_whole(r, "lanes", -1),
                 role && strstr(role, "server") ? " (server)" : "");
    }
    text_put(t, " of the ranks here");
    say(p, "lanes", 1);
}

static void put_speed(page *p, const facts *f, const verdict *v) {
    char speed[48], age[FACTS_AGE], when[32];
    if (isnan(f->loss) && isnan(f->rate)) return;
    text *t = begin(p);
    if (!isnan(f->loss)) text_put(t, "loss %.4f", f->loss);
    if (f->rate > 0) {
        progress_rate(speed, *f->unit ? f->unit : "tokens", f->rate);
        text_put(t, ", %s", speed);
    }
    if (v->life == LIFE_RUNS && f->eta_s >= 0 && f->eta_s < 1e9) {
        time_t end = (time_t)(f->now + f->eta_s);
        struct tm utc;
        strftime(when, sizeof when, "%Y-%m-%d %H:%MZ", gmtime_r(&end, &utc));
        text_put(t, ", done in %s (%s)", facts_age(age, f->eta_s), when);
    }
    put(p, "speed", 1, *t->at == ',' ? t->at + 2 : t->at);
}

static void put_saved(page *p, const facts *f, const verdict *v) {
    char age[FACTS_AGE];
    int64_t risk = f->step - (f->checkpoint > 0 ? f->checkpoint : 0);
    if (v->life == LIFE_NEVER) return;
    text *t = begin(p);
    if (f->checkpoint < 0) text_put(t, "nothing yet");
    else text_put(t, "step %" PRId64 ", %s ago", f->checkpoint, facts_age(age, f->checkpoint_age));
    if (risk > 0)
        text_put(t, "; %s: %" PRId64 " step%s", v->life == LIFE_RUNS ? "at risk" : "lost", risk, risk == 1 ? "" : "s");
    if (risk > 0 && f->p50 > 0) text_put(t, " (%s)", facts_age(age, f->p50 * (double)risk));
    if (f->checkpoint >= 0 && *f->hash) text_put(t, "; hash %s", f->hash);
    say(p, "saved", 1);
}

static void put_restarts(page *p, const facts *f) {
    char age[FACTS_AGE];
    if (f->restarts == 0) return;
    text_put(begin(p), "%d in 24 h, the last %s ago", f->restarts, facts_age(age, f->restart_age));
    say(p, "restarts", 1);
}

static void put_heals(page *p, const facts *f) {
    char age[FACTS_AGE];
    if (f->heals == 0) return;
    text_put(begin(p), "%d in 24 h, the last %s ago", f->heals, facts_age(age, f->heal_age));
    say(p, "healed", 1);
}

static void put_evicted(page *p, const facts *f) {
    char age[FACTS_AGE];
    if (f->evictions == 0) return;
    text_put(begin(p), "%d in 24 h, the last %s ago: %s", f->evictions, facts_age(age, f->evicted.age),
             f->evicted.text);
    say(p, "put out", 2);
}

static void put_rollbacks(page *p, const facts *f) {
    char age[FACTS_AGE];
    if (f->rollbacks == 0) return;
    text_put(begin(p), "%d in 24 h, the last %s ago: %s", f->rollbacks, facts_age(age, f->rolled.age), f->rolled.text);
    say(p, "went back", 2);
}

static void put_lies(page *p, const facts *f) {
    char age[FACTS_AGE];
    if (f->lies == 0) return;
    text_put(begin(p), "%d in 24 h, the last %s ago: %s", f->lies, facts_age(age, f->lie.age), f->lie.text);
    say(p, "lies", 2);
}

static void put_disk(page *p, const facts *f) {
    if (isnan(f->disk_free)) return;
    text *t = begin(p);
    text_size(t, f->disk_free);
    text_put(t, " free of ");
    text_size(t, f->disk_total);
    if (f->disk_left_s < 1e7) text_put(t, "; full in %.1f h at this rate", f->disk_left_s / 3600);
    say(p, "disk", 1);
}

static void put_events(page *p, const facts *f, int most) {
    char age[FACTS_AGE];
    for (int i = 0; i < f->events && i < most; i++) {
        text_put(begin(p), "%s ago, step %" PRId64 ", %s: %s", facts_age(age, f->event[i].age), f->event[i].step,
                 f->event[i].kind, f->event[i].text);
        say(p, i ? "" : "events", 1);
    }
}

// A command is copied as a whole: it is not wrapped, since a terminal wraps lines in a way that can be copied, and ours
// would break it.
static void put_command(FILE *out, const char *text) {
    char clean[FACTS_TEXT];
    utf8_printable(clean, sizeof clean, text);
    if (!*clean) return;
    for (char *c = clean; *c; c++)
        if (*c == '\n' || *c == '\t') *c = ' ';
    fprintf(out, "%-*s%s\n", KEY, "next", clean);
}

// The next command has a place of its own: two lines that nothing else may take.
static void write_text(const facts *f, const verdict *v, FILE *out) {
    enum { FOR_NEXT = 2 };
    page p = {.out = out, .lines = FOR_NEXT};
    put_verdict(&p, f, v);
    put(&p, "dir", 1, f->dir);
    put(&p, "from", 1, f->forked);
    put_note(&p, f, v);
    put(&p, "why", 3, v->why);
    put_suspect(&p, v);
    put_speed(&p, f, v);
    put_power(&p, f);
    put_lanes(&p, f);
    put_saved(&p, f, v);
    put_restarts(&p, f);
    put_heals(&p, f);
    put_evicted(&p, f);
    put_rollbacks(&p, f);
    put_lies(&p, f);
    put_disk(&p, f);
    put_events(&p, f, FACTS_EVENTS);
    put_command(out, v->next);
}

// --- JSON ------------------------------------------------------------------------------------------------------------

// Text of any bytes: jansson takes UTF-8 only.
static json_t *text_value(const char *from) {
    char clean[LINE];
    utf8_printable(clean, sizeof clean, from);
    return json_string(clean);
}

static json_t *real_value(double x) { return isfinite(x) ? json_real(x) : json_null(); }
static json_t *whole_value(int64_t x, bool known) { return known ? json_integer(x) : json_null(); }

static json_t *events_value(const facts *f) {
    json_t *list = json_array();
    for (int i = 0; i < f->events; i++) {
        json_t *e = json_object();
        json_object_set_new(e, "kind", text_value(f->event[i].kind));
        json_object_set_new(e, "step", json_integer(f->event[i].step));
        json_object_set_new(e, "age_s", real_value(f->event[i].age));
        json_object_set_new(e, "text", text_value(f->event[i].text));
        json_array_append_new(list, e);
    }
    return list;
}

static void set_steps(json_t *o, const facts *f) {
    int64_t risk = f->step - (f->checkpoint > 0 ? f->checkpoint : 0);
    json_object_set_new(o, "step", json_integer(f->step));
    json_object_set_new(o, "steps", whole_value(f->steps, f->steps > 0));
    json_object_set_new(o, "step_age_s", real_value(f->step_age));
    json_object_set_new(o, "p50_s", real_value(f->p50));
    json_object_set_new(o, "p99_s", real_value(f->p99));
    json_object_set_new(o, "loss", real_value(f->loss));
    json_object_set_new(o, "rate", real_value(f->rate));
    json_object_set_new(o, "unit", text_value(f->unit));
    json_object_set_new(o, "eta_s", real_value(f->eta_s));
    json_object_set_new(o, "checkpoint_step", whole_value(f->checkpoint, f->checkpoint >= 0));
    json_object_set_new(o, "checkpoint_age_s", real_value(f->checkpoint_age));
    json_object_set_new(o, "checkpoint_hash", *f->hash ? text_value(f->hash) : json_null());
    json_object_set_new(o, "steps_at_risk", json_integer(risk > 0 ? risk : 0));
}

static void write_json(const facts *f, const verdict *v, FILE *out) {
    static const char *const word[] = {"fine", "attention", "dead"};
    static const char *const life[] = {"never", "runs", "done", "stopped", "diverged", "failed", "died"};
    const json_t *alarms = json_object_get(f->status, "alarms");
    json_t *o = json_object();
    json_object_set_new(o, "t", json_string("verdict"));
    json_object_set_new(o, "verdict", json_string(word[v->code]));
    json_object_set_new(o, "code", json_integer(v->code));
    json_object_set_new(o, "life", json_string(life[v->life]));
    json_object_set_new(o, "says", text_value(v->headline));
    json_object_set_new(o, "why", text_value(v->why));
    json_object_set_new(o, "next", text_value(v->next));
    json_object_set_new(o, "dir", text_value(f->dir));
    json_object_set_new(o, "status_age_s", real_value(f->status_age));
    json_object_set_new(o, "status_used", json_boolean(f->fresh));
    set_steps(o, f);
    json_object_set_new(o, "restarts_24h", json_integer(f->restarts));
    json_object_set_new(o, "heals_24h", json_integer(f->heals));
    json_object_set_new(o, "evicted_24h", json_integer(f->evictions));
    json_object_set_new(o, "rollbacks_24h", json_integer(f->rollbacks));
    json_object_set_new(o, "lies_24h", json_integer(f->lies));
    json_object_set_new(o, "disk_free", real_value(f->disk_free));
    json_object_set_new(o, "disk_full_in_s", real_value(f->disk_left_s));
    json_object_set_new(o, "waits_for", v->suspect ? json_deep_copy(v->suspect) : json_null());
    json_object_set_new(o, "alarms", f->fresh && json_is_array(alarms) ? json_deep_copy(alarms) : json_array());
    json_object_set_new(o, "events", events_value(f));
    json_dumpf(o, out, JSON_COMPACT);
    fputc('\n', out);
    json_decref(o);
}

// --- the verb --------------------------------------------------------------------------------------------------------

err_t status_write(const char *dir, double now, bool json, FILE *out, int *code) {
    facts f;
    err_t rc = facts_gather(&f, dir, now);
    if (rc == ERR_OK) {
        verdict v = facts_judge(&f);
        (json ? write_json : write_text)(&f, &v, out);
        *code = v.code;
    }
    facts_release(&f);
    return rc;
}

err_t verb_status(int argc, char **argv, FILE *out, int *code) {
    const char *dir = NULL;
    bool json = false;
    struct timespec now;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) json = true;
        else if (dir || argv[i][0] == '-')
            return err_set(ERR_USAGE, "lockstep status: expected one run's directory and --json, found %s", argv[i]);
        else dir = argv[i];
    }
    if (!dir)
        return err_set(ERR_USAGE, "lockstep status: expected a run's directory, e.g. lockstep status runs/default");
    clock_gettime(CLOCK_REALTIME, &now);
    return status_write(dir, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec, json, out, code);
}
