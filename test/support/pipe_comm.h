// test/support/pipe_comm.h: ranks for tests: processes forked from one, a socket pair between every two, and as many
// "nodes" as the test likes. Everything is built on exchange, plainly; it allocates, and is meant to be right and
// small.
#ifndef TEST_SUPPORT_PIPE_COMM_H
#define TEST_SUPPORT_PIPE_COMM_H

#include "comm/comm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PIPE_RANKS = 8 };

typedef struct pipe_mesh {
    int world;
    comm_place place[PIPE_RANKS];
    int fd[PIPE_RANKS][PIPE_RANKS];  // [i][j]: rank i's end of its connection to j
} pipe_mesh;

typedef struct pipe_comm {
    comm head;
    pipe_mesh *mesh;
    err_record broken;
    // This rank ends in its die_in'th exchange from now on (0: never), in which only ranks below `reach` still hear of
    // it.
    int die_in, reach;
} pipe_comm;

// --- exchange --------------------------------------------------------------------------------------------------------

typedef struct pipe_move {
    comm_part part;
    uint64_t length;
    size_t done;
    bool in;
} pipe_move;

static inline err_t pipe_break(pipe_comm *p, const char *what, int peer) {
    if (!p->broken.code) {
        err_set(ERR_UNAVAILABLE, "rank %d: %s rank %d", p->head.rank, what, peer);
        p->broken = *err_last();
    }
    return err_restore(&p->broken);
}

// A message is its length and its bytes. Only the first unfinished one of each direction to each peer may move.
static inline bool pipe_may_move(const pipe_move *m, int i) {
    if (m[i].done == m[i].part.bytes + sizeof m[i].length) return false;
    for (int j = 0; j < i; j++)
        if (m[j].in == m[i].in && m[j].part.peer == m[i].part.peer && m[j].done < m[j].part.bytes + sizeof m[j].length)
            return false;
    return true;
}

static inline err_t pipe_move_some(pipe_comm *p, pipe_move *m) {
    int fd = p->mesh->fd[p->head.rank][m->part.peer];
    bool head = m->done < sizeof m->length;
    char *at = head ? (char *)&m->length + m->done : (char *)m->part.data + (m->done - sizeof m->length);
    size_t n = head ? sizeof m->length - m->done : m->part.bytes + sizeof m->length - m->done;
    ssize_t moved = m->in ? recv(fd, at, n, MSG_DONTWAIT) : send(fd, at, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (moved < 0 && (errno == EAGAIN || errno == EINTR)) return ERR_OK;
    if (moved < 0 || (moved == 0 && m->in)) return pipe_break(p, "lost", m->part.peer);
    m->done += (size_t)moved;
    if (m->in && m->done == sizeof m->length && m->length != m->part.bytes)
        return pipe_break(p, "expected a message of another length from", m->part.peer);
    return ERR_OK;
}

static inline err_t pipe_run(pipe_comm *p, pipe_move *m, int moves) {
    for (;;) {
        struct pollfd fds[2 * PIPE_RANKS + 2];
        int which[2 * PIPE_RANKS + 2], n = 0;
        for (int i = 0; i < moves; i++)
            if (pipe_may_move(m, i)) {
                fds[n] = (struct pollfd){p->mesh->fd[p->head.rank][m[i].part.peer], m[i].in ? POLLIN : POLLOUT, 0};
                which[n++] = i;
            }
        if (n == 0) return ERR_OK;
        if (poll(fds, (nfds_t)n, 30000) == 0) return pipe_break(p, "has waited 30 s for", m[which[0]].part.peer);
        for (int i = 0; i < n; i++)
            if (fds[i].revents) TRY(pipe_move_some(p, &m[which[i]]));
    }
}

static inline err_t pipe_exchange(comm *c, const comm_part *send, int sends, const comm_part *recv, int recvs,
                                  stream *s) {
    pipe_comm *p = (pipe_comm *)c;
    (void)s;
    if (p->broken.code) return err_restore(&p->broken);
    pipe_move *m = calloc((size_t)(sends + recvs) + 1, sizeof *m);
    bool dying = p->die_in && --p->die_in == 0;
    int n = 0;
    for (int i = 0; i < sends; i++)
        if (!dying || send[i].peer < p->reach) m[n++] = (pipe_move){.part = send[i], .length = send[i].bytes};
    for (int i = 0; i < recvs; i++)
        if (!dying || recv[i].peer < p->reach) m[n++] = (pipe_move){.part = recv[i], .in = true};
    err_t rc = pipe_run(p, m, n);
    free(m);
    if (dying) _exit(0);
    return rc;
}

// --- what is built on it ---------------------------------------------------------------------------------------------

static inline err_t pipe_all_gather(comm *c, void *data, const size_t *cut, stream *s) {
    comm_part send[PIPE_RANKS], recv[PIPE_RANKS];
    int n = 0;
    for (int r = 0; r < c->world; r++) {
        if (r == c->rank) continue;
        send[n] = (comm_part){r, (char *)data + cut[c->rank], cut[c->rank + 1] - cut[c->rank]};
        recv[n++] = (comm_part){r, (char *)data + cut[r], cut[r + 1] - cut[r]};
    }
    return pipe_exchange(c, send, n, recv, n, s);
}

static inline err_t pipe_broadcast(comm *c, void *data, size_t bytes, int root, stream *s) {
    comm_part send[PIPE_RANKS];
    int n = 0;
    if (c->rank != root) return comm_recv(c, root, data, bytes, s);
    for (int r = 0; r < c->world; r++)
        if (r != root) send[n++] = (comm_part){r, data, bytes};
    return pipe_exchange(c, send, n, NULL, 0, s);
}

static inline double pipe_get(const void *data, dtype type, size_t i) {
    return type == FP64   ? ((const double *)data)[i]
           : type == FP32 ? (double)((const float *)data)[i]
                          : ((const int32_t *)data)[i];
}

static inline void pipe_set(void *data, dtype type, size_t i, double x) {
    if (type == FP64) ((double *)data)[i] = x;
    else if (type == FP32) ((float *)data)[i] = (float)x;
    else ((int32_t *)data)[i] = (int32_t)x;
}

static inline err_t pipe_all_reduce(comm *c, void *data, size_t count, dtype type, reduce_op op, stream *s) {
    size_t each = count * dtype_bytes(type), cut[PIPE_RANKS + 1] = {0};
    char *all = malloc((size_t)c->world * each + 1);
    for (int r = 0; r <= c->world; r++) cut[r] = (size_t)r * each;
    memcpy(all + cut[c->rank], data, each);
    err_t rc = pipe_all_gather(c, all, cut, s);
    for (size_t i = 0; i < count && rc == ERR_OK; i++) {
        double x = pipe_get(all, type, i);
        for (int r = 1; r < c->world; r++) {
            double y = pipe_get(all + cut[r], type, i);
            x = op == REDUCE_SUM ? x + y : y > x ? y : x;
        }
        pipe_set(data, type, i, x);
    }
    free(all);
    return rc;
}

static inline err_t pipe_barrier(comm *c, stream *s) {
    int32_t none = 0;
    return pipe_all_reduce(c, &none, 1, INT32, REDUCE_MAX, s);
}

static inline err_t pipe_query(comm *c) {
    pipe_comm *p = (pipe_comm *)c;
    return p->broken.code ? err_restore(&p->broken) : ERR_OK;
}

static inline void pipe_close(comm *c) { free(c); }

static const comm_table pipe_table = {
    .name = "pipe",
    .exchange = pipe_exchange,
    .all_reduce = pipe_all_reduce,
    .all_gather = pipe_all_gather,
    .broadcast = pipe_broadcast,
    .barrier = pipe_barrier,
    .query = pipe_query,
    .close = pipe_close,
};

// --- ranks -----------------------------------------------------------------------------------------------------------

// ranks[nodes]: how many each node has. Before the fork.
static inline void pipe_mesh_open(pipe_mesh *m, int nodes, const int *ranks) {
    *m = (pipe_mesh){0};
    for (int n = 0; n < nodes; n++)
        for (int i = 0; i < ranks[n]; i++) {
            comm_place *p = &m->place[m->world++];
            *p = (comm_place){.node = n, .local = i, .rank = m->world - 1};
            snprintf(p->host, sizeof p->host, "host-%c", 'a' + n);
        }
    for (int i = 0; i < m->world; i++)
        for (int j = 0, pair[2]; j < i; j++) {
            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) abort();
            m->fd[i][j] = pair[0];
            m->fd[j][i] = pair[1];
        }
}

// All ends but those of `keep` (-1: all).
static inline void pipe_mesh_close(pipe_mesh *m, int keep) {
    for (int i = 0; i < m->world; i++)
        for (int j = 0; j < m->world; j++)
            if (i != j && i != keep) close(m->fd[i][j]);
}

// In a forked process.
static inline comm *pipe_comm_open(pipe_mesh *m, int rank) {
    pipe_comm *p = calloc(1, sizeof *p);
    pipe_mesh_close(m, rank);
    p->mesh = m;
    p->head = (comm){.table = &pipe_table, .rank = rank, .world = m->world, .place = m->place, .host = &p->head};
    return &p->head;
}

#endif
