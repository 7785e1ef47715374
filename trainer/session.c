// trainer/session.c: opens and closes what a run needs, in the order in which its parts depend on each other.
#include "data/text/about.h"
#include "trainer/step/tied.h"
#include "trainer/train.h"

#include "base/io.h"
#include "base/version.h"
#include "comm/transport.h"
#include "model/predict.h"
#include "trainer/config/pipes.h"
#include "trainer/fits.h"
#include "trainer/node/cluster.h"
#include "trainer/tuned.h"

#include <inttypes.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static err_t open_device(session *x, int local) {
    const config *c = x->cfg;
    TRY(device_open(&x->dev, &(device_options){.kind = (device_kind)c->device.kind,
                                               .index = local,
                                               .threads = (int)c->device.threads,
                                               .width = (vector_width)c->device.simd,
                                               .products = (products)c->precision.products,
                                               .check = c->device.check,
                                               .profile = x->kind == SESSION_PROFILE,
                                               .why = c->device.why[0] ? c->device.why : NULL}));
    return stream_open(x->dev, &x->s);
}

static source_options source_options_of(session *x, const char *files, bool held_out) {
    const config *c = x->cfg;
    return (source_options){.files = files,
                            .format = (source_format)c->data.format,
                            .wanted = x->net->input,
                            .inputs = x->net->inputs,
                            .ignores = c->data.ignore >= 0,
                            .ignored = c->data.ignore,
                            .held_out = c->data.holdout,
                            .only_held_out = held_out,
                            .packed = c->pack.output[0] ? c->pack.output : NULL,
                            .retry = (int)c->data.retry,
                            .faults = &x->faults};
}

static err_t open_split(session *x, source **out, const char *key, const char *files, bool held_out) {
    source_options o = source_options_of(x, files, held_out);
    return source_open(out, &o) == ERR_OK ? ERR_OK : config_blame(x->cfg, "data", key);
}

// How low the validation loss can be is known of stories. It would say nothing of tokens that are not those of
// training.
static err_t find_possible(session *x) {
    const config *c = x->cfg;
    const char *files = c->data.holdout ? c->data.train : c->data.val;
    about a = {0}, t = {0};
    if (files[0] && x->net->vocab) TRY(about_find(&a, files));
    if (a.known && x->kind == SESSION_TRAIN) TRY(about_find(&t, c->data.train));
    x->possible = a.best_loss;
    if (!t.known || strcmp(a.vocabulary, t.vocabulary) == 0) return ERR_OK;
    return err_set(
        ERR_CONFIG,
        "[data] val was made with the tokenizer %s, and [data] train with %s: expected one vocabulary for both. Pack one of them again",
        a.tokenizer, t.tokenizer);
}

static err_t open_data(session *x) {
    const config *c = x->cfg;
    source_options o = source_options_of(x, "", false);
    if (x->kind >= SESSION_BENCH) return made_up_open(&x->train, &o, (uint64_t)c->run.seed, 4 * c->batch.global);
    if (x->kind != SESSION_LOOK) TRY(open_split(x, &x->train, "train", c->data.train, false));
    TRY(find_possible(x));
    if (c->data.holdout) return open_split(x, &x->val, "train", c->data.train, true);
    return c->data.val[0] ? open_split(x, &x->val, "val", c->data.val, false) : ERR_OK;
}

void session_part(const session *x, int k, char dst[SESSION_PART]) {
    int parts;
    const source_part *p = &source_parts(x->train, &parts)[k];
    double drawn = p->share * (double)x->cfg->run.steps * (double)x->cfg->batch.global;
    snprintf(dst, SESSION_PART, "%.*s: %.4g %% of the samples, %.2f epochs of its %" PRId64 " %s in %d file%s",
             SESSION_PART - 128, p->text, 100 * p->share, drawn / (double)p->about.samples, p->about.units,
             p->about.unit, p->about.files, p->about.files == 1 ? "" : "s");
}

// --- ranks -----------------------------------------------------------------------------------------------------------

static err_t describe_team(session *x, const launch *at, team_options *o) {
    const config *c = x->cfg;
    char hash[17];
    config_hash(c, hash);
    *o = (team_options){.at = at,
                        .port = (int)c->cluster.port,
                        .has_secret = at->nodes > 1,
                        .timeout_s = (double)c->cluster.timeout,
                        .heartbeat_s = c->cluster.heartbeat,
                        .waiting = x->waiting,
                        .links = true};
    snprintf(o->job, sizeof o->job, "%s", c->run.name);
    snprintf(o->build, sizeof o->build, "%s", version_sources());
    snprintf(o->config_hash, sizeof o->config_hash, "%s", hash);
    int n = snprintf(o->data_hash, sizeof o->data_hash, "%s %s", x->train ? source_about(x->train).hash : "-",
                     x->val ? source_about(x->val).hash : "-");
    const source *asked[] = {x->exam.text.from, x->exam.questions ? questions_source(x->exam.questions) : NULL};
    for (int i = 0; i < 2 && !exam_is_empty(&x->exam); i++)
        n += snprintf(o->data_hash + n, sizeof o->data_hash - (size_t)n, " %.8s",
                      asked[i] ? source_about(asked[i]).hash : "-");
    return o->has_secret ? cluster_secret(c, o->secret) : ERR_OK;
}

static err_t list_setting(void *ctx, const char *key, const char *value) {
    fprintf(ctx, "%s=%s\n", key, value);
    return ERR_OK;
}

// Of which config_hash is the hash, in the same order. The caller frees *out.
static err_t list_settings(const config *c, char **out) {
    size_t size;
    FILE *to = open_memstream(out, &size);
    if (to) config_each(c, CLASS_BITS, list_setting, to), config_each(c, CLASS_LAYOUT, list_setting, to);
    return to && fclose(to) == 0 ? ERR_OK : err_set(ERR_INTERNAL, "no memory for the text of the settings");
}

static transport_kind choose_transport(const session *x) {
    transport_kind wanted = (transport_kind)x->cfg->reduce.transport;
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
            "[reduce] transport = tcp moves host memory, and this run is on GPUs; set it to auto or nccl, or [device] backend = cpu");
    team_options o;
    char *settings = NULL;
    err_t rc = describe_team(x, at, &o);
    if (rc == ERR_OK) rc = list_settings(c, &settings);
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
                                               .infiniband = infiniband[c->reduce.nccl_ib]},
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

// ZeRO divides tensors among several ranks; one rank alone has everything.
static state_options state_options_of(const session *x) {
    const config *c = x->cfg;
    int64_t micros = c->batch.global / c->batch.lanes / c->batch.micro;
    bool once = micros == 1 && x->net->adds_once;
    model_tokens tokens = tokens_here(x);
    return (state_options){
        .compute = (dtype)c->precision.compute,
        .stage = grid_group_size(&x->shape, GROUP_DATA) > 1 ? (int)c->parallel.zero : 0,
        .offload = x->kind != SESSION_LOOK && c->parallel.offload,
        .training = x->kind != SESSION_LOOK,
        .optimizer = &c->optimizer,
        .fixed = c->reduce.order == ORDER_FIXED,
        .stochastic = c->precision.rounding == ROUNDING_STOCHASTIC,
        .seed = (uint64_t)c->run.seed,
        .lanes = c->batch.lanes * grid_context(&x->shape),
        .micros = micros,
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

// What samples are written with. That it fits the model and the shards is known before the run, not at its end.
static err_t open_words(session *x) {
    if (!x->net->vocab || !x->cfg->sample.tokens || x->kind >= SESSION_BENCH) return ERR_OK;
    return exam_words(&x->words, x->cfg, x->net, x->kind == SESSION_TRAIN);
}

err_t session_check_prompt(const session *x, const char *prompt) {
    const int32_t *ids = NULL;
    int64_t count = 0;
    encoder *e = NULL;
    if (!x->net->vocab || !x->cfg->sample.tokens) return ERR_OK;
    if (x->words) TRY(encoder_open(&e, x->words));
    err_t rc =
        e ? encoder_encode(e, prompt, (int64_t)strlen(prompt), ENCODE_TEXT | ENCODE_BEGIN, &ids, &count) : ERR_OK;
    if (rc == ERR_OK && (!e || count > 0)) rc = predict_check(x->net, prompt, ids, count);
    if (e) encoder_close(e);
    return rc;
}

static err_t open_model(session *x) { return model_open(&x->net, model_types[x->cfg->model.type], &x->cfg->model.of); }

// What is asked beside the validation loss; not of made-up samples.
static err_t open_exam(session *x) { return x->kind < SESSION_BENCH ? exam_open(&x->exam, x->cfg, x->net) : ERR_OK; }

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
    grid_place at = grid_at(&x->shape, rank);
    stage_options o = {.kind = (pipeline_kind)c->parallel.schedule,
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
    err_t rc = open_model(&x);
    for (int stage = 0; rc == ERR_OK && stage < shape.pipeline; stage++) {
        rc = open_stages(&x, grid_rank(&shape, (grid_place){.stage = stage}), world);
        stages_close(&x.stages);
    }
    if (x.net) model_close(x.net);
    return rc;
}

static err_t plan_tensors(session *x) {
    state_options o = state_options_of(x);
    TRY(state_open(&x->state, x->net, x->dev, x->s, x->groups.group[GROUP_DATA], &o));
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

// Of [device] plans the content counts, not where it is.
static err_t copy_key(void *ctx, const char *key, const char *value) {
    session *x = ctx;
    ckpt_state *s = &x->state.ckpt;
    if (strcmp(key, "device.plans") == 0) value = x->plans;
    if (s->keys == CKPT_KEYS_MAX) return err_set(ERR_INTERNAL, "more than %d keys of class bits", CKPT_KEYS_MAX);
    ckpt_key *k = &s->key[s->keys++];
    if (strlen(key) >= CKPT_KEY || strlen(value) >= CKPT_VALUE)
        return err_set(ERR_INTERNAL, "%s: the value is too long for a manifest", key);
    strcpy(k->key, key);
    strcpy(k->value, value);
    k->open = config_follows_steps(x->cfg, key);
    return ERR_OK;
}

static err_t mark_usual(void *ctx, const char *key, const char *value) {
    ckpt_state *s = ctx;
    for (int i = 0; i < s->keys; i++)
        if (strcmp(s->key[i].key, key) == 0) snprintf(s->key[i].usual, CKPT_VALUE, "%s", value);
    return ERR_OK;
}

static err_t compare_with_defaults(ckpt_state *s) {
    config *usual = calloc(1, sizeof *usual);
    if (!usual) return err_set(ERR_INTERNAL, "no memory for the default settings");
    err_t rc = config_load(usual, NULL, 0);
    if (rc == ERR_OK) rc = config_each(usual, CLASS_BITS, mark_usual, s);
    free(usual);
    return rc;
}

// Fills in what this run's checkpoints say of it, above all the bits keys.
static err_t describe(session *x) {
    ckpt_state *s = &x->state.ckpt;
    TRY(config_each(x->cfg, CLASS_BITS, copy_key, x));
    TRY(compare_with_defaults(s));
    s->dev = x->dev;
    s->any_device = !x->cfg->device.match;
    s->any_bits = x->cfg->run.resume == RESUME_OTHER_BITS;
    if (x->train) memcpy(s->data_hash, source_about(x->train).hash, sizeof s->data_hash);
    memcpy(s->build, version_text(), strnlen(version_text(), sizeof s->build - 1));
    snprintf(s->sources, sizeof s->sources, "%s", version_sources());
    s->at.best_loss = __builtin_inf();
    s->at.loss = __builtin_nan("");
    s->at.least_loss = __builtin_inf();
    s->at.sound_step = -1;
    return ERR_OK;
}

// This rank's lanes of every step.
static loader_options feed_options(const session *x, int64_t last) {
    const config *c = x->cfg;
    loader_options o = {
        .seed = (uint64_t)c->run.seed,
        .shuffle = c->data.shuffle,
        .in = x->net->input,
        .inputs = x->net->inputs,
        .global = c->batch.global,
        .micro = c->batch.micro,
        .lanes = c->batch.lanes,
        .first_step = x->step + 1,
        .last_step = last,
        .depth = (int)c->data.prefetch,
    };
    lane_deal d = reduce_lanes(x->state.reduce);
    int context = grid_context(&x->shape);
    o.first_lane = d.first / context, o.lane_count = d.count, o.lane_stride = d.stride / context;
    return o;
}

err_t session_machine(session *x, const config *c, session_kind kind, int device) {
    *x = (session){.cfg = c, .kind = kind};
    TRY(fault_parse(&x->faults, c->run.faults));
    TRY(io_path(x->dir, "%s/%s", c->run.dir, c->run.name));
    TRY(open_device(x, device));
    if (c->device.plans[0] && kind != SESSION_TUNE && tuned_load(x->dev, c->device.plans, x->plans) != ERR_OK)
        return config_blame(c, "device", "plans");
    TRY(open_model(x));
    TRY(open_words(x));
    TRY(open_exam(x));
    if (kind == SESSION_TRAIN) TRY(session_check_prompt(x, c->sample.prompt));  // not hours later, when it samples
    return open_data(x);
}

err_t session_data(session *x, const config *c) {
    *x = (session){.cfg = c, .kind = SESSION_TRAIN};
    TRY(open_model(x));
    return open_split(x, &x->train, "train", c->data.train, false);
}

err_t session_write_config(const session *x, const char *dir) {
    char path[IO_PATH], *text = NULL, hash[17], name[HOST_NAME_MAX + 1] = "";
    size_t size = 0;
    TRY(io_path(path, "%s/config.ini", dir));
    FILE *out = open_memstream(&text, &size);
    if (!out) return err_set(ERR_INTERNAL, "no memory for the effective configuration");
    if (gethostname(name, sizeof name) != 0) snprintf(name, sizeof name, "unknown");
    config_hash(x->cfg, hash);
    fprintf(out, "# lockstep %s  sources %s  config %s  data %s\n", version_text(), version_sources(), hash,
            source_about(x->train).hash);
    if (x->dev) fprintf(out, "# machine %s  device %s\n", name, device_about(x->dev)->name);
    config_print(x->cfg, out);
    err_t rc = fclose(out) == 0 ? io_write_file(path, text, size, NULL)
                                : err_set(ERR_INTERNAL, "no memory for the effective configuration");
    free(text);
    return rc;
}

err_t session_enter(session *x, const launch *at) {
    x->step = 0;
    x->faults.rank = at ? at->rank : 0;
    TRY(open_stages(x, at ? at->rank : 0, at ? at->world : 1));
    TRY(open_ranks(x, at));
    TRY(groups_open(&x->groups, &x->shape, x->ranks));
    TRY(plan_tensors(x));
    TRY(memory_fits(x->ranks, x->s, x->dev, (int64_t)(x->state.memory.bytes + x->runner.memory.bytes),
                    (int64_t)(x->state.host.bytes + x->runner.staging.bytes)));
    TRY(memory_advise(state_commit(&x->state)));
    TRY(memory_advise(step_commit(&x->runner)));
    if (x->state.memory.base) TRY(transport_register(x->ranks, x->state.memory.base, x->state.memory.bytes));
    return describe(x);
}

err_t session_open(session *x, const config *c, session_kind kind, const launch *at) {
    TRY(session_machine(x, c, kind, at ? at->local : 0));
    return session_enter(x, at);
}

err_t session_plan(session *x, const config *c, comm *ranks) {
    *x = (session){.cfg = c, .kind = SESSION_TRAIN, .ranks = ranks};
    TRY(open_device(x, 0));
    TRY(open_model(x));
    TRY(open_stages(x, ranks->rank, ranks->world));
    TRY(groups_imagine(&x->groups, &x->shape, ranks));
    TRY(plan_tensors(x));
    loader_options o = feed_options(x, c->run.steps);
    x->ring_bytes = (size_t)loader_bytes(&o);
    return ERR_OK;
}

static void stop_feeding(session *x) {
    if (x->data) loader_close(x->data);
    if (x->ring) device_free(x->dev, MEMORY_PINNED, x->ring, x->ring_bytes);
    x->data = NULL;
    x->ring = NULL;
}

void session_leave(session *x) {
    if (x->dev) stop_feeding(x);
    if (x->runner.cfg) step_close(&x->runner);
    if (x->state.net) state_close(&x->state);
    groups_close(&x->groups);
    stages_close(&x->stages);
    if (x->ranks) x->ranks->table->close(x->ranks);
    if (x->team) team_leave(x->team);
    x->ranks = NULL;
    x->team = NULL;
    x->evaluator = (evaluator){0};
}

void session_close(session *x) {
    session_leave(x);
    if (x->train) source_close(x->train);
    if (x->val) source_close(x->val);
    if (x->net) model_close(x->net);
    tokenizer_close(x->words);
    exam_close(&x->exam);
    if (x->s) stream_close(x->s);
    if (x->dev) device_close(x->dev);
    free(x->own);
    *x = (session){0};
}

// Call it before the weights are published: their rounding depends on the number of updates.
static err_t adopt_counters(session *x) {
    step_state s;
    state_from_counters(&s, &x->state.ckpt.at, x->cfg);
    x->step = x->state.ckpt.at.step;
    return state_set_step(&x->state, &s);
}

// Is [model] init_from a checkpoint of ours, or a run with one: its best, or else its newest? Then dir is the
// checkpoint; "": it is not. Rows for more or fewer tokens are taken as from weights of others.
static err_t find_own(const session *x, char dir[IO_PATH]) {
    char path[IO_PATH];
    struct stat st;
    bool found = false;
    const char *from = x->cfg->model.init_from;
    *dir = 0;
    if (x->cfg->model.init_resize || stat(from, &st) != 0 || !S_ISDIR(st.st_mode)) return ERR_OK;
    TRY(io_path(path, "%s/manifest.json", from));
    if (stat(path, &st) == 0) return io_path(dir, "%s", from);
    TRY(io_path(path, "%s/best", from));
    if (stat(path, &st) == 0) return io_path(dir, "%s", path);
    TRY(ckpt_newest(from, path, &found));
    return found ? io_path(dir, "%s", path) : ERR_OK;
}

// The masters of a checkpoint, however many ranks wrote it, and none of its counters.
static err_t take_masters(session *x, const char *dir) {
    ckpt_state *s = malloc(sizeof *s);
    err_t rc = comm_agree_ok(x->ranks, s ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a checkpoint's state"), x->s);
    if (rc == ERR_OK) {
        *s = x->state.ckpt;
        s->groups = 1, s->work = NULL, s->dev = NULL;
        rc = ckpt_prepare(s);
        if (rc == ERR_OK) rc = ckpt_load(dir, s, true);
        if (rc != ERR_OK) config_blame(x->cfg, "model", "init_from");
        ckpt_release(s);
    }
    free(s);
    return rc == ERR_OK ? state_publish(&x->state) : rc;
}

static err_t init_from(session *x) {
    const config *c = x->cfg;
    char dir[IO_PATH];
    err_t rc = find_own(x, dir);
    int64_t own = *dir != 0, any = own;
    TRY(comm_agree_ok(x->ranks, rc, x->s));
    TRY(comm_agree_max(x->ranks, &any, x->s));
    if (!any) {
        rc = state_init_from(&x->state, c->model.init_from, &c->model.of, c->model.init_resize, (uint64_t)c->run.seed);
        return rc == ERR_OK ? ERR_OK : config_blame(c, "model", "init_from");
    }
    rc = own ? ERR_OK
             : err_set(ERR_DATA, "[model] init_from = %s: is a checkpoint on another node, and not on this one",
                       c->model.init_from);
    TRY(comm_agree_ok(x->ranks, rc, x->s));
    return take_masters(x, dir);
}

err_t session_init(session *x) {
    TRY(adopt_counters(x));
    if (x->cfg->model.init_from[0]) TRY(init_from(x));
    else TRY(state_init(&x->state, (uint64_t)x->cfg->run.seed));
    return tied_values(&x->state, x->s);
}

static void complain(void *ctx, const err_record *why) {
    monitor_event(ctx, why->code == ERR_IO ? "unreadable" : "damaged", 0, why->text);
}

static void report_device(const session *x, monitor *m) {
    char now[DEVICE_ARITHMETIC], text[2 * DEVICE_ARITHMETIC + 256];
    device_arithmetic(x->dev, now, sizeof now);
    snprintf(
        text, sizeof text,
        "the checkpoint was computed on \"%s\", this run goes on with \"%s\" ([device] match = no): its bits are others from here on",
        x->state.ckpt.other, now);
    monitor_event(m, "device", x->state.ckpt.at.step, text);
}

static void report_build(const session *x, monitor *m) {
    const ckpt_state *s = &x->state.ckpt;
    char text[2 * CKPT_REVISION + 128];
    snprintf(text, sizeof text, "%s wrote the checkpoint, %s (sources %s) goes on", s->other_build, version_text(),
             version_sources());
    if (s->other_build[0]) monitor_event(m, "build", s->at.step, text);
    snprintf(
        text, sizeof text,
        "the checkpoint was computed with %s, and this build goes on ([run] resume = other-bits): its bits are others from here on",
        s->other_bits);
    if (s->other_bits[0]) monitor_event(m, "other_bits", s->at.step, text);
}

// The settings with the values that the run began with, where they were left open. Such keys are read step by step, not
// when a session is opened.
static err_t adopt_keys(session *x, monitor *m) {
    const ckpt_state *s = &x->state.ckpt;
    char text[512];
    int n = 0;
    for (int i = 0; i < s->keys; i++) {
        if (!s->key[i].adopted) continue;
        if (!x->own && !(x->own = malloc(sizeof *x->own)))
            return err_set(ERR_INTERNAL, "no memory for the settings of a run that goes on");
        if (x->cfg != x->own) *x->own = *x->cfg, x->cfg = x->runner.cfg = x->own;
        TRY(config_adopt(x->own, s->key[i].key, s->key[i].value));
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%s = %.60s", n ? " and " : "", s->key[i].key,
                      s->key[i].value);
    }
    if (!n) return ERR_OK;
    snprintf(text + n, sizeof text - (size_t)n,
             ", as when the run began: left open, they do not follow a changed run.steps");
    monitor_event(m, "settings", s->at.step, text);
    return ERR_OK;
}

err_t session_resume(session *x, bool *found, monitor *m) {
    TRY(ckpt_resume(x->dir, &x->state.ckpt, found, complain, m));
    if (!*found) return ERR_OK;
    TRY(adopt_keys(x, m));
    if (x->state.ckpt.other[0]) report_device(x, m);
    report_build(x, m);
    TRY(adopt_counters(x));
    TRY(state_publish(&x->state));
    return tied_values(&x->state, x->s);
}

// Where in the run's directory its best checkpoint is, or else its newest; "" if there is none. Beside other ranks a
// link is followed once, so that all ranks load the same even while the run goes on elsewhere.
enum { CKPT_PLACE = 64 };
static err_t find_checkpoint(const session *x, char place[CKPT_PLACE]) {
    char best[IO_PATH];
    struct stat st;
    bool found;
    memset(place, 0, CKPT_PLACE);
    TRY(io_path(best, "%s/best", x->dir));
    if (stat(best, &st) == 0) {
        ssize_t n = x->ranks->world > 1 ? readlink(best, place, CKPT_PLACE - 1) : -1;
        if (n < 0 || place[0] == '/' || n == CKPT_PLACE - 1) memset(place, 0, CKPT_PLACE), strcpy(place, "best");
        return ERR_OK;
    }
    TRY(ckpt_newest(x->dir, best, &found));
    if (found) snprintf(place, CKPT_PLACE, "%s", best + strlen(x->dir) + 1);
    return ERR_OK;
}

// Rank 0's choice is that of all.
static err_t choose_checkpoint(session *x, char place[CKPT_PLACE]) {
    comm *host = x->ranks->host;
    err_t rc = x->ranks->rank == 0 ? find_checkpoint(x, place) : ERR_OK;
    TRY(comm_agree_ok(x->ranks, rc, x->s));
    if (x->ranks->world == 1) return ERR_OK;
    TRY(host->table->broadcast(host, place, CKPT_PLACE, 0, x->s));
    return stream_wait(x->s);
}

// dir NULL and initial given: the run's own, or *initial = true.
static err_t load_checkpoint(session *x, const char *dir, bool *initial) {
    char own[IO_PATH], place[CKPT_PLACE] = "";
    if (!dir) {
        TRY(choose_checkpoint(x, place));
        if (initial && !*place) return *initial = true, ERR_OK;
        if (!*place) return err_set(ERR_DATA, "%s/ckpt: no checkpoint yet; train first: lockstep CONFIG.ini", x->dir);
        TRY(io_path(own, "%s/%s", x->dir, place));
        dir = own;
    }
    TRY(ckpt_load(dir, &x->state.ckpt, true));
    TRY(adopt_counters(x));
    TRY(state_publish(&x->state));
    return tied_values(&x->state, x->s);
}

err_t session_load(session *x, const char *dir) { return load_checkpoint(x, dir, NULL); }

// A checkpoint is looked at with the products that it was trained with, whatever the INI says, but on GPUs and in FP16,
// which have FP32's alone.
static err_t adopt_products(session *x) {
    const ckpt_state *s = &x->state.ckpt;
    bool has_pairs = device_about(x->dev)->kind == DEVICE_CPU && x->cfg->precision.compute != FP16;
    for (int i = 0; i < s->keys; i++)
        if (has_pairs && strcmp(s->key[i].key, "precision.products") == 0)
            return device_set_products(x->dev, strcmp(s->key[i].then, products_name(PRODUCTS_BF16_PAIRS)) == 0
                                                   ? PRODUCTS_BF16_PAIRS
                                                   : PRODUCTS_FP32);
    return ERR_OK;
}

err_t session_weights(session *x, const char *dir, bool *initial) {
    *initial = false;
    TRY(load_checkpoint(x, dir, x->cfg->model.init_from[0] ? initial : NULL));
    return *initial ? session_init(x) : adopt_products(x);
}

err_t session_feed(session *x, int64_t last) {
    stop_feeding(x);
    loader_options o = feed_options(x, last);
    x->ring_bytes = (size_t)loader_bytes(&o);
    TRY(device_alloc(x->dev, MEMORY_PINNED, x->ring_bytes, &x->ring));
    o.memory = x->ring;
    return loader_open(&x->data, x->train, &o);
}

err_t session_queue(session *x) {
    TRY(step_queue(&x->runner, x->data, x->step + 1));
    x->step++;
    return ERR_OK;
}

err_t session_collect(session *x, step_result *out) {
    err_t rc = step_collect(&x->runner, out);
    if (rc != ERR_OK) x->step = x->runner.oldest - 1;
    return rc;
}

err_t session_step(session *x, step_result *out) {
    TRY(session_queue(x));
    return session_collect(x, out);
}

err_t session_counters(session *x) {
    step_state s;
    TRY(state_fetch(&x->state, true));
    TRY(state_get_step(&x->state, &s));
    ckpt_counters *at = &x->state.ckpt.at;
    at->step = x->step;
    at->adam_t = s.adam_t;
    at->skipped = s.skipped;
    at->loss_scale = s.loss_scale;
    at->good_steps = s.good_steps;
    return ERR_OK;
}
