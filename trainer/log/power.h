// trainer/log/power.h: what the devices of a run draw, how hot they are and what holds their clocks down, every [log] power_every
// steps. A rank reads its own device when it queues the step and sends the numbers with what ranks report of a step anyway
// (trainer/step/step.h); when the step is told, every rank has all of them. Nobody waits for a reading, and it changes nothing of
// the run.
#ifndef TRAINER_LOG_POWER_H
#define TRAINER_LOG_POWER_H

#include "comm/comm.h"
#include "trainer/log/monitor.h"

typedef struct power {
    device *dev;
    int64_t every;       // steps between readings, 0: never
    bool reads, known;   // this rank has a device to tell of (a node's CPUs are told of by its first rank); it answered
    double joules, at;   // its counter and the time, seconds, when it was last reported
    double looked;       // when it was last read, seconds
    const comm *ranks;
    int64_t told;        // step of the last record, or behind which the run began
    power_device *device;                             // [world] what a record tells
    struct power_limit { unsigned told; int clear; } *limit;  // [world] what was told and is not over; readings since without any
} power;

// Reads the device for the first time: joules count from here. step: how many are behind. Allocates; later calls don't.
// ERR_UNAVAILABLE: nothing is known of this rank's device, and why; the run may go on with the same *p, whose record then lacks
// it. every = 0: does nothing.
err_t power_open(power *p, device *dev, const comm *ranks, int64_t every, int64_t step);
void power_close(power *p);

// This rank's share of a step's report: items REPORT_SENSED to REPORT_LIMITED of report (REPORT_ITEMS). Zeros when no reading
// is due. p is a power, or NULL: zeros. What a step calls (step_runner.sense).
void power_report(void *p, int64_t step, double *report);

// A told step's readings, reports (world, REPORT_ITEMS): a record in the log, and an event for each rank whose clocks begin or
// cease to be held down. tokens: of one step. Does nothing when no reading was due.
void power_tell(power *p, monitor *m, int64_t step, const double *reports, int64_t tokens);

#endif
