// comm/tcp/mesh.h: the engine under the tcp transport: rings to the ranks of this host, links to those of others, and
// one loop that moves bytes on all of them at once.
//
// A collective is described, not programmed: for each peer a flow of messages out and a flow of messages in. One
// function, called when a flow comes to message k, describes that message: where the bytes are, whether they are copied
// or added, and which other flow they must not overtake. The loop moves whatever can be moved, a piece at a time, so
// that a pipeline needs no steps and no order of lists can deadlock. Where bytes pass through this rank, the flow out
// has the flow in as its `gate`, and never overtakes it.
//
// A mesh has one call at a time. Communicators that are in calls at the same time have a mesh each: channel 0 has one,
// and each communicator of another channel its own. The wires belong to all of them (comm/tcp/wires.h).
#ifndef COMM_TCP_MESH_H
#define COMM_TCP_MESH_H

#include "comm/tcp/sum.h"
#include "comm/tcp/wires.h"

#include <stdarg.h>

enum { MESH_TEXT = 256 };

typedef enum {
    OP_NONE,
    OP_EXCHANGE,
    OP_ALL_REDUCE,
    OP_REDUCE_SCATTER,
    OP_ALL_GATHER,
    OP_BROADCAST,
    OP_ALL_TO_ALL,
    OP_BARRIER,
    OP_SPLIT,
} mesh_op;

typedef struct flow {
    int rank, peer;  // in the communicator, in the team
    wire *wire;
    bool out;
    int k, n;  // the message in work, how many there are in this call
    // set by the collective for message k; all zero before it is called
    char *data;
    size_t bytes;
    sum_fn *add;              // in: NULL copies
    const struct flow *gate;  // not ahead of message gate_k of that flow, which has the same size
    int gate_k;
    // the engine's
    bool begun;       // the head of message k was sent, or received
    size_t done;      // bytes of it that are sent, or received, verified and added
    size_t frame;     // bytes of the frame in work
    int cursor;       // for the collective
    uint64_t serial;  // the call that it took part in last
} flow;

typedef struct mesh mesh;

typedef struct mesh_call {
    comm *c;  // whose call it is: its traffic is counted, its phase reported
    mesh_op op;
    uint16_t id;      // of the communicator
    uint64_t number;  // of the call in it
    const int *map;   // its ranks in the team
    void (*next)(const struct mesh_call *x, flow *f);
    const void *plan;  // for next
    mesh *m;
} mesh_call;

// Channel 0, to all ranks of the team. engine: what carries frames between hosts, which the mesh owns from now on, also
// when this fails; NULL: sockets.
err_t mesh_open(mesh **out, team *t, double timeout_s, link_engine *engine);
// Another channel, among ranks map[world]; seat[i]: the seat of rank map[i], if it is on this host. The mesh owns this
// rank's seat from then on, unless this fails.
err_t mesh_branch(mesh **out, mesh *from, int channel, const int *map, const int *seat, int world);
mesh *mesh_share(mesh *m);  // one more communicator uses it
void mesh_close(mesh *m);   // frees it when no user is left
wires *mesh_wires(const mesh *m);
static inline team *mesh_team(const mesh *m) { return mesh_wires(m)->team; }

// A collective: begin, all its flows, run. Several runs may follow each other under one call.
err_t mesh_begin(mesh_call *x);
flow *mesh_flow(const mesh_call *x, int rank, bool out);  // takes part from now on, so far with n = 0 messages
static inline void mesh_add(const mesh_call *x, int rank, bool out, int n) { mesh_flow(x, rank, out)->n += n; }
err_t mesh_run(mesh_call *x);

// comm/tcp/tcp.c: comm_tcp_open, with the frames between hosts carried by an engine, which the communicator owns from
// now on, also when this fails.
struct transport_options;
err_t comm_tcp_open_over(comm **out, team *t, const struct transport_options *o, link_engine *engine);

#endif
