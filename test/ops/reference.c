// test/ops/reference.c: see reference.h. The C library's exp, log and tanh are welcome here: these values are compared
// with a tolerance, and the operations' own functions must not vouch for themselves.
#include "test/ops/reference.h"

#include "base/philox.h"
#include "test/ops/op_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void ref_matmul(double *d, const double *a, bool ta, const double *b, bool tb, int64_t M, int64_t N, int64_t K) {
    memset(d, 0, (size_t)(M * N) * sizeof *d);
    for (int64_t m = 0; m < M; m++)
        for (int64_t k = 0; k < K; k++) {
            double x = ta ? a[k * M + m] : a[m * K + k];
            for (int64_t n = 0; n < N; n++) d[m * N + n] += x * (tb ? b[n * K + k] : b[k * N + n]);
        }
}

void ref_column_sums(double *y, const double *x, int64_t N, int64_t C) {
    memset(y, 0, (size_t)C * sizeof *y);
    for (int64_t n = 0; n < N; n++)
        for (int64_t c = 0; c < C; c++) y[c] += x[n * C + c];
}

static double gelu_inner(double x) { return sqrt(2 / M_PI) * (x + 0.044715 * x * x * x); }

double ref_gelu(double x) { return 0.5 * x * (1 + tanh(gelu_inner(x))); }

double ref_gelu_grad(double x) {
    double t = tanh(gelu_inner(x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

double ref_gelu_erf(double x) { return 0.5 * x * erfc(-x / sqrt(2)); }
double ref_gelu_erf_grad(double x) { return 0.5 * erfc(-x / sqrt(2)) + x * exp(-x * x / 2) / sqrt(2 * M_PI); }

void ref_layer_norm_forward(double *y, double *mean, double *rstd, const double *x, const double *w, const double *b,
                            double eps, int64_t N, int64_t C) {
    for (int64_t n = 0; n < N; n++) {
        const double *row = x + n * C;
        double sum = 0, squares = 0;
        for (int64_t c = 0; c < C; c++) sum += row[c];
        mean[n] = sum / (double)C;
        for (int64_t c = 0; c < C; c++) squares += (row[c] - mean[n]) * (row[c] - mean[n]);
        rstd[n] = 1 / sqrt(squares / (double)C + eps);
        for (int64_t c = 0; c < C; c++) y[n * C + c] = (row[c] - mean[n]) * rstd[n] * w[c] + b[c];
    }
}

// With h = (x - mean) rstd and g = dy w:  dx = rstd (g - mean(g) - h mean(g h)).
void ref_layer_norm_backward(double *dx, double *dw, double *db, const double *dy, const double *dresidual,
                             const double *x, const double *w, const double *mean, const double *rstd, int64_t N,
                             int64_t C) {
    memset(dw, 0, (size_t)C * sizeof *dw);
    memset(db, 0, (size_t)C * sizeof *db);
    for (int64_t n = 0; n < N; n++) {
        double g_mean = 0, gh_mean = 0;
        for (int64_t c = 0; c < C; c++) {
            double h = (x[n * C + c] - mean[n]) * rstd[n], dyc = dy[n * C + c];
            g_mean += dyc * w[c] / (double)C;
            gh_mean += dyc * w[c] * h / (double)C;
            dw[c] += dyc * h;
            db[c] += dyc;
        }
        for (int64_t c = 0; c < C; c++) {
            double h = (x[n * C + c] - mean[n]) * rstd[n];
            dx[n * C + c] =
                rstd[n] * (dy[n * C + c] * w[c] - g_mean - h * gh_mean) + (dresidual ? dresidual[n * C + c] : 0);
        }
    }
}

void ref_rms_norm_forward(double *y, double *rstd, const double *x, const double *w, double shift, double eps,
                          int64_t N, int64_t C) {
    for (int64_t n = 0; n < N; n++) {
        double squares = 0;
        for (int64_t c = 0; c < C; c++) squares += x[n * C + c] * x[n * C + c];
        rstd[n] = 1 / sqrt(squares / (double)C + eps);
        for (int64_t c = 0; c < C; c++) y[n * C + c] = x[n * C + c] * rstd[n] * (shift + w[c]);
    }
}

// With h = x rstd and g = dy (shift + w):  dx = rstd (g - h mean(g h)).
void ref_rms_norm_backward(double *dx, double *dw, const double *dy, const double *dresidual, const double *x,
                           const double *w, double shift, const double *rstd, int64_t N, int64_t C) {
    memset(dw, 0, (size_t)C * sizeof *dw);
    for (int64_t n = 0; n < N; n++) {
        const double *row = x + n * C, *d = dy + n * C;
        double mean = 0;
        for (int64_t c = 0; c < C; c++) {
            mean += d[c] * (shift + w[c]) * row[c] * rstd[n] / (double)C;
            dw[c] += d[c] * row[c] * rstd[n];
        }
        for (int64_t c = 0; c < C; c++)
            dx[n * C + c] =
                rstd[n] * (d[c] * (shift + w[c]) - row[c] * rstd[n] * mean) + (dresidual ? dresidual[n * C + c] : 0);
    }
}

double ref_keep(const dropout_key *drop, uint32_t b, int64_t e) {
    if (!drop) return 1;
    uint32_t word[4];
    philox4x32(word, drop->seed, (uint32_t)(e / 4), drop->site, drop->first_sample + b, drop->step);
    return word[e % 4] < (double)drop->p * 0x1p32 ? 0 : 1 / (1 - (double)drop->p);
}

int64_t ref_attention_row(const ref_attention *s) { return s->C + 2 * (s->KV ? s->KV : s->H) * (s->C / s->H); }

// Element d of what query head h meets of q, k or v (part 0, 1, 2) at (b,t).
static int64_t at(const ref_attention *s, int64_t b, int64_t t, int part, int64_t h) {
    int64_t KV = s->KV ? s->KV : s->H, head = part == 0 ? h : s->H + (part - 1) * KV + h / (s->H / KV);
    return (b * s->T + t) * ref_attention_row(s) + head * (s->C / s->H);
}

// The first key that position i sees.
static int64_t sees(const ref_attention *s, int64_t b, int64_t i) {
    int64_t from = s->window && i >= s->window ? i - s->window + 1 : 0;
    return s->places ? (int64_t)fmax((double)from, (double)i - s->places[b * s->T + i]) : from;
}

// One past the last.
static int64_t sees_to(const ref_attention *s, int64_t b, int64_t i) {
    if (!s->all) return i + 1;
    return s->lengths ? (int64_t)fmax(1, fmin(s->lengths[b], (double)s->T)) : s->T;
}

static double score(const double *qkv, const ref_attention *s, int64_t b, int64_t h, int64_t i, int64_t j) {
    const double *q = qkv + at(s, b, i, 0, h), *k = qkv + at(s, b, j, 1, h);
    double sum = 0;
    for (int64_t d = 0; d < s->C / s->H; d++) sum += q[d] * k[d];
    return sum / sqrt((double)(s->C / s->H));
}

void ref_attention_forward(double *y, double *lse, const double *qkv, const ref_attention *s) {
    int64_t D = s->C / s->H, T = s->T;
    double *scores = malloc((size_t)T * sizeof *scores);  // of one position
    memset(y, 0, (size_t)(s->B * T * s->C) * sizeof *y);
    for (int64_t b = 0; b < s->B; b++)
        for (int64_t h = 0; h < s->H; h++)
            for (int64_t i = 0; i < T; i++) {
                int64_t from = sees(s, b, i), to = sees_to(s, b, i);
                double most = -INFINITY, sum = 0, *out = &y[(b * T + i) * s->C + h * D];
                for (int64_t j = from; j < to; j++) most = fmax(most, scores[j] = score(qkv, s, b, h, i, j));
                for (int64_t j = from; j < to; j++) sum += exp(scores[j] - most);
                double l = lse[(b * s->H + h) * T + i] = most + log(sum);
                for (int64_t j = from; j < to; j++) {
                    double p = exp(scores[j] - l) * ref_keep(s->drop, (uint32_t)b, (h * T + i) * T + j);
                    const double *v = &qkv[at(s, b, j, 2, h)];
                    for (int64_t d = 0; d < D; d++) out[d] += p * v[d];
                }
            }
    free(scores);
}

// Dao 2023, algorithm 2, without its blocks: p = exp(s - lse), dp = dy . v (masked), ds = p (dp - delta), delta = dy .
// y.
void ref_attention_backward(double *dqkv, double *delta, const double *dy, const double *y, const double *lse,
                            const double *qkv, const ref_attention *s) {
    int64_t D = s->C / s->H, T = s->T;
    memset(dqkv, 0, (size_t)(s->B * T * ref_attention_row(s)) * sizeof *dqkv);
    for (int64_t b = 0; b < s->B; b++)
        for (int64_t h = 0; h < s->H; h++)
            for (int64_t i = 0; i < T; i++) {
                int64_t row = (b * T + i) * s->C + h * D, stat = (b * s->H + h) * T + i;
                double sum = 0;
                for (int64_t d = 0; d < D; d++) sum += dy[row + d] * y[row + d];
                delta[stat] = sum;
                int64_t q = at(s, b, i, 0, h), to = sees_to(s, b, i);
                for (int64_t j = sees(s, b, i); j < to; j++) {
                    int64_t k = at(s, b, j, 1, h), v = at(s, b, j, 2, h);
                    double keep = ref_keep(s->drop, (uint32_t)b, (h * T + i) * T + j);
                    double p = exp(score(qkv, s, b, h, i, j) - lse[stat]), dp = 0;
                    for (int64_t d = 0; d < D; d++) dp += dy[row + d] * qkv[v + d];
                    double ds = p * (dp * keep - sum) / sqrt((double)D);
                    for (int64_t d = 0; d < D; d++) dqkv[q + d] += ds * qkv[k + d];
                    for (int64_t d = 0; d < D; d++) dqkv[k + d] += ds * qkv[q + d];
                    for (int64_t d = 0; d < D; d++) dqkv[v + d] += p * keep * dy[row + d];
                }
            }
}

void ref_cross_entropy(double *losses, double *dlogits, const double *logits, const double *targets, double scale,
                       double smoothing, int64_t N, int64_t V, int64_t Vp) {
    for (int64_t n = 0; n < N; n++) {
        const double *x = logits + n * Vp;
        double most = -INFINITY, sum = 0;
        for (int64_t v = 0; v < V; v++) most = fmax(most, x[v]);
        for (int64_t v = 0; v < V; v++) sum += exp(x[v] - most);
        bool counts = targets[n] >= 0;
        losses[n] = 0;
        for (int64_t v = 0; v < Vp; v++) {
            double share = ((int64_t)targets[n] == v ? 1 - smoothing : 0) + smoothing / (double)V;
            if (counts && v < V && share > 0) losses[n] += share * (most + log(sum) - x[v]);
            if (dlogits) dlogits[n * Vp + v] = counts && v < V ? (exp(x[v] - most) / sum - share) * scale : 0;
        }
    }
}

// The definition, word by word: everything here is exact in double.
double ref_stochastic(dtype type, double x, const rounding_key *key, int64_t e, int64_t t) {
    const int digits = type == BF16 ? 8 : 11, quantum = type == BF16 ? -133 : -24;
    const double most = type == BF16 ? 0x1.fep127 : 65504, a = fabs(x);
    uint64_t n = (uint64_t)(key->first + e);
    uint32_t word[4];
    int exponent;
    if (!isfinite(x) || a > most) return storage_round(type, x);
    philox4x32(word, key->seed, (uint32_t)(n / 4), key->site, (uint32_t)(n >> 34), (uint32_t)t);
    frexp(a, &exponent);
    double gap = ldexp(1, exponent - digits > quantum ? exponent - digits : quantum), low = floor(a / gap) * gap;
    double f = (a - low) / gap, u = (word[n % 4] >> 8) * 0x1p-24;
    return copysign(f >= 1 - u ? low + gap : low, x);
}

void ref_adamw(double *master, double *m, double *v, const double *grad, double grad_factor, double lr, int64_t t,
               const adamw_rules *r, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double g = grad[i] * grad_factor;
        m[i] = r->beta1 * m[i] + (1 - r->beta1) * g;
        v[i] = r->beta2 * v[i] + (1 - r->beta2) * g * g;
        double m_hat = m[i] / (1 - pow(r->beta1, (double)t)), v_hat = v[i] / (1 - pow(r->beta2, (double)t));
        master[i] = master[i] * (1 - lr * r->weight_decay) - lr * m_hat / (sqrt(v_hat) + r->eps);
    }
}

void ref_sgd(double *master, double *buf, const double *grad, double grad_factor, double ratio, double lr,
             const sgd_rules *r, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double d = ratio * (grad[i] * grad_factor + r->weight_decay * master[i]);
        if (buf) {
            buf[i] = r->momentum * buf[i] + d;
            d = r->nesterov ? d + r->momentum * buf[i] : buf[i];
        }
        master[i] -= lr * d;
    }
}
