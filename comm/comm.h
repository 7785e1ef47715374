// comm/comm.h: what one rank may ask of the others. One table of collectives; a transport fills it.
//
//   self   one rank: touches no library and moves no byte
//   tcp    CPUs and tests: ranks of one host exchange through shared memory, hosts through authenticated TCP
//          connections
//   fabric the same, with libfabric between hosts, opened at run time
//   nccl   GPUs, opened at run time
//
// Order      All ranks of a communicator call the same collectives in the same order, from one thread at a time. The
//            call runs after the work already queued on `s`. A transport that works on the host runs it immediately, in
//            the calling thread; so call it on a compute stream, or within stream_call() on a queue stream, which is
//            how communication overlaps with compute.
// At once    Communicators may be in calls at the same time, from different threads of one rank, where they share no
//            connection:
//              of different channels                        always
//              of one channel k >= 1, made by two splits    when they have at most this rank in common
//              never otherwise: one channel and two or more common ranks; a communicator and its split for channel 0
//            Channel 0 is what a transport opens, and what every rank has. A rank's threads need no order among each
//            other across communicators; each communicator's own calls are ordered as above. split and close are made
//            by one thread of a rank at a time; calls of communicators that are not concerned may be under way
//            meanwhile.
// Memory     Device memory. A collective allocates nothing.
// Failure    A lost rank, a frame that does not verify, or a wait beyond the timeout gives ERR_UNAVAILABLE on all
//            ranks, with rank, node and phase, which is that of the communicator that noticed it. From then on every
//            call of every communicator fails with the same record, until close.
// Bits       exchange, all_gather, broadcast and all_to_all move bytes. all_reduce and reduce_scatter add in the
//            transport's own order: sums that must not depend on the number of ranks go through comm/reduce.h instead.
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include "comm/team/place.h"
#include "gpu/gpu.h"

typedef struct comm comm;

typedef enum { REDUCE_SUM, REDUCE_MAX } reduce_op;

// One message of an exchange. Messages between two ranks are matched in the order in which both list them, and must
// agree in size.
typedef struct comm_part {
    int peer;
    void *data;
    size_t bytes;
} comm_part;

// What was moved so far. Payload only: what a plan can predict. wire adds headers, checksums and handshakes of TCP
// connections.
typedef struct comm_traffic {
    int64_t sent, received;  // bytes of payload, to and from other ranks
    int64_t sent_far;        // of these, to ranks of other nodes
    int64_t sent_racks;      // of these, to ranks of other racks
    int64_t messages;        // sends to other ranks, also of no bytes: a part of an exchange, a piece of a collective
    int64_t messages_far;    // of these, to ranks of other nodes
    int64_t messages_racks;  // of these, to ranks of other racks
    int64_t sent_apart;      // of all bytes and messages, to ranks that are not joined with this one, of any node
    int64_t messages_apart;
    int64_t wire;  // bytes written to sockets
    int64_t calls;
} comm_traffic;

typedef struct comm_table {
    const char *name;
    // All messages at once: deadlock-free whatever the order of the lists. Zero-byte messages are allowed. peer == own
    // rank is not.
    err_t (*exchange)(comm *c, const comm_part *send, int sends, const comm_part *recv, int recvs, stream *s);
    // data[count] (=) sum or largest over ranks. FP32, FP64, INT32; all ranks get the same bits.
    err_t (*all_reduce)(comm *c, void *data, size_t count, dtype type, reduce_op op, stream *s);
    // data[cut[world]] elements; afterwards data[cut[r] .. cut[r+1]) holds the sum over ranks on rank r. The rest of
    // data is scratch. FP32.
    err_t (*reduce_scatter)(comm *c, void *data, const size_t *cut, dtype type, stream *s);
    // data[cut[world]] bytes; rank r's are data[cut[r] .. cut[r+1]); afterwards every rank has all of them.
    err_t (*all_gather)(comm *c, void *data, const size_t *cut, stream *s);
    err_t (*broadcast)(comm *c, void *data, size_t bytes, int root, stream *s);
    // out (world, each) (=): row r is what rank r has in row `rank` of its `in` (world, each). Bytes. out != in.
    err_t (*all_to_all)(comm *c, void *out, const void *in, size_t each, stream *s);
    err_t (*barrier)(comm *c, stream *s);
    // Ranks of the same color (>= 0) form a new communicator, ranked by (key, rank). Collective. color < 0: takes part
    // in the call only, *out = NULL. Close it before *c.
    //   channel 0      shares the connections of *c: the two are never in calls at the same time
    //   channel k > 0  has connections of its own (see "At once" above). The same k on all ranks, declared before the
    //                  ranks were forked (launch_channels), with a connection between each two of a color
    // ERR_INTERNAL on all ranks: the channels differ, or what is asked for was not declared; *c is as before.
    err_t (*split)(comm *c, int color, int key, int channel, comm **out);
    // This rank is making progress. While any rank says so, waiting ranks do not time out, whatever the channel. Any
    // thread; one atomic addition.
    void (*alive)(comm *c);
    // ERR_OK, or the failure that ended all communicators. Any thread. Returns at once, unless it is the first to
    // notice a failure: then it waits up to a second for the reason.
    err_t (*query)(comm *c);
    // This rank gives up: reports why to the others, and fails all pending and later calls, of every channel on every
    // rank. Any thread.
    void (*abort)(comm *c, const char *why);
    // Collectives will use this device memory: the transport may prepare for it. Local. NULL: nothing to prepare.
    err_t (*register_memory)(comm *c, void *base, size_t bytes);
    // *word = 1 before the transport ends what is queued on a device, with anything in its buffers; word NULL: no
    // longer, also not by another thread. Of the communicator that the transport opened. NULL: it never does so.
    void (*revoke_at)(comm *c, int32_t *word);
    // "shared memory and TCP": for the person who starts a run.
    void (*describe)(const comm *c, char *dst, size_t room);
    void (*close)(comm *c);
} comm_table;

// Of a communicator whose calls are recorded (comm/flight.h); real NULL: they are not.
typedef struct comm_tap {
    const comm_table *real;  // of the transport; `table` is the recorder's
    struct flight_rank *to;
    struct flight_comm *at;
    uint32_t id, calls, exchanges, splits;
} comm_tap;

// Every transport's communicator begins with this.
struct comm {
    const comm_table *table;
    int rank, world;
    const comm_place *place;  // one for each rank; NULL, of a plan: they lie as `even` says
    comm_even even;
    // moves host memory: itself, or the companion of a transport that moves device memory only
    comm *host;
    bool patient;  // comm_be_patient
    comm_traffic traffic;
    comm_phase phase;
    comm_tap tap;
};

// --- calls -----------------------------------------------------------------------------------------------------------

static inline comm_spot comm_where(const comm *c, int rank) { return comm_spot_of(c->place, &c->even, rank); }

static inline int comm_nodes(const comm *c) { return comm_where(c, c->world - 1).node + 1; }
static inline int comm_racks(const comm *c) { return comm_where(c, c->world - 1).rack + 1; }
// Ranks of this rank's node, with it.
static inline int comm_near(const comm *c) {
    int n = 0, node = comm_where(c, c->rank).node;
    for (int r = 0; r < c->world; r++) n += comm_where(c, r).node == node;
    return n;
}

static inline bool comm_joined(comm_spot a, comm_spot b) { return a.node == b.node && a.join == b.join; }

// Counts a message that a transport has sent to a rank of c.
static inline void comm_count_sent(comm *c, int peer, size_t bytes) {
    comm_spot from = comm_where(c, c->rank), to = comm_where(c, peer);
    int64_t n = (int64_t)bytes;
    c->traffic.sent += n, c->traffic.messages++;
    if (!comm_joined(from, to)) c->traffic.sent_apart += n, c->traffic.messages_apart++;
    if (to.node != from.node) c->traffic.sent_far += n, c->traffic.messages_far++;
    if (to.rack != from.rack) c->traffic.sent_racks += n, c->traffic.messages_racks++;
}

// While patient, a call does not time out as long as every rank shows signs of life: disks may be slow. Set it on the
// communicator that the transport opened (on its `host`); all its splits follow.
static inline void comm_be_patient(comm *c, bool patient) { __atomic_store_n(&c->patient, patient, __ATOMIC_RELAXED); }
static inline bool comm_is_patient(const comm *c) { return __atomic_load_n(&c->patient, __ATOMIC_RELAXED); }

static inline void comm_revoke_at(comm *c, int32_t *word) {
    if (c->table->revoke_at) c->table->revoke_at(c, word);
}

// Sends and receives single messages: an exchange of one. Both sides must be in the call.
err_t comm_send(comm *c, int to, const void *data, size_t bytes, stream *s);
err_t comm_recv(comm *c, int from, void *data, size_t bytes, stream *s);

// *value = the largest of the ranks' values; the host waits. How ranks agree on a step to stop at, and on whether all
// succeeded.
err_t comm_agree_max(comm *c, int64_t *value, stream *s);

// Collective. Every rank passes its own outcome of something that all ranks did. ERR_OK when all succeeded. Otherwise
// every rank gets the code and text of the lowest rank that failed, prefixed with its name on the other ranks;
// the record is shared. Nothing is aborted.
err_t comm_agree_ok(comm *c, err_t mine, stream *s);

// comm_place_text of a rank of c.
static inline const char *comm_rank_text(const comm *c, int rank, char dst[COMM_NAME]) {
    return comm_place_text(&c->place[rank], dst);
}

// One rank.
err_t comm_self_open(comm **out);

#endif
