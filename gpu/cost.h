// gpu/cost.h: what an operation must move and compute, defined once for the profile, the benchmarks and the tests of
// operations.
#ifndef GPU_COST_H
#define GPU_COST_H

#include "gpu/ops.h"

// More options that distinguish calls of an operation, in addition to MATMUL_BIAS and the others.
enum {
    COST_TA = 1 << 4,
    COST_TB = 1 << 5,
    COST_DROPOUT = 1 << 6,
    COST_RESIDUAL = 1 << 7,
    COST_GRADIENT = 1 << 8,
    COST_BYTES = 1 << 9,
    COST_SUMS = 1 << 10
};

typedef struct op_cost {
    dtype type;
    int64_t size[4];  // 0 after the last
    unsigned options;
    double bytes;  // that must be read and written, each tensor once
    double flops;  // of matrix products; 0 for what memory bounds
} op_cost;

// "tb,bias": options as words, comma between; "-": none. Returns dst. Back: false: no such words.
enum { COST_WORDS = 96, COST_SIZES = 96 };
const char *cost_words(unsigned options, char dst[COST_WORDS]);
bool cost_options(const char *words, unsigned *options);

// "1024x3072x768". Returns dst. Back: false: not 1 to 4 numbers above 0.
const char *cost_sizes(const int64_t size[4], char dst[COST_SIZES]);
bool cost_size(const char *text, int64_t size[4]);

#define COST_DECLARATION(op) op_cost op##_cost(const op##_args *args);
OPS(COST_DECLARATION)
#undef COST_DECLARATION

#endif
