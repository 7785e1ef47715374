// trainer/log/stopwatch.h: where a step's time goes, by the device's own clock. An asynchronous device runs later than
// the host: the host's clock would only measure queueing. So timed events (gpu/gpu.h) are put around what is to be
// measured. Nothing waits for them: they are read two steps later, when their step is known to be done.
//
//   step N is queued     its spans go into one of three lists
//   step N+1 is queued   step N is collected: it is done
//   step N+2 is queued   the spans of step N are read, and their list is filled next
//
// On a CPU the host computes and its clock is right: the stopwatch is not opened, and nothing below does anything.
#ifndef TRAINER_LOG_STOPWATCH_H
#define TRAINER_LOG_STOPWATCH_H

#include "gpu/gpu.h"

typedef enum span_kind {
    SPAN_STEP,    // compute stream: from a step's first work to its gradient. It contains the next five
    SPAN_DATA,    //   waiting for a micro-batch
    SPAN_WAIT,    //   waiting for communication
    SPAN_BEFORE,  //   of a pipeline: waiting for the stage before
    SPAN_AFTER,   //   for the stage after
    SPAN_TENSOR,  //   for the ranks that share layers
    SPAN_JOIN,    // compute stream: waiting for communication, after the gradient
    SPAN_BUSY,    // communication stream: inside its calls
    SPANS,
} span_kind;

enum { STOPWATCH_STEPS = 3 };

typedef struct span_list {
    event **at;       // from, to, from, to, ...
    int room, count;  // spans
} span_list;

typedef struct stopwatch {
    bool open, running;
    int now;                     // index of the lists being filled
    bool lost[STOPWATCH_STEPS];  // there were more spans than room
    span_list list[STOPWATCH_STEPS][SPANS];
} stopwatch;

// most: spans of each kind in a step. All events that will ever be used are opened here.
err_t stopwatch_open(stopwatch *w, device *d, const int most[SPANS]);
void stopwatch_close(stopwatch *w);

// Spans are recorded between these two calls; other work on the streams (an evaluation) does not count.
void stopwatch_start(stopwatch *w);
void stopwatch_stop(stopwatch *w);

// A span of work queued on s. Spans of one kind do not nest. If one is not ended, the next begin replaces it.
err_t stopwatch_begin(stopwatch *w, span_kind kind, stream *s);
err_t stopwatch_end(stopwatch *w, span_kind kind, stream *s);

// Spans recorded from here on belong to the next step.
void stopwatch_turn(stopwatch *w);

// Milliseconds of each kind in the step two before the one being recorded, which must be done. *known = false, and all
// zeros: there was no such step, or its lists were full.
err_t stopwatch_read(const stopwatch *w, double ms[SPANS], bool *known);

#endif
