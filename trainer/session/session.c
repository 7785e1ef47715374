// trainer/session/session.c: see trainer/session/session.h.
#include "trainer/session/session.h"

#include "base/le.h"
#include "base/version.h"
#include "comm/transport.h"
#include "model/slices.h"
#include "trainer/config/pipes.h"
#include "trainer/session/fits.h"
#include "trainer/session/machine.h"
#include "trainer/node/cluster.h"
#include "trainer/node/yard.h"
#include "trainer/session/restore.h"
#include "trainer/step/live.h"
#include "trainer/step/replicas.h"

#include <inttypes.h>
#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- ranks -----------------------------------------------------------------------------------------------------------

// One hash of the named sets, in their order.
static void hash_sets(const session *x, char hex[9]) {
    uint8_t hash[crypto_generichash_BYTES_MIN];
    crypto_generichash_state all;
    crypto_generichash_init(&all, NULL, 0, sizeof hash);
    for (int i = 0; i < x->sets; i++) {
        const char *word[] = {x->set[i].name, source_about(x->set[i].from).hash};
        for (int k = 0; k < 2; k++) crypto_generichash_update(&all, (const uint8_t *)word[k], strlen(word[k]) + 1);
    }
    crypto_generichash_final(&all, hash, sizeof hash);
    snprintf(hex, 9, "%02x%02x%02x%02x", hash[0], hash[1], hash[2], hash[3]);
}

// What ranks compare when they meet.
static void describe_data(const session *x, char dst[TEAM_TEXT]) {
    int n = snprintf(dst, TEAM_TEXT, "%s %s", x->train ? source_about(x->train).hash : "-",
                     x->val ? source_about(x->val).hash : "-");
    const source *asked[] = {x->exam.text.from, x->exam.questions ? questions_source(x->exam.questions) : NULL};
    for (int i = 0; i < 2 && !exam_is_empty(&x->exam); i++)
        n += snprintf(dst + n, TEAM_TEXT - (size_t)n, " %.8s", asked[i] ? source_about(asked[i]).hash : "-");
    char sets[9];
    if (!x->sets) return;
    hash_sets(x, sets);
    snprintf(dst + n, TEAM_TEXT - (size_t)n, " %s", sets);
}

uint64_t session_data_mark(const session *x) {
    char text[TEAM_TEXT] = "";
    uint8_t hash[crypto_generichash_BYTES_MIN];
    describe_data(x, text);
    crypto_generichash(hash, sizeof hash, (const uint8_t *)text, strlen(text), NULL, 0);
    return le64_get(hash) | 1;
}

static err_t describe_team(session *x, const launch *at, team_options *o) {
    const config *c = x->cfg;
    char hash[17];
    config_hash(c, hash);
    *o = (team_options){.at = at,
                        .epoch = at->epoch,
                        .port = (int)c->cluster.port,
                        .has_secret = at->nodes > 1,
                        .timeout_s = (double)c->cluster.timeout,
                        .heartbeat_s = c->cluster.heartbeat,
                        .waiting = x->waiting,
                        .links = true};
    // where worlds follow each other, the council of nodes has the port of node 0, and rank 0 the one above the ranks'
    for (int r = 0; at->fenced && r < at->world; r++)
        if (at->place[r].node == 0) o->star_port = o->port + 2 + at->place[r].local;
    snprintf(o->job, sizeof o->job, "%s", c->run.name);
    snprintf(o->build, sizeof o->build, "%s", version_sources());
    snprintf(o->config_hash, sizeof o->config_hash, "%s", hash);
    describe_data(x, o->data_hash);
    return o->has_secret ? cluster_secret(c, o->secret) : ERR_OK;
}

static transport_kind choose_transport(const session *x) {
    transport_kind wanted = x->cfg->reduce.transport;
    if (wanted != TRANSPORT_AUTO) return wanted;
    return device_about(x->dev)->kind == DEVICE_CUDA ? TRANSPORT_NCCL : TRANSPORT_TCP;
}

static err_t open_ranks(session *x, const launch *at) {
    const config *c = x->cfg;
    bool gpu = device_about(x->dev)->kind == DEVICE_CUDA;
    if (!at || at->world == 1) return comm_self_open(&x->ranks);
    if (gpu && choose_transport(x) != TRANSPORT_NCCL)
        return err_set(
            ERR_CONFIG,
            "[reduce] transport = %s moves host memory, and this run is on GPUs; set it to auto or nccl, or [device] backend = cpu",
            choose_transport(x) == TRANSPORT_FABRIC ? "fabric" : "tcp");
    team_options o;
    char *settings = NULL;
    err_t rc = describe_team(x, at, &o);
    if (rc == ERR_OK) rc = config_shared(c, &settings);
    o.settings = settings;
    if (rc == ERR_OK) rc = team_join(&x->team, &o);
    explicit_bzero(o.secret, sizeof o.secret);
    free(settings);
    TRY(rc);
    static const int infiniband[] = {[CHOICE_AUTO] = -1, [CHOICE_NO] = 0, [CHOICE_YES] = 1};
    char arithmetic[DEVICE_ARITHMETIC];
    device_arithmetic(x->dev, arithmetic, sizeof arithmetic);
    return transport_open(&x->ranks, x->team,
                          &(transport_options){.kind = choose_transport(x),
                                               .dev = x->dev,
                                               .arithmetic = arithmetic,
                                               .timeout_s = (double)c->cluster.timeout,
                                               .nccl_path = c->reduce.nccl_library,
                                               .interface = c->reduce.nccl_interface,
                                               .algorithm = c->reduce.nccl_algorithm,
                                               .infiniband = infiniband[c->reduce.nccl_ib],
                                               .provider = c->reduce.fabric_provider,
                                               .domain = c->reduce.fabric_domain},
                          x->s);
}

// --- model and tensors -----------------------------------------------------------------------------------------------

// Ranks that share layers have equal shares of the slices, in order.
static model_slices slices_here(const session *x) {
    int of = x->net->slices.of, count = of / x->shape.tensor;
    return (model_slices){of, x->groups.group[GROUP_TENSOR]->rank * count, count,
                          x->cfg->parallel.sequence && x->shape.tensor > 1};
}

// Ranks that share positions have equal shares of the token slices, in order.
static model_tokens tokens_here(const session *x) {
    const comm *c = x->groups.group[GROUP_CONTEXT];
    int of = x->net->tokens.of, count = of / c->world;
    return (model_tokens){of, c->rank * count, count};
}

// Words of [reduce] compress are those of codecs, and topk, which is none.
static codec codec_of(send_kind x) {
    _Static_assert((int)SEND_FP16 == (int)CODEC_FP16 && (int)SEND_INT8 == (int)CODEC_INT8 &&
                       (int)SEND_INT4 == (int)CODEC_INT4,
                   "the same order of words");
    return x == SEND_TOPK ? CODEC_NONE : (codec)x;
}

// Each of N spans of lanes has 1/N of the gradient. Those that agree in nothing add up to a norm sqrt(N) times as large
// as one's (Lin et al. 2018, section 3.2).
static double lane_clip(const config *c, int islands) {
    if (c->reduce.compress != SEND_TOPK) return 0;
    return c->optimizer.grad_clip / sqrt((double)(c->resolved.lanes / islands / c->reduce.compress_span));
}

// Where ranks share layers or positions, all of them write samples, so all have weights.
static bool servers_pass(const session *x) {
    return x->shape.servers && x->cfg->parallel.zero < 3 && x->shape.tensor * grid_context(&x->shape) == 1;
}

// Benches and profiles are of steps that wait for all.
static bool is_served(const session *x) { return x->kind == SESSION_TRAIN && x->shape.paired; }

// ZeRO divides tensors among several ranks; one rank alone has everything.
static state_options state_options_of(const session *x) {
    const config *c = x->cfg;
    int64_t micros = c->batch.global / c->resolved.lanes / c->resolved.micro;
    bool once = micros == 1 && x->net->adds_once;
    model_tokens tokens = tokens_here(x);
    return (state_options){
        .compute = c->precision.compute,
        .stage = grid_group_size(&x->shape, GROUP_DATA) > 1 ? (int)c->parallel.zero : 0,
        .offload = x->kind == SESSION_INFERENCE ? OFFLOAD_NONE : c->parallel.offload,
        .spilled = {.dir = *c->parallel.offload_dir ? c->parallel.offload_dir : x->dir, .rank = x->ranks->rank},
        .rows_memory = x->net->table.width ? (int64_t)ceil(c->model.demand_mb * 1e6) : 0,
        .training = x->kind != SESSION_INFERENCE,
        .optimizer = optimizer_of(&c->optimizer),
        .keys = &c->optimizer,
        .fixed = c->reduce.order == ORDER_FIXED && !is_served(x),
        .servers = is_served(x) ? x->shape.servers : 0,
        .server = x->groups.pair,
        .compress = codec_of(c->reduce.compress),
        .kept = c->reduce.compress == SEND_TOPK ? (int64_t)ceil(c->reduce.density * CHUNK) : 0,
        .density_warmup = c->reduce.density_warmup,
        .compress_span = c->reduce.compress != SEND_ALL ? c->reduce.compress_span : 0,
        .lane_clip = lane_clip(c, grid_islands(&x->shape)),
        .back = c->reduce.compress_back,
        .stochastic = c->precision.rounding == ROUNDING_STOCHASTIC,
        .seed = (uint64_t)c->run.seed,
        .lanes = c->resolved.lanes / grid_islands(&x->shape) * grid_context(&x->shape),
        .deal = x->deal,
        .weight = x->weight,
        .workers = grid_workers(&x->shape) * grid_context(&x->shape),
        .passing = servers_pass(x),
        .passes = servers_pass(x) && grid_serves(&x->shape, x->ranks->rank),
        .serves = grid_serves(&x->shape, x->ranks->rank),
        .islands = grid_islands(&x->shape) > 1 ? x->groups.group[GROUP_ISLANDS] : NULL,
        .steps_outer = c->outer.type == OUTER_NESTEROV,
        .outer_lr = c->outer.lr,
        .outer_momentum = c->outer.momentum,
        .outer_codec = c->outer.compress,
        .own_moments = c->outer.moments == MOMENTS_OWN,
        .apart = config_is_apart(c),
        .fragments = c->outer.fragments,
        .every = c->outer.every,
        .overlap = c->outer.overlap,
        .keep = c->outer.keep,
        .moves = x->kind == SESSION_TRAIN && x->shape.data > 1 && c->parallel.balance == BALANCE_AUTO,
        .micros = micros,
        .shows_mean = x->kind == SESSION_TRAIN && c->eval.weights == EVAL_EMA,
        .once_each = once,
        .once = once && tokens.count == 1,
        .bucket_bytes = (size_t)(c->reduce.bucket_mb * 1e6),
        .threads = device_about(x->dev)->threads,
        .chunk = x->stages.chunk,
        .all = x->ranks,
        .here = slices_here(x),
        .tokens = tokens,
        .tensor = x->shape.tensor > 1 ? x->groups.group[GROUP_TENSOR] : NULL,
        .tie = x->groups.after[LINK_TIED] ? x->groups.after[LINK_TIED] : x->groups.before[LINK_TIED],
    };
}

// All ranks ask it of all pipelines: what one of them can't run is refused everywhere, with the same words.
static err_t check_pipelines(const session *x, const stage_options *o) {
    for (int d = 0; o->ranks > 1 && d < x->shape.data; d++)
        TRY(pipeline_check(&(pipeline_layout){.kind = o->kind,
                                              .ranks = o->ranks,
                                              .micros = (int)pipe_micros(x->cfg, &x->shape, d),
                                              .chunks = o->chunks}));
    return ERR_OK;
}

// What of the model this rank runs, among so many.
static err_t open_stages(session *x, int rank, int world) {
    const config *c = x->cfg;
    x->shape = config_grid(c, world);
    if (x->kind == SESSION_INFERENCE) x->shape.servers = 0;
    grid_place at = grid_at(&x->shape, rank);
    stage_options o = {.kind = c->parallel.schedule,
                       .ranks = x->shape.pipeline,
                       .rank = at.stage,
                       .chunks = x->shape.pipeline > 1 ? config_chunks(c) : 1,
                       .micros = pipe_micros(c, &x->shape, at.data),
                       .cuts = c->parallel.stages};
    TRY(check_pipelines(x, &o));
    return stages_open(&x->stages, x->net, &o);
}

err_t session_fits(const config *c, int world) {
    session x = {.cfg = c};
    grid shape = config_grid(c, world);
    if (shape.pipeline == 1) return ERR_OK;
    err_t rc = session_open_model(&x);
    for (int stage = 0; rc == ERR_OK && stage < shape.pipeline; stage++) {
        rc = open_stages(&x, grid_rank(&shape, (grid_place){.stage = stage}), world);
        stages_close(&x.stages);
    }
    if (x.net) model_close(x.net);
    return rc;
}

// deal: of those that share lanes, without servers; ranks that share positions run the same ones, each its part of
// them.
static void spread_deal(session *x, const int64_t *deal) {
    int context = grid_context(&x->shape);
    for (int k = 0; k < x->shape.data * context; k++)
        x->deal[k] = k / context < grid_workers(&x->shape) ? deal[k / context] : 0;
}

static err_t open_deal(session *x) {
    const config *c = x->cfg;
    int64_t deal[x->shape.data + 1];
    if ((!*c->parallel.deal && !x->shape.servers) || x->kind == SESSION_INFERENCE) return ERR_OK;
    if (!pipe_lanes(c, &x->shape, deal))
        return err_set(ERR_CONFIG,
                       "[parallel] deal = %s: expected %d whole numbers that add up to the %" PRId64 " lanes of a step",
                       c->parallel.deal, grid_workers(&x->shape), c->resolved.lanes);
    x->deal = calloc((size_t)(x->shape.data * grid_context(&x->shape)), sizeof *x->deal);
    if (!x->deal) return err_set(ERR_INTERNAL, "no memory for the lanes of %d ranks", x->shape.data);
    spread_deal(x, deal);
    return ERR_OK;
}

// What each of those that share rows keeps beside the others. Whole numbers: all ranks divide alike.
static err_t open_weights(session *x) {
    enum { SERVER = 1 << 16 };
    const grid *g = &x->shape;
    int n = grid_group_size(g, GROUP_DATA);
    if (!g->servers) return ERR_OK;
    x->weight = calloc((size_t)n, sizeof *x->weight);
    if (!x->weight) return err_set(ERR_INTERNAL, "no memory for the weights of %d ranks", n);
    for (int k = 0; k < n; k++)
        x->weight[k] = k / grid_context(g) < grid_workers(g) ? llround(x->cfg->server.weight * SERVER) : SERVER;
    return ERR_OK;
}

static err_t check_demand(const session *x, int64_t memory) {
    int64_t width = x->net->table.width;
    if (!memory || memory >= row_table_least(width)) return ERR_OK;
    err_set(ERR_CONFIG, "%" PRId64 " bytes don't hold a row of %" PRId64 " and what moves rows: expected at least %g",
            memory, width, 1e-6 * (double)row_table_least(width));
    return config_blame(x->cfg, "model", "demand_mb");
}

static err_t plan_tensors(session *x) {
    TRY(open_deal(x));
    TRY(open_weights(x));
    state_options o = state_options_of(x);
    o.spilled.faults = &x->faults;
    TRY(check_demand(x, o.rows_memory));
    err_t rc = state_open(&x->state, x->net, x->dev, x->s, x->groups.group[GROUP_DATA], &o);
    if (rc == ERR_CONFIG) return config_blame(x->cfg, "optimizer", *x->cfg->optimizer.groups ? "groups" : "type");
    TRY(rc);
    TRY(step_open(&x->runner, x->cfg, x->dev, x->s, &(step_ranks){x->ranks, &x->groups, &x->stages}, x->net,
                  &x->state));
    x->runner.faults = &x->faults;
    return evaluator_declare(&x->evaluator, &x->runner);
}

void session_abort(session *x, err_t rc) {
    comm *c = x->ranks;
    if (rc == ERR_OK || rc == ERR_INTERRUPTED || err_last()->shared || !c || c->world == 1) return;
    err_record why = *err_last();
    c->table->abort(c, why.text);
    err_restore(&why);
}

err_t session_settle(session *x) { return parallel_wait(&x->runner.together); }

// Of this rank's island.
static int64_t first_lane(const session *x) {
    return grid_at(&x->shape, x->ranks->rank).island * (x->cfg->resolved.lanes / grid_islands(&x->shape));
}

// This rank's lanes of every step.
static loader_options feed_options(const session *x, int64_t last) {
    const config *c = x->cfg;
    sample_range own = model_own_samples(x->net, &x->state.o.tokens, c->resolved.micro);
    loader_options o = {
        .seed = (uint64_t)c->run.seed,
        .shuffle = c->data.shuffle,
        .in = x->net->input,
        .inputs = x->net->inputs,
        .global = c->batch.global,
        .micro = c->resolved.micro,
        .lanes = c->resolved.lanes,
        .own_first = own.first,
        .own_count = own.count,
        .first_step = x->progress.step + 1,
        .last_step = last,
        .depth = (int)c->data.prefetch,
        .readers = session_readers(x),
    };
    const lane_table *t = reduce_lanes(x->state.reduce);
    int rank = x->state.ranks->rank, context = grid_context(&x->shape);
    o.lane_count = lane_table_count(t, rank);
    o.first_lane = o.lane_count ? first_lane(x) + lane_table_lane(t, rank, 0) / context : 0;
    o.lane_stride = t->turns ? t->world / context : 1;
    o.lane_list = x->lanes;
    o.asks = is_served(x) ? o.lane_count : 0;
    return o;
}

// Lanes that are dealt in turns by a list, or in spans, have no stride.
static err_t list_lanes(session *x) {
    const lane_table *t = reduce_lanes(x->state.reduce);
    int rank = x->state.ranks->rank, context = grid_context(&x->shape);
    int64_t count = lane_table_count(t, rank);
    if (!t->turns || (!t->count && lane_table_span(t) == 1)) return ERR_OK;
    x->lanes = calloc((size_t)count + 1, sizeof *x->lanes);
    if (!x->lanes) return err_set(ERR_INTERNAL, "no memory for a list of %" PRId64 " lanes", count);
    for (int64_t i = 0; i < count; i++) x->lanes[i] = first_lane(x) + lane_table_lane(t, rank, i) / context;
    return ERR_OK;
}

// Of those that are kept in memory for the case that ranks are lost.
static bool keeps_snapshots(const session *x) {
    const config *c = x->cfg;
    return x->kind == SESSION_TRAIN && c->cluster.elastic && c->snapshot.every;
}

static bool writes_beside(const session *x) { return x->kind == SESSION_TRAIN && x->cfg->checkpoint.async; }

int64_t session_snapshots(const session *x) {
    int64_t values = state_saved(&x->state), bytes = writes_beside(x) ? ckpt_writer_bytes(values) : 0;
    if (!keeps_snapshots(x)) return bytes;
    int64_t live = x->cfg->snapshot.live ? live_values(&x->state) : 0;
    bytes += vault_bytes(values, live);
    // copies are of ranks that have about as much
    if (!x->shape.servers) return bytes + vault_bytes(values, 0) * vault_keeps(x->ranks);
    for (int r = 0; vault_keeps(x->ranks) && r < x->ranks->world; r++)
        if (vault_keeper(x->ranks, r) == x->ranks->rank)
            bytes += vault_bytes(state_saved_by(&x->state, grid_group_index(&x->shape, GROUP_DATA, r)), 0);
    return bytes;
}

err_t session_enter(session *x, const launch *at) {
    x->progress = progress_none();
    vault_open(&x->vault, at && at->yard && keeps_snapshots(x) ? at->yard->vault : -1, at ? at->local : 0);
    x->vault.damage = &x->torn, x->torn = (err_record){0};
    x->faults.rank = at ? at->rank : 0;
    x->vault.faults = &x->faults;
    TRY(open_stages(x, at ? at->rank : 0, at ? at->world : 1));
    flight_begin(x->flight, at ? at->epoch : 0);
    fault_kill(&x->faults, FAULT_MEET);
    TRY(open_ranks(x, at));
    flight_watch(x->flight, x->ranks);
    TRY(groups_open(&x->groups, &x->shape, x->ranks));
    fault_kill(&x->faults, FAULT_MET);
    TRY(plan_tensors(x));
    TRY(memory_fits(x->ranks, x->s, x->dev, (int64_t)(x->state.memory.bytes + x->runner.memory.bytes),
                    (int64_t)(x->state.host.bytes + x->runner.staging.bytes) + session_snapshots(x) +
                        state_rows_memory(&x->state)));
    TRY(memory_advise(state_commit(&x->state)));
    TRY(memory_advise(step_commit(&x->runner)));
    if (x->state.memory.base) TRY(transport_register(x->ranks, x->state.memory.base, x->state.memory.bytes));
    TRY(session_freeze(x));
    TRY(session_describe(x));
    if (!writes_beside(x)) return ERR_OK;
    return memory_advise(ckpt_writer_open(&x->writer, x->dir, &x->state.ckpt, x->groups.beside, &x->faults));
}

err_t session_open(session *x, const config *c, session_kind kind, const launch *at) {
    TRY(session_machine(x, c, kind, at ? at->local : 0));
    return session_enter(x, at);
}

static err_t plan_parts(session *x) {
    TRY(open_stages(x, x->ranks->rank, x->ranks->world));
    TRY(groups_imagine(&x->groups, &x->shape, x->ranks));
    TRY(plan_tensors(x));
    loader_options o = feed_options(x, x->cfg->run.steps);
    x->ring_bytes = x->state.o.serves ? 0 : (size_t)loader_bytes(&o);
    return ERR_OK;
}

err_t session_plan(session *x, const config *c, comm *ranks) {
    *x = (session){.cfg = c, .kind = SESSION_TRAIN, .ranks = ranks};
    TRY(session_open_device(x, 0));
    TRY(session_open_model(x));
    TRY(exam_fits(c, x->net));
    return plan_parts(x);
}

err_t session_plan_next(session *x, comm *ranks) {
    session_leave(x);
    x->ranks = ranks;
    return plan_parts(x);
}

static void stop_feeding(session *x) {
    if (x->data) loader_close(x->data);
    if (x->ring) device_free(x->dev, MEMORY_PINNED, x->ring, x->ring_bytes);
    free(x->lanes);
    x->data = NULL;
    x->ring = NULL;
    x->lanes = NULL;
}

void session_leave(session *x) {
    if (x->dev) stop_feeding(x);
    ckpt_writer_close(x->writer);
    served_close(x->served);
    if (x->runner.cfg) step_close(&x->runner);
    if (x->state.net) state_close(&x->state);
    groups_close(&x->groups);
    stages_close(&x->stages);
    if (x->ranks) x->ranks->table->close(x->ranks);
    if (x->team) team_leave(x->team);
    vault_close(&x->vault);
    free(x->deal), free(x->weight);
    x->deal = x->weight = NULL;
    if (x->given) x->cfg = x->given;  // the next world's ranks compare what they were given
    x->ranks = NULL;
    x->team = NULL;
    x->writer = NULL;
    x->served = NULL;
    x->evaluator = (evaluator){0};
}

void session_close(session *x) {
    session_leave(x);
    session_close_machine(x);
    free(x->own);
    *x = (session){0};
}

// --- steps -----------------------------------------------------------------------------------------------------------

err_t session_feed(session *x, int64_t last) {
    stop_feeding(x);
    if (x->state.o.serves) return ERR_OK;  // it reads no data
    TRY(list_lanes(x));
    loader_options o = feed_options(x, last);
    x->ring_bytes = (size_t)loader_bytes(&o);
    TRY(device_alloc(x->dev, MEMORY_PINNED, x->ring_bytes, &x->ring));
    o.memory = x->ring;
    return loader_open(&x->data, x->train, &o);
}

err_t session_deal(session *x, const int64_t *deal) {
    size_t n = (size_t)(x->shape.data * grid_context(&x->shape));
    if (!x->deal) x->deal = calloc(n, sizeof *x->deal);
    if (!x->deal) return err_set(ERR_INTERNAL, "no memory for the lanes of %d ranks", x->shape.data);
    TRY(session_settle(x));
    spread_deal(x, deal);
    TRY(state_deal(&x->state, x->deal));
    TRY(stages_deal(&x->stages, pipe_micros_of(x->cfg, x->deal[x->state.ranks->rank])));
    TRY(step_deal(&x->runner));
    return session_feed(x, x->cfg->run.steps);
}

err_t session_queue(session *x) {
    TRY(step_queue(&x->runner, x->data, x->progress.step + 1));
    x->progress.step++;
    return ERR_OK;
}

err_t session_collect(session *x, step_result *out) {
    err_t rc = step_collect(&x->runner, out);
    if (rc != ERR_OK) x->progress.step = x->runner.oldest - 1;
    if (rc != ERR_OK || !fault_hit(&x->faults, FAULT_LIE)) return rc;
    TRY(session_settle(x));  // weights are still on their way
    return replicas_flip(&x->state);
}

err_t session_serve(session *x) {
    static const serving_kind kind[] = {
        [SERVER_BOUNDED] = SERVE_BOUNDED, [SERVER_ASYNC] = SERVE_ASYNC, [SERVER_HYBRID] = SERVE_HYBRID};
    const config *c = x->cfg;
    const served_options o = {.rules = {.kind = kind[c->server.mode],
                                        .workers = grid_workers(&x->shape),
                                        .staleness = c->server.staleness,
                                        .timeout_s = c->server.timeout,
                                        .decays = c->server.late == LATE_DECAY},
                              .most = c->server.every,
                              .record = c->server.record ? x->dir : NULL,
                              .replay = *c->server.replay ? c->server.replay : NULL,
                              .after = x->progress.step};
    return served_open(&x->served, &x->runner, &o);
}

err_t session_period(session *x, int64_t last, served_results *out) {
    TRY(served_period(x->served, x->data, x->progress.step + 1, last, out));
    x->progress.step = last;
    return ERR_OK;
}

err_t session_step(session *x, step_result *out) {
    TRY(session_queue(x));
    return session_collect(x, out);
}
