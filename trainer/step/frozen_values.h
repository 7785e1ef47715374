// trainer/step/frozen_values.h: the values of frozen rows, from files or from chance, and their hash.
#ifndef TRAINER_STEP_FROZEN_VALUES_H
#define TRAINER_STEP_FROZEN_VALUES_H

#include "trainer/step/state.h"

// After state_commit. path NULL: random values, as a model without adapters begins with. Then t->frozen.hash is the
// same on all ranks, in every layout. Collective.
err_t frozen_read(train_state *t, const char *path, const void *options, unsigned lenient, uint64_t seed);

#endif
