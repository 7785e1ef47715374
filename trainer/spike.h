// trainer/spike.h: [optimizer] rollback: a loss that leaps up, and what follows. Data that is broken, or an update that
// went too far, shows in losses far above those before, several steps in a row. Then the run goes back to a state from
// before them and leaves their data out:
//
//   step    410   411   412   413   414                   410  415  416
//   loss    1.93  1.91  8.40  8.37  8.31   goes back to   ...  1.92 1.90
//                       |<-- far --->|     410 or before  ...  412 to 414 are left out
//
// A step that is left out consumes its data and its number, and nothing else: no update, not Adam's t. No state of a
// step with a far loss is stored, so the newest one that there is will do, whichever it is: the steps from there to the
// first far one are computed again, to the same bits. All of it follows from losses, which all ranks share, and from
// the counters (checkpoint/progress.h), so a run that is resumed, healed or arranged otherwise decides alike.
#ifndef TRAINER_SPIKE_H
#define TRAINER_SPIKE_H

#include "trainer/checkpoint/progress.h"

// So many steps in a row; of fewer losses than SPIKE_LEAST the median says little.
enum { SPIKE_STEPS = 3, SPIKE_LEAST = 16 };

// Of the losses lately; NAN: too few are known.
double spike_median(const run_progress *at);

// Counts the loss of a step that was computed. times: [optimizer] rollback, 0: nothing is counted. True: the run is to
// go back, since the last SPIKE_STEPS losses were far, or not finite.
bool spike_step(run_progress *at, double times, double loss);

// After the run has gone back to a state of its own past. was: how it was after step `last`, the last far one.
void spike_leave_out(run_progress *at, const run_progress *was, int64_t last);

// Is the step to be left out? Then the last one of its range; 0: it is not.
int64_t spike_skips(const run_progress *at, int64_t step);

#endif
