// gpu/chains.c: see gpu/cpu/chains.h.
#include "gpu/chains.h"

#include "base/clock.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

// Twelve chains hide a latency of four to five cycles on two units.
enum { CHAINS = 12 };

__attribute__((target("avx512f"))) static float fma512(int turns) {
    __m512 a[CHAINS], x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
    for (int c = 0; c < CHAINS; c++) a[c] = _mm512_set1_ps((float)c);
    for (int t = 0; t < turns; t++)
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++) a[c] = _mm512_fmadd_ps(a[c], x, y);
    for (int c = 1; c < CHAINS; c++) a[0] = _mm512_add_ps(a[0], a[c]);
    return _mm512_reduce_add_ps(a[0]);
}

__attribute__((target("avx2,fma"))) static float fma256(int turns) {
    __m256 a[CHAINS], x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
    float out[8];
    for (int c = 0; c < CHAINS; c++) a[c] = _mm256_set1_ps((float)c);
    for (int t = 0; t < turns; t++)
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++) a[c] = _mm256_fmadd_ps(a[c], x, y);
    for (int c = 1; c < CHAINS; c++) a[0] = _mm256_add_ps(a[0], a[c]);
    _mm256_storeu_ps(out, a[0]);
    return out[0];
}

// The latency is longer: twice as many chains, half as often.
__attribute__((target("avx512f,avx512bf16"))) static float pairs512(int turns) {
    enum { MORE = 2 * CHAINS };
    __m512 a[MORE];
    // 0.996 and 0.001, twice
    __m512bh x = (__m512bh)_mm512_set1_epi32(0x3f7f3f7f), y = (__m512bh)_mm512_set1_epi32(0x3a833a83);
    for (int c = 0; c < MORE; c++) a[c] = _mm512_set1_ps((float)c);
    for (int t = 0; t < turns / 2; t++)
#pragma GCC unroll 24
        for (int c = 0; c < MORE; c++) a[c] = _mm512_dpbf16_ps(a[c], x, y);
    for (int c = 1; c < MORE; c++) a[0] = _mm512_add_ps(a[0], a[c]);
    return _mm512_reduce_add_ps(a[0]);
}

// AVX512_BF16: CPUID 7.1, EAX bit 5. Not every compiler's __builtin_cpu_supports knows the name.
static bool has_pairs(void) {
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx512f") && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
}

// pairs: has_pairs(), which a caller that measures asks before: in a virtual machine CPUID takes microseconds.
static double run(chain_kind kind, bool pairs, int turns, float *sum) {
    turns -= turns % 2;
    double each = (double)CHAINS * turns;
    if (kind == CHAIN_PAIRS) {
        if (!pairs) return 0;
        *sum = pairs512(turns);
        return 32 * each;
    }
    if (__builtin_cpu_supports("avx512f")) {
        *sum = fma512(turns);
        return 16 * each;
    }
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
    *sum = fma256(turns);
    return 8 * each;
}

double chains_run(chain_kind kind, int turns, float *sum) { return run(kind, has_pairs(), turns, sum); }

// Multiply-adds a second, best of several rounds: the first ones meet a processor that does not run at its clock yet.
static double burst(chain_kind kind) {
    enum { ROUNDS = 10, TURNS = 2000 };
    bool pairs = has_pairs();
    double best = 0;
    float sum;
    for (int i = 0; i < ROUNDS; i++) {
        double start = clock_now(), n = run(kind, pairs, TURNS, &sum), rate = n / (clock_now() - start);
        if (rate > best) best = rate;
    }
    return best;
}

bool chains_pairs_pay(void) {
    double pairs = burst(CHAIN_PAIRS);
    return pairs > 0 && pairs > burst(CHAIN_FMA);
}
#else
double chains_run(chain_kind kind, int turns, float *sum) { return (void)kind, (void)turns, (void)sum, 0; }
bool chains_pairs_pay(void) { return false; }
#endif
