// trainer/step/spread.h: what owners send to all ranks after an update, for the policies of weights.
#ifndef TRAINER_STEP_SPREAD_H
#define TRAINER_STEP_SPREAD_H

#include "trainer/step/parallel.h"

// New values of what the block uses are here: those of segments that are `fresh`.
err_t spread_need(parallel *x, int block);

// A segment's rows whose values are FP32 in 16-bit passes (train_state.exact), from all ranks, if it has any; and what
// this costs, of all segments.
err_t spread_exact(parallel *x, int segment, int64_t turn, stream *inner);
comm_cost spread_exact_cost(train_state *t);

#endif
