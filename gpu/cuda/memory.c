// gpu/cuda/memory.c: a GPU's memory, its sensors, what its failures mean, and which other processes hold it.
#include "gpu/cuda/cuda.h"
#include "gpu/cuda/nvml_api.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- failures --------------------------------------------------------------------------------------------------------

typedef struct meaning {
    cudaError_t status;
    err_t code;
    const char *hint;
} meaning;

static const meaning meanings[] = {
    {cudaErrorMemoryAllocation, ERR_UNAVAILABLE,
     "the device has no memory left: lower [batch] micro, or see who else uses it (nvidia-smi)"},
    {cudaErrorInsufficientDriver, ERR_UNAVAILABLE,
     "the driver is older than this binary needs: update it, or set [device] backend = cpu"},
    {cudaErrorNoDevice, ERR_UNAVAILABLE,
     "no GPU is visible: see nvidia-smi and CUDA_VISIBLE_DEVICES, or set [device] backend = cpu"},
    {cudaErrorDevicesUnavailable, ERR_UNAVAILABLE,
     "another process has the GPU to itself (compute mode exclusive): nvidia-smi names it"},
    {cudaErrorSystemDriverMismatch, ERR_UNAVAILABLE,
     "driver and its libraries are of two versions: reboot after an update of the driver"},
    {cudaErrorNoKernelImageForDevice, ERR_UNAVAILABLE,
     "this binary has no code for this GPU: build it with make ARCH=<compute capability>"},
    {cudaErrorUnsupportedPtxVersion, ERR_UNAVAILABLE,
     "the driver is too old for this binary's PTX: update it, or build with make ARCH=<compute capability>"},
    {cudaErrorECCUncorrectable, ERR_UNAVAILABLE,
     "the GPU's memory lost a bit that it could not restore: reset or replace it (nvidia-smi -q -d ECC)"},
    {cudaErrorHardwareStackError, ERR_UNAVAILABLE, "the GPU failed: see the kernel's log for Xid messages (dmesg)"},
};

err_t cuda_status(cudaError_t e, const char *call, const char *file, int line) {
    if (e == cudaSuccess) return ERR_OK;
    (void)cudaGetLastError();  // so that a later call does not find this one's
    const char *name = cudaGetErrorName(e), *words = cudaGetErrorString(e);
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        if (meanings[i].status == e)
            return err_set_at(file, line, call, meanings[i].code, "cuda: %s: %s (%s); %s", call, name, words,
                              meanings[i].hint);
    return err_set_at(file, line, call, ERR_INTERNAL, "cuda: %s: %s (%s)", call, name, words);
}

// --- who holds it, and its sensors -----------------------------------------------------------------------------------

// NVML has its own device numbers and ignores CUDA_VISIBLE_DEVICES, so the PCI bus id, which both know, is used.
static err_t open_nvml(nvml *out, int index) {
    char bus_id[NVML_BUS_ID];
    CUDA(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, index));
    return nvml_open(out, NULL, bus_id);
}

// A failure of NVML is not reported: a worse failure is about to be.
const char *cuda_holders(int index, char dst[CUDA_HOLDERS]) {
    nvml n;
    dst[0] = 0;
    if (open_nvml(&n, index) != ERR_OK) return dst;
    nvml_holders(&n, "/proc", dst + 2, CUDA_HOLDERS - 2);
    if (dst[2]) memcpy(dst, ", ", 2);
    nvml_close(&n);
    return dst;
}

err_t cuda_sense(device *d, device_sensors *out) {
    cuda_device *c = (cuda_device *)d;
    *out = (device_sensors){.watts = NAN, .celsius = NAN, .mhz = NAN, .joules = NAN, .limited = LIMITED_UNKNOWN};
    if (!c->sensors) {
        nvml *n = calloc(1, sizeof *n);
        if (!n) return err_set(ERR_INTERNAL, "no memory for a device's sensors");
        err_t rc = open_nvml(n, c->index);
        if (rc != ERR_OK) {
            free(n);
            return err_pass(__FILE__, __LINE__, __func__, rc);
        }
        c->sensors = n;
    }
    return nvml_sense(c->sensors, out);
}

// --- memory ----------------------------------------------------------------------------------------------------------

err_t cuda_memory(device *d, int64_t *used, int64_t *total) {
    size_t unused = 0, all = 0;
    (void)d;
    CUDA(cudaMemGetInfo(&unused, &all));
    *used = (int64_t)(all - unused), *total = (int64_t)all;
    return ERR_OK;
}

err_t cuda_malloc(device *d, size_t bytes, void **out) {
    cudaError_t e = cudaMalloc(out, bytes);
    if (e == cudaErrorMemoryAllocation) {
        size_t unused = 0, all = 0;
        char who[CUDA_HOLDERS];
        (void)cudaGetLastError();
        (void)cudaMemGetInfo(&unused, &all);
        return err_set(
            ERR_UNAVAILABLE,
            "%s: %.1f MB were asked for, %.1f of %.1f MB are free%s; lower [batch] micro or raise [parallel] zero "
            "(lockstep plan says what each takes), or see who else uses it: nvidia-smi",
            d->info.name, (double)bytes / 1e6, (double)unused / 1e6, (double)all / 1e6,
            cuda_holders(((cuda_device *)d)->index, who));
    }
    CUDA(e);
    return ERR_OK;
}

err_t cuda_alloc(device *d, memory_kind kind, size_t bytes, void **out) {
    if (kind == MEMORY_PINNED) {
        CUDA(cudaMallocHost(out, bytes));
        memset(*out, 0, bytes);
        return ERR_OK;
    }
    TRY(cuda_malloc(d, bytes, out));
    CUDA(cudaMemset(*out, 0, bytes));
    CUDA(cudaDeviceSynchronize());  // before the first use on any stream
    return ERR_OK;
}

void cuda_free(device *d, memory_kind kind, void *p, size_t bytes) {
    (void)d, (void)bytes;
    (void)(kind == MEMORY_PINNED ? cudaFreeHost(p) : cudaFree(p));
}
