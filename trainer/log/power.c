// trainer/log/power.c: see trainer/log/power.h. The energy between two readings comes from the devices' counters and
// includes everything that the run did in between; without a counter it is not estimated from watts. On a GPU a step's
// reading is taken when the step is queued, while the previous one is computed: two readings are still a whole number
// of steps apart.
#include "trainer/log/power.h"

#include "base/clock.h"
#include "trainer/log/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const double LOOK_S = 30;  // seconds: the counters of CPUs wrap around within minutes
// readings in a row without a limit that end it: a power cap comes and goes all the time
enum { CLEAR = 2 };

err_t power_open(power *p, device *dev, const comm *ranks, int64_t every, int64_t step) {
    device_sensors s;
    *p = (power){.dev = dev, .every = every, .ranks = ranks, .last = step, .joules = NAN};
    if (every == 0) return ERR_OK;
    p->device = calloc((size_t)ranks->world, sizeof *p->device);
    p->limit = calloc((size_t)ranks->world, sizeof *p->limit);
    if (!p->device || !p->limit) return err_set(ERR_INTERNAL, "no memory for the power of %d ranks", ranks->world);
    p->reads = device_about(dev)->kind != DEVICE_CPU || ranks->place[ranks->rank].local == 0;
    if (!p->reads) return ERR_OK;
    TRY(device_sense(dev, &s));
    p->known = true;
    p->joules = s.joules;
    p->at = p->looked = clock_now();
    return ERR_OK;
}

void power_close(power *p) {
    free(p->device);
    free(p->limit);
    *p = (power){0};
}

static bool due(const power *p, int64_t step) { return p->every > 0 && step % p->every == 0; }

static device_sensors unknown(void) {
    return (device_sensors){.watts = NAN, .celsius = NAN, .mhz = NAN, .joules = NAN, .limited = LIMITED_UNKNOWN};
}

void power_report(void *ctx, int64_t step, double *report) {
    power *p = ctx;
    for (int i = REPORT_SENSED; i <= REPORT_LIMITED; i++) report[i] = 0;
    if (!p || !p->reads) return;
    device_sensors s = unknown();
    double now = clock_now();
    bool goes_round = device_about(p->dev)->kind == DEVICE_CPU && now - p->looked > LOOK_S;
    if (!due(p, step) && !goes_round) return;
    if (p->known && device_sense(p->dev, &s) != ERR_OK) s = unknown();  // a failed sensor must not end the run
    p->looked = now;
    if (!due(p, step)) return;
    double used = s.joules >= p->joules ? s.joules - p->joules : NAN;
    report[REPORT_SENSED] = 1;
    report[REPORT_WATTS] = isnan(s.watts) ? used / (now - p->at) : s.watts;
    report[REPORT_CELSIUS] = s.celsius;
    report[REPORT_MHZ] = s.mhz;
    report[REPORT_JOULES] = used;
    report[REPORT_LIMITED] = s.limited;
    p->joules = s.joules;
    p->at = now;
}

// --- events ---------------------------------------------------------------------------------------------------------

static void put_number(char *dst, size_t room, double x, const char *unit) {
    if (isnan(x)) snprintf(dst, room, "? %s", unit);
    else snprintf(dst, room, "%.0f %s", x, unit);
}

static const char *advice(unsigned limited) {
    if (limited & LIMITED_HEAT) return "see to its cooling";
    if (limited & LIMITED_BRAKE) return "the power supply asks for it: see to the machine's or rack's";
    if (limited & LIMITED_HARDWARE) return "nvidia-smi -q -d PERFORMANCE may know why";
    return "nvidia-smi -q -d POWER shows the cap";
}

static void log_limit(const power *p, monitor *m, int64_t step, const power_device *d, unsigned limited, bool begins) {
    char who[COMM_NAME], why[LIMITED_TEXT], mhz[32], celsius[32], watts[32], text[256];
    put_number(mhz, sizeof mhz, d->mhz, "MHz");
    put_number(celsius, sizeof celsius, d->celsius, "C");
    put_number(watts, sizeof watts, d->watts, "W");
    snprintf(text, sizeof text, "%s, device %d, %s by %s: %s, %s, %s%s%s", comm_rank_text(p->ranks, d->rank, who),
             p->ranks->place[d->rank].local, begins ? "is held back" : "is no longer held back",
             device_limited_text(limited, why), mhz, celsius, watts, begins ? "; " : "", begins ? advice(limited) : "");
    monitor_event(m, begins ? "throttled" : "unthrottled", step, text);
}

// A limit is logged when it begins, again for each new reason, and when it is over.
static void watch_limit(power *p, monitor *m, int64_t step, const power_device *d) {
    struct power_limit *l = &p->limit[d->rank];
    if (d->limited == LIMITED_UNKNOWN) return;
    unsigned fresh = d->limited & ~l->logged;
    l->clear = d->limited ? 0 : l->clear + 1;
    if (fresh) log_limit(p, m, step, d, fresh, true);
    l->logged |= fresh;
    if (!l->logged || l->clear < CLEAR) return;
    log_limit(p, m, step, d, l->logged, false);
    l->logged = 0;
}

// --- records --------------------------------------------------------------------------------------------------------

static bool says_anything(const power_device *d) {
    return !isnan(d->watts) || !isnan(d->celsius) || !isnan(d->mhz) || d->limited != LIMITED_UNKNOWN;
}

void power_log(power *p, monitor *m, int64_t step, const double *reports, int64_t units) {
    int count = 0;
    double watts = 0, joules = 0;
    bool anything = false;
    if (!due(p, step)) return;
    for (int k = 0; k < p->ranks->world; k++) {
        const double *of = &reports[k * REPORT_ITEMS];
        if (of[REPORT_SENSED] == 0) continue;
        power_device *d = &p->device[count++];
        *d = (power_device){.rank = k,
                            .watts = of[REPORT_WATTS],
                            .celsius = of[REPORT_CELSIUS],
                            .mhz = of[REPORT_MHZ],
                            .limited = (unsigned)of[REPORT_LIMITED]};
        watts += d->watts;  // one unknown value makes the sum unknown
        joules += of[REPORT_JOULES];
        anything |= says_anything(d);
        watch_limit(p, m, step, d);
    }
    double each = joules / (double)((step - p->last) * units);
    p->last = step;
    if (!anything) return;
    monitor_log(
        m,
        &(record){
            RECORD_POWER,
            .power = {.step = step, .watts = watts, .joules_per_unit = each, .device = p->device, .devices = count}});
}
