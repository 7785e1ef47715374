// trainer/step/finish.h: the last actions of a step: the sums of squares of the gradient, what the ranks tell each
// other, the decision and the update. All is queued, and nothing is waited for but where the host updates.
#ifndef TRAINER_STEP_FINISH_H
#define TRAINER_STEP_FINISH_H

#include "trainer/step/runner.h"

void finish_open(step_runner *r);
void finish_close(step_runner *r);

// The gradients of tied rows that are both here become one.
err_t finish_tied(step_runner *r);

// Sums of squares of what this rank owns, of the tied sum. The places of other ranks stay zero.
err_t finish_squares(step_runner *r);

// This rank's report, and then all ranks' sums of squares, losses and reports on all of them.
err_t finish_share(step_runner *r, const result_slot *to);

// The device decides overflow, clipping and the loss scale; then what this rank owns is updated.
err_t finish_update(step_runner *r, const result_slot *to);

#endif
