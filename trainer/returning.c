// trainer/returning.c: from where a world goes on: what the ranks that were left hold, a snapshot in memory, a
// checkpoint; and going back to it inside a world. Then the log ends where that state is.
#include "trainer/run.h"

#include "base/clock.h"
#include "base/io.h"
#include "trainer/log/cut.h"
#include "trainer/session/restore.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

// Some nodes of the run are out, and what these lack may be on them: the run is not damaged, and the service manager
// may start it again, with all of them.
static err_t may_come_back(void) {
    char why[ERR_TEXT];
    snprintf(why, sizeof why, "%s", err_last()->text);
    return err_set(ERR_UNAVAILABLE,
                   "the nodes that are left have too little to go on: the same command on all nodes does, when they "
                   "reach each other again. %.700s",
                   why);
}

// [run] resume speaks of the start of a run (at), not of what follows.
static err_t resume_from_disk(run *r, const launch *at, bool *found) {
    session *x = &r->x;
    comm_be_patient(x->ranks->host, true);  // for the slowest disk
    err_t rc = ckpt_clean(x->dir, &x->state.ckpt);
    if (rc == ERR_OK) rc = session_resume(x, found, &r->m);
    comm_be_patient(x->ranks->host, false);
    if (rc == ERR_DATA && r->fenced && at && at->epoch > 0) rc = may_come_back();
    TRY(rc);
    if (at && at->epoch == 0) TRY(check_resume(x, *found));
    r->saved = *found ? x->progress.step : -1;
    return ERR_OK;
}

bool run_keeps_log(const run *r) { return r->x.ranks->rank == 0 || (r->fenced && run_leads_node(r)); }

// As session_recall takes it.
static int64_t logged_to(const run *r) { return run_keeps_log(r) ? atomic_load(&r->b->logged) : INT64_MAX; }

// least, logged: as session_recall takes them.
static err_t recall(run *r, int64_t least, int64_t logged) {
    session_recalled from = {.least = least, .logged = logged, .kept = r->kept};
    TRY(session_recall(&r->x, &from, &r->m));
    r->recalled = from.found;
    if (!from.found) return ERR_OK;
    r->live = from.live, r->saved = from.saved, r->unlogged = from.unlogged;
    return ERR_OK;
}

// What the world before was writing. A disk that can't be cleaned is no reason to end while the state is in memory: if
// it is not, reading says the same again.
static err_t clean_up(run *r) {
    err_t rc = ckpt_clean(r->x.dir, &r->x.state.ckpt);
    if (rc != ERR_IO || r->x.vault.fd < 0) return rc;
    monitor_event(&r->m, "unreadable", 0, err_last()->text);
    return ERR_OK;
}

// From disks, unless they fail, or what is whole on them is older than what is in memory.
static err_t disk_or_memory(run *r, const launch *at, bool *found) {
    err_t rc = resume_from_disk(r, at, found);
    if (at->epoch == 0 || (rc != ERR_OK && rc != ERR_DATA && rc != ERR_IO)) return rc;
    const err_record why = *err_last();
    int64_t disk = rc == ERR_OK && *found ? run_step(r) : -1;
    TRY(recall(r, disk + 1, logged_to(r)));
    if (!r->recalled) return rc == ERR_OK ? rc : err_restore(&why);
    *found = true;
    r->saved = disk;
    return ERR_OK;
}

static err_t look_for_state(run *r, const launch *at, bool *found) {
    if (at->epoch > 0) TRY(clean_up(r));
    TRY(recall(r, RECALL_NEWEST, logged_to(r)));
    *found = r->recalled;
    return *found ? ERR_OK : disk_or_memory(r, at, found);
}

err_t run_find_state(run *r, const launch *at) {
    session *x = &r->x;
    bool found = false;
    comm_be_patient(x->ranks->host, true);  // for the slowest disk
    err_t rc = look_for_state(r, at, &found);
    comm_be_patient(x->ranks->host, false);
    TRY(rc);
    return found ? ERR_OK : session_init(x);
}

err_t run_find_left(run *r, bool *found) {
    comm_be_patient(r->x.ranks->host, true);  // for the slowest disk
    err_t rc = clean_up(r);
    if (rc == ERR_OK) rc = recall(r, RECALL_NEWEST, logged_to(r));
    comm_be_patient(r->x.ranks->host, false);
    *found = rc == ERR_OK && r->recalled && r->saved < run_step(r);
    return rc;
}

// Of the log that this world goes on with. Where nodes come and go each one has a log: what it tells is the same.
static err_t log_length(const run *r, int64_t *bytes) {
    char path[IO_PATH];
    bool goes_on = r->saved >= 0 || r->recalled;
    *bytes = goes_on ? r->x.progress.log_bytes : 0;
    if (!goes_on || (!r->fenced && !r->live)) return ERR_OK;
    TRY(io_path(path, "%s/log.jsonl", r->x.dir));
    return log_cut(path, run_step(r), r->recalled, bytes);
}

err_t run_open_log(run *r) {
    const session *x = &r->x;
    int64_t bytes;
    if (!run_keeps_log(r)) return ERR_OK;
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

// Its record was written after the checkpoint stored the log's length, and before a snapshot did, unless the ranks were
// lost in between.
void run_recall_checkpoint(run *r) {
    const run_progress *at = &r->x.progress;
    char hash[17];
    if (r->saved < 0) return;
    if (!r->recalled) run_record_checkpoint(r, 0, false);
    if (r->unlogged && run_leads_node(r) && ckpt_saved_hash(r->x.dir, r->saved, hash) == ERR_OK)
        run_log_checkpoint(r, &(checkpoint_record){.step = r->saved, .hash = hash}, true);
    if (r->x.cfg->checkpoint.keep_best && at->best_step == r->saved && at->best_step > 0) run_mark_best(r);
}

void run_begin_at(run *r) {
    const run_progress *at = &r->x.progress;
    r->settled = config_is_served(r->x.cfg) ? -1 : at->step, r->before = at->step - at->updates - at->skipped;
    if (run_keeps_log(r)) atomic_store(&r->b->logged, at->step);
}

void run_log_start(run *r) {
    const session *x = &r->x;
    int64_t step = run_step(r);
    monitor_log(&r->m, &(record){RECORD_START, .start = {step, step * x->cfg->batch.global * x->net->units}});
}

err_t run_go_back(run *r, bool anew) {
    session *x = &r->x;
    bool found = true;
    TRY(run_finish_writing(r));         // of a step in which the ranks held the same
    TRY(recall(r, RECALL_NEWEST, -1));  // to what was compared, and that is a snapshot
    if (!r->recalled) TRY(resume_from_disk(r, NULL, &found));
    if (!found && !anew)
        return err_set(ERR_UNAVAILABLE, "there is no checkpoint yet to go back to; the same command begins anew");
    if (!found) {
        x->progress = progress_none();
        TRY(state_forget(&x->state));
        TRY(session_init(x));
    }
    TRY(session_feed(x, x->cfg->run.steps));
    TRY(comm_agree_ok(x->ranks, run_open_log(r), x->s));
    run_log_start(r);
    run_recall_checkpoint(r);
    r->bad = (divergence){0};
    run_begin_at(r);
    report_clear(&r->step_times), report_clear(&r->rank_times);
    atomic_store(&r->b->step, run_step(r));
    return ERR_OK;
}

const char *run_where_back(const run *r) {
    return r->recalled ? "the snapshot in memory" : r->saved >= 0 ? "the newest checkpoint" : "the beginning";
}
