// test/vec_probe.h: every function of gpu/cpu/kernel/vec.h, vmath.h, typed.h and stochastic.h behind one signature, so
// that test_vec.c can hold the vector widths against each other. vec_probe.c is compiled once for each width, like a
// kernel.
#ifndef TEST_VEC_PROBE_H
#define TEST_VEC_PROBE_H

#include <stdint.h>

enum { PROBE_LANES = 16, PROBE_IN = 3 * PROBE_LANES, PROBE_OUT = 4 * PROBE_LANES };

// What the inputs must look like, so that the function is defined.
typedef enum probe_kind {
    // three vectors of any bits; gives floats, and which of several NaNs comes out may depend on the width
    PROBE_FLOAT,
    PROBE_EXACT,  // the same, but every bit counts
    PROBE_COUNT,  // the same; in[2*16] is a count from 0 to 16
} probe_kind;

typedef struct probe_row {
    const char *name;
    probe_kind kind;
    // blocks of PROBE_IN words give blocks of PROBE_OUT words
    void (*run)(uint32_t *out, const uint32_t *in, int64_t blocks);
} probe_row;

extern const probe_row probes_portable[];  // ends with a row of zeros
#if defined(__x86_64__)
extern const probe_row probes_avx2[], probes_avx512[];
#elif defined(__aarch64__)
extern const probe_row probes_neon[];
#endif

#endif
