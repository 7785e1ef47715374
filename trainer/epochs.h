// trainer/epochs.h: a run whose length is given as epochs of its data ([run] epochs) instead of steps.
#ifndef TRAINER_EPOCHS_H
#define TRAINER_EPOCHS_H

#include "trainer/config/config.h"

// Counts the samples of [data] train and sets run.steps to as many steps as the epochs take, rounded up, and what
// follows from it, such as the schedule's length; run.epochs is 0 then, as if the steps had been given, and
// resolved.epochs and resolved.epoch_steps say what was. Does nothing where steps were given. ERR_CONFIG: there are
// no data to count, or they have no epochs, or a rule does not hold for so many steps.
err_t epochs_settle(config *c);

#endif
