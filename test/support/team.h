// test/support/team.h: what the tests of teams share: scenes in which every rank is a process of its own and "nodes"
// are the addresses 127.0.0.1, 127.0.0.2, ... of this machine. What a rank found out it leaves in a page that the test
// reads afterwards.
#ifndef TEST_SUPPORT_TEAM_H
#define TEST_SUPPORT_TEAM_H

#include "comm/team/control.h"
#include "test/support/port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 64, NODES = 8 };

// What one rank leaves behind.
typedef struct result {
    pid_t pid;
    int started, joined, after, left;  // codes of team_join and team_query; left: it returned from team_leave
    char text[ERR_TEXT], later[ERR_TEXT];
    double join_s, noticed_s, leave_s;  // durations; noticed_s: from board->moment
    double silent_s;                    // for how long the lost one had been silent, as this rank knows
    double alive_at;                    // as of team_failed_at
    int links;                          // that carried bytes both ways
    team_link link[RANKS];
    long grown_kb;
} result;

typedef struct board {
    atomic_int joined;      // ranks that are a team
    _Atomic double moment;  // when the thing happened that ranks are to notice
    atomic_int go;
    result rank[RANKS + 4];
} board;

typedef struct scene scene;
struct scene {
    int nodes, ranks[NODES], port;
    channel_plan plan;
    team_options o;
    void (*tweak)(scene *s, launch *l, team_options *o);  // in the rank's process, before it joins
    void (*body)(scene *s, team *t, result *r);           // in the rank's process, as part of the team
    int number;                                           // for the two
    const char *text;
    board *b;
    pid_t child[RANKS + 8];
    int children;
};

// --- plain sockets --------------------------------------------------------------------------------------------------

// Connects, retrying until somebody listens there.
static inline int dial(int node, int port) {
    struct sockaddr_in a = address(node, port);
    for (double end = now_s() + 10; now_s() < end; nap(0.01)) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct timeval limit = {5, 0};
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0) return fd;
        close(fd);
    }
    return -1;
}

static inline bool read_all(int fd, void *dst, size_t n) {
    for (size_t got = 0; got < n;) {
        ssize_t k = recv(fd, (char *)dst + got, n - got, 0);
        if (k <= 0) return false;
        got += (size_t)k;
    }
    return true;
}

static inline bool write_all(int fd, const void *src, size_t n) { return send(fd, src, n, MSG_NOSIGNAL) == (ssize_t)n; }

// Does the other side end the connection, without having sent a byte, within the socket's time limit?
static inline bool hangs_up(int fd) {
    char byte;
    ssize_t n = recv(fd, &byte, 1, 0);
    return n == 0 || (n < 0 && errno == ECONNRESET);
}

// --- running ranks ---------------------------------------------------------------------------------------------------

static const char *const hosts[NODES] = {"127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4",
                                         "127.0.0.5", "127.0.0.6", "127.0.0.7", "127.0.0.8"};

static inline scene *scene_open(int nodes, const int *ranks) {
    scene *s = calloc(1, sizeof *s);
    s->nodes = nodes;
    memcpy(s->ranks, ranks, (size_t)nodes * sizeof *ranks);
    s->port = nodes > 1 ? free_port() : 0;
    s->o = (team_options){.port = s->port,
                          .has_secret = nodes > 1,
                          .timeout_s = 10,
                          .heartbeat_s = 0.05,
                          .epoch = 1,
                          .job = "tiny",
                          .build = "1a2b",
                          .config_hash = "c0ffee",
                          .data_hash = "d00d"};
    memset(s->o.secret, 7, sizeof s->o.secret);
    s->b = mmap(NULL, sizeof *s->b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(s->b != MAP_FAILED);
    for (int r = 0; r < RANKS + 4; r++) s->b->rank[r].started = s->b->rank[r].joined = s->b->rank[r].after = -1;
    return s;
}

static inline void scene_close(scene *s) {
    munmap(s->b, sizeof *s->b);
    free(s);
}

static inline void keep_text(char dst[ERR_TEXT], err_t code) {
    snprintf(dst, ERR_TEXT, "%s", code == ERR_OK ? "" : err_last()->text);
}

static inline void live(scene *s, launch *l, result *r) {
    team *t;
    team_options o = s->o;
    o.at = l;
    r->started = 1;
    r->pid = getpid();
    double start = now_s();
    if (s->tweak) s->tweak(s, l, &o);
    r->joined = (int)team_join(&t, &o);
    keep_text(r->text, (err_t)r->joined);
    r->join_s = now_s() - start;
    if (r->joined != ERR_OK) return;
    atomic_fetch_add(&s->b->joined, 1);
    if (s->body) s->body(s, t, r);
    r->after = (int)team_query(t);
    keep_text(r->later, (err_t)r->after);
    start = now_s();
    team_leave(t);
    r->leave_s = now_s() - start;
    r->left = 1;
}

// Forks the ranks of one node. `slot`: where their results go; -1: by rank.
static inline void start_node(scene *s, int node, int slot) {
    launch l;
    assert_int_equal(launch_open(&l, s->nodes, s->ranks, hosts, node), ERR_OK);
    assert_int_equal(launch_channels(&l, &s->plan), ERR_OK);
    fflush(NULL);
    for (int i = 0; i < s->ranks[node]; i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            alarm(40);
            launch_become(&l, i);
            live(s, &l, &s->b->rank[slot < 0 ? l.rank : slot + i]);
            launch_close(&l);
            _exit(0);
        }
        s->child[s->children++] = pid;
    }
    launch_close(&l);
}

// Waits for all ranks. How many ended other than by returning.
static inline int reap(scene *s) {
    int bad = 0;
    for (int i = 0, status; i < s->children; i++) {
        assert_int_equal(waitpid(s->child[i], &status, 0), s->child[i]);
        bad += status != 0;
    }
    s->children = 0;
    return bad;
}

static inline void run_all(scene *s) {
    for (int n = 0; n < s->nodes; n++) start_node(s, n, -1);
    assert_int_equal(reap(s), 0);
}

static inline void await_count(atomic_int *count, int n) {
    for (double end = now_s() + 20; atomic_load(count) < n && now_s() < end;) nap(0.002);
    assert_int_equal(atomic_load(count), n);
}

static inline int world_of(const scene *s) {
    int n = 0;
    for (int i = 0; i < s->nodes; i++) n += s->ranks[i];
    return n;
}

// --- playing one side by hand ----------------------------------------------------------------------------------------

static const uint8_t secret[TEAM_KEY] = {7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
                                         7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7};

static inline hello hello_of(const scene *s, int node, int rank, uint8_t nonce) {
    hello h = {.version = HELLO_VERSION,
               .role = ROLE_CONTROL,
               .node = (uint32_t)node,
               .rank = (uint32_t)rank,
               .world = s ? (uint32_t)world_of(s) : 3,
               .epoch = 1,
               .job = "tiny",
               .build = "1a2b",
               .config_hash = "c0ffee",
               .data_hash = "d00d"};
    memset(h.nonce, nonce, sizeof h.nonce);
    return h;
}

// Plays the calling side against a real rank 0 and writes down what it sent.
static inline bool call_rank_0(int fd, handshake *h, const hello *mine, uint8_t sent[HELLO_BYTES + PROOF_BYTES]) {
    uint8_t bytes[HELLO_BYTES + PROOF_BYTES];
    size_t n = 0;
    handshake_call(h, mine, secret);
    while (h->state == HANDSHAKE_GOING) {
        memcpy(sent + n, h->out + h->sent, h->queued - h->sent);
        n += h->queued - h->sent;
        if (!write_all(fd, h->out + h->sent, h->queued - h->sent)) return false;
        h->sent = h->queued;
        size_t room = handshake_room(h);
        if (!read_all(fd, bytes, room)) return false;
        handshake_feed(h, bytes, room);
    }
    return h->state == HANDSHAKE_KNOWN;
}

static inline bool next_frame(int fd, const handshake *h, uint64_t counter, frame *f) {
    uint8_t bytes[FRAME_BYTES];
    return read_all(fd, bytes, sizeof bytes) && frame_open(f, bytes, h->keys.recv, counter);
}

#define assert_text(text, part) \
    do { \
        if (!strstr((text), (part))) fail_msg("\"%s\" does not say \"%s\"", (text), (part)); \
    } while (0)

static inline void all_well(const scene *s) {
    for (int r = 0; r < world_of(s); r++) {
        const result *x = &s->b->rank[r];
        if (x->joined != ERR_OK || x->after != ERR_OK) print_message("rank %d: %s%s\n", r, x->text, x->later);
        assert_int_equal(x->joined, ERR_OK);
        assert_int_equal(x->after, ERR_OK);
        assert_true(x->left);
    }
}

static inline void wait_for_all(scene *s, team *t, result *r) {
    (void)t, (void)r;
    for (double end = now_s() + 20; atomic_load(&s->b->joined) < world_of(s) && now_s() < end;) nap(0.001);
}

#endif
