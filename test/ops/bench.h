// test/ops/bench.h: what the benchmarks of operations and of nets share.
#ifndef TEST_OPS_BENCH_H
#define TEST_OPS_BENCH_H

#include "test/ops/op_test.h"

typedef struct op_bench {
    fixture f;
    bool cuda;
    bool pairs;                                    // products are of BF16 pairs
    int64_t scale;                                 // sizes are divided by it
    double bandwidth;                              // bytes/s
    double flops[INT32];                           // FLOP/s, by type
    double bandwidth_before, flops_before[INT32];  // a row ago
} op_bench;

// Median seconds of one call of a row, and what it must move and compute; negative when it failed.
double bench_seconds(const op_bench *b, const op_row *row, double *bytes, double *flops);

// What products are made of here: "FMA" or "BF16 pairs".
const char *bench_unit(const op_bench *b);

// What this machine's threads reach of the multiply-adds that products are made of, in FLOP/s.
double bench_peak(const op_bench *b);

// bench_net.c: whether there is a net of that name, whose operations were then timed.
bool bench_net(op_bench *b, const char *name, int *failures);

#endif
