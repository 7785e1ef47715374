// gpu/nvlinks.h: which GPUs of a machine NVLink joins, seen from outside: in every build, by the driver's library. GPUs
// are joined by links between the two, or by links of both to switches. What is joined to the same is one group.
#ifndef GPU_NVLINKS_H
#define GPU_NVLINKS_H

#include "gpu/gpu.h"

enum { NVLINKS_GPUS = 64 };

typedef struct nvlinks {
    int n;
    int up[NVLINKS_GPUS], down[NVLINKS_GPUS];  // links of each that work, and that are there and do not
    int to[NVLINKS_GPUS][NVLINKS_GPUS];        // of those that work: between two of these GPUs, and
    int switched[NVLINKS_GPUS];                // to switches; the rest lead to GPUs that are not listed
    int group[NVLINKS_GPUS];                   // counted from 0, in order of their first GPUs
    int groups;
} nvlinks;

// bus: addresses as device_bus has them. library: of NVML, NULL: where the driver puts it. A GPU that has no NVLink, or
// a driver that does not know of it, has none. ERR_UNAVAILABLE: the library is not installed, or knows no such GPU.
err_t nvlinks_read(nvlinks *out, int n, const char (*bus)[DEVICE_BUS], const char *library);

// Fills in the groups, from all else.
void nvlinks_group(nvlinks *x);

// How many neighbours each group has, where all have as many and are more than one group; else 0.
int nvlinks_joined(const nvlinks *x);

// How many working links most GPUs that have any have; of two such numbers, the larger. One with fewer is not as it
// should be.
int nvlinks_equal(const nvlinks *x);

#endif
