// trainer/figures.h: what an evaluation of a run measures.
#ifndef TRAINER_FIGURES_H
#define TRAINER_FIGURES_H

#include "trainer/session/session.h"

enum {
    // of validation data, beside its loss, and of a text and questions
    FIGURES_BESIDE = MODEL_METRICS + 4,
    FIGURES_OF_SET = MODEL_METRICS + 2,
    FIGURES_MOST = FIGURES_BESIDE + SETS_MOST * FIGURES_OF_SET,
    FIGURE_NAME = SET_NAME + 24
};

// What an evaluation measures beside the loss, by name; of a named set as "code.loss".
typedef struct figures {
    int count;
    const char *name[FIGURES_MOST];
    double value[FIGURES_MOST];
    char word[FIGURES_MOST][FIGURE_NAME];  // names that were put together
    double decides;                        // the loss that says what is best ([eval] best_of); NaN: there is none
} figures;

// All that the settings ask for. Without validation data there is no loss: NaN. Collective.
err_t figures_measure(session *x, evaluation *e, figures *f);

#endif
