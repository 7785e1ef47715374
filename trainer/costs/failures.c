// trainer/costs/failures.c: see trainer/costs/failures.h.
#include "trainer/costs/failures.h"

#include "base/fmath.h"
#include "base/philox.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

// --- the file --------------------------------------------------------------------------------------------------------

// What else a plan says (failures_of_plan): saves that take no time, at a usual interval.
err_t failures_read(failure_rules *out, const char *path) {
    const double USUAL = 600;
    cluster_file f;
    TRY(cluster_file_read(&f, path));
    *out = f.fails;
    if (out->every_s < 0) out->every_s = USUAL;
    if (out->save_s < 0) out->save_s = 0;
    if (failures_rate(out) > 0) return ERR_OK;
    return err_set(ERR_CONFIG,
                   "%s: nothing fails: expected one of [failures] gpu_mtbf_h, node_mtbf_h, network_mtbf_h, job_mtbf_h, "
                   "hours between two failures of one device, of one node, of the network, of the job",
                   path);
}

// --- rates -----------------------------------------------------------------------------------------------------------

static double rate_of(double parts, double mtbf_h) { return mtbf_h > 0 ? parts / (mtbf_h * FAILURES_HOUR) : 0; }

// Of failures that take a node out.
static double node_rate(const failure_rules *r) {
    return rate_of((double)(r->nodes * r->devices), r->gpu_mtbf_h) + rate_of((double)r->nodes, r->node_mtbf_h);
}

double failures_rate(const failure_rules *r) {
    return node_rate(r) + rate_of(1, r->network_mtbf_h) + rate_of(1, r->job_mtbf_h);
}

static double speed(const failure_rules *r) { return 1 / (1 + r->slow_share * (r->slow_factor - 1)); }

// Daly 2006 ("A higher order estimate of the optimum checkpoint interval for restart dumps", section 4): a part of
// `every` and its save take e^(L R) (e^(L (every + save)) - 1) / L, at a rate L, with R to start again, which may fail
// as well.
double failures_useful(const failure_rules *r, double every_s) {
    double rate = failures_rate(r), again = r->detect_s + r->restart_s, part = every_s + r->save_s;
    double takes = fm_exp(rate * again) * (fm_exp(rate * part) - 1) / rate;
    return takes > 0 && isfinite(takes) ? every_s / takes * speed(r) : 0;
}

// One largest value: the golden section of a range of powers.
double failures_best(const failure_rules *r) {
    const double PHI = 0.61803398874989484820;
    double low = fm_log(1e-3), high = fm_log(1e8);
    for (int i = 0; i < 100; i++) {
        double a = high - PHI * (high - low), b = low + PHI * (high - low);
        if (failures_useful(r, fm_exp(a)) < failures_useful(r, fm_exp(b))) low = a;
        else high = b;
    }
    return fm_exp((low + high) / 2);
}

void failures_of_plan(failure_rules *out, const cluster_file *f, double state, double step_s) {
    *out = f->fails;
    if (out->save_s < 0) out->save_s = state / (1e9 * f->save_gb_s);
    if (out->every_s < 0) out->every_s = fmax(failures_best(out), step_s);
}

// --- events ----------------------------------------------------------------------------------------------------------

typedef struct event_run {
    const failure_rules *r;
    uint32_t run, draws;
    double now, end, next;  // next: failure
    int64_t spares, first, repairs, room;
    double *repaired;  // [room] a ring: when each node that was replaced is a spare again
    int64_t failures;
    failure_times sum;
    failures_see *see;  // NULL: nothing looks
    void *ctx;
} event_run;

// Above 0, at most 1.
static double draw(event_run *x) {
    uint32_t w[4];
    philox4x32(w, (uint64_t)x->r->seed, x->draws++, SITE_FAULT, x->run, 0);
    return ((double)(((uint64_t)w[0] << 21) ^ w[1] >> 11) + 1) / 9007199254740992.0;
}

static double until_end(const event_run *x, double s) { return fmax(fmin(s, x->end - x->now), 0); }

static void show(const event_run *x, failure_span what, double s) {
    double until = x->now + until_end(x, s);
    if (x->see && until > x->now) x->see(x->ctx, what, x->now, until);
}

// Time passes for one purpose.
static void pass_time(event_run *x, failure_span what, double *to, double s) {
    show(x, what, s);
    *to += until_end(x, s);
    x->now += s;
}

// A node is replaced; without a spare all wait for the next one that is repaired.
static void replace_node(event_run *x) {
    double back = x->now + x->r->repair_h * FAILURES_HOUR;
    while (x->repairs && x->repaired[x->first % x->room] <= x->now) x->first++, x->repairs--, x->spares++;
    if (x->repairs < x->room) x->repaired[(x->first + x->repairs++) % x->room] = back;
    if (x->spares) {
        x->spares--;
        return;
    }
    double first = x->repaired[x->first % x->room];
    x->first++, x->repairs--;
    pass_time(x, FAILURE_WAITING, &x->sum.waiting, first - x->now);
}

static void begin_again(event_run *x) {
    double again = x->r->detect_s + x->r->restart_s, rate = failures_rate(x->r), nodes = node_rate(x->r) / rate;
    for (bool fails = true; fails && x->now < x->end;) {
        x->failures++;
        if (draw(x) <= nodes) replace_node(x);
        x->next = x->now - fm_log(draw(x)) / rate;
        fails = x->next < x->now + again;
        pass_time(x, FAILURE_DOWN, &x->sum.down, fails ? x->next - x->now : again);
    }
}

static void run_events(event_run *x) {
    const failure_rules *r = x->r;
    double part = r->every_s + r->save_s, parts;
    x->next = -fm_log(draw(x)) / failures_rate(r);
    while (x->now < x->end) {
        double until = fmin(x->next, x->end);
        parts = floor((until - x->now) / part);
        x->sum.useful += parts * r->every_s, x->sum.saving += parts * r->save_s;
        show(x, FAILURE_WORK, parts * part);
        x->now += parts * part;
        if (x->next < x->end) pass_time(x, FAILURE_LOST, &x->sum.lost, until - x->now);
        else pass_time(x, FAILURE_WORK, &x->sum.useful, until - x->now);  // what the end cuts off is not lost
        if (x->now < x->end) begin_again(x);
    }
}

err_t failures_walk(const failure_rules *r, failures_see *see, void *ctx) {
    int64_t room = r->nodes + r->spares + 1;
    event_run x = {.r = r, .end = r->days * FAILURES_DAY, .spares = r->spares, .room = room, .see = see, .ctx = ctx};
    x.repaired = calloc((size_t)room, sizeof *x.repaired);
    if (!x.repaired) return err_set(ERR_INTERNAL, "no memory for the repairs of %" PRId64 " nodes", room);
    run_events(&x);
    free(x.repaired);
    return ERR_OK;
}

err_t failures_simulate(const failure_rules *r, failure_times *out) {
    double squares = 0, n = (double)r->runs;
    int64_t room = r->nodes + r->spares + 1;
    double *repaired = calloc((size_t)room, sizeof *repaired);
    *out = (failure_times){0};
    if (!repaired) return err_set(ERR_INTERNAL, "no memory for the repairs of %" PRId64 " nodes", room);
    for (int64_t i = 0; i < r->runs; i++) {
        event_run x = {.r = r,
                       .run = (uint32_t)i,
                       .end = r->days * FAILURES_DAY,
                       .spares = r->spares,
                       .room = room,
                       .repaired = repaired};
        run_events(&x);
        out->useful += x.sum.useful * speed(r) / n, out->slow += x.sum.useful * (1 - speed(r)) / n;
        out->saving += x.sum.saving / n, out->lost += x.sum.lost / n, out->down += x.sum.down / n;
        out->waiting += x.sum.waiting / n;
        out->interruptions += (double)x.failures / n, squares += (double)x.failures * (double)x.failures / n;
    }
    out->deviation = sqrt(fmax(squares - out->interruptions * out->interruptions, 0));
    free(repaired);
    return ERR_OK;
}
