// trainer/step/gradients_fixed.c: [reduce] order = fixed. The lanes' gradients are added along the tree of
// comm/ordered.h, so the bits are the same for every layout.
#include "trainer/step/sync.h"

static float *bucket_base(const train_state *t, int k, int buffer) {
    return t->slots ? t->slot[k % t->slots].data : (float *)t->slab[buffer].data;
}

// ZeRO 0: the owners send their sums to all ranks.
static err_t return_bucket(parallel *x, const zero_bucket *b, stream *inner) {
    train_state *t = x->state;
    float *sum = t->slab[t->sum_buffer].data;
    for (int g = b->first; g < b->first + b->count; g++)
        TRY(x->ranks->table->all_gather(x->ranks, sum + t->zero.segment[g].at, state_cuts(t, g, sizeof(float)), inner));
    return ERR_OK;
}

static err_t reduce(parallel *x, int k, int64_t turn, stream *inner) {
    train_state *t = x->state;
    const zero_bucket *b = &t->zero.bucket[k];
    bool sharded = state_has_sum(t);
    size_t lane_at[b->first + b->count], own_at[b->first + b->count];
    for (int i = 0; i < t->buffers; i++) x->lanes[i] = bucket_base(t, k, i);
    for (int g = b->first; g < b->first + b->count; g++) {
        lane_at[g] = t->zero.segment[g].at - (t->slots ? b->at : 0);
        own_at[g] = sharded ? t->zero.shard_at[g] : t->zero.slab_at[g];
    }
    float *out = sharded ? t->sum.data : t->slab[t->sum_buffer].data;
    TRY(reduce_run(t->reduce,
                   &(reduce_job){.turn = turn,
                                 .first = b->first,
                                 .count = b->count,
                                 .lane = x->lanes,
                                 .lane_at = lane_at,
                                 .kept = x->kept,
                                 .out = out,
                                 .own_at = own_at,
                                 .scratch = t->scratch.data},
                   inner));
    return !t->shards.masters ? return_bucket(x, b, inner) : ERR_OK;
}

static err_t cost(train_state *t, int k, int64_t turn, comm_cost *out) {
    const zero_bucket *b = &t->zero.bucket[k];
    *out = t->reduction[turn * t->zero.buckets + k].moves;
    for (int g = b->first; !t->shards.masters && g < b->first + b->count; g++)
        *out = cost_add(*out, cost_all_gather(t->ranks, state_cuts(t, g, sizeof(float))));
    return ERR_OK;
}

const gradient_policy gradients_fixed = {.reduce = reduce, .cost = cost};
