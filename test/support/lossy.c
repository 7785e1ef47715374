// test/support/lossy.c: a bad cable in user space. lossy DELAY_MS LOSS_PERCENT MBIT SEED TAP...: makes these tap
// devices, prints "ready" and is the switch between them: each frame comes late, some never, and each device sends no
// more than so many megabits a second (0: any number; "100,10": the first 100, all others 10). The process that started
// it moves the devices into network namespaces; it ends with its standard input. (`tc netem` does as much where the
// kernel has it. Many don't.)
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

enum { TAPS = 16, FRAME = 2048, QUEUE = 16384 };

typedef struct frame {
    double due;
    int size;
    unsigned char bytes[FRAME];
} frame;

// What one device has sent. A ring: frames leave in the order in which they came.
typedef struct line {
    int fd;
    double byte_s;  // how long a byte takes
    double free;    // when it has sent all that it was given
    frame *queue;
    uint64_t in, out;
} line;

typedef struct cable {
    double delay, loss;
    uint64_t random;
    int taps;
    line line[TAPS];
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

static void take(cable *c, line *from) {
    for (;;) {
        frame *f = &from->queue[from->in % QUEUE];
        ssize_t n = read(from->fd, f->bytes, FRAME);
        if (n <= 0) return;
        if (draw(c) < c->loss || from->in - from->out == QUEUE - 1) continue;
        double begins = now();
        if (from->free > begins) begins = from->free;
        from->free = begins + from->byte_s * (double)n;
        f->due = from->free + c->delay, f->size = (int)n;
        from->in++;
    }
}

// To everybody else: whom it is not for drops it.
static void give(cable *c, line *from) {
    for (; from->out < from->in && from->queue[from->out % QUEUE].due <= now(); from->out++) {
        const frame *f = &from->queue[from->out % QUEUE];
        for (int i = 0; i < c->taps; i++)
            // not up yet: lost, like any frame
            if (&c->line[i] != from && write(c->line[i].fd, f->bytes, (size_t)f->size) < 0) continue;
    }
}

// Milliseconds until the next frame is due.
static int next(const cable *c) {
    double wait = 1000;
    for (int i = 0; i < c->taps; i++) {
        const line *x = &c->line[i];
        double due = x->out < x->in ? 1e3 * (x->queue[x->out % QUEUE].due - now()) : 1000;
        if (due < wait) wait = due;
    }
    return wait < 0 ? 0 : (int)wait + 1;
}

static void open_line(line *x, const char *name, double mbit) {
    *x = (line){.fd = open_tap(name), .byte_s = mbit > 0 ? 8e-6 / mbit : 0, .queue = malloc(QUEUE * sizeof(frame))};
    if (x->queue) return;
    fprintf(stderr, "no memory for the frames of %s\n", name);
    exit(1);
}

int main(int argc, char **argv) {
    cable c = {0};
    struct pollfd p[TAPS + 1] = {{.fd = STDIN_FILENO, .events = POLLIN}};
    if (argc < 7 || argc - 5 > TAPS) {
        fprintf(stderr, "lossy DELAY_MS LOSS_PERCENT MBIT SEED TAP TAP...\n");
        return 64;
    }
    const char *mbit = argv[3];
    c.delay = atof(argv[1]) / 1e3, c.loss = atof(argv[2]) / 100;
    c.random = 0x9E3779B97F4A7C15ull ^ strtoull(argv[4], NULL, 10);
    for (int i = 5; i < argc; i++, c.taps++) {
        open_line(&c.line[c.taps], argv[i], atof(mbit));
        if (strchr(mbit, ',')) mbit = strchr(mbit, ',') + 1;
        p[c.taps + 1] = (struct pollfd){.fd = c.line[c.taps].fd, .events = POLLIN};
    }
    puts("ready");
    fflush(stdout);
    for (char end; !(p[0].revents & (POLLIN | POLLHUP)) || read(STDIN_FILENO, &end, 1) > 0;) {
        poll(p, (nfds_t)c.taps + 1, next(&c));
        for (int i = 0; i < c.taps; i++) take(&c, &c.line[i]);
        for (int i = 0; i < c.taps; i++) give(&c, &c.line[i]);
    }
    return 0;
}
