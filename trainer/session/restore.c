// trainer/session/restore.c: see trainer/session/restore.h.
#include "trainer/session/restore.h"

#include "base/io.h"
#include "base/version.h"
#include "model/types.h"
#include "model/weights.h"
#include "trainer/step/frozen_values.h"
#include "trainer/step/live.h"
#include "trainer/step/outer.h"
#include "trainer/step/tied.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// --- what checkpoints say of the run ---------------------------------------------------------------------------------

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

// Of the same architecture: its keys, too, are those of builds that did not know them yet.
static err_t compare_with_defaults(ckpt_state *s, int type) {
    char of_type[CONFIG_WORD + 16];
    const char *over[] = {of_type};
    config *usual = calloc(1, sizeof *usual);
    if (!usual) return err_set(ERR_INTERNAL, "no memory for the default settings");
    snprintf(of_type, sizeof of_type, "model.type=%s", model_types[type]->name);
    err_t rc = config_load_with(usual, NULL, 0, over, 1);
    if (rc == ERR_OK) rc = config_each(usual, CLASS_BITS, mark_usual, s);
    free(usual);
    return rc;
}

// For the service manager, and for ranks that wait for this one.
static void beat(void *ctx) {
    const session *x = ctx;
    board_worked(x->runner.board);
    x->ranks->table->alive(x->ranks);
}

err_t session_describe(session *x) {
    ckpt_state *s = &x->state.ckpt;
    s->pulse = (ckpt_pulse){beat, x};
    s->compress = x->cfg->checkpoint.compress == COMPRESS_ZSTD ? (int)x->cfg->checkpoint.compress_level : 0;
    TRY(config_each(x->cfg, CLASS_BITS, copy_key, x));
    if (x->state.frozen.hash[0]) TRY(copy_key(x, "lora.base", x->state.frozen.hash));
    TRY(compare_with_defaults(s, x->cfg->model.type));
    s->dev = x->dev;
    s->any_device = !x->cfg->device.match;
    s->any_bits = x->cfg->run.resume == RESUME_OTHER_BITS;
    if (x->train) memcpy(s->data_hash, source_about(x->train).hash, sizeof s->data_hash);
    memcpy(s->build, version_text(), strnlen(version_text(), sizeof s->build - 1));
    snprintf(s->sources, sizeof s->sources, "%s", version_sources());
    return ERR_OK;
}

// --- initial weights -------------------------------------------------------------------------------------------------

// Call it before the weights are published: their rounding depends on the number of updates.
static err_t adopt_progress(session *x) {
    step_state s;
    state_from_progress(&s, &x->progress, x->cfg);
    return state_set_step(&x->state, &s);
}

err_t run_checkpoint(const char *run_dir, char path[IO_PATH], bool *best, bool *found) {
    struct stat st;
    TRY(io_path(path, "%s/best", run_dir));
    *best = *found = stat(path, &st) == 0;
    return *best ? ERR_OK : ckpt_newest(run_dir, path, found);
}

// Is [model] init_from a checkpoint of ours, or a run with one: its best, or else its newest? Then dir is the
// checkpoint; "": it is not. Rows for more or fewer tokens are taken as from weights of others.
static err_t find_own(const session *x, char dir[IO_PATH]) {
    char path[IO_PATH];
    struct stat st;
    bool best, found;
    const char *from = x->cfg->model.init_from;
    *dir = 0;
    if (x->cfg->model.init_resize || x->cfg->model.init_missing || stat(from, &st) != 0 || !S_ISDIR(st.st_mode))
        return ERR_OK;
    TRY(io_path(path, "%s/manifest.json", from));
    if (stat(path, &st) == 0) return io_path(dir, "%s", from);
    TRY(run_checkpoint(from, path, &best, &found));
    return found ? io_path(dir, "%s", path) : ERR_OK;
}

// The masters of a checkpoint, however many ranks wrote it, and none of its progress.
static err_t load_masters(session *x, const char *dir) {
    run_progress unused;
    ckpt_group masters = state_masters(&x->state);
    ckpt_state *s = malloc(sizeof *s);
    err_t rc = comm_agree_ok(x->ranks, s ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a checkpoint's state"), x->s);
    if (rc == ERR_OK) {
        *s = x->state.ckpt;
        s->groups = 1, s->scalars = 0, s->work = NULL, s->dev = NULL, s->group = &masters;
        rc = ckpt_prepare(s);
        if (rc == ERR_OK) rc = ckpt_load(dir, s, &unused, true);
        if (rc != ERR_OK) config_blame(x->cfg, "model", "init_from");
        ckpt_release(s);
    }
    free(s);
    return rc == ERR_OK ? state_begin(&x->state) : rc;
}

static unsigned lenient_of(const config *c) {
    return (c->model.init_resize ? WEIGHTS_RESIZE : 0) | (c->model.init_missing ? WEIGHTS_MISSING : 0);
}

static err_t init_from(session *x) {
    const config *c = x->cfg;
    char dir[IO_PATH];
    err_t rc = find_own(x, dir);
    int64_t own = *dir != 0, any = own;
    TRY(comm_agree_ok(x->ranks, rc, x->s));
    TRY(comm_agree_max(x->ranks, &any, x->s));
    if (!any) {
        rc = state_init_from(&x->state, c->model.init_from, &c->model.of, lenient_of(c), (uint64_t)c->run.seed);
        return rc == ERR_OK ? ERR_OK : config_blame(c, "model", "init_from");
    }
    rc = own ? ERR_OK
             : err_set(ERR_DATA, "[model] init_from = %s: is a checkpoint on another node, and not on this one",
                       c->model.init_from);
    TRY(comm_agree_ok(x->ranks, rc, x->s));
    return load_masters(x, dir);
}

err_t session_freeze(session *x) {
    const config *c = x->cfg;
    char dir[IO_PATH];
    const char *from = c->model.init_from[0] ? c->model.init_from : NULL;
    if (model_trained(x->net) == model_elements(x->net)) return ERR_OK;
    err_t rc = from ? find_own(x, dir) : ERR_OK;
    if (rc == ERR_OK && from && *dir)
        rc = err_set(
            ERR_CONFIG,
            "%s: frozen weights are read from files, and this is a run: lockstep export %s DIR writes them, and "
            "init_from = DIR reads them",
            from, from);
    TRY(comm_agree_ok(x->ranks, rc, x->s));
    rc = frozen_read(&x->state, from, &c->model.of, lenient_of(c), (uint64_t)c->run.seed);
    return rc == ERR_OK || !from ? rc : config_blame(c, "model", "init_from");
}

static err_t init_adapters(session *x) {
    const config *c = x->cfg;
    if (!c->lora.init_from[0]) return state_init(&x->state, (uint64_t)c->run.seed);
    err_t rc = state_init_from(&x->state, c->lora.init_from, &c->model.of, WEIGHTS_ADAPTERS, (uint64_t)c->run.seed);
    return rc == ERR_OK ? ERR_OK : config_blame(c, "lora", "init_from");
}

err_t session_init(session *x) {
    TRY(adopt_progress(x));
    if (model_adapts(x->net)->rank) TRY(init_adapters(x));
    else if (x->cfg->model.init_from[0]) TRY(init_from(x));
    else TRY(state_init(&x->state, (uint64_t)x->cfg->run.seed));
    return tied_values(&x->state, x->s);
}

// --- the weights of a checkpoint -------------------------------------------------------------------------------------

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
    monitor_event(m, "device", x->progress.step, text);
}

static void report_build(const session *x, monitor *m) {
    const ckpt_state *s = &x->state.ckpt;
    char text[2 * CKPT_REVISION + 128];
    snprintf(text, sizeof text, "%s wrote the checkpoint, %s (sources %s) goes on", s->other_build, version_text(),
             version_sources());
    if (s->other_build[0]) monitor_event(m, "build", x->progress.step, text);
    snprintf(
        text, sizeof text,
        "the checkpoint was computed with %s, and this build goes on ([run] resume = other-bits): its bits are others from here on",
        s->other_bits);
    if (s->other_bits[0]) monitor_event(m, "other_bits", x->progress.step, text);
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
    monitor_event(m, "settings", x->progress.step, text);
    return ERR_OK;
}

err_t session_resume(session *x, bool *found, monitor *m) {
    TRY(ckpt_resume(x->dir, &x->state.ckpt, &x->progress, found, complain, m));
    if (!*found) return ERR_OK;
    TRY(adopt_keys(x, m));
    if (x->state.ckpt.other[0]) report_device(x, m);
    report_build(x, m);
    TRY(adopt_progress(x));
    TRY(state_publish(&x->state));
    return tied_values(&x->state, x->s);
}

// Of the newest checkpoint on any node, by its name alone; -1: there is none. A node that can't read its directory says
// so, and has none: the others' and memory are used.
static err_t newest_on_disk(session *x, int64_t *step, monitor *m) {
    char path[IO_PATH];
    bool found = false;
    *step = -1;
    err_t rc = ckpt_newest(x->dir, path, &found);
    if (rc == ERR_OK && found) *step = strtoll(strrchr(path, '-') + 1, NULL, 10);
    if (rc == ERR_IO) monitor_event(m, "unreadable", 0, err_last()->text), rc = ERR_OK;
    TRY(comm_agree_ok(x->ranks, rc, x->s));
    return comm_agree_max(x->ranks, step, x->s);
}

// Damage that any rank has found in snapshots: the same event on all nodes.
static err_t say_damage(session *x, monitor *m) {
    err_t rc = comm_agree_ok(x->ranks, x->torn.code ? err_restore(&x->torn) : ERR_OK, x->s);
    x->torn = (err_record){0};
    if (rc != ERR_DATA) return rc;
    monitor_event(m, "damaged", x->progress.step, err_last()->text);
    return ERR_OK;
}

// The step after which all that are left have kept what they held alike, if the log has it; -1: there is none.
static err_t live_step(session *x, const session_recalled *r, int64_t *step) {
    const bool new = r->kept == RECALL_NEW;  // such a rank has kept nothing, and is not asked
    int64_t logged = -r->logged, lowest = new ? INT64_MIN : -r->kept, highest = new ? -1 : r->kept;
    TRY(comm_agree_max(x->ranks, &logged, x->s));
    TRY(comm_agree_max(x->ranks, &lowest, x->s));
    TRY(comm_agree_max(x->ranks, &highest, x->s));
    *step = lowest == -highest && highest <= -logged ? highest : -1;
    return ERR_OK;
}

err_t session_recall(session *x, session_recalled *r, monitor *m) {
    int64_t disk = -1;
    char text[256];
    bool newest = r->least == RECALL_NEWEST;
    r->found = r->unlogged = false;
    if (x->vault.fd < 0) return ERR_OK;
    if (newest) TRY(newest_on_disk(x, &disk, m));
    vault_recall from = {.first = newest ? disk : r->least};
    TRY(live_step(x, r, &from.live));
    TRY(vault_gather(&x->vault, &x->state.ckpt, &from, &x->progress));
    TRY(say_damage(x, m));
    if (from.torn[0] && x->ranks->rank == 0) {
        snprintf(
            text, sizeof text,
            "the ranks that were left held different values of %s: a bit has flipped since they were last compared, "
            "so the run goes on from before that",
            from.torn);
        monitor_event(m, "torn", from.step, text);
    }
    if (from.step < 0) return ERR_OK;
    fault_kill(&x->faults, FAULT_RECALL);
    r->found = true, r->live = from.is_live;
    r->saved = from.saved;
    r->unlogged = disk > r->saved;
    if (r->unlogged) r->saved = disk;
    TRY(adopt_keys(x, m));
    TRY(adopt_progress(x));
    TRY(state_publish(&x->state));
    return tied_values(&x->state, x->s);
}

err_t session_snapshot(session *x, int64_t saved, monitor *m) {
    TRY(session_fetch(x));
    TRY(comm_agree_ok(x->ranks, vault_save(&x->vault, &x->state.ckpt, &x->progress, saved), x->s));
    if (comm_nodes(x->ranks) == 1) return ERR_OK;
    TRY(vault_mirror(&x->vault, x->ranks->host, x->s));
    return say_damage(x, m);
}

// What the device counts.
static void progress_count(run_progress *at, const step_state *s) {
    at->updates = s->updates;
    at->skipped = s->skipped;
    at->loss_scale = s->loss_scale;
    at->good_steps = s->good_steps;
    at->norm_mean = s->norm_mean;
    at->norms = s->norms;
}

err_t session_keep(session *x, int64_t step, int64_t before, int64_t saved, bool *kept) {
    step_state s;
    vault_range *range;
    int n;
    *kept = false;
    if (x->vault.fd < 0 || !x->cfg->snapshot.live || !live_is_shared(&x->state)) return ERR_OK;
    TRY(state_get_step(&x->state, &s));
    if (before + s.updates + s.skipped != step) return ERR_OK;
    run_progress at = x->progress;
    at.step = step, at.log_bytes = -1;
    progress_count(&at, &s);
    TRY(live_ranges(&x->state, &range, &n));
    err_t rc = vault_save_live(&x->vault, &x->state.ckpt, range, n, &at, saved, live_stream(&x->state));
    free(range);
    *kept = rc == ERR_OK;
    return rc;
}

// Where in the run's directory its best checkpoint is, or else its newest; "" if there is none. Beside other ranks a
// link is followed once, so that all ranks load the same even while the run goes on elsewhere.
enum { CKPT_PLACE = 64 };
static err_t find_checkpoint(const session *x, char place[CKPT_PLACE]) {
    char path[IO_PATH];
    bool best, found;
    memset(place, 0, CKPT_PLACE);
    TRY(run_checkpoint(x->dir, path, &best, &found));
    if (found) snprintf(place, CKPT_PLACE, "%s", path + strlen(x->dir) + 1);
    if (!best || x->ranks->world == 1) return ERR_OK;
    ssize_t n = readlink(path, place, CKPT_PLACE - 1);
    if (n < 0 || place[0] == '/' || n == CKPT_PLACE - 1) memset(place, 0, CKPT_PLACE), strcpy(place, "best");
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

// What was read as the masters is the mean of a checkpoint, whose own ema counts.
static err_t scale_mean(session *x, const char *dir) {
    train_state *t = &x->state;
    double ema = 0;
    for (int i = 0; i < t->ckpt.keys; i++)
        if (strcmp(t->ckpt.key[i].key, "optimizer.ema") == 0) ema = strtod(t->ckpt.key[i].then, NULL);
    if (ema == 0 || x->progress.updates == 0)
        return err_set(ERR_DATA,
                       "%s has no mean of weights: expected a checkpoint after an update with [optimizer] ema, or "
                       "[eval] weights = last",
                       dir);
    const float factor = mean_factor(ema, x->progress.updates);
    for (int i = 0; i < t->zero.owned; i++) {
        const zero_piece *p = &t->zero.piece[i];
        float *w = t->net->param[p->row].tied < 0 ? state_host(t, 0, p) : NULL;
        for (int64_t k = 0; w && k < p->count; k++) w[k] *= factor;
    }
    return ERR_OK;
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
    bool mean = x->kind == SESSION_INFERENCE && x->cfg->eval.weights == EVAL_EMA;
    if (mean) x->state.ckpt.group[0].name = MEAN_NAME;
    TRY(ckpt_load(dir, &x->state.ckpt, &x->progress, true));
    if (mean) TRY(scale_mean(x, dir));
    TRY(adopt_progress(x));
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

err_t session_fetch(session *x) {
    step_state s;
    TRY(outer_collect(&x->state));
    TRY(state_fetch(&x->state, true));
    TRY(state_get_step(&x->state, &s));
    progress_count(&x->progress, &s);
    return ERR_OK;
}
