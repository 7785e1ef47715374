// trainer/report/plots.h: which charts a page has.
#ifndef TRAINER_REPORT_PLOTS_H
#define TRAINER_REPORT_PLOTS_H

#include "trainer/report/chart.h"

// All charts that these runs have data for. Several runs are drawn over each other, each in its colour.
void plots_draw(text *h, runlog *const *runs, int n);

#endif
