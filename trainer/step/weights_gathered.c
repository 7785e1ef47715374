// trainer/step/weights_gathered.c: ZeRO 3: each rank keeps its share of the weights. A block's are gathered from all
// just before it runs, into one of two buffers: one block is gathered while another is used.
#include "trainer/step/spread.h"
#include "trainer/step/sync.h"

// Copies this rank's share of a block's weights, then gathers all shares. The ranges include the padding, so the zeros
// after a vocabulary are there whichever block was here before.
static err_t gather_block(parallel *x, int block, int64_t turn, stream *inner) {
    train_state *t = x->state;
    size_t element = dtype_bytes(t->o.compute), at = 0;
    (void)turn;
    for (int g = 0; g < t->zero.segments; g++) {
        if (!state_uses(t, block, g)) continue;
        char *to = (char *)t->gather[block % 2].data + at * element;
        const size_t *cut = state_cuts(t, g, element);
        size_t own = zero_range(&t->zero, g, t->zero.rank) * element;
        if (own)
            TRY(stream_copy(inner, to + cut[t->zero.rank], (char *)t->weights.t.data + t->zero.shard_at[g] * element,
                            own));
        TRY(x->ranks->table->all_gather(x->ranks, to, cut, inner));
        at += t->zero.segment[g].count;
    }
    return ERR_OK;
}

// After all reads of the block that is there.
static err_t gather(parallel *x, int block) {
    TRY(parallel_follow(x));
    return parallel_queue(x, "gather weights", gather_block, block, 0, x->gathered[block % 2]);
}

static void point_rows(const train_state *t, int block) {
    size_t element = dtype_bytes(t->o.compute), at = 0;
    for (int g = 0; g < t->zero.segments; g++) {
        if (!state_uses(t, block, g)) continue;
        const zero_segment *s = &t->zero.segment[g];
        char *base = (char *)t->gather[block % 2].data + at * element;
        for (int i = 0; i < t->net->params; i++) {
            const param *p = &t->net->param[i];
            int of = p->tied >= 0 ? p->tied : i;
            if (t->w[i].type == t->o.compute && p->block == block && of >= s->first && of < s->first + s->rows)
                t->w[i].data = base + (t->zero.row_at[of] - s->at) * element;
        }
        at += s->count;
    }
}

static err_t need(parallel *x, int block) {
    TRY(parallel_wait_shown(x, x->gathered[block % 2], "wait for weights of block", block));
    point_rows(x->state, block);
    return spread_need(x, block);
}

// Rows that are whole on every rank even so.
static err_t spread(parallel *x) {
    const train_state *t = x->state;
    if (!t->exact.dims) return ERR_OK;
    TRY(parallel_follow(x));
    for (int g = 0; g < t->zero.segments; g++) {
        if (!state_has_exact(t, g)) continue;
        TRY(parallel_queue(x, "spread weights", spread_exact, g, 0, x->arrived[g]));
        x->fresh[g] = true;
    }
    return ERR_OK;
}

static comm_cost gather_cost(train_state *t, int block) {
    comm_cost sum = {0};
    for (int g = 0; g < t->zero.segments; g++)
        if (state_uses(t, block, g))
            sum = cost_add(sum, cost_all_gather(t->ranks, state_cuts(t, g, dtype_bytes(t->o.compute))));
    return sum;
}

const weight_policy weights_gathered = {
    .gather = gather, .need = need, .spread = spread, .gather_cost = gather_cost, .spread_cost = spread_exact_cost};
