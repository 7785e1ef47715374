// test/standin/nccl_calls.h: the functions of NCCL that both stand-ins have alike (test/standin/nccl_wire.h): groups
// and what is called within them, the id, words for results. Included once, after struct ncclComm, which has rank and
// world.
#ifndef TEST_STANDIN_NCCL_CALLS_H
#define TEST_STANDIN_NCCL_CALLS_H

#include "test/standin/nccl_wire.h"

// --- groups: the calling thread's own --------------------------------------------------------------------------------

static NCCL_THREAD struct {
    int depth, count;
    op *ops;
    bool spoiled;
} group;

// A group of one communicator, at least one call of it. The stand-in takes the list over, with free().
static ncclResult_t submit_group(op *ops, int count);

API ncclResult_t ncclGroupStart(void) {
    group.depth++;
    return ncclSuccess;
}

// One communicator a group: more than our caller does is more than is written here.
API ncclResult_t ncclGroupEnd(void) {
    if (group.depth == 0) return error(ncclInvalidUsage, "a group ends that never began");
    if (--group.depth > 0) return ncclSuccess;
    op *ops = group.ops;
    int count = group.count;
    bool spoiled = group.spoiled;
    group.ops = NULL, group.count = 0, group.spoiled = false;
    for (int i = 1; i < count; i++) spoiled |= ops[i].c != ops[0].c;
    if (count && !spoiled) return submit_group(ops, count);
    free(ops);
    return spoiled ? error(ncclInvalidUsage, "a call within the group was wrong") : ncclSuccess;
}

// NCCL lets a rank send to itself; lockstep never does.
static bool is_wrong(const op *o) {
    bool single = o->kind == OP_SEND || o->kind == OP_RECV;
    return !o->c || o->peer < 0 || o->peer >= o->c->world || o->count == 0 || (single && o->peer == o->c->rank);
}

static ncclResult_t add(op_kind kind, const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t how,
                        int peer, ncclComm_t c, cudaStream_t s) {
    op o = {kind, in, out, count, type, how, peer, c, s};
    ncclGroupStart();
    op *more = (op *)realloc(group.ops, (size_t)(group.count + 1) * sizeof *more);
    if (more) group.ops = more, group.ops[group.count++] = o;
    if (!more || is_wrong(&o)) group.spoiled = true;
    bool outermost = group.depth == 1;
    ncclResult_t r = ncclGroupEnd();
    return outermost ? r : more ? ncclSuccess : error(ncclSystemError, "no memory");
}

API ncclResult_t ncclSend(const void *in, size_t n, ncclDataType_t t, int to, ncclComm_t c, cudaStream_t s) {
    return add(OP_SEND, in, NULL, n, t, ncclSum, to, c, s);
}

API ncclResult_t ncclRecv(void *out, size_t n, ncclDataType_t t, int from, ncclComm_t c, cudaStream_t s) {
    return add(OP_RECV, NULL, out, n, t, ncclSum, from, c, s);
}

API ncclResult_t ncclBroadcast(const void *in, void *out, size_t n, ncclDataType_t t, int root, ncclComm_t c,
                               cudaStream_t s) {
    return add(OP_BROADCAST, in, out, n, t, ncclSum, root, c, s);
}

API ncclResult_t ncclReduce(const void *in, void *out, size_t n, ncclDataType_t t, ncclRedOp_t how, int root,
                            ncclComm_t c, cudaStream_t s) {
    return add(OP_REDUCE, in, out, n, t, how, root, c, s);
}

API ncclResult_t ncclAllReduce(const void *in, void *out, size_t n, ncclDataType_t t, ncclRedOp_t how, ncclComm_t c,
                               cudaStream_t s) {
    return add(OP_ALL_REDUCE, in, out, n, t, how, 0, c, s);
}

API ncclResult_t ncclReduceScatter(const void *in, void *out, size_t n, ncclDataType_t t, ncclRedOp_t how, ncclComm_t c,
                                   cudaStream_t s) {
    return add(OP_REDUCE_SCATTER, in, out, n, t, how, 0, c, s);
}

API ncclResult_t ncclAllGather(const void *in, void *out, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t s) {
    return add(OP_ALL_GATHER, in, out, n, t, ncclSum, 0, c, s);
}

// --- the rest --------------------------------------------------------------------------------------------------------

static ncclResult_t make_id(ncclUniqueId *id) {
    unsigned char random[16];
    memset(id, 0, sizeof *id);
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) return error(ncclSystemError, "no random bytes");
    int n = snprintf(id->internal, sizeof id->internal, "standin-");
    for (int i = 0; i < 16; i++) n += snprintf(id->internal + n, sizeof id->internal - (size_t)n, "%02x", random[i]);
    return ncclSuccess;
}

static ncclResult_t check_config(const ncclConfig_t *k) {
    bool good = k && k->size == sizeof *k && k->magic == NCCL_MAGIC && k->version == NCCL_API_VERSION &&
                k->blocking == 0 && k->nvlinkCentricSched == NCCL_UNDEFINED && k->netName == NULL;
    return good ? ncclSuccess
                : error(ncclInvalidArgument, "the configuration is not one of a non-blocking communicator");
}

static ncclResult_t check_rank(int world, int most, int rank, const ncclUniqueId *id) {
    bool good = world >= 1 && world <= most && rank >= 0 && rank < world && strncmp(id->internal, "standin-", 8) == 0;
    return good ? ncclSuccess : error(ncclInvalidArgument, "rank, world or id is wrong");
}

static ncclResult_t busy(void) {
    return error(ncclInvalidArgument, "the communicator is used before its last call has ended");
}

API const char *ncclGetErrorString(ncclResult_t r) {
    static const char *const text[] = {"no error",
                                       "unhandled cuda error",
                                       "unhandled system error",
                                       "internal error",
                                       "invalid argument",
                                       "invalid usage",
                                       "remote process exited or there was a network error",
                                       "NCCL operation in progress"};
    return (unsigned)r < sizeof text / sizeof *text ? text[r] : "unknown result code";
}

API const char *ncclGetLastError(ncclComm_t c) {
    static NCCL_THREAD char copy[sizeof last_error];
    (void)c;
    pthread_mutex_lock(&error_lock);
    memcpy(copy, last_error, sizeof copy);
    pthread_mutex_unlock(&error_lock);
    return copy;
}

#endif
