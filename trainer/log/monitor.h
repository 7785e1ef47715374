// trainer/log/monitor.h: the output of a run. The trainer gives the monitor each record (trainer/log/record.h), and the
// monitor gives it to each sink (trainer/log/sink.h): lines for a person, log.jsonl for programs, events.jsonl for what
// went wrong.
//
// A sink that fails does not disturb the others, nor the run. Nothing here takes heap memory but monitor_open.
#ifndef TRAINER_LOG_MONITOR_H
#define TRAINER_LOG_MONITOR_H

#include "base/err.h"
#include "trainer/log/record.h"
#include "trainer/log/sink.h"

#include <stdbool.h>
#include <stdint.h>

enum { MONITOR_SINKS = 16 };

typedef struct monitor_sink {
    const sink *to;
    void *self;
    bool failing;  // the last record that it wanted is lost
} monitor_sink;

// All zeros: nothing is open, and all records are lost.
typedef struct monitor {
    bool quiet;  // no lines for people
    int count;
    monitor_sink sinks[MONITOR_SINKS];  // that are open, in the order of their list
} monitor;

// Opens the sinks that the settings ask for. If one can't be opened, those before it are open, so that the reason can
// be logged; call monitor_close in any case.
err_t monitor_open(monitor *m, const log_setup *run);
void monitor_close(monitor *m);

// The same with other sinks than SINKS: a list that ends with NULL.
err_t monitor_open_list(monitor *m, const log_setup *run, const sink *const *list);

// Gives r to each sink that wants it, in order. If one fails, that is an event, the first time in a row; if the event
// itself can't be written, a line for people. err_last() is afterwards what it was before.
void monitor_log(monitor *m, const record *r);

// An event: events.jsonl and a line for people. kind is a word: "resume", "checkpoint_failed", "damaged", "stop" ...
void monitor_event(monitor *m, const char *kind, int64_t step, const char *text);

// One line for people, of at most 4 KB.
void monitor_say(monitor *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Syncs to disk what was logged so far. A failure is an event.
void monitor_sync(monitor *m);

// Bytes of log.jsonl, all of whole records, which a checkpoint stores; 0 where there is no such log.
int64_t monitor_log_bytes(const monitor *m);

#endif
