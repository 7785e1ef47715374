// trainer/train.c: the loop: step, log, evaluate, save, until the last step or until told to stop.
#include "trainer/train.h"

#include "base/io.h"
#include "base/version.h"
#include "trainer/evaluate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

typedef struct run {
    session x;
    monitor m;
    int lock;          // holds DIR/NAME/lock
    int64_t saved;     // step of the newest checkpoint, -1: none
    bool best_pending; // the weights of at.best_step are saved, `best` does not point at them yet
    int64_t skipped;   // steps in a row that were skipped
    double data_wait;  // loader's waiting time at the last step, seconds
} run;

// --- opening -----------------------------------------------------------------------------------------------------------------

// One process a run directory: two would take turns in truncating each other's log.
static err_t lock_directory(run *r) {
    char path[IO_PATH];
    TRY(io_mkdirs(r->x.dir));
    TRY(io_path(path, "%s/lock", r->x.dir));
    r->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (r->lock < 0) return err_set(ERR_IO, "%s: %s", path, strerror(errno));
    if (flock(r->lock, LOCK_EX | LOCK_NB) == 0) return ERR_OK;
    if (errno != EWOULDBLOCK) return err_set(ERR_IO, "%s: lock: %s", path, strerror(errno));
    return err_set(ERR_UNAVAILABLE, "%s: another process trains this run; stop it, or choose another [run] name", path);
}

// A copy of the settings for whoever finds the directory; a run does not need it.
static err_t write_effective_config(run *r) {
    char path[IO_PATH], *text = NULL;
    size_t size = 0;
    TRY(io_path(path, "%s/config.ini", r->x.dir));
    FILE *out = open_memstream(&text, &size);
    if (!out) return err_set(ERR_INTERNAL, "no memory for the effective configuration");
    char hash[17];
    config_hash(r->x.cfg, hash);
    fprintf(out, "# lockstep %s  config %s  data %s\n", version_text(), hash, dataset_about(r->x.train).hash);
    config_print(r->x.cfg, out);
    err_t rc = fclose(out) == 0 ? io_write_file(path, text, size, NULL) : err_set(ERR_INTERNAL, "no memory for the effective configuration");
    free(text);
    if (rc != ERR_OK) monitor_event(&r->m, "config_failed", r->x.step, err_last()->text);
    return ERR_OK;
}

static void greet(run *r) {
    const session *x = &r->x;
    static const char *const compute[] = {"fp32", "bf16", "fp16"};
    dataset_info t = dataset_about(x->train);
    monitor_say(&r->m, "lockstep %s  %s  gpt %lld layers %lld channels %.1f M parameters  %s", version_text(), device_about(x->dev)->name,
                (long long)x->cfg->model.layers, (long long)x->cfg->model.embed, (double)model_elements(x->net) / 1e6,
                compute[x->cfg->precision.compute]);
    monitor_say(&r->m, "device  %s", device_about(x->dev)->choice);
    monitor_say(&r->m, "data    train %lld tokens in %d file%s, val %lld          memory %.1f MB", (long long)t.tokens, t.files,
                t.files == 1 ? "" : "s", x->val ? (long long)dataset_about(x->val).tokens : 0,
                (double)(x->state.memory.bytes + x->runner.memory.bytes + x->ring_bytes) / 1e6);
    monitor_say(&r->m, "batch   %lld samples = %lld lanes x %lld micro-batches of %lld x %lld tokens", (long long)x->cfg->batch.global,
                (long long)x->cfg->batch.lanes, (long long)(x->cfg->batch.global / x->cfg->batch.lanes / x->cfg->batch.micro),
                (long long)x->cfg->batch.micro, (long long)x->cfg->model.context);
}

static err_t resume_or_start(run *r) {
    session *x = &r->x;
    bool found = false;
    TRY(ckpt_clean(x->dir));
    TRY(session_resume(x, &found, &r->m));
    if (found && x->cfg->run.resume == RESUME_NEVER)
        return err_set(ERR_CONFIG, "%s holds a checkpoint of step %lld and [run] resume = never: choose another [run] name, or resume = auto",
                       x->dir, (long long)x->step);
    if (!found && x->cfg->run.resume == RESUME_MUST)
        return err_set(ERR_DATA, "%s/ckpt holds no checkpoint and [run] resume = must", x->dir);
    if (!found) TRY(session_init(x));
    r->saved = found ? x->step : -1;
    return ERR_OK;
}

static bool due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

// Would this step have been saved without anyone asking? Then it has a record in the log; a stop in between leaves none there, so that
// the log of a run that was stopped reads like that of one that was not.
static bool save_is_due(const run *r) {
    const config *c = r->x.cfg;
    bool best = c->checkpoint.keep_best && r->x.state.ckpt.at.best_step == r->x.step;
    return due(r->x.step, c->checkpoint.every) || r->x.step == c->run.steps || best;
}

static void record_checkpoint(run *r, double ms, bool say) {
    char hash[17];
    ckpt_hash(&r->x.state.ckpt, hash);
    if (say) monitor_say(&r->m, "saved step %lld  hash %s  %.2f s", (long long)r->x.step, hash, ms / 1e3);
    if (save_is_due(r)) monitor_checkpoint(&r->m, r->x.step, ms, hash);
}

static void mark_best(run *r) {
    ckpt_counters *at = &r->x.state.ckpt.at;
    err_t rc = ckpt_mark_best(r->x.dir, at->best_step, &r->x.faults);
    r->best_pending = rc != ERR_OK;
    if (rc != ERR_OK) monitor_event(&r->m, "best_failed", at->best_step, err_last()->text);
}

static err_t start_log(run *r) {
    session *x = &r->x;
    ckpt_counters *at = &x->state.ckpt.at;
    monitor_close(&r->m);
    TRY(monitor_open(&r->m, x->dir, x->cfg, r->saved >= 0 ? at->log_bytes : 0));
    greet(r);
    if (r->saved < 0) return ERR_OK;
    char text[96];
    snprintf(text, sizeof text, "continuing after step %lld of %lld", (long long)x->step, (long long)x->cfg->run.steps);
    monitor_event(&r->m, "resume", x->step, text);
    record_checkpoint(r, 0, false);  // its record came after the length that the checkpoint remembers
    if (x->cfg->checkpoint.keep_best && at->best_step == x->step && at->best_step > 0) mark_best(r);
    return ERR_OK;
}

static err_t run_open(run *r, const config *c) {
    TRY(session_open(&r->x, c, SESSION_TRAIN));
    TRY(lock_directory(r));
    TRY(monitor_open(&r->m, r->x.dir, &(config){.run.steps = c->run.steps}, 0));  // events only, until it is known where the log continues
    TRY(resume_or_start(r));
    if (r->x.step < c->run.steps) TRY(session_feed(&r->x, c->run.steps));
    TRY(start_log(r));
    return write_effective_config(r);
}

static void run_close(run *r) {
    monitor_close(&r->m);
    session_close(&r->x);
    if (r->lock >= 0) close(r->lock);
}

// --- what happens between steps ----------------------------------------------------------------------------------------------

// A diverged run looks busy: say so once, when it has skipped more steps in a row than a loss scale needs to find its place.
static void watch_skips(run *r, const step_result *s) {
    r->skipped = s->applied ? 0 : r->skipped + 1;
    int64_t patience = r->x.runner.rules.dynamic_scale ? 50 : 1;
    if (r->skipped == patience)
        monitor_event(&r->m, "diverged", r->x.step, "the gradient is not finite and the step was skipped, as were those before it; lower [optimizer] lr, "
                      "or go back to an earlier checkpoint");
}

static err_t log_step(run *r, const step_result *s, double ms) {
    const config *c = r->x.cfg;
    int64_t step = r->x.step;
    bool hashed = due(step, c->log.hash_every);
    bool logged = due(step, c->log.every) || step == c->run.steps || hashed || !s->applied;
    char hash[17];
    if (hashed) ckpt_hash(&r->x.state.ckpt, hash);
    double waited = loader_about(r->x.data).wait_s, tokens = (double)(c->batch.global * c->model.context);
    step_record record = {
        .step = step, .tokens = step * c->batch.global * c->model.context, .loss = s->loss, .grad_norm = s->grad_norm, .lr = s->lr, .ms = ms,
        .tokens_per_s = tokens / (ms / 1e3), .data_wait_ms = 1e3 * (waited - r->data_wait), .loss_scale = s->loss_scale, .skipped = !s->applied,
        .hash = hashed ? hash : NULL,
    };
    r->data_wait = waited;
    watch_skips(r, s);
    monitor_step(&r->m, &record, logged);
    return ERR_OK;
}

static err_t evaluate_now(run *r, bool *improved) {
    session *x = &r->x;
    double start = monitor_now(), loss;
    int64_t windows;
    TRY(evaluate(&x->runner, x->val, x->cfg->eval.batches, &loss, &windows));
    ckpt_counters *at = &x->state.ckpt.at;
    *improved = loss < at->best_loss;
    if (*improved) at->best_loss = loss, at->best_step = x->step;
    monitor_eval(&r->m, x->step, loss, windows, at->best_loss, at->best_step, 1e3 * (monitor_now() - start));
    return ERR_OK;
}

// A checkpoint that can't be written is an event, not the end: the one before is intact and training goes on.
static err_t save_now(run *r) {
    session *x = &r->x;
    ckpt_counters *at = &x->state.ckpt.at;
    double start = monitor_now();
    TRY(session_counters(x));
    monitor_sync(&r->m);
    if (r->m.log >= 0) at->log_bytes = r->m.log_bytes;
    if (ckpt_save(x->dir, &x->state.ckpt, 0, &x->faults) != ERR_OK) {  // prunes later: see between_steps
        monitor_event(&r->m, "checkpoint_failed", x->step, err_last()->text);
        return ERR_OK;
    }
    r->saved = x->step;
    record_checkpoint(r, 1e3 * (monitor_now() - start), true);
    return ERR_OK;
}

static err_t show_sample(run *r) {
    char *text;
    TRY(session_sample(&r->x, r->x.cfg->sample.prompt, &text));
    monitor_sample(&r->m, r->x.step, r->x.cfg->sample.prompt, text);
    free(text);
    return ERR_OK;
}

static bool eval_is_due(const run *r, bool last) {
    int64_t every = r->x.cfg->eval.every;
    return r->x.val && every > 0 && (last || due(r->x.step, every));
}

static bool sample_is_due(const run *r, bool last) {
    return r->x.cfg->sample.tokens > 0 && (last || due(r->x.step, r->x.cfg->sample.every));
}

static bool look_is_due(const run *r, bool last) { return eval_is_due(r, last) || sample_is_due(r, last); }

static err_t look(run *r, bool last, bool *improved) {
    if (eval_is_due(r, last)) TRY(evaluate_now(r, improved));
    return sample_is_due(r, last) ? show_sample(r) : ERR_OK;
}

// Order matters: what a record says must be in the checkpoint that remembers the log's length behind it. What fails here ends the run,
// but not before the weights that were trained are safe.
static err_t between_steps(run *r, bool stopping) {
    bool last = r->x.step == r->x.cfg->run.steps, improved = false;
    ckpt_counters before = r->x.state.ckpt.at;
    err_record why = {0};
    if (stopping && look_is_due(r, last)) TRY(save_now(r));  // looking may take longer than who asked is willing to wait
    if (look(r, last, &improved) != ERR_OK) why = *err_last();
    if (save_is_due(r) || stopping || why.code) TRY(save_now(r));
    bool saved = r->saved == r->x.step;
    if (improved && !saved && r->x.cfg->checkpoint.keep_best) r->x.state.ckpt.at.best_loss = before.best_loss, r->x.state.ckpt.at.best_step = before.best_step;
    if (r->x.cfg->checkpoint.keep_best && ((improved && saved) || r->best_pending)) mark_best(r);
    if (saved && ckpt_prune(r->x.dir, r->x.step, (int)r->x.cfg->checkpoint.keep) != ERR_OK)
        monitor_event(&r->m, "prune_failed", r->x.step, err_last()->text);
    return why.code ? err_restore(&why) : ERR_OK;
}

// The next step. Data that can't be read ends the run, but not before the weights of the last step are safe: these errors come from
// the loader, before anything was updated.
static err_t step_or_save(run *r, step_result *s) {
    err_t rc = session_step(&r->x, s);
    if ((rc != ERR_DATA && rc != ERR_IO) || r->x.step == 0 || r->saved == r->x.step) return rc;
    err_record why = *err_last();
    TRY(save_now(r));
    return err_restore(&why);
}

static err_t run_steps(run *r, const volatile sig_atomic_t *stop) {
    const config *c = r->x.cfg;
    r->m.started = monitor_now();
    r->m.first_step = r->x.step + 1;
    while (r->x.step < c->run.steps) {
        double start = monitor_now();
        step_result s;
        TRY(step_or_save(r, &s));
        TRY(log_step(r, &s, 1e3 * (monitor_now() - start)));
        int64_t stopping = *stop && r->x.step < c->run.steps;
        TRY(r->x.ranks->table->agree_max(r->x.ranks, &stopping));
        TRY(between_steps(r, stopping));
        if (!stopping) continue;
        char text[96];
        snprintf(text, sizeof text, "asked to stop; %s step %lld; the same command continues", r->saved == r->x.step ? "saved" : "could not save",
                 (long long)r->x.step);
        monitor_event(&r->m, "stop", r->x.step, text);
        return err_set(ERR_INTERRUPTED, "stopped after step %lld of %lld on request", (long long)r->x.step, (long long)c->run.steps);
    }
    return ERR_OK;
}

static err_t run_all(run *r, const config *c, const volatile sig_atomic_t *stop) {
    TRY(run_open(r, c));
    TRY(run_steps(r, stop));
    if (r->saved != r->x.step)
        return err_set(ERR_IO, "the last checkpoint, of step %lld, could not be written (see events.jsonl); the same command continues behind step %lld",
                       (long long)r->x.step, (long long)(r->saved < 0 ? 0 : r->saved));
    monitor_say(&r->m, "done    %lld steps; run directory %s", (long long)r->x.step, r->x.dir);
    return ERR_OK;
}

err_t train(const config *c, const volatile sig_atomic_t *stop) {
    run *r = calloc(1, sizeof *r);
    if (!r) return err_set(ERR_INTERNAL, "no memory for a run");
    r->lock = -1;
    r->m.log = r->m.events = -1;
    err_t rc = run_all(r, c, stop);
    err_record why = *err_last();
    r->m.quiet = true;  // a person reads it from main.c
    if (rc != ERR_OK && rc != ERR_INTERRUPTED) monitor_event(&r->m, "failed", r->x.step, why.text);
    run_close(r);
    free(r);
    return rc == ERR_OK ? rc : err_restore(&why);
}
