// trainer/session/session.h: everything a run has open, in two lifetimes. The machine (trainer/session/machine.h) is
// what this process computes with, whichever ranks take part. The world is the ranks that take part now, and what is
// dealt among them. A world can be left and another one entered inside one process. Weights come from
// trainer/session/restore.h.
//
//   session_open = session_machine, session_enter      session_init | session_resume | session_load
//   session_feed      session_step, session_step, ...  session_close = session_leave, and the machine's end
#ifndef TRAINER_SESSION_SESSION_H
#define TRAINER_SESSION_SESSION_H

#include "base/fault.h"
#include "comm/groups.h"
#include "comm/team/team.h"
#include "data/loader.h"
#include "data/text/chat.h"
#include "data/tokenizer/tokenizer.h"
#include "trainer/checkpoint/progress.h"
#include "trainer/checkpoint/vault.h"
#include "trainer/checkpoint/writer.h"
#include "trainer/config/config.h"
#include "trainer/session/evaluate.h"
#include "trainer/session/exam.h"
#include "trainer/step/served.h"

// INFERENCE: no optimizer, no gradients, no loader. BENCH: training on made-up samples. PROFILE: the same on a device
// that measures every operation. TUNE: as BENCH, without the plans of [device] plans.
typedef enum { SESSION_TRAIN, SESSION_INFERENCE, SESSION_BENCH, SESSION_PROFILE, SESSION_TUNE } session_kind;

// One of [eval] sets.
typedef struct named_set {
    char name[SET_NAME];
    source *from;
} named_set;

typedef struct session {
    const config *cfg;
    const config *given;  // what the machine was opened with; cfg may have values of a checkpoint in their place
    config *own;          // cfg, where a checkpoint decided keys that were left open; NULL: as given
    session_kind kind;
    char dir[1024];  // DIR/NAME
    fault_list faults;
    // The machine.
    device *dev;
    stream *s;
    model *net;
    source *train, *val;       // NULL: not opened
    named_set set[SETS_MOST];  // what else it is evaluated on
    int sets;
    tokenizer *words;            // of samples; NULL: bytes
    chat *chat;                  // what prompts are put into; NULL: they are as they are
    char stop[2 * CONFIG_TEXT];  // [sample] stop, and what ends an answer
    exam exam;                   // a text and questions of evaluations; empty: none
    double possible;             // the best possible loss on the validation data; 0: not known
    class_answer *answers;       // (samples of val) of the newest evaluation, of a model of classes; NULL: not wanted
    text_answer *replies;        // the same of a model that says answers
    char plans[17];              // hash of the file of [device] plans; "" without one
    // The world.
    flight_rank *flight;   // records the world's calls; set as `waiting` is, NULL: nothing does
    team_waiting waiting;  // set between session_machine and session_enter, or left empty
    team *team;            // NULL with one rank
    comm *ranks;
    grid shape;
    groups groups;
    stages stages;
    train_state state;
    step_runner runner;
    evaluator evaluator;
    int64_t *deal;    // lanes of each rank that shares rows with this one; NULL: as equal as they can be
    int64_t *weight;  // what each of them keeps beside the others ([server]); NULL: all as much
    int64_t *lanes;   // of this rank, where they are dealt in turns by a list: for the loader
    served *served;   // steps that servers do not wait for all of; NULL: they do
    loader *data;
    void *ring;  // the loader's buffers
    size_t ring_bytes;
    vault vault;            // copies of the state that outlive this world; fd < 0: there are none
    err_record torn;        // damage that was found in them, and not said yet
    ckpt_writer *writer;    // of [checkpoint] async; NULL: steps wait for checkpoints
    run_progress progress;  // finished steps, counted when they are queued, and what is known of the run
} session;

// Can so many ranks run this model? ERR_CONFIG: its blocks can't be cut into these stages, or no such schedule has
// their micro-batches.
err_t session_fits(const config *c, int world);

// Opens a machine and enters a world. at: as in session_enter.
err_t session_open(session *x, const config *c, session_kind kind, const launch *at);
void session_close(session *x);

// The world: connections to the other ranks, and this rank's tensors. Then trainer/session/restore.h sets the weights.
// at: this rank's place among others, which outlives the world; NULL: alone. Collective, as is everything below.
// session_leave waits for the others as team_leave does; another session_enter may follow.
err_t session_enter(session *x, const launch *at);
void session_leave(session *x);

// For a plan: the same, without allocating memory, as rank `ranks->rank` of a world that need not exist.
err_t session_plan(session *x, const config *c, comm *ranks);

// The same once more, as another rank, on the same machine.
err_t session_plan_next(session *x, comm *ranks);

// A number that stands for the datasets of an open machine; never 0.
uint64_t session_data_mark(const session *x);

// Bytes of host memory that copies of this rank's state take: snapshots, and that of a checkpoint written beside steps.
int64_t session_snapshots(const session *x);

// Call it before closing a session that ended with rc: an error that only this rank knows then ends the run on all
// ranks, before anything here waits for the others.
void session_abort(session *x, err_t rc);

// Waits until none of this rank's communication is in flight. Call it before any other collective.
err_t session_settle(session *x);

// Starts the loader after the last finished step; it delivers up to step `last`.
err_t session_feed(session *x, int64_t last);

// With servers that do not wait for all of a step, in place of session_step: opens what periods of steps need, after
// the weights are there; and the steps up to `last`, which count as finished (trainer/step/served.h).
err_t session_serve(session *x);
err_t session_period(session *x, int64_t last, served_results *out);

// Between two steps, when none is queued: other lanes for each rank that shares them (of each model of several ranks),
// the same on all ranks. deal: [data] but for servers. `[parallel] balance` says whether it may follow.
err_t session_deal(session *x, const int64_t *deal);

// The next step.
err_t session_step(session *x, step_result *out);

// Its two halves (trainer/step/step.h). A step counts as finished (progress.step) as soon as it is queued. If it turns
// out void, the count goes back to before it.
err_t session_queue(session *x);
err_t session_collect(session *x, step_result *out);

#endif
