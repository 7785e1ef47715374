// comm/fabric/endpoint.h: this rank's endpoint of libfabric: one for all its links, with one queue of completions.
//
// Every operation that was posted has a fabric_op, which says whether it is done. Any thread that has time reads the
// queue, for all of them, and wakes those that sleep. libfabric is called by one thread at a time.
#ifndef COMM_FABRIC_ENDPOINT_H
#define COMM_FABRIC_ENDPOINT_H

#include "comm/fabric/library.h"
#include "comm/tcp/link.h"

#include <pthread.h>

enum { FABRIC_ADDRESS = 256, FABRIC_REGIONS = 16 };

typedef enum { OP_FREE, OP_POSTED, OP_ENDED, OP_FAILED } op_state;

typedef struct fabric_op {
    struct fi_context2 context;  // libfabric's, while it is posted
    _Atomic int state;           // op_state
    size_t bytes;                // that came, after OP_ENDED
    int why;                     // after OP_FAILED: a number of libfabric
    struct fid_mr *region;       // of this operation alone; NULL: none
} fabric_op;

// Memory that the provider knows.
typedef struct fabric_region {
    char *base;
    size_t bytes;
    struct fid_mr *mr;
} fabric_region;

typedef struct endpoint {
    fabric_library lib;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    int news;              // becomes readable with the queue; -1: the provider has no such descriptor
    double heard;          // where there is none: when the last operation has ended
    bool registers;        // local memory must be registered
    uint64_t key;          // of the next registration, where the provider leaves it to us
    pthread_mutex_t lock;  // held during every call of libfabric, and for what follows
    bool ended;            // the endpoint is closed
    link_sleeper *asleep;
    fabric_region region[FABRIC_REGIONS];
    int regions;
} endpoint;

// receives: how many will be posted at the same time. On failure nothing is left open.
err_t endpoint_open(endpoint *e, const transport_options *o, const char *host, size_t receives);
void endpoint_close(endpoint *e);

// What another rank needs to reach this one; *bytes (=) of it. And the other side of that.
err_t endpoint_name(endpoint *e, uint8_t dst[FABRIC_ADDRESS], size_t *bytes);
err_t endpoint_reach(endpoint *e, const uint8_t *name, size_t bytes, fi_addr_t *to);

// Posts a message, or the receive that one with this tag will meet. False: not now; or not any more, then op has
// failed.
bool endpoint_send(endpoint *e, fabric_op *op, fi_addr_t to, uint64_t tag, const void *data, size_t bytes);
bool endpoint_receive(endpoint *e, fabric_op *op, uint64_t tag, void *data, size_t bytes);

// The operations that have ended are marked.
void endpoint_turn(endpoint *e);
void endpoint_doze(endpoint *e, link_sleeper *me);
int endpoint_watch(endpoint *e, struct pollfd dst[LINK_WATCHED], int64_t *most_ns);
void endpoint_rise(endpoint *e, link_sleeper *me);

// From now on the endpoint touches no memory, and what is posted has failed.
void endpoint_end(endpoint *e);

err_t endpoint_register(endpoint *e, void *base, size_t bytes);

// After endpoint_end: what the operation has kept for itself.
void op_forget(fabric_op *op);

static inline op_state op_at(const fabric_op *op) {
    return (op_state)atomic_load_explicit(&op->state, memory_order_acquire);
}

#endif
