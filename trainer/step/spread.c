// trainer/step/spread.c: see trainer/step/spread.h.
#include "trainer/step/spread.h"

err_t spread_need(parallel *x, int block) {
    const train_state *t = x->state;
    for (int g = 0; g < t->zero.segments; g++) {
        if (!x->fresh[g] || !state_uses(t, block, g)) continue;
        x->fresh[g] = false;
        TRY(parallel_wait_shown(x, x->arrived[g], "wait for weights of block", block));
    }
    return ERR_OK;
}

err_t spread_exact(parallel *x, int g, int64_t turn, stream *inner) {
    char *to;
    (void)turn;
    if (!state_has_exact(x->state, g)) return ERR_OK;
    const size_t *cuts = state_exact_cuts(x->state, g, &to);
    return x->ranks->table->all_gather(x->ranks, to, cuts, inner);
}

comm_cost spread_exact_cost(train_state *t) {
    comm_cost sum = {0};
    for (int g = 0; g < t->zero.segments; g++) {
        char *to;
        if (state_has_exact(t, g)) sum = cost_add(sum, cost_all_gather(t->ranks, state_exact_cuts(t, g, &to)));
    }
    return sum;
}
