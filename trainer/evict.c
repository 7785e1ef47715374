// trainer/evict.c: see trainer/evict.h.
#include "trainer/evict.h"

#include "trainer/balance.h"

#include <stdlib.h>
#include <string.h>

err_t evict_open(evict *e, const evict_ranks *of, double limit_s) {
    size_t n = (size_t)of->world;
    *e = (evict){.of = *of, .limit_s = limit_s, .suspect = -1};
    e->numbers = calloc(3 * n, sizeof *e->numbers);
    e->ms = calloc(n * EVICT_STEPS, sizeof *e->ms);
    e->whole = calloc(n * EVICT_STEPS, sizeof *e->whole);
    e->times = calloc(n, sizeof *e->times);
    e->scratch = calloc(2 * n + EVICT_STEPS, sizeof *e->scratch);
    if (!e->numbers || !e->ms || !e->whole || !e->times || !e->scratch)
        return err_set(ERR_INTERNAL, "no memory for the times of %d ranks", of->world);
    memcpy(e->numbers, of->stage, n * sizeof *e->numbers), e->of.stage = e->numbers;
    memcpy(e->numbers + n, of->unit, n * sizeof *e->numbers), e->of.unit = e->numbers + n;
    memcpy(e->numbers + 2 * n, of->place, n * sizeof *e->numbers), e->of.place = e->numbers + 2 * n;
    return ERR_OK;
}

void evict_close(evict *e) {
    free(e->numbers), free(e->ms), free(e->whole), free(e->times), free(e->scratch);
    *e = (evict){.suspect = -1};
}

bool evict_add(evict *e, const double *ms, const int64_t *deal) {
    int world = e->of.world;
    for (int k = 0; k < world; k++)
        if (deal[e->of.place[k]] && !(ms[k] > 0)) return false;
    bool warm = e->warm;
    e->warm = true;
    if (!warm || e->steps == EVICT_STEPS) return false;
    for (int k = 0; k < world; k++) {
        int64_t lanes = deal[e->of.place[k]];
        e->ms[e->steps * world + k] = lanes ? ms[k] / (double)lanes : 0;
        e->whole[e->steps * world + k] = ms[k];
    }
    return ++e->steps == EVICT_STEPS;
}

// --- how slow --------------------------------------------------------------------------------------------------------

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Of two in the middle the smaller one; 0 of none.
static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, by_value);
    return n ? x[(n - 1) / 2] : 0;
}

// lane_ms [world]; others: those of the rank's stage that have lanes and would stay.
static double median_of_others(const evict *e, const double *lane_ms, int k, double *room) {
    int n = 0;
    for (int i = 0; i < e->of.world; i++)
        if (e->of.stage[i] == e->of.stage[k] && e->of.unit[i] != e->of.unit[k] && lane_ms[i] > 0)
            room[n++] = lane_ms[i];
    return median(room, n);
}

static int judge_window(evict *e) {
    int world = e->of.world, slowest = 0;
    double *lane_ms = e->scratch, *room = e->scratch + world;
    for (int k = 0; k < world; k++) {
        for (int i = 0; i < e->steps; i++) room[i] = e->ms[i * world + k];
        lane_ms[k] = median(room, e->steps);
    }
    for (int k = 0; k < world; k++) {
        double middle = median_of_others(e, lane_ms, k, room);
        e->times[k] = middle > 0 ? lane_ms[k] / middle : 0;
        if (e->times[k] > e->times[slowest]) slowest = k;
    }
    return slowest;
}

// --- for how long ----------------------------------------------------------------------------------------------------

static double computed_s(const evict *e, int rank) {
    double ms = 0;
    for (int i = 0; i < e->steps; i++) ms += e->whole[i * e->of.world + rank];
    return ms / 1e3;
}

static void forget(evict *e) { e->suspect = -1, e->windows = 0, e->slow_s = 0, e->asked = false; }

evict_choice evict_judge(evict *e) {
    evict_choice c = {.rank = -1};
    if (e->steps < EVICT_STEPS) return c;
    int slowest = judge_window(e);
    double times = e->times[slowest];
    bool asked = e->asked;
    if (times < EVICT_WELL || (e->suspect >= 0 && slowest != e->suspect)) forget(e);
    if (times > EVICT_SLOW) e->suspect = slowest, e->windows++, e->slow_s += computed_s(e, slowest);
    e->steps = 0;
    c.withdraws = asked && !e->asked;
    c.rank = e->suspect, c.times = times, c.slow_s = e->slow_s;
    c.asks = times > EVICT_SLOW && !e->asked && e->windows >= EVICT_WINDOWS && e->slow_s >= e->limit_s;
    e->asked |= c.asks;
    return c;
}

// --- is it worth it --------------------------------------------------------------------------------------------------

// As slow as the slowest of its ranks; one that is not known is as fast as the median.
static void slowness(const evict *e, double *slow) {
    for (int d = 0; d < e->of.data; d++) slow[d] = 0;
    for (int k = 0; k < e->of.world; k++)
        if (e->times[k] > slow[e->of.place[k]]) slow[e->of.place[k]] = e->times[k];
    for (int d = 0; d < e->of.data; d++)
        if (slow[d] == 0) slow[d] = 1;
}

evict_cost evict_compare(const evict *e, int rank, const int64_t *deal, int width, bool balanced) {
    int data = e->of.data, workers = e->of.workers ? e->of.workers : data;
    int64_t lanes = 0, best[data];
    double *slow = e->scratch;
    slowness(e, slow);
    for (int d = 0; d < data; d++) lanes += deal[d];
    evict_cost c = {.with = (double)deal[e->of.place[rank]] * e->times[rank]};
    if (balanced) balance_best(slow, workers, lanes, best), c.with = balance_longest(slow, workers, best);
    if (width > 0) c.without = (double)((lanes + width - 1) / width);
    return c;
}
