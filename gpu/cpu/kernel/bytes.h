// gpu/cpu/kernel/bytes.h: sixteen small whole numbers, stored as bytes.
#ifndef GPU_CPU_KERNEL_BYTES_H
#define GPU_CPU_KERNEL_BYTES_H

#include "gpu/cpu/kernel/typed.h"

// n of them, at most VL; the lanes after those are 0.
BODY vf bytes_load_n(const uint8_t *p, int64_t n) {
    float lane[VL] = {0};
    if (n >= VL)
        for (int i = 0; i < VL; i++) lane[i] = (float)p[i];
    else
        for (int64_t i = 0; i < n; i++) lane[i] = (float)p[i];
    return vf_load(lane);
}

BODY void bytes_store_n(uint8_t *p, vf v, int64_t n) {
    float lane[VL];
    vf_store(lane, v);
    if (n >= VL)
        for (int i = 0; i < VL; i++) p[i] = (uint8_t)(int)lane[i];
    else
        for (int64_t i = 0; i < n; i++) p[i] = (uint8_t)(int)lane[i];
}

#endif
