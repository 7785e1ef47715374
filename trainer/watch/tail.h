// trainer/watch/tail.h: the progress of a run that was started elsewhere, mostly by systemd.
#ifndef TRAINER_WATCH_TAIL_H
#define TRAINER_WATCH_TAIL_H

#include "base/err.h"

// lockstep tail RUN_DIR [--lines N]: prints the last N (10) records of log.jsonl, then each that is added, and events,
// as the run itself prints them: with a bar on a terminal, as plain lines elsewhere. Ends when the run has ended, or on
// Ctrl-C. A log that is truncated because the run was resumed is followed on. ERR_USAGE: what is wrong with the
// arguments.
err_t verb_tail(int argc, char **argv);

#endif
