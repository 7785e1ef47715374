// trainer/step/sync.h: policies of synchronisation. How the ranks' gradients become one sum, and where the weights are
// while they are used. ZeRO's stages and [reduce] order each choose one; nothing else asks for them.
#ifndef TRAINER_STEP_SYNC_H
#define TRAINER_STEP_SYNC_H

#include "trainer/step/parallel.h"

extern const gradient_policy gradients_fixed;   // gradients_fixed.c: along the tree of lanes, whatever the layout
extern const gradient_policy gradients_packed;  // gradients_packed.c: the same, each lane in codes of few bits
extern const gradient_policy gradients_any;     // gradients_any.c: in the transport's order
extern const gradient_policy gradients_pushed;  // served_wire.c: to servers that apply them one by one

extern const weight_policy weights_whole;     // weights_spread.c: every rank updates all of them (ZeRO 0)
extern const weight_policy weights_spread;    // weights_spread.c: owners update, and send to all (ZeRO 1, 2)
extern const weight_policy weights_pulled;    // served_wire.c: from these servers
extern const weight_policy weights_gathered;  // weights_gathered.c: a block at a time, just before use (ZeRO 3)

const gradient_policy *sync_gradients(const train_state *t);
const weight_policy *sync_weights(const train_state *t);

#endif
