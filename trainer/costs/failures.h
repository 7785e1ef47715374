// trainer/costs/failures.h: `lockstep failures`: how much of a cluster's time is useful, when its parts fail now and
// then, by events alone: no device is simulated, so thousands cost no more than one. Failures come at random, at a
// constant rate (exponential gaps). One ends the step under way: work since the newest save is lost, the failure is
// noticed, a spare takes the place of a node that is gone, and the run starts again from the save.
//
//   work ....save| work ....save| work ..X  detect, (wait for a spare,) restart | work ....save|
//                                 ^^^^^^^ lost
#ifndef TRAINER_COSTS_FAILURES_H
#define TRAINER_COSTS_FAILURES_H

#include "trainer/costs/cluster_file.h"

#include <stdio.h>

enum { FAILURES_HOUR = 3600, FAILURES_DAY = 24 * FAILURES_HOUR };  // seconds

// Of all runs, on average: seconds, of the seconds of `days`.
typedef struct failure_times {
    double useful, saving, lost, down, waiting, slow;
    double interruptions, deviation;  // in so many days, on average; of one run's number
} failure_times;

// Of a cluster's file (trainer/costs/cluster_file.h). ERR_CONFIG: a mistake in it, or nothing fails.
err_t failures_read(failure_rules *out, const char *path);

double failures_rate(const failure_rules *r);  // a second

err_t failures_simulate(const failure_rules *r, failure_times *out);

// What the first of those runs does, from its start on, until it ends. WORK: with the saves between.
typedef enum { FAILURE_WORK, FAILURE_LOST, FAILURE_DOWN, FAILURE_WAITING, FAILURE_SPANS } failure_span;
typedef void failures_see(void *ctx, failure_span what, double from_s, double to_s);
err_t failures_walk(const failure_rules *r, failures_see *see, void *ctx);

// The useful share of all time if there is always a spare: saves every `every_s`.
double failures_useful(const failure_rules *r, double every_s);

// Where that is largest.
double failures_best(const failure_rules *r);

// Of a run that was planned for the cluster: where the file does not say how long a save takes, its fullest rank's
// state (bytes) is copied; where it does not say how often, they come at the best interval, a step's time at least.
void failures_of_plan(failure_rules *out, const cluster_file *f, double state, double step_s);

void failures_print(FILE *out, const failure_rules *r, const failure_times *t);

struct command;
err_t verb_failures(const struct command *asked, FILE *out);

#endif
