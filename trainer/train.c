// trainer/train.c: the loop: step, log, evaluate, save, until the last step or a request to stop.
#include "trainer/train.h"

#include "base/clock.h"
#include "base/io.h"
#include "trainer/machine.h"
#include "trainer/restore.h"
#include "trainer/sample.h"
#include "trainer/step/arithmetic.h"
#include "trainer/diverged.h"
#include "trainer/log/cut.h"
#include "trainer/figures.h"
#include "trainer/greet.h"
#include "trainer/lies.h"
#include "trainer/log/power.h"
#include "trainer/log/report.h"
#include "trainer/lock.h"
#include "trainer/node/yard.h"
#include "trainer/redeal.h"
#include "trainer/speed.h"
#include "trainer/waiting.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// One rank of a run. Files belong to nodes: the first rank of each keeps its directory. Rank 0 logs.
typedef struct run {
    session x;
    monitor m;
    board *b;                // shared with the node's supervisor and watcher
    board_rank *mine;        // this rank's part of it, NULL: it has none
    rank_report step_times;  // of all ranks, since the last logged step
    rank_report rank_times;  // of all ranks, since the last record of ranks
    power power;
    speed speed;
    double read_at;       // when the loader was last asked how it reads
    run_lock lock;        // of DIR/NAME
    int64_t saved;        // step of the newest checkpoint, -1: none
    bool turns;           // the world was left because the nodes said so, after a step that is saved
    bool recalled;        // this world goes on from a snapshot in memory
    bool unlogged;        // the newest checkpoint is of the world before this one, which did not live to log it
    bool best_pending;    // the weights of at.best_step are saved, but `best` does not point at them yet
    bool written;         // all ranks have written the checkpoint that was begun: it is finished before the next step
    run_progress before;  // of that checkpoint: as it was before its step was evaluated
    divergence bad;       // has it diverged?
    double logged_at;     // when the last step was logged, or the next one begun
    bool confirmed;       // the ranks have compared their matmul plans
    lies lies;            // have they held the same? It outlives the world
    bool fenced;          // nodes come and go (launch)
    redeal lanes;         // [parallel] balance
} run;

static int64_t step_of(const run *r) { return r->x.progress.step; }

// --- opening ---------------------------------------------------------------------------------------------------------

static bool leads_node(const run *r) { return r->x.ranks->place[r->x.ranks->rank].local == 0; }

// An existing lock is taken before connecting to other ranks, so that a running process is not disturbed. A new one
// is made only once the run is known to be valid.
static err_t lock_directory(run *r, const config *c, bool make) {
    char dir[IO_PATH];
    TRY(io_path(dir, "%s/%s", c->run.dir, c->run.name));
    err_t rc = run_lock_take(&r->lock, dir, make);
    return rc == ERR_IO ? config_blame(c, "run", "dir") : rc;
}

// A copy of the settings, for people who look into the directory; the run does not need it.
static void write_config(run *r) {
    if (session_write_config(&r->x, r->x.dir) != ERR_OK)
        monitor_event(&r->m, "config_failed", step_of(r), err_last()->text);
}

static err_t check_resume(const session *x, bool found) {
    if (found && x->cfg->run.resume == RESUME_NEVER)
        return err_set(ERR_CONFIG,
                       "%s holds a checkpoint of step %" PRId64
                       " and [run] resume = never: choose another [run] name, or resume = auto",
                       x->dir, x->progress.step);
    if (!found && x->cfg->run.resume == RESUME_MUST)
        return err_set(ERR_DATA, "%s/ckpt holds no checkpoint and [run] resume = must", x->dir);
    return ERR_OK;
}

// [run] resume speaks of the start of a run (at), not of what follows.
static err_t resume_from_disk(run *r, const launch *at, bool *found) {
    session *x = &r->x;
    comm_be_patient(x->ranks->host, true);  // for the slowest disk
    err_t rc = ckpt_clean(x->dir, &x->state.ckpt);
    if (rc == ERR_OK) rc = session_resume(x, found, &r->m);
    comm_be_patient(x->ranks->host, false);
    TRY(rc);
    if (at && at->epoch == 0) TRY(check_resume(x, *found));
    r->saved = *found ? x->progress.step : -1;
    return ERR_OK;
}

static err_t look_for_state(run *r, const launch *at, bool *found) {
    if (at->epoch > 0) TRY(ckpt_clean(r->x.dir, &r->x.state.ckpt));  // what the world before was writing
    TRY(session_recall(&r->x, &r->recalled, &r->saved, &r->unlogged, &r->m));
    *found = r->recalled;
    return *found ? ERR_OK : resume_from_disk(r, at, found);
}

static err_t resume_or_start(run *r, const launch *at) {
    session *x = &r->x;
    bool found = false;
    comm_be_patient(x->ranks->host, true);  // for the slowest disk
    err_t rc = look_for_state(r, at, &found);
    comm_be_patient(x->ranks->host, false);
    TRY(rc);
    return found ? ERR_OK : session_init(x);
}

static bool due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

// Would this step be saved without a request to stop? Only then its checkpoint is logged, so that the log of a run that
// was stopped reads like that of one that was not.
static bool save_is_due(const run *r) {
    const config *c = r->x.cfg;
    bool best = c->checkpoint.keep_best && r->x.progress.best_step == step_of(r);
    return due(step_of(r), c->checkpoint.every) || step_of(r) == c->run.steps || best;
}

static void log_checkpoint(run *r, const checkpoint_record *said, bool due) {
    monitor_log(&r->m, &(record){RECORD_SAVED, .saved = *said});
    if (due) monitor_log(&r->m, &(record){RECORD_CHECKPOINT, .checkpoint = *said});
}

static void record_checkpoint(run *r, double ms, bool say) {
    char hash[17];
    if (ckpt_hash(&r->x.state.ckpt, hash) != ERR_OK) return;  // ranks are lost: the next step reports it
    if (say) monitor_say(&r->m, "saved step %" PRId64 "  hash %s  %.2f s", step_of(r), hash, ms / 1e3);
    const checkpoint_record said = {.step = step_of(r), .ms = ms, .time = say ? clock_wall() : 0, .hash = hash};
    log_checkpoint(r, &said, save_is_due(r));
}

static void mark_best(run *r) {
    run_progress *at = &r->x.progress;
    err_t rc = ckpt_mark_best(r->x.dir, &r->x.state.ckpt, at->best_step, &r->x.faults);
    r->best_pending = rc != ERR_OK;
    if (rc != ERR_OK) monitor_event(&r->m, "best_failed", at->best_step, err_last()->text);
}

static void say_resumed(run *r) {
    const session *x = &r->x;
    char text[128];
    int64_t steps = x->cfg->run.steps;
    if (r->saved < 0) return;
    if (x->progress.step < steps)
        snprintf(text, sizeof text, "continuing after step %" PRId64 " of %" PRId64, x->progress.step, steps);
    else if (x->progress.step == steps)
        snprintf(text, sizeof text, "after step %" PRId64 " of %" PRId64 ": all are done", steps, steps);
    else
        snprintf(text, sizeof text, "all %" PRId64 " steps are done; the newest checkpoint is of step %" PRId64, steps,
                 x->progress.step);
    monitor_event(&r->m, "resume", x->progress.step, text);
}

// What ended the world before this one, and from where it goes on.
static void say_healed(run *r, const launch *at) {
    const yard_news *n = &at->yard->news;
    char text[YARD_WHY + 192];
    if (!leads_node(r)) return;
    snprintf(text, sizeof text,
             "%s; world %u of this run began %.3f s later, of which leaving took %.3f s; continuing after step %" PRId64
             " from %s",
             n->why, at->epoch + 1, clock_now() - n->failed_at, n->left_at - n->failed_at, step_of(r),
             r->recalled     ? "the snapshot in memory"
             : r->saved >= 0 ? "the newest checkpoint"
                             : "the beginning");
    monitor_event(&r->m, "healed", step_of(r), text);
}

// Of the log that this world goes on with. Where nodes come and go each one has a log: what it tells is the same.
static err_t log_length(const run *r, int64_t *bytes) {
    char path[IO_PATH];
    bool goes_on = r->saved >= 0 || r->recalled;
    *bytes = goes_on ? r->x.progress.log_bytes : 0;
    if (!goes_on || !r->fenced) return ERR_OK;
    TRY(io_path(path, "%s/log.jsonl", r->x.dir));
    return log_cut(path, step_of(r), r->recalled, bytes);
}

// Cut back to what it was when the state was current.
static err_t open_log(run *r) {
    const session *x = &r->x;
    int64_t bytes;
    if (x->ranks->rank != 0 && !(r->fenced && leads_node(r))) return ERR_OK;
    TRY(log_length(r, &bytes));
    monitor_close(&r->m);
    return monitor_open(&r->m, &(log_setup){.dir = x->dir,
                                            .c = x->cfg,
                                            .log_bytes = bytes,
                                            .quiet = x->ranks->rank != 0,
                                            .unit = x->net->unit,
                                            .short_unit = x->net->short_unit,
                                            .board = r->b});
}

static err_t start_log(run *r, const launch *at) {
    TRY(open_log(r));
    greet(&r->x, &r->m, r->saved < 0);
    if (at->yard && at->yard->news.why[0]) say_healed(r, at);
    else say_resumed(r);
    return ERR_OK;
}

// Its record was written after the checkpoint stored the log's length, and before a snapshot did, unless the ranks were
// lost in between.
static void recall_checkpoint(run *r) {
    const run_progress *at = &r->x.progress;
    char hash[17];
    if (r->saved < 0) return;
    if (!r->recalled) record_checkpoint(r, 0, false);
    if (r->unlogged && leads_node(r) && ckpt_saved_hash(r->x.dir, r->saved, hash) == ERR_OK)
        log_checkpoint(r, &(checkpoint_record){.step = r->saved, .hash = hash}, true);
    if (r->x.cfg->checkpoint.keep_best && at->best_step == r->saved && at->best_step > 0) mark_best(r);
}

// A device whose sensors can't be read is logged as an event on its node; the run goes on.
static err_t start_power(run *r) {
    err_t rc = power_open(&r->power, r->x.dev, r->x.ranks, r->x.cfg->log.power_every, step_of(r));
    r->x.runner.sense = power_report, r->x.runner.sense_ctx = &r->power;
    if (rc == ERR_UNAVAILABLE) monitor_event(&r->m, "power", step_of(r), err_last()->text);
    return rc == ERR_UNAVAILABLE ? ERR_OK : rc;
}

// The first rank of a node keeps its directory.
static err_t open_directory(run *r) {
    if (!leads_node(r)) return ERR_OK;
    TRY(lock_directory(r, r->x.cfg, true));
    // Only events, until the log's length is known: a setting asks for all else.
    const config only_events = {.run.steps = r->x.cfg->run.steps};
    return monitor_open(&r->m, &(log_setup){.dir = r->x.dir, .c = &only_events, .quiet = r->x.ranks->rank != 0});
}

static void show_rank(run *r) {
    const session *x = &r->x;
    if (!r->mine) return;
    board_name_device(r->mine, device_about(x->dev)->bus_id);
    atomic_store(&r->mine->device_bytes, (int64_t)(state_bytes(&x->state) + x->runner.memory.bytes));
    step_show(&r->x.runner, r->mine);
}

static err_t open_machine(run *r, const config *c, const launch *at) {
    if (at->local == 0) TRY(lock_directory(r, c, false));
    TRY(session_machine_of(&r->x, c, SESSION_TRAIN, at->slot, r->mine ? r->mine->faults : NULL));
    r->x.flight = r->mine ? &r->mine->flight : NULL;
    return ERR_OK;
}

static int64_t log_bytes(const run *r) { return r->x.ranks->rank == 0 ? monitor_log_bytes(&r->m) : 0; }

// With the log as long as it is now. The system has what was written to it; disks need not.
static err_t take_snapshot(run *r) {
    session *x = &r->x;
    if (x->vault.fd < 0) return ERR_OK;
    TRY(session_settle(x));
    x->progress.log_bytes = log_bytes(r);
    TRY(comm_agree_max(x->ranks, &x->progress.log_bytes, x->s));
    return session_snapshot(x, r->saved);
}

static bool snapshot_is_due(const run *r) { return r->x.vault.fd >= 0 && due(step_of(r), r->x.cfg->snapshot.every); }

static err_t enter_world(run *r, const config *c, const launch *at) {
    r->fenced = at->fenced;
    TRY(waiting_enter(&r->x, at, r->b, true));
    show_rank(r);
    TRY(report_open(&r->step_times, r->x.ranks->world));
    TRY(report_open(&r->rank_times, r->x.ranks->world));
    TRY(redeal_open(&r->lanes, &r->x, r->mine));
    TRY(comm_agree_ok(r->x.ranks, open_directory(r), r->x.s));
    TRY(comm_agree_ok(r->x.ranks, resume_or_start(r, at), r->x.s));
    if (step_of(r) < c->run.steps) TRY(session_feed(&r->x, c->run.steps));
    TRY(comm_agree_ok(r->x.ranks, start_log(r, at), r->x.s));
    recall_checkpoint(r);
    // Before the first step, so that from here on a loss costs little: what was lost with a node has no second copy.
    if (!r->recalled || at->fenced) TRY(take_snapshot(r));
    TRY(start_power(r));
    TRY(speed_open(&r->speed, &r->x, at->slot));
    if (leads_node(r)) write_config(r);
    atomic_store(&r->b->sealed, step_of(r));
    atomic_store(&r->b->step, step_of(r));
    atomic_fetch_add(&r->b->ready, 1);
    return ERR_OK;
}

// A world that ends takes the checkpoint along, unless it is there already.
static void drop_writing(run *r) {
    ckpt_written w;
    err_record keep = *err_last();
    if (ckpt_writer_busy(r->x.writer) && ckpt_writer_finish(r->x.writer, &w) != ERR_OK)
        monitor_event(&r->m, "checkpoint_failed", w.at.step, err_last()->text);
    err_restore(&keep);
}

// All but the machine, the board and the lock belongs to the world.
static void leave_world(run *r) {
    drop_writing(r);
    lies_leave(&r->lies);
    monitor_close(&r->m);
    report_close(&r->step_times);
    report_close(&r->rank_times);
    redeal_close(&r->lanes);
    power_close(&r->power);
    speed_close(&r->speed);
    session_leave(&r->x);
    *r = (run){.x = r->x, .b = r->b, .mine = r->mine, .lock = r->lock, .lies = r->lies};
}

static void run_close(run *r) {
    leave_world(r);
    session_close(&r->x);
    run_lock_release(&r->lock);
}

// --- what happens between steps --------------------------------------------------------------------------------------

// What to do about a run whose last `count` steps, up to this one, are bad; loss: as in diverged_run.
static const char *advice(const run *r, int64_t step, int64_t count, double loss, char text[DIVERGED_TEXT]) {
    const run_progress *at = &r->x.progress;
    const diverged_run of = {r->x.cfg, r->x.dir, step - count + 1, step, loss, at->least_loss, at->sound_step};
    if (diverged_advice(&of, text) != ERR_OK)
        snprintf(text, DIVERGED_TEXT, "%.*s", DIVERGED_TEXT - 1, err_last()->text);
    return text;
}

static void say_ruined(run *r, int64_t step) {
    char text[DIVERGED_TEXT];
    int64_t count = r->bad.far_steps > 0 ? r->bad.far_steps : 1;
    if (r->x.ranks->rank == 0) monitor_event(&r->m, "ruined", step, advice(r, step, count, r->x.progress.loss, text));
}

// A run that ends should not look well if its loss does not.
static void say_if_ruined(run *r) {
    if (divergence_at_end(&r->bad, &r->x.progress)) say_ruined(r, step_of(r));
}

static void say_mended(run *r, int64_t step) {
    const run_progress *at = &r->x.progress;
    char text[128];
    snprintf(text, sizeof text, "the loss is %.4g, near the lowest again, %.4g", at->loss, at->least_loss);
    monitor_event(&r->m, "mended", step, text);
}

// The first of several in a row. A dynamic loss scale finds its place by steps that are skipped.
static void say_skipped(run *r, const step_result *s) {
    const config *c = r->x.cfg;
    bool usual = !isfinite(s->grad_norm) && c->precision.compute == FP16 && c->precision.loss_scale == 0;
    char text[SKIPPED_TEXT];
    if (s->applied || usual || r->x.progress.bad_steps > 1) return;
    monitor_event(&r->m, "skipped", s->step, skipped_text(c, s->grad_norm, s->norm_mean, text));
}

// A diverged run looks busy. Weights that are ruined may give a finite loss for ever; it may also be what the user
// wants, on other data, so the run goes on.
static void watch_bad_steps(run *r, const step_result *s) {
    run_progress *at = &r->x.progress;
    int64_t limit = diverged_limit(r->x.cfg);
    char text[DIVERGED_TEXT];
    if (r->bad.gave_up) return;
    divergence_news news = divergence_step(&r->bad, at, r->x.cfg, s->step, s->loss, s->applied);
    atomic_store(&r->b->bad_limit, limit);
    atomic_store(&r->b->bad_steps, at->bad_steps);
    if (r->x.ranks->rank != 0) return;
    say_skipped(r, s);
    if (news == NEWS_RUINED) say_ruined(r, s->step);
    if (news == NEWS_MENDED) say_mended(r, s->step);
    if (news == NEWS_DIVERGED) monitor_event(&r->m, "diverged", s->step, advice(r, s->step, limit, NAN, text));
}

// A rank that is much slower than the others delays all of them: every step waits for it.
static void name_straggler(run *r, int64_t step, const rank_summary *t) {
    char who[COMM_NAME], text[256];
    snprintf(
        text, sizeof text,
        "%s computes %.1f ms a step, the median rank %.1f ms: the others wait for it; look for a hot or shared processor there",
        comm_rank_text(r->x.ranks, t->slowest, who), t->slowest_ms, t->median_ms);
    monitor_event(&r->m, "straggler", step, text);
}

// How each rank has spent its time since the last such record.
static void log_ranks(run *r, int64_t step) {
    rank_report *x = &r->rank_times;
    if (!due(step, r->x.cfg->log.ranks_every)) return;
    const int64_t *lanes = report_lanes(x, r->x.state.reduce);
    const ranks_record said = {.step = step, .steps = x->steps, .world = x->world, .sum = x->sum, .lanes = lanes};
    if (x->steps) monitor_log(&r->m, &(record){RECORD_RANKS, .ranks = said});
    report_clear(x);
}

// Puts the loader's figures on the board, every half second: readers of the board come once a second.
static void show_reading(run *r, double now) {
    enum { NS = 1000000000 };
    board_rank *to = r->mine;
    if (!to || now < r->read_at + 0.5) return;
    loader_stats of = loader_about(r->x.data);
    r->read_at = now;
    atomic_store_explicit(&to->read_bytes, of.bytes, memory_order_relaxed);
    atomic_store_explicit(&to->read_retries, of.retries, memory_order_relaxed);
    atomic_store_explicit(&to->read_p50_ns, (int64_t)(NS * of.read_p50_s), memory_order_relaxed);
    atomic_store_explicit(&to->read_p99_ns, (int64_t)(NS * of.read_p99_s), memory_order_relaxed);
}

static err_t log_step(run *r, const step_result *s, double ms) {
    const config *c = r->x.cfg;
    int64_t step = s->step;
    int world = r->x.ranks->world;
    bool hashed = due(step, c->log.hash_every);
    bool logged = due(step, c->log.every) || step == c->run.steps || hashed || !s->applied;
    char hash[17];
    if (hashed) board_doing(r->mine, "hash the weights", -1, step);
    if (hashed) TRY(session_settle(&r->x));
    if (hashed) TRY(state_fetch(&r->x.state, false));
    if (hashed) TRY(ckpt_hash(&r->x.state.ckpt, hash));
    report_add(&r->step_times, s->reports);
    report_add(&r->rank_times, s->reports);
    redeal_add(&r->lanes, &r->x, s->reports);
    rank_summary times = logged && world > 1 ? report_take(&r->step_times, r->x.state.reduce) : (rank_summary){0};
    const double *mine = s->reports + r->x.ranks->rank * REPORT_ITEMS;
    bool timed = report_is_timed(s->reports, world);
    int64_t units = c->batch.global * r->x.net->units;
    const step_record said = {
        .step = step,
        .units = step * units,
        .logged = logged,
        .loss = s->loss,
        .grad_norm = s->grad_norm,
        .lr = s->lr,
        .ms = ms,
        .units_per_s = (double)units / (ms / 1e3),
        .data_wait_ms = mine[REPORT_DATA_MS],
        .comm_wait_ms = timed ? mine[REPORT_WAIT_MS] + mine[REPORT_BEFORE_MS] + mine[REPORT_AFTER_MS] : NAN,
        .loss_scale = s->loss_scale,
        .skipped = !s->applied,
        .why = s->applied ? NULL : skipped_why(s->grad_norm),
        .hash = hashed ? hash : NULL,
        .time = clock_wall(),
        .mfu = speed_mfu(&r->speed, ms),
        .resident = logged ? speed_resident(&r->speed) : 0,
        .device_bytes = logged ? speed_device_bytes(&r->x) : 0,
        .world = world,
        .comm_ms = timed ? mine[REPORT_BUSY_MS] : NAN,
        .hidden = times.hidden,
        .slowest = times.slowest,
        .slowest_ms = times.slowest_ms,
        .median_ms = times.median_ms,
    };
    watch_bad_steps(r, s);
    monitor_log(&r->m, &(record){RECORD_STEP, .step = said});
    log_ranks(r, step);
    // where lanes follow speed, the others need not wait for a slow rank; it may be named as `slow`
    if (times.straggler && !r->lanes.moved) name_straggler(r, step, &times);
    power_log(&r->power, &r->m, step, s->reports, units);
    return ERR_OK;
}

static err_t evaluate_now(run *r, bool *improved) {
    session *x = &r->x;
    double start = clock_now();
    board_enter(r->mine, PHASE_EVALUATING, x->progress.step);
    evaluation e;
    figures f = {0};
    TRY(figures_measure(x, &e, &f));
    run_progress *at = &x->progress;
    *improved = e.loss < at->best_loss;
    if (*improved) at->best_loss = e.loss, at->best_step = x->progress.step;
    const eval_record said = {
        .step = x->progress.step,
        .samples = e.samples,
        .of = x->net->units > 1 ? "windows" : "samples",
        .loss = e.loss,
        .metrics = f.count,
        .metric = f.name,
        .value = f.value,
        .best = at->best_loss,
        .best_step = at->best_step,
        .possible = x->possible,
        .ms = 1e3 * (clock_now() - start),
    };
    monitor_log(&r->m, &(record){RECORD_EVAL, .eval = said});
    return ERR_OK;
}

// saved: as it was when the newest checkpoint was begun.
static void prune(run *r, const run_progress *saved) {
    if (ckpt_prune(r->x.dir, &r->x.state.ckpt, saved, saved->step, (int)r->x.cfg->checkpoint.keep) != ERR_OK)
        monitor_event(&r->m, "prune_failed", saved->step, err_last()->text);
}

// --- checkpoints that are written beside the steps -------------------------------------------------------------------

// Of the step with the lowest loss? What is compared with that loss waits until the checkpoint is known to be there.
static bool is_writing_best(const run *r) {
    const ckpt_writer *w = r->x.writer;
    return r->x.cfg->checkpoint.keep_best && ckpt_writer_busy(w) &&
           ckpt_writer_at(w)->best_step == ckpt_writer_at(w)->step;
}

// early: before it was known to be written.
static void say_written(run *r, const ckpt_written *w, double waited_s, bool early) {
    char text[160];
    monitor_say(&r->m, "saved step %" PRId64 "  hash %s  %.2f s, of which steps waited %.3f s", w->at.step, w->hash,
                (w->copy_ms + w->write_ms) / 1e3, w->copy_ms / 1e3 + waited_s);
    const checkpoint_record said = {
        .step = w->at.step, .ms = w->copy_ms + w->write_ms, .time = clock_wall(), .hash = w->hash};
    log_checkpoint(r, &said, true);
    if (!early || waited_s < 0.001 || step_of(r) == r->x.cfg->run.steps) return;
    snprintf(text, sizeof text,
             "step %" PRId64 " waited %.3f s until the checkpoint of step %" PRId64
             " was written: the disk is slower than [checkpoint] every asks for",
             step_of(r), waited_s, w->at.step);
    monitor_event(&r->m, "checkpoint_waited", step_of(r), text);
}

// Collective, between two steps: the checkpoint that was begun is waited for, and becomes the newest.
static err_t finish_writing(run *r) {
    session *x = &r->x;
    run_progress *at = &x->progress;
    ckpt_written w;
    if (!ckpt_writer_busy(x->writer)) return ERR_OK;
    bool best = is_writing_best(r), early = !r->written;
    double start = clock_now();
    board_enter(r->mine, PHASE_SAVING, ckpt_writer_at(x->writer)->step);
    TRY(session_settle(x));
    err_t rc = ckpt_writer_finish(x->writer, &w);
    r->written = false;
    if (rc != ERR_OK) {
        monitor_event(&r->m, "checkpoint_failed", w.at.step, err_last()->text);
        if (best) at->best_loss = r->before.best_loss, at->best_step = r->before.best_step;
        return x->ranks->table->query(x->ranks);
    }
    r->saved = w.at.step;
    say_written(r, &w, clock_now() - start, early);
    if (best) mark_best(r);
    prune(r, &w.at);
    return ERR_OK;
}

// Copies what this rank has of the state to where its writer has it.
static err_t begin_writing(run *r, const run_progress *before) {
    session *x = &r->x;
    TRY(finish_writing(r));
    board_enter(r->mine, PHASE_SAVING, step_of(r));
    TRY(session_settle(x));
    TRY(comm_agree_ok(x->ranks, leads_node(r) ? run_lock_keep(&r->lock, x->dir) : ERR_OK, x->s));
    TRY(session_fetch(x));
    x->progress.log_bytes = log_bytes(r);
    TRY(comm_agree_max(x->ranks, &x->progress.log_bytes, x->s));  // rank 0 has the log
    r->before = *before;
    ckpt_writer_begin(x->writer, &x->state.ckpt, &x->progress);
    return ERR_OK;
}

// --- checkpoints that steps wait for ---------------------------------------------------------------------------------

// A checkpoint that can't be written is logged as an event: the previous one is intact, and training goes on. `again`:
// this step will be saved once more, and its checkpoint is logged then.
static err_t save_now(run *r, bool again) {
    session *x = &r->x;
    run_progress *at = &x->progress;
    TRY(finish_writing(r));
    double start = clock_now();
    board_enter(r->mine, PHASE_SAVING, x->progress.step);
    TRY(session_settle(x));
    TRY(comm_agree_ok(x->ranks, leads_node(r) ? run_lock_keep(&r->lock, x->dir) : ERR_OK, x->s));
    TRY(session_fetch(x));
    monitor_sync(&r->m);
    at->log_bytes = log_bytes(r);
    TRY(comm_agree_max(x->ranks, &at->log_bytes, x->s));  // rank 0 has the log; every node's manifest stores its length
    comm_be_patient(x->ranks->host, true);                // for the slowest disk
    x->ranks->host->phase.what = "checkpoint", x->ranks->host->phase.step = x->progress.step,
    x->ranks->host->phase.number = 0;
    err_t rc = ckpt_save(x->dir, &x->state.ckpt, &x->progress, 0, &x->faults);
    comm_be_patient(x->ranks->host, false);
    if (rc != ERR_OK) {  // between_steps prunes
        monitor_event(&r->m, "checkpoint_failed", x->progress.step, err_last()->text);
        return x->ranks->table->query(x->ranks);
    }
    r->saved = x->progress.step;
    if (!again) record_checkpoint(r, 1e3 * (clock_now() - start), true);
    return ERR_OK;
}

static err_t write_sample(run *r) {
    char *text;
    TRY(session_sample(&r->x, r->x.cfg->sample.prompt, &text));
    const sample_record said = {.step = step_of(r), .prompt = r->x.cfg->sample.prompt, .text = text};
    monitor_log(&r->m, &(record){RECORD_SAMPLE, .sample = said});
    free(text);
    return ERR_OK;
}

static err_t show_sample(run *r) {
    board_enter(r->mine, PHASE_SAMPLING, step_of(r));
    TRY(session_settle(&r->x));
    r->x.ranks->phase = (comm_phase){"sample", step_of(r), 0};
    err_t rc = r->x.ranks->rank == 0 || session_samples_on_all(&r->x) ? write_sample(r) : session_await_sample(&r->x);
    TRY(session_settle(&r->x));
    return comm_agree_ok(r->x.ranks, rc, r->x.s);
}

static bool eval_is_due(const run *r, bool last) {
    int64_t every = r->x.cfg->eval.every;
    return (r->x.val || !exam_is_empty(&r->x.exam)) && every > 0 && (last || due(step_of(r), every));
}

static bool sample_is_due(const run *r, bool last) {
    return r->x.net->vocab && r->x.cfg->sample.tokens > 0 && (last || due(step_of(r), r->x.cfg->sample.every));
}

static bool eval_or_sample_is_due(const run *r, bool last) { return eval_is_due(r, last) || sample_is_due(r, last); }

static err_t evaluate_and_sample(run *r, bool last, bool *improved) {
    if (eval_is_due(r, last)) TRY(evaluate_now(r, improved));
    return sample_is_due(r, last) ? show_sample(r) : ERR_OK;
}

// Logs first, then saves: a checkpoint stores the length of the log, and must be as good as what the log says up to
// there. A failed evaluation ends the run, but only after the trained weights are saved.
static err_t between_steps(run *r, bool stopping) {
    bool last = step_of(r) == r->x.cfg->run.steps, improved = false, best = r->x.cfg->checkpoint.keep_best;
    if (r->written || (is_writing_best(r) && eval_is_due(r, last))) TRY(finish_writing(r));
    run_progress before = r->x.progress;
    err_record why = {0};
    if (stopping && eval_or_sample_is_due(r, last))
        TRY(save_now(r, true));  // evaluating may take longer than the stop may last
    if (evaluate_and_sample(r, last, &improved) != ERR_OK) why = *err_last();
    bool waits = !r->x.writer || last || stopping || why.code;
    if (waits && (save_is_due(r) || stopping || why.code)) TRY(save_now(r, false));
    if (!waits && save_is_due(r)) return begin_writing(r, &before);
    bool saved = r->saved == step_of(r);
    if (improved && !saved && best)
        r->x.progress.best_loss = before.best_loss, r->x.progress.best_step = before.best_step;
    if (best && ((improved && saved) || (r->best_pending && !is_writing_best(r)))) mark_best(r);
    if (saved) prune(r, &r->x.progress);
    return why.code ? err_restore(&why) : ERR_OK;
}

// What is saved, copied or hashed was compared before. An evaluation may lead to a checkpoint.
static bool compare_is_due(const run *r, bool stopping) {
    bool last = step_of(r) == r->x.cfg->run.steps;
    return r->x.cfg->checkpoint.compare && (stopping || due(step_of(r), r->x.cfg->log.hash_every) ||
                                            eval_or_sample_is_due(r, last) || save_is_due(r) || snapshot_is_due(r));
}

static void log_start(run *r) {
    const session *x = &r->x;
    int64_t step = step_of(r);
    monitor_log(&r->m, &(record){RECORD_START, .start = {step, step * x->cfg->batch.global * x->net->units}});
}

// In the world as it is: nobody is lost.
static err_t go_back(run *r) {
    session *x = &r->x;
    char text[128];
    int64_t step = step_of(r);
    bool found = true;
    TRY(finish_writing(r));  // of a step in which the ranks held the same
    TRY(session_recall(x, &r->recalled, &r->saved, &r->unlogged, &r->m));
    if (!r->recalled) TRY(resume_from_disk(r, NULL, &found));
    if (!found)
        return err_set(ERR_UNAVAILABLE, "there is no checkpoint yet to go back to; the same command begins anew");
    TRY(session_feed(x, x->cfg->run.steps));
    TRY(comm_agree_ok(x->ranks, open_log(r), x->s));
    log_start(r);
    recall_checkpoint(r);
    r->bad = (divergence){0};
    report_clear(&r->step_times), report_clear(&r->rank_times);
    atomic_store(&r->b->step, step_of(r));
    snprintf(text, sizeof text, "from step %" PRId64 " back to step %" PRId64 ", to %s", step, step_of(r),
             r->recalled ? "the snapshot in memory" : "the newest checkpoint");
    if (x->ranks->rank == 0) monitor_event(&r->m, "back", step_of(r), text);
    return ERR_OK;
}

// *back: some rank lied, and the run goes on from an older step. A run that does not heal ends.
static err_t compare_ranks(run *r, bool *back) {
    replica_verdict v;
    *back = false;
    TRY(lies_look(&r->lies, &r->x, &r->m, &v));
    if (!v.differ) return ERR_OK;
    *back = r->x.cfg->cluster.elastic && !lies_are_enough(&r->lies, &v);
    lies_say(&r->lies, &r->x, &r->m, &v, *back);
    return *back ? go_back(r) : lies_end(&r->lies, &r->x, &v, r->saved);
}

// Must the queue drain now, because something other than a step comes next?
static bool must_drain(const run *r) {
    bool last = step_of(r) == r->x.cfg->run.steps;
    return last || !r->confirmed || !step_runs_ahead(&r->x.runner) || due(step_of(r), r->x.cfg->log.hash_every) ||
           eval_or_sample_is_due(r, last) || save_is_due(r) || snapshot_is_due(r) ||
           redeal_is_due(&r->lanes, step_of(r));
}

static err_t collect_step(run *r, step_wish *wish) {
    step_result s;
    TRY(session_collect(&r->x, &s));
    double now = clock_now();
    TRY(log_step(r, &s, 1e3 * (now - r->logged_at)));
    show_reading(r, now);
    r->logged_at = now;
    atomic_store(&r->b->loss, s.loss);
    atomic_store(&r->b->step, s.step);
    if (s.wish > *wish) *wish = s.wish;
    r->written |= s.written;
    return ERR_OK;
}

// Runs once, after the first step, before anything is saved: the first step has used all matmul plans.
static err_t compare_plans(run *r) {
    if (r->confirmed) return ERR_OK;
    TRY(session_settle(&r->x));
    TRY(arithmetic_confirm(r->x.dev, r->x.ranks, r->x.s));
    r->confirmed = true;
    return ERR_OK;
}

// Queues the next step, and collects and logs finished ones: on a CPU this step; on a GPU the previous one, and if the
// queue must drain this one too.
static err_t advance(run *r, step_wish *wish) {
    r->x.runner.wish = atomic_load(&r->b->stop) ? STEP_STOP : atomic_load(&r->b->turn) ? STEP_TURN : STEP_GO_ON;
    r->x.runner.written = ckpt_writer_ended(r->x.writer);
    if (!r->x.runner.uncollected) r->logged_at = clock_now();
    TRY(session_queue(&r->x));
    int most = must_drain(r) ? 0 : 1;
    while (r->x.runner.uncollected > (*wish || r->bad.gave_up || r->written ? 0 : most)) TRY(collect_step(r, wish));
    return compare_plans(r);
}

static err_t balance_lanes(run *r) {
    bool moved = false;
    if (step_of(r) < r->x.cfg->run.steps) TRY(redeal_now(&r->lanes, &r->x, &r->m, &moved));
    if (moved) report_redealt(&r->step_times), report_redealt(&r->rank_times);
    return ERR_OK;
}

// Data that can't be read ends the run, but only after the weights of the last step are saved. The failed step has
// updated nothing.
static err_t step_or_save(run *r, step_wish *wish) {
    err_t rc = advance(r, wish);
    if ((rc != ERR_DATA && rc != ERR_IO) || step_of(r) == 0 || r->saved == step_of(r)) return rc;
    err_record why = *err_last();
    bool back = false;
    if (r->x.cfg->checkpoint.compare) TRY(compare_ranks(r, &back));
    if (back) return ERR_OK;
    TRY(save_now(r, false));
    return err_restore(&why);
}

static err_t say_stopped(run *r) {
    char text[96];
    say_if_ruined(r);
    snprintf(text, sizeof text, "asked to stop; %s step %" PRId64 "; the same command continues",
             r->saved == step_of(r) ? "saved" : "could not save", step_of(r));
    monitor_event(&r->m, "stop", step_of(r), text);
    return err_set(ERR_INTERRUPTED, "stopped after step %" PRId64 " of %" PRId64 " on request", step_of(r),
                   r->x.cfg->run.steps);
}

// All leave together, after a step that is saved: who comes finds it on disk, and who goes leaves nothing behind.
static err_t turn(run *r) {
    r->turns = true;
    return err_set(ERR_UNAVAILABLE, "after step %" PRId64 " the nodes begin another world", step_of(r));
}

// Saves nothing: the weights are what they were before the bad steps, or ruined. Prints a command that goes on from a
// good checkpoint.
static err_t give_up(run *r) {
    char text[DIVERGED_TEXT + 96], what[DIVERGED_TEXT];
    atomic_store(&r->b->gave_up, 1);
    if (r->x.ranks->rank != 0) return err_set(ERR_INTERRUPTED, "the run has diverged");
    snprintf(text, sizeof text, "stopped by [run] bad_steps = %" PRId64 ": %s", r->x.cfg->run.bad_steps,
             advice(r, r->bad.gave_up, r->x.progress.bad_steps, NAN, what));
    monitor_event(&r->m, "gave_up", r->bad.gave_up, text);
    return err_set(ERR_INTERRUPTED, "%s", text);
}

// After a failure of the team nothing is saved: saving needs all ranks.
static err_t run_steps(run *r) {
    const config *c = r->x.cfg;
    log_start(r);
    board_enter(r->mine, PHASE_STEPPING, step_of(r));
    while (step_of(r) < c->run.steps) {
        step_wish wish = STEP_GO_ON;
        TRY(step_or_save(r, &wish));
        if (r->x.runner.uncollected) continue;
        if (r->bad.gave_up) TRY(finish_writing(r));
        if (r->bad.gave_up) return give_up(r);
        if (step_of(r) == c->run.steps) wish = STEP_GO_ON;
        bool back = false;
        if (compare_is_due(r, wish != STEP_GO_ON)) TRY(compare_ranks(r, &back));
        if (back) continue;
        atomic_fetch_add(&r->b->looking, 1);
        err_t rc = between_steps(r, wish != STEP_GO_ON);
        atomic_fetch_sub(&r->b->looking, 1);
        board_enter(r->mine, PHASE_STEPPING, step_of(r));
        TRY(rc);
        if (wish == STEP_STOP) return say_stopped(r);
        if (wish == STEP_TURN) return turn(r);
        if (snapshot_is_due(r) && step_of(r) < c->run.steps) {
            if (is_writing_best(r)) TRY(finish_writing(r));  // a snapshot knows only a best that is there
            TRY(take_snapshot(r));
        }
        TRY(balance_lanes(r));
    }
    return ERR_OK;
}

static err_t check_saved(const run *r) {
    if (r->saved == step_of(r)) return ERR_OK;
    return err_set(ERR_IO,
                   "the last checkpoint, of step %" PRId64
                   ", could not be written (see events.jsonl); the same command continues after step %" PRId64,
                   step_of(r), r->saved < 0 ? 0 : r->saved);
}

static err_t train_in_world(run *r, const config *c, const launch *at) {
    TRY(enter_world(r, c, at));
    TRY(run_steps(r));
    say_if_ruined(r);
    TRY(comm_agree_ok(r->x.ranks, check_saved(r), r->x.s));
    monitor_say(&r->m, "done    %" PRId64 " steps; run directory %s", step_of(r), r->x.dir);
    return ERR_OK;
}

// Adds what this rank was doing when another rank was lost.
static void say_where(const run *r) {
    const comm *c = r->x.ranks;
    if (c && c->world > 1 && c->phase.what)
        err_prefix("in %s %" PRId64 " of step %" PRId64, c->phase.what, c->phase.number, c->phase.step);
}

// Is another rank lost, so that this one can go on in another world? An error that all ranks agreed on is none of
// those: it would be met again.
static bool lost_others(run *r, const launch *at, err_t rc) {
    comm *c = r->x.ranks;
    return at->yard && at->world > 1 && rc == ERR_UNAVAILABLE && (!c || c->table->query(c) != ERR_OK);
}

// Reports a failure to the other ranks, and for people.
static void report_failure(run *r, const char *event, err_t rc) {
    if (rc == ERR_UNAVAILABLE) say_where(r);
    err_record why = *err_last();
    if (rc != ERR_OK) flight_freeze(r->x.flight);
    session_abort(&r->x, rc);
    if (rc != ERR_OK && rc != ERR_INTERRUPTED) monitor_event(&r->m, event, step_of(r), why.text);
    if (rc != ERR_OK) err_restore(&why);
}

// Trains in one world after another, until the last step, or an error that another world would meet, too.
static err_t train_in_worlds(run *r, const config *c, const launch *at) {
    for (bool over = false;;) {
        err_t rc = train_in_world(r, c, at);
        if (!r->turns && !lost_others(r, at, rc)) return rc;
        if (!r->turns) report_failure(r, "lost", rc);
        err_record why = *err_last();
        board_enter(r->mine, PHASE_STARTING, step_of(r));
        leave_world(r);
        TRY(yard_next(at, &why, &over));
        if (over) return ERR_OK;
    }
}

// With several nodes a rank opens its device and data first, and says then that it is ready.
static err_t wait_for_world(const run *r, const launch *at, bool *over) {
    at->yard->data = session_data_mark(&r->x);
    err_set(ERR_UNAVAILABLE, "the nodes have ended before a world began");
    const err_record why = *err_last();
    return yard_next(at, &why, over);
}

err_t train_rank(const config *c, const launch *at, board *b) {
    run *r = calloc(1, sizeof *r);
    if (!r) return err_set(ERR_INTERNAL, "no memory for a run");
    r->lock = (run_lock){-1, -1};
    r->lies.same = -1;
    r->b = b;
    r->mine = board_place(b, at->slot);
    bool over = false;
    err_t rc = open_machine(r, c, at);
    if (rc == ERR_OK && at->waits) rc = wait_for_world(r, at, &over);
    if (rc == ERR_OK && !over) rc = train_in_worlds(r, c, at);
    board_enter(r->mine, PHASE_ENDED, step_of(r));
    r->m.quiet = true;  // main.c prints it
    report_failure(r, "failed", rc);
    err_record why = *err_last();
    run_close(r);
    free(r);
    return rc == ERR_OK ? rc : err_restore(&why);
}
