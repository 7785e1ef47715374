// gpu/ops_codes.h: operations that write gradients in codes of fewer bits, or the largest of their elements, and read
// them, or weights. The words are those of gpu/ops.h, which includes this.
#ifndef GPU_OPS_CODES_H
#define GPU_OPS_CODES_H

#include "base/words.h"
#include "gpu/ops_step.h"

// How gradients are written for slow wires: fewer bits an element, and a scale for each span of a chunk.
#define CODEC_WORDS(X) \
    X(CODEC_NONE, "none") \
    X(CODEC_FP16, "fp16") \
    X(CODEC_INT8, "int8") \
    X(CODEC_INT4, "int4")
typedef enum codec { CODEC_WORDS(WORD_ENUM) } codec;

// 15 values are few: so few elements share their scale that most of them are not far below the largest.
enum { CODEC_INT4_SPAN = 64 };
static inline int64_t codec_span(codec c) { return c == CODEC_INT4 ? (int64_t)CODEC_INT4_SPAN : (int64_t)CHUNK; }

// Bytes of n elements: scales (FP32) of their spans, then codes, each followed by zeros up to a multiple of 16 bytes.
static inline size_t codec_scales(codec c, int64_t n) {
    return (size_t)((n + codec_span(c) - 1) / codec_span(c) * 4 + 15) / 16 * 16;
}
static inline size_t codec_codes(codec c, int64_t n) {
    return c == CODEC_INT4 ? (size_t)(n + 1) / 2 : c == CODEC_INT8 ? (size_t)n : 2 * (size_t)n;
}
static inline size_t codec_bytes(codec c, int64_t n) { return codec_scales(c, n) + (codec_codes(c, n) + 15) / 16 * 16; }

// Writes x, and what earlier calls left out of theirs, in codes; what these leave out is left in `residual` for the
// next call (error feedback: Seide et al., "1-bit stochastic gradient descent", 2014). With s = state->loss_scale, a
// span at a time, each operation rounded to FP32 where it is not exact:
//     v = x + residual * s,  m = the largest |v|
//     INT8   scale = m / 127,        code = v * (127 / m), to nearest even: -127 .. 127
//     INT4   scale = m / 7,          code = v * (7 / m), to nearest even: -7 .. 7, in two's complement; the first of a
//                                    byte's two is in its lower half
//     FP16   scale = 2^(e-14) with 2^e <= m < 2^(e+1),    code = v / scale as FP16, to nearest even
//     residual = (v - code * scale) * (1 / s)
// So a residual is of the gradient itself, and survives a change of s, which is a power of two. Where m < CODEC_LEAST
// the scale is 0, and so are codes: all of v stays in residual. Where m is not finite the scale is NaN, and residual
// stays as it is: a step with such a span is skipped.
#define CODEC_LEAST 0x1p-96f
typedef struct encode_args {
    tensor *wire;      // (codec_bytes(codec, n)) UINT8 (=)
    tensor *residual;  // (n) FP32, read and (=)
    const tensor *x;   // (n) FP32
    codec codec;
    const step_state *state;  // NULL: s = 1
} encode_args;

// y[i] = code * scale, the product rounded to FP32, or with `add` y[i] + that, rounded again
typedef struct decode_args {
    tensor *y;           // (n) FP32 (=), or (+=)
    const tensor *wire;  // (codec_bytes(codec, n)) UINT8
    codec codec;
    bool add;
} decode_args;

// y[i] = round_E(code[i] * scale[i / WIDEN_GROUP]), the product rounded to FP32: weights that are kept in 8 bits
enum { WIDEN_GROUP = 64 };
typedef struct widen_args {
    tensor *y;             // (n) E (=), any shape; n is a multiple of WIDEN_GROUP
    const tensor *codes;   // (n) UINT8, each an integer from -127 to 127 in two's complement
    const tensor *scales;  // (n / WIDEN_GROUP) FP32
} widen_args;

// Elements that a chunk of n sends where whole chunks send `kept` of theirs, 1 <= kept <= CHUNK: the same share,
// rounded up, so at least 1.
static inline int64_t sparse_of_chunk(int64_t n, int64_t kept) { return (n * kept + CHUNK - 1) / CHUNK; }
static inline int64_t sparse_kept(int64_t n, int64_t kept) {
    return n / CHUNK * kept + sparse_of_chunk(n % CHUNK, kept);
}
// Bytes of n elements: the values that are sent (FP32), then where in its chunk each is (16 bits), a chunk after the
// other, each followed by zeros up to a multiple of 16 bytes.
static inline size_t sparse_values(int64_t n, int64_t kept) {
    return ((size_t)sparse_kept(n, kept) * 4 + 15) / 16 * 16;
}
static inline size_t sparse_bytes(int64_t n, int64_t kept) {
    return sparse_values(n, kept) + ((size_t)sparse_kept(n, kept) * 2 + 15) / 16 * 16;
}

// Writes the largest elements of what has gathered, for SGD with momentum (Lin et al., "Deep gradient compression",
// 2018, section 3: momentum correction and factor masking; Nesterov's as in its authors' code). With s =
// state->loss_scale, each operation rounded to FP32:
//     g = x * (1 / s), or with `clip` x * clip->grad_factor
//     velocity = momentum * velocity + g
//     d = velocity, or with `nesterov` g + momentum * velocity
//     residual = residual + d
// Of each chunk the sparse_of_chunk() elements whose |residual| is largest are sent, of equal ones those with the lower
// index, in ascending order: residual * s is their value, and 0 is left of their velocity and residual. So both are of
// the gradient itself, and survive a change of s, which is a power of two. Where an element is not finite, or would not
// be as it is sent, the chunk's values are NaN, at its first indices, and velocity and residual stay as they are: a
// step with such a chunk is skipped.
typedef struct encode_sparse_args {
    tensor *wire;                 // (sparse_bytes(n, kept)) UINT8 (=)
    tensor *velocity, *residual;  // (n) FP32, read and (=)
    const tensor *x;              // (n) FP32
    int64_t kept;                 // of CHUNK
    float momentum;
    bool nesterov;
    const step_state *state;  // NULL: s = 1
    const step_state *clip;   // decided for this lane by itself; NULL: it is not clipped
} encode_sparse_args;

// y[i] += value, where there is one. Indices beyond their chunk, which no encoder writes, add nothing.
typedef struct decode_sparse_args {
    tensor *y;           // (n) FP32 (+=)
    const tensor *wire;  // (sparse_bytes(n, kept)) UINT8
    int64_t kept;
} decode_sparse_args;

#endif
