// test/bench/bench_read.c: how fast this machine's threads read memory, and nothing else. It is what bounds a model
// that writes one token after the other: each one reads all weights once.
//
//     bench_read [threads] [MB] [rounds]
//
// Each thread sums its part of one array (512 MB, far above any cache) in so many streams at once as a product of a
// matrix and a vector would read rows. Printed is each number of streams with its best and its median of the rounds
// (9), and the best of all; GB are 10^9 bytes.
#include "base/clock.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#ifdef __x86_64__
#define WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDEST
#endif
enum { STREAMS = 8, LANES = 16, THREADS = 256, ROUNDS = 1000 };
typedef float vec __attribute__((vector_size(LANES * sizeof(float))));

typedef struct part {
    const vec *x;
    int64_t n;  // vectors
    int streams;
    float sum;  // so that nothing is left out
} part;

// Streams are equal neighbouring pieces, read side by side; what they leave over, less than one vector each, is not
// read.
static inline __attribute__((always_inline)) float sum_of(const vec *x, int64_t n, const int streams) {
    vec sum[STREAMS] = {{0}};
    float all = 0;
    int64_t each = n / streams;
    for (int64_t i = 0; i < each; i++)
        for (int s = 0; s < streams; s++) sum[s] += x[s * each + i];
    for (int s = 0; s < streams; s++)
        for (int k = 0; k < LANES; k++) all += sum[s][k];
    return all;
}

WIDEST static float sum_all(const vec *x, int64_t n, int streams) {
    switch (streams) {
    case 1: return sum_of(x, n, 1);
    case 2: return sum_of(x, n, 2);
    case 4: return sum_of(x, n, 4);
    default: return sum_of(x, n, STREAMS);
    }
}

static void *sum_part(void *arg) {
    part *p = arg;
    p->sum = sum_all(p->x, p->n, p->streams);
    return NULL;
}

// Bytes a second of one reading by all threads; 0: no threads.
static double read_once(const vec *x, int64_t n, int threads, int streams) {
    pthread_t id[THREADS];
    part of[THREADS];
    int started = 0;
    double since = clock_now();
    for (; started < threads; started++) {
        of[started] = (part){x + n / threads * started, n / threads, streams, 0};
        if (pthread_create(&id[started], NULL, sum_part, &of[started])) break;
    }
    for (int i = 0; i < started; i++) pthread_join(id[i], NULL);
    double spent = clock_now() - since;
    float sum = 0;
    for (int i = 0; i < started; i++) sum += of[i].sum;
    bool whole = started == threads && sum > 0;
    return whole ? (double)(n / threads / streams * streams * threads) * sizeof(vec) / spent : 0;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1, rounds = argc > 3 ? atoi(argv[3]) : 9;
    int64_t mb = argc > 2 ? atoll(argv[2]) : 512, n = mb * 1000000 / (int64_t)sizeof(vec);
    static double rate[ROUNDS];
    double best = 0;
    if (threads < 1 || threads > THREADS || mb < 1 || mb > 1 << 20 || rounds < 1 || rounds > ROUNDS) {
        fprintf(stderr, "bench_read [threads, 1 to %d] [MB, from 1 on] [rounds, 1 to %d]\n", THREADS, ROUNDS);
        return 64;
    }
    size_t page = 2 << 20, bytes = ((size_t)n * sizeof(vec) + page - 1) / page * page;
    vec *x = aligned_alloc(page, bytes);
    if (!x) return fprintf(stderr, "bench_read: no memory for %lld MB\n", (long long)mb), 1;
    madvise(x, bytes, MADV_HUGEPAGE);
    for (int64_t i = 0; i < n; i++) x[i] = (vec){0} + 1;
    for (int streams = 1; streams <= STREAMS; streams *= 2) {
        for (int r = 0; r < rounds; r++) rate[r] = 1e-9 * read_once(x, n, threads, streams);
        qsort(rate, (size_t)rounds, sizeof *rate, by_size);
        printf("%d threads, %d streams each: best %.1f GB/s, median %.1f GB/s\n", threads, streams, rate[rounds - 1],
               rate[rounds / 2]);
        if (rate[rounds - 1] > best) best = rate[rounds - 1];
    }
    printf("read %.1f GB/s\n", best);
    free(x);
    return 0;
}
