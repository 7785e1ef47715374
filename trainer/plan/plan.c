// trainer/plan/plan.c: see trainer/plan/plan.h.
#include "trainer/plan/plan.h"

#include "model/slices.h"
#include "trainer/session/session.h"
#include "trainer/step/outer.h"
#include "trainer/step/sync.h"
#include "trainer/step/tied.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t aligned(const tensor *t) {
    return t->dims ? (tensor_bytes(t) + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN : 0;
}

size_t plan_bytes(const plan_rank *p) {
    return p->weights + p->masters + p->moments + p->gradients + p->counters + p->scratch + p->residuals + p->outer +
           p->gather + p->activations + p->staging + p->ring + p->tied + p->snapshots + p->rows + p->rest;
}

// The ranks that mix wait for each other, and then those of an island.
static void count_mixing(session *x, plan_rank *p) {
    train_state *t = &x->state;
    int64_t cycle = outer_cycle(t);
    p->busiest = outer_busiest(t);
    p->mixed[PLAN_ISLANDS] = outer_cost(t, p->busiest);
    p->mixed[PLAN_DATA] = outer_cost_inside(t, p->busiest + t->o.overlap);
    for (int64_t step = 1; step <= cycle; step++)
        if (outer_is_due(t, step)) p->mixed_each += (double)outer_cost(t, step).sent / (double)cycle;
}

// What matrices are orthogonalised in.
static size_t muon_memory(const muon_room *m) {
    size_t n = aligned(&m->d) + aligned(&m->sums);
    for (int k = 0; k < 2; k++) n += aligned(&m->x[k]);
    for (int k = 0; k < 3; k++) n += aligned(&m->square[k]);
    return n;
}

static void count_memory(const session *x, plan_rank *p) {
    const train_state *t = &x->state;
    bool same = state_shares_masters(t);
    p->weights = (same ? 0 : aligned(&t->weights.t)) + aligned(&t->exact) + aligned(&t->frozen.at) +
                 aligned(&t->frozen.codes) + aligned(&t->frozen.wide);
    p->masters = aligned(&t->masters.t) + aligned(&t->aside.t) + aligned(&t->mean_step);
    int own = state_moments(t);
    for (int k = 0; k < own; k++) p->moments += aligned(&t->array[k].t);
    for (int k = own; k < t->arrays; k++) p->outer += aligned(&t->array[k].t);
    p->outer += aligned(&t->anchor.t) + aligned(&t->outer.room) + aligned(&t->outer.whole) + aligned(&t->outer.step) +
                aligned(&t->outer.out) + aligned(&t->outer.in) + aligned(&t->outer.sums);
    for (int i = 0; t->slab && i < t->buffers; i++) p->gradients += aligned(&t->slab[i]);
    for (int i = 0; i < t->slots; i++) p->gradients += aligned(&t->slot[i]);
    for (int i = 0; i < t->kepts; i++) p->counters += aligned(&t->kept[i]);
    p->counters += aligned(&t->sum);
    p->scratch = aligned(&t->scratch) + aligned(&t->out) + aligned(&t->in) + muon_memory(&t->muon);
    for (int i = 0; i < t->residuals; i++) p->residuals += aligned(&t->residual[i]) + aligned(&t->velocity[i]);
    p->residuals += aligned(&t->residual_back) + aligned(&t->outer.residual) + aligned(&t->outer.residual_back);
    p->gather = aligned(&t->gather[0]) + aligned(&t->gather[1]) + aligned(&t->through);
    p->activations = x->runner.memory.bytes;
    p->staging = x->runner.staging.bytes + aligned(&t->stage_w) + aligned(&t->stage_g) + aligned(&t->spilled.windows) +
                 aligned(&t->spilled.room) + aligned(&t->spilled.kept_block);
    p->disk = state_spills(t) ? spilled_bytes(&t->spilled) : 0;
    p->disk_reads = state_has_rows(t) ? 2 : 1;
    p->ring = x->ring_bytes;
    p->snapshots = (size_t)session_snapshots(x);
    p->rows = (size_t)state_rows_memory(t);
    p->tied = aligned(&t->copy) + aligned(&t->use);
    p->whole = t->shards.gradients && t->slab;
    p->on_gpu = device_about(x->dev)->kind == DEVICE_CUDA;
    p->host = t->host.bytes + x->runner.staging.bytes + x->ring_bytes + p->snapshots + p->rows;
    int64_t used;
    if (!p->on_gpu || device_memory(x->dev, &used, &p->gpu_total) != ERR_OK) p->gpu_total = -1;
    p->shared = tensor_count(&x->runner.results.shared);
    p->rest = state_bytes(t) + x->runner.staging.bytes -
              (p->weights + p->masters + p->moments + p->gradients + p->counters + p->scratch + p->residuals +
               p->outer + p->gather + p->staging + p->tied);
}

static void add(plan_rank *p, plan_group to, comm_cost x) {
    p->sent += x.sent;
    p->sent_far += x.sent_far;
    p->sent_racks += x.sent_racks;
    p->to[to] = cost_add(p->to[to], x);
}

comm_cost plan_message(const session *x, const message *m) {
    size_t bytes = (size_t)model_left(x->net, x->stages.cut[m->stage] - 1, x->cfg->resolved.micro, 0) *
                   dtype_bytes(x->state.o.compute);
    return links_cost(&x->groups, &x->stages, m, bytes);
}

// Directions of slices, to the ranks that share the layer.
static comm_cost directions_cost(train_state *t) {
    int count;
    const zero_piece *p = state_pieces(t, &count);
    comm_cost sum = {0};
    for (int i = 0; i < count; i++)
        if (t->rule[p[i].row].muon && (i == 0 || p[i - 1].row != p[i].row))
            sum = cost_add(sum, muon_gather_cost(&t->muon, &t->net->param[p[i].row], t->o.tensor));
    return sum;
}

// A block is gathered for each micro-batch, and takes the same each time. known: [blocks], messages -1: not yet.
static comm_cost gather_cost(train_state *t, comm_cost *known, int block) {
    if (known[block].messages < 0) known[block] = sync_weights(t)->gather_cost(t, block);
    return known[block];
}

// What this rank sends in a step: the same list of actions that a run walks. Where servers do not wait for all lanes,
// what ranks send when they meet is left out.
static err_t count_traffic(session *x, plan_rank *p) {
    train_state *t = &x->state;
    const gradient_policy *gradients = sync_gradients(t);
    const weight_policy *weights = sync_weights(t);
    comm_cost gathers[x->net->blocks];
    for (int b = 0; b < x->net->blocks; b++) gathers[b] = (comm_cost){.messages = -1};
    for (int i = 0; x->ranks->world > 1 && i < x->runner.actions.count; i++) {
        const action *a = &x->runner.actions.at[i];
        comm_cost cost = {0};
        if (a->kind == ACTION_REDUCE) TRY(gradients->cost(t, a->bucket, a->turn, &cost));
        if (a->kind == ACTION_GATHER) cost = gather_cost(t, gathers, a->first);
        if (a->kind == ACTION_SPREAD) cost = weights->spread_cost(t);
        add(p, PLAN_DATA, cost);
        if (a->kind == ACTION_OUTER) count_mixing(x, p);
        if (a->kind == ACTION_POST) add(p, PLAN_STAGES, plan_message(x, &x->stages.table.message[a->message]));
        if (a->kind == ACTION_SHARE && !t->o.servers)
            add(p, PLAN_ALL, cost_all_reduce(x->ranks, (size_t)p->shared, sizeof(double)));
    }
    add(p, PLAN_TENSOR, cost_add(x->runner.merge.sent, directions_cost(t)));
    add(p, PLAN_CONTEXT, x->runner.swap.at.sent);
    if (!x->runner.pipelined) return ERR_OK;
    tied_costs tied = tied_cost(t);
    add(p, PLAN_STAGES, tied.link);
    add(p, PLAN_DATA, tied.gather);
    return ERR_OK;
}

// In ZeRO 0 all ranks read all sums, from codes, or from copies of them. With topk all ranks add all lanes there. What
// a rank adds before it codes it would add without codes, too.
static void count_codes(const session *x, plan_codes *p) {
    const train_state *t = &x->state;
    int64_t all = 0, own = 0, spans = state_spans(t);
    const bool whole = !t->shards.masters;
    for (int i = 0; i < t->zero.wholes; i++) all += t->zero.whole[i].count;
    for (int i = 0; i < t->zero.owned; i++) own += t->zero.piece[i].count;
    p->encoded = t->residuals * all;
    p->decoded = spans * (t->o.kept && whole ? all : own);
    p->added = (t->residuals > 1 ? t->residuals - 1 : 0) * all + (t->ranks->world - 1) * own;
    if (t->o.kept) return;
    if (t->o.back != CODEC_NONE) p->back_encoded = own, p->back_decoded = whole ? all : own;
    else if (whole) p->copied = own + all;
}

static void note_stages(const session *x, plan_rank *p) {
    const stages *s = &x->stages;
    p->stages = s->count, p->chunks = s->pipe.chunks, p->stage = stages_of(s, 0);
    for (int c = 0; c < p->chunks && c < PLAN_CHUNKS; c++) {
        p->first[c] = s->cut[stages_of(s, c)], p->last[c] = s->cut[stages_of(s, c) + 1] - 1;
        p->held[c] = s->slots[p->first[c]];
    }
}

err_t plan_comm(comm **out, const plan_world *w, int rank) {
    return w->place ? comm_imaginary_open(out, rank, w->world, w->place)
                    : comm_even_open(out, rank, w->world, &w->even);
}

err_t plan_begin(session *x, const config *c, int rank, const plan_world *w) {
    comm *ranks;
    TRY(plan_comm(&ranks, w, rank));
    return x->dev ? session_plan_next(x, ranks) : session_plan(x, c, ranks);
}

err_t plan_count(session *x, plan_rank *out) {
    *out = (plan_rank){.lanes = reduce_lane_count(x->state.reduce, x->state.ranks->rank)};
    count_memory(x, out);
    if (state_codes(&x->state)) count_codes(x, &out->codes);
    note_stages(x, out);
    return count_traffic(x, out);
}

err_t plan_one(const config *c, int rank, int world, const comm_place *place, plan_rank *out) {
    session x = {0};
    *out = (plan_rank){0};
    err_t rc = plan_begin(&x, c, rank, &(plan_world){.world = world, .place = (comm_place *)place});
    if (rc == ERR_OK) rc = plan_count(&x, out);
    session_close(&x);
    return rc;
}
