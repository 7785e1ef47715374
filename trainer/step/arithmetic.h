// trainer/step/arithmetic.h: checks that all ranks compute the same bits, where the settings do not ensure it. The
// ranks compare their devices when they connect (comm/transport.h); here they compare the plans that they chose since.
#ifndef TRAINER_STEP_ARITHMETIC_H
#define TRAINER_STEP_ARITHMETIC_H

#include "comm/comm.h"

// Collective. All ranks use rank 0's plans (gpu/gpu.h): a rank without a plan for a shape takes rank 0's, and from now
// on all of them are kept. ERR_CONFIG, on all ranks, names a rank that chose differently, the plan, and both choices.
// The host waits; no other communication may be in flight.
err_t arithmetic_confirm(device *d, comm *ranks, stream *s);

#endif
