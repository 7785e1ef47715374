// trainer/step/outer_deltas.h: how far islands have gone from the anchor, on its way between them
// (trainer/step/outer.h): an island codes its deltas, each piece's owner adds them up and codes the sum, and all
// islands take what that says. Without [outer] compress deltas travel as they are.
#ifndef TRAINER_STEP_OUTER_DELTAS_H
#define TRAINER_STEP_OUTER_DELTAS_H

#include "trainer/step/state.h"

// Of a fragment: codes this island's deltas and sends them. With overlap they travel beside the compute stream, on
// which this only queues; without it their sums are here when this returns. Collective among islands.
err_t deltas_send(train_state *t, int fragment);

// Of a fragment whose sums have come without overlap: steps the anchor by their means, and the masters begin from it.
err_t deltas_use(train_state *t, int fragment);

// With overlap. Waits for what a fragment has sent, if that is still on its way, and keeps the means (state_flight): as
// a checkpoint has them. And what deltas_use does, with these; nothing of them is left.
err_t deltas_keep(train_state *t, int fragment);
err_t deltas_land(train_state *t, int fragment);

// What this rank sends to other islands for a fragment.
comm_cost deltas_cost(const train_state *t, int fragment);

// y = anchor - x, of a piece. A step of the anchor by such a delta, or a mean of them, and what the masters become.
err_t deltas_take(train_state *t, const zero_piece *p, const tensor *x, tensor *y);
err_t deltas_step(train_state *t, const zero_piece *p, const tensor *delta);

#endif
