// trainer/log/report.h: how the ranks spend their time, gathered with every step and told every [log] every steps: who waits for whom.
#ifndef TRAINER_LOG_REPORT_H
#define TRAINER_LOG_REPORT_H

#include "comm/reduce.h"

// What each rank tells the others of a step. Where steps run ahead (trainer/step/step.h), times but DATA_MS, which is the
// loader's and the host's, are the device's own and those of two steps before, the newest that is certainly done when the
// report is queued; COMPUTE_MS of the first two steps is 0: not known.
enum {
    REPORT_STOP, REPORT_FAILED, REPORT_COMPUTE_MS, REPORT_DATA_MS, REPORT_WAIT_MS, REPORT_BUSY_MS,
    // Where power is read in this step (power.h): 1, and device_sensors with the joules since the last reading; else zeros.
    REPORT_SENSED, REPORT_WATTS, REPORT_CELSIUS, REPORT_MHZ, REPORT_JOULES, REPORT_LIMITED,
    REPORT_ITEMS
};

// Sums since the last time they were told.
typedef struct rank_report {
    int world;
    int64_t steps;
    double *sum;       // (world, REPORT_ITEMS)
    double *per_lane;  // (2, world) scratch
    double *lately;    // (world) compute time in lately_steps, since slowness was last judged
    int64_t lately_steps;
    bool warm;         // the first step that is timed, with its page faults, is behind
    int suspect;       // the rank that was slow when it was last told, -1: none
    bool named;        // and was named
} rank_report;

typedef struct rank_summary {
    int slowest;              // rank with the most compute time for each of its lanes
    double slowest_ms, median_ms;  // compute time of a step, of it and of the median rank; for equal numbers of lanes
    bool straggler;           // more than STRAGGLER times the median, for the second time running, and not named yet
    double comm_ms;           // mean over ranks and steps: communication was under way
    double wait_ms;           // mean: computing waited for it
    double hidden;            // 1 - wait/comm; waiting for a slower rank is in both
} rank_summary;

// Are the times of these reports known? Of all ranks or of none.
bool report_is_timed(const double *reports, int world);

err_t report_open(rank_report *r, int world);
void report_close(rank_report *r);
void report_add(rank_report *r, const double *reports);  // those that are timed

// What was added since the last call, and begins again. r: how many lanes each rank runs.
rank_summary report_take(rank_report *x, const reducer *r);

#endif
