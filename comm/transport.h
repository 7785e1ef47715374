// comm/transport.h: opens a transport over a team. The team outlives it.
#ifndef COMM_TRANSPORT_H
#define COMM_TRANSPORT_H

#include "base/words.h"
#include "comm/comm.h"
#include "comm/team/team.h"

#define TRANSPORT_WORDS(X) \
    X(TRANSPORT_AUTO, "auto") \
    X(TRANSPORT_TCP, "tcp") \
    X(TRANSPORT_NCCL, "nccl") \
    X(TRANSPORT_FABRIC, "fabric")
typedef enum { TRANSPORT_WORDS(WORD_ENUM) } transport_kind;

typedef struct transport_options {
    transport_kind kind;  // not TRANSPORT_AUTO: the caller has resolved it
    device *dev;
    const char *arithmetic;  // of this rank's device (gpu/gpu.h), the same on all ranks. NULL on all: not compared
    double timeout_s;        // without a byte of progress in one collective
    // NCCL only; empty: its own choice. These set NCCL's environment variables, and are printed.
    const char *nccl_path;  // path of libnccl.so.2; empty: the usual places
    const char *interface;  // NCCL_SOCKET_IFNAME
    const char *algorithm;  // NCCL_ALGO
    int infiniband;         // NCCL_IB_DISABLE: -1 its own choice, 0 off, 1 on
    // libfabric only; NULL or empty: its own choice
    const char *provider;  // "tcp", "verbs;ofi_rxm", "efa"
    const char *domain;    // its name of the device: "eth0", "mlx5_0"
    bool registers;        // every payload is registered, also where the provider does not ask for it
} transport_options;

// Collective over the team. With one rank both are comm_self_open. ERR_CONFIG names two ranks whose devices give
// different bits, and their descriptions; this check runs before anything that two kinds of device would do
// differently.
err_t transport_open(comm **out, team *t, const transport_options *o, stream *s);

// comm/tcp/tcp.c
err_t comm_tcp_open(comm **out, team *t, const transport_options *o);
// comm/fabric/fabric.c: ranks of one machine as with tcp; between machines frames go through libfabric, which is opened
// where there are several.
err_t comm_fabric_open(comm **out, team *t, const transport_options *o);
// comm/nccl/nccl.c: the id of the NCCL communicator is sent through `over`, which is kept for small host-side messages
// and closed with the new communicator. On failure `over` stays the caller's.
err_t comm_nccl_open(comm **out, team *t, comm *over, const transport_options *o, stream *s);

// Announces device memory that collectives will use: the transport may prepare for it. Local; a no-op except for NCCL
// 2.19 and later.
err_t transport_register(comm *c, void *base, size_t bytes);

// "nccl 2.28.3, /usr/lib/.../libnccl.so.2, interface eth0, infiniband off" or "shared memory and TCP": for the person
// who starts a run.
void transport_describe(const comm *c, char *dst, size_t room);

#endif
