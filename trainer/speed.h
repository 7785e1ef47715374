// trainer/speed.h: model flops utilization (MFU): the part of what the devices could compute that a run makes of them.
//
//   mfu = flops of a step / (its time * peak of all ranks)
//
// Flops are the model's, multiplications and additions of matrix products and attention, forward and backward, of the
// step's samples (model.flops: 6 for each weight and token, and those of attention under the diagonal). What
// recomputation does again does not count (Chowdhery et al. 2022, appendix B). The peak is measured, not read from a
// data sheet: the best of a few large matrix products of the run's type, on each rank's device with all of its threads,
// while the other ranks measure too; so ranks that share processors share their peak.
#ifndef TRAINER_SPEED_H
#define TRAINER_SPEED_H

#include "trainer/session/session.h"

typedef struct speed {
    double flops;  // of a step, by all ranks
    double peak;   // FLOP/s of all ranks; 0: not known
    int statm;     // /proc/self/statm, -1: there is none
    int64_t page;  // bytes
} speed;

// Measures, on a device of its own, which is closed afterwards: neither plans nor buffers of the run's device know of
// it. Takes about 10 ms on a CPU, at most SPEED_S. Collective. A peak that can't be measured is not an error.
err_t speed_open(speed *v, const session *x, int local);
void speed_close(speed *v);

// Whether [precision] products = bf16-pairs would make a new run faster on this processor, which it then says in one
// line.
enum { SPEED_FASTER = 192 };
bool speed_faster(const session *x, char dst[SPEED_FASTER]);

// Of a step that took so many ms. NaN: not known.
double speed_mfu(const speed *v, double ms);

// Of this process: resident memory, and memory in use on its GPU. 0: not known. No heap call.
int64_t speed_resident(const speed *v);
int64_t speed_device_bytes(const session *x);

#endif
