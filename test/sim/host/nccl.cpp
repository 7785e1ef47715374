// test/sim/host/nccl.cpp: a stand-in for NCCL over the simulated device, as a library that the program opens by name
// ([reduce] nccl_library) and that calls back into the simulator in the program (linked with -rdynamic).
// It shares messages, arithmetic and groups (test/standin/nccl_wire.h, nccl_calls.h) with test/standin/nccl.c, which is
// strict with NCCL's manners and moves host memory at once. This one has NCCL's order instead: a group is one operation
// of its stream, over device memory, done when the stream comes to it and the peers' streams come to theirs. A missing
// event before or after it is then a wrong result, or in the race build a race between two names.
//
//   ranks      processes of one machine; they meet at unix sockets of the abstract namespace, two for each pair: data,
//              and control (split, finalize)
//   progress   nothing has a thread: a communicator opens and splits while it is asked for its state, a group moves
//              while the simulator asks whether it can go. keep_going() sees to both when the host is elsewhere
//   algorithm  every message goes straight from the rank that has it to the one that needs it; sums are taken in rank
//              order
//   order      groups of one communicator go in the order of their calls, whatever their streams
//   manners    calls return "in progress", and so does the first question after them; a call before that is over is an
//              error
#include "test/sim/simt_rt.h"
#include "test/standin/nccl_wire.h"

#include <poll.h>
#include <vector>

enum { MOST = 64, DATA = 0, CONTROL = 1, LANES = 2 };

struct Exchange {
    std::vector<message> messages;
};

enum stage { OPENING, READY, SPLITTING, FINALIZING, FINALIZED };

struct ncclComm {
    int rank, world;
    char name[COMM_NAME_ROOM];
    int fd[LANES][MOST], listener;
    pthread_mutex_t lock;  // the watcher's thread asks for the state, and aborts
    stage at;
    bool aborted;
    int questions;          // that are still answered with "in progress"
    ncclResult_t state;     // once it is bad it stays so
    uint64_t queued, done;  // groups
    int splits;
    ncclComm_t *child_out;
    vote votes[MOST];
    Exchange control;
    int users;  // groups that are queued, and the one who opened it
};

#include "test/standin/nccl_calls.h"

// --- messages --------------------------------------------------------------------------------------------------------

static void told_apart(const message *m) {
    simt::check_msg(
        "nccl", "the ranks' calls do not match: kind %u type %u %llu bytes here, kind %u type %u %llu bytes on a peer",
        m->head.kind, m->head.type, (unsigned long long)m->head.bytes, m->got.kind, m->got.type,
        (unsigned long long)m->got.bytes);
}

// Each direction of each pair in the order of the list. ncclInProgress: not all are complete.
static ncclResult_t move(ncclComm_t c, int lane, Exchange *e) {
    bool busy[2][MOST] = {};
    ncclResult_t result = ncclSuccess;
    for (message &m : e->messages) {
        if (complete(&m) || busy[m.sends][m.peer]) continue;
        ncclResult_t r = advance(c->fd[lane][m.peer], &m);
        if (r != ncclSuccess) return r;
        if (complete(&m)) continue;
        busy[m.sends][m.peer] = true;
        result = ncclInProgress;
    }
    return result;
}

// --- meeting ---------------------------------------------------------------------------------------------------------

static ncclComm_t new_comm(const char *name, int rank, int world) {
    struct sockaddr_un a;
    auto *c = new ncclComm();
    c->rank = rank, c->world = world, c->users = 1, c->questions = 1;
    snprintf(c->name, sizeof c->name, "%s", name);
    memset(c->fd, -1, sizeof c->fd);
    pthread_mutex_init(&c->lock, nullptr);
    socklen_t length = address(&a, name, rank);
    c->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (c->listener < 0 || bind(c->listener, (struct sockaddr *)&a, length) != 0 ||
        listen(c->listener, LANES * MOST) != 0)
        c->state = error(ncclSystemError, "no listening socket");
    return c;
}

struct Hello {
    int32_t rank, lane;
};

static void dial(ncclComm_t c, int lane, int rank) {
    struct sockaddr_un a;
    socklen_t length = address(&a, c->name, rank);
    Hello self = {c->rank, lane};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool there = fd >= 0 && connect(fd, (struct sockaddr *)&a, length) == 0;
    if (there && send(fd, &self, sizeof self, MSG_NOSIGNAL) == (ssize_t)sizeof self) c->fd[lane][rank] = fd;
    else if (fd >= 0) close(fd);
}

static void answer(ncclComm_t c) {
    Hello who;
    for (int fd; (fd = accept4(c->listener, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
        bool good = recv(fd, &who, sizeof who, MSG_WAITALL) == (ssize_t)sizeof who && who.rank > c->rank &&
                    who.rank < c->world && who.lane >= 0 && who.lane < LANES && c->fd[who.lane][who.rank] < 0;
        if (good) c->fd[who.lane][who.rank] = fd;
        else close(fd);
    }
}

static void meet(ncclComm_t c) {
    bool all = true;
    for (int lane = 0; lane < LANES; lane++)
        for (int r = 0; r < c->rank; r++)
            if (c->fd[lane][r] < 0) dial(c, lane, r);
    answer(c);
    for (int lane = 0; lane < LANES; lane++)
        for (int r = 0; r < c->world; r++) all &= r == c->rank || c->fd[lane][r] >= 0;
    if (!all) return;
    close(c->listener);
    c->listener = -1;
    c->at = READY;
}

// --- split and finalize: everybody tells everybody -------------------------------------------------------------------

static void tell_all(ncclComm_t c, stage s, int color, int key) {
    c->at = s;
    c->votes[c->rank] = {color, key};
    c->control.messages.clear();
    for (int r = 0; r < c->world; r++) {
        if (r == c->rank) continue;
        c->control.messages.push_back(part(r, true, OP_VOTE, (ncclDataType_t)s, &c->votes[c->rank], sizeof *c->votes));
        c->control.messages.push_back(part(r, false, OP_VOTE, (ncclDataType_t)s, &c->votes[r], sizeof *c->votes));
    }
}

static void end_split(ncclComm_t c) {
    int world, rank, color = c->votes[c->rank].color;
    char name[COMM_NAME_ROOM];
    c->at = READY;
    c->splits++;
    if (color == NCCL_SPLIT_NOCOLOR) return;
    count_votes(c->votes, c->world, c->rank, &rank, &world);
    name_child(name, c->name, c->splits, color);
    *c->child_out = new_comm(name, rank, world);
}

static void go_on(ncclComm_t c) {
    if (c->state != ncclSuccess || c->aborted) return;
    if (c->at == OPENING) meet(c);
    if (c->at != SPLITTING && c->at != FINALIZING) return;
    if (c->at == FINALIZING && c->done != c->queued) return;  // nobody leaves before its streams have ended
    ncclResult_t r = move(c, CONTROL, &c->control);
    if (r == ncclInProgress) return;
    if (r != ncclSuccess) c->state = r;
    else if (c->at == SPLITTING) end_split(c);
    else c->at = FINALIZED;
}

static void hang_up(ncclComm_t c) {
    for (auto &lane : c->fd)
        for (int &fd : lane) {
            if (fd >= 0) close(fd);
            fd = -1;
        }
    if (c->listener >= 0) close(c->listener);
    c->listener = -1;
}

static void let_go(ncclComm_t c) {
    pthread_mutex_lock(&c->lock);
    bool last = --c->users == 0;
    pthread_mutex_unlock(&c->lock);
    if (!last) return;
    hang_up(c);
    pthread_mutex_destroy(&c->lock);
    delete c;
}

// --- a group, when its stream has come to it -------------------------------------------------------------------------

// What a part needs besides its own buffers: the inputs of all ranks, in rank order.
struct Work {
    op p;
    std::vector<char> all;
};
struct Group {
    ncclComm_t c;
    uint64_t number;
    std::vector<Work> work;
    Exchange data;
    bool begun;
};

static size_t in_bytes(const op &p, int world) {
    return p.kind == OP_RECV ? 0 : p.count * type_bytes(p.type) * (p.kind == OP_REDUCE_SCATTER ? (size_t)world : 1);
}

static size_t out_bytes(const op &p, int rank, int world) {
    if (p.kind == OP_SEND || (p.kind == OP_REDUCE && p.peer != rank)) return 0;
    return p.count * type_bytes(p.type) * (p.kind == OP_ALL_GATHER ? (size_t)world : 1);
}

// Does rank r give its bytes to rank `to`?
static bool gives(const op &p, int r, int to) {
    if (p.kind == OP_BROADCAST) return r == p.peer;
    if (p.kind == OP_REDUCE) return to == p.peer;
    return true;
}

static void list_messages(Group *g, Work *w) {
    ncclComm_t c = g->c;
    const op &p = w->p;
    size_t bytes = p.count * type_bytes(p.type);
    auto &list = g->data.messages;
    if (p.kind == OP_SEND) list.push_back(part(p.peer, true, OP_SEND, p.type, p.in, bytes));
    if (p.kind == OP_RECV) list.push_back(part(p.peer, false, OP_SEND, p.type, p.out, bytes));
    if (p.kind == OP_SEND || p.kind == OP_RECV) return;
    w->all.resize(bytes * (size_t)c->world);
    for (int r = 0; r < c->world; r++) {
        const char *mine = (const char *)p.in + (p.kind == OP_REDUCE_SCATTER ? (size_t)r * bytes : 0);
        if (r == c->rank) memcpy(w->all.data() + (size_t)r * bytes, mine, bytes);
        if (r == c->rank) continue;
        if (gives(p, c->rank, r)) list.push_back(part(r, true, p.kind, p.type, mine, bytes));
        if (gives(p, r, c->rank))
            list.push_back(part(r, false, p.kind, p.type, w->all.data() + (size_t)r * bytes, bytes));
    }
}

static void begin(Group *g, uint32_t id) {
    g->begun = true;
    for (Work &w : g->work) {
        simt::range_access(id, w.p.in, in_bytes(w.p, g->c->world), false);
        list_messages(g, &w);
    }
}

static bool can_go(Group *g, uint32_t id) {
    ncclComm_t c = g->c;
    bool goes = false;
    pthread_mutex_lock(&c->lock);
    go_on(c);
    if (c->aborted) goes = true;
    else if (c->state == ncclSuccess && c->at != OPENING && c->done + 1 == g->number) {
        if (!g->begun) begin(g, id);
        for (const Work &w : g->work) {  // the kernel, which moves the bytes, would refuse to
            simt::open_range(w.p.in, in_bytes(w.p, c->world));
            simt::open_range(w.p.out, out_bytes(w.p, c->rank, c->world));
        }
        ncclResult_t r = move(c, DATA, &g->data);
        if (r == ncclSuccess) goes = true;
        else if (r != ncclInProgress) c->state = r;  // as in NCCL: the stream hangs until somebody aborts
    }
    pthread_mutex_unlock(&c->lock);
    return goes;
}

static void finish_part(ncclComm_t c, Work *w, uint32_t id) {
    const op &p = w->p;
    size_t bytes = p.count * type_bytes(p.type), n = out_bytes(p, c->rank, c->world);
    if (n == 0) return;
    simt::range_access(id, p.out, n, true);
    if (p.kind == OP_RECV) return;
    if (p.kind == OP_ALL_GATHER) memcpy(p.out, w->all.data(), n);
    else if (p.kind == OP_BROADCAST) memcpy(p.out, w->all.data() + (size_t)p.peer * bytes, bytes);
    else {
        for (int r = 1; r < c->world; r++)
            combine(w->all.data(), w->all.data() + (size_t)r * bytes, p.count, p.type, p.how);
        memcpy(p.out, w->all.data(), bytes);
    }
}

static void finish(Group *g, uint32_t id) {
    ncclComm_t c = g->c;
    pthread_mutex_lock(&c->lock);
    if (!c->aborted)
        for (Work &w : g->work) finish_part(c, &w, id);
    c->done = g->number;
    pthread_mutex_unlock(&c->lock);
    let_go(c);
    delete g;
}

static const char *const names[] = {"ncclSend",      "ncclRecv",          "ncclBroadcast", "ncclReduce",
                                    "ncclAllReduce", "ncclReduceScatter", "ncclAllGather"};

// --- calls -----------------------------------------------------------------------------------------------------------

static ncclResult_t bad_buffer(const op &p, const void *at, size_t bytes) {
    char why[200] = "host memory";
    if (bytes == 0 || (simt::is_device(at) && !simt::mem_class(at, bytes, true, why, sizeof why))) return ncclSuccess;
    simt::check_msg("nccl", "%s: %zu bytes at %p: %s", names[p.kind], bytes, at, why);
    return error(ncclInvalidArgument, "a buffer is not device memory");
}

// With the lock held: may a call be made?
static ncclResult_t ready(ncclComm_t c) {
    go_on(c);
    if (c->state != ncclSuccess) return c->state;
    return c->questions > 0 || c->at != READY ? busy() : ncclSuccess;
}

static ncclResult_t check_ops(const op *ops, int count) {
    for (int i = 0; i < count; i++) {
        if (ops[i].stream != ops[0].stream) return error(ncclInvalidUsage, "a group of several streams");
        ncclResult_t r = bad_buffer(ops[i], ops[i].in, in_bytes(ops[i], ops[0].c->world));
        if (r == ncclSuccess) r = bad_buffer(ops[i], ops[i].out, out_bytes(ops[i], ops[0].c->rank, ops[0].c->world));
        if (r != ncclSuccess) return r;
    }
    return ncclSuccess;
}

static ncclResult_t queue(const op *ops, int count) {
    ncclComm_t c = ops[0].c;
    ncclResult_t r = check_ops(ops, count);
    if (r != ncclSuccess) return r;
    pthread_mutex_lock(&c->lock);
    r = ready(c);
    if (r != ncclSuccess) {
        pthread_mutex_unlock(&c->lock);
        return r;
    }
    auto *g = new Group{c, ++c->queued, {}, {}, false};
    for (int i = 0; i < count; i++) g->work.push_back(Work{ops[i], {}});
    c->users++;
    c->questions = 1;
    pthread_mutex_unlock(&c->lock);
    simt::enqueue_poll(
        ops[0].stream, names[ops[0].kind], [g](uint32_t id) { return can_go(g, id); },
        [g](uint32_t id) { finish(g, id); });
    return ncclInProgress;
}

static ncclResult_t submit_group(op *ops, int count) {
    ncclResult_t r = queue(ops, count);
    free(ops);
    return r;
}

// --- communicators ---------------------------------------------------------------------------------------------------

API ncclResult_t ncclGetVersion(int *version) {
    *version = NCCL_API_VERSION;
    return ncclSuccess;
}

API ncclResult_t ncclGetUniqueId(ncclUniqueId *id) { return make_id(id); }

API ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int world, ncclUniqueId id, int rank, ncclConfig_t *config) {
    *out = nullptr;
    ncclResult_t r = check_config(config);
    if (r == ncclSuccess) r = check_rank(world, MOST, rank, &id);
    if (r != ncclSuccess) return r;
    *out = new_comm(id.internal, rank, world);
    simt::keep_going();
    return ncclInProgress;
}

API ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *out, ncclConfig_t *config) {
    *out = nullptr;
    ncclResult_t r = check_config(config);
    if (r != ncclSuccess) return r;
    if (color < NCCL_SPLIT_NOCOLOR) return error(ncclInvalidArgument, "color is wrong");
    pthread_mutex_lock(&c->lock);
    r = ready(c);
    if (r == ncclSuccess) {
        c->child_out = out;
        tell_all(c, SPLITTING, color, key);
        r = ncclInProgress;
    }
    pthread_mutex_unlock(&c->lock);
    return r;
}

API ncclResult_t ncclCommFinalize(ncclComm_t c) {
    pthread_mutex_lock(&c->lock);
    ncclResult_t r = ready(c);
    if (r == ncclSuccess) {
        tell_all(c, FINALIZING, 0, 0);
        r = ncclInProgress;
    }
    pthread_mutex_unlock(&c->lock);
    return r;
}

API ncclResult_t ncclCommDestroy(ncclComm_t c) {
    if (c->at != FINALIZED) return error(ncclInvalidUsage, "a communicator is destroyed that was not finalized");
    let_go(c);
    return ncclSuccess;
}

// Its peers see that it hangs up; its own groups end as they are.
API ncclResult_t ncclCommAbort(ncclComm_t c) {
    pthread_mutex_lock(&c->lock);
    c->aborted = true;
    hang_up(c);
    pthread_mutex_unlock(&c->lock);
    let_go(c);
    return ncclSuccess;
}

static void look_after_peers(ncclComm_t c) {
    char byte;
    if (c->at == OPENING || c->at == FINALIZING || c->at == FINALIZED) return;
    for (int r = 0; r < c->world; r++)
        if (r != c->rank && recv(c->fd[CONTROL][r], &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
            c->state = error(ncclRemoteError, "a peer is gone");
}

API ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state) {
    pthread_mutex_lock(&c->lock);
    go_on(c);
    if (c->state == ncclSuccess) look_after_peers(c);
    bool busy = c->at == OPENING || c->at == SPLITTING || c->at == FINALIZING || c->questions > 0;
    if (c->questions > 0) c->questions--;
    *state = c->state != ncclSuccess ? c->state : busy ? ncclInProgress : ncclSuccess;
    pthread_mutex_unlock(&c->lock);
    return ncclSuccess;
}

API ncclResult_t ncclCommRegister(const ncclComm_t c, void *base, size_t bytes, void **handle) {
    if (!c || !base || !bytes || !simt::is_device(base)) return error(ncclInvalidArgument, "nothing to register");
    *handle = base;
    return ncclSuccess;
}

API ncclResult_t ncclCommDeregister(const ncclComm_t c, void *handle) {
    return c && handle ? ncclSuccess : error(ncclInvalidArgument, "nothing to deregister");
}
