// trainer/log/sink.h: where records go. A sink is one file with a table of functions, and a word in SINKS.
//
//   trainer -> monitor_log(record) -> terminal    take[] has a function for each kind of record that the sink wants,
//                                  -> events      and NULL for the others. So a sink has no switch and no default, a
//                                  -> jsonl       new kind of record changes no sink that doesn't want it, and the
//                                                 monitor knows which sink lost something of its own.
//
// A sink never calls the monitor. What fails is returned: the monitor makes an event of it, and the other sinks get the
// record all the same.
#ifndef TRAINER_LOG_SINK_H
#define TRAINER_LOG_SINK_H

#include "base/err.h"
#include "trainer/config/config.h"
#include "trainer/log/board.h"
#include "trainer/log/record.h"

#include <stddef.h>

// What a sink may know of its run beside the records.
typedef struct log_setup {
    const char *dir;  // DIR/NAME, which exists
    const config *c;
    int64_t log_bytes;              // length of log.jsonl that the run continues, 0: a new one
    const char *unit, *short_unit;  // what is counted of the samples: "token", "tok"; NULL: "sample", "samples"
    bool quiet;                     // no lines for people
    board *board;                   // what the node's other processes read; NULL: there is none
} log_setup;

// Every function may be NULL, but for those of the kinds that it wants.
typedef struct sink {
    const char *name;  // in messages: "log.jsonl"
    // of its state, which every function gets as `self`: allocated, zeroed, before open
    size_t bytes;
    bool people;                      // is for people: gets nothing while the monitor is quiet
    bool every_step;                  // wants the steps too that are not `logged`
    bool (*wanted)(const config *c);  // do the settings ask for it? NULL: always

    // May allocate; nothing else here may, because no heap memory is taken in steady steps. What `run` points to may be
    // gone after the call, except the units. A failure ends the run.
    err_t (*open)(void *self, const log_setup *run);
    void (*close)(void *self);  // also after an open that failed

    // ERR_OK: written. Otherwise the sink has lost this record, left nothing half-written, and goes on with the next.
    err_t (*take[RECORD_KINDS])(void *self, const record *r);

    err_t (*sync)(void *self);            // to disk with what was taken
    int64_t (*length)(const void *self);  // bytes that a checkpoint is to remember, and log_setup will give back
} sink;

// In the order in which they are opened and get each record. events.jsonl is open when another sink can't be. What is
// in log.jsonl is in TensorBoard's files, whenever the process is killed.
#define SINKS(X) X(terminal) X(events) X(tensorboard) X(jsonl) X(board)

#define SINK_DECLARATION(name) extern const sink sink_##name;
SINKS(SINK_DECLARATION)
#undef SINK_DECLARATION

#endif
