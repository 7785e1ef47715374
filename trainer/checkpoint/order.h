// trainer/checkpoint/order.h: the order in which the elements of a tensor are stored, in a state and in its files.
//
// A tensor that ranks divide along one of its axes is stored slice after slice, and each slice is row-major: then what
// a rank has is one range. A tensor of shape (2, 6) in 3 slices of axis 1:
//
//   logical   0  1 |  2  3 |  4  5        stored   0  1  6  7 |  2  3  8  9 |  4  5 10 11
//             6  7 |  8  9 | 10 11
//
// Of a matrix that is several ones, one below the other (ckpt_split.rows), a slice has its share of each. A matrix of
// (4, 3), (2, 3) in 2 slices of axis 0 is stored as rows 0 1 4 | 2 3 5.
//
// Numbers of elements count in stored order unless they are called logical. One slice: both orders are the same. Chunks
// begin anew with each slice, so that ranks that share a tensor by slices never share a chunk.
#ifndef TRAINER_CHECKPOINT_ORDER_H
#define TRAINER_CHECKPOINT_ORDER_H

#include "trainer/checkpoint/checkpoint.h"

typedef struct ckpt_order {
    int64_t slices;
    int64_t each;                // elements of a slice; where there are fewer, of the first ones
    int64_t all;                 // elements of the tensor
    int64_t run;                 // elements that follow each other in both orders
    int64_t share[CKPT_SHARES];  // of several matrices: elements of a slice that are of each; then `run` is unused
} ckpt_order;

// As in ckpt_tensor. split NULL: equal shares.
ckpt_order order_of(int dims, const int64_t *size, int axis, int slices, const ckpt_split *split);
static inline ckpt_order ckpt_order_of(const ckpt_tensor *t) {
    return order_of(t->dims, t->size, t->axis, t->slices, &t->split);
}
// Are these a shape with elements, and slices of it?
bool order_is_possible(int dims, const int64_t *size, int axis, int slices, const ckpt_split *split);
bool order_equal(const ckpt_order *a, const ckpt_order *b);

static inline int64_t ckpt_chunks(int64_t elements) { return (elements + CHUNK - 1) / CHUNK; }

// Number of the chunk that element k begins or lies in; for k = all elements, the number of all chunks.
static inline int64_t order_chunk(const ckpt_order *o, int64_t k) {
    int64_t in = k % o->each;
    return k / o->each * ckpt_chunks(o->each) + (k == o->all ? ckpt_chunks(in) : in / CHUNK);
}
// May a part begin or end before element k?
static inline bool order_may_cut(const ckpt_order *o, int64_t k) { return k % o->each % CHUNK == 0 || k == o->all; }
// Elements from k to the end of its slice, and of the chunk that begins at k.
static inline int64_t order_left(const ckpt_order *o, int64_t k) {
    int64_t end = k - k % o->each + o->each;
    return (end < o->all ? end : o->all) - k;
}
static inline int64_t order_chunk_size(const ckpt_order *o, int64_t k) {
    return order_left(o, k) < CHUNK ? order_left(o, k) : CHUNK;
}

// Elements from k on that are read or written at once: at most 1 MiB, large enough for any disk and small enough to be
// digested from the cache, of one slice, before `end`.
enum { ORDER_PIECE = 16 * CHUNK };
static inline int64_t order_piece(const ckpt_order *o, int64_t k, int64_t end) {
    int64_t n = order_left(o, k) < end - k ? order_left(o, k) : end - k;
    return n < ORDER_PIECE ? n : ORDER_PIECE;
}

// The logical number of stored element k. *run (=): so many from there on follow each other in both orders.
int64_t order_logical(const ckpt_order *o, int64_t k, int64_t *run);
// The inverse.
int64_t order_stored(const ckpt_order *o, int64_t logical, int64_t *run);

// Copies those of the elements k .. k+n-1 at x, which are in order o, that t has, to their places in t, whose order may
// be another.
err_t order_copy(const ckpt_order *o, int64_t k, int64_t n, const float *x, const ckpt_tensor *t);
// Does t have any of them?
bool order_overlaps(const ckpt_order *o, int64_t k, int64_t n, const ckpt_tensor *t);

#endif
