// trainer/train.h: a run from its INI to its last step, and the other verbs.
#ifndef TRAINER_TRAIN_H
#define TRAINER_TRAIN_H

#include "data/loader.h"
#include "data/tokenizer/tokenizer.h"
#include "trainer/config/config.h"
#include "trainer/evaluate.h"
#include "trainer/exam.h"
#include "trainer/log/monitor.h"
#include "trainer/step/step.h"
#include "trainer/node/supervisor.h"

// Everything a run has open, in two lifetimes. The machine: what this process computes with, whichever ranks take part.
// The world: the ranks that take part now, and what is dealt among them. A world can be left and another one entered
// inside one process. Tests drive it through session_open, session_step and session_close.
typedef struct session {
    const config *cfg;
    config *own;     // cfg, where a checkpoint decided keys that were left open; NULL: as given
    int kind;        // session_kind
    char dir[1024];  // DIR/NAME
    fault_list faults;
    // The machine.
    device *dev;
    stream *s;
    model *net;
    source *train, *val;  // NULL: not opened
    tokenizer *words;     // of samples; NULL: bytes
    exam exam;            // a text and questions of evaluations; empty: none
    double possible;      // the best possible loss on the validation data; 0: not known
    char plans[17];       // hash of the file of [device] plans; "" without one
    // The world.
    team_waiting waiting;  // set between session_machine and session_enter, or left empty
    team *team;            // NULL with one rank
    comm *ranks;
    grid shape;
    groups groups;
    stages stages;
    train_state state;
    step_runner runner;
    evaluator evaluator;
    loader *data;
    void *ring;  // the loader's buffers
    size_t ring_bytes;
    int64_t step;  // finished steps
} session;

// LOOK: no optimizer, no gradients, no loader. BENCH: training on made-up samples. PROFILE: the same on a device that
// measures every operation. TUNE: as BENCH, without the plans of [device] plans.
typedef enum { SESSION_TRAIN, SESSION_LOOK, SESSION_BENCH, SESSION_PROFILE, SESSION_TUNE } session_kind;

// Can so many ranks run this model? ERR_CONFIG: its blocks can't be cut into these stages, or no such schedule has
// their micro-batches.
err_t session_fits(const config *c, int world);

// Opens a machine and enters a world.
err_t session_open(session *x, const config *c, session_kind kind, const launch *at);
void session_close(session *x);

// The machine: the device of that number, model and data as the INI says.
err_t session_machine(session *x, const config *c, session_kind kind, int device);

// Model and training data alone, as the INI says, without a device. session_close() it.
err_t session_data(session *x, const config *c);

// DIR/config.ini: the settings in force, with the build and the data's hash.
err_t session_write_config(const session *x, const char *dir);

// The world: connections to the other ranks, and this rank's tensors. session_init or a checkpoint sets the weights
// later. at: this rank's place among others, which outlives the world; NULL: alone. Collective, as is everything below
// that changes or saves the state. session_leave waits for the others as team_leave does; another session_enter may
// follow.
err_t session_enter(session *x, const launch *at);
void session_leave(session *x);

// For a plan: the same, without allocating memory, as rank `ranks->rank` of a world that need not exist.
err_t session_plan(session *x, const config *c, comm *ranks);

// Call it before closing a session that ended with rc: an error that only this rank knows then ends the run on all
// ranks, before anything here waits for the others.
void session_abort(session *x, err_t rc);

// Waits until none of this rank's communication is in flight. Call it before any other collective.
err_t session_settle(session *x);

// Random weights, or those of [model] init_from; step 0.
err_t session_init(session *x);

// The newest good checkpoint of the run: weights, optimizer state, counters. *found = false: there is none.
err_t session_resume(session *x, bool *found, monitor *m);

// The weights of one checkpoint directory, or, when dir is NULL, of the run's best, or else its newest.
err_t session_load(session *x, const char *dir);

// For looking at: the same, with the products that the checkpoint was trained with; but a run without a checkpoint has
// the weights of [model] init_from, where that is set: then *initial = true.
err_t session_weights(session *x, const char *dir, bool *initial);

// Starts the loader after the last finished step; it delivers up to step `last`.
err_t session_feed(session *x, int64_t last);

// What part k of a mix of training data gives to the run, as one line of text.
enum { SESSION_PART = 512 };
void session_part(const session *x, int k, char dst[SESSION_PART]);

// The next step.
err_t session_step(session *x, step_result *out);

// Its two halves (trainer/step/step.h). x->step counts a step as soon as it is queued. If a step turns out void,
// x->step goes back to before it.
err_t session_queue(session *x);
err_t session_collect(session *x, step_result *out);

// Reads the current counters of the state, for ckpt_save and the hashes.
err_t session_counters(session *x);

// Texts that the model generates after prompts, as [sample] says, [sample] batch of them at a time. The caller frees
// each `text`, also after a failure. With several ranks, rank 0 calls it and the others call session_hear_sample, for
// one prompt; in ZeRO stage 3, in a pipeline and where ranks share layers all ranks call it (session_writes_together).
typedef struct sample_text {
    const char *prompt;
    char *text;                     // out: what follows it
    int64_t prompt_tokens, tokens;  // out
    const char *ended;              // out: "length", "stop", "end of text"; NULL: not yet
    double first_s, last_s;         // out: by clock_now, when its first and its last token were there
} sample_text;

// Told as texts grow: `bytes` more of text `number` will not be taken back. They end with a whole character, except at
// the text's end, where `ended` is set.
typedef struct sample_listener {
    void (*grown)(void *ctx, int number, const char *bytes, size_t n);
    void *ctx;
} sample_listener;

static inline bool session_writes_together(const session *x) {
    return x->state.shards.weights || x->runner.pipelined || step_shares(&x->runner);
}
err_t session_samples(session *x, sample_text *texts, int count, const sample_listener *listener);
err_t session_hear_sample(session *x);

// One of them. The caller frees *out.
err_t session_sample(session *x, const char *prompt, char **out);
// Whether such a sample can be made. ERR_CONFIG: the model's vocabulary lacks a token of the prompt. Nothing is checked
// where [sample] tokens = 0. Opening a session that trains checks [sample] prompt.
err_t session_check_prompt(const session *x, const char *prompt);

// A rank of `lockstep CONFIG.ini`: trains to the last step. b->stop: finish the step, save, return ERR_INTERRUPTED.
err_t train_rank(const config *c, const launch *at, board *b);

// --- verbs -----------------------------------------------------------------------------------------------------------

// Opens everything, reads and checks all data, prints what the run would be.
err_t verb_check(const config *c, FILE *out);
err_t verb_pack(const config *c, FILE *out);

// Measures how the matrix products of a step are best computed on this GPU, and writes what [device] plans reads
// (trainer/tuned.h).
err_t verb_tune(const config *c, FILE *out);

// Of the checkpoint c->eval.ckpt (NULL: as session_load chooses) the validation loss, and what [eval] asks. verb_eval:
// with one rank, in this process.
err_t verb_eval(const config *c, FILE *out);
err_t eval_rank(const config *c, const launch *at, board *b);

// Continues the prompt, or [sample] prompt, or each one of a file: lines of text, or JSONL with "prompt", of which each
// gives a line of JSON. At most one of prompt and prompts is given. (trainer/prompts.c)
err_t verb_sample(const config *c, const char *ckpt, const char *prompt, const char *prompts, FILE *out);
// The checkpoint that a directory stands for: itself, or of a run's its best, or else its newest. *which: what it is of
// the run, "" of itself.
err_t checkpoint_of(const char *from, char ckpt[IO_PATH], const char **which);

// Of a checkpoint's directory, or of a run's.
err_t verb_hash(const char *from, FILE *out);

// Arguments after the verb. export: a run or a checkpoint, and a directory to make of it, as Hugging Face's are.
// inspect: what weights are, of a run those of its best checkpoint, or else of its newest.
err_t verb_export(int argc, char **argv, FILE *out);
err_t verb_inspect(int argc, char **argv, FILE *out);

// A rank of `lockstep bench`: times [run] steps of the INI's model on made-up samples: no data, no files. Rank 0
// prints.
err_t bench_rank(const config *c, const launch *at, board *b);

// The same for `lockstep bench step`: the time of a step, operation by operation, compared with what this device could
// do.
err_t bench_step_rank(const config *c, const launch *at, board *b);

#endif
