// test/ops/rows.h: short words for the options of a row (test/ops/op_test.h), for the tables.
#ifndef TEST_OPS_ROWS_H
#define TEST_OPS_ROWS_H

#include "test/ops/op_test.h"

enum {
    BIAS = MATMUL_BIAS,
    GELU = MATMUL_BIAS | MATMUL_GELU,
    DGELU = MATMUL_DGELU,
    ACC = MATMUL_ACCUMULATE,
    TA = OPT_TA,
    TB = OPT_TB
};
#define TO(t) ((unsigned)(t) << OPT_TO_SHIFT)

#endif
