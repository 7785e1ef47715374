// trainer/report/runlog.h: a run as its directory tells of it, read as it grows: curves of one size in memory however
// long the run is, the newest samples and events, the settings. What draws (page.c, compare.c) reads these structs.
//
//   log.jsonl      truncated when a run is resumed: then it is read again from its beginning
//   events.jsonl, machine.jsonl   only ever appended to, but read again, too, where they became shorter
//   config.ini     read again when it has changed;   status.json at each poll
//
// Of a file that grows the last line may be torn: it waits for its end. A line that is damaged is counted and passed
// over. Nothing here follows from what a line says but numbers in fixed places: any bytes at all may stand in the
// files.
#ifndef TRAINER_REPORT_RUNLOG_H
#define TRAINER_REPORT_RUNLOG_H

#include "base/follow.h"
#include "base/key.h"
#include "trainer/config/sets.h"
#include "trainer/log/fields.h"
#include "trainer/report/series.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

// clang-format off
// Curves of log.jsonl, over steps. Times are milliseconds of a step; UNITS counts tokens (or whatever is counted),
// ELAPSED seconds. Then evaluations; power records, with watts, degrees and clocks of each device; ranks records, means
// over ranks.
typedef enum curve {
#define CURVE_NAME(name, curve, ...) IF_##curve(CURVE_##name,)
    STEP_FIELDS(CURVE_NAME)
#undef CURVE_NAME
    STEP_CURVES,
    CURVE_UNITS = STEP_CURVES, CURVE_RATE, CURVE_ELAPSED,
    CURVE_EVAL, CURVE_ACCURACY, CURVE_BITS, CURVE_ACC, CURVE_ACC_NORM, CURVE_RMSE,
    CURVE_WATTS, CURVE_JOULES, CURVE_CELSIUS, CURVE_MHZ,
    CURVE_SET, CURVE_SET_LAST = CURVE_SET + SETS_MOST - 1,  // losses of named sets
    CURVE_R_COMPUTE, CURVE_R_DATA, CURVE_R_WAIT, CURVE_R_STAGES, CURVE_R_TENSOR,
    CURVES
} curve;
// clang-format on

// Curves over the logarithm of the step: their beginning is as fine as their end.
typedef enum early_curve { EARLY_LOSS, EARLY_UNITS, EARLY_EVAL, EARLY_CURVES } early_curve;

// Curves of machine.jsonl, over seconds since 1970. The first are of a node, the others of each rank's device.
typedef enum machine_curve {
    MACHINE_DISK_FREE,
    MACHINE_READ,
    MACHINE_WRITTEN,
    MACHINE_CPU,
    MACHINE_WATTS,
    MACHINE_CELSIUS,
    MACHINE_MHZ,
    MACHINE_BUSY,
    MACHINE_STARVED,
    MACHINE_RESIDENT,
    MACHINE_DEVICE_USED,
    MACHINE_CURVES
} machine_curve;

enum {
    RUNLOG_NAME_ROOM = 256,
    RUNLOG_WORD = 32,
    RUNLOG_TEXT = 4096,
    RUNLOG_EVENT = 512,
    RUNLOG_SAMPLES = 6,
    RUNLOG_EVENTS = 20,
    RUNLOG_MARKS = 256,
    RUNLOG_SETTINGS = 512,
    RUNLOG_RANKS = 4096,  // ranks whose times are compared; those beyond are passed over
    HEAT_ROWS = 64,
    HEAT_COLUMNS = 64,
    RUNLOG_DEVICES = 64,
    RUNLOG_ALARMS = 8,
    RUNLOG_FIGURES = 32,
    RUNLOG_CHUNK = 1 << 20,  // bytes read at a time, and the longest line
};

// One of the files that grow.
typedef struct runlog_file {
    follower of;
    int64_t lines, damaged;
} runlog_file;

typedef struct runlog_sample {
    int64_t step;
    char prompt[RUNLOG_EVENT], text[RUNLOG_TEXT];
} runlog_sample;

typedef struct runlog_event {
    int64_t step;
    double time;  // seconds since 1970, NaN: not known
    char kind[RUNLOG_WORD], text[RUNLOG_EVENT];
} runlog_event;

typedef struct runlog_mark {
    int64_t step;
    double time;
    char kind[RUNLOG_WORD];
} runlog_mark;

typedef struct runlog_setting {
    char name[2 * KEY_WORD_MAX], value[2 * KEY_TEXT_MAX];  // "section.key"
    const char *fallback;                                  // its default; NULL: this build has no such key
    key_class class;
    bool differs;  // from its default
} runlog_setting;

// A rank's compute time beside the median of those that do the same. A row is `ranks` ranks, a column `width` steps;
// pairs are merged as in a sheet.
typedef struct heat {
    int ranks;
    double width;
    int rows, columns;                   // used
    float sum[HEAT_ROWS][HEAT_COLUMNS];  // of the ratios
    int32_t n[HEAT_ROWS][HEAT_COLUMNS];
} heat;

// What was measured on a named set ([eval] sets), the newest value.
typedef struct runlog_figure {
    char set[SET_NAME], name[RUNLOG_WORD];  // letters, digits, _ and -
    double value;
} runlog_figure;

typedef struct runlog_device {
    int rank;
    char host[64], device[RUNLOG_WORD];
} runlog_device;

typedef struct runlog {
    char dir[IO_PATH], name[RUNLOG_NAME_ROOM];
    runlog_file log, events, machine;
    sheet steps, early, seconds;
    spread rate, mfu;  // of CURVE_RATE and CURVE_MFU
    heat heat;

    char unit[RUNLOG_WORD];  // what is counted: "token"
    char rate_key[RUNLOG_WORD + 8], units_key[RUNLOG_WORD + 2];
    int64_t records, first_step, last_step, skipped;  // step records
    double first_time, last_time;                     // of step records, seconds since 1970; NaN: not known
    // sum of the steps' times; those that were not logged count as the next one that was
    double trained_s;
    double loss, lowest_loss, units;  // of the last record; NaN: not known
    int64_t lowest_step;
    double eval_loss, best;  // NaN: there was no evaluation
    char best_of[SET_NAME];  // the named set whose loss `best` is; "": validation data
    int64_t best_step, evals, hash_step;
    char set[SETS_MOST][SET_NAME];  // set k has curve CURVE_SET + k
    int sets;
    runlog_figure figure[RUNLOG_FIGURES];
    int figures;
    char hash[RUNLOG_WORD];  // of hash_step: the newest that was logged, of a step or a checkpoint
    bool measured;           // the log has times of the clock
    int world;               // as far as the records know, 0: not

    runlog_sample sample[RUNLOG_SAMPLES];  // the newest, sample s at s % RUNLOG_SAMPLES
    int64_t samples;
    runlog_event event[RUNLOG_EVENTS];
    int64_t events_seen;
    char forked[RUNLOG_EVENT];       // with which checkpoint of another run it began, and what differs; "": it did not
    runlog_mark mark[RUNLOG_MARKS];  // when full, every second one goes, but for the last
    int marks;

    // config.ini
    // its first line: the build, hashes of settings and data
    char about[RUNLOG_NAME_ROOM];
    // its second line: this machine's name, and its device; "": not known
    char computer[RUNLOG_NAME_ROOM], runs_on[RUNLOG_NAME_ROOM];
    runlog_setting *setting;  // RUNLOG_SETTINGS
    int settings;
    int64_t config_size, config_time;  // as it was when it was read

    // status.json
    char state[RUNLOG_WORD], host[64];        // "": not known
    char alarm[RUNLOG_ALARMS][RUNLOG_EVENT];  // what a person should look at now, gravest first
    int alarms;
    runlog_device device[RUNLOG_DEVICES];
    int devices;

    double *rank_ms;     // (RUNLOG_RANKS) of one ranks record, until its last line is read
    double *rank_lanes;  // (RUNLOG_RANKS) of it, for so many ranks; 0 of them: it does not say
    int lane_count;
    int64_t rank_step;
    int rank_count;
    char *chunk;  // (RUNLOG_CHUNK) for the followers
} runlog;

// Nothing is read yet. ERR_DATA: dir is no run's directory (it has neither log.jsonl nor config.ini); ERR_INTERNAL: no
// memory.
err_t runlog_open(runlog **out, const char *dir);

// Reads what was appended since the last call, the first time everything. A file that is missing is empty. ERR_IO: one
// can't be read; what was read of the others counts.
err_t runlog_poll(runlog *r);
void runlog_close(runlog *r);

// The setting "section.key", NULL: config.ini has none.
const runlog_setting *runlog_find(const runlog *r, const char *name);
// Its value as a number, NaN: there is none.
double runlog_number(const runlog *r, const char *name);

// --- for the files of this room --------------------------------------------------------------------------------------

// (records.c) A line of each file, without its end. false: it is damaged, and *r is as before. *back: its step is not
// after the one before, so that it belongs to another life of the file.
bool runlog_take_log(runlog *r, const char *line, size_t n, bool *back);
bool runlog_take_event(runlog *r, const char *line, size_t n);
bool runlog_take_machine(runlog *r, const char *line, size_t n);
void runlog_take_status(runlog *r, const char *text, size_t n);
void runlog_forget(runlog *r);       // all that log.jsonl said
void runlog_flush_ranks(runlog *r);  // the ranks record that was read last is whole
// (settings.c)
void runlog_take_settings(runlog *r, char *text);  // changes the text

#endif
