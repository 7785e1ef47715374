// comm/tcp/sum.c: see comm/tcp/sum.h. The loops are plain and left to the compiler, twice: for any processor, and on
// x86 for those with AVX2. Each element is one addition of the same two numbers whatever the width of the vectors, so
// both give the same bits.
#include "comm/tcp/sum.h"

// Elements lie at multiples of their size in a ring, but the caller's data may begin anywhere.
typedef float f32 __attribute__((aligned(1), may_alias));
typedef double f64 __attribute__((aligned(1), may_alias));
typedef int32_t i32 __attribute__((aligned(1), may_alias));

#define PLUS(type, a, b) ((a) + (b))
#define PLUS_WRAP(type, a, b) ((type)((uint32_t)(a) + (uint32_t)(b)))
#define LARGER(type, a, b) ((a) > (b) || (a) != (a) ? (a) : (b))

#define LOOP(name, target, type, op) \
    target static void name(void *restrict dst, const void *restrict src, size_t bytes) { \
        type *restrict d = dst; \
        const type *restrict x = src; \
        for (size_t i = 0, n = bytes / sizeof *d; i < n; i++) d[i] = op(type, d[i], x[i]); \
    }

#define ALL_LOOPS(suffix, target) \
    LOOP(add_f32##suffix, target, f32, PLUS) \
    LOOP(add_f64##suffix, target, f64, PLUS) \
    LOOP(add_i32##suffix, target, i32, PLUS_WRAP) \
    LOOP(max_f32##suffix, target, f32, LARGER) \
    LOOP(max_f64##suffix, target, f64, LARGER) \
    LOOP(max_i32##suffix, target, i32, LARGER)

#define TABLE(suffix) \
    { \
        [FP32] = {add_f32##suffix, max_f32##suffix}, [FP64] = {add_f64##suffix, max_f64##suffix}, \
        [INT32] = {add_i32##suffix, max_i32##suffix}, \
    }

ALL_LOOPS(_any, )
static sum_fn *const table_any[INT32 + 1][2] = TABLE(_any);

#if defined(__x86_64__)
ALL_LOOPS(_avx2, __attribute__((target("avx2"))))
static sum_fn *const table_avx2[INT32 + 1][2] = TABLE(_avx2);
#endif

sum_fn *sum_of(dtype type, reduce_op op) {
    if ((unsigned)type > INT32 || (unsigned)op > REDUCE_MAX) return NULL;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return table_avx2[type][op];
#endif
    return table_any[type][op];
}
