// trainer/evict.h: is one rank so much slower than the others, for so long, that a run is better off without it? A rank
// is compared with those that compute the same stage, and leaves with its unit: alone, or with all ranks of its node.
//
//   times as slow as the median of the others
//     3 |-------####---####--------   slow: the time that it computes counts
//     2 |------#    ###    #-------   between: what was counted stands
//       |######             ######    well: what was counted is forgotten
//
// Times come from the reports that all ranks read, so all come to the same answer without asking each other.
#ifndef TRAINER_EVICT_H
#define TRAINER_EVICT_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

// Of a window of so many steps a rank's median counts: one slow step, or four, say nothing.
enum { EVICT_STEPS = 10, EVICT_WINDOWS = 2 };
#define EVICT_SLOW 3.0
#define EVICT_WELL 2.0
#define EVICT_GAIN 1.08  // times that a step must take with it what it would take without it

// Who computes what. Arrays of `world`.
typedef struct evict_ranks {
    int world;
    const int *stage;  // only ranks of one stage are compared
    const int *unit;   // who leaves together has the same number
    const int *place;  // of those that share the lanes, 0 .. data - 1
    int data;
    int workers;  // how many of these may have lanes: the first ones; 0: all
} evict_ranks;

typedef struct evict {
    evict_ranks of;  // copies
    int *numbers;    // their memory
    double limit_s;
    double *ms;     // (EVICT_STEPS, world) for each lane, of the window's steps; 0: the rank has no lanes
    double *whole;  // (EVICT_STEPS, world) for all of them
    int steps;      // in the window so far
    double *times;  // [world] of the last window: as slow as the median of the others; 0: not known
    double *scratch;
    bool warm;      // the first step reads its data late
    int suspect;    // the rank that was slow in the last windows; -1: none
    int windows;    // so many
    double slow_s;  // that it has computed in them
    bool asked;     // this was said
} evict;

typedef struct evict_choice {
    bool asks;       // the suspect has been slow for long enough, which was not said before
    bool withdraws;  // and is not any more, or another one is slower
    int rank;
    double times, slow_s;
} evict_choice;

err_t evict_open(evict *e, const evict_ranks *of, double limit_s);
void evict_close(evict *e);

// What each rank computed in a step, in milliseconds, and how many lanes each place has. A step that some rank did not
// time is ignored. True: the window is full.
bool evict_add(evict *e, const double *ms, const int64_t *deal);

// At the end of a window, which then begins anew.
evict_choice evict_judge(evict *e);

// What the slowest place computes in a step, in lanes of the median rank: with `rank`, and without it, where `width`
// places share the lanes. balanced: lanes are dealt by speed, else as `deal` says.
typedef struct evict_cost {
    double with, without;
} evict_cost;
evict_cost evict_compare(const evict *e, int rank, const int64_t *deal, int width, bool balanced);

// Is it worth it? width 0: no world fits without the rank.
static inline bool evict_pays(evict_cost c, int width) { return width > 0 && c.with >= EVICT_GAIN * c.without; }

#endif
