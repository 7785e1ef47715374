// trainer/plan/search.c: see trainer/plan/search.h.
#include "trainer/plan/search.h"

#include "base/memory.h"
#include "model/slices.h"
#include "trainer/config/pipes.h"
#include "trainer/plan/guess.h"
#include "trainer/step/simulate.h"
#include "trainer/costs/stragglers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Layouts whose memory is planned, at most; and how many ways to divide a model come first, with a layout each.
enum { PLANNED = 200, LEADERS = SEARCH_SIMULATED / 2 };

typedef struct guess {
    search_choice is;
    double s;
    bool given, leads;  // leads: the first of those that divide the model so, of LEADERS ways (let_lead)
} guess;

// What blocks take does not depend on the rest of a layout.
typedef struct known_blocks {
    search_choice of;  // tensor, context, sequence, recompute, micro, slices
    bool possible;
    block_times take;
} known_blocks;

typedef struct searcher {
    guesser g;
    search_free free;
    search_result *out;
    config *tried;
    known_blocks *known;
    int knowns;
    guess *guess;
    int guesses, room;
    search_choice *large;  // [PLANNED + 1] too large
    int larges;
} searcher;

// --- a layout as settings --------------------------------------------------------------------------------------------

// The ranks are counted by the places, which need not be the INI's.
static void settle(config *to, const config *c, const search_choice *x) {
    *to = *c;
    to->cluster.nodes[0] = to->cluster.racks[0] = 0;
    to->device.ranks = 0;
    to->parallel.data = 0;
    to->parallel.deal[0] = to->parallel.stages[0] = 0;
    to->parallel.tensor = x->tensor, to->parallel.context = x->context, to->parallel.pipeline = x->pipeline;
    to->parallel.zero = x->zero, to->parallel.recompute = x->recompute, to->parallel.sequence = x->sequence;
    to->parallel.schedule = x->schedule, to->parallel.offload = x->offload;
    to->parallel.chunks = x->pipeline > 1 && x->schedule == PIPELINE_INTERLEAVED ? x->chunks : 1;
    to->batch.micro = search_micro(c, x), to->batch.lanes = search_lanes(c, x);
    to->parallel.slices = x->slices;
}

static search_choice given_choice(const config *c, int world) {
    grid g = config_grid(c, world);
    return (search_choice){.tensor = g.tensor,
                           .context = grid_context(&g),
                           .pipeline = g.pipeline,
                           .data = g.data,
                           .zero = (int)c->parallel.zero,
                           .chunks = g.pipeline > 1 ? config_chunks(c) : 1,
                           .schedule = c->parallel.schedule,
                           .recompute = c->parallel.recompute,
                           .offload = c->parallel.offload,
                           .sequence = c->parallel.sequence,
                           .micro = c->resolved.micro,
                           .lanes = c->resolved.lanes,
                           .slices = c->parallel.slices};
}

// --- what blocks take ------------------------------------------------------------------------------------------------

static bool same_blocks(const search_choice *a, const search_choice *b) {
    return a->tensor == b->tensor && a->context == b->context && a->sequence == b->sequence &&
           a->recompute == b->recompute && a->micro == b->micro && a->slices == b->slices;
}

static bool same_choice(const search_choice *a, const search_choice *b) {
    return same_blocks(a, b) && a->pipeline == b->pipeline && a->data == b->data && a->zero == b->zero &&
           a->offload == b->offload && a->chunks == b->chunks && a->schedule == b->schedule && a->lanes == b->lanes;
}

static double seconds(const price_time *t) { return t->compute.s + t->merge.s; }

// How ranks add up what they have, and whom they wait for: rules refuse these settings where there are no others.
static void leave_others(config *c) {
    c->server.count = 0, c->server.weight = 0, c->server.mode = SERVER_SYNC;
    c->outer.islands = c->outer.every = 1, c->outer.type = OUTER_AVERAGE, c->outer.overlap = 0;
    c->outer.compress = CODEC_NONE, c->outer.moments = MOMENTS_MEAN, c->outer.fragments[0] = 0;
    c->reduce.compress = SEND_ALL, c->reduce.compress_back = CODEC_NONE, c->reduce.compress_span = 1;
    c->reduce.density_warmup = 0;
}

static err_t take_times(block_times *to, const session *s, const price_blocks *b) {
    const double element = (double)dtype_bytes(s->state.o.compute);
    to->blocks = b->blocks;
    to->forward = calloc((size_t)b->blocks, sizeof *to->forward);
    to->backward = calloc((size_t)b->blocks, sizeof *to->backward);
    if (!to->forward || !to->backward) return err_set(ERR_INTERNAL, "no memory for the times of %d blocks", b->blocks);
    for (int i = 0; i < b->blocks; i++)
        to->forward[i] = seconds(&b->part[PASS_FORWARD][i]), to->backward[i] = seconds(&b->part[PASS_BACKWARD][i]);
    for (int i = 0; i < b->blocks - 1; i++)
        to->left = fmax(to->left, element * (double)model_left(s->net, i, s->cfg->resolved.micro, 0));
    return ERR_OK;
}

static err_t price_alone(searcher *x, known_blocks *k) {
    search_choice one = k->of;
    session s = {0};
    price_blocks b;
    int world = one.tensor * one.context;
    one.offload = OFFLOAD_NONE;
    one.pipeline = one.data = one.chunks = 1, one.zero = one.context > 1 ? 2 : 0, one.lanes = 1;
    settle(x->tried, x->g.c, &one);
    leave_others(x->tried);
    x->tried->batch.global = one.micro;
    if (!config_would(x->tried, world)) return ERR_OK;
    plan_world few = *x->g.w;
    few.world = world;
    err_t rc = plan_begin(&s, x->tried, 0, &few);
    if (rc == ERR_OK) rc = price_open(&b, &s, &x->g.m);
    if (rc == ERR_OK) {
        k->possible = true;
        rc = take_times(&k->take, &s, &b);
        price_close(&b);
    }
    session_close(&s);
    return rc;
}

static err_t know(searcher *x, const search_choice *of, const known_blocks **out) {
    for (int i = 0; i < x->knowns; i++)
        if (same_blocks(&x->known[i].of, of)) return *out = &x->known[i], ERR_OK;
    known_blocks *more = realloc(x->known, (size_t)(x->knowns + 1) * sizeof *more);
    if (!more) return err_set(ERR_INTERNAL, "no memory for the times of blocks");
    x->known = more;
    known_blocks *k = &x->known[x->knowns++];
    *k = (known_blocks){.of = *of};
    *out = k;
    return price_alone(x, k);
}

// --- a guess ---------------------------------------------------------------------------------------------------------

static err_t guess_one(searcher *x, const search_choice *is, bool given) {
    const known_blocks *k;
    x->out->layouts++;
    TRY(know(x, is, &k));
    if (!k->possible || is->pipeline * is->chunks > k->take.blocks) return x->out->refused++, ERR_OK;
    if (x->out->memory > 0 && guess_least_bytes(&x->g, is) > x->out->memory) return x->out->too_large++, ERR_OK;
    if (x->guesses == x->room) {
        x->room = 2 * x->room + 256;
        guess *more = realloc(x->guess, (size_t)x->room * sizeof *more);
        if (!more) return err_set(ERR_INTERNAL, "no memory for %d layouts", x->room);
        x->guess = more;
    }
    x->guess[x->guesses++] = (guess){*is, guess_step(&x->g, is, &k->take), given, false};
    return ERR_OK;
}

// --- all layouts -----------------------------------------------------------------------------------------------------

static bool divides(int64_t a, int64_t b) { return a > 0 && b % a == 0; }

static err_t with_schedules(searcher *x, search_choice is) {
    static const pipeline_kind kinds[] = {PIPELINE_1F1B, PIPELINE_INTERLEAVED, PIPELINE_ZB_H1, PIPELINE_ZB_V};
    if (is.pipeline == 1) {
        is.schedule = x->g.c->parallel.schedule, is.chunks = 1;
        return guess_one(x, &is, false);
    }
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        is.schedule = kinds[k];
        int most = kinds[k] == PIPELINE_INTERLEAVED ? 8 : 1;
        for (is.chunks = kinds[k] == PIPELINE_1F1B || kinds[k] == PIPELINE_ZB_H1 ? 1 : 2;
             is.chunks <= most || kinds[k] == PIPELINE_ZB_V; is.chunks *= 2) {
            TRY(guess_one(x, &is, false));
            if (kinds[k] != PIPELINE_INTERLEAVED) break;
        }
    }
    return ERR_OK;
}

static err_t with_memory(searcher *x, search_choice is) {
    for (is.zero = is.context > 1 ? 2 : 0; is.zero <= (is.data * is.context > 1 ? 3 : 0); is.zero++)
        for (int again = RECOMPUTE_NONE; again <= RECOMPUTE_BLOCK; again++)
            for (int sequence = 0; sequence <= (is.tensor > 1 && is.context == 1); sequence++) {
                is.recompute = (recomputation)again, is.sequence = sequence;
                TRY(with_schedules(x, is));
            }
    return ERR_OK;
}

// A table that knows nothing of the host, or of the disk, says nothing of offload to it.
static err_t with_offload(searcher *x, search_choice is) {
    static const offload_kind kinds[] = {OFFLOAD_NONE, OFFLOAD_HOST, OFFLOAD_NVME};
    const bool host = x->g.k->host_link.is > 0 && x->g.k->host_copy.is > 0, disk = x->g.k->disk_copy.is > 0,
               known[] = {[OFFLOAD_NONE] = host || disk, [OFFLOAD_HOST] = host, [OFFLOAD_NVME] = disk};
    const offload_kind given = is.offload;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        is.offload = kinds[k];
        if (is.offload == given || known[is.offload]) TRY(with_memory(x, is));
    }
    return ERR_OK;
}

static err_t with_ranks(searcher *x, search_choice is) {
    int islands = (int)x->g.c->outer.islands, world = x->g.w->world / islands;
    int64_t contexts = x->g.c->parallel.token_slices;
    for (is.tensor = 1; is.tensor <= world && is.tensor <= is.slices; is.tensor *= 2)
        for (is.context = 1; is.context <= contexts && is.tensor * is.context <= world; is.context *= 2)
            for (is.pipeline = 1; is.tensor * is.context * is.pipeline <= world; is.pipeline++) {
                int model = is.tensor * is.context * is.pipeline;
                is.data = world / model;
                if (!divides(model, world) || !divides(is.tensor, is.slices) ||
                    guess_workers(&x->g, &is) > is.lanes / islands)
                    continue;
                TRY(with_offload(x, is));
            }
    return ERR_OK;
}

// Class `bits`: only where they may change.
static err_t all_layouts(searcher *x) {
    search_choice given = given_choice(x->g.c, x->g.w->world), is = given;
    int64_t global = x->g.c->batch.global, span = x->g.c->resolved.span;
    TRY(guess_one(x, &given, true));
    if (x->free.own) return ERR_OK;
    for (is.micro = x->free.micro ? span : given.micro; is.micro <= (x->free.micro ? 64 * span : given.micro);
         is.micro *= 2)
        for (is.lanes = x->free.lanes ? 1 : given.lanes; is.lanes <= (x->free.lanes ? 1024 : given.lanes);
             is.lanes *= 2)
            for (is.slices = x->free.slices ? 1 : given.slices; is.slices <= (x->free.slices ? 8 : given.slices);
                 is.slices *= 2)
                if (divides(is.micro * is.lanes, global)) TRY(with_ranks(x, is));
    return ERR_OK;
}

// --- simulation ------------------------------------------------------------------------------------------------------

typedef struct stage_list {
    action_list list;
    stages of;
    price_time *time;
} stage_list;

typedef struct asked {
    const stage_list *stage;
    bool sends;        // communication takes time
    double error;      // how much of the error is added
    const bool *slow;  // [stages] whose devices compute `slower` times as long; NULL: none
    double slower;
} asked;

static double time_of(void *ctx, int rank, const action *a) {
    const asked *x = ctx;
    const price_time *t = &x->stage[rank].time[a - x->stage[rank].list.at];
    double s = t->compute.s + x->error * t->compute.error;
    if (x->slow && x->slow[rank]) s *= x->slower;
    return x->sends ? s + t->merge.s + t->send.s + x->error * (t->merge.error + t->send.error) : s;
}

// Ranks with the same stages wait for the one with most lanes: it stands for all of them.
static err_t walk(const searcher *x, const stage_list *stage, int n, asked how, search_see see, void *ctx) {
    const action_list *list[n];
    const stages *of[n];
    simulation s;
    for (int i = 0; i < n; i++) list[i] = &stage[i].list, of[i] = &stage[i].of;
    simulate_costs by = {.time = time_of,
                         .ctx = &how,
                         .depth = x->g.k->tiles.processors ? 0 : 2,
                         .beside = x->g.k->beside.is * (1 + how.error * x->g.k->beside.spread)};
    simulate_lists lists = {n, 1, list, of};
    how.stage = stage;
    TRY(simulate_run(&lists, &by, &s));
    err_t rc = see(ctx, &lists, &s);
    simulation_free(&s);
    return rc;
}

typedef struct totals {
    double total, busy, most;  // the step; what all ranks compute; what the busiest does
} totals;

static err_t add_totals(void *ctx, const simulate_lists *lists, const simulation *s) {
    totals *t = ctx;
    (void)lists;
    *t = (totals){.total = s->total};
    for (int i = 0; i < s->ranks; i++) t->busy += s->rank[i].busy, t->most = fmax(t->most, s->rank[i].busy);
    return ERR_OK;
}

// The step of the slowest pipeline.
static err_t judge_stragglers(const searcher *x, const stage_list *stage, search_found *f) {
    grid g = config_grid(x->tried, x->g.w->world);
    straggler_sets sets;
    totals t;
    if (x->g.k->stragglers.share <= 0) return ERR_OK;
    TRY(stragglers_draw(&sets, &g, x->g.k->stragglers.share, x->g.k->stragglers.seed));
    err_t rc = ERR_OK;
    double most = f->step_s;
    f->slow = sets.devices;
    for (int i = 0; i < sets.count && rc == ERR_OK; i++) {
        asked how = {.sends = true, .slow = &sets.slow[i * sets.stages], .slower = x->g.k->stragglers.slower};
        rc = walk(x, stage, f->is.pipeline, how, add_totals, &t);
        if (rc == ERR_OK) most = fmax(most, t.total);
    }
    f->slowed_s = most - f->step_s, f->step_s = most;
    stragglers_free(&sets);
    return rc;
}

static err_t judge_times(const searcher *x, const stage_list *stage, search_found *f) {
    int n = f->is.pipeline;
    totals late, all, alone;
    TRY(walk(x, stage, n, (asked){.sends = true, .error = 1}, add_totals, &late));
    TRY(walk(x, stage, n, (asked){.sends = true}, add_totals, &all));
    TRY(walk(x, stage, n, (asked){0}, add_totals, &alone));
    f->step_s = all.total, f->error_s = late.total - all.total;
    f->compute_s = alone.most, f->waits_s = alone.total - alone.most, f->exposed_s = fmax(f->step_s - alone.total, 0);
    f->bubble = alone.total > 0 ? 1 - alone.busy / (n * alone.total) : 0;
    return judge_stragglers(x, stage, f);
}

// Takes what outlives the rank from its session.
static void keep_list(session *x, stage_list *to) {
    to->list = x->runner.actions;
    x->runner.actions = (action_list){0};
    step_close(&x->runner);
    to->of = x->stages;
    x->stages = (stages){0};
}

static void count_rank(const searcher *x, const plan_rank *p, search_found *f) {
    int64_t others = x->g.w->world / f->is.pipeline;
    bool apart = f->is.offload != OFFLOAD_NONE && x->g.k->host_link.is > 0;
    size_t here = plan_bytes(p) - (apart ? p->host : p->ring + p->snapshots), host = apart ? p->host : 0;
    f->host = host > f->host ? host : f->host;
    f->disk = p->disk > f->disk ? p->disk : f->disk;
    f->memory = here > f->memory ? here : f->memory;
    f->state = p->masters + p->moments > f->state ? p->masters + p->moments : f->state;
    f->sent[COSTS_NODE] += others * (p->sent - p->sent_far);
    f->sent[COSTS_RACK] += others * (p->sent_far - p->sent_racks);
    f->sent[COSTS_SPINE] += others * p->sent_racks;
}

static int most_lanes(const config *c, const grid *g) {
    int most = 0;
    for (int d = 1; d < g->data; d++)
        if (pipe_micros(c, g, d) > pipe_micros(c, g, most)) most = d;
    return most;
}

static err_t plan_stages(searcher *x, session *s, stage_list *stage, search_found *f, bool *fits) {
    grid g = config_grid(x->tried, x->g.w->world);
    int d = most_lanes(x->tried, &g);
    *fits = true;
    for (int i = 0; i < f->is.pipeline && *fits; i++) {
        plan_rank p;
        price_blocks b;
        TRY(plan_begin(s, x->tried, grid_rank(&g, (grid_place){.stage = i, .data = d}), x->g.w));
        TRY(plan_count(s, &p));
        count_rank(x, &p, f);
        *fits = (x->out->memory <= 0 || (double)f->memory <= x->out->memory) &&
                (x->g.k->host_memory <= 0 || (double)f->host <= x->g.k->host_memory) &&
                (x->g.k->disk <= 0 || (double)f->disk <= x->g.k->disk);
        if (!*fits) break;
        TRY(price_open(&b, s, &x->g.m));
        stage[i].time = calloc((size_t)s->runner.actions.count + 1, sizeof *stage[i].time);
        err_t rc = stage[i].time ? price_list(s, &x->g.m, &b, stage[i].time)
                                 : err_set(ERR_INTERNAL, "no memory for times of a list");
        for (int from = 0; from < FROMS; from++) x->out->looked[from] += b.looked[from];
        price_close(&b);
        TRY(rc);
        x->out->flops = (double)x->g.c->batch.global * s->net->flops;
        x->out->units = (double)(x->g.c->batch.global * s->net->units);
        snprintf(x->out->unit, sizeof x->out->unit, "%s", s->net->short_unit);
        keep_list(s, &stage[i]);
    }
    return ERR_OK;
}

static void free_stages(stage_list *stage, int n) {
    for (int i = 0; i < n; i++) action_list_free(&stage[i].list), stages_close(&stage[i].of), free(stage[i].time);
    free(stage);
}

// Cuts by time are given as numbers of blocks, where they are others than those by flops.
static void cut_by_time(const searcher *x, const known_blocks *k, search_found *f) {
    int stages = f->is.pipeline * f->is.chunks, cut[stages + 1], n = 0;
    f->stages[0] = 0;
    if (f->given) snprintf(f->stages, sizeof f->stages, "%s", x->g.c->parallel.stages);
    if (f->given || f->is.pipeline == 1) return;
    guess_slowest_rank(&k->take, &f->is, cut);
    for (int s = 0; s < stages && n < SEARCH_CUTS; s++)
        n += snprintf(f->stages + n, SEARCH_CUTS - (size_t)n, s ? " %d" : "%d", cut[s + 1] - cut[s]);
    if (n >= SEARCH_CUTS) f->stages[0] = 0;
}

// *kept: it fits, and its time is known.
static err_t try_layout(searcher *x, const guess *g, search_found *f, bool *kept) {
    const known_blocks *k;
    session s = {0};
    bool fits = false;
    *f = (search_found){.is = g->is, .given = g->given};
    *kept = false;
    TRY(know(x, &g->is, &k));
    settle(x->tried, x->g.c, &g->is);
    cut_by_time(x, k, f);
    snprintf(x->tried->parallel.stages, sizeof x->tried->parallel.stages, "%s", f->stages);
    if (g->given) snprintf(x->tried->parallel.deal, sizeof x->tried->parallel.deal, "%s", x->g.c->parallel.deal);
    if (!config_would(x->tried, x->g.w->world)) return x->out->refused++, ERR_OK;
    stage_list *stage = calloc((size_t)g->is.pipeline, sizeof *stage);
    if (!stage) return err_set(ERR_INTERNAL, "no memory for the lists of %d stages", g->is.pipeline);
    err_t rc = plan_stages(x, &s, stage, f, &fits);
    if (rc == ERR_OK && !fits) x->out->too_large++;
    if (rc == ERR_OK && fits) rc = judge_times(x, stage, f), *kept = rc == ERR_OK;
    free_stages(stage, g->is.pipeline);
    session_close(&s);
    return rc;
}

static int by_guess(const void *a, const void *b) {
    const guess *x = a, *y = b;
    if (x->leads != y->leads) return y->leads - x->leads;
    return (x->s > y->s) - (x->s < y->s);
}

static void order_guesses(searcher *x) {
    if (x->guesses) qsort(x->guess, (size_t)x->guesses, sizeof *x->guess, by_guess);
}

// A guess tells ways to divide a model apart less well than the rest. So the best layout of each way comes first, if it
// is not far behind.
static void let_lead(searcher *x) {
    const double FAR = 2;
    order_guesses(x);
    for (int i = 0, leaders = 0; i < x->guesses && leaders < LEADERS; i++) {
        guess *g = &x->guess[i];
        g->leads = !g->given && g->s < FAR * x->guess[0].s;
        for (int k = 0; k < i && g->leads; k++) {
            const search_choice *a = &x->guess[k].is, *b = &g->is;
            g->leads =
                a->tensor != b->tensor || a->context != b->context || a->pipeline != b->pipeline || !x->guess[k].leads;
        }
        leaders += g->leads;
    }
    order_guesses(x);
}

static int by_time(const void *a, const void *b) {
    const search_found *x = a, *y = b;
    if (x->step_s != y->step_s) return x->step_s > y->step_s ? 1 : -1;
    return (x->memory > y->memory) - (x->memory < y->memory);
}

// Is it as one that was too large, with as much of the state on a rank, and of the activations, or more?
static bool is_larger(const searcher *x, const search_choice *is) {
    for (int i = 0; i < x->larges; i++) {
        const search_choice *k = &x->large[i];
        if (k->tensor == is->tensor && k->context == is->context && k->pipeline == is->pipeline &&
            k->schedule == is->schedule && k->chunks == is->chunks && k->micro == is->micro && k->lanes == is->lanes &&
            k->slices == is->slices && k->offload == is->offload && k->zero >= is->zero &&
            k->recompute >= is->recompute && k->sequence >= is->sequence)
            return true;
    }
    return false;
}

// Those that are as fast as one before, and no smaller, and cut the model as that one does, are left out.
static void leave_out_twins(search_result *out) {
    const double ALIKE = 0.002;
    int n = 0;
    for (int i = 0; i < out->found; i++) {
        const search_found *f = &out->at[i];
        bool twin = false;
        for (int k = 0; k < n && !f->given; k++) {
            const search_found *b = &out->at[k];
            twin |= b->is.tensor == f->is.tensor && b->is.pipeline == f->is.pipeline && b->is.micro == f->is.micro &&
                    b->is.schedule == f->is.schedule && f->step_s < (1 + ALIKE) * b->step_s && f->memory >= b->memory;
        }
        if (!twin) out->at[n++] = *f;
    }
    out->found = n;
}

// The INI's own layout is simulated wherever its guess stands, once.
static err_t try_all(searcher *x) {
    search_choice own = given_choice(x->g.c, x->g.w->world);
    search_result *out = x->out;
    int others = 0, planned = 0;
    bool kept;
    let_lead(x);
    for (int i = 0; i < x->guesses; i++) {
        const guess *g = &x->guess[i];
        bool same = !g->given && same_choice(&g->is, &own);
        bool enough = others == SEARCH_SIMULATED || planned == PLANNED;
        if (same || (enough && !g->given)) continue;
        if (!g->given && is_larger(x, &g->is)) {
            out->too_large++;
            continue;
        }
        planned += !g->given;
        int large = out->too_large;
        TRY(try_layout(x, g, &out->at[out->found], &kept));
        if (out->too_large > large) x->large[x->larges++] = g->is;
        if (!kept) continue;
        out->found++, others += !g->given, out->fits = out->fits || g->given;
    }
    out->simulated = out->found;
    qsort(out->at, (size_t)out->found, sizeof *out->at, by_time);
    leave_out_twins(out);
    if (out->found) return ERR_OK;
    if (x->free.own)
        return err_set(
            ERR_CONFIG,
            "plan --costs: this INI's layout is refused by rules, or needs more memory than the %.1f GB that "
            "a device has, or with offload more than the host or the disk: `lockstep plan` says what it takes, "
            "`plan --search` looks for others",
            1e-9 * out->memory);
    return err_set(ERR_CONFIG,
                   "plan --search: none of %d layouts fits: %d need more memory than a device has, %d are refused by "
                   "rules; more ranks, or [parallel] offload, or --free slices, may help",
                   out->layouts, out->too_large, out->refused);
}

// --- the whole -------------------------------------------------------------------------------------------------------

// Ranks of a CPU that have more threads together than the machine has cores take turns. each: ranks of a node.
static price_machine machine_of(const config *c, const costs *k, int each) {
    double cores = (double)sysconf(_SC_NPROCESSORS_ONLN), threads = c->device.threads ? (double)c->device.threads : 1;
    bool shares = !k->tiles.processors && strncmp(k->device, "cpu", 3) == 0;
    return (price_machine){k, shares ? fmax(1, each * threads / cores) : 1, cores / threads};
}

static int ranks_of_node(const plan_world *w) {
    int most = 0;
    for (int r = 0; r < w->world; r++) most = plan_where(w, r).local >= most ? plan_where(w, r).local + 1 : most;
    return most;
}

static err_t count_values(searcher *x) {
    model *net;
    TRY(model_open(&net, model_types[x->g.c->model.type], &x->g.c->model.of));
    x->g.values = (double)model_elements(net);
    model_close(net);
    return ERR_OK;
}

err_t search_run(search_result *out, const config *c, const plan_world *w, const costs *k,
                 const search_free *free_keys) {
    searcher x = {.free = *free_keys, .out = out, .tried = malloc(sizeof *x.tried)};
    *out = (search_result){.memory = k->memory, .free = *free_keys};
    int each = ranks_of_node(w);
    x.g = (guesser){.c = c, .w = w, .k = k, .m = machine_of(c, k, each)};
    out->slower = x.g.m.slower;
    if (out->memory <= 0) out->memory = (double)memory_find("").available / each;
    x.large = calloc(PLANNED + 1, sizeof *x.large);
    err_t rc = x.tried && x.large ? count_values(&x) : err_set(ERR_INTERNAL, "no memory for a search");
    if (rc == ERR_OK) rc = all_layouts(&x);
    if (rc == ERR_OK) rc = try_all(&x);
    for (int i = 0; i < x.knowns; i++) free(x.known[i].take.forward), free(x.known[i].take.backward);
    free(x.known), free(x.guess), free(x.tried), free(x.large);
    return rc;
}

err_t search_walk(const search_found *f, const config *c, const plan_world *w, const costs *k, search_see see,
                  void *ctx) {
    search_result counts = {0};
    search_found again = {.is = f->is};
    searcher x = {.out = &counts, .tried = malloc(sizeof *x.tried)};
    x.g = (guesser){.c = c, .w = w, .k = k, .m = machine_of(c, k, ranks_of_node(w))};
    stage_list *stage = calloc((size_t)f->is.pipeline, sizeof *stage);
    session s = {0};
    bool fits;
    err_t rc = x.tried && stage ? ERR_OK : err_set(ERR_INTERNAL, "no memory for the lists of a layout");
    if (rc == ERR_OK) {
        settle(x.tried, c, &f->is);
        snprintf(x.tried->parallel.stages, sizeof x.tried->parallel.stages, "%s", f->stages);
        if (f->given) snprintf(x.tried->parallel.deal, sizeof x.tried->parallel.deal, "%s", c->parallel.deal);
        rc = plan_stages(&x, &s, stage, &again, &fits);
    }
    if (rc == ERR_OK) rc = walk(&x, stage, f->is.pipeline, (asked){.sends = true}, see, ctx);
    if (stage) free_stages(stage, f->is.pipeline);
    session_close(&s);
    free(x.tried);
    return rc;
}

err_t search_free_of(search_free *out, const char *keys) {
    static const char *const name[] = {"micro", "lanes", "slices"};
    *out = (search_free){0};
    bool *to[] = {&out->micro, &out->lanes, &out->slices};
    for (const char *p = keys; p && *p;) {
        size_t n = strcspn(p, ",");
        int i = 0;
        while (i < 3 && (strlen(name[i]) != n || strncmp(name[i], p, n) != 0)) i++;
        if (i == 3)
            return err_set(ERR_USAGE,
                           "--free %s: expected some of micro, lanes, slices, comma between: the keys that "
                           "change bits and that a search can vary",
                           keys);
        *to[i] = true;
        p += n + (p[n] == ',');
    }
    return ERR_OK;
}
