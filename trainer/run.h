// trainer/run.h: a run as one of its ranks sees it, for the files that carry it out: train.c, the loop; returning.c,
// from where a world goes on; telling.c, what it says; saving.c, its checkpoints. Internal to trainer/.
#ifndef TRAINER_RUN_H
#define TRAINER_RUN_H

#include "trainer/diverged.h"
#include "trainer/evicting.h"
#include "trainer/healed.h"
#include "trainer/lies.h"
#include "trainer/lock.h"
#include "trainer/log/board.h"
#include "trainer/log/monitor.h"
#include "trainer/log/power.h"
#include "trainer/log/report.h"
#include "trainer/redeal.h"
#include "trainer/session/session.h"
#include "trainer/speed.h"
#include "trainer/spike.h"

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
    double read_at;        // when the loader was last asked how it reads
    run_lock lock;         // of DIR/NAME
    int64_t saved;         // step of the newest checkpoint, -1: none
    int64_t missed;        // checkpoints in a row that could not be written: the most that any rank has seen
    bool turns;            // the world was left because the nodes said so, after a step that is saved
    bool last;             // this world saves what is in memory, and the run ends
    bool recalled;         // this world goes on from a state in memory
    bool live;             // that of the ranks that were left when others were lost
    int64_t kept;          // as session_recall takes it, of the loss before this world
    int64_t collected;     // the last step whose results are known
    int64_t settled;       // the last step of which nothing is left to do: logged, evaluated, saved; -1: none
    int64_t before;        // steps of the run that the counters of its state don't know of
    bool unlogged;         // the newest checkpoint is of the world before this one, which did not live to log it
    bool best_pending;     // the weights of at.best_step are saved, but `best` does not point at them yet
    bool written;          // all ranks have written the checkpoint that was begun: it is finished before the next step
    run_progress unsaved;  // of that checkpoint: as it was before its step was evaluated
    divergence bad;        // has it diverged?
    int64_t spiked;        // after this step the run is to go back ([optimizer] rollback); 0: not
    double logged_at;      // when the last step was logged, or the next one begun
    bool confirmed;        // the ranks have compared their matmul plans
    healed_times healed;   // what the loss has cost that ended the world before this one
    lies lies;             // have they held the same? It outlives the world
    bool fenced;           // nodes come and go (launch)
    redeal lanes;          // [parallel] balance
    evicting evicting;     // [cluster] evict_slow
} run;

static inline int64_t run_step(const run *r) { return r->x.progress.step; }
static inline bool run_leads_node(const run *r) { return r->x.ranks->place[r->x.ranks->rank].local == 0; }
static inline bool run_is_due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

// --- trainer/returning.c ---------------------------------------------------------------------------------------------

// The state with which a world begins: that of a world before this one, from memory or disk, or initial weights.
err_t run_find_state(run *r, const launch *at);

// What the ranks hold in memory, of a step after the newest checkpoint. *found: they hold all of it.
err_t run_find_left(run *r, bool *found);

// In the world as it is, to the newest state that is stored: nobody is lost. anew: to the beginning, if none is.
err_t run_go_back(run *r, bool anew);

// Where the state came from, in words.
const char *run_where_back(const run *r);

// The state and the log are those of a step of which nothing is left to do.
void run_begin_at(run *r);

// Does this rank write log.jsonl? Rank 0 does, and where nodes come and go the first rank of each.
bool run_keeps_log(const run *r);

// The log, cut back to what it was when the state was current; and the record that a part of it begins.
err_t run_open_log(run *r);
void run_log_start(run *r);

// Of the checkpoint that the state is of, what the log lacks.
void run_recall_checkpoint(run *r);

// --- trainer/telling.c -----------------------------------------------------------------------------------------------

// What to do about a run whose last `count` steps, up to this one, are bad; loss: as in diverged_run.
const char *run_advice(const run *r, int64_t step, int64_t count, double loss, char text[DIVERGED_TEXT]);

// A run that ends should not look well if its loss does not.
void run_say_if_ruined(run *r);

// Puts the loader's figures on the board, every half second: readers of the board come once a second.
void run_show_reading(run *r, double now);

// From where it continues; what ended the world before this one; and, once, that it is as far as it was before that.
void run_say_resumed(run *r);
void run_say_healed(run *r, const launch *at);
void run_say_caught_up(run *r, int64_t step);

// The record of a step that took so many milliseconds, and what it says of the run.
err_t run_log_step(run *r, const step_result *s, double ms);

// --- trainer/saving.c ------------------------------------------------------------------------------------------------

// Would this step be saved without a request to stop? Only then its checkpoint is logged, so that the log of a run that
// was stopped reads like that of one that was not.
bool run_save_is_due(const run *r);

// Is the best of the progress by the loss on the data that [eval] best_of says?
bool run_knows_best(const run *r);

// Were the last [eval] patience evaluations all no better than the best? Then the run is over.
bool run_gave_up_waiting(const run *r);

// due: its step was to be saved without a request to stop.
void run_log_checkpoint(run *r, const checkpoint_record *said, bool due);

// After a checkpoint was written in so many milliseconds. say: on the terminal, too.
void run_record_checkpoint(run *r, double ms, bool say);

// Points `best` at the checkpoint of the lowest loss; tried again later if it fails.
void run_mark_best(run *r);

// Of log.jsonl, on rank 0; 0 on others.
int64_t run_log_bytes(const run *r);

// saved: as it was when the newest checkpoint was begun.
void run_prune(run *r, const run_progress *saved);

// Of the step with the lowest loss? What is compared with that loss waits until the checkpoint is known to be there.
bool run_is_writing_best(const run *r);

// Collective, between two steps: the checkpoint that was begun is waited for, and becomes the newest.
err_t run_finish_writing(run *r);

// Copies what this rank has of the state to where its writer has it.
err_t run_begin_writing(run *r, const run_progress *before);

// A checkpoint that can't be written is logged as an event: the previous one is intact, and training goes on. Where the
// state is in memory, too, ERR_INTERRUPTED after [checkpoint] misses of them in a row. `again`: this step will be saved
// once more, and its checkpoint is logged then.
err_t run_save(run *r, bool again);

#endif
