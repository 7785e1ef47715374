// test/support/crowd.c: strangers at the doors of a run. crowd CALLERS SECONDS PORT PORTS HOST...: so many callers
// call PORT .. PORT + PORTS - 1 of these hosts, and again as soon as they are sent away. A fifth of them say nothing; a
// fifth say a hello byte by byte; a fifth send bytes without a meaning; a fifth send a whole hello and a proof that is
// wrong; a fifth send back what they hear. The line "calling" says that it has begun. When its time is over, or with
// SIGTERM, it says how many were connected at once, at most, how often one was, how many of these were answered, and
// how many connections were ended.
#include "comm/team/handshake.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef enum { SILENT, SLOW, SENSELESS, UNPROVEN, ECHOING, KINDS } caller_kind;

typedef struct stranger {
    int fd;
    bool connected, heard;
    double again;  // not called before
    size_t said;
    uint8_t hello[HELLO_BYTES];
} stranger;

typedef struct crowd {
    int callers, port, ports, hosts;
    char **host;
    uint64_t random;
    long came, went, answered, here, most;
    stranger *of;
    struct pollfd *poll;
} crowd;

static volatile sig_atomic_t over;
static void end(int signal) { (void)signal, over = 1; }

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// xorshift64 (Marsaglia 2003)
static void fill(crowd *c, uint8_t *dst, size_t n) {
    for (size_t i = 0; i < n; i++) {
        c->random ^= c->random << 13, c->random ^= c->random >> 7, c->random ^= c->random << 17;
        dst[i] = (uint8_t)c->random;
    }
}

// A port without a listener is called again later.
static void leave(crowd *c, int i) {
    stranger *x = &c->of[i];
    c->went += x->connected, c->here -= x->connected;
    if (!x->connected) x->again = now() + 0.25;
    close(x->fd);
    x->fd = -1;
}

// What is said to a node's council, to rank 0 of a node, or to one that has data connections, each by its number: else
// the door would not answer.
static void make_hello(crowd *c, int i, int host) {
    static const hello_role roles[] = {ROLE_COUNCIL, ROLE_DATA, ROLE_CONTROL};
    hello mine = {.version = HELLO_VERSION,
                  .role = roles[i / KINDS / c->ports / c->hosts % 3],
                  .node = (uint32_t)c->hosts,
                  .rank = (uint32_t)c->hosts,
                  .target = (uint32_t)host,
                  .world = (uint32_t)c->hosts + 1,
                  .job = "a job",
                  .build = "1a2b"};
    fill(c, mine.nonce, sizeof mine.nonce);
    hello_pack(c->of[i].hello, &mine, false);
}

static void call(crowd *c, int i) {
    int host = i / KINDS / c->ports % c->hosts;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)(c->port + i / KINDS % c->ports))};
    if (inet_pton(AF_INET, c->host[host], &to.sin_addr) != 1) abort();
    stranger *x = &c->of[i];
    *x = (stranger){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    make_hello(c, i, host);
    if (x->fd < 0 || connect(x->fd, (struct sockaddr *)&to, sizeof to) == 0 || errno == EINPROGRESS) return;
    leave(c, i);
}

static void begin(crowd *c, int i) {
    uint8_t bytes[4096];
    stranger *x = &c->of[i];
    x->connected = true, c->came++;
    if (++c->here > c->most) c->most = c->here;
    if (i % KINDS == SENSELESS) fill(c, bytes, sizeof bytes), send(x->fd, bytes, sizeof bytes, MSG_NOSIGNAL);
    if (i % KINDS == UNPROVEN) {
        memcpy(bytes, x->hello, HELLO_BYTES);
        fill(c, bytes + HELLO_BYTES, PROOF_BYTES);
        send(x->fd, bytes, HELLO_BYTES + PROOF_BYTES, MSG_NOSIGNAL);
    }
}

static void hear(crowd *c, int i, short events) {
    uint8_t bytes[4096];
    stranger *x = &c->of[i];
    int why = 0;
    socklen_t size = sizeof why;
    if (!x->connected && events) {
        getsockopt(x->fd, SOL_SOCKET, SO_ERROR, &why, &size);
        if (why) return leave(c, i);
        begin(c, i);
    }
    if (!(events & (POLLIN | POLLERR | POLLHUP))) return;
    ssize_t n = recv(x->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN)) return leave(c, i);
    if (n > 0 && !x->heard) x->heard = true, c->answered++;
    if (n > 0 && i % KINDS == ECHOING) send(x->fd, bytes, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void turn(crowd *c) {
    for (int i = 0; i < c->callers; i++) {
        if (c->of[i].fd < 0 && now() >= c->of[i].again) call(c, i);
        c->poll[i] = (struct pollfd){c->of[i].fd, c->of[i].connected ? POLLIN : POLLOUT, 0};
    }
    poll(c->poll, (nfds_t)c->callers, 20);
    for (int i = 0; i < c->callers; i++) {
        if (c->of[i].fd >= 0 && c->poll[i].revents) hear(c, i, c->poll[i].revents);
        if (c->of[i].fd < 0 || !c->of[i].connected || i % KINDS != SLOW) continue;
        if (c->of[i].said < HELLO_BYTES) send(c->of[i].fd, c->of[i].hello + c->of[i].said++, 1, MSG_NOSIGNAL);
    }
    nanosleep(&(struct timespec){0, 20000000}, NULL);
}

int main(int argc, char **argv) {
    if (argc < 6) return fprintf(stderr, "crowd CALLERS SECONDS PORT PORTS HOST...\n"), 64;
    crowd c = {.callers = atoi(argv[1]),
               .port = atoi(argv[3]),
               .ports = atoi(argv[4]),
               .hosts = argc - 5,
               .host = argv + 5,
               .random = 88172645463325252};
    double until = now() + atof(argv[2]);
    if (c.callers < 1 || c.ports < 1) return fprintf(stderr, "crowd: expected callers and ports\n"), 64;
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_max < (rlim_t)c.callers + 16)
        return fprintf(stderr, "crowd: %d callers want as many descriptors\n", c.callers), 71;
    c.of = calloc((size_t)c.callers, sizeof *c.of), c.poll = calloc((size_t)c.callers, sizeof *c.poll);
    if (!c.of || !c.poll) return 1;
    for (int i = 0; i < c.callers; i++) c.of[i].fd = -1;
    signal(SIGTERM, end);
    for (bool said = false; !over && now() < until;) {
        turn(&c);
        if (said) continue;
        said = true;
        printf("calling\n"), fflush(stdout);
    }
    printf("most %ld at once; %ld connections, %ld answered, %ld ended\n", c.most, c.came, c.answered, c.went);
    free(c.of), free(c.poll);
    return 0;
}
