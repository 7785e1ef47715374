// test/standin/nccl_wire.h: what the two stand-ins for NCCL have in common, in C and C++: test/standin/nccl.c, strict
// with NCCL's manners over host memory, and test/sim/host/nccl.cpp, with NCCL's order over simulated streams. Here are
// messages, arithmetic and who is who; the functions that callers see are in test/standin/nccl_calls.h. Each stand-in
// has its own struct ncclComm, and decides when a group goes on.
//
// Processes of one machine meet at unix sockets of the abstract namespace: nothing to clean up, nothing to find on
// disk.
#ifndef TEST_STANDIN_NCCL_WIRE_H
#define TEST_STANDIN_NCCL_WIRE_H

#ifdef __cplusplus
extern "C" {
#include "comm/nccl/api.h"
}
#define API extern "C" __attribute__((visibility("default")))
#define NCCL_THREAD thread_local
#else
#include "comm/nccl/api.h"
#define API __attribute__((visibility("default")))
#define NCCL_THREAD _Thread_local
#endif

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { RANKS_MAX = 256 };

typedef enum {
    OP_SEND,
    OP_RECV,
    OP_BROADCAST,
    OP_REDUCE,
    OP_ALL_REDUCE,
    OP_REDUCE_SCATTER,
    OP_ALL_GATHER,
    OP_VOTE,  // of the stand-ins' own: split, finalize
} op_kind;

typedef struct op {
    op_kind kind;
    const void *in;
    void *out;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t how;
    int peer;  // or root
    ncclComm_t c;
    cudaStream_t stream;
} op;

// --- failures --------------------------------------------------------------------------------------------------------

// Of the whole process, as NCCL's own. A stand-in may have what the library must not: globals.
static pthread_mutex_t error_lock = PTHREAD_MUTEX_INITIALIZER;
static char last_error[256];

static ncclResult_t error(ncclResult_t r, const char *text) {
    pthread_mutex_lock(&error_lock);
    snprintf(last_error, sizeof last_error, "stand-in: %s", text);
    pthread_mutex_unlock(&error_lock);
    return r;
}

// --- messages --------------------------------------------------------------------------------------------------------

// One direction of an exchange with one rank: a header, so that calls that do not match are found out, then the bytes.
typedef struct header {
    uint32_t kind, type;
    uint64_t bytes;
} header;
typedef struct message {
    int peer;
    bool sends;
    header head, got;
    char *data;
    size_t done;
} message;

static message part(int peer, bool sends, op_kind kind, ncclDataType_t type, const void *data, size_t bytes) {
    message m;
    memset(&m, 0, sizeof m);
    m.peer = peer, m.sends = sends, m.data = (char *)(uintptr_t)data;
    m.head.kind = (uint32_t)kind, m.head.type = (uint32_t)type, m.head.bytes = bytes;
    return m;
}

static bool complete(const message *m) { return m->done == sizeof(header) + m->head.bytes; }

// A peer's call is another one: the stand-in's own business.
static void told_apart(const message *m);

// Moves what can be moved now. ncclSuccess: no error; the message may be complete or not.
static ncclResult_t advance(int fd, message *m) {
    while (!complete(m)) {
        bool in_head = m->done < sizeof(header);
        char *at = in_head ? (char *)(m->sends ? &m->head : &m->got) + m->done : m->data + (m->done - sizeof(header));
        size_t left = (in_head ? sizeof(header) : sizeof(header) + m->head.bytes) - m->done;
        ssize_t n = m->sends ? send(fd, at, left, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(fd, at, left, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return ncclSuccess;
        if (n <= 0) return error(ncclRemoteError, "the connection to a peer was closed");
        m->done += (size_t)n;
        if (m->sends || m->done != sizeof(header) || memcmp(&m->got, &m->head, sizeof m->got) == 0) continue;
        told_apart(m);
        return error(ncclInvalidUsage, "the ranks' calls do not match");
    }
    return ncclSuccess;
}

// --- arithmetic ------------------------------------------------------------------------------------------------------

static size_t type_bytes(ncclDataType_t t) { return t == ncclInt8 ? 1 : t == ncclFloat64 ? 8 : 4; }

#define COMBINE(T) \
    do { \
        T *x = (T *)acc; \
        const T *y = (const T *)more; \
        for (size_t i = 0; i < count; i++) x[i] = how == ncclMax ? (y[i] > x[i] ? y[i] : x[i]) : x[i] + y[i]; \
    } while (0)

static void combine(void *acc, const void *more, size_t count, ncclDataType_t type, ncclRedOp_t how) {
    if (type == ncclFloat32) COMBINE(float);
    else if (type == ncclFloat64) COMBINE(double);
    else if (type == ncclInt32) COMBINE(int32_t);
    else COMBINE(int8_t);
}

// --- who is who ------------------------------------------------------------------------------------------------------

static socklen_t address(struct sockaddr_un *a, const char *name, int rank) {
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "%s-%d", name, rank);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

// What a rank wants of a split.
typedef struct vote {
    int32_t color, key;
} vote;

enum { COMM_NAME_ROOM = 96 };

// Of those who want the same as rank `self`: how many they are, and which of them it is; the child's name.
static void count_votes(const vote *all, int ranks, int self, int *rank, int *world) {
    *world = *rank = 0;
    for (int i = 0; i < ranks; i++) {
        if (all[i].color != all[self].color) continue;
        ++*world;
        *rank += all[i].key < all[self].key || (all[i].key == all[self].key && i < self);
    }
}

static void name_child(char dst[COMM_NAME_ROOM], const char *parent, int splits, int color) {
    snprintf(dst, COMM_NAME_ROOM, "%.70s/%d.%d", parent, splits, color);
}

#endif
