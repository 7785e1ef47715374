// gpu/backend.h: what a kind of device must implement for gpu/gpu.h. Included by gpu/ only.
#ifndef GPU_BACKEND_H
#define GPU_BACKEND_H

#include "gpu/gpu.h"
#include "gpu/ops.h"

typedef struct backend {
    void (*close)(device *d);
    err_t (*sense)(device *d, device_sensors *out);
    err_t (*memory)(device *d, int64_t *used, int64_t *total);  // NULL: a CPU, which has none of its own
    err_t (*set_products)(device *d, products p);               // NULL: a GPU, which has FP32 only
    err_t (*alloc)(device *d, memory_kind kind, size_t bytes, void **out);
    void (*free)(device *d, memory_kind kind, void *p, size_t bytes);
    err_t (*stream_open)(device *d, stream **out);
    err_t (*stream_open_queue)(device *d, stream **out);
    void (*stream_close)(stream *s);
    err_t (*stream_call)(stream *s, stream_function fn, const void *ctx, size_t bytes);
    void *(*stream_native)(stream *s);
    err_t (*stream_wait)(stream *s);
    err_t (*event_open)(device *d, event **out);
    err_t (*event_open_timed)(device *d, event **out);
    void (*event_close)(event *e);
    err_t (*event_record)(event *e, stream *s);
    err_t (*event_wait)(event *e);
    err_t (*stream_wait_event)(stream *s, event *e);
    err_t (*event_elapsed)(event *from, event *to, double *ms);
    err_t (*copy)(stream *s, void *dst, const void *src, size_t bytes);
    err_t (*zero)(stream *s, void *dst, size_t bytes);
    // all four NULL: it cannot record
    err_t (*record_begin)(stream *s);
    err_t (*record_end)(stream *s, recording **out);
    err_t (*recording_run)(recording *r, stream *s);
    void (*recording_close)(recording *r);
    // all four NULL: a CPU, whose bits depend on nothing
    void (*arithmetic)(const device *d, char *dst, size_t room);
    bool (*plans_get)(const device *d, int index, char text[DEVICE_PLAN]);
    err_t (*plans_set)(device *d, const char *text);
    err_t (*plans_tune)(device *d, stream *s, const char *text, plan_tuning *out);
} backend;

// Every backend's device, stream and event begin with these, so that gpu/device.c finds the backend.
struct device {
    const backend *backend;
    const ops *ops;
    device_info info;
    struct profile *profile;
};
struct stream_head {
    device *dev;
};
struct event_head {
    device *dev;
};
struct recording_head {
    device *dev;
};

// gpu/cpu/device.c
err_t cpu_device_open(device **out, const device_options *o);
// gpu/cuda/: the real one where nvcc is, else absent.c. ERR_UNAVAILABLE says what is missing.
err_t cuda_device_open(device **out, const device_options *o);
int cuda_device_count(void);
bool cuda_device_bus(int index, char dst[DEVICE_BUS]);

// gpu/profile.c: the table and the calls of a device that has a profile.
extern const ops profile_ops;
err_t profile_open(device *d);
void profile_close(device *d);
err_t profile_copy(stream *s, void *dst, const void *src, size_t bytes);
err_t profile_zero(stream *s, void *dst, size_t bytes);

#endif
