// trainer/step/finish.h: the last actions of a step: the sums of squares of the gradient, the numbers that all ranks
// share, the decision and the update. All is queued; the host waits only if it updates weights itself.
#ifndef TRAINER_STEP_FINISH_H
#define TRAINER_STEP_FINISH_H

#include "trainer/step/runner.h"

void finish_open(step_runner *r);
void finish_close(step_runner *r);

// The gradients of tied rows that are both here become one.
err_t finish_tied(step_runner *r);

// Sums of squares of the masters that this rank owns and that decay. Those of others stay zero.
err_t finish_masters(step_runner *r);

// Sums of squares of what this rank owns, of the tied sum. Those of other ranks stay zero.
err_t finish_squares(step_runner *r);

// Sends this rank's times; then all ranks have all sums of squares, losses and times.
err_t finish_share(step_runner *r, const result_slot *to);

// Of a server that applies gradients as they come (trainer/step/served.h), whose step_state the host reads. The
// gradients of tied rows become one; out (=) the sum of squares of what this rank owns. Then, with that of all servers:
// the decision, and the update.
err_t finish_pushed_squares(step_runner *r, double *out);
err_t finish_pushed(step_runner *r, double squares, double lr);

// The device decides overflow, clipping and the loss scale; then what this rank owns is updated.
err_t finish_update(step_runner *r, const result_slot *to);

#endif
