// trainer/saving.c: a run's checkpoints: those that steps wait for, and those that are written beside them.
#include "trainer/run.h"

#include "base/clock.h"
#include "trainer/session/restore.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool run_save_is_due(const run *r) {
    const config *c = r->x.cfg;
    bool best = c->checkpoint.keep_best && r->x.progress.best_step == run_step(r);
    return run_is_due(run_step(r), c->checkpoint.every) || run_step(r) == c->run.steps || best ||
           run_gave_up_waiting(r);
}

bool run_knows_best(const run *r) { return strcmp(r->x.progress.best_of, r->x.cfg->resolved.best_of) == 0; }

bool run_gave_up_waiting(const run *r) {
    const int64_t patience = r->x.cfg->eval.patience;
    return patience > 0 && run_knows_best(r) && r->x.progress.no_better >= patience;
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

static bool has_snapshots(const run *r) { return r->x.cfg->cluster.elastic && r->x.cfg->snapshot.every > 0; }

// What becomes of a run whose state is in memory, too.
static void say_missed(const run *r, char *text, size_t room, int64_t step, bool over) {
    const config *c = r->x.cfg;
    int64_t next = c->checkpoint.every ? run_step(r) / c->checkpoint.every * c->checkpoint.every + c->checkpoint.every
                                       : c->run.steps;
    if (next > c->run.steps) next = c->run.steps;
    err_record why = *err_last();
    int n = snprintf(text, room, "%.1500s. %" PRId64 " missed in a row; ", why.text, r->missed);
    if (n < 0 || (size_t)n >= room) return;
    text += n, room -= (size_t)n;
    if (over || r->last || step == c->run.steps) snprintf(text, room, "mend that disk or make room on it");
    else if (c->checkpoint.misses)
        snprintf(text, room,
                 "the run goes on, with its state in memory, and tries again at step %" PRId64
                 ": mend that disk or make room on it. After %" PRId64 " in a row the run ends ([checkpoint] misses)",
                 next, c->checkpoint.misses);
    else
        snprintf(text, room,
                 "the run goes on, with its state in memory, and tries again at step %" PRId64
                 ": mend that disk or make room on it",
                 next);
}

// The ranks end as those do that were asked to stop: nobody takes them for lost, and the supervisor's exit code is that
// of a disk.
static err_t give_up(run *r, const err_record *why) {
    char text[ERR_TEXT];
    snprintf(text, sizeof text,
             "%" PRId64
             " checkpoints in a row could not be written ([checkpoint] misses): mend the disk that the last one "
             "names, and start the same command again; it continues after step %" PRId64 ". %.700s",
             r->missed, r->saved < 0 ? 0 : r->saved, why->text);
    atomic_store(&r->b->gave_up, BOARD_NO_DISK);
    monitor_event(&r->m, "failed", run_step(r), text);
    return comm_agree_ok(r->x.ranks, err_set(ERR_INTERRUPTED, "%s", text), r->x.s);
}

// Collective, with the error that all ranks have: the checkpoint of `step` could not be written.
static err_t miss(run *r, int64_t step) {
    const session *x = &r->x;
    char text[ERR_TEXT + 320];
    if (!has_snapshots(r)) {
        monitor_event(&r->m, "checkpoint_failed", step, err_last()->text);
        return x->ranks->table->query(x->ranks);
    }
    err_record why = *err_last();
    r->missed++;
    TRY(comm_agree_max(x->ranks, &r->missed, x->s));  // ranks that came later have seen fewer
    int64_t most = x->cfg->checkpoint.misses;
    bool over = most && r->missed >= most;
    err_restore(&why);
    say_missed(r, text, sizeof text, step, over);
    monitor_event(&r->m, "checkpoint_failed", step, text);
    if (!over) return x->ranks->table->query(x->ranks);
    return give_up(r, &why);
}

// Before a checkpoint. *missed: the lock can't be had where the disk fails; then there is no checkpoint.
static err_t keep_lock(run *r, bool *missed) {
    const session *x = &r->x;
    *missed = false;
    err_t rc = comm_agree_ok(x->ranks, run_leads_node(r) ? run_lock_keep(&r->lock, x->dir) : ERR_OK, x->s);
    if (rc != ERR_IO || !has_snapshots(r)) return rc;
    *missed = true;
    return miss(r, run_step(r));
}

void run_prune(run *r, const run_progress *saved) {
    fault_kill(&r->x.faults, FAULT_PRUNE);
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
        if (best) progress_take_best(at, &r->unsaved);
        return miss(r, w.at.step);
    }
    r->saved = w.at.step, r->missed = 0;
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
    bool missed;
    TRY(keep_lock(r, &missed));
    if (missed) {
        bool best = x->progress.best_step == run_step(r);
        if (best) progress_take_best(&x->progress, before);
        return ERR_OK;
    }
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
    bool missed;
    TRY(keep_lock(r, &missed));
    if (missed) return ERR_OK;
    TRY(session_fetch(x));
    monitor_sync(&r->m);
    at->log_bytes = run_log_bytes(r);
    TRY(comm_agree_max(x->ranks, &at->log_bytes, x->s));  // rank 0 has the log; every node's manifest stores its length
    comm_be_patient(x->ranks->host, true);                // for the slowest disk
    x->ranks->host->phase.what = "checkpoint", x->ranks->host->phase.step = x->progress.step,
    x->ranks->host->phase.number = 0;
    err_t rc = ckpt_save(x->dir, &x->state.ckpt, &x->progress, 0, &x->faults);
    comm_be_patient(x->ranks->host, false);
    if (rc != ERR_OK) return miss(r, x->progress.step);
    r->saved = x->progress.step, r->missed = 0;  // between_steps prunes
    if (!again) run_record_checkpoint(r, 1e3 * (clock_now() - start), true);
    return ERR_OK;
}
