// trainer/step/tied.h: a tensor that two stages of a pipeline use. The first one owns it (the embedding); the last one
// has a copy of its values and a gradient of its own (the head).
//
//   first stage                              last stage
//                        <--- gradient ---   of the head, summed over lanes as any other
//   embedding's + head's, norm, update
//                        ---  values  --->   the copy
//
// Between a rank of the first stage and the one of the last with the same share: whole tensors where every rank updates
// all, else only the range that both own; the last stage's ranks then gather the copy among each other.
#ifndef TRAINER_STEP_TIED_H
#define TRAINER_STEP_TIED_H

#include "comm/cost.h"
#include "trainer/step/state.h"

// Nothing where no tensor is shared. Collective among the ranks of both stages. Queued on s.
// before the sums of squares, when all is reduced: the first stage adds the last one's
err_t tied_gradients(train_state *t, stream *s);
err_t tied_values(train_state *t, stream *s);  // after the update

// What this rank sends for them in a step: to the other stage, and among the last stage's ranks.
typedef struct tied_costs {
    comm_cost link, gather;
} tied_costs;
tied_costs tied_cost(train_state *t);

#endif
