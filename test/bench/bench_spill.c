// test/bench/bench_spill.c: how near a walk over a spilled array (base/spill.h) comes to what the disk gives.
//
//     bench_spill DIR [MB] [threads] [windows] [rounds]
//
// A round reads and writes the whole file (2,048 MB) twice: first by as many threads (8), each a part of it, block by
// block, without checksums, windows or order: the bound; then by a walk that updates, through so many windows (4) of 16
// blocks. A block is 192 KiB: a chunk of masters and of two moments. Both bypass the page cache, or the program ends
// with 1. Printed are rates of each round (of 5), read and written together, and the medians; MB are 10^6 bytes. The
// visit does nothing, so that the walk has no other work.
#include "base/clock.h"
#include "base/io.h"
#include "base/spill.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 3 * 16384 * 4, ROUNDS = 100 };

typedef struct part {
    int fd;
    int64_t first, count;  // blocks
    void *block;
    bool failed;
} part;

static void *update_part(void *arg) {
    part *p = arg;
    for (int64_t k = p->first; k < p->first + p->count && !p->failed; k++)
        p->failed = pread(p->fd, p->block, BLOCK, (off_t)k * BLOCK) != BLOCK ||
                    pwrite(p->fd, p->block, BLOCK, (off_t)k * BLOCK) != BLOCK;
    return NULL;
}

// A file of its own, of written blocks.
static int open_bound(const char *dir, int64_t blocks, void *block) {
    char path[IO_PATH];
    if (io_path(path, "%s/bound.XXXXXX", dir) != ERR_OK) return -1;
    int fd = mkostemp(path, O_CLOEXEC | O_DIRECT);
    if (fd < 0) return -1;
    unlink(path);
    memset(block, 1, BLOCK);
    for (int64_t k = 0; k < blocks; k++)
        if (pwrite(fd, block, BLOCK, (off_t)k * BLOCK) != BLOCK) return close(fd), -1;
    return fd;
}

// Seconds of one round of the bound; 0: it failed.
static double time_bound(int fd, int64_t blocks, int threads, char *memory) {
    pthread_t id[SPILL_THREADS];
    part of[SPILL_THREADS];
    int started = 0;
    bool failed = false;
    double since = clock_now();
    for (; started < threads; started++) {
        int64_t first = blocks * started / threads, end = blocks * (started + 1) / threads;
        of[started] = (part){fd, first, end - first, memory + (size_t)started * BLOCK, false};
        if (pthread_create(&id[started], NULL, update_part, &of[started])) break;
    }
    for (int i = 0; i < started; i++) pthread_join(id[i], NULL), failed |= of[i].failed;
    return failed || started < threads ? 0 : clock_now() - since;
}

static err_t fill(void *ctx, int64_t first, int64_t count, void *data) {
    (void)ctx;
    memset(data, (int)first & 0xff, (size_t)count * BLOCK);
    return ERR_OK;
}

static err_t nothing(void *ctx, int64_t first, int64_t count, void *data) {
    (void)ctx, (void)first, (void)count, (void)data;
    return ERR_OK;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int measure(spill *x, int fd, const spill_options *o, int rounds, char *memory) {
    static double bound[ROUNDS], walk[ROUNDS];
    double mb = 2e-6 * (double)spill_file(o);
    for (int r = 0; r < rounds; r++) {
        double s = time_bound(fd, o->blocks, o->threads, memory), since = clock_now();
        if (s == 0) return fprintf(stderr, "bench_spill: the bound can't be read or written\n"), 1;
        if (spill_walk(x, SPILL_UPDATE, 0, o->blocks, nothing, NULL) != ERR_OK)
            return fprintf(stderr, "bench_spill: %s\n", err_last()->text), 1;
        bound[r] = mb / s, walk[r] = mb / (clock_now() - since);
        printf("round %d: bound %.0f MB/s, walk %.0f MB/s\n", r + 1, bound[r], walk[r]);
    }
    qsort(bound, (size_t)rounds, sizeof *bound, by_size);
    qsort(walk, (size_t)rounds, sizeof *walk, by_size);
    printf("%d threads, %d windows: bound %.0f MB/s, walk %.0f MB/s, %.2f of it\n", o->threads, o->windows,
           bound[rounds / 2], walk[rounds / 2], walk[rounds / 2] / bound[rounds / 2]);
    return 0;
}

int main(int argc, char **argv) {
    int64_t mb = argc > 2 ? atoll(argv[2]) : 2048;
    int rounds = argc > 5 ? atoi(argv[5]) : 5;
    spill_options o = {.dir = argc > 1 ? argv[1] : "",
                       .name = "spill",
                       .block_bytes = BLOCK,
                       .blocks = mb * 1000000 / BLOCK,
                       .windows = argc > 4 ? atoi(argv[4]) : 4,
                       .window_blocks = 16,
                       .threads = argc > 3 ? atoi(argv[3]) : 8};
    if (argc < 2 || mb < 1 || mb > 1 << 24 || rounds < 1 || rounds > ROUNDS || o.windows < 2 ||
        o.windows > SPILL_WINDOWS || o.threads < 1 || o.threads > SPILL_THREADS) {
        fprintf(stderr, "bench_spill DIR [MB] [threads, 1 to %d] [windows, 2 to %d] [rounds, 1 to %d]\n", SPILL_THREADS,
                SPILL_WINDOWS, ROUNDS);
        return 64;
    }
    spill *x = NULL;
    char *memory = aligned_alloc(SPILL_ALIGN, spill_memory(&o)),
         *bound = aligned_alloc(SPILL_ALIGN, (size_t)o.threads * BLOCK);
    int rc = 1, fd = memory && bound ? open_bound(o.dir, o.blocks, bound) : -1;
    if (fd < 0) fprintf(stderr, "bench_spill: %s: no memory, or no room or O_DIRECT there\n", o.dir);
    else if (spill_open(&x, &o, memory) != ERR_OK || spill_walk(x, SPILL_FILL, 0, o.blocks, fill, NULL) != ERR_OK)
        fprintf(stderr, "bench_spill: %s\n", err_last()->text);
    else rc = measure(x, fd, &o, rounds, bound);
    spill_close(x);
    if (fd >= 0) close(fd);
    free(memory), free(bound);
    return rc;
}
