// test/support/matmul.h: the matrix products of all vector widths that this machine has, and streams of 1 to MAX_THREADS threads: stream s[t] has t.
#ifndef TEST_SUPPORT_MATMUL_H
#define TEST_SUPPORT_MATMUL_H

#include "gpu/cpu/kernel/kernel.h"

typedef err_t (*matmul_fn)(const matmul_args *, stream *);

static inline int widths(matmul_fn *f) {
    int n = 0;
    f[n++] = cpu_ops_portable.matmul;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) f[n++] = cpu_ops_avx2.matmul;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        f[n++] = cpu_ops_avx512.matmul;
#elif defined(__aarch64__)
    f[n++] = cpu_ops_neon.matmul;
#endif
    return n;
}

enum { MAX_THREADS = 4 };
typedef struct fixture {
    stream s[MAX_THREADS + 1];
} fixture;

static inline int open_pools(void **state) {
    static fixture f;  // cmocka hands it to every test
    for (int t = 1; t <= MAX_THREADS; t++)
        if (pool_open(&f.s[t].workers, t) != ERR_OK) return -1;
    *state = &f;
    return 0;
}

static inline int close_pools(void **state) {
    fixture *f = *state;
    for (int t = 1; t <= MAX_THREADS; t++) pool_close(f->s[t].workers);
    return 0;
}

#endif
