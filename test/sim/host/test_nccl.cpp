// test/sim/host/test_nccl.cpp: tests of the stand-in for NCCL, in three processes.
#include "test/sim/simt_rt.h"
#include "test/sim/host/test_cudart.h"

extern "C" {
#include "comm/nccl/api.h"
}

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

enum { RANKS = 3 };

#define DECLARE(result, name, arguments) static result(*name##_) arguments;
#define FIND(result, name, arguments) name##_ = (result(*) arguments)dlsym(lib, #name);
#define PRESENT(result, name, arguments) MUST(name##_ != nullptr);
NCCL_CALLS(DECLARE)
NCCL_OPTIONAL_CALLS(DECLARE)

static void open_library() {
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 32);
    path[n < 0 ? 0 : n] = 0;
    strcpy(strrchr(path, '/') ? strrchr(path, '/') : path, "/libnccl-sim.so");
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!lib) fprintf(stderr, "%s\n", dlerror());
    MUST(lib != nullptr);
    if (!lib) return;
    NCCL_CALLS(FIND)
    NCCL_OPTIONAL_CALLS(FIND)
    NCCL_CALLS(PRESENT)
    NCCL_OPTIONAL_CALLS(PRESENT)
}

// Until the call that returned r has ended.
static ncclResult_t settle(ncclComm_t c, ncclResult_t r) {
    for (; r == ncclInProgress; usleep(50))
        if (ncclCommGetAsyncError_(c, &r) != ncclSuccess) return ncclInternalError;
    return r;
}
#define FINE(c, call) MUST(settle((c), (call)) == ncclSuccess)

static ncclComm_t join(ncclUniqueId id, int world, int rank) {
    ncclComm_t c = nullptr;
    ncclConfig_t k = nccl_config_nonblocking();
    FINE(c, ncclCommInitRankConfig_(&c, world, id, rank, &k));
    return c;
}

static void part(ncclComm_t c) {
    FINE(c, ncclCommFinalize_(c));
    MUST(ncclCommDestroy_(c) == ncclSuccess);
}

// fn on every rank, each in a process.
static void on_ranks(void (*fn)(int rank, ncclUniqueId id, int bug), int bug) {
    ncclUniqueId id = {};
    open_library();
    MUST(ncclGetUniqueId_(&id) == ncclSuccess);
    for (int r = 0; r < RANKS; r++) {
        if (fork() != 0) continue;
        alarm(60);
        simt::set_seed(order < 2 ? order : order * 10 + (uint64_t)r);
        fn(r, id, bug);
        leave();
    }
    for (int r = 0, status; r < RANKS; r++) MUST(wait(&status) > 0 && status == 0);
}

// --- collectives -----------------------------------------------------------------------------------------------------

static void all_kinds_rank(int rank, ncclUniqueId id, int) {
    enum { EACH = 7 };
    ncclComm_t c = join(id, RANKS, rank);
    cudaStream_t s = new_stream();
    float *x = device_floats(EACH * RANKS, (float)rank + 1), *y = device_floats(EACH * RANKS, 0);
    float sum = 6;
    FINE(c, ncclAllReduce_(x, y, EACH * RANKS, ncclFloat32, ncclSum, c, s));
    OK(cudaStreamSynchronize(s));
    MUST(all_are(y, EACH * RANKS, sum));
    FINE(c, ncclAllReduce_(x, y, EACH, ncclFloat32, ncclMax, c, s));
    OK(cudaStreamSynchronize(s));
    MUST(all_are(y, EACH, RANKS) && all_are(y + EACH, EACH, sum));
    FINE(c, ncclBroadcast_(x, x, EACH, ncclInt8, 2, c, s));
    FINE(c, ncclReduceScatter_(y, y + EACH * rank, EACH, ncclFloat32, ncclSum, c, s));
    OK(cudaStreamSynchronize(s));
    MUST(all_are(y + EACH * rank, EACH, (float)RANKS * (rank ? sum : (float)RANKS)));
    fill(y + EACH * rank, (float)rank, EACH, s);
    FINE(c, ncclAllGather_(y + EACH * rank, y, EACH, ncclFloat32, c, s));
    OK(cudaStreamSynchronize(s));
    for (int r = 0; r < RANKS; r++) MUST(all_are(y + EACH * r, EACH, (float)r));
    FINE(c, ncclReduce_(y + EACH, y + EACH, EACH, ncclFloat32, ncclSum, 1, c, s));
    OK(cudaStreamSynchronize(s));
    MUST(all_are(y + EACH, EACH, rank == 1 ? 3.0f : 1.0f));
    part(c);
}

static void all_kinds(int bug) { on_ranks(all_kinds_rank, bug); }

// Around the ring, twice; then the two that a split leaves together.
static void exchange_rank(int rank, ncclUniqueId id, int) {
    ncclComm_t c = join(id, RANKS, rank), two = nullptr;
    cudaStream_t s = new_stream();
    int right = (rank + 1) % RANKS, left = (rank + RANKS - 1) % RANKS;
    float *x = device_floats(N, (float)rank), *y = device_floats(N, -1);
    for (int turn = 0; turn < 2; turn++) {
        MUST(ncclGroupStart_() == ncclSuccess);
        MUST(ncclSend_(x, N, ncclFloat32, right, c, s) == ncclSuccess);
        MUST(ncclRecv_(y, N, ncclFloat32, left, c, s) == ncclSuccess);
        FINE(c, ncclGroupEnd_());
        OK(cudaMemcpyAsync(x, y, sizeof(float) * N, cudaMemcpyDeviceToDevice, s));
    }
    OK(cudaStreamSynchronize(s));
    MUST(all_are(x, N, (float)((rank + 1) % RANKS)));
    ncclConfig_t k = nccl_config_nonblocking();
    FINE(c, ncclCommSplit_(c, rank == 1 ? NCCL_SPLIT_NOCOLOR : 0, -rank, &two, &k));
    MUST((two == nullptr) == (rank == 1));
    if (two) {
        FINE(two, ncclInProgress);
        FINE(two, ncclBroadcast_(x, x, N, ncclFloat32, 0, two, s));  // rank 2 is the first of it
        OK(cudaStreamSynchronize(s));
        MUST(all_are(x, N, 0));
        part(two);
    }
    part(c);
}

static void exchange(int bug) { on_ranks(exchange_rank, bug); }

static int door[2];  // a pipe

// A rank that has something queued and waits elsewhere does not keep the others waiting, whatever the order.
static void host_away_rank(int rank, ncclUniqueId id, int) {
    ncclComm_t c = join(id, RANKS, rank);
    cudaStream_t s = new_stream();
    float *x = device_floats(N, 1);
    char go[RANKS] = "g";
    fill(x, 2, N, s);
    FINE(c, ncclAllReduce_(x, x, N, ncclFloat32, ncclSum, c, s));
    if (rank != 0) MUST(read(door[0], go, 1) == 1);
    OK(cudaStreamSynchronize(s));
    if (rank == 0) MUST(write(door[1], go, RANKS - 1) == RANKS - 1);
    MUST(all_are(x, N, 2 * RANKS));
    part(c);
}

static void host_away(int bug) {
    MUST(pipe(door) == 0);
    on_ranks(host_away_rank, bug);
}

// Three stages, a link for each pair of neighbours, each on a stream of its own. The middle one's stream for the first
// link hangs, because its peer sends only when the other link's messages have gone both ways.
static void side_by_side_rank(int rank, ncclUniqueId id, int) {
    ncclComm_t c = join(id, RANKS, rank), link[2] = {nullptr, nullptr};
    cudaStream_t s[2] = {new_stream(), new_stream()};
    float *x = device_floats(N, (float)rank), *y = device_floats(N, -1), *z = device_floats(N, -1);
    for (int pair = 0; pair < 2; pair++) {
        ncclConfig_t k = nccl_config_nonblocking();
        bool joins = rank == pair || rank == pair + 1;
        FINE(c, ncclCommSplit_(c, joins ? pair : NCCL_SPLIT_NOCOLOR, rank, &link[pair], &k));
        if (joins) FINE(link[pair], ncclInProgress);
    }
    char go = 0;
    if (rank == 0) MUST(read(door[0], &go, 1) == 1);
    if (rank == 0) FINE(link[0], ncclSend_(x, N, ncclFloat32, 1, link[0], s[0]));
    if (rank == 1) FINE(link[0], ncclRecv_(y, N, ncclFloat32, 0, link[0], s[0]));
    for (int turn = 0; turn < 5 && rank > 0; turn++) {
        MUST(ncclGroupStart_() == ncclSuccess);
        MUST(ncclSend_(x, N, ncclFloat32, rank == 1, link[1], s[1]) == ncclSuccess);
        MUST(ncclRecv_(z, N, ncclFloat32, rank == 1, link[1], s[1]) == ncclSuccess);
        FINE(link[1], ncclGroupEnd_());
        OK(cudaStreamSynchronize(s[1]));
        MUST(all_are(z, N, (float)(3 - rank)));
    }
    if (rank == 1) MUST(cudaStreamQuery(s[0]) == cudaErrorNotReady);
    if (rank == 1) MUST(write(door[1], "g", 1) == 1);
    OK(cudaStreamSynchronize(s[0]));
    if (rank == 1) MUST(all_are(y, N, 0));
    for (int pair = 0; pair < 2; pair++)
        if (link[pair]) part(link[pair]);
    part(c);
}

static void side_by_side(int bug) {
    MUST(pipe(door) == 0);
    on_ranks(side_by_side_rank, bug);
}

// The last rank goes before its second group: the others' streams hang, they learn of it, and an abort sets them free.
static void peer_lost_rank(int rank, ncclUniqueId id, int) {
    ncclComm_t c = join(id, RANKS, rank);
    cudaStream_t s = new_stream();
    float *x = device_floats(N, 1);
    FINE(c, ncclAllReduce_(x, x, N, ncclFloat32, ncclSum, c, s));
    OK(cudaStreamSynchronize(s));
    char here[RANKS] = "x";
    if (rank == RANKS - 1) MUST(read(door[0], here, 1) == 1 && read(door[0], here, 1) == 1);
    else MUST(write(door[1], here, 1) == 1);
    if (rank == RANKS - 1) _exit(0);
    ncclResult_t r = ncclAllReduce_(x, x, N, ncclFloat32, ncclSum, c, s);
    for (int i = 0; (r == ncclSuccess || r == ncclInProgress) && i < 20000; i++, usleep(200))
        ncclCommGetAsyncError_(c, &r);
    MUST(r == ncclRemoteError);
    MUST(cudaStreamQuery(s) == cudaErrorNotReady);
    MUST(ncclCommAbort_(c) == ncclSuccess);
    OK(cudaStreamSynchronize(s));
}

static void peer_lost(int bug) {
    MUST(pipe(door) == 0);
    on_ranks(peer_lost_rank, bug);
}

// --- mistakes --------------------------------------------------------------------------------------------------------

enum { BEFORE = 1, AFTER, COUNT, HOST };

// Gradients in two buckets, each reduced on a stream of its own while the next is computed; then a step, and the next
// round.
static void buckets_rank(int rank, ncclUniqueId id, int bug) {
    ncclComm_t c = join(id, RANKS, rank);
    float *x = device_floats(N, (float)rank + 1), *g0 = device_floats(N, 0), *g1 = device_floats(N, 0),
          *w = device_floats(N, 0);
    cudaStream_t compute = new_stream(), talk = new_stream();
    cudaEvent_t e0 = new_event(), e1 = new_event(), done = new_event();
    for (int step = 0; step < 3; step++) {
        axpy(g0, x, 1, N, compute);
        OK(cudaEventRecord(e0, compute));
        if (bug != BEFORE) OK(cudaStreamWaitEvent(talk, e0, 0));
        FINE(c, ncclAllReduce_(g0, g0, N, ncclFloat32, ncclSum, c, talk));
        axpy(g1, x, 2, N, compute);
        OK(cudaEventRecord(e1, compute));
        OK(cudaStreamWaitEvent(talk, e1, 0));
        FINE(c, ncclAllReduce_(g1, g1, N, ncclFloat32, ncclSum, c, talk));
        OK(cudaEventRecord(done, talk));
        if (bug != AFTER) OK(cudaStreamWaitEvent(compute, done, 0));
        axpy(w, g0, 1, N, compute);
        axpy(w, g1, 1, N, compute);
        OK(cudaMemsetAsync(g0, 0, sizeof(float) * N, compute));
        OK(cudaMemsetAsync(g1, 0, sizeof(float) * N, compute));
    }
    OK(cudaStreamSynchronize(compute));
    OK(cudaDeviceSynchronize());
    MUST(all_are(w, N, 3 * 3 * 6));
    part(c);
}

static void event_before(int bug) { on_ranks(buckets_rank, bug ? BEFORE : 0); }
static void event_after(int bug) { on_ranks(buckets_rank, bug ? AFTER : 0); }

static void other_count_rank(int rank, ncclUniqueId id, int bug) {
    ncclComm_t c = join(id, RANKS, rank);
    cudaStream_t s = new_stream();
    float *x = device_floats(N, 1);
    ncclResult_t r = ncclAllReduce_(x, x, bug && rank == 1 ? N / 2 : N, ncclFloat32, ncclSum, c, s);
    for (int i = 0; bug && (r == ncclSuccess || r == ncclInProgress) && i < 20000; i++, usleep(200)) {
        (void)cudaStreamQuery(s);
        ncclCommGetAsyncError_(c, &r);
    }
    if (!bug) {
        FINE(c, r);
        OK(cudaStreamSynchronize(s));
        part(c);
        return;
    }
    MUST(r == ncclInvalidUsage || r == ncclRemoteError);
    ncclCommAbort_(c);
    OK(cudaStreamSynchronize(s));
}

static void other_count(int bug) { on_ranks(other_count_rank, bug); }

static void host_memory_rank(int rank, ncclUniqueId id, int bug) {
    ncclComm_t c = join(id, RANKS, rank);
    cudaStream_t s = new_stream();
    float *x = bug ? pinned_floats(N) : device_floats(N, 0);
    ncclResult_t r = ncclAllReduce_(x, x, N, ncclFloat32, ncclSum, c, s);
    MUST(bug ? r == ncclInvalidArgument : settle(c, r) == ncclSuccess);
    OK(cudaStreamSynchronize(s));
    part(c);
}

static void host_memory(int bug) { on_ranks(host_memory_rank, bug); }

static void too_early_rank(int rank, ncclUniqueId id, int bug) {
    ncclComm_t c = join(id, RANKS, rank);
    cudaStream_t s = new_stream();
    float *x = device_floats(N, 1);
    ncclResult_t r = ncclAllReduce_(x, x, N, ncclFloat32, ncclSum, c, s);
    if (bug) MUST(ncclAllReduce_(x, x, N, ncclFloat32, ncclSum, c, s) == ncclInvalidArgument);
    FINE(c, r);
    OK(cudaStreamSynchronize(s));
    part(c);
}

static void manners(int) {
    on_ranks(too_early_rank, 0);
    on_ranks(too_early_rank, 1);
}

// --- the lists -------------------------------------------------------------------------------------------------------

static const Good goods[] = {
    {"nccl: every collective", all_kinds}, {"nccl: exchange and split", exchange},
    {"nccl: the host is away", host_away}, {"nccl: a peer is lost", peer_lost},
    {"nccl: a call too early", manners},   {"nccl: links side by side", side_by_side},
};
static const Bad bads[] = {
    {"nccl: no event before it", event_before, RACE, "race"},
    {"nccl: no event after it", event_after, RACE, "race"},
    {"nccl: another count on one rank", other_count, ALWAYS, "nccl"},
    {"nccl: host memory", host_memory, ALWAYS, "nccl"},
};

void test_nccl(const char *only) {
    for (const Good &g : goods)
        if (strstr(g.name, only)) try_good(g.name, g.fn);
    for (const Bad &b : bads) {
        if (!strstr(b.name, only)) continue;
        try_good(b.name, b.fn);
        try_bad(&b);
    }
}
