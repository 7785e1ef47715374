// trainer/step/mean.h: a mean of the weights ([optimizer] ema), in which older steps count less: Kingma & Ba 2015,
// section 7.2. It begins as 0, and each applied update adds
//   mean += (1 - ema) * (master - mean)
// after the master was changed. So after n updates it is too small by 1 - ema^n, and who reads it divides by that.
// It is an array like those that the optimizer keeps, and lies where these do.
#ifndef TRAINER_STEP_MEAN_H
#define TRAINER_STEP_MEAN_H

#include <math.h>
#include <stdint.h>

#define MEAN_NAME "ema"  // in a checkpoint

// The share of the newest weights, as the update takes it.
static inline float mean_share(double ema) { return (float)(1 - ema); }

// What the mean is multiplied by after so many updates, at least one.
static inline float mean_factor(double ema, int64_t updates) {
    return (float)(1 / (1 - pow(1 - (double)mean_share(ema), (double)updates)));
}

#endif
