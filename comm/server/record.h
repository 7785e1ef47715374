// comm/server/record.h: the order in which a server served its workers, as a file of lines; and a run that repeats it.
//
//     lockstep served 1
//     server 0 of 2, workers 4, mode async
//     period 1 10              its steps
//     next 2 0                 worker 2 gets ticket 0 (comm/server/serving.h)
//     pull 2 0                 ... the weights for it
//     push 2 0                 ... its gradient is applied, or in hybrid held
//     drop 1 5                 ... came too late
//     close 3                  hybrid: what is held becomes one update
//     end 1 10                 all ranks have met
//
// What a server does follows from these lines, and what a worker computes from the weights that it got. So a run that
// serves in the order of its lines has the same bits.
#ifndef COMM_SERVER_RECORD_H
#define COMM_SERVER_RECORD_H

#include "base/fault.h"
#include "base/err.h"

#include <stdio.h>
#include <stdint.h>

#define SERVED_EVENTS(X) \
    X(SERVED_NEXT, "next") \
    X(SERVED_PULL, "pull") \
    X(SERVED_PUSH, "push") \
    X(SERVED_DROP, "drop") \
    X(SERVED_CLOSE, "close") \
    X(SERVED_PERIOD, "period") \
    X(SERVED_END, "end")
#define SERVED_ENUM(name, text) name,
typedef enum { SERVED_EVENTS(SERVED_ENUM) } served_event;

// a, b: worker and ticket; of CLOSE the step and 0; of PERIOD and END its first and last step.
typedef struct served_line {
    served_event what;
    int64_t a, b;
} served_line;

typedef struct served_about {
    int server, servers, workers;
    const char *mode;
} served_about;

typedef struct served_record {
    FILE *to;
    char path[1024];
} served_record;

// Opens PATH to write, after the END of the period that ends with step `after`: what follows it is of a run that was
// killed, and is cut off. 0: from the beginning. ERR_DATA: the file has no such period, or is of another layout.
err_t served_record_open(served_record *x, const char *path, const served_about *about, int64_t after);
err_t served_write(served_record *x, served_line line);
// Lines so far are with the system.
err_t served_flush(served_record *x);
void served_record_close(served_record *x);

// Reads a file, line by line, from the period that begins after step `after`.
typedef struct served_replay {
    FILE *from;
    char path[1024];
    int64_t line;  // number of the line that was read last
    int workers;
    served_line now;  // not used yet
    bool ended;
} served_replay;

// ERR_IO: it can't be read. ERR_DATA: it is none, or of another layout, or has no such period.
err_t served_replay_open(served_replay *x, const char *path, const served_about *about, int64_t after);
// x->now (=) the next line; x->ended: there is none. ERR_DATA names the line that is none.
err_t served_replay_next(served_replay *x);
void served_replay_close(served_replay *x);

// "push 2 17" into dst. Returns dst.
enum { SERVED_TEXT = 64 };
const char *served_text(served_line line, char dst[SERVED_TEXT]);

#endif
