// test/sim/cudart.cpp: the simulated devices: how many, what they are, how they fail. A test asks for what it wants to
// see by the environment:
//
//   SIM_DEVICES=n        0: cudaErrorNoDevice (1)             SIM_CAPABILITY=75   compute capability 7.5 (90)
//   SIM_DRIVER=12000     the driver is for CUDA 12.0: cudaErrorInsufficientDriver (13000)
//   SIM_SMS=n            multiprocessors (4)                  SIM_JIT=1   kernels are compiled by the driver, from
//                        older PTX
//   SIM_BUSY=1           the device belongs to another process: cudaErrorDevicesUnavailable
//   SIM_SLOW=1:500       every kernel of device 1 takes 500 microseconds longer
//   SIM_FAIL=name@n      the n-th launch of a kernel whose name contains `name` ends in an illegal address, and so does
//                        all that comes later
//   SIM_FAIL=launch:name@n   it is not launched at all: cudaErrorLaunchOutOfResources, once
#include "test/sim/cudart.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace simt {

// --- the process -----------------------------------------------------------------------------------------------------

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int depth;      // of calls, by the thread that has the lock
static pid_t process;  // that called first

bool given(const char *name) {
    const char *v = getenv(name);
    return v && *v;
}

long setting(const char *name, long otherwise) { return given(name) ? atol(getenv(name)) : otherwise; }

static Host *new_host() {
    Host *h = new Host();
    h->first = 1;
    return h;
}

Host &host() {
    static Host *h = new_host();
    return *h;
}

cudaError_t failed(cudaError_t e) {
    if (e != cudaSuccess) host().last_error = e;
    return e;
}

static int devices() { return (int)setting("SIM_DEVICES", 1); }
static int driver() { return (int)setting("SIM_DRIVER", CUDART_VERSION / 1000 * 1000); }

static cudaError_t find_device() {
    if (driver() < CUDART_VERSION / 1000 * 1000) return cudaErrorInsufficientDriver;
    if (devices() < 1) return cudaErrorNoDevice;
    if (process == 0) process = getpid();
    if (process != getpid()) {
        check_msg("fork", "a process uses CUDA that was forked from one that has used it");
        return cudaErrorInitializationError;
    }
    open_arena();
    return cudaSuccess;
}

Call::Call(bool asks) {
    pthread_mutex_lock(&lock);
    Host &h = host();
    depth++;
    h.calls++;
    status = cudaSuccess;
    if (!asks) return;
    status = h.lost != cudaSuccess ? h.lost : find_device();
    if (h.in_host_function) {
        check_msg("host-function", "a host function calls into CUDA");
        status = cudaErrorNotPermitted;
    }
    failed(status);
}

Call::~Call() {
    if (--depth == 0) close_device();
    pthread_mutex_unlock(&lock);
}

// --- failures that were asked for ------------------------------------------------------------------------------------

plan planned(const char *kernel) {
    static int seen;
    const char *wish = getenv("SIM_FAIL");
    if (!wish) return GOES_WELL;
    bool at_once = strncmp(wish, "launch:", 7) == 0;
    std::string name = at_once ? wish + 7 : wish;
    size_t at = name.rfind('@');
    int which = at == std::string::npos ? 1 : atoi(name.c_str() + at + 1);
    name.resize(at == std::string::npos ? name.size() : at);
    if (!strstr(kernel, name.c_str()) || ++seen != which) return GOES_WELL;
    return at_once ? NOT_LAUNCHED : FAILS_LATER;
}

// --- errors ----------------------------------------------------------------------------------------------------------

// Every code of the headers, less "cuda".
// clang-format off
#define CUDA_ERRORS(E) \
    E(Success) E(ErrorInvalidValue) E(ErrorMemoryAllocation) E(ErrorInitializationError) E(ErrorCudartUnloading)         \
    E(ErrorProfilerDisabled) E(ErrorProfilerNotInitialized) E(ErrorProfilerAlreadyStarted)                               \
    E(ErrorProfilerAlreadyStopped) E(ErrorInvalidConfiguration) E(ErrorInvalidPitchValue) E(ErrorInvalidSymbol)          \
    E(ErrorInvalidHostPointer) E(ErrorInvalidDevicePointer) E(ErrorInvalidTexture) E(ErrorInvalidTextureBinding)         \
    E(ErrorInvalidChannelDescriptor) E(ErrorInvalidMemcpyDirection) E(ErrorAddressOfConstant)                            \
    E(ErrorTextureFetchFailed) E(ErrorTextureNotBound) E(ErrorSynchronizationError) E(ErrorInvalidFilterSetting)         \
    E(ErrorInvalidNormSetting) E(ErrorMixedDeviceExecution) E(ErrorNotYetImplemented) E(ErrorMemoryValueTooLarge)        \
    E(ErrorStubLibrary) E(ErrorInsufficientDriver) E(ErrorCallRequiresNewerDriver) E(ErrorInvalidSurface)                \
    E(ErrorDuplicateVariableName) E(ErrorDuplicateTextureName) E(ErrorDuplicateSurfaceName) E(ErrorDevicesUnavailable)   \
    E(ErrorIncompatibleDriverContext) E(ErrorMissingConfiguration) E(ErrorPriorLaunchFailure)                            \
    E(ErrorLaunchMaxDepthExceeded) E(ErrorLaunchFileScopedTex) E(ErrorLaunchFileScopedSurf) E(ErrorSyncDepthExceeded)    \
    E(ErrorLaunchPendingCountExceeded) E(ErrorInvalidDeviceFunction) E(ErrorNoDevice) E(ErrorInvalidDevice)              \
    E(ErrorDeviceNotLicensed) E(ErrorSoftwareValidityNotEstablished) E(ErrorStartupFailure) E(ErrorInvalidKernelImage)   \
    E(ErrorDeviceUninitialized) E(ErrorMapBufferObjectFailed) E(ErrorUnmapBufferObjectFailed) E(ErrorArrayIsMapped)      \
    E(ErrorAlreadyMapped) E(ErrorNoKernelImageForDevice) E(ErrorAlreadyAcquired) E(ErrorNotMapped)                       \
    E(ErrorNotMappedAsArray) E(ErrorNotMappedAsPointer) E(ErrorECCUncorrectable) E(ErrorUnsupportedLimit)                \
    E(ErrorDeviceAlreadyInUse) E(ErrorPeerAccessUnsupported) E(ErrorInvalidPtx) E(ErrorInvalidGraphicsContext)           \
    E(ErrorNvlinkUncorrectable) E(ErrorJitCompilerNotFound) E(ErrorUnsupportedPtxVersion)                                \
    E(ErrorJitCompilationDisabled) E(ErrorUnsupportedExecAffinity) E(ErrorUnsupportedDevSideSync) E(ErrorContained)      \
    E(ErrorInvalidSource) E(ErrorFileNotFound) E(ErrorSharedObjectSymbolNotFound) E(ErrorSharedObjectInitFailed)         \
    E(ErrorOperatingSystem) E(ErrorInvalidResourceHandle) E(ErrorIllegalState) E(ErrorLossyQuery)                        \
    E(ErrorSymbolNotFound) E(ErrorNotReady) E(ErrorIllegalAddress) E(ErrorLaunchOutOfResources) E(ErrorLaunchTimeout)    \
    E(ErrorLaunchIncompatibleTexturing) E(ErrorPeerAccessAlreadyEnabled) E(ErrorPeerAccessNotEnabled)                    \
    E(ErrorSetOnActiveProcess) E(ErrorContextIsDestroyed) E(ErrorAssert) E(ErrorTooManyPeers)                            \
    E(ErrorHostMemoryAlreadyRegistered) E(ErrorHostMemoryNotRegistered) E(ErrorHardwareStackError)                       \
    E(ErrorIllegalInstruction) E(ErrorMisalignedAddress) E(ErrorInvalidAddressSpace) E(ErrorInvalidPc)                   \
    E(ErrorLaunchFailure) E(ErrorCooperativeLaunchTooLarge) E(ErrorTensorMemoryLeak) E(ErrorNotPermitted)                \
    E(ErrorNotSupported) E(ErrorSystemNotReady) E(ErrorSystemDriverMismatch) E(ErrorCompatNotSupportedOnDevice)          \
    E(ErrorMpsConnectionFailed) E(ErrorMpsRpcFailure) E(ErrorMpsServerNotReady) E(ErrorMpsMaxClientsReached)             \
    E(ErrorMpsMaxConnectionsReached) E(ErrorMpsClientTerminated) E(ErrorCdpNotSupported) E(ErrorCdpVersionMismatch)      \
    E(ErrorStreamCaptureUnsupported) E(ErrorStreamCaptureInvalidated) E(ErrorStreamCaptureMerge)                         \
    E(ErrorStreamCaptureUnmatched) E(ErrorStreamCaptureUnjoined) E(ErrorStreamCaptureIsolation)                          \
    E(ErrorStreamCaptureImplicit) E(ErrorCapturedEvent) E(ErrorStreamCaptureWrongThread) E(ErrorTimeout)                 \
    E(ErrorGraphExecUpdateFailure) E(ErrorExternalDevice) E(ErrorInvalidClusterSize) E(ErrorFunctionNotLoaded)           \
    E(ErrorInvalidResourceType) E(ErrorInvalidResourceConfiguration) E(ErrorUnknown)                                    

struct Error { cudaError_t code; const char *name; };
#define ROW(name) {cuda##name, "cuda" #name},
// clang-format on
static const Error errors[] = {CUDA_ERRORS(ROW)};

// "cudaErrorIllegalAddress": "illegal address"
static std::string words_of(const char *name) {
    std::string text;
    const char *at = name + (strncmp(name, "cudaError", 9) == 0 ? 9 : 4);
    for (; *at; at++) {
        if (isupper((unsigned char)*at) && !text.empty() && !isupper((unsigned char)at[-1])) text += ' ';
        text += (char)tolower((unsigned char)*at);
    }
    return text;
}

}  // namespace simt

using namespace simt;

extern "C" {

const char *CUDARTAPI cudaGetErrorName(cudaError_t code) {
    for (const Error &e : errors)
        if (e.code == code) return e.name;
    return "unrecognized error code";
}

const char *CUDARTAPI cudaGetErrorString(cudaError_t code) {
    static thread_local std::string text;
    text = words_of(cudaGetErrorName(code));
    return text.c_str();
}

// What other calls have returned. An error that the device ended of is not forgotten, and not known before another call
// has found it.
cudaError_t CUDARTAPI cudaGetLastError(void) {
    Call call(false);
    cudaError_t e = host().last_error;
    if (e != host().lost) host().last_error = cudaSuccess;
    return e;
}

cudaError_t CUDARTAPI cudaPeekAtLastError(void) {
    Call call(false);
    return host().last_error;
}

// --- devices ---------------------------------------------------------------------------------------------------------

static cudaError_t bad_device(int d) { return d >= 0 && d < devices() ? cudaSuccess : failed(cudaErrorInvalidDevice); }
static int capability() { return (int)setting("SIM_CAPABILITY", 90); }

cudaError_t CUDARTAPI cudaDriverGetVersion(int *version) {
    *version = driver();
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaGetDeviceCount(int *count) {
    *count = 0;
    CALL;
    *count = devices();
    return cudaSuccess;
}

static int current;

cudaError_t CUDARTAPI cudaSetDevice(int d) {
    CALL;
    if (cudaError_t e = bad_device(d)) return e;
    if (setting("SIM_BUSY", 0)) return failed(cudaErrorDevicesUnavailable);
    current = d;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaDeviceGetPCIBusId(char *id, int length, int d) {
    CALL;
    if (cudaError_t e = bad_device(d)) return e;
    snprintf(id, (size_t)length, "ffff:%02x:00.0", 0x41 + d);  // where no real GPU is
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaGetDevice(int *d) {
    CALL;
    *d = current;
    return cudaSuccess;
}

}  // extern "C"

enum { THREADS_SM = 2048, BLOCKS_SM = 32, SHARED_RESERVED = 1024, SHARED_DEFAULT = 48 << 10 };

static int sms() { return (int)setting("SIM_SMS", 4); }

// Of one SM: 8.0 has 164 KB, 8.6 and 8.9 have 100, 9.0 has 228, 7.5 has 64 (CUDA C++ Programming Guide, "Technical
// specifications").
static int shared_sm() {
    int c = capability();
    return (c >= 90 ? 228 : c == 80 || c == 87 ? 164 : c >= 80 ? 100 : 64) << 10;
}

namespace simt {
int shared_limit() { return capability() < 80 ? shared_sm() : shared_sm() - SHARED_RESERVED; }

unsigned slowness() {
    int device;
    unsigned us;
    const char *wish = getenv("SIM_SLOW");
    return wish && sscanf(wish, "%d:%u", &device, &us) == 2 && device == current ? us : 0;
}
}

extern "C" long sim_submitted(const char *what) {
    Call call(false);
    const Host &h = host();
    static const char *const names[NODE_KINDS] = {"kernels", "copies", "sets", "host functions", "others"};
    for (int k = 0; k < NODE_KINDS; k++)
        if (strcmp(what, names[k]) == 0) return (long)h.submitted[k];
    return strcmp(what, "graphs") == 0 ? (long)h.graphs : -1;
}

extern "C" {

cudaError_t CUDARTAPI cudaGetDeviceProperties(struct cudaDeviceProp *p, int d) {
    CALL;
    if (cudaError_t e = bad_device(d)) return e;
    size_t unused;
    *p = {};
    snprintf(p->name, sizeof p->name, "simulator");
    cudaMemGetInfo(&unused, &p->totalGlobalMem);
    p->major = capability() / 10;
    p->minor = capability() % 10;
    p->multiProcessorCount = sms();
    p->sharedMemPerBlock = SHARED_DEFAULT;
    p->sharedMemPerBlockOptin = (size_t)shared_limit();
    p->sharedMemPerMultiprocessor = (size_t)shared_sm();
    p->reservedSharedMemPerBlock = SHARED_RESERVED;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxThreadsPerMultiProcessor = THREADS_SM;
    p->maxBlocksPerMultiProcessor = BLOCKS_SM;
    p->maxGridSize[0] = 0x7fffffff;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->unifiedAddressing = p->concurrentKernels = 1;
    p->asyncEngineCount = 2;
    p->l2CacheSize = 4 << 20;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr a, int d) {
    struct cudaDeviceProp p;
    if (cudaError_t e = cudaGetDeviceProperties(&p, d)) return e;
    switch (a) {
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = SHARED_DEFAULT; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = shared_limit(); break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = shared_sm(); break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = THREADS_SM; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrCooperativeLaunch: *value = 0; break;
    default: return failed(cudaErrorNotSupported);
    }
    return cudaSuccess;
}

// Registers are not known: threads, blocks and dynamic shared memory decide.
cudaError_t CUDARTAPI cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel, int threads,
                                                                    size_t shared) {
    CALL;
    if (!kernel || threads < 1 || threads > 1024) return failed(cudaErrorInvalidValue);
    int by_threads = THREADS_SM / ((threads + 31) / 32 * 32),
        by_shared = (int)((size_t)shared_sm() / (shared + SHARED_RESERVED));
    *blocks = by_threads < by_shared ? by_threads : by_shared;
    if (*blocks > BLOCKS_SM) *blocks = BLOCKS_SM;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *kernel) {
    CALL;
    if (!kernel) return failed(cudaErrorInvalidDeviceFunction);
    *a = {};
    a->maxThreadsPerBlock = 1024;
    a->maxDynamicSharedSizeBytes = shared_limit();
    a->binaryVersion = capability();
    a->ptxVersion = setting("SIM_JIT", 0) ? 75 : capability();
    return cudaSuccess;
}
}
