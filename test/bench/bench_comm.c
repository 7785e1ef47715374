// test/bench/bench_comm.c: collectives by size, FP32, of the tcp transport or of the one that test/support/carrier.h
// says, beside which test/bench/gloo.py puts the same of PyTorch's gloo.
//
//     bench_comm RANKS           ranks of one host: shared memory
//     bench_comm RANKS links     as many nodes of one rank: connections over the loopback device, every frame verified
//     bench_comm ... quick       the smallest sizes, a few times: for tests
//
// "bytes" is the size of the buffer that a rank hands in: the vector of all_reduce and reduce_scatter, all rows of
// all_to_all. A call's time is that of its slowest rank, from a barrier on; a row gives the median, and bytes divided
// by it. "message" is one way over a link between two neighbours, on a channel of its own, as between the stages of a
// pipeline: half of there and back.
#include "comm/transport.h"
#include "test/support/carrier.h"
#include "test/support/team_stub.h"

#include <sys/wait.h>
#include <time.h>

enum { RANKS_MAX = 64, TURNS_MAX = 2000, SIZES = 7, OPS = 4, MESSAGE = 3 };

static const size_t sizes[SIZES] = {1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20, 64 << 20, 256 << 20};
static const char *const ops[OPS] = {"all_reduce", "reduce_scatter", "all_to_all", "message"};

typedef struct times {
    double s[RANKS_MAX][TURNS_MAX];
} times;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// What is measured: so many of the sizes, each so often at most.
typedef struct extent {
    int sizes, turns;
} extent;

static int turns_for(extent all, size_t bytes) {
    if (all.turns < TURNS_MAX) return all.turns;
    return bytes >= 64 << 20 ? 7 : bytes >= 4 << 20 ? 41 : bytes >= 64 << 10 ? 301 : TURNS_MAX;
}

static err_t there_and_back(comm *link, char *in, char *out, size_t bytes) {
    if (link->world == 1) return ERR_OK;
    if (link->rank == 0) TRY(comm_send(link, 1, in, bytes, NULL));
    TRY(comm_recv(link, !link->rank, out, bytes, NULL));
    return link->rank == 1 ? comm_send(link, 0, in, bytes, NULL) : ERR_OK;
}

static err_t call(comm *c, comm *link, int op, char *in, char *out, size_t bytes) {
    size_t cut[RANKS_MAX + 1], n = bytes / 4;
    if (op == MESSAGE) return there_and_back(link, in, out, bytes);
    for (size_t r = 0; r <= (size_t)c->world; r++) cut[r] = n * r / (size_t)c->world;
    if (op == 0) return c->table->all_reduce(c, in, n, FP32, REDUCE_SUM, NULL);
    if (op == 1) return c->table->reduce_scatter(c, in, cut, FP32, NULL);
    return c->table->all_to_all(c, out, in, bytes / (size_t)c->world, NULL);
}

static err_t measure(comm *c, extent all, times *t) {
    size_t most = sizes[all.sizes - 1];
    char *in = malloc(most), *out = malloc(most);
    comm *link;
    TRY(c->table->split(c, c->rank / 2, 0, 1, &link));
    if (!in || !out) return err_set(ERR_INTERNAL, "no memory for two buffers of %zu bytes", most);
    // pages of their own, before anything is timed
    for (size_t i = 0; i < most / 4; i++) ((float *)in)[i] = ((float *)out)[i] = 1.0f;
    for (int op = 0; op < OPS; op++)
        for (int i = 0; i < all.sizes; i++) {
            int turns = turns_for(all, sizes[i]);
            memset(in, 0, sizes[i]);  // or sums would grow without end
            for (int k = -2; k < turns; k++) {
                TRY(c->table->barrier(c, NULL));
                double start = now();
                TRY(call(c, link, op, in, out, sizes[i]));
                if (k >= 0) t[op * SIZES + i].s[c->rank][k] = (now() - start) / (op == MESSAGE ? 2 : 1);
            }
        }
    free(in), free(out);
    link->table->close(link);
    return ERR_OK;
}

static int by_value(const void *a, const void *b) {
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static void print_row(const char *op, extent all, size_t bytes, const times *t, int ranks) {
    double s[TURNS_MAX];
    int turns = turns_for(all, bytes);
    for (int k = 0; k < turns; k++) {
        s[k] = 0;
        for (int r = 0; r < ranks; r++) s[k] = t->s[r][k] > s[k] ? t->s[r][k] : s[k];
    }
    qsort(s, (size_t)turns, sizeof *s, by_value);
    printf("%-16s %10zu KB %12.1f us %9.3f GB/s\n", op, bytes >> 10, 1e6 * s[turns / 2],
           (double)bytes / s[turns / 2] * 1e-9);
}

static int be_rank(team *t, launch *node, int rank, extent of, times *all) {
    comm *c;
    stub_become(t, node, rank);
    char by[256];
    err_t rc = carrier_open(&c, t, &(transport_options){.timeout_s = 60});
    if (rc == ERR_OK && rank == 0) {
        c->table->describe(c, by, sizeof by);
        printf("lockstep, %d ranks, %s\n", c->world, by);
        fflush(stdout);
    }
    if (rc == ERR_OK) rc = measure(c, of, all);
    if (rc != ERR_OK) fprintf(stderr, "%s\n", err_last()->text);
    return rc;
}

int main(int argc, char **argv) {
    int ranks = argc > 1 ? atoi(argv[1]) : 2, each[RANKS_MAX], bad = 0;
    bool links = argc > 2 && strcmp(argv[2], "links") == 0, quick = argc > 2 && strcmp(argv[argc - 1], "quick") == 0;
    extent of = quick ? (extent){2, 5} : (extent){SIZES, TURNS_MAX};
    if (ranks < 2 || ranks > RANKS_MAX)
        return fprintf(stderr, "bench_comm RANKS [links] [quick]: 2 to %d ranks\n", RANKS_MAX), 64;
    static team t;
    static launch node[RANKS_MAX];
    for (int i = 0; i < RANKS_MAX; i++) each[i] = links ? 1 : ranks;
    times *all = mmap(NULL, SIZES * OPS * sizeof *all, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    stub_open_channels(&t, node, links ? ranks : 1, each, &(channel_plan){.channels = 1, .seats = 1});
    for (int r = 0; r < ranks; r++)
        if (fork() == 0) _exit(be_rank(&t, node, r, of, all));
    stub_let_go(&t);
    for (int r = 0, status; r < ranks; r++) {
        wait(&status);
        if (status == 0) continue;
        bad++;
        team_fail(&t, "a rank is lost");
    }
    if (bad) return 70;
    for (int op = 0; op < OPS; op++)
        for (int i = 0; i < of.sizes; i++) print_row(ops[op], of, sizes[i], &all[op * SIZES + i], ranks);
    return 0;
}
