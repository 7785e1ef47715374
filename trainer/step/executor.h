// trainer/step/executor.h: runs a list of actions (trainer/step/action.h).
#ifndef TRAINER_STEP_EXECUTOR_H
#define TRAINER_STEP_EXECUTOR_H

#include "trainer/step/runner.h"

// The layout of a run.
action_layout executor_layout(const step_runner *r);

// Runs the step's actions up to the first of this kind; ACTION_KINDS: all. A rank whose data fails goes on without
// samples, so that the others can end the step; r->inputs.failed says why.
err_t executor_run(step_runner *r, action_kind until, loader *data, int64_t step);

// A pass of B samples without gradients: inputs and memory are the runner's.
pass executor_pass(step_runner *r, int64_t B);

// A forward pass of all blocks. p = NULL: this rank has no samples, but other ranks need its weights.
err_t executor_forward(step_runner *r, pass *p);

#endif
