// trainer/train.c: the loop: step, log, evaluate, save, until the last step or a request to stop.
#include "trainer/train.h"

#include "base/clock.h"
#include "base/io.h"
#include "trainer/answers.h"
#include "trainer/session/machine.h"
#include "trainer/session/restore.h"
#include "trainer/run.h"
#include "trainer/sample.h"
#include "trainer/step/arithmetic.h"
#include "trainer/step/mean_shown.h"
#include "trainer/step/outer.h"
#include "trainer/figures.h"
#include "trainer/greet.h"
#include "trainer/node/yard.h"
#include "trainer/waiting.h"

#include <inttypes.h>
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// --- opening ---------------------------------------------------------------------------------------------------------

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
        monitor_event(&r->m, "config_failed", run_step(r), err_last()->text);
}

static err_t start_log(run *r, const launch *at) {
    TRY(run_open_log(r));
    greet(&r->x, &r->m, r->saved < 0);
    if (at->yard && at->yard->news.why[0]) run_say_healed(r, at);
    else run_say_resumed(r);
    return ERR_OK;
}

// Where servers do not wait for all of a step, ranks say what they read when they meet: after whole periods.
static int64_t power_every(const config *c) {
    int64_t period = config_is_served(c) ? config_period(c) : 1;
    return (c->log.power_every + period - 1) / period * period;
}

// A device whose sensors can't be read is logged as an event on its node; the run goes on.
static err_t start_power(run *r) {
    err_t rc = power_open(&r->power, r->x.dev, r->x.ranks, power_every(r->x.cfg), run_step(r));
    r->x.runner.sense = power_report, r->x.runner.sense_ctx = &r->power;
    if (rc == ERR_UNAVAILABLE) monitor_event(&r->m, "power", run_step(r), err_last()->text);
    return rc == ERR_UNAVAILABLE ? ERR_OK : rc;
}

// The first rank of a node keeps its directory.
static err_t open_directory(run *r) {
    if (!run_leads_node(r)) return ERR_OK;
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
    if (at->yard) at->yard->faults = &r->x.faults;
    return ERR_OK;
}

// With the log as long as it is now. The system has what was written to it; disks need not.
static err_t take_snapshot(run *r) {
    session *x = &r->x;
    if (x->vault.fd < 0) return ERR_OK;
    TRY(session_settle(x));
    x->progress.log_bytes = run_log_bytes(r);
    TRY(comm_agree_max(x->ranks, &x->progress.log_bytes, x->s));
    return session_snapshot(x, r->saved, &r->m);
}

static bool snapshot_is_due(const run *r) {
    return r->x.vault.fd >= 0 && run_is_due(run_step(r), r->x.cfg->snapshot.every);
}

static err_t enter_world(run *r, const config *c, const launch *at) {
    r->fenced = at->fenced;
    TRY(waiting_enter(&r->x, at, r->b, true));
    if (at->yard && at->yard->news.why[0]) healed_begin(&r->healed, &at->yard->news, clock_now());
    show_rank(r);
    TRY(report_open(&r->step_times, r->x.ranks->world));
    TRY(report_open(&r->rank_times, r->x.ranks->world));
    TRY(redeal_open(&r->lanes, &r->x, r->mine));
    TRY(evicting_open(&r->evicting, &r->x, at, r->b));
    TRY(comm_agree_ok(r->x.ranks, open_directory(r), r->x.s));
    TRY(comm_agree_ok(r->x.ranks, run_find_state(r, at), r->x.s));
    if (run_step(r) < c->run.steps) TRY(session_feed(&r->x, c->run.steps));
    healed_end(&r->healed, HEALED_MOVE, clock_now());
    TRY(comm_agree_ok(r->x.ranks, start_log(r, at), r->x.s));
    run_recall_checkpoint(r);
    fault_kill(&r->x.faults, FAULT_BEGIN);
    if (run_step(r) < c->run.steps && config_is_served(r->x.cfg)) TRY(session_serve(&r->x));
    if (run_step(r) < c->run.steps) TRY(redeal_recall(&r->lanes, &r->x, &r->m));
    // Before the first step, so that from here on a loss costs little: what was lost with a node has no second copy.
    if (!r->recalled || at->fenced) TRY(take_snapshot(r));
    fault_kill(&r->x.faults, FAULT_BEGIN);
    TRY(start_power(r));
    TRY(speed_open(&r->speed, &r->x, at->slot));
    if (run_leads_node(r)) write_config(r);
    run_begin_at(r);
    if (run_leads_node(r)) atomic_store(&r->b->first, r->x.ranks->rank == 0);
    atomic_store(&r->b->rollbacks, r->x.progress.rollbacks);
    atomic_store(&r->b->sealed, run_step(r));
    atomic_store(&r->b->step, run_step(r));
    atomic_fetch_add(&r->b->ready, 1);
    run_say_caught_up(r, run_step(r));
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
    evicting_close(&r->evicting);
    power_close(&r->power);
    speed_close(&r->speed);
    session_leave(&r->x);
    malloc_trim(0);  // a rank may wait for long; and what the next world needs lies elsewhere in the heap
    *r = (run){.x = r->x,
               .b = r->b,
               .mine = r->mine,
               .lock = r->lock,
               .lies = r->lies,
               .missed = r->missed,
               .kept = r->kept,
               .settled = -1};
}

static void run_close(run *r) {
    leave_world(r);
    session_close(&r->x);
    run_lock_release(&r->lock);
}

// --- what happens between steps --------------------------------------------------------------------------------------

// For people; the run does not need it.
static void write_answers(run *r, const evaluation *e) {
    if (run_keeps_log(r) && answers_write(&r->x, e, r->x.dir) != ERR_OK)
        monitor_event(&r->m, "answers_failed", run_step(r), err_last()->text);
}

// Losses of different data say nothing of each other.
static void forget_best(run *r) {
    run_progress *at = &r->x.progress;
    const char *now = r->x.cfg->resolved.best_of;
    char text[256];
    snprintf(text, sizeof text,
             "what is best is decided by the loss on %s%s from here on: the best so far, step %" PRId64
             ", was so by that on %s%s, and does not count",
             *now ? "the set " : "[data] val", now, at->best_step, *at->best_of ? "the set " : "[data] val",
             at->best_of);
    if (at->best_step > 0 && r->x.ranks->rank == 0) monitor_event(&r->m, "best_of", at->step, text);
    at->best_loss = INFINITY, at->best_step = 0, at->no_better = 0;
    snprintf(at->best_of, sizeof at->best_of, "%s", now);
}

static err_t evaluate_now(run *r, bool *improved) {
    session *x = &r->x;
    double start = clock_now();
    board_enter(r->mine, PHASE_EVALUATING, x->progress.step);
    evaluation e;
    figures f = {0};
    TRY(figures_measure(x, &e, &f));
    run_progress *at = &x->progress;
    if (!run_knows_best(r)) forget_best(r);
    *improved = f.decides < at->best_loss;
    if (*improved) at->best_loss = f.decides, at->best_step = x->progress.step;
    at->no_better = *improved ? 0 : at->no_better + 1;
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
        .best_of = at->best_of,
        .possible = x->possible,
        .ms = 1e3 * (clock_now() - start),
    };
    monitor_log(&r->m, &(record){RECORD_EVAL, .eval = said});
    write_answers(r, &e);
    return ERR_OK;
}

static err_t write_sample(run *r) {
    char *text;
    TRY(session_sample(&r->x, r->x.cfg->sample.prompt, &text));
    const sample_record said = {.step = run_step(r), .prompt = r->x.cfg->sample.prompt, .text = text};
    monitor_log(&r->m, &(record){RECORD_SAMPLE, .sample = said});
    free(text);
    return ERR_OK;
}

static err_t show_sample(run *r) {
    board_enter(r->mine, PHASE_SAMPLING, run_step(r));
    TRY(session_settle(&r->x));
    TRY(outer_show(&r->x.state));
    r->x.ranks->phase = (comm_phase){"sample", run_step(r), 0};
    err_t rc = r->x.ranks->rank == 0 || session_samples_on_all(&r->x) ? write_sample(r) : session_await_sample(&r->x);
    TRY(session_settle(&r->x));
    TRY(comm_agree_ok(r->x.ranks, rc, r->x.s));
    return outer_hide(&r->x.state);
}

static bool eval_is_due(const run *r, bool last) {
    int64_t every = r->x.cfg->eval.every;
    return (r->x.val || r->x.sets || !exam_is_empty(&r->x.exam)) && every > 0 &&
           (last || run_is_due(run_step(r), every));
}

static bool sample_is_due(const run *r, bool last) {
    return r->x.net->vocab && r->x.cfg->sample.tokens > 0 && (last || run_is_due(run_step(r), r->x.cfg->sample.every));
}

static bool eval_or_sample_is_due(const run *r, bool last) { return eval_is_due(r, last) || sample_is_due(r, last); }

static err_t look_at_weights(run *r, bool last, bool *improved) {
    if (eval_is_due(r, last)) TRY(evaluate_now(r, improved));
    return sample_is_due(r, last) ? show_sample(r) : ERR_OK;
}

// Data that can't be read ends no rank's part in this: the weights are back before the run is saved.
static err_t evaluate_and_sample(run *r, bool last, bool *improved) {
    TRY(session_settle(&r->x));
    TRY(mean_show(&r->x.state));
    err_t rc = look_at_weights(r, last, improved);
    if (rc != ERR_OK && rc != ERR_DATA && rc != ERR_IO) return rc;
    err_record why = rc != ERR_OK ? *err_last() : (err_record){0};
    TRY(session_settle(&r->x));
    TRY(mean_hide(&r->x.state));
    return rc == ERR_OK ? ERR_OK : err_restore(&why);
}

// Logs first, then saves: a checkpoint stores the length of the log, and must be as good as what the log says up to
// there. A failed evaluation ends the run, but only after the trained weights are saved.
static err_t between_steps(run *r, bool stopping) {
    bool last = run_step(r) == r->x.cfg->run.steps, improved = false, best = r->x.cfg->checkpoint.keep_best;
    if (r->written || (run_is_writing_best(r) && eval_is_due(r, last))) TRY(run_finish_writing(r));
    run_progress before = r->x.progress;
    err_record why = {0};
    if (stopping && eval_or_sample_is_due(r, last))
        TRY(run_save(r, true));  // evaluating may take longer than the stop may last
    if (evaluate_and_sample(r, last, &improved) != ERR_OK) why = *err_last();
    bool waits = !r->x.writer || last || stopping || why.code || run_gave_up_waiting(r);
    if (waits && (run_save_is_due(r) || stopping || why.code)) TRY(run_save(r, false));
    if (!waits && run_save_is_due(r)) return run_begin_writing(r, &before);
    bool saved = r->saved == run_step(r);
    if (improved && !saved && best) progress_take_best(&r->x.progress, &before);
    if (best && ((improved && saved) || (r->best_pending && !run_is_writing_best(r)))) run_mark_best(r);
    if (saved) run_prune(r, &r->x.progress);
    return why.code ? err_restore(&why) : ERR_OK;
}

// What is saved, copied or hashed was compared before. An evaluation may lead to a checkpoint.
static bool compare_is_due(const run *r, bool stopping) {
    bool last = run_step(r) == r->x.cfg->run.steps;
    return r->x.cfg->checkpoint.compare && (stopping || run_is_due(run_step(r), r->x.cfg->log.hash_every) ||
                                            eval_or_sample_is_due(r, last) || run_save_is_due(r) || snapshot_is_due(r));
}

static err_t go_back_from_lie(run *r) {
    char text[128];
    int64_t step = run_step(r);
    TRY(run_go_back(r, false));
    snprintf(text, sizeof text, "from step %" PRId64 " back to step %" PRId64 ", to %s", step, run_step(r),
             run_where_back(r));
    if (r->x.ranks->rank == 0) monitor_event(&r->m, "back", run_step(r), text);
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
    return *back ? go_back_from_lie(r) : lies_end(&r->lies, &r->x, &v, r->saved);
}

// Do islands come to hold the same after this step? Where they never do, or there is one only, no step ends anything.
static bool ends_period(const run *r, int64_t step) {
    return r->x.cfg->outer.islands > 1 && !config_is_apart(r->x.cfg) && config_is_boundary(r->x.cfg, step);
}

// Must the queue drain now, because something other than a step comes next?
static bool must_drain(const run *r) {
    bool last = run_step(r) == r->x.cfg->run.steps || spike_skips(&r->x.progress, run_step(r) + 1);
    return last || ends_period(r, run_step(r)) || !r->confirmed || !step_runs_ahead(&r->x.runner) ||
           run_is_due(run_step(r), r->x.cfg->log.hash_every) || eval_or_sample_is_due(r, last) || run_save_is_due(r) ||
           snapshot_is_due(r) || redeal_is_due(&r->lanes, run_step(r));
}

static err_t log_collected(run *r, const step_result *s, double ms, step_wish *wish) {
    TRY(run_log_step(r, s, ms));
    if (run_keeps_log(r)) atomic_store(&r->b->logged, s->step);
    r->collected = s->step;
    atomic_store(&r->b->loss, s->loss);
    atomic_store(&r->b->step, s->step);
    run_say_caught_up(r, s->step);
    // islands go on to where they hold the same: a stop is asked for again there, and saves what all have learned
    if (s->wish > *wish && config_is_boundary(r->x.cfg, s->step)) *wish = s->wish;
    r->written |= s->written;
    return ERR_OK;
}

static err_t collect_step(run *r, step_wish *wish) {
    step_result s;
    TRY(session_collect(&r->x, &s));
    double now = clock_now();
    TRY(log_collected(r, &s, 1e3 * (now - r->logged_at), wish));
    run_show_reading(r, now);
    r->logged_at = now;
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

// The steps up to where all ranks meet, where servers do not wait for all of a step.
static err_t advance_period(run *r, step_wish *wish) {
    const config *c = r->x.cfg;
    int64_t from = run_step(r), last = (from / c->server.every + 1) * c->server.every;  // a fork may begin anywhere
    served_results got;
    TRY(session_period(&r->x, last, &got));
    run_show_reading(r, clock_now());
    for (int64_t k = 0; k < last - from; k++) TRY(log_collected(r, &got.result[k], got.step[k].ms, wish));
    return compare_plans(r);
}

// Queues the next step, and collects and logs finished ones: on a CPU this step; on a GPU the previous one, and if the
// queue must drain this one too.
static err_t advance(run *r, step_wish *wish) {
    r->x.runner.wish = atomic_load(&r->b->stop) ? STEP_STOP : atomic_load(&r->b->turn) ? STEP_TURN : STEP_GO_ON;
    r->x.runner.written = ckpt_writer_ended(r->x.writer);
    if (r->x.served) return advance_period(r, wish);
    if (!r->x.runner.uncollected) r->logged_at = clock_now();
    TRY(session_queue(&r->x));
    int most = must_drain(r) ? 0 : 1;
    while (r->x.runner.uncollected > (*wish || r->bad.gave_up || r->spiked || r->written ? 0 : most))
        TRY(collect_step(r, wish));
    return compare_plans(r);
}

static err_t balance_lanes(run *r) {
    bool moved = false;
    if (run_step(r) < r->x.cfg->run.steps) TRY(redeal_now(&r->lanes, &r->x, &r->m, &moved));
    if (moved) report_redealt(&r->step_times), report_redealt(&r->rank_times);
    return ERR_OK;
}

// Is what masters or rows are in, a file, lost? Of one rank, for all that have this failure: none of them can save.
static bool is_lost(run *r, const err_record *why) {
    const train_state *t = &r->x.state;
    bool here = spilled_is_lost(&t->spilled) || (t->rows && row_table_is_lost(t->rows));
    if (!why->shared) return here;
    return comm_agree_ok(r->x.ranks, here ? err_restore(why) : ERR_OK, r->x.s) != ERR_OK;
}

// Data that can't be read ends the run, but only after the weights of the last step are saved. The failed step has
// updated nothing, unless what failed was a file that masters or rows are in: then there is nothing to save.
static err_t step_or_save(run *r, step_wish *wish) {
    err_t rc = advance(r, wish);
    if ((rc != ERR_DATA && rc != ERR_IO) || run_step(r) == 0 || r->saved == run_step(r)) return rc;
    if (!config_is_boundary(r->x.cfg, run_step(r))) return rc;  // the newest checkpoint is all that islands agree on
    if (r->x.served) return rc;                                 // weights are of a period that did not end
    err_record why = *err_last();
    if (is_lost(r, &why)) return err_restore(&why);
    bool back = false;
    if (r->x.cfg->checkpoint.compare) TRY(compare_ranks(r, &back));
    if (back) return ERR_OK;
    TRY(run_save(r, false));
    return err_restore(&why);
}

// How stale the gradients were that servers applied.
static void say_served(run *r) {
    char text[SERVED_SUMMARY];
    if (r->x.served && r->x.ranks->rank == 0)
        monitor_event(&r->m, "served", run_step(r), served_summary(r->x.served, text));
}

static err_t say_stopped(run *r) {
    char text[96];
    run_say_if_ruined(r);
    say_served(r);
    snprintf(text, sizeof text, "asked to stop; %s step %" PRId64 "; the same command continues",
             r->saved == run_step(r) ? "saved" : "could not save", run_step(r));
    monitor_event(&r->m, "stop", run_step(r), text);
    return err_set(ERR_INTERRUPTED, "stopped after step %" PRId64 " of %" PRId64 " on request", run_step(r),
                   r->x.cfg->run.steps);
}

// All leave together, after a step that is saved: who comes finds it on disk, and who goes leaves nothing behind.
static err_t turn(run *r) {
    r->turns = true;
    fault_kill(&r->x.faults, FAULT_TURN);
    return err_set(ERR_UNAVAILABLE, "after step %" PRId64 " the nodes begin another world", run_step(r));
}

// Saves nothing: the weights are what they were before the bad steps, or ruined. Prints a command that goes on from a
// good checkpoint.
static err_t give_up(run *r) {
    char text[DIVERGED_TEXT + 96], what[DIVERGED_TEXT];
    atomic_store(&r->b->gave_up, BOARD_DIVERGED);
    if (r->x.ranks->rank != 0) return err_set(ERR_INTERRUPTED, "the run has diverged");
    snprintf(text, sizeof text, "stopped by [run] bad_steps = %" PRId64 ": %s", r->x.cfg->run.bad_steps,
             run_advice(r, r->bad.gave_up, r->x.progress.bad_steps, NAN, what));
    monitor_event(&r->m, "gave_up", r->bad.gave_up, text);
    return err_set(ERR_INTERRUPTED, "%s", text);
}

// --- spikes ----------------------------------------------------------------------------------------------------------

static err_t end_spiking(run *r, double median) {
    char text[DIVERGED_TEXT + 256], what[DIVERGED_TEXT];
    atomic_store(&r->b->gave_up, BOARD_DIVERGED);
    if (r->x.ranks->rank != 0) return err_set(ERR_INTERRUPTED, "the loss spikes again and again");
    snprintf(text, sizeof text,
             "the loss was more than [optimizer] rollback = %g times its median, %.4g, in steps %" PRId64 " to %" PRId64
             ", and the run has gone back %d times already, which is the most: %s",
             r->x.cfg->optimizer.rollback, median, r->spiked - SPIKE_STEPS + 1, r->spiked, PROGRESS_ROLLBACKS,
             run_advice(r, r->spiked, SPIKE_STEPS, r->x.progress.loss, what));
    monitor_event(&r->m, "gave_up", r->spiked, text);
    return err_set(ERR_INTERRUPTED, "%s", text);
}

static err_t roll_back(run *r) {
    char text[320];
    const run_progress was = r->x.progress;
    const int64_t last = r->spiked;
    double median = spike_median(&was);
    if (was.rollbacks == PROGRESS_ROLLBACKS) {
        TRY(run_finish_writing(r));
        return end_spiking(r, median);
    }
    TRY(run_go_back(r, true));
    r->spiked = 0;
    spike_leave_out(&r->x.progress, &was, last);
    atomic_store(&r->b->rollbacks, r->x.progress.rollbacks);
    snprintf(text, sizeof text,
             "the loss was more than %g times its median, %.4g, in steps %" PRId64 " to %" PRId64
             ", at last %.4g: back to step %" PRId64 ", to %s; their data is left out; number %" PRId64
             " of at most %d",
             r->x.cfg->optimizer.rollback, median, last - SPIKE_STEPS + 1, last, was.loss, run_step(r),
             run_where_back(r), r->x.progress.rollbacks, PROGRESS_ROLLBACKS);
    if (r->x.ranks->rank == 0) monitor_event(&r->m, "rollback", run_step(r), text);
    return ERR_OK;
}

static err_t look_between(run *r, bool stopping) {
    atomic_fetch_add(&r->b->looking, 1);
    err_t rc = between_steps(r, stopping);
    atomic_fetch_sub(&r->b->looking, 1);
    board_enter(r->mine, PHASE_STEPPING, run_step(r));
    return rc;
}

// Goes past the steps whose data is left out, if the next one is one of them. They may be the last ones.
static err_t leave_out(run *r) {
    int64_t last, from = run_step(r), steps = r->x.cfg->run.steps;
    while ((last = spike_skips(&r->x.progress, run_step(r) + 1)) > 0) r->x.progress.step = last;
    if (run_step(r) == from) return ERR_OK;
    if (run_step(r) > steps) r->x.progress.step = steps;  // a run that was given fewer of them
    r->before += run_step(r) - from;
    atomic_store(&r->b->step, run_step(r));
    return run_step(r) < steps ? session_feed(&r->x, steps) : look_between(r, false);
}

// After a failure of the team nothing is saved: saving needs all ranks.
static err_t run_steps(run *r) {
    const config *c = r->x.cfg;
    run_log_start(r);
    board_enter(r->mine, PHASE_STEPPING, run_step(r));
    while (run_step(r) < c->run.steps && !run_gave_up_waiting(r)) {
        step_wish wish = STEP_GO_ON;
        TRY(leave_out(r));
        if (run_step(r) == c->run.steps) break;
        TRY(step_or_save(r, &wish));
        if (r->x.runner.uncollected) {
            r->settled = r->collected;
            continue;
        }
        if (r->bad.gave_up) TRY(run_finish_writing(r));
        if (r->bad.gave_up) return give_up(r);
        if (r->spiked) {
            TRY(roll_back(r));
            continue;
        }
        // no state of it is stored: also a stop waits until it is known to be a spike, or none
        if (r->x.progress.spiking && run_step(r) < c->run.steps) continue;
        if (run_step(r) == c->run.steps) wish = STEP_GO_ON;
        bool back = false;
        if (compare_is_due(r, wish != STEP_GO_ON)) TRY(compare_ranks(r, &back));
        if (back) continue;
        TRY(look_between(r, wish != STEP_GO_ON));
        if (wish == STEP_STOP) return say_stopped(r);
        if (wish == STEP_TURN) return turn(r);
        if (snapshot_is_due(r) && run_step(r) < c->run.steps) {
            if (run_is_writing_best(r)) TRY(run_finish_writing(r));  // a snapshot knows only a best that is there
            TRY(take_snapshot(r));
        }
        TRY(balance_lanes(r));
        // with servers that do not wait for all of a step, the state is soon of no step
        r->settled = r->x.served ? -1 : run_step(r);
    }
    return ERR_OK;
}

static err_t check_saved(const run *r) {
    if (r->saved == run_step(r)) return ERR_OK;
    return err_set(ERR_IO,
                   "the last checkpoint, of step %" PRId64
                   ", could not be written (see events.jsonl); the same command continues after step %" PRId64,
                   run_step(r), r->saved < 0 ? 0 : r->saved);
}

static void say_patience(run *r) {
    const run_progress *at = &r->x.progress;
    char text[320];
    if (r->x.ranks->rank != 0) return;
    snprintf(text, sizeof text,
             "ended after step %" PRId64 " by [eval] patience = %" PRId64 ": the %s%s was lowest, %.4f, at "
             "step %" PRId64 ", and %" PRId64 " evaluations since were no better; a larger patience goes on",
             at->step, r->x.cfg->eval.patience, *at->best_of ? "loss on " : "validation loss", at->best_of,
             at->best_loss, at->best_step, at->no_better);
    monitor_event(&r->m, "patience", at->step, text);
}

// Of the last world, for people: what became of the state in memory. found: it was newer than the newest checkpoint.
static err_t say_last(run *r, bool found) {
    char text[320];
    int64_t step = run_step(r);
    if (!found) snprintf(text, sizeof text, "nothing that is whole in memory is newer than the newest checkpoint");
    else if (!config_is_boundary(r->x.cfg, step))
        snprintf(text, sizeof text,
                 "step %" PRId64
                 " is in memory and can't be saved, as islands differ after it; the newest checkpoint, of step %" PRId64
                 ", stands",
                 step, r->saved < 0 ? 0 : r->saved);
    else
        snprintf(text, sizeof text, "step %" PRId64 " was in memory alone, and %s", step,
                 r->saved == step ? "is saved" : "could not be saved");
    if (r->x.ranks->rank == 0) monitor_event(&r->m, "last", step, text);
    return err_set(ERR_INTERRUPTED, "%s", text);
}

// The last world of ranks that can't go on: what they hold becomes a checkpoint, and nothing is trained.
static err_t save_what_is_left(run *r, const launch *at) {
    bool found;
    r->fenced = at->fenced, r->last = true;
    TRY(waiting_enter(&r->x, at, r->b, true));
    show_rank(r);
    TRY(comm_agree_ok(r->x.ranks, open_directory(r), r->x.s));
    TRY(run_find_left(r, &found));
    if (found && config_is_boundary(r->x.cfg, run_step(r))) {
        TRY(comm_agree_ok(r->x.ranks, run_open_log(r), r->x.s));
        TRY(run_save(r, false));
    }
    return say_last(r, found);
}

static err_t train_in_world(run *r, const config *c, const launch *at) {
    if (at->yard && at->yard->news.last) return save_what_is_left(r, at);
    TRY(enter_world(r, c, at));
    TRY(run_steps(r));
    run_say_if_ruined(r);
    say_served(r);
    TRY(comm_agree_ok(r->x.ranks, check_saved(r), r->x.s));
    if (run_gave_up_waiting(r)) say_patience(r);
    monitor_say(&r->m, "done    %" PRId64 " steps; run directory %s", run_step(r), r->x.dir);
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

// When it was known, for those who add up what it costs.
static void show_loss(run *r) {
    double known = clock_now(), alive = known;
    if (r->x.team && team_query(r->x.team) != ERR_OK) team_failed_at(r->x.team, &known, &alive);
    board_lost(r->b, known, alive);
}

// Reports a failure to the other ranks, and for people.
static void report_failure(run *r, const char *event, err_t rc) {
    if (rc == ERR_UNAVAILABLE) say_where(r);
    err_record why = *err_last();
    if (rc != ERR_OK) flight_freeze(r->x.flight);
    session_abort(&r->x, rc);
    if (rc != ERR_OK && rc != ERR_INTERRUPTED) monitor_event(&r->m, event, run_step(r), why.text);
    if (rc != ERR_OK) err_restore(&why);
}

// What can't be kept is in the last snapshot.
static void keep_state(run *r) {
    bool kept = false;
    if (r->settled >= 0 && session_keep(&r->x, r->settled, r->before, r->saved, &kept) != ERR_OK)
        monitor_event(&r->m, "not_kept", r->settled, err_last()->text);
    r->kept = kept ? r->settled : -1;
}

// Trains in one world after another, until the last step, or an error that another world would meet, too.
static err_t train_in_worlds(run *r, const config *c, const launch *at) {
    for (bool over = false;;) {
        err_t rc = train_in_world(r, c, at);
        if (!r->turns && !lost_others(r, at, rc)) return rc;
        if (!r->turns) show_loss(r);
        if (!r->turns) report_failure(r, "lost", rc);
        err_record why = *err_last();
        if (!r->turns) keep_state(r);
        board_enter(r->mine, PHASE_STARTING, run_step(r));
        fault_kill(&r->x.faults, FAULT_LEAVE);
        leave_world(r);
        fault_kill(&r->x.faults, FAULT_LEAVE);
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
    r->settled = -1;
    r->kept = RECALL_NEW;
    r->b = b;
    r->mine = board_place(b, at->slot);
    bool over = false;
    err_t rc = open_machine(r, c, at);
    if (rc == ERR_OK && at->waits) rc = wait_for_world(r, at, &over);
    if (rc == ERR_OK && !over) rc = train_in_worlds(r, c, at);
    board_enter(r->mine, PHASE_ENDED, run_step(r));
    r->m.quiet = true;  // main.c prints it
    report_failure(r, "failed", rc);
    err_record why = *err_last();
    run_close(r);
    free(r);
    return rc == ERR_OK ? rc : err_restore(&why);
}
