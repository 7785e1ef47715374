// trainer/balance.c: see trainer/balance.h.
#include "trainer/balance.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- the best deal ---------------------------------------------------------------------------------------------------

double balance_longest(const double *lane_ms, int ranks, const int64_t *deal) {
    double longest = 0;
    for (int k = 0; k < ranks; k++) {
        double ms = lane_ms[k] * (double)deal[k];
        if (ms > longest) longest = ms;
    }
    return longest;
}

// Lane by lane to the rank that would be done with it first; of several, to the first of them. No deal is better: where
// the last lane of the longest rank went, every other rank would have taken at least as long with one more.
void balance_best(const double *lane_ms, int ranks, int64_t lanes, int64_t *deal) {
    for (int k = 0; k < ranks; k++) deal[k] = 1;
    for (int64_t left = lanes - ranks; left > 0; left--) {
        int to = 0;
        for (int k = 1; k < ranks; k++)
            if (lane_ms[k] * (double)(deal[k] + 1) < lane_ms[to] * (double)(deal[to] + 1)) to = k;
        deal[to]++;
    }
}

const char *balance_text(const int64_t *deal, int ranks, char *dst, size_t room) {
    size_t at = 0;
    dst[0] = 0;
    for (int k = 0; k < ranks && at + 24 < room; k++)
        at += (size_t)snprintf(dst + at, room - at, "%s%" PRId64, k ? "," : "", deal[k]);
    return dst;
}

// --- a window --------------------------------------------------------------------------------------------------------

err_t balance_open(balance *b, int ranks, int64_t lanes, const int64_t *deal) {
    size_t n = (size_t)ranks;
    *b = (balance){.ranks = ranks, .lanes = lanes, .slow = -1};
    b->deal = calloc(n, sizeof *b->deal);
    b->wanted = calloc(n, sizeof *b->wanted);
    b->ms = calloc(n * BALANCE_STEPS, sizeof *b->ms);
    b->lane_ms = calloc(n, sizeof *b->lane_ms);
    b->scratch = calloc(n + BALANCE_STEPS, sizeof *b->scratch);
    if (!b->deal || !b->wanted || !b->ms || !b->lane_ms || !b->scratch)
        return err_set(ERR_INTERNAL, "no memory for the times of %d ranks", ranks);
    memcpy(b->deal, deal, n * sizeof *deal);
    return ERR_OK;
}

void balance_close(balance *b) {
    free(b->deal), free(b->wanted), free(b->ms), free(b->lane_ms), free(b->scratch);
    *b = (balance){0};
}

void balance_add(balance *b, const double *ms) {
    for (int k = 0; k < b->ranks; k++)
        if (!(ms[k] > 0)) return;
    bool warm = b->warm;
    b->warm = true;
    if (!warm || b->steps == BALANCE_STEPS) return;
    memcpy(&b->ms[b->steps++ * b->ranks], ms, (size_t)b->ranks * sizeof *ms);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Of two in the middle the smaller one.
static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[(n - 1) / 2];
}

// A rank without lanes is taken to be as fast as the median of the others.
static double judge_lanes(balance *b) {
    int n = 0;
    for (int k = 0; k < b->ranks; k++) {
        for (int i = 0; i < b->steps; i++) b->scratch[i] = b->ms[i * b->ranks + k];
        b->lane_ms[k] = b->deal[k] ? median(b->scratch, b->steps) / (double)b->deal[k] : 0;
    }
    for (int k = 0; k < b->ranks; k++)
        if (b->deal[k]) b->scratch[n++] = b->lane_ms[k];
    double middle = median(b->scratch, n);
    for (int k = 0; k < b->ranks; k++)
        if (!b->deal[k]) b->lane_ms[k] = middle;
    return middle;
}

// --- what follows from it --------------------------------------------------------------------------------------------

static bool names_slow(balance *b, const balance_choice *c) {
    bool slow = c->slowest_ms > BALANCE_SLOW * c->median_ms, same = slow && b->slow == c->slowest;
    b->slow = slow ? c->slowest : -1;
    b->slow_windows = !slow ? 0 : same ? b->slow_windows + 1 : 1;
    return b->slow_windows == BALANCE_SLOW_WINDOWS;
}

// What was wanted before must be worth it in this window, too. If it is not, this window's best may be in the next.
static bool holds(balance *b, double now_ms) {
    if (b->held && now_ms < BALANCE_GAIN * balance_longest(b->lane_ms, b->ranks, b->wanted)) b->held = 0;
    if (!b->held) balance_best(b->lane_ms, b->ranks, b->lanes, b->wanted);
    if (now_ms < BALANCE_GAIN * balance_longest(b->lane_ms, b->ranks, b->wanted)) b->held = 0;
    else b->held++;
    return b->held >= BALANCE_HOLDS;
}

balance_choice balance_judge(balance *b) {
    balance_choice c = {0};
    if (b->steps < BALANCE_LEAST) return c;
    c.median_ms = judge_lanes(b);
    b->steps = 0;
    for (int k = 1; k < b->ranks; k++)
        if (b->lane_ms[k] > b->lane_ms[c.slowest]) c.slowest = k;
    c.slowest_ms = b->lane_ms[c.slowest];
    c.names = names_slow(b, &c);
    c.now_ms = balance_longest(b->lane_ms, b->ranks, b->deal);
    c.moves = holds(b, c.now_ms);
    c.then_ms = balance_longest(b->lane_ms, b->ranks, b->wanted);
    return c;
}

balance_choice balance_recall(balance *b, const double *lane_ms) {
    balance_choice c = {0};
    int n = 0;
    for (int k = 0; k < b->ranks; k++)
        if (lane_ms[k] > 0) b->scratch[n++] = lane_ms[k];
    if (n == 0) return c;
    c.median_ms = median(b->scratch, n);
    for (int k = 0; k < b->ranks; k++) b->lane_ms[k] = lane_ms[k] > 0 ? lane_ms[k] : c.median_ms;
    balance_best(b->lane_ms, b->ranks, b->lanes, b->wanted);
    c.now_ms = balance_longest(b->lane_ms, b->ranks, b->deal);
    c.then_ms = balance_longest(b->lane_ms, b->ranks, b->wanted);
    c.moves = c.now_ms >= BALANCE_GAIN * c.then_ms;
    return c;
}

void balance_take(balance *b) {
    memcpy(b->deal, b->wanted, (size_t)b->ranks * sizeof *b->deal);
    b->held = 0;
    b->warm = false;
}
