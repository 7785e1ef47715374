// trainer/lock.h: one process a run directory: two would truncate each other's log.
#ifndef TRAINER_LOCK_H
#define TRAINER_LOCK_H

#include "base/err.h"

#include <stdbool.h>

// Held is the directory itself, which nobody can remove while it has files, and DIR/lock, by which builds that know
// only that file, and people, see that the run lives. Both go with the process.
typedef struct run_lock {
    int dir, file;  // descriptors, -1: not held
} run_lock;

// Takes what is there; with `make` also what is not: the directory, and the file in it. *l: {-1, -1}, or what an
// earlier call has taken. ERR_UNAVAILABLE: another process holds it, still after a second.
err_t run_lock_take(run_lock *l, const char *dir, bool make);

// Is what is held still what the paths name? What was removed or replaced is made and taken anew. ERR_UNAVAILABLE:
// another process has it by now.
err_t run_lock_keep(run_lock *l, const char *dir);

void run_lock_release(run_lock *l);

#endif
