// trainer/checkpoint/ranks.h: the few messages between the ranks of a checkpoint; alone, none is sent.
#ifndef TRAINER_CHECKPOINT_RANKS_H
#define TRAINER_CHECKPOINT_RANKS_H

#include "trainer/checkpoint/checkpoint.h"

static inline bool ckpt_alone(const ckpt_state *s) { return !s || !s->ranks || s->ranks->world == 1; }
static inline int ckpt_rank(const ckpt_state *s) { return ckpt_alone(s) ? 0 : s->ranks->rank; }
static inline int ckpt_world(const ckpt_state *s) { return ckpt_alone(s) ? 1 : s->ranks->world; }
static inline int ckpt_node(const ckpt_state *s) { return ckpt_alone(s) ? 0 : s->ranks->place[s->ranks->rank].node; }
static inline int ckpt_nodes(const ckpt_state *s) { return ckpt_alone(s) ? 1 : comm_nodes(s->ranks); }
// The first rank of its node: the one that touches the node's directories.
static inline bool ckpt_leads(const ckpt_state *s) {
    return ckpt_alone(s) || s->ranks->place[s->ranks->rank].local == 0;
}
int ckpt_leader_of(const ckpt_state *s, int node);
int ckpt_ranks_of(const ckpt_state *s, int node);

// Can the ranks no longer communicate? Then no rank knows what the others know, and none undoes anything.
bool ckpt_cut_off(const ckpt_state *s);
// Local. ERR_OK, or why they no longer can.
err_t ckpt_query(const ckpt_state *s);

// Collective. ERR_OK if `mine` is on all ranks; otherwise the lowest failed rank's error, on all.
err_t ckpt_agree(const ckpt_state *s, err_t mine);
err_t ckpt_broadcast(const ckpt_state *s, void *data, size_t bytes, int root);
err_t ckpt_exchange(const ckpt_state *s, const comm_part *send, int sends, const comm_part *recv, int recvs);
// Collective. Rank r's bytes, data[cut[r] .. cut[r+1]], are sent to all.
err_t ckpt_all_gather(const ckpt_state *s, void *data, const size_t *cut);
// Collective. *all: the ranks' bytes one after the other, rank r's at (*cut)[r] .. (*cut)[r+1]. The caller frees both,
// also after a failure.
err_t ckpt_gather(const ckpt_state *s, const void *mine, size_t bytes, void **all, size_t **cut);
// Collective. Copies root's text to all ranks, with a NUL after it. The caller frees *text on all ranks but root.
err_t ckpt_broadcast_text(const ckpt_state *s, char **text, size_t *size, int root);
// Collective. value[count] (=) the largest over the ranks, element by element.
err_t ckpt_largest(const ckpt_state *s, int32_t *value, size_t count);

#endif
