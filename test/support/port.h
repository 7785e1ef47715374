// test/support/port.h: ports of 127.0.0.1, 127.0.0.2, ... that no other test takes meanwhile, and the time.
#ifndef TEST_SUPPORT_PORT_H
#define TEST_SUPPORT_PORT_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static inline double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void nap(double s) {
    nanosleep(&(struct timespec){(time_t)s, (long)(1e9 * (s - (double)(time_t)s))}, NULL);
}

// --- ports -----------------------------------------------------------------------------------------------------------

static inline struct sockaddr_in address(int node, int port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    a.sin_addr.s_addr = htonl(0x7f000001u + (uint32_t)node);
    return a;
}

static inline int listen_at(int node, int port) {
    struct sockaddr_in a = address(node, port);
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 64) == 0) return fd;
    close(fd);
    return -1;
}

// No other test of this checkout chooses these twenty ports meanwhile, scripts that read test/support/net.sh included.
// The lock is held until the next call.
static inline bool lock_port(int port) {
    static int held = -1;
    char path[40];
    if (held >= 0) close(held);
    snprintf(path, sizeof path, "build/ports/%d", port);
    mkdir("build/ports", 0777);
    held = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0666);
    return held < 0 || flock(held, LOCK_EX | LOCK_NB) == 0;
}

// A port that is free on every node's address, as are the data ports above it.
static inline int free_port(void) {
    static unsigned salt;
    srandom((unsigned)getpid() * 31 + (unsigned)time(NULL) + salt++);
    for (;;) {
        int port = 20000 + 20 * (int)(random() % 345), taken = !lock_port(port);
        for (int node = 0; node < 4; node++)
            for (int k = 0; k < 8; k++) {
                int fd = listen_at(node, port + k);
                taken |= fd < 0;
                if (fd >= 0) close(fd);
            }
        if (!taken) return port;
    }
}

#endif
