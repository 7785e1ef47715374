// trainer/watch/command.h: commands that a person can run as they are printed, from the directory in which they stand.
#ifndef TRAINER_WATCH_COMMAND_H
#define TRAINER_WATCH_COMMAND_H

#include <stddef.h>

// "BEFORElockstep VERBDIR/config.ini", which goes on with a run, or looks at it. Relative paths in the settings of a
// run begin where it was started, so that if this is elsewhere, there is a `cd` before it. Where it can't be known,
// because the run was moved, the command says so.
void command_of(char *dst, size_t room, const char *before, const char *verb, const char *dir);

// What the run itself said: if it is a command of lockstep, it was said where the run was started, so that a `cd` is
// before it, as above.
void command_from(char *dst, size_t room, const char *said, const char *dir);

// "WORDS DIR"
void command_on(char *dst, size_t room, const char *words, const char *dir);

#endif
