// trainer/session/restore.h: where a session's weights come from: chance, weights of others, or a checkpoint; and what
// its own checkpoints say of it. All of these are collective.
#ifndef TRAINER_SESSION_RESTORE_H
#define TRAINER_SESSION_RESTORE_H

#include "trainer/log/monitor.h"
#include "trainer/session/session.h"

// Fills in what this run's checkpoints say of it, above all the bits keys. session_enter calls it.
err_t session_describe(session *x);

// Random weights, or those of [model] init_from; step 0.
err_t session_init(session *x);

// The newest good checkpoint of the run: weights, optimizer state, progress. *found = false: there is none. What
// differs from the process that wrote it is logged as events of m.
err_t session_resume(session *x, bool *found, monitor *m);

// The same from memory, where a world before this one has left its state. What ranks held alike when others were lost
// ([snapshot] live) is worth more than their last snapshot, if all that are left have kept it after the same step, and
// hold the same: who lies has made the sums of all wrong. And log.jsonl must have what was to be logged up to there.
enum { RECALL_NEWEST = -1 };  // unless the newest checkpoint, by its name, is of a later step
#define RECALL_NEW INT64_MAX  // this process was in no world that lost ranks
typedef struct session_recalled {
    int64_t least;   // in: the oldest step of use, or RECALL_NEWEST
    int64_t logged;  // in: of this node's log.jsonl, the newest step that is in it; INT64_MAX: this rank keeps none
    int64_t kept;    // in: the step after which this rank has kept its state, -1: it could not; RECALL_NEW
    bool found;      // else the rest is as it was
    bool live;       // the state of ranks that were left, not a snapshot
    bool unlogged;   // that world did not live to log its newest checkpoint
    int64_t saved;   // the step of the newest checkpoint, -1: there is none
} session_recalled;
err_t session_recall(session *x, session_recalled *r, monitor *m);

// Copies the state into memory that outlives this world. After session_settle. A copy that arrives damaged is an event
// of m, and is not used.
err_t session_snapshot(session *x, int64_t saved, monitor *m);

// The same after others were lost, without asking anybody: this rank's part of what it held alike with them. step: the
// last one that it has logged, and after which nothing else was left to do; before: steps that the state's counters
// don't know of. *kept: false where the state is of another step, or ranks hold nothing alike.
err_t session_keep(session *x, int64_t step, int64_t before, int64_t saved, bool *kept);

// The values of frozen rows, before session_describe. A checkpoint does not have them.
err_t session_freeze(session *x);

// path = of a run's directory the best checkpoint, *best = true; or else the newest, *best = false. *found = false: it
// has none.
err_t run_checkpoint(const char *run_dir, char path[IO_PATH], bool *best, bool *found);

// The weights of one checkpoint directory, or, when dir is NULL, of the run's best, or else its newest.
err_t session_load(session *x, const char *dir);

// The same for evaluating and sampling, with the products that the checkpoint was trained with; but a run without a
// checkpoint has the weights of [model] init_from, where that is set: then *initial = true.
err_t session_weights(session *x, const char *dir, bool *initial);

// Reads the masters, and into x->progress what the device counts, for ckpt_save and the hashes.
err_t session_fetch(session *x);

#endif
