// trainer/watch/status.h: an answer at three in the morning: does the run live, who is waited for, what is at risk, and
// what to do next. From files alone, on any node.
#ifndef TRAINER_WATCH_STATUS_H
#define TRAINER_WATCH_STATUS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdio.h>

enum { STATUS_LINES = 15, STATUS_COLUMNS = 80 };

// lockstep status RUN_DIR [--json]. *code, the exit status: 0 fine (it runs, or has all its steps), 1 attention (it
// hangs, is slow, is about to fill its disk, or was stopped on request), 2 dead (it failed, died, or never began).
err_t verb_status(int argc, char **argv, FILE *out, int *code);

// The same of one directory at a time, seconds since 1970. At most STATUS_LINES lines of STATUS_COLUMNS, but for the
// next command, which is one line of any length; as JSON one object. What is printed of files is safe on a terminal.
// ERR_USAGE: dir is no run's directory.
err_t status_write(const char *dir, double now, bool json, FILE *out, int *code);

#endif
