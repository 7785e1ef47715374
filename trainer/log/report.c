// trainer/log/report.c: see trainer/log/report.h. Compute times are compared per lane: with 8 lanes on 3 ranks one rank
// has less to do, but is not faster.
#include "trainer/log/report.h"

#include <stdlib.h>
#include <string.h>

static const double STRAGGLER = 1.5, NOTICED_MS = 1;
enum { STEPS_LEAST = 10 };  // fewer say little about a machine that does other work too

err_t report_open(rank_report *r, int world) {
    *r = (rank_report){.world = world, .suspect = -1};
    r->sum = calloc((size_t)world * REPORT_ITEMS, sizeof *r->sum);
    r->per_lane = calloc(2 * (size_t)world, sizeof *r->per_lane);
    r->lately = calloc((size_t)world, sizeof *r->lately);
    r->lanes = calloc((size_t)world, sizeof *r->lanes);
    return r->sum && r->per_lane && r->lately && r->lanes
               ? ERR_OK
               : err_set(ERR_INTERNAL, "no memory for the reports of %d ranks", world);
}

void report_close(rank_report *r) {
    free(r->sum), free(r->per_lane), free(r->lately), free(r->lanes);
    *r = (rank_report){0};
}

bool report_is_timed(const double *reports, int world) {
    for (int k = 0; k < world; k++)
        if (reports[k * REPORT_ITEMS + REPORT_COMPUTE_MS] == 0) return false;
    return true;
}

void report_add(rank_report *r, const double *reports) {
    if (!report_is_timed(reports, r->world)) return;  // a time of 0 would look fast
    if (!r->warm) {
        r->warm = true;
        return;
    }
    for (int i = 0; i < r->world * REPORT_ITEMS; i++) r->sum[i] += reports[i];
    for (int k = 0; k < r->world; k++) r->lately[k] += reports[k * REPORT_ITEMS + REPORT_COMPUTE_MS];
    r->steps++;
    r->lately_steps++;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Of rank k's stage, which `ranks` ranks have, as far as they have lanes. Of two middle ranks the faster one: with two
// ranks the slower is compared with it.
static double median(rank_report *x, int k, int ranks) {
    double *sorted = x->per_lane + x->world;
    const double *of = x->per_lane + k / ranks * ranks;
    int n = 0;
    for (int i = 0; i < ranks; i++)
        if (of[i] > 0) sorted[n++] = of[i];
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    return n ? sorted[(n - 1) / 2] : 0;
}

static double lanes_of(const reducer *r, int k) { return (double)reduce_lane_count(r, k % reduce_ranks(r)); }

// Of each of its lanes; 0: it has none.
static double for_each_lane(const reducer *r, int k, double ms) {
    double lanes = lanes_of(r, k);
    return lanes > 0 ? ms / lanes : 0;
}

// Compared with its stage; of several that are as slow there, the one with the most to do.
static int slowest_of(rank_report *x, int ranks) {
    int slowest = 0;
    double most = 0;
    for (int k = 0; k < x->world; k++) {
        double middle = median(x, k, ranks), times = middle > 0 ? x->per_lane[k] / middle : 0;
        if (times > most || (times == most && x->per_lane[k] > x->per_lane[slowest])) slowest = k, most = times;
    }
    return slowest;
}

// Once is chance. A rank that is slow twice in a row is reported, and not again before it has caught up.
static bool newly_slow(rank_report *x, const reducer *r) {
    int ranks = reduce_ranks(r);
    if (x->lately_steps < STEPS_LEAST) return false;
    for (int k = 0; k < x->world; k++) x->per_lane[k] = for_each_lane(r, k, x->lately[k]);
    int slowest = slowest_of(x, ranks);
    double middle = median(x, slowest, ranks),
           lag = (x->per_lane[slowest] - middle) * lanes_of(r, slowest) / (double)x->lately_steps;
    bool slow = x->per_lane[slowest] > STRAGGLER * middle && lag > NOTICED_MS;
    memset(x->lately, 0, (size_t)x->world * sizeof *x->lately);
    x->lately_steps = 0;
    bool again = slow && x->suspect == slowest;
    if (!again) x->named = false;
    x->suspect = slow ? slowest : -1;
    if (!again || x->named) return false;
    return x->named = true;
}

void report_clear(rank_report *r) {
    memset(r->sum, 0, (size_t)r->world * REPORT_ITEMS * sizeof *r->sum);
    r->steps = 0;
}

const int64_t *report_lanes(rank_report *x, const reducer *r) {
    for (int k = 0; k < x->world; k++) x->lanes[k] = reduce_lane_count(r, k % reduce_ranks(r));
    return reduce_lanes(r)->count ? x->lanes : NULL;
}

void report_redealt(rank_report *r) {
    report_clear(r);
    memset(r->lately, 0, (size_t)r->world * sizeof *r->lately);
    r->lately_steps = 0;
}

rank_summary report_take(rank_report *x, const reducer *r) {
    rank_summary s = {0};
    double steps = x->steps ? (double)x->steps : 1;
    for (int k = 0; k < x->world; k++) {
        const double *one = &x->sum[k * REPORT_ITEMS];
        x->per_lane[k] = for_each_lane(r, k, one[REPORT_COMPUTE_MS] / steps);
        s.comm_ms += one[REPORT_BUSY_MS] / steps / x->world;
        s.wait_ms += one[REPORT_WAIT_MS] / steps / x->world;
    }
    s.slowest = slowest_of(x, reduce_ranks(r));
    double middle = median(x, s.slowest, reduce_ranks(r)), lanes = lanes_of(r, s.slowest);
    s.slowest_ms = x->per_lane[s.slowest] * lanes;
    s.median_ms = middle * lanes;
    s.hidden = s.comm_ms > 0 ? 1 - s.wait_ms / s.comm_ms : 0;
    if (s.hidden < 0) s.hidden = 0;
    report_clear(x);
    s.straggler = newly_slow(x, r);
    return s;
}
