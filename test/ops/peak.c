// test/ops/peak.c: what the machine could do: the ceilings of the benchmark's shares. Of a CPU a triad, and fused multiply-adds from
// registers, nothing else; of a GPU a copy, and one large matrix product.
#include "test/ops/op_test.h"

#include <pthread.h>
#include <time.h>

double bench_seconds(void) {
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
        double start = bench_seconds();
        for (; n < threads; n++) {
            s[n] = (spin){0, lanes};
            if (pthread_create(&id[n], NULL, spin_run, &s[n])) break;
        }
        for (int i = 0; i < n; i++) pthread_join(id[i], NULL);
        double rate = 2.0 * lanes * CHAINS * TURNS * n / (bench_seconds() - start);
        if (rate > best) best = rate;
    }
    return best;
}
#else
double peak_flops(int threads) { (void)threads; return 0; }
#endif

// Best of several rounds of `calls` calls; negative when one failed.
static double best_seconds(const fixture *f, int rounds, int calls, err_t (*call)(const fixture *f, tensor *t), tensor *t) {
    double best = 1e30;
    for (int k = 0; k < rounds; k++) {
        double start = bench_seconds();
        for (int i = 0; i < calls; i++)
            if (call(f, t) != ERR_OK) return -1;
        if (stream_wait(f->s) != ERR_OK) return -1;
        double s = (bench_seconds() - start) / calls;
        if (s < best) best = s;
    }
    return best;
}

static err_t triad(const fixture *f, tensor *t) { return f->table->add(&t[0], &t[1], &t[2], f->s); }
static err_t copy(const fixture *f, tensor *t) { return stream_copy(f->s, t[0].data, t[1].data, tensor_bytes(t)); }
static err_t product(const fixture *f, tensor *t) { return f->table->matmul(&t[0], NULL, &t[1], false, &t[2], true, NULL, 0, f->s); }

// Seconds of `call` on three tensors of zeros of one shape; not positive when there is no room for them, or it failed.
static double time_of(const fixture *f, int rounds, int calls, err_t (*call)(const fixture *f, tensor *t), tensor shape) {
    tensor t[3] = {shape, shape, shape};
    bool ok = true;
    for (int i = 0; i < 3 && ok; i++) {
        ok = device_alloc(f->dev, MEMORY_DEVICE, tensor_bytes(&t[i]), &t[i].data) == ERR_OK &&
             stream_zero(f->s, t[i].data, tensor_bytes(&t[i])) == ERR_OK;
    }
    double s = ok ? best_seconds(f, rounds, calls, call, t) : -1;
    for (int i = 0; i < 3; i++)
        if (t[i].data) device_free(f->dev, MEMORY_DEVICE, t[i].data, tensor_bytes(&t[i]));
    return s;
}

// Far larger than any cache: a = b + c moves 12 bytes an element, a copy 8.
double peak_bandwidth(const fixture *f, int64_t scale) {
    bool cuda = device_about(f->dev)->kind == DEVICE_CUDA;
    int64_t n = ((1 << 25) + scale - 1) / scale;
    tensor shape = {NULL, FP32, 1, {cuda ? 2 * n : n, 1, 1, 1}};
    double s = cuda ? time_of(f, 5, 10, copy, shape) : time_of(f, 20, 1, triad, shape);
    return s > 0 ? (cuda ? 8.0 : 12.0) * (double)shape.size[0] / s : 0;
}

// Of zeros, which cost a GPU less power and clock than data do: a ceiling.
double peak_matmul(const fixture *f, dtype type, int64_t n) {
    double s = time_of(f, 3, 3, product, (tensor){NULL, type, 2, {n, n, 1, 1}});
    return s > 0 ? 2.0 * (double)n * (double)n * (double)n / s : 0;
}
