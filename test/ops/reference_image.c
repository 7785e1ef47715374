// test/ops/reference_image.c: see reference_image.h.
#include "test/ops/reference_image.h"

#include <math.h>
#include <string.h>

// One product of a convolution: y[to] += x[from] * w[by].
typedef struct term {
    int64_t from, by, to;
} term;

// Calls `each` for all products.
static void each_term(const ref_conv *z, void (*each)(const term *t, double *out, const double *a, const double *b),
                      double *out, const double *a, const double *b) {
    int64_t Cg = z->C / z->groups, Kg = z->K / z->groups, outputs = z->N * z->P * z->Q;
    for (int64_t m = 0; m < outputs; m++)
        for (int64_t r = 0; r < z->R; r++)
            for (int64_t s = 0; s < z->S; s++) {
                int64_t n = m / (z->P * z->Q), h = m / z->Q % z->P * z->stride - z->pad + r,
                        w = m % z->Q * z->stride - z->pad + s;
                if (h < 0 || h >= z->H || w < 0 || w >= z->W) continue;
                for (int64_t k = 0; k < z->K; k++)
                    for (int64_t c = 0; c < Cg; c++) {
                        int64_t from = ((n * z->H + h) * z->W + w) * z->C + k / Kg * Cg + c;
                        each(&(term){from, ((k * z->R + r) * z->S + s) * Cg + c, m * z->K + k}, out, a, b);
                    }
            }
}

static void to_outputs(const term *t, double *y, const double *x, const double *w) {
    y[t->to] += x[t->from] * w[t->by];
}
static void to_inputs(const term *t, double *dx, const double *dy, const double *w) {
    dx[t->from] += dy[t->to] * w[t->by];
}
static void to_weights(const term *t, double *dw, const double *dy, const double *x) {
    dw[t->by] += dy[t->to] * x[t->from];
}

void ref_conv_forward(double *y, const double *x, const double *w, const ref_conv *z) {
    memset(y, 0, (size_t)(z->N * z->P * z->Q * z->K) * sizeof *y);
    each_term(z, to_outputs, y, x, w);
}
void ref_conv_inputs(double *dx, const double *dy, const double *w, const ref_conv *z) {
    memset(dx, 0, (size_t)(z->N * z->H * z->W * z->C) * sizeof *dx);
    each_term(z, to_inputs, dx, dy, w);
}
void ref_conv_weights(double *dw, const double *dy, const double *x, const ref_conv *z) {
    memset(dw, 0, (size_t)(z->K * z->R * z->S * (z->C / z->groups)) * sizeof *dw);
    each_term(z, to_weights, dw, dy, x);
}

int64_t ref_max_pool(const double *x, int64_t i, const ref_conv *z, int64_t *at) {
    int64_t n = i / (z->P * z->Q * z->K), p = i / (z->Q * z->K) % z->P, q = i / z->K % z->Q, best = -1;
    for (int64_t tap = 0; tap < z->R * z->S; tap++) {
        int64_t h = p * z->stride - z->pad + tap / z->S, w = q * z->stride - z->pad + tap % z->S,
                from = ((n * z->H + h) * z->W + w) * z->C + i % z->K;
        if (h < 0 || h >= z->H || w < 0 || w >= z->W) continue;
        if (best < 0 || (!isnan(x[*at]) && (isnan(x[from]) || x[from] > x[*at]))) best = tap, *at = from;
    }
    return best;
}

void ref_batch_norm_apply(double *y, const double *x, const double *mean, const double *rstd, const double *gain,
                          const double *bias, const double *residual, bool relu, int64_t M, int64_t C) {
    for (int64_t i = 0; i < M * C; i++) {
        int64_t c = i % C;
        y[i] = (x[i] - mean[c]) * rstd[c] * gain[c] + bias[c] + (residual ? residual[i] : 0);
        if (relu && y[i] <= 0) y[i] = 0;
    }
}

void ref_batch_norm_back_sums(double *sums, const double *dy, const double *x, const double *y, const double *mean,
                              int64_t M, int64_t C) {
    memset(sums, 0, (size_t)(2 * C) * sizeof *sums);
    for (int64_t i = 0; i < M * C; i++) {
        double g = !y || y[i] > 0 ? dy[i] : 0;
        sums[i % C] += g, sums[C + i % C] += g * (x[i] - mean[i % C]);
    }
}

void ref_batch_norm_back(double *dx, double *g, const double *dy, const double *x, const double *y, const double *mean,
                         const double *rstd, const double *gain, const double *sums, double rows, int64_t M,
                         int64_t C) {
    for (int64_t i = 0; i < M * C; i++) {
        int64_t c = i % C;
        double d = !y || y[i] > 0 ? dy[i] : 0, h = (x[i] - mean[c]) * rstd[c];
        if (g) g[i] = d;
        dx[i] = gain[c] * rstd[c] * (d - sums[c] / rows - h * rstd[c] * sums[C + c] / rows);
    }
}
