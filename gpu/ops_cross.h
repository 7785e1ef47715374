// gpu/ops_cross.h: attention of one text's queries to the keys of another, or of its own, with a bias by distance
// (Raffel et al. 2020). The words are those of gpu/ops.h, which includes this.
//
// A text has Tq queries and sees Tk keys. Key j is at distance d = j - i from query i, so there are Tq + Tk - 1
// distances; element d + Tq - 1 of a row of them belongs to d.
#ifndef GPU_OPS_CROSS_H
#define GPU_OPS_CROSS_H

#include "gpu/gpu.h"

#ifndef DEVICE_FN
#define DEVICE_FN static inline
#endif

enum { DISTANCE_BUCKETS = 64 };  // at most so many

// Distances share buckets (Raffel et al. 2020, section 2.1, and their code). With `both` the first half of them is for
// keys up to the query, the other half for those after it. Else keys after the query count as distance 0. Of a half,
// the first buckets have one distance each, as many as the others, which divide those up to `most` in equal ratios; the
// last one has all beyond.
typedef struct distance_map {
    int half;  // buckets of a direction
    bool both;
    int32_t start[DISTANCE_BUCKETS];  // the least distance of each
} distance_map;

// start[k]: the least a with (a/e)^q >= (most/e)^p, e single distances and q = half - e other buckets, p = k - e. With
// e a power of two both sides are exact where they can be equal.
static inline int32_t distance_start(int exact, int others, int k, int64_t most) {
    double ratio = 1;
    int64_t low = exact, high = most;
    for (int i = 0; i < k - exact; i++) ratio *= (double)most / exact;
    while (low < high) {
        int64_t a = low + (high - low) / 2;
        double power = 1;
        for (int i = 0; i < others; i++) power *= (double)a / exact;
        if (power >= ratio) high = a;
        else low = a + 1;
    }
    return (int32_t)low;
}

static inline distance_map distance_map_of(int64_t buckets, bool both, int64_t most) {
    distance_map m = {.half = (int)(both ? buckets / 2 : buckets), .both = both, .start = {0}};
    int exact = m.half / 2;
    for (int k = 0; k < m.half; k++)
        m.start[k] = k < exact || exact == 0 ? k : distance_start(exact, m.half - exact, k, most);
    return m;
}

DEVICE_FN int distance_bucket(const distance_map *m, int64_t d) {
    int64_t a = d < 0 ? -d : m->both ? d : 0;
    int k = m->half - 1;
    while (k > 0 && a < m->start[k]) k--;
    return k + (m->both && d > 0 ? m->half : 0);
}

// The bias of each distance: that of its bucket.
typedef struct distance_bias_forward_args {
    tensor *bias;         // (S,H,Tq+Tk-1) FP32 (=)
    const tensor *table;  // (buckets,S*H) E, or of several slices (S,buckets,H)
    int64_t queries;      // Tq
    bool both;
    int64_t most;
} distance_bias_forward_args;

// dtable += of each bucket the sum over its distances, ascending, of the sum over the samples of a slice, in order. One
// FP32 addition after the other, from +0.
typedef struct distance_bias_backward_args {
    tensor *dtable;       // as table, FP32 (+=)
    tensor *sums;         // (S,H,Tq+Tk-1) FP32 (=)  scratch: the sums over samples
    const tensor *parts;  // (S*B,H,Tq+Tk-1) FP32: cross_attention_backward's
    int64_t queries;
    bool both, fresh;
    int64_t most;
} distance_bias_backward_args;

// y = softmax(scale * q k^T + bias) v, per head. A row of kv holds H heads of k side by side, then H of v. A query sees
// the sample's first lengths[b] keys; causal: of these those up to its own position. A length below 1 counts as 1, and
// one above Tk as Tk. Where B is several slices of the heads, of `samples` samples each, each slice has its own bias,
// and lengths are those of the samples. All is computed in FP32, and rounded to E at the end.
//
// The queries may be some of a longer text: query i is then at position first + i, from which distances count. A bias
// may be one of P queries, first + Tq of them or more: element d + P - 1 of a row belongs to distance d. What no query
// sees is not read, so keys that a growing text does not have yet may be anything. A row of y has the same bits,
// however many queries come with it, and whatever P and Tk are.
typedef struct cross_attention_forward_args {
    tensor *y;           // (B,Tq,H*D) E (=)
    tensor *lse;         // (B,H,Tq) FP32 (=)  log-sum-exp of each row, saved for backward
    const tensor *q;     // (B,Tq,H*D) E
    const tensor *kv;    // (B,Tk,2*H*D) E
    const tensor *bias;  // (S,H,P+Tk-1) FP32; NULL: none
    int heads;
    float scale;
    bool causal;
    int64_t first;            // position of the first query; 0 with dropout
    const tensor *lengths;    // (samples) INT32; NULL: Tk
    const dropout_key *drop;  // acts on the probabilities, element (h*Tq + i)*Tk + j of a sample; NULL: none
    int64_t samples;          // of a slice; 0: there is one slice
    int first_head;           // h of the first head, for dropout: as attention_forward's
} cross_attention_forward_args;

typedef struct cross_attention_backward_args {
    tensor *dq, *dkv;      // (B,Tq,H*D), (B,Tk,2*H*D) E (=)
    tensor *parts;         // (B,H,Tq+Tk-1) FP32 (=)  the gradient of the bias, of each sample; NULL: not wanted
    tensor *delta;         // (B,H,Tq) FP32 (=)  scratch: row sums of dy * y
    const tensor *dy, *y;  // (B,Tq,H*D) E
    const tensor *lse, *q, *kv, *bias;
    int heads;
    float scale;
    bool causal;
    const tensor *lengths;
    const dropout_key *drop;
    int64_t samples;
    int first_head;
} cross_attention_backward_args;

#endif
