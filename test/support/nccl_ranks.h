// test/support/nccl_ranks.h: forked ranks over the nccl transport, each of which opens the stand-in in NCCL's place.
#ifndef TEST_SUPPORT_NCCL_RANKS_H
#define TEST_SUPPORT_NCCL_RANKS_H

#include "comm/nccl/api.h"
#include "test/support/standin.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 4, ELEMENTS = 3072 };

typedef struct job {
    launch at;
    team *t;
    device *d;
    stream *s;
    comm *over, *c;  // over is c's once c is open
    transport_options o;
    char library[512];
    atomic_int *arrived;  // shared by the ranks of a run
} job;

// What the ranks do, and what goes wrong in each of them.
typedef struct plan {
    int world;
    void (*body)(job *j);
    const char *standin[RANKS];  // LOCKSTEP_STANDIN
    double timeout_s;            // 0: 20
    int killed;                  // so many of the last ranks end by a signal
} plan;

// A failed check in a forked process ends it: cmocka's own checks would go on with the parent's remaining tests there.
#define CHECK(x, ...) \
    do { \
        if (!(x)) { \
            fprintf(stderr, "rank %d, line %d: %s: ", j->at.rank, __LINE__, #x); \
            fprintf(stderr, __VA_ARGS__); \
            fputc('\n', stderr); \
            exit(1); \
        } \
    } while (0)

#define RUN(call) CHECK((call) == ERR_OK, "%s", err_last()->text)

#define FAILS(call, expected, ...) \
    do { \
        const char *const says_[] = {__VA_ARGS__}; \
        err_t rc_ = (call); \
        CHECK(rc_ == (expected), "%s gave %d, expected %d: %s", #call, rc_, expected, rc_ ? err_last()->text : ""); \
        for (size_t i_ = 0; i_ < sizeof says_ / sizeof *says_; i_++) \
            CHECK(strstr(err_last()->text, says_[i_]), "\"%s\" says nothing of %s", err_last()->text, says_[i_]); \
    } while (0)

static inline double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void sleep_ms(int ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL); }

static inline void be_rank(job *j, const plan *p, int rank) {
    alarm(60);
    launch_become(&j->at, rank);
    if (p->standin[rank]) setenv("LOCKSTEP_STANDIN", p->standin[rank], 1);
    double timeout = p->timeout_s > 0 ? p->timeout_s : 20;
    RUN(device_open(&j->d, &(device_options){.kind = DEVICE_CPU, .threads = 1}));
    RUN(stream_open(j->d, &j->s));
    RUN(team_join(&j->t, &(team_options){.at = &j->at,
                                         .timeout_s = 20,
                                         .heartbeat_s = 0.2,
                                         .job = "test",
                                         .build = "b",
                                         .config_hash = "c",
                                         .data_hash = "d"}));
    find_library(j->library);
    j->o = (transport_options){
        .kind = TRANSPORT_NCCL, .dev = j->d, .timeout_s = timeout, .nccl_path = j->library, .infiniband = -1};
    RUN(comm_tcp_open(&j->over, j->t, &j->o));
    p->body(j);
    comm *last = j->c ? j->c : j->over;
    last->table->close(last);
    team_leave(j->t);
    stream_close(j->s);
    device_close(j->d);
    launch_close(&j->at);
    exit(0);
}

static inline void run(const plan *p) {
    launch at;
    pid_t pid[RANKS];
    atomic_int *arrived = mmap(NULL, sizeof *arrived, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(arrived != MAP_FAILED);
    if (launch_open(&at, 1, &p->world, NULL, 0) != ERR_OK) fail_msg("%s", err_last()->text);
    fflush(NULL);
    for (int r = 0; r < p->world; r++) {
        pid[r] = fork();
        assert_true(pid[r] >= 0);
        if (pid[r] == 0) be_rank(&(job){.at = at, .arrived = arrived}, p, r);
    }
    launch_close(&at);
    munmap(arrived, sizeof *arrived);
    int bad = 0;
    for (int r = 0; r < p->world; r++) {
        int status;
        assert_int_equal(waitpid(pid[r], &status, 0), pid[r]);
        bool dies = r >= p->world - p->killed, well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (dies ? !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) : !well) {
            fprintf(stderr, "rank %d ended with status 0x%x\n", r, status);
            bad++;
        }
    }
    if (bad) fail_msg("%d of %d ranks failed", bad, p->world);
}

static inline void open_nccl(job *j) {
    RUN(comm_nccl_open(&j->c, j->t, j->over, &j->o, j->s));
    CHECK(j->c->rank == j->at.rank && j->c->world == j->at.world && j->c->host == j->over, "rank %d of %d", j->c->rank,
          j->c->world);
}

// A function of the stand-in that NCCL does not have.
static inline void *standin(job *j, const char *name) {
    void *handle = dlopen(j->library, RTLD_NOW | RTLD_NOLOAD), *symbol = handle ? dlsym(handle, name) : NULL;
    CHECK(symbol, "%s is not loaded", name);
    dlclose(handle);  // nccl_library_open's reference stays
    return symbol;
}

static inline int counted(job *j, const char *what) {
    int (*count)(const char *);
    void *symbol = standin(j, "ncclStandInCount");
    memcpy(&count, &symbol, sizeof symbol);
    return count(what);
}

static inline const char *seen(job *j, const char *name) {
    const char *(*look)(const char *);
    void *symbol = standin(j, "ncclStandInSeen");
    memcpy(&look, &symbol, sizeof symbol);
    return look(name);
}

static inline void sum_in(job *j, comm *c, float mine, float expected) {
    float x = mine;
    RUN(c->table->all_reduce(c, &x, 1, FP32, REDUCE_SUM, j->s));
    CHECK(x == expected, "%g, expected %g", (double)x, (double)expected);
}

#endif
