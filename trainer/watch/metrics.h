// trainer/watch/metrics.h: a watch_state as Prometheus reads it (text format 0.0.4).
//
// Names follow Prometheus' own rules: prefix lockstep_, base units (seconds, bytes, joules, ratios of 0 to 1), _total
// for what only grows. What only grows begins at 0 with the process, so that rate() sees a restart for what it is. What
// is not known is left out. Each node shows its own ranks; what rank 0 alone knows (loss, steps, tokens ...) is shown
// by rank 0's node.
#ifndef TRAINER_WATCH_METRICS_H
#define TRAINER_WATCH_METRICS_H

#include "base/err.h"
#include "trainer/watch/state.h"

#include <stddef.h>

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

// Bytes that are enough for a node with so many ranks.
size_t metrics_room(int locals);

// Writes the text and a NUL to dst (room). Returns the text's bytes; 0: it has no room, and dst is "".
size_t metrics_write(const watch_state *s, char *dst, size_t room);

// Replaces a file by it, for the textfile collector of node_exporter, which reads *.prom of a directory: a reader finds
// the old text or the new one. Nothing waits for the disk, as after a crash of the machine the text is stale anyway.
// ERR_IO.
err_t metrics_file(const watch_state *s, const char *path);

#endif
