// trainer/verbs.h: the verbs that open a session, or a checkpoint, print what they find, and close it; each is in the
// file that is named. Those with headers of their own: train.h, bench.h, plan.h, fork.h.
#ifndef TRAINER_VERBS_H
#define TRAINER_VERBS_H

#include "base/io.h"
#include "comm/team/team.h"
#include "trainer/config/config.h"
#include "trainer/log/board.h"

#include <stdio.h>

// --- verbs.c ---------------------------------------------------------------------------------------------------------

// Opens everything, reads and checks all data, prints what the run would be.
err_t verb_check(const config *c, FILE *out);
err_t verb_pack(const config *c, FILE *out);

// The hashes of a checkpoint's directory, or of a run's.
err_t verb_hash(const char *from, FILE *out);

// The checkpoint that a directory stands for: itself, or of a run's its best, or else its newest. *which: what it is of
// the run, "" of itself.
err_t checkpoint_of(const char *from, char ckpt[IO_PATH], const char **which);

// --- tune.c ----------------------------------------------------------------------------------------------------------

// Measures how the matrix products of a step are best computed on this GPU, and writes what [device] plans reads
// (trainer/session/tuned.h).
err_t verb_tune(const config *c, FILE *out);

// --- eval.c ----------------------------------------------------------------------------------------------------------

// Of the checkpoint c->eval_ckpt (NULL: as session_load chooses) the validation loss, and what [eval] asks; and in
// c->eval_answers, unless NULL, answers.json. verb_eval:
// with one rank, in this process. eval_rank: one of several.
err_t verb_eval(const config *c, FILE *out);
err_t eval_rank(const config *c, const launch *at, board *b);

// --- prompts.c -------------------------------------------------------------------------------------------------------

// Continues the prompt, or [sample] prompt, or each one of a file: lines of text, or JSONL with "prompt", of which each
// gives a line of JSON. At most one of prompt and prompts is given.
err_t verb_sample(const config *c, const char *ckpt, const char *prompt, const char *prompts, FILE *out);

// --- export.c, inspect.c ---------------------------------------------------------------------------------------------

// Arguments after the verb. export: a run or a checkpoint, and a directory to make of it, as Hugging Face's are.
// inspect: what weights are, of a run those of its best checkpoint, or else of its newest.
err_t verb_export(int argc, char **argv, FILE *out);
err_t verb_inspect(int argc, char **argv, FILE *out);

#endif
