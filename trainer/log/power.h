// trainer/log/power.h: power, temperature and clock limits of a run's devices, every [log] power_every steps. A rank
// reads its own device when it queues the step, and sends the numbers with its report of the step
// (trainer/step/step.h); when the step is collected, every rank has all of them. No rank waits for a reading, and
// readings do not affect the run.
#ifndef TRAINER_LOG_POWER_H
#define TRAINER_LOG_POWER_H

#include "comm/comm.h"
#include "trainer/log/monitor.h"

typedef struct power {
    device *dev;
    int64_t every;      // steps between readings, 0: never
    bool reads, known;  // this rank reports a device (a node's first rank reports its CPUs); its sensors answered
    double joules, at;  // its counter and the time, seconds, at the last report
    double looked;      // when it was last read, seconds
    const comm *ranks;
    int64_t last;          // step of the last record; at first, the step after which the run began
    power_device *device;  // [world] for a record
    struct power_limit {
        unsigned logged;
        int clear;
    } * limit;  // [world] limits logged and not over; readings without any since
} power;

// Reads the device for the first time: joules count from here. step: the last finished step. Allocates; later calls
// don't. ERR_UNAVAILABLE: this rank's device can't be read, and why; *p can still be used, and its records then lack
// the device. every = 0: does nothing.
err_t power_open(power *p, device *dev, const comm *ranks, int64_t every, int64_t step);
void power_close(power *p);

// Fills in this rank's part of a step's report: items REPORT_SENSED to REPORT_LIMITED of report (REPORT_ITEMS). Zeros
// when no reading is due, or p (a power) is NULL. Called by each step (step_runner.sense).
void power_report(void *p, int64_t step, double *report);

// Logs the readings of a collected step, reports (world, REPORT_ITEMS): one record, and an event for each rank whose
// clocks begin or cease to be limited. units: tokens, or whatever is counted, of one step. Does nothing when no reading
// was due.
void power_log(power *p, monitor *m, int64_t step, const double *reports, int64_t units);

#endif
