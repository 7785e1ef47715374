// trainer/step/trace.h: what a simulation of a step's lists says (trainer/step/simulate.h), to be looked at: as a trace
// for chrome://tracing and Perfetto, and as a picture for a browser. In both every action has its text and its times.
#ifndef TRAINER_STEP_TRACE_H
#define TRAINER_STEP_TRACE_H

#include "base/text.h"
#include "trainer/step/simulate.h"

// The times of `s` are seconds. name: of a rank, as "stage 3". Text that finds no room is missing (text_bytes).

// Chrome's trace event format: a thread for each rank, with what it computes and what it waits for as complete events,
// and its messages to other ranks as asynchronous ones, from where both ends could begin to their arrival.
void trace_json(text *to, const simulate_lists *in, const simulation *s, const char *title, const char *const *name);

// SVG: a row for each rank, forward in blue, backward in green, the weights' half in dark green, the update in orange,
// waiting left blank. Hovering over a bar tells what it is.
void trace_svg(text *to, const simulate_lists *in, const simulation *s, const char *title, const char *const *name);

#endif
