// test/nccl_headers.c: compared with NCCL's own header, is comm/nccl/api.h right? Compiled only where that header is
// installed; there is nothing to run. Our types are renamed while they are read, so that both can be seen at once; the
// list of functions is a macro, and is therefore read with NCCL's types in it.
#define ncclUniqueId our_ncclUniqueId
#define ncclResult_t our_ncclResult_t
#define ncclSuccess our_ncclSuccess
#define ncclUnhandledCudaError our_ncclUnhandledCudaError
#define ncclSystemError our_ncclSystemError
#define ncclInternalError our_ncclInternalError
#define ncclInvalidArgument our_ncclInvalidArgument
#define ncclInvalidUsage our_ncclInvalidUsage
#define ncclRemoteError our_ncclRemoteError
#define ncclInProgress our_ncclInProgress
#define ncclRedOp_t our_ncclRedOp_t
#define ncclSum our_ncclSum
#define ncclMax our_ncclMax
#define ncclDataType_t our_ncclDataType_t
#define ncclInt8 our_ncclInt8
#define ncclInt32 our_ncclInt32
#define ncclFloat32 our_ncclFloat32
#define ncclFloat64 our_ncclFloat64
#define ncclConfig_t our_ncclConfig_t
#define NCCL_UNIQUE_ID_BYTES OUR_UNIQUE_ID_BYTES
#define NCCL_SPLIT_NOCOLOR OUR_SPLIT_NOCOLOR
#include "comm/nccl/api.h"
#undef ncclUniqueId
#undef ncclResult_t
#undef ncclSuccess
#undef ncclUnhandledCudaError
#undef ncclSystemError
#undef ncclInternalError
#undef ncclInvalidArgument
#undef ncclInvalidUsage
#undef ncclRemoteError
#undef ncclInProgress
#undef ncclRedOp_t
#undef ncclSum
#undef ncclMax
#undef ncclDataType_t
#undef ncclInt8
#undef ncclInt32
#undef ncclFloat32
#undef ncclFloat64
#undef ncclConfig_t
#undef NCCL_UNIQUE_ID_BYTES
#undef NCCL_SPLIT_NOCOLOR

#include <nccl.h>

_Static_assert(NCCL_VERSION_CODE >= NCCL_OLDEST, "headers older than the oldest library that will do");

#define SAME_VALUE(ours, theirs) _Static_assert((long long)(ours) == (long long)(theirs), #theirs)
#define SAME_NAME(name) SAME_VALUE(our_##name, name)
SAME_NAME(ncclSuccess);
SAME_NAME(ncclUnhandledCudaError);
SAME_NAME(ncclSystemError);
SAME_NAME(ncclInternalError);
SAME_NAME(ncclInvalidArgument);
SAME_NAME(ncclInvalidUsage);
SAME_NAME(ncclRemoteError);
SAME_NAME(ncclInProgress);
SAME_NAME(ncclSum);
SAME_NAME(ncclMax);
SAME_NAME(ncclInt8);
SAME_NAME(ncclInt32);
SAME_NAME(ncclFloat32);
SAME_NAME(ncclFloat64);
SAME_VALUE(OUR_UNIQUE_ID_BYTES, NCCL_UNIQUE_ID_BYTES);
SAME_VALUE(OUR_SPLIT_NOCOLOR, NCCL_SPLIT_NOCOLOR);
SAME_VALUE(NCCL_UNDEFINED, NCCL_CONFIG_UNDEF_INT);

#define SAME_TYPE(ours, theirs) \
    _Static_assert(sizeof(ours) == sizeof(theirs) && _Alignof(ours) == _Alignof(theirs), #theirs)
SAME_TYPE(our_ncclUniqueId, ncclUniqueId);
SAME_TYPE(our_ncclResult_t, ncclResult_t);
SAME_TYPE(our_ncclRedOp_t, ncclRedOp_t);
SAME_TYPE(our_ncclDataType_t, ncclDataType_t);

#define SAME_FIELD(field) \
    _Static_assert(offsetof(our_ncclConfig_t, field) == offsetof(ncclConfig_t, field) && \
                       __builtin_types_compatible_p(__typeof__(((our_ncclConfig_t *)0)->field), \
                                                    __typeof__(((ncclConfig_t *)0)->field)), \
                   #field)
SAME_FIELD(size);
SAME_FIELD(magic);
SAME_FIELD(version);
SAME_FIELD(blocking);
SAME_FIELD(cgaClusterSize);
SAME_FIELD(minCTAs);
SAME_FIELD(maxCTAs);
SAME_FIELD(netName);
SAME_FIELD(splitShare);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)  // the header that ours was written from
SAME_TYPE(our_ncclConfig_t, ncclConfig_t);
SAME_FIELD(trafficClass);
SAME_FIELD(commName);
SAME_FIELD(collnetEnable);
SAME_FIELD(CTAPolicy);
SAME_FIELD(shrinkShare);
SAME_FIELD(nvlsCTAs);
SAME_FIELD(nChannelsPerNetPeer);
SAME_FIELD(nvlinkCentricSched);
#endif

#define SAME_FUNCTION(result, name, arguments) \
    _Static_assert(__builtin_types_compatible_p(result arguments, __typeof__(name)), #name);
NCCL_CALLS(SAME_FUNCTION)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
NCCL_OPTIONAL_CALLS(SAME_FUNCTION)
#endif

// What only an object can show: the bytes of the two configurations. Read by test/test_nccl.c, which finds this file
// linked or not.
const int nccl_headers_version = NCCL_VERSION_CODE;
const ncclConfig_t nccl_headers_config = NCCL_CONFIG_INITIALIZER;
const size_t nccl_headers_config_bytes = sizeof(ncclConfig_t);
