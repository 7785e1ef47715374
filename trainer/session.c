// trainer/session.c: opens and closes what a run needs, in the order in which one thing stands on the other.
#include "trainer/train.h"

#include "base/io.h"
#include "base/version.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static dtype compute_type(const config *c) {
    return c->precision.compute == COMPUTE_BF16 ? BF16 : c->precision.compute == COMPUTE_FP16 ? FP16 : FP32;
}

static err_t open_device(session *x) {
    static const device_kind kinds[] = {[BACKEND_AUTO] = DEVICE_AUTO, [BACKEND_CPU] = DEVICE_CPU, [BACKEND_CUDA] = DEVICE_CUDA};
    static const vector_width width[] = {[SIMD_AUTO] = WIDTH_AUTO, [SIMD_AVX512] = WIDTH_AVX512, [SIMD_AVX2] = WIDTH_AVX2,
                                         [SIMD_PORTABLE] = WIDTH_PORTABLE};
    const config *c = x->cfg;
    TRY(device_open(&x->dev, &(device_options){.kind = kinds[c->device.backend], .threads = (int)c->device.threads,
                                               .width = width[c->device.simd]}));
    return stream_open(x->dev, &x->s);
}

static err_t open_split(session *x, dataset **out, const char *key, const char *files) {
    static const shard_format format[] = {[DATA_AUTO] = SHARD_AUTO, [DATA_LOCKSTEP] = SHARD_LOCKSTEP, [DATA_LLMC] = SHARD_LLMC,
                                          [DATA_RAW16] = SHARD_RAW16, [DATA_RAW32] = SHARD_RAW32};
    err_t rc = dataset_open(out, &(dataset_options){.files = files, .format = format[x->cfg->data.format], .vocab = x->cfg->model.vocab,
                                                    .retry = (int)x->cfg->data.retry, .faults = &x->faults});
    if (rc != ERR_OK) return err_prefix("[data] %s", key);
    int64_t T = x->cfg->model.context, tokens = dataset_about(*out).tokens;
    if (sampler_windows(tokens, T) < 1)
        return err_set(ERR_DATA, "[data] %s holds %lld tokens, expected more than [model] context = %lld", key, (long long)tokens, (long long)T);
    return ERR_OK;
}

static err_t open_data(session *x, session_kind kind) {
    if (kind == SESSION_TRAIN) TRY(open_split(x, &x->train, "train", x->cfg->data.train));
    return x->cfg->data.val[0] ? open_split(x, &x->val, "val", x->cfg->data.val) : ERR_OK;
}

static err_t open_model(session *x, session_kind kind) {
    const config *c = x->cfg;
    TRY(model_gpt.open(&x->net, &(model_options){.layers = (int)c->model.layers, .heads = (int)c->model.heads, .embed = c->model.embed,
                                                 .vocab = c->model.vocab, .context = c->model.context, .dropout = c->model.dropout}));
    TRY(comm_self_open(&x->ranks));
    int buffers = kind == SESSION_TRAIN ? lane_counter_buffers(0, c->batch.lanes) : 0;
    TRY(state_open(&x->state, x->net, x->dev, x->s, compute_type(c), buffers));
    return step_open(&x->runner, c, x->dev, x->s, x->ranks, x->net, &x->state);
}

static err_t copy_key(void *ctx, const char *key, const char *value) {
    ckpt_state *s = ctx;
    if (s->keys == CKPT_KEYS_MAX) return err_set(ERR_INTERNAL, "more than %d keys of class bits", CKPT_KEYS_MAX);
    ckpt_key *k = &s->key[s->keys++];
    if (strlen(key) >= CKPT_KEY || strlen(value) >= CKPT_VALUE) return err_set(ERR_INTERNAL, "%s: the value is too long for a manifest", key);
    strcpy(k->key, key);
    strcpy(k->value, value);
    return ERR_OK;
}

// What a checkpoint of this run says of itself, the bits keys foremost.
static err_t describe(session *x) {
    ckpt_state *s = &x->state.ckpt;
    TRY(config_each(x->cfg, CLASS_BITS, copy_key, s));
    TRY(copy_key(s, "device.kind", device_about(x->dev)->kind == DEVICE_CUDA ? "cuda" : "cpu"));
    if (x->train) memcpy(s->data_hash, dataset_about(x->train).hash, sizeof s->data_hash);
    memcpy(s->build, version_text(), strnlen(version_text(), sizeof s->build - 1));
    s->at.best_loss = __builtin_inf();
    return ERR_OK;
}

err_t session_open(session *x, const config *c, session_kind kind) {
    *x = (session){.cfg = c};
    TRY(fault_parse(&x->faults, c->run.faults));
    TRY(io_path(x->dir, "%s/%s", c->run.dir, c->run.name));
    TRY(open_device(x));
    TRY(open_data(x, kind));
    TRY(open_model(x, kind));
    return describe(x);
}

static void stop_feeding(session *x) {
    if (x->data) loader_close(x->data);
    if (x->ring) device_free(x->dev, MEMORY_PINNED, x->ring, x->ring_bytes);
    x->data = NULL;
    x->ring = NULL;
}

void session_close(session *x) {
    if (x->dev) stop_feeding(x);
    if (x->runner.cfg) step_close(&x->runner);
    if (x->state.net) state_close(&x->state);
    if (x->ranks) x->ranks->table->close(x->ranks);
    if (x->net) x->net->type->close(x->net);
    if (x->train) dataset_close(x->train);
    if (x->val) dataset_close(x->val);
    if (x->s) stream_close(x->s);
    if (x->dev) device_close(x->dev);
    *x = (session){0};
}

static err_t adopt_counters(session *x) {
    step_state s;
    state_from_counters(&s, &x->state.ckpt.at, x->cfg);
    x->step = x->state.ckpt.at.step;
    return state_set_step(&x->state, &s);
}

err_t session_init(session *x) {
    if (x->cfg->model.init_from[0]) TRY(state_init_from(&x->state, x->cfg->model.init_from));
    else TRY(state_init(&x->state, (uint64_t)x->cfg->run.seed));
    return adopt_counters(x);
}

static void complain(void *ctx, const char *text) { monitor_event(ctx, "damaged", 0, text); }

err_t session_resume(session *x, bool *found, monitor *m) {
    TRY(ckpt_resume(x->dir, &x->state.ckpt, found, complain, m));
    if (!*found) return ERR_OK;
    TRY(state_publish(&x->state));
    return adopt_counters(x);
}

err_t session_load(session *x, const char *dir) {
    char best[IO_PATH];
    struct stat st;
    TRY(io_path(best, "%s/best", x->dir));
    if (!dir && stat(best, &st) == 0) dir = best;
    else if (!dir) {
        bool found;
        TRY(ckpt_newest(x->dir, best, &found));
        if (!found) return err_set(ERR_DATA, "%s/ckpt: no checkpoint yet; train first: lockstep CONFIG.ini", x->dir);
        dir = best;
    }
    TRY(ckpt_load(dir, &x->state.ckpt, true));
    TRY(state_publish(&x->state));
    return adopt_counters(x);
}

err_t session_feed(session *x, int64_t last) {
    const config *c = x->cfg;
    stop_feeding(x);
    loader_options o = {
        .seed = (uint64_t)c->run.seed, .shuffle = c->data.shuffle, .T = c->model.context, .global = c->batch.global, .micro = c->batch.micro,
        .lanes = c->batch.lanes, .first_lane = 0, .lane_count = c->batch.lanes, .first_step = x->step + 1, .last_step = last,
        .depth = (int)c->data.prefetch,
    };
    x->ring_bytes = (size_t)loader_bytes(&o);
    TRY(device_alloc(x->dev, MEMORY_PINNED, x->ring_bytes, &x->ring));
    o.memory = x->ring;
    return loader_open(&x->data, x->train, &o);
}

err_t session_step(session *x, step_result *out) {
    TRY(step_run(&x->runner, x->data, x->step + 1, out));
    x->step++;
    return ERR_OK;
}

err_t session_counters(session *x) {
    step_state s;
    TRY(state_get_step(&x->state, &s));
    ckpt_counters *at = &x->state.ckpt.at;
    at->step = x->step;
    at->adam_t = s.adam_t;
    at->skipped = s.skipped;
    at->loss_scale = s.loss_scale;
    at->good_steps = s.good_steps;
    return ERR_OK;
}
