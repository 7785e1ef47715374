// trainer/step/tied.c: see trainer/step/tied.h.
#include "trainer/step/tied.h"

static comm *link_of(train_state *t) { return t->lent >= 0 || t->borrowed >= 0 ? t->o.tie : NULL; }

static int segment_of(const train_state *t, int row) {
    int g = 0;
    while (t->zero.segment[g].first != row) g++;
    return g;
}

// The range that both owners have; all of it where every rank updates all.
static void range_of(const train_state *t, int row, size_t *first, size_t *count) {
    int g = segment_of(t, row);
    const size_t *cut = &t->zero.cut[(size_t)g * (size_t)(t->zero.world + 1) + (size_t)t->zero.rank];
    *first = t->shards.masters ? cut[0] : 0;
    *count = t->shards.masters ? cut[1] - cut[0] : t->zero.segment[g].count;
}

static int row_of(const train_state *t) { return t->lent >= 0 ? t->lent : t->borrowed; }

// The one who borrows sends its sum, and the owner adds it to its own.
static err_t add_piece(train_state *t, comm *link, const zero_piece *p, stream *s) {
    tensor own = state_gradient(t, p), from = t->use;
    if (t->borrowed >= 0) return comm_send(link, 1 - link->rank, own.data, tensor_bytes(&own), s);
    from.size[0] = p->count;
    TRY(comm_recv(link, 1 - link->rank, from.data, tensor_bytes(&from), s));
    return device_ops(t->dev)->add(&(add_args){.y = &own, .a = &own, .b = &from}, s);
}

// A divided tensor has a piece for each slice. Both owners hold the same pieces, in the same order.
err_t tied_gradients(train_state *t, stream *s) {
    comm *link = link_of(t);
    int count;
    const zero_piece *p = state_pieces(t, &count);
    if (!link) return ERR_OK;
    link->phase = (comm_phase){"add the gradients of tied tensors", -1, -1};
    for (int i = 0; i < count; i++)
        if (p[i].row == row_of(t)) TRY(add_piece(t, link, &p[i], s));
    return ERR_OK;
}

// Where this rank has the first of these values, which it has just updated.
static char *lent_values(train_state *t, int row, size_t first) {
    int g = segment_of(t, row);
    size_t at = t->weights.sharded ? t->zero.shard_at[g] : t->zero.segment[g].at + first;
    return (char *)t->weights.t.data + at * dtype_bytes(t->o.compute);
}

err_t tied_values(train_state *t, stream *s) {
    comm *link = link_of(t);
    size_t first, count, element = dtype_bytes(t->o.compute);
    if (!link) return ERR_OK;
    range_of(t, row_of(t), &first, &count);
    link->phase = (comm_phase){"send the values of tied tensors", -1, -1};
    if (t->lent >= 0)
        return count ? comm_send(link, 1 - link->rank, lent_values(t, t->lent, first), count * element, s) : ERR_OK;
    if (count) TRY(comm_recv(link, 1 - link->rank, (char *)t->copy.data + first * element, count * element, s));
    if (!t->shards.masters || t->ranks->world == 1) return ERR_OK;
    return t->ranks->table->all_gather(t->ranks, t->copy.data, state_cuts(t, segment_of(t, t->borrowed), element), s);
}

static comm_cost cost_of_gradients(train_state *t, const comm *link) {
    int count, messages = 0;
    const zero_piece *p = state_pieces(t, &count);
    for (int i = 0; i < count; i++) messages += p[i].row == t->borrowed;
    return cost_send(link, 1 - link->rank, state_count_of(t, t->borrowed) * (int64_t)sizeof(float), messages);
}

tied_costs tied_cost(train_state *t) {
    comm *link = link_of(t);
    size_t first, count, element = dtype_bytes(t->o.compute);
    tied_costs sum = {0};
    if (!link) return sum;
    range_of(t, row_of(t), &first, &count);
    sum.link = t->lent >= 0 ? cost_send(link, 1 - link->rank, (int64_t)(count * element), count > 0)
                            : cost_of_gradients(t, link);
    if (t->borrowed >= 0 && t->shards.masters)
        sum.gather = cost_all_gather(t->ranks, state_cuts(t, segment_of(t, t->borrowed), element));
    return sum;
}
