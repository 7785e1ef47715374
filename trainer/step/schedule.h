// trainer/step/schedule.h: the learning rate as a function of the step.
#ifndef TRAINER_STEP_SCHEDULE_H
#define TRAINER_STEP_SCHEDULE_H

#include "trainer/config/config.h"

// Learning rate of a step (from 1). Warm-up rises linearly to lr at step `warmup` (-1: none). Then, until `decay_steps`
// (and constant after that):
//   constant  lr
//   linear    from lr to lr * final_fraction on a straight line
//   cosine    the same end points on half a cosine (Loshchilov & Hutter 2017, eq. 5)
//   wsd       warm-up, stable, decay: lr for 80 % of decay_steps, then linear (Hu et al. 2024, section 4)
double schedule_lr(const config *c, int64_t step);

#endif
