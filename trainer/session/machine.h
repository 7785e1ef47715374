// trainer/session/machine.h: opens the half of a session that outlives its ranks: device, model, data, tokenizer and
// what is asked in evaluations.
#ifndef TRAINER_SESSION_MACHINE_H
#define TRAINER_SESSION_MACHINE_H

#include "trainer/session/session.h"

// All of it, as the INI says, on the device of that number. After a failure, too, session_close() it.
err_t session_machine(session *x, const config *c, session_kind kind, int device);
// The same for one of several processes of a rank, which count together at `passed` how often each fault point was met.
err_t session_machine_of(session *x, const config *c, session_kind kind, int device, atomic_long *passed);
void session_close_machine(session *x);  // session_close calls it

// Parts of it, for a plan, of a session that has its cfg and kind.
err_t session_open_device(session *x, int number);
err_t session_open_model(session *x);

// Model and training data alone, as the INI says, without a device. session_close() it.
err_t session_data(session *x, const config *c);

// Threads that fill a micro-batch, where the source allows more than one: [data] workers.
int session_readers(const session *x);

// What part k of a mix of training data gives to the run, as one line of text.
enum { SESSION_PART = 512 };
void session_part(const session *x, int k, char dst[SESSION_PART]);

// Can a sample continue this prompt? ERR_CONFIG: the model's vocabulary lacks a token of it. Nothing is checked where
// [sample] tokens = 0. Opening a session that trains checks [sample] prompt.
err_t session_check_prompt(const session *x, const char *prompt);

// The tokens that a sample begins with: the prompt, in [sample] template. e: an encoder of x->words, NULL without. *ids
// NULL: the prompt's bytes. They are valid until the next call.
err_t session_encode(const session *x, encoder *e, const char *prompt, const int32_t **ids, int64_t *count);

// DIR/config.ini: the settings in force, with the build and the data's hash.
err_t session_write_config(const session *x, const char *dir);

#endif
