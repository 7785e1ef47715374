// trainer/watch/machine.h: machine.jsonl: what a node's machine did, a line every [log] machine_every seconds, each the
// mean of the looks since the last. It is only appended to.
//
//   {"t":"machine","time":UNIX,"node":0,"host":"..","step":12,"disk_free":BYTES,"disk_read_per_s":..,
//    "disk_written_per_s":..,"cpu":PROCESSORS,"ranks":[{"rank":0,"watts":..,"watts_max":..,"celsius":..,"mhz":..,
//    "utilisation":..,"resident":BYTES,"device_used":BYTES,"limited":"no"},...]}
//
// null: not known. limited: each limit that held a look's clocks.
#ifndef TRAINER_WATCH_MACHINE_H
#define TRAINER_WATCH_MACHINE_H

#include "base/err.h"
#include "trainer/watch/state.h"

typedef struct machine machine;

// every_s: seconds between lines.
err_t machine_open(machine **out, int locals, double every_s);
void machine_close(machine *m);

// Counts a look. If a line is due, or if this is the last look and there is a mean to tell, one is made: *line is the
// text, with its newline, until the next call; else NULL.
void machine_add(machine *m, const watch_state *s, bool last, const char **line, size_t *bytes);

#endif
