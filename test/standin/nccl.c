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
#include "test/standin/nccl_wire.h"

#include <poll.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <time.h>

enum { SLOWNESS_NS = 20000 };

typedef enum { JOB_NONE, JOB_INIT, JOB_GROUP, JOB_SPLIT, JOB_FINALIZE, JOB_QUIT } job_kind;

// What a communicator's thread is doing. One job at a time: NCCL's rule for who uses a non-blocking communicator.
struct ncclComm {
    int rank, world;
    char name[COMM_NAME_ROOM];  // of its sockets
    int fd[RANKS_MAX];          // to each rank; -1: itself
    int wake;                   // eventfd, readable once aborted
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
    vote wants;  // of a split
    ncclComm_t *child;
};

#include "test/standin/nccl_calls.h"

// Of the whole process, too.
static atomic_int aborts, live, registered, calls, working, together;
static char seen[5][64];
static const char *const watched[5] = {"NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE", "NCCL_ALGO", "NCCL_RAS_ENABLE",
                                       "LOCKSTEP_STANDIN"};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
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

static void told_apart(const message *m) { (void)m; }

// All of them, each direction of each pair in the order of the list.
static ncclResult_t move_all(ncclComm_t c, message *m, int count) {
    for (;;) {
        struct pollfd p[2 * RANKS_MAX + 1];
        bool busy[2][RANKS_MAX] = {{false}};
        int waits = 0;
        p[waits++] = (struct pollfd){.fd = c->wake, .events = POLLIN};
        for (int i = 0; i < count; i++) {
            if (complete(&m[i]) || busy[m[i].sends][m[i].peer]) continue;
            ncclResult_t r = advance(c->fd[m[i].peer], &m[i]);
            if (r != ncclSuccess) return r;
            if (complete(&m[i])) continue;
            busy[m[i].sends][m[i].peer] = true;
            p[waits++] = (struct pollfd){.fd = c->fd[m[i].peer], .events = m[i].sends ? POLLOUT : POLLIN};
        }
        if (waits == 1) return ncclSuccess;
        if (poll(p, (nfds_t)waits, -1) < 0 && errno != EINTR) return error(ncclSystemError, "poll failed");
        if (p[0].revents) return error(ncclInternalError, "aborted");
    }
}

// --- arithmetic ------------------------------------------------------------------------------------------------------

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
    if (!all) return error(ncclSystemError, "no memory");
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
    case OP_RECV:
    case OP_VOTE: break;
    }
    return r;
}

// The collectives of a group in their order, then its sends and receives all at once.
static ncclResult_t run_group(ncclComm_t c) {
    message *m = malloc((size_t)(c->op_count + 1) * sizeof *m);
    int n = 0;
    ncclResult_t r = m ? ncclSuccess : error(ncclSystemError, "no memory");
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

static bool stopped(ncclComm_t c, int ms) { return poll(&(struct pollfd){.fd = c->wake, .events = POLLIN}, 1, ms) > 0; }

static ncclResult_t dial(ncclComm_t c, int rank) {
    struct sockaddr_un a;
    socklen_t length = address(&a, c->name, rank);
    c->fd[rank] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd[rank] < 0) return error(ncclSystemError, "no socket");
    while (connect(c->fd[rank], (struct sockaddr *)&a, length) != 0) {
        if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) return error(ncclSystemError, "connect failed");
        if (stopped(c, 1)) return error(ncclInternalError, "aborted");
    }
    int32_t self = c->rank;
    if (send(c->fd[rank], &self, sizeof self, MSG_NOSIGNAL) == sizeof self) return ncclSuccess;
    return error(ncclRemoteError, "a peer left");
}

static ncclResult_t answer(ncclComm_t c, int listener) {
    int32_t who;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) return stopped(c, 1) ? error(ncclInternalError, "aborted") : ncclSuccess;
    if (recv(fd, &who, sizeof who, MSG_WAITALL) != sizeof who || who <= c->rank || who >= c->world || c->fd[who] >= 0) {
        close(fd);
        return error(ncclInternalError, "an unexpected rank");
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
        r = error(ncclSystemError, "no listening socket");
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
    vote all[RANKS_MAX] = {{0}};
    char name[COMM_NAME_ROOM];
    int world, rank;
    all[c->rank] = c->wants;
    ncclResult_t r = run_op(
        c,
        &(op){.kind = OP_ALL_GATHER, .in = &all[c->rank], .out = all, .count = sizeof(vote), .type = ncclInt8, .c = c});
    if (r != ncclSuccess || c->wants.color == NCCL_SPLIT_NOCOLOR) return r;
    count_votes(all, c->world, c->rank, &rank, &world);
    name_child(name, c->name, c->splits, c->wants.color);
    ncclComm_t child = new_comm(name, rank, world);
    if (!child) return error(ncclSystemError, "no memory");
    submit(child, JOB_INIT);
    *c->child = child;
    return ncclSuccess;
}

static ncclResult_t never(ncclComm_t c) {
    while (!stopped(c, 1000)) {}
    return error(ncclInternalError, "aborted");
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
        if (asked("async", c->groups)) return error(ncclSystemError, "asked to fail in the background");
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

// With the lock held.
static ncclResult_t ready(ncclComm_t c) { return c->job != JOB_NONE ? busy() : c->state; }

static ncclResult_t submit(ncclComm_t c, job_kind job) {
    pthread_mutex_lock(&c->lock);
    ncclResult_t r = ready(c);
    if (r == ncclSuccess && c->finalized) r = error(ncclInvalidUsage, "the communicator was finalized");
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
    first_call();
    return make_id(id);
}

API ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int world, ncclUniqueId id, int rank, ncclConfig_t *config) {
    first_call();
    *out = NULL;
    ncclResult_t r = check_config(config);
    if (r == ncclSuccess) r = check_rank(world, RANKS_MAX, rank, &id);
    if (r != ncclSuccess) return r;
    *out = new_comm(id.internal, rank, world);
    return *out ? submit(*out, JOB_INIT) : error(ncclSystemError, "no thread");
}

API ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *out, ncclConfig_t *config) {
    *out = NULL;
    ncclResult_t r = check_config(config);
    if (r != ncclSuccess) return r;
    if (color < NCCL_SPLIT_NOCOLOR) return error(ncclInvalidArgument, "color is wrong");
    if (asked("split-no", 0)) return error(ncclSystemError, "asked to refuse");
    pthread_mutex_lock(&c->lock);
    if (c->job == JOB_NONE) c->wants = (vote){color, key}, c->child = out;
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
        else if (now() > c->later) c->state = error(ncclSystemError, "asked to fail some time later");
    }
    *state = c->job != JOB_NONE ? ncclInProgress : c->state;
    pthread_mutex_unlock(&c->lock);
    return ncclSuccess;
}

API ncclResult_t ncclCommRegister(const ncclComm_t c, void *base, size_t bytes, void **handle) {
    if (!c || !base || !bytes) return error(ncclInvalidArgument, "nothing to register");
    atomic_fetch_add(&registered, 1);
    *handle = base;
    return ncclSuccess;
}

API ncclResult_t ncclCommDeregister(const ncclComm_t c, void *handle) {
    if (!c || !handle) return error(ncclInvalidArgument, "nothing to deregister");
    atomic_fetch_sub(&registered, 1);
    return ncclSuccess;
}

static ncclResult_t submit_group(op *ops, int count) {
    ncclComm_t c = ops[0].c;
    bool refused = asked("return", c->groups + 1);
    pthread_mutex_lock(&c->lock);
    bool idle = !refused && c->job == JOB_NONE;
    if (idle) c->ops = ops, c->op_count = count;
    pthread_mutex_unlock(&c->lock);
    ncclResult_t r = idle ? submit(c, JOB_GROUP) : refused ? error(ncclSystemError, "asked to refuse") : busy();
    if (idle && r == ncclInProgress) return r;
    if (idle) c->ops = NULL;
    free(ops);
    return r;
}
