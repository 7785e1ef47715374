// trainer/checkpoint/parts.h: a state that is dealt to ranks: which rank has which part of which tensor, and how the
// digests of all chunks are gathered.
#ifndef TRAINER_CHECKPOINT_PARTS_H
#define TRAINER_CHECKPOINT_PARTS_H

#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/order.h"
#include "trainer/checkpoint/ranks.h"

typedef struct ckpt_span {
    int64_t first, count;
} ckpt_span;  // as in ckpt_tensor
typedef struct ckpt_turn {
    int64_t first;
    int rank;
} ckpt_turn;

typedef struct ckpt_work {
    const ckpt_state *of;  // its ranks
    int rank, world, groups, params;
    ckpt_order *order;          // [params]
    ckpt_span *span;            // [group][rank][param]
    ckpt_turn *turn;            // [world] of one tensor: see work_turns
    int64_t *base;              // [params + 1]: number of the first chunk of each tensor; last: of all chunks
    size_t *cut;                // [group][world + 1]: where a rank's digests are in `gathered`, in bytes
    uint8_t **mine;             // [group]: digests of the chunks that this rank has, tensor after tensor
    uint8_t *gathered, *chunk;  // of all chunks of one group: rank after rank, and in order of tensors
} ckpt_work;

static inline const ckpt_span *work_span(const ckpt_work *w, int group, int rank, int param) {
    return &w->span[((size_t)group * (size_t)w->world + (size_t)rank) * (size_t)w->params + (size_t)param];
}

// w->turn (=) the ranks that have something of a tensor, in the order in which it is stored. Returns how many.
int work_turns(const ckpt_work *w, int group, int param);

// Returns s->work, or, alone, makes a temporary one, which work_close_own frees.
err_t work_open(ckpt_work **w, const ckpt_state *s);
void work_close_own(ckpt_work *w, const ckpt_state *s);

// Digests of what this rank has of a group into w->mine.
err_t work_digest(ckpt_work *w, int group, const ckpt_tensor *t);
// Collective. w->chunk (=) the digests of all chunks of a group, from w->mine of all ranks.
err_t work_gather(ckpt_work *w, int group);
// After work_gather: the digest of elements first .. first+count-1 of tensor i, and of the whole group.
void work_part_digest(const ckpt_work *w, int i, int64_t first, int64_t count, uint8_t out[CKPT_DIGEST]);
void work_group_digest(const ckpt_work *w, const ckpt_tensor *t, uint8_t out[CKPT_DIGEST]);

#endif
