// test/support/team_stub.h: a team without a rendezvous, for tests of what stands on one. The parent makes everything
// before it forks: memory that all share, bells, and the links between nodes. It also stands in for the watcher: the
// process that waits for the children tells the team of a lost one. A program that includes this has its own team_*
// functions; the library's are left out of it.
#ifndef TEST_SUPPORT_TEAM_STUB_H
#define TEST_SUPPORT_TEAM_STUB_H

#include "comm/team/team.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct stub_news {
    atomic_int state;  // 0 well, 1 being written, 2 failed
    char why[ERR_TEXT];
    atomic_long progress;
} stub_news;

enum { STUB_CHANNELS = 4 };

struct team {
    launch at;
    stub_news *news;  // shared by all ranks
    int bell[64];     // one for each rank
    team_link link[1 + STUB_CHANNELS][64];
    int nodes, ranks[64], pair[64][64];  // pair[a][b]: a's end of the link between a and b
    int more[STUB_CHANNELS][64][64];     // of further channels
};

const launch *team_at(const team *t) { return &t->at; }
err_t team_take_link(team *t, int channel, int rank, team_link *out) {
    *out = t->link[channel][rank];
    if (out->taken) return err_set(ERR_INTERNAL, "the connection to rank %d is taken already", rank);
    t->link[channel][rank].taken = out->fd >= 0;
    return ERR_OK;
}
void team_alive(team *t) { (void)t; }
uint32_t team_pulse(const team *t) {
    (void)t;
    return 0;
}
int team_fd(const team *t) { return t->bell[t->at.rank]; }
int64_t team_wire(const team *t) { return (void)t, 0; }
void team_progress(team *t, const char *what, int64_t step, int64_t number) {
    (void)what, (void)step, (void)number, t->news->progress++;
}

err_t team_query(team *t) {
    return atomic_load(&t->news->state) == 2 ? err_set(ERR_UNAVAILABLE, "%s", t->news->why) : ERR_OK;
}

err_t team_fail(team *t, const char *why) {
    int well = 0;
    if (atomic_compare_exchange_strong(&t->news->state, &well, 1)) {
        snprintf(t->news->why, sizeof t->news->why, "%s", why);
        atomic_store(&t->news->state, 2);
        uint64_t one = 1;
        for (int r = 0; r < t->at.world; r++)
            if (write(t->bell[r], &one, sizeof one) < 0) {}
    }
    while (atomic_load(&t->news->state) != 2) {}
    return ERR_UNAVAILABLE;
}

err_t team_fail_in(team *t, const char *why, const comm_phase *phase) {
    (void)phase;
    return team_fail(t, why);
}

// A connection over the loopback device between 127.0.0.x and 127.0.0.y.
static inline void stub_connect(int pair[2], int x, int y) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001 + (uint32_t)x)};
    struct sockaddr_in b = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001 + (uint32_t)y)};
    socklen_t n = sizeof a;
    int door = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    pair[1] = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(door, (void *)&a, sizeof a) || listen(door, 1) || getsockname(door, (void *)&a, &n) ||
        bind(pair[1], (void *)&b, sizeof b) || connect(pair[1], (void *)&a, sizeof a) ||
        (pair[0] = accept(door, NULL, NULL)) < 0)
        perror("a link over the loopback device"), exit(1);
    close(door);
    for (int i = 0; i < 2; i++) {
        setsockopt(pair[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        fcntl(pair[i], F_SETFL, fcntl(pair[i], F_GETFL) | O_NONBLOCK);
    }
}

static inline void stub_pair(int pair[64][64], const launch *at, int a, int b) {
    int ends[2];
    stub_connect(ends, at->place[a].node, at->place[b].node);
    pair[a][b] = ends[0], pair[b][a] = ends[1];
}

// Before the fork. The launch of the node is opened by stub_become.
static inline void stub_open_channels(team *t, launch *node, int nodes, const int *ranks, const channel_plan *plan) {
    memset(t, 0, sizeof *t);
    t->nodes = nodes;
    memcpy(t->ranks, ranks, (size_t)nodes * sizeof *ranks);
    t->news = mmap(NULL, sizeof *t->news, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char hosts[64][16];
    const char *host[64];
    for (int n = 0; n < nodes; n++) snprintf(hosts[n], 16, "127.0.0.%d", n + 1), host[n] = hosts[n];
    for (int n = 0; n < nodes; n++)
        if (launch_open(&node[n], nodes, ranks, nodes > 1 ? host : NULL, n) != ERR_OK ||
            launch_channels(&node[n], plan) != ERR_OK)
            fprintf(stderr, "%s\n", err_last()->text), exit(1);
    t->at = node[0];
    for (int a = 0; a < t->at.world; a++) {
        t->bell[a] = eventfd(0, EFD_NONBLOCK);
        for (int b = 0; b < a; b++)
            if (t->at.place[a].node != t->at.place[b].node) {
                stub_pair(t->pair, &t->at, a, b);
                for (int k = 1; k <= plan->channels; k++)
                    if (launch_connects(&t->at, k, a, b)) stub_pair(t->more[k - 1], &t->at, a, b);
            }
    }
}

static inline void stub_open(team *t, launch *node, int nodes, const int *ranks) {
    stub_open_channels(t, node, nodes, ranks, &(channel_plan){0});
}

// In the child: this is rank `rank`.
static inline void stub_become(team *t, launch *node, int rank) {
    comm_place p = node[0].place[rank];
    int world = node[0].world;
    launch_become(&node[p.node], p.local);
    t->at = node[p.node];
    for (int k = 0; k <= t->at.plan.channels; k++) {
        int(*pair)[64] = k ? t->more[k - 1] : t->pair;
        for (int a = 0; a < world; a++)
            for (int b = 0; b < world; b++)
                if (a != rank && pair[a][b]) close(pair[a][b]);
        for (int r = 0; r < world; r++) {
            team_link *l = &t->link[k][r];
            *l = (team_link){.fd = pair[rank][r] ? pair[rank][r] : -1};
            memset(l->send_key, 64 * rank + r + 1, TEAM_KEY), l->send_key[1] = (uint8_t)(rank + 1),
                                                              l->send_key[2] = (uint8_t)k;
            memset(l->recv_key, 64 * r + rank + 1, TEAM_KEY), l->recv_key[1] = (uint8_t)(r + 1),
                                                              l->recv_key[2] = (uint8_t)k;
        }
    }
}

// In the parent: its copies of the links are closed, so that a lost rank's end is closed when it is lost.
static inline void stub_let_go(team *t) {
    for (int k = 0; k <= t->at.plan.channels; k++) {
        int(*pair)[64] = k ? t->more[k - 1] : t->pair;
        for (int a = 0; a < t->at.world; a++)
            for (int b = 0; b < t->at.world; b++)
                if (pair[a][b]) close(pair[a][b]), pair[a][b] = 0;
    }
}

static inline void stub_close(team *t, launch *node) {
    stub_let_go(t);
    for (int r = 0; r < t->at.world; r++) close(t->bell[r]);
    for (int n = 0; n < t->nodes; n++) launch_close(&node[n]);
    munmap(t->news, sizeof *t->news);
}

#endif
