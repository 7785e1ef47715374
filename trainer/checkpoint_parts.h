// trainer/checkpoint_parts.h: a state that is dealt to ranks: who has which part of which tensor, and how the digests of all chunks come
// together. Also the few things that the ranks of a checkpoint say to each other; alone all of them are nothing.
#ifndef TRAINER_CHECKPOINT_PARTS_H
#define TRAINER_CHECKPOINT_PARTS_H

#include "trainer/manifest.h"

// --- the ranks of a state ------------------------------------------------------------------------------------------------------

static inline bool ckpt_alone(const ckpt_state *s) { return !s || !s->ranks || s->ranks->world == 1; }
static inline int ckpt_rank(const ckpt_state *s) { return ckpt_alone(s) ? 0 : s->ranks->rank; }
static inline int ckpt_world(const ckpt_state *s) { return ckpt_alone(s) ? 1 : s->ranks->world; }
static inline int ckpt_node(const ckpt_state *s) { return ckpt_alone(s) ? 0 : s->ranks->place[s->ranks->rank].node; }
static inline int ckpt_nodes(const ckpt_state *s) { return ckpt_alone(s) ? 1 : comm_nodes(s->ranks); }
// The first rank of its node: the one that touches the node's directories.
static inline bool ckpt_leads(const ckpt_state *s) { return ckpt_alone(s) || s->ranks->place[s->ranks->rank].local == 0; }
int ckpt_leader_of(const ckpt_state *s, int node);
int ckpt_ranks_of(const ckpt_state *s, int node);

// The ranks can't talk any more. Then nobody knows what the others know, and nobody undoes anything.
bool ckpt_cut_off(const ckpt_state *s);

// Collective. ERR_OK when all are; otherwise the lowest failed rank's error, on all.
err_t ckpt_agree(const ckpt_state *s, err_t mine);
err_t ckpt_broadcast(const ckpt_state *s, void *data, size_t bytes, int root);
err_t ckpt_exchange(const ckpt_state *s, const comm_part *send, int sends, const comm_part *recv, int recvs);
// Collective. *all: the ranks' bytes one after the other, rank r's at (*cut)[r] .. (*cut)[r+1]. The caller frees both, also after a failure.
err_t ckpt_gather(const ckpt_state *s, const void *mine, size_t bytes, void **all, size_t **cut);
// Collective. root's text on all ranks, NUL behind it. The caller frees *text on all ranks but root.
err_t ckpt_broadcast_text(const ckpt_state *s, char **text, size_t *size, int root);
// Collective. value[count] (=) largest of the ranks'.
err_t ckpt_largest(const ckpt_state *s, int32_t *value, size_t count);

// --- parts and chunks ----------------------------------------------------------------------------------------------------------

typedef struct ckpt_span { int64_t first, count; } ckpt_span;

typedef struct ckpt_work {
    const ckpt_state *of;       // its ranks
    int rank, world, groups, params;
    ckpt_span *span;            // [group][rank][param]
    int64_t *base;              // [params + 1]: number of the first chunk of each tensor; last: of all chunks
    size_t *cut;                // [group][world + 1]: where a rank's digests are in `gathered`, in bytes
    uint8_t *mine[GROUPS];      // digests of the chunks of this rank's parts, tensor after tensor
    uint8_t *gathered, *chunk;  // of all chunks of one group: rank after rank, and in order of tensors
} ckpt_work;

static inline int64_t ckpt_chunks(int64_t elements) { return (elements + CKPT_CHUNK - 1) / CKPT_CHUNK; }

static inline const ckpt_span *work_span(const ckpt_work *w, int group, int rank, int param) {
    return &w->span[((size_t)group * (size_t)w->world + (size_t)rank) * (size_t)w->params + (size_t)param];
}

// s->work, or, alone, one of its own, which work_close_own removes again.
err_t work_open(ckpt_work **w, const ckpt_state *s);
void work_close_own(ckpt_work *w, const ckpt_state *s);

// Digests of this rank's parts of a group into w->mine.
void work_digest(ckpt_work *w, int group, const ckpt_tensor *t);
// Collective. w->chunk (=) the digests of all chunks of a group, from everybody's w->mine.
err_t work_gather(ckpt_work *w, int group);
// Of what work_gather gathered: elements first .. first+count-1 of tensor i; and the whole group.
void work_part_digest(const ckpt_work *w, int i, int64_t first, int64_t count, uint8_t out[CKPT_DIGEST]);
void work_group_digest(const ckpt_work *w, const ckpt_tensor *t, uint8_t out[CKPT_DIGEST]);

#endif
