// trainer/plan/plan_table.c: `lockstep plan` as a table: what trainer/plan/plan.c counts, in words.
#include "base/memory.h"
#include "gpu/peak.h"
#include "trainer/config/pipes.h"
#include "trainer/config/table.h"
#include "trainer/plan/plan_groups.h"
#include "comm/server/cold.h"
#include "comm/server/table.h"
#include "trainer/plan/plan_ranks.h"
#include "trainer/session/session.h"
#include "trainer/step/timeline.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    {"rows on demand", offsetof(plan_rank, rows)},
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

static range memory_of(const plan_ranks *p) {
    range r = {plan_bytes(&p->kind[0]), plan_bytes(&p->kind[0])};
    for (int k = 1; k < p->kinds; k++) {
        size_t n = plan_bytes(&p->kind[k]);
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

// Those with lanes, and those without, hold other things.
static void print_roles(FILE *out, const plan_ranks *p, const grid *g) {
    size_t most[2] = {0, 0};
    if (!g->servers) return;
    for (int r = 0; r < p->world; r++) {
        size_t n = plan_bytes(plan_of(p, r)), *to = &most[grid_serves(g, r)];
        *to = n > *to ? n : *to;
    }
    print_number(out, "  of a server", (int64_t)most[true], "at most", true);
    print_number(out, "  of another", (int64_t)most[false], "at most", true);
}

static void print_memory(FILE *out, const config *c, const plan_ranks *p, const grid *g) {
    fprintf(out, "memory of a rank, bytes\n");
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        size_t least = value(&p->kind[0], &columns[i]), most = least;
        for (int k = 1; k < p->kinds; k++) {
            size_t n = value(&p->kind[k], &columns[i]);
            least = n < least ? n : least, most = n > most ? n : most;
        }
        if (most) print_row(out, columns[i].name, (int64_t)least, (int64_t)most, true);
    }
    range all = memory_of(p);
    print_row(out, "all", (int64_t)all.least, (int64_t)all.most, true);
    print_roles(out, p, g);
    fprintf(out,
            "  beside it, measured in no arena: the kernels' packing buffers, the transport's rings, the program\n");
    print_whole(out, c, plan_of(p, 0));
}

typedef struct amount {
    int64_t sent, apart, far, racks;
} amount;

// What is in a table of traffic.
typedef struct counted {
    bool messages;  // not bytes
    bool mixed;     // at a boundary of islands, beside a step
    bool apart;     // there are no boundaries
} counted;

// What a rank sends to a group; PLAN_GROUPS: to all of them.
static amount amount_of(const plan_rank *p, int group, counted of) {
    amount x = {0};
    for (int g = 0; g < PLAN_GROUPS; g++) {
        if (group != PLAN_GROUPS && group != g) continue;
        const comm_cost *c = of.mixed ? &p->mixed[g] : &p->to[g];
        x.sent += of.messages ? c->messages : c->sent, x.far += of.messages ? c->messages_far : c->sent_far;
        x.racks += of.messages ? c->messages_racks : c->sent_racks;
        x.apart += of.messages ? c->messages_apart : c->sent_apart;
    }
    return x;
}

static void print_group(FILE *out, const char *indent, const char *name, const plan_ranks *p, int group, counted of) {
    amount all = {0};
    for (int k = 0; k < p->world; k++) {
        amount x = amount_of(plan_of(p, k), group, of);
        all.sent += x.sent, all.far += x.far;
    }
    char text[HUMAN], beside[64];
    snprintf(beside, sizeof beside, "of these %" PRId64 " between nodes", all.far);
    fprintf(out, "%s%-*s %16" PRId64 "   ", indent, 20 - (int)strlen(indent), name, all.sent);
    if (of.messages) fprintf(out, "%s\n", beside);
    else fprintf(out, "%-36s %10s\n", beside, human(text, (double)all.sent));
}

typedef enum { WITHIN_JOINS, WITHIN_NODES, BETWEEN_NODES, BETWEEN_RACKS } crossing;

static int64_t crosses(amount x, crossing what, bool joined) {
    return what == WITHIN_JOINS    ? x.sent - x.apart
           : what == WITHIN_NODES  ? (joined ? x.apart : x.sent) - x.far
           : what == BETWEEN_NODES ? x.far - x.racks
                                   : x.racks;
}

// Which wires that takes, each byte once: what crosses between racks is not counted between nodes again.
static void print_levels(FILE *out, const plan_ranks *p, const plan_world *who, counted of) {
    static const char *const name[] = {"joined ranks", "within nodes", "between nodes", "between racks"};
    bool joined = who->joined > 0;
    int last = who->racks > 1 ? BETWEEN_RACKS : who->nodes > 1 ? BETWEEN_NODES : joined ? WITHIN_NODES : WITHIN_JOINS;
    for (int k = joined ? WITHIN_JOINS : WITHIN_NODES; k <= last; k++) {
        int64_t all = 0, most = 0;
        char beside[64];
        for (int r = 0; r < who->world; r++) {
            int64_t n = crosses(amount_of(plan_of(p, r), PLAN_GROUPS, of), (crossing)k, joined);
            all += n, most = n > most ? n : most;
        }
        snprintf(beside, sizeof beside, "by the rank with most %" PRId64, most);
        print_number(out, name[k], all, beside, !of.messages);
    }
}

// Of a model that ranks share: what goes on which connections, too.
static void print_traffic(FILE *out, const plan_ranks *p, const plan_world *who, const grid *shape, counted of) {
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
    for (int k = 0; k < p->kinds; k++) {
        int64_t n = amount_of(&p->kind[k], PLAN_GROUPS, of).sent;
        least = n < least ? n : least, most = n > most ? n : most;
    }
    const char *when = !of.mixed  ? "step"
                       : of.apart ? "step after which most leaves islands, beside its own"
                                  : "boundary, beside its step's";
    if (of.messages) fprintf(out, "messages of a %s, to other ranks\n", when);
    else fprintf(out, "traffic of a %s, bytes\n", when);
    print_row(out, "sent by a rank", least, most, !of.messages);
    print_group(out, "  ", "by all", p, PLAN_GROUPS, of);
    print_levels(out, p, who, of);
    for (int g = 0; g < PLAN_GROUPS && grid_is_divided(shape); g++)
        if (has[g]) print_group(out, "    ", name[g], p, g, of);
}

// Of each of those that share the lanes, where they were dealt by hand.
static void print_deal(FILE *out, const config *c, const plan_ranks *p, const grid *g) {
    if (*c->parallel.deal) fprintf(out, ", dealt");
    for (int d = 0; *c->parallel.deal && d < grid_workers(g); d++)
        fprintf(out, "%s%" PRId64, d ? "," : " ", plan_of(p, grid_rank(g, (grid_place){.data = d}))->lanes);
}

// The last of those that share the lanes have none.
static void print_servers(FILE *out, const config *c, const grid *g) {
    int each = g->tensor * grid_context(g), n = g->servers * each;
    if (!g->servers) return;
    fprintf(out, "servers %d: the last rank%s run%s no lanes and keep%s masters and optimizer state; ", n,
            n == 1 ? "" : "s", n == 1 ? "s" : "", n == 1 ? "s" : "");
    if (c->server.weight > 0) fprintf(out, "another keeps %g of what one of them keeps\n", c->server.weight);
    else fprintf(out, "the others keep none\n");
    if (config_is_served(c))
        fprintf(out, "        of each worker a gradient; all ranks meet every %" PRId64 " step%s\n", c->server.every,
                c->server.every == 1 ? "" : "s");
}

// Lanes are not divided, so a rank with fewer lanes than another waits, if it is as fast.
static void print_lanes(FILE *out, const config *c, const plan_ranks *p, const grid *g) {
    int64_t most = 0, lanes = c->resolved.lanes, shares = grid_workers(g) * grid_islands(g);
    for (int k = 0; k < p->kinds; k++) most = p->kind[k].lanes > most ? p->kind[k].lanes : most;
    // whose ranks have the same lanes
    const char *who = g->tensor * grid_context(g) > 1 ? "model" : g->pipeline > 1 ? "pipeline" : "rank";
    fprintf(out, "lanes   %" PRId64 " on %" PRId64 " %s%s", lanes, shares, who, shares == 1 ? "" : "s");
    print_deal(out, c, p, g);
    fprintf(out, ", at most %" PRId64 " each: %.1f %% of the time idle\n", most,
            100 * (1 - (double)lanes / (double)(most * shares)));
    print_servers(out, c, g);
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

static err_t draw_schedule(FILE *out, const pipeline_layout *l) {
    timeline even;
    TRY(timeline_of_flops(l, NULL, NULL, RECOMPUTE_NONE, &even));
    size_t n = timeline_draw(&even, 1, NULL, 0);
    char *text = malloc(n + 1);
    if (text) timeline_draw(&even, 1, text, n + 1), fprintf(out, "%s", text);
    timeline_free(&even);
    free(text);
    return text ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a drawing of %zu characters", n);
}

// Each rank of the first pipeline: its blocks, and what it holds.
static void print_stages(FILE *out, const grid *g, const plan_ranks *p, const timeline *t) {
    for (int s = 0; s < g->pipeline; s++) {
        const plan_rank *k = plan_of(p, grid_rank(g, (grid_place){.stage = s}));
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

static err_t print_pipeline(FILE *out, const config *c, const grid *g, const plan_ranks *p, bool draw) {
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
            cut[pipeline_stage_of(&l, r, k)] = plan_of(p, grid_rank(g, (grid_place){.stage = r}))->first[k];
    err_t rc = model_open(&net, model_types[c->model.type], &c->model.of);
    if (rc == ERR_OK) {
        cut[count] = net->blocks;
        rc = timeline_of_flops(&l, net, cut, c->parallel.recompute, &t);
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

static const char *owners_of(const config *c) {
    if (!c->server.count) return "ranks";
    return c->server.weight > 0 ? "ranks by [server] weight" : "servers";
}

// Rows on demand are in no arena, and how many a step names depends on the ids: what one takes, and the most of them.
static void print_rows(FILE *out, const config *c, const plan_world *who, const model_table *t) {
    if (!t->width) return;
    int64_t row = 4 * (t->width + 1), key = (int64_t)sizeof(row_key), most = c->batch.global * t->tables;
    fprintf(out,
            "rows    on demand: %" PRId64 " bytes each, and %" PRId64 " to %" PRId64
            " of index, divided among the %s; beside the memory below\n"
            "        a step names %" PRId64 " at most: %" PRId64
            " bytes of one that is another rank's, beside the traffic "
            "below\n",
            row, key * 8 / 5, key * 16 / 5, owners_of(c), most, 2 * (key + 4 * t->width));
    if (c->cluster.elastic && c->snapshot.every)
        fprintf(out, "        two snapshots of a rank's take %" PRId64 " bytes more for each, %s\n",
                2 * (row + key) * (1 + (who->nodes > 1)),
                who->nodes > 1 ? "with those that the next machine has" : "all of them in memory");
    if (c->model.demand_mb > 0)
        fprintf(out,
                "        %s has %.0f bytes of them in memory, at most %.0f rows; the others, of %" PRId64
                " bytes each, are in a file in %s\n",
                c->server.count && !c->server.weight ? "a server" : "a rank", 1e6 * c->model.demand_mb,
                1e6 * c->model.demand_mb / (double)row_table_frame_bytes(t->width), cold_slot_bytes(t->width),
                *c->parallel.offload_dir ? c->parallel.offload_dir : "the run's directory");
}

// How large the model is, and what a step reads.
static err_t print_model(FILE *out, const config *c, const plan_world *who) {
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
    print_rows(out, c, who, &net->table);
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
static void print_machine(FILE *out, const plan_world *who, const plan_ranks *p) {
    double most = 0, gpu = 0;
    int at = 0, ranks = 0;
    char whose[64];
    for (int n = 0, rank = 0; n < who->nodes; n++) {
        double host = 0;
        int first = rank;
        for (; rank < who->world && plan_where(who, rank).node == n; rank++) {
            const plan_rank *k = plan_of(p, rank);
            host += (double)(k->on_gpu ? k->host : plan_bytes(k));
            if (k->on_gpu) gpu = fmax(gpu, (double)(plan_bytes(k) - k->host));
        }
        if (host > most) most = host, at = n, ranks = rank - first;
    }
    if (who->nodes == 1) snprintf(whose, sizeof whose, "%d rank%s", ranks, ranks == 1 ? "" : "s");
    else snprintf(whose, sizeof whose, "%d rank%s of node %d", ranks, ranks == 1 ? "" : "s", at);
    print_fit(out, whose, most, (double)memory_find("").available);
    if (gpu > 0) print_fit(out, "a rank on its GPU", gpu, (double)plan_of(p, 0)->gpu_total);
}

typedef struct stage_plan {
    bool possible;
    size_t most;   // bytes of the rank with most
    int64_t sent;  // by all ranks
} stage_plan;

// The same layout at another ZeRO stage. Not every layout can have every stage: a
// pipeline's micro-batches depend on how lanes are dealt.
static err_t plan_stage(const config *c, int zero, const plan_world *who, stage_plan *out) {
    plan_ranks p;
    config *other = malloc(sizeof *other);
    if (!other) return err_set(ERR_INTERNAL, "no memory for the settings of ZeRO stage %d", zero);
    *other = *c;
    other->parallel.zero = zero;
    err_t rc = plan_ranks_open(&p, other, who, false);
    free(other);
    *out = (stage_plan){.possible = rc == ERR_OK};
    if (rc != ERR_OK) return rc == ERR_CONFIG ? ERR_OK : rc;
    out->most = memory_of(&p).most;
    for (int k = 0; k < p.world; k++) out->sent += amount_of(plan_of(&p, k), PLAN_GROUPS, (counted){0}).sent;
    plan_ranks_close(&p);
    return ERR_OK;
}

// Which stage takes least. Ranks that share positions have stages 2 and 3 only: each sends its part of a lane's
// gradient when the lane ends. A file has what its rank owns, in stages 1 to 3, and so have servers; those that do not
// wait for all lanes have stage 1 only. A plan of thousands of ranks takes a second, and this would be four of them.
static err_t print_zero(FILE *out, const config *c, const grid *g, const plan_world *who) {
    enum { STAGES = 4, COMPARED = 64 };
    if (config_is_served(c)) return ERR_OK;
    if (grid_world(g) > COMPARED) {
        fprintf(out, "zero    with more than %d ranks, stages are compared by a plan of each: -o parallel.zero=2\n",
                COMPARED);
        return ERR_OK;
    }
    stage_plan at[STAGES] = {0};
    int best = -1;
    char a[HUMAN], b[HUMAN];
    err_t rc = ERR_OK;
    int least = grid_context(g) > 1 ? 2 : c->parallel.offload == OFFLOAD_NVME || g->servers ? 1 : 0;
    for (int z = least; z < STAGES && rc == ERR_OK; z++) {
        rc = plan_stage(c, z, who, &at[z]);
        if (at[z].possible && (best < 0 || at[z].most < at[best].most)) best = z;
    }
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
static int64_t most_sent(const plan_world *who, const plan_ranks *p) {
    int64_t most = 0;
    for (int n = 0, r = 0; n < who->nodes; n++) {
        int64_t sent = 0;
        for (; r < who->world && plan_where(who, r).node == n; r++) {
            const plan_rank *k = plan_of(p, r);
            sent += k->sent_far;
            if (who->nodes == 1 && k->sent > most) most = k->sent;
        }
        most = sent > most ? sent : most;
    }
    return most;
}

// NAN: not known.
static double coded_in(peak_codec rate, int64_t encoded, int64_t decoded) {
    return rate.encoded > 0 ? (double)encoded / rate.encoded + (double)decoded / rate.decoded : NAN;
}

// The seconds that a rank codes in a step, and those that it would add lanes without codes: at the speed of the device
// here, which is measured.
static err_t time_codes(const config *c, const plan_rank *p, const plan_world *who, double *coding, double *adding) {
    session x = {0};
    comm *ranks;
    TRY(plan_comm(&ranks, who, 0));
    err_t rc = session_plan(&x, c, ranks);
    if (rc == ERR_OK) {
        const state_options *o = &x.state.o;
        const double bytes = peak_bandwidth(x.dev, x.s, 1);
        const plan_codes *n = &p->codes;
        const peak_codec there =
            o->kept ? peak_largest(x.dev, x.s, o->kept, 4) : peak_codes(x.dev, x.s, o->compress, 1);
        *coding = coded_in(there, n->encoded, n->decoded);
        if (o->back != CODEC_NONE)
            *coding += coded_in(o->back == o->compress ? there : peak_codes(x.dev, x.s, o->back, 1), n->back_encoded,
                                n->back_decoded);
        *coding += bytes > 0 ? 2 * sizeof(float) * (double)n->copied / bytes : NAN;
        *adding = bytes > 0 ? 3 * sizeof(float) * (double)n->added / bytes : NAN;
    }
    session_close(&x);
    return rc;
}

// "int8 to owners, int8 back"
enum { CODES = 2 * CONFIG_WORD + 64 };
static const char *codes_text(const config *c, char dst[CODES]) {
    char to[CONFIG_WORD], from[CONFIG_WORD];
    config_word(config_key(config_find(c, "reduce", "compress"))->words, c->reduce.compress, to);
    config_word(config_key(config_find(c, "reduce", "compress_back"))->words, c->reduce.compress_back, from);
    if (c->reduce.compress == SEND_TOPK)
        snprintf(dst, CODES, "%s, %g of each %s", to, c->reduce.density,
                 c->reduce.compress_span > 1 ? "span of lanes" : "lane");
    else snprintf(dst, CODES, "%s to owners, %s back", to, from);
    size_t n = strlen(dst);
    if (c->reduce.compress_span > 1)
        snprintf(dst + n, CODES - n, ", %" PRId64 " lanes at once", c->reduce.compress_span);
    return dst;
}

// In ZeRO 1 to 3 sums don't come back, but the weights that were made of them do, whole.
static void advise(FILE *out, const config *c, const plan_world *who, int64_t saved) {
    if (c->reduce.compress == SEND_TOPK && c->parallel.zero > 0)
        fprintf(out, "        most of it is weights on their way back: zero = 0 sends none\n");
    if (saved <= 0)
        fprintf(out,
                "        they never pay here: each lane travels by itself; give each rank fewer [batch] lanes, or code "
                "several at once ([reduce] compress_span)\n");
    if (who->nodes == 1) fprintf(out, "        ranks of one machine send through memory: leave compress = none\n");
}

// The most that a machine sends with other settings.
static err_t sent_with(const config *c, const plan_world *who, int64_t *most) {
    plan_ranks p;
    TRY(plan_ranks_open(&p, c, who, false));
    *most = most_sent(who, &p);
    plan_ranks_close(&p);
    return ERR_OK;
}

// What codes save, and what they take: they pay where the wire takes longer for the difference in bytes than a rank
// takes for the difference in work. Both are as if nothing went beside anything else.
static err_t print_codes(FILE *out, const config *c, const plan_world *who, const plan_ranks *p) {
    char text[CODES], coded[HUMAN], plain[HUMAN];
    double coding, adding;
    int64_t more = 0, less = most_sent(who, p), at_first = 0;
    config *other = malloc(sizeof *other);
    if (!other) return err_set(ERR_INTERNAL, "no memory for the settings without codes");
    *other = *c;
    other->reduce.compress = SEND_ALL, other->reduce.compress_back = CODEC_NONE, other->reduce.compress_span = 1;
    err_t rc = sent_with(other, who, &more);
    if (rc == ERR_OK && c->reduce.density_warmup) {
        *other = *c;
        other->reduce.density = 0.25, other->reduce.density_warmup = 0;
        rc = sent_with(other, who, &at_first);
    }
    free(other);
    if (rc == ERR_CONFIG) {  // codes deal lanes in turns: without them, ranks may have too few for a schedule
        fprintf(out, "codes   %s: a rank sends %s a step at most; without them there is no such layout\n",
                codes_text(c, text), human(coded, (double)less));
        return ERR_OK;
    }
    TRY(rc);
    TRY(time_codes(c, plan_of(p, 0), who, &coding, &adding));
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

// Of islands that are apart: on average, and where most leaves at once.
static void print_fragments(FILE *out, const config *c, const plan_ranks *p) {
    double each = 0;
    int64_t most = 0;
    char text[HUMAN], peak[HUMAN];
    for (int k = 0; k < p->kinds; k++) {
        int64_t n = p->kind[k].mixed[PLAN_ISLANDS].sent;
        each = p->kind[k].mixed_each > each ? p->kind[k].mixed_each : each, most = n > most ? n : most;
    }
    fprintf(out,
            "islands %" PRId64 " mix tensors by fragments: for that a rank sends at most %s a step, on average, and %s "
            "after step %" PRId64 ", the busiest\n",
            c->outer.islands, human(text, each), human(peak, (double)most), plan_of(p, 0)->busiest);
    if (c->outer.overlap)
        fprintf(out, "        beside the %" PRId64 " step%s that follow\n", c->outer.overlap,
                c->outer.overlap == 1 ? "" : "s");
}

// What goes between islands, whose ranks share nothing in a step but what decides it: spread over the steps between two
// boundaries, beside what gradients would take.
static void print_islands(FILE *out, const config *c, const plan_ranks *p) {
    int64_t most = 0;
    char text[HUMAN], codes[CONFIG_WORD];
    config_word(config_key(config_find(c, "outer", "compress"))->words, c->outer.compress, codes);
    for (int k = 0; k < p->kinds; k++) {
        int64_t n = amount_of(&p->kind[k], PLAN_GROUPS, (counted){.mixed = true}).sent;
        most = n > most ? n : most;
    }
    if (config_is_apart(c)) print_fragments(out, c, p);
    else
        fprintf(out,
                "islands %" PRId64 " mix their weights every %" PRId64
                " step%s: for that a rank sends at most %s a step, on average\n",
                c->outer.islands, c->outer.every, c->outer.every == 1 ? "" : "s",
                human(text, (double)most / (double)c->outer.every));
    if (c->outer.compress != CODEC_NONE)
        fprintf(out, "        weights go in %s%s\n", codes,
                c->outer.moments == MOMENTS_OWN ? ""
                                                : ", moments in fp32: moments = own would leave them where they are");
}

// Of the rank that has most there.
static void print_disk(FILE *out, const plan_ranks *p) {
    char has[HUMAN], reads[HUMAN];
    const plan_rank *most = p->kind;
    for (int k = 1; k < p->kinds; k++) most = p->kind[k].disk > most->disk ? &p->kind[k] : most;
    human(reads, (double)(most->disk * most->disk_reads));
    fprintf(out, "disk    a rank has a file of %" PRId64 " bytes, of which a step reads %s and writes %s\n", most->disk,
            reads, human(has, (double)most->disk));
}

static err_t print_plan(const config *c, const plan_world *who, const plan_ranks *p, bool draw, FILE *out) {
    static const char *const again[] = {[RECOMPUTE_NONE] = "",
                                        [RECOMPUTE_SELECTIVE] = ", recompute selective",
                                        [RECOMPUTE_BLOCK] = ", recompute block"};
    static const char *const offload[] = {
        [OFFLOAD_NONE] = "", [OFFLOAD_HOST] = " offload", [OFFLOAD_NVME] = " offload to files"};
    int world = who->world;
    grid shape = config_grid(c, world);
    TRY(print_model(out, c, who));
    print_layout(out, &shape);
    fprintf(out, "ranks   %d on %d node%s", world, who->nodes, who->nodes == 1 ? "" : "s");
    if (who->racks > 1) fprintf(out, " in %d racks", who->racks);
    if (who->joined) fprintf(out, ", joined by %d", who->joined);
    fprintf(out, ", zero %" PRId64 "%s%s, order %s\n", world > 1 ? c->parallel.zero : 0, offload[c->parallel.offload],
            again[c->parallel.recompute], c->reduce.order == ORDER_FIXED ? "fixed" : "any");
    print_lanes(out, c, p, &shape);
    if (shape.pipeline > 1) TRY(print_pipeline(out, c, &shape, p, draw));
    print_memory(out, c, p, &shape);
    print_machine(out, who, p);
    if (c->parallel.offload == OFFLOAD_NVME) print_disk(out, p);
    if (grid_group_size(&shape, GROUP_DATA) > 1) TRY(print_zero(out, c, &shape, who));
    for (int k = 0; k < 4 && world > 1; k++) {
        counted of = {.messages = k % 2, .mixed = k / 2, .apart = config_is_apart(c)};
        if (!of.mixed || grid_islands(&shape) > 1) print_traffic(out, p, who, &shape, of);
    }
    if (grid_islands(&shape) > 1) print_islands(out, c, p);
    if (world > 1 && c->reduce.compress != SEND_ALL) TRY(print_codes(out, c, who, p));
    fprintf(out,
            "time    is not planned: `lockstep bench` measures a step of this run, `plan --search` predicts one\n");
    return ERR_OK;
}

err_t verb_plan(const config *c, bool draw, const char *cluster, FILE *out) {
    plan_world who;
    plan_ranks p;
    TRY(cluster ? plan_world_made(&who, c, cluster) : plan_world_open(&who, c));
    err_t rc = plan_ranks_open(&p, c, &who, false);
    if (rc == ERR_OK) rc = print_plan(c, &who, &p, draw, out);
    if (rc == ERR_OK) plan_ranks_close(&p);
    plan_world_close(&who);
    return rc;
}
