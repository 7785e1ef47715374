// test/support/matmul.h: the matrix products of all vector widths that this machine has, in both arithmetics of
// [precision] products, and streams of 1 to MAX_THREADS threads: stream s[t] has t.
#ifndef TEST_SUPPORT_MATMUL_H
#define TEST_SUPPORT_MATMUL_H

#include "gpu/cpu/kernel/kernel.h"

typedef err_t (*matmul_fn)(const matmul_args *, stream *);

enum { MAX_THREADS = 4, MAX_WIDTHS = 4 };
typedef struct fixture {
    stream s[MAX_THREADS + 1];
    bool pairs;
} fixture;

// The portable one first, the widest last.
static inline int widths(const fixture *f, matmul_fn *fn) {
    int n = 0;
    fn[n++] = f->pairs ? cpu_pairs_portable.matmul : cpu_ops_portable.matmul;
#if defined(__x86_64__)
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
        fn[n++] = f->pairs ? cpu_pairs_avx2.matmul : cpu_ops_avx2.matmul;
    if (avx512) fn[n++] = f->pairs ? cpu_pairs_avx512.matmul : cpu_ops_avx512.matmul;
    if (f->pairs && cpu_has_native_pairs()) fn[n++] = cpu_pairs_avx512bf16.matmul;
#elif defined(__aarch64__)
    fn[n++] = f->pairs ? cpu_pairs_neon.matmul : cpu_ops_neon.matmul;
#endif
    return n;
}

static inline int open_pools(void **state) {
    static fixture f;  // cmocka hands it to every test of a group
    for (int t = 1; t <= MAX_THREADS; t++)
        if (pool_open(&f.s[t].workers, t) != ERR_OK) return -1;
    *state = &f;
    return 0;
}

static inline int open_pairs(void **state) {
    if (open_pools(state)) return -1;
    ((fixture *)*state)->pairs = true;
    return 0;
}

static inline int close_pools(void **state) {
    fixture *f = *state;
    for (int t = 1; t <= MAX_THREADS; t++) pool_close(f->s[t].workers);
    return 0;
}

#endif
