// trainer/log/monitor.c: see trainer/log/monitor.h.
#include "trainer/log/monitor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

// --- records ---------------------------------------------------------------------------------------------------------

// In a row of failures, mostly of a full disk, the first one is an event. An event that is lost can't be reported by
// another one.
static void report_failure(monitor *m, const monitor_sink *s, const record *lost) {
    char why[ERR_TEXT + 32];
    snprintf(why, sizeof why, "record not written: %s", err_last()->text);
    if (lost->kind == RECORD_EVENT) monitor_say(m, "%s: %s", s->to->name, err_last()->text);
    else if (lost->kind != RECORD_LINE && !s->failing) monitor_event(m, "log_failed", 0, why);
}

static bool wants(const monitor *m, const sink *s, const record *r) {
    if (!s->take[r->kind] || (s->people && m->quiet)) return false;
    return r->kind != RECORD_STEP || r->step.logged || s->every_step;
}

void monitor_log(monitor *m, const record *r) {
    const err_record callers = *err_last();  // r may point into it
    for (int i = 0; i < m->count; i++) {
        monitor_sink *s = &m->sinks[i];
        if (!wants(m, s->to, r)) continue;
        bool written = s->to->take[r->kind](s->self, r) == ERR_OK;
        if (!written) report_failure(m, s, r);
        if (!written) err_restore(&callers);
        s->failing = !written;
    }
}

void monitor_event(monitor *m, const char *kind, int64_t step, const char *text) {
    monitor_log(m, &(record){RECORD_EVENT, .event = {.step = step, .kind = kind, .text = text}});
}

void monitor_say(monitor *m, const char *fmt, ...) {
    char line[4096];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    monitor_log(m, &(record){RECORD_LINE, .line = line});
}

void monitor_sync(monitor *m) {
    char why[ERR_TEXT];
    for (int i = 0; i < m->count; i++) {
        monitor_sink *s = &m->sinks[i];
        if (!s->to->sync || s->to->sync(s->self) == ERR_OK || s->failing) continue;
        snprintf(why, sizeof why, "%s could not be brought to disk", s->to->name);
        monitor_event(m, "log_failed", 0, why);
    }
}

// --- the list --------------------------------------------------------------------------------------------------------

static const sink *const all[] = {
#define SINK_ADDRESS(name) &sink_##name,
    SINKS(SINK_ADDRESS) NULL};
_Static_assert(sizeof all / sizeof *all <= MONITOR_SINKS + 1, "MONITOR_SINKS");

int64_t monitor_log_bytes(const monitor *m) {
    for (int i = 0; i < m->count; i++)
        if (m->sinks[i].to->length) return m->sinks[i].to->length(m->sinks[i].self);
    return 0;
}

static void close_sink(monitor_sink *s) {
    if (s->to->close) s->to->close(s->self);
    free(s->self);
}

static err_t open_sink(monitor *m, const sink *to, const log_setup *run) {
    monitor_sink s = {.to = to, .self = calloc(1, to->bytes ? to->bytes : 1)};
    if (m->count == MONITOR_SINKS || !s.self) {
        free(s.self);
        return err_set(ERR_INTERNAL, "no room for %s", to->name);
    }
    err_t rc = to->open ? to->open(s.self, run) : ERR_OK;
    if (rc == ERR_OK) m->sinks[m->count++] = s;
    else close_sink(&s);
    return rc;
}

err_t monitor_open_list(monitor *m, const log_setup *run, const sink *const *list) {
    log_setup known = *run;
    *m = (monitor){.quiet = run->quiet};
    if (!known.unit) known.unit = "sample", known.short_unit = "samples";
    for (int i = 0; list[i]; i++)
        if (!list[i]->wanted || list[i]->wanted(run->c)) TRY(open_sink(m, list[i], &known));
    for (int i = 0; i < m->count; i++)  // the end of the log was lost with the machine's cache
        if (m->sinks[i].to->length && m->sinks[i].to->length(m->sinks[i].self) < run->log_bytes)
            monitor_event(m, "log_short", 0,
                          "log.jsonl is shorter than its checkpoint remembers; its last records "
                          "were lost in a crash of the machine");
    return ERR_OK;
}

err_t monitor_open(monitor *m, const log_setup *run) { return monitor_open_list(m, run, all); }

void monitor_close(monitor *m) {
    for (int i = 0; i < m->count; i++) close_sink(&m->sinks[i]);
    m->count = 0;
}
