// comm/comm.h: what one rank may ask of the others. One table of collectives, ordered on a stream; a transport fills it. With one rank the
// transport is comm/self.c, which touches no library and moves no byte.
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include "comm/ordered.h"
#include "gpu/gpu.h"

typedef struct comm comm;

typedef struct comm_table {
    const char *name;
    // The lanes' sum over all ranks: c holds this rank's leftover subtrees over buffers of one shape. On return *sum is the buffer (of this
    // rank's) that has the whole tree's sum. ERR_INTERNAL when the ranks' subtrees do not make up all lanes.
    err_t (*sum_lanes)(comm *c, const lane_counter *mine, tensor *buffers, int64_t lanes, int *sum, stream *s);
    // *value = the largest of the ranks' values; the host waits. How ranks agree on a step to stop at.
    err_t (*agree_max)(comm *c, int64_t *value);
    void (*close)(comm *c);
} comm_table;

struct comm {
    const comm_table *table;
    int rank, world;
};

// One rank.
err_t comm_self_open(comm **out);

#endif
