// test/support/lossy.c: a bad cable in user space. lossy DELAY_MS LOSS_PERCENT SEED TAP...: makes these tap devices,
// prints "ready" and is the switch between them: each frame comes late, and some never. The process that started it
// moves the devices into network namespaces; it ends with its standard input. (`tc netem` does as much where the kernel
// has it. Many don't.)
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { TAPS = 16, FRAME = 2048, QUEUE = 65536 };

typedef struct frame {
    double due;
    int from;
    int size;
    unsigned char bytes[FRAME];
} frame;

typedef struct cable {
    double delay, loss;
    uint64_t random;
    int taps, fd[TAPS];
    frame *queue;  // a ring: the delay is the same for all, so they leave in the order in which they came
    uint64_t in, out;
} cable;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int open_tap(const char *name) {
    struct ifreq r = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    snprintf(r.ifr_name, IFNAMSIZ, "%s", name);
    if (fd >= 0 && ioctl(fd, TUNSETIFF, &r) == 0) return fd;
    perror(name);
    exit(1);
}

// xorshift64* (Vigna 2016)
static double draw(cable *c) {
    c->random ^= c->random >> 12, c->random ^= c->random << 25, c->random ^= c->random >> 27;
    return (double)(c->random * 2685821657736338717ull >> 11) * 0x1p-53;
}

static void take(cable *c, int tap) {
    for (;;) {
        frame *f = &c->queue[c->in % QUEUE];
        ssize_t n = read(c->fd[tap], f->bytes, FRAME);
        if (n <= 0) return;
        if (draw(c) < c->loss || c->in - c->out == QUEUE - 1) continue;
        f->due = now() + c->delay, f->from = tap, f->size = (int)n;
        c->in++;
    }
}

// To everybody else: whom it is not for drops it.
static void give(cable *c) {
    for (; c->out < c->in && c->queue[c->out % QUEUE].due <= now(); c->out++) {
        const frame *f = &c->queue[c->out % QUEUE];
        for (int i = 0; i < c->taps; i++)
            // not up yet: lost, like any frame
            if (i != f->from && write(c->fd[i], f->bytes, (size_t)f->size) < 0) continue;
    }
}

int main(int argc, char **argv) {
    cable c = {.queue = malloc(QUEUE * sizeof(frame))};
    struct pollfd p[TAPS + 1] = {{.fd = STDIN_FILENO, .events = POLLIN}};
    if (argc < 6 || argc - 4 > TAPS || !c.queue) {
        fprintf(stderr, "lossy DELAY_MS LOSS_PERCENT SEED TAP TAP...\n");
        return 64;
    }
    c.delay = atof(argv[1]) / 1e3, c.loss = atof(argv[2]) / 100,
    c.random = 0x9E3779B97F4A7C15ull ^ strtoull(argv[3], NULL, 10);
    for (int i = 4; i < argc; i++, c.taps++)
        p[c.taps + 1] = (struct pollfd){.fd = c.fd[c.taps] = open_tap(argv[i]), .events = POLLIN};
    puts("ready");
    fflush(stdout);
    for (char end; !(p[0].revents & (POLLIN | POLLHUP)) || read(STDIN_FILENO, &end, 1) > 0;) {
        double wait = c.out < c.in ? 1e3 * (c.queue[c.out % QUEUE].due - now()) : 1000;
        poll(p, (nfds_t)c.taps + 1, wait < 0 ? 0 : (int)wait + 1);
        for (int i = 0; i < c.taps; i++) take(&c, i);
        give(&c);
    }
    return 0;
}
