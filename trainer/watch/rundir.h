// trainer/watch/rundir.h: what a run's directory says of the run, from its files alone: on any node, by any process,
// whether the run lives or not. Anything may be missing, half-written or damaged; then it is not known.
#ifndef TRAINER_WATCH_RUNDIR_H
#define TRAINER_WATCH_RUNDIR_H

#include "base/io.h"

#include <jansson.h>
#include <stdbool.h>

// Is there a directory, and is it a run's? ERR_USAGE: no, and what a run's directory is.
err_t rundir_check(const char *dir);

// Does a process on this machine hold DIR/lock, or DIR itself?
bool rundir_locked(const char *dir);

// Whole lines at the end of DIR/NAME, at most `most` bytes, with a NUL; NULL: there is no such file, or it can't be
// read. *changed: when it was last written, seconds since 1970. The caller frees it.
char *rundir_end(const char *dir, const char *name, size_t most, double *changed);

// The first line of DIR/NAME as an object; NULL: there is none. The caller releases it.
json_t *rundir_first(const char *dir, const char *name);

// The next line at *at as an object, *at after it; NULL at the end. Lines that are none are passed over. The caller
// releases it.
json_t *rundir_line(char **at);

// DIR/status.json; NULL: there is none (*damaged false), or it is not an object (true).
json_t *rundir_status(const char *dir, bool *damaged);

// A setting of DIR/config.ini, which every start of the run writes, into dst, cut if it has to be. false: not known;
// then dst is "".
bool rundir_setting(const char *dir, const char *section, const char *key, char *dst, size_t room);
int64_t rundir_steps(const char *dir);  // [run] steps; 0: not known

// Fields of objects. A number that is absent or null is NaN, a text "", and a whole number beyond +-9e15, which a
// double holds exactly, `otherwise`.
double rundir_real(const json_t *o, const char *key);
int64_t rundir_whole(const json_t *o, const char *key, int64_t otherwise);
const char *rundir_text(const json_t *o, const char *key);

// "2026-11-24T12:00:00Z" as seconds since 1970; NaN: something else.
double rundir_when(const char *at);

#endif
