// trainer/watch/status_json.h: status.json: what a node's watcher knows, for programs and for `lockstep status`. One
// object, replaced as a whole; numbers that are not known are null.
#ifndef TRAINER_WATCH_STATUS_JSON_H
#define TRAINER_WATCH_STATUS_JSON_H

#include "base/err.h"
#include "trainer/watch/state.h"

// "starting", "training", "evaluating", "sampling", "saving", "stopping"; "done", "failed", "stopped" when it has
// ended.
const char *status_word(const watch_state *s);

// Bytes that are enough for a node with so many ranks.
size_t status_json_room(int locals);

// The text, with its newline, into dst. Returns its length; 0: it needs more room.
size_t status_json(const watch_state *s, char *dst, size_t room);

#endif
