// comm/nccl/nccl.c: collectives between GPUs, by NCCL. One idea: nothing here ever waits inside NCCL. Communicators are
// opened non-blocking: every call into NCCL returns immediately and says "in progress", and we wait ourselves, while
// checking the deadline and the team's watcher. A rank that dies, a cable that is cut or a peer that never comes then
// ends in an error here, not in a process that must be killed.
//
// A collective returns when its work is in the stream (on a GPU), not when it is done. A thread of ours (`watch`) finds
// later losses. It aborts NCCL's communicators; the stream's work then ends, with wrong numbers in the buffers. So:
// after waiting for a stream, call query() before using its results. The caller limits how long work may stay in a
// stream without an error.
//
// Several threads may be in calls of several communicators. Calls into NCCL are made one at a time, a group from its
// start to its end, and each is waited for outside the lock: a call that its peers keep waiting keeps no other one
// waiting.
//
// NCCL moves device memory only. The id of the communicator, small messages of the host and barriers go over the
// companion, a communicator of the tcp transport, whose connections are authenticated.
#include "base/clock.h"
#include "comm/nccl/api.h"

#include "base/thread.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

typedef struct nccl_comm nccl_comm;

// What a communicator and those that were split from it have in common.
typedef struct nccl_shared {
    nccl_library lib;
    team *team;
    double timeout_s;
    pthread_mutex_t lock;  // held during every call into NCCL with a communicator: an abort may come from any thread
    int32_t *revoked;      // nccl_revoke_at: set to 1 before anything is aborted; NULL: not wanted
    bool aborted;          // all of them were
    nccl_comm *first;      // list of all open communicators, under the lock too
    bool watched;
    pthread_t watcher;
    int leave;  // eventfd: the watcher is no longer needed
} nccl_shared;

struct nccl_comm {
    comm head;
    nccl_shared *with;
    nccl_comm *next;
    bool owner;        // of `with`: the first one
    comm_phase doing;  // since it was entered last
    ncclComm_t raw;    // NULL once it was aborted
    int registrations;
    void *registered[NCCL_REGISTERED];
};

enum { WATCH_MS = 500, NEWS_MS = 1000, REASON = 400 };

static nccl_comm *ours(comm *c) { return (nccl_comm *)c; }

// --- failure ---------------------------------------------------------------------------------------------------------

static bool fine(ncclResult_t r) { return r == ncclSuccess || r == ncclInProgress; }

// NCCL's text for r. Call it with the lock held, and before an abort: the last error is lost with its communicator.
static void reason(const nccl_comm *n, ncclResult_t r, char dst[REASON]) {
    const char *kind = n->with->lib.ncclGetErrorString(r), *last = n->with->lib.ncclGetLastError(n->raw);
    snprintf(dst, REASON, "%s%s%s", kind ? kind : "unknown error", last && *last ? ": " : "", last ? last : "");
    for (size_t i = strlen(dst); i > 0 && (dst[i - 1] == '\n' || dst[i - 1] == ' '); i--) dst[i - 1] = 0;
}

// Aborts every communicator of the team: a lost rank is lost to all of them, and only an abort removes their work from
// the streams.
static void abort_all(nccl_shared *with) {
    pthread_mutex_lock(&with->lock);
    with->aborted = true;
    if (with->revoked) __atomic_store_n(with->revoked, 1, __ATOMIC_RELEASE);
    for (nccl_comm *n = with->first; n; n = n->next) {
        if (n->raw) with->lib.ncclCommAbort(n->raw);
        n->raw = NULL;
    }
    pthread_mutex_unlock(&with->lock);
}

// Reports "nccl between calls, after #12: why" to the whole team, which adds rank and phase. This may be another thread
// than the one that makes the calls: the number may be that of the previous or the next call, and so may the phase.
static err_t fail_team(const nccl_comm *n, const char *what, const char *why) {
    char text[ERR_TEXT];
    snprintf(text, sizeof text, "nccl %s #%" PRId64 ": %s", what, n->head.traffic.calls, why);
    return team_fail(n->with->team, text);
}

// NCCL notices a lost peer first, but does not know why: waits for the team's report of what happened to it.
static void await_news(const nccl_shared *with) {
    poll(&(struct pollfd){.fd = team_fd(with->team), .events = POLLIN}, 1, NEWS_MS);
}

// Every failure of a call ends here: "nccl all_reduce #12: why", and the phase of this communicator. The caller gets
// the team's record, ours or an earlier one, now and from every later call.
static err_t give_up(nccl_comm *n, const char *what, const char *why) {
    char text[ERR_TEXT];
    snprintf(text, sizeof text, "nccl %s #%" PRId64 ": %s", what, n->head.traffic.calls, why);
    if (n->doing.what) team_fail_in(n->with->team, text, &n->doing);
    else team_fail(n->with->team, text);
    abort_all(n->with);
    TRY(team_query(n->with->team));
    return err_set(ERR_INTERNAL, "nccl %s: %s, and the team has no record of it", what, why);
}

static void nccl_alive(comm *c) { c->host->table->alive(c->host); }

static err_t nccl_query(comm *c) {
    nccl_comm *n = ours(c);
    char why[REASON];
    ncclResult_t state = ncclSuccess;
    TRY(team_query(n->with->team));
    pthread_mutex_lock(&n->with->lock);  // held for microseconds, by calls of other communicators too, or by who aborts
    if (n->raw && n->with->lib.ncclCommGetAsyncError(n->raw, &state) != ncclSuccess) state = ncclInternalError;
    if (!fine(state)) reason(n, state, why);
    pthread_mutex_unlock(&n->with->lock);
    if (fine(state)) return team_query(n->with->team);
    if (state == ncclRemoteError) await_news(n->with);
    return fail_team(n, "between calls, after", why);  // the watcher sees the team's failure, and aborts
}

static void nccl_abort(comm *c, const char *why) {
    team_fail(ours(c)->with->team, why);
    abort_all(ours(c)->with);
}

static void nccl_revoke_at(comm *c, int32_t *word) {
    nccl_shared *with = ours(c)->with;
    pthread_mutex_lock(&with->lock);
    with->revoked = word;
    if (word && with->aborted) __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&with->lock);
}

static bool all_well(nccl_shared *with) {
    char why[REASON], text[ERR_TEXT];
    ncclResult_t state = ncclSuccess;
    pthread_mutex_lock(&with->lock);
    for (nccl_comm *n = with->first; n && fine(state); n = n->next) {
        if (!n->raw || with->lib.ncclCommGetAsyncError(n->raw, &state) != ncclSuccess || fine(state)) continue;
        reason(n, state, why);
        snprintf(text, sizeof text, "nccl in the background, after #%" PRId64 ": %s", n->head.traffic.calls, why);
    }
    pthread_mutex_unlock(&with->lock);
    if (fine(state)) return true;
    if (state == ncclRemoteError) await_news(with);
    team_fail(with->team, text);
    return false;
}

// Checks NCCL while this rank waits for a stream or is busy elsewhere.
static void *watch(void *arg) {
    nccl_shared *with = arg;
    struct pollfd p[2] = {{.fd = with->leave, .events = POLLIN}, {.fd = team_fd(with->team), .events = POLLIN}};
    for (;;) {
        int ready = poll(p, 2, WATCH_MS);
        if (ready < 0 && errno != EINTR) break;
        if (ready > 0 && p[0].revents) return NULL;
        if (team_query(with->team) != ERR_OK || !all_well(with)) break;
    }
    abort_all(with);
    return NULL;
}

// --- waiting ---------------------------------------------------------------------------------------------------------

// A launch takes microseconds, a late peer milliseconds: look often at first, then sleep.
static void pause_a_while(int turn) {
    if (turn < 8) {
        sched_yield();
        return;
    }
    int doublings = turn / 8 < 6 ? turn / 8 : 6;
    nanosleep(&(struct timespec){.tv_nsec = 10000L << doublings}, NULL);
}

typedef enum { ENDED, FAILED, PEER_LOST, LATE, TEAM_LOST } outcome;

// Waits until the call whose result was r is no longer in progress. why: NCCL's text, after FAILED or PEER_LOST.
static outcome await(nccl_comm *n, ncclResult_t r, char why[REASON]) {
    nccl_shared *with = n->with;
    double until = clock_now() + with->timeout_s;
    for (int turn = 0; r == ncclInProgress; turn++) {
        if (turn) pause_a_while(turn);
        if (team_query(with->team) != ERR_OK) return TEAM_LOST;
        pthread_mutex_lock(&with->lock);
        ncclResult_t asked = n->raw ? with->lib.ncclCommGetAsyncError(n->raw, &r) : ncclInternalError;
        if (asked != ncclSuccess) r = asked;
        if (!fine(r) && n->raw) reason(n, r, why);
        else if (!fine(r)) snprintf(why, REASON, "aborted by another thread");
        pthread_mutex_unlock(&with->lock);
        if (r == ncclInProgress && clock_now() > until) return LATE;
    }
    return r == ncclSuccess ? ENDED : r == ncclRemoteError ? PEER_LOST : FAILED;
}

// With two ranks it is clear which one is missing.
static void say_late(const nccl_comm *n, char why[REASON]) {
    char name[COMM_NAME];
    const comm *c = &n->head;
    int k = snprintf(why, REASON, "not every rank has come to it within %g s", n->with->timeout_s);
    if (c->world == 2)
        snprintf(why + k, REASON - (size_t)k, "; the other one is %s", comm_rank_text(c, 1 - c->rank, name));
}

// Waits for a call's end, and reports whatever went wrong to the team.
static err_t settle(nccl_comm *n, const char *what, ncclResult_t r) {
    char why[REASON] = "";
    if (!fine(r)) {
        pthread_mutex_lock(&n->with->lock);
        reason(n, r, why);
        pthread_mutex_unlock(&n->with->lock);
    }
    switch (await(n, r, why)) {
    case ENDED: return ERR_OK;
    case PEER_LOST: await_news(n->with); return give_up(n, what, why);
    case FAILED: return give_up(n, what, why);
    case LATE: say_late(n, why); return give_up(n, what, why);
    case TEAM_LOST: abort_all(n->with); break;
    }
    TRY(team_query(n->with->team));
    return err_set(ERR_INTERNAL, "nccl %s: the team failed, and then did not", what);
}

// Before a call into NCCL: takes the lock, unless there is nothing to call any more.
static err_t enter(nccl_comm *n, const char *what) {
    const comm *c = &n->head;
    TRY(team_query(n->with->team));
    n->doing = c->phase.what ? c->phase : (comm_phase){what, -1, c->traffic.calls + 1};
    team_progress(n->with->team, n->doing.what, n->doing.step, n->doing.number);
    pthread_mutex_lock(&n->with->lock);
    if (n->raw) return ERR_OK;
    pthread_mutex_unlock(&n->with->lock);
    TRY(team_query(n->with->team));  // an abort is recorded before it is done
    return err_set(ERR_UNAVAILABLE, "nccl: the communicator was aborted");
}

// After it.
static err_t leave(nccl_comm *n, const char *what, ncclResult_t r) {
    n->head.traffic.calls++;
    pthread_mutex_unlock(&n->with->lock);
    return settle(n, what, r);
}

// --- collectives -----------------------------------------------------------------------------------------------------

// NCCL chooses the route of the bytes. We count the minimum: each part goes straight from the rank that has it to the
// one that needs it, as one message.
static void count_sent(comm *c, int to, size_t bytes) {
    if (to != c->rank) comm_count_sent(c, to, bytes);
}

static void count_received(comm *c, int from, size_t bytes) {
    if (from != c->rank) c->traffic.received += (int64_t)bytes;
}

static cudaStream_t native(stream *s) { return stream_native(s); }

// A group must be closed even after an error inside it, or the next call would belong to it.
static ncclResult_t end_group(const nccl_library *lib, ncclResult_t inside) {
    ncclResult_t r = lib->ncclGroupEnd();
    return fine(inside) ? r : inside;
}

static err_t nccl_exchange(comm *c, const comm_part *send, int sends, const comm_part *recv, int recvs, stream *s) {
    nccl_comm *n = ours(c);
    const nccl_library *lib = &n->with->lib;
    TRY(enter(n, "exchange"));
    ncclResult_t r = lib->ncclGroupStart();
    for (int i = 0; i < sends && fine(r); i++) {
        if (send[i].bytes) r = lib->ncclSend(send[i].data, send[i].bytes, ncclInt8, send[i].peer, n->raw, native(s));
        count_sent(c, send[i].peer, send[i].bytes);
    }
    for (int i = 0; i < recvs && fine(r); i++) {
        if (recv[i].bytes) r = lib->ncclRecv(recv[i].data, recv[i].bytes, ncclInt8, recv[i].peer, n->raw, native(s));
        count_received(c, recv[i].peer, recv[i].bytes);
    }
    return leave(n, "exchange", end_group(lib, r));
}

static err_t nccl_type(dtype type, ncclDataType_t *out) {
    switch (type) {
    case FP32: *out = ncclFloat32; return ERR_OK;
    case FP64: *out = ncclFloat64; return ERR_OK;
    case INT32: *out = ncclInt32; return ERR_OK;
    case BF16:
    case FP16:
    case UINT8: break;
    }
    return err_set(ERR_INTERNAL, "nccl: a reduction of type %d; FP32, FP64 and INT32 are reduced", (int)type);
}

// As a reduce-scatter and an all-gather of parts that are as equal as can be.
static void count_all_reduce(comm *c, size_t count, size_t bytes_each) {
    size_t world = (size_t)c->world, self = (size_t)c->rank;
    size_t mine = ((self + 1) * count / world - self * count / world) * bytes_each;
    for (size_t r = 0; r < world; r++) {
        size_t theirs = ((r + 1) * count / world - r * count / world) * bytes_each;
        count_sent(c, (int)r, theirs), count_received(c, (int)r, mine);
        count_sent(c, (int)r, mine), count_received(c, (int)r, theirs);
    }
}

static err_t nccl_all_reduce(comm *c, void *data, size_t count, dtype type, reduce_op op, stream *s) {
    nccl_comm *n = ours(c);
    ncclDataType_t t;
    TRY(nccl_type(type, &t));
    if (count == 0) return nccl_query(c);
    TRY(enter(n, "all_reduce"));
    ncclResult_t r =
        n->with->lib.ncclAllReduce(data, data, count, t, op == REDUCE_MAX ? ncclMax : ncclSum, n->raw, native(s));
    count_all_reduce(c, count, dtype_bytes(type));
    return leave(n, "all_reduce", r);
}

static bool equal_cuts(const comm *c, const size_t *cut) {
    for (int r = 1; r < c->world; r++)
        if (cut[r + 1] - cut[r] != cut[1] - cut[0]) return false;
    return true;
}

static err_t nccl_reduce_scatter(comm *c, void *data, const size_t *cut, dtype type, stream *s) {
    nccl_comm *n = ours(c);
    const nccl_library *lib = &n->with->lib;
    size_t size = dtype_bytes(type), mine = (cut[c->rank + 1] - cut[c->rank]) * size;
    char *base = data;
    ncclDataType_t t;
    TRY(nccl_type(type, &t));
    if (cut[c->world] == cut[0]) return nccl_query(c);
    TRY(enter(n, "reduce_scatter"));
    ncclResult_t r;
    if (equal_cuts(c, cut)) {
        char *own = base + cut[c->rank] * size;
        r = lib->ncclReduceScatter(base + cut[0] * size, own, cut[1] - cut[0], t, ncclSum, n->raw, native(s));
    } else {
        r = lib->ncclGroupStart();
        for (int i = 0; i < c->world && fine(r); i++) {
            char *part = base + cut[i] * size;
            if (cut[i + 1] > cut[i])
                r = lib->ncclReduce(part, part, cut[i + 1] - cut[i], t, ncclSum, i, n->raw, native(s));
        }
        r = end_group(lib, r);
    }
    for (int i = 0; i < c->world; i++) count_sent(c, i, (cut[i + 1] - cut[i]) * size), count_received(c, i, mine);
    return leave(n, "reduce_scatter", r);
}

static err_t nccl_all_gather(comm *c, void *data, const size_t *cut, stream *s) {
    nccl_comm *n = ours(c);
    const nccl_library *lib = &n->with->lib;
    char *base = data;
    if (cut[c->world] == cut[0]) return nccl_query(c);
    TRY(enter(n, "all_gather"));
    ncclResult_t r;
    if (equal_cuts(c, cut)) {
        r = lib->ncclAllGather(base + cut[c->rank], base + cut[0], cut[1] - cut[0], ncclInt8, n->raw, native(s));
    } else {
        r = lib->ncclGroupStart();
        for (int i = 0; i < c->world && fine(r); i++) {
            char *part = base + cut[i];
            if (cut[i + 1] > cut[i])
                r = lib->ncclBroadcast(part, part, cut[i + 1] - cut[i], ncclInt8, i, n->raw, native(s));
        }
        r = end_group(lib, r);
    }
    size_t mine = cut[c->rank + 1] - cut[c->rank];
    for (int i = 0; i < c->world; i++) count_sent(c, i, mine), count_received(c, i, cut[i + 1] - cut[i]);
    return leave(n, "all_gather", r);
}

static err_t nccl_broadcast(comm *c, void *data, size_t bytes, int root, stream *s) {
    nccl_comm *n = ours(c);
    if (bytes == 0) return nccl_query(c);
    TRY(enter(n, "broadcast"));
    ncclResult_t r = n->with->lib.ncclBroadcast(data, data, bytes, ncclInt8, root, n->raw, native(s));
    for (int i = 0; c->rank == root && i < c->world; i++) count_sent(c, i, bytes);
    count_received(c, root, bytes);
    return leave(n, "broadcast", r);
}

static err_t nccl_all_to_all(comm *c, void *out, const void *in, size_t each, stream *s) {
    nccl_comm *n = ours(c);
    const nccl_library *lib = &n->with->lib;
    if (each == 0) return nccl_query(c);
    size_t own = (size_t)c->rank * each;
    TRY(stream_copy(s, (char *)out + own, (const char *)in + own, each));
    TRY(enter(n, "all_to_all"));
    ncclResult_t r = lib->ncclGroupStart();
    for (int i = 0; i < c->world; i++) {
        if (i == c->rank) continue;
        if (fine(r)) r = lib->ncclSend((const char *)in + (size_t)i * each, each, ncclInt8, i, n->raw, native(s));
        if (fine(r)) r = lib->ncclRecv((char *)out + (size_t)i * each, each, ncclInt8, i, n->raw, native(s));
        count_sent(c, i, each), count_received(c, i, each);
    }
    return leave(n, "all_to_all", end_group(lib, r));
}

// A barrier is for what the host has done (files that were synced), so the host waits: for its stream, then for the
// others.
static err_t nccl_barrier(comm *c, stream *s) {
    TRY(stream_wait(s));
    TRY(nccl_query(c));
    c->host->phase = c->phase;
    return c->host->table->barrier(c->host, s);
}

// --- opening and closing ---------------------------------------------------------------------------------------------

static void link_in(nccl_comm *n) {
    pthread_mutex_lock(&n->with->lock);
    n->next = n->with->first;
    n->with->first = n;
    pthread_mutex_unlock(&n->with->lock);
}

static void unlink_from(nccl_comm *n) {
    pthread_mutex_lock(&n->with->lock);
    nccl_comm **at = &n->with->first;
    while (*at && *at != n) at = &(*at)->next;
    if (*at) *at = n->next;
    pthread_mutex_unlock(&n->with->lock);
}

static void free_shared(nccl_shared *with) {
    if (with->watched) {
        uint64_t one = 1;
        while (write(with->leave, &one, sizeof one) < 0 && errno == EINTR) {}
        pthread_join(with->watcher, NULL);
    }
    if (with->leave >= 0) close(with->leave);
    pthread_mutex_destroy(&with->lock);
    free(with);
}

// Ends NCCL's part in good order if the other ranks do so too, else aborts it. An error here is not reported: no one is
// left to report it to.
static void finish(nccl_comm *n) {
    const nccl_library *lib = &n->with->lib;
    char why[REASON];
    pthread_mutex_lock(&n->with->lock);
    for (int i = 0; n->raw && i < n->registrations; i++) lib->ncclCommDeregister(n->raw, n->registered[i]);
    ncclResult_t r = n->raw ? lib->ncclCommFinalize(n->raw) : ncclInternalError;
    pthread_mutex_unlock(&n->with->lock);
    bool quiet = fine(r) && await(n, r, why) == ENDED;
    pthread_mutex_lock(&n->with->lock);
    if (n->raw && quiet) lib->ncclCommDestroy(n->raw);
    else if (n->raw) lib->ncclCommAbort(n->raw);
    n->raw = NULL;
    pthread_mutex_unlock(&n->with->lock);
}

static void drop(nccl_comm *n) {
    unlink_from(n);
    if (n->owner) free_shared(n->with);
    free(n);
}

static void nccl_close(comm *c) {
    comm *host = c->host;
    finish(ours(c));
    drop(ours(c));
    host->table->close(host);
}

static err_t nccl_split(comm *c, int color, int key, int channel, comm **out);

static const comm_table nccl_table = {
    .name = "nccl",
    .exchange = nccl_exchange,
    .all_reduce = nccl_all_reduce,
    .reduce_scatter = nccl_reduce_scatter,
    .all_gather = nccl_all_gather,
    .broadcast = nccl_broadcast,
    .all_to_all = nccl_all_to_all,
    .barrier = nccl_barrier,
    .split = nccl_split,
    .alive = nccl_alive,
    .query = nccl_query,
    .abort = nccl_abort,
    .register_memory = nccl_register,
    .revoke_at = nccl_revoke_at,
    .describe = nccl_describe,
    .close = nccl_close,
};

static nccl_comm *new_comm(nccl_shared *with, comm *host) {
    nccl_comm *n = calloc(1, sizeof *n);
    if (!n) return NULL;
    n->with = with;
    if (host)
        n->head =
            (comm){.table = &nccl_table, .rank = host->rank, .world = host->world, .place = host->place, .host = host};
    return n;
}

// A group of one is a self communicator: NCCL is never called for one rank. Its place says that it has a machine of its
// own.
static err_t alone(comm *host, comm **out) {
    host->table->close(host);
    return comm_self_open(out);
}

// The companion is split first: that gives the group's members. NCCL fills in the pointer to the new communicator some
// time before the old one is ready again; the new one must then still be waited for.
static err_t nccl_split(comm *c, int color, int key, int channel, comm **out) {
    nccl_comm *n = ours(c), *child;
    comm *host = NULL;
    err_t rc;
    *out = NULL;
    TRY(c->host->table->split(c->host, color, key, channel, &host));
    bool joins = host && host->world > 1;
    child = new_comm(n->with, host);
    rc = child ? enter(n, "split") : give_up(n, "split", "no memory");
    if (rc != ERR_OK) goto fail;
    ncclConfig_t config = nccl_config_nonblocking();
    int its_color = joins ? color : NCCL_SPLIT_NOCOLOR, its_key = host ? host->rank : 0;
    ncclResult_t r = n->with->lib.ncclCommSplit(n->raw, its_color, its_key, &child->raw, &config);
    TRY_GOTO(leave(n, "split", r), fail);
    if (!joins) {
        free(child);
        return host ? alone(host, out) : ERR_OK;
    }
    link_in(child);
    rc = child->raw ? settle(child, "split", ncclInProgress) : give_up(child, "split", "it gave no communicator");
    if (rc == ERR_OK) {
        *out = &child->head;
        return ERR_OK;
    }
    unlink_from(child);
fail:;
    err_record why = *err_last();
    if (child && child->raw) n->with->lib.ncclCommAbort(child->raw);  // not in any list yet
    free(child);
    if (host) host->table->close(host);
    return err_restore(&why);
}

// What a rank can do without the others: open its library, and on rank 0 make the id.
static err_t prepare(nccl_library *lib, ncclUniqueId *id, const comm *over, const transport_options *o) {
    TRY(nccl_library_open(lib, o));
    if (over->rank != 0) return ERR_OK;
    ncclResult_t r = lib->ncclGetUniqueId(id);
    if (r == ncclSuccess) return ERR_OK;
    return err_set(
        ERR_UNAVAILABLE,
        "nccl: no id for the communicator: %s: %s; does [reduce] nccl_interface name an interface of this machine?",
        lib->ncclGetErrorString(r), lib->ncclGetLastError(NULL));
}

// The library and the id, the same on all ranks, or the same error on all.
static err_t agree(nccl_library *lib, ncclUniqueId *id, comm *over, const transport_options *o, stream *s) {
    struct {
        int32_t version;
        ncclUniqueId id;
    } first = {0};
    char own[NCCL_VERSION_TEXT], other[NCCL_VERSION_TEXT], name[COMM_NAME];
    TRY(comm_agree_ok(over, prepare(lib, &first.id, over, o), s));
    first.version = lib->version;
    TRY(over->table->broadcast(over, &first, sizeof first, 0, s));
    TRY(stream_wait(s));
    *id = first.id;
    err_t rc = ERR_OK;
    if (first.version != lib->version)
        rc = err_set(ERR_UNAVAILABLE, "nccl: %s is version %s, that of %s is %s: install the same one everywhere",
                     lib->path, nccl_version_text(lib->version, own), comm_rank_text(over, 0, name),
                     nccl_version_text(first.version, other));
    return comm_agree_ok(over, rc, s);
}

static nccl_shared *new_shared(team *t, double timeout_s) {
    nccl_shared *with = calloc(1, sizeof *with);
    if (!with) return NULL;
    with->team = t;
    with->timeout_s = timeout_s;
    pthread_mutex_init(&with->lock, NULL);
    with->leave = eventfd(0, EFD_CLOEXEC);
    return with;
}

// This usually hangs because NCCL chose a network over which the nodes cannot reach each other: the name of the call
// says what to set.
static err_t connect_all(nccl_comm *n, ncclUniqueId id) {
    const char *what =
        comm_nodes(&n->head) > 1 ? "init (is [reduce] nccl_interface a network that all nodes share?)" : "init";
    ncclConfig_t config = nccl_config_nonblocking();
    pthread_mutex_lock(&n->with->lock);
    ncclResult_t r = n->with->lib.ncclCommInitRankConfig(&n->raw, n->head.world, id, n->head.rank, &config);
    pthread_mutex_unlock(&n->with->lock);
    return settle(n, what, r);
}

// `over` belongs to the new communicator only when all went well.
err_t comm_nccl_open(comm **out, team *t, comm *over, const transport_options *o, stream *s) {
    *out = NULL;
    if (over->world == 1) return alone(over, out);
    nccl_shared *with = new_shared(t, o->timeout_s);
    nccl_comm *n = with ? new_comm(with, over) : NULL;
    ncclUniqueId id;
    err_t rc = ERR_OK;
    if (!n || with->leave < 0)
        rc = err_set(ERR_INTERNAL, "nccl: no memory, or no descriptor, for a communicator of %d ranks", over->world);
    if (n) n->owner = true;
    TRY_GOTO(comm_agree_ok(over, rc, s), fail);
    TRY_GOTO(agree(&with->lib, &id, over, o, s), fail);
    link_in(n);
    TRY_GOTO(connect_all(n, id), fail);
    TRY_GOTO(thread_start(&with->watcher, "nccl-watch", watch, with), fail);
    with->watched = true;
    *out = &n->head;
    return ERR_OK;
fail:;
    err_record why = *err_last();
    if (with) abort_all(with);
    if (n) drop(n);
    else if (with) free_shared(with);
    return err_restore(&why);
}

// --- the rest --------------------------------------------------------------------------------------------------------

void nccl_describe(const comm *c, char *dst, size_t room) {
    nccl_library_describe(&((const nccl_comm *)c)->with->lib, dst, room);
}

err_t nccl_register(comm *c, void *base, size_t bytes) {
    nccl_comm *n = ours(c);
    const nccl_library *lib = &n->with->lib;
    if (!lib->ncclCommRegister || !lib->ncclCommDeregister || bytes == 0) return ERR_OK;  // it works without
    if (n->registrations == NCCL_REGISTERED)
        return err_set(ERR_INTERNAL, "nccl: more than %d registered buffers", NCCL_REGISTERED);
    TRY(enter(n, "register"));
    ncclResult_t r = lib->ncclCommRegister(n->raw, base, bytes, &n->registered[n->registrations]);
    if (r == ncclSuccess) n->registrations++;
    pthread_mutex_unlock(&n->with->lock);
    return settle(n, "register", r);
}
