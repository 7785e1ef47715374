// trainer/log/report.h: how the ranks spend their time, and which rank the others wait for. Gathered with every step,
// logged every [log] every steps.
#ifndef TRAINER_LOG_REPORT_H
#define TRAINER_LOG_REPORT_H

#include "comm/reduce.h"

// What each rank reports to the others of a step. DATA_MS is by the host's clock: the wait for the loader. Where steps
// run ahead (trainer/step/step.h), all other times are by the device's clock and of two steps before, the newest step
// that is certainly done when the report is queued; COMPUTE_MS of the first two steps is 0: not known.
enum {
    REPORT_WISH,  // step_wish + 1: of a rank that has ended its part of the step. 0: of none
    REPORT_FAILED,
    REPORT_WRITTEN,  // the checkpoint that was begun is written, or has failed
    REPORT_COMPUTE_MS,
    REPORT_DATA_MS,
    REPORT_WAIT_MS,    // for the ranks that share its lanes: gradients and weights
    REPORT_BEFORE_MS,  // of a pipeline: for the stage before, and for the one after
    REPORT_AFTER_MS,
    REPORT_TENSOR_MS,  // for the ranks that share its layers
    REPORT_BUSY_MS,
    // If power is read in this step (power.h): 1, then device_sensors with the joules since the last reading; else
    // zeros.
    REPORT_SENSED,
    REPORT_WATTS,
    REPORT_CELSIUS,
    REPORT_MHZ,
    REPORT_JOULES,
    REPORT_LIMITED,
    REPORT_ITEMS
};

// Sums since report_take.
typedef struct rank_report {
    int world;
    int64_t steps;
    double *sum;       // (world, REPORT_ITEMS)
    double *per_lane;  // (2, world) scratch
    int64_t *lanes;    // (world) for report_lanes
    double *lately;    // (world) compute time of lately_steps, the steps since slowness was last judged
    int64_t lately_steps;
    bool warm;    // the first timed step, with its page faults, is over
    int suspect;  // the rank that was slow when last judged, -1: none
    bool named;   // it was reported as a straggler
} rank_report;

typedef struct rank_summary {
    int slowest;  // rank with the most compute time for each of its lanes, beside others of its stage
    // compute time of a step, of it and of the median rank of its stage with as many lanes
    double slowest_ms, median_ms;
    bool straggler;  // slower than STRAGGLER times the median, twice in a row, and not reported yet
    double comm_ms;  // mean over ranks and steps: time in communication between ranks that share lanes
    double wait_ms;  // mean: time that computing waited for it
    double hidden;   // 1 - wait/comm; waiting for a slower rank is in both
} rank_summary;

// Are the times of all ranks known in these reports?
bool report_is_timed(const double *reports, int world);

err_t report_open(rank_report *r, int world);
void report_close(rank_report *r);
void report_add(rank_report *r, const double *reports);  // ignores those without times

// Forgets what was added; what was judged of slowness stays.
void report_clear(rank_report *r);

// From now on the ranks have other lanes: forgets the times that those of before took.
void report_redealt(rank_report *r);

// How many lanes each rank has, valid until the next call; NULL: as equal as they can be. r: as in report_take.
const int64_t *report_lanes(rank_report *x, const reducer *r);

// Summarises what was added since the last call, and starts again from zero. r: how many lanes each of the ranks runs
// that have the same stage of a pipeline. They follow each other in order of rank, and are compared with each other
// only.
rank_summary report_take(rank_report *x, const reducer *r);

#endif
