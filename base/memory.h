// base/memory.h: how much memory there is for a run: at the most, so that one that is too large says so before it takes
// any, and now.
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

// Of this machine, or of what a container's limit (control groups v1 or v2, of any level) leaves of it.
typedef struct memory_room {
    int64_t most;  // bytes that all processes here can have at once, swap included; INT64_MAX: not known
    // bytes that can be had now without swapping; files that are only cached count as free. -1: not known
    int64_t available;
    int64_t addresses;  // that one process may have (ulimit -v); INT64_MAX: as many as it likes
    const char *what;   // what sets `most`: "this machine" or "the control group"
} memory_room;

// root: what stands before /proc and /sys, "" for this machine; tests have their own.
memory_room memory_find(const char *root);

// ERR_CONFIG, as no restart mends it: `who` needs so many bytes, and there are not as many. alone: `who` is one
// process. What to do about it is for the caller to add (trainer/session/fits.h).
err_t memory_refuse(const char *who, int64_t bytes, bool alone, const memory_room *m);

#endif
