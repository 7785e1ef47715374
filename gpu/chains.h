// gpu/chains.h: chains of multiply-adds on registers alone. They tell how fast a processor's instructions are.
#ifndef GPU_CHAINS_H
#define GPU_CHAINS_H

#include <stdbool.h>

typedef enum chain_kind {
    CHAIN_FMA,    // the widest fused multiply-add of FP32
    CHAIN_PAIRS,  // VDPBF16PS: two multiply-adds of BF16 numbers a lane
} chain_kind;

// Runs enough chains to hide the latency, `turns` long. Returns how many multiply-adds that were; 0: this processor
// lacks the instruction. *sum: the result, or the compiler would remove the work.
double chains_run(chain_kind kind, int turns, float *sum);

// Does VDPBF16PS do more multiply-adds a second than FMAs? Zen 4 and Zen 5 do twice as many, an Emerald Rapids half as
// many (measured). Takes some 0.1 ms. False where the processor lacks it.
bool chains_pairs_pay(void);

#endif
