// trainer/step/arithmetic.h: that all ranks compute the same bits, as far as it does not follow from the settings. What their devices say of themselves is
// compared when they meet (comm/transport.h); here, what they chose since.
#ifndef TRAINER_STEP_ARITHMETIC_H
#define TRAINER_STEP_ARITHMETIC_H

#include "comm/comm.h"

// Collective. Rank 0's plans (gpu/gpu.h) are everybody's: who has none for a shape takes over rank 0's, and from now on all of them are kept. ERR_CONFIG,
// on all ranks, names a rank that has chosen otherwise, the plan, and both choices. The host waits; nothing else may be under way between the ranks.
err_t arithmetic_confirm(device *d, comm *ranks, stream *s);

#endif
