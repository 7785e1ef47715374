// comm/self.c: the transport of a run with one rank: there are no others to ask.
#include "comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct self_comm {
    comm head;
    comm_place here;
} self_comm;

static err_t self_exchange(comm *c, const comm_part *send, int sends, const comm_part *recv, int recvs, stream *s) {
    (void)c, (void)send, (void)recv, (void)s;
    return sends || recvs ? err_set(ERR_INTERNAL, "an exchange of %d messages with nobody", sends + recvs) : ERR_OK;
}

static err_t self_all_reduce(comm *c, void *data, size_t count, dtype type, reduce_op op, stream *s) {
    (void)c, (void)data, (void)count, (void)type, (void)op, (void)s;
    return ERR_OK;
}

static err_t self_reduce_scatter(comm *c, void *data, const size_t *cut, dtype type, stream *s) {
    (void)c, (void)data, (void)cut, (void)type, (void)s;
    return ERR_OK;
}

static err_t self_all_gather(comm *c, void *data, const size_t *cut, stream *s) {
    (void)c, (void)data, (void)cut, (void)s;
    return ERR_OK;
}

static err_t self_broadcast(comm *c, void *data, size_t bytes, int root, stream *s) {
    (void)c, (void)data, (void)bytes, (void)root, (void)s;
    return ERR_OK;
}

static err_t self_all_to_all(comm *c, void *out, const void *in, size_t each, stream *s) {
    (void)c;
    return stream_copy(s, out, in, each);
}

static err_t self_barrier(comm *c, stream *s) {
    (void)c, (void)s;
    return ERR_OK;
}

static err_t self_split(comm *c, int color, int key, int channel, comm **out) {
    (void)c, (void)key, (void)channel;
    *out = NULL;
    return color < 0 ? ERR_OK : comm_self_open(out);
}

static void self_alive(comm *c) { (void)c; }
static err_t self_query(comm *c) {
    (void)c;
    return ERR_OK;
}
static void self_abort(comm *c, const char *why) { (void)c, (void)why; }
static void self_close(comm *c) { free(c); }

static void self_describe(const comm *c, char *dst, size_t room) {
    (void)c;
    snprintf(dst, room, "self: nobody to talk to");
}

static const comm_table self_table = {
    .name = "self",
    .exchange = self_exchange,
    .all_reduce = self_all_reduce,
    .reduce_scatter = self_reduce_scatter,
    .all_gather = self_all_gather,
    .broadcast = self_broadcast,
    .all_to_all = self_all_to_all,
    .barrier = self_barrier,
    .split = self_split,
    .alive = self_alive,
    .query = self_query,
    .abort = self_abort,
    .describe = self_describe,
    .close = self_close,
};

err_t comm_self_open(comm **out) {
    self_comm *c = calloc(1, sizeof *c);
    if (!c) return err_set(ERR_INTERNAL, "no memory for a communicator");
    strcpy(c->here.host, "localhost");
    c->head = (comm){.table = &self_table, .rank = 0, .world = 1, .place = &c->here, .host = &c->head};
    *out = &c->head;
    return ERR_OK;
}
