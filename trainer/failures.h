// trainer/failures.h: `lockstep failures`: how much of a cluster's time is useful, when its parts fail now and then, by
// events alone: no device is simulated, so thousands cost no more than one. Failures come at random, at a constant rate
// (exponential gaps). One ends the step under way: work since the newest save is lost, the failure is noticed, a spare
// takes the place of a node that is gone, and the run starts again from the save.
//
//   work ....save| work ....save| work ..X  detect, (wait for a spare,) restart | work ....save|
//                                 ^^^^^^^ lost
#ifndef TRAINER_FAILURES_H
#define TRAINER_FAILURES_H

#include "base/err.h"

#include <stdint.h>
#include <stdio.h>

typedef struct failure_rules {
    int64_t nodes, devices;                                      // of each node
    double gpu_mtbf_h, node_mtbf_h, network_mtbf_h, job_mtbf_h;  // of one device, one node, the whole; 0: never fails
    double detect_s, restart_s;
    int64_t spares;
    double repair_h;                 // until a node that was replaced is a spare
    double every_s, save_s;          // work between two saves; how long steps wait for one
    double slow_share, slow_factor;  // for a share of the time, some rank makes all so many times as slow
    double days;
    int64_t runs, seed;
} failure_rules;

// Of all runs, on average: seconds, of the seconds of `days`.
typedef struct failure_times {
    double useful, saving, lost, down, waiting, slow;
    double interruptions, deviation;  // in so many days, on average; of one run's number
} failure_times;

// ERR_CONFIG names file and line: unknown keys, numbers out of range, what is missing.
err_t failures_read(failure_rules *out, const char *path);

double failures_rate(const failure_rules *r);  // a second

err_t failures_simulate(const failure_rules *r, failure_times *out);

// The useful share of all time if there is always a spare: saves every `every_s`.
double failures_useful(const failure_rules *r, double every_s);

// Where that is largest.
double failures_best(const failure_rules *r);

err_t verb_failures(int argc, char **argv, FILE *out);

#endif
