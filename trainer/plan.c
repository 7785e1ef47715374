// trainer/plan.c: see trainer/plan.h.
#include "trainer/plan.h"

#include "comm/cost.h"
#include "trainer/step/sync.h"
#include "trainer/node/cluster.h"
#include "trainer/train.h"

#include <inttypes.h>
#include <stdlib.h>

static size_t aligned(const tensor *t) { return t->dims ? (tensor_bytes(t) + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN : 0; }

size_t plan_bytes(const plan_rank *p) {
    return p->weights + p->masters + p->moments + p->gradients + p->counters + p->scratch + p->gather + p->activations + p->staging + p->ring +
           p->rest;
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
    p->rest = state_bytes(t) + x->runner.staging.bytes -
              (p->weights + p->masters + p->moments + p->gradients + p->counters + p->scratch + p->gather + p->staging);
}

static void add(plan_rank *p, comm_cost x) {
    p->sent += x.sent;
    p->sent_far += x.sent_far;
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
        if (a->kind == ACTION_SHARE) cost = cost_all_reduce(x->ranks, (size_t)tensor_count(&x->runner.shared), sizeof(double));
        add(p, cost);
    }
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

typedef struct column {
    const char *name;
    size_t offset;
} column;

static const column columns[] = {
    {"weights", offsetof(plan_rank, weights)},
    {"masters (fp32)", offsetof(plan_rank, masters)},
    {"moments", offsetof(plan_rank, moments)},
    {"gradients", offsetof(plan_rank, gradients)},
    {"sums of shares", offsetof(plan_rank, counters)},
    {"reduction", offsetof(plan_rank, scratch)},
    {"gathered weights", offsetof(plan_rank, gather)},
    {"activations", offsetof(plan_rank, activations)},
    {"staging", offsetof(plan_rank, staging)},
    {"loader's ring", offsetof(plan_rank, ring)},
    {"rest", offsetof(plan_rank, rest)},
};

static size_t value(const plan_rank *p, const column *c) { return *(const size_t *)((const char *)p + c->offset); }

// The least and the most over the ranks: they differ where shares are uneven.
static void print_row(FILE *out, const char *name, int64_t least, int64_t most) {
    if (least == most) fprintf(out, "  %-18s %16" PRId64 "\n", name, most);
    else fprintf(out, "  %-18s %16" PRId64 "   on the rank with least %" PRId64 "\n", name, most, least);
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
    fprintf(out, "  %-18s %16" PRId64 "   of these %" PRId64 " between nodes\n", "by all", sent, far);
}

// Lanes are not divided, so a rank with fewer lanes than another waits.
static void print_lanes(FILE *out, const plan_rank *p, int world, int64_t lanes) {
    int64_t most = 0;
    for (int k = 0; k < world; k++) most = p[k].lanes > most ? p[k].lanes : most;
    fprintf(out, "lanes   %" PRId64 " on %d rank%s, at most %" PRId64 " each: %.1f %% of the time idle\n", lanes, world, world == 1 ? "" : "s", most,
            100 * (1 - (double)lanes / (double)(most * world)));
}

static err_t plan_all(const config *c, const cluster *who, plan_rank *p, comm_place *place, FILE *out) {
    static const char *const again[] = {
        [RECOMPUTE_NONE] = "", [RECOMPUTE_SELECTIVE] = ", recompute selective", [RECOMPUTE_BLOCK] = ", recompute block"};
    int world = 0;
    for (int n = 0; n < who->nodes; n++)
        for (int i = 0; i < who->ranks[n]; i++, world++) {
            place[world] = (comm_place){.node = n, .local = i};
            snprintf(place[world].host, sizeof place[world].host, "%s", who->host[n]);
        }
    for (int k = 0; k < world; k++) TRY(plan_one(c, k, world, place, &p[k]));
    fprintf(out, "ranks   %d on %d node%s, zero %" PRId64 "%s%s, order %s\n", world, who->nodes, who->nodes == 1 ? "" : "s",
            world > 1 ? c->parallel.zero : 0, c->parallel.offload ? " offload" : "", again[c->parallel.recompute],
            c->reduce.order == ORDER_FIXED ? "fixed" : "any");
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
