// trainer/healed.h: what a loss costs a run that heals: for how long it did not come further, in phases that follow
// each other. Of several losses in a row it is the last one's.
//
//   detect   from the end of a rank, or its last sign of life, until a rank that lives knows it
//   unwind   until all that live have left their world
//   enter    until the next one has met: a lost rank's new process is part of it, and what the nodes decide
//   move     until its ranks have the state, from memory or disk
//   replay   until the step is finished that had been finished before the loss
#ifndef TRAINER_HEALED_H
#define TRAINER_HEALED_H

#include "base/words.h"
#include "trainer/node/yard.h"

#include <stdbool.h>

#define HEALED_WORDS(X) \
    X(HEALED_DETECT, "detect") \
    X(HEALED_UNWIND, "unwind") \
    X(HEALED_ENTER, "enter") \
    X(HEALED_MOVE, "move") \
    X(HEALED_REPLAY, "replay")
typedef enum healed_phase { HEALED_WORDS(WORD_ENUM) HEALED_PHASES } healed_phase;

typedef struct healed_times {
    bool pending;                  // the run is not yet as far as it was
    int64_t high;                  // how far that is: a step
    double at[HEALED_PHASES + 1];  // when the loss was, and when each phase ended. Seconds of clock_now
} healed_times;

// Of a world that has just met: what its supervisor knows of the one before.
void healed_begin(healed_times *h, const yard_news *n, double now);

// A phase ends.
void healed_end(healed_times *h, healed_phase p, double now);

// The run is at `step`. True, once: it is as far again as it was before the loss, and the last phase ends.
bool healed_caught_up(healed_times *h, int64_t step, double now);

// value[i]: of phase i; their sum is the time from the loss to the end of the last phase. Clocks of two processes may
// see two moments in the other order: no phase is negative.
void healed_seconds(const healed_times *h, double value[HEALED_PHASES]);

// "detect 0.000 s, unwind 0.003 s, ...". Returns dst.
enum { HEALED_TEXT = 160 };
const char *healed_text(const healed_times *h, char dst[HEALED_TEXT]);

// Names of the members of an event.
extern const char *const healed_figures[HEALED_PHASES];

#endif
