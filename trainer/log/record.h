// trainer/log/record.h: what a run says of itself, as plain structs. The trainer fills one in and gives it to the
// monitor (trainer/log/monitor.h), which gives it to each sink (trainer/log/sink.h). Text and arrays are the caller's:
// a sink copies what it keeps.
#ifndef TRAINER_LOG_RECORD_H
#define TRAINER_LOG_RECORD_H

#include <stdbool.h>
#include <stdint.h>

// The steps of this process begin.
typedef struct start_record {
    int64_t step;   // the last finished one, 0: none
    int64_t units;  // tokens, or whatever is counted, up to there
} start_record;

typedef struct step_record {
    int64_t step, units;  // units: tokens, or whatever is counted, since the run began
    bool logged;          // [log] every says so, or it is the last step, or has a hash, or was skipped
    double loss, grad_norm, lr, ms, units_per_s, data_wait_ms, comm_wait_ms, loss_scale;
    int64_t rows;       // on demand, that there are; 0: none
    int64_t cold_rows;  // of those before the step, how many were in files alone
    bool skipped;
    const char *why;   // it was skipped; NULL: it was not
    const char *hash;  // NULL: not computed
    double time;       // when it was finished, seconds since 1970; 0: not known
    // Flops of the model, forward and backward, that the step computed for each of its samples (model.h; what
    // recomputation does again is not counted), by the measured peak of all ranks' devices (gpu/peak.h). 0 or NaN: not
    // known.
    double mfu;
    // rank 0's: resident memory of its process; used on its GPU, by anyone. 0: not known
    int64_t resident, device_bytes;
    // On a GPU, times of communication and computing are by the device's clock and of two steps before; NaN (null in
    // the log) where they are not known, as in a GPU's first two steps. data_wait_ms is by the host's clock and of this
    // step.
    //
    // With several ranks: the mean over ranks of the communication time, and the share of it that backward hid; the
    // compute times of the slowest and of the median rank.
    int world, slowest;
    double comm_ms, hidden, slowest_ms, median_ms;
    // With servers that do not wait for all of a step (trainer/step/served.h): updates that a gradient had missed,
    // those that were dropped, and questions that waited. NaN: without
    bool served;
    double stale, late, waiting;
} step_record;

typedef struct eval_record {
    int64_t step, samples;
    const char *of;  // what the samples are: "windows"
    double loss;     // NaN: there is no validation data, and of it no best
    int metrics;
    const char *const *metric;  // names, and
    const double *value;
    double best, ms;  // ms: of the evaluation
    int64_t best_step;
    const char *best_of;  // the named set whose loss it is; "": validation data
    double possible;      // the best possible loss on such data (data/text/about.h); 0: not known
} eval_record;

// A checkpoint is complete.
typedef struct checkpoint_record {
    int64_t step;
    double ms, time;   // it took; when it was complete, seconds since 1970. 0: an earlier process wrote it
    const char *hash;  // of its weights
} checkpoint_record;

typedef struct sample_record {
    int64_t step;
    const char *prompt, *text;  // any bytes: an untrained model writes escape sequences too
} sample_record;

// Readings of one rank's device; NaN: not known. limited: as in device_sensors (gpu/gpu.h).
typedef struct power_device {
    int rank;
    double watts, celsius, mhz;
    unsigned limited;
} power_device;

typedef struct power_record {
    int64_t step;
    double watts;            // of all devices, now
    double joules_per_unit;  // used since the last such record
    const power_device *device;
    int devices;
} power_record;

// How each rank has spent its time: sums over `steps` steps (trainer/log/report.h), of which `step` is the last.
typedef struct ranks_record {
    int64_t step, steps;
    int world;
    const double *sum;     // (world, REPORT_ITEMS)
    const int64_t *lanes;  // (world) of a step; NULL: as equal as they can be
} ranks_record;

// Something to be known later: "resume", "checkpoint_failed", "damaged", "stop" ... (gpu/gpu.h has an event_record().)
typedef struct incident_record {
    int64_t step;
    const char *kind, *text;  // kind: one word
    int figures;              // for programs: names, and
    const char *const *figure;
    const double *value;
} incident_record;

typedef enum record_kind {
    RECORD_START,
    RECORD_STEP,
    RECORD_EVAL,
    RECORD_CHECKPOINT,  // one that an uninterrupted run writes too, so that the log reads alike
    RECORD_SAVED,       // any, also one that the run goes on from
    RECORD_SAMPLE,
    RECORD_POWER,
    RECORD_RANKS,
    RECORD_EVENT,
    RECORD_LINE,  // for people only
    RECORD_KINDS
} record_kind;

typedef struct record {
    record_kind kind;
    union {
        start_record start;
        step_record step;
        eval_record eval;
        checkpoint_record checkpoint, saved;
        sample_record sample;
        power_record power;
        ranks_record ranks;
        incident_record event;
        const char *line;
    };
} record;

#endif
