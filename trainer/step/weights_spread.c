// trainer/step/weights_spread.c: ZeRO 0: every rank updates all weights. ZeRO 1 and 2: the owners of the masters
// update, and send the weights to all ranks, which arrive while the next step begins.
#include "trainer/step/spread.h"
#include "trainer/step/sync.h"

static err_t nothing(parallel *x) { return (void)x, ERR_OK; }
static err_t here(parallel *x, int block) { return (void)x, (void)block, ERR_OK; }
static comm_cost free_of_cost(train_state *t) { return (void)t, (comm_cost){0}; }

const weight_policy weights_whole = {.need = here, .spread = nothing, .spread_cost = free_of_cost};

static err_t send_segment(parallel *x, int g, int64_t turn, stream *inner) {
    train_state *t = x->state;
    (void)turn;
    TRY(state_gather(t, &t->weights, g, x->ranks, inner));
    return spread_exact(x, g, turn, inner);
}

// In the order in which the next forward pass needs them. The update of all segments is queued already, and nothing is
// computed between two of them here: the side stream waits once for all.
static err_t spread(parallel *x) {
    const train_state *t = x->state;
    TRY(parallel_follow(x));
    for (int g = 0; g < t->zero.segments; g++) {
        if (t->zero.segment[g].tied) continue;
        TRY(parallel_queue(x, "spread weights", send_segment, g, 0, x->arrived[g]));
        x->fresh[g] = true;
    }
    return ERR_OK;
}

static comm_cost spread_cost(train_state *t) {
    comm_cost sum = {0};
    for (int g = 0; g < t->zero.segments; g++)
        if (!t->zero.segment[g].tied)
            sum = cost_add(sum, cost_all_gather(t->ranks, state_cuts(t, g, dtype_bytes(t->o.compute))));
    return cost_add(sum, spread_exact_cost(t));
}

const weight_policy weights_spread = {.need = spread_need, .spread = spread, .spread_cost = spread_cost};
