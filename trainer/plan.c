// trainer/plan.c: see trainer/plan.h.
#include "trainer/plan.h"

#include "base/memory.h"
#include "gpu/peak.h"
#include "model/slices.h"
#include "trainer/config/pipes.h"
#include "trainer/config/table.h"
#include "trainer/plan_groups.h"
#include "trainer/session.h"
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
           p->gather + p->activations + p->staging + p->ring + p->tied + p->snapshots + p->rest;
}

// The ranks that mix wait for each other, and then those of an island.
static void count_mixing(session *x, plan_rank *p) {
    p->mixed[PLAN_ISLANDS] = outer_cost(&x->state);
    p->mixed[PLAN_DATA] = state_mixed_cost(&x->state);
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
    p->weights = (same ? 0 : aligned(&t->weights.t)) + aligned(&t->exact) + aligned(&t->frozen.at);
    p->masters = aligned(&t->masters.t);
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
    p->gather = aligned(&t->gather[0]) + aligned(&t->gather[1]);
    p->activations = x->runner.memory.bytes;
    p->staging = x->runner.staging.bytes + aligned(&t->stage_w) + aligned(&t->stage_g) + aligned(&t->spilled.windows) +
                 aligned(&t->spilled.room) + aligned(&t->spilled.kept_block);
    p->disk = state_spills(t) ? spilled_bytes(&t->spilled) : 0;
    p->disk_reads = state_has_rows(t) ? 2 : 1;
    p->ring = x->ring_bytes;
    p->snapshots = (size_t)session_snapshots(x);
    p->tied = aligned(&t->copy) + aligned(&t->use);
    p->whole = t->shards.gradients && t->slab;
    p->on_gpu = device_about(x->dev)->kind == DEVICE_CUDA;
    p->host = t->host.bytes + x->runner.staging.bytes + x->ring_bytes + p->snapshots;
    int64_t used;
    if (!p->on_gpu || device_memory(x->dev, &used, &p->gpu_total) != ERR_OK) p->gpu_total = -1;
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

static comm_cost message_cost(const session *x, const message *m) {
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

// What this rank sends in a step: the same list of actions that a run walks.
static err_t count_traffic(session *x, plan_rank *p) {
    train_state *t = &x->state;
    const gradient_policy *gradients = sync_gradients(t);
    const weight_policy *weights = sync_weights(t);
    for (int i = 0; x->ranks->world > 1 && i < x->runner.actions.count; i++) {
        const action *a = &x->runner.actions.at[i];
        comm_cost cost = {0};
        if (a->kind == ACTION_REDUCE) TRY(gradients->cost(t, a->bucket, a->turn, &cost));
        if (a->kind == ACTION_GATHER) cost = weights->gather_cost(t, a->first);
        if (a->kind == ACTION_SPREAD) cost = weights->spread_cost(t);
        add(p, PLAN_DATA, cost);
        if (a->kind == ACTION_OUTER) count_mixing(x, p);
        if (a->kind == ACTION_POST) add(p, PLAN_STAGES, message_cost(x, &x->stages.table.message[a->message]));
        if (a->kind == ACTION_SHARE)
            add(p, PLAN_ALL,
                cost_all_reduce(x->ranks, (size_t)tensor_count(&x->runner.results.shared), sizeof(double)));
    }
    add(p, PLAN_TENSOR, cost_add(x->runner.merge.sent, directions_cost(t)));
    add(p, PLAN_CONTEXT, x->runner.swap.at.sent);
    if (!x->runner.pipelined) return ERR_OK;
    tied_costs tied = tied_cost(t);
    add(p, PLAN_STAGES, tied.link);
    add(p, PLAN_DATA, tied.gather);
    return ERR_OK;
}

// ZeRO 0 reads all sums from codes, or from copies of them. With topk all ranks add all lanes there.
static void count_codes(const session *x, plan_rank *p) {
    const train_state *t = &x->state;
    int64_t all = 0, own = 0, lanes = t->o.lanes;
    bool back = t->o.back != CODEC_NONE, whole = !t->shards.masters;
    for (int i = 0; i < t->zero.wholes; i++) all += t->zero.whole[i].count;
    for (int i = 0; i < t->zero.owned; i++) own += t->zero.piece[i].count;
    p->added = (t->residuals > 1 ? t->residuals - 1 : 0) * all + (t->ranks->world - 1) * own;
    if (t->o.kept) {
        p->encoded = t->residuals * all, p->decoded = lanes * (whole ? all : own);
        return;
    }
    p->encoded = t->residuals * all + (back ? own : 0);
    p->decoded = lanes * own + (whole ? all : back ? own : 0);
}

static void note_stages(const session *x, plan_rank *p) {
    const stages *s = &x->stages;
    p->stages = s->count, p->chunks = s->pipe.chunks, p->stage = stages_of(s, 0);
    for (int c = 0; c < p->chunks && c < PLAN_CHUNKS; c++) {
        p->first[c] = s->cut[stages_of(s, c)], p->last[c] = s->cut[stages_of(s, c) + 1] - 1;
        p->held[c] = s->slots[p->first[c]];
    }
}

err_t plan_one(const config *c, int rank, int world, const comm_place *place, plan_rank *out) {
    session x = {0};
    comm *ranks;
    *out = (plan_rank){0};
    TRY(comm_imaginary_open(&ranks, rank, world, place));
    err_t rc = session_plan(&x, c, ranks);
    if (rc == ERR_OK) {
        out->lanes = reduce_lane_count(x.state.reduce, x.state.ranks->rank);
        count_memory(&x, out);
        if (state_codes(&x.state)) count_codes(&x, out);
        note_stages(&x, out);
        rc = count_traffic(&x, out);
    }
    session_close(&x);
    return rc;
}

// --- the table -------------------------------------------------------------------------------------------------------

typedef struct column {
    const char *name;
    size_t offset;
} column;

// clang-format off
static const column columns[] = {
    {"weights", offsetof(plan_rank, weights)},
    {"masters (fp32)", offsetof(plan_rank, masters)},
    {"moments", offsetof(plan_rank, moments)},
    {"gradients", offsetof(plan_rank, gradients)},
    {"sums of shares", offsetof(plan_rank, counters)},
    {"reduction", offsetof(plan_rank, scratch)},
    {"residuals", offsetof(plan_rank, residuals)},
    {"outer optimizer", offsetof(plan_rank, outer)},
    {"gathered weights", offsetof(plan_rank, gather)},
    {"activations", offsetof(plan_rank, activations)},
    {"tied tensor", offsetof(plan_rank, tied)},
    {"staging", offsetof(plan_rank, staging)},
    {"loader's ring", offsetof(plan_rank, ring)},
    {"snapshots", offsetof(plan_rank, snapshots)},
    {"rest", offsetof(plan_rank, rest)},
};
// clang-format on

static size_t value(const plan_rank *p, const column *c) { return *(const size_t *)((const char *)p + c->offset); }

enum { HUMAN = 32 };

// "22.7 MB"
static const char *human(char dst[HUMAN], double bytes) {
    static const char *const unit[] = {"kB", "MB", "GB", "TB", "PB"};
    int k = 0;
    for (bytes /= 1e3; bytes >= 999.95 && k < 4; k++) bytes /= 1e3;
    snprintf(dst, HUMAN, "%.1f %s", bytes, unit[k]);
    return dst;
}

// A number, what is said beside it, and the number again as people read bytes. bytes false: it counts something else.
static void print_number(FILE *out, const char *name, int64_t n, const char *beside, bool bytes) {
    char text[HUMAN];
    if (bytes) fprintf(out, "  %-18s %16" PRId64 "   %-36s %10s\n", name, n, beside, human(text, (double)n));
    else fprintf(out, "  %-18s %16" PRId64 "%s%s\n", name, n, *beside ? "   " : "", beside);
}

// The least and the most over the ranks: they differ where shares are uneven.
static void print_row(FILE *out, const char *name, int64_t least, int64_t most, bool bytes) {
    char beside[64] = "";
    if (least != most) snprintf(beside, sizeof beside, "on the rank with least %" PRId64, least);
    print_number(out, name, most, beside, bytes);
}

typedef struct range {
    size_t least, most;
} range;

static range memory_of(const plan_rank *p, int world) {
    range r = {plan_bytes(&p[0]), plan_bytes(&p[0])};
    for (int k = 1; k < world; k++) {
        size_t n = plan_bytes(&p[k]);
        r.least = n < r.least ? n : r.least, r.most = n > r.most ? n : r.most;
    }
    return r;
}

// Why the gradients are whole where the ZeRO stage would let a rank hold a few buckets of them at a time
// (trainer/step/state.c).
static void print_whole(FILE *out, const config *c, const plan_rank *p) {
    int64_t lanes = c->batch.global / c->resolved.micro, micros = lanes / c->resolved.lanes;
    if (!p->whole) return;
    fprintf(out, "  gradients are whole: ");
    if (c->parallel.pipeline > 1) fprintf(out, "in a pipeline several micro-batches are under way at a time\n");
    else if (c->reduce.compress != SEND_ALL) fprintf(out, "a lane is coded when its whole gradient is there\n");
    else if (micros == 1) fprintf(out, "a rank that has several token slices adds them up before they are sent\n");
    else {
        fprintf(out, "a lane adds up its %" PRId64 " micro-batches before it is sent", micros);
        bool power = (lanes & (lanes - 1)) == 0;  // as lanes have to be
        if (power && (double)lanes <= config_key(config_find(c, "batch", "lanes"))->max)
            fprintf(out, "; a new run with lanes = %" PRId64 " has one in each", lanes);
        fprintf(out, "\n");
    }
}

static void print_memory(FILE *out, const config *c, const plan_rank *p, int world) {
    fprintf(out, "memory of a rank, bytes\n");
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        size_t least = value(&p[0], &columns[i]), most = least;
        for (int k = 1; k < world; k++) {
            size_t n = value(&p[k], &columns[i]);
            least = n < least ? n : least, most = n > most ? n : most;
        }
        if (most) print_row(out, columns[i].name, (int64_t)least, (int64_t)most, true);
    }
    range all = memory_of(p, world);
    print_row(out, "all", (int64_t)all.least, (int64_t)all.most, true);
    fprintf(out,
            "  beside it, measured in no arena: the kernels' packing buffers, the transport's rings, the program\n");
    print_whole(out, c, p);
}

typedef struct amount {
    int64_t sent, far, racks;
} amount;

// What is in a table of traffic.
typedef struct counted {
    bool messages;  // not bytes
    bool mixed;     // at a boundary of islands, beside a step
} counted;

// What a rank sends to a group; PLAN_GROUPS: to all of them.
static amount amount_of(const plan_rank *p, int group, counted of) {
    amount x = {0};
    for (int g = 0; g < PLAN_GROUPS; g++) {
        if (group != PLAN_GROUPS && group != g) continue;
        const comm_cost *c = of.mixed ? &p->mixed[g] : &p->to[g];
        x.sent += of.messages ? c->messages : c->sent, x.far += of.messages ? c->messages_far : c->sent_far;
        x.racks += of.messages ? c->messages_racks : c->sent_racks;
    }
    return x;
}

static void print_group(FILE *out, const char *indent, const char *name, const plan_rank *p, int world, int group,
                        counted of) {
    amount all = {0};
    for (int k = 0; k < world; k++) {
        amount x = amount_of(&p[k], group, of);
        all.sent += x.sent, all.far += x.far;
    }
    char text[HUMAN], beside[64];
    snprintf(beside, sizeof beside, "of these %" PRId64 " between nodes", all.far);
    fprintf(out, "%s%-*s %16" PRId64 "   ", indent, 20 - (int)strlen(indent), name, all.sent);
    if (of.messages) fprintf(out, "%s\n", beside);
    else fprintf(out, "%-36s %10s\n", beside, human(text, (double)all.sent));
}

typedef enum { WITHIN_NODES, BETWEEN_NODES, BETWEEN_RACKS } crossing;

static int64_t crosses(amount x, crossing what) {
    return what == WITHIN_NODES ? x.sent - x.far : what == BETWEEN_NODES ? x.far - x.racks : x.racks;
}

// Which wires that takes: what crosses between racks is not counted between nodes again.
static void print_levels(FILE *out, const plan_rank *p, const cluster *who, counted of) {
    static const char *const name[] = {"within nodes", "between nodes", "between racks"};
    for (int k = WITHIN_NODES; who->nodes > 1 && k <= (who->racks > 1 ? BETWEEN_RACKS : BETWEEN_NODES); k++) {
        int64_t all = 0, most = 0;
        char beside[64];
        for (int r = 0; r < who->world; r++) {
            int64_t n = crosses(amount_of(&p[r], PLAN_GROUPS, of), (crossing)k);
            all += n, most = n > most ? n : most;
        }
        snprintf(beside, sizeof beside, "by the rank with most %" PRId64, most);
        print_number(out, name[k], all, beside, !of.messages);
    }
}

// Of a model that ranks share: what goes on which connections, too.
static void print_traffic(FILE *out, const plan_rank *p, const cluster *who, const grid *shape, counted of) {
    static const char *const name[] = {
        [PLAN_DATA] = "data groups", [PLAN_TENSOR] = "tensor groups", [PLAN_CONTEXT] = "context groups",
        [PLAN_STAGES] = "stages",    [PLAN_ISLANDS] = "islands",      [PLAN_ALL] = "all ranks"};
    const bool has[] = {[PLAN_DATA] = true,
                        [PLAN_TENSOR] = shape->tensor > 1 && !of.mixed,
                        [PLAN_CONTEXT] = grid_context(shape) > 1 && !of.mixed,
                        [PLAN_STAGES] = shape->pipeline > 1 && !of.mixed,
                        [PLAN_ISLANDS] = of.mixed,
                        [PLAN_ALL] = !of.mixed};
    int64_t least = INT64_MAX, most = 0;
    int world = grid_world(shape);
    for (int k = 0; k < world; k++) {
        int64_t n = amount_of(&p[k], PLAN_GROUPS, of).sent;
        least = n < least ? n : least, most = n > most ? n : most;
    }
    const char *when = of.mixed ? "boundary, beside its step's" : "step";
    if (of.messages) fprintf(out, "messages of a %s, to other ranks\n", when);
    else fprintf(out, "traffic of a %s, bytes\n", when);
    print_row(out, "sent by a rank", least, most, !of.messages);
    print_group(out, "  ", "by all", p, world, PLAN_GROUPS, of);
    print_levels(out, p, who, of);
    for (int g = 0; g < PLAN_GROUPS && grid_is_divided(shape); g++)
        if (has[g]) print_group(out, "    ", name[g], p, world, g, of);
}

// Of each of those that share the lanes, where they were dealt by hand.
static void print_deal(FILE *out, const config *c, const plan_rank *p, const grid *g) {
    if (*c->parallel.deal) fprintf(out, ", dealt");
    for (int d = 0; *c->parallel.deal && d < g->data; d++)
        fprintf(out, "%s%" PRId64, d ? "," : " ", p[grid_rank(g, (grid_place){.data = d})].lanes);
}

// Lanes are not divided, so a rank with fewer lanes than another waits, if it is as fast.
static void print_lanes(FILE *out, const config *c, const plan_rank *p, const grid *g) {
    int64_t most = 0, lanes = c->resolved.lanes, shares = g->data * grid_islands(g);
    for (int k = 0; k < grid_world(g); k++) most = p[k].lanes > most ? p[k].lanes : most;
    // whose ranks have the same lanes
    const char *who = g->tensor * grid_context(g) > 1 ? "model" : g->pipeline > 1 ? "pipeline" : "rank";
    fprintf(out, "lanes   %" PRId64 " on %" PRId64 " %s%s", lanes, shares, who, shares == 1 ? "" : "s");
    print_deal(out, c, p, g);
    fprintf(out, ", at most %" PRId64 " each: %.1f %% of the time idle\n", most,
            100 * (1 - (double)lanes / (double)(most * shares)));
    if (c->parallel.balance == BALANCE_AUTO && g->data > 1)
        fprintf(out, "        and while it runs dealt by measured speed: memory is for any deal\n");
}

static void print_layout(FILE *out, const grid *g) {
    char text[GRID_SHAPE];
    if (grid_is_divided(g)) fprintf(out, "layout  %s\n", grid_shape(g, text));
}

// --- a pipeline ------------------------------------------------------------------------------------------------------

// The largest share of lanes decides how long a step takes.
static int64_t most_micros(const config *c, const grid *g) {
    int64_t most = 0;
    for (int d = 0; d < g->data; d++) {
        int64_t micros = pipe_micros(c, g, d);
        most = micros > most ? micros : most;
    }
    return most;
}

// A block without halves does both in the first one. The last block has its loss, all of which waits for backward.
static void add_block(const model *net, int b, recomputation again, double unit[UNIT_KINDS]) {
    const block *k = &net->block[b];
    double part = k->flops / 3, forward = b + 1 < net->blocks ? part : 0, backward = k->flops - forward;
    if (again == RECOMPUTE_BLOCK && k->recomputes) backward += forward;
    unit[UNIT_FORWARD] += forward, unit[UNIT_BACKWARD] += backward;
    unit[UNIT_INPUTS] += block_has_halves(k, again) ? backward - part : backward;
    unit[UNIT_WEIGHTS] += block_has_halves(k, again) ? part : 0;
}

err_t plan_timeline(const pipeline_layout *l, const model *net, const int *cut, recomputation again, timeline *out) {
    int n = pipeline_stages(l);
    double(*each)[UNIT_KINDS] = calloc((size_t)n, sizeof *each);
    if (!each) return err_set(ERR_INTERNAL, "no memory for %d stages", n);
    for (int s = 0; s < n; s++) {
        for (int b = net ? cut[s] : 0; net && b < cut[s + 1]; b++) add_block(net, b, again, each[s]);
        for (int u = 0; u < UNIT_KINDS; u++)
            // a unit of nothing comes in its turn
            each[s][u] = !net ? (u == UNIT_BACKWARD ? 2 : 1) : each[s][u] > 0 ? each[s][u] : 1e-6;
    }
    err_t rc = timeline_of(l, &(timeline_costs){.unit = (const double(*)[UNIT_KINDS])each}, out);
    free(each);
    return rc;
}

static err_t draw_schedule(FILE *out, const pipeline_layout *l) {
    timeline even;
    TRY(plan_timeline(l, NULL, NULL, RECOMPUTE_NONE, &even));
    size_t n = timeline_draw(&even, 1, NULL, 0);
    char *text = malloc(n + 1);
    if (text) timeline_draw(&even, 1, text, n + 1), fprintf(out, "%s", text);
    timeline_free(&even);
    free(text);
    return text ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a drawing of %zu characters", n);
}

// Each rank of the first pipeline: its blocks, and what it holds.
static void print_stages(FILE *out, const grid *g, const plan_rank *p, const timeline *t) {
    for (int s = 0; s < g->pipeline; s++) {
        const plan_rank *k = &p[grid_rank(g, (grid_place){.stage = s})];
        fprintf(out, "  stage rank %-3d blocks", s);
        for (int c = 0; c < k->chunks && c < PLAN_CHUNKS; c++) {
            if (k->first[c] == k->last[c]) fprintf(out, "%s %d", c ? "," : "", k->first[c]);
            else fprintf(out, "%s %d-%d", c ? "," : "", k->first[c], k->last[c]);
        }
        fprintf(out, "  %zu bytes  micro-batches held", plan_bytes(k));
        for (int c = 0; c < k->chunks && c < PLAN_CHUNKS; c++) fprintf(out, "%s%d", c ? " + " : " ", k->held[c]);
        if (k->chunks > 1) fprintf(out, ", at once %d", t->rank[s].held);
        fprintf(out, "  %.1f %% idle\n", 100 * t->rank[s].idle);
    }
}

static err_t print_pipeline(FILE *out, const config *c, const grid *g, const plan_rank *p, bool draw) {
    pipeline_layout l = {.kind = c->parallel.schedule,
                         .ranks = g->pipeline,
                         .micros = (int)most_micros(c, g),
                         .chunks = config_chunks(c)};
    int count = pipeline_stages(&l), *cut = calloc((size_t)count + 1, sizeof *cut);
    timeline t;
    model *net;
    if (!cut) return err_set(ERR_INTERNAL, "no memory for %d stages", count);
    for (int r = 0; r < g->pipeline; r++)
        for (int k = 0; k < l.chunks; k++)
            cut[pipeline_stage_of(&l, r, k)] = p[grid_rank(g, (grid_place){.stage = r})].first[k];
    err_t rc = model_open(&net, model_types[c->model.type], &c->model.of);
    if (rc == ERR_OK) {
        cut[count] = net->blocks;
        rc = plan_timeline(&l, net, cut, c->parallel.recompute, &t);
        model_close(net);
    }
    free(cut);
    TRY(rc);
    fprintf(out, "stages  %d on %d ranks, %s, %d micro-batches: %.1f %% of the time idle, by the blocks' flops\n",
            count, g->pipeline, pipeline_name(l.kind), l.micros, 100 * t.idle);
    print_stages(out, g, p, &t);
    timeline_free(&t);
    return draw ? draw_schedule(out, &l) : ERR_OK;
}

// --- the whole -------------------------------------------------------------------------------------------------------

// How large the model is, and what a step reads.
static err_t print_model(FILE *out, const config *c) {
    int64_t samples = c->batch.global, lanes = c->resolved.lanes, micro = c->resolved.micro;
    model *net;
    char each[48] = "", span[CONFIG_SPAN];
    TRY(model_open(&net, model_types[c->model.type], &c->model.of));
    int64_t n = model_elements(net), units = net->units > 1 ? net->units : 1;
    bool many = n >= 999995000;
    fprintf(out, "model   %s, %.2f %s parameters (%" PRId64 ")\n", net->type->name, (double)n / (many ? 1e9 : 1e6),
            many ? "B" : "M", n);
    if (units > 1) snprintf(each, sizeof each, " x %" PRId64 " %ss", units, net->unit);
    fprintf(out, "batch   %" PRId64 " samples = %" PRId64 " lanes x %" PRId64 " micro-batches of %" PRId64 "%s%s\n",
            samples, lanes, samples / lanes / micro, micro, each, config_span(c, span));
    fprintf(out, "data    %" PRId64 " %ss a step, %.0f in %" PRId64 " steps\n", samples * units, net->unit,
            (double)(samples * units) * (double)c->run.steps, c->run.steps);
    err_t rc = plan_groups(out, net, &c->optimizer);
    model_close(net);
    return rc;
}

// Ranks of one node, or GPUs, against what this machine has.
static void print_fit(FILE *out, const char *whose, double needs, double has) {
    char a[HUMAN], b[HUMAN];
    if (has < 0) fprintf(out, "machine %s: needs %s; what this machine has is not known\n", whose, human(a, needs));
    else
        fprintf(out, "machine %s: needs %s, has %s%s: %s\n", whose, human(a, needs), human(b, has),
                strstr(whose, "GPU") ? "" : " available here", needs <= has ? "fits" : "does not fit");
}

// The node whose ranks need most, beside this machine: the other nodes are out of sight.
static void print_machine(FILE *out, const cluster *who, const plan_rank *p) {
    double most = 0, gpu = 0;
    int at = 0, rank = 0;
    char whose[64];
    for (int n = 0; n < who->nodes; n++) {
        double host = 0;
        for (int i = 0; i < who->ranks[n]; i++, rank++) {
            host += (double)(p[rank].on_gpu ? p[rank].host : plan_bytes(&p[rank]));
            if (p[rank].on_gpu) gpu = fmax(gpu, (double)(plan_bytes(&p[rank]) - p[rank].host));
        }
        if (host > most) most = host, at = n;
    }
    int ranks = who->ranks[at];
    if (who->nodes == 1) snprintf(whose, sizeof whose, "%d rank%s", ranks, ranks == 1 ? "" : "s");
    else snprintf(whose, sizeof whose, "%d rank%s of node %d", ranks, ranks == 1 ? "" : "s", at);
    print_fit(out, whose, most, (double)memory_find("").available);
    if (gpu > 0) print_fit(out, "a rank on its GPU", gpu, (double)p[0].gpu_total);
}

// All ranks, over the places.
static err_t plan_ranks(const config *c, int world, const comm_place *place, plan_rank *p) {
    for (int k = 0; k < world; k++) TRY(plan_one(c, k, world, place, &p[k]));
    return ERR_OK;
}

typedef struct stage_plan {
    bool possible;
    size_t most;   // bytes of the rank with most
    int64_t sent;  // by all ranks
} stage_plan;

// The same layout at another ZeRO stage. p: room for a plan of each rank. Not every layout can have every stage: a
// pipeline's micro-batches depend on how lanes are dealt.
static err_t plan_stage(const config *c, int zero, int world, const comm_place *place, plan_rank *p, stage_plan *out) {
    config *other = malloc(sizeof *other);
    if (!other) return err_set(ERR_INTERNAL, "no memory for the settings of ZeRO stage %d", zero);
    *other = *c;
    other->parallel.zero = zero;
    err_t rc = plan_ranks(other, world, place, p);
    free(other);
    *out = (stage_plan){.possible = rc == ERR_OK};
    if (rc != ERR_OK) return rc == ERR_CONFIG ? ERR_OK : rc;
    out->most = memory_of(p, world).most;
    for (int k = 0; k < world; k++) out->sent += amount_of(&p[k], PLAN_GROUPS, (counted){0}).sent;
    return ERR_OK;
}

// Which stage takes least. Ranks that share positions have stages 2 and 3 only: each sends its part of a lane's
// gradient when the lane ends. A file has what its rank owns, in stages 1 to 3. A plan of many ranks takes seconds, and
// this would be four of them.
static err_t print_zero(FILE *out, const config *c, const grid *g, const comm_place *place) {
    enum { STAGES = 4, COMPARED = 64 };
    if (grid_world(g) > COMPARED) {
        fprintf(out, "zero    with more than %d ranks, stages are compared by a plan of each: -o parallel.zero=2\n",
                COMPARED);
        return ERR_OK;
    }
    stage_plan at[STAGES] = {0};
    int best = -1;
    char a[HUMAN], b[HUMAN];
    plan_rank *p = calloc((size_t)grid_world(g), sizeof *p);
    err_t rc = p ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a plan of %d ranks", grid_world(g));
    int least = grid_context(g) > 1 ? 2 : c->parallel.offload == OFFLOAD_NVME ? 1 : 0;
    for (int z = least; z < STAGES && rc == ERR_OK; z++) {
        rc = plan_stage(c, z, grid_world(g), place, p, &at[z]);
        if (at[z].possible && (best < 0 || at[z].most < at[best].most)) best = z;
    }
    free(p);
    TRY(rc);
    fprintf(out, "zero    memory of a rank at each ZeRO stage; all ranks send in a step\n");
    for (int z = 0; z < STAGES; z++)
        if (at[z].possible)
            fprintf(out, "  %d %16zu %10s %10s%s%s\n", z, at[z].most, human(a, (double)at[z].most),
                    human(b, (double)at[z].sent), z == best ? "   takes least" : "",
                    z == c->parallel.zero ? "   this run" : "");
    return ERR_OK;
}

// The most that a machine sends to others in a step; of one machine, the most that a rank does.
static int64_t most_sent(const cluster *who, const plan_rank *p) {
    int64_t most = 0;
    for (int n = 0, r = 0; n < who->nodes; n++) {
        int64_t sent = 0;
        for (int i = 0; i < who->ranks[n]; i++, r++) {
            sent += p[r].sent_far;
            if (who->nodes == 1 && p[r].sent > most) most = p[r].sent;
        }
        most = sent > most ? sent : most;
    }
    return most;
}

// The seconds that a rank codes in a step, and those that it would add lanes without codes: at the speed of the device
// here, which is measured.
static err_t time_codes(const config *c, const plan_rank *p, int world, const comm_place *place, double *coding,
                        double *adding) {
    session x = {0};
    comm *ranks;
    TRY(comm_imaginary_open(&ranks, 0, world, place));
    err_t rc = session_plan(&x, c, ranks);
    if (rc == ERR_OK) {
        const state_options *o = &x.state.o;
        peak_codec rate = o->kept ? peak_largest(x.dev, x.s, o->kept, 4) : peak_codes(x.dev, x.s, o->compress, 1);
        double sums = peak_bandwidth(x.dev, x.s, 1) / (3 * sizeof(float));
        *coding = rate.encoded > 0 ? (double)p->encoded / rate.encoded + (double)p->decoded / rate.decoded : NAN;
        *adding = sums > 0 ? (double)p->added / sums : NAN;
    }
    session_close(&x);
    return rc;
}

// "int8 to owners, int8 back"
static const char *codes_text(const config *c, char dst[2 * CONFIG_WORD + 32]) {
    char to[CONFIG_WORD], from[CONFIG_WORD];
    config_word(config_key(config_find(c, "reduce", "compress"))->words, c->reduce.compress, to);
    config_word(config_key(config_find(c, "reduce", "compress_back"))->words, c->reduce.compress_back, from);
    if (c->reduce.compress == SEND_TOPK)
        snprintf(dst, 2 * CONFIG_WORD + 32, "%s, %g of each lane", to, c->reduce.density);
    else snprintf(dst, 2 * CONFIG_WORD + 32, "%s to owners, %s back", to, from);
    return dst;
}

// In ZeRO 1 to 3 sums don't come back, but the weights that were made of them do, whole.
static void advise(FILE *out, const config *c, const cluster *who, int64_t saved) {
    if (c->reduce.compress == SEND_TOPK && c->parallel.zero > 0)
        fprintf(out, "        most of it is weights on their way back: zero = 0 sends none\n");
    if (saved <= 0)
        fprintf(out, "        they never pay here: each lane travels by itself; give each rank fewer [batch] lanes\n");
    if (who->nodes == 1) fprintf(out, "        ranks of one machine send through memory: leave compress = none\n");
}

// What codes save, and what they take: they pay where the wire takes longer for the difference in bytes than a rank
// takes for the difference in work. Both are as if nothing went beside anything else.
static err_t print_codes(FILE *out, const config *c, const cluster *who, const comm_place *place, const plan_rank *p) {
    char text[2 * CONFIG_WORD + 32], coded[HUMAN], plain[HUMAN];
    double coding, adding;
    config *other = malloc(sizeof *other);
    plan_rank *without = calloc((size_t)who->world, sizeof *without);
    err_t rc = other && without ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a plan of %d ranks", who->world);
    if (rc == ERR_OK) {
        *other = *c;
        other->reduce.compress = SEND_ALL, other->reduce.compress_back = CODEC_NONE;
        rc = plan_ranks(other, who->world, place, without);
    }
    int64_t more = rc == ERR_OK ? most_sent(who, without) : 0, less = most_sent(who, p), at_first = 0;
    if (rc == ERR_OK && c->reduce.density_warmup) {
        *other = *c;
        other->reduce.density = 0.25, other->reduce.density_warmup = 0;
        rc = plan_ranks(other, who->world, place, without);
        at_first = rc == ERR_OK ? most_sent(who, without) : 0;
    }
    free(other), free(without);
    if (rc == ERR_CONFIG) {  // codes deal lanes in turns: without them, ranks may have too few for a schedule
        fprintf(out, "codes   %s: a rank sends %s a step at most; without them there is no such layout\n",
                codes_text(c, text), human(coded, (double)less));
        return ERR_OK;
    }
    TRY(rc);
    TRY(time_codes(c, &p[0], who->world, place, &coding, &adding));
    const char *one = who->nodes > 1 ? "machine" : "rank";
    fprintf(out, "codes   %s: a %s sends %s a step, without them %s\n", codes_text(c, text), one,
            human(coded, (double)less), human(plain, (double)more));
    if (at_first)
        fprintf(out, "        until step %" PRId64 " more, first a quarter of each lane: %s\n",
                c->reduce.density_warmup, human(coded, (double)at_first));
    fprintf(out, "        they take a rank %.1f ms of a step, adding without them %.1f ms (measured here, now)\n",
            1e3 * coding, 1e3 * adding);
    if (more > less && coding > adding)
        fprintf(out, "        they pay where a %s's wire carries less than %.3g Gbit/s\n", one,
                8e-9 * (double)(more - less) / (coding - adding));
    else if (more > less) fprintf(out, "        they are no slower than adding: they pay on any wire\n");
    advise(out, c, who, more - less);
    return ERR_OK;
}

// What goes between islands, whose ranks share nothing in a step but what decides it: spread over the steps between two
// boundaries, beside what gradients would take.
static void print_islands(FILE *out, const config *c, const plan_rank *p, int world) {
    int64_t most = 0;
    char text[HUMAN], codes[CONFIG_WORD];
    config_word(config_key(config_find(c, "outer", "compress"))->words, c->outer.compress, codes);
    for (int k = 0; k < world; k++) {
        int64_t n = amount_of(&p[k], PLAN_GROUPS, (counted){.mixed = true}).sent;
        most = n > most ? n : most;
    }
    fprintf(out,
            "islands %" PRId64 " mix their weights every %" PRId64 " step%s: for that a rank sends at most %s a step, "
            "on average\n",
            c->outer.islands, c->outer.every, c->outer.every == 1 ? "" : "s",
            human(text, (double)most / (double)c->outer.every));
    if (c->outer.compress != CODEC_NONE)
        fprintf(out, "        weights go in %s%s\n", codes,
                c->outer.moments == MOMENTS_OWN ? ""
                                                : ", moments in fp32: moments = own would leave them where they are");
}

// Of the rank that has most there.
static void print_disk(FILE *out, const plan_rank *p, int world) {
    char has[HUMAN], reads[HUMAN];
    const plan_rank *most = p;
    for (int k = 1; k < world; k++) most = p[k].disk > most->disk ? &p[k] : most;
    human(reads, (double)(most->disk * most->disk_reads));
    fprintf(out, "disk    a rank has a file of %" PRId64 " bytes, of which a step reads %s and writes %s\n", most->disk,
            reads, human(has, (double)most->disk));
}

static err_t plan_all(const config *c, const cluster *who, plan_rank *p, const comm_place *place, bool draw,
                      FILE *out) {
    static const char *const again[] = {[RECOMPUTE_NONE] = "",
                                        [RECOMPUTE_SELECTIVE] = ", recompute selective",
                                        [RECOMPUTE_BLOCK] = ", recompute block"};
    static const char *const offload[] = {
        [OFFLOAD_NONE] = "", [OFFLOAD_HOST] = " offload", [OFFLOAD_NVME] = " offload to files"};
    int world = who->world;
    TRY(plan_ranks(c, world, place, p));
    grid shape = config_grid(c, world);
    TRY(print_model(out, c));
    print_layout(out, &shape);
    fprintf(out, "ranks   %d on %d node%s", world, who->nodes, who->nodes == 1 ? "" : "s");
    if (who->racks > 1) fprintf(out, " in %d racks", who->racks);
    fprintf(out, ", zero %" PRId64 "%s%s, order %s\n", world > 1 ? c->parallel.zero : 0, offload[c->parallel.offload],
            again[c->parallel.recompute], c->reduce.order == ORDER_FIXED ? "fixed" : "any");
    print_lanes(out, c, p, &shape);
    if (shape.pipeline > 1) TRY(print_pipeline(out, c, &shape, p, draw));
    print_memory(out, c, p, world);
    print_machine(out, who, p);
    if (c->parallel.offload == OFFLOAD_NVME) print_disk(out, p, world);
    if (grid_group_size(&shape, GROUP_DATA) > 1) TRY(print_zero(out, c, &shape, place));
    for (int k = 0; k < 4 && world > 1; k++) {
        counted of = {.messages = k % 2, .mixed = k / 2};
        if (!of.mixed || grid_islands(&shape) > 1) print_traffic(out, p, who, &shape, of);
    }
    if (grid_islands(&shape) > 1) print_islands(out, c, p, world);
    if (world > 1 && c->reduce.compress != SEND_ALL) TRY(print_codes(out, c, who, place, p));
    fprintf(out, "time    is not planned: `lockstep bench` measures a step of this run\n");
    return ERR_OK;
}

err_t plan_places(const config *c, cluster *who, comm_place **place) {
    TRY(cluster_planned(who, c));  // for all nodes, not only this one
    comm_place *at = *place = calloc((size_t)who->world, sizeof *at);
    if (!at) return err_set(ERR_INTERNAL, "no memory for the places of %d ranks", who->world);
    for (int n = 0, rank = 0; n < who->nodes; n++)
        for (int i = 0; i < who->ranks[n]; i++, rank++) {
            at[rank] = (comm_place){.node = n, .local = i, .rank = rank, .rack = who->rack[n]};
            snprintf(at[rank].host, sizeof at[rank].host, "%s", who->host[n]);
        }
    return ERR_OK;
}

err_t verb_plan(const config *c, bool draw, FILE *out) {
    cluster who;
    comm_place *place;
    TRY(plan_places(c, &who, &place));
    plan_rank *p = calloc((size_t)who.world, sizeof *p);
    err_t rc = p ? plan_all(c, &who, p, place, draw, out)
                 : err_set(ERR_INTERNAL, "no memory for a plan of %d ranks", who.world);
    free(p), free(place);
    return rc;
}
