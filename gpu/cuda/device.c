// gpu/cuda/device.c: a GPU as a device: whether there is one that this binary can use, and what it is.
#include "gpu/cuda/cuda.h"
#include "gpu/cuda/nvml_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- opening ---------------------------------------------------------------------------------------------------------

extern const ops cuda_ops;  // table.c

static void arithmetic(const device *d, char *dst, size_t room) {
    snprintf(dst, room, "%s", ((const cuda_device *)d)->arithmetic);
}

static void close_device(device *d) {
    cuda_device *c = (cuda_device *)d;
    matmul_plans_close(c->plans);
    if (c->sensors) nvml_close(c->sensors);
    free(c->sensors);
    free(d);
}

static const backend cuda_backend = {
    .close = close_device,
    .sense = cuda_sense,
    .memory = cuda_memory,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .stream_open = cuda_stream_open,
    .stream_open_queue = cuda_stream_open_queue,
    .stream_close = cuda_stream_close,
    .stream_wait = cuda_stream_wait,
    .stream_call = cuda_stream_call,
    .stream_native = cuda_stream_native,
    .event_open = cuda_event_open,
    .event_open_timed = cuda_event_open_timed,
    .event_close = cuda_event_close,
    .event_record = cuda_event_record,
    .event_wait = cuda_event_wait,
    .stream_wait_event = cuda_stream_wait_event,
    .event_elapsed = cuda_event_elapsed,
    .copy = cuda_copy,
    .zero = cuda_zero,
    .record_begin = cuda_record_begin,
    .record_end = cuda_record_end,
    .recording_run = cuda_recording_run,
    .recording_close = cuda_recording_close,
    .arithmetic = arithmetic,
    .plans_get = cuda_plans_get,
    .plans_set = cuda_plans_set,
    .plans_tune = cuda_plans_tune,
};

enum { CAPABILITY_LEAST = 80 };  // bf16 mma, cp.async

static err_t describe(cuda_device *d) {
    struct cudaDeviceProp p;
    int driver = 0;
    CUDA(cudaGetDeviceProperties(&p, d->index));
    CUDA(cudaDriverGetVersion(&driver));
    snprintf(d->head.info.name, sizeof d->head.info.name, "cuda:%d %.64s", d->index, p.name);
    if (10 * p.major + p.minor < CAPABILITY_LEAST)
        return err_set(
            ERR_UNAVAILABLE,
            "cuda: device %d (%s) has compute capability %d.%d, expected 8.0 or later (Ampere); set [device] backend = cpu",
            d->index, p.name, p.major, p.minor);
    d->head.info.kind = DEVICE_CUDA;
    d->head.info.threads = 1;
    CUDA(cudaDeviceGetPCIBusId(d->head.info.bus_id, sizeof d->head.info.bus_id, d->index));
    snprintf(d->head.info.choice, sizeof d->head.info.choice,
             "compute capability %d.%d, %d SMs, %.1f GB, driver for CUDA %d.%d", p.major, p.minor,
             p.multiProcessorCount, (double)p.totalGlobalMem / 1e9, driver / 1000, driver % 1000 / 10);
    return ERR_OK;
}

static bool is_set(const char *variable) {
    const char *value = getenv(variable);
    return value && atoi(value) != 0;
}

// Did the driver compile the kernels? The Makefile makes machine code for a processor from PTX for the same processor.
// The driver makes code for the device from the newest PTX in the binary, which is for an older processor: else the
// binary would have machine code that fits. An environment variable can force the driver to compile in any case.
static err_t compiled_here(bool *here) {
    int machine = 0, ptx = 0;
    TRY(cuda_kernel_code(&machine, &ptx));
    *here = machine != ptx || is_set("CUDA_FORCE_PTX_JIT") || is_set("CUDA_FORCE_JIT");
    return ERR_OK;
}

// cuBLASLt has machine code of its own, which its version identifies.
static err_t describe_arithmetic(cuda_device *d) {
    struct cudaDeviceProp p;
    size_t library = matmul_plans_library(d->plans), room = sizeof d->arithmetic;
    bool here;
    int driver = 0;
    CUDA(cudaGetDeviceProperties(&p, d->index));
    CUDA(cudaDriverGetVersion(&driver));
    TRY(compiled_here(&here));
    int n = snprintf(d->arithmetic, room, "cuda sm_%d%d %d SMs cuBLASLt %zu.%zu.%zu", p.major, p.minor,
                     p.multiProcessorCount, library / 10000, library / 100 % 100, library % 100);
    if (here)
        snprintf(d->arithmetic + n, room - (size_t)n, ", driver %d.%d (kernels compiled from PTX)", driver / 1000,
                 driver % 1000 / 10);
    return ERR_OK;
}

// The oldest driver for each major version of the runtime; within a major version any newer minor one will do (NVIDIA,
// "CUDA Compatibility", table 1). A newer driver runs all of them.
enum { DRIVER_NEEDED = CUDART_VERSION >= 13000 ? 580 : 525 };

// The runtime reports "insufficient" also where no driver is installed.
static err_t find_driver(void) {
    int driver = 0, needed = CUDART_VERSION / 1000 * 1000;
    CUDA(cudaDriverGetVersion(&driver));
    if (driver == 0)
        return err_set(
            ERR_UNAVAILABLE,
            "cuda: there is no NVIDIA driver on this machine (libcuda.so.1); install one, or set [device] backend = cpu");
    if (driver >= needed) return ERR_OK;
    return err_set(
        ERR_UNAVAILABLE,
        "cuda: the driver is for CUDA %d.%d, and this binary has the runtime of CUDA %d, which needs driver %d or later; update it, or, for a "
        "data-center GPU, install cuda-compat-%d-0 and name its folder in LD_LIBRARY_PATH, or take a binary that was built with CUDA %d "
        "(make release CUDA_HOME=...), or set [device] backend = cpu",
        driver / 1000, driver % 1000 / 10, needed / 1000, DRIVER_NEEDED, needed / 1000, driver / 1000);
}

// The first call that makes a context: it needs the device to itself or shared, and some memory.
static err_t take(int index) {
    char why[ERR_TEXT], who[CUDA_HOLDERS];
    cudaError_t e = cudaSetDevice(index);
    err_t rc = cuda_status(e, "cudaSetDevice(index)", __FILE__, __LINE__);
    if (e != cudaErrorDevicesUnavailable && e != cudaErrorMemoryAllocation) return rc;
    snprintf(why, sizeof why, "%s", err_last()->text);
    int hint = (int)strcspn(why, ";");  // left out where CUDA was not asked for; the holder's name goes before it
    return err_set(rc, "%.*s%s%s", hint, why, cuda_holders(index, who), why + hint);
}

static err_t open_device(cuda_device *d, const device_options *o) {
    int count = 0;
    d->head = (device){.backend = &cuda_backend, .ops = &cuda_ops};
    d->index = o->index;
    d->check = o->check;
    TRY(find_driver());
    CUDA(cudaGetDeviceCount(&count));
    if (o->index < 0 || o->index >= count)
        return err_set(
            ERR_UNAVAILABLE,
            "cuda: there is no device %d; this process sees %d; lower [device] ranks or see CUDA_VISIBLE_DEVICES",
            o->index, count);
    TRY(take(o->index));
    TRY(describe(d));
    TRY(matmul_plans_open(&d->plans, d));
    return describe_arithmetic(d);
}

int cuda_device_count(void) {
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
    (void)cudaGetLastError();
    return 0;
}

bool cuda_device_bus(int index, char dst[DEVICE_BUS]) {
    if (cudaDeviceGetPCIBusId(dst, DEVICE_BUS, index) == cudaSuccess) return true;
    (void)cudaGetLastError();
    return dst[0] = 0, false;
}

err_t cuda_device_open(device **out, const device_options *o) {
    *out = NULL;
    cuda_device *d = calloc(1, sizeof *d);
    if (!d) return err_set(ERR_INTERNAL, "no memory for a device");
    err_t rc = open_device(d, o);
    if (rc != ERR_OK) {
        matmul_plans_close(d->plans);
        free(d);
        return err_pass(__FILE__, __LINE__, __func__, rc);
    }
    *out = &d->head;
    return ERR_OK;
}
