// gpu/cpu/cpu.h: what the parts of the CPU device know of each other.
#ifndef GPU_CPU_CPU_H
#define GPU_CPU_CPU_H

#include "gpu/cpu/pool.h"
#include "gpu/gpu.h"
#include "gpu/ops.h"

struct stream {
    device *dev;
    pool *workers;
};

// One table for each vector width, made by compiling gpu/cpu/kernel/ once for each: the same source, the same bits.
extern const ops cpu_ops_portable;
#if defined(__x86_64__)
extern const ops cpu_ops_avx2;
extern const ops cpu_ops_avx512;
#endif

#endif
