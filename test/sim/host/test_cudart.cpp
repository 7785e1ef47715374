// test/sim/host/test_cudart.cpp: tests of the stand-ins for the host's libraries. What they do, each under ten orders
// of work; and that they find what a GPU would let pass: every mistake of a program that is planted here has a twin
// without it, about which nothing may be said.
//
// Every case runs in a process of its own (CUDA cannot be used before a fork, and some end by a signal). Its outcome is
// a set of bits.
#include "test/sim/simt_rt.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "test/sim/host/test_cudart.h"

static int passed, failures;
static const char *running;
uint64_t order;

// --- what a case says ------------------------------------------------------------------------------------------------

static struct Said {
    int wrong;
    char where[256], kind[32];
    int findings;
} * said;  // shared with the case's process

void wrong_at(const char *file, int line, const char *what) {
    if (__atomic_fetch_add(&said->wrong, 1, __ATOMIC_SEQ_CST) == 0)
        snprintf(said->where, sizeof said->where, "%s:%d: %s", file, line, what);
}

void leave() {
    __atomic_fetch_add(&said->findings, simt::findings(), __ATOMIC_SEQ_CST);
    if (simt::findings()) snprintf(said->kind, sizeof said->kind, "%s", simt::last_kind());
    simt::clear_findings();
    _exit(0);
}

// The status of the process that ran it.
static int run_case(void (*fn)(int), int bug) {
    *said = Said{};
    fflush(stdout);
    pid_t p = fork();
    if (p == 0) {
        if (bug && !getenv("SHOW")) {
            if (!freopen("/dev/null", "w", stderr)) _exit(9);
        }
        simt::set_seed(order);
        fn(bug);
        leave();
    }
    int status = -1;
    waitpid(p, &status, 0);
    return status;
}

static void verdict(bool good, const char *what) {
    good ? passed++ : failures++;
    printf("%s %s: %s\n", good ? "ok  " : "FAIL", running, what);
}

// --- what most cases need --------------------------------------------------------------------------------------------

float *device_floats(int n, float v) {
    void *p = nullptr;
    std::vector<float> h((size_t)n, v);
    OK(cudaMalloc(&p, sizeof(float) * (size_t)n));
    OK(cudaMemcpy(p, h.data(), sizeof(float) * (size_t)n, cudaMemcpyHostToDevice));
    return (float *)p;
}

float *pinned_floats(int n) {
    void *p = nullptr;
    OK(cudaMallocHost(&p, sizeof(float) * (size_t)n));
    for (int i = 0; i < n; i++) ((float *)p)[i] = 0;
    return (float *)p;
}

cudaStream_t new_stream() {
    cudaStream_t s = nullptr;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    return s;
}

cudaEvent_t new_event() {
    cudaEvent_t e = nullptr;
    OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    return e;
}

bool all_are(const float *device, int n, float v) {
    std::vector<float> h((size_t)n);
    OK(cudaMemcpy(h.data(), device, sizeof(float) * (size_t)n, cudaMemcpyDeviceToHost));
    for (float x : h)
        if (x != v) return false;
    return true;
}

// --- what it does ----------------------------------------------------------------------------------------------------

static void memory(int) {
    size_t unused, all;
    void *a, *b, *big;
    OK(cudaMalloc(&a, 1000));
    OK(cudaMemGetInfo(&unused, &all));
    MUST(all == (size_t)1024 << 20 && unused == all - 1024);
    MUST((uintptr_t)a % 256 == 0);
    unsigned char bytes[1000];
    OK(cudaMemcpy(bytes, a, sizeof bytes, cudaMemcpyDefault));
    for (unsigned char x : bytes) MUST(x == 0xFF);
    MUST(cudaMalloc(&big, (size_t)1 << 30) == cudaErrorMemoryAllocation && big == nullptr);
    MUST(cudaPeekAtLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaErrorMemoryAllocation &&
         cudaGetLastError() == cudaSuccess);
    OK(cudaMalloc(&b, (size_t)1000 << 20));
    OK(cudaFree(b));
    OK(cudaFree(a));
    OK(cudaFree(nullptr));
    OK(cudaMemGetInfo(&unused, &all));
    MUST(unused == all);
    struct cudaPointerAttributes at;
    float *p = pinned_floats(3), *d = device_floats(3, 1), h[3];
    OK(cudaPointerGetAttributes(&at, p));
    MUST(at.type == cudaMemoryTypeHost);
    OK(cudaPointerGetAttributes(&at, d + 1));
    MUST(at.type == cudaMemoryTypeDevice);
    OK(cudaPointerGetAttributes(&at, h));
    MUST(at.type == cudaMemoryTypeUnregistered);
    OK(cudaHostRegister(h, sizeof h, 0));
    OK(cudaPointerGetAttributes(&at, h));
    MUST(at.type == cudaMemoryTypeHost);
    OK(cudaHostUnregister(h));
    OK(cudaFreeHost(p));
}

// A copy of pinned memory is done when the host has waited, and not before: with seed 1 for certain.
static void laziness(int) {
    float *p = pinned_floats(N), *d = device_floats(N, 3);
    cudaStream_t s = new_stream();
    cudaEvent_t e = new_event();
    OK(cudaMemcpyAsync(p, d, sizeof(float) * N, cudaMemcpyDefault, s));
    OK(cudaEventRecord(e, s));
    if (order == 0) MUST(p[0] == 3);
    if (order == 1) MUST(p[0] == 0);
    OK(cudaEventSynchronize(e));
    MUST(p[0] == 3 && p[N - 1] == 3);
    MUST(cudaStreamQuery(s) == cudaSuccess && cudaEventQuery(e) == cudaSuccess);
    std::vector<float> h(N);
    fill(d, 5, N, s);
    OK(cudaMemcpyAsync(h.data(), d, sizeof(float) * N, cudaMemcpyDeviceToHost, s));  // pageable: done when it returns
    MUST(h[0] == 5);
    h.assign(N, 7);
    OK(cudaMemcpyAsync(d, h.data(), sizeof(float) * N, cudaMemcpyHostToDevice, s));
    h.assign(N, 9);  // staged before it returned
    OK(cudaStreamSynchronize(s));
    MUST(all_are(d, N, 7));
}

static void default_stream(int) {
    cudaStream_t s;
    OK(cudaStreamCreate(&s));
    float *x = device_floats(N, 1), *y = device_floats(N, 0);
    axpy(y, x, 1, N, s);
    axpy(x, y, 1, N, nullptr);  // after s, which is blocking
    axpy(y, x, 1, N, s);        // and s after it
    OK(cudaStreamSynchronize(s));
    MUST(all_are(y, N, 3));
}

extern "C" long sim_submitted(const char *what);  // test/sim/cudart.h

static int told;
static void tell(void *p) { told += *(int *)p; }

static void calls(int) {
    cudaStream_t s = new_stream();
    int one = 1, version, value, blocks;
    float ms = -1;
    cudaEvent_t a, b;
    OK(cudaEventCreate(&a));
    OK(cudaEventCreate(&b));
    OK(cudaEventRecord(a, s));
    OK(cudaLaunchHostFunc(s, tell, &one));
    OK(cudaEventRecord(b, s));
    OK(cudaStreamSynchronize(s));
    MUST(told == 1);
    OK(cudaEventElapsedTime(&ms, a, b));
    MUST(ms >= 0 && ms < 1e4f);
    cudaEvent_t c = new_event(), never;
    cudaGraph_t graph;
    long events = sim_submitted("others"), copies = sim_submitted("copies");
    OK(cudaEventRecord(c, s));
    MUST(sim_submitted("others") == events + 1 && sim_submitted("copies") == copies &&
         sim_submitted("no such thing") == -1);
    MUST(cudaEventElapsedTime(&ms, a, c) == cudaErrorInvalidResourceHandle);  // without timing
    OK(cudaEventCreate(&never));
    MUST(cudaEventElapsedTime(&ms, a, never) == cudaErrorInvalidResourceHandle);
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    OK(cudaEventRecord(b, s));
    OK(cudaStreamEndCapture(s, &graph));
    OK(cudaGraphDestroy(graph));
    MUST(cudaEventElapsedTime(&ms, a, b) == cudaErrorCapturedEvent);
    MUST(cudaGetLastError() == cudaErrorCapturedEvent);
    OK(cudaRuntimeGetVersion(&version));
    MUST(version == CUDART_VERSION);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0));
    MUST(value == 9);
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, shared_function(), 256, 100 << 10));
    MUST(blocks == 2);
    MUST(strcmp(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress") == 0);
    MUST(strcmp(cudaGetErrorString(cudaErrorIllegalAddress), "illegal address") == 0);
    float *y = device_floats(64, 0);
    OK(cudaFuncSetAttribute(shared_function(), cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10));
    MUST(cudaFuncSetAttribute(shared_function(), cudaFuncAttributeMaxDynamicSharedMemorySize, 300 << 10) ==
         cudaErrorInvalidValue);
    MUST(cudaGetLastError() == cudaErrorInvalidValue);
    shared(y, 200 << 10, s);
    OK(cudaGetLastError());
    OK(cudaStreamDestroy(s));
    OK(cudaDeviceSynchronize());
    MUST(!all_are(y, 64, 0));
}

static cudaGraph_t record(cudaStream_t a, cudaStream_t b, float *x, float *y, float *z, float factor, int bug) {
    cudaEvent_t e1 = new_event(), e2 = new_event();
    cudaGraph_t g = nullptr;
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
    axpy(y, x, 1, N, a);
    OK(cudaEventRecord(e1, a));
    OK(cudaStreamWaitEvent(b, e1, 0));
    axpy(z, x, factor, N, b);
    OK(cudaEventRecord(e2, b));
    axpy(y, x, 1, N, a);
    if (!bug) OK(cudaStreamWaitEvent(a, e2, 0));
    axpy(y, z, 1, N, a);
    if (bug) OK(cudaStreamWaitEvent(a, e2, 0));
    OK(cudaStreamEndCapture(a, &g));
    return g;
}

static void graph(int bug) {
    float *x = device_floats(N, 1), *y = device_floats(N, 0), *z = device_floats(N, 0);
    cudaStream_t a = new_stream(), b = new_stream();
    cudaGraphExec_t e;
    cudaGraphExecUpdateResultInfo info;
    cudaGraph_t g = record(a, b, x, y, z, 5, bug);
    OK(cudaGraphInstantiate(&e, g, 0));
    for (int i = 0; i < 3; i++) OK(cudaGraphLaunch(e, a));
    OK(cudaStreamSynchronize(a));
    MUST(all_are(y, N, 2 * 3 + 5 + 10 + 15));
    OK(cudaGraphDestroy(g));
    g = record(a, b, x, y, z, 6, bug);
    OK(cudaGraphExecUpdate(e, g, &info));
    OK(cudaGraphLaunch(e, b));
    OK(cudaStreamSynchronize(b));
    MUST(all_are(y, N, 36 + 2 + 21));
    OK(cudaGraphDestroy(g));
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
    axpy(y, x, 1, N, a);
    OK(cudaStreamEndCapture(a, &g));
    MUST(cudaGraphExecUpdate(e, g, &info) == cudaErrorGraphExecUpdateFailure &&
         info.result == cudaGraphExecUpdateErrorTopologyChanged);
    OK(cudaGraphExecDestroy(e));
    OK(cudaGraphDestroy(g));
}

// --- failures that are asked for -------------------------------------------------------------------------------------

static void no_device(int) {
    int n = 7;
    setenv("SIM_DEVICES", "0", 1);
    MUST(cudaGetDeviceCount(&n) == cudaErrorNoDevice && n == 0);
}

static void old_driver(int) {
    int n = 7, v = 0;
    setenv("SIM_DRIVER", "12000", 1);
    MUST(cudaDriverGetVersion(&v) == cudaSuccess && v == 12000);
    MUST(cudaGetDeviceCount(&n) == cudaErrorInsufficientDriver);
}

static void busy_device(int) {
    setenv("SIM_BUSY", "1", 1);
    MUST(cudaSetDevice(0) == cudaErrorDevicesUnavailable);
}

static void old_device(int) {
    struct cudaDeviceProp p;
    setenv("SIM_CAPABILITY", "75", 1);
    setenv("SIM_DEVICES", "2", 1);
    OK(cudaGetDeviceProperties(&p, 1));
    MUST(p.major == 7 && p.minor == 5);
    MUST(cudaSetDevice(2) == cudaErrorInvalidDevice);
}

static void kernel_fails(int) {
    setenv("SIM_FAIL", "axpy@2", 1);
    float *x = device_floats(N, 1);
    cudaStream_t s = new_stream();
    fill(x, 2, N, s);
    axpy(x, x, 1, N, s);
    OK(cudaStreamSynchronize(s));
    axpy(x, x, 1, N, s);
    if (order == 1) OK(cudaGetLastError());
    MUST(cudaStreamSynchronize(s) == cudaErrorIllegalAddress);
    MUST(cudaGetLastError() == cudaErrorIllegalAddress && cudaGetLastError() == cudaErrorIllegalAddress);
    void *p;
    MUST(cudaMalloc(&p, 4) == cudaErrorIllegalAddress);
}

static void launch_fails(int) {
    setenv("SIM_FAIL", "launch:fill", 1);
    float *x = device_floats(N, 1);
    cudaStream_t s = new_stream();
    fill(x, 2, N, s);
    MUST(cudaGetLastError() == cudaErrorLaunchOutOfResources);
    fill(x, 3, N, s);
    OK(cudaGetLastError());
    OK(cudaStreamSynchronize(s));
    MUST(all_are(x, N, 3));
}

// --- mistakes --------------------------------------------------------------------------------------------------------

static void missing_wait(int bug) {
    float *x = device_floats(N, 1), *y = device_floats(N, 1), *z = device_floats(N, 1), *h = pinned_floats(N);
    cudaStream_t a = new_stream(), b = new_stream();
    cudaEvent_t e = new_event();
    axpy(y, x, 1, N, a);
    axpy(y, x, 1, N, a);
    OK(cudaEventRecord(e, a));
    if (!bug) OK(cudaStreamWaitEvent(b, e, 0));
    axpy(z, y, 1, N, b);
    OK(cudaMemcpyAsync(h, z, sizeof(float) * N, cudaMemcpyDeviceToHost, b));
    OK(cudaStreamSynchronize(b));
    MUST(h[0] == 4 && h[N - 1] == 4);
    OK(cudaDeviceSynchronize());
}

// The loader's: a pinned buffer is filled again while its copy is queued.
static void pinned_reused(int bug) {
    float *total = device_floats(N, 0), *d = device_floats(N, 0), *h = pinned_floats(N);
    cudaStream_t s = new_stream();
    cudaEvent_t e = new_event();
    for (int step = 0; step < 4; step++) {
        if (step && !bug) OK(cudaEventSynchronize(e));
        for (int i = 0; i < N; i++) h[i] = (float)step + 1;
        OK(cudaMemcpyAsync(d, h, sizeof(float) * N, cudaMemcpyDefault, s));
        OK(cudaEventRecord(e, s));
        axpy(total, d, 1, N, s);
    }
    OK(cudaStreamSynchronize(s));
    MUST(all_are(total, N, 10));
}

// Pinned memory is shared by two streams, of which one writes and one reads.
static void pinned_race(int bug) {
    float *x = device_floats(N, 6), *y = device_floats(N, 0), *h = pinned_floats(N);
    cudaStream_t a = new_stream(), b = new_stream();
    cudaEvent_t e = new_event();
    OK(cudaMemcpyAsync(h, x, sizeof(float) * N, cudaMemcpyDefault, a));
    OK(cudaEventRecord(e, a));
    if (!bug) OK(cudaStreamWaitEvent(b, e, 0));
    OK(cudaMemcpyAsync(y, h, sizeof(float) * N, cudaMemcpyDefault, b));
    OK(cudaDeviceSynchronize());
    MUST(all_are(y, N, 6));
}

static void host_reads(int bug) {
    float *x = device_floats(N, 1), *h = pinned_floats(N);
    OK(cudaMemcpy(h, x, sizeof(float) * N, cudaMemcpyDefault));
    volatile float v = bug ? x[3] : h[3];
    MUST(v == 1);
}

static void used_after_free(int bug) {
    float *x = device_floats(N, 1), *y = device_floats(N, 0);
    cudaStream_t s = new_stream();
    if (bug) OK(cudaFree(x));
    axpy(y, x, 1, N, s);
    OK(cudaStreamSynchronize(s));
    MUST(all_are(y, N, 1));
}

static void kernel_beyond(int bug) {
    float *y = device_floats(N, 0);
    fill(y, 2, bug ? N + 64 : N, nullptr);
    OK(cudaDeviceSynchronize());
    MUST(all_are(y, N, 2));
}

static void copy_beyond(int bug) {
    float *x = device_floats(N, 1);
    std::vector<float> h(N + 1);
    cudaError_t e = cudaMemcpy(h.data(), x, sizeof(float) * (size_t)(N + bug), cudaMemcpyDefault);
    if (bug) MUST(e == cudaErrorInvalidValue);
    else OK(e);
}

static void wrong_kind(int bug) {
    float *x = device_floats(N, 1), *h = pinned_floats(N);
    cudaError_t e =
        cudaMemcpyAsync(h, x, sizeof(float) * N, bug ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, new_stream());
    if (bug) MUST(e == cudaErrorInvalidValue);
    else OK(e);
    OK(cudaDeviceSynchronize());
}

static void waits_in_capture(int bug) {
    float *x = device_floats(N, 1);
    cudaStream_t s = new_stream(), t = new_stream();
    cudaGraph_t g = nullptr;
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    fill(x, 2, N, s);
    if (bug) MUST(cudaStreamSynchronize(t) == cudaErrorStreamCaptureUnsupported);
    cudaError_t e = cudaStreamEndCapture(s, &g);
    if (bug) MUST(e == cudaErrorStreamCaptureInvalidated && !g);
    else OK(e);
    (void)cudaGetLastError();
    MUST(all_are(x, N, 1));
}

static void not_joined(int bug) {
    float *x = device_floats(N, 1), *y = device_floats(N, 1);
    cudaStream_t s = new_stream(), t = new_stream();
    cudaEvent_t e = new_event(), back = new_event();
    cudaGraph_t g = nullptr;
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    fill(x, 2, N, s);
    OK(cudaEventRecord(e, s));
    OK(cudaStreamWaitEvent(t, e, 0));
    fill(y, 2, N, t);
    OK(cudaEventRecord(back, t));
    if (!bug) OK(cudaStreamWaitEvent(s, back, 0));
    MUST(cudaStreamEndCapture(s, &g) == (bug ? cudaErrorStreamCaptureUnjoined : cudaSuccess));
}

static void stale_stream(int bug) {
    float *x = device_floats(N, 1);
    cudaStream_t s = new_stream();
    if (bug) OK(cudaStreamDestroy(s));
    fill(x, 2, N, s);
    OK(cudaDeviceSynchronize());
}

static void freed_twice(int bug) {
    void *p;
    OK(cudaMalloc(&p, 100));
    OK(cudaFree(p));
    if (bug) MUST(cudaFree(p) == cudaErrorInvalidValue);
}

static void used_before_fork(int bug) {
    if (bug) device_floats(1, 1);
    pid_t p = fork();
    if (p == 0) {
        void *d;
        MUST(cudaMalloc(&d, 4) == (bug ? cudaErrorInitializationError : cudaSuccess));
        leave();
    }
    waitpid(p, nullptr, 0);
    if (bug) _exit(0);
    device_floats(1, 1);
    simt::clear_findings();
    _exit(0);
}

// --- the lists -------------------------------------------------------------------------------------------------------

static const Good goods[] = {
    {"memory", memory},
    {"laziness", laziness},
    {"default stream", default_stream},
    {"calls", calls},
    {"graph", graph},
    {"no device", no_device},
    {"old driver", old_driver},
    {"busy device", busy_device},
    {"old device", old_device},
    {"a kernel fails", kernel_fails},
    {"a launch fails", launch_fails},
};

static const Bad bads[] = {
    {"an event is not waited for", missing_wait, RACE, "race"},
    {"a graph lacks an edge", graph, RACE, "race"},
    {"pinned memory between two streams", pinned_race, RACE, "race"},
    {"pinned memory is filled again too early", pinned_reused, NOT_EAGER, "host-race"},
    {"the host reads device memory", host_reads, TRAP, "host-deref"},
    {"use after free", used_after_free, ALWAYS, "memory"},
    {"a kernel writes past its memory", kernel_beyond, ALWAYS, "memory"},
    {"a copy goes too far", copy_beyond, ALWAYS, "memory"},
    {"a copy of the wrong kind", wrong_kind, ALWAYS, "memory"},
    {"the host waits during a capture", waits_in_capture, ALWAYS, "capture"},
    {"a captured stream is not joined", not_joined, ALWAYS, "capture"},
    {"a destroyed stream is used", stale_stream, ALWAYS, "handle"},
    {"memory is freed twice", freed_twice, ALWAYS, "memory"},
    {"CUDA before a fork", used_before_fork, ALWAYS, "fork"},
};

enum { ORDERS = 10 };

// AddressSanitizer sees a kernel's bad address first, and ends the process.
#ifdef __SANITIZE_ADDRESS__
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

void try_good(const char *name, void (*fn)(int)) {
    char text[600] = "as it should be";
    bool good = true;
    running = name;
    for (order = 0; order < ORDERS && good; order++) {
        int status = run_case(fn, 0);
        good = status == 0 && !said->wrong && !said->findings;
        if (good) continue;
        snprintf(text, sizeof text, "seed %d: status %#x, %d findings (%s), %d wrong, first %s", (int)order, status,
                 said->findings, said->kind, said->wrong, said->where);
    }
    verdict(good, text);
}

void try_bad(const Bad *b) {
    char text[600];
    int found = 0, wrong = 0, traps = 0, other = 0;
    running = b->name;
    for (order = 0; order < ORDERS; order++) {
        int status = run_case(b->fn, 1);
        traps += status != 0;
        wrong += status != 0 || said->wrong;
        found += said->findings > 0;
        other += said->findings && strcmp(said->kind, b->kind) != 0;
    }
    bool good = found == ORDERS && !other;
    if (b->by == TRAP || (SANITIZED && traps)) good = traps == ORDERS;
    else if (b->by == NOT_EAGER) good = found >= ORDERS / 2 && found < ORDERS;
    else if (b->by == RACE && !simt::race_build()) good = wrong > 0;
    snprintf(text, sizeof text, "found under %d of %d orders (%s), wrong results under %d, trapped %d", found,
             (int)ORDERS, b->kind, wrong, traps);
    verdict(good, text);
}

int main(int argc, char **argv) {
    const char *only = argc > 1 ? argv[1] : "";
    unsetenv("SIM_SEED");
    said = (Said *)mmap(nullptr, sizeof *said, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (said == MAP_FAILED) return 1;
    for (const Good &g : goods)
        if (strstr(g.name, only)) try_good(g.name, g.fn);
    for (const Bad &b : bads) {
        if (!strstr(b.name, only)) continue;
        try_good(b.name, b.fn);
        try_bad(&b);
    }

    test_nccl(only);
    printf("%d passed, %d failed\n", passed, failures);
    return failures != 0;
}
