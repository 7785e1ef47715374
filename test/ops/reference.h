// test/ops/reference.h: every operation in double, as its formula is written, with no thought of speed. Arrays are
// row-major; shapes are those of gpu/ops.h. Outputs are overwritten: where the operation accumulates, this is its
// contribution.
#ifndef TEST_OPS_REFERENCE_H
#define TEST_OPS_REFERENCE_H

#include "gpu/ops.h"

void ref_matmul(double *d, const double *a, bool ta, const double *b, bool tb, int64_t M, int64_t N, int64_t K);
void ref_column_sums(double *y, const double *x, int64_t N, int64_t C);

double ref_gelu(double x);
double ref_gelu_grad(double x);
double ref_gelu_erf(double x);
double ref_gelu_erf_grad(double x);

void ref_layer_norm_forward(double *y, double *mean, double *rstd, const double *x, const double *w, const double *b,
                            double eps, int64_t N, int64_t C);
void ref_layer_norm_backward(double *dx, double *dw, double *db, const double *dy, const double *dresidual,
                             const double *x, const double *w, const double *mean, const double *rstd, int64_t N,
                             int64_t C);

void ref_rms_norm_forward(double *y, double *rstd, const double *x, const double *w, double shift, double eps,
                          int64_t N, int64_t C);
void ref_rms_norm_backward(double *dx, double *dw, const double *dy, const double *dresidual, const double *x,
                           const double *w, double shift, const double *rstd, int64_t N, int64_t C);

// What dropout multiplies element e of sample b of this call with: 0 or 1 / (1-p). 1 when drop is NULL.
double ref_keep(const dropout_key *drop, uint32_t b, int64_t e);

typedef struct ref_attention {
    int64_t B, T, C, H;  // C = H * D
    int64_t KV, window;  // 0: H heads of k and v; all positions before
    const dropout_key *drop;
    bool all;               // not causal
    const double *lengths;  // with all: of each sample; NULL: T
    const double *places;   // (B,T) in documents; NULL: a sample is one
} ref_attention;
int64_t ref_attention_row(const ref_attention *s);  // elements of a position in qkv
void ref_attention_forward(double *y, double *lse, const double *qkv, const ref_attention *s);
void ref_attention_backward(double *dqkv, double *delta, const double *dy, const double *y, const double *lse,
                            const double *qkv, const ref_attention *s);

// targets: integers held as doubles. Rows of logits have Vp elements, of which the first V are classes.
void ref_cross_entropy(double *losses, double *dlogits, const double *logits, const double *targets, double scale,
                       double smoothing, int64_t N, int64_t V, int64_t Vp);

// One update, t >= 1.
// x as the type's stochastic rounding (gpu/ops.h: rounding_key) has element e of a call after update t.
double ref_stochastic(dtype type, double x, const rounding_key *key, int64_t e, int64_t t);

void ref_adamw(double *master, double *m, double *v, const double *grad, double grad_factor, double lr, int64_t t,
               const adamw_rules *r, int64_t n);

// torch.optim.SGD, dampening 0, of a gradient and a decay that are multiplied by ratio; buf NULL: no momentum.
void ref_sgd(double *master, double *buf, const double *grad, double grad_factor, double ratio, double lr,
             const sgd_rules *r, int64_t n);

#endif
