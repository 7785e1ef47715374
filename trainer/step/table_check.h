// trainer/step/table_check.h: can a rank run its table's units in their order? A table can break that alone: by a unit
// that needs what a later one makes, or a buffer that a later one frees. What ranks break together, say by messages in
// another order, trainer/step/simulate.h finds.
#ifndef TRAINER_STEP_TABLE_CHECK_H
#define TRAINER_STEP_TABLE_CHECK_H

#include "trainer/step/pipeline.h"

// ERR_INTERNAL: no memory; or the unit that can't run, and what it waits for; or the receive that is posted before its
// buffer is free.
err_t table_check(const pipeline_layout *l, int rank, const unit_table *t);

#endif
