// gpu/profile.h: where the time goes. A device that is opened with device_options.profile wraps its table of operations
// in one that measures each call, and counts by its shapes what it must move and compute. Callers see no difference.
//
// On a CPU a call's time is that of the calling thread. On a GPU it is the GPU's own, between two events. There the
// host waits after each call and makes no recordings, so that nothing overlaps: a step takes longer than without the
// profile.
#ifndef GPU_PROFILE_H
#define GPU_PROFILE_H

#include "gpu/gpu.h"

enum { PROFILE_LINES = 256, PROFILE_SHAPE = 64 };

// All calls of one operation with one shape.
typedef struct profile_line {
    const char *op;             // as in gpu/ops.h; "copy", "zero"
    char shape[PROFILE_SHAPE];  // "1024x3072x768 bf16 bias gelu"
    dtype type;                 // of its inputs
    int64_t size[4];            // with type and options the shape, as in gpu/cost.h; of "others" 0
    unsigned options;
    int64_t calls;
    double seconds;       // these are sums over the calls
    double squares;       // of seconds, of each call
    double bytes, flops;  // that must move and be computed: each operand once, what is added to twice, no scratch
} profile_line;

// NULL: the device is not profiled.
typedef struct profile profile;
profile *device_profile(device *d);

// Forgets what was measured so far.
void profile_clear(profile *p);

// Copies the lines to out, slowest first, and returns how many there are. Calls beyond PROFILE_LINES shapes share one
// line, "others".
int profile_read(profile *p, profile_line out[PROFILE_LINES]);

#endif
