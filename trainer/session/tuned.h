// trainer/session/tuned.h: [device] plans: a file of matmul plans that `lockstep tune` has measured. Text, for one kind
// of device:
//
//   lockstep plans 1
//   device cuda sm_90 132 SMs cuBLASLt 13.1.0
//   plans 2
//   # 0.412 ms (0.455 the first choice, 24 tried, 1 refused), 612.3 TFLOP/s: matmul (65536,3072,768) bf16 to bf16, ...
//   matmul 2: m 65536 n 3072 ...
//   ...
#ifndef TRAINER_SESSION_TUNED_H
#define TRAINER_SESSION_TUNED_H

#include "gpu/gpu.h"

enum { TUNED_HASH = 17 };

// Sets every plan of the file on the device. hash (=): of the file's bytes, in hex, which stands for them in a
// checkpoint. ERR_CONFIG: made for another device, or refused by this one; ERR_DATA: not such a file, or not whole;
// ERR_IO.
err_t tuned_load(device *d, const char *path, char hash[TUNED_HASH]);

// Writes the file of these, all or nothing.
err_t tuned_save(const device *d, const char *path, const plan_tuning *plan, int plans);

#endif
