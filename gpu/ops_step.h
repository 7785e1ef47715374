// gpu/ops_step.h: what a step keeps and decides on the device, and the operations on gradients, masters and what
// optimizers keep. The words are those of gpu/ops.h, which includes this.
#ifndef GPU_OPS_STEP_H
#define GPU_OPS_STEP_H

#include "gpu/gpu.h"

enum { CHUNK = 16384 };  // elements: the unit in which tensors are distributed, normed and hashed; never divided

// Stochastic rounding to BF16 and FP16: element e of a call is element first + e of its tensor, and a number between
// two neighbours of the type goes to either, the more likely the nearer it is (Gupta et al., "Deep learning with
// limited numerical precision", 2015, section 3), so that the mean of what is stored is the number itself. Exactly: |x|
// lies a share f, 0 <= f < 1, of the way from its neighbour towards zero to the one away from it, subnormals included,
// and goes to the latter when f + u >= 1, with u = (word >> 8) * 2^-24 and
//     word = philox(seed; n / 4 mod 2^32, site, n / 2^34, t mod 2^32)[n % 4],  n = first + e,  t = state->updates
// which is the number of the update that makes x. The probability is f wherever f is a multiple of 2^-24, which it is
// but for |x| < 2^-24 in FP16; there it is the next one below. What the type can hold stays as it is. Beyond the
// largest number of the type there is no neighbour: there, and for NaN, to nearest even, so that chance makes no
// infinity.
typedef struct rounding_key {
    uint64_t seed;
    uint32_t site;
    int64_t first;  // a multiple of ROUNDING_ALIGN
} rounding_key;
enum { ROUNDING_ALIGN = 64 };

// State of a run, in the memory of the device that decides the step, so that no host round trip is needed.
typedef struct step_state {
    float lr;            // written before each step by the schedule
    int32_t apply;       // decided: 1 update, 0 skip (not finite, or an outlier)
    float grad_factor;   // decided: unscaling times clipping, multiplies every gradient
    float loss_scale;    // dynamic loss scaler
    double grad_norm;    // decided: of the unscaled sum, before clipping; not finite when skipped
    int64_t updates;     // updates applied
    int64_t good_steps;  // since the scale last changed
    int64_t skipped;     // steps skipped
    double norm_mean;    // of the norms of applied steps, as step_rules says; stays 0 without skip_norm
    int64_t norms;       // how many it is of, at most NORMS_MOST
} step_state;

// A number that an optimizer keeps for the whole run, in the same memory: a power, a count, a running mean. Each update
// that is applied makes it factor * value + addend, product and sum each rounded.
typedef struct step_scalar {
    double value, factor, addend;
} step_scalar;

typedef struct step_rules {
    double grad_clip;    // largest norm, 0: no clipping
    bool dynamic_scale;  // halve on overflow, double after scale_window good steps; else the scale never changes
    int64_t scale_window;
    double skip_norm;  // a norm above so many times norm_mean is an outlier; 0: none is
    int islands;       // whose gradients' sums of squares follow each other: the norm is the root of their mean. 0: 1
} step_rules;

// The mean of norms: of the first NORMS_MOST the plain one, then each new one moves it by 1/NORMS_MOST of what it is
// away from it. Before NORMS_LEAST are known nothing is an outlier.
enum { NORMS_LEAST = 16, NORMS_MOST = 128 };

// weight_decay 0 for tensors without decay. lr_factor: the learning rate is so many times that of the step; 0: 1
typedef struct adamw_rules {
    double beta1, beta2, eps, weight_decay, lr_factor;
} adamw_rules;
typedef struct sgd_rules {
    double momentum, weight_decay;
    bool nesterov;
    double lr_factor;
    double factor;  // multiplies the gradient instead of state->grad_factor; 0: that does
} sgd_rules;
typedef struct lars_rules {
    double trust, weight_decay, eps;
} lars_rules;

// sums[c] = sum of squares of chunk c of g, in double, in 8 interleaved accumulators (element i of the chunk goes to
// accumulator i % 8) that are added as a fixed tree ((0+4)+(2+6))+((1+5)+(3+7)). Not finite when an element is not.
typedef struct sum_squares_args {
    tensor *sums;     // (ceil(count / CHUNK)) FP64 (=)
    const tensor *g;  // FP32
} sum_squares_args;

// Decides the step on the device: norm = sqrt(sum of sums, in order) / loss_scale; apply = finite and no outlier; the
// clip factor; the counts, the loss scale and the optimizer's scalars. What is skipped changes none of these but the
// count of skipped steps and, where it is not finite, the loss scale. sums may be several tensors' sums, one after the
// other in name-table order. Where some losses don't count, the gradient was formed as if each of `losses` had the same
// share of their mean. Of those that count each has more: norm and gradient are divided by (sum of counts) / losses. A
// step in which none counts is skipped; its norm is NaN, and the loss scale stays.
//
// When a rank is lost, a transport may abort its queued calls: they end with wrong numbers in their buffers, and the
// stream goes on. So a step is applied only if each rank's word has arrived with the sums (ended), and if no abort had
// begun when the sums were complete (revoked). Both are needed: an aborted sum can pass either one alone. Otherwise
// apply = 0, and nothing else is changed.
typedef struct step_decide_args {
    step_state *state;
    const tensor *sums;    // FP64
    const tensor *counts;  // FP64, whole numbers: of each sample; NULL: all losses count
    int64_t losses;        // of the step, with counts
    const step_rules *rules;
    step_scalar *scalars;  // (scalar_count) (+=), on the device
    int scalar_count;
    int ranks, apart;        // ended (ranks, apart): the first number of each row is at least 1. ranks = 0: alone
    const double *ended;     // on the device
    const int32_t *revoked;  // on the device, read after all sums: 0. NULL: the transport skips what follows a failure
} step_decide_args;

// Nothing when !state->apply. Otherwise, with g = grad * grad_factor and t = state->updates (Loshchilov & Hutter 2019,
// algorithm 2):
//   m = beta1 m + (1-beta1) g;  v = beta2 v + (1-beta2) g^2;  master = master (1 - lr wd) - lr m' / (sqrt(v') + eps);
//   w = master rounded to E, where w is not NULL: to nearest even, or, where round is not NULL, stochastically to BF16
//   or FP16.
// FMA where written, IEEE division and square root: the same on every device.
typedef struct adamw_args {
    tensor *w;               // E or NULL
    tensor *master, *m, *v;  // FP32 (+=)
    const tensor *grad;      // FP32
    const step_state *state;
    const step_scalar *power;  // beta1^t and beta2^t, on the device
    const adamw_rules *rules;
    const rounding_key *round;
} adamw_args;

// lr is state->lr * lr_factor, here and below, rounded to double for adamw and to FP32 for sgd.
// Nothing when !state->apply. Otherwise, with g = ratio * (grad * grad_factor + wd * master) (Sutskever et al. 2013,
// section 2, as PyTorch's torch.optim.SGD writes it, without dampening; ratio: You et al. 2017):
//   buf = momentum buf + g, from buf = 0;  d = nesterov ? g + momentum buf : buf;  master = master - lr d;
//   w as adamw's. Without momentum there is no buf, and d = g.
// wd * master, momentum * buf and lr * d are each added in one FMA: the same on every device.
typedef struct sgd_args {
    tensor *w;           // E or NULL
    tensor *master;      // FP32 (+=)
    tensor *buf;         // FP32 (+=); NULL where rules->momentum is 0
    const tensor *grad;  // FP32
    const step_state *state;
    const float *ratio;  // on the device; NULL: 1
    const sgd_rules *rules;
    const rounding_key *round;
} sgd_args;

// Nothing when !state->apply. Otherwise, of each row of weights (You, Gitman & Ginsburg 2017, equation 6):
//   ratio = trust |w| / (|g| + wd |w| + eps), or 1 where |w| or |g| is 0
// |w| and |g| are the roots of sums of squares, at[r] .. at[r+1]-1 of those of chunks, added in order; |g| is times
// grad_factor: of the gradient as the update takes it. In double, and rounded once: the same on every device. Where the
// sums of `weights` are 0, as in rows that do not decay, the ratio is 1; also in a row without chunks.
typedef struct lars_ratio_args {
    tensor *ratio;                  // (R) FP32 (=)
    const tensor *at;               // (R+1) INT32, ascending
    const tensor *grads, *weights;  // FP64: sums of squares of chunks, rows in order
    const step_state *state;
    const lars_rules *rules;
} lars_ratio_args;

// What Muon orthogonalises (Jordan et al. 2024, as torch.optim.Muon writes it): with g = grad * grad_factor
//   m = momentum m + (1-momentum) g;  d = momentum m + (1-momentum) g
// (1-momentum) g is one product, and each sum with it one FMA: the same on every device. When !state->apply, m stays
// and d is 0.
typedef struct muon_direction_args {
    tensor *d;           // FP32 (=), may be grad itself
    tensor *m;           // FP32 (+=), from 0
    const tensor *grad;  // FP32
    const step_state *state;
    double momentum;  // 0 <= momentum < 1
} muon_direction_args;

// x = x / max(|x|, eps), |x| = the root of sums, added in order in double; the factor is rounded to FP32 once.
typedef struct normalize_args {
    tensor *x;           // FP32, in place
    const tensor *sums;  // (ceil(count / CHUNK)) FP64: of its squares, as sum_squares leaves them
    double eps;
} normalize_args;

#endif
