// test/sim/host/nccl.cpp: a stand-in for NCCL over the simulated device, as a library that the program opens by name
// ([reduce] nccl_library) and that calls back into the simulator in the program (linked with -rdynamic).
// test/standin/nccl.c is strict with NCCL's manners and moves host memory at once; this one has NCCL's order instead: a
// group is one operation of its stream, over device memory, done when the stream comes to it and the peers' streams
// come to theirs. A missing event before or after it is then a wrong result, or in the race build a race between two
// names.
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

extern "C" {
#include "comm/nccl/api.h"
}

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

enum { MOST = 64, DATA = 0, CONTROL = 1, LANES = 2 };

enum kind { SEND, RECV, BROADCAST, REDUCE, ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, VOTE };

struct Part {
    kind what;
    const void *in;
    void *out;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t how;
    int peer;  // or root
    cudaStream_t stream;
    ncclComm_t comm;
};

// One direction with one peer: a header, so that calls that do not match are found out, then the bytes.
struct Header {
    uint32_t what, type;
    uint64_t bytes;
};
struct Message {
    int peer;
    bool sends;
    Header head, got;
    char *data;
    size_t done;
};

struct Exchange {
    std::vector<Message> messages;
};

enum stage { OPENING, READY, SPLITTING, FINALIZING, FINALIZED };

struct ncclComm {
    int rank, world;
    char name[96];
    int fd[LANES][MOST], listener;
    pthread_mutex_t lock;  // the watcher's thread asks for the state, and aborts
    stage at;
    bool aborted;
    int questions;          // that are still answered with "in progress"
    ncclResult_t state;     // once it is bad it stays so
    uint64_t queued, done;  // groups
    int splits, color, key;
    ncclComm_t *child_out;
    struct Ballot {
        int32_t color, key;
    } vote[MOST];
    Exchange control;
    int users;  // groups that are queued, and the one who opened it
};

static thread_local struct {
    int depth;
    std::vector<Part> *parts;
    bool spoiled;
} group;
static char last_error[256];  // of the process: the watcher's thread asks for what the stream's met

static ncclResult_t error(ncclResult_t r, const char *text) {
    snprintf(last_error, sizeof last_error, "simulator: %s", text);
    return r;
}

// --- messages --------------------------------------------------------------------------------------------------------

static Message message(int peer, bool sends, kind what, ncclDataType_t type, const void *data, size_t bytes) {
    return Message{peer, sends, {(uint32_t)what, (uint32_t)type, bytes}, {0, 0, 0}, (char *)data, 0};
}

static bool complete(const Message &m) { return m.done == sizeof(Header) + m.head.bytes; }

// As much as goes without waiting.
static ncclResult_t advance(int fd, Message *m) {
    while (!complete(*m)) {
        bool in_head = m->done < sizeof(Header);
        char *at = in_head ? (char *)(m->sends ? &m->head : &m->got) + m->done : m->data + (m->done - sizeof(Header));
        size_t left = (in_head ? sizeof(Header) : sizeof(Header) + m->head.bytes) - m->done;
        ssize_t n = m->sends ? send(fd, at, left, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(fd, at, left, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return ncclSuccess;
        if (n <= 0) return error(ncclRemoteError, "the connection to a peer was closed");
        m->done += (size_t)n;
        if (m->sends || m->done != sizeof(Header)) continue;
        if (memcmp(&m->got, &m->head, sizeof m->got) == 0) continue;
        simt::check_msg(
            "nccl",
            "the ranks' calls do not match: kind %u type %u %llu bytes here, kind %u type %u %llu bytes on a peer",
            m->head.what, m->head.type, (unsigned long long)m->head.bytes, m->got.what, m->got.type,
            (unsigned long long)m->got.bytes);
        return error(ncclInvalidUsage, "the ranks' calls do not match");
    }
    return ncclSuccess;
}

// Each direction of each pair in the order of the list. ncclInProgress: not all are complete.
static ncclResult_t move(ncclComm_t c, int lane, Exchange *e) {
    bool busy[2][MOST] = {};
    ncclResult_t result = ncclSuccess;
    for (Message &m : e->messages) {
        if (complete(m) || busy[m.sends][m.peer]) continue;
        ncclResult_t r = advance(c->fd[lane][m.peer], &m);
        if (r != ncclSuccess) return r;
        if (complete(m)) continue;
        busy[m.sends][m.peer] = true;
        result = ncclInProgress;
    }
    return result;
}

// --- meeting ---------------------------------------------------------------------------------------------------------

static socklen_t address(struct sockaddr_un *a, const char *name, int rank) {
    *a = {};
    a->sun_family = AF_UNIX;
    int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "%s-%d", name, rank);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

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
    c->vote[c->rank] = {color, key};
    c->control.messages.clear();
    for (int r = 0; r < c->world; r++) {
        if (r == c->rank) continue;
        c->control.messages.push_back(message(r, true, VOTE, (ncclDataType_t)s, &c->vote[c->rank], sizeof *c->vote));
        c->control.messages.push_back(message(r, false, VOTE, (ncclDataType_t)s, &c->vote[r], sizeof *c->vote));
    }
}

static void end_split(ncclComm_t c) {
    int world = 0, rank = 0, color = c->vote[c->rank].color, key = c->vote[c->rank].key;
    char name[96];
    c->at = READY;
    c->splits++;
    if (color == NCCL_SPLIT_NOCOLOR) return;
    for (int i = 0; i < c->world; i++) {
        if (c->vote[i].color != color) continue;
        world++;
        rank += c->vote[i].key < key || (c->vote[i].key == key && i < c->rank);
    }
    snprintf(name, sizeof name, "%.70s/%d.%d", c->name, c->splits, color);
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

static size_t type_bytes(ncclDataType_t t) { return t == ncclInt8 ? 1 : t == ncclFloat64 ? 8 : 4; }

template <class T> static void combine(void *to, const void *more, size_t count, ncclRedOp_t how) {
    T *x = (T *)to;
    const T *y = (const T *)more;
    for (size_t i = 0; i < count; i++) x[i] = how == ncclMax ? (y[i] > x[i] ? y[i] : x[i]) : x[i] + y[i];
}

static void combine_as(ncclDataType_t type, void *to, const void *more, size_t count, ncclRedOp_t how) {
    if (type == ncclFloat32) combine<float>(to, more, count, how);
    else if (type == ncclFloat64) combine<double>(to, more, count, how);
    else if (type == ncclInt32) combine<int32_t>(to, more, count, how);
    else combine<int8_t>(to, more, count, how);
}

// What a part needs besides its own buffers: the inputs of all ranks, in rank order.
struct Work {
    Part p;
    std::vector<char> all;
};
struct Group {
    ncclComm_t c;
    uint64_t number;
    std::vector<Work> work;
    Exchange data;
    bool begun;
};

static size_t in_bytes(const Part &p, int world) {
    return p.what == RECV ? 0 : p.count * type_bytes(p.type) * (p.what == REDUCE_SCATTER ? (size_t)world : 1);
}

static size_t out_bytes(const Part &p, int rank, int world) {
    if (p.what == SEND || (p.what == REDUCE && p.peer != rank)) return 0;
    return p.count * type_bytes(p.type) * (p.what == ALL_GATHER ? (size_t)world : 1);
}

// Does rank r give its bytes to rank `to`?
static bool gives(const Part &p, int r, int to) {
    if (p.what == BROADCAST) return r == p.peer;
    if (p.what == REDUCE) return to == p.peer;
    return true;
}

static void list_messages(Group *g, Work *w) {
    ncclComm_t c = g->c;
    const Part &p = w->p;
    size_t bytes = p.count * type_bytes(p.type);
    auto &list = g->data.messages;
    if (p.what == SEND) list.push_back(message(p.peer, true, SEND, p.type, p.in, bytes));
    if (p.what == RECV) list.push_back(message(p.peer, false, SEND, p.type, p.out, bytes));
    if (p.what == SEND || p.what == RECV) return;
    w->all.resize(bytes * (size_t)c->world);
    for (int r = 0; r < c->world; r++) {
        const char *mine = (const char *)p.in + (p.what == REDUCE_SCATTER ? (size_t)r * bytes : 0);
        if (r == c->rank) memcpy(w->all.data() + (size_t)r * bytes, mine, bytes);
        if (r == c->rank) continue;
        if (gives(p, c->rank, r)) list.push_back(message(r, true, p.what, p.type, mine, bytes));
        if (gives(p, r, c->rank))
            list.push_back(message(r, false, p.what, p.type, w->all.data() + (size_t)r * bytes, bytes));
    }
}

static void begin(Group *g, uint32_t op) {
    g->begun = true;
    for (Work &w : g->work) {
        simt::range_access(op, w.p.in, in_bytes(w.p, g->c->world), false);
        list_messages(g, &w);
    }
}

static bool can_go(Group *g, uint32_t op) {
    ncclComm_t c = g->c;
    bool goes = false;
    pthread_mutex_lock(&c->lock);
    go_on(c);
    if (c->aborted) goes = true;
    else if (c->state == ncclSuccess && c->at != OPENING && c->done + 1 == g->number) {
        if (!g->begun) begin(g, op);
        ncclResult_t r = move(c, DATA, &g->data);
        if (r == ncclSuccess) goes = true;
        else if (r != ncclInProgress) c->state = r;  // as in NCCL: the stream hangs until somebody aborts
    }
    pthread_mutex_unlock(&c->lock);
    return goes;
}

static void finish_part(ncclComm_t c, Work *w, uint32_t op) {
    const Part &p = w->p;
    size_t bytes = p.count * type_bytes(p.type), n = out_bytes(p, c->rank, c->world);
    if (n == 0) return;
    simt::range_access(op, p.out, n, true);
    if (p.what == RECV) return;
    if (p.what == ALL_GATHER) memcpy(p.out, w->all.data(), n);
    else if (p.what == BROADCAST) memcpy(p.out, w->all.data() + (size_t)p.peer * bytes, bytes);
    else {
        for (int r = 1; r < c->world; r++)
            combine_as(p.type, w->all.data(), w->all.data() + (size_t)r * bytes, p.count, p.how);
        memcpy(p.out, w->all.data(), bytes);
    }
}

static void finish(Group *g, uint32_t op) {
    ncclComm_t c = g->c;
    pthread_mutex_lock(&c->lock);
    if (!c->aborted)
        for (Work &w : g->work) finish_part(c, &w, op);
    c->done = g->number;
    pthread_mutex_unlock(&c->lock);
    let_go(c);
    delete g;
}

static const char *const names[] = {"ncclSend",      "ncclRecv",          "ncclBroadcast", "ncclReduce",
                                    "ncclAllReduce", "ncclReduceScatter", "ncclAllGather"};

// --- calls -----------------------------------------------------------------------------------------------------------

static ncclResult_t bad_buffer(const Part &p, const void *at, size_t bytes) {
    char why[200] = "host memory";
    if (bytes == 0 || (simt::is_device(at) && !simt::mem_class(at, bytes, true, why, sizeof why))) return ncclSuccess;
    simt::check_msg("nccl", "%s: %zu bytes at %p: %s", names[p.what], bytes, at, why);
    return error(ncclInvalidArgument, "a buffer is not device memory");
}

// With the lock held: may a call be made?
static ncclResult_t ready(ncclComm_t c) {
    go_on(c);
    if (c->state != ncclSuccess) return c->state;
    if (c->questions > 0 || c->at != READY)
        return error(ncclInvalidArgument, "the communicator is used before its last call has ended");
    return ncclSuccess;
}

static ncclResult_t submit(std::vector<Part> *parts) {
    ncclComm_t c = (*parts)[0].comm;
    for (Part &p : *parts) {
        if (p.comm != c || p.stream != (*parts)[0].stream)
            return error(ncclInvalidUsage, "a group of several communicators or streams");
        ncclResult_t r = bad_buffer(p, p.in, in_bytes(p, c->world));
        if (r == ncclSuccess) r = bad_buffer(p, p.out, out_bytes(p, c->rank, c->world));
        if (r != ncclSuccess) return r;
    }
    pthread_mutex_lock(&c->lock);
    ncclResult_t r = ready(c);
    if (r != ncclSuccess) {
        pthread_mutex_unlock(&c->lock);
        return r;
    }
    auto *g = new Group{c, ++c->queued, {}, {}, false};
    for (Part &p : *parts) g->work.push_back(Work{p, {}});
    c->users++;
    c->questions = 1;
    pthread_mutex_unlock(&c->lock);
    simt::enqueue_poll((*parts)[0].stream, names[(*parts)[0].what], [g](uint32_t op) { return can_go(g, op); },
                       [g](uint32_t op) { finish(g, op); });
    return ncclInProgress;
}

static ncclResult_t end_group() {
    if (group.depth == 0) return error(ncclInvalidUsage, "a group ends that never began");
    if (--group.depth > 0 || !group.parts) return ncclSuccess;
    std::vector<Part> *parts = group.parts;
    bool spoiled = group.spoiled;
    group.parts = nullptr;
    group.spoiled = false;
    ncclResult_t r = spoiled ? error(ncclInvalidUsage, "a call within the group was wrong") : submit(parts);
    delete parts;
    return r;
}

static ncclResult_t add(Part p) {
    if (!group.parts) group.parts = new std::vector<Part>;
    group.parts->push_back(p);
    if (!p.comm || p.peer < 0 || p.peer >= p.comm->world || p.count == 0) group.spoiled = true;
    // the real one can, and nobody does
    if ((p.what == SEND || p.what == RECV) && p.peer == p.comm->rank) group.spoiled = true;
    if (group.depth > 0) return ncclSuccess;
    group.depth = 1;
    return end_group();
}

API ncclResult_t ncclGroupStart(void) {
    group.depth++;
    return ncclSuccess;
}

API ncclResult_t ncclGroupEnd(void) { return end_group(); }

API ncclResult_t ncclSend(const void *in, size_t n, ncclDataType_t t, int to, ncclComm_t c, cudaStream_t s) {
    return add({SEND, in, nullptr, n, t, ncclSum, to, s, c});
}

API ncclResult_t ncclRecv(void *out, size_t n, ncclDataType_t t, int from, ncclComm_t c, cudaStream_t s) {
    return add({RECV, nullptr, out, n, t, ncclSum, from, s, c});
}

API ncclResult_t ncclBroadcast(const void *in, void *out, size_t n, ncclDataType_t t, int root, ncclComm_t c,
                               cudaStream_t s) {
    return add({BROADCAST, in, out, n, t, ncclSum, root, s, c});
}

API ncclResult_t ncclReduce(const void *in, void *out, size_t n, ncclDataType_t t, ncclRedOp_t how, int root,
                            ncclComm_t c, cudaStream_t s) {
    return add({REDUCE, in, out, n, t, how, root, s, c});
}

API ncclResult_t ncclAllReduce(const void *in, void *out, size_t n, ncclDataType_t t, ncclRedOp_t how, ncclComm_t c,
                               cudaStream_t s) {
    return add({ALL_REDUCE, in, out, n, t, how, 0, s, c});
}

API ncclResult_t ncclReduceScatter(const void *in, void *out, size_t n, ncclDataType_t t, ncclRedOp_t how, ncclComm_t c,
                                   cudaStream_t s) {
    return add({REDUCE_SCATTER, in, out, n, t, how, 0, s, c});
}

API ncclResult_t ncclAllGather(const void *in, void *out, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t s) {
    return add({ALL_GATHER, in, out, n, t, ncclSum, 0, s, c});
}

// --- communicators ---------------------------------------------------------------------------------------------------

API ncclResult_t ncclGetVersion(int *version) {
    *version = NCCL_API_VERSION;
    return ncclSuccess;
}

API ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    unsigned char random[16];
    memset(id, 0, sizeof *id);
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) return error(ncclSystemError, "no random bytes");
    int n = snprintf(id->internal, sizeof id->internal, "simulator-");
    for (unsigned char r : random) n += snprintf(id->internal + n, sizeof id->internal - (size_t)n, "%02x", r);
    return ncclSuccess;
}

static bool nonblocking(const ncclConfig_t *k) {
    return k && k->size == sizeof *k && k->magic == NCCL_MAGIC && k->blocking == 0;
}

API ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int world, ncclUniqueId id, int rank, ncclConfig_t *config) {
    *out = nullptr;
    if (!nonblocking(config))
        return error(ncclInvalidArgument, "the configuration is not one of a non-blocking communicator");
    if (world < 1 || world > MOST || rank < 0 || rank >= world || strncmp(id.internal, "simulator-", 10) != 0)
        return error(ncclInvalidArgument, "rank, world or id is wrong");
    *out = new_comm(id.internal, rank, world);
    simt::keep_going();
    return ncclInProgress;
}

API ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *out, ncclConfig_t *config) {
    *out = nullptr;
    if (!nonblocking(config) || color < NCCL_SPLIT_NOCOLOR)
        return error(ncclInvalidArgument, "color or configuration is wrong");
    pthread_mutex_lock(&c->lock);
    ncclResult_t r = ready(c);
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

API const char *ncclGetErrorString(ncclResult_t r) {
    static const char *const text[] = {
        "no error",         "a CUDA call failed", "a system call failed",    "internal error",
        "invalid argument", "invalid usage",      "a remote process failed", "in progress"};
    return (unsigned)r < sizeof text / sizeof *text ? text[r] : "unknown result";
}

API const char *ncclGetLastError(ncclComm_t) { return last_error; }

API ncclResult_t ncclCommRegister(const ncclComm_t c, void *base, size_t bytes, void **handle) {
    if (!c || !base || !bytes || !simt::is_device(base)) return error(ncclInvalidArgument, "nothing to register");
    *handle = base;
    return ncclSuccess;
}

API ncclResult_t ncclCommDeregister(const ncclComm_t c, void *handle) {
    return c && handle ? ncclSuccess : error(ncclInvalidArgument, "nothing to deregister");
}
