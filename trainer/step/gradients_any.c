// trainer/step/gradients_any.c: [reduce] order = any. The transport adds the ranks' gradients in its own order; turns
// are added one after the other.
#include "trainer/step/sync.h"

static float *bucket_base(const train_state *t, int k) {
    return t->slots ? t->slot[k % t->slots].data : (float *)t->slab[0].data;
}

// ZeRO 2 and 3: this rank's part of a turn, added to those before.
static err_t keep_turn(parallel *x, int g, int64_t turn, float *from, stream *inner) {
    train_state *t = x->state;
    int64_t n = (int64_t)zero_range(&t->zero, g, t->zero.rank);
    if (n == 0) return ERR_OK;
    tensor part = {from, FP32, 1, {n, 1, 1, 1}}, sum = part;
    sum.data = (float *)t->sum.data + t->zero.shard_at[g];
    if (turn == 0) return stream_copy(inner, sum.data, part.data, (size_t)n * sizeof(float));
    return x->ops->add(&(add_args){.y = &sum, .a = &sum, .b = &part}, inner);
}

static err_t reduce(parallel *x, int k, int64_t turn, stream *inner) {
    train_state *t = x->state;
    const zero_bucket *b = &t->zero.bucket[k];
    float *base = bucket_base(t, k);
    if (!t->shards.masters)
        return x->ranks->table->all_reduce(x->ranks, base + b->at, b->floats, FP32, REDUCE_SUM, inner);
    for (int g = b->first; g < b->first + b->count; g++) {
        float *from = base + t->zero.segment[g].at - (t->slots ? b->at : 0);
        const size_t *cut = state_cuts(t, g, 1);
        TRY(x->ranks->table->reduce_scatter(x->ranks, from, cut, FP32, inner));
        if (t->shards.gradients) TRY(keep_turn(x, g, turn, from + cut[t->zero.rank], inner));
    }
    return ERR_OK;
}

static err_t cost(train_state *t, int k, int64_t turn, comm_cost *out) {
    const zero_bucket *b = &t->zero.bucket[k];
    (void)turn;
    *out = !t->shards.masters ? cost_all_reduce(t->ranks, b->floats, sizeof(float)) : (comm_cost){0};
    for (int g = b->first; t->shards.masters && g < b->first + b->count; g++)
        *out = cost_add(*out, cost_reduce_scatter(t->ranks, state_cuts(t, g, 1), sizeof(float)));
    return ERR_OK;
}

const gradient_policy gradients_any = {.reduce = reduce, .cost = cost};
