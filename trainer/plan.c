// trainer/plan.c: see trainer/plan.h.
#include "trainer/plan.h"

#include "comm/cost.h"
#include "trainer/node/cluster.h"
#include "trainer/train.h"

#include <stdlib.h>

static size_t aligned(const tensor *t) { return t->dims ? (tensor_bytes(t) + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN : 0; }

size_t plan_bytes(const plan_rank *p) {
    return p->weights + p->masters + p->moments + p->gradients + p->counters + p->scratch + p->gather + p->activations + p->staging + p->ring + p->rest;
}

static void count_memory(const session *x, plan_rank *p) {
    const train_state *t = &x->state;
    bool same = t->o.compute == FP32 && !t->o.offload;
    p->weights = same ? 0 : aligned(&t->weights.t);
    p->masters = aligned(&t->masters.t);
    for (int k = 0; k < t->arrays; k++) p->moments += aligned(&t->array[k].t);
    for (int i = 0; t->slab && i < t->buffers; i++) p->gradients += aligned(&t->slab[i]);
    for (int i = 0; i < t->slots; i++) p->gradients += aligned(&t->slot[i]);
    for (int i = 0; i < t->kepts; i++) p->counters += aligned(&t->kept[i]);
    p->counters += aligned(&t->sum);
    p->scratch = aligned(&t->scratch);
    p->gather = aligned(&t->gather[0]) + aligned(&t->gather[1]);
    p->activations = x->runner.memory.bytes;
    p->staging = x->runner.staging.bytes + aligned(&t->stage_w) + aligned(&t->stage_g);
    p->ring = x->ring_bytes;
    p->rest = state_bytes(t) + x->runner.staging.bytes - (p->weights + p->masters + p->moments + p->gradients + p->counters + p->scratch + p->gather + p->staging);
}

static void add(plan_rank *p, comm_cost x) {
    p->sent += x.sent;
    p->sent_far += x.sent_far;
}

static err_t count_fixed(session *x, plan_rank *p) {
    const zero_layout *z = &x->state.zero;
    for (int64_t turn = 0; turn < reduce_turns(x->state.reduce); turn++)
        for (int k = 0; k < z->buckets; k++) {
            reduce_cost cost;
            TRY(reduce_plan(x->state.reduce, turn, z->bucket[k].first, z->bucket[k].count, &cost));
            add(p, (comm_cost){cost.sent, cost.sent_far});
        }
    for (int g = 0; x->state.o.stage == 0 && g < z->segments; g++) add(p, cost_all_gather(x->ranks, state_cuts(&x->state, g, sizeof(float))));
    return ERR_OK;
}

static void count_any(session *x, plan_rank *p) {
    const zero_layout *z = &x->state.zero;
    for (int k = 0; x->state.o.stage == 0 && k < z->buckets; k++) add(p, cost_all_reduce(x->ranks, z->bucket[k].floats, sizeof(float)));
    for (int64_t turn = 0; x->state.o.stage > 0 && turn < reduce_turns(x->state.reduce); turn++)
        for (int g = 0; g < z->segments; g++) add(p, cost_reduce_scatter(x->ranks, state_cuts(&x->state, g, 1), sizeof(float)));
}

// Stage 3: a block is gathered when neither of the two places has it.
static void count_gathers(session *x, plan_rank *p) {
    train_state *t = &x->state;
    int blocks = x->net->blocks, held[2] = {-1, -1};
    int64_t passes = reduce_turns(t->reduce) * t->o.micros;
    for (int64_t i = 0; i < passes * 2 * blocks; i++) {
        int at = (int)(i % (2 * blocks)), block = at < blocks ? at : 2 * blocks - 1 - at;
        int next = at < blocks ? block + 1 : block - 1;
        for (int k = 0; k < 2; k++) {
            int b = k ? next : block;
            if (b < 0 || b >= blocks || held[b % 2] == b) continue;
            held[b % 2] = b;
            for (int g = 0; g < t->zero.segments; g++)
                if (state_uses(t, b, g)) add(p, cost_all_gather(x->ranks, state_cuts(t, g, dtype_bytes(t->o.compute))));
        }
    }
}

static err_t count_traffic(session *x, plan_rank *p) {
    train_state *t = &x->state;
    if (x->ranks->world == 1) return ERR_OK;
    if (t->o.fixed) TRY(count_fixed(x, p));
    else count_any(x, p);
    if (t->o.stage == 3) count_gathers(x, p);
    for (int g = 0; (t->o.stage == 1 || t->o.stage == 2) && g < t->zero.segments; g++)
        if (!t->zero.segment[g].tied) add(p, cost_all_gather(x->ranks, state_cuts(t, g, dtype_bytes(t->o.compute))));
    add(p, cost_all_reduce(x->ranks, (size_t)tensor_count(&x->runner.shared), sizeof(double)));
    return ERR_OK;
}

err_t plan_one(const config *c, int rank, int world, const comm_place *place, plan_rank *out) {
    session x = {0};
    comm *ranks;
    *out = (plan_rank){0};
    TRY(comm_imaginary_open(&ranks, rank, world, place));
    err_t rc = session_plan(&x, c, ranks);
    if (rc == ERR_OK) {
        out->lanes = reduce_lane_count(x.state.reduce, rank);
        count_memory(&x, out);
        rc = count_traffic(&x, out);
    }
    session_close(&x);
    return rc;
}

// --- the table ---------------------------------------------------------------------------------------------------------------------

typedef struct column { const char *name; size_t offset; } column;

static const column columns[] = {
    {"weights", offsetof(plan_rank, weights)},       {"masters (fp32)", offsetof(plan_rank, masters)}, {"moments", offsetof(plan_rank, moments)},
    {"gradients", offsetof(plan_rank, gradients)},   {"sums of shares", offsetof(plan_rank, counters)}, {"reduction", offsetof(plan_rank, scratch)},
    {"gathered weights", offsetof(plan_rank, gather)}, {"activations", offsetof(plan_rank, activations)}, {"staging", offsetof(plan_rank, staging)},
    {"loader's ring", offsetof(plan_rank, ring)},    {"rest", offsetof(plan_rank, rest)},
};

static size_t value(const plan_rank *p, const column *c) { return *(const size_t *)((const char *)p + c->offset); }

// The least and the most over the ranks: they differ where shares are uneven.
static void print_row(FILE *out, const char *name, int64_t least, int64_t most) {
    if (least == most) fprintf(out, "  %-18s %16lld\n", name, (long long)most);
    else fprintf(out, "  %-18s %16lld   on the rank with least %lld\n", name, (long long)most, (long long)least);
}

static void print_memory(FILE *out, const plan_rank *p, int world) {
    fprintf(out, "memory of a rank, bytes\n");
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        size_t least = value(&p[0], &columns[i]), most = least;
        for (int k = 1; k < world; k++) {
            size_t n = value(&p[k], &columns[i]);
            least = n < least ? n : least, most = n > most ? n : most;
        }
        if (most) print_row(out, columns[i].name, (int64_t)least, (int64_t)most);
    }
    size_t least = plan_bytes(&p[0]), most = least;
    for (int k = 1; k < world; k++) {
        size_t n = plan_bytes(&p[k]);
        least = n < least ? n : least, most = n > most ? n : most;
    }
    print_row(out, "all", (int64_t)least, (int64_t)most);
    fprintf(out, "  beside it, measured in no arena: the kernels' packing buffers, the transport's rings, the program\n");
}

static void print_traffic(FILE *out, const plan_rank *p, int world) {
    int64_t sent = 0, far = 0, least = p[0].sent, most = p[0].sent;
    for (int k = 0; k < world; k++) {
        sent += p[k].sent, far += p[k].sent_far;
        least = p[k].sent < least ? p[k].sent : least, most = p[k].sent > most ? p[k].sent : most;
    }
    fprintf(out, "traffic of a step, bytes\n");
    print_row(out, "sent by a rank", least, most);
    fprintf(out, "  %-18s %16lld   of these %lld between nodes\n", "by all", (long long)sent, (long long)far);
}

// Lanes are not divided, so a rank with fewer lanes than another waits.
static void print_lanes(FILE *out, const plan_rank *p, int world, int64_t lanes) {
    int64_t most = 0;
    for (int k = 0; k < world; k++) most = p[k].lanes > most ? p[k].lanes : most;
    fprintf(out, "lanes   %lld on %d rank%s, at most %lld each: %.1f %% of the time idle\n", (long long)lanes, world, world == 1 ? "" : "s", (long long)most,
            100 * (1 - (double)lanes / (double)(most * world)));
}

static err_t plan_all(const config *c, const cluster *who, plan_rank *p, comm_place *place, FILE *out) {
    static const char *const again[] = {[RECOMPUTE_NONE] = "", [RECOMPUTE_SELECTIVE] = ", recompute selective", [RECOMPUTE_BLOCK] = ", recompute block"};
    int world = 0;
    for (int n = 0; n < who->nodes; n++)
        for (int i = 0; i < who->ranks[n]; i++, world++) {
            place[world] = (comm_place){.node = n, .local = i};
            snprintf(place[world].host, sizeof place[world].host, "%s", who->host[n]);
        }
    for (int k = 0; k < world; k++) TRY(plan_one(c, k, world, place, &p[k]));
    fprintf(out, "ranks   %d on %d node%s, zero %d%s%s, order %s\n", world, who->nodes, who->nodes == 1 ? "" : "s", world > 1 ? (int)c->parallel.zero : 0,
            c->parallel.offload ? " offload" : "", again[c->parallel.recompute], c->reduce.order == ORDER_FIXED ? "fixed" : "any");
    print_lanes(out, p, world, c->batch.lanes);
    print_memory(out, p, world);
    if (world > 1) print_traffic(out, p, world);
    return ERR_OK;
}

err_t verb_plan(const config *c, FILE *out) {
    cluster who;
    TRY(c->cluster.nodes[0] ? cluster_parse(&who, c->cluster.nodes) : cluster_resolve(&who, c));  // for all nodes, not only this one
    TRY(config_fits(c, who.world));
    plan_rank *p = calloc((size_t)who.world, sizeof *p);
    comm_place *place = calloc((size_t)who.world, sizeof *place);
    err_t rc = p && place ? plan_all(c, &who, p, place, out) : err_set(ERR_INTERNAL, "no memory for a plan of %d ranks", who.world);
    free(p), free(place);
    return rc;
}
