// comm/nccl/api.h: the part of NCCL's binary interface that we call, declared by us, so that the program builds where
// NCCL is not installed and opens it at run time where it is. Names and values are NCCL's own (nccl.h of 2.28);
// test/nccl_headers.c compares every one of them with the original where that is installed.
#ifndef COMM_NCCL_API_H
#define COMM_NCCL_API_H

#include "comm/transport.h"

#include <limits.h>

// Without a body: NCCL's and CUDA's own.
typedef struct ncclComm *ncclComm_t;
typedef struct CUstream_st *cudaStream_t;

enum { NCCL_UNIQUE_ID_BYTES = 128, NCCL_SPLIT_NOCOLOR = -1 };
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
    ncclSuccess,
    ncclUnhandledCudaError,
    ncclSystemError,
    ncclInternalError,
    ncclInvalidArgument,
    ncclInvalidUsage,
    ncclRemoteError,
    ncclInProgress,
} ncclResult_t;

typedef enum { ncclSum = 0, ncclMax = 2 } ncclRedOp_t;

typedef enum { ncclInt8 = 0, ncclInt32 = 2, ncclFloat32 = 7, ncclFloat64 = 8 } ncclDataType_t;

// An older library reads as much of it as it knows (`size`), a newer one treats missing fields as undefined; both know
// what an undefined value of this `version` looks like.
typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking;  // 0: calls return immediately, ncclCommGetAsyncError gives their result
    int cgaClusterSize, minCTAs, maxCTAs;
    const char *netName;
    int splitShare, trafficClass;
    const char *commName;
    int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs, nChannelsPerNetPeer, nvlinkCentricSched;
} ncclConfig_t;

enum { NCCL_API_VERSION = 22809, NCCL_OLDEST = 21800, NCCL_UNDEFINED = INT_MIN };
#define NCCL_MAGIC 0xcafebeefu

static inline ncclConfig_t nccl_config_nonblocking(void) {
    const int u = NCCL_UNDEFINED;
    return (ncclConfig_t){
        sizeof(ncclConfig_t), NCCL_MAGIC, NCCL_API_VERSION, 0, u, u, u, NULL, u, u, NULL, u, u, u, u, u, u};
}

// CALL(result, name, arguments): every function that we call; ncclCommSplit is the youngest of them (2.18).
#define NCCL_CALLS(CALL) \
    CALL(ncclResult_t, ncclGetVersion, (int *version)) \
    CALL(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id)) \
    CALL(ncclResult_t, ncclCommInitRankConfig, \
         (ncclComm_t * out, int world, ncclUniqueId id, int rank, ncclConfig_t *config)) \
    CALL(ncclResult_t, ncclCommSplit, (ncclComm_t c, int color, int key, ncclComm_t *out, ncclConfig_t *config)) \
    CALL(ncclResult_t, ncclCommFinalize, (ncclComm_t c)) \
    CALL(ncclResult_t, ncclCommDestroy, (ncclComm_t c)) \
    CALL(ncclResult_t, ncclCommAbort, (ncclComm_t c)) \
    CALL(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t c, ncclResult_t * state)) \
    CALL(const char *, ncclGetErrorString, (ncclResult_t result)) \
    CALL(const char *, ncclGetLastError, (ncclComm_t c)) \
    CALL(ncclResult_t, ncclGroupStart, (void)) \
    CALL(ncclResult_t, ncclGroupEnd, (void)) \
    CALL(ncclResult_t, ncclSend, \
         (const void *data, size_t count, ncclDataType_t type, int to, ncclComm_t c, cudaStream_t s)) \
    CALL(ncclResult_t, ncclRecv, \
         (void *data, size_t count, ncclDataType_t type, int from, ncclComm_t c, cudaStream_t s)) \
    CALL(ncclResult_t, ncclBroadcast, \
         (const void *in, void *out, size_t count, ncclDataType_t type, int root, ncclComm_t c, cudaStream_t s)) \
    CALL(ncclResult_t, ncclReduce, \
         (const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t c, \
          cudaStream_t s)) \
    CALL(ncclResult_t, ncclAllReduce, \
         (const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c, cudaStream_t s)) \
    CALL(ncclResult_t, ncclReduceScatter, \
         (const void *in, void *out, size_t each, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c, cudaStream_t s)) \
    CALL(ncclResult_t, ncclAllGather, \
         (const void *in, void *out, size_t each, ncclDataType_t type, ncclComm_t c, cudaStream_t s))

// Functions that are newer than the oldest supported library: NULL where the library has none.
#define NCCL_OPTIONAL_CALLS(CALL) \
    CALL(ncclResult_t, ncclCommRegister, (const ncclComm_t c, void *base, size_t bytes, void **handle)) \
    CALL(ncclResult_t, ncclCommDeregister, (const ncclComm_t c, void *handle))

// --- the opened library (comm/nccl/load.c) ---------------------------------------------------------------------------

enum { NCCL_PATH = 256, NCCL_VERSION_TEXT = 16 };

#define NCCL_FIELD(result, name, arguments) result(*name) arguments;
typedef struct nccl_library {
    char path[NCCL_PATH];  // what the dynamic linker found
    int version;           // 22809 is 2.28.9
    bool stand_in;         // works on host memory: the library of test/standin/
    NCCL_CALLS(NCCL_FIELD)
    NCCL_OPTIONAL_CALLS(NCCL_FIELD)
} nccl_library;

// Puts the settings into this process's environment, where NCCL looks for them, then opens the library and checks its
// version. The library stays loaded until the process ends: NCCL's threads may outlive its communicators.
// ERR_UNAVAILABLE names what was tried or what is missing, and what to do.
err_t nccl_library_open(nccl_library *out, const transport_options *o);

// "2.28.9" of 22809, into dst. Returns dst.
const char *nccl_version_text(int version, char dst[NCCL_VERSION_TEXT]);

// "nccl 2.28.9, /usr/lib/libnccl.so.2, interface eth0, infiniband off": with the values of NCCL's environment
// variables, set by the INI or by the user.
void nccl_library_describe(const nccl_library *lib, char *dst, size_t room);

// --- its communicators (comm/nccl/nccl.c) ----------------------------------------------------------------------------

// The same of a communicator's library.
void nccl_describe(const comm *c, char *dst, size_t room);

// Registers with NCCL a device buffer that collectives of c will use often; call it before the first of them. NCCL may
// then send from it and receive into it without a copy. Not collective. Undone at close; the buffer must live until
// then. At most NCCL_REGISTERED buffers.
enum { NCCL_REGISTERED = 64 };
err_t nccl_register(comm *c, void *base, size_t bytes);

#endif
