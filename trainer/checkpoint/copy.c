// trainer/checkpoint/copy.c: copies files from one node to another, in pieces. After a failure the receiver keeps
// receiving, discards the data, and reports the failure at the end: no rank waits for one that has given up.
#include "trainer/checkpoint/copy.h"

#include "trainer/checkpoint/ranks.h"
#include "trainer/checkpoint/read.h"
#include "trainer/checkpoint/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// --- one file that arrives -------------------------------------------------------------------------------------------

// The first failure is kept.
static void note(ckpt_incoming *in, err_t rc) {
    if (rc != ERR_OK && in->why.code == ERR_OK) in->why = *err_last();
}

void incoming_open(ckpt_incoming *in, const char *dir, const char *name, fault_list *faults) {
    *in = (ckpt_incoming){.fd = -1, .faults = faults};
    note(in, io_path(in->path, "%s/.part-%s", dir, name));
    if (in->why.code) return;
    note(in, io_open(in->path, O_WRONLY | O_CREAT | O_TRUNC, &in->fd));
}

void incoming_put(ckpt_incoming *in, const void *bytes, size_t n) {
    if (in->why.code == ERR_OK) note(in, io_write(in->fd, in->path, bytes, n, in->faults));
}

static err_t finish(ckpt_incoming *in, const manifest *m, int file) {
    char final[IO_PATH];
    TRY(io_path(final, "%.*s%s", (int)(strlen(in->path) - strlen(m->file[file].name) - strlen(".part-")), in->path,
                m->file[file].name));
    err_t rc = ckpt_verify_file(in->path, m, file);
    if (rc != ERR_OK) err_prefix("a copy of %s is not what was sent", m->file[file].name);
    TRY(rc);
    return io_rename(in->path, final, in->faults);
}

err_t incoming_close(ckpt_incoming *in, const manifest *m, int file) {
    if (in->why.code == ERR_OK) note(in, io_sync(in->fd, in->path, in->faults));
    if (in->fd >= 0) close(in->fd);
    if (in->why.code == ERR_OK) note(in, finish(in, m, file));
    if (in->why.code == ERR_OK) return ERR_OK;
    if (in->fd >= 0) unlink(in->path);
    return err_restore(&in->why);
}

// --- to the next node ------------------------------------------------------------------------------------------------

// The files of one rank, sent one after the other from one rank to another.
typedef struct flow {
    int peer;  // at the other end
    int file[FILE_KINDS], files;
    int at;            // the current file
    int64_t offset;    // of its next piece
    size_t piece;      // of this round; 0: none
    int fd;            // outgoing: the file is read here
    ckpt_incoming in;  // incoming: the file is written here
    uint8_t *buffer;
} flow;

typedef struct ring {
    const char *dir;
    const manifest *m;
    const ckpt_state *s;
    fault_list *faults;
    flow out, *in;
    int ins;
    comm_part *recv;
    err_record why;
} ring;

static void ring_note(ring *x, err_t rc) {
    if (rc != ERR_OK && x->why.code == ERR_OK) x->why = *err_last();
}

static err_t open_flow(flow *f, const manifest *m, int from, int peer) {
    *f = (flow){.peer = peer, .fd = -1, .in = {.fd = -1}, .buffer = malloc(CKPT_PIECE)};
    for (int kind = 0; kind < FILE_KINDS; kind++) {
        int file = manifest_find_file(m, kind, from);
        if (file >= 0) f->file[f->files++] = file;
    }
    return f->buffer ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a piece of %d bytes", CKPT_PIECE);
}

// Rank r's files go to the rank with the same local number on the next node, modulo that node's number of ranks.
static int buddy_of(const ckpt_state *s, int r) {
    const comm_place *p = &s->ranks->place[r];
    int next = (p->node + 1) % ckpt_nodes(s);
    return ckpt_leader_of(s, next) + p->local % ckpt_ranks_of(s, next);
}

static err_t open_ring(ring *x) {
    int me = ckpt_rank(x->s), world = ckpt_world(x->s);
    TRY(open_flow(&x->out, x->m, me, buddy_of(x->s, me)));
    x->in = calloc((size_t)world, sizeof *x->in);
    x->recv = calloc((size_t)world, sizeof *x->recv);
    if (!x->in || !x->recv) return err_set(ERR_INTERNAL, "no memory for %d ranks", world);
    for (int r = 0; r < world; r++)
        if (buddy_of(x->s, r) == me) TRY(open_flow(&x->in[x->ins++], x->m, r, r));
    return ERR_OK;
}

static void close_ring(ring *x) {
    free(x->out.buffer);
    if (x->out.fd >= 0) close(x->out.fd);
    for (int i = 0; i < x->ins; i++) {
        if (x->in[i].in.fd >= 0) close(x->in[i].in.fd);
        free(x->in[i].buffer);
    }
    free(x->in), free(x->recv);
}

static size_t next_piece(flow *f, const manifest *m) {
    int64_t left = f->at < f->files ? m->file[f->file[f->at]].bytes - f->offset : 0;
    return f->piece = left > CKPT_PIECE ? CKPT_PIECE : (size_t)left;
}

// True when this round's piece was the file's last.
static bool advance(flow *f, const manifest *m) {
    f->offset += (int64_t)f->piece;
    if (f->offset < m->file[f->file[f->at]].bytes) return false;
    f->offset = 0;
    f->at++;
    return true;
}

static err_t read_piece(const ring *x, flow *f) {
    char path[IO_PATH];
    TRY(io_path(path, "%s/%s", x->dir, x->m->file[f->file[f->at]].name));
    if (f->fd < 0) TRY(io_open(path, O_RDONLY, &f->fd));
    return io_read_at(f->fd, path, f->offset, f->buffer, f->piece);
}

static void sent(ring *x, flow *f) {
    if (!advance(f, x->m)) return;
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
}

static void received(ring *x, flow *f) {
    int file = f->file[f->at];
    if (f->offset == 0) incoming_open(&f->in, x->dir, x->m->file[file].name, x->faults);
    incoming_put(&f->in, f->buffer, f->piece);
    if (!advance(f, x->m)) return;
    ring_note(x, incoming_close(&f->in, x->m, file));
    f->in.fd = -1;
}

// One piece of every flow. All ranks take part in every round, also when their own flows have ended: they make the same
// calls.
static err_t move_round(ring *x) {
    comm_part send = {x->out.peer, x->out.buffer, next_piece(&x->out, x->m)};
    int recvs = 0;
    if (send.bytes) ring_note(x, read_piece(x, &x->out));
    for (int i = 0; i < x->ins; i++)
        if (next_piece(&x->in[i], x->m)) x->recv[recvs++] = (comm_part){x->in[i].peer, x->in[i].buffer, x->in[i].piece};
    TRY(ckpt_exchange(x->s, &send, send.bytes ? 1 : 0, x->recv, recvs));
    ckpt_beat(&x->m->pulse);
    if (send.bytes) sent(x, &x->out);
    for (int i = 0; i < x->ins; i++)
        if (x->in[i].piece) received(x, &x->in[i]);
    return ERR_OK;
}

// The number of pieces of the rank that has most.
static int64_t rounds_of(const manifest *m) {
    int64_t most = 0;
    for (int r = 0; r < m->world; r++) {
        int64_t pieces = 0;
        for (int kind = 0; kind < FILE_KINDS; kind++) {
            int f = manifest_find_file(m, kind, r);
            if (f >= 0) pieces += (m->file[f].bytes + CKPT_PIECE - 1) / CKPT_PIECE;
        }
        if (pieces > most) most = pieces;
    }
    return most;
}

err_t ckpt_copy_to_buddies(const char *dir, const manifest *m, const ckpt_state *s, fault_list *faults) {
    ring x = {.dir = dir, .m = m, .s = s, .faults = faults, .out.fd = -1};
    err_t rc = ckpt_agree(s, open_ring(&x));
    for (int64_t rounds = rounds_of(m); rounds > 0 && rc == ERR_OK; rounds--) rc = move_round(&x);
    if (rc == ERR_OK) rc = ckpt_agree(s, x.why.code ? err_restore(&x.why) : ERR_OK);
    close_ring(&x);
    return rc;
}
