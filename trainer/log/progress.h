// trainer/log/progress.h: what a person reads of a run on standard output: lines, and where that is a terminal, a bar
// below them. The run itself prints through it (trainer/log/terminal.c), and who follows a run that was started
// elsewhere (trainer/watch/tail.c). A person who does not read is no failure: nothing here fails.
#ifndef TRAINER_LOG_PROGRESS_H
#define TRAINER_LOG_PROGRESS_H

#include "trainer/log/record.h"

typedef struct progress {
    bool draws;        // standard output is a terminal: draw a bar
    bool drawn;        // the last line shows one
    double last_draw;  // seconds
    int64_t steps;     // last step of the run, 0: not known
    double epochs;     // of a run whose length is given so; 0: it is not
    double epoch_steps;
    const char *unit;  // "tok"
} progress;

void progress_open(progress *p, int64_t steps, const char *unit);
void progress_close(progress *p);  // removes the bar

// One line, above the bar.
void progress_say(progress *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

void progress_event(progress *p, const incident_record *r);
void progress_eval(progress *p, const eval_record *r);
void progress_checkpoint(progress *p, const checkpoint_record *r);
void progress_sample(progress *p, const sample_record *r);

// A line for a step that is `logged`, or a bar for any, at most ten times a second. left_s: until the run's end; NaN:
// not known.
void progress_step(progress *p, const step_record *r, double left_s);

// "1h05m", "2m10s", "12s", "-" of what is not known.
void progress_time(char out[32], double s);

// "38.1k tok/s"
void progress_rate(char out[48], const char *unit, double per_s);

#endif
