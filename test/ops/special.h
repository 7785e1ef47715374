// test/ops/special.h: what the special checks are written with (special.c).
#ifndef TEST_OPS_SPECIAL_H
#define TEST_OPS_SPECIAL_H

#include "test/ops/op_test.h"

// Tensors of one check, on the device. The first failure of any call stays, and later ones do nothing.
enum { BOXES = 32 };
typedef struct bench {
    const fixture *f;
    tensor t[BOXES];
    int count;
    bool ok;
    char *why;
} bench;

bool say(bench *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool did(bench *b, err_t rc);
tensor *box(bench *b, dtype t, int64_t n0, int64_t n1, const void *host);  // n1 = 0: a vector; host NULL: zeros
void put(bench *b, tensor *x, const void *host);
void *take(bench *b, const tensor *x);  // a copy on the host; the caller frees it
bool done(bench *b);

void *random_values(dtype t, int64_t n, double scale, uint32_t seed);
tensor *random_box(bench *b, dtype t, int64_t n0, int64_t n1, double scale, uint32_t seed);
void expect_same(bench *b, const char *what, const tensor *x, const tensor *y);

static const dtype compute_types[] = {FP32, BF16, FP16};

// --- special_attention.c ---------------------------------------------------------------------------------------------

bool attention_causal(const fixture *f, char why[WHY]);
bool attention_grows(const fixture *f, char why[WHY]);
bool cross_attention_grows(const fixture *f, char why[WHY]);

// --- special_variants.c ----------------------------------------------------------------------------------------------

bool geglu_is_gelu(const fixture *f, char why[WHY]);
bool shift_is_part_of_the_gain(const fixture *f, char why[WHY]);
bool no_shift_leaves_minus_zero(const fixture *f, char why[WHY]);
bool a_factor_is_part_of_the_table(const fixture *f, char why[WHY]);

// --- special_step.c --------------------------------------------------------------------------------------------------

bool decide_outliers(const fixture *f, char why[WHY]);
bool decide_counts(const fixture *f, char why[WHY]);
bool decide_aborted(const fixture *f, char why[WHY]);
bool decide_table(const fixture *f, char why[WHY]);
bool scale_limits(const fixture *f, char why[WHY]);

// --- special_sparse.c ------------------------------------------------------------------------------------------------

bool sparse_steps(const fixture *f, char why[WHY]);
bool sparse_strange_indices(const fixture *f, char why[WHY]);

// --- special_rounding.c ----------------------------------------------------------------------------------------------

bool rounding_share(const fixture *f, char why[WHY]);
bool rounding_leaves(const fixture *f, char why[WHY]);
bool rounding_mean(const fixture *f, char why[WHY]);
bool rounding_keys(const fixture *f, char why[WHY]);
bool rounding_comes_back(const fixture *f, char why[WHY]);
bool rounding_shows_updates(const fixture *f, char why[WHY]);

#endif
