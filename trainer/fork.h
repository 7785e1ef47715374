// trainer/fork.h: `lockstep fork`: a new run that begins with a checkpoint of another one: its weights, optimizer
// state, counters and place in the data, with settings that may differ.
//
//   runs/a/ckpt/step-00000050/   is copied, every digest verified, to      runs/b/ckpt/step-00000050/
//          config.ini            and FILES over it are the settings in     runs/b/config.ini
//          log.jsonl             up to step 50 is the beginning of         runs/b/log.jsonl
//          events.jsonl          gets an event `fork`, and `forked` is in  runs/b/events.jsonl, with what differs
//
// The new run is made in a hidden directory beside its place, runs/.b.fork, and renamed as a whole: it exists
// completely or not at all.
#ifndef TRAINER_FORK_H
#define TRAINER_FORK_H

#include "base/err.h"
#include "trainer/command.h"
#include "trainer/config/config.h"

#include <stdio.h>

typedef struct fork_options {
    // RUN_DIR, RUN_DIR@STEP or RUN_DIR@best; without a step its newest checkpoint that is sound (progress_is_proven)
    const char *from;
    const char *name;          // of the new run, which is made beside the other one, or in the [run] dir of the files
    const char *const *files;  // settings that override those of RUN_DIR/config.ini
    int count;
    const char *const *overrides;  // "section.key=value", which win over the files
    int override_count;
} fork_options;

// Prints what differs, where in the data the new run goes on, and the next command. After a failure there is nothing
// new. ERR_USAGE: no such run, or the new one is there already; ERR_CONFIG: a setting that can't differ, by name;
// ERR_DATA: a checkpoint that is damaged, or not whole on this node.
err_t fork_run(const fork_options *o, FILE *out);

// The words: RUN_DIR[@STEP|@best] NEW_NAME [FILES...]
err_t verb_fork(const command *words, FILE *out);

// What of the settings may differ, and what of those of class bits may not: NULL, or why. A key that nobody has thought
// of may not: trainer/fork_keys.c, or the row of an architecture's key, says it of each (test/test_fork.c looks).
const char *fork_forbids(const config *c, const char *key);

// Is it said of this bits key?
bool fork_knows(const config *c, const char *key);

#endif
