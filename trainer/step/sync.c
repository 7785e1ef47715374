// trainer/step/sync.c: which policies a layout has, and what policies of weights have in common.
#include "trainer/step/sync.h"

const gradient_policy *sync_gradients(const train_state *t) { return t->o.fixed ? &gradients_fixed : &gradients_any; }

const weight_policy *sync_weights(const train_state *t) {
    if (t->shards.weights) return &weights_gathered;
    return t->shards.masters && t->ranks->world > 1 ? &weights_spread : &weights_whole;
}

err_t sync_need_spread(parallel *x, int block) {
    const train_state *t = x->state;
    for (int g = 0; g < t->zero.segments; g++) {
        if (!x->fresh[g] || !state_uses(t, block, g)) continue;
        x->fresh[g] = false;
        TRY(parallel_wait_shown(x, x->arrived[g], "wait for weights of block", block));
    }
    return ERR_OK;
}

err_t sync_send_exact(parallel *x, int g, int64_t turn, stream *inner) {
    char *to;
    const size_t *cuts = state_exact_cuts(x->state, g, &to);
    (void)turn;
    return cuts[x->ranks->world] ? x->ranks->table->all_gather(x->ranks, to, cuts, inner) : ERR_OK;
}

comm_cost sync_exact_cost(train_state *t) {
    comm_cost sum = {0};
    for (int g = 0; g < t->zero.segments; g++) {
        char *to;
        const size_t *cuts = state_exact_cuts(t, g, &to);
        if (cuts[t->ranks->world]) sum = cost_add(sum, cost_all_gather(t->ranks, cuts));
    }
    return sum;
}
