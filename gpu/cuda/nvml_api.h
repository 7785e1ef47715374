// gpu/cuda/nvml_api.h: the part of NVML's binary interface (the NVIDIA Management Library, libnvidia-ml.so.1, which
// comes with the driver) that we call, declared by us, so that the program builds where its header is not installed.
// Names and values are NVML's own (nvml.h of CUDA 13); test/nvml_headers.c compares every one of them with the original
// where that is installed.
#ifndef GPU_CUDA_NVML_API_H
#define GPU_CUDA_NVML_API_H

#include "gpu/gpu.h"

typedef struct nvmlDevice_st *nvmlDevice_t;  // without a body: NVML's own

typedef enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_UNKNOWN = 999,
} nvmlReturn_t;

typedef enum { NVML_TEMPERATURE_GPU = 0 } nvmlTemperatureSensors_t;
typedef enum { NVML_CLOCK_SM = 1 } nvmlClockType_t;

// A process that computes on a device, as the first edition of the call writes it and as the later ones do.
// usedGpuMemory is in bytes; all ones: not known.
typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
} nvmlProcessInfo_v1_t;
typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

// Per cent of the last sample period in which a kernel ran, and in which memory was read or written.
typedef struct {
    unsigned int gpu, memory;
} nvmlUtilization_t;

typedef struct {
    unsigned long long total, free, used;  // bytes; what the driver keeps for itself is in `used`
} nvmlMemory_t;

typedef enum { NVML_FEATURE_DISABLED = 0, NVML_FEATURE_ENABLED = 1 } nvmlEnableState_t;

// What is at the other end of an NVLink.
typedef enum {
    NVML_NVLINK_DEVICE_TYPE_GPU = 0,
    NVML_NVLINK_DEVICE_TYPE_SWITCH = 2,
    NVML_NVLINK_DEVICE_TYPE_UNKNOWN = 255,
} nvmlIntNvLinkDeviceType_t;

typedef struct {
    char busIdLegacy[16];
    unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

// Why clocks are lower than they could be. Drivers since 535 call them event reasons, those before throttle reasons.
enum {
    NVML_REASON_SW_POWER_CAP = 0x4,
    NVML_REASON_HW_SLOWDOWN = 0x8,  // also set with either of the last two
    NVML_REASON_SW_THERMAL_SLOWDOWN = 0x20,
    NVML_REASON_HW_THERMAL_SLOWDOWN = 0x40,
    NVML_REASON_HW_POWER_BRAKE_SLOWDOWN = 0x80,
};

// CALL(result, name, arguments): without these there is nothing to ask.
#define NVML_CALLS(CALL) \
    CALL(nvmlReturn_t, nvmlInit_v2, (void)) \
    CALL(nvmlReturn_t, nvmlShutdown, (void)) \
    CALL(nvmlReturn_t, nvmlDeviceGetHandleByPciBusId_v2, (const char *bus_id, nvmlDevice_t *device))

// The same, NULL where a driver has none: older than the call, or so new that it was dropped. What only such a call
// returns is then not known.
#define NVML_OPTIONAL_CALLS(CALL) \
    CALL(const char *, nvmlErrorString, (nvmlReturn_t result)) \
    CALL(nvmlReturn_t, nvmlSystemGetDriverVersion, (char *version, unsigned int length)) \
    CALL(nvmlReturn_t, nvmlDeviceGetPowerUsage, (nvmlDevice_t device, unsigned int *milliwatts)) \
    CALL(nvmlReturn_t, nvmlDeviceGetTotalEnergyConsumption, (nvmlDevice_t device, unsigned long long *millijoules)) \
    CALL(nvmlReturn_t, nvmlDeviceGetTemperature, \
         (nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *celsius)) \
    CALL(nvmlReturn_t, nvmlDeviceGetClockInfo, (nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz)) \
    CALL(nvmlReturn_t, nvmlDeviceGetCurrentClocksEventReasons, (nvmlDevice_t device, unsigned long long *reasons)) \
    CALL(nvmlReturn_t, nvmlDeviceGetCurrentClocksThrottleReasons, (nvmlDevice_t device, unsigned long long *reasons)) \
    CALL(nvmlReturn_t, nvmlDeviceGetUtilizationRates, (nvmlDevice_t device, nvmlUtilization_t * rates)) \
    CALL(nvmlReturn_t, nvmlDeviceGetMemoryInfo, (nvmlDevice_t device, nvmlMemory_t * memory)) \
    CALL(nvmlReturn_t, nvmlDeviceGetNvLinkState, \
         (nvmlDevice_t device, unsigned int link, nvmlEnableState_t *is_active)) \
    CALL(nvmlReturn_t, nvmlDeviceGetNvLinkRemotePciInfo_v2, \
         (nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci)) \
    CALL(nvmlReturn_t, nvmlDeviceGetNvLinkRemoteDeviceType, \
         (nvmlDevice_t device, unsigned int link, nvmlIntNvLinkDeviceType_t *type)) \
    CALL(nvmlReturn_t, nvmlDeviceGetUUID, (nvmlDevice_t device, char *uuid, unsigned int length)) \
    CALL(nvmlReturn_t, nvmlDeviceGetEnforcedPowerLimit, (nvmlDevice_t device, unsigned int *milliwatts)) \
    CALL(nvmlReturn_t, nvmlDeviceGetComputeRunningProcesses_v3, \
         (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *list)) \
    CALL(nvmlReturn_t, nvmlDeviceGetComputeRunningProcesses_v2, \
         (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *list)) \
    CALL(nvmlReturn_t, nvmlDeviceGetComputeRunningProcesses, \
         (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *list))

// --- the opened library, and one GPU (gpu/cuda/nvml.c) --------------------------------------------------------------

enum { NVML_BUS_ID = 32, NVML_UUID = 96 };  // NVML_DEVICE_UUID_V2_BUFFER_SIZE

#define NVML_FIELD(result, name, arguments) result(*name) arguments;
typedef struct nvml {
    void *handle;
    nvmlDevice_t device;
    char bus_id[NVML_BUS_ID];
    NVML_CALLS(NVML_FIELD)
    NVML_OPTIONAL_CALLS(NVML_FIELD)
} nvml;

// Opens the library (NULL: where the driver puts it) and finds the GPU with this PCI bus id, "0000:3b:00.0": device
// numbers differ between NVML and CUDA. ERR_UNAVAILABLE: not installed, or NVML's error; *out is then closed.
err_t nvml_open(nvml *out, const char *library, const char *bus_id);
void nvml_close(nvml *n);

// The functions of *out, by find(ctx, name). ERR_UNAVAILABLE names what is missing that must be there.
typedef void *(*nvml_finder)(void *ctx, const char *name);
err_t nvml_bind(nvml *out, nvml_finder find, void *ctx);

// Reads the GPU's sensors. A single one that does not answer is NaN. ERR_UNAVAILABLE: none does, and why.
err_t nvml_sense(const nvml *n, device_sensors *out);

// How busy it is, and how full: NaN, or -1, where it does not say.
typedef struct nvml_load {
    double utilisation, limit_watts;
    int64_t used, total;
} nvml_load;
void nvml_read_load(const nvml *n, nvml_load *out);
void nvml_uuid(const nvml *n, char dst[NVML_UUID]);  // "" where it does not say

// "held by process 4711 (python3, 70.1 GiB), 4802 (this process, 3.0 GiB) and 2 more" into dst, by memory, at most 4 of
// them; "" when no process holds it or NVML does not say. Commands are those of proc/PID/comm, left out where that
// can't be read; proc: "/proc".
void nvml_holders(const nvml *n, const char *proc, char *dst, size_t room);

#endif
