// trainer/costs/failures_drawn.h: what a cluster does while its parts fail (failures_walk), to be looked at: as a trace
// for chrome://tracing and Perfetto, or as a picture for a browser, a row for each day.
#ifndef TRAINER_COSTS_FAILURES_DRAWN_H
#define TRAINER_COSTS_FAILURES_DRAWN_H

#include "base/text.h"
#include "trainer/costs/failures.h"

// ERR_USAGE: the name of a drawing ends in neither .json nor .svg.
err_t drawing_name(const char *path);
bool drawing_is_svg(const char *path);

// Text that finds no room is missing (text_bytes).
err_t failures_json(text *to, const failure_rules *r);
err_t failures_svg(text *to, const failure_rules *r);

// One of both, into a file.
err_t failures_draw(const failure_rules *r, const char *path);

#endif
