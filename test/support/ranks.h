// test/support/ranks.h: runs of several ranks within a test: each rank is a process of its own, with the real launch,
// team and transport between them; "nodes" are the addresses 127.0.0.1, 127.0.0.2, ... What a rank found it leaves in
// memory that is shared.
#ifndef TEST_SUPPORT_RANKS_H
#define TEST_SUPPORT_RANKS_H

#include "test/support/run.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

enum { RANK_NODES = 4, RANK_LIMIT = 60 };  // seconds that a rank may take, at most

typedef struct rank_world {
    int nodes, ranks[RANK_NODES], rack[RANK_NODES];
} rank_world;

// Of one node, of two, and of two racks of two each. For tables.
#define RACKS(a, b, c, d) \
    { \
        .nodes = 4, .ranks = {a, b, c, d}, .rack = { 0, 0, 1, 1 } \
    }
#define ONE(n) \
    { \
        .nodes = 1, .ranks = { n } \
    }
#define TWO(a, b) \
    { \
        .nodes = 2, .ranks = { a, b } \
    }

typedef err_t (*rank_work)(const config *c, const launch *at, void *ctx);

static inline int rank_count(const rank_world *w) {
    int n = 0;
    for (int i = 0; i < w->nodes; i++) n += w->ranks[i];
    return n;
}

static inline void *share_memory(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

// Text for training and evaluation, and the secret of a cluster.
static inline char *rank_dir(void) {
    char *dir = data_dir(), path[1024], bytes[64];
    memset(bytes, 'x', sizeof bytes);
    snprintf(path, sizeof path, "%s/secret", dir);
    OK(io_write_file(path, bytes, sizeof bytes, NULL));
    assert_int_equal(chmod(path, 0600), 0);
    return dir;
}

static inline bool port_is_free(int node, int port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    a.sin_addr.s_addr = htonl(0x7f000001u + (uint32_t)node);
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    bool free = bind(fd, (struct sockaddr *)&a, sizeof a) == 0;
    close(fd);
    return free;
}

// A free port on every node's address. The ports after it, for the nodes' data, are free too.
static inline int rank_port(void) {
    struct timespec t;
    for (;;) {
        clock_gettime(CLOCK_MONOTONIC, &t);
        int port = 20000 + (int)((t.tv_nsec / 1000 + getpid() * 37L) % 6900), taken = 0;
        for (int node = 0; node < RANK_NODES; node++)
            for (int k = 0; k < 8; k++) taken += !port_is_free(node, port + k);
        if (!taken) return port;
    }
}

// The settings `text`, then `more`, and what a cluster needs.
static inline void rank_config(config *c, const char *dir, const char *text, const char *more) {
    char all[2048];
    snprintf(all, sizeof all, "%s\n[cluster]\nport = %d\nsecret_file = %s/secret\n", more, rank_port(), dir);
    load_config(c, dir, text, all);
}

// Runs body in every rank. What a rank returns is its exit status; a failure is a failure of the test, with the rank's
// own words.
static inline void run_ranks(const char *what, const rank_world *w, const config *c, rank_work body, void *ctx) {
    static const char *const hosts[RANK_NODES] = {"127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"};
    int n = rank_count(w), status;
    char(*text)[ERR_TEXT] = share_memory((size_t)n * sizeof *text);
    fflush(NULL);
    for (int node = 0; node < w->nodes; node++) {
        launch l;
        OK(launch_open(&l, w->nodes, w->ranks, hosts, node));
        launch_racks(&l, w->rack);
        grid shape = config_grid(c, n);
        channel_plan plan = grid_channels(&shape);
        if (plan.channels) OK(launch_channels(&l, &plan));
        for (int i = 0; i < w->ranks[node]; i++) {
            if (fork() != 0) continue;
            alarm(RANK_LIMIT);
            launch_become(&l, i);
            err_t rc = body(c, &l, ctx);
            if (rc != ERR_OK) snprintf(text[l.rank], sizeof *text, "%s", err_last()->text);
            launch_close(&l);
            _exit(rc);
        }
        launch_close(&l);
    }
    int bad = 0;
    for (int i = 0; i < n; i++) {
        assert_true(wait(&status) > 0);
        bad = status ? status : bad;
    }
    for (int k = 0; k < n; k++)
        if (text[k][0]) fail_msg("%s: rank %d of %d: %s", what, k, n, text[k]);
    if (bad) fail_msg("%s: a rank ended with status %#x and said nothing", what, bad);
    munmap(text, (size_t)n * sizeof *text);
}

#endif
