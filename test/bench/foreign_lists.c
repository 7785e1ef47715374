// test/bench/foreign_lists.c: see test/bench/foreign.h: the lists of actions. A pipeline's rank runs its table of units
// (trainer/step/pipeline.h), and its messages leave beside what it computes; one that gathers weights asks for the next
// layer's before it computes one. Then gradients are reduced, all at once, and all ranks learn their norm before they
// update.
#include "test/bench/foreign.h"

#include <stdlib.h>

static err_t put(action_list *l, action a) {
    if (l->count == l->room) {
        int room = l->room ? 2 * l->room : 256;
        action *more = realloc(l->at, (size_t)room * sizeof *more);
        if (!more) return err_set(ERR_INTERNAL, "no memory for a list of %d actions", room);
        l->at = more, l->room = room;
    }
    l->at[l->count++] = a;
    return ERR_OK;
}

static err_t put_block(action_list *l, action_kind kind, int block) {
    return put(l, (action){.kind = kind, .first = block, .last = block});
}

// --- one rank, whose weights are elsewhere ---------------------------------------------------------------------------

static err_t gathered(action_list *l, int layers, int micro) {
    for (int b = 0; b < layers; b++) {
        if (b == 0) TRY(put_block(l, ACTION_GATHER, b));
        if (b + 1 < layers) TRY(put_block(l, ACTION_GATHER, b + 1));
        TRY(put_block(l, ACTION_NEED, b));
        TRY(put(l, (action){.kind = ACTION_FORWARD, .first = b, .last = b, .micro = micro}));
    }
    for (int b = layers - 1; b >= 0; b--) {
        if (b == layers - 1) TRY(put_block(l, ACTION_GATHER, b));
        if (b > 0) TRY(put_block(l, ACTION_GATHER, b - 1));
        TRY(put_block(l, ACTION_NEED, b));
        TRY(put(l, (action){.kind = ACTION_BACKWARD, .first = b, .last = b, .micro = micro}));
        TRY(put(l, (action){.kind = ACTION_REDUCE, .first = b, .bucket = b, .turn = micro}));
    }
    return ERR_OK;
}

// --- a rank of a pipeline --------------------------------------------------------------------------------------------

// Receives that may begin once the unit is done (-1: at once).
static err_t post_receives(action_list *l, const unit_table *t, int after) {
    for (int m = 0; m < t->messages; m++)
        if (!t->message[m].sends && t->message[m].after == after)
            TRY(put(l, (action){.kind = ACTION_POST, .message = m}));
    return ERR_OK;
}

static err_t put_unit(action_list *l, const stages *of, int i) {
    const unit *u = &of->table.unit[i];
    action a = {.kind = u->kind == UNIT_FORWARD ? ACTION_FORWARD : ACTION_BACKWARD,
                .first = of->cut[u->stage],
                .last = of->cut[u->stage + 1] - 1,
                .micro = u->micro};
    if (u->receive >= 0) TRY(put(l, (action){.kind = ACTION_AWAIT, .message = u->receive}));
    TRY(put(l, a));
    TRY(post_receives(l, &of->table, i));
    if (u->send < 0) return ERR_OK;
    return put(l, (action){.kind = ACTION_POST, .message = u->send});
}

static err_t put_end(action_list *l, bool reduced) {
    if (!reduced) TRY(put(l, (action){.kind = ACTION_REDUCE}));
    TRY(put(l, (action){.kind = ACTION_SETTLE}));
    TRY(put(l, (action){.kind = ACTION_SHARE}));
    return put(l, (action){.kind = ACTION_UPDATE});
}

static err_t open_rank(action_list *l, stages *of, const foreign_run *r, const model *net, int rank, int64_t micros) {
    stage_options o = {.kind = r->schedule, .ranks = r->pipeline, .rank = rank, .chunks = r->chunks, .micros = micros};
    TRY(stages_open(of, net, &o));
    if (r->shards) {
        for (int m = 0; m < micros; m++) TRY(gathered(l, net->blocks, m));
        return put_end(l, true);
    }
    TRY(post_receives(l, &of->table, -1));
    for (int i = 0; i < of->table.units; i++) TRY(put_unit(l, of, i));
    return put_end(l, false);
}

err_t foreign_open(foreign_lists *x, const foreign_run *r, int64_t micros) {
    size_t p = (size_t)r->pipeline;
    block *layer = calloc((size_t)r->layers, sizeof *layer);
    *x = (foreign_lists){.pipeline = r->pipeline,
                         .layers = (int)r->layers,
                         .list = calloc(p, sizeof *x->list),
                         .of = calloc(p, sizeof *x->of)};
    err_t rc = layer && x->list && x->of ? ERR_OK : err_set(ERR_INTERNAL, "no memory for %d stages", r->pipeline);
    for (int64_t b = 0; rc == ERR_OK && b < r->layers; b++) layer[b].flops = 1;
    model net = {.blocks = (int)r->layers, .block = layer};
    for (int i = 0; rc == ERR_OK && i < r->pipeline; i++) rc = open_rank(&x->list[i], &x->of[i], r, &net, i, micros);
    free(layer);
    return rc;
}

void foreign_close(foreign_lists *x) {
    for (int i = 0; x->list && x->of && i < x->pipeline; i++) action_list_free(&x->list[i]), stages_close(&x->of[i]);
    free(x->list), free(x->of);
    *x = (foreign_lists){0};
}

// --- time ------------------------------------------------------------------------------------------------------------

typedef struct asked {
    const foreign_lists *x;
    const foreign_price *p;
} asked;

// The table of words is the first layer's, what follows the last layer is that one's. Both are priced in backward.
static double time_of(void *ctx, int rank, const action *a) {
    const asked *k = ctx;
    const foreign_price *p = k->p;
    (void)rank;
    switch (a->kind) {
    case ACTION_FORWARD: return (a->last - a->first + 1) * p->forward;
    case ACTION_BACKWARD:
        return (a->last - a->first + 1) * p->backward + (a->first == 0 ? p->embed : 0) +
               (a->last == k->x->layers - 1 ? p->head : 0);
    case ACTION_POST: return p->message;
    case ACTION_GATHER: return p->gather;
    case ACTION_REDUCE: return p->scatter > 0 ? p->scatter : p->reduce;
    case ACTION_UPDATE: return p->update;
    default: return 0;
    }
}

err_t foreign_simulate(double *s, const foreign_lists *x, const foreign_price *p) {
    const action_list *list[x->pipeline];
    const stages *of[x->pipeline];
    asked how = {x, p};
    simulation out;
    for (int i = 0; i < x->pipeline; i++) list[i] = &x->list[i], of[i] = &x->of[i];
    simulate_costs by = {.time = time_of, .ctx = &how, .depth = 8};
    TRY(simulate_run(&(simulate_lists){x->pipeline, 1, list, of}, &by, &out));
    *s = out.total;
    simulation_free(&out);
    return ERR_OK;
}
