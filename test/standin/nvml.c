// test/standin/nvml.c: a stand-in for NVML, for tests on machines without a GPU: libnvidia-ml.so.1 in a directory of
// its own, for LD_LIBRARY_PATH. There is a GPU on PCI bus BB where LOCKSTEP_NVML_BB says what its sensors answer, call
// by call, the last answer from then on:
//
//   LOCKSTEP_NVML_41="power=200000,250000 energy=1000,9000 heat=60 clock=1900 reasons=0,4,!999"    mW, mJ, Celsius,
//   MHz, bits
//                   " load=97 used=1073741824 cap=700000"    per cent, bytes of 80 GiB, mW. Its UUID is GPU- and its
//                   bus
//                   " links=42,42,s,-,o"    NVLinks: to the GPU on that bus, to a switch, down, to another GPU
//
// An answer "!999" is the result code 999, and what is not named is not supported. Besides:
//   LOCKSTEP_NVML_INIT=9                   nvmlInit_v2 fails with this code
//   LOCKSTEP_NVML_PROCESSES="4711:1048576,4712:"   who computes there, and with how many bytes; none: not known
//   LOCKSTEP_NVML_ENTRY=32                 bytes of an entry that the third edition of the list writes (24)
//   LOCKSTEP_NVML_LIST=!13                 result code of the third edition
//   LOCKSTEP_NVML_WIPES=1                  what is after the last entry is set to zero
// A call before nvmlInit_v2 or after the last nvmlShutdown ends the process: NVML would answer, and the program be
// wrong all the same.
#include "gpu/cuda/nvml_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

enum { BUSES = 256, SENSORS = 8 };
static const char *const sensors[SENSORS] = {"power", "energy", "heat", "clock", "reasons", "load", "used", "cap"};

struct nvmlDevice_st {
    int bus, calls[SENSORS];
    unsigned domain;  // as it was asked for: the others of this machine have it, too
};
static struct nvmlDevice_st devices[BUSES];
static int inits;  // of the whole process, as NVML's own. A stand-in may have what the library must not: globals

static long number(const char *name, long otherwise) {
    const char *v = getenv(name);
    return v && *v ? atol(v[0] == '!' ? v + 1 : v) : otherwise;
}

static void must_be_open(const char *call) {
    if (inits > 0) return;
    fprintf(stderr, "stand-in for NVML: %s while the library is not initialized\n", call);
    abort();
}

static const char *answers_of(int bus) {
    char name[32];
    snprintf(name, sizeof name, "LOCKSTEP_NVML_%02X", (unsigned)bus);
    return getenv(name);
}

// The next answer of a sensor.
static nvmlReturn_t answer(nvmlDevice_t d, int sensor, unsigned long long *out) {
    char key[16];
    must_be_open(sensors[sensor]);
    const char *all = d ? answers_of(d->bus) : NULL;
    snprintf(key, sizeof key, "%s=", sensors[sensor]);
    const char *at = all ? strstr(all, key) : NULL;
    if (!at) return NVML_ERROR_NOT_SUPPORTED;
    at += strlen(key);
    for (int k = d->calls[sensor]++; k > 0; k--) {
        size_t n = strcspn(at, ", ");
        if (at[n] != ',') break;
        at += n + 1;
    }
    if (*at == '!') return (nvmlReturn_t)atoi(at + 1);
    *out = strtoull(at, NULL, 10);
    return NVML_SUCCESS;
}

static nvmlReturn_t small(nvmlDevice_t d, int sensor, unsigned *out) {
    unsigned long long x = 0;
    nvmlReturn_t r = answer(d, sensor, &x);
    if (r == NVML_SUCCESS) *out = (unsigned)x;
    return r;
}

// --- the functions of NVML ------------------------------------------------------------------------------------------

API nvmlReturn_t nvmlInit_v2(void) {
    nvmlReturn_t r = (nvmlReturn_t)number("LOCKSTEP_NVML_INIT", NVML_SUCCESS);
    if (r == NVML_SUCCESS) inits++;
    return r;
}

API nvmlReturn_t nvmlShutdown(void) {
    must_be_open("nvmlShutdown");
    inits--;
    return NVML_SUCCESS;
}

API const char *nvmlErrorString(nvmlReturn_t r) {
    return r == NVML_ERROR_NOT_SUPPORTED       ? "Not Supported"
           : r == NVML_ERROR_NOT_FOUND         ? "Not Found"
           : r == NVML_ERROR_DRIVER_NOT_LOADED ? "Driver Not Loaded"
                                               : "Unknown Error";
}

API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    must_be_open("nvmlSystemGetDriverVersion");
    snprintf(version, length, "stand-in");
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
    unsigned domain, bus, slot, function;
    must_be_open("nvmlDeviceGetHandleByPciBusId_v2");
    if (sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4 || bus >= BUSES || !answers_of((int)bus))
        return NVML_ERROR_NOT_FOUND;
    devices[bus].bus = (int)bus, devices[bus].domain = domain;
    *device = &devices[bus];
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t d, unsigned int *milliwatts) { return small(d, 0, milliwatts); }
API nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t d, unsigned long long *millijoules) {
    return answer(d, 1, millijoules);
}
API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t d, nvmlTemperatureSensors_t which, unsigned int *celsius) {
    return which == NVML_TEMPERATURE_GPU ? small(d, 2, celsius) : NVML_ERROR_NOT_SUPPORTED;
}
API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t d, nvmlClockType_t type, unsigned int *mhz) {
    return type == NVML_CLOCK_SM ? small(d, 3, mhz) : NVML_ERROR_NOT_SUPPORTED;
}
API nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t d, unsigned long long *reasons) {
    return answer(d, 4, reasons);
}
API nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t d, unsigned long long *reasons) {
    return answer(d, 4, reasons);
}

API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *rates) {
    return small(d, 5, &rates->gpu);
}
API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *memory) {
    nvmlReturn_t r = answer(d, 6, &memory->used);
    memory->total = 80ull << 30;
    memory->free = memory->total - memory->used;
    return r;
}
API nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t d, unsigned int *milliwatts) {
    return small(d, 7, milliwatts);
}
API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *uuid, unsigned int length) {
    must_be_open("nvmlDeviceGetUUID");
    snprintf(uuid, length, "GPU-%08x-0000-0000-0000-000000000000", (unsigned)d->bus);
    return NVML_SUCCESS;
}

// --- NVLink ---------------------------------------------------------------------------------------------------------

// What `links` says of one: NULL, the GPU has no such link, and *r why.
static const char *link_of(nvmlDevice_t d, unsigned link, nvmlReturn_t *r) {
    must_be_open("nvmlDeviceGetNvLink");
    const char *all = answers_of(d->bus), *at = all ? strstr(all, "links=") : NULL;
    *r = at ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
    if (!at) return NULL;
    for (at += strlen("links="); link > 0; link--) {
        at += strcspn(at, ", ");
        if (*at++ != ',') return NULL;
    }
    *r = NVML_SUCCESS;
    return at;
}

API nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t d, unsigned int link, nvmlEnableState_t *on) {
    nvmlReturn_t r;
    const char *at = link_of(d, link, &r);
    if (at) *on = *at == '-' ? NVML_FEATURE_DISABLED : NVML_FEATURE_ENABLED;
    return r;
}
API nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t d, unsigned int link, nvmlIntNvLinkDeviceType_t *is) {
    nvmlReturn_t r;
    const char *at = link_of(d, link, &r);
    if (at) *is = *at == 's' ? NVML_NVLINK_DEVICE_TYPE_SWITCH : NVML_NVLINK_DEVICE_TYPE_GPU;
    return r;
}
API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t d, unsigned int link, nvmlPciInfo_t *pci) {
    nvmlReturn_t r;
    const char *at = link_of(d, link, &r);
    if (!at) return r;
    memset(pci, 0, sizeof *pci);
    pci->domain = d->domain;
    pci->bus = *at == 's' || *at == 'o' ? 0xFE : (unsigned)strtoul(at, NULL, 16);
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:00.0", pci->domain, pci->bus);
    return NVML_SUCCESS;
}

// --- processes ------------------------------------------------------------------------------------------------------

typedef struct entry {
    nvmlProcessInfo_t head;
    unsigned long long protected_bytes;
} entry;  // the longest layout

static nvmlReturn_t list(unsigned int *count, void *to, size_t each) {
    const char *all = getenv("LOCKSTEP_NVML_PROCESSES");
    unsigned room = *count, n = 0;
    must_be_open("nvmlDeviceGetComputeRunningProcesses");
    for (const char *at = all; at && *at; at += strcspn(at, ","), at += *at == ',') n++;
    *count = n;
    if (n > room) return NVML_ERROR_INSUFFICIENT_SIZE;
    if (getenv("LOCKSTEP_NVML_WIPES")) memset(to, 0, room * each);
    for (unsigned k = 0; k < n; k++) {
        char *end;
        entry e = {.protected_bytes = 0};
        e.head.pid = (unsigned)strtoul(all, &end, 10);
        e.head.usedGpuMemory = end[0] == ':' && end[1] && end[1] != ',' ? strtoull(end + 1, NULL, 10) : ~0ull;
        e.head.gpuInstanceId = e.head.computeInstanceId = ~0u;
        memcpy((char *)to + k * each, &e, each);
        all += strcspn(all, ",") + 1;
    }
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t d, unsigned int *count, nvmlProcessInfo_t *to) {
    (void)d;
    nvmlReturn_t r = (nvmlReturn_t)number("LOCKSTEP_NVML_LIST", NVML_SUCCESS);
    return r == NVML_SUCCESS ? list(count, to, (size_t)number("LOCKSTEP_NVML_ENTRY", sizeof *to)) : r;
}
API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t d, unsigned int *count, nvmlProcessInfo_t *to) {
    (void)d;
    return list(count, to, sizeof *to);
}
API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t d, unsigned int *count, nvmlProcessInfo_v1_t *to) {
    (void)d;
    return list(count, to, sizeof *to);
}
