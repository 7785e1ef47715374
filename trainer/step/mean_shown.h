// trainer/step/mean_shown.h: the mean of the weights ([optimizer] ema) in the place of the weights, for an evaluation
// or a sample of a run ([eval] weights = ema):
//
//   show    aside = masters;  masters = mean * factor;  the weights in use follow, on all ranks
//   hide    masters = aside;  the weights in use follow
//
// So the masters have their bits again, and the mean is only read. The weights in use are rounded from the masters as
// they are where a run goes on from a checkpoint, which gives them the bits that they had.
#ifndef TRAINER_STEP_MEAN_SHOWN_H
#define TRAINER_STEP_MEAN_SHOWN_H

#include "trainer/step/state.h"

// Between two steps, when nothing is in flight. Collective. Nothing happens unless the state was opened with
// shows_mean; before the first update there is no mean, and the weights stay. mean_hide follows every mean_show.
err_t mean_show(train_state *t);
err_t mean_hide(train_state *t);

#endif
