// test/support/padding.h: rows of a table that no token has, in all that a rank holds: they are zero.
#ifndef TEST_SUPPORT_PADDING_H
#define TEST_SUPPORT_PADDING_H

#include "trainer/session/session.h"

#include <inttypes.h>

static err_t expect_zeros(const char *what, const tensor *t, size_t from, size_t count) {
    const unsigned char *p = (const unsigned char *)t->data + from * dtype_bytes(t->type);
    for (size_t i = 0; i < count * dtype_bytes(t->type); i++)
        if (p[i]) return err_set(ERR_INTERNAL, "the padding of %s is not zero: byte %zu is 0x%02x", what, i, p[i]);
    return ERR_OK;
}

// Of a row: where it begins in a slab, and in this rank's shard; how much it is, and how much of it is this rank's.
typedef struct padding {
    int row;
    size_t whole, shard, count, owned;
} padding;

static padding padding_of(const session *x, int row) {
    const zero_layout *z = &x->state.zero;
    const param *p = &x->net->param[row];
    size_t n = (size_t)(p->size[0] * p->size[1]);
    padding at = {row, z->row_at[row] + n, 0, (size_t)(p->rows_in_memory * p->size[1]) - n, 0};
    for (int i = 0; i < z->owned; i++) {
        const zero_piece *k = &z->piece[i];
        if (k->row != row || k->first + k->count != (int64_t)n) continue;
        at.shard = k->shard + (size_t)k->count;
        at.owned = z->shard_at[k->segment] + zero_range(z, k->segment, z->rank) - at.shard;
    }
    return at;
}

static err_t store_padding(const char *what, const store *x, const padding *p) {
    if (!x->t.data) return ERR_OK;
    return expect_zeros(what, &x->t, x->sharded ? p->shard : p->whole, x->sharded ? p->owned : p->count);
}

static err_t row_padding(const session *x, const padding *p) {
    const train_state *t = &x->state;
    const param *row = &x->net->param[p->row];
    size_t rows = (size_t)(row->size[0] * row->size[1]);
    bool here = t->o.stage < 3 || row->block >= x->net->blocks - 2 /* an evaluation was the last */,
         last = row->block == 0;
    if (here && t->w[p->row].data) TRY(expect_zeros("the weights that a pass reads", &t->w[p->row], rows, p->count));
    for (int b = 0; t->slab && t->slab[0].data && b < t->buffers; b++)
        TRY(expect_zeros("a gradient", &t->slab[b], p->whole, p->count));
    if (t->slots && t->grad[p->row].data && last)
        TRY(expect_zeros("the last gradient", &t->grad[p->row], rows, p->count));
    for (int k = 0; k < t->kepts; k++) TRY(expect_zeros("a counter", &t->kept[k], p->shard, p->owned));
    if (t->sum.data) TRY(expect_zeros("the gradient's sum", &t->sum, p->shard, p->owned));
    if (row->tied >= 0) return ERR_OK;
    TRY(store_padding("the masters", &t->masters, p));
    TRY(store_padding("the weights", &t->weights, p));
    for (int k = 0; k < t->arrays; k++) TRY(store_padding(t->array[k].name, &t->array[k], p));
    return ERR_OK;
}

// After a step: of a vocabulary whose rows were rounded up to a multiple of 128.
static err_t look_at_padding(const session *x) {
    int64_t wte = model_find(x->net, "wte.weight"), head = model_find(x->net, "lm_head.weight");
    for (int i = 0; i < x->net->params; i++) {
        const param *p = &x->net->param[i];
        bool padded = i == wte || i == head;
        int64_t rows = padded ? (p->size[0] + 127) / 128 * 128 : 0;
        if (p->rows_in_memory != rows)
            return err_set(ERR_INTERNAL, "%s has %" PRId64 " rows in memory", p->name, p->rows_in_memory);
        padding at;
        if (padded) at = padding_of(x, i);
        if (padded) TRY(row_padding(x, &at));
    }
    return ERR_OK;
}

#endif
