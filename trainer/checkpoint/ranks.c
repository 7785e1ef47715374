// trainer/checkpoint/ranks.c: see trainer/checkpoint/ranks.h.
#include "trainer/checkpoint/ranks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int ckpt_leader_of(const ckpt_state *s, int node) {
    int r = 0;
    while (!ckpt_alone(s) && s->ranks->place[r].node != node) r++;
    return r;
}

int ckpt_ranks_of(const ckpt_state *s, int node) {
    int n = 0;
    for (int r = 0; r < ckpt_world(s); r++) n += ckpt_alone(s) || s->ranks->place[r].node == node;
    return n;
}

err_t ckpt_query(const ckpt_state *s) {
    if (ckpt_alone(s)) return ERR_OK;
    TRY(s->ranks->table->query(s->ranks));
    return s->ranks->host->table->query(s->ranks->host);
}

bool ckpt_cut_off(const ckpt_state *s) {
    err_record keep = *err_last();
    bool off = ckpt_query(s) != ERR_OK;
    err_restore(&keep);
    return off;
}

err_t ckpt_agree(const ckpt_state *s, err_t mine) { return ckpt_alone(s) ? mine : comm_agree_ok(s->ranks, mine, s->s); }

err_t ckpt_broadcast(const ckpt_state *s, void *data, size_t bytes, int root) {
    if (ckpt_alone(s)) return ERR_OK;
    comm *c = s->ranks->host;
    TRY(c->table->broadcast(c, data, bytes, root, s->s));
    return stream_wait(s->s);
}

err_t ckpt_exchange(const ckpt_state *s, const comm_part *send, int sends, const comm_part *recv, int recvs) {
    comm *c = s->ranks->host;
    TRY(c->table->exchange(c, send, sends, recv, recvs, s->s));
    return stream_wait(s->s);
}

err_t ckpt_all_gather(const ckpt_state *s, void *data, const size_t *cut) {
    if (ckpt_alone(s)) return ERR_OK;
    comm *c = s->ranks->host;
    TRY(c->table->all_gather(c, data, cut, s->s));
    return stream_wait(s->s);
}

err_t ckpt_largest(const ckpt_state *s, int32_t *value, size_t count) {
    if (ckpt_alone(s)) return ERR_OK;
    comm *c = s->ranks->host;
    TRY(c->table->all_reduce(c, value, count, INT32, REDUCE_MAX, s->s));
    return stream_wait(s->s);
}

// Gathers the lengths first. No rank may fail alone between the two gathers, or the others would wait: so the ranks
// agree that all have memory.
err_t ckpt_gather(const ckpt_state *s, const void *mine, size_t bytes, void **all, size_t **cut) {
    size_t world = (size_t)ckpt_world(s), rank = (size_t)ckpt_rank(s);
    *all = NULL;
    *cut = calloc(2 * world + 2, sizeof **cut);
    TRY(ckpt_agree(s, *cut ? ERR_OK : err_set(ERR_INTERNAL, "no memory for %zu ranks", world)));
    size_t *of = *cut + 1, *eight = *cut + world + 1;  // lengths are gathered where their sums will be
    for (size_t r = 0; r <= world; r++) eight[r] = r * sizeof *of;
    of[rank] = bytes;
    TRY(ckpt_all_gather(s, of, eight));
    for (size_t r = 0; r < world; r++) (*cut)[r + 1] += (*cut)[r];
    *all = malloc((*cut)[world] + 1);
    TRY(ckpt_agree(s, *all ? ERR_OK
                           : err_set(ERR_INTERNAL, "no memory for %zu bytes of %zu ranks", (*cut)[world], world)));
    if (bytes) memcpy((char *)*all + (*cut)[rank], mine, bytes);
    return ckpt_all_gather(s, *all, *cut);
}

err_t ckpt_broadcast_text(const ckpt_state *s, char **text, size_t *size, int root) {
    uint64_t n = *size;
    TRY(ckpt_broadcast(s, &n, sizeof n, root));
    bool other = ckpt_rank(s) != root;
    if (other) *text = malloc(n + 1);
    TRY(ckpt_agree(s, *text ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a text of %" PRIu64 " bytes", n)));
    TRY(ckpt_broadcast(s, *text, n, root));
    if (other) (*text)[n] = 0;
    *size = n;
    return ERR_OK;
}
