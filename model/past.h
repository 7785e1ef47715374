// model/past.h: the KV cache: keys and values are kept while a text grows, so that a new position costs one position.
//
//   KV slot 0   position 0  1  2  3  4  .  .  .  context-1    a row: the keys of KV heads, after they were turned, then
//   KV slot 1   position 0  1  .  .                           their values
//
// A slot has one text. When it ends, the next text gets the slot, says that it has 0 positions, and overwrites them.
//
// A model that says another text than it reads has two: of the text that grows, and of the one that it has read, which
// stays as it is.
#ifndef MODEL_PAST_H
#define MODEL_PAST_H

#include "model/model.h"

typedef struct past {
    tensor *layer;                        // [layers] (slices,kv_slots,T,2*KV*D) E
    int layers, slices, heads, kv_heads;  // slices of the heads, 0: one; heads of a slice
} past;

// For layers of so many heads, of which the first is block `first`; head: elements of one. Nothing if o->kv_slots is 0,
// nor for blocks that do not run here.
err_t past_plan(past *k, arena *a, const model_plan *o, int first, int layers, int64_t T, int64_t head);
void past_close(past *k);

// y (B*n,H*D) (=) attention of the pass's B samples, n new positions each. qkv (B*n,(H+2*KV)*D): theirs. With slices
// both are (slices,B*n,...). window: positions that one sees; 0: all.
err_t past_attend(const past *k, const pass *p, int layer, int window, const tensor *y, const tensor *qkv);

// Keeps the keys and values of the pass's B samples, n new positions each: kv (B*n,2*KV*D), with slices
// (slices,B*n,...).
err_t past_keep(const past *k, const pass *p, int layer, const tensor *kv);

// What a slot of a slice has kept: (T,2*KV*D).
tensor past_slot(const past *k, int layer, int64_t slice, int kv_slot);

// The position of sample b's first new token.
static inline int64_t past_first(const pass *p, int64_t b) { return p->past ? p->past[b].first : 0; }

#endif
