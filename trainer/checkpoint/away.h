// trainer/checkpoint/away.h: ranges of tensors, wherever they are: in memory, or where only functions reach them
// (ckpt_away). What reads a state to hash or save it, and what loads one, goes through these, piece by piece.
#ifndef TRAINER_CHECKPOINT_AWAY_H
#define TRAINER_CHECKPOINT_AWAY_H

#include "trainer/checkpoint/order.h"

#include <string.h>

// *x (=) elements k .. k+n-1 of the range of t, n <= ORDER_PIECE, valid until the next call.
static inline err_t away_get(const ckpt_tensor *t, int64_t k, int64_t n, const float **x) {
    *x = t->away ? t->away->room : t->data + k;
    return t->away ? t->away->get(t->away->ctx, t, k, n, t->away->room) : ERR_OK;
}

// Sets them, n <= ORDER_PIECE.
static inline err_t away_put(const ckpt_tensor *t, int64_t k, int64_t n, const float *x) {
    if (t->away) return t->away->put(t->away->ctx, t, k, n, x);
    memcpy(t->data + k, x, (size_t)n * sizeof *x);
    return ERR_OK;
}

#endif
