// trainer/node/healing.h: what follows when a rank of this node is lost, while the others live. Facts in, a decision
// with its reason out: nothing here forks, kills or sleeps.
//
//             a rank ends, or leaves                  all are out
//   WHOLE ------------------------------> LEAVING ------------------> OPEN: the lost ones are started again, the others
//     ^                                     |  |                        are given the next world
//     |                                     |  +--- 5 s: KILL what is still in
//     +--------- healing_opened ------------+------ END: the run ends as one that does not heal
//
// A run that must end while its ranks hold what no disk has gets a last world first, in which they save it
// (healing_last). It waits for those that were started again as for any other; one that ends once more stays away.
//
// A rank is lost if a signal killed it, or if it ended with an error that another attempt may not meet (69, 74). It is
// started again at once, then after 1 and 3 s; but not if it was the fourth time in a row without a new step between:
// its device is broken, or the step kills every rank that computes it. Then the run goes on without this place for a
// rank, if it can.
#ifndef TRAINER_NODE_HEALING_H
#define TRAINER_NODE_HEALING_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { HEALING_DEATHS = 4, HEALING_FRUITLESS = 4, HEALING_WHY = 200 };

// NEW: it opens its device and data, and waits then.
// GOING: it is slow, has left the last world, and was told to end.
// RETIRED: it has ended for good, and the run goes on without it.
typedef enum healing_place { SLOT_IN, SLOT_LEFT, SLOT_ENDED, SLOT_NEW, SLOT_GOING, SLOT_RETIRED } healing_place;

typedef struct healing_slot {
    healing_place place;
    bool hung;        // it was killed because it did not leave
    int status;       // of the process that ended, as of wait(2)
    int deaths;       // in a row, each before a step was finished that had not been finished before
    int64_t high;     // of `healing` at the last one
    double ended_at;  // GOING: since when it is to end
} healing_slot;

typedef struct healing {
    int slots;
    bool several;       // nodes: others decide which world follows, and this one starts again what it has lost
    bool began;         // all ranks have been ready once
    int64_t high;       // the highest step that was finished
    int64_t high_then;  // the same, when this world was opened
    int fruitless;      // worlds before this one, in a row, in which no higher step was finished
    double failed_at;   // when the first rank ended or left; 0: all are in
    double out_at;      // and the last one
    int first;          // which one was the first to end, -1: none has
    double last_at;     // since when the next world is to be the last one; 0: it is not
    bool last;          // that world was opened
    healing_slot slot[];
} healing;

healing *healing_new(int slots);  // free it; NULL: no memory

// Facts. began: all ranks are ready for the first time, after that step. step: the last finished one, which goes back
// when a world begins at an older one.
void healing_began(healing *h, int64_t step);
void healing_step(healing *h, int64_t step);
void healing_ended(healing *h, int slot, int status, double now);
void healing_left(healing *h, int slot, double now);
void healing_killed(healing *h, int slot);  // as KILL says; its end follows
void healing_opened(healing *h);

// With several nodes. over: the ranks were told to leave. restarted: a process that opens its device and data.
// waits: this world has no place for it.
void healing_over(healing *h, double now);
void healing_restarted(healing *h, int slot);
void healing_waits(healing *h, int slot);
void healing_retired(healing *h, int slot);  // as RETIRE says, or because the world has no place for one that ended
// It was told to end, and the run goes on without it: it is retired as soon as it has.
void healing_goes(healing *h, int slot, double now);
// The next world is the last.
void healing_last(healing *h, double now);
int healing_slots(const healing *h);    // that are not retired
bool healing_inside(const healing *h);  // is some rank in a world?
bool healing_ready(const healing *h);   // do all wait for one?

typedef enum healing_kind { HEAL_NOTHING, HEAL_WAIT, HEAL_KILL, HEAL_OPEN, HEAL_RETIRE, HEAL_END } healing_kind;

typedef struct healing_choice {
    healing_kind kind;
    double until;  // WAIT: when to choose again, if nothing happens before
    err_t code;    // END: how those that live end; ERR_UNAVAILABLE: with their own error
    int slot;      // RETIRE; END: the cause, -1: none alone
    bool saves;    // END: the state may be in memory alone, and a last world can save it
    char why
        [HEALING_WHY];  // RETIRE, which is an END where no world fits without it; END: what a person should know beside the cause; "": nothing
} healing_choice;

healing_choice healing_choose(const healing *h, double now);

#endif
