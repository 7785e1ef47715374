// gpu/cuda/nvml.c: NVML, opened at run time: a GPU's sensors, and which other processes use it. No run depends on it;
// where it is missing, less is reported.
#include "gpu/cuda/nvml_api.h"

#include "base/library.h"
#include "base/text.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const places[] = {
    "libnvidia-ml.so.1",  // wherever the dynamic linker looks: LD_LIBRARY_PATH, /etc/ld.so.conf, the distribution's own
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",  // where container runtimes put the host's driver
};

static const char *words(const nvml *n, nvmlReturn_t r) {
    const char *text = n->nvmlErrorString ? n->nvmlErrorString(r) : NULL;
    return text ? text : "no words for it";
}

// --- opening -------------------------------------------------------------------------------

static err_t open_library(void **handle, const char *named) {
    library file;
    bool found = named ? library_open(&file, &named, 1) : library_open(&file, places, sizeof places / sizeof *places);
    *handle = file.handle;
    if (found) return ERR_OK;
    return err_set(ERR_UNAVAILABLE, "libnvidia-ml.so.1 not found (tried %s): it comes with the NVIDIA driver",
                   file.text);
}

static void *find_symbol(void *handle, const char *name) { return dlsym(handle, name); }

// ISO C has no conversion from an object's address to a function's; POSIX promises that they have the same
// representation.
#define FIND(result, name, arguments) symbol = find(ctx, #name), memcpy(&out->name, &symbol, sizeof symbol);
#define REQUIRE(result, name, arguments) \
    if (!out->name) text_put(&t, "%s%s", t.n ? ", " : "", #name);

err_t nvml_bind(nvml *out, nvml_finder find, void *ctx) {
    char missing[ERR_TEXT / 2];
    text t = {.at = missing, .room = sizeof missing};
    void *symbol;
    NVML_CALLS(FIND)
    NVML_OPTIONAL_CALLS(FIND)
    NVML_CALLS(REQUIRE)
    if (!t.n) return ERR_OK;
    return err_set(ERR_UNAVAILABLE, "nvml: libnvidia-ml.so.1 lacks %s: expected the library of driver 450 or newer",
                   missing);
}

static err_t find_device(nvml *n) {
    char version[80] = "";
    nvmlReturn_t r = n->nvmlInit_v2();
    if (r != NVML_SUCCESS)
        return err_set(ERR_UNAVAILABLE, "nvml: nvmlInit_v2: %s (%d); see nvidia-smi", words(n, r), (int)r);
    r = n->nvmlDeviceGetHandleByPciBusId_v2(n->bus_id, &n->device);
    if (r == NVML_SUCCESS) return ERR_OK;
    if (!n->nvmlSystemGetDriverVersion || n->nvmlSystemGetDriverVersion(version, sizeof version) != NVML_SUCCESS)
        snprintf(version, sizeof version, "unknown");
    err_set(ERR_UNAVAILABLE, "nvml: nvmlDeviceGetHandleByPciBusId_v2(%s): %s (%d), driver %.79s; see nvidia-smi",
            n->bus_id, words(n, r), (int)r, version);
    n->nvmlShutdown();
    return ERR_UNAVAILABLE;
}

err_t nvml_open(nvml *out, const char *library, const char *bus_id) {
    void *handle;
    *out = (nvml){0};
    snprintf(out->bus_id, sizeof out->bus_id, "%s", bus_id);
    TRY(open_library(&handle, library));
    err_t rc = nvml_bind(out, find_symbol, handle);
    if (rc == ERR_OK) rc = find_device(out);
    if (rc == ERR_OK) {
        out->handle = handle;
        return ERR_OK;
    }
    dlclose(handle);
    *out = (nvml){0};
    return err_pass(__FILE__, __LINE__, __func__, rc);
}

void nvml_close(nvml *n) {
    if (!n->handle) return;
    n->nvmlShutdown();
    dlclose(n->handle);
    *n = (nvml){0};
}

// --- sensors -------------------------------------------------------------------------------

static unsigned limits(const nvml *n, nvmlReturn_t *why) {
    unsigned long long reasons = 0;
    nvmlReturn_t r = NVML_ERROR_FUNCTION_NOT_FOUND;
    if (n->nvmlDeviceGetCurrentClocksEventReasons) r = n->nvmlDeviceGetCurrentClocksEventReasons(n->device, &reasons);
    if (r != NVML_SUCCESS && n->nvmlDeviceGetCurrentClocksThrottleReasons)
        r = n->nvmlDeviceGetCurrentClocksThrottleReasons(n->device, &reasons);
    if (r != NVML_SUCCESS) {
        *why = r;
        return LIMITED_UNKNOWN;
    }
    unsigned of = 0;
    if (reasons & NVML_REASON_SW_POWER_CAP) of |= LIMITED_POWER;
    if (reasons & (NVML_REASON_SW_THERMAL_SLOWDOWN | NVML_REASON_HW_THERMAL_SLOWDOWN)) of |= LIMITED_HEAT;
    if (reasons & NVML_REASON_HW_POWER_BRAKE_SLOWDOWN) of |= LIMITED_BRAKE;
    bool explained = reasons & (NVML_REASON_HW_THERMAL_SLOWDOWN | NVML_REASON_HW_POWER_BRAKE_SLOWDOWN);
    if (reasons & NVML_REASON_HW_SLOWDOWN && !explained) of |= LIMITED_HARDWARE;
    return of;
}

// number = call * factor, or NaN and why.
#define SENSE(number, type, factor, name, ...) \
    do { \
        type x = 0; \
        nvmlReturn_t r = n->name ? n->name(n->device, __VA_ARGS__) : NVML_ERROR_FUNCTION_NOT_FOUND; \
        (number) = r == NVML_SUCCESS ? (factor) * (double)x : NAN; \
        if (r != NVML_SUCCESS) why = r; \
    } while (0)

err_t nvml_sense(const nvml *n, device_sensors *out) {
    nvmlReturn_t why = NVML_SUCCESS;
    SENSE(out->watts, unsigned int, 1e-3, nvmlDeviceGetPowerUsage, &x);
    SENSE(out->celsius, unsigned int, 1, nvmlDeviceGetTemperature, NVML_TEMPERATURE_GPU, &x);
    SENSE(out->mhz, unsigned int, 1, nvmlDeviceGetClockInfo, NVML_CLOCK_SM, &x);
    SENSE(out->joules, unsigned long long, 1e-3, nvmlDeviceGetTotalEnergyConsumption, &x);
    out->limited = limits(n, &why);
    bool nothing = isnan(out->watts) && isnan(out->celsius) && isnan(out->mhz) && isnan(out->joules) &&
                   out->limited == LIMITED_UNKNOWN;
    if (!nothing) return ERR_OK;
    return err_set(ERR_UNAVAILABLE, "nvml: no sensor of %s answers: %s (%d)", n->bus_id, words(n, why), (int)why);
}

void nvml_read_load(const nvml *n, nvml_load *out) {
    nvmlReturn_t why;
    nvmlUtilization_t busy;
    nvmlMemory_t memory;
    *out = (nvml_load){.utilisation = NAN, .used = -1, .total = -1};
    SENSE(out->limit_watts, unsigned int, 1e-3, nvmlDeviceGetEnforcedPowerLimit, &x);
    (void)why;
    if (n->nvmlDeviceGetUtilizationRates && n->nvmlDeviceGetUtilizationRates(n->device, &busy) == NVML_SUCCESS)
        out->utilisation = busy.gpu / 100.0;
    if (n->nvmlDeviceGetMemoryInfo && n->nvmlDeviceGetMemoryInfo(n->device, &memory) == NVML_SUCCESS)
        out->used = (int64_t)memory.used, out->total = (int64_t)memory.total;
}

void nvml_uuid(const nvml *n, char dst[NVML_UUID]) {
    memset(dst, 0, NVML_UUID);
    if (n->nvmlDeviceGetUUID && n->nvmlDeviceGetUUID(n->device, dst, NVML_UUID) != NVML_SUCCESS) dst[0] = 0;
    dst[NVML_UUID - 1] = 0;
}

// --- who uses it -------------------------------------------------------------------------------

enum { ASKED = 61, ENTRY_MOST = 32, SHOWN = 4, UNTOUCHED = 0xA5 };

typedef struct holder {
    unsigned int pid;
    unsigned long long bytes;
} holder;

// The newest edition of the call that answers. *count: how many there are, which may be more than fit into `to` (then
// nothing is written).
static bool list_processes(const nvml *n, void *to, unsigned *count) {
    nvmlReturn_t r = NVML_ERROR_FUNCTION_NOT_FOUND;
    for (int edition = 3; edition > 0 && r != NVML_SUCCESS && r != NVML_ERROR_INSUFFICIENT_SIZE; edition--) {
        memset(to, UNTOUCHED, ASKED * ENTRY_MOST);
        *count = ASKED;
        if (edition == 3 && n->nvmlDeviceGetComputeRunningProcesses_v3)
            r = n->nvmlDeviceGetComputeRunningProcesses_v3(n->device, count, to);
        if (edition == 2 && n->nvmlDeviceGetComputeRunningProcesses_v2)
            r = n->nvmlDeviceGetComputeRunningProcesses_v2(n->device, count, to);
        if (edition == 1 && n->nvmlDeviceGetComputeRunningProcesses)
            r = n->nvmlDeviceGetComputeRunningProcesses(n->device, count, to);
    }
    return r == NVML_SUCCESS || (r == NVML_ERROR_INSUFFICIENT_SIZE && *count > ASKED);
}

// How many bytes an entry takes; 0: not known. It is found from what was written, not taken from the header, because
// drivers 535.43 to 535.86 write one more field (32 bytes) under the name _v3 than all others (24), and the first
// edition has fewer (16). ASKED is a prime, so that an answer that fills the whole room is not mistaken.
static size_t entry_bytes(const unsigned char *list, unsigned count) {
    static const size_t layouts[] = {sizeof(nvmlProcessInfo_v1_t), sizeof(nvmlProcessInfo_t), ENTRY_MOST};
    size_t end = ASKED * ENTRY_MOST;
    while (end > 0 && list[end - 1] == UNTOUCHED) end--;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (end == count * layouts[i] || end == ASKED * layouts[i]) return layouts[i];
    return 0;
}

// Processes with the most memory first, those whose memory is not known (all ones) last.
static int by_memory(const void *a, const void *b) {
    const holder *x = a, *y = b;
    unsigned long long mine = x->bytes + 1, other = y->bytes + 1;
    return mine != other ? (mine < other) - (mine > other) : (x->pid > y->pid) - (x->pid < y->pid);
}

// A process may have any name: characters that are not plain become '?'.
static void command_of(const char *proc, unsigned pid, char dst[32]) {
    char path[256];
    dst[0] = 0;
    if (pid == (unsigned)getpid()) {
        snprintf(dst, 32, "this process");
        return;
    }
    snprintf(path, sizeof path, "%s/%u/comm", proc, pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    ssize_t n = read(fd, dst, 31);
    close(fd);
    dst[n > 0 ? n : 0] = 0;
    dst[strcspn(dst, "\n")] = 0;
    for (char *c = dst; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?';
}

static void put_holder(text *t, const char *proc, const holder *h) {
    char command[32], memory[32] = "";
    command_of(proc, h->pid, command);
    if (h->bytes != ULLONG_MAX) snprintf(memory, sizeof memory, "%.1f GiB", (double)h->bytes / (1 << 30));
    text_put(t, "%u", h->pid);
    if (*command || *memory) text_put(t, " (%s%s%s)", command, *command && *memory ? ", " : "", memory);
}

void nvml_holders(const nvml *n, const char *proc, char *dst, size_t room) {
    unsigned long long raw[ASKED * ENTRY_MOST / 8];
    holder all[ASKED];
    unsigned count;
    text t = {.at = dst, .room = room};
    dst[0] = 0;
    if (!list_processes(n, raw, &count) || count == 0) return;
    if (count > ASKED) {
        text_put(&t, "held by %u processes", count);
        return;
    }
    size_t each = entry_bytes((unsigned char *)raw, count);
    if (each == 0) return;
    for (unsigned i = 0; i < count; i++) {
        nvmlProcessInfo_v1_t head;  // what all layouts begin with
        memcpy(&head, (char *)raw + i * each, sizeof head);
        all[i] = (holder){head.pid, head.usedGpuMemory};
    }
    qsort(all, count, sizeof *all, by_memory);
    text_put(&t, "held by process ");
    for (unsigned i = 0; i < count && i < SHOWN; i++) {
        if (i) text_put(&t, ", ");
        put_holder(&t, proc, &all[i]);
    }
    if (count > SHOWN) text_put(&t, " and %u more", count - SHOWN);
}
