// trainer/log/monitor.h: the output of a run: lines for a person, log.jsonl for programs, events.jsonl for what went
// wrong.
//
// log.jsonl reads as if the run had never been interrupted: a resumed run truncates it to the length that its
// checkpoint stores. Interruptions are in events.jsonl, which is only appended to. Nothing here takes heap memory: a
// record is built in a fixed buffer and written immediately.
#ifndef TRAINER_LOG_MONITOR_H
#define TRAINER_LOG_MONITOR_H

#include "base/err.h"
#include "trainer/config/config.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct monitor {
    int log, events;      // file descriptors, -1: off
    char log_path[1024];
    int64_t log_bytes;    // of whole records
    bool log_failing;     // the last record could not be written
    bool terminal;        // standard output is one: draw a bar
    bool quiet;           // write nothing for people
    bool drawn;           // the last line shows a bar
    double last_draw;     // seconds
    int64_t steps;        // last step of the run
    double started;       // when this process's first step began, seconds
    int64_t first_step;   // and its number
    const char *unit, *short_unit;  // what is counted of the samples: "token", "tok"
} monitor;

typedef struct step_record {
    int64_t step, units;   // units: tokens, or whatever is counted, since the run began
    double loss, grad_norm, lr, ms, units_per_s, data_wait_ms, comm_wait_ms, loss_scale;
    bool skipped;
    const char *hash;  // NULL: not computed
    // On a GPU, times of communication and computing are by the device's clock and of two steps before; NaN (null in
    // the log) where they are not known, as in a GPU's first two steps. data_wait_ms is by the host's clock and of this
    // step.
    //
    // With several ranks: the mean over ranks of the communication time, and the share of it that backward hid; the
    // compute times of the slowest and of the median rank.
    int world, slowest;
    double comm_ms, hidden, slowest_ms, median_ms;
} step_record;

typedef struct eval_record {
    int64_t step, samples;
    const char *of;             // what the samples are: "windows"
    double loss;
    int metrics;
    const char *const *metric;  // names, and
    const double *value;
    double best, ms;            // ms: of the evaluation
    int64_t best_step;
} eval_record;

// Readings of one rank's device; NaN: not known. limited: as in device_sensors (gpu/gpu.h).
typedef struct power_device {
    int rank;
    double watts, celsius, mhz;
    unsigned limited;
} power_device;

typedef struct power_record {
    int64_t step;
    double watts;             // of all devices, now
    double joules_per_unit;   // used since the last such record
    const power_device *device;
    int devices;
} power_record;

// Opens DIR/log.jsonl, truncated to log_bytes, and DIR/events.jsonl.
err_t monitor_open(monitor *m, const char *run_dir, const config *c, int64_t log_bytes);
void monitor_close(monitor *m);

void monitor_step(monitor *m, const step_record *r, bool log);
void monitor_eval(monitor *m, const eval_record *r);
void monitor_checkpoint(monitor *m, int64_t step, double ms, const char *hash);

//
// {"t":"power","step":100,"watts":W,"joules_per_token":J,"devices":[{"rank":0,"watts":W,"celsius":C,"mhz":M,"limited":"no"},...]}:
// null: not known. limited: "no", or what limits the clocks (device_limited_text). A record has at most POWER_DEVICES
// devices: a larger run writes several records for a step, each with the sums over all devices.
enum { POWER_DEVICES = 128 };
void monitor_power(monitor *m, const power_record *r);

// Syncs to disk what was logged so far. A failure is only logged.
void monitor_sync(monitor *m);
void monitor_sample(monitor *m, int64_t step, const char *prompt, const char *text);

// events.jsonl and one line for a person. kind is a word: "resume", "checkpoint_failed", "damaged", "stop" ...
void monitor_event(monitor *m, const char *kind, int64_t step, const char *text);

// One line for a person, above the bar.
void monitor_say(monitor *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Copies what is safe to print on a terminal: valid UTF-8 without control characters (an untrained model writes escape
// sequences too).
void monitor_printable(char *to, size_t room, const char *from);

#endif
