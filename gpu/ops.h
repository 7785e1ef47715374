// gpu/ops.h: every operation the trainer needs, once. Two implementations: cpu/ (the specification) and cuda/.
//
// Alphabet   B batch  T time  C channels  H heads  D head size  F hidden  V vocabulary  N rows = B*T  M,N,K of a matrix
//            product. Of images: N images of H rows of W pixels of C channels, K filters of R x S taps, results of P
//            rows of Q pixels
// Order      outputs, saved for backward, inputs, sizes, stream
// Gradients  d<name>; (=) overwrites, (+=) accumulates. Gradients of weights are FP32 and (+=): the operation sums its
//            own contribution from zero first and adds it once, so that a lane's gradient is a sum over micro-batches
//            (or, of a head, over its chunks of rows), in order. Where `fresh` is set they are (=) instead: what they
//            held is garbage, and is not read.
// Types      "E" (element) below is the compute type of the run: FP32, BF16 or FP16, the same for all tensors marked E.
//            Other types are as written. Arithmetic is FP32 for every storage type.
// Async      queued on `s`; results are the host's only after an event or stream_wait()
// Returns    ERR_OK or a code; err_last() says what was expected, what was found, and a hint. Shapes that do not fit
//            are a programmer's mistake and asserted.
// Bits       each output element is summed in an order fixed by the shapes alone, never by threads or vector width.
#ifndef GPU_OPS_H
#define GPU_OPS_H

#include "gpu/ops_codes.h"
#include "gpu/ops_images.h"
#include "gpu/ops_step.h"

// Dropout: element e of sample b is dropped when philox(seed; e / 4, site, first_sample + b, step)[e % 4] < p * 2^32,
// what stays is scaled by 1 / (1-p). The mask is never stored: backward draws it again. e counts within the sample,
// row-major over the tensor's other dimensions; for attention e = (h*T + i)*T + j with T the row length of this call.
typedef struct dropout_key {
    uint64_t seed;
    uint32_t step, first_sample, site;
    float p;             // 0 <= p < 1
    const uint32_t *at;  // on the device: step and first_sample, read at run time (for recordings); NULL: the above
} dropout_key;

#include "gpu/ops_cross.h"

enum { MATMUL_BIAS = 1, MATMUL_GELU = 2, MATMUL_DGELU = 4, MATMUL_ACCUMULATE = 8 };

// --- operations: a struct of named arguments each. Omitted arguments are NULL, false or 0. ---------------------------

// d = epilogue(op(a) op(b)); op transposes a if ta, b if tb.
//   MATMUL_BIAS        + bias
//   MATMUL_GELU        pre = sum + bias, rounded to E from the FP32 sum; d = gelu(pre), of the rounded value, as the
//                      unfused pair would
//   MATMUL_DGELU       d = round_E(sum) * gelu'(pre), pre is read: the same bits as the unfused pair
//   MATMUL_ACCUMULATE  d is FP32 and (+=): the whole sum over k is formed first and added once
// gelu is the tanh form (Hendrycks & Gimpel 2016), or with `erf` x times the normal distribution's share below x.
// A matrix of three dimensions, (S,r,c), is one of (r,S*c) whose columns are cut into S slices, each of them dense: so
// what belongs to a slice is a matrix of its own, and so are the rows of a slice of a matrix of two dimensions, one
// slice below the other. Where k is cut, in a or in both, S is a power of two: each slice is summed as the whole would
// be, and the sums are added along a binary tree, ((0+1)+(2+3)), before the epilogue. Elsewhere slices change no bit. A
// GPU may choose its algorithm by them.
// A row of d has the same bits whatever other rows of a are multiplied with it, as long as `rows` is the same: a device
// may choose its algorithm by `rows`, never by M.
typedef struct matmul_args {
    // (M,N) or (S,M,N/S) E (=), or FP32 with MATMUL_ACCUMULATE; with E = BF16/FP16 d may also be FP32 (=)
    tensor *d;
    tensor *pre;      // as d, E (=), or read
    const tensor *a;  // (M,K) or (S,M,K/S) E, or (K,M) or (S,K,M/S) if ta
    bool ta;
    const tensor *b;  // (K,N) or (S,K,N/S) E, or (N,K) or, where a's k is cut, (S,N,K/S) if tb
    bool tb;
    const tensor *bias;  // (N) E
    // (M,N) E, or NULL: d, another tensor of type E, = round_E(sum (+ bias) + residual). No epilogue but BIAS
    const tensor *residual;
    tensor *partials;  // (S,M,N) FP32, scratch, where k is cut and the device is a GPU
    // (N) FP32 (+=), slice after slice, or NULL: with DGELU, the column sums of d as it is stored
    tensor *dbias;
    bool fresh;    // dbias is (=)
    int64_t rows;  // of the whole batch of which a's rows are a part; 0: M. Not with ta
    unsigned epilogue;
    bool erf;  // the form of GELU and DGELU
} matmul_args;

static inline int64_t matrix_slices(const tensor *t) { return t->dims == 3 ? t->size[0] : 1; }
static inline int64_t matrix_rows(const tensor *t) { return t->size[t->dims - 2]; }
static inline int64_t matrix_columns(const tensor *t) { return matrix_slices(t) * t->size[t->dims - 1]; }

// Slices of k.
static inline int64_t matmul_slices(const matmul_args *args) { return args->ta ? 1 : matrix_slices(args->a); }

// dbias = column sums of dy
typedef struct bias_backward_args {
    tensor *dbias;     // (C) FP32 (+=)
    const tensor *dy;  // (N,C) or (S,N,C/S) E
    bool fresh;
} bias_backward_args;

// Causal self-attention, softmax(q k^T / sqrt(D)) v per head, without a T x T matrix (Dao et al. 2022; Dao 2023).
// A row of qkv holds the position's heads side by side, each of D elements: H of q, KV of k, KV of v. Query head h
// meets k and v of head h / (H / KV), which are not copied (Ainslie et al. 2023). With a window W a position sees
// itself and the W - 1 before it. With `all` it is not causal: each position sees all of the sample's first lengths[b]
// positions, and no other (Vaswani et al. 2017). A length below 1 counts as 1, and one above T as T. Then KV = H, and
// there is no window.
// With `places` a sample is several documents, one after the other, and a position sees none but its own: of those
// before it the last places[b,t], which is its place in its document, from 0 on. t - places[b,t] never falls along a
// sample. A device may round probabilities, and in backward gradients of scores, to E before
// they are multiplied with rows of E, as tensor cores want them: each sum then errs by as much as its own storage
// would.
typedef struct attention_forward_args {
    tensor *y;          // (B,T,H*D) E (=)
    tensor *lse;        // (B,H,T) FP32 (=)  log-sum-exp of each row, saved for backward
    const tensor *qkv;  // (B,T,(H+2*KV)*D) E
    int heads;
    int kv_heads;             // KV, a divisor of H; 0: H
    int window;               // W; 0: a position sees all before it
    bool all;                 // a position sees those after it, too
    const tensor *lengths;    // with all: (B) INT32, of each sample; NULL: T
    const tensor *places;     // without all: (B,T) INT32, or (samples,T); NULL: a sample is one document
    const dropout_key *drop;  // acts on the probabilities; NULL: none
    // For dropout, where B is several slices of the heads, of so many samples each, one after the other: head h of
    // sample b of slice s is head first_head + s * H + h of sample b. 0: one slice
    int64_t samples;
    int first_head;
} attention_forward_args;

// The same attention for a text that grows: n positions that follow `first` earlier ones, whose keys and values are
// kept. Those of the new positions are kept first; then each sees what came before it, and itself. Row i of y depends
// on nothing else: it has the same bits whether the positions come one by one, in parts or all at once. On a CPU these
// are the bits of attention_forward; a GPU sums in an order of its own.
typedef struct attention_past_args {
    tensor *y;  // (n,H*D) E (=)
    // (at least first+n, 2*KV*D) E: a position's keys, then its values. Rows before `first` are read, `n` rows from
    // there (=)
    tensor *past;
    const tensor *qkv;            // (n,(H+2*KV)*D) E
    int heads, kv_heads, window;  // as attention_forward's
    int64_t first;
} attention_past_args;

typedef struct attention_backward_args {
    tensor *dqkv;          // (B,T,(H+2*KV)*D) E (=)
    tensor *delta;         // (B,H,T) FP32 (=)  scratch: row sums of dy * y
    const tensor *dy, *y;  // (B,T,H*D) E
    const tensor *lse, *qkv;
    int heads, kv_heads, window;
    bool all;
    const tensor *lengths, *places;
    const dropout_key *drop;
    int64_t samples;
    int first_head;  // as attention_forward's
} attention_backward_args;

// sum = x + residual, rounded to E (both may be NULL: then sum is x itself); y = (sum - mean) * rstd * w + b    (Ba et
// al. 2016)
typedef struct layer_norm_forward_args {
    tensor *y;               // (N,C) E (=)
    tensor *mean, *rstd;     // (N) FP32 (=)  saved for backward; rstd = 1 / sqrt(var + eps)
    tensor *sum;             // (N,C) E (=) or NULL
    const tensor *x;         // (N,C) E
    const tensor *residual;  // (N,C) E or NULL
    const tensor *w, *b;     // (C) E
    float eps;
} layer_norm_forward_args;

// dx = gradient through the norm, + dresidual where given (the gradient that flows past the norm). x is what was
// normalised. Both are the gradients of two layers' outputs: their column sums, those layers' bias gradients, cost no
// further reading here.
typedef struct layer_norm_backward_args {
    tensor *dx;               // (N,C) E (=), may be dresidual itself
    tensor *dw, *db;          // (C) FP32 (+=)
    tensor *dx_sums;          // (C) FP32 (+=), or NULL: column sums of dx as it is stored
    tensor *dresidual_sums;   // (C) FP32 (+=), or NULL: of dresidual
    const tensor *dy;         // (N,C) E
    const tensor *dresidual;  // (N,C) E or NULL
    const tensor *x;          // (N,C) E
    const tensor *w, *mean, *rstd;
    bool fresh;  // of dw, db and the sums
} layer_norm_backward_args;

// y = x * rstd * (shift + w), rstd = 1 / sqrt(mean(x^2) + eps)    (Zhang & Sennrich 2019, eq. 4)
// Where shift is 0 it is not added: w stays as it is, -0 too.
typedef struct rms_norm_forward_args {
    tensor *y;        // (N,C) E (=), may be x itself
    tensor *rstd;     // (N) FP32 (=)  saved for backward
    const tensor *x;  // (N,C) E
    const tensor *w;  // (C) E
    float eps, shift;
} rms_norm_forward_args;

// dx = gradient through the norm, + dresidual where given (the gradient that flows past the norm).
typedef struct rms_norm_backward_args {
    tensor *dx;               // (N,C) E (=), may be dresidual itself
    tensor *dw;               // (C) FP32 (+=)
    const tensor *dy;         // (N,C) E
    const tensor *dresidual;  // (N,C) E or NULL
    const tensor *x;          // (N,C) E
    const tensor *w, *rstd;
    float shift;
    bool fresh;  // of dw
} rms_norm_backward_args;

// RMS norm of each of some heads of a row, in place, by one weight for all of them (Dehghani et al. 2023, section 2.2:
// norms of queries and keys).
typedef struct head_norm_forward_args {
    tensor *x;        // (N,n*D) E, read and overwritten: heads first .. first+count-1 of n
    tensor *kept;     // (N,count*D) E (=)  what they were, saved for backward
    tensor *rstd;     // (N,count) FP32 (=)  saved for backward
    const tensor *w;  // (D) E
    int first;
    float eps, shift;
} head_norm_forward_args;
typedef struct head_norm_backward_args {
    tensor *dx;  // (N,n*D) E, in place: of those heads, the gradient of the result on entry, of x on return
    tensor *dw;  // (D) FP32 (+=)
    const tensor *kept, *rstd, *w;
    int first;
    float shift;
    bool fresh;  // of dw
} head_norm_backward_args;

// Rotary position embedding (Su et al. 2021), in place: in each of the first `heads` heads of position t, elements i
// and i + D/2 are turned by the angle i of row t, or of row places[b,t]. The heads after them stay as they are.
typedef struct rotary_args {
    tensor *x;             // (B,T,n*D) E, read and overwritten
    const tensor *table;   // (at least T,D) FP32: cosines of D/2 angles, then their sines
    const tensor *places;  // INT32, each a row of the table, of a divisor of B*T positions that repeat; NULL: t
    int heads;
    bool back;  // by the negative angles, which undoes it: what backward does to the gradient
} rotary_args;

// y = f(g) * u for the halves g and u of each row of x    (Shazeer 2020)
//   swiglu  f(g) = g / (1 + e^-g)
//   geglu   f = gelu, as below
typedef struct gated_forward_args {
    tensor *y;        // (N,F) E (=)
    const tensor *x;  // (N,2F) E: g, u
} gated_forward_args;
typedef struct gated_backward_args {
    tensor *dx;        // (N,2F) E (=), may be x itself
    const tensor *dy;  // (N,F) E
    const tensor *x;   // (N,2F) E
} gated_backward_args;
typedef gated_forward_args swiglu_forward_args, geglu_forward_args;
typedef gated_backward_args swiglu_backward_args, geglu_backward_args;

typedef struct gelu_forward_args {
    tensor *y;
    const tensor *x;
    bool erf;         // as matmul's
} gelu_forward_args;  // any shape, E
typedef struct gelu_backward_args {
    tensor *dx;
    tensor *dbias;  // (C) FP32 (+=), or NULL: column sums of dx as it is stored, C = its last dimension
    const tensor *dy, *x;
    bool fresh, erf;
} gelu_backward_args;  // dx (=) = dy * gelu'(x), dx may be dy

// y = x > 0 ? x : +0, and NaN for NaN; y may be x. Backward reads the output y, so that x need not be kept: dx (=) y >
// 0 ? dy : +0, dx may be dy.
typedef struct relu_forward_args {
    tensor *y;
    const tensor *x;
} relu_forward_args;  // any shape, E
typedef struct relu_backward_args {
    tensor *dx;
    const tensor *dy, *y;
} relu_backward_args;

// y = tanh(x); y may be x. Backward reads the output y: dx (=) dy * (1 - y*y), dx may be dy.
typedef struct tanh_forward_args {
    tensor *y;
    const tensor *x;
} tanh_forward_args;  // any shape, E
typedef struct tanh_backward_args {
    tensor *dx;
    const tensor *dy, *y;
} tanh_backward_args;

// y[b,m] = x[b,at[b,m]]: some rows of each sample. at NULL: its first M rows
typedef struct gather_rows_args {
    tensor *y;         // (B,M,C) E (=)
    const tensor *x;   // (B,T,C) E
    const tensor *at;  // (B,M) INT32, each in [0,T), or NULL
} gather_rows_args;

// Its gradient: dx[b,t] = the sum of dy[b,m] over the m with at[b,m] = t, m ascending from zero, rounded once; +0 where
// there is none
typedef struct scatter_rows_args {
    tensor *dx;        // (B,T,C) E (=)
    const tensor *dy;  // (B,M,C) E
    const tensor *at;  // as gather_rows'
} scatter_rows_args;

// x[b,t] = factor * wte[token[b,t]] + wpe[t], or wpe[places[b,t]]; wpe NULL: without it. Product and sum are rounded to
// FP32, then x to E. Of a part of a table, x of a token that is not in it is zero, all bits.
typedef struct embedding_forward_args {
    tensor *x;             // (B,T,C) E (=)
    const tensor *tokens;  // (B,T) INT32, each in [0,V)
    const tensor *wte;     // (V,C) E
    const tensor *wpe;     // (>=T,C) E, or NULL
    const tensor *places;  // (B,T) INT32, each a row of wpe; NULL: t
    float factor;          // not 0; 1: the table as it is, to the bit
    bool part;             // wte begins with the row of token `first`, and has only some of the rows
    int64_t first;
} embedding_forward_args;

// dwte[v] += factor * (sum of dx over positions with token v, in order of position); dwpe[t] += sum over b, in order,
// or by places as dwte by tokens
typedef struct embedding_backward_args {
    tensor *dwte, *dwpe;   // (V,C), (>=T,C) FP32 (+=); dwpe may be NULL
    tensor *scratch;       // (B*T + V + 1) INT32; with places V or the rows of dwpe, whichever are more
    const tensor *dx;      // (B,T,C) E
    const tensor *tokens;  // (B,T) INT32
    const tensor *places;  // as embedding_forward's
    float factor;          // as embedding_forward's
    bool fresh_wte, fresh_wpe;
    // dwte begins with the row of token `first`, and has only some of the rows: the gradients of others are not there
    bool part;
    int64_t first;
} embedding_backward_args;

// losses[n] = -log softmax(logits[n])[target[n]]; where scale is not NULL, logits are overwritten by their gradient
// (softmax - onehot) * *scale * state->loss_scale. A target < 0 has loss 0 and gradient 0.
// With smoothing e, onehot is 1 - e + e/V at the target and e/V elsewhere, and the loss is the cross entropy with that
// (Szegedy et al. 2016, section 7). Columns are not cut then.
// The first `classes` columns are classes. What the others hold, NaN included, changes no bit; their gradient is +0,
// always. Where columns are cut into slices (matmul_args), each slice's exponentials are summed as those of a whole row
// would be, and the sums are added along a binary tree, ((0+1)+(2+3)).
typedef struct cross_entropy_args {
    tensor *losses;           // (N) FP32 (=)
    tensor *logits;           // (N,Vp) or (S,N,Vp/S) E, in place
    const tensor *targets;    // (N) INT32, each < classes
    int64_t classes;          // V, 1 .. Vp
    const float *scale;       // host; NULL: losses only
    const step_state *state;  // device
    float smoothing;          // 0 <= e < 1
} cross_entropy_args;

// The same in three stages, for slices of which only some are here. What a stage leaves is to be made one with what it
// left elsewhere before the next: the largest `most`, the `logit` that is not zero, the sum of the `sum`s. With all
// slices here: the bits of cross_entropy.
typedef enum { LOGITS_TOP, LOGITS_SUM, LOGITS_LOSS } logits_stage;
typedef struct cross_entropy_part_args {
    logits_stage stage;
    tensor *losses;  // (N) FP32 (=) by LOGITS_LOSS
    // (N) FP32 (=) by LOGITS_TOP: the largest logit here, and the target's, or +0 where it is not here
    tensor *most, *logit;
    tensor *sum;             // (N) FP32 (=) by LOGITS_SUM: of e^(logit - most)
    tensor *logits;          // (S,N,W) E, in place: between stages it may hold something else
    const tensor *targets;   // (N) INT32
    int64_t classes, first;  // of all slices, those elsewhere included; the class of the first column here
    const float *scale;      // as in cross_entropy, the same in all stages
    const step_state *state;
} cross_entropy_part_args;

// hits[n] = 1 where column targets[n] is among the k largest of the first `classes` columns, of which the earlier comes
// first where several are equal, else 0. A row with a NaN among them has no largest, and a target outside of them is
// never one: 0. What the other columns hold changes nothing.
typedef struct top_k_args {
    tensor *hits;           // (N) FP64 (=)
    const tensor *logits;   // (N,Vp) E
    const tensor *targets;  // (N) INT32
    int64_t classes;        // V, 1 .. Vp
    int64_t k;              // 0: 1
} top_k_args;

// at[n] = minus the class of the first column of row n whose logit equals values[n], of the columns here, whose classes
// are first, first + 1, ... and below `classes`; minus FIRST_EQUAL_NONE: there is none, as where values[n] is NaN. So
// of several parts of the columns the largest is that of all. Numbers of classes are below 2^24, and exact.
enum { FIRST_EQUAL_NONE = 1 << 24 };
typedef struct first_equal_args {
    tensor *at;              // (N) FP32 (=)
    const tensor *logits;    // (N,Vp) or (S,N,W) E
    const tensor *values;    // (N) FP32
    int64_t classes, first;  // as in cross_entropy_part
} first_equal_args;

// losses[n] = (y - targets[n])^2, where y is the first column of outputs[n]. Where scale is not NULL, outputs are
// overwritten by their gradient: 2 (y - target) * (*scale * state->loss_scale) in the first column, +0 in the others,
// whatever they hold.
typedef struct squared_error_args {
    tensor *losses;           // (N) FP32 (=)
    tensor *said, *wanted;    // (N) FP64 (=): y, and its target; NULL: not asked for
    tensor *outputs;          // (N,Vp) E, in place
    const tensor *targets;    // (N) FP32
    const float *scale;       // host; NULL: losses only
    const step_state *state;  // device
} squared_error_args;

// means[b] = mean over t of losses[b,t], summed in double in order of t
typedef struct loss_means_args {
    tensor *means;         // (B) FP64 (=)
    const tensor *losses;  // (B,T) FP32
} loss_means_args;

// counts[b] = how many of targets[b,t] are not below 0: the losses of sample b that count
typedef struct count_targets_args {
    tensor *counts;         // (B) FP64 (=)
    const tensor *targets;  // (B,T) INT32
} count_targets_args;

// y = dropout(x), and dx = dropout(dy); y may be x. Dimension 0 is the sample.
typedef struct dropout_args {
    tensor *y;
    const tensor *x;
    const dropout_key *drop;
    uint32_t sample;  // x begins with this one of the key's samples, and has of each
    int64_t first;    // the elements from this one on, a multiple of 4
} dropout_args;

typedef struct add_args {
    tensor *y;
    const tensor *a, *b;
} add_args;  // y = a + b, rounded to y's type; all of one type; y may be a or b

// y[n, y_first + j] = round_E(factor * x[n, x_first + j]) for j < width; with add, of fma(factor, x, y). Other columns
// of y stay. y is not x.
typedef struct scale_columns_args {
    tensor *y;        // (N,at least y_first+width) E (=), or (+=)
    const tensor *x;  // (N,at least x_first+width) E
    int64_t width, y_first, x_first;
    float factor;
    bool add;
} scale_columns_args;

typedef struct cast_args {
    tensor *y;
    const tensor *x;
} cast_args;  // between FP32, BF16 and FP16, round to nearest even

// y = round(((part 0 + part 1) + (part 2 + part 3)) + bias + residual), siblings along a binary tree: what a matmul
// whose k is cut leaves, from its parts. Parts in FP64 have a sum in FP64, and nothing is added to it.
typedef struct sum_slices_args {
    tensor *y;               // (M,N) E, or FP32 without bias and residual (=)
    const tensor *parts;     // (S,M,N) FP32, S a power of two
    const tensor *bias;      // (N) E, or NULL
    const tensor *residual;  // (M,N) E, or NULL; may be y
    bool add;                // y is FP32 and (+=)
} sum_slices_args;

// y[e] = u - 1 with u = (word >> 8) * 2^-23 and word = philox(seed; e / 4 mod 2^32, 0, e / 2^34, 0)[e % 4]: uniform in
// [-1, 1), rounded to y's type. For operands of measurements: a product of zeros takes less power than one of numbers,
// and so runs faster.
typedef struct random_fill_args {
    tensor *y;  // any shape; FP32, BF16 or FP16 (=)
    uint64_t seed;
} random_fill_args;

// y = x, rounded as adamw or sgd rounded in the update that state->updates counted last: makes the same w again from
// the same master. To nearest even where it is 0: nothing was updated yet.
typedef struct cast_stochastic_args {
    tensor *y;        // BF16 or FP16 (=)
    const tensor *x;  // FP32
    const rounding_key *round;
    const step_state *state;
} cast_stochastic_args;

// How vectors interact (Naumov et al. 2019, section 2.1.3): of a sample v[0] = x and v[1] .. v[F], the rows,
//     y = x, and after it v[i] . v[j] for i = 1 .. F and j = 0 .. i-1, j fastest: C + F (F+1) / 2 elements
// A dot product is 16 sums of every 16th element, each an FMA after the other from +0, with zeros after the last
// element, and these added as (i, i+8), (i, i+4), (i, i+2), (0, 1).
enum { INTERACT_ROWS = 64 };  // most F
static inline int64_t interact_width(int64_t C, int64_t F) { return C + F * (F + 1) / 2; }
typedef struct interact_forward_args {
    tensor *y;           // (B, interact_width(C, F)) E (=)
    const tensor *x;     // (B,C) E
    const tensor *rows;  // (B,F,C) E
} interact_forward_args;

// dv[i] = the sum over all j but i, ascending, of dy[i,j] * v[j], each an FMA after the other; from +0, of x from its
// part of dy; rounded once
typedef struct interact_backward_args {
    tensor *dx;     // (B,C) E (=)
    tensor *drows;  // (B,F,C) E (=)
    const tensor *dy, *x, *rows;
} interact_backward_args;

// All operations. Tables, declarations, the profile's wrappers and names are made from this list. A new one is the
// last: the random inputs of a test's row follow its operation's number.
// clang-format off
#define OPS(X)                                                                                                          \
    X(matmul) X(bias_backward) X(attention_forward) X(attention_backward) X(layer_norm_forward) X(layer_norm_backward)  \
    X(gelu_forward) X(gelu_backward) X(relu_forward) X(relu_backward) X(embedding_forward) X(embedding_backward)        \
    X(cross_entropy) X(top_k) X(loss_means) X(dropout) X(add) X(cast) X(random_fill) X(cast_stochastic) X(sum_squares)  \
    X(step_decide) X(adamw) X(sgd) X(rms_norm_forward) X(rms_norm_backward) X(head_norm_forward) X(head_norm_backward)  \
    X(rotary) X(swiglu_forward) X(swiglu_backward) X(attention_past) X(cross_entropy_part) X(sum_slices)                \
    X(geglu_forward) X(geglu_backward) X(count_targets) X(conv_forward) X(conv_inputs) X(conv_weights)                  \
    X(max_pool_forward) X(max_pool_backward) X(mean_pool_forward) X(mean_pool_backward) X(batch_norm_sums)              \
    X(batch_norm_moments) X(batch_norm_apply) X(batch_norm_back_sums) X(batch_norm_back) X(pixels) X(average)  \
    X(lars_ratio) X(encode) X(decode) X(encode_sparse) X(decode_sparse) X(scale_columns)                  \
    X(tanh_forward) X(tanh_backward) X(gather_rows) X(scatter_rows) X(muon_direction) X(normalize)  \
    X(interact_forward) X(interact_backward) X(squared_error)  \
    X(distance_bias_forward) X(distance_bias_backward) X(cross_attention_forward) X(cross_attention_backward) X(widen)  \
    X(first_equal)
// clang-format on

typedef struct ops {
#define OP_ENTRY(op) err_t (*op)(const op##_args *args, stream *s);
    OPS(OP_ENTRY)
#undef OP_ENTRY
} ops;

#endif
