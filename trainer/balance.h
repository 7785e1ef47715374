// trainer/balance.h: how many lanes each rank should have, by what a lane takes there. A step takes as long as the rank
// with the most work, so a rank at half speed should have half as many lanes as the others:
//
//   lanes  8 8 8 8   ms a lane  10 10 10 20   a step  160 ms
//          9 9 9 5                                    100 ms
//
// Times come from the reports that all ranks read, and everything here follows from them alone, so all ranks decide the
// same without asking each other. A deal changes no result, only times.
#ifndef TRAINER_BALANCE_H
#define TRAINER_BALANCE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Another deal is not worth much less than BALANCE_GAIN, and one window may have been disturbed: the same deal must
// promise that much in BALANCE_HOLDS windows of BALANCE_STEPS steps in a row. Of a window a rank's median step counts.
enum { BALANCE_STEPS = 10, BALANCE_LEAST = 5, BALANCE_HOLDS = 2, BALANCE_SLOW_WINDOWS = 3 };
#define BALANCE_GAIN 1.08
#define BALANCE_SLOW 3.0  // times the median rank's time of a lane, so many windows in a row: such a rank is named

typedef struct balance {
    int ranks;  // that share the lanes
    int64_t lanes;
    int64_t *deal;    // [ranks] the present one
    int64_t *wanted;  // [ranks] what the windows before this one asked for
    int held;         // so many of them in a row
    double *ms;       // (BALANCE_STEPS, ranks) of the window's steps
    int steps;        // in it so far
    double *lane_ms;  // [ranks] of the last window that was judged: median, for each lane
    double *scratch;  // [BALANCE_STEPS + ranks]
    int slow;         // the rank that was slow in the last windows, -1: none
    int slow_windows;
    bool warm;  // the first step after another deal reads its data late
} balance;

typedef struct balance_choice {
    bool moves;                    // to balance.wanted, which balance_take makes the present deal
    double now_ms, then_ms;        // what the slowest rank computes in a step, now and with the best deal
    int slowest;                   // rank with the longest time of a lane
    double slowest_ms, median_ms;  // of a lane there, and on the median rank
    bool names;                    // it stays BALANCE_SLOW times as slow, and was not named yet
} balance_choice;

err_t balance_open(balance *b, int ranks, int64_t lanes, const int64_t *deal);
void balance_close(balance *b);

// What each rank computed in a step, in milliseconds. A step that some rank did not time is ignored.
void balance_add(balance *b, const double *ms);

// Before the first window: what follows from what is known of each rank, lane_ms [ranks], 0: nothing.
balance_choice balance_recall(balance *b, const double *lane_ms);

// At the end of a window, which then begins anew.
balance_choice balance_judge(balance *b);
void balance_take(balance *b);

// deal [ranks] (=) whole lanes, at least one for each rank, whose longest time is the shortest that there is. lanes >=
// ranks.
void balance_best(const double *lane_ms, int ranks, int64_t lanes, int64_t *deal);

// The longest time of a deal.
double balance_longest(const double *lane_ms, int ranks, const int64_t *deal);

// "9,9,9,5", cut to fit. Returns dst.
const char *balance_text(const int64_t *deal, int ranks, char *dst, size_t room);

#endif
