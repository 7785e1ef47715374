// trainer/saving.c: a run's checkpoints: those that steps wait for, and those that are written beside them.
#include "trainer/run.h"

#include "base/clock.h"
#include "trainer/restore.h"

#include <inttypes.h>
#include <stdio.h>

bool run_save_is_due(const run *r) {
    const config *c = r->x.cfg;
    bool best = c->checkpoint.keep_best && r->x.progress.best_step == run_step(r);
    return run_is_due(run_step(r), c->checkpoint.every) || run_step(r) == c->run.steps || best;
}

void run_log_checkpoint(run *r, const checkpoint_record *said, bool due) {
    monitor_log(&r->m, &(record){RECORD_SAVED, .saved = *said});
    if (due) monitor_log(&r->m, &(record){RECORD_CHECKPOINT, .checkpoint = *said});
}

void run_record_checkpoint(run *r, double ms, bool say) {
    char hash[17];
    if (ckpt_hash(&r->x.state.ckpt, hash) != ERR_OK) return;  // ranks are lost: the next step reports it
    if (say) monitor_say(&r->m, "saved step %" PRId64 "  hash %s  %.2f s", run_step(r), hash, ms / 1e3);
    const checkpoint_record said = {.step = run_step(r), .ms = ms, .time = say ? clock_wall() : 0, .hash = hash};
    run_log_checkpoint(r, &said, run_save_is_due(r));
}

void run_mark_best(run *r) {
    run_progress *at = &r->x.progress;
    err_t rc = ckpt_mark_best(r->x.dir, &r->x.state.ckpt, at->best_step, &r->x.faults);
    r->best_pending = rc != ERR_OK;
    if (rc != ERR_OK) monitor_event(&r->m, "best_failed", at->best_step, err_last()->text);
}

int64_t run_log_bytes(const run *r) { return r->x.ranks->rank == 0 ? monitor_log_bytes(&r->m) : 0; }

void run_prune(run *r, const run_progress *saved) {
    if (ckpt_prune(r->x.dir, &r->x.state.ckpt, saved, saved->step, (int)r->x.cfg->checkpoint.keep) != ERR_OK)
        monitor_event(&r->m, "prune_failed", saved->step, err_last()->text);
}

bool run_is_writing_best(const run *r) {
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
    run_log_checkpoint(r, &said, true);
    if (!early || waited_s < 0.001 || run_step(r) == r->x.cfg->run.steps) return;
    snprintf(text, sizeof text,
             "step %" PRId64 " waited %.3f s until the checkpoint of step %" PRId64
             " was written: the disk is slower than [checkpoint] every asks for",
             run_step(r), waited_s, w->at.step);
    monitor_event(&r->m, "checkpoint_waited", run_step(r), text);
}

err_t run_finish_writing(run *r) {
    session *x = &r->x;
    run_progress *at = &x->progress;
    ckpt_written w;
    if (!ckpt_writer_busy(x->writer)) return ERR_OK;
    bool best = run_is_writing_best(r), early = !r->written;
    double start = clock_now();
    board_enter(r->mine, PHASE_SAVING, ckpt_writer_at(x->writer)->step);
    TRY(session_settle(x));
    err_t rc = ckpt_writer_finish(x->writer, &w);
    r->written = false;
    if (rc != ERR_OK) {
        monitor_event(&r->m, "checkpoint_failed", w.at.step, err_last()->text);
        if (best) at->best_loss = r->unsaved.best_loss, at->best_step = r->unsaved.best_step;
        return x->ranks->table->query(x->ranks);
    }
    r->saved = w.at.step;
    say_written(r, &w, clock_now() - start, early);
    if (best) run_mark_best(r);
    run_prune(r, &w.at);
    return ERR_OK;
}

err_t run_begin_writing(run *r, const run_progress *before) {
    session *x = &r->x;
    TRY(run_finish_writing(r));
    board_enter(r->mine, PHASE_SAVING, run_step(r));
    TRY(session_settle(x));
    TRY(comm_agree_ok(x->ranks, run_leads_node(r) ? run_lock_keep(&r->lock, x->dir) : ERR_OK, x->s));
    TRY(session_fetch(x));
    x->progress.log_bytes = run_log_bytes(r);
    TRY(comm_agree_max(x->ranks, &x->progress.log_bytes, x->s));  // rank 0 has the log
    r->unsaved = *before;
    ckpt_writer_begin(x->writer, &x->state.ckpt, &x->progress);
    return ERR_OK;
}

err_t run_save(run *r, bool again) {
    session *x = &r->x;
    run_progress *at = &x->progress;
    TRY(run_finish_writing(r));
    double start = clock_now();
    board_enter(r->mine, PHASE_SAVING, x->progress.step);
    TRY(session_settle(x));
    TRY(comm_agree_ok(x->ranks, run_leads_node(r) ? run_lock_keep(&r->lock, x->dir) : ERR_OK, x->s));
    TRY(session_fetch(x));
    monitor_sync(&r->m);
    at->log_bytes = run_log_bytes(r);
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
    if (!again) run_record_checkpoint(r, 1e3 * (clock_now() - start), true);
    return ERR_OK;
}
