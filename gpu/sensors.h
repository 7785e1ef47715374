// gpu/sensors.h: devices seen from outside, by a process that computes nothing there and never initialises CUDA. In
// every build; the driver's library is opened at run time.
#ifndef GPU_SENSORS_H
#define GPU_SENSORS_H

#include "gpu/gpu.h"

typedef struct gpu_sensors gpu_sensors;

// NaN, or -1 of whole numbers: not known.
typedef struct gpu_reading {
    device_sensors of;
    double utilisation;   // share of the last second or so in which some kernel ran, 0 to 1
    double limit_watts;   // its power cap
    int64_t used, total;  // bytes of memory: in use, by anyone; in all
} gpu_reading;

// bus_id: as device_about gives it, whatever CUDA_VISIBLE_DEVICES says. library: of NVML, NULL: where the driver puts
// it. ERR_UNAVAILABLE: the library is not installed, or knows no such GPU.
err_t gpu_sensors_open(gpu_sensors **out, const char *bus_id, const char *library);
void gpu_sensors_close(gpu_sensors *g);

// What names it whatever its bus, "GPU-...": "" where not known.
const char *gpu_sensors_uuid(const gpu_sensors *g);

// Never waits for work of the GPU; takes up to some ms. ERR_UNAVAILABLE: nothing is known, and why; *out then says so
// too.
err_t gpu_sensors_read(const gpu_sensors *g, gpu_reading *out);

// The machine's processors, all together: only their energy is known, and mostly to root alone. root: of the machine's
// files, "" for this one. ERR_UNAVAILABLE says what is missing, or who may read it.
typedef struct cpu_sensors cpu_sensors;
err_t cpu_sensors_open(cpu_sensors **out, const char *root);
void cpu_sensors_close(cpu_sensors *c);

// Used since it was opened. Call it at least once a minute: the counter wraps around.
err_t cpu_sensors_joules(cpu_sensors *c, double *joules);

#endif
