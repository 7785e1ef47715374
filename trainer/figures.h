// trainer/figures.h: what an evaluation of a run measures.
#ifndef TRAINER_FIGURES_H
#define TRAINER_FIGURES_H

#include "trainer/session.h"

// What an evaluation measures beside the loss, by name.
typedef struct figures {
    int count;
    const char *name[MODEL_METRICS + 4];
    double value[MODEL_METRICS + 4];
} figures;

// All that the settings ask for. Without validation data there is no loss: NaN. Collective.
err_t figures_measure(session *x, evaluation *e, figures *f);

#endif
