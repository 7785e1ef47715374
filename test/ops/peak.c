// test/ops/peak.c: what the machine could do: fused multiply-adds from registers, nothing else. A ceiling for the benchmark's
// last column.
#include "test/ops/op_test.h"

#include <pthread.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#if defined(__x86_64__)
#include <immintrin.h>

// Twelve chains hide a latency of four to five cycles on two units. The sum is returned, or the compiler would take the work
// away.
enum { CHAINS = 12, TURNS = 4000000 };

__attribute__((target("avx512f"))) static float fma512(void) {
    __m512 a[CHAINS], x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
    for (int c = 0; c < CHAINS; c++) a[c] = _mm512_set1_ps((float)c);
    for (int t = 0; t < TURNS; t++)
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++) a[c] = _mm512_fmadd_ps(a[c], x, y);
    for (int c = 1; c < CHAINS; c++) a[0] = _mm512_add_ps(a[0], a[c]);
    return _mm512_reduce_add_ps(a[0]);
}

__attribute__((target("avx2,fma"))) static float fma256(void) {
    __m256 a[CHAINS], x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
    float out[8];
    for (int c = 0; c < CHAINS; c++) a[c] = _mm256_set1_ps((float)c);
    for (int t = 0; t < TURNS; t++)
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++) a[c] = _mm256_fmadd_ps(a[c], x, y);
    for (int c = 1; c < CHAINS; c++) a[0] = _mm256_add_ps(a[0], a[c]);
    _mm256_storeu_ps(out, a[0]);
    return out[0];
}

typedef struct spin { float result; int lanes; } spin;

static void *spin_run(void *p) {
    spin *s = p;
    s->result = s->lanes == 16 ? fma512() : fma256();
    return NULL;
}

double peak_flops(int threads) {
    enum { MOST = 256 };
    pthread_t id[MOST];
    spin s[MOST];
    int lanes = __builtin_cpu_supports("avx512f") ? 16 : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 8 : 0;
    double best = 0;
    if (!lanes || threads > MOST) return 0;
    for (int round = 0; round < 20; round++) {
        int n = 0;
        double start = now();
        for (; n < threads; n++) {
            s[n] = (spin){0, lanes};
            if (pthread_create(&id[n], NULL, spin_run, &s[n])) break;
        }
        for (int i = 0; i < n; i++) pthread_join(id[i], NULL);
        double rate = 2.0 * lanes * CHAINS * TURNS * n / (now() - start);
        if (rate > best) best = rate;
    }
    return best;
}
#else
double peak_flops(int threads) { (void)threads, (void)now; return 0; }
#endif
