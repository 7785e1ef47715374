// trainer/log/cut.h: where a log ends as if nothing after a step had been written.
//
// A checkpoint stores the length of rank 0's log. Where nodes come and go, another node's first rank may become rank 0,
// and its own log has another length: then the steps in it decide.
#ifndef TRAINER_LOG_CUT_H
#define TRAINER_LOG_CUT_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

// *bytes (=) of the log.jsonl at `path` that tell of steps up to `step`: whole lines, before the first one that tells
// of a later step. saved: also those of the step's checkpoint, which is written after it. No file: 0.
err_t log_cut(const char *path, int64_t step, bool saved, int64_t *bytes);

#endif
