// trainer/checkpoint/digest.h: digests of weights, the same for the log, the checkpoint and `lockstep hash`.
//
// A tensor, or each slice of it, is cut into chunks of CHUNK elements and each chunk has its own BLAKE2b-256.
// Everything above is a digest of digests: each rank digests the chunks that it has, and sends only 32 bytes for each:
//
//   tensor = B(chunk digests)                                     stored in the manifest, finds damage by name
//   group  = B(for each tensor: name, dims, sizes, slices, chunk digests)  masters, and each array of the optimizer
//          (AdamW: m, v)
//   hash   = first 8 bytes of the masters' group
//   state  = B(groups, names and values of scalars, counters)     state_hash is its first 8 bytes
//
// A state of fewer than three groups is digested as one of three whose last ones have no tensors: so it was when every
// run had m and v.
#ifndef TRAINER_CHECKPOINT_DIGEST_H
#define TRAINER_CHECKPOINT_DIGEST_H

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/order.h"

#include <sodium.h>

typedef struct digest {
    crypto_generichash_state state;
} digest;

void digest_begin(digest *d);
void digest_put(digest *d, const void *bytes, size_t n);
void digest_end(digest *d, uint8_t out[CKPT_DIGEST]);

// Begins the next tensor of a group. The digests of its chunks follow.
void group_tensor(digest *group, const ckpt_tensor *t);

// The digests of the chunks of elements first .. first+count-1, which are at x: a range as in ckpt_tensor. Returns
// where the next digest belongs.
uint8_t *chunk_digests(const ckpt_order *o, int64_t first, int64_t count, const float *x, uint8_t *out);

// The same of the range of t, wherever it is. *out (=) where the next digest belongs.
err_t range_digests(const ckpt_tensor *t, uint8_t **out);

// The digest of a group of n tensors whose elements are all on this rank.
err_t group_digest(const ckpt_tensor *t, int n, uint8_t out[CKPT_DIGEST]);

// The digest of a state: put the digests of its groups, masters first, then its scalars; the end adds the counters.
typedef struct state_digest {
    digest d;
    int groups;  // so far
} state_digest;
void state_digest_begin(state_digest *x);
void state_digest_put(state_digest *x, const uint8_t group[CKPT_DIGEST]);
void state_digest_scalar(state_digest *x, const char *name, double value);
void state_digest_end(state_digest *x, const run_progress *at, uint8_t out[CKPT_DIGEST]);

// The first n bytes as 2n hex digits and a NUL.
void digest_hex(char *hex, const uint8_t *d, size_t n);

#endif
