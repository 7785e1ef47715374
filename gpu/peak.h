// gpu/peak.h: measures a device's peak rates, with which a measured speed is compared.
#ifndef GPU_PEAK_H
#define GPU_PEAK_H

#include "gpu/ops.h"

// Bytes/s between the device and its own memory, of tensors far larger than any cache: on a CPU a = b + c, on a GPU a
// copy. 0: no room. Sizes are divided by `scale`, for tests.
double peak_bandwidth(device *d, stream *s, int64_t scale);

// Elements/s that are coded, and read from codes and added, of tensors as peak_bandwidth's. 0: no room.
typedef struct peak_codec {
    double encoded, decoded;
} peak_codec;
peak_codec peak_codes(device *d, stream *s, codec c, int64_t scale);
// The same where the `kept` largest elements of each chunk are coded (gpu/ops.h: encode_sparse).
peak_codec peak_largest(device *d, stream *s, int64_t kept, int64_t scale);

// FLOP/s of fused multiply-adds on registers alone, on `threads` threads of this processor. 0: not known.
double peak_fma(int threads);

// The same of products of BF16 pairs, by the processor's own instruction. 0: it has none, or FMAs are quicker.
double peak_pairs(int threads);

// FLOP/s of a matrix product n x n x n of zeros, with which a GPU needs less power and clocks higher than with data. 0:
// no room.
double peak_matmul(device *d, stream *s, dtype t, int64_t n);

// The same, quickly: sizes are doubled until a product takes long enough to be timed well, or `seconds` are spent,
// which one more product may exceed. 0: not known.
double peak_matmul_within(device *d, stream *s, dtype t, double seconds);

#endif
