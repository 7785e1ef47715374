// test/standin/nccl.c: a stand-in for NCCL, for tests on machines without a GPU. It is not NCCL and not fast: the same
// functions, over host memory, among processes of one machine, which meet at unix sockets of the abstract namespace
// (nothing to clean up, nothing to find on disk).
//
// What it is for is NCCL's manners, and it is strict with them: non-blocking communicators are in progress for a while,
// and a call before they are done is an error; a split gives its communicator only when the old one is ready again;
// groups are closed or never begin; messages must agree in kind, size and order; a peer that is gone is
// ncclRemoteError; abort ends what hangs. Sums are taken in rank order. Each communicator has a thread and sockets of
// its own, so what several do at the same time they do at the same time; a group is the calling thread's own.
//
// LOCKSTEP_STANDIN (of each process) asks for one failure; groups are counted from 1:
//   return@N   group N is refused at once           hang-init  init never ends
//   async@N    group N fails while in progress      cpu-no     ncclStandInHostMemory says no: NCCL itself does not have
//              it
//   later@N    20 ms after group N was seen to end well there is an error
//   hang@N     group N never ends                   split-no   a split is refused at once
// LOCKSTEP_STANDIN_VERSION is what ncclGetVersion says.
#include "comm/nccl/api.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

enum { SLOWNESS_NS = 20000, RANKS_MAX = 256 };

typedef enum { OP_SEND, OP_RECV, OP_BROADCAST, OP_REDUCE, OP_ALL_REDUCE, OP_REDUCE_SCATTER, OP_ALL_GATHER } op_kind;

typedef struct op {
    op_kind kind;
    const void *in;
    void *out;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t how;
    int peer;  // or root
    ncclComm_t c;
} op;

typedef enum { JOB_NONE, JOB_INIT, JOB_GROUP, JOB_SPLIT, JOB_FINALIZE, JOB_QUIT } job_kind;

// What a communicator's thread is doing. One job at a time: NCCL's rule for who uses a non-blocking communicator.
struct ncclComm {
    int rank, world;
    char name[96];      // of its sockets
    int fd[RANKS_MAX];  // to each rank; -1: itself
    int wake;           // eventfd, readable once aborted
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    job_kind job;
    ncclResult_t state;  // of the last job
    bool finalized;
    int groups, splits;
    bool late_error;  // one is to come by itself
    double later;     // when; 0: not known yet
    op *ops;          // of the job
    int op_count;
    struct {
        int color, key;
        ncclComm_t *out;
    } split;
};

// Of the whole process, as NCCL's own. A stand-in may have what the library must not: globals.
static _Thread_local struct {
    int depth, count;
    op *ops;
    bool spoiled;
} group;
static pthread_mutex_t error_lock = PTHREAD_MUTEX_INITIALIZER;
static char last_error[256];
static atomic_int aborts, live, registered, calls, working, together;
static char seen[5][64];
static const char *const watched[5] = {"NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE", "NCCL_ALGO", "NCCL_RAS_ENABLE",
                                       "LOCKSTEP_STANDIN"};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static ncclResult_t error(ncclResult_t r, const char *text) {
    pthread_mutex_lock(&error_lock);
    snprintf(last_error, sizeof last_error, "%s", text);
    pthread_mutex_unlock(&error_lock);
    return r;
}

// The first call of any kind: what does the environment say by then?
static void first_call(void) {
    if (atomic_fetch_add(&calls, 1)) return;
    for (int i = 0; i < 5; i++) {
        const char *v = getenv(watched[i]);
        snprintf(seen[i], sizeof seen[i], "%s", v ? v : "");
    }
}

static bool asked(const char *what, int number) {
    char text[32];
    const char *v = getenv("LOCKSTEP_STANDIN");
    snprintf(text, sizeof text, number ? "%s@%d" : "%s", what, number);
    return v && strcmp(v, text) == 0;
}

// --- for tests -------------------------------------------------------------------------------------------------------

API int ncclStandInHostMemory(void);
API int ncclStandInHostMemory(void) { return !asked("cpu-no", 0); }

// What an environment variable was when the library was first called.
API const char *ncclStandInSeen(const char *name);
API const char *ncclStandInSeen(const char *name) {
    for (int i = 0; i < 5; i++)
        if (strcmp(watched[i], name) == 0) return seen[i];
    return NULL;
}

// "aborts": communicators aborted so far; "live": not yet destroyed; "registered": buffers; "together": communicators
// that had a group under way at the same time, at most.
API int ncclStandInCount(const char *what);
API int ncclStandInCount(const char *what) {
    static const char *const names[] = {"aborts", "live", "registered", "together"};
    atomic_int *const counts[] = {&aborts, &live, &registered, &together};
    for (int i = 0; i < 4; i++)
        if (strcmp(what, names[i]) == 0) return atomic_load(counts[i]);
    return -1;
}

static void count_together(int change) {
    int now_working = atomic_fetch_add(&working, change) + change, most = atomic_load(&together);
    while (now_working > most && !atomic_compare_exchange_weak(&together, &most, now_working)) {}
}

// --- messages --------------------------------------------------------------------------------------------------------

// One direction of an exchange with one rank: a header, so that calls that do not match are found out, then the bytes.
typedef struct header {
    uint32_t kind, type;
    uint64_t bytes;
} header;
typedef struct message {
    int peer;
    bool sends;
    header head;
    char *data;
    size_t done;
} message;

static message part(int peer, bool sends, op_kind kind, ncclDataType_t type, const void *data, size_t bytes) {
    return (message){peer, sends, {(uint32_t)kind, (uint32_t)type, bytes}, (char *)(uintptr_t)data, 0};
}

static bool complete(const message *m) { return m->done == sizeof(header) + m->head.bytes; }

// Moves what can be moved now. 0: no error; else why not.
static ncclResult_t advance(ncclComm_t c, message *m, header *got) {
    while (!complete(m)) {
        bool in_head = m->done < sizeof(header);
        char *at = in_head ? (char *)(m->sends ? &m->head : got) + m->done : m->data + (m->done - sizeof(header));
        size_t left = (in_head ? sizeof(header) : sizeof(header) + m->head.bytes) - m->done;
        int fd = c->fd[m->peer];
        ssize_t n = m->sends ? send(fd, at, left, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(fd, at, left, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return ncclSuccess;
        if (n <= 0) return error(ncclRemoteError, "stand-in: the connection to a peer was closed");
        m->done += (size_t)n;
        if (!m->sends && in_head && m->done == sizeof(header) && memcmp(got, &m->head, sizeof *got) != 0)
            return error(ncclInvalidUsage, "stand-in: the ranks' calls do not match");
    }
    return ncclSuccess;
}

// All of them, each direction of each pair in the order of the list.
static ncclResult_t move_all(ncclComm_t c, message *m, int count) {
    header got[RANKS_MAX];
    for (;;) {
        struct pollfd p[2 * RANKS_MAX + 1];
        bool busy[2][RANKS_MAX] = {{false}};
        int waits = 0;
        p[waits++] = (struct pollfd){.fd = c->wake, .events = POLLIN};
        for (int i = 0; i < count; i++) {
            if (complete(&m[i]) || busy[m[i].sends][m[i].peer]) continue;
            ncclResult_t r = advance(c, &m[i], &got[m[i].peer]);
            if (r != ncclSuccess) return r;
            if (complete(&m[i])) continue;
            busy[m[i].sends][m[i].peer] = true;
            p[waits++] = (struct pollfd){.fd = c->fd[m[i].peer], .events = m[i].sends ? POLLOUT : POLLIN};
        }
        if (waits == 1) return ncclSuccess;
        if (poll(p, (nfds_t)waits, -1) < 0 && errno != EINTR) return error(ncclSystemError, "stand-in: poll failed");
        if (p[0].revents) return error(ncclInternalError, "stand-in: aborted");
    }
}

// --- arithmetic ------------------------------------------------------------------------------------------------------

static size_t type_bytes(ncclDataType_t t) { return t == ncclInt8 ? 1 : t == ncclFloat64 ? 8 : 4; }

#define COMBINE(T) \
    do { \
        T *x = acc; \
        const T *y = more; \
        for (size_t i = 0; i < count; i++) x[i] = how == ncclMax ? (y[i] > x[i] ? y[i] : x[i]) : x[i] + y[i]; \
    } while (0)

static void combine(void *acc, const void *more, size_t count, ncclDataType_t type, ncclRedOp_t how) {
    if (type == ncclFloat32) COMBINE(float);
    else if (type == ncclFloat64) COMBINE(double);
    else if (type == ncclInt32) COMBINE(int32_t);
    else COMBINE(int8_t);
}

// out (=) the ranks' `in`, combined in rank order, on `root`.
static ncclResult_t reduce_to(ncclComm_t c, int root, const op *o, const char *in, void *out) {
    message m[RANKS_MAX];
    size_t bytes = o->count * type_bytes(o->type);
    if (c->rank != root) {
        m[0] = part(root, true, o->kind, o->type, in, bytes);
        return move_all(c, m, 1);
    }
    char *all = malloc(bytes * (size_t)c->world);
    int n = 0;
    if (!all) return error(ncclSystemError, "stand-in: no memory");
    for (int r = 0; r < c->world; r++)
        if (r != root) m[n++] = part(r, false, o->kind, o->type, all + (size_t)r * bytes, bytes);
    memcpy(all + (size_t)root * bytes, in, bytes);
    ncclResult_t result = move_all(c, m, n);
    for (int r = 1; r < c->world && result == ncclSuccess; r++)
        combine(all, all + (size_t)r * bytes, o->count, o->type, o->how);
    if (result == ncclSuccess) memcpy(out, all, bytes);
    free(all);
    return result;
}

static ncclResult_t broadcast_from(ncclComm_t c, int root, const op *o, const void *in, void *out) {
    message m[RANKS_MAX];
    size_t bytes = o->count * type_bytes(o->type);
    int n = 0;
    if (c->rank != root) m[n++] = part(root, false, o->kind, o->type, out, bytes);
    for (int r = 0; r < c->world && c->rank == root; r++)
        if (r != root) m[n++] = part(r, true, o->kind, o->type, in, bytes);
    if (c->rank == root && out != in) memmove(out, in, bytes);
    return move_all(c, m, n);
}

static ncclResult_t run_op(ncclComm_t c, const op *o) {
    size_t bytes = o->count * type_bytes(o->type);
    ncclResult_t r = ncclSuccess;
    switch (o->kind) {
    case OP_BROADCAST: return broadcast_from(c, o->peer, o, o->in, o->out);
    case OP_REDUCE: return reduce_to(c, o->peer, o, o->in, o->out);
    case OP_ALL_REDUCE:
        r = reduce_to(c, 0, o, o->in, o->out);
        return r != ncclSuccess ? r : broadcast_from(c, 0, o, o->out, o->out);
    case OP_REDUCE_SCATTER:
        for (int i = 0; i < c->world && r == ncclSuccess; i++)
            r = reduce_to(c, i, o, (const char *)o->in + (size_t)i * bytes, o->out);
        return r;
    case OP_ALL_GATHER:
        for (int i = 0; i < c->world && r == ncclSuccess; i++) {
            char *row = (char *)o->out + (size_t)i * bytes;
            r = broadcast_from(c, i, o, i == c->rank ? o->in : row, row);
        }
        return r;
    case OP_SEND:
    case OP_RECV: break;
    }
    return r;
}

// The collectives of a group in their order, then its sends and receives all at once.
static ncclResult_t run_group(ncclComm_t c) {
    message *m = malloc((size_t)(c->op_count + 1) * sizeof *m);
    int n = 0;
    ncclResult_t r = m ? ncclSuccess : error(ncclSystemError, "stand-in: no memory");
    for (int i = 0; i < c->op_count && r == ncclSuccess; i++) {
        const op *o = &c->ops[i];
        size_t bytes = o->count * type_bytes(o->type);
        if (o->kind == OP_SEND) m[n++] = part(o->peer, true, OP_SEND, o->type, o->in, bytes);
        else if (o->kind == OP_RECV) m[n++] = part(o->peer, false, OP_SEND, o->type, o->out, bytes);
        else r = run_op(c, o);
    }
    if (r == ncclSuccess) r = move_all(c, m, n);
    free(m);
    return r;
}

// --- meeting ---------------------------------------------------------------------------------------------------------

static socklen_t address(struct sockaddr_un *a, const char *name, int rank) {
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "%s-%d", name, rank);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static bool stopped(ncclComm_t c, int ms) { return poll(&(struct pollfd){.fd = c->wake, .events = POLLIN}, 1, ms) > 0; }

static ncclResult_t dial(ncclComm_t c, int rank) {
    struct sockaddr_un a;
    socklen_t length = address(&a, c->name, rank);
    c->fd[rank] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd[rank] < 0) return error(ncclSystemError, "stand-in: no socket");
    while (connect(c->fd[rank], (struct sockaddr *)&a, length) != 0) {
        if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR)
            return error(ncclSystemError, "stand-in: connect failed");
        if (stopped(c, 1)) return error(ncclInternalError, "stand-in: aborted");
    }
    int32_t self = c->rank;
    if (send(c->fd[rank], &self, sizeof self, MSG_NOSIGNAL) == sizeof self) return ncclSuccess;
    return error(ncclRemoteError, "stand-in: a peer left");
}

static ncclResult_t answer(ncclComm_t c, int listener) {
    int32_t who;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) return stopped(c, 1) ? error(ncclInternalError, "stand-in: aborted") : ncclSuccess;
    if (recv(fd, &who, sizeof who, MSG_WAITALL) != sizeof who || who <= c->rank || who >= c->world || c->fd[who] >= 0) {
        close(fd);
        return error(ncclInternalError, "stand-in: an unexpected rank");
    }
    c->fd[who] = fd;
    return ncclSuccess;
}

static ncclResult_t meet(ncclComm_t c) {
    struct sockaddr_un a;
    socklen_t length = address(&a, c->name, c->rank);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), missing = c->world - 1 - c->rank;
    ncclResult_t r = ncclSuccess;
    if (listener < 0 || bind(listener, (struct sockaddr *)&a, length) != 0 || listen(listener, RANKS_MAX) != 0)
        r = error(ncclSystemError, "stand-in: no listening socket");
    for (int i = 0; i < c->rank && r == ncclSuccess; i++) r = dial(c, i);
    while (missing > 0 && r == ncclSuccess) {
        r = answer(c, listener);
        missing = 0;
        for (int i = c->rank + 1; i < c->world; i++) missing += c->fd[i] < 0;
    }
    if (listener >= 0) close(listener);
    return r;
}

// --- communicators and their threads ---------------------------------------------------------------------------------

static ncclResult_t submit(ncclComm_t c, job_kind job);
static ncclComm_t new_comm(const char *name, int rank, int world);

// Who is in my color, and in which order? Everybody tells everybody.
static ncclResult_t run_split(ncclComm_t c) {
    typedef struct vote {
        int32_t color, key;
    } vote;
    vote all[RANKS_MAX] = {{0}};
    all[c->rank] = (vote){c->split.color, c->split.key};
    ncclResult_t r = run_op(
        c,
        &(op){.kind = OP_ALL_GATHER, .in = &all[c->rank], .out = all, .count = sizeof(vote), .type = ncclInt8, .c = c});
    if (r != ncclSuccess || c->split.color == NCCL_SPLIT_NOCOLOR) return r;
    int world = 0, rank = 0;
    for (int i = 0; i < c->world; i++) {
        if (all[i].color != c->split.color) continue;
        world++;
        rank += all[i].key < c->split.key || (all[i].key == c->split.key && i < c->rank);
    }
    char name[96];
    snprintf(name, sizeof name, "%.70s/%d.%d", c->name, c->splits, c->split.color);
    ncclComm_t child = new_comm(name, rank, world);
    if (!child) return error(ncclSystemError, "stand-in: no memory");
    submit(child, JOB_INIT);
    *c->split.out = child;
    return ncclSuccess;
}

static ncclResult_t never(ncclComm_t c) {
    while (!stopped(c, 1000)) {}
    return error(ncclInternalError, "stand-in: aborted");
}

static ncclResult_t run_counted(ncclComm_t c) {
    count_together(1);
    ncclResult_t r = run_group(c);
    count_together(-1);
    return r;
}

static ncclResult_t run_job(ncclComm_t c, job_kind job) {
    char token = 0;
    switch (job) {
    case JOB_INIT:
        if (asked("hang-init", 0)) return never(c);
        stopped(c, 1);  // in progress for a while, whatever the machine
        return meet(c);
    case JOB_GROUP:
        if (asked("hang", c->groups)) return never(c);
        if (asked("async", c->groups)) return error(ncclSystemError, "stand-in: asked to fail in the background");
        return run_counted(c);
    case JOB_SPLIT: return run_split(c);
    case JOB_FINALIZE:  // no rank leaves before all have come
        return run_op(c, &(op){.kind = OP_ALL_REDUCE,
                               .in = &token,
                               .out = &token,
                               .count = 1,
                               .type = ncclInt8,
                               .how = ncclSum,
                               .c = c});
    case JOB_NONE:
    case JOB_QUIT: break;
    }
    return ncclSuccess;
}

static void *work(void *arg) {
    ncclComm_t c = arg;
    pthread_mutex_lock(&c->lock);
    while (c->job != JOB_QUIT) {
        job_kind job = c->job;
        if (job == JOB_NONE) {
            pthread_cond_wait(&c->changed, &c->lock);
            continue;
        }
        pthread_mutex_unlock(&c->lock);
        nanosleep(&(struct timespec){.tv_nsec = SLOWNESS_NS}, NULL);
        ncclResult_t r = run_job(c, job);
        pthread_mutex_lock(&c->lock);
        free(c->ops);
        c->ops = NULL;
        c->state = r;
        if (c->job == job) c->job = JOB_NONE;
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static ncclComm_t new_comm(const char *name, int rank, int world) {
    ncclComm_t c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->rank = rank, c->world = world;
    snprintf(c->name, sizeof c->name, "%s", name);
    for (int i = 0; i < RANKS_MAX; i++) c->fd[i] = -1;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    c->wake = eventfd(0, EFD_CLOEXEC);
    if (c->wake < 0 || pthread_create(&c->thread, NULL, work, c) != 0) {
        free(c);
        return NULL;
    }
    atomic_fetch_add(&live, 1);
    return c;
}

static ncclResult_t busy(void) {
    return error(ncclInvalidArgument, "stand-in: the communicator is used before its last call has ended");
}

// With the lock held.
static ncclResult_t ready(ncclComm_t c) { return c->job != JOB_NONE ? busy() : c->state; }

static ncclResult_t submit(ncclComm_t c, job_kind job) {
    pthread_mutex_lock(&c->lock);
    ncclResult_t r = ready(c);
    if (r == ncclSuccess && c->finalized) r = error(ncclInvalidUsage, "stand-in: the communicator was finalized");
    if (r == ncclSuccess) {
        c->job = job;
        c->groups += job == JOB_GROUP;
        c->late_error |= job == JOB_GROUP && asked("later", c->groups);
        c->splits += job == JOB_SPLIT;
        c->finalized = job == JOB_FINALIZE;
        pthread_cond_signal(&c->changed);
        r = ncclInProgress;
    }
    pthread_mutex_unlock(&c->lock);
    return r;
}

static void end(ncclComm_t c) {
    uint64_t one = 1;
    pthread_mutex_lock(&c->lock);
    bool idle = c->job == JOB_NONE;
    c->job = JOB_QUIT;
    pthread_cond_signal(&c->changed);
    if (!idle && write(c->wake, &one, sizeof one) < 0) abort();
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    for (int i = 0; i < c->world; i++)
        if (c->fd[i] >= 0) close(c->fd[i]);
    close(c->wake);
    free(c->ops);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->changed);
    free(c);
    atomic_fetch_sub(&live, 1);
}

// --- the functions of NCCL -------------------------------------------------------------------------------------------

API ncclResult_t ncclGetVersion(int *version) {
    first_call();
    const char *v = getenv("LOCKSTEP_STANDIN_VERSION");
    *version = v ? atoi(v) : NCCL_API_VERSION;
    return ncclSuccess;
}

API ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    unsigned char random[16];
    first_call();
    *id = (ncclUniqueId){{0}};
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return error(ncclSystemError, "stand-in: no random bytes");
    int n = snprintf(id->internal, sizeof id->internal, "standin-");
    for (int i = 0; i < 16; i++) n += snprintf(id->internal + n, sizeof id->internal - (size_t)n, "%02x", random[i]);
    return ncclSuccess;
}

static bool good_config(const ncclConfig_t *k) {
    return k && k->size == sizeof *k && k->magic == NCCL_MAGIC && k->version == NCCL_API_VERSION && k->blocking == 0 &&
           k->nvlinkCentricSched == NCCL_UNDEFINED && k->netName == NULL;
}

API ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int world, ncclUniqueId id, int rank, ncclConfig_t *config) {
    first_call();
    *out = NULL;
    if (!good_config(config))
        return error(ncclInvalidArgument, "stand-in: the configuration is not one of a non-blocking communicator");
    if (world < 2 || world > RANKS_MAX || rank < 0 || rank >= world || strncmp(id.internal, "standin-", 8) != 0)
        return error(ncclInvalidArgument, "stand-in: rank, world or id is wrong");
    *out = new_comm(id.internal, rank, world);
    return *out ? submit(*out, JOB_INIT) : error(ncclSystemError, "stand-in: no thread");
}

API ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *out, ncclConfig_t *config) {
    *out = NULL;
    if (!good_config(config) || color < NCCL_SPLIT_NOCOLOR)
        return error(ncclInvalidArgument, "stand-in: color or configuration is wrong");
    if (asked("split-no", 0)) return error(ncclSystemError, "stand-in: asked to refuse");
    pthread_mutex_lock(&c->lock);
    if (c->job == JOB_NONE) c->split.color = color, c->split.key = key, c->split.out = out;
    pthread_mutex_unlock(&c->lock);
    return submit(c, JOB_SPLIT);
}

API ncclResult_t ncclCommFinalize(ncclComm_t c) { return submit(c, JOB_FINALIZE); }

API ncclResult_t ncclCommDestroy(ncclComm_t c) {
    pthread_mutex_lock(&c->lock);
    bool can = c->job == JOB_NONE;
    pthread_mutex_unlock(&c->lock);
    if (!can) return busy();
    end(c);
    return ncclSuccess;
}

API ncclResult_t ncclCommAbort(ncclComm_t c) {
    atomic_fetch_add(&aborts, 1);
    end(c);
    return ncclSuccess;
}

API ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state) {
    pthread_mutex_lock(&c->lock);
    if (c->late_error && c->job == JOB_NONE && c->state == ncclSuccess) {
        if (c->later == 0) c->later = now() + 0.02;
        else if (now() > c->later) c->state = error(ncclSystemError, "stand-in: asked to fail some time later");
    }
    *state = c->job != JOB_NONE ? ncclInProgress : c->state;
    pthread_mutex_unlock(&c->lock);
    return ncclSuccess;
}

API const char *ncclGetErrorString(ncclResult_t r) {
    static const char *const text[] = {"no error",
                                       "unhandled cuda error",
                                       "unhandled system error",
                                       "internal error",
                                       "invalid argument",
                                       "invalid usage",
                                       "remote process exited or there was a network error",
                                       "NCCL operation in progress"};
    return (unsigned)r < sizeof text / sizeof *text ? text[r] : "unknown result code";
}

API const char *ncclGetLastError(ncclComm_t c) {
    static _Thread_local char copy[sizeof last_error];
    (void)c;
    pthread_mutex_lock(&error_lock);
    memcpy(copy, last_error, sizeof copy);
    pthread_mutex_unlock(&error_lock);
    return copy;
}

API ncclResult_t ncclCommRegister(const ncclComm_t c, void *base, size_t bytes, void **handle) {
    if (!c || !base || !bytes) return error(ncclInvalidArgument, "stand-in: nothing to register");
    atomic_fetch_add(&registered, 1);
    *handle = base;
    return ncclSuccess;
}

API ncclResult_t ncclCommDeregister(const ncclComm_t c, void *handle) {
    if (!c || !handle) return error(ncclInvalidArgument, "stand-in: nothing to deregister");
    atomic_fetch_sub(&registered, 1);
    return ncclSuccess;
}

API ncclResult_t ncclGroupStart(void) {
    group.depth++;
    return ncclSuccess;
}

// One communicator a group: more than our caller does is more than is written here.
API ncclResult_t ncclGroupEnd(void) {
    if (group.depth == 0) return error(ncclInvalidUsage, "stand-in: a group ends that never began");
    if (--group.depth > 0) return ncclSuccess;
    op *ops = group.ops;
    int count = group.count;
    bool spoiled = group.spoiled;
    group.ops = NULL, group.count = 0, group.spoiled = false;
    ncclComm_t c = count ? ops[0].c : NULL;
    ncclResult_t r = ncclSuccess;
    for (int i = 1; i < count; i++)
        if (ops[i].c != c) spoiled = true;
    if (spoiled) r = error(ncclInvalidUsage, "stand-in: a call within the group was wrong");
    else if (c && asked("return", c->groups + 1)) r = error(ncclSystemError, "stand-in: asked to refuse");
    else if (c) {
        pthread_mutex_lock(&c->lock);
        bool idle = c->job == JOB_NONE;
        if (idle) c->ops = ops, c->op_count = count;
        pthread_mutex_unlock(&c->lock);
        r = idle ? submit(c, JOB_GROUP) : busy();
        if (idle && r == ncclInProgress) return r;
        if (idle) c->ops = NULL;
    }
    free(ops);
    return r;
}

static ncclResult_t add(op o) {
    ncclGroupStart();
    op *more = realloc(group.ops, (size_t)(group.count + 1) * sizeof *more);
    if (more) group.ops = more, group.ops[group.count++] = o;
    if (!more || !o.c || o.peer < 0 || o.peer >= o.c->world || o.count == 0) group.spoiled = true;
    bool outermost = group.depth == 1;
    ncclResult_t r = ncclGroupEnd();
    return outermost ? r : more ? ncclSuccess : error(ncclSystemError, "stand-in: no memory");
}

API ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int to, ncclComm_t c, cudaStream_t s) {
    (void)s;
    return add((op){OP_SEND, data, NULL, count, type, ncclSum, to, c});
}

API ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int from, ncclComm_t c, cudaStream_t s) {
    (void)s;
    return add((op){OP_RECV, NULL, data, count, type, ncclSum, from, c});
}

API ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type, int root, ncclComm_t c,
                               cudaStream_t s) {
    (void)s;
    return add((op){OP_BROADCAST, in, out, count, type, ncclSum, root, c});
}

API ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t how, int root,
                            ncclComm_t c, cudaStream_t s) {
    (void)s;
    return add((op){OP_REDUCE, in, out, count, type, how, root, c});
}

API ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t how,
                               ncclComm_t c, cudaStream_t s) {
    (void)s;
    return add((op){OP_ALL_REDUCE, in, out, count, type, how, 0, c});
}

API ncclResult_t ncclReduceScatter(const void *in, void *out, size_t each, ncclDataType_t type, ncclRedOp_t how,
                                   ncclComm_t c, cudaStream_t s) {
    (void)s;
    return add((op){OP_REDUCE_SCATTER, in, out, each, type, how, 0, c});
}

API ncclResult_t ncclAllGather(const void *in, void *out, size_t each, ncclDataType_t type, ncclComm_t c,
                               cudaStream_t s) {
    (void)s;
    return add((op){OP_ALL_GATHER, in, out, each, type, ncclSum, 0, c});
}
