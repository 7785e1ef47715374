// trainer/log/stopwatch.h: where a step's time goes by the device's own clock. A device that works on its own is behind the host:
// a clock of the host's tells how long queueing took, and nothing else. So timed events (gpu/gpu.h) are put around what is to
// be measured, and nobody ever waits for them: they are read when the step that they belong to is known to be done, which is
// two steps later.
//
//   step N is queued     its spans go into one of three lists
//   step N+1 is queued   step N is told: it is done
//   step N+2 is queued   the spans of step N are read, and their list is the next to be filled
//
// Where it was not opened (a CPU: computing is the host's own work, and its clock is right) nothing below does anything.
#ifndef TRAINER_LOG_STOPWATCH_H
#define TRAINER_LOG_STOPWATCH_H

#include "gpu/gpu.h"

typedef enum span_kind {
    SPAN_STEP,  // compute stream: from a step's first work to its gradient. The next two lie inside it
    SPAN_DATA,  //   no micro-batch was there yet
    SPAN_WAIT,  //   for communication
    SPAN_JOIN,  // compute stream: for communication, behind the gradient
    SPAN_BUSY,  // communication stream: inside its calls
    SPANS,
} span_kind;

enum { STOPWATCH_STEPS = 3 };

typedef struct span_list {
    event **at;        // from, to, from, to, ...
    int room, count;   // spans
} span_list;

typedef struct stopwatch {
    bool open, running;
    int now;           // lists that are filled
    bool lost[STOPWATCH_STEPS];  // there were more spans than room
    span_list list[STOPWATCH_STEPS][SPANS];
} stopwatch;

// most: spans of each kind in a step. All events that will ever be used are opened here.
err_t stopwatch_open(stopwatch *w, device *d, const int most[SPANS]);
void stopwatch_close(stopwatch *w);

// Spans are noted between the two; what else uses the streams (an evaluation) is not a step's time.
void stopwatch_start(stopwatch *w);
void stopwatch_stop(stopwatch *w);

// A span of work queued on s. Spans of one kind do not nest. One that is begun and never ended is begun anew.
err_t stopwatch_begin(stopwatch *w, span_kind kind, stream *s);
err_t stopwatch_end(stopwatch *w, span_kind kind, stream *s);

// What is noted from here on belongs to the next step.
void stopwatch_turn(stopwatch *w);

// Milliseconds of each kind, of the step before the last one: two steps before that which is being noted. It must be done.
// False: there was none, or it is not known whole; then all are zero.
err_t stopwatch_read(const stopwatch *w, double ms[SPANS], bool *known);

#endif
