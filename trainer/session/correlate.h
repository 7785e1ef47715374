// trainer/session/correlate.h: how well numbers that a model says go with those that are right.
#ifndef TRAINER_SESSION_CORRELATE_H
#define TRAINER_SESSION_CORRELATE_H

#include "base/err.h"

#include <stdint.h>

// Pearson's correlation of x and y (n), and Spearman's: Pearson's of their ranks, where equal numbers share the mean of
// theirs. Sums are doubles, in order of index. NAN: of fewer than two, where all of x or all of y are equal, or one is
// not finite.
err_t correlate(const double *x, const double *y, int64_t n, double *pearson, double *spearman);

#endif
